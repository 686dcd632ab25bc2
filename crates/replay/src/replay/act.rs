//! What a thread does in a row.
//!
//! Most events come in runs of one thread. While it acts, what each of its events
//! changes of its own totals and of the heap's stands in an [`Act`], not in the replay;
//! where the run ends, or anything out of the ordinary happens, the replay takes that
//! over.

use highwater_event::api::ApiKind;
use highwater_trace::Brief;

use super::{Replay, whole};
use crate::block::{Fields, MAX_NS, MAX_SEQNO, MAX_SIZE};
use crate::contest::{End, Made};
use crate::freed::Free;
use crate::index::Key;
use crate::peak::Level;
use crate::sampling::Weight;
use crate::watch::{Watch, Watched};

/// A run, as far as the replay does not know it yet.
#[derive(Clone, Copy)]
pub(super) struct Act {
    /// The thread's index.
    pub(super) thread: u32,
    /// Its events.
    events: u64,
    // What they come to.
    allocations: u64,
    bytes_allocated: u64,
    frees: u64,
    bytes_freed: u64,
    temporary: u64,
    // What the thread has now.
    live_blocks: u64,
    live_bytes: u64,
    peak_bytes: u64,
    peak_ns: u64,
    last_alloc: u64,
    /// What the heap has now.
    level: Level,
    /// The latest time.
    now: u64,
    /// The last time up to which `most` goes.
    until: u64,
    /// Most bytes that were alive since the replay's series of them was told.
    most: u64,
}

/// An event among those of its run.
#[derive(Clone, Copy)]
struct Place<'a> {
    event: &'a Brief,
    /// The key of its address.
    key: &'a Key,
    seqno: u64,
    /// Its number in the epoch.
    at: u32,
}

impl Act {
    /// Time is `ns`, or later: merged times do not go back; where a damaged trace makes
    /// them, the latest stands, so that no lifetime becomes negative.
    #[inline(always)]
    fn comes(&mut self, ns: u64) {
        self.now = self.now.max(ns);
    }
}

impl Replay {
    /// Begins a run of the thread of this event.
    pub(super) fn begin(&mut self, event: &Brief) -> Act {
        if self.fed == 0 {
            self.totals.first_ns = event.ns;
        }
        self.now = self.now.max(event.ns);
        let thread = self.thread(event.thread);
        self.peak.tick(thread, event.stamp);
        self.go_on_with(thread)
    }

    /// A run of a thread that acts already.
    fn go_on_with(&mut self, thread: u32) -> Act {
        let mut act = Act {
            thread,
            events: 0,
            allocations: 0,
            bytes_allocated: 0,
            frees: 0,
            bytes_freed: 0,
            temporary: 0,
            live_blocks: 0,
            live_bytes: 0,
            peak_bytes: 0,
            peak_ns: 0,
            last_alloc: 0,
            level: self.peak.level,
            now: self.now,
            until: self.series.end_of(self.now),
            most: 0,
        };
        if let Some(totals) = self.threads.get(thread as usize) {
            (act.live_blocks, act.live_bytes) = (totals.live_blocks, totals.live_bytes);
            (act.peak_bytes, act.peak_ns) = (totals.peak_bytes, totals.peak_ns);
            act.last_alloc = totals.last_alloc;
        }
        act
    }

    /// Takes over what a run has come to.
    pub(super) fn take_over(&mut self, act: &Act) {
        if let Some(totals) = self.threads.get_mut(act.thread as usize) {
            totals.allocations += act.allocations;
            totals.bytes_allocated = totals.bytes_allocated.wrapping_add(act.bytes_allocated);
            totals.frees = totals.frees.wrapping_add(act.frees);
            totals.bytes_freed = totals.bytes_freed.wrapping_add(act.bytes_freed);
            totals.temporary = totals.temporary.wrapping_add(act.temporary);
            (totals.live_blocks, totals.live_bytes) = (act.live_blocks, act.live_bytes);
            (totals.peak_bytes, totals.peak_ns) = (act.peak_bytes, act.peak_ns);
            totals.last_alloc = act.last_alloc;
            totals.last_ns = act.now;
        }
        let totals = &mut self.totals;
        totals.allocations += act.allocations;
        totals.bytes_allocated = totals.bytes_allocated.wrapping_add(act.bytes_allocated);
        // Of a sample, what a failed realloc takes back may be more than there was yet.
        totals.frees = totals.frees.wrapping_add(act.frees);
        totals.bytes_freed = totals.bytes_freed.wrapping_add(act.bytes_freed);
        totals.temporary = totals.temporary.wrapping_add(act.temporary);
        totals.last_ns = act.now;
        self.now = act.now;
        self.fed += act.events;
        self.peak.level = act.level;
        if act.events > 0 {
            self.series.note_all(act.now, act.most, act.level.live_bytes);
        }
    }

    /// Takes in some events of the run, the first of them with this seqno and this number
    /// in the epoch. `SAMPLE`: this may be a sample.
    #[inline(always)]
    pub(super) fn goes_on<W: Watch, const SAMPLE: bool>(
        &mut self,
        act: &mut Act,
        (seqno, at): (u64, u32),
        events: &[Brief],
        keys: &[Key],
        is_free: impl Fn(&Brief) -> bool,
        watch: &mut W,
    ) {
        for ((event, key), (seqno, at)) in events.iter().zip(keys).zip((seqno..).zip(at..)) {
            if W::EVENTS {
                watch.comes(self, event);
            }
            if event.ns > act.until {
                *act = self.goes_by(*act, event.ns);
            }
            act.comes(event.ns);
            act.level.tick(event.stamp);
            let place = Place { event, key, seqno, at };
            match is_free(event) {
                true => self.free::<_, SAMPLE>(act, place, watch),
                false => self.alloc::<_, SAMPLE>(act, place, watch),
            }
            act.most = act.most.max(act.level.live_bytes);
            act.events += 1;
            if W::EVENTS {
                (self.totals.last_ns, self.seqno) = (act.now, seqno);
            }
        }
    }

    /// Takes over a run that goes on at a time behind `until`.
    #[cold]
    #[inline(never)]
    fn goes_by(&mut self, act: Act, ns: u64) -> Act {
        self.take_over(&act);
        Act { until: self.series.end_of(ns), ..self.go_on_with(act.thread) }
    }

    #[inline(always)]
    fn alloc<W: Watch, const SAMPLE: bool>(
        &mut self,
        act: &mut Act,
        Place { event, key, seqno, at }: Place<'_>,
        watch: &mut W,
    ) {
        let size = event.size.min(MAX_SIZE);
        let weight = self.weight_in::<SAMPLE>(size, seqno);
        let (blocks, bytes) = (weight.blocks, weight.bytes);
        self.sizes.add_many(size, blocks);
        self.totals.by_api[event.api as usize & 63] += blocks;
        if event.paired {
            self.totals.note_pair(event.api, blocks);
        }
        let (ns, thread, api) = (act.now.min(MAX_NS), act.thread, event.api as u8);
        let (addr, site) = (event.addr, self.site_at(event.node));
        let fields = Fields { addr, size, ns, seqno: seqno.min(MAX_SEQNO), thread, api, site };
        if let Some(before) = self.table.put_at(key, &fields) {
            *act = self.replaces(*act, &fields, &before.fields(), (seqno, at));
        }
        if !self.contests.is_empty() {
            self.note_made(&fields, at);
        }
        if let Some(totals) = self.sites.get_mut(site as usize) {
            totals.made(&weight, self.peak.epoch);
            if W::EVENTS {
                watch.made(event, &Watched { site, totals, size, seqno, ns: 0, weight });
            }
        }
        act.allocations += blocks;
        act.bytes_allocated = act.bytes_allocated.wrapping_add(bytes);
        act.live_blocks = act.live_blocks.wrapping_add(blocks);
        act.live_bytes = act.live_bytes.wrapping_add(bytes);
        act.last_alloc = fields.seqno;
        if act.live_bytes > act.peak_bytes {
            (act.peak_bytes, act.peak_ns) = (act.live_bytes, act.now);
        }
        let peaks = act.level.add(bytes, blocks);
        if peaks {
            self.peak.reached(act.level.live_blocks, act.now, seqno);
        }
        if self.samples::<SAMPLE>() {
            self.totals.sampled.made(&weight);
            if peaks {
                self.totals.sampled.peaked();
            }
        }
    }

    /// A block has taken the place of one that lived at its address.
    #[cold]
    #[inline(never)]
    fn replaces(&mut self, act: Act, block: &Fields, before: &Fields, (seqno, at): (u64, u32)) -> Act {
        self.take_over(&act);
        self.seqno = seqno;
        self.replaced(block, before, at);
        self.peak.switch(act.thread);
        self.go_on_with(act.thread)
    }

    #[cold]
    pub(super) fn note_made(&mut self, fields: &Fields, at: u32) {
        let usable = self.usable.get(&fields.seqno).copied();
        if let Some(contest) = self.contests.get_mut(&fields.addr) {
            contest.made.push(Made { at: Some(at), fields: *fields, usable, end: None });
        }
    }

    #[inline(always)]
    fn free<W: Watch, const SAMPLE: bool>(&mut self, act: &mut Act, place: Place<'_>, watch: &mut W) {
        let Place { event, key, seqno, at } = place;
        act.frees = act.frees.wrapping_add(1);
        let count = &mut self.totals.by_api[event.api as usize & 63];
        *count = count.wrapping_add(1);
        let (ns, thread) = (act.now, act.thread);
        // Whether it is temporary follows.
        let free = Free { seqno, ns, node: event.node, thread, api: event.api, temporary: false };
        let ring = &mut self.freed;
        let taken = self.table.take_at(key, event.addr, |block| (block.fields(), ring.push(block, &free)));
        let Some((fields, remembered)) = taken else {
            *act = self.found_nothing(*act, place);
            return;
        };
        if !fields.matches(event.api) {
            *act = self.found_another(*act, place, &fields);
        }
        let weight = self.weight_in::<SAMPLE>(fields.size, fields.seqno);
        if self.samples::<SAMPLE>() {
            // The event itself is counted; the others that it stands for:
            let others = weight.blocks.wrapping_sub(1);
            act.frees = act.frees.wrapping_add(others);
            let count = &mut self.totals.by_api[event.api as usize & 63];
            *count = count.wrapping_add(others);
        }
        let temporary = self.ends::<SAMPLE>(act, &fields, &weight);
        if W::EVENTS
            && let Some(totals) = self.sites.get(fields.site as usize)
        {
            let Fields { site, size, seqno, ns, .. } = fields;
            let ns = act.now.saturating_sub(ns);
            watch.freed(event, &Watched { site, totals, size, seqno, ns, weight });
        }
        self.freed.set_temporary(remembered, temporary);
        let end = End { thread, ns, temporary, free: Some(seqno) };
        if !self.contests.is_empty()
            && let Some(contest) = self.contests.get_mut(&event.addr)
        {
            contest.ended(fields.seqno, Some(end));
        }
        if matches!(event.api, ApiKind::ReallocFree | ApiKind::ReallocarrayFree) {
            self.half(&whole(event, seqno), thread, at, Some((fields, end)));
        }
    }

    /// Accounts for a block that the run's thread gives back now, as [`Replay::released`];
    /// says whether it was temporary.
    #[inline(always)]
    fn ends<const SAMPLE: bool>(&mut self, act: &mut Act, block: &Fields, weight: &Weight) -> bool {
        let (blocks, bytes) = (weight.blocks, weight.bytes);
        act.bytes_freed = act.bytes_freed.wrapping_add(bytes);
        self.lifetimes.add_many(act.now.saturating_sub(block.ns), blocks);
        if !self.usable.is_empty() {
            self.usable.remove(&block.seqno);
        }
        let own = block.thread == act.thread;
        if own {
            act.live_blocks = act.live_blocks.wrapping_sub(blocks);
            act.live_bytes = act.live_bytes.wrapping_sub(bytes);
        } else if let Some(maker) = self.threads.get_mut(block.thread as usize) {
            maker.live_blocks = maker.live_blocks.wrapping_sub(blocks);
            maker.live_bytes = maker.live_bytes.wrapping_sub(bytes);
        }
        // A sample does not say what was made between.
        let temporary = own & (act.last_alloc == block.seqno) & !self.samples::<SAMPLE>();
        act.temporary = act.temporary.wrapping_add(u64::from(temporary) * blocks);
        if let Some(site) = self.sites.get_mut(block.site as usize) {
            site.released(weight, temporary, self.peak.epoch);
        }
        act.level.sub(bytes, blocks);
        if self.samples::<SAMPLE>() {
            self.totals.sampled.went(weight);
        }
        temporary
    }

    #[cold]
    #[inline(never)]
    fn found_nothing(&mut self, act: Act, Place { event, seqno, at, .. }: Place<'_>) -> Act {
        self.take_over(&act);
        self.seqno = seqno;
        self.unknown(&whole(event, seqno), act.thread, at);
        self.go_on_with(act.thread)
    }

    #[cold]
    #[inline(never)]
    fn found_another(&mut self, act: Act, Place { event, seqno, at, .. }: Place<'_>, block: &Fields) -> Act {
        self.take_over(&act);
        self.seqno = seqno;
        self.mismatched(&whole(event, seqno), block, at);
        self.go_on_with(act.thread)
    }
}
