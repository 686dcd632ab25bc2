//! A trace's events into a replay, many at a time.

use std::sync::mpsc;

use highwater_trace::model::Step;
use highwater_trace::{Batch, Steps, TraceError};

use crate::replay::{Replay, Until};
use crate::watch::{Nobody, Watch};

/// Events read at a time.
const BATCH: usize = 2048;
/// Batches that may wait between the two threads.
const WAITING: usize = 8;
/// Events from which on a second thread pays.
const MANY: u64 = 2_000_000;

/// A stream of a trace that is fed to replays, from instant to instant.
pub struct Feed<'a> {
    steps: Steps<'a>,
    batch: Batch,
    /// Events of the batch that were fed.
    fed: usize,
    /// Is there anything left in the batch?
    open: bool,
}

impl<'a> Feed<'a> {
    /// Feeds what `steps` gives.
    pub fn new(steps: Steps<'a>) -> Feed<'a> {
        Feed { steps, batch: Batch::default(), fed: 0, open: false }
    }

    /// The stream, for what it found wrong with the file.
    pub fn steps(&self) -> &Steps<'a> {
        &self.steps
    }

    /// The seqno of the first event that was not fed.
    pub fn seqno(&self) -> u64 {
        match &self.batch.last {
            _ if !self.open => self.steps.seqno(),
            Some(Step::Event(event)) if self.fed >= self.batch.events.len() => event.seqno,
            _ => self.batch.seqno + self.fed as u64,
        }
    }

    /// The epoch of the first event that was not fed; `None` at the end and before
    /// the first call of [`Feed::go_on`].
    pub fn epoch(&self) -> Option<u32> {
        self.open.then_some(self.batch.epoch)
    }

    /// Goes on up to an instant: the same as [`Replay::go_on`], but the next call
    /// goes on with the event behind it. At most `left` events remain; where these
    /// are many, reading and replaying share the work between two threads.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn go_on(&mut self, replay: &mut Replay, until: Until, left: u64) -> Result<(), TraceError> {
        self.go_on_watched(replay, until, left, &mut Nobody)
    }

    /// The same while somebody looks on.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn go_on_watched<W: Watch>(
        &mut self,
        replay: &mut Replay,
        until: Until,
        left: u64,
        watch: &mut W,
    ) -> Result<(), TraceError> {
        let share = until == Until::End
            && left >= MANY
            && std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        loop {
            if !self.open {
                self.fed = 0;
                if share {
                    return self.shared(replay, watch);
                }
                if !self.steps.next_batch(&mut self.batch, BATCH)? {
                    return Ok(());
                }
                self.open = true;
                watch.batch(replay, &self.batch);
            }
            let rest = self.batch.events.get(self.fed..).unwrap_or_default();
            let seqno = self.batch.seqno + self.fed as u64;
            // Inside an epoch times do not fall.
            let all = rest.last().is_none_or(|last| until.includes(seqno + rest.len() as u64 - 1, last.ns));
            let count = match all {
                true => rest.len(),
                false => (seqno..).zip(rest).take_while(|(at, event)| until.includes(*at, event.ns)).count(),
            };
            replay.feed_events(self.batch.epoch, seqno, rest.get(..count).unwrap_or_default(), watch);
            self.fed += count;
            if !all || !replay.feed_last(&self.batch, until, watch) {
                return Ok(());
            }
            self.open = false;
        }
    }

    /// The rest, read by a thread of its own.
    fn shared<W: Watch>(&mut self, replay: &mut Replay, watch: &mut W) -> Result<(), TraceError> {
        let steps = &mut self.steps;
        std::thread::scope(|scope| {
            let (full, filled) = mpsc::sync_channel::<Batch>(WAITING);
            let (back, empty) = mpsc::channel::<Batch>();
            let reader = scope.spawn(move || {
                loop {
                    let mut batch = empty.try_recv().unwrap_or_default();
                    // Nobody waits for more where the other side has gone.
                    if !steps.next_batch(&mut batch, BATCH)? || full.send(batch).is_err() {
                        return Ok(());
                    }
                }
            });
            for batch in filled {
                watch.batch(replay, &batch);
                replay.feed_events(batch.epoch, batch.seqno, &batch.events, watch);
                replay.feed_last(&batch, Until::End, watch);
                let _ = back.send(batch);
            }
            match reader.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}
