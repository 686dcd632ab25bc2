//! A thinned recording of random operations has the totals of the whole one.

use highwater_event::api::ApiKind;
use highwater_event::codec::{Record, SpecialKind, State};
use highwater_event::node::NodeId;
use highwater_event::ring::{Encoder, MAX_RECORD};
use highwater_event::sample::mix;
use highwater_replay::{Options, Replay, SiteTotals, Totals};
use highwater_trace::model::{ClockPoint, End, Meta};
use highwater_trace::{Trace, Writer, WriterOptions};

use super::{Pace, Thin};

struct Thread {
    encoder: Encoder,
    state: State,
    words: Vec<u64>,
}

impl Thread {
    /// Encodes one record behind the others.
    fn put(&mut self, record: &Record) {
        self.words.extend_from_slice(self.encoder.record(record, &mut [0; MAX_RECORD / 8]));
    }
}

fn alloc(stamp: u64, ptr: u64, size: u64, node: NodeId, api: ApiKind) -> Record {
    Record::Alloc { stamp, ptr, size, usable: None, node, api, pair: api == ApiKind::Realloc }
}

#[derive(Clone, Copy)]
struct Block {
    addr: u64,
    thread: usize,
}

/// Random operations of a few threads, in epochs; calls `ring` with each
/// thread's words of an epoch and `end` after it with the greatest stamp.
fn operations(seed: u64, mut ring: impl FnMut(u32, State, &[u64]), mut end: impl FnMut(u64)) {
    let mut random = seed;
    let mut next = move || {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(random)
    };
    let mut threads: Vec<Thread> = (0..3)
        .map(|_| Thread { encoder: Encoder::default(), state: State::default(), words: Vec::new() })
        .collect();
    let mut live: Vec<Block> = Vec::new();
    // Few addresses: they come again soon.
    let mut free: Vec<u64> = (1..400u64).map(|n| 0x10_0000 + n * 32).collect();
    let mut stamp = 1000u64;
    for _epoch in 0..60 {
        for _ in 0..next() % 120 {
            stamp += 1 + next() % 40;
            let by = (next() % 3) as usize;
            let thread = &mut threads[by];
            let node = 20 + (next() % 5) as u32;
            let size = next() % 5000;
            let place = (next() % live.len().max(1) as u64) as usize;
            match next() % 20 {
                // The block that was made last, often: a temporary one.
                0..=8 if !live.is_empty() => {
                    let own = live.iter().rposition(|b| b.thread == by).unwrap_or(place);
                    let at = if next() % 2 == 0 { own } else { place };
                    let block = live.swap_remove(at);
                    free.push(block.addr);
                    thread.put(&Record::Free { stamp, ptr: block.addr, node, api: ApiKind::Free });
                }
                9..=11 if !live.is_empty() => {
                    let old = live[place].addr;
                    thread.put(&Record::Free { stamp, ptr: old, node: 0, api: ApiKind::ReallocFree });
                    stamp += 1;
                    if next() % 4 == 0 {
                        let words = [stamp, old, 0, 0, 0, 0, 0, 0];
                        thread.put(&Record::Special { kind: SpecialKind::ReallocUndo, len: 2, words });
                    } else {
                        let at = (next() % free.len() as u64) as usize;
                        let addr = if next() % 2 == 0 { old } else { std::mem::replace(&mut free[at], old) };
                        live[place] = Block { addr, thread: by };
                        thread.put(&alloc(stamp, addr, size, node, ApiKind::Realloc));
                    }
                }
                12 => {
                    let nobody = 0x900_0000 + stamp * 8;
                    thread.put(&Record::Free { stamp, ptr: nobody, node: 0, api: ApiKind::Free });
                }
                _ if !free.is_empty() => {
                    let at = (next() % free.len() as u64) as usize;
                    let addr = free.swap_remove(at);
                    live.push(Block { addr, thread: by });
                    thread.put(&alloc(stamp, addr, size, node, ApiKind::Malloc));
                }
                _ => {}
            }
        }
        for (number, thread) in (0u32..).zip(&mut threads) {
            ring(number, thread.state, &thread.words);
            thread.state.stamp = thread.encoder.stamp;
            thread.words.clear();
        }
        end(stamp);
    }
}

fn pace() -> Pace {
    Pace { stamp: 0, ns: 0, rate: 1.0 }
}

/// Writes the operations through `thin`, or all of them, and replays the trace.
fn recorded(seed: u64, mut thin: Option<Thin>) -> (Replay, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hwt");
    let writer = Writer::create(&path, &Meta::default(), WriterOptions::default()).unwrap();
    let writer = std::cell::RefCell::new(writer);
    writer.borrow_mut().clock(ClockPoint { stamp: 0, ns: 0 }).unwrap();
    writer.borrow_mut().clock(ClockPoint { stamp: 1 << 30, ns: 1 << 30 }).unwrap();
    let cell = std::cell::RefCell::new(&mut thin);
    let mut epochs = 0;
    operations(
        seed,
        |thread, state, words| {
            match &mut *cell.borrow_mut() {
                Some(thin) => _ = thin.ring(thread, state, words, u64::MAX),
                None => _ = writer.borrow_mut().ring(thread, state, words, u64::MAX).unwrap(),
            };
        },
        |stamp| {
            epochs += 1;
            let writer = &mut *writer.borrow_mut();
            match &mut *cell.borrow_mut() {
                Some(thin) => {
                    thin.end_epoch(writer, &pace(), stamp).unwrap();
                    if epochs % 7u32 == 0 {
                        thin.flush(writer).unwrap();
                    }
                }
                None => writer.end_epoch().unwrap(),
            }
        },
    );
    let mut writer = writer.into_inner();
    if let Some(thin) = &mut thin {
        thin.finish(&mut writer, &pace()).unwrap();
    }
    writer.finish(&End::default()).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert!(trace.warnings().is_empty() || trace.warnings().len() == 1, "{:?}", trace.warnings());
    let events = trace.event_count();
    let mut steps = trace.steps();
    let mut replay =
        Replay::run(Options::default(), || steps.next().map(|step| step.map(|s| (steps.epoch(), s))))
            .unwrap();
    replay.add_left_out(trace.left_out());
    (replay, events)
}

fn sites(replay: &Replay) -> Vec<(u32, [u64; 6])> {
    let numbers =
        |s: &SiteTotals| [s.allocations, s.bytes, s.frees, s.temporary, s.live_blocks, s.live_bytes];
    let mut list: Vec<_> = replay.sites().map(|site| (site.node, numbers(&site))).collect();
    list.sort_unstable();
    list
}

/// What must be equal whatever was left out.
fn exact(totals: &Totals) -> Vec<u64> {
    let t = totals;
    let mut list = vec![t.allocations, t.frees, t.bytes_allocated, t.bytes_freed, t.reallocations];
    list.extend([t.temporary, t.live_blocks, t.live_bytes, t.foreign_frees, t.events]);
    list.extend(t.by_api);
    list
}

fn threads(replay: &Replay) -> Vec<[u64; 7]> {
    let mut list: Vec<_> = replay
        .threads()
        .iter()
        .map(|t| {
            let id = u64::from(t.thread);
            [id, t.allocations, t.frees, t.bytes_allocated, t.bytes_freed, t.temporary, t.live_bytes]
        })
        .collect();
    list.sort_unstable();
    list
}

#[test]
fn culling_leaves_every_total_as_it_was() {
    for seed in 0..40u64 {
        let (whole, all) = recorded(seed, None);
        for age in [1, 30, 400, 5000, 1 << 40] {
            let (culled, kept) = recorded(seed, Some(Thin::cull(age)));
            let (want, got) = (whole.totals(), culled.totals());
            assert_eq!(exact(&got), exact(&want), "seed {seed}, age {age}");
            assert_eq!(sites(&culled), sites(&whole), "seed {seed}, age {age}");
            assert_eq!(threads(&culled), threads(&whole), "seed {seed}, age {age}");
            assert_eq!(got.errors() + got.missing_frees + got.order_repairs, 0, "seed {seed}, age {age}");
            let off = got.peak_uncertainty.max(want.peak_uncertainty);
            assert!(got.peak_bytes <= want.peak_bytes, "seed {seed}, age {age}");
            assert!(want.peak_bytes <= got.peak_bytes + off, "seed {seed}, age {age}: {got:?}");
            let counts = |replay: &Replay| replay.sizes().buckets().map(|b| b.count).collect::<Vec<_>>();
            assert_eq!(counts(&culled), counts(&whole), "seed {seed}, age {age}");
            let lives = |replay: &Replay| replay.lifetimes().buckets().map(|b| b.count).sum::<u64>();
            assert_eq!(lives(&culled), lives(&whole), "seed {seed}, age {age}");
            assert_eq!(kept == all, age == 1 && kept == all, "seed {seed}, age {age}: {kept} of {all}");
        }
    }
}

#[test]
fn live_only_leaves_every_total_as_it_was() {
    for seed in 0..60u64 {
        let (whole, _) = recorded(seed, None);
        let (thin, kept) = recorded(seed, Some(Thin::live_only()));
        let (want, got) = (whole.totals(), thin.totals());
        assert_eq!(kept, want.live_blocks, "seed {seed}");
        assert_eq!(exact(&got), exact(&want), "seed {seed}");
        assert_eq!(sites(&thin), sites(&whole), "seed {seed}");
        assert_eq!(threads(&thin), threads(&whole), "seed {seed}");
        assert_eq!((got.peak_bytes, got.peak_blocks), (want.peak_bytes, want.peak_blocks), "seed {seed}");
        for site in whole.sites() {
            let its = thin.site(site.node).unwrap();
            assert_eq!((its.peak_bytes, its.peak_blocks), (site.peak_bytes, site.peak_blocks), "seed {seed}");
        }
        let mut left: Vec<_> = thin.live().map(|b| (b.addr, b.size, b.node, b.thread)).collect();
        let mut live: Vec<_> = whole.live().map(|b| (b.addr, b.size, b.node, b.thread)).collect();
        left.sort_unstable();
        live.sort_unstable();
        assert_eq!(left, live, "seed {seed}");
    }
}

#[test]
fn noise_is_no_reason_to_panic() {
    for mut thin in [Thin::cull(100), Thin::live_only()] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.hwt");
        let mut writer = Writer::create(&path, &Meta::default(), WriterOptions::default()).unwrap();
        for seed in 0..3000u64 {
            let noise = |n: u64| mix(seed * 131 + n);
            // Every other word begins as a record does.
            let plain =
                |n: u64| if n.is_multiple_of(2) { noise(n) & !(0xfff << 52 | 0xd0) } else { noise(n) };
            let words: Vec<u64> = (0..mix(seed) % 40).map(plain).collect();
            thin.ring(seed as u32 % 3, State::default(), &words, mix(seed ^ 7));
            thin.end_epoch(&mut writer, &pace(), mix(seed) >> 8).unwrap();
        }
        thin.finish(&mut writer, &pace()).unwrap();
        writer.finish(&End::default()).unwrap();
        Trace::open(&path).unwrap();
    }
}
