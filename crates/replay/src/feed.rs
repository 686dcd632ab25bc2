//! A trace's events into a replay, many at a time.

use highwater_trace::model::Step;
use highwater_trace::{Batch, Steps, TraceError};

use crate::ahead::{has_processor, read_ahead};
use crate::replay::{Replay, Until};
use crate::watch::{Nobody, Watch};

/// Events read at a time.
const BATCH: usize = 2048;
/// Batches that may wait between the two threads.
const WAITING: usize = 8;
/// Events from which on a second thread pays.
const MANY: u64 = 200_000;

/// A stream of a trace that is fed to replays, from instant to instant.
pub struct Feed<'a> {
    steps: Steps<'a>,
    read: Pending,
}

/// What was read and not fed, or not all of it.
#[derive(Default)]
struct Pending {
    batch: Batch,
    /// Events of the batch that were fed.
    fed: usize,
    /// Is there anything left in the batch?
    open: bool,
}

impl Pending {
    /// Begins with a batch.
    fn begin<W: Watch>(&mut self, replay: &mut Replay, watch: &mut W) {
        (self.fed, self.open) = (0, true);
        watch.batch(replay, &self.batch);
    }

    /// Feeds what the batch has up to an instant; `false` where some of it lies behind.
    fn feed<W: Watch>(&mut self, replay: &mut Replay, until: Until, watch: &mut W) -> bool {
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
            return false;
        }
        self.open = false;
        true
    }
}

impl<'a> Feed<'a> {
    /// Feeds what `steps` gives.
    pub fn new(steps: Steps<'a>) -> Feed<'a> {
        Feed { steps, read: Pending::default() }
    }

    /// The stream, for what it found wrong with the file.
    pub fn steps(&self) -> &Steps<'a> {
        &self.steps
    }

    /// The seqno of the first event that was not fed.
    pub fn seqno(&self) -> u64 {
        let Pending { batch, fed, open, .. } = &self.read;
        match &batch.last {
            _ if !open => self.steps.seqno(),
            Some(Step::Event(event)) if *fed >= batch.events.len() => event.seqno,
            _ => batch.seqno + *fed as u64,
        }
    }

    /// The epoch of the first event that was not fed; `None` at the end and before
    /// the first call of [`Feed::go_on`].
    pub fn epoch(&self) -> Option<u32> {
        self.read.open.then_some(self.read.batch.epoch)
    }

    /// Goes on up to an instant: the same as [`Replay::go_on`], but the next call
    /// goes on with the event behind it. At most `left` events remain; where many lie
    /// before the instant, reading and replaying share the work between two threads.
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
        let share = self.distance(until).min(left) >= MANY && has_processor();
        loop {
            let Feed { steps, read } = self;
            if !read.open {
                if share {
                    return self.shared(replay, until, watch);
                }
                if !steps.next_batch(&mut read.batch, BATCH)? {
                    return Ok(());
                }
                read.begin(replay, watch);
            }
            if !read.feed(replay, until, watch) {
                return Ok(());
            }
        }
    }

    /// About how many events lie before an instant.
    fn distance(&self, until: Until) -> u64 {
        let seqno = match until {
            Until::Start => 0,
            Until::End => u64::MAX,
            Until::Seqno(last) => last,
            Until::Ns(last) => self.steps.trace().seqno_before_ns(last),
        };
        seqno.saturating_sub(self.seqno())
    }

    /// Goes on while a thread of its own reads ahead: no farther than it is read without
    /// one, so that the same is seen of a damaged file.
    fn shared<W: Watch>(
        &mut self,
        replay: &mut Replay,
        until: Until,
        watch: &mut W,
    ) -> Result<(), TraceError> {
        let Feed { steps, read } = self;
        let mut there = false;
        let next = |batch: &mut Batch| {
            let any = !there && steps.next_batch(batch, BATCH)?;
            there = any && !lies_before(batch, until);
            Ok(any)
        };
        read_ahead(WAITING, next, |batch| {
            let used = std::mem::replace(&mut read.batch, batch);
            read.begin(replay, watch);
            read.feed(replay, until, watch);
            used
        })
    }
}

/// Has all of a batch happened up to an instant?
fn lies_before(batch: &Batch, until: Until) -> bool {
    // Inside an epoch times do not fall.
    let last = batch.events.last();
    last.is_none_or(|last| until.includes(batch.seqno + batch.events.len() as u64 - 1, last.ns))
        && match &batch.last {
            Some(Step::Event(event)) => until.includes(event.seqno, event.ns),
            _ => true,
        }
}

#[cfg(test)]
mod tests {
    use highwater_event::api::ApiKind;
    use highwater_event::codec::{Encoder, MAX_RECORD, Record};
    use highwater_trace::Trace;
    use highwater_trace::model::{EventBlock, Meta};
    use highwater_trace::{Writer, WriterOptions};

    use super::*;
    use crate::Options;

    /// A thread that makes and frees, in epochs of some thousand events.
    fn write(path: &std::path::Path, events: u64) {
        let mut writer = Writer::create(path, &Meta::default(), WriterOptions::default()).unwrap();
        let mut encoder = Encoder::default();
        for epoch in 0..events / 4_000 {
            let (start, mut payload) = (encoder.state, Vec::new());
            for at in 0..4_000 {
                let stamp = epoch * 4_000 + at;
                let ptr = 0x1000 + (stamp / 2 * 7 + stamp % 2 * 3) % 5_000 * 16;
                let record = match stamp % 3 {
                    0 | 1 => Record::Alloc {
                        stamp,
                        ptr,
                        size: at,
                        usable: None,
                        node: 1,
                        api: ApiKind::Malloc,
                        pair: false,
                    },
                    _ => Record::Free { stamp, ptr, node: 0, api: ApiKind::Free },
                };
                payload.extend_from_slice(encoder.record(&record, &mut [0; MAX_RECORD]));
            }
            writer.events(&EventBlock { thread: 0, events: 4_000, start, payload: &payload }).unwrap();
            writer.end_epoch().unwrap();
        }
        writer.finish(&Default::default()).unwrap();
    }

    #[test]
    fn two_threads_stop_where_one_does_and_go_on_from_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.hwt");
        let events = 4 * MANY;
        write(&path, events);
        let trace = Trace::open(&path).unwrap();
        let (mut one, mut two) = (Replay::new(Options::default()), Replay::new(Options::default()));
        let (mut alone, mut shared) = (Feed::new(trace.steps()), Feed::new(trace.steps()));
        let stops = [Until::Seqno(MANY + 77), Until::Seqno(MANY + 78), Until::Ns(3 * MANY + 99), Until::End];
        for until in stops {
            assert!(until == stops[1] || shared.distance(until) >= MANY, "{until:?} is too near to share");
            // With so few left the work is not shared.
            alone.go_on(&mut one, until, 0).unwrap();
            shared.go_on(&mut two, until, events).unwrap();
            assert_eq!((alone.seqno(), alone.epoch()), (shared.seqno(), shared.epoch()), "{until:?}");
            assert_eq!(one.outcome(), two.outcome(), "{until:?}");
            assert_eq!(one.live_set(), two.live_set(), "{until:?}");
            // Nor is more read, and so seen of what is damaged behind.
            assert_eq!(alone.steps().seqno(), shared.steps().seqno(), "{until:?}");
        }
        assert_eq!(shared.seqno(), events);
    }
}
