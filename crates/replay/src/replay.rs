//! The pass itself.

mod act;
mod batch;
mod left_out;
mod resume;
mod settle;
mod window;

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_trace::Brief;
use highwater_trace::model::{Event, Op, Special, Step, ThreadNo};
use rustc_hash::FxHashMap;

use crate::block::{Block, Fields, MAX_SEQNO, MAX_THREAD, family};
use crate::contest::{Bad, Contest, End, Log};
use crate::dense::Dense;
use crate::errors::{AllocRecord, ErrorKind, FreeRecord, HeapError, MAX_ERRORS};
use crate::freed::FreedRing;
use crate::histogram::Histogram;
use crate::live::LiveBlock;
use crate::order::Kind;
use crate::peak::Peak;
use crate::sampling::Weight;
use crate::series::Series;
use crate::table::Table;
use crate::totals::{SiteTotals, ThreadTotals, Totals};
use crate::watch::{Nobody, Watch};
use resume::Doubts;

/// How many slab places all searches for the block around an address may look
/// at, together; afterwards such a free counts as foreign.
const SEARCH_BUDGET: u64 = 1 << 28;

/// What a replay is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many frees are remembered. A second free of a block counts as foreign
    /// once more than so many frees lie between the two.
    pub remember_freed: usize,
    /// The stream is a sample with marks at this mean distance, bytes, and the
    /// numbers are estimates ([`crate::sampling`]); 0: every block is in it.
    pub sample: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { remember_freed: 1 << 18, sample: 0 }
    }
}

/// An instant to stop at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Before the first event.
    Start,
    /// After the last event.
    End,
    /// After the event with this seqno.
    Seqno(u64),
    /// After the last event at or before this time, ns.
    Ns(u64),
}

impl Until {
    /// Does the event with this number and time still belong to it?
    pub fn includes(self, seqno: u64, ns: u64) -> bool {
        match self {
            Until::Start => false,
            Until::End => true,
            Until::Seqno(last) => seqno <= last,
            Until::Ns(last) => ns <= last,
        }
    }
}

/// A heap, replayed event by event.
///
/// Feed it with [`Replay::feed`], then [`Replay::finish`]; or use
/// [`Replay::run`]. The views may be taken at any time between events (a live
/// view does); what the present epoch leaves undecided (see [`Replay::barrier`])
/// is not yet classified.
pub struct Replay {
    totals: Totals,
    peak: Peak,
    table: Table,
    freed: FreedRing,
    sites: Vec<SiteTotals>,
    site_index: Dense,
    threads: Vec<ThreadTotals>,
    thread_index: Dense,
    /// The latest one asked for and its index.
    latest_thread: (ThreadNo, u32),
    usable: FxHashMap<u64, u64>,
    /// The events since the latest barrier.
    log: Log,
    contests: FxHashMap<u64, Contest>,
    halves: Vec<Option<Half>>,
    epoch: u32,
    /// Barriers so far.
    barriers: u64,
    /// Seqno of the present event.
    seqno: u64,
    /// Seqno of the epoch's first event.
    epoch_seqno: u64,
    errors: Vec<HeapError>,
    sizes: Histogram,
    lifetimes: Histogram,
    series: Series,
    /// Events fed so far, failed reallocs included.
    fed: u64,
    now: u64,
    search_budget: u64,
    /// States that the searches for an order have visited.
    order_states: u64,
    /// The first seqno that counts, where only a window does.
    window: Option<u64>,
    doubts: Doubts,
}

/// A thread's latest free half of a realloc.
#[derive(Clone, Copy)]
struct Half {
    seqno: u64,
    /// Its number in the epoch, and that epoch.
    at: u32,
    barriers: u64,
    addr: u64,
    api: ApiKind,
    /// The block, and how its end was accounted for.
    block: Option<(Fields, End)>,
}

/// An event as those see it that settle what was wrong.
#[cold]
fn whole(brief: &Brief, seqno: u64) -> Event {
    let Brief { ns, stamp, addr, size, node, thread, api, .. } = *brief;
    let op = if api.is_free() { Op::Free } else { Op::Alloc { size, usable: None } };
    Event { seqno, ns, stamp, thread, op, api, addr, node, pair: None }
}

/// An event as most come.
fn brief_of(event: &Event) -> Brief {
    let size = match event.op {
        Op::Alloc { size, .. } => size,
        Op::Free => 0,
    };
    let Event { ns, stamp, thread, api, addr, node, pair, .. } = *event;
    Brief { ns, stamp, addr, size, node, thread, api, paired: pair.is_some() }
}

impl Replay {
    /// A replay before the first event.
    pub fn new(options: Options) -> Replay {
        let mut totals = Totals::default();
        totals.sampled.rate = options.sample;
        Replay {
            totals,
            peak: Peak::new(),
            table: Table::default(),
            freed: FreedRing::new(options.remember_freed),
            sites: Vec::new(),
            site_index: Dense::default(),
            threads: Vec::new(),
            thread_index: Dense::default(),
            latest_thread: (0, 0),
            usable: FxHashMap::default(),
            log: Log::default(),
            contests: FxHashMap::default(),
            halves: Vec::new(),
            epoch: 0,
            barriers: 0,
            seqno: 0,
            epoch_seqno: 0,
            errors: Vec::new(),
            sizes: Histogram::default(),
            lifetimes: Histogram::default(),
            series: Series::default(),
            fed: 0,
            now: 0,
            search_budget: SEARCH_BUDGET,
            order_states: 0,
            window: None,
            doubts: Doubts::default(),
        }
    }

    /// Replays a whole stream. `next` gives one step after the other, each with
    /// the number of its epoch: where that changes, there is a
    /// [barrier](Replay::barrier).
    ///
    /// # Errors
    /// Only what `next` returns.
    pub fn run<E>(
        options: Options,
        next: impl FnMut() -> Result<Option<(u32, Step)>, E>,
    ) -> Result<Replay, E> {
        let mut replay = Self::run_until(options, Until::End, next)?;
        replay.finish();
        Ok(replay)
    }

    /// Replays a stream up to an instant. The result is not
    /// [finished](Replay::finish).
    ///
    /// # Errors
    /// Only what `next` returns.
    pub fn run_until<E>(
        options: Options,
        until: Until,
        next: impl FnMut() -> Result<Option<(u32, Step)>, E>,
    ) -> Result<Replay, E> {
        let mut replay = Replay::new(options);
        replay.go_on(until, next)?;
        Ok(replay)
    }

    /// Goes on with a stream up to an instant, as [`Replay::run_until`].
    ///
    /// # Errors
    /// Only what `next` returns.
    pub fn go_on<E>(
        &mut self,
        until: Until,
        mut next: impl FnMut() -> Result<Option<(u32, Step)>, E>,
    ) -> Result<(), E> {
        while let Some((epoch, step)) = next()? {
            if let Step::Event(event) = &step
                && !until.includes(event.seqno, event.ns)
            {
                break;
            }
            self.feed_in(epoch, &step);
        }
        Ok(())
    }

    /// Takes in one step of an epoch.
    #[inline]
    pub fn feed_in(&mut self, epoch: u32, step: &Step) {
        self.feed_watched(epoch, step, &mut Nobody);
    }

    /// [`Replay::feed_in`] while somebody looks on.
    #[inline]
    pub fn feed_watched<W: Watch>(&mut self, epoch: u32, step: &Step, watch: &mut W) {
        if epoch != self.epoch {
            self.epoch = epoch;
            self.barrier();
        }
        self.step(step, watch);
    }

    /// Takes in one step.
    #[inline]
    pub fn feed(&mut self, step: &Step) {
        self.step(step, &mut Nobody);
    }

    #[inline]
    fn step<W: Watch>(&mut self, step: &Step, watch: &mut W) {
        match step {
            Step::Event(event) => self.event(event, watch),
            Step::Special { ns, thread, what } => self.special(*ns, *thread, what),
        }
    }

    /// Ends an *epoch*: all that was fed so far happened before all that will be.
    /// Between two barriers each thread's own events are in order, but the order
    /// of different threads' events is only a guess; it is checked here against
    /// the rule that every address alternates between alloc and free, and put
    /// right. An epoch without an end is cut after a million events.
    pub fn barrier(&mut self) {
        if !self.contests.is_empty() {
            self.settle_contests();
        }
        self.log.clear();
        self.peak.barrier();
        self.barriers += 1;
    }

    /// Classifies what is still undecided. Feeding may go on afterwards, with
    /// what happened after all that was fed.
    pub fn finish(&mut self) {
        self.barrier();
        self.errors.sort_by_key(|error| error.free.seqno);
        if self.window.is_some() {
            self.clamp();
        }
    }

    // ---- what comes out -------------------------------------------------

    /// The totals so far.
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals.clone();
        totals.live_blocks = self.peak.level.live_blocks;
        totals.live_bytes = self.peak.level.live_bytes;
        totals.peak_bytes = self.peak.bytes();
        totals.peak_blocks = self.peak.blocks;
        totals.peak_ns = self.peak.ns;
        totals.peak_seqno = self.peak.seqno;
        // With one thread and nothing unseen there is no doubt.
        let sure = self.threads.len() <= 1 && self.peak.sees_all();
        totals.peak_uncertainty = if sure { 0 } else { self.peak.uncertainty() };
        totals.events = match totals.sampled.rate {
            0 => totals.allocations + totals.frees,
            _ => self.fed,
        };
        totals
    }

    /// What a block of the stream stands for.
    #[inline(always)]
    pub fn weight(&self, size: u64, seqno: u64) -> Weight {
        self.weight_in::<true>(size, seqno)
    }

    /// The same where it may be a sample, or is none. (The frequent way has none of what
    /// a sample takes in its code.)
    #[inline(always)]
    fn weight_in<const SAMPLE: bool>(&self, size: u64, seqno: u64) -> Weight {
        match self.totals.sampled.rate {
            rate if SAMPLE && rate != 0 => Weight::sampled(rate, size, seqno.min(MAX_SEQNO)),
            _ => Weight::whole(size),
        }
    }

    /// Is it a sample, where it may be one?
    #[inline(always)]
    fn samples<const SAMPLE: bool>(&self) -> bool {
        SAMPLE && self.totals.sampled.rate != 0
    }

    /// The threads, in the order of their first events.
    pub fn threads(&self) -> &[ThreadTotals] {
        &self.threads
    }

    /// The sites, in the order of their first allocations; `peak_*` belong to
    /// the global peak so far.
    pub fn sites(&self) -> impl Iterator<Item = SiteTotals> + '_ {
        self.sites
            .iter()
            .map(|site| {
                let mut site = site.clone();
                site.settle(self.peak.epoch);
                site
            })
            .filter(|site| self.window.is_none() || !site.is_nothing())
    }

    /// The totals of one stack.
    pub fn site(&self, node: NodeId) -> Option<SiteTotals> {
        let at = self.site_index.get(node)?;
        let mut site = self.sites.get(at as usize)?.clone();
        site.settle(self.peak.epoch);
        Some(site)
    }

    /// The blocks that are alive, in no order.
    pub fn live(&self) -> impl Iterator<Item = LiveBlock> + '_ {
        self.table.live().map(|block| self.live_block(block))
    }

    /// The block that is alive at this address.
    pub fn block_at(&self, addr: u64) -> Option<LiveBlock> {
        self.table.find(addr).map(|block| self.live_block(block))
    }

    fn live_block(&self, block: &Block) -> LiveBlock {
        LiveBlock {
            addr: block.addr(),
            size: block.size(),
            usable: if self.usable.is_empty() { None } else { self.usable.get(&block.seqno()).copied() },
            seqno: block.seqno(),
            ns: block.ns(),
            thread: self.thread_no(block.thread()),
            api: block.fields().kind(),
            node: self.node_of(block.site()),
        }
    }

    /// The blocks that are alive, by seqno.
    pub fn live_set(&self) -> Vec<LiveBlock> {
        // What is sorted is small; a block is not.
        let mut set: Vec<(u64, &Block)> = self.table.live().map(|block| (block.seqno(), block)).collect();
        set.sort_unstable_by_key(|(seqno, _)| *seqno);
        set.into_iter().map(|(_, block)| self.live_block(block)).collect()
    }

    /// The bad frees, the first [`MAX_ERRORS`] of them; by seqno once finished.
    pub fn errors(&self) -> &[HeapError] {
        &self.errors
    }

    /// Requested sizes of all blocks made.
    pub fn sizes(&self) -> &Histogram {
        &self.sizes
    }

    /// Lifetimes of all freed blocks, ns.
    pub fn lifetimes(&self) -> &Histogram {
        &self.lifetimes
    }

    /// Live bytes over time.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The totals of the stack with this number, by first allocations; `peak_*` may
    /// be those of an earlier peak.
    pub(crate) fn site_number(&self, site: u32) -> Option<&SiteTotals> {
        self.sites.get(site as usize)
    }

    /// Time and seqno of the latest event.
    pub(crate) fn latest(&self) -> (u64, u64) {
        (self.totals.last_ns, self.seqno)
    }

    /// The blocks that are alive, as they stand in the table.
    pub(crate) fn live_fields(&self) -> impl Iterator<Item = Fields> + '_ {
        self.table.live().map(Block::fields)
    }

    /// The blocks that were given back after the event `seqno`, as far as the frees were
    /// not taken back. `None` where there were more than are remembered.
    pub(crate) fn freed_after(&self, seqno: u64) -> Option<impl Iterator<Item = Fields> + '_> {
        self.freed.after(seqno).map(|freed| freed.map(|freed| freed.block.fields()))
    }

    /// Bytes that the live set takes in this process.
    pub fn table_bytes(&self) -> usize {
        self.table.heap_bytes()
    }

    // ---- events ---------------------------------------------------------

    fn event<W: Watch>(&mut self, event: &Event, watch: &mut W) {
        let brief = brief_of(event);
        if let Op::Alloc { usable: Some(usable), .. } = event.op {
            self.usable.insert(event.seqno.min(MAX_SEQNO), usable);
        }
        self.take_in_one(event.seqno, &brief, event.op == Op::Free, watch);
    }

    /// The number of a stack's totals, which are made where there are none.
    #[inline(always)]
    fn site_at(&mut self, node: NodeId) -> u32 {
        let (site, new) = self.site_index.index(node);
        if new {
            self.sites.push(SiteTotals::new(node, self.peak.epoch));
        }
        site
    }

    /// Accounts for a block that ends now, freed by `thread`; says whether it
    /// was temporary.
    fn released(&mut self, block: &Fields, thread: u32) -> bool {
        let weight = self.weight(block.size, block.seqno);
        let (blocks, bytes) = (weight.blocks, weight.bytes);
        self.totals.bytes_freed = self.totals.bytes_freed.wrapping_add(bytes);
        self.lifetimes.add_many(self.now.saturating_sub(block.ns), blocks);
        if !self.usable.is_empty() {
            self.usable.remove(&block.seqno);
        }
        let mut temporary = false;
        if let Some(totals) = self.threads.get_mut(thread as usize) {
            totals.bytes_freed = totals.bytes_freed.wrapping_add(bytes);
            // A sample does not say what was made between.
            temporary =
                block.thread == thread && totals.last_alloc == block.seqno && self.totals.sampled.rate == 0;
            totals.temporary = totals.temporary.wrapping_add(u64::from(temporary) * blocks);
        }
        if let Some(maker) = self.threads.get_mut(block.thread as usize) {
            maker.live_blocks = maker.live_blocks.wrapping_sub(blocks);
            maker.live_bytes = maker.live_bytes.wrapping_sub(bytes);
        }
        if let Some(site) = self.sites.get_mut(block.site as usize) {
            site.released(&weight, temporary, self.peak.epoch);
        }
        self.totals.temporary = self.totals.temporary.wrapping_add(u64::from(temporary) * blocks);
        self.peak.sub(bytes, blocks, thread);
        if self.totals.sampled.rate != 0 {
            self.totals.sampled.went(&weight);
        }
        temporary
    }

    // ---- bad frees ------------------------------------------------------

    /// Says what a free without a block was.
    fn unmatched(&mut self, bad: &Bad) {
        let event = &bad.event;
        if self.window.is_some_and(|first| event.seqno < first) {
            return;
        }
        if let Some(block) = bad.before {
            let error = HeapError {
                kind: ErrorKind::DoubleFree,
                addr: event.addr,
                free: self.free_record(event),
                allocated: Some(self.alloc_record(&block)),
                freed: bad.freed.map(|freed| FreeRecord {
                    seqno: freed.free.seqno,
                    ns: freed.free.ns,
                    thread: self.thread_no(freed.free.thread),
                    api: freed.free.api,
                    node: freed.free.node,
                }),
            };
            self.totals.double_free += 1;
            return self.report(error);
        }
        if bad.inside.is_some() || !may_be_a_block(event.addr) {
            let error = HeapError {
                kind: ErrorKind::InvalidFree,
                addr: event.addr,
                free: self.free_record(event),
                allocated: bad.inside.map(|block| self.alloc_record(&block)),
                freed: None,
            };
            self.totals.invalid_free += 1;
            return self.report(error);
        }
        self.totals.foreign_frees += 1;
    }

    #[cold]
    fn mismatched(&mut self, event: &Event, block: &Fields, at: u32) {
        // What is there is noted before it goes.
        self.table.put(block);
        self.contest(event.addr, at).mismatched.push(event.seqno);
        self.table.take(event.addr, |_| ());
        self.totals.mismatched += 1;
        let error = HeapError {
            kind: ErrorKind::Mismatched,
            addr: event.addr,
            free: self.free_record(event),
            allocated: Some(self.alloc_record(block)),
            freed: None,
        };
        self.report(error);
    }

    /// A free through the wrong family was none, or did not happen.
    fn take_back_mismatch(&mut self, seqno: u64) {
        if self.window.is_some_and(|first| seqno < first) {
            return;
        }
        let its = |error: &HeapError| error.free.seqno == seqno && error.kind == ErrorKind::Mismatched;
        if let Some(at) = self.errors.iter().position(its) {
            self.errors.remove(at);
        }
        self.totals.mismatched = self.totals.mismatched.saturating_sub(1);
    }

    fn report(&mut self, error: HeapError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    /// The live block around an address that is not its start. Looks at all
    /// blocks: bad frees are few, and a budget bounds the worst.
    fn around(&mut self, addr: u64) -> Option<Fields> {
        let cost = self.table.places() as u64;
        if self.search_budget < cost {
            return None;
        }
        self.search_budget -= cost;
        self.table
            .live()
            .find(|block| addr > block.addr() && addr - block.addr() < block.size())
            .map(|block| block.fields())
    }

    // ---- the rest -------------------------------------------------------

    fn special(&mut self, ns: u64, thread: ThreadNo, what: &Special) {
        self.now = self.now.max(ns);
        match what {
            Special::ReallocUndo { free_seqno: Some(seqno), addr } => {
                self.undo(*seqno, *addr, thread);
            }
            Special::Dropped { count } => self.totals.dropped = self.totals.dropped.saturating_add(*count),
            Special::Stalled { ns } => self.totals.stalled_ns = self.totals.stalled_ns.saturating_add(*ns),
            // What has no half in the trace has nothing to take back; mappings are
            // no business of the heap's.
            Special::ReallocUndo { free_seqno: None, .. }
            | Special::Mmap { .. }
            | Special::Munmap { .. }
            | Special::Mremap { .. }
            | Special::Brk { .. } => {}
        }
    }

    /// The realloc whose free half was `seqno` failed: the block lives on.
    fn undo(&mut self, seqno: u64, addr: u64, thread: ThreadNo) {
        self.totals.failed_reallocations += 1;
        if seqno < self.epoch_seqno || self.log.is_empty() {
            self.doubts.add(seqno, self.seqno);
        }
        let by = self.thread(thread);
        let at_bad = |contest: &Contest| contest.bad.iter().position(|bad| bad.event.seqno == seqno);
        let half = self.halves.get(by as usize).copied().flatten().filter(|half| half.seqno == seqno);
        let api = if let Some(at) = self.contests.get(&addr).and_then(at_bad)
            && let Some(contest) = self.contests.get_mut(&addr)
        {
            let Some(bad) = contest.bad.get_mut(at) else { return };
            bad.undone = true;
            self.log.touch(bad.at);
            bad.event.api
        } else if let Some(half) = half
            && let Some((block, end)) = half.block
        {
            self.revive(&half, &block, &end, by);
            half.api
        } else if let Some(at) = self.errors.iter().position(|error| error.free.seqno == seqno) {
            let error = self.errors.remove(at);
            match error.kind {
                ErrorKind::DoubleFree => self.totals.double_free -= 1,
                ErrorKind::InvalidFree => self.totals.invalid_free -= 1,
                ErrorKind::Mismatched => self.totals.mismatched -= 1,
            }
            error.free.api
        } else {
            // Its epoch has passed: it was counted as foreign.
            let Some(rest) = self.totals.foreign_frees.checked_sub(1) else { return };
            self.totals.foreign_frees = rest;
            ApiKind::ReallocFree
        };
        self.totals.frees = self.totals.frees.saturating_sub(1);
        let count = &mut self.totals.by_api[api as usize & 63];
        *count = count.saturating_sub(1);
        if let Some(totals) = self.threads.get_mut(by as usize) {
            totals.frees = totals.frees.saturating_sub(1);
        }
    }

    /// A block that was freed by a half of a realloc lives on.
    fn revive(&mut self, half: &Half, block: &Fields, end: &End, by: u32) {
        let (addr, api) = (block.addr, half.api);
        if let Some(latest) = self.halves.get_mut(by as usize) {
            *latest = None;
        }
        if !block.matches(api) {
            // The bad free did not happen either.
            if let Some(contest) = self.contests.get_mut(&addr) {
                contest.mismatched.retain(|&seqno| seqno != half.seqno);
            }
            self.take_back_mismatch(half.seqno);
        }
        let now = half.barriers == self.barriers;
        if now {
            self.log.touch(half.at);
        }
        let same = self.table.find(addr).is_none()
            && self.freed.latest_at(addr).is_some_and(|freed| freed.block.seqno() == block.seqno);
        if !same && now {
            // Another thread was seen to have the address since.
            let at = self.log.next();
            return self.contest(addr, at).missing.push(half.at);
        }
        self.freed.cancel(half.seqno);
        if let Some(seqno) = end.free {
            self.freed.cancel(seqno);
        }
        self.unreleased(block, end.thread, end.ns, end.temporary);
        if same && now {
            self.put_back(block);
        } else {
            // As if its thread had made it again.
            let at = self.log.push(addr, by, family(api as u8), Kind::Alloc);
            self.place(block, at);
        }
        if let Some(contest) = self.contests.get_mut(&addr) {
            contest.ended(block.seqno, None);
        }
        let weight = self.weight(block.size, block.seqno);
        if self.threads.len() > 1 {
            self.peak.widen(weight.bytes);
        }
        if self.totals.sampled.rate != 0 {
            // The event itself is taken back later; the others that it stands for:
            let others = weight.blocks.wrapping_sub(1);
            self.totals.frees = self.totals.frees.wrapping_sub(others);
            let count = &mut self.totals.by_api[api as usize & 63];
            *count = count.wrapping_sub(others);
            if let Some(totals) = self.threads.get_mut(by as usize) {
                totals.frees = totals.frees.wrapping_sub(others);
            }
        }
        self.peak.add(weight.bytes, weight.blocks, self.now, half.seqno, by);
        self.series.note(self.now, self.peak.level.live_bytes);
    }

    /// Puts a block into the table, with the number of its event in the epoch.
    fn place(&mut self, fields: &Fields, at: u32) {
        if let Some(before) = self.table.put(fields) {
            self.replaced(fields, &before.fields(), at);
        }
        self.note_made(fields, at);
    }

    /// A block has taken the place of one that lived at its address.
    fn replaced(&mut self, block: &Fields, before: &Fields, at: u32) {
        // What is there is noted before it goes.
        self.table.put(before);
        self.displaced(before, at);
        self.table.put(block);
    }

    /// Takes back what [`Replay::released`] counted at `ns`, but not the peak's
    /// part.
    fn unreleased(&mut self, block: &Fields, thread: u32, ns: u64, temporary: bool) {
        let weight = self.weight(block.size, block.seqno);
        let (blocks, bytes) = (weight.blocks, weight.bytes);
        let temporary = u64::from(temporary) * blocks;
        self.totals.bytes_freed = self.totals.bytes_freed.wrapping_sub(bytes);
        self.totals.temporary = self.totals.temporary.wrapping_sub(temporary);
        self.lifetimes.remove_many(ns.saturating_sub(block.ns), blocks);
        if self.totals.sampled.rate != 0 {
            self.totals.sampled.came(&weight);
        }
        if let Some(totals) = self.threads.get_mut(thread as usize) {
            totals.bytes_freed = totals.bytes_freed.wrapping_sub(bytes);
            totals.temporary = totals.temporary.wrapping_sub(temporary);
        }
        if let Some(maker) = self.threads.get_mut(block.thread as usize) {
            maker.live_blocks = maker.live_blocks.wrapping_add(blocks);
            maker.live_bytes = maker.live_bytes.wrapping_add(bytes);
        }
        if let Some(site) = self.sites.get_mut(block.site as usize) {
            site.settle(self.peak.epoch);
            site.frees = site.frees.wrapping_sub(blocks);
            site.temporary = site.temporary.wrapping_sub(temporary);
            site.live_blocks = site.live_blocks.wrapping_add(blocks);
            site.live_bytes = site.live_bytes.wrapping_add(bytes);
            site.live_variance = site.live_variance.wrapping_add(weight.variance);
        }
    }

    #[inline(always)]
    fn thread(&mut self, thread: ThreadNo) -> u32 {
        if self.latest_thread.0 == thread && !self.threads.is_empty() {
            return self.latest_thread.1;
        }
        let index = self.another_thread(thread);
        self.latest_thread = (thread, index);
        index
    }

    fn another_thread(&mut self, thread: ThreadNo) -> u32 {
        let (index, new) = self.thread_index.index(thread);
        if new && index <= MAX_THREAD {
            self.threads.push(ThreadTotals::new(thread, self.now));
        }
        index.min(MAX_THREAD)
    }

    fn thread_no(&self, index: u32) -> ThreadNo {
        self.threads.get(index as usize).map_or(0, |totals| totals.thread)
    }

    fn node_of(&self, site: u32) -> NodeId {
        self.sites.get(site as usize).map_or(0, |totals| totals.node)
    }

    fn free_record(&self, event: &Event) -> FreeRecord {
        FreeRecord {
            seqno: event.seqno,
            ns: event.ns,
            thread: event.thread,
            api: event.api,
            node: event.node,
        }
    }

    fn alloc_record(&self, block: &Fields) -> AllocRecord {
        AllocRecord {
            addr: block.addr,
            size: block.size,
            seqno: block.seqno,
            ns: block.ns,
            thread: self.thread_no(block.thread),
            api: block.kind(),
            node: self.node_of(block.site),
        }
    }
}

/// Can a block that nobody saw being made lie there? No allocator places one at an odd
/// address, no processor has addresses of more than 56 bits for programs (x86-64 with
/// five levels of page tables).
pub(crate) fn may_be_a_block(addr: u64) -> bool {
    addr.is_multiple_of(8) && addr >> 56 == 0
}
