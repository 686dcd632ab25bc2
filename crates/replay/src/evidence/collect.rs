//! Collecting evidence while a heap is replayed.
//!
//! At an event two lines of memory are touched that the replay does not touch: one of
//! its stack, one of that stack's lifetimes; the latter is asked for a few frees before
//! it is used. Memory: 64 bytes a stack, 256 a stack that gave anything back, and 48 for
//! each slice in which a stack made or freed a block, at the end twice that.

use highwater_event::api::ApiKind;
use highwater_trace::Brief;

use super::lifetimes::{BUCKETS, bucket};
use super::tail::{Made, Tail};
use super::{Evidence, Point, SiteEvidence, SliceEnd, Slicing};
use crate::memory::prefetch;
use crate::replay::Replay;
use crate::watch::{Watch, Watched};

/// Most slices of equal numbers of events.
pub(super) const MAX_SLICES: u64 = 128;
/// Most slices of equal time.
const MAX_PERIODS: u64 = 4096;
/// Events of the first slices.
const FIRST_WIDTH: u64 = 16;
/// Points and stacks from which on who has not asked for evidence goes without: at most
/// 50 and 5 MB. Where stacks are many, each event costs a wait for memory more.
const MODEST: (usize, usize) = (1 << 19, 1 << 14);
/// No lifetimes yet.
const NONE: u32 = u32::MAX;
/// Lifetimes that wait for their place in memory.
const LATE: usize = 16;

/// A stack and what it does in the open slice: one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Site {
    /// The turn of the slice in which it last did something.
    turn: u32,
    /// Where its lifetimes are.
    lives: u32,
    born: u32,
    freed: u32,
    low_blocks: u64,
    low_bytes: u64,
    smallest: u64,
    largest: u64,
    /// Blocks given back, and how many were seen to be.
    count: u64,
    seen: u64,
}

impl Site {
    const NEW: Site = Site {
        turn: 0,
        lives: NONE,
        born: 0,
        freed: 0,
        low_blocks: 0,
        low_bytes: 0,
        smallest: u64::MAX,
        largest: 0,
        count: 0,
        seen: 0,
    };

    /// Its first event in a slice comes, at these levels.
    #[inline(always)]
    fn begin(&mut self, turn: u32, blocks: u64, bytes: u64) {
        (self.turn, self.born, self.freed) = (turn, 0, 0);
        (self.low_blocks, self.low_bytes) = (blocks, bytes);
    }

    #[inline(always)]
    fn lower(&mut self, block: &Watched<'_>) {
        self.low_blocks = self.low_blocks.min(block.totals.live_blocks);
        self.low_bytes = self.low_bytes.min(block.totals.live_bytes);
    }
}

/// Collects evidence.
pub struct Collector {
    slicing: Slicing,
    /// Events or ns in a slice.
    width: u64,
    most: u64,
    /// Number of the open slice.
    open: u32,
    /// Slices that were opened so far: their numbers change when they join.
    turn: u32,
    /// Where the open slice ends, in events or ns.
    turns: u64,
    events: u64,
    slices: Vec<SliceEnd>,
    /// By the replay's numbers.
    sites: Vec<Site>,
    /// Lifetimes by buckets, of one stack after the other.
    lives: Vec<u32>,
    /// What is yet to be counted there: where, and blocks.
    late: [(usize, u32); LATE],
    late_next: usize,
    /// Of closed slices, in their order.
    points: Vec<Point>,
    /// Stacks that did something in the open slice.
    touched: Vec<u32>,
    tail: Tail,
    /// Most points and stacks.
    room: (usize, usize),
    given_up: bool,
}

impl Collector {
    /// For who needs it, whatever it takes.
    pub fn new(slicing: Slicing) -> Collector {
        let (width, most) = match slicing {
            Slicing::Events => (FIRST_WIDTH, MAX_SLICES),
            Slicing::Period(ns) => (ns.max(1), MAX_PERIODS),
        };
        Collector {
            slicing,
            width,
            most,
            open: 0,
            turn: 1,
            turns: width,
            events: 0,
            slices: Vec::new(),
            sites: Vec::new(),
            lives: Vec::new(),
            late: [(usize::MAX, 0); LATE],
            late_next: 0,
            points: Vec::new(),
            touched: Vec::new(),
            tail: Tail::default(),
            room: (usize::MAX, usize::MAX),
            given_up: false,
        }
    }

    /// By numbers of events, for later: gives up where it takes much memory.
    pub fn in_passing() -> Collector {
        Collector { room: MODEST, ..Collector::new(Slicing::Events) }
    }

    #[cold]
    fn give_up(&mut self) {
        self.given_up = true;
        self.turns = u64::MAX;
        (self.sites, self.lives, self.points) = (Vec::new(), Vec::new(), Vec::new());
        self.touched = Vec::new();
    }

    #[cold]
    fn extend(&mut self, site: u32) {
        if site as usize >= self.room.1 {
            return self.give_up();
        }
        self.sites.resize(site as usize + 1, Site::NEW);
    }

    /// Closes the open slice and opens that of `clock`.
    #[cold]
    fn turn(&mut self, clock: u64, heap: &Replay) {
        self.close(heap);
        if self.given_up {
            return;
        }
        while clock / self.width >= self.most {
            self.width = self.width.saturating_mul(2);
            self.join();
        }
        let open = (clock / self.width) as u32;
        // Nothing happened in between.
        let (ns, seqno) = heap.latest();
        while self.slices.len() < open as usize {
            let ns = match self.slicing {
                Slicing::Events => ns,
                Slicing::Period(_) => (self.slices.len() as u64 + 1) * self.width,
            };
            self.slices.push(SliceEnd { ns, seqno });
        }
        self.open = open;
        self.turn += 1;
        self.turns = (u64::from(open) + 1).saturating_mul(self.width);
    }

    /// Writes down what the open slice ends with. The replay knows the levels
    /// exactly, also where it put the order of threads right.
    fn close(&mut self, heap: &Replay) {
        for &at in &self.touched {
            let (Some(site), Some(totals)) = (self.sites.get(at as usize), heap.site_number(at)) else {
                continue;
            };
            self.points.push(Point {
                site: at,
                slice: self.open,
                born: site.born,
                freed: site.freed,
                blocks: totals.live_blocks,
                bytes: totals.live_bytes,
                low_blocks: site.low_blocks.min(totals.live_blocks),
                low_bytes: site.low_bytes.min(totals.live_bytes),
            });
        }
        self.touched.clear();
        let (ns, seqno) = heap.latest();
        self.slices.push(SliceEnd { ns, seqno });
        if self.points.len() > self.room.0 {
            self.give_up();
        }
    }

    /// Joins slices in pairs. All are closed, and their number is even.
    fn join(&mut self) {
        let mut kept = 0;
        for at in 0..self.points.len() {
            let Some(mut point) = self.points.get(at).copied() else { break };
            point.slice /= 2;
            let Some(site) = self.sites.get_mut(point.site as usize) else { continue };
            // Between slices its level has no other use: it holds where the point before is.
            let before = usize::try_from(site.low_bytes).unwrap_or(usize::MAX);
            let same = |of: &&mut Point| (of.site, of.slice) == (point.site, point.slice);
            let earlier = if before < kept { self.points.get_mut(before).filter(same) } else { None };
            if let Some(earlier) = earlier {
                *earlier = Point {
                    born: earlier.born.saturating_add(point.born),
                    freed: earlier.freed.saturating_add(point.freed),
                    low_blocks: earlier.low_blocks.min(point.low_blocks),
                    low_bytes: earlier.low_bytes.min(point.low_bytes),
                    ..point
                };
                continue;
            }
            site.low_bytes = kept as u64;
            if let Some(place) = self.points.get_mut(kept) {
                *place = point;
            }
            kept += 1;
        }
        self.points.truncate(kept);
        self.slices = self.slices.chunks(2).filter_map(|pair| pair.last().copied()).collect();
    }

    /// The evidence. `heap` is the one that it looked on at, [finished](Replay::finish);
    /// the program exited by itself if it `exits`. `None` if it gave up.
    pub fn finish(mut self, heap: &Replay, exits: bool) -> Option<Evidence> {
        if self.events > 0 && !self.given_up {
            self.close(heap);
        }
        if self.given_up {
            return None;
        }
        for late in std::mem::take(&mut self.late) {
            count(&mut self.lives, late);
        }
        let points = by_site(&std::mem::take(&mut self.points), self.sites.len());
        let (mut at, mut buckets) = (0, Vec::new());
        let mut sites = Vec::with_capacity(self.sites.len());
        for (number, site) in (0u32..).zip(&self.sites) {
            let its = points.get(at..).unwrap_or_default();
            at += its.iter().take_while(|point| point.site == number).count();
            let lives = (site.lives as usize).checked_mul(BUCKETS).and_then(|from| self.lives.get(from..));
            let lives = lives.unwrap_or_default().iter().take(BUCKETS);
            buckets.extend((0u8..).zip(lives.copied()).filter(|(_, blocks)| *blocks > 0));
            sites.push(SiteEvidence {
                sizes: (site.smallest, site.largest),
                held: None,
                count: site.count,
                seen: site.seen,
                buckets: buckets.len(),
                points: at,
            });
        }
        let (now_ns, now_seqno) = heap.latest();
        let mut evidence = Evidence {
            last_slice: self.slices.len().saturating_sub(1) as u32,
            slices: self.slices,
            sites,
            now_ns,
            now_seqno,
            tidied: false,
            points,
            buckets,
            unheld: false,
        };
        let begin = if exits { self.tail.begin(now_seqno) } else { None };
        match begin {
            None => evidence.count(heap.live_fields(), heap),
            Some(begin) => {
                let at = evidence.slices.partition_point(|slice| slice.seqno < begin.seqno);
                evidence.last_slice = evidence.last_slice.min(at as u32);
                (evidence.now_ns, evidence.now_seqno, evidence.tidied) = (begin.ns, begin.seqno, true);
                let before = |block: &crate::block::Fields| block.seqno <= begin.seqno;
                match heap.freed_after(begin.seqno) {
                    Some(freed) => {
                        evidence.count(freed.chain(heap.live_fields()).filter(before), heap);
                    }
                    None => evidence.unheld = true,
                }
            }
        }
        Some(evidence)
    }
}

/// Counts blocks in a bucket.
#[inline(always)]
fn count(lives: &mut [u32], (place, blocks): (usize, u32)) {
    if let Some(count) = lives.get_mut(place) {
        *count = count.saturating_add(blocks);
    }
}

/// Points in the order of their stacks, those of a stack as they were.
fn by_site(points: &[Point], sites: usize) -> Vec<Point> {
    // Where the next one of each stack belongs.
    let mut next = vec![0usize; sites + 1];
    for point in points {
        if let Some(count) = next.get_mut(point.site as usize + 1) {
            *count += 1;
        }
    }
    let mut before = 0;
    for next in &mut next {
        before += *next;
        *next = before;
    }
    let mut sorted = vec![Point::default(); points.len()];
    for point in points {
        let Some(next) = next.get_mut(point.site as usize) else { continue };
        if let Some(place) = sorted.get_mut(*next) {
            *place = *point;
        }
        *next += 1;
    }
    sorted
}

impl Watch for Collector {
    const EVENTS: bool = true;

    #[inline(always)]
    fn comes(&mut self, heap: &Replay, event: &Brief) {
        let clock = match self.slicing {
            Slicing::Events => self.events,
            // Times do not go back where the trace is whole.
            Slicing::Period(_) => event.ns.max(heap.latest().0),
        };
        // No slice ends between the halves of a realloc.
        if clock >= self.turns && (!event.paired || event.api.is_free()) {
            self.turn(clock, heap);
        }
        self.events += 1;
    }

    #[inline(always)]
    fn made(&mut self, event: &Brief, block: &Watched<'_>) {
        if self.given_up {
            return;
        }
        if block.site as usize >= self.sites.len() {
            self.extend(block.site);
        }
        self.tail.push(Made { seqno: block.seqno, ns: event.ns });
        let Some(site) = self.sites.get_mut(block.site as usize) else { return };
        let (totals, weight) = (block.totals, &block.weight);
        if site.turn != self.turn {
            site.begin(
                self.turn,
                totals.live_blocks.saturating_sub(weight.blocks),
                totals.live_bytes.saturating_sub(weight.bytes),
            );
            self.touched.push(block.site);
        }
        site.born = site.born.saturating_add(narrow(weight.blocks));
        site.smallest = site.smallest.min(block.size);
        site.largest = site.largest.max(block.size);
        if event.paired {
            site.lower(block);
        }
    }

    #[inline(always)]
    fn freed(&mut self, event: &Brief, block: &Watched<'_>) {
        let Some(site) = self.sites.get_mut(block.site as usize) else { return };
        let (totals, weight) = (block.totals, &block.weight);
        if site.turn != self.turn {
            site.begin(
                self.turn,
                totals.live_blocks.saturating_add(weight.blocks),
                totals.live_bytes.saturating_add(weight.bytes),
            );
            self.touched.push(block.site);
        }
        let blocks = narrow(weight.blocks);
        site.freed = site.freed.saturating_add(blocks);
        site.count = site.count.saturating_add(blocks.into());
        site.seen += 1;
        if site.lives == NONE {
            site.lives = (self.lives.len() / BUCKETS) as u32;
            self.lives.extend_from_slice(&[0; BUCKETS]);
        }
        let place = site.lives as usize * BUCKETS + bucket(block.ns);
        prefetch(&self.lives, place);
        let late = std::mem::replace(&mut self.late[self.late_next % LATE], (place, blocks));
        self.late_next = (self.late_next + 1) % LATE;
        count(&mut self.lives, late);
        // Between the halves of a realloc nothing is given back.
        if !matches!(event.api, ApiKind::ReallocFree | ApiKind::ReallocarrayFree) {
            site.lower(block);
        }
    }
}

/// As a point counts.
#[inline]
fn narrow(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}
