//! What is known of each stack of a run: its totals, what it held in each slice of the
//! run, how long its blocks lived, and which of them were left. A replay [collects](
//! highwater_replay::evidence) it, now or when it was first looked at the trace.

use std::sync::Arc;

use highwater_event::node::NodeId;
use highwater_replay::evidence::{Held, Lived};
pub use highwater_replay::evidence::{Point, SliceEnd, Slicing};
use highwater_replay::{Outcome, evidence};

use crate::session::{QueryError, Session};

/// What is known of a stack that made blocks.
#[derive(Clone, Copy, Debug)]
pub struct StackEvidence<'a> {
    /// The stack.
    pub node: NodeId,
    /// Blocks it made.
    pub allocations: u64,
    /// Blocks of it that were given back.
    pub frees: u64,
    /// Smallest and largest block.
    pub sizes: (u64, u64),
    /// By slice.
    pub points: &'a [Point],
    /// Of freed blocks.
    pub lived: Lived<'a>,
    /// The blocks that are judged.
    pub held: Option<&'a Held>,
}

impl StackEvidence<'_> {
    /// Blocks that are judged, and their bytes.
    pub fn judged(&self) -> (u64, u64) {
        self.held.map_or((0, 0), |held| (held.blocks, held.bytes))
    }

    /// Goes through those of the first `slices` in which it did something or had
    /// anything: what it did and had there.
    pub fn each_slice(&self, slices: usize, mut see: impl FnMut(usize, &Point)) {
        let (mut held, mut next) = (Point::default(), 0);
        let rest = |held: &Point, slices: std::ops::Range<usize>, see: &mut dyn FnMut(usize, &Point)| {
            if (held.blocks, held.bytes) != (0, 0) {
                slices.for_each(|at| see(at, held));
            }
        };
        for point in self.points.iter().take_while(|point| (point.slice as usize) < slices) {
            let at = point.slice as usize;
            rest(&held, next..at, &mut see);
            see(at, point);
            (held, next) = (*point, at + 1);
            (held.born, held.freed) = (0, 0);
            (held.low_blocks, held.low_bytes) = (held.blocks, held.bytes);
        }
        rest(&held, next..slices, &mut see);
    }
}

/// The evidence of a run.
pub struct Evidence {
    /// What else the whole run says.
    pub found: Arc<Outcome>,
    /// Do the slices have all that lived then? Not where what was freed was left out.
    pub levels: bool,
    evidence: Arc<evidence::Evidence>,
}

impl Evidence {
    /// Of a whole trace; by slices of equal numbers of events it is found once.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn collect(session: &mut Session, slicing: Slicing) -> Result<Evidence, QueryError> {
        let evidence = match slicing {
            Slicing::Events => session.evidence()?,
            Slicing::Period(_) => session.evidence_by(slicing)?.1,
        };
        let levels = !session.modes().live_only;
        Ok(Evidence { found: session.outcome()?, levels, evidence })
    }

    /// The slices.
    pub fn slices(&self) -> &[SliceEnd] {
        &self.evidence.slices
    }

    /// Number of the last slice that counts: of what came later, the program only
    /// gave back.
    pub fn last_slice(&self) -> u32 {
        self.evidence.last_slice
    }

    /// The stacks that made blocks, in the order of their first allocations. What left
    /// totals alone is in their counts.
    pub fn stacks(&self) -> impl Iterator<Item = StackEvidence<'_>> {
        let known = (0u32..).zip(&self.evidence.sites).zip(self.found.sites());
        known.map(|((number, site), totals)| StackEvidence {
            node: totals.node,
            allocations: totals.allocations,
            frees: totals.frees,
            sizes: site.sizes,
            points: self.evidence.points(number),
            lived: self.evidence.lived(number),
            held: site.held.as_deref(),
        })
    }

    /// Time of the instant at which the heap is judged, ns: the end, or before the
    /// program tidied up for it.
    pub fn now_ns(&self) -> u64 {
        self.evidence.now_ns
    }

    /// Did the program tidy up at its end?
    pub fn tidied(&self) -> bool {
        self.evidence.tidied
    }
}
