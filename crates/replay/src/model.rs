//! The same totals without any cleverness, to compare with: maps, and a copy of
//! every site at every new peak. Knows no reorder window.

use std::collections::BTreeMap;

use highwater_trace::model::{Event, Op, Special, Step};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Made {
    event: Event,
    size: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    pub allocations: u64,
    pub bytes: u64,
    pub frees: u64,
    pub temporary: u64,
    pub live: (u64, u64),
    pub peak: (u64, u64),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    pub allocations: u64,
    pub frees: u64,
    pub temporary: u64,
    pub live: (u64, u64),
    pub peak_bytes: u64,
    last_alloc: Option<u64>,
}

/// `(blocks, bytes)` where there are pairs.
#[derive(Clone, Debug, Default)]
pub struct Model {
    live: BTreeMap<u64, Made>,
    /// The latest block at an address that is free, and its free.
    dead: BTreeMap<u64, (Made, Event, bool)>,
    foreign_at: BTreeMap<u64, Event>,
    pub allocations: u64,
    pub frees: u64,
    pub reallocations: u64,
    pub temporary: u64,
    pub bytes: (u64, u64),
    pub peak: (u64, u64, u64),
    pub bad: Vec<(&'static str, u64)>,
    pub foreign: u64,
    pub missing: u64,
    pub sites: BTreeMap<u32, Site>,
    pub threads: BTreeMap<u32, Thread>,
}

impl Model {
    pub fn live_bytes(&self) -> u64 {
        self.live.values().map(|made| made.size).sum()
    }

    pub fn live_seqnos(&self) -> Vec<u64> {
        let mut seqnos: Vec<u64> = self.live.values().map(|made| made.event.seqno).collect();
        seqnos.sort_unstable();
        seqnos
    }

    pub fn feed(&mut self, step: &Step) {
        match step {
            Step::Event(event) => match event.op {
                Op::Alloc { size, .. } => self.alloc(event, size),
                Op::Free => self.free(event),
            },
            Step::Special { what: Special::ReallocUndo { free_seqno: Some(seqno), addr }, .. } => {
                self.undo(*seqno, *addr);
            }
            Step::Special { .. } => {}
        }
        // Everything anew from the live set.
        for site in self.sites.values_mut() {
            site.live = (0, 0);
        }
        for thread in self.threads.values_mut() {
            thread.live = (0, 0);
        }
        for made in self.live.values() {
            let site = self.sites.entry(made.event.node).or_default();
            site.live = (site.live.0 + 1, site.live.1 + made.size);
            let thread = self.threads.entry(made.event.thread).or_default();
            thread.live = (thread.live.0 + 1, thread.live.1 + made.size);
        }
        for thread in self.threads.values_mut() {
            // A failed realloc puts a block back: no new maximum of a thread's own.
            if matches!(step, Step::Event(_)) {
                thread.peak_bytes = thread.peak_bytes.max(thread.live.1);
            }
        }
        if self.live_bytes() > self.peak.1 {
            let seqno = match step {
                Step::Event(event) => event.seqno,
                Step::Special { what: Special::ReallocUndo { free_seqno, .. }, .. } => {
                    free_seqno.unwrap_or(0)
                }
                Step::Special { .. } => 0,
            };
            self.peak = (self.live.len() as u64, self.live_bytes(), seqno);
            for site in self.sites.values_mut() {
                site.peak = site.live;
            }
        }
    }

    fn alloc(&mut self, event: &Event, size: u64) {
        self.allocations += 1;
        self.reallocations += u64::from(event.pair.is_some());
        self.bytes.0 += size;
        if let Some(old) = self.live.remove(&event.addr) {
            self.missing += 1;
            self.bytes.1 += old.size;
            self.sites.entry(old.event.node).or_default().frees += 1;
        }
        self.dead.remove(&event.addr);
        self.live.insert(event.addr, Made { event: *event, size });
        let site = self.sites.entry(event.node).or_default();
        site.allocations += 1;
        site.bytes += size;
        let thread = self.threads.entry(event.thread).or_default();
        thread.allocations += 1;
        thread.last_alloc = Some(event.seqno);
    }

    fn free(&mut self, event: &Event) {
        self.frees += 1;
        let thread = self.threads.entry(event.thread).or_default();
        thread.frees += 1;
        if let Some(made) = self.live.remove(&event.addr) {
            let temporary = made.event.thread == event.thread && thread.last_alloc == Some(made.event.seqno);
            thread.temporary += u64::from(temporary);
            self.temporary += u64::from(temporary);
            self.bytes.1 += made.size;
            let site = self.sites.entry(made.event.node).or_default();
            site.frees += 1;
            site.temporary += u64::from(temporary);
            if !made.event.api.matches(event.api) {
                self.bad.push(("mismatched", event.seqno));
            }
            self.dead.insert(event.addr, (made, *event, temporary));
        } else if self.dead.contains_key(&event.addr) {
            self.bad.push(("double_free", event.seqno));
        } else if !event.addr.is_multiple_of(8)
            || event.addr >= 1 << 56
            || self.live.iter().any(|(&at, made)| event.addr > at && event.addr - at < made.size)
        {
            self.bad.push(("invalid_free", event.seqno));
        } else {
            self.foreign += 1;
            self.foreign_at.insert(event.seqno, *event);
        }
    }

    fn undo(&mut self, seqno: u64, addr: u64) {
        let thread;
        if let Some((made, free, temporary)) = self.dead.remove(&addr).filter(|dead| dead.1.seqno == seqno) {
            thread = free.thread;
            self.live.insert(addr, made);
            self.bytes.1 -= made.size;
            self.temporary -= u64::from(temporary);
            let site = self.sites.entry(made.event.node).or_default();
            site.frees -= 1;
            site.temporary -= u64::from(temporary);
            self.threads.entry(thread).or_default().temporary -= u64::from(temporary);
        } else {
            self.foreign -= 1;
            thread = self.foreign_at[&seqno].thread;
        }
        self.bad.retain(|bad| bad.1 != seqno);
        self.frees -= 1;
        self.threads.entry(thread).or_default().frees -= 1;
    }
}
