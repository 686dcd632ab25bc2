//! Counting the blocks that pass, one event after the other.

use highwater_event::node::NodeId;
use highwater_replay::histogram::Histogram;
use highwater_replay::sampling::Weight;
use highwater_replay::{ErrorKind, HeapError, LiveBlock, ThreadTotals, Totals};
use highwater_trace::model::{Event, Op, ThreadNo};
use rustc_hash::FxHashMap;

use crate::filter::class;
use crate::group::{By, Counts, Item};
use crate::phase::Phases;
use crate::session::Session;
use crate::walk::{Seen, Walk};

/// What blocks are told apart by: the stack, and what the grouping needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    node: NodeId,
    /// Thread, entry point, size class or phase.
    more: u64,
}

/// The counts of blocks of one key.
struct Cell {
    /// One of them, for what it has in common with the others.
    like: LiveBlock,
    counts: Counts,
    /// The peak that `peak_*` belong to.
    epoch: u64,
}

impl Cell {
    /// Brings `peak_*` up to a peak; called before the cell changes (see
    /// `SiteTotals` of the replay: the same bookkeeping).
    fn settle(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            let counts = &mut self.counts;
            (counts.peak_blocks, counts.peak_bytes) = (counts.live_blocks, counts.live_bytes);
            counts.peak_variance = counts.live_variance;
        }
    }
}

/// What was counted besides the items.
pub(super) struct Counted {
    pub totals: Totals,
    pub threads: Vec<ThreadTotals>,
    pub sizes: Histogram,
    pub lifetimes: Histogram,
}

/// Counts.
pub(super) struct Counter {
    by: By,
    phases: Phases,
    index: FxHashMap<Key, usize>,
    cells: Vec<Cell>,
    totals: Totals,
    /// Number of peaks so far.
    epoch: u64,
    /// A sample does not tell temporary blocks.
    sampled: bool,
    threads: Vec<ThreadTotals>,
    thread_index: FxHashMap<ThreadNo, usize>,
    /// Seqno of each thread's latest allocation, whether it passes or not.
    last_alloc: FxHashMap<ThreadNo, u64>,
    sizes: Histogram,
    lifetimes: Histogram,
    unknown_frees: u64,
}

impl Counter {
    pub fn new(by: By, session: &Session, walk: &Walk<'_>) -> Counter {
        let before = walk.heap().totals();
        let threads = walk.heap().threads().iter();
        let mut totals = Totals::default();
        (totals.first_ns, totals.last_ns, totals.peak_ns) = (before.last_ns, before.last_ns, before.last_ns);
        totals.peak_seqno = walk.first().saturating_sub(1);
        Counter {
            by,
            phases: Phases::of(session.facts()),
            index: FxHashMap::default(),
            cells: Vec::new(),
            totals,
            epoch: 0,
            sampled: session.modes().sample > 0,
            threads: Vec::new(),
            thread_index: FxHashMap::default(),
            last_alloc: threads.map(|thread| (thread.thread, thread.last_alloc)).collect(),
            sizes: Histogram::default(),
            lifetimes: Histogram::default(),
            unknown_frees: 0,
        }
    }

    fn cell(&mut self, block: &LiveBlock) -> &mut Cell {
        let more = match self.by {
            By::Site | By::Stack | By::Function | By::File | By::Module => 0,
            By::Thread => u64::from(block.thread),
            By::Api => block.api as u64,
            By::Size => class(block.size).0,
            By::Phase => u64::from(self.phases.at(block.ns)),
        };
        let next = self.cells.len();
        let at = *self.index.entry(Key { node: block.node, more }).or_insert(next);
        if at == next {
            self.cells.push(Cell { like: *block, counts: Counts::default(), epoch: self.epoch });
        }
        let cell = &mut self.cells[at];
        cell.settle(self.epoch);
        cell
    }

    fn thread(&mut self, thread: ThreadNo, ns: u64) -> &mut ThreadTotals {
        let next = self.threads.len();
        let at = *self.thread_index.entry(thread).or_insert(next);
        if at == next {
            self.threads.push(ThreadTotals::new(thread, ns));
        }
        &mut self.threads[at]
    }

    /// A block that passes is alive at the beginning, or again.
    pub fn alive(&mut self, block: &LiveBlock, weight: Weight) {
        self.totals.sampled.came(&weight);
        self.lives(block, weight);
    }

    fn lives(&mut self, block: &LiveBlock, weight: Weight) {
        let counts = &mut self.cell(block).counts;
        counts.live_blocks += weight.blocks;
        counts.live_bytes = counts.live_bytes.saturating_add(weight.bytes);
        counts.live_variance = counts.live_variance.saturating_add(weight.variance);
        let now = self.totals.last_ns;
        let thread = self.thread(block.thread, now);
        thread.live_blocks += weight.blocks;
        thread.live_bytes = thread.live_bytes.saturating_add(weight.bytes);
        self.totals.live_blocks += weight.blocks;
        self.totals.live_bytes = self.totals.live_bytes.saturating_add(weight.bytes);
    }

    /// What is alive by now was alive at the beginning.
    pub fn begin(&mut self) {
        let now = self.totals.last_ns;
        for thread in &mut self.threads {
            (thread.peak_bytes, thread.peak_ns) = (thread.live_bytes, now);
        }
        self.peak_here();
    }

    /// There has never been more than now.
    fn peak_here(&mut self) {
        self.totals.peak_bytes = self.totals.live_bytes;
        self.totals.peak_blocks = self.totals.live_blocks;
        self.totals.sampled.peaked();
        self.epoch += 1;
    }

    /// An event; what it is about passes or not.
    pub fn event(&mut self, seen: &Seen, passes: bool, weight: Option<Weight>) {
        let event = &seen.event;
        if passes {
            if self.totals.allocations + self.totals.frees == 0 {
                self.totals.first_ns = event.ns;
            }
            self.totals.last_ns = self.totals.last_ns.max(event.ns);
            self.totals.by_api[event.api as usize & 63] += weight.map_or(1, |weight| weight.blocks);
            match (event.op, seen.block(), weight) {
                (Op::Alloc { .. }, Some(block), Some(weight)) => self.made(event, block, weight),
                (Op::Free, Some(block), Some(weight)) => self.freed(event, block, weight),
                _ => {
                    self.totals.frees += 1;
                    self.unknown_frees += 1;
                    let thread = self.thread(event.thread, event.ns);
                    thread.frees += 1;
                    thread.last_ns = event.ns;
                }
            }
        }
        if matches!(event.op, Op::Alloc { .. }) {
            self.last_alloc.insert(event.thread, event.seqno);
        }
    }

    fn made(&mut self, event: &Event, block: &LiveBlock, weight: Weight) {
        let counts = &mut self.cell(block).counts;
        counts.allocations += weight.blocks;
        counts.allocated = counts.allocated.saturating_add(weight.bytes);
        self.totals.sampled.made(&weight);
        self.lives(block, weight);
        let now = self.totals.last_ns;
        let thread = self.thread(event.thread, event.ns);
        thread.allocations += weight.blocks;
        thread.bytes_allocated = thread.bytes_allocated.saturating_add(weight.bytes);
        thread.last_alloc = event.seqno;
        thread.last_ns = now;
        if thread.live_bytes > thread.peak_bytes {
            (thread.peak_bytes, thread.peak_ns) = (thread.live_bytes, now);
        }
        self.sizes.add(block.size);
        let totals = &mut self.totals;
        totals.allocations += weight.blocks;
        totals.bytes_allocated = totals.bytes_allocated.saturating_add(weight.bytes);
        if event.pair.is_some() {
            totals.note_pair(event.api, weight.blocks);
        }
        if totals.live_bytes > totals.peak_bytes {
            (totals.peak_ns, totals.peak_seqno) = (now, event.seqno);
            self.peak_here();
        }
    }

    /// Takes a block out of what is alive.
    fn ended(&mut self, block: &LiveBlock, weight: Weight) {
        let counts = &mut self.cell(block).counts;
        counts.frees += weight.blocks;
        counts.freed = counts.freed.saturating_add(weight.bytes);
        counts.live_blocks = counts.live_blocks.saturating_sub(weight.blocks);
        counts.live_bytes = counts.live_bytes.saturating_sub(weight.bytes);
        counts.live_variance = counts.live_variance.saturating_sub(weight.variance);
        let thread = self.thread(block.thread, block.ns);
        thread.live_blocks = thread.live_blocks.saturating_sub(weight.blocks);
        thread.live_bytes = thread.live_bytes.saturating_sub(weight.bytes);
        let totals = &mut self.totals;
        totals.sampled.went(&weight);
        totals.live_blocks = totals.live_blocks.saturating_sub(weight.blocks);
        totals.live_bytes = totals.live_bytes.saturating_sub(weight.bytes);
        totals.bytes_freed = totals.bytes_freed.saturating_add(weight.bytes);
    }

    /// A block that passes was freed unseen: its address is another's now.
    pub fn lost(&mut self, block: &LiveBlock, weight: Weight) {
        self.ended(block, weight);
        self.totals.missing_frees += 1;
    }

    fn freed(&mut self, event: &Event, block: &LiveBlock, weight: Weight) {
        self.ended(block, weight);
        self.lifetimes.add(event.ns.saturating_sub(block.ns));
        let last = self.last_alloc.get(&event.thread).copied();
        let temporary = block.thread == event.thread && last == Some(block.seqno) && !self.sampled;
        if temporary {
            self.cell(block).counts.temporary += 1;
            self.totals.temporary += 1;
        }
        self.totals.frees += weight.blocks;
        let now = self.totals.last_ns;
        let thread = self.thread(event.thread, event.ns);
        thread.frees += weight.blocks;
        thread.bytes_freed = thread.bytes_freed.saturating_add(weight.bytes);
        thread.temporary += u64::from(temporary);
        thread.last_ns = now;
    }

    /// The blocks, put together by what the grouping needs.
    pub fn items(&mut self) -> Vec<Item> {
        let epoch = self.epoch;
        self.cells
            .iter_mut()
            .map(|cell| {
                cell.settle(epoch);
                Item { counts: cell.counts, ..Item::from(&cell.like) }
            })
            .collect()
    }

    /// All else; `whole` are the totals of all that happened in the window, and
    /// `errors` the bad frees that pass.
    pub fn finish(mut self, whole: &Totals, errors: &[HeapError]) -> Counted {
        let count = |kind: ErrorKind| errors.iter().filter(|error| error.kind == kind).count() as u64;
        let totals = &mut self.totals;
        totals.events = totals.allocations + totals.frees;
        totals.double_free = count(ErrorKind::DoubleFree);
        totals.invalid_free = count(ErrorKind::InvalidFree);
        totals.mismatched = count(ErrorKind::Mismatched);
        totals.foreign_frees = self.unknown_frees.saturating_sub(totals.double_free + totals.invalid_free);
        totals.order_repairs = whole.order_repairs;
        totals.dropped = whole.dropped;
        totals.stalled_ns = whole.stalled_ns;
        totals.sampled.rate = whole.sampled.rate;
        if self.threads.len() > 1 {
            // Of the whole heap; that of a part is not known better.
            totals.peak_uncertainty = whole.peak_uncertainty.min(totals.peak_bytes);
        }
        Counted { totals: self.totals, threads: self.threads, sizes: self.sizes, lifetimes: self.lifetimes }
    }
}
