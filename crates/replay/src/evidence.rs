//! What a whole replay tells of each stack beside its totals: what it held in each
//! slice of the run, how long its blocks lived, and which of them were left. It is
//! what a ranking of leaks goes by; it can be kept in the trace.
//!
//! The run is cut into *slices*, by default of equal numbers of events, at least 64
//! and at most 128 of them: a program that waits all night has no more slices then
//! than while it works. Where the number outgrows that, slices join in pairs. With a
//! period they are of equal time.
//!
//! The blocks that are judged are those alive at the end; of a program that tidied up
//! before it exited, those that were alive before that. Of a sample each block counts
//! as those that it stands for.
//!
//! | module | holds |
//! |---|---|
//! | [`collect`] | [`Collector`]: looks on at a replay |
//! | [`lifetimes`] | how lifetimes and ages are put into classes |
//! | `tail` | where a program began to tidy up |
//! | `stored` | evidence as bytes |

pub mod collect;
pub mod lifetimes;
mod stored;
mod tail;
#[cfg(test)]
mod tests;

pub use collect::Collector;

use crate::block::Fields;
use crate::replay::Replay;
use crate::sampling::Weight;

/// The version of the rules by which evidence is counted. **Raise it whenever
/// evidence counts anything differently, or is stored differently**: what a trace
/// holds by another version is not used. (A test has the evidence of a stream that
/// shows all rules, byte by byte.)
pub const RULES: u32 = 1;

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
    /// Number of the stack.
    pub(crate) site: u32,
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

/// Where a slice ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceEnd {
    /// When, ns.
    pub ns: u64,
    /// Number of its last event.
    pub seqno: u64,
}

/// Lifetimes of a stack's freed blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived<'a> {
    /// Freed blocks.
    pub count: u64,
    /// Frees that were seen: fewer than `count` where each block stands for several.
    pub seen: u64,
    /// Numbers of [buckets](lifetimes::bucket), rising, and blocks in them.
    pub buckets: &'a [(u8, u32)],
}

/// Judged blocks of a stack of one class of ages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aged {
    /// [The class](lifetimes::class).
    pub class: u8,
    /// Blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Variance of the bytes, where they are an estimate from a sample.
    pub variance: u64,
}

/// The judged blocks of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Variance of the bytes, where they are an estimate from a sample.
    pub variance: u64,
    /// Blocks that were seen: fewer than `blocks` where each stands for several.
    pub seen: u64,
    /// Time of the earliest birth, ns.
    pub oldest_ns: u64,
    /// Slices of birth, rising, and blocks born in them.
    pub births: Vec<(u32, u64)>,
    /// By classes of ages, rising.
    pub ages: Vec<Aged>,
}

/// What is known of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteEvidence {
    /// Smallest and largest block.
    pub sizes: (u64, u64),
    /// The blocks that are judged; `None` without any.
    pub held: Option<Box<Held>>,
    /// Of freed blocks; see [`Lived`].
    count: u64,
    seen: u64,
    /// Where its buckets of lifetimes end among all, and its points.
    buckets: usize,
    points: usize,
}

/// The evidence of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The slices.
    pub slices: Vec<SliceEnd>,
    /// The stacks that made blocks, by their numbers: in the order of first
    /// allocations.
    pub sites: Vec<SiteEvidence>,
    /// Number of the last slice that counts: of what came later, the program only
    /// gave back.
    pub last_slice: u32,
    /// Time of the instant at which the heap is judged, ns.
    pub now_ns: u64,
    /// Number of the last event before it.
    pub now_seqno: u64,
    /// Did the program tidy up at its end? Then the heap before that is judged.
    pub tidied: bool,
    /// By stack, and by slice.
    points: Vec<Point>,
    /// By stack.
    buckets: Vec<(u8, u32)>,
    /// The judged blocks are not counted yet.
    unheld: bool,
}

impl Evidence {
    /// What a stack did, by slice.
    pub fn points(&self, site: u32) -> &[Point] {
        self.part(site, &self.points, |site| site.points)
    }

    /// Lifetimes of a stack's freed blocks.
    pub fn lived(&self, site: u32) -> Lived<'_> {
        let (count, seen) = self.sites.get(site as usize).map_or((0, 0), |site| (site.count, site.seen));
        Lived { count, seen, buckets: self.part(site, &self.buckets, |site| site.buckets) }
    }

    fn part<'a, T>(&self, site: u32, all: &'a [T], end: impl Fn(&SiteEvidence) -> usize) -> &'a [T] {
        let before = (site as usize).checked_sub(1).and_then(|before| self.sites.get(before));
        let to = self.sites.get(site as usize).map_or(0, &end);
        all.get(before.map_or(0, end)..to).unwrap_or_default()
    }

    /// The seqno up to which the trace has to be replayed once more, for
    /// [`Evidence::hold`]: where the program tidied up more than a replay remembers.
    pub fn needs(&self) -> Option<u64> {
        self.unheld.then_some(self.now_seqno)
    }

    /// Counts the judged blocks; `heap` is as it was after the event that
    /// [`Evidence::needs`] names.
    pub fn hold(&mut self, heap: &Replay) {
        self.unheld = false;
        self.count(heap.live_fields(), heap);
    }

    /// Counts judged blocks.
    fn count(&mut self, blocks: impl Iterator<Item = Fields>, heap: &Replay) {
        for block in blocks {
            let slice = self.slices.partition_point(|slice| slice.seqno < block.seqno) as u32;
            let class = lifetimes::class(self.now_ns.saturating_sub(block.ns));
            let weight = heap.weight(block.size, block.seqno);
            let Some(site) = self.sites.get_mut(block.site as usize) else { continue };
            let new = || Box::new(Held { oldest_ns: u64::MAX, ..Held::default() });
            site.held.get_or_insert_with(new).add(slice, class, block.ns, &weight);
        }
    }
}

impl Held {
    fn add(&mut self, slice: u32, class: u8, ns: u64, weight: &Weight) {
        self.blocks = self.blocks.saturating_add(weight.blocks);
        self.bytes = self.bytes.saturating_add(weight.bytes);
        self.variance = self.variance.saturating_add(weight.variance);
        self.seen += 1;
        self.oldest_ns = self.oldest_ns.min(ns);
        let at = self.births.partition_point(|birth| birth.0 < slice);
        match self.births.get_mut(at).filter(|birth| birth.0 == slice) {
            Some(birth) => birth.1 = birth.1.saturating_add(weight.blocks),
            None => self.births.insert(at, (slice, weight.blocks)),
        }
        let at = self.ages.partition_point(|aged| aged.class < class);
        if self.ages.get(at).is_none_or(|aged| aged.class != class) {
            self.ages.insert(at, Aged { class, ..Aged::default() });
        }
        if let Some(aged) = self.ages.get_mut(at) {
            aged.blocks = aged.blocks.saturating_add(weight.blocks);
            aged.bytes = aged.bytes.saturating_add(weight.bytes);
            aged.variance = aged.variance.saturating_add(weight.variance);
        }
    }
}
