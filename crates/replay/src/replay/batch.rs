//! Taking in many events at once.

use highwater_trace::model::Step;
use highwater_trace::{Batch, Brief};

use super::{Replay, Until};
use crate::index::Key;
use crate::table::Table;
use crate::watch::{Nobody, Watch};

/// Events in a piece: between asking for memory and using it.
const AHEAD: usize = 16;

impl Replay {
    /// Takes in a batch: the same as [`Replay::feed_in`] with each of its steps.
    pub fn feed_batch(&mut self, batch: &Batch) {
        self.feed_events(batch.epoch, batch.seqno, &batch.events, &mut Nobody);
        self.feed_last(batch, Until::End, &mut Nobody);
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
    pub(crate) fn feed_last<W: Watch>(&mut self, batch: &Batch, until: Until, watch: &mut W) -> bool {
        match &batch.last {
            Some(Step::Event(event)) if !until.includes(event.seqno, event.ns) => return false,
            Some(step) => self.feed_watched(batch.epoch, step, watch),
            None => {}
        }
        true
    }

    /// Takes in consecutive events of one epoch, the first of them with this seqno.
    pub(crate) fn feed_events<W: Watch>(&mut self, epoch: u32, seqno: u64, events: &[Brief], watch: &mut W) {
        if !events.is_empty() && epoch != self.epoch {
            self.epoch = epoch;
            self.barrier();
        }
        // What the events before stand for was asked for in turn: lines of the index
        // two pieces ahead, blocks one piece ahead.
        let mut pieces = events.chunks(AHEAD);
        let mut behind = Piece::default();
        behind.look(&self.table, pieces.next());
        let mut ahead = Piece::default();
        ahead.look(&self.table, pieces.next());
        behind.prefetch_blocks(&self.table);
        let mut seqno = seqno;
        while !behind.events.is_empty() {
            let mut next = Piece::default();
            next.look(&self.table, pieces.next());
            ahead.prefetch_blocks(&self.table);
            for (event, key) in behind.events.iter().zip(&behind.keys) {
                self.brief(event, key, seqno, event.api.is_free(), watch);
                seqno += 1;
            }
            behind = std::mem::replace(&mut ahead, next);
        }
    }
}

/// Some events and the keys of their addresses.
#[derive(Default)]
struct Piece<'a> {
    events: &'a [Brief],
    keys: [Key; AHEAD],
}

impl<'a> Piece<'a> {
    /// Takes events, and asks for the memory of the index in which their addresses stand.
    #[inline(always)]
    fn look(&mut self, table: &Table, events: Option<&'a [Brief]>) {
        self.events = events.unwrap_or_default();
        for (event, key) in self.events.iter().zip(&mut self.keys) {
            *key = table.key(event.addr);
            table.prefetch_index(key);
        }
    }

    /// Asks for the memory of the blocks.
    #[inline(always)]
    fn prefetch_blocks(&self, table: &Table) {
        for (event, key) in self.events.iter().zip(&self.keys) {
            if event.api.is_free() {
                table.prefetch_block(event.addr, key);
            }
        }
    }
}
