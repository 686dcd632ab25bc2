//! Somebody who looks on while a heap is replayed.

use highwater_trace::{Batch, Brief};

use crate::replay::Replay;
use crate::sampling::Weight;
use crate::totals::SiteTotals;

/// A block that an event has made or given back.
pub struct Watched<'a> {
    /// Number of the stack that made it among [`Replay::sites`], in the order of first
    /// allocations.
    pub site: u32,
    /// What that stack has now. (Of the peak it may not know yet.)
    pub totals: &'a SiteTotals,
    /// Requested bytes.
    pub size: u64,
    /// Seqno of its allocation.
    pub seqno: u64,
    /// How long it has lived, ns.
    pub ns: u64,
    /// What it stands for.
    pub weight: Weight,
}

/// Looks on while events are fed to a replay.
pub trait Watch {
    /// Does it look at single events? Otherwise only [`Watch::batch`] is called.
    const EVENTS: bool;

    /// A batch comes.
    fn batch(&mut self, _heap: &mut Replay, _batch: &Batch) {}

    /// An event comes: of `heap` the stacks and the latest event are as they are before;
    /// totals and threads may not know the latest ones yet.
    fn comes(&mut self, _heap: &Replay, _event: &Brief) {}

    /// The event has made a block.
    fn made(&mut self, _event: &Brief, _block: &Watched<'_>) {}

    /// The event has given back a block. What it has to do with a block may not be known
    /// before the end of its epoch: then nothing is said.
    fn freed(&mut self, _event: &Brief, _block: &Watched<'_>) {}
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
    fn comes(&mut self, heap: &Replay, event: &Brief) {
        if A::EVENTS {
            self.0.comes(heap, event);
        }
        if B::EVENTS {
            self.1.comes(heap, event);
        }
    }

    #[inline(always)]
    fn made(&mut self, event: &Brief, block: &Watched<'_>) {
        if A::EVENTS {
            self.0.made(event, block);
        }
        if B::EVENTS {
            self.1.made(event, block);
        }
    }

    #[inline(always)]
    fn freed(&mut self, event: &Brief, block: &Watched<'_>) {
        if A::EVENTS {
            self.0.freed(event, block);
        }
        if B::EVENTS {
            self.1.freed(event, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Options;
    use highwater_event::api::ApiKind;
    use highwater_trace::model::{Event, Op, Step};

    /// What an event did.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Did {
        Nothing,
        Made { site: u32, size: u64 },
        Freed { site: u32, size: u64, seqno: u64, ns: u64 },
    }

    #[derive(Default)]
    struct Seen {
        did: Vec<Did>,
        /// Live blocks of the stack that the latest event was about.
        live: Vec<u64>,
    }

    impl Watch for Seen {
        const EVENTS: bool = true;

        fn comes(&mut self, _heap: &Replay, _event: &Brief) {
            self.did.push(Did::Nothing);
            self.live.push(0);
        }

        fn made(&mut self, _event: &Brief, block: &Watched<'_>) {
            *self.did.last_mut().unwrap() = Did::Made { site: block.site, size: block.size };
            *self.live.last_mut().unwrap() = block.totals.live_blocks;
        }

        fn freed(&mut self, _event: &Brief, block: &Watched<'_>) {
            let Watched { site, size, seqno, ns, .. } = *block;
            *self.did.last_mut().unwrap() = Did::Freed { site, size, seqno, ns };
            *self.live.last_mut().unwrap() = block.totals.live_blocks;
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
    fn what_is_told_is_what_happened() {
        let events = events();
        let (mut batches, mut steps) = (Seen::default(), Seen::default());
        let (mut whole, mut single) = (Replay::new(Options::default()), Replay::new(Options::default()));
        let (mut wanted, mut live, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
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
                    _ if !free => Did::Made { site: site(&nodes, node).unwrap(), size },
                    Some(block) => Did::Freed {
                        site: site(&nodes, block.node).unwrap(),
                        size: block.size,
                        seqno: block.seqno,
                        ns: ns - block.ns,
                    },
                    None => Did::Nothing,
                });
                let op = if free { Op::Free } else { Op::Alloc { size, usable: None } };
                let event = Event { seqno, ns, stamp, thread, op, api, addr, node, pair: None };
                single.feed_watched(epoch, &Step::Event(event), &mut steps);
                let node = if free { block.map(|block| block.node) } else { Some(node) };
                live.push(node.map_or(0, |node| single.site(node).unwrap().live_blocks));
            }
        }
        assert!(wanted.contains(&Did::Nothing));
        assert!(wanted.iter().any(|did| matches!(did, Did::Freed { .. })));
        assert_eq!((&batches.did, &batches.live), (&wanted, &live));
        assert_eq!((&steps.did, &steps.live), (&wanted, &live));
        assert!(whole.sites().map(|site| site.node).eq(nodes));
    }
}
