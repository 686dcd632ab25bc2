//! Random streams against a model that keeps every block for ever.

use highwater_event::api::ApiKind;
use highwater_replay::Until;
use highwater_trace::model::{Op, Special};
use proptest::prelude::*;

use super::{Window, survivors};
use crate::session::made::Made;

/// A block of the model: instants are event numbers.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Event that made it first.
    born: u64,
    /// Event that made it what it is.
    made: u64,
    size: u64,
    addr: u64,
    /// Event that ended it.
    died: u64,
}

const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
enum Act {
    Alloc { slot: u8, size: u8, thread: u8 },
    Free { slot: u8, thread: u8 },
    Realloc { from: u8, to: u8, size: u8, thread: u8, fails: bool },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..12u8, 1..200u8, 0..3u8).prop_map(|(slot, size, thread)| Act::Alloc { slot, size, thread }),
        (0..12u8, 0..3u8).prop_map(|(slot, thread)| Act::Free { slot, thread }),
        (0..12u8, 0..12u8, 1..200u8, 0..3u8, any::<bool>())
            .prop_map(|(from, to, size, thread, fails)| Act::Realloc { from, to, size, thread, fails }),
    ]
}

fn instant(number: u64, end: u64) -> Until {
    match number {
        0 => Until::Start,
        n if n > end => Until::End,
        // Events come every 10 ms, the first after 10 ms.
        n if n % 2 == 0 => Until::Ns(n * 10_000_000 + 3),
        n => Until::Seqno(n - 1),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn survivors_are_those_of_the_model(
        acts in proptest::collection::vec(act(), 0..80),
        windows in proptest::collection::vec((0..90u64, 0..90u64, 0..90u64), 1..5),
    ) {
        let mut made = Made::default().node(1, 0, "main", "a.c", 1);
        let mut blocks: Vec<Block> = Vec::new();
        let mut seqno = 0;
        for act in acts {
            let live = |blocks: &[Block], slot: u8| {
                let addr = 64 * (1 + u64::from(slot));
                (addr, blocks.iter().position(|block| block.addr == addr && block.died == NEVER))
            };
            match act {
                Act::Alloc { slot, size, thread } => {
                    let (addr, None) = live(&blocks, slot) else { continue };
                    made = made.alloc(thread.into(), addr, size.into(), 1);
                    blocks.push(Block { born: seqno, made: seqno, size: size.into(), addr, died: NEVER });
                    seqno += 1;
                }
                Act::Free { slot, thread } => {
                    let (addr, Some(at)) = live(&blocks, slot) else { continue };
                    made = made.free(thread.into(), addr);
                    blocks[at].died = seqno;
                    seqno += 1;
                }
                Act::Realloc { from, to, size, thread, fails } => {
                    let (old, Some(at)) = live(&blocks, from) else { continue };
                    let (new, other) = live(&blocks, to);
                    if other.is_some() && new != old {
                        continue;
                    }
                    let (thread, pair) = (thread.into(), Some(seqno));
                    // Both kinds, by the thread's number.
                    let (half, whole) = match thread % 2 {
                        0 => (ApiKind::ReallocFree, ApiKind::Realloc),
                        _ => (ApiKind::ReallocarrayFree, ApiKind::Reallocarray),
                    };
                    made = made.event(thread, old, Op::Free, half, 0, pair);
                    let free_seqno = pair;
                    seqno += 1;
                    if fails {
                        made = made.special(thread, Special::ReallocUndo { free_seqno, addr: old });
                        continue;
                    }
                    let size = u64::from(size);
                    let op = Op::Alloc { size, usable: None };
                    made = made.event(thread, new, op, whole, 1, pair);
                    // Between its halves it is nowhere.
                    blocks[at].died = seqno - 1;
                    let born = blocks[at].born;
                    blocks.push(Block { born, made: seqno, size, addr: new, died: NEVER });
                    seqno += 1;
                }
            }
        }
        let list: Vec<Window> = windows
            .iter()
            .map(|&(from, to, until)| Window {
                name: String::new(),
                from: instant(from, seqno),
                to: instant(to, seqno),
                until: instant(until, seqno),
            })
            .collect();
        let mut session = made.session();
        let found = survivors(&mut session, &list).unwrap();
        for (&(from, to, until), found) in windows.iter().zip(found) {
            // Event s is included by the instant n if s < n.
            let mut expected: Vec<(u64, u64, u64)> = blocks
                .iter()
                .filter(|b| b.born >= from && b.born < to && b.made < until && b.died >= until)
                .map(|b| (b.made, b.size, b.born))
                .collect();
            expected.sort_unstable();
            let found: Vec<(u64, u64, u64)> =
                found.iter().map(|s| (s.block.seqno, s.block.size, s.born().0)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
