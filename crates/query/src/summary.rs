//! The facts of a recording and its totals in one value.

use highwater_event::node::{NodeId, Truncation};
use highwater_replay::{Outcome, Totals, Until};
use highwater_trace::model::EndedHow;

use crate::modes::Modes;
use crate::session::{Session, Truncations};

/// What `stats` shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// The totals.
    pub totals: Totals,
    /// From start to end, ns; without an end, to the last event.
    pub duration_ns: u64,
    /// Nanoseconds that threads waited for the recorder.
    pub stalled_ns: u64,
    /// Threads that acted.
    pub threads: u64,
    /// Allocations with a complete stack.
    pub stacks_complete: u64,
    /// Allocations with a truncated stack or none.
    pub stacks_truncated: u64,
    /// Why stacks are truncated, most first.
    pub truncations: Vec<(Truncation, u64)>,
    /// Events that are missing: dropped, or in damaged parts of the file.
    pub dropped: u64,
    /// How the target ended.
    pub ended: EndedHow,
    /// Exit status or signal number.
    pub code: i32,
    /// What was left out on purpose.
    pub modes: Modes,
    /// Are these the numbers of a part of the recording: a window, or what passes
    /// a filter?
    pub part: bool,
    /// Is the recording whole?
    pub complete: bool,
    /// Why it is not, one sentence each.
    pub incomplete: Vec<String>,
}

/// Why there may be no event at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// The file is damaged or cut.
    Damaged,
    /// Events happened and were all dropped.
    AllDropped,
    /// The process became another image at once; that has a trace of its own.
    BecameAnother,
    /// The agent was there, and nobody called it: the program used no heap, or
    /// only one of its own.
    NoHeapUse,
    /// There are events, but none in the part that is looked at.
    NotHere,
}

impl Nothing {
    /// The sentence for the user.
    pub const fn sentence(self) -> &'static str {
        match self {
            Nothing::Damaged => "nothing was recorded, or all of it lies in the damaged part of the trace",
            Nothing::AllDropped => "all events were dropped; record again with --on-full wait",
            Nothing::BecameAnother => {
                "nothing was recorded before the program became another one (exec); that one has its own trace"
            }
            Nothing::NoHeapUse => {
                "nothing was recorded: the program made no heap operation that passes the C library"
            }
            Nothing::NotHere => "no event is in this range and fits these conditions",
        }
    }
}

impl Stats {
    /// Puts together what a replay of the whole trace has found and the trace says.
    pub fn collect(session: &Session, found: &Outcome) -> Stats {
        let sites = found.sites().iter().map(|site| (site.node, site.allocations));
        let mut stats = Stats::describe(session, found.totals().clone(), found.threads().len(), sites);
        if let Some(counted) = stats.modes.counted.filter(|_| stats.modes.sample > 0) {
            // Better than an estimate: the target's threads have counted them.
            stats.totals.allocations = counted.allocations - counted.small.min(counted.allocations);
            stats.totals.bytes_allocated = counted.bytes - counted.small_bytes.min(counted.bytes);
            if stats.modes.min_size == 0 {
                stats.totals.frees = counted.frees;
            }
        }
        stats
    }

    /// The same for a part of a trace: what happened between two instants, or
    /// passes a filter.
    pub fn of_part(
        session: &Session,
        totals: Totals,
        threads: usize,
        sites: impl Iterator<Item = (NodeId, u64)>,
        (from, to): (Until, Until),
    ) -> Stats {
        let mut stats = Stats::describe(session, totals, threads, sites);
        let ns = |until: Until, last: u64| match until {
            Until::Start => 0,
            Until::End => stats.duration_ns,
            Until::Ns(ns) => ns.min(stats.duration_ns),
            Until::Seqno(_) => last,
        };
        let totals = &stats.totals;
        stats.duration_ns = ns(to, totals.last_ns).saturating_sub(ns(from, totals.first_ns));
        stats.part = true;
        stats
    }

    fn describe(
        session: &Session,
        totals: Totals,
        threads: usize,
        sites: impl Iterator<Item = (NodeId, u64)>,
    ) -> Stats {
        let facts = session.facts();
        let mut stats = Stats {
            duration_ns: totals.last_ns,
            stalled_ns: totals.stalled_ns,
            threads: threads as u64,
            // What is lost in a damaged block stands in the stream as dropped there:
            // the two count the same events.
            dropped: totals.dropped.max(facts.lost_events),
            totals,
            modes: session.modes(),
            ..Stats::default()
        };
        let mut known = Truncations::new(session);
        for (node, allocations) in sites.filter(|(_, allocations)| *allocations > 0) {
            match known.of(node) {
                None => stats.stacks_complete += allocations,
                Some(reason) => {
                    stats.stacks_truncated += allocations;
                    match stats.truncations.iter_mut().find(|(known, _)| *known == reason) {
                        Some((_, count)) => *count += allocations,
                        None => stats.truncations.push((reason, allocations)),
                    }
                }
            }
        }
        stats.truncations.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        stats.incomplete.extend(facts.warnings.iter().cloned());
        if let Some(end) = &facts.end {
            stats.duration_ns = end.duration_ns.max(stats.totals.last_ns);
            stats.stalled_ns = stats.stalled_ns.max(end.stalled_ns);
            // The end counts what never came into the stream.
            stats.dropped = stats.dropped.saturating_add(end.dropped);
            stats.ended = end.how;
            stats.code = end.code;
            if let Some(cut) = &end.cut {
                stats.incomplete.push(format!("the recording stopped before the program did: {cut}"));
            }
        }
        if facts.being_written {
            stats.ended = EndedHow::Running;
        }
        match stats.ended {
            EndedHow::Lost => {
                stats.incomplete.push("the trace has no end: the recorder was interrupted".to_string())
            }
            EndedHow::Running => stats.incomplete.push("the program still runs".to_string()),
            EndedHow::Exit | EndedHow::Signal | EndedHow::Exec | EndedHow::Detached => {}
        }
        if stats.dropped > 0 {
            stats.incomplete.push(format!("{} events are missing, so totals are too low", stats.dropped));
        }
        stats.complete = stats.incomplete.is_empty();
        stats
    }

    /// If nothing was recorded: why that may be. No report is to be shown then.
    pub fn nothing(&self, session: &Session) -> Option<Nothing> {
        if self.totals.events > 0 || self.totals.failed_reallocations > 0 {
            return None;
        }
        let facts = session.facts();
        if self.part && facts.events > 0 {
            // What was made before may be alive.
            return (self.totals.peak_blocks == 0).then_some(Nothing::NotHere);
        }
        Some(if self.dropped > 0 {
            Nothing::AllDropped
        } else if !facts.warnings.is_empty() {
            Nothing::Damaged
        } else if self.ended == EndedHow::Exec {
            Nothing::BecameAnother
        } else {
            Nothing::NoHeapUse
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;
    use highwater_trace::model::{End, Special};

    fn collect(made: Made) -> (Stats, Option<Nothing>) {
        let mut session = made.session();
        let found = session.outcome().unwrap();
        let stats = Stats::collect(&session, &found);
        let nothing = stats.nothing(&session);
        (stats, nothing)
    }

    #[test]
    fn stacks_are_counted_by_completeness() {
        let made = Made::default()
            .node(1, 0, "main", "a.c", 1)
            .truncated(2, Truncation::TooDeep)
            .node(3, 2, "deep", "a.c", 2)
            .alloc(0, 64, 1, 1)
            .alloc(0, 128, 1, 3)
            .alloc(0, 256, 1, 3)
            .alloc(0, 512, 1, 0);
        let (stats, nothing) = collect(made);
        assert_eq!((stats.stacks_complete, stats.stacks_truncated), (1, 3));
        assert_eq!(stats.truncations, [(Truncation::TooDeep, 2), (Truncation::NotTaken, 1)]);
        assert_eq!(nothing, None);
        // No end record: not complete.
        assert!(!stats.complete);
    }

    #[test]
    fn nothing_has_a_reason() {
        let mut made = Made::default();
        made.facts.end = Some(End { how: EndedHow::Exit, ..End::default() });
        let (stats, nothing) = collect(made);
        assert!(stats.complete);
        assert_eq!(nothing, Some(Nothing::NoHeapUse));
        let (_, nothing) = collect(Made::default().special(0, Special::Dropped { count: 5 }));
        assert_eq!(nothing, Some(Nothing::AllDropped));
    }
}
