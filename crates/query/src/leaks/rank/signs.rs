//! What the evidence says of a site, in numbers.
//!
//! The run is cut into sixteen *epochs* of equal numbers of events. The two
//! youngest tell nothing: what was made there may still be given back. Of the
//! others, counted from the site's first block on:
//!
//! * `survivors`: blocks that are still alive;
//! * `share`: the part of the epochs that have survivors;
//! * `evenness`: 1 if every epoch keeps the same part of its blocks, less the more
//!   they differ (the inverse of Simpson's index).
//!
//! `survivors * share² * evenness` puts the culprit first more often than bytes,
//! slopes and ages do; blocks, not bytes, are what leaks are counted in.

use highwater_trace::model::EndedHow;

use super::site::Site;
use super::{Findings, Found, Options};
use crate::leaks::evidence::Evidence;
use crate::leaks::growth::own::{self, Judged};
use crate::leaks::growth::{Class, Trend, edkit, edleak};
use crate::leaks::lifetimes::{self, Stale};

/// Epochs of a run.
const EPOCHS: usize = 16;
/// The youngest, which tell nothing.
const OPEN: usize = 2;
/// A site that is younger than so many epochs is judged as if it had them.
const LEAST: usize = 6;
/// Slices below which a run is too short for all this.
pub const MIN_SLICES: usize = 16;

/// What is the same for every site.
pub struct Run<'a> {
    /// The evidence.
    pub evidence: &'a Evidence,
    /// Did the program exit by itself?
    pub exited: bool,
    /// Was its memory scanned?
    pub scanned: bool,
    /// Windows that were compared.
    pub windows: u64,
    /// Is the run long enough for survivors and growth?
    pub long: bool,
    /// Is only a sample of it known?
    pub sampled: bool,
    /// What growth is.
    pub trend: Trend,
    /// Ends of the slices that count, seconds.
    pub times: Vec<f64>,
    /// Of the events before the program tidied up, the part that gave back: near 0
    /// a program only builds up, near 0.5 it works and lets go.
    pub churn: f64,
}

impl<'a> Run<'a> {
    /// Puts it together.
    pub fn new(
        how: Option<EndedHow>,
        evidence: &'a Evidence,
        findings: &Findings,
        options: &Options,
    ) -> Run<'a> {
        let slices = evidence.last_slice() as usize + 1;
        let times = evidence.slices().iter().take(slices).map(|slice| slice.ns as f64 / 1e9).collect();
        let counted = |of: fn(&crate::leaks::evidence::Point) -> u32| -> u64 {
            let points = evidence.stacks().flat_map(|stack| stack.points);
            points
                .filter(|point| point.slice <= evidence.last_slice())
                .map(|point| u64::from(of(point)))
                .sum()
        };
        let (born, freed) = (counted(|point| point.born), counted(|point| point.freed));
        Run {
            evidence,
            exited: how == Some(EndedHow::Exit),
            scanned: findings.reach.is_some(),
            windows: findings.windows,
            long: slices >= MIN_SLICES,
            sampled: evidence.found.totals().sampled.rate > 0,
            trend: options.trend,
            times,
            churn: freed as f64 / (born + freed).max(1) as f64,
        }
    }
}

impl Run<'_> {
    /// Seconds from the first slice's end to the last's that counts.
    pub fn seconds(&self) -> f64 {
        self.times.last().zip(self.times.first()).map_or(0.0, |(last, first)| last - first)
    }
}

/// What a site made and the least it held, by slice.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    /// Blocks made.
    pub born: Vec<u64>,
    /// Fewest blocks.
    pub low_blocks: Vec<u64>,
    /// Fewest bytes.
    pub low_bytes: Vec<u64>,
}

impl Spread {
    /// So many slices without anything.
    pub fn new(slices: usize) -> Spread {
        Spread { born: vec![0; slices], low_blocks: vec![0; slices], low_bytes: vec![0; slices] }
    }
}

/// Growth of a site.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// Of its bytes.
    pub bytes: Judged,
    /// Of its blocks.
    pub blocks: Judged,
    /// Does it grow, by the trend that was asked for?
    pub grows: bool,
    /// By that trend.
    pub class: Class,
}

/// Survivors by epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Survivors {
    /// Epochs with survivors.
    pub with: usize,
    /// Epochs that count, from the first block on.
    pub of: usize,
    /// Blocks of these epochs that are alive.
    pub blocks: u64,
    /// Blocks of the site that were seen alive: each of a sample stands for several.
    pub seen: u64,
    /// Epochs that count, from the oldest with a survivor on.
    pub since: usize,
    /// `with` of `of`, but of at least [`LEAST`].
    pub share: f64,
    /// See the module.
    pub evenness: f64,
    /// 1 if every epoch leaves as many, less the more their numbers differ.
    pub steadiness: f64,
    /// The part of them whose stacks come back: those with survivors half of the site's
    /// life apart.
    pub recurring: f64,
}

impl Survivors {
    /// What sites are ordered by.
    pub fn score(&self) -> f64 {
        self.blocks as f64 * self.share * self.share * self.evenness
    }

    /// Are there some here and some there? What a queue holds is all young, what a
    /// buffer holds is younger still; what was made once for each of several things
    /// that came up (a histogram for each command) has gaps.
    pub fn patchy(&self) -> bool {
        self.with > 0 && (self.with as f64) < 0.7 * self.since as f64
    }

    /// Does hardly a stack come back? Then nothing was done again and again: a program
    /// that starts makes what it keeps on one way after another, each gone once. What
    /// is all young (a buffer that is resized) says nothing of that.
    pub fn once(&self) -> bool {
        self.with > 0 && self.recurring < 0.2
    }

    /// Do they go through the whole life of the site?
    pub fn throughout(&self) -> bool {
        self.with >= 4 && self.share >= 0.7 && self.blocks >= 5 && self.seen >= 5
    }
}

/// What speaks against a site.
#[derive(Clone, Debug, PartialEq)]
pub struct Signs {
    /// Blocks made.
    pub allocations: u64,
    /// Blocks given back before the program tidied up.
    pub frees: u64,
    /// Blocks alive when it is judged.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks alive at the very end.
    pub exit_blocks: u64,
    /// Their bytes.
    pub exit_bytes: u64,
    /// Survivors by epoch; `None` in a short run.
    pub survivors: Option<Survivors>,
    /// Growth; `None` with too few slices.
    pub growth: Option<Growth>,
    /// Blocks that outlive those that were freed by far.
    pub stale: Option<Stale>,
    /// The age that 99 of 100 freed blocks did not outlive, ns.
    pub usual_age: Option<u64>,
    /// Age of the oldest block, ns.
    pub oldest_age: u64,
    /// What other methods found.
    pub found: Found,
    /// Were all its blocks made in the first eighth of the run?
    pub at_start: bool,
}

impl Signs {
    /// Reads them off.
    pub fn of(run: &Run<'_>, site: &Site<'_>) -> Signs {
        let (spread, levels) = site.dense(run.evidence);
        let slices = spread.born.len();
        let first = spread.born.iter().position(|&born| born > 0).unwrap_or(slices);
        let last = spread.born.iter().rposition(|&born| born > 0).unwrap_or(slices);
        let allocations = site.allocations();
        Signs {
            allocations,
            frees: allocations.saturating_sub(site.blocks),
            blocks: site.blocks,
            bytes: site.bytes,
            exit_blocks: site.exit_blocks,
            exit_bytes: site.exit_bytes,
            survivors: run.long.then(|| survivors(&spread, site, first)),
            growth: if run.evidence.levels { growth(run, &spread, &levels, first) } else { None },
            stale: lifetimes::stale(&site.lifetimes, site.old.0, site.old.1),
            usual_age: site.lifetimes.quantile(0.99),
            oldest_age: run.evidence.now_ns().saturating_sub(site.oldest_ns),
            found: site.found,
            at_start: run.long && last < slices / 8,
        }
    }

    /// Was most of it given back when the program tidied up for its end?
    pub fn given_back(&self, run: &Run<'_>) -> bool {
        self.exit_blocks < self.blocks.div_ceil(2) && run.evidence.tidied()
    }

    /// Is what grows too young to be told from one step of the run, a library that
    /// sets itself up? In its last quarter, by its events and by its time: a server
    /// makes most blocks while it starts and serves for most of the time.
    pub fn young(&self, run: &Run<'_>) -> bool {
        let from = |survivors: Survivors| {
            if survivors.with == 0 { survivors.of } else { survivors.since }
        };
        let few = self.survivors.is_some_and(|survivors| from(survivors) < EPOCHS / 4);
        let whole = run.times.last().copied().unwrap_or_default();
        few && self.growth.as_ref().is_none_or(|growth| growth.bytes.seconds < whole / 4.0)
    }

    /// Did it stop growing? A table that a long start fills outlives the scraps of
    /// its filling, and is no leak.
    pub fn stands(&self) -> bool {
        let goes_on = |judged: &Judged| matches!(judged.class, Class::Linear | Class::Exp);
        self.growth.as_ref().is_some_and(|growth| !goes_on(&growth.bytes) && !goes_on(&growth.blocks))
    }

    /// Does it grow?
    pub fn grows(&self) -> bool {
        self.growth.as_ref().is_some_and(|growth| growth.grows)
    }
}

fn survivors(spread: &Spread, site: &Site<'_>, first: usize) -> Survivors {
    let slices = spread.born.len();
    let epoch_of = |slice: usize| slice * EPOCHS / slices.max(1);
    let (mut born, mut alive) = ([0u64; EPOCHS], [0u64; EPOCHS]);
    for (at, &made) in spread.born.iter().enumerate() {
        born[epoch_of(at).min(EPOCHS - 1)] += made;
    }
    for (&slice, &blocks) in &site.survivors {
        let alive = &mut alive[epoch_of(slice as usize).min(EPOCHS - 1)];
        *alive = alive.saturating_add(blocks);
    }
    let closed = epoch_of(first).min(EPOCHS - OPEN)..EPOCHS - OPEN;
    let (born, alive) = (&born[closed.clone()], &alive[closed.clone()]);
    let with = alive.iter().filter(|&&alive| alive > 0).count();
    // Epochs in which the site made nothing keep nothing: that is uneven too.
    let rates = || {
        born.iter()
            .zip(alive)
            .map(|(&born, &alive)| if born > 0 { (alive as f64 / born as f64).min(1.0) } else { 0.0 })
    };
    let life = (slices - first.min(slices)) as u32;
    let (mut again, mut all) = (0u64, 0u64);
    for &(from, to, blocks) in site.spans.values() {
        all = all.saturating_add(blocks);
        if to.saturating_sub(from) >= life.div_ceil(2) {
            again = again.saturating_add(blocks);
        }
    }
    let since = alive.iter().position(|&alive| alive > 0).map_or(0, |first| alive.len() - first);
    Survivors {
        seen: site.seen,
        recurring: again as f64 / all.max(1) as f64,
        since,
        with,
        of: closed.len(),
        blocks: alive.iter().copied().fold(0, u64::saturating_add),
        share: with as f64 / closed.len().max(LEAST) as f64,
        evenness: evenness(rates()),
        steadiness: evenness(alive.iter().map(|&alive| alive as f64)),
    }
}

/// The inverse of Simpson's index over the number of parts: 1 if all are equal, 1 / n
/// if only one of n is not 0.
fn evenness(parts: impl Iterator<Item = f64>) -> f64 {
    let (count, sum, squares) =
        parts.fold((0.0, 0.0, 0.0), |(n, sum, squares), part| (n + 1.0, sum + part, squares + part * part));
    if squares > 0.0 { sum * sum / (squares * count) } else { 0.0 }
}

fn growth(run: &Run<'_>, spread: &Spread, levels: &[u64], first: usize) -> Option<Growth> {
    // A site that is there from the start begins with what it has then, not at 0.
    let first = first.max(1);
    let times = run.times.get(first..)?;
    let floats = |values: &[u64]| -> Vec<f64> { values.iter().map(|&value| value as f64).collect() };
    let bytes = own::judge(times, &floats(spread.low_bytes.get(first..)?))?;
    let blocks = own::judge(times, &floats(spread.low_blocks.get(first..)?))?;
    // edleak looks at what is there when it looks.
    let whole: Vec<i64> =
        levels.get(first..)?.iter().map(|&bytes| i64::try_from(bytes).unwrap_or(i64::MAX)).collect();
    let (grows, class) = match run.trend {
        Trend::Own => (bytes.grows(), bytes.class),
        Trend::Edleak => {
            let fit = edleak::fit(&whole);
            (fit.is_some_and(|fit| fit.is_leak()), fit.map_or(Class::Const, |fit| fit.class))
        }
        Trend::EdkitLogistic => {
            let leak = edkit::is_leak(&whole).unwrap_or(false);
            (leak, if leak { Class::Linear } else { Class::Const })
        }
    };
    Some(Growth { bytes, blocks, grows, class })
}

/// How the whole heap grows.
pub fn heap_growth(evidence: &Evidence) -> Option<Growth> {
    if !evidence.levels {
        return None;
    }
    let slices = evidence.last_slice() as usize + 1;
    let times: Vec<f64> = evidence.slices().iter().take(slices).map(|slice| slice.ns as f64 / 1e9).collect();
    let (mut bytes, mut blocks) = (vec![0.0; slices], vec![0.0; slices]);
    for stack in evidence.stacks() {
        stack.each_slice(slices, |at, point| {
            blocks[at] += point.low_blocks as f64;
            bytes[at] += point.low_bytes as f64;
        });
    }
    let bytes = own::judge(&times, &bytes)?;
    let blocks = own::judge(&times, &blocks)?;
    Some(Growth { bytes, blocks, grows: bytes.grows(), class: bytes.class })
}
