//! The heap at an instant, what happened in a window, and in all.

use std::sync::Arc;

use highwater_replay::evidence::{self, Collector, Slicing};
use highwater_replay::outcome::SoFar;
use highwater_replay::watch::{Both, Nobody, Watch};
use highwater_replay::{Additions, Evidence, Feed, LiveBlock, Options, Outcome, Replay, Until, outcome};
use highwater_trace::model::{EndedHow, Step};
use highwater_trace::{Kept, Steps, Trace, TraceError};

use super::{QueryError, Session, Source, StepStream};

/// What is fed to a replay, from instant to instant.
enum Stream<'a> {
    Trace(Box<Feed<'a>>),
    Made { steps: std::slice::Iter<'a, Step>, given: u32, seqno: u64 },
}

impl Stream<'_> {
    /// Feeds `heap` up to an instant.
    fn go_on(&mut self, heap: &mut Replay, until: Until, left: u64) -> Result<(), TraceError> {
        self.go_on_watched(heap, until, left, &mut Nobody)
    }

    /// The same while somebody looks on.
    fn go_on_watched<W: Watch>(
        &mut self,
        heap: &mut Replay,
        until: Until,
        left: u64,
        watch: &mut W,
    ) -> Result<(), TraceError> {
        match self {
            Stream::Trace(feed) => feed.go_on_watched(heap, until, left, watch)?,
            Stream::Made { steps, given, seqno } => {
                while let Some(step) = steps.as_slice().first() {
                    if let Step::Event(event) = step {
                        if !until.includes(event.seqno, event.ns) {
                            break;
                        }
                        *seqno = event.seqno + 1;
                    }
                    *given = given.wrapping_add(1);
                    heap.feed_watched(*given, step, watch);
                    steps.next();
                }
            }
        }
        Ok(())
    }

    /// The epoch of what was not fed, as far as it is known: always after a call
    /// of [`Stream::go_on`]. `None` at the end.
    fn epoch(&self) -> Option<u32> {
        match self {
            Stream::Trace(feed) => feed.epoch(),
            Stream::Made { given, .. } => Some(given.wrapping_add(1)),
        }
    }

    /// The seqno of the first event that was not fed.
    fn seqno(&self) -> u64 {
        match self {
            Stream::Trace(feed) => feed.seqno(),
            Stream::Made { seqno, .. } => *seqno,
        }
    }
}

impl Source {
    /// A place at or before an instant from which the heap is known: the stream
    /// from there on, and the heap as it is there. The place is as near to the
    /// instant as the trace allows; without keyframes it is the start. Feed the
    /// heap with the stream ([`Replay::feed_in`]).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn enter(&self, until: Until, options: Options) -> Result<(StepStream<'_>, Replay), TraceError> {
        Ok(match self {
            Source::Trace(trace) => {
                let (steps, heap) = entry(trace, until, options)?;
                (StepStream::Trace(Box::new(steps)), heap)
            }
            Source::Made { .. } => (self.steps(), Replay::new(options)),
        })
    }

    /// A place at or before an instant from which all is known that was counted from the
    /// start.
    fn feed_counted(&self, until: Until, options: Options) -> Result<(Stream<'_>, Replay), TraceError> {
        if let Source::Trace(trace) = self
            && let Some((steps, heap)) = counted_entry(trace, until, &options)?
        {
            return Ok((Stream::Trace(Box::new(Feed::new(steps))), heap));
        }
        self.feed(Until::Start, options)
    }

    /// [`Source::enter`] with a stream of many events at a time.
    fn feed(&self, until: Until, options: Options) -> Result<(Stream<'_>, Replay), TraceError> {
        Ok(match self {
            Source::Trace(trace) => {
                let (steps, heap) = entry(trace, until, options)?;
                (Stream::Trace(Box::new(Feed::new(steps))), heap)
            }
            Source::Made { steps, .. } => {
                (Stream::Made { steps: steps.iter(), given: 0, seqno: 0 }, Replay::new(options))
            }
        })
    }
}

/// All events below this number belong to an instant.
fn below(trace: &Trace, until: Until) -> u64 {
    match until {
        Until::Start => 0,
        Until::End => u64::MAX,
        Until::Seqno(last) => last.saturating_add(1),
        Until::Ns(last) => trace.seqno_before_ns(last.saturating_add(1)),
    }
}

/// The last place before an instant from which the heap of a trace is known.
fn entry(trace: &Trace, until: Until, options: Options) -> Result<(Steps<'_>, Replay), TraceError> {
    let seqno = below(trace, until);
    if seqno > 0 {
        // A damaged keyframe is passed over for an earlier one.
        for entry in trace.entries_before(seqno) {
            if let Some(mut keyframe) = trace.enter(&entry)?
                && let Some(heap) = Replay::resume(options.clone(), &mut keyframe)?
            {
                return Ok((trace.steps_from(entry.seqno), heap));
            }
        }
    }
    Ok((trace.steps(), Replay::new(options)))
}

/// The same where what was counted up to there is known, too. (Who goes to the end reads
/// everything, and so sees what is damaged.)
fn counted_entry<'a>(
    trace: &'a Trace,
    until: Until,
    options: &Options,
) -> Result<Option<(Steps<'a>, Replay)>, TraceError> {
    let seqno = below(trace, until);
    if matches!(until, Until::Start | Until::End) {
        return Ok(None);
    }
    for entry in trace.entries_before(seqno) {
        if let Some(bytes) = trace.totals_at(&entry, outcome::RULES)?
            && let Some(so_far) = SoFar::decode(&bytes, options)
            && let Some(mut keyframe) = trace.enter(&entry)?
            && let Some(heap) = Replay::resume_counted(options.clone(), &mut keyframe, so_far)?
        {
            return Ok(Some((trace.steps_from(entry.seqno), heap)));
        }
    }
    Ok(None)
}

/// What an earlier replay of the whole trace found, if the trace has it.
fn stored(trace: &Trace, options: &Options) -> Result<Option<Outcome>, TraceError> {
    let bytes = trace.kept(Kept::Outcome, outcome::RULES)?;
    Ok(bytes.and_then(|bytes| Outcome::decode(&bytes, options)))
}

/// The evidence that it collected, if the trace has it; `found` is its outcome.
fn stored_evidence(
    trace: &Trace,
    found: &Outcome,
    options: &Options,
) -> Result<Option<Evidence>, TraceError> {
    let bytes = trace.kept(Kept::Evidence, evidence::RULES)?;
    Ok(bytes.and_then(|bytes| Evidence::decode(&bytes, options, found.sites().len())))
}

impl Session {
    /// What the whole trace says of everything but single blocks. It is found once:
    /// by a [replay](Session::replay), now or in an earlier session, which has left it
    /// in the trace. Then no event is read, and damage to events is not seen.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn outcome(&mut self) -> Result<Arc<Outcome>, QueryError> {
        if let Some(found) = &self.outcome {
            return Ok(Arc::clone(found));
        }
        let stored = match &*self.source {
            Source::Trace(trace) => stored(trace, &self.replay)?,
            Source::Made { .. } => None,
        };
        match stored {
            Some(found) => {
                let found = Arc::new(found);
                self.outcome = Some(Arc::clone(&found));
                Ok(found)
            }
            None => {
                self.replay_whole(None)?;
                self.outcome()
            }
        }
    }

    /// What the whole trace tells that leaks are ranked by, besides its
    /// [outcome](Session::outcome), and found as that is.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn evidence(&mut self) -> Result<Arc<Evidence>, QueryError> {
        if self.evidence.is_none() {
            let source = self.source();
            if let Source::Trace(trace) = &*source {
                if self.outcome.is_none() {
                    self.outcome = stored(trace, &self.replay)?.map(Arc::new);
                }
                if let Some(found) = &self.outcome {
                    self.evidence = stored_evidence(trace, found, &self.replay)?.map(Arc::new);
                }
            }
        }
        match &self.evidence {
            Some(evidence) => Ok(Arc::clone(evidence)),
            None => Ok(self.evidence_by(Slicing::Events)?.1),
        }
    }

    /// The same by slices of whatever kind, from the events; and the heap at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn evidence_by(&mut self, slicing: Slicing) -> Result<(Replay, Arc<Evidence>), QueryError> {
        let (heap, evidence) = self.replay_whole(Some(slicing))?;
        // Who asks for evidence gets some: the collector does not give up then.
        let evidence = Arc::new(evidence.unwrap_or_default());
        if slicing == Slicing::Events {
            self.evidence = Some(Arc::clone(&evidence));
        }
        Ok((heap, evidence))
    }

    /// Replays the whole trace. What was wrong with its parts is in
    /// [`Facts::warnings`](super::Facts::warnings) afterwards. A large trace that
    /// is finished gets what it has not of keyframes, of the [outcome](Session::outcome)
    /// and of the [evidence](Session::evidence), if it can be written: from then on instants
    /// and windows are answered without reading the rest, and what is of the whole without
    /// reading any event.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn replay(&mut self) -> Result<Replay, QueryError> {
        Ok(self.replay_whole(None)?.0)
    }

    /// The same with the evidence that was collected on the way: by `slicing` where
    /// somebody asks for it.
    fn replay_whole(&mut self, asked: Option<Slicing>) -> Result<(Replay, Option<Evidence>), QueryError> {
        let source = self.source();
        let additions = match &*source {
            Source::Trace(trace) if !self.leave_alone => Additions::new(trace, &self.replay),
            _ => None,
        };
        let in_passing = additions.as_ref().is_some_and(Additions::wants_evidence);
        let collector = match asked {
            Some(slicing) => Some(Collector::new(slicing)),
            None => in_passing.then(Collector::in_passing),
        };
        let (mut stream, mut heap) = source.feed(Until::Start, self.replay.clone())?;
        let mut watches = (additions, collector);
        let events = self.facts.events;
        match &mut watches {
            (Some(a), Some(b)) => stream.go_on_watched(&mut heap, Until::End, events, &mut Both(a, b))?,
            (Some(additions), None) => stream.go_on_watched(&mut heap, Until::End, events, additions)?,
            (None, Some(collector)) => stream.go_on_watched(&mut heap, Until::End, events, collector)?,
            (None, None) => stream.go_on(&mut heap, Until::End, events)?,
        }
        heap.finish();
        self.learn_from(&stream);
        let exits = self.facts.end.as_ref().is_some_and(|end| end.how == EndedHow::Exit);
        let mut evidence = watches.1.and_then(|collector| collector.finish(&heap, exits));
        if asked.is_some()
            && let Some(evidence) = &mut evidence
            && let Some(seqno) = evidence.needs()
        {
            evidence.hold(&self.replay_until(Until::Seqno(seqno))?);
        }
        if let Source::Trace(trace) = &*source {
            heap.add_left_out(trace.left_out());
        }
        let found = Arc::new(heap.outcome());
        if let (Some(additions), Stream::Trace(feed), Source::Trace(trace)) = (watches.0, &stream, &*source)
            && feed.steps().warnings().is_empty()
        {
            let by_events = matches!(asked, None | Some(Slicing::Events));
            let evidence = evidence.as_ref().filter(|_| by_events);
            additions.append(trace, &heap, &found, evidence);
        }
        self.outcome = Some(found);
        Ok((heap, evidence))
    }

    /// Replays the trace up to an instant. The result is not
    /// [finished](Replay::finish).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn replay_until(&mut self, until: Until) -> Result<Replay, QueryError> {
        self.knows(until)?;
        let source = self.source();
        let (mut stream, mut heap) = source.feed_counted(until, self.replay.clone())?;
        stream.go_on(&mut heap, until, self.facts.events)?;
        self.learn_from(&stream);
        Ok(heap)
    }

    /// The blocks that are alive at an instant, by seqno. What different threads
    /// did to one address up to the instant is in the order in which it can have
    /// happened.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn live_at(&mut self, until: Until) -> Result<Vec<LiveBlock>, QueryError> {
        Ok(self.heap_at(until)?.live_set())
    }

    /// The same in no order, for who puts them in one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn alive_at(&mut self, until: Until) -> Result<Vec<LiveBlock>, QueryError> {
        let heap = self.heap_at(until)?;
        let mut blocks = Vec::with_capacity(heap.live_count());
        blocks.extend(heap.live());
        Ok(blocks)
    }

    fn heap_at(&mut self, until: Until) -> Result<Replay, QueryError> {
        self.knows(until)?;
        let source = self.source();
        let (mut stream, mut heap) = source.feed(until, self.replay.clone())?;
        stream.go_on(&mut heap, until, self.facts.events)?;
        self.learn_from(&stream);
        heap.finish();
        Ok(heap)
    }

    /// What happened after `from` and up to `to`: a finished replay whose
    /// totals, sites, threads, errors and histograms count these events alone.
    /// Its `live_*` and its live set are the heap's at `to`, whenever the blocks
    /// were made; its peak is the greatest live size in the window, that at
    /// `from` included (see [`Replay::begin_window`]). With [`Until::Start`]
    /// and [`Until::End`] it is the whole trace's replay.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn window(&mut self, from: Until, to: Until) -> Result<Replay, QueryError> {
        let source = self.source();
        let (mut stream, mut heap) = match from {
            Until::Start => source.feed_counted(to, self.replay.clone())?,
            from => source.feed(from, self.replay.clone())?,
        };
        if from != Until::Start {
            stream.go_on(&mut heap, from, self.facts.events)?;
            // An epoch that ended before the window is decided before it, too.
            heap.ends_before(stream.epoch());
            heap.begin_window(stream.seqno());
        }
        stream.go_on(&mut heap, to, self.facts.events)?;
        self.learn_from(&stream);
        heap.finish();
        Ok(heap)
    }

    /// Keeps what a stream found wrong with the file.
    pub fn learn(&mut self, steps: &StepStream<'_>) {
        self.keep(steps.lost_events(), steps.warnings());
    }

    fn learn_from(&mut self, stream: &Stream<'_>) {
        if let Stream::Trace(feed) = stream {
            let warnings = feed.steps().warnings().iter().map(ToString::to_string);
            self.keep(feed.steps().lost_events(), warnings.collect());
        }
    }

    fn keep(&mut self, lost: u64, warnings: Vec<String>) {
        self.facts.lost_events = self.facts.lost_events.max(lost);
        for warning in warnings {
            if !self.facts.warnings.contains(&warning) {
                self.facts.warnings.push(warning);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    fn made() -> Made {
        Made::default()
            .node(1, 0, "main", "a.c", 1)
            .node(2, 0, "other", "a.c", 2)
            .alloc(0, 64, 100, 1)
            .alloc(0, 128, 50, 2)
            .free(0, 64)
            .alloc(0, 64, 10, 1)
            .free(0, 128)
    }

    #[test]
    fn blocks_live_at_an_instant() {
        let mut session = made().session();
        let mut live = |until| {
            let set = session.live_at(until).unwrap();
            set.iter().map(|block| (block.seqno, block.size)).collect::<Vec<_>>()
        };
        assert_eq!(live(Until::Start), []);
        assert_eq!(live(Until::Seqno(1)), [(0, 100), (1, 50)]);
        assert_eq!(live(Until::Ns(30_000_000)), [(1, 50)]);
        assert_eq!(live(Until::End), [(3, 10)]);
    }

    #[test]
    fn a_window_counts_its_events_and_keeps_the_heap() {
        let mut session = made().session();
        let heap = session.window(Until::Seqno(1), Until::Seqno(3)).unwrap();
        let totals = heap.totals();
        assert_eq!((totals.allocations, totals.frees, totals.events), (1, 1, 2));
        assert_eq!((totals.bytes_allocated, totals.bytes_freed), (10, 100));
        assert_eq!((totals.live_blocks, totals.live_bytes), (2, 60));
        assert_eq!((totals.peak_bytes, totals.peak_seqno), (150, 1));
        assert_eq!((totals.first_ns, totals.last_ns), (30_000_000, 40_000_000));
        assert_eq!(
            heap.sites().map(|site| (site.node, site.allocations)).collect::<Vec<_>>(),
            [(1, 1), (2, 0)]
        );
        // Nothing of site 2 is alive or happens behind event 4.
        let rest = session.window(Until::Seqno(4), Until::End).unwrap();
        assert_eq!(rest.sites().map(|site| site.node).collect::<Vec<_>>(), [1]);
        assert_eq!((rest.totals().events, rest.totals().live_bytes), (0, 10));
        let whole = session.window(Until::Start, Until::End).unwrap();
        assert_eq!(whole.totals(), session.replay().unwrap().totals());
    }
}
