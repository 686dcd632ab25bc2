//! Taking in many events at once.

use highwater_trace::model::Step;
use highwater_trace::{Batch, Brief};

use super::{Replay, Until};

/// Events between asking for memory and using it.
const AHEAD: usize = 16;

impl Replay {
    /// Takes in a batch: the same as [`Replay::feed_in`] with each of its steps.
    pub fn feed_batch(&mut self, batch: &Batch) {
        self.feed_events(batch.epoch, batch.seqno, &batch.events);
        self.feed_last(batch, Until::End);
    }

    /// The epoch of what was fed last.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What comes next is of this epoch (`None`: nothing comes): where that is
    /// another than the present one, the present one is over.
    pub fn ends_before(&mut self, epoch: Option<u32>) {
        if epoch != Some(self.epoch) {
            self.barrier();
        }
    }

    /// Takes in what stands behind a batch's events, if it happened up to `until`;
    /// says whether it did.
    pub(crate) fn feed_last(&mut self, batch: &Batch, until: Until) -> bool {
        match &batch.last {
            Some(Step::Event(event)) if !until.includes(event.seqno, event.ns) => return false,
            Some(step) => self.feed_in(batch.epoch, step),
            None => {}
        }
        true
    }

    /// Takes in consecutive events of one epoch, the first of them with this seqno.
    pub(crate) fn feed_events(&mut self, epoch: u32, seqno: u64, events: &[Brief]) {
        if !events.is_empty() && epoch != self.epoch {
            self.epoch = epoch;
            self.barrier();
        }
        for brief in events.iter().take(2 * AHEAD) {
            self.table.prefetch_index(brief.addr);
        }
        for brief in events.iter().take(AHEAD) {
            self.table.prefetch_block(brief.addr);
        }
        for (at, brief) in events.iter().enumerate() {
            if let Some(later) = events.get(at + 2 * AHEAD) {
                self.table.prefetch_index(later.addr);
            }
            if let Some(later) = events.get(at + AHEAD) {
                self.table.prefetch_block(later.addr);
            }
            self.brief(brief, seqno + at as u64, brief.api.is_free());
        }
    }
}
