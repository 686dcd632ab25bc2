//! What a finished replay says without its live blocks: it can be kept in the trace
//! and read again where the events would have to be.

mod so_far;
mod stored;

pub use so_far::SoFar;
pub(crate) use stored::Numbers;

use crate::errors::HeapError;
use crate::histogram::Histogram;
use crate::replay::Replay;
use crate::series::Series;
use crate::totals::{SiteTotals, ThreadTotals, Totals};

/// The version of the rules by which a replay counts. **Raise it whenever a replay
/// counts anything differently, or an outcome is stored differently**: what a trace
/// holds by another version is not used, totals at keyframes as well. (A test has the outcome of a stream that
/// shows all rules, byte by byte.)
pub const RULES: u32 = 2;

/// What a finished replay of a whole trace, or of a window of one, says of everything
/// but single blocks. The live set is a [`Replay`]'s alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub(crate) totals: Totals,
    pub(crate) threads: Vec<ThreadTotals>,
    pub(crate) sites: Vec<SiteTotals>,
    pub(crate) errors: Vec<HeapError>,
    pub(crate) sizes: Histogram,
    pub(crate) lifetimes: Histogram,
    pub(crate) series: Series,
}

impl Outcome {
    /// The totals.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The threads, in the order of their first events.
    pub fn threads(&self) -> &[ThreadTotals] {
        &self.threads
    }

    /// The sites, in the order of their first allocations.
    pub fn sites(&self) -> &[SiteTotals] {
        &self.sites
    }

    /// The bad frees, by seqno; at most [`MAX_ERRORS`](crate::errors::MAX_ERRORS).
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
}

impl Replay {
    /// What it says without its live blocks. Take it once it is
    /// [finished](Replay::finish).
    pub fn outcome(&self) -> Outcome {
        Outcome {
            totals: self.totals(),
            threads: self.threads().to_vec(),
            sites: self.sites().map(SiteTotals::settled).collect(),
            errors: self.errors().to_vec(),
            sizes: self.sizes().clone(),
            lifetimes: self.lifetimes().clone(),
            series: self.series().clone(),
        }
    }
}
