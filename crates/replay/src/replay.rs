//! The pass itself.

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_trace::model::{Event, Op, Special, Step, ThreadNo};
use rustc_hash::FxHashMap;

use crate::block::{Block, Fields, MAX_NS, MAX_SEQNO, MAX_SIZE, MAX_THREAD};
use crate::dense::Dense;
use crate::errors::{AllocRecord, ErrorKind, FreeRecord, HeapError, MAX_ERRORS};
use crate::freed::{Freed, FreedRing};
use crate::histogram::Histogram;
use crate::live::LiveBlock;
use crate::peak::Peak;
use crate::series::Series;
use crate::table::Table;
use crate::totals::{SiteTotals, ThreadTotals, Totals};
use crate::window::{Early, Owed, Window};

/// How many slab places all searches for the block around an address may look
/// at, together; afterwards such a free counts as foreign.
const SEARCH_BUDGET: u64 = 1 << 28;

/// What a replay is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The reorder window, events. 0 (or 0 ns) repairs nothing.
    pub reorder_events: u64,
    /// The reorder window, ns; it ends with the first of both.
    pub reorder_ns: u64,
    /// How many frees are remembered. A second free of a block counts as foreign
    /// once more than so many frees lie between the two.
    pub remember_freed: usize,
    /// One tick of the clock that stamped the events, ns: events of different
    /// threads inside one may have had another order.
    pub tick_ns: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { reorder_events: 4096, reorder_ns: 1_000_000, remember_freed: 1 << 18, tick_ns: 1 }
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
/// view does); what is still undecided then (frees inside the reorder window) is
/// not yet classified.
pub struct Replay {
    options: Options,
    totals: Totals,
    peak: Peak,
    table: Table,
    freed: FreedRing,
    sites: Vec<SiteTotals>,
    site_index: Dense,
    threads: Vec<ThreadTotals>,
    thread_index: Dense,
    usable: FxHashMap<u64, u64>,
    early: Window<Early>,
    owed: Window<Owed>,
    errors: Vec<HeapError>,
    sizes: Histogram,
    lifetimes: Histogram,
    series: Series,
    /// Events fed so far, failed reallocs included.
    fed: u64,
    now: u64,
    search_budget: u64,
}

impl Replay {
    /// A replay before the first event.
    pub fn new(options: Options) -> Replay {
        let reorder = if options.reorder_ns == 0 { 0 } else { options.reorder_events };
        Replay {
            totals: Totals::default(),
            peak: Peak::new(options.tick_ns),
            table: Table::default(),
            freed: FreedRing::new(options.remember_freed),
            sites: Vec::new(),
            site_index: Dense::default(),
            threads: Vec::new(),
            thread_index: Dense::default(),
            usable: FxHashMap::default(),
            early: Window::new(reorder, options.reorder_ns),
            owed: Window::new(reorder, options.reorder_ns),
            errors: Vec::new(),
            sizes: Histogram::default(),
            lifetimes: Histogram::default(),
            series: Series::default(),
            fed: 0,
            now: 0,
            search_budget: SEARCH_BUDGET,
            options,
        }
    }

    /// Replays a whole stream. `next` gives one step after the other.
    ///
    /// # Errors
    /// Only what `next` returns.
    pub fn run<E>(options: Options, next: impl FnMut() -> Result<Option<Step>, E>) -> Result<Replay, E> {
        let mut replay = Self::run_until(options, Until::End, next)?;
        replay.finish();
        Ok(replay)
    }

    /// Replays a stream up to an instant. The result is not
    /// [finished](Replay::finish): frees inside the reorder window are not classified.
    ///
    /// # Errors
    /// Only what `next` returns.
    pub fn run_until<E>(
        options: Options,
        until: Until,
        mut next: impl FnMut() -> Result<Option<Step>, E>,
    ) -> Result<Replay, E> {
        let mut replay = Replay::new(options);
        while let Some(step) = next()? {
            if let Step::Event(event) = &step
                && !until.includes(event.seqno, event.ns)
            {
                break;
            }
            replay.feed(&step);
        }
        Ok(replay)
    }

    /// Takes in one step.
    #[inline]
    pub fn feed(&mut self, step: &Step) {
        match step {
            Step::Event(event) => self.event(event),
            Step::Special { ns, thread, what } => self.special(*ns, *thread, what),
        }
    }

    /// Classifies what is still undecided. Feeding may go on afterwards.
    pub fn finish(&mut self) {
        while let Some(early) = self.early.pop_all() {
            self.unmatched(&early);
        }
        while let Some(owed) = self.owed.pop_all() {
            self.never_freed(&owed);
        }
        self.errors.sort_by_key(|error| error.free.seqno);
    }

    // ---- what comes out -------------------------------------------------

    /// The totals so far.
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals.clone();
        totals.live_blocks = self.peak.live_blocks;
        totals.live_bytes = self.peak.live_bytes;
        totals.peak_bytes = self.peak.bytes;
        totals.peak_blocks = self.peak.blocks;
        totals.peak_ns = self.peak.ns;
        totals.peak_seqno = self.peak.seqno;
        totals.peak_uncertainty = if self.threads.len() > 1 { self.peak.uncertainty() } else { 0 };
        totals.events = totals.allocations + totals.frees;
        totals
    }

    /// The threads, in the order of their first events.
    pub fn threads(&self) -> &[ThreadTotals] {
        &self.threads
    }

    /// The sites, in the order of their first allocations; `peak_*` belong to
    /// the global peak so far.
    pub fn sites(&self) -> impl Iterator<Item = SiteTotals> + '_ {
        self.sites.iter().map(|site| {
            let mut site = site.clone();
            site.settle(self.peak.epoch);
            site
        })
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
        let block = self.table.get(self.table.find(addr)?);
        block.is_live().then(|| self.live_block(block))
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
        let mut set: Vec<LiveBlock> = self.live().collect();
        set.sort_unstable_by_key(|block| block.seqno);
        set
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

    /// Bytes that the live set takes in this process.
    pub fn table_bytes(&self) -> usize {
        self.table.heap_bytes()
    }

    // ---- events ---------------------------------------------------------

    #[inline]
    fn event(&mut self, event: &Event) {
        // Merged times do not go back; where a damaged trace makes them, the
        // latest stands, so that no lifetime becomes negative.
        if self.fed == 0 {
            self.totals.first_ns = event.ns;
        }
        self.now = self.now.max(event.ns);
        self.totals.last_ns = self.now;
        self.fed += 1;
        if !self.early.is_empty() || !self.owed.is_empty() {
            self.fall_due();
        }
        let thread = self.thread(event.thread);
        self.peak.tick(self.now, thread);
        let api = event.api as usize & 63;
        self.totals.by_api[api] += 1;
        match event.op {
            Op::Alloc { size, usable } => {
                if let Some(usable) = usable {
                    self.usable.insert(event.seqno.min(MAX_SEQNO), usable);
                }
                self.alloc(event, thread, size.min(MAX_SIZE));
            }
            Op::Free => self.free(event, thread),
        }
        self.series.note(self.now, self.peak.live_bytes);
    }

    #[inline]
    fn alloc(&mut self, event: &Event, thread: u32, size: u64) {
        self.totals.allocations += 1;
        self.totals.bytes_allocated = self.totals.bytes_allocated.wrapping_add(size);
        self.sizes.add(size);
        if event.pair.is_some() {
            self.totals.reallocations += 1;
            self.totals.pairs[usize::from(event.api == ApiKind::Reallocarray)] += 1;
        }
        let (site, new) = self.site_index.index(event.node);
        if new {
            self.sites.push(SiteTotals::new(event.node, self.peak.epoch));
        }
        let fields = Fields {
            addr: event.addr,
            size,
            ns: self.now.min(MAX_NS),
            seqno: event.seqno.min(MAX_SEQNO),
            thread,
            api: event.api as u8,
            site,
        };
        let early = if self.early.is_empty() { None } else { self.early_free(event) };
        if early.is_none() {
            self.place(event, &fields);
        }
        if let Some(site) = self.sites.get_mut(site as usize) {
            site.settle(self.peak.epoch);
            site.allocations += 1;
            site.bytes = site.bytes.wrapping_add(size);
            site.live_blocks += 1;
            site.live_bytes = site.live_bytes.wrapping_add(size);
        }
        if let Some(totals) = self.threads.get_mut(thread as usize) {
            totals.allocations += 1;
            totals.bytes_allocated = totals.bytes_allocated.wrapping_add(size);
            totals.live_blocks += 1;
            totals.live_bytes = totals.live_bytes.wrapping_add(size);
            totals.last_alloc = fields.seqno;
            totals.last_ns = self.now;
            if totals.live_bytes > totals.peak_bytes {
                totals.peak_bytes = totals.live_bytes;
                totals.peak_ns = self.now;
            }
        }
        self.peak.add(size, self.now, event.seqno);
        if let Some(early) = early {
            self.born_freed(&early, &fields);
        }
    }

    /// Puts a new block into the table.
    #[inline]
    fn place(&mut self, event: &Event, fields: &Fields) {
        let mut block = Block::live(fields);
        if !self.owed.is_empty() && self.owed.has(event.addr) {
            block.set_owed(true);
        }
        match self.table.find(event.addr) {
            None => _ = self.table.insert(block),
            Some(place) => {
                let before = *self.table.get(place);
                if before.is_live() {
                    self.displaced(&before.fields(), fields.thread, event);
                    block.set_owed(true);
                }
                *self.table.get_mut(place) = block;
            }
        }
    }

    #[inline]
    fn free(&mut self, event: &Event, thread: u32) {
        self.totals.frees += 1;
        if let Some(totals) = self.threads.get_mut(thread as usize) {
            totals.frees += 1;
            totals.last_ns = self.now;
        }
        let Some(place) = self.table.find(event.addr) else {
            return self.unknown(event, thread);
        };
        let block = *self.table.get(place);
        if !block.is_live() {
            return self.unknown(event, thread);
        }
        if block.is_owed() && self.pays(event, thread, Some(place)) {
            return;
        }
        self.table.get_mut(place).set_live(false);
        let fields = block.fields();
        let temporary = self.released(&fields, thread);
        if !fields.matches(event.api) {
            self.mismatched(event, &fields);
        }
        let freed = Freed {
            place,
            node: event.node,
            alloc_seqno: block.seqno(),
            seqno: event.seqno,
            ns: self.now,
            thread,
            api: event.api,
            temporary,
        };
        if let Some(out) = self.freed.push(freed) {
            self.forget(&out);
        }
        if block.is_owed() {
            self.swapped(&block.fields(), place, thread);
        }
    }

    /// Accounts for a block that ends now, freed by `thread`; says whether it
    /// was temporary.
    #[inline]
    fn released(&mut self, block: &Fields, thread: u32) -> bool {
        let size = block.size;
        self.totals.bytes_freed = self.totals.bytes_freed.wrapping_add(size);
        self.lifetimes.add(self.now.saturating_sub(block.ns));
        if !self.usable.is_empty() {
            self.usable.remove(&block.seqno);
        }
        let mut temporary = false;
        if let Some(totals) = self.threads.get_mut(thread as usize) {
            totals.bytes_freed = totals.bytes_freed.wrapping_add(size);
            temporary = block.thread == thread && totals.last_alloc == block.seqno;
            totals.temporary += u64::from(temporary);
        }
        if let Some(maker) = self.threads.get_mut(block.thread as usize) {
            maker.live_blocks = maker.live_blocks.wrapping_sub(1);
            maker.live_bytes = maker.live_bytes.wrapping_sub(size);
        }
        if let Some(site) = self.sites.get_mut(block.site as usize) {
            site.settle(self.peak.epoch);
            site.frees += 1;
            site.temporary += u64::from(temporary);
            site.live_blocks = site.live_blocks.wrapping_sub(1);
            site.live_bytes = site.live_bytes.wrapping_sub(size);
        }
        self.totals.temporary += u64::from(temporary);
        self.peak.sub(size);
        temporary
    }

    /// A free fell out of the memory: its block, if still free, is forgotten.
    #[inline]
    fn forget(&mut self, out: &Freed) {
        if out.place != crate::table::NOWHERE {
            let block = self.table.get(out.place);
            if !block.is_live() && block.seqno() == out.alloc_seqno {
                self.table.remove(out.place);
            }
        }
    }

    // ---- order ----------------------------------------------------------

    /// A free of an address at which nothing lives.
    #[cold]
    fn unknown(&mut self, event: &Event, thread: u32) {
        if !self.owed.is_empty() && self.owed.has(event.addr) && self.pays(event, thread, None) {
            return;
        }
        let mut early =
            Early { event: *event, inside: None, before: None, freed: None, threads: [event.thread; 2] };
        // What is there is noted now: when the window has passed it may have gone.
        match self.table.find(event.addr) {
            None => early.inside = self.around(event.addr),
            Some(place) => {
                let block = *self.table.get(place);
                early.before = Some(block.fields());
                early.freed = self.freed.of_block(place, block.seqno(), &mut self.search_budget);
                let since = self.now.saturating_sub(self.options.reorder_ns);
                let events = self.options.reorder_events;
                if let Some(other) = self.freed.other_thread(place, thread, events, since) {
                    early.threads[1] = self.thread_no(other);
                }
            }
        }
        if self.options.reorder_events == 0 || self.options.reorder_ns == 0 {
            self.unmatched(&early);
        } else {
            self.early.put(event.addr, self.fed, self.now, early);
        }
    }

    /// The free of an earlier block at an address that was allocated again: the
    /// stamps had it too late. `place` is that of the live block there.
    #[cold]
    fn pays(&mut self, event: &Event, thread: u32, place: Option<u32>) -> bool {
        // What the second allocator frees after its allocation is its own block.
        let Some(owed) = self.owed.take(event.addr, |owed| owed.by != thread) else {
            return false;
        };
        if let Some(place) = place
            && !self.owed.has(event.addr)
        {
            self.table.get_mut(place).set_owed(false);
        }
        self.totals.order_repairs += 1;
        self.peak.repaired(owed.block.size, self.now);
        if !owed.block.matches(event.api) {
            self.mismatched(event, &owed.block);
        }
        true
    }

    /// A thread freed its own block, whose allocation had displaced another that is
    /// not freed yet: then the displaced one may just as well be the later one,
    /// which was seen too early. It lives; a free of it that was late finds it.
    #[cold]
    fn swapped(&mut self, block: &Fields, place: u32, thread: u32) {
        let recent = block.ns.saturating_sub(self.options.reorder_ns);
        let later = |owed: &Owed| owed.by == thread && owed.block.thread != thread && owed.block.ns >= recent;
        let Some(owed) = self.owed.take(block.addr, later) else { return };
        self.totals.order_repairs += 1;
        let mut displaced = Block::live(&owed.block);
        displaced.set_owed(self.owed.has(block.addr));
        *self.table.get_mut(place) = displaced;
        // It ended on its maker's account (see `displaced`).
        let maker = owed.block.thread;
        self.unreleased(&owed.block, maker, owed.ns, false);
        self.peak.repaired(owed.block.size, self.now);
        self.peak.add(owed.block.size, self.now, owed.block.seqno);
    }

    /// The free, seen a moment ago, of the block that `event` allocates.
    #[cold]
    fn early_free(&mut self, event: &Event) -> Option<Early> {
        self.early.take(event.addr, |early| early.may_follow(event.thread))
    }

    /// A block whose free was seen already: it is dead as soon as it is there.
    #[cold]
    fn born_freed(&mut self, early: &Early, block: &Fields) {
        self.totals.order_repairs += 1;
        self.peak.repaired(block.size, self.now);
        let thread = self.thread(early.event.thread);
        let temporary = self.released(block, thread);
        if !block.matches(early.event.api) {
            self.mismatched(&early.event, block);
        }
        // Remembered like any freed block, unless a later one lives there already.
        let mut dead = Block::live(block);
        dead.set_live(false);
        let place = match self.table.find(block.addr) {
            None => self.table.insert(dead),
            Some(place) if !self.table.get(place).is_live() => {
                *self.table.get_mut(place) = dead;
                place
            }
            Some(_) => return,
        };
        let freed = Freed {
            place,
            node: early.event.node,
            alloc_seqno: block.seqno,
            seqno: early.event.seqno,
            ns: self.now,
            thread,
            api: early.event.api,
            temporary,
        };
        if let Some(out) = self.freed.push(freed) {
            self.forget(&out);
        }
    }

    /// The block at an address that is allocated again: its free is late, or
    /// was never recorded.
    #[cold]
    fn displaced(&mut self, block: &Fields, thread: u32, event: &Event) {
        // It ends without a free event of its own, so never as a temporary one.
        let maker = block.thread;
        let last = self.threads.get(maker as usize).map(|totals| totals.last_alloc);
        if let Some(totals) = self.threads.get_mut(maker as usize) {
            totals.last_alloc = u64::MAX;
        }
        self.released(block, maker);
        if let (Some(totals), Some(last)) = (self.threads.get_mut(maker as usize), last) {
            totals.last_alloc = last;
        }
        let owed = Owed { block: *block, by: thread, ns: self.now };
        if self.options.reorder_events == 0 || self.options.reorder_ns == 0 {
            self.never_freed(&owed);
        } else {
            self.owed.put(event.addr, self.fed, self.now, owed);
        }
    }

    #[cold]
    fn fall_due(&mut self) {
        while let Some(early) = self.early.due(self.fed, self.now) {
            self.unmatched(&early);
        }
        while let Some(owed) = self.owed.due(self.fed, self.now) {
            self.never_freed(&owed);
        }
    }

    fn never_freed(&mut self, _owed: &Owed) {
        self.totals.missing_frees += 1;
    }

    // ---- bad frees ------------------------------------------------------

    /// Says what a free without a block was.
    fn unmatched(&mut self, early: &Early) {
        let event = &early.event;
        if let Some(block) = early.before {
            let error = HeapError {
                kind: ErrorKind::DoubleFree,
                addr: event.addr,
                free: self.free_record(event),
                allocated: Some(self.alloc_record(&block)),
                freed: early.freed.map(|freed| FreeRecord {
                    seqno: freed.seqno,
                    ns: freed.ns,
                    thread: self.thread_no(freed.thread),
                    api: freed.api,
                    node: freed.node,
                }),
            };
            self.totals.double_free += 1;
            return self.report(error);
        }
        if early.inside.is_some() || event.addr & 7 != 0 {
            let error = HeapError {
                kind: ErrorKind::InvalidFree,
                addr: event.addr,
                free: self.free_record(event),
                allocated: early.inside.map(|block| self.alloc_record(&block)),
                freed: None,
            };
            self.totals.invalid_free += 1;
            return self.report(error);
        }
        self.totals.foreign_frees += 1;
    }

    #[cold]
    fn mismatched(&mut self, event: &Event, block: &Fields) {
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
        let api = if let Some(freed) = self.freed.cancel(seqno) {
            let block = *self.table.get(freed.place);
            if block.is_live() || block.seqno() != freed.alloc_seqno {
                // The address was handed out again: the failure cannot be true.
                return;
            }
            self.revive(&freed, &block);
            freed.api
        } else if let Some(early) = self.early.take(addr, |early| early.event.seqno == seqno) {
            early.event.api
        } else if let Some(at) = self.errors.iter().position(|error| error.free.seqno == seqno) {
            let error = self.errors.remove(at);
            match error.kind {
                ErrorKind::DoubleFree => self.totals.double_free -= 1,
                ErrorKind::InvalidFree => self.totals.invalid_free -= 1,
                ErrorKind::Mismatched => self.totals.mismatched -= 1,
            }
            error.free.api
        } else {
            // Its window has passed: it was counted as foreign.
            let Some(rest) = self.totals.foreign_frees.checked_sub(1) else { return };
            self.totals.foreign_frees = rest;
            ApiKind::ReallocFree
        };
        self.totals.frees = self.totals.frees.saturating_sub(1);
        let count = &mut self.totals.by_api[api as usize & 63];
        *count = count.saturating_sub(1);
        let thread = self.thread(thread);
        if let Some(totals) = self.threads.get_mut(thread as usize) {
            totals.frees = totals.frees.saturating_sub(1);
        }
    }

    fn revive(&mut self, freed: &Freed, block: &Block) {
        let owed = self.owed.has(block.addr());
        let revived = self.table.get_mut(freed.place);
        revived.set_live(true);
        revived.set_owed(owed);
        self.unreleased(&block.fields(), freed.thread, freed.ns, freed.temporary);
        if self.threads.len() > 1 {
            self.peak.repaired(block.size(), self.now);
        }
        self.peak.add(block.size(), self.now, freed.seqno);
        self.series.note(self.now, self.peak.live_bytes);
        if !block.fields().matches(freed.api) {
            // The bad free did not happen either.
            if let Some(at) = self.errors.iter().position(|error| error.free.seqno == freed.seqno) {
                self.errors.remove(at);
            }
            self.totals.mismatched = self.totals.mismatched.saturating_sub(1);
        }
    }

    /// Takes back what [`Replay::released`] counted at `ns`, but not the peak's
    /// part.
    fn unreleased(&mut self, block: &Fields, thread: u32, ns: u64, temporary: bool) {
        let (size, temporary) = (block.size, u64::from(temporary));
        self.totals.bytes_freed = self.totals.bytes_freed.wrapping_sub(size);
        self.totals.temporary = self.totals.temporary.wrapping_sub(temporary);
        self.lifetimes.remove(ns.saturating_sub(block.ns));
        if let Some(totals) = self.threads.get_mut(thread as usize) {
            totals.bytes_freed = totals.bytes_freed.wrapping_sub(size);
            totals.temporary = totals.temporary.wrapping_sub(temporary);
        }
        if let Some(maker) = self.threads.get_mut(block.thread as usize) {
            maker.live_blocks += 1;
            maker.live_bytes = maker.live_bytes.wrapping_add(size);
        }
        if let Some(site) = self.sites.get_mut(block.site as usize) {
            site.settle(self.peak.epoch);
            site.frees = site.frees.wrapping_sub(1);
            site.temporary = site.temporary.wrapping_sub(temporary);
            site.live_blocks += 1;
            site.live_bytes = site.live_bytes.wrapping_add(size);
        }
    }

    #[inline]
    fn thread(&mut self, thread: ThreadNo) -> u32 {
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
