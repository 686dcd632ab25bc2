//! Going on from a keyframe, and what a keyframe has to hold for that.

use highwater_trace::model::LiveBlock as Stored;
use highwater_trace::{Keyframe, ThreadState};

use super::{Options, Replay, SEARCH_BUDGET};
use crate::block::{Fields, MAX_NS, MAX_SEQNO, MAX_SIZE};

/// Notes of [`Doubts`] that are kept; with more no keyframe is sound.
const MOST: usize = 4096;

/// Where a replay needed what no keyframe holds: the memory of freed blocks, or
/// a realloc that had begun. Going on from a keyframe in between would not give
/// the same result.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// A keyframe behind the first of these events and not behind the second is
    /// not sound.
    between: Vec<(u64, u64)>,
    many: bool,
}

impl Doubts {
    #[cold]
    pub(super) fn add(&mut self, earlier: u64, later: u64) {
        match self.between.len() {
            MOST => self.many = true,
            _ => self.between.push((earlier, later)),
        }
    }
}

impl Replay {
    /// The heap as a keyframe has it, to go on with [`Replay::feed_in`] from the
    /// event with the keyframe's seqno. Nothing is counted yet but what lives:
    /// begin a [window](Replay::begin_window) where counts matter. `None` for a
    /// keyframe that does not say enough of the threads.
    pub fn resume(options: Options, keyframe: &Keyframe) -> Option<Replay> {
        let threads = keyframe.threads.as_ref()?;
        let mut replay = Replay::new(options);
        replay.now = keyframe.ns;
        replay.seqno = keyframe.seqno.saturating_sub(1);
        for state in threads {
            let index = replay.thread(state.thread);
            let totals = replay.threads.get_mut(index as usize)?;
            totals.last_alloc = state.last_alloc.unwrap_or(u64::MAX);
            (totals.first_ns, totals.last_ns) = (state.first_ns, state.last_ns);
        }
        for block in &keyframe.blocks {
            replay.restore(block);
        }
        replay.peak.restart(keyframe.ns, replay.seqno);
        Some(replay)
    }

    /// A block that lived at the keyframe.
    fn restore(&mut self, block: &Stored) {
        let thread = self.thread(block.thread);
        let site = self.site_at(block.node);
        let fields = Fields {
            addr: block.addr,
            size: block.size.min(MAX_SIZE),
            ns: block.ns.min(MAX_NS),
            seqno: block.seqno.min(MAX_SEQNO),
            thread,
            api: block.api as u8,
            site,
        };
        if self.table.put(&fields).is_some() {
            // Two blocks at one address: no heap of ours. The later one counts.
            return;
        }
        if let Some(usable) = block.usable {
            self.usable.insert(fields.seqno, usable);
        }
        let weight = self.weight(fields.size, fields.seqno);
        self.peak.live_bytes = self.peak.live_bytes.wrapping_add(weight.bytes);
        self.peak.live_blocks = self.peak.live_blocks.wrapping_add(weight.blocks);
        if self.totals.sampled.rate != 0 {
            self.totals.sampled.came(&weight);
        }
        if let Some(totals) = self.threads.get_mut(thread as usize) {
            totals.live_blocks = totals.live_blocks.wrapping_add(weight.blocks);
            totals.live_bytes = totals.live_bytes.wrapping_add(weight.bytes);
            totals.peak_bytes = totals.live_bytes;
        }
        if let Some(totals) = self.sites.get_mut(site as usize) {
            totals.live_blocks = totals.live_blocks.wrapping_add(weight.blocks);
            totals.live_bytes = totals.live_bytes.wrapping_add(weight.bytes);
            totals.live_variance = totals.live_variance.wrapping_add(weight.variance);
        }
    }

    /// What a keyframe here has to say of the threads.
    pub fn thread_states(&self) -> Vec<ThreadState> {
        let states = self.threads.iter().map(|totals| ThreadState {
            thread: totals.thread,
            last_alloc: (totals.last_alloc != u64::MAX).then_some(totals.last_alloc),
            first_ns: totals.first_ns,
            last_ns: totals.last_ns,
        });
        states.collect()
    }

    /// How many blocks are alive.
    pub fn live_count(&self) -> usize {
        self.table.count()
    }

    /// The live blocks as a keyframe holds them, by address.
    pub fn stored_blocks(&self) -> impl Iterator<Item = Stored> + '_ {
        self.table.live_by_addr().map(|block| self.live_block(block)).map(|block| Stored {
            addr: block.addr,
            size: block.size,
            usable: block.usable,
            node: block.node,
            thread: block.thread,
            api: block.api,
            seqno: block.seqno,
            ns: block.ns,
        })
    }

    /// Would a replay from a keyframe at `seqno` have come to the same as this
    /// one has?
    pub fn is_sound_from(&self, seqno: u64) -> bool {
        let Doubts { between, many } = &self.doubts;
        // A search that was given up may succeed with a fresh budget.
        !many
            && self.search_budget > SEARCH_BUDGET / 2
            && self.order_states < super::settle::FIRST_ORDER_STATES / 2
            && between.iter().all(|&(earlier, later)| seqno <= earlier || later < seqno)
    }
}
