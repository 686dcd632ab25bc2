//! Runs of plain events, for readers of many.

use highwater_event::api::ApiKind;
use highwater_event::columns::Plain;

use super::{Head, Latest, Steps, record};
use crate::error::TraceError;
use crate::model::{Event, NodeId, Op, Step, ThreadNo};

/// An alloc or free without a usable size, in 48 bytes. Its seqno follows from
/// its place in the [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// Nanoseconds since the start.
    pub ns: u64,
    /// The raw stamp.
    pub stamp: u64,
    /// The block.
    pub addr: u64,
    /// Requested bytes; 0 of a free.
    pub size: u64,
    /// From where; 0 where no stack was taken.
    pub node: NodeId,
    /// Who.
    pub thread: ThreadNo,
    /// Through which entry point; says whether it is a free.
    pub api: ApiKind,
    /// An alloc that is the second half of a realloc.
    pub paired: bool,
}

/// Consecutive steps of one epoch: events, and one step of another kind at most.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Their epoch (see [`crate::Steps::epoch`]).
    pub epoch: u32,
    /// Seqno of the first event; the others' follow without a gap.
    pub seqno: u64,
    /// The events.
    pub events: Vec<Brief>,
    /// The step behind the events, of the same epoch: a special record or an
    /// event with a usable size.
    pub last: Option<Step>,
}

impl Batch {
    /// Takes an event in if it may stand here.
    fn take(&mut self, epoch: u32, event: &Event) -> bool {
        let (size, usable) = match event.op {
            Op::Alloc { size, usable } => (size, usable),
            Op::Free => (0, None),
        };
        if self.events.is_empty() {
            (self.epoch, self.seqno) = (epoch, event.seqno);
        }
        let follows = self.epoch == epoch && self.seqno + self.events.len() as u64 == event.seqno;
        // Which kind it is follows from the entry point, if the file is sound.
        if usable.is_some() || !follows || event.api.is_free() != (event.op == Op::Free) {
            return false;
        }
        let Event { ns, stamp, addr, node, thread, api, .. } = *event;
        let paired = event.op != Op::Free && event.pair.is_some();
        self.events.push(Brief { ns, stamp, addr, size, node, thread, api, paired });
        true
    }
}

impl Steps<'_> {
    /// The next steps, at most `most` events of them; `false` at the end. Gives
    /// the same as [`Steps::next`], faster; the two may take turns.
    ///
    /// # Errors
    /// As [`Steps::next`].
    pub fn next_batch(&mut self, batch: &mut Batch, most: usize) -> Result<bool, TraceError> {
        batch.events.clear();
        batch.last = None;
        let mut next = self.held.take();
        loop {
            let (epoch, step) = match next.take() {
                Some(held) => held,
                None => {
                    self.run(batch, most);
                    if batch.events.len() >= most {
                        return Ok(true);
                    }
                    let Some(step) = self.next_any()? else { return Ok(!batch.events.is_empty()) };
                    (self.epoch, step)
                }
            };
            match &step {
                Step::Event(event) if batch.take(epoch, event) => continue,
                _ if batch.events.is_empty() => batch.epoch = epoch,
                _ if batch.epoch != epoch => {
                    self.held = Some((epoch, step));
                    return Ok(true);
                }
                _ => {}
            }
            batch.last = Some(step);
            return Ok(true);
        }
    }

    /// Plain records of the current part, below what the other threads have.
    #[inline(always)]
    fn run(&mut self, batch: &mut Batch, most: usize) {
        let Some(cursor) = self.current.and_then(|at| self.cursors.get_mut(at)) else { return };
        if !matches!(cursor.head, Head::Unread) {
            return;
        }
        if batch.events.is_empty() {
            (batch.epoch, batch.seqno) = (self.epoch, self.seqno);
        }
        let before = batch.events.len();
        let (thread, bound) = (cursor.thread, self.bound);
        let count = most.saturating_sub(before).min(cursor.left as usize);
        let mut half = None;
        let (mut reader, mut floor) = (cursor.reader, cursor.floor);
        let mut behind = None;
        for _ in 0..count {
            let Some(plain) = reader.plain(&cursor.raw) else { break };
            floor = floor.max(plain.stamp);
            if Some(floor) > bound {
                behind = Some(plain);
                break;
            }
            let Plain { stamp, ptr: addr, size, node, api } = plain;
            if api.is_free() && api.is_realloc() {
                half = Some(batch.seqno + batch.events.len() as u64);
            }
            let ns = self.clock.ns_of(floor);
            batch.events.push(Brief { ns, stamp, addr, size, node, thread, api, paired: false });
        }
        let taken = batch.events.len() - before;
        (cursor.reader, cursor.floor) = (reader, floor);
        cursor.left -= taken as u32;
        self.seqno += taken as u64;
        if let Some(plain) = behind {
            cursor.left -= 1;
            cursor.head = Head::Record(record(plain));
            self.key = cursor.key();
        }
        if let Some(seqno) = half {
            self.latest.insert(thread, Latest::Known(seqno));
        }
    }
}
