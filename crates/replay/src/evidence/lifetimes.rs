//! Classes of lifetimes, and of ages of blocks that live.
//!
//! Lifetimes are counted by powers of two. A block that lives is old by how the
//! lifetimes of others are distributed, which is known only when stacks have been put
//! together; so ages are counted by the classes that may be asked for then.

/// Buckets of lifetimes: those of 2^63 ns and more share the last.
pub const BUCKETS: usize = 64;
/// A block is stale from so many times the age that most of its like did not reach.
/// Buckets are powers of two, so four means at least two.
const TIMES: u64 = 4;

/// The bucket of a lifetime in ns: its number of bits.
#[inline]
pub fn bucket(ns: u64) -> usize {
    (64 - ns.leading_zeros() as usize).min(BUCKETS - 1)
}

/// The greatest lifetime of a bucket, ns, and at least 1.
pub fn upper(bucket: usize) -> u64 {
    1u64.checked_shl(bucket as u32).map_or(u64::MAX, |end| end - 1).max(1)
}

/// Where most blocks were freed by the end of a bucket, blocks older than this are
/// stale, ns.
pub fn stale_age(bucket: usize) -> u64 {
    upper(bucket).saturating_mul(TIMES)
}

/// The class of an age, ns: the number of buckets by whose
/// [stale age](stale_age) it is stale. So of a bucket those are stale of which the
/// class is greater than its number.
pub fn class(age: u64) -> u8 {
    let (mut low, mut high) = (0, BUCKETS);
    while low < high {
        let middle = (low + high) / 2;
        if stale_age(middle) < age {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_tells_by_which_buckets_an_age_is_stale() {
        let mut ages: Vec<u64> =
            (0..64).flat_map(|at| [0, 1, 2].map(|more| (1u64 << at) - 1 + more)).collect();
        ages.extend(
            (0..BUCKETS).flat_map(|at| [stale_age(at) - 1, stale_age(at), stale_age(at).saturating_add(1)]),
        );
        for age in ages {
            for at in 0..BUCKETS {
                assert_eq!(usize::from(class(age)) > at, age > stale_age(at), "{age} {at}");
            }
        }
        assert_eq!((upper(0), upper(1), upper(2), upper(63)), (1, 1, 3, u64::MAX >> 1));
        assert_eq!((bucket(0), bucket(1), bucket(u64::MAX)), (0, 1, 63));
    }
}
