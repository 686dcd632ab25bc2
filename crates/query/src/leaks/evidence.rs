//! What one pass over a trace tells about each stack: what it held in each
//! slice of the run, and how long its blocks lived.
//!
//! The run is cut into *slices*, by default of equal numbers of events, at least
//! 64 and at most 128 of them: a program that waits all night has no more slices
//! then than while it works. Where the number outgrows that, slices join in
//! pairs. With a period they are of equal time.
//!
//! Of a sample each block counts as those that it stands for.
//!
//! Memory is bounded by the live set (the replay's), and for each stack a point
//! of 48 bytes for each slice in which it made or freed a block.

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_replay::sampling::Weight;
use highwater_replay::watch::{Act, Watch};
use highwater_replay::{LiveBlock, Replay, Until};
use highwater_trace::Brief;
use highwater_trace::model::EndedHow;

use super::lifetimes::Lifetimes;
use crate::session::{QueryError, Session};

/// Most slices of equal numbers of events.
const MAX_SLICES: u64 = 128;
/// Most slices of equal time.
const MAX_PERIODS: u64 = 4096;
/// Events of the first slices.
const FIRST_WIDTH: u64 = 16;
/// Last allocations whose numbers are kept, to find where the end began.
const TAIL: usize = 1024;
/// An end makes at most one allocation for so many events.
const TAIL_SHARE: u64 = 32;
/// And gives back at least so many blocks.
const TAIL_FREES: u64 = 16;

/// How to cut the run into slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slicing {
    /// By numbers of events.
    #[default]
    Events,
    /// By time, ns.
    Period(u64),
}

/// What a stack did in a slice. Slices in which it did nothing have none: its
/// levels stayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Number of the slice.
    pub slice: u32,
    /// Blocks made.
    pub born: u32,
    /// Blocks given back.
    pub freed: u32,
    /// Blocks alive at its end.
    pub blocks: u64,
    /// Bytes alive at its end.
    pub bytes: u64,
    /// Fewest blocks alive in it.
    pub low_blocks: u64,
    /// Fewest bytes alive in it.
    pub low_bytes: u64,
}

/// What is known of a stack.
#[derive(Clone, Debug)]
pub struct StackEvidence {
    /// The stack.
    pub node: NodeId,
    /// Blocks it made.
    pub allocations: u64,
    /// Blocks of it that were given back.
    pub frees: u64,
    /// Smallest and largest block.
    pub sizes: (u64, u64),
    /// By slice.
    pub points: Vec<Point>,
    /// Of freed blocks.
    pub lifetimes: Option<Box<Lifetimes>>,
    blocks: u64,
    bytes: u64,
}

/// Where a slice ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceEnd {
    /// When, ns.
    pub ns: u64,
    /// Number of its last event.
    pub seqno: u64,
}

/// The evidence of a run.
pub struct Evidence {
    /// The whole run, replayed.
    pub replay: Replay,
    /// The heap before the program tidied up for its end, if it did.
    before_end: Option<Replay>,
    /// The slices.
    pub slices: Vec<SliceEnd>,
    /// The stacks, in the order of their first allocations.
    pub stacks: Vec<StackEvidence>,
    /// Number of the last slice that counts: of what came later, the program only
    /// gave back.
    pub last_slice: u32,
    /// Do the slices have all that lived then? Not where what was freed was left out.
    pub levels: bool,
    /// Time of the instant at which the heap is judged, ns.
    pub now_ns: u64,
    /// Number of the last event before it.
    pub now_seqno: u64,
}

impl Evidence {
    /// Reads the trace up to an instant.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn collect(session: &mut Session, until: Until, slicing: Slicing) -> Result<Evidence, QueryError> {
        let mut collector = Collector::new(slicing);
        let replay = if until == Until::End {
            session.watch(&mut collector)?
        } else {
            let mut replay = session.watch_until(until, &mut collector)?;
            replay.finish();
            replay
        };
        let exits = session.facts().end.as_ref().is_some_and(|end| end.how == EndedHow::Exit);
        let tail = if exits && until == Until::End { collector.tail() } else { None };
        let mut evidence = collector.finish(replay);
        evidence.count_left_out();
        evidence.levels = !session.modes().live_only;
        if let Some(seqno) = tail {
            evidence.end_at(session.replay_until(Until::Seqno(seqno))?, seqno);
        }
        Ok(evidence)
    }

    /// The blocks that are judged: those alive at the end, and those that were
    /// given back only when the program tidied up.
    pub fn live(&self) -> impl Iterator<Item = LiveBlock> + '_ {
        self.before_end.as_ref().unwrap_or(&self.replay).live()
    }

    /// Did the program tidy up at its end?
    pub fn tidied(&self) -> bool {
        self.before_end.is_some()
    }

    /// Adds what left totals alone to the counts of each stack.
    fn count_left_out(&mut self) {
        for stack in &mut self.stacks {
            if let Some(site) = self.replay.site(stack.node) {
                (stack.allocations, stack.frees) = (site.allocations, site.frees);
            }
        }
    }

    fn end_at(&mut self, before: Replay, seqno: u64) {
        let at = self.slices.partition_point(|slice| slice.seqno < seqno);
        self.last_slice = (at as u32).min(self.last_slice);
        self.now_ns = before.totals().last_ns;
        self.now_seqno = seqno;
        self.before_end = Some(before);
    }

    /// The slice in which the event with this number was.
    pub fn slice_of(&self, seqno: u64) -> u32 {
        self.slices.partition_point(|slice| slice.seqno < seqno) as u32
    }
}

impl Watch for Collector {
    const EVENTS: bool = true;

    #[inline(always)]
    fn event(&mut self, replay: &Replay, event: &Brief, seqno: u64, act: Act) {
        let clock = match self.slicing {
            Slicing::Events => self.events,
            // Times do not go back where the trace is whole.
            Slicing::Period(_) => event.ns.max(self.last.ns),
        };
        // No slice ends between the halves of a realloc.
        let half = event.paired && matches!(act, Act::Made { .. });
        if clock >= self.turns && !half {
            self.turn(clock, replay);
        }
        self.events += 1;
        self.last = SliceEnd { ns: event.ns.max(self.last.ns), seqno: seqno.max(self.last.seqno) };
        match act {
            Act::Made { site } => self.alloc(event, site, replay.weight(event.size, seqno)),
            Act::Freed { site, size, ns, seqno } => self.free(event, site, ns, replay.weight(size, seqno)),
            Act::Nothing => {}
        }
    }
}

struct Collector {
    slicing: Slicing,
    /// Events or ns in a slice.
    width: u64,
    most: u64,
    /// Number of the open slice.
    open: u32,
    /// Where it ends, in events or ns.
    turns: u64,
    events: u64,
    last: SliceEnd,
    slices: Vec<SliceEnd>,
    /// By the replay's numbers: in the order of first allocations.
    stacks: Vec<StackEvidence>,
    /// Stacks with a point in the open slice.
    touched: Vec<u32>,
    /// Seqno of the latest allocations and how many events were before: a ring.
    tail: Vec<(u64, u64)>,
    tail_next: usize,
}

impl Collector {
    fn new(slicing: Slicing) -> Collector {
        let (width, most) = match slicing {
            Slicing::Events => (FIRST_WIDTH, MAX_SLICES),
            Slicing::Period(ns) => (ns.max(1), MAX_PERIODS),
        };
        Collector {
            slicing,
            width,
            most,
            open: 0,
            turns: width,
            events: 0,
            last: SliceEnd::default(),
            slices: Vec::new(),
            stacks: Vec::new(),
            touched: Vec::new(),
            tail: Vec::new(),
            tail_next: 0,
        }
    }

    #[inline(always)]
    fn alloc(&mut self, event: &Brief, site: u32, weight: Weight) {
        let entry = (self.last.seqno, self.events);
        if self.tail.len() < TAIL {
            self.tail.push(entry);
        } else {
            self.tail[self.tail_next] = entry;
            self.tail_next = (self.tail_next + 1) % TAIL;
        }
        while self.stacks.len() <= site as usize {
            self.stacks.push(StackEvidence::new(event.node));
        }
        let Some(stack) = self.stacks.get_mut(site as usize) else { return };
        stack.allocations = stack.allocations.saturating_add(weight.blocks);
        stack.sizes = (stack.sizes.0.min(event.size), stack.sizes.1.max(event.size));
        if stack.open(self.open) {
            self.touched.push(site);
        }
        stack.blocks = stack.blocks.saturating_add(weight.blocks);
        stack.bytes = stack.bytes.saturating_add(weight.bytes);
        let (blocks, bytes) = (stack.blocks, stack.bytes);
        if let Some(point) = stack.points.last_mut() {
            point.born = point.born.saturating_add(narrow(weight.blocks));
            if event.paired {
                point.low_blocks = point.low_blocks.min(blocks);
                point.low_bytes = point.low_bytes.min(bytes);
            }
        }
    }

    #[inline(always)]
    fn free(&mut self, event: &Brief, site: u32, ns: u64, weight: Weight) {
        let Some(stack) = self.stacks.get_mut(site as usize) else { return };
        let blocks = narrow(weight.blocks);
        stack.frees = stack.frees.saturating_add(weight.blocks);
        stack.lifetimes.get_or_insert_default().add_all(event.ns.saturating_sub(ns), blocks);
        if stack.open(self.open) {
            self.touched.push(site);
        }
        stack.blocks = stack.blocks.saturating_sub(weight.blocks);
        stack.bytes = stack.bytes.saturating_sub(weight.bytes);
        let (blocks, bytes) = (stack.blocks, stack.bytes);
        let Some(point) = stack.points.last_mut() else { return };
        point.freed = point.freed.saturating_add(narrow(weight.blocks));
        // Between the halves of a realloc nothing is given back.
        if !matches!(event.api, ApiKind::ReallocFree | ApiKind::ReallocarrayFree) {
            point.low_blocks = point.low_blocks.min(blocks);
            point.low_bytes = point.low_bytes.min(bytes);
        }
    }

    /// Closes the open slice and opens that of `clock`.
    #[cold]
    fn turn(&mut self, clock: u64, replay: &Replay) {
        self.close(replay);
        while clock / self.width >= self.most {
            self.width = self.width.saturating_mul(2);
            self.join();
        }
        let open = (clock / self.width) as u32;
        // Nothing happened in between.
        while self.slices.len() < open as usize {
            let ns = match self.slicing {
                Slicing::Events => self.last.ns,
                Slicing::Period(_) => (self.slices.len() as u64 + 1) * self.width,
            };
            self.slices.push(SliceEnd { ns, seqno: self.last.seqno });
        }
        self.open = open;
        self.turns = (u64::from(open) + 1).saturating_mul(self.width);
    }

    /// Writes down what the open slice ends with. The replay knows the levels
    /// exactly, also where it put the order of threads right.
    fn close(&mut self, replay: &Replay) {
        for at in std::mem::take(&mut self.touched) {
            let Some(stack) = self.stacks.get_mut(at as usize) else { continue };
            if let Some(site) = replay.site(stack.node) {
                (stack.blocks, stack.bytes) = (site.live_blocks, site.live_bytes);
            }
            if let Some(point) = stack.points.last_mut() {
                (point.blocks, point.bytes) = (stack.blocks, stack.bytes);
                point.low_blocks = point.low_blocks.min(point.blocks);
                point.low_bytes = point.low_bytes.min(point.bytes);
            }
        }
        self.slices.push(self.last);
    }

    /// Joins slices in pairs. Their greatest number is even, so that none which
    /// was closed is ever open again.
    fn join(&mut self) {
        for stack in &mut self.stacks {
            let mut joined: Vec<Point> = Vec::with_capacity(stack.points.len() / 2 + 1);
            for point in &stack.points {
                let slice = point.slice / 2;
                match joined.last_mut() {
                    Some(last) if last.slice == slice => {
                        *last = Point {
                            slice,
                            born: last.born.saturating_add(point.born),
                            freed: last.freed.saturating_add(point.freed),
                            blocks: point.blocks,
                            bytes: point.bytes,
                            low_blocks: last.low_blocks.min(point.low_blocks),
                            low_bytes: last.low_bytes.min(point.low_bytes),
                        };
                    }
                    _ => joined.push(Point { slice, ..*point }),
                }
            }
            stack.points = joined;
        }
        self.slices = self.slices.chunks(2).filter_map(|pair| pair.last().copied()).collect();
    }

    /// The last event before the program only tidied up, if it did.
    fn tail(&self) -> Option<u64> {
        let (newest, oldest) = self.tail.split_at(self.tail_next.min(self.tail.len()));
        let mut best = None;
        for (after, &(seqno, events)) in newest.iter().rev().chain(oldest.iter().rev()).enumerate() {
            // `after` allocations came behind this one.
            let rest = self.events.saturating_sub(events);
            let frees = rest.saturating_sub(after as u64);
            if frees >= TAIL_FREES && (after as u64) * TAIL_SHARE <= rest {
                best = Some(seqno);
            }
        }
        best
    }

    fn finish(mut self, replay: Replay) -> Evidence {
        if self.events > 0 {
            self.close(&replay);
        }
        let last = self.slices.len().saturating_sub(1) as u32;
        Evidence {
            before_end: None,
            slices: self.slices,
            stacks: self.stacks,
            last_slice: last,
            levels: true,
            now_ns: replay.totals().last_ns,
            now_seqno: self.last.seqno,
            replay,
        }
    }
}

/// As a point counts.
#[inline]
fn narrow(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

impl StackEvidence {
    /// Of a stack that has made nothing yet.
    fn new(node: NodeId) -> StackEvidence {
        StackEvidence {
            node,
            allocations: 0,
            frees: 0,
            sizes: (u64::MAX, 0),
            points: Vec::new(),
            lifetimes: None,
            blocks: 0,
            bytes: 0,
        }
    }

    /// Makes a point for the open slice, if there is none yet.
    #[inline]
    fn open(&mut self, slice: u32) -> bool {
        if self.points.last().is_some_and(|point| point.slice == slice) {
            return false;
        }
        self.points.push(Point {
            slice,
            born: 0,
            freed: 0,
            blocks: self.blocks,
            bytes: self.bytes,
            low_blocks: self.blocks,
            low_bytes: self.bytes,
        });
        true
    }
}
