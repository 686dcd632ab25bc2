//! The memory of what was freed lately.

use std::collections::VecDeque;
use std::ops::Range;

use highwater_event::api::ApiKind;

use crate::block::Fields;
use crate::table::NOWHERE;

/// One free that released a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Place of the block in the table, `NOWHERE` once the free was taken back.
    pub place: u32,
    /// From where.
    pub node: u32,
    /// The block; its seqno says whether the place still holds it.
    pub block: Fields,
    /// Seqno of the free.
    pub seqno: u64,
    /// When, ns.
    pub ns: u64,
    /// Index of the thread's totals.
    pub thread: u32,
    /// Through which entry point.
    pub api: ApiKind,
    /// Did it count as temporary?
    pub temporary: bool,
}

/// The latest frees, oldest first, in a bounded number.
pub struct FreedRing {
    ring: VecDeque<Freed>,
    limit: usize,
}

impl FreedRing {
    pub fn new(limit: usize) -> FreedRing {
        FreedRing { ring: VecDeque::new(), limit: limit.max(1) }
    }

    /// Adds a free; the one that falls out for it is returned.
    #[inline]
    pub fn push(&mut self, freed: Freed) -> Option<Freed> {
        let out = if self.ring.len() >= self.limit { self.ring.pop_front() } else { None };
        self.ring.push_back(freed);
        out
    }

    /// The free of the block at `place` that was made by `alloc_seqno`. Looks
    /// back one free after the other, and takes each from `budget`.
    pub fn of_block(&self, place: u32, alloc_seqno: u64, budget: &mut u64) -> Option<Freed> {
        for freed in self.ring.iter().rev() {
            *budget = budget.checked_sub(1)?;
            if freed.place == place && freed.block.seqno == alloc_seqno {
                return Some(*freed);
            }
        }
        None
    }

    /// The blocks made at `place` by events of these seqnos, oldest first, and
    /// their frees; of the latest `frees` frees.
    pub fn at_place(&self, place: u32, seqnos: Range<u64>, frees: usize) -> Vec<Freed> {
        let latest = self.ring.iter().rev().take(frees);
        let its = |freed: &&Freed| freed.place == place && seqnos.contains(&freed.block.seqno);
        let mut found: Vec<Freed> = latest.filter(its).copied().collect();
        found.reverse();
        found
    }

    /// Takes the free with this seqno back, and returns what it was.
    pub fn cancel(&mut self, seqno: u64) -> Option<Freed> {
        let freed =
            self.ring.iter_mut().rev().find(|freed| freed.seqno == seqno && freed.place != NOWHERE)?;
        let was = *freed;
        freed.place = NOWHERE;
        Some(was)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(place: u32, alloc_seqno: u64, seqno: u64) -> Freed {
        let api = ApiKind::Free;
        let block = Fields { addr: 64, size: 1, ns: 0, seqno: alloc_seqno, thread: 0, api: 0, site: 0 };
        Freed { place, node: 0, block, seqno, ns: 0, thread: 0, api, temporary: false }
    }

    #[test]
    fn the_oldest_falls_out_and_a_cancelled_one_is_not_found() {
        let mut ring = FreedRing::new(2);
        assert_eq!(ring.push(freed(1, 0, 1)), None);
        assert_eq!(ring.push(freed(2, 2, 3)), None);
        assert_eq!(ring.push(freed(1, 4, 5)), Some(freed(1, 0, 1)));
        let mut budget = 4;
        assert_eq!(ring.of_block(1, 0, &mut budget), None);
        assert_eq!(ring.of_block(1, 4, &mut budget), Some(freed(1, 4, 5)));
        assert_eq!(budget, 1);
        assert_eq!(ring.at_place(1, 3..5, 2), [freed(1, 4, 5)]);
        assert_eq!(ring.at_place(1, 0..4, 2), []);
        assert_eq!(ring.cancel(5), Some(freed(1, 4, 5)));
        assert_eq!(ring.cancel(5), None);
        assert_eq!(ring.of_block(1, 4, &mut 9), None);
    }
}
