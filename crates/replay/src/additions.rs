//! What a replay of a whole trace adds to it: keyframes, which are made on the way,
//! its outcome, and the evidence that leaks are ranked by.

use highwater_trace::{Appended, Batch, Difference, GroupStart, Kept, KeyframePacker, PackedKeyframe, Trace};

use crate::evidence::{self, Evidence};
use crate::outcome::{self, Outcome};
use crate::replay::{Options, Replay};
use crate::table::Roll;
use crate::watch::Watch;

/// What is added to a trace while all of it is replayed.
pub struct Additions {
    starts: std::iter::Peekable<std::vec::IntoIter<GroupStart>>,
    packer: KeyframePacker,
    packed: Vec<PackedKeyframe>,
    /// Bytes that the keyframes may have together, at most, and what is left of them.
    all: u64,
    room: u64,
    /// Events in the trace.
    events: u64,
    apart: u64,
    /// From this seqno on the next one may be made.
    next: u64,
    /// The latest whole one.
    base: Option<Base>,
    /// From this one on totals may be kept beside one.
    next_totals: u64,
    options: Options,
    /// Is an outcome wanted?
    outcome: bool,
    /// And evidence?
    evidence: bool,
}

/// A whole keyframe to which those behind it are differences.
struct Base {
    seqno: u64,
    /// Its blocks.
    count: u64,
    roll: Roll,
    /// Differences to it so far.
    differences: u32,
    /// So much has changed since that a difference was not worth it.
    outlived: bool,
}

impl Watch for Additions {
    const EVENTS: bool = false;

    fn batch(&mut self, replay: &mut Replay, batch: &Batch) {
        self.before(replay, batch);
    }
}

/// Events between two keyframes, at least: fewer are replayed as fast as a
/// keyframe is read. In a heap of many blocks there are more events than blocks between
/// two, by a quarter: to find a difference takes a look at all of them.
const APART: u64 = 500_000;
/// Events between two whole keyframes for each block of the first, at least: to pack one
/// takes a small part of the time of what lies between.
const WHOLE_APART: u64 = 12;
/// The same where too much has changed for a difference, of which the new blocks are
/// at most this part of all.
const OUTLIVED: u64 = 8;
const NEW: usize = 4;
/// Events between two totals for each site, thread and bad free of the first, at least: to
/// write one down takes as long as a good event.
const TOTALS_APART: u64 = 40;

impl Additions {
    /// For a trace that is replayed with these options; `None` if it has no room or no need for any.
    pub fn new(trace: &Trace, options: &Options) -> Option<Additions> {
        Self::at_least_apart(trace, options, APART)
    }

    /// The same with another number of events between two keyframes, at least.
    pub fn at_least_apart(trace: &Trace, options: &Options, apart: u64) -> Option<Additions> {
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
            all: trace.file_size() / 3,
            room: trace.file_size() / 3,
            events: trace.event_count(),
            apart,
            next: apart,
            base: None,
            next_totals: 0,
            options: options.clone(),
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
        // Those at every possible place are made for tests alone.
        let sparse = self.apart >= APART;
        self.next = batch.seqno + self.apart.max(if sparse { (count + count / 4) as u64 } else { 0 });
        let whole = self.base.as_ref().is_none_or(|base| {
            let blocks = if base.outlived { OUTLIVED } else { WHOLE_APART };
            let due = batch.seqno - base.seqno >= blocks * base.count;
            if sparse { due } else { base.differences >= 3 }
        });
        if whole {
            self.whole(replay, start, count);
        } else {
            let most = if sparse { count / NEW } else { usize::MAX };
            self.difference(replay, start, most);
        }
    }

    fn whole(&mut self, replay: &Replay, start: GroupStart, count: usize) {
        let mut roll = Roll::default();
        let (threads, blocks) = (replay.thread_states(), replay.stored_blocks(&mut roll));
        let frame = self.packer.pack(start, &threads, count, blocks, self.room);
        // Where there is no room for it the next attempt is as far away.
        let (seqno, count, outlived) = (start.seqno, count as u64, frame.is_none());
        self.base = Some(Base { seqno, count, roll, differences: 0, outlived });
        self.take(replay, frame);
    }

    fn difference(&mut self, replay: &Replay, start: GroupStart, most: usize) {
        let Some(base) = self.base.as_mut().filter(|base| !base.outlived) else { return };
        // Of a long trace the last part is to have some, too. (Tests have room for all.)
        let used = u128::from(self.all - self.room) * u128::from(self.events);
        if self.apart >= APART && used > u128::from(self.all) * u128::from(start.seqno) {
            return;
        }
        let Some(since) = replay.since(&base.roll, most) else {
            base.outlived = true;
            return;
        };
        base.differences += 1;
        let (threads, blocks) = (replay.thread_states(), replay.stored_since(&since));
        let difference = Difference { base: base.seqno, gone: &since.gone };
        let count = since.new_count();
        let frame = self.packer.pack_difference(start, &threads, &difference, count, blocks, self.room);
        self.take(replay, frame);
    }

    fn take(&mut self, replay: &Replay, frame: Option<PackedKeyframe>) {
        let Some(mut frame) = frame else { return };
        self.room = self.room.saturating_sub(frame.bytes());
        let seqno = frame.seqno();
        if seqno >= self.next_totals {
            let numbers = if self.apart < APART { 0 } else { replay.size_of_so_far() as u64 };
            self.next_totals = seqno.saturating_add(TOTALS_APART.saturating_mul(numbers));
            let bytes = replay.so_far().encode(&self.options);
            // There is room for keyframes, too, behind these.
            let room = self.room / 2;
            let taken = self.packer.pack_totals(&mut frame, outcome::RULES, &bytes, room);
            self.room = self.room.saturating_sub(taken);
        }
        self.packed.push(frame);
    }

    /// Appends what is sound to the trace, if it can be written. `replay` is the whole
    /// trace's, finished, with [what was left out](Replay::add_left_out); `found` is its
    /// outcome, and `evidence` what was collected on the way by numbers of events, if it
    /// was.
    pub fn append(
        mut self,
        trace: &Trace,
        replay: &Replay,
        found: &Outcome,
        evidence: Option<&Evidence>,
    ) -> Appended {
        let options = &self.options;
        // What a replay cannot go on from may still be what others differ from.
        let sound = |frame: &PackedKeyframe| replay.is_sound_from(frame.seqno());
        let bases: Vec<u64> =
            self.packed.iter().filter(|frame| sound(frame)).filter_map(PackedKeyframe::base).collect();
        for frame in self.packed.iter_mut().filter(|frame| !sound(frame)) {
            frame.only_as_base();
        }
        self.packed.retain(|frame| sound(frame) || bases.contains(&frame.seqno()));
        let outcome = self.outcome.then(|| found.clone().encode(options));
        let evidence = evidence.filter(|_| self.evidence).and_then(|evidence| evidence.encode(options));
        let pack = |what, rules, bytes: Option<Vec<u8>>| trace.pack(what, rules, &bytes?);
        let kept =
            [pack(Kept::Outcome, outcome::RULES, outcome), pack(Kept::Evidence, evidence::RULES, evidence)];
        let kept: Vec<_> = kept.into_iter().flatten().collect();
        trace.append(&self.packed, &kept)
    }
}
