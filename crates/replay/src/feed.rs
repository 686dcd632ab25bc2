//! A trace's events into a replay, many at a time; and the keyframes that are
//! made on the way.

use std::sync::mpsc;

use highwater_trace::model::Step;
use highwater_trace::{Batch, GroupStart, KeyframePacker, PackedKeyframe, Steps, Trace, TraceError};

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

/// Keyframes that are made while a whole trace is replayed.
pub struct Keyframes {
    starts: std::iter::Peekable<std::vec::IntoIter<GroupStart>>,
    packer: KeyframePacker,
    packed: Vec<PackedKeyframe>,
    /// Bytes that they may have together, at most.
    room: u64,
    apart: u64,
    /// From this seqno on the next one may be made.
    next: u64,
}

impl Watch for Keyframes {
    const EVENTS: bool = false;

    fn batch(&mut self, replay: &mut Replay, batch: &Batch) {
        self.before(replay, batch);
    }
}

/// Events between two keyframes, at least: fewer are replayed as fast as a
/// keyframe is read.
const APART: u64 = 500_000;

impl Keyframes {
    /// For a trace; `None` if it has no room or no need for any.
    pub fn new(trace: &Trace) -> Option<Keyframes> {
        Self::at_least_apart(trace, APART)
    }

    /// The same with another number of events between two of them, at least.
    pub fn at_least_apart(trace: &Trace, apart: u64) -> Option<Keyframes> {
        if trace.event_count() < 2 * apart || !trace.wants_keyframes() {
            return None;
        }
        let starts = trace.group_starts().into_iter().peekable();
        let room = trace.file_size() / 3;
        Some(Keyframes {
            starts,
            packer: KeyframePacker::new()?,
            packed: Vec::new(),
            room,
            apart,
            next: apart,
        })
    }

    fn before(&mut self, replay: &mut Replay, batch: &Batch) {
        if batch.events.is_empty() || batch.seqno < self.next {
            return;
        }
        while self.starts.next_if(|start| start.seqno < batch.seqno).is_some() {}
        let Some(start) = self.starts.next_if(|start| start.seqno == batch.seqno) else { return };
        // A special record of the group may have come before its first event.
        if replay.epoch() == batch.epoch {
            return;
        }
        replay.ends_before(Some(batch.epoch));
        let count = replay.live_count();
        // Packing one takes a small part of the time of what lies between.
        self.next = batch.seqno + self.apart.max(if self.apart < APART { 0 } else { 8 * count as u64 });
        let (threads, blocks) = (replay.thread_states(), replay.stored_blocks());
        if let Some(frame) = self.packer.pack(start, &threads, count, blocks, self.room) {
            self.room = self.room.saturating_sub(frame.bytes());
            self.packed.push(frame);
        }
    }

    /// Appends them to the trace if they are sound and it can be written; says how
    /// many were. `replay` is finished.
    pub fn append(mut self, trace: &Trace, replay: &Replay) -> usize {
        self.packed.retain(|frame| replay.is_sound_from(frame.seqno()));
        trace.append_keyframes(&self.packed)
    }
}
