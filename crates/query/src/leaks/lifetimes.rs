//! How long a site's blocks live, and which of those that still do are stale.
//!
//! Lifetimes of freed blocks are counted by powers of two. A live block's age
//! says that its lifetime is at least that: it is *censored*. What share of
//! blocks outlives an age is Kaplan and Meier's estimate over both (1958): the
//! product, over the ages before, of the share that was not freed there among
//! those that came so far.

use highwater_replay::evidence::Lived;
use highwater_replay::evidence::lifetimes::{BUCKETS, bucket, stale_age, upper};

/// Frees (seen, not stood for by a sample) below which a site has no lifetimes of its own to go by.
pub const MIN_FREES: u64 = 16;
/// A block is stale from an age that 99 of 100 freed blocks did not reach by far.
const USUAL: f64 = 0.99;
/// Of the blocks that became so old, at least this share must be alive still:
/// else they are merely old, and will be freed as those before.
const HELD: f64 = 0.8;

/// Lifetimes of a site's freed blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    freed: [u32; BUCKETS],
    count: u64,
    /// Calls that counted: fewer than `count` where each block stands for several.
    seen: u64,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Lifetimes { freed: [0; BUCKETS], count: 0, seen: 0 }
    }
}

impl Lifetimes {
    /// Counts a freed block.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.add_all(ns, 1);
    }

    /// Counts so many freed blocks: all that one of a sample stands for.
    #[inline]
    pub fn add_all(&mut self, ns: u64, blocks: u32) {
        let count = &mut self.freed[bucket(ns)];
        *count = count.saturating_add(blocks);
        self.count = self.count.saturating_add(blocks.into());
        self.seen += 1;
    }

    /// Adds those of a stack.
    pub fn merge(&mut self, other: &Lived<'_>) {
        for &(at, blocks) in other.buckets {
            if let Some(mine) = self.freed.get_mut(usize::from(at)) {
                *mine = mine.saturating_add(blocks);
            }
        }
        self.count = self.count.saturating_add(other.count);
        self.seen = self.seen.saturating_add(other.seen);
    }

    /// Freed blocks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The age that `share` of the freed blocks did not outlive, as the upper end
    /// of its bucket, ns. `None` without any.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        self.quantile_bucket(share).map(upper)
    }

    fn quantile_bucket(&self, share: f64) -> Option<usize> {
        let total: u64 = self.freed.iter().map(|&count| u64::from(count)).sum();
        if total == 0 {
            return None;
        }
        let needed = ((total as f64 * share).ceil() as u64).max(1);
        let mut so_far = 0;
        for (at, &count) in self.freed.iter().enumerate() {
            so_far += u64::from(count);
            if so_far >= needed {
                return Some(at);
            }
        }
        None
    }

    /// From this age on a live block is stale, ns. `None` where too few blocks
    /// were freed to tell.
    pub fn stale_age(&self) -> Option<u64> {
        self.stale_bucket().map(stale_age)
    }

    /// The bucket by which it is: its blocks are of greater
    /// [classes](highwater_replay::evidence::lifetimes::class).
    pub fn stale_bucket(&self) -> Option<usize> {
        if self.seen < MIN_FREES { None } else { self.quantile_bucket(USUAL) }
    }

    /// How many blocks were freed at this age or older (by buckets: none is
    /// counted that was younger).
    pub fn freed_after(&self, ns: u64) -> u64 {
        let from = bucket(ns) + usize::from(!(ns.is_power_of_two() || ns == 0));
        self.freed.iter().skip(from).map(|&count| u64::from(count)).sum()
    }

    /// Kaplan and Meier's share of blocks that outlive an age, given the ages of
    /// those alive (by the same buckets; a block's age counts as the end of its
    /// bucket).
    pub fn survival(&self, ages: &Lifetimes, ns: u64) -> f64 {
        let mut at_risk = (self.count + ages.count) as f64;
        let mut share = 1.0;
        for at in 0..=bucket(ns) {
            let (freed, censored) = (f64::from(self.freed[at]), f64::from(ages.freed[at]));
            if at_risk > 0.0 {
                share *= 1.0 - (freed / at_risk).min(1.0);
            }
            at_risk -= freed + censored;
        }
        share
    }
}

/// The stale blocks of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stale {
    /// How many.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From which age on a block counted, ns.
    pub age: u64,
    /// Of the blocks that became so old, the share that is alive still.
    pub held: f64,
}

/// Judges the blocks of a site that are older than its
/// [stale age](Lifetimes::stale_age): `None` if there are none, or if others
/// that became as old were freed after all.
pub fn stale(freed: &Lifetimes, blocks: u64, bytes: u64) -> Option<Stale> {
    let age = freed.stale_age()?;
    if blocks == 0 {
        return None;
    }
    let held = blocks as f64 / blocks.saturating_add(freed.freed_after(age)) as f64;
    (held >= HELD).then_some(Stale { blocks, bytes, age, held })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ages: impl IntoIterator<Item = u64>) -> Lifetimes {
        let mut lifetimes = Lifetimes::default();
        ages.into_iter().for_each(|age| lifetimes.add(age));
        lifetimes
    }

    #[test]
    fn a_block_that_outlives_its_like_by_far_is_stale() {
        let freed = of((0..1000).map(|i| 1000 + i));
        assert_eq!(freed.quantile(0.5), Some(2047));
        let age = freed.stale_age().unwrap();
        assert_eq!(age, 2047 * 4);
        let stale = stale(&freed, 3, 300).unwrap();
        assert_eq!((stale.blocks, stale.bytes, stale.held), (3, 300, 1.0));
        assert_eq!(super::stale(&freed, 0, 0), None);
    }

    #[test]
    fn old_blocks_of_a_site_that_frees_old_blocks_are_not() {
        // A bounded cache: most go at once, some live until they are evicted.
        let freed = of((0..10_000).map(|_| 100).chain((0..50).map(|_| 1_000_000)));
        assert!(freed.stale_age().unwrap() < 1_000_000);
        assert_eq!(stale(&freed, 10, 10), None);
        // Too few frees say nothing.
        assert_eq!(stale(&of([10; 15]), 10, 10), None);
    }

    #[test]
    fn survival_counts_the_living_up_to_their_age() {
        // Textbook: freed at 1, 4; alive at 2, 8 (each in a bucket of its own).
        let (freed, alive) = (of([1, 4]), of([2, 8]));
        assert!((freed.survival(&alive, 1) - 0.75).abs() < 1e-12);
        assert!((freed.survival(&alive, 4) - 0.75 * 0.5).abs() < 1e-12);
        assert!((freed.survival(&alive, u64::MAX) - 0.375).abs() < 1e-12);
        assert_eq!(Lifetimes::default().survival(&Lifetimes::default(), 9), 1.0);
    }

    #[test]
    fn ages_at_the_ends_of_buckets_are_counted_once() {
        let freed = of([0, 1, 7, 8, 9, u64::MAX]);
        assert_eq!(freed.freed_after(0), 6);
        assert_eq!(freed.freed_after(8), 3);
        assert_eq!(freed.freed_after(9), 1);
        let mut both = freed.clone();
        both.merge(&Lived { count: 7, seen: 6, buckets: &[(4, 5), (63, 2)] });
        assert_eq!((both.count(), both.freed_after(9)), (13, 3));
    }
}
