//! Taking in many events at once.

use highwater_trace::model::Step;
use highwater_trace::{Batch, Brief};

use super::{Replay, Until};
use crate::index::Key;
use crate::table::Table;
use crate::watch::{Nobody, Watch};

/// Events in a piece: between asking for memory and using it.
const AHEAD: usize = 16;
/// Pieces whose keys are kept.
const PIECES: usize = 4;

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
        let (mut seqno, mut events) = (seqno, events);
        while !events.is_empty() {
            let room = self.room_at(seqno);
            let (now, later) = events.split_at(room.min(events.len()));
            match self.totals.sampled.rate {
                0 => self.feed_pieces::<W, false>(seqno, now, watch),
                _ => self.feed_pieces::<W, true>(seqno, now, watch),
            }
            seqno += now.len() as u64;
            self.seqno = seqno - 1;
            events = later;
        }
    }

    /// The event `seqno` comes: begins the next epoch where this one is as long as it may
    /// become, and says how many events there is room for.
    #[inline(always)]
    fn room_at(&mut self, seqno: u64) -> usize {
        if self.log.room() == 0 {
            self.barrier();
        }
        if self.log.is_empty() {
            self.epoch_seqno = seqno;
        }
        self.log.room()
    }

    /// Takes in one event, which is a free or not whatever its entry point says.
    pub(super) fn take_in_one<W: Watch>(&mut self, seqno: u64, event: &Brief, is_free: bool, watch: &mut W) {
        self.room_at(seqno);
        let events = std::slice::from_ref(event);
        let keys = [self.table.key(event.addr)];
        let mut act = self.begin(event);
        let at = self.log.extend(events, act.thread, |_| is_free);
        self.goes_on::<W, true>(&mut act, (seqno, at), events, &keys, |_| is_free, watch);
        self.take_over(&act);
        self.seqno = seqno;
    }

    /// What the events stand for is asked for in turn: lines of the index two pieces
    /// ahead, blocks one piece ahead.
    fn feed_pieces<W: Watch, const SAMPLE: bool>(&mut self, seqno: u64, events: &[Brief], watch: &mut W) {
        let is_free = |event: &Brief| event.api.is_free();
        let Some(first) = events.first() else { return };
        let mut keys = [[Key::default(); AHEAD]; PIECES];
        let count = events.len().div_ceil(AHEAD);
        self.table.look_for(piece(events, 0), &mut keys[0]);
        self.table.look_for(piece(events, 1), &mut keys[1]);
        self.table.ask_for(piece(events, 0), &keys[0]);
        let (mut seqno, mut thread) = (seqno, first.thread);
        let mut act = self.begin(first);
        for number in 0..count {
            self.table.look_for(piece(events, number + 2), &mut keys[(number + 2) % PIECES]);
            self.table.ask_for(piece(events, number + 1), &keys[(number + 1) % PIECES]);
            let (mut events, mut keys) = (piece(events, number), &keys[number % PIECES][..]);
            while let Some(first) = events.first() {
                if first.thread != thread {
                    self.take_over(&act);
                    (act, thread) = (self.begin(first), first.thread);
                }
                let run = events.iter().take_while(|event| event.thread == thread).count();
                let (its, its_keys);
                (its, events) = events.split_at(run);
                (its_keys, keys) = keys.split_at(run.min(keys.len()));
                let at = self.log.extend(its, act.thread, is_free);
                self.goes_on::<W, SAMPLE>(&mut act, (seqno, at), its, its_keys, is_free, watch);
                seqno += run as u64;
            }
        }
        self.take_over(&act);
    }
}

/// A piece of some events, by its number; nothing behind the last.
#[inline(always)]
fn piece(events: &[Brief], number: usize) -> &[Brief] {
    let from = (number * AHEAD).min(events.len());
    &events[from..(from + AHEAD).min(events.len())]
}

impl Table {
    /// Finds the likely keys of some events' addresses, and asks for the memory of the index in
    /// which these stand.
    #[inline(always)]
    fn look_for(&self, events: &[Brief], keys: &mut [Key; AHEAD]) {
        for (event, key) in events.iter().zip(keys) {
            *key = self.likely_key(event.addr);
            if key.is_known() {
                self.prefetch_index(key);
            }
        }
    }

    /// Asks for the memory of the blocks that some events end.
    #[inline(always)]
    fn ask_for(&self, events: &[Brief], keys: &[Key; AHEAD]) {
        for (event, key) in events.iter().zip(keys) {
            if event.api.is_free() {
                self.prefetch_block(key);
            }
        }
    }
}
