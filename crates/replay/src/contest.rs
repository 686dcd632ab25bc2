//! Addresses at which an epoch's events did not alternate.
//!
//! Inside an epoch (see [`crate::Replay::barrier`]) the order of different
//! threads' events is a guess. Each event is replayed as it comes, strictly;
//! where that shows an error, the address is noted here with all that is needed
//! to decide anew when the epoch is over and everything is known.

use highwater_trace::Brief;
use highwater_trace::model::Event;

use crate::block::{Fields, family};
use crate::freed::{Free, Freed};
use crate::order::{Item, Kind};

/// Events that an epoch has at most; a longer one is cut.
pub const LONGEST_EPOCH: usize = 1 << 20;

const FAMILY_SHIFT: u32 = 2;
const THREAD_SHIFT: u32 = 6;
const ADDR_SHIFT: u32 = 16;
const THREADS: u32 = 1 << (ADDR_SHIFT - THREAD_SHIFT);

/// The events of an epoch in 8 bytes each: address (48 bits), thread (10),
/// family (4), kind (2).
#[derive(Default)]
pub struct Log(Vec<u64>);

#[inline(always)]
fn entry(addr: u64, thread: u32, family: u8, kind: Kind) -> u64 {
    addr << ADDR_SHIFT
        | u64::from(thread % THREADS) << THREAD_SHIFT
        | u64::from(family & 15) << FAMILY_SHIFT
        | kind as u64
}

impl Log {
    /// Adds an event; returns its number in the epoch.
    pub fn push(&mut self, addr: u64, thread: u32, family: u8, kind: Kind) -> u32 {
        let at = self.next();
        self.0.push(entry(addr, thread, family, kind));
        at
    }

    /// Adds plain events of a thread; returns the number of the first.
    #[inline(always)]
    pub fn extend(&mut self, events: &[Brief], thread: u32, is_free: impl Fn(&Brief) -> bool) -> u32 {
        let at = self.next();
        self.0.extend(events.iter().map(|event| {
            let kind = if is_free(event) { Kind::Free } else { Kind::Alloc };
            entry(event.addr, thread, family(event.api as u8), kind)
        }));
        at
    }

    /// How many more events the epoch may have.
    pub fn room(&self) -> usize {
        LONGEST_EPOCH.saturating_sub(self.0.len())
    }

    /// The number of the event that comes next.
    pub fn next(&self) -> u32 {
        self.0.len() as u32
    }

    /// Has nothing happened in the epoch?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The free was a realloc's that failed.
    pub fn touch(&mut self, at: u32) {
        if let Some(entry) = self.0.get_mut(at as usize) {
            *entry = *entry & !3 | Kind::Touch as u64;
        }
    }

    /// Begins the next epoch.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The events: number, the address's 48 bits, the item.
    pub fn entries(&self) -> impl Iterator<Item = (u32, u64, Item)> + '_ {
        (0..).zip(&self.0).map(|(at, entry)| {
            let item = Item {
                thread: (*entry >> THREAD_SHIFT) as u32 % THREADS,
                kind: match *entry & 3 {
                    0 => Kind::Alloc,
                    1 => Kind::Free,
                    _ => Kind::Touch,
                },
                family: (*entry >> FAMILY_SHIFT) as u8 & 15,
            };
            (at, *entry >> ADDR_SHIFT, item)
        })
    }
}

/// The part of an address that the log keeps.
#[inline]
pub fn low48(addr: u64) -> u64 {
    addr & ((1 << 48) - 1)
}

/// A free for which no live block was found.
#[derive(Clone, Copy, Debug)]
pub struct Bad {
    /// The free.
    pub event: Event,
    /// Its number in the epoch.
    pub at: u32,
    /// The free half of a realloc that failed: it did not happen.
    pub undone: bool,
    /// The live block around the address.
    pub inside: Option<Fields>,
    /// The block that was freed at the address before.
    pub before: Option<Fields>,
    /// Its free, if that is remembered.
    pub freed: Option<Freed>,
}

/// How a block's end was accounted for.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// On which thread's account (index).
    pub thread: u32,
    /// When, ns.
    pub ns: u64,
    /// As a temporary block?
    pub temporary: bool,
    /// Seqno of the free; `None` where the address was just allocated again.
    pub free: Option<u64>,
}

impl End {
    /// The end that a remembered free was.
    pub fn of(freed: &Freed) -> End {
        let Free { seqno, ns, thread, temporary, .. } = freed.free;
        End { thread, ns, temporary, free: Some(seqno) }
    }
}

/// A block at a contested address.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// Its number in the epoch; `None` for what was there when the contest began.
    pub at: Option<u32>,
    /// The block.
    pub fields: Fields,
    /// Usable bytes, where recorded.
    pub usable: Option<u64>,
    /// Its end, if it has ended.
    pub end: Option<End>,
}

/// One address.
#[derive(Clone, Debug, Default)]
pub struct Contest {
    /// The address.
    pub addr: u64,
    /// Number of the event that began it.
    pub from: u32,
    /// Seqno of that event.
    pub seqno: u64,
    /// Blocks there.
    pub made: Vec<Made>,
    /// Frees of nothing.
    pub bad: Vec<Bad>,
    /// Numbers in the epoch of allocs upon a live block.
    pub missing: Vec<u32>,
    /// Seqnos of frees through the wrong family.
    pub mismatched: Vec<u64>,
}

impl Contest {
    /// What the strict replay found wrong.
    pub fn errors(&self) -> u32 {
        (self.bad.len() + self.missing.len() + self.mismatched.len()) as u32
    }

    /// Did something live there when this event, the epoch's first at the
    /// address, came?
    pub fn lived(&self, at: u32, item: Item) -> bool {
        match item.kind {
            Kind::Alloc => self.missing.contains(&at),
            Kind::Free | Kind::Touch => self.bad.iter().all(|bad| bad.at != at),
        }
    }

    /// Notes that a block has ended, or lives again.
    pub fn ended(&mut self, seqno: u64, end: Option<End>) {
        for made in self.made.iter_mut().filter(|made| made.fields.seqno == seqno) {
            made.end = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_what_was_put_in() {
        let mut log = Log::default();
        assert_eq!(log.push(0x7fff_ffff_fff0, 1023, 9, Kind::Free), 0);
        assert_eq!(log.push(0x10, 1024, 15, Kind::Alloc), 1);
        log.touch(0);
        let entries: Vec<_> = log.entries().collect();
        let item = |thread, kind, family| Item { thread, kind, family };
        assert_eq!(
            entries,
            [(0, 0x7fff_ffff_fff0, item(1023, Kind::Touch, 9)), (1, 0x10, item(0, Kind::Alloc, 15))]
        );
    }
}
