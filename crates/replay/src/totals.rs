//! What is counted: overall, a thread, a site.

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_trace::model::ThreadNo;

use crate::sampling::{Sampled, Weight};

/// Totals of a recording, or of its part that was replayed.
///
/// Both halves of a realloc count, in `allocations` and in `frees`; neither
/// half of a failed one does. Every free counts in `frees`, bad and foreign ones
/// too; so `live_blocks = allocations - (frees - foreign_frees - double_free -
/// invalid_free) - missing_frees`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Allocations and frees together.
    pub events: u64,
    /// Blocks made.
    pub allocations: u64,
    /// Blocks given back, or tried to.
    pub frees: u64,
    /// Reallocs that gave back one block for another.
    pub reallocations: u64,
    /// Reallocs that failed: the block stayed.
    pub failed_reallocations: u64,
    /// Requested bytes of all blocks made.
    pub bytes_allocated: u64,
    /// Requested bytes of all blocks given back.
    pub bytes_freed: u64,
    /// Blocks that their thread freed before it made another.
    pub temporary: u64,
    /// Blocks alive at the end.
    pub live_blocks: u64,
    /// Requested bytes alive at the end.
    pub live_bytes: u64,
    /// Greatest value that `live_bytes` had.
    pub peak_bytes: u64,
    /// Blocks alive then.
    pub peak_blocks: u64,
    /// The first instant at which it had it, ns.
    pub peak_ns: u64,
    /// Seqno of the allocation that reached it (0 if nothing was allocated).
    pub peak_seqno: u64,
    /// The true peak lies within this many bytes of `peak_bytes`; 0 with one
    /// thread. See [`crate::peak`].
    pub peak_uncertainty: u64,
    /// Frees of blocks that were made before the recording, or longer ago than
    /// the memory of freed blocks reaches.
    pub foreign_frees: u64,
    /// Frees of a block that was free already.
    pub double_free: u64,
    /// Frees of an address that is no block's start.
    pub invalid_free: u64,
    /// Frees through the wrong family of functions (`new` with `free`).
    pub mismatched: u64,
    /// Places in which the order of two threads' events was put right.
    pub order_repairs: u64,
    /// Blocks whose address was allocated again although no free of them was
    /// ever seen: they were freed unseen.
    pub missing_frees: u64,
    /// Events that the recording lost, as far as replayed.
    pub dropped: u64,
    /// Nanoseconds that threads waited for the recorder, as far as replayed.
    pub stalled_ns: u64,
    /// Time of the first event, ns.
    pub first_ns: u64,
    /// Time of the last event, ns.
    pub last_ns: u64,
    /// Events by the number of their [`ApiKind`].
    pub by_api: [u64; 64],
    /// Complete pairs of `realloc` and of `reallocarray`.
    pub(crate) pairs: [u64; 2],
    /// Where the numbers above are estimates: the sample behind them.
    pub sampled: Sampled,
}

impl Default for Totals {
    fn default() -> Self {
        Totals {
            events: 0,
            allocations: 0,
            frees: 0,
            reallocations: 0,
            failed_reallocations: 0,
            bytes_allocated: 0,
            bytes_freed: 0,
            temporary: 0,
            live_blocks: 0,
            live_bytes: 0,
            peak_bytes: 0,
            peak_blocks: 0,
            peak_ns: 0,
            peak_seqno: 0,
            peak_uncertainty: 0,
            foreign_frees: 0,
            double_free: 0,
            invalid_free: 0,
            mismatched: 0,
            order_repairs: 0,
            missing_frees: 0,
            dropped: 0,
            stalled_ns: 0,
            first_ns: 0,
            last_ns: 0,
            by_api: [0; 64],
            pairs: [0; 2],
            sampled: Sampled::default(),
        }
    }
}

impl Totals {
    /// Calls by entry point, most first. The two halves of a realloc are one
    /// call here.
    pub fn calls(&self) -> Vec<(&'static str, u64)> {
        let of = |kind: ApiKind| self.by_api[kind as usize & 63];
        let mut calls: Vec<(&'static str, u64)> = ApiKind::ALL
            .iter()
            .filter_map(|&kind| {
                let count = match kind {
                    // One call with two halves is one event in each place; a call
                    // with one half (of NULL, or to size 0) is in one of them.
                    ApiKind::Realloc => {
                        of(kind).wrapping_add(of(ApiKind::ReallocFree)).saturating_sub(self.pairs[0])
                    }
                    ApiKind::Reallocarray => {
                        of(kind).wrapping_add(of(ApiKind::ReallocarrayFree)).saturating_sub(self.pairs[1])
                    }
                    ApiKind::ReallocFree | ApiKind::ReallocarrayFree => 0,
                    _ => of(kind),
                };
                (count > 0).then_some((kind.name(), count))
            })
            .collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.1));
        calls
    }

    /// Notes that a realloc is complete: `api` is that of its second half, `blocks`
    /// what it stands for.
    pub fn note_pair(&mut self, api: ApiKind, blocks: u64) {
        self.reallocations += blocks;
        self.pairs[usize::from(api == ApiKind::Reallocarray)] += blocks;
    }

    /// Double, invalid and mismatched frees together.
    pub fn errors(&self) -> u64 {
        self.double_free + self.invalid_free + self.mismatched
    }
}

/// Totals of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTotals {
    /// Its number.
    pub thread: ThreadNo,
    /// Blocks that it made.
    pub allocations: u64,
    /// Blocks that it gave back, whoever made them.
    pub frees: u64,
    /// Requested bytes of the blocks that it made.
    pub bytes_allocated: u64,
    /// Requested bytes of the blocks that it gave back.
    pub bytes_freed: u64,
    /// Blocks that it made and freed with no other of its allocations between.
    pub temporary: u64,
    /// Blocks of its making that are alive.
    pub live_blocks: u64,
    /// Their requested bytes.
    pub live_bytes: u64,
    /// Greatest value that `live_bytes` had.
    pub peak_bytes: u64,
    /// The first instant at which it had it, ns.
    pub peak_ns: u64,
    /// Time of its first event, ns.
    pub first_ns: u64,
    /// Time of its last event, ns.
    pub last_ns: u64,
    /// Seqno of its latest allocation, `u64::MAX` for none.
    pub last_alloc: u64,
}

impl ThreadTotals {
    /// A thread that has done nothing, first seen at `ns`.
    pub fn new(thread: ThreadNo, ns: u64) -> ThreadTotals {
        ThreadTotals {
            thread,
            allocations: 0,
            frees: 0,
            bytes_allocated: 0,
            bytes_freed: 0,
            temporary: 0,
            live_blocks: 0,
            live_bytes: 0,
            peak_bytes: 0,
            peak_ns: 0,
            first_ns: ns,
            last_ns: ns,
            last_alloc: u64::MAX,
        }
    }
}

/// Totals of one site: all blocks that were made from one stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteTotals {
    /// The stack; 0 where none was taken.
    pub node: NodeId,
    /// Blocks made.
    pub allocations: u64,
    /// Their requested bytes.
    pub bytes: u64,
    /// Of them, given back.
    pub frees: u64,
    /// Of them, temporary (see [`Totals::temporary`]).
    pub temporary: u64,
    /// Blocks alive.
    pub live_blocks: u64,
    /// Their requested bytes.
    pub live_bytes: u64,
    /// Blocks that were alive at the global peak.
    pub peak_blocks: u64,
    /// Their requested bytes.
    pub peak_bytes: u64,
    /// Variance of `bytes`, of `live_bytes` and of `peak_bytes` where they are
    /// estimates from a sample; else 0. See [`crate::sampling`].
    pub variance: u64,
    /// See `variance`.
    pub live_variance: u64,
    /// See `variance`.
    pub peak_variance: u64,
    /// The global peak that `peak_*` belong to.
    pub(crate) epoch: u64,
}

impl SiteTotals {
    pub(crate) fn new(node: NodeId, epoch: u64) -> SiteTotals {
        SiteTotals {
            node,
            allocations: 0,
            bytes: 0,
            frees: 0,
            temporary: 0,
            live_blocks: 0,
            live_bytes: 0,
            peak_blocks: 0,
            peak_bytes: 0,
            variance: 0,
            live_variance: 0,
            peak_variance: 0,
            epoch,
        }
    }

    /// One that will not change any more.
    pub(crate) fn settled(self) -> SiteTotals {
        SiteTotals { epoch: 0, ..self }
    }

    /// Has nothing happened here, and does nothing live?
    pub(crate) fn is_nothing(&self) -> bool {
        self.allocations == 0 && self.frees == 0 && self.live_blocks == 0 && self.peak_blocks == 0
    }

    /// A block that stands for so much was made; `epoch` as for [`SiteTotals::settle`].
    #[inline(always)]
    pub(crate) fn made(&mut self, weight: &Weight, epoch: u64) {
        self.settle(epoch);
        self.allocations += weight.blocks;
        self.bytes = self.bytes.wrapping_add(weight.bytes);
        self.live_blocks = self.live_blocks.wrapping_add(weight.blocks);
        self.live_bytes = self.live_bytes.wrapping_add(weight.bytes);
        self.variance = self.variance.saturating_add(weight.variance);
        self.live_variance = self.live_variance.wrapping_add(weight.variance);
    }

    /// A block that stands for so much has ended.
    #[inline(always)]
    pub(crate) fn released(&mut self, weight: &Weight, temporary: bool, epoch: u64) {
        self.settle(epoch);
        self.frees = self.frees.wrapping_add(weight.blocks);
        self.temporary = self.temporary.wrapping_add(u64::from(temporary) * weight.blocks);
        self.live_blocks = self.live_blocks.wrapping_sub(weight.blocks);
        self.live_bytes = self.live_bytes.wrapping_sub(weight.bytes);
        self.live_variance = self.live_variance.wrapping_sub(weight.variance);
    }

    /// Brings `peak_*` up to the global peak number `epoch`; called before the
    /// site changes.
    ///
    /// If a peak was reached since the last change, the site has not changed
    /// since that peak: what lives now is what lived then. So a new peak costs
    /// nothing at the sites that had no part in it, and a change costs one
    /// comparison.
    #[inline]
    pub(crate) fn settle(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.peak_blocks = self.live_blocks;
            self.peak_bytes = self.live_bytes;
            self.peak_variance = self.live_variance;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_realloc_is_one_call() {
        let mut totals = Totals::default();
        // Three pairs, one realloc(NULL, n), one realloc(p, 0).
        totals.by_api[ApiKind::Realloc as usize] = 4;
        totals.by_api[ApiKind::ReallocFree as usize] = 4;
        totals.pairs[0] = 3;
        totals.by_api[ApiKind::Malloc as usize] = 9;
        assert_eq!(totals.calls(), [("malloc", 9), ("realloc", 5)]);
    }
}
