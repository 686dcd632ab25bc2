//! Legal programs of several threads whose stamps are as coarse as the agent's:
//! the truth is known, and nothing of it may be lost where it can be known.
//!
//! A thread reads the clock when the recorder has ticked and every so many
//! events, and its events share the reading. Inside a tick (an epoch) the streams
//! are merged by stamp, so what depends on one another comes out in any order;
//! across ticks the order is right.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher};

use highwater_event::api::ApiKind;
use highwater_trace::model::{Event, Op, Special, Step};

use crate::{Options, Replay};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// One step in the true order.
#[derive(Clone, Copy, Debug)]
struct True {
    thread: u32,
    addr: u64,
    /// The size names the block; `None` is a free.
    size: Option<u64>,
    api: ApiKind,
    /// The realloc that began with the thread's latest free has failed.
    undo: bool,
}

/// A program and how its steps were seen: `(epoch, step)` in merged order.
struct Story {
    truth: Vec<True>,
    epochs: Vec<u32>,
    seen: Vec<(u32, Step)>,
}

fn story(seed: u64) -> Story {
    let mut random = Random(seed);
    let threads = 1 + random.below(4);
    let addresses = 1 + random.below(4);
    let (length, credit, tick) = (random.below(70), 1 + random.below(16), 1 + random.below(30));
    let mut truth: Vec<True> = Vec::new();
    let mut live: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
    // A thread inside a realloc: the block it wants to move.
    let mut inside: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for size in 1..=length {
        let thread = random.below(threads) as u32;
        let addr = 0x1000 * (1 + random.below(addresses));
        let mut push = |addr, size, api, undo| truth.push(True { thread, addr, size, api, undo });
        if let Some((old, old_size)) = inside.remove(&thread) {
            // It ends: elsewhere, in place, or not at all.
            let to = if live.contains_key(&addr) { old } else { addr };
            if random.below(3) == 0 {
                push(old, Some(old_size), ApiKind::Realloc, true);
            } else {
                live.remove(&old);
                live.insert(to, (size, false));
                push(to, Some(size), ApiKind::Realloc, false);
            }
            continue;
        }
        match live.get(&addr).copied() {
            // The block that a realloc works on is nobody else's.
            Some(_) if inside.values().any(|(at, _)| *at == addr) => {}
            Some((old, false)) if random.below(4) == 0 => {
                inside.insert(thread, (addr, old));
                push(addr, None, ApiKind::ReallocFree, false);
            }
            Some((_, new)) => {
                live.remove(&addr);
                push(addr, None, if new { ApiKind::Delete } else { ApiKind::Free }, false);
            }
            None => {
                let new = random.below(3) == 0;
                live.insert(addr, (size, new));
                push(addr, Some(size), if new { ApiKind::New } else { ApiKind::Malloc }, false);
            }
        }
    }
    // A realloc gives its block back before the new one is there: an address that
    // it left may be taken in between, and is in `live` until then. That is
    // stricter than the truth, so the story stays legal.
    let mut readings: BTreeMap<u32, (u64, u64, u64)> = BTreeMap::new();
    let mut keyed: Vec<(u32, u64, u32, usize)> = Vec::new();
    let mut epochs = Vec::new();
    let (mut epoch, mut left) = (0u32, tick);
    for (at, step) in truth.iter().enumerate() {
        if left == 0 {
            (epoch, left) = (epoch + 1, 1 + random.below(tick * 2));
        }
        left -= 1;
        epochs.push(epoch);
        let reading = readings.entry(step.thread).or_insert((u64::MAX, 0, 0));
        if reading.0 != u64::from(epoch) || reading.1 == 0 {
            *reading = (u64::from(epoch), credit, at as u64);
        }
        reading.1 -= 1;
        keyed.push((epoch, reading.2, step.thread, at));
    }
    keyed.sort_by_key(|&(epoch, stamp, thread, at)| (epoch, stamp, thread, at));
    let mut halves: BTreeMap<u32, u64> = BTreeMap::new();
    let mut seqno = 0;
    let mut seen = Vec::new();
    for (epoch, ns, thread, at) in keyed {
        let True { addr, size, api, undo, .. } = truth[at];
        if undo {
            let what = Special::ReallocUndo { free_seqno: halves.get(&thread).copied(), addr };
            seen.push((epoch, Step::Special { ns, thread, what }));
            continue;
        }
        let op = size.map_or(Op::Free, |size| Op::Alloc { size, usable: None });
        if api == ApiKind::ReallocFree {
            halves.insert(thread, seqno);
        }
        let pair = if api.is_realloc() { halves.get(&thread).copied() } else { None };
        seen.push((
            epoch,
            Step::Event(Event { seqno, ns, stamp: ns, thread, op, api, addr, node: thread, pair }),
        ));
        seqno += 1;
    }
    Story { truth, epochs, seen }
}

/// Address to size, of what lives in the end.
fn true_live(truth: &[True]) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for step in truth {
        match step.size {
            Some(size) => _ = live.insert(step.addr, size),
            None => _ = live.remove(&step.addr),
        }
    }
    live
}

fn true_peak(truth: &[True]) -> u64 {
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut held = BTreeMap::new();
    let mut peak = 0;
    for step in truth {
        match step.size {
            Some(size) => _ = live.insert(step.addr, size),
            None => {
                if let Some(size) = live.remove(&step.addr) {
                    held.insert(step.thread, size);
                }
            }
        }
        peak = peak.max(live.values().sum());
    }
    peak
}

/// What lives at an address: its size, and whether `new` made it.
type Lives = (Option<u64>, bool);

/// What may live at each address in the end, by every order of each epoch's
/// events that keeps the threads' own orders and alternates; `None` where a
/// failed realloc lies in two epochs.
fn possible(story: &Story) -> BTreeMap<u64, Option<BTreeSet<Option<u64>>>> {
    let mut result = BTreeMap::new();
    let addresses: BTreeSet<u64> = story.truth.iter().map(|step| step.addr).collect();
    for addr in addresses {
        let mut parted = false;
        let mut states: BTreeSet<Lives> = BTreeSet::from([(None, false)]);
        let last = story.epochs.last().copied().unwrap_or_default();
        for epoch in 0..=last {
            let mut threads: BTreeMap<u32, Vec<True>> = BTreeMap::new();
            let here = |(s, e): &(&True, &u32)| s.addr == addr && **e == epoch;
            for (step, _) in story.truth.iter().zip(&story.epochs).filter(here) {
                let list = threads.entry(step.thread).or_default();
                if step.undo {
                    // Its free half is the thread's latest event.
                    match list.last_mut() {
                        Some(half) => half.undo = true,
                        None => parted = true,
                    }
                } else {
                    list.push(*step);
                }
            }
            let lists: Vec<Vec<True>> = threads.into_values().collect();
            let mut ends = BTreeSet::new();
            let mut seen = BTreeSet::new();
            let mut stack: Vec<(Vec<usize>, Lives)> =
                states.iter().map(|&state| (vec![0; lists.len()], state)).collect();
            while let Some((at, state)) = stack.pop() {
                if !seen.insert((at.clone(), state)) {
                    continue;
                }
                if at.iter().zip(&lists).all(|(at, list)| *at == list.len()) {
                    ends.insert(state);
                }
                for (thread, list) in lists.iter().enumerate() {
                    let Some(step) = list.get(at[thread]) else { continue };
                    let new = matches!(step.api, ApiKind::New | ApiKind::Delete);
                    let next = match (step.size, state.0) {
                        (Some(size), None) => (Some(size), new),
                        (None, Some(_)) if new == state.1 => {
                            if step.undo {
                                state
                            } else {
                                (None, false)
                            }
                        }
                        _ => continue,
                    };
                    let mut at = at.clone();
                    at[thread] += 1;
                    stack.push((at, next));
                }
            }
            states = ends;
        }
        let sizes = states.into_iter().map(|state| state.0).collect();
        result.insert(addr, if parted { None } else { Some(sizes) });
    }
    result
}

/// The steps address by address, the epochs apart: `A0@2` is an alloc by thread 2.
fn brief(seen: &[(u32, Step)]) -> String {
    let mut lines: BTreeMap<u64, (u32, String)> = BTreeMap::new();
    for (epoch, step) in seen {
        let (addr, word) = match step {
            Step::Event(e) => {
                let family = if e.api.is_realloc() {
                    "r"
                } else if e.api.family() as u8 == 0 {
                    ""
                } else {
                    "n"
                };
                (e.addr, format!("{}{family}@{} ", if e.op == Op::Free { 'F' } else { 'A' }, e.thread))
            }
            Step::Special { thread, what: Special::ReallocUndo { addr, .. }, .. } => {
                (*addr, format!("U@{thread} "))
            }
            Step::Special { .. } => continue,
        };
        let line = lines.entry(addr).or_default();
        while line.0 < *epoch {
            line.0 += 1;
            line.1.push_str("| ");
        }
        line.1.push_str(&word);
    }
    lines.into_iter().map(|(addr, (_, line))| format!("\n{addr:#x}: {line}")).collect()
}

fn check(seed: u64) {
    let story = story(seed);
    let mut steps = story.seen.iter().copied();
    let replay = Replay::run(Options::default(), || Ok::<_, Infallible>(steps.next())).unwrap();
    let totals = replay.totals();
    let seen = || format!("seed {seed}, seen {}", brief(&story.seen));
    let wrong = (totals.double_free, totals.invalid_free, totals.mismatched, totals.foreign_frees);
    let errors = replay.errors();
    assert_eq!((wrong, totals.missing_frees), ((0, 0, 0, 0), 0), "false errors: {} {errors:?}", seen());
    let live: BTreeMap<u64, u64> = replay.live().map(|block| (block.addr, block.size)).collect();
    let truth = true_live(&story.truth);
    let mut sure = true;
    for (addr, sizes) in possible(&story) {
        let (ours, truth) = (live.get(&addr).copied(), truth.get(&addr).copied());
        assert_eq!(ours.is_some(), truth.is_some(), "at {addr:#x}: {}", seen());
        sure &= sizes.as_ref().is_some_and(|sizes| sizes.len() == 1);
        let Some(sizes) = sizes else { continue };
        assert!(sizes.contains(&truth), "the test is wrong: {}", seen());
        assert!(sizes.contains(&ours), "{ours:?} cannot live at {addr:#x}, only {sizes:?}: {}", seen());
    }
    assert_eq!(totals.live_blocks, truth.len() as u64, "{}", seen());
    assert_eq!(totals.live_bytes, live.values().sum::<u64>(), "{}", seen());
    // Two frees of one address in one epoch may change places (see `peak`).
    let mut freed = BTreeSet::new();
    let frees = || story.truth.iter().zip(&story.epochs).filter(|(step, _)| step.size.is_none());
    sure &= frees().all(|(step, epoch)| freed.insert((step.addr, epoch)));
    if sure {
        let off = totals.peak_bytes.abs_diff(true_peak(&story.truth));
        assert!(
            off <= totals.peak_uncertainty,
            "peak off by {off}, not within {}: {}",
            totals.peak_uncertainty,
            seen()
        );
    }
    if replay.threads().len() < 2 {
        assert_eq!((totals.peak_uncertainty, totals.order_repairs), (0, 0), "{}", seen());
    }
}

#[test]
fn legal_programs_have_no_errors_and_the_true_live_set() {
    let cases = if cfg!(debug_assertions) { 1_500 } else { 200_000 };
    // The same ones every time, and as many new ones.
    (0..cases).for_each(check);
    let start = std::hash::RandomState::new().build_hasher().finish() >> 1;
    (start..start + cases).for_each(check);
}

#[test]
fn a_second_free_by_the_same_thread_is_found() {
    let mut found = 0;
    for seed in 0..2_000 {
        let mut story = story(seed);
        // An address of its own, at a random place of a thread's stream.
        let mut random = Random(seed ^ 0x5555);
        let at = random.below(story.seen.len() as u64 + 1) as usize;
        let epoch = story.seen.get(at.saturating_sub(1)).map_or(0, |seen| seen.0);
        let seqno = 1_000 + at as u64;
        for (n, op) in [(0, Op::Alloc { size: 9, usable: None }), (1, Op::Free), (2, Op::Free)] {
            let api = if op == Op::Free { ApiKind::Free } else { ApiKind::Malloc };
            let (seqno, ns) = (seqno + n, at as u64);
            let event =
                Event { seqno, ns, stamp: ns, thread: 0, op, api, addr: 0x90_0000, node: 0, pair: None };
            story.seen.insert(at + n as usize, (epoch, Step::Event(event)));
        }
        let mut steps = story.seen.iter().copied();
        let replay = Replay::run(Options::default(), || Ok::<_, Infallible>(steps.next())).unwrap();
        assert_eq!(replay.totals().double_free, 1, "seed {seed}");
        found += 1;
    }
    assert_eq!(found, 2_000);
}
