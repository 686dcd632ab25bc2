//! `--cull AGE`: blocks that are freed younger than AGE leave only totals.
//!
//! Events are held back until they are AGE old. A free that finds its block's
//! allocation among them, and young, takes both out. What makes it exact:
//!
//! * A realloc's free half is decided on only when its thread shows that the
//!   realloc did not fail.
//! * Whether a block was *temporary* depends on the allocations between; where
//!   those are left out, a reader would take a block for one that was not. The
//!   difference goes into the totals.
//! * The greatest number of bytes that lived in blocks left out is followed in the
//!   order of all records: by so much the peak may be higher.
//!
//! What is held back is bounded ([`MAX_HELD`], [`MAX_SPAN`]): beyond that the
//! oldest go into the trace before their time. They are kept, never lost.

use std::collections::VecDeque;

use highwater_event::api::ApiKind;
use highwater_event::codec::{Record, SpecialKind};
use highwater_event::node::NodeId;
use highwater_trace::model::ThreadNo;
use highwater_trace::{TraceError, Writer};
use rustc_hash::FxHashMap;

use super::latest::Latest;
use super::tally::Tally;
use super::{Merged, Out, Pace};

/// Most records that are held back: at most 160 bytes each.
const MAX_HELD: usize = 1 << 19;
/// Most records between the oldest that is held back and the newest: 8 bytes each.
const MAX_SPAN: usize = 1 << 23;

/// A record that waits.
struct Held {
    /// Its number among all records.
    number: u64,
    merged: Merged,
    /// The epoch that it came in.
    epoch: u32,
    left_out: bool,
    /// Of a free: its block was temporary.
    temporary: bool,
}

/// A free half of a realloc that may yet fail, and its block's allocation.
#[derive(Clone, Copy)]
struct Pending {
    alloc: u64,
    free: u64,
}

/// Holds events back and leaves pairs out.
pub struct Cull {
    age: u64,
    /// By number; those left out are marked, and swept out now and then.
    held: VecDeque<Held>,
    marked: usize,
    /// Bytes that each record from number `first` on adds to what lives unseen.
    deltas: VecDeque<i64>,
    first: u64,
    epoch: u32,
    /// The allocation, among the held records, of the block at an address.
    young: FxHashMap<u64, u64>,
    pending: FxHashMap<ThreadNo, Pending>,
    /// In truth, and by the events that are kept.
    truth: Latest,
    shown: Latest,
    /// The stack of the block that each thread has just given back and that was
    /// no temporary one, whatever the events show.
    corrected: FxHashMap<ThreadNo, NodeId>,
    /// The sums since they were last written.
    pub tally: Tally,
}

impl Cull {
    /// Leaves out what is freed before it is `age` ns old.
    pub fn new(age: u64) -> Cull {
        Cull {
            age,
            held: VecDeque::new(),
            marked: 0,
            deltas: VecDeque::new(),
            first: 0,
            epoch: 0,
            young: FxHashMap::default(),
            pending: FxHashMap::default(),
            truth: Latest::default(),
            shown: Latest::default(),
            corrected: FxHashMap::default(),
            tally: Tally::default(),
        }
    }

    /// Bytes that this takes, about.
    pub fn memory(&self) -> u64 {
        let tables = self.young.capacity() * 18;
        (self.held.capacity() * size_of::<Held>() + self.deltas.capacity() * 8 + tables) as u64
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.held.binary_search_by_key(&number, |held| held.number).ok()
    }

    /// Takes in an epoch's records, in their order.
    pub fn take(&mut self, merged: &[Merged], pace: &Pace) {
        self.epoch = self.epoch.wrapping_add(1);
        for one in merged {
            let (epoch, number) = (self.epoch, self.first + self.deltas.len() as u64);
            let mut held = Held { number, merged: *one, epoch, left_out: false, temporary: false };
            let thread = one.thread;
            self.deltas.push_back(0);
            match &mut held.merged.record {
                Record::Alloc { ptr, api, pair, node, .. } => {
                    if self.decide(thread, true, pace) && *pair {
                        // The other half is left out.
                        *pair = false;
                        self.tally.pair(*api);
                    }
                    self.truth.made(thread, *ptr, *node);
                    self.young.insert(*ptr, number);
                    self.held.push_back(held);
                }
                Record::Free { ptr, api, .. } => {
                    let (ptr, api) = (*ptr, *api);
                    self.decide(thread, true, pace);
                    held.temporary = self.truth.freed(thread, ptr).is_some();
                    self.held.push_back(held);
                    let Some(alloc) = self.young.remove(&ptr) else { continue };
                    let pending = Pending { alloc, free: number };
                    if matches!(api, ApiKind::ReallocFree | ApiKind::ReallocarrayFree) {
                        self.pending.insert(thread, pending);
                    } else {
                        self.leave_out(pending, pace);
                    }
                }
                Record::Special { kind, .. } => {
                    let failed = *kind == SpecialKind::ReallocUndo;
                    self.decide(thread, !failed, pace);
                    if failed {
                        self.truth.undone(thread);
                    }
                    self.held.push_back(held);
                }
            }
        }
        if self.marked * 2 > self.held.len() {
            self.held.retain(|held| !held.left_out);
            self.marked = 0;
        }
    }

    /// A thread went on after the free half of a realloc: it did happen, or not.
    /// Says whether the half is left out.
    fn decide(&mut self, thread: ThreadNo, happened: bool, pace: &Pace) -> bool {
        match self.pending.remove(&thread) {
            Some(pending) if happened => self.leave_out(pending, pace),
            _ => false,
        }
    }

    /// Leaves a block out, if it was young enough and both its events are held.
    fn leave_out(&mut self, pair: Pending, pace: &Pace) -> bool {
        let (Some(alloc_at), Some(free_at)) = (self.place(pair.alloc), self.place(pair.free)) else {
            return false;
        };
        let (Some(alloc), Some(free)) = (self.held.get(alloc_at), self.held.get(free_at)) else {
            return false;
        };
        let ns = pace.ns(alloc.merged.stamp, free.merged.stamp);
        let (maker, freer, temporary) = (alloc.merged.thread, free.merged.thread, free.temporary);
        let Record::Alloc { size, node, api: made_by, pair: second_half, .. } = alloc.merged.record else {
            return false;
        };
        let Record::Free { api: freed_by, .. } = free.merged.record else { return false };
        if ns >= self.age {
            return false;
        }
        for at in [alloc_at, free_at] {
            if let Some(held) = self.held.get_mut(at) {
                held.left_out = true;
                self.marked += 1;
            }
        }
        let signed = i64::try_from(size).unwrap_or(i64::MAX);
        for (number, delta) in [(pair.alloc, signed), (pair.free, -signed)] {
            if let Some(at) = number.checked_sub(self.first)
                && let Some(place) = self.deltas.get_mut(at as usize)
            {
                *place = delta;
            }
        }
        let tally = &mut self.tally;
        tally.call(made_by);
        tally.call(freed_by);
        tally.size(size);
        tally.lifetime(ns);
        if second_half {
            tally.pair(made_by);
        }
        let site = tally.sites.entry(node).or_default();
        site.blocks += 1;
        site.bytes = site.bytes.saturating_add(size);
        site.temporary += i64::from(temporary);
        let made = tally.threads.entry(maker).or_default();
        made.allocations += 1;
        made.bytes = made.bytes.saturating_add(size);
        let freed = tally.threads.entry(freer).or_default();
        freed.frees += 1;
        freed.bytes_freed = freed.bytes_freed.saturating_add(size);
        freed.temporary += i64::from(temporary);
        true
    }

    /// Writes what is old enough at stamp `now`; all with `None`.
    ///
    /// # Errors
    /// As the writer.
    pub fn release(
        &mut self,
        writer: &mut Writer,
        out: &mut Out,
        pace: &Pace,
        now: Option<u64>,
    ) -> Result<(), TraceError> {
        let age = self.age;
        let young = |stamp: u64| now.is_some_and(|now| pace.ns(stamp, now) < age);
        let mut epoch = None;
        let mut kept = Vec::new();
        while let Some(first) = self.held.front() {
            let crowded =
                self.held.len() - self.marked.min(self.held.len()) > MAX_HELD || self.deltas.len() > MAX_SPAN;
            if !first.left_out && young(first.merged.stamp) && !crowded {
                break;
            }
            let Some(held) = self.held.pop_front() else { break };
            self.pass(held.number);
            if held.left_out {
                self.marked = self.marked.saturating_sub(1);
                continue;
            }
            kept.push(held);
        }
        for held in kept {
            if epoch.is_some_and(|epoch| epoch != held.epoch) {
                out.end_epoch(writer)?;
            }
            epoch = Some(held.epoch);
            self.keep(&held);
            out.push(&held.merged);
        }
        out.end_epoch(writer)?;
        if self.held.is_empty() {
            self.pass(self.first + self.deltas.len() as u64);
        }
        Ok(())
    }

    /// All records before `number` are decided on.
    fn pass(&mut self, number: u64) {
        while self.first < number {
            match self.deltas.pop_front() {
                Some(delta) if delta > 0 => self.tally.unseen(delta as u64),
                Some(delta) => self.tally.gone(delta.unsigned_abs()),
                None => {}
            }
            self.first += 1;
        }
    }

    /// The events show a temporary block that was none (-1), or not after all (1).
    fn correct(&mut self, thread: ThreadNo, node: NodeId, by: i64) {
        self.tally.sites.entry(node).or_default().temporary += by;
        self.tally.threads.entry(thread).or_default().temporary += by;
    }

    /// A record goes into the trace.
    fn keep(&mut self, held: &Held) {
        let thread = held.merged.thread;
        match held.merged.record {
            Record::Alloc { ptr, node, .. } => {
                if self.young.get(&ptr) == Some(&held.number) {
                    self.young.remove(&ptr);
                }
                self.shown.made(thread, ptr, node);
            }
            Record::Free { ptr, .. } => {
                if self.pending.get(&thread).is_some_and(|pending| pending.free == held.number) {
                    self.pending.remove(&thread);
                }
                self.corrected.remove(&thread);
                if let Some(node) = self.shown.freed(thread, ptr)
                    && !held.temporary
                {
                    self.correct(thread, node, -1);
                    self.corrected.insert(thread, node);
                }
            }
            Record::Special { kind: SpecialKind::ReallocUndo, .. } => {
                self.shown.undone(thread);
                // The reader takes back what it counted, so must we.
                if let Some(node) = self.corrected.remove(&thread) {
                    self.correct(thread, node, 1);
                }
            }
            Record::Special { .. } => {}
        }
    }
}
