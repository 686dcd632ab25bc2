//! The memory of what was freed lately.

use std::ops::Range;

use highwater_event::api::ApiKind;
use rustc_hash::FxHashMap;

use crate::block::Block;
use crate::memory::boxed;

/// Searches from which on the ring keeps an index of its addresses: a program
/// with a few foreign frees does not pay for one at each of its frees.
const SEARCHES: u32 = 32;

/// Frees in a piece of the ring.
const PIECE: usize = 1024;

/// How a block was given back.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    /// Seqno of the free, `u64::MAX` once it was taken back.
    pub seqno: u64,
    /// When, ns.
    pub ns: u64,
    /// From where.
    pub node: u32,
    /// Index of the thread's totals.
    pub thread: u32,
    /// Through which entry point.
    pub api: ApiKind,
    /// Did it count as temporary?
    pub temporary: bool,
}

/// A block and its free.
#[derive(Clone, Copy, Debug)]
pub struct Freed {
    /// The block.
    pub block: Block,
    /// Its free.
    pub free: Free,
}

/// A [`Freed`] as it stands in the ring: in one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Slot {
    block: Block,
    node: u32,
    seqno: u64,
    ns: u64,
    thread: u32,
    api: ApiKind,
    temporary: bool,
}

impl Slot {
    /// What stands in a ring before it is written.
    const NONE: Slot = Slot {
        block: Block::EMPTY,
        node: 0,
        seqno: u64::MAX,
        ns: 0,
        thread: 0,
        api: ApiKind::Free,
        temporary: false,
    };

    fn freed(&self) -> Freed {
        let Slot { block, node, seqno, ns, thread, api, temporary } = *self;
        Freed { block, free: Free { seqno, ns, node, thread, api, temporary } }
    }
}

/// The latest frees in a bounded number. Only written to while nothing is wrong:
/// it is searched where something is freed twice.
pub struct FreedRing {
    /// Free number `n` since the start is at `n` modulo the limit. In pieces: one that
    /// grows as a whole is copied again and again, a tenth of the time that a short trace
    /// takes.
    ring: Vec<Box<[Slot; PIECE]>>,
    addrs: Vec<u64>,
    /// Frees since the start.
    count: u64,
    /// Place of the next one.
    next: usize,
    limit: usize,
    searches: u32,
    /// The number of the latest free at each address; empty while not kept.
    index: FxHashMap<u64, u64>,
}

impl FreedRing {
    pub fn new(limit: usize) -> FreedRing {
        FreedRing {
            ring: Vec::new(),
            addrs: Vec::new(),
            count: 0,
            next: 0,
            limit: limit.max(1),
            searches: 0,
            index: FxHashMap::default(),
        }
    }

    /// Adds a free; the oldest may fall out for it. Returns where it is.
    #[inline(always)]
    pub fn push(&mut self, block: &Block, free: &Free) -> usize {
        let addr = block.addr();
        if self.searches > SEARCHES {
            self.note(addr);
        }
        let at = self.next;
        if at >= self.addrs.len() {
            self.extend();
        }
        if let (Some(piece), Some(of)) = (self.ring.get_mut(at / PIECE), self.addrs.get_mut(at)) {
            let place = &mut piece[at % PIECE];
            place.block.assign(block);
            place.node = free.node;
            place.seqno = free.seqno;
            place.ns = free.ns;
            place.thread = free.thread;
            place.api = free.api;
            place.temporary = free.temporary;
            *of = addr;
        }
        self.count += 1;
        self.next = if at + 1 == self.limit { 0 } else { at + 1 };
        at
    }

    /// Makes room for some more.
    #[cold]
    fn extend(&mut self) {
        self.ring.push(boxed(Slot::NONE));
        self.addrs.resize((self.ring.len() * PIECE).min(self.limit), 0);
    }

    /// Says of the free that [`FreedRing::push`] put there whether it is temporary.
    #[inline(always)]
    pub fn set_temporary(&mut self, at: usize, temporary: bool) {
        if let Some(slot) = self.slot(at) {
            slot.temporary = temporary;
        }
    }

    /// Keeps the index in step with the free that comes.
    #[cold]
    fn note(&mut self, addr: u64) {
        let number = self.count;
        if let Some(out) = number.checked_sub(self.limit as u64)
            && let Some(old) = self.addrs.get((out % self.limit as u64) as usize)
            && self.index.get(old) == Some(&out)
        {
            self.index.remove(old);
        }
        self.index.insert(addr, number);
    }

    /// The number of the oldest free that is remembered.
    fn oldest(&self) -> u64 {
        self.count.saturating_sub(self.limit as u64)
    }

    /// All frees behind the event `seqno` that were not taken back, if all of them are
    /// remembered.
    pub fn after(&self, seqno: u64) -> Option<impl Iterator<Item = Freed> + '_> {
        let oldest = self.oldest();
        // The order of threads that was put right moves a free by no more than an epoch.
        let reaches = |slot: &Slot| slot.seqno != u64::MAX && slot.seqno <= seqno;
        let all = oldest == 0 || self.at(oldest).is_some_and(reaches);
        let numbers = oldest..self.count;
        let its = move |slot: &&Slot| slot.seqno != u64::MAX && slot.seqno > seqno;
        all.then(|| numbers.filter_map(|number| self.at(number)).filter(its).map(Slot::freed))
    }

    fn at(&self, number: u64) -> Option<&Slot> {
        let at = (number % self.limit as u64) as usize;
        self.ring.get(at / PIECE).map(|piece| &piece[at % PIECE])
    }

    #[inline(always)]
    fn slot(&mut self, at: usize) -> Option<&mut Slot> {
        self.ring.get_mut(at / PIECE).map(|piece| &mut piece[at % PIECE])
    }

    /// The latest free at an address that was not taken back.
    pub fn latest_at(&mut self, addr: u64) -> Option<Freed> {
        self.searches = self.searches.saturating_add(1);
        if self.searches == SEARCHES + 1 {
            for number in self.oldest()..self.count {
                if let Some(&of) = self.addrs.get((number % self.limit as u64) as usize) {
                    self.index.insert(of, number);
                }
            }
        }
        let latest = match self.searches > SEARCHES {
            true => self.index.get(&addr).and_then(|&number| self.at(number))?,
            false => {
                let at = self.position(addr)?;
                &self.ring.get(at / PIECE)?[at % PIECE]
            }
        };
        if latest.seqno != u64::MAX {
            return Some(latest.freed());
        }
        let numbers = self.oldest()..self.count;
        let its = |slot: &&Slot| slot.block.addr() == addr && slot.seqno != u64::MAX;
        numbers.rev().filter_map(|number| self.at(number)).find(its).map(Slot::freed)
    }

    /// Where the latest free at an address is, also one that was taken back.
    fn position(&self, addr: u64) -> Option<usize> {
        let (newer, older) = self.addrs.split_at_checked(self.next)?;
        let older = if self.count < self.limit as u64 { &[] } else { older };
        let last = |addrs: &[u64]| addrs.iter().rposition(|&of| of == addr);
        last(newer).or_else(|| last(older).map(|at| at + self.next))
    }

    /// The blocks at `addr` made by events of these seqnos, oldest first, and
    /// their frees; of the latest `frees` frees.
    pub fn at_addr(&self, addr: u64, seqnos: Range<u64>, frees: usize) -> Vec<Freed> {
        let first = self.oldest().max(self.count.saturating_sub(frees as u64));
        let its = |slot: &&Slot| {
            slot.seqno != u64::MAX && slot.block.addr() == addr && seqnos.contains(&slot.block.seqno())
        };
        (first..self.count).filter_map(|number| self.at(number)).filter(its).map(Slot::freed).collect()
    }

    /// Takes the free with this seqno back.
    pub fn cancel(&mut self, seqno: u64) {
        for number in (self.oldest()..self.count).rev() {
            let at = (number % self.limit as u64) as usize;
            if let Some(slot) = self.slot(at).filter(|slot| slot.seqno == seqno) {
                slot.seqno = u64::MAX;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Fields;

    #[test]
    fn a_free_fills_a_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }

    fn push(ring: &mut FreedRing, addr: u64, alloc_seqno: u64, seqno: u64) {
        let fields = Fields { addr, size: 1, ns: 0, seqno: alloc_seqno, thread: 0, api: 0, site: 0 };
        let api = ApiKind::Free;
        let free = Free { seqno, ns: 0, node: 0, thread: 0, api, temporary: false };
        ring.push(&Block::live(&fields), &free);
    }

    fn seqno_at(ring: &mut FreedRing, addr: u64) -> Option<u64> {
        ring.latest_at(addr).map(|freed| freed.free.seqno)
    }

    #[test]
    fn the_oldest_falls_out_and_a_cancelled_one_is_not_found() {
        let mut ring = FreedRing::new(3);
        push(&mut ring, 16, 0, 1);
        push(&mut ring, 32, 2, 3);
        push(&mut ring, 16, 4, 5);
        assert_eq!((seqno_at(&mut ring, 16), seqno_at(&mut ring, 32)), (Some(5), Some(3)));
        push(&mut ring, 48, 6, 7);
        assert_eq!((seqno_at(&mut ring, 16), seqno_at(&mut ring, 48)), (Some(5), Some(7)));
        push(&mut ring, 16, 8, 9);
        assert_eq!((seqno_at(&mut ring, 16), seqno_at(&mut ring, 32)), (Some(9), None));
        let its = |ring: &FreedRing, seqnos| {
            ring.at_addr(16, seqnos, 3).iter().map(|freed| freed.free.seqno).collect::<Vec<_>>()
        };
        assert_eq!(its(&ring, 0..9), [5, 9]);
        assert_eq!(its(&ring, 5..9), [9]);
        ring.cancel(9);
        assert_eq!(seqno_at(&mut ring, 16), Some(5));
        assert_eq!(its(&ring, 0..9), [5]);
    }

    #[test]
    fn many_searches_find_the_same() {
        let (mut often, mut rarely) = (FreedRing::new(50), FreedRing::new(50));
        let mut random = 7u64;
        for seqno in 0..2_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let addr = (random >> 33) % 80 * 16;
            for ring in [&mut often, &mut rarely] {
                push(ring, addr, seqno, seqno);
                if seqno % 17 == 0 {
                    ring.cancel(seqno.saturating_sub(3));
                }
            }
            rarely.searches = 0;
            let wanted = (random >> 40) % 80 * 16;
            assert_eq!(seqno_at(&mut often, wanted), seqno_at(&mut rarely, wanted), "{seqno}");
        }
        assert!(often.searches > SEARCHES && often.index.len() <= 50);
    }
}
