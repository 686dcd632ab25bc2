//! Free halves of reallocs, held back until it is known what became of them.
//!
//! A realloc is written as a free and an alloc. Where it fails, the free did not
//! happen; where it was `realloc(p, 0)`, the free is all there is. Only the next
//! record of the same thread says which, so events wait for it, in their order.

use std::collections::VecDeque;

use highwater_event::api::ApiKind;
use highwater_trace::model::{Event, Special, Step, ThreadNo};

use crate::walk::Met;

/// Events that wait at most; then the oldest counts as decided.
const MOST: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be shown.
    Shown,
    /// The thread's next record decides.
    Open,
    /// It did not happen.
    Failed,
}

/// A queue of events in their order.
#[derive(Default)]
pub(crate) struct Held {
    queue: VecDeque<(Met, State)>,
    /// Events that have left the queue.
    gone: u64,
    /// What is not decided: whose, and which event of all that were put in. A
    /// thread has at most one.
    open: Vec<(ThreadNo, u64)>,
}

impl Held {
    /// Puts an event behind the others.
    pub fn event(&mut self, event: &Event, met: Met) {
        let half = matches!(event.api, ApiKind::ReallocFree | ApiKind::ReallocarrayFree);
        if half {
            self.open.push((event.thread, self.gone + self.queue.len() as u64));
        }
        self.queue.push_back((met, if half { State::Open } else { State::Shown }));
        if self.queue.len() > MOST
            && let Some((Met::Event(seen), state @ State::Open)) = self.queue.front_mut()
        {
            *state = State::Shown;
            let thread = seen.event.thread;
            self.open.retain(|open| open.0 != thread);
        }
    }

    /// Puts something that needs no decision behind the others.
    pub fn other(&mut self, met: Met) {
        self.queue.push_back((met, State::Shown));
    }

    /// Decides what `step` decides; to be called with every step, before the
    /// step itself is put in. `true`: the step was about an event that waited.
    pub fn decide(&mut self, step: &Step) -> bool {
        if self.open.is_empty() {
            return false;
        }
        let thread = match step {
            Step::Event(event) => event.thread,
            Step::Special { thread, what: Special::ReallocUndo { .. }, .. } => *thread,
            // A realloc may map memory before it returns.
            Step::Special { .. } => return false,
        };
        let Some(at) = self.open.iter().position(|open| open.0 == thread) else { return false };
        let (_, number) = self.open.swap_remove(at);
        let place = usize::try_from(number - self.gone).unwrap_or(usize::MAX);
        let Some((Met::Event(seen), state)) = self.queue.get_mut(place) else { return false };
        *state = State::Shown;
        let event = &mut seen.event;
        match step {
            // A block that follows says whose second half it is; else it was a free.
            Step::Event(next) => {
                event.pair = next.pair.filter(|&pair| pair == event.seqno && next.seqno != pair);
                true
            }
            Step::Special { what: Special::ReallocUndo { free_seqno, .. }, .. }
                if *free_seqno == Some(event.seqno) =>
            {
                *state = State::Failed;
                true
            }
            Step::Special { .. } => false,
        }
    }

    /// Nothing follows: what is undecided was a free without a second half.
    pub fn decide_all(&mut self) {
        for (met, state) in &mut self.queue {
            if *state == State::Open {
                *state = State::Shown;
                if let Met::Event(seen) = met {
                    seen.event.pair = None;
                }
            }
        }
        self.open.clear();
    }

    /// What is to be shown next, if it is decided.
    pub fn next(&mut self) -> Option<Met> {
        loop {
            let state = self.queue.front()?.1;
            if state == State::Open {
                return None;
            }
            let (met, _) = self.queue.pop_front()?;
            self.gone += 1;
            if state == State::Shown {
                return Some(met);
            }
        }
    }

    /// Does nothing wait?
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::Seen;
    use highwater_trace::model::Op;

    fn push(held: &mut Held, event: &Event) {
        held.event(event, Met::Event(Seen { event: *event, made: None, ended: None }));
    }

    fn out(held: &mut Held) -> Option<Event> {
        held.next().map(|met| match met {
            Met::Event(seen) => seen.event,
            Met::Revived(block) => panic!("{block:?}"),
        })
    }

    fn event(seqno: u64, thread: u32, api: ApiKind, pair: Option<u64>) -> Step {
        let op = if api.is_free() { Op::Free } else { Op::Alloc { size: 1, usable: None } };
        Step::Event(Event { seqno, ns: 0, stamp: 0, thread, op, api, addr: 64, node: 0, pair })
    }

    fn undo(thread: u32, seqno: u64) -> Step {
        let what = Special::ReallocUndo { free_seqno: Some(seqno), addr: 64 };
        Step::Special { ns: 0, thread, what }
    }

    /// What comes out, and after which step.
    fn run(steps: &[Step]) -> Vec<(u64, Option<u64>, usize)> {
        let mut held = Held::default();
        let mut all = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            held.decide(step);
            if let Step::Event(event) = &step {
                push(&mut held, event);
            }
            all.extend(std::iter::from_fn(|| out(&mut held)).map(|event| (event.seqno, event.pair, at)));
        }
        held.decide_all();
        all.extend(std::iter::from_fn(|| out(&mut held)).map(|event| (event.seqno, event.pair, steps.len())));
        assert!(held.is_empty());
        all
    }

    #[test]
    fn a_free_half_waits_for_its_own_thread() {
        let steps = [
            event(0, 1, ApiKind::ReallocFree, Some(0)),
            event(1, 2, ApiKind::Malloc, None),
            event(2, 1, ApiKind::Realloc, Some(0)),
            event(3, 2, ApiKind::Free, None),
        ];
        assert_eq!(run(&steps), [(0, Some(0), 2), (1, None, 2), (2, Some(0), 2), (3, None, 3)]);
    }

    #[test]
    fn a_failed_realloc_leaves_no_trace_and_realloc_of_zero_no_pair() {
        let steps = [
            event(0, 1, ApiKind::ReallocFree, Some(0)),
            event(1, 2, ApiKind::Malloc, None),
            undo(1, 0),
            event(2, 1, ApiKind::ReallocFree, Some(2)),
            event(3, 1, ApiKind::Malloc, None),
            event(4, 1, ApiKind::ReallocarrayFree, Some(4)),
        ];
        assert_eq!(run(&steps), [(1, None, 2), (2, None, 4), (3, None, 4), (4, None, 6)]);
    }

    #[test]
    fn two_threads_may_both_be_undecided_and_a_mapping_decides_nothing() {
        let map = Step::Special { ns: 0, thread: 1, what: Special::Mmap { addr: 0, len: 1, node: 0 } };
        let steps = [
            event(0, 1, ApiKind::ReallocFree, Some(0)),
            event(1, 2, ApiKind::ReallocFree, Some(1)),
            map,
            undo(2, 1),
            event(2, 1, ApiKind::Realloc, Some(0)),
        ];
        assert_eq!(run(&steps), [(0, Some(0), 4), (2, Some(0), 4)]);
    }

    #[test]
    fn what_never_is_decided_does_not_hold_all_up() {
        let mut held = Held::default();
        let mut shown = 0;
        for seqno in 0..3 * MOST as u64 {
            let api = if seqno == 0 { ApiKind::ReallocFree } else { ApiKind::Malloc };
            let step = event(seqno, u32::from(seqno > 0), api, None);
            held.decide(&step);
            if let Step::Event(event) = step {
                push(&mut held, &event);
            }
            shown += std::iter::from_fn(|| out(&mut held)).count();
        }
        assert_eq!(shown, 3 * MOST);
    }
}
