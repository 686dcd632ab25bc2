//! A set of addresses that all threads share without a lock.
//!
//! Two-choice buckets of one cache line each: an address lies in one of eight
//! places of one of two buckets, or the set has no room for it. So a look costs
//! two cache lines at most, removing leaves no tombstone, and nothing ever has to
//! be moved or grown.
//!
//! In front of it stands a filter: one counter for each of 65,536 pages, folded.
//! An address whose page has the count zero is not in the set; neighbours share
//! the counter's cache line. A counter that reaches 255 stays there, so a count
//! below it is exact.
//!
//! An address has one owner between its allocation and its free, so insert and
//! remove of one address never race with each other: the program itself hands the
//! block, and with it what was inserted before, from one thread to the other.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::*};

use highwater_event::layout::{SET_BUCKET, SET_FILTER};

type Bucket = [AtomicU64; SET_BUCKET];

/// A view of the set.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Set {
    filter: *const AtomicU8,
    buckets: *const Bucket,
    /// 64 minus the logarithm of the number of buckets.
    shift: u32,
}

impl Set {
    /// Offset of the pointer to the filter.
    pub const FILTER: usize = core::mem::offset_of!(Set, filter);

    /// No set.
    pub const NONE: Set = Set { filter: core::ptr::null(), buckets: core::ptr::null(), shift: 64 };

    /// The set in `memory`, zeroed before its first use.
    ///
    /// # Safety
    /// `memory` is aligned to a cache line and is valid for [`SET_FILTER`] bytes
    /// and `2^bits` buckets (`bits` from 1 to 32) as long as the set is used.
    pub unsafe fn new(memory: *const u8, bits: u32) -> Set {
        // SAFETY: the caller's promise.
        let buckets = unsafe { memory.add(SET_FILTER).cast() };
        Set { filter: memory.cast(), buckets, shift: 64 - bits }
    }

    #[inline(always)]
    fn counter(&self, ptr: u64) -> &AtomicU8 {
        // SAFETY: below SET_FILTER.
        unsafe { &*self.filter.add((ptr >> 12) as usize & (SET_FILTER - 1)) }
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> &Bucket {
        // SAFETY: below 2^bits.
        unsafe { &*self.buckets.add((hash >> self.shift) as usize) }
    }

    /// The two buckets of an address.
    #[inline(always)]
    fn choices(&self, ptr: u64) -> [&Bucket; 2] {
        let hash = ptr.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [self.bucket(hash), self.bucket((hash ^ (hash >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9))]
    }

    /// Is the address in the set, perhaps? (`false`: it is not.)
    #[inline(always)]
    pub fn may_hold(&self, ptr: u64) -> bool {
        self.counter(ptr).load(Acquire) != 0
    }

    /// Puts an address in. False if there is no room for it.
    pub fn insert(&self, ptr: u64) -> bool {
        let [first, second] = self.choices(ptr);
        let taken = |bucket: &Bucket| bucket.iter().filter(|place| place.load(Relaxed) != 0).count();
        // The emptier one keeps both from filling up.
        let order = if taken(first) <= taken(second) { [first, second] } else { [second, first] };
        for place in order.into_iter().flatten() {
            if place.load(Relaxed) == 0 && place.compare_exchange(0, ptr, AcqRel, Relaxed).is_ok() {
                let counter = self.counter(ptr);
                // An error is "255 already": it stays there.
                let _ = counter.fetch_update(AcqRel, Relaxed, |n| n.checked_add(1));
                return true;
            }
        }
        false
    }

    /// Takes an address out. False if it was not in.
    pub fn remove(&self, ptr: u64) -> bool {
        for place in self.choices(ptr).into_iter().flatten() {
            if place.load(Acquire) == ptr && place.compare_exchange(ptr, 0, AcqRel, Relaxed).is_ok() {
                let down = |n: u8| if n == u8::MAX { None } else { n.checked_sub(1) };
                let _ = self.counter(ptr).fetch_update(AcqRel, Relaxed, down);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use highwater_event::sample::mix;
    use std::collections::HashSet;
    use std::vec::Vec;

    /// Memory for a set, aligned to a cache line.
    fn memory(bits: u32) -> Vec<[AtomicU64; 8]> {
        #[repr(align(64))]
        struct Line([AtomicU64; 8]);
        let lines = SET_FILTER / 64 + (1 << bits) + 1;
        let list: Vec<Line> = (0..lines).map(|_| Line(Default::default())).collect();
        list.into_iter().map(|line| line.0).collect()
    }

    fn with_set(bits: u32, f: impl FnOnce(Set)) {
        let memory = memory(bits);
        let at = memory.as_ptr() as usize;
        let aligned = at.next_multiple_of(64) as *const u8;
        // SAFETY: the vector has one line to spare and outlives the set.
        f(unsafe { Set::new(aligned, bits) });
    }

    #[test]
    fn it_holds_what_a_set_holds() {
        with_set(8, |set| {
            let mut model = HashSet::new();
            let mut refused = 0;
            for step in 0..200_000u64 {
                // Few enough addresses that many come again.
                let ptr = 0x7f00_0000_0000 + (mix(step) % 3000) * 16;
                if model.contains(&ptr) {
                    assert!(set.may_hold(ptr));
                    assert!(set.remove(ptr));
                    model.remove(&ptr);
                } else {
                    assert!(!set.remove(ptr));
                    if model.len() < 1400 {
                        if set.insert(ptr) {
                            model.insert(ptr);
                        } else {
                            refused += 1;
                        }
                    }
                }
            }
            assert!(refused < 2000, "{refused}: at two thirds there is nearly always room");
            for ptr in model {
                assert!(set.remove(ptr));
            }
        });
    }

    #[test]
    fn a_full_set_says_so_and_goes_on() {
        with_set(1, |set| {
            let kept: Vec<u64> = (1..100u64).map(|n| n << 13).filter(|&ptr| set.insert(ptr)).collect();
            assert!(kept.len() <= 16 && kept.len() > 8, "{}", kept.len());
            assert!(kept.iter().all(|&ptr| set.remove(ptr)));
            assert!(set.insert(0x1000));
        });
    }

    #[test]
    fn a_filter_that_has_counted_too_far_is_never_wrong() {
        with_set(12, |set| {
            // 300 addresses of one page: the counter stops at 255.
            let all: Vec<u64> = (1..=300u64).map(|n| 0x5555_0000_0000 + n * 8).collect();
            assert!(all.iter().all(|&ptr| set.insert(ptr)));
            for &ptr in &all {
                assert!(set.may_hold(ptr) && set.remove(ptr));
            }
            assert!(set.may_hold(all[0]), "nobody knows any more");
            assert!(!set.may_hold(0x6666_0000_1000));
        });
    }

    #[test]
    fn threads_hand_addresses_to_each_other() {
        with_set(10, |set| {
            struct Shared(Set);
            // SAFETY: the set is atomics all through.
            unsafe impl Sync for Shared {}
            let shared = &Shared(set);
            std::thread::scope(|scope| {
                let (sender, receiver) = std::sync::mpsc::channel();
                scope.spawn(move || {
                    for n in 1..50_000u64 {
                        let ptr = n * 48;
                        if { shared }.0.insert(ptr) {
                            sender.send(ptr).unwrap();
                        }
                    }
                });
                scope.spawn(move || {
                    for ptr in receiver {
                        assert!({ shared }.0.may_hold(ptr));
                        assert!({ shared }.0.remove(ptr));
                    }
                });
            });
        });
    }
}
