//! Between the rings and the trace: recordings that keep fewer events than
//! there were (`--cull`, `--live-only`).
//!
//! The records of an epoch are brought into the one order that a reader of the
//! trace would give them (effective stamp, thread, the thread's own order), and
//! are looked at one by one. What is kept is written with its effective stamps
//! in the same epochs, so a reader sees the same order again.

mod cull;
mod latest;
mod live;
mod table;
mod tally;

#[cfg(test)]
mod properties;

use highwater_event::codec::{Encoder, MAX_RECORD, Record, SpecialKind, State};
use highwater_event::columns::{Stop, Taken};
use highwater_event::ring::Decoder;
use highwater_trace::model::{EventBlock, ThreadNo};
use highwater_trace::{TraceError, Writer};

use cull::Cull;
use live::LiveOnly;

/// A record in the merged order.
#[derive(Clone, Copy, Debug)]
struct Merged {
    /// Effective stamp.
    stamp: u64,
    thread: ThreadNo,
    record: Record,
}

/// How stamps run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// A stamp, and its time since the start of the recording, ns.
    pub stamp: u64,
    /// See `stamp`.
    pub ns: u64,
    /// Nanoseconds a stamp.
    pub rate: f64,
}

impl Pace {
    /// Time between two stamps, ns.
    fn ns(&self, from: u64, to: u64) -> u64 {
        (to.saturating_sub(from) as f64 * self.rate) as u64
    }

    /// Time of a stamp since the start of the recording, ns.
    fn at(&self, stamp: u64) -> u64 {
        if stamp >= self.stamp {
            self.ns.saturating_add(self.ns(self.stamp, stamp))
        } else {
            self.ns.saturating_sub(self.ns(stamp, self.stamp))
        }
    }

    /// The stamp at a time since the start of the recording.
    fn stamp_at(&self, ns: u64) -> u64 {
        let stamps = |ns: u64| if self.rate > 0.0 { (ns as f64 / self.rate) as u64 } else { ns };
        if ns >= self.ns {
            self.stamp.saturating_add(stamps(ns - self.ns))
        } else {
            self.stamp.saturating_sub(stamps(self.ns - ns))
        }
    }
}

enum Kind {
    Cull(Box<Cull>),
    LiveOnly(Box<LiveOnly>),
}

/// Thins a recording out.
pub struct Thin {
    kind: Kind,
    fresh: Vec<Merged>,
    out: Out,
}

impl Thin {
    /// Leaves out blocks that are freed before they are `age` ns old.
    pub fn cull(age: u64) -> Thin {
        Thin { kind: Kind::Cull(Box::new(Cull::new(age))), fresh: Vec::new(), out: Out::default() }
    }

    /// Leaves out every block that is freed.
    pub fn live_only() -> Thin {
        Thin { kind: Kind::LiveOnly(Box::default()), fresh: Vec::new(), out: Out::default() }
    }

    /// Takes what a thread's ring holds; as [`Writer::ring`].
    pub fn ring(&mut self, thread: ThreadNo, state: State, words: &[u64], bound: u64) -> (Taken, Stop) {
        let mut taken = Taken { state, ..Taken::default() };
        let mut decoder = Decoder::new(words, state.stamp);
        // The thread's records of an epoch come one behind the other.
        let mut floor = self.fresh.last().filter(|last| last.thread == thread).map_or(0, |last| last.stamp);
        loop {
            match decoder.next() {
                Ok(None) => return (taken, Stop::End),
                Ok(Some(Record::Special { kind: SpecialKind::Pad, .. })) => return (taken, Stop::Pad),
                Ok(Some(record)) if record.stamp() > bound => return (taken, Stop::Bound),
                Ok(Some(record)) => {
                    floor = floor.max(record.stamp());
                    let resync = matches!(record, Record::Special { kind: SpecialKind::Resync, .. });
                    if !resync {
                        self.fresh.push(Merged { stamp: floor, thread, record });
                    }
                    taken.events += u32::from(record.is_event());
                    taken.records += 1;
                    (taken.bytes, taken.state.stamp) = (8 * decoder.offset(), decoder.stamp);
                }
                Err(error) => return (taken, Stop::Damage(error)),
            }
        }
    }

    /// The epoch is over: everything that it holds was taken.
    ///
    /// # Errors
    /// As the writer.
    pub fn end_epoch(&mut self, writer: &mut Writer, pace: &Pace, now: u64) -> Result<(), TraceError> {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_by_key(|merged| (merged.stamp, merged.thread));
        let result = match &mut self.kind {
            Kind::Cull(cull) => {
                cull.take(&fresh, pace);
                cull.release(writer, &mut self.out, pace, Some(now))
            }
            Kind::LiveOnly(live) => {
                live.take(&fresh, pace);
                Ok(())
            }
        };
        fresh.clear();
        self.fresh = fresh;
        result
    }

    /// Writes the totals of what was left out since the last call.
    ///
    /// # Errors
    /// As the writer.
    pub fn flush(&mut self, writer: &mut Writer) -> Result<(), TraceError> {
        match &mut self.kind {
            Kind::Cull(cull) => cull.tally.write(writer),
            Kind::LiveOnly(_) => Ok(()),
        }
    }

    /// Writes what is held back.
    ///
    /// # Errors
    /// As the writer.
    pub fn finish(&mut self, writer: &mut Writer, pace: &Pace) -> Result<(), TraceError> {
        match &mut self.kind {
            Kind::Cull(cull) => {
                cull.release(writer, &mut self.out, pace, None)?;
                cull.tally.write(writer)
            }
            Kind::LiveOnly(live) => live.finish(writer, &mut self.out, pace),
        }
    }

    /// Bytes that this takes, for the counters.
    pub fn memory(&self) -> u64 {
        match &self.kind {
            Kind::Cull(cull) => cull.memory(),
            Kind::LiveOnly(live) => live.memory(),
        }
    }
}

/// Records on their way into the writer, encoded again: those of one epoch.
#[derive(Default)]
struct Out {
    threads: Vec<Stream>,
    places: rustc_hash::FxHashMap<ThreadNo, usize>,
}

struct Stream {
    thread: ThreadNo,
    start: State,
    encoder: Encoder,
    bytes: Vec<u8>,
    events: u32,
}

impl Out {
    fn push(&mut self, merged: &Merged) {
        let place = *self.places.entry(merged.thread).or_insert_with(|| {
            let state = State::default();
            self.threads.push(Stream {
                thread: merged.thread,
                start: state,
                encoder: Encoder { state },
                bytes: Vec::new(),
                events: 0,
            });
            self.threads.len() - 1
        });
        let Some(stream) = self.threads.get_mut(place) else { return };
        if stream.bytes.is_empty() {
            // A state of its own for each epoch: stamps may lie before those of
            // the epoch before.
            stream.start = State { stamp: merged.stamp, ..stream.encoder.state };
            stream.encoder.state = stream.start;
        }
        stream.events += u32::from(merged.record.is_event());
        let record = merged.record.at(merged.stamp);
        stream.bytes.extend_from_slice(stream.encoder.record(&record, &mut [0; MAX_RECORD]));
    }

    /// Hands the epoch over.
    fn end_epoch(&mut self, writer: &mut Writer) -> Result<(), TraceError> {
        let mut any = false;
        for stream in &mut self.threads {
            if stream.bytes.is_empty() {
                continue;
            }
            any = true;
            let (thread, events, start) = (stream.thread, stream.events, stream.start);
            let result = writer.events(&EventBlock { thread, events, start, payload: &stream.bytes });
            stream.bytes.clear();
            stream.events = 0;
            result?;
        }
        if any { writer.end_epoch() } else { Ok(()) }
    }
}
