//! What a replay of a whole trace adds to it: keyframes, which are made on the way,
//! its outcome, and the evidence that leaks are ranked by.

use highwater_trace::{Appended, Batch, GroupStart, Kept, KeyframePacker, PackedKeyframe, Trace};

use crate::evidence::{self, Evidence};
use crate::outcome::{self, Outcome};
use crate::replay::{Options, Replay};
use crate::watch::Watch;

/// What is added to a trace while all of it is replayed.
pub struct Additions {
    starts: std::iter::Peekable<std::vec::IntoIter<GroupStart>>,
    packer: KeyframePacker,
    packed: Vec<PackedKeyframe>,
    /// Bytes that the keyframes may have together, at most.
    room: u64,
    apart: u64,
    /// From this seqno on the next one may be made.
    next: u64,
    /// Is an outcome wanted?
    outcome: bool,
    /// And evidence?
    evidence: bool,
}

impl Watch for Additions {
    const EVENTS: bool = false;

    fn batch(&mut self, replay: &mut Replay, batch: &Batch) {
        self.before(replay, batch);
    }
}

/// Events between two keyframes, at least: fewer are replayed as fast as a
/// keyframe is read.
const APART: u64 = 500_000;

impl Additions {
    /// For a trace; `None` if it has no room or no need for any.
    pub fn new(trace: &Trace) -> Option<Additions> {
        Self::at_least_apart(trace, APART)
    }

    /// The same with another number of events between two keyframes, at least.
    pub fn at_least_apart(trace: &Trace, apart: u64) -> Option<Additions> {
        if trace.event_count() < 2 * apart {
            return None;
        }
        let keyframes = trace.wants_keyframes();
        let outcome = trace.wants(Kept::Outcome, outcome::RULES);
        let evidence = trace.wants(Kept::Evidence, evidence::RULES);
        if !keyframes && !outcome && !evidence {
            return None;
        }
        let starts = if keyframes { trace.group_starts() } else { Vec::new() };
        Some(Additions {
            starts: starts.into_iter().peekable(),
            packer: KeyframePacker::new()?,
            packed: Vec::new(),
            room: trace.file_size() / 3,
            apart,
            next: apart,
            outcome,
            evidence,
        })
    }

    /// Has the trace no evidence by these rules?
    pub fn wants_evidence(&self) -> bool {
        self.evidence
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

    /// Appends what is sound to the trace, if it can be written. `replay` is the whole
    /// trace's, finished, with [what was left out](Replay::add_left_out), and was done
    /// with these options; `found` is its outcome, and `evidence` what was collected on
    /// the way by numbers of events, if it was.
    pub fn append(
        mut self,
        trace: &Trace,
        replay: &Replay,
        found: &Outcome,
        evidence: Option<&Evidence>,
        options: &Options,
    ) -> Appended {
        self.packed.retain(|frame| replay.is_sound_from(frame.seqno()));
        let outcome = self.outcome.then(|| found.clone().encode(options));
        let evidence = evidence.filter(|_| self.evidence).and_then(|evidence| evidence.encode(options));
        let pack = |what, rules, bytes: Option<Vec<u8>>| trace.pack(what, rules, &bytes?);
        let kept =
            [pack(Kept::Outcome, outcome::RULES, outcome), pack(Kept::Evidence, evidence::RULES, evidence)];
        let kept: Vec<_> = kept.into_iter().flatten().collect();
        trace.append(&self.packed, &kept)
    }
}
