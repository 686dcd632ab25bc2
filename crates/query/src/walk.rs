//! Events one after the other, with the blocks that they make and end.

use highwater_replay::{LiveBlock, Options, Replay, Until};
use highwater_trace::model::{Event, Op, Special, Step};

use crate::held::Held;
use crate::session::{QueryError, Session, Source, StepStream};

/// An event that happened, and what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The event.
    pub event: Event,
    /// The block that it made.
    pub made: Option<LiveBlock>,
    /// The block that it gave back; of an allocation, the one at that address
    /// whose free was not seen.
    pub ended: Option<LiveBlock>,
}

impl Seen {
    /// The block that the event is about: made by an alloc, ended by a free.
    pub fn block(&self) -> Option<&LiveBlock> {
        match self.event.op {
            Op::Alloc { .. } => self.made.as_ref(),
            Op::Free => self.ended.as_ref(),
        }
    }
}

/// What a [`Walk`] meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// An event.
    Event(Seen),
    /// A block that is alive again: the free half of its realloc lies before the
    /// window, and the realloc failed within it.
    Revived(LiveBlock),
}

/// The events of a window, in their order. The halves of reallocs that failed
/// are left out. The heap is replayed on the way, because a free does not say
/// what it frees.
pub struct Walk<'s> {
    steps: StepStream<'s>,
    heap: Replay,
    held: Held,
    /// Read, not fed.
    pending: Option<(u32, Step)>,
    to: Until,
    /// Behind the window only what is still undecided matters.
    over: bool,
    ended: bool,
    first: u64,
}

impl<'s> Walk<'s> {
    /// Goes to the instant `from`. What happened up to it is not shown; the
    /// window ends with `to`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new(source: &'s Source, options: Options, from: Until, to: Until) -> Result<Walk<'s>, QueryError> {
        let (steps, heap) = source.enter(from, options)?;
        let mut walk = Walk {
            steps,
            heap,
            held: Held::default(),
            pending: None,
            to,
            over: false,
            ended: false,
            first: 0,
        };
        let mut fed = None;
        while let Some((epoch, step)) = walk.steps.next_in_epoch()? {
            if let Step::Event(event) = &step
                && !from.includes(event.seqno, event.ns)
            {
                walk.pending = Some((epoch, step));
                break;
            }
            if let Step::Event(event) = &step {
                walk.first = event.seqno.saturating_add(1);
            }
            walk.heap.feed_in(epoch, &step);
            fed = Some(epoch);
        }
        if let Some((_, Step::Event(event))) = &walk.pending {
            walk.first = event.seqno;
        }
        if from != Until::Start {
            if fed != walk.pending.as_ref().map(|pending| pending.0) {
                // An epoch that ended before the window is decided before it, too.
                walk.heap.barrier();
            }
            walk.heap.begin_window(walk.first);
        }
        Ok(walk)
    }

    /// Seqno of the first event of the window, or where it would be.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The heap at the end of the window, finished; it has counted what happened
    /// in the window.
    pub fn finish(mut self) -> Replay {
        self.heap.finish();
        self.heap
    }

    /// The heap as far as events were read. Before the first [`Walk::advance`] that
    /// is the heap at the beginning of the window.
    pub fn heap(&self) -> &Replay {
        &self.heap
    }

    /// The steps that are read, for what they tell about damage.
    pub fn steps(&self) -> &StepStream<'s> {
        &self.steps
    }

    /// What comes next; `None` at the end of the window.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn advance(&mut self) -> Result<Option<Met>, QueryError> {
        loop {
            if let Some(met) = self.held.next() {
                return Ok(Some(met));
            }
            if self.ended || self.over && self.held.is_empty() {
                return Ok(None);
            }
            let step = match self.pending.take() {
                Some(step) => Some(step),
                None => self.steps.next_in_epoch()?,
            };
            match step {
                Some((epoch, step)) => self.take(epoch, &step),
                None => {
                    self.ended = true;
                    self.held.decide_all();
                }
            }
        }
    }

    fn take(&mut self, epoch: u32, step: &Step) {
        if let Step::Event(event) = step {
            self.over |= !self.to.includes(event.seqno, event.ns);
        }
        let known = self.held.decide(step);
        if self.over {
            return;
        }
        let before = match step {
            Step::Event(event) => self.heap.block_at(event.addr),
            Step::Special { what: Special::ReallocUndo { addr, .. }, .. } => self.heap.block_at(*addr),
            Step::Special { .. } => None,
        };
        self.heap.feed_in(epoch, step);
        match step {
            Step::Event(event) => {
                let made = match event.op {
                    Op::Alloc { size, usable } => Some(LiveBlock {
                        addr: event.addr,
                        size,
                        usable,
                        seqno: event.seqno,
                        ns: event.ns,
                        thread: event.thread,
                        api: event.api,
                        node: event.node,
                    }),
                    Op::Free => None,
                };
                self.held.event(event, Met::Event(Seen { event: *event, made, ended: before }));
            }
            Step::Special { what: Special::ReallocUndo { addr, .. }, .. } if !known && before.is_none() => {
                if let Some(block) = self.heap.block_at(*addr) {
                    self.held.other(Met::Revived(block));
                }
            }
            Step::Special { .. } => {}
        }
    }
}

/// Calls `each` with every event of the trace; gives the heap at its end.
pub(crate) fn whole(session: &mut Session, mut each: impl FnMut(&Seen)) -> Result<Replay, QueryError> {
    let source = session.source();
    let mut walk = Walk::new(&source, session.replay_options(), Until::Start, Until::End)?;
    while let Some(met) = walk.advance()? {
        if let Met::Event(seen) = &met {
            each(seen);
        }
    }
    session.learn(walk.steps());
    Ok(walk.finish())
}
