//! All that a replay has counted up to an instant, kept beside a keyframe: a replay that
//! goes on from there counts on as if it had come from the start.

use super::Outcome;
use super::stored::{Reading, Writing, all, outcome};
use crate::errors::ErrorKind;
use crate::replay::Options;

/// What was counted before an instant between two epochs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoFar {
    /// As it was then; what is derived from the numbers below as well.
    pub(crate) found: Outcome,
    /// Events fed, failed reallocs included.
    pub(crate) fed: u64,
    /// The latest time, ns.
    pub(crate) now: u64,
    /// Bounds of the true peak, bytes.
    pub(crate) upper: u64,
    /// See `upper`.
    pub(crate) lower: u64,
}

/// No count that can go on growing is beyond this.
const MOST: u64 = 1 << 62;

impl SoFar {
    /// As bytes; `options` are those of the replay.
    pub fn encode(mut self, options: &Options) -> Vec<u8> {
        let mut writing = Writing::default();
        outcome(&mut writing, &mut options.clone(), &mut self.found);
        all(&mut writing, self.rest());
        writing.0
    }

    /// What is in these bytes, if a replay with these options can have written it.
    pub fn decode(bytes: &[u8], options: &Options) -> Option<SoFar> {
        let mut reading = Reading::new(bytes);
        let (mut so_far, mut its) = (SoFar::default(), options.clone());
        outcome(&mut reading, &mut its, &mut so_far.found);
        all(&mut reading, so_far.rest());
        let ours = its == *options && so_far.found.totals().sampled.rate == options.sample;
        (reading.is_all() && ours && so_far.makes_sense()).then_some(so_far)
    }

    fn rest(&mut self) -> [&mut u64; 4] {
        let SoFar { found: _, fed, now, upper, lower } = self;
        [fed, now, upper, lower]
    }

    /// Can every count go on without running over, or below what can be taken back?
    fn makes_sense(&self) -> bool {
        let totals = self.found.totals();
        let of_all = [
            totals.allocations,
            totals.reallocations,
            totals.failed_reallocations,
            totals.order_repairs,
            totals.missing_frees,
            totals.foreign_frees,
            totals.double_free,
            totals.invalid_free,
            totals.mismatched,
            totals.sampled.blocks,
            self.fed,
        ];
        let of_threads = self.found.threads().iter().map(|thread| thread.allocations);
        let of_sites = self.found.sites().iter().map(|site| site.allocations);
        let counts = of_all.iter().chain(&totals.by_api).chain(&totals.pairs).copied();
        let errors = |kind| self.found.errors().iter().filter(|error| error.kind == kind).count() as u64;
        counts.chain(of_threads).chain(of_sites).all(|count| count < MOST)
            && errors(ErrorKind::DoubleFree) <= totals.double_free
            && errors(ErrorKind::InvalidFree) <= totals.invalid_free
            && errors(ErrorKind::Mismatched) <= totals.mismatched
    }
}
