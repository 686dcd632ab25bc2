//! Frees that came too early, frees that are still to come.
//!
//! Every address alternates: alloc, free, alloc, free. Where the merged order
//! breaks that between two threads, the stamps were wrong, within the reorder
//! window; what is left when the window has passed was no matter of order.
//!
//! Decisions are made as the events come, so that a live view agrees with the
//! file. Where two threads hand one address to and fro three times or more inside
//! the window, and the stamps mix all of it up, a decision may prove wrong
//! afterwards; it then shows as one missing or one foreign free (about once in
//! 100,000 of the random streams of `properties`, which are made for trouble).

use std::collections::VecDeque;

use highwater_trace::model::{Event, ThreadNo};
use rustc_hash::FxHashMap;

use crate::block::Fields;
use crate::freed::Freed;

/// A free for which no live block was found (yet).
#[derive(Clone, Copy, Debug)]
pub struct Early {
    /// The free.
    pub event: Event,
    /// The live block around the address.
    pub inside: Option<Fields>,
    /// The block that was freed at the address before.
    pub before: Option<Fields>,
    /// Its free, if that is remembered.
    pub freed: Option<Freed>,
    /// Threads that freed the address within the window, this free's among them;
    /// two different ones stand for any number.
    pub threads: [ThreadNo; 2],
}

impl Early {
    /// May the block that `thread` allocates now have been freed by one of these
    /// frees? A thread's own events are in order, so not by one of its own; but
    /// where another thread freed the address lately, that free and this one may
    /// have to change places.
    pub fn may_follow(&self, thread: ThreadNo) -> bool {
        self.threads.iter().any(|&other| other != thread)
    }
}

/// A block whose address was allocated again before its free was seen.
#[derive(Clone, Copy, Debug)]
pub struct Owed {
    /// The block.
    pub block: Fields,
    /// Index of the thread that allocated the address again: its own later frees
    /// belong to later blocks.
    pub by: u32,
    /// When that was, ns: the end of the block.
    pub ns: u64,
}

/// Things by address that fall due, oldest first, after a number of events or
/// of nanoseconds, whichever comes first.
pub struct Window<T> {
    by_addr: FxHashMap<u64, Vec<(u64, T)>>,
    due: VecDeque<Due>,
    next: u64,
    events: u64,
    ns: u64,
}

struct Due {
    event: u64,
    ns: u64,
    addr: u64,
    ticket: u64,
}

impl<T: Copy> Window<T> {
    pub fn new(events: u64, ns: u64) -> Window<T> {
        Window { by_addr: FxHashMap::default(), due: VecDeque::new(), next: 0, events, ns }
    }

    /// Is nothing in it? (It may still say no for a while when all was taken.)
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Puts `what` in; `event` counts the events so far.
    pub fn put(&mut self, addr: u64, event: u64, ns: u64, what: T) {
        let ticket = self.next;
        self.next += 1;
        self.by_addr.entry(addr).or_default().push((ticket, what));
        self.due.push_back(Due {
            event: event.saturating_add(self.events),
            ns: ns.saturating_add(self.ns),
            addr,
            ticket,
        });
    }

    /// Takes out the oldest thing at `addr` that `wanted` accepts.
    pub fn take(&mut self, addr: u64, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let at_addr = self.by_addr.get_mut(&addr)?;
        let at = at_addr.iter().position(|(_, what)| wanted(what))?;
        let (_, what) = at_addr.remove(at);
        if at_addr.is_empty() {
            self.by_addr.remove(&addr);
        }
        Some(what)
    }

    /// Is there anything at `addr`?
    pub fn has(&self, addr: u64) -> bool {
        self.by_addr.contains_key(&addr)
    }

    /// Takes out the oldest thing that is due by now.
    pub fn due(&mut self, event: u64, ns: u64) -> Option<T> {
        while let Some(first) = self.due.front() {
            if event <= first.event && ns <= first.ns {
                return None;
            }
            if let Some(what) = self.pop() {
                return Some(what);
            }
        }
        None
    }

    /// Takes out the oldest thing.
    pub fn pop_all(&mut self) -> Option<T> {
        while !self.due.is_empty() {
            if let Some(what) = self.pop() {
                return Some(what);
            }
        }
        None
    }

    fn pop(&mut self) -> Option<T> {
        let due = self.due.pop_front()?;
        let at_addr = self.by_addr.get_mut(&due.addr)?;
        let at = at_addr.iter().position(|(ticket, _)| *ticket == due.ticket)?;
        let (_, what) = at_addr.remove(at);
        if at_addr.is_empty() {
            self.by_addr.remove(&due.addr);
        }
        Some(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_fall_due_by_events_or_by_time() {
        let mut window = Window::new(10, 100);
        window.put(1, 0, 0, 'a');
        window.put(1, 5, 50, 'b');
        window.put(2, 6, 50, 'c');
        assert_eq!(window.due(10, 100), None);
        assert_eq!(window.due(11, 0), Some('a'));
        assert_eq!(window.take(2, |_| true), Some('c'));
        assert!(window.has(1) && !window.has(2));
        assert_eq!(window.due(11, 151), Some('b'));
        assert_eq!(window.due(11, 151), None);
        assert!(window.is_empty());
    }
}
