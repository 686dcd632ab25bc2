//! Somebody who looks on while a heap is replayed.

use highwater_trace::{Batch, Brief};

use crate::replay::Replay;

/// What an event does, known before it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It makes a block.
    Made {
        /// Number of its stack among [`Replay::sites`], in the order of first allocations.
        site: u32,
    },
    /// It gives back a block.
    Freed {
        /// Number of the stack that made it, as above.
        site: u32,
        /// Requested bytes.
        size: u64,
        /// When it was made, ns.
        ns: u64,
        /// Seqno of its allocation.
        seqno: u64,
    },
    /// It gives back what does not live, as far as that is known.
    Nothing,
}

/// Looks on while events are fed to a replay.
pub trait Watch {
    /// Does it look at single events? Otherwise [`Watch::event`] is not called.
    const EVENTS: bool;

    /// A batch comes.
    fn batch(&mut self, _heap: &mut Replay, _batch: &Batch) {}

    /// An event comes: `heap` is as it is before.
    fn event(&mut self, _heap: &Replay, _event: &Brief, _seqno: u64, _act: Act) {}
}

/// Nobody.
pub struct Nobody;

impl Watch for Nobody {
    const EVENTS: bool = false;
}
