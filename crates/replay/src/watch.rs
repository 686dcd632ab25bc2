//! Somebody who looks on while a heap is replayed.

use highwater_trace::{Batch, Brief};

use crate::replay::Replay;

/// What an event does, known before it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It makes a block.
    Made {
        /// Number of its stack among [`Replay::sites`], in the order of first allocations.
        site: u32,
    },
    /// It gives back a block.
    Freed {
        /// Number of the stack that made it, as above.
        site: u32,
        /// Requested bytes.
        size: u64,
        /// When it was made, ns.
        ns: u64,
        /// Seqno of its allocation.
        seqno: u64,
    },
    /// It gives back what does not live, as far as that is known.
    Nothing,
}

/// Looks on while events are fed to a replay.
pub trait Watch {
    /// Does it look at single events? Otherwise [`Watch::event`] is not called.
    const EVENTS: bool;

    /// A batch comes.
    fn batch(&mut self, _heap: &mut Replay, _batch: &Batch) {}

    /// An event comes: `heap` is as it is before.
    fn event(&mut self, _heap: &Replay, _event: &Brief, _seqno: u64, _act: Act) {}
}

/// Nobody.
pub struct Nobody;

impl Watch for Nobody {
    const EVENTS: bool = false;
}

/// Two that look on.
pub struct Both<'a, A, B>(pub &'a mut A, pub &'a mut B);

impl<A: Watch, B: Watch> Watch for Both<'_, A, B> {
    const EVENTS: bool = A::EVENTS || B::EVENTS;

    fn batch(&mut self, heap: &mut Replay, batch: &Batch) {
        self.0.batch(heap, batch);
        self.1.batch(heap, batch);
    }

    #[inline(always)]
    fn event(&mut self, heap: &Replay, event: &Brief, seqno: u64, act: Act) {
        if A::EVENTS {
            self.0.event(heap, event, seqno, act);
        }
        if B::EVENTS {
            self.1.event(heap, event, seqno, act);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Options;
    use highwater_event::api::ApiKind;
    use highwater_trace::model::{Event, Op, Step};

    #[derive(Default)]
    struct Seen(Vec<(u64, Act)>);

    impl Watch for Seen {
        const EVENTS: bool = true;

        fn event(&mut self, heap: &Replay, event: &Brief, seqno: u64, act: Act) {
            let lives = heap.block_at(event.addr).is_some();
            assert_eq!(lives && event.api.is_free(), matches!(act, Act::Freed { .. }));
            self.0.push((seqno, act));
        }
    }

    /// Events on one thread, in epochs of a thousand, some frees of nothing.
    fn events() -> Vec<Brief> {
        let mut random = 1u64;
        let event = |at: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let api = if random >> 63 == 0 { ApiKind::Malloc } else { ApiKind::Free };
            let (addr, node) = ((random >> 40) % 2000 * 16 + 16, (random >> 20) as u32 % 50);
            let size = if api == ApiKind::Malloc { at } else { 0 };
            Brief { ns: at, stamp: at, addr, size, node, thread: 0, api, paired: false }
        };
        (0..20_000).map(event).collect()
    }

    #[test]
    fn what_is_announced_is_what_happens() {
        let events = events();
        let (mut batches, mut steps) = (Seen::default(), Seen::default());
        let (mut whole, mut single) = (Replay::new(Options::default()), Replay::new(Options::default()));
        let (mut wanted, mut nodes) = (Vec::new(), Vec::new());
        for (epoch, events) in (1..).zip(events.chunks(1000)) {
            let first = u64::from(epoch - 1) * 1000;
            whole.feed_events(epoch, first, events, &mut batches);
            for (seqno, brief) in (first..).zip(events) {
                let Brief { ns, stamp, addr, size, node, thread, api, .. } = *brief;
                let site = |nodes: &[u32], node| nodes.iter().position(|&of| of == node).map(|at| at as u32);
                let free = api.is_free();
                if !free && site(&nodes, node).is_none() {
                    nodes.push(node);
                }
                let block = single.block_at(addr);
                wanted.push(match block {
                    _ if !free => Act::Made { site: site(&nodes, node).unwrap() },
                    Some(block) => Act::Freed {
                        site: site(&nodes, block.node).unwrap(),
                        size: block.size,
                        ns: block.ns,
                        seqno: block.seqno,
                    },
                    None => Act::Nothing,
                });
                let op = if free { Op::Free } else { Op::Alloc { size, usable: None } };
                let event = Event { seqno, ns, stamp, thread, op, api, addr, node, pair: None };
                single.feed_watched(epoch, &Step::Event(event), &mut steps);
            }
        }
        assert!(wanted.contains(&Act::Nothing));
        assert!(wanted.iter().any(|act| matches!(act, Act::Freed { .. })));
        assert!(batches.0.iter().map(|(_, act)| *act).eq(wanted));
        assert_eq!(batches.0, steps.0);
        assert!(whole.sites().map(|site| site.node).eq(nodes));
    }
}
