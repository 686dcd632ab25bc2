//! Instants and windows of a trace with keyframes are those of a trace without,
//! and those of a replay from the start.

use std::path::Path;

use highwater_event::api::ApiKind;
use highwater_event::codec::{Encoder, MAX_RECORD, Record, SpecialKind, State};
use highwater_query::{Session, SessionOptions};
use highwater_replay::{Feed, Keyframes, Options, Replay, Until};
use highwater_trace::model::{ClockPoint, End, EndedHow, EventBlock, Meta, Step};
use highwater_trace::{Compression, Trace, Writer, WriterOptions};
use proptest::prelude::*;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % limit
    }
}

/// A thread that mostly keeps to its own addresses.
#[derive(Default)]
struct Worker {
    number: u64,
    encoder: Encoder,
    stamp: u64,
    live: Vec<u64>,
    /// A realloc that will turn out to have failed.
    undo: Option<u64>,
}

impl Worker {
    /// Its records of one epoch: addresses are reused; reallocs succeed, fail, and
    /// fail in the next epoch; now and then something is freed twice, in the middle,
    /// by another thread, or unseen.
    fn records(&mut self, random: &mut Random, count: u64) -> Vec<Record> {
        let mut records = Vec::new();
        for _ in 0..count {
            self.stamp += random.below(3);
            let stamp = self.stamp;
            let wild = random.below(400) == 0;
            let whose = if wild { random.below(3) } else { self.number };
            let node = random.below(6) as u32;
            let usable = (random.below(9) == 0).then_some(4096);
            let alloc = |ptr: u64, api, pair| Record::Alloc {
                stamp,
                ptr,
                size: ptr >> 4 & 0xff,
                usable,
                node,
                api,
                pair,
            };
            let free = |ptr, api| Record::Free { stamp, ptr, node, api };
            if let Some(addr) = self.undo.take() {
                let mut words = [0; 8];
                (words[0], words[1]) = (stamp, addr);
                records.push(Record::Special { kind: SpecialKind::ReallocUndo, len: 2, words });
            }
            let fresh = 0x10_0000 + (whose << 20) + random.below(60) * 0x110;
            let place = random.below(self.live.len().max(1) as u64) as usize;
            let held = self.live.get(place).copied().filter(|_| !wild);
            match (random.below(20), held) {
                (0..=9, _) if wild || !self.live.contains(&fresh) => {
                    records.push(alloc(
                        fresh,
                        [ApiKind::Malloc, ApiKind::New][fresh as usize >> 4 & 1],
                        false,
                    ));
                    self.live.push(fresh);
                }
                (10..=15, Some(addr)) => {
                    records.push(free(addr, [ApiKind::Free, ApiKind::Delete][addr as usize >> 4 & 1]));
                    self.live.swap_remove(place);
                }
                (16..=17, Some(addr)) => {
                    records.push(free(addr, ApiKind::ReallocFree));
                    records.push(alloc(addr, ApiKind::Realloc, true));
                }
                (18, Some(addr)) => {
                    records.push(free(addr, ApiKind::ReallocFree));
                    self.undo = Some(addr);
                }
                (_, None) if wild => records.push(free(fresh + random.below(2) * 8, ApiKind::Free)),
                _ => {}
            }
        }
        records
    }
}

fn encode(encoder: &mut Encoder, records: &[Record]) -> (State, Vec<u8>, u32) {
    let start = encoder.state;
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend_from_slice(encoder.record(record, &mut [0; MAX_RECORD]));
    }
    (start, bytes, records.iter().filter(|record| record.is_event()).count() as u32)
}

fn write(path: &Path, seed: u64, epochs: u64, threads: u32) {
    let options = WriterOptions { compression: Compression::None, ..WriterOptions::default() };
    let mut writer = Writer::create(path, &Meta::default(), options).unwrap();
    writer.clock(ClockPoint { stamp: 0, ns: 0 }).unwrap();
    writer.clock(ClockPoint { stamp: 1_000_000, ns: 700_000 }).unwrap();
    let mut random = Random(seed);
    let worker = |number| Worker { number, stamp: 1_000, ..Worker::default() };
    let mut workers: Vec<Worker> = (0..u64::from(threads)).map(worker).collect();
    for epoch in 0..epochs {
        for worker in &mut workers {
            let count = 40 + random.below(200);
            let records = worker.records(&mut random, count);
            let (start, payload, events) = encode(&mut worker.encoder, &records);
            let block = EventBlock { thread: worker.number as u32, events, start, payload: &payload };
            writer.events(&block).unwrap();
        }
        writer.end_epoch().unwrap();
        if epoch % 2 == 1 {
            writer.flush().unwrap();
        }
        // The next epoch is later.
        let latest = workers.iter().map(|worker| worker.stamp).max().unwrap_or(0);
        workers.iter_mut().for_each(|worker| worker.stamp = latest + 1);
    }
    writer.finish(&End { how: EndedHow::Exit, ..End::default() }).unwrap();
}

/// Appends keyframes at all group starts that have room; how many.
fn add_keyframes(path: &Path) -> usize {
    let trace = Trace::open(path).unwrap();
    let mut keyframes = Keyframes::at_least_apart(&trace, 1).expect("it has none");
    let mut heap = Replay::new(Options::default());
    Feed::new(trace.steps()).go_on_watched(&mut heap, Until::End, 0, &mut keyframes).unwrap();
    heap.finish();
    keyframes.append(&trace, &heap)
}

fn session(path: &Path) -> Session {
    Session::open(path, SessionOptions { leave_alone: true, ..SessionOptions::default() }).unwrap()
}

/// By step and from the start: the heap and the window, without any index.
fn brute(path: &Path, from: Until, to: Until) -> Replay {
    let trace = Trace::open(path).unwrap();
    let mut steps = trace.steps();
    let mut heap = Replay::new(Options::default());
    let (mut begun, mut seqno) = (from == Until::Start, 0);
    let mut latest = None;
    while let Some(step) = steps.next().unwrap() {
        if let Step::Event(event) = &step {
            if !begun && !from.includes(event.seqno, event.ns) {
                begun = true;
                if latest != Some(steps.epoch()) {
                    heap.barrier();
                }
                heap.begin_window(event.seqno);
            }
            if !to.includes(event.seqno, event.ns) {
                break;
            }
            seqno = event.seqno + 1;
        }
        latest = Some(steps.epoch());
        heap.feed_in(steps.epoch(), &step);
    }
    if !begun {
        heap.barrier();
        heap.begin_window(seqno);
    }
    heap.finish();
    heap
}

fn same(ours: &Replay, theirs: &Replay) -> Result<(), TestCaseError> {
    prop_assert_eq!(ours.totals(), theirs.totals());
    prop_assert_eq!(ours.live_set(), theirs.live_set());
    prop_assert_eq!(ours.threads(), theirs.threads());
    prop_assert_eq!(ours.errors(), theirs.errors());
    prop_assert_eq!(ours.sizes(), theirs.sizes());
    prop_assert_eq!(ours.lifetimes(), theirs.lifetimes());
    // The order of sites is of the heap's past.
    let sites = |heap: &Replay| {
        let mut sites: Vec<_> = heap
            .sites()
            .map(|s| (s.node, s.allocations, s.bytes, s.frees, s.temporary, s.live_bytes, s.peak_bytes))
            .collect();
        sites.sort_unstable();
        sites
    };
    prop_assert_eq!(sites(ours), sites(theirs));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn instants_and_windows_are_the_same_with_keyframes(
        seed in any::<u64>(),
        threads in 1u32..4,
        places in prop::collection::vec((0u64..1000, 0u64..1000, any::<bool>()), 6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (plain, framed) = (dir.path().join("plain.hwt"), dir.path().join("framed.hwt"));
        write(&plain, seed, 12, threads);
        std::fs::copy(&plain, &framed).unwrap();
        add_keyframes(&framed);
        let events = Trace::open(&plain).unwrap().event_count();
        let ns = Trace::open(&framed).unwrap().to_ns(1_000 + events);
        for (a, b, by_time) in places {
            let (a, b) = (a.min(b), a.max(b));
            let at = |part: u64| match by_time {
                true => Until::Ns(ns * part / 1000),
                false => Until::Seqno(events * part / 1000),
            };
            let heap = brute(&plain, at(a), at(b));
            let live = brute(&plain, Until::Start, at(b)).live_set();
            for path in [&plain, &framed] {
                let mut session = session(path);
                same(&session.window(at(a), at(b)).unwrap(), &heap)?;
                prop_assert_eq!(session.live_at(at(b)).unwrap(), live.clone());
            }
        }
    }
}

#[test]
fn keyframes_are_used_and_leave_the_file_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 3, 40, 1);
    let before = std::fs::read(&path).unwrap();
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let count = add_keyframes(&path);
    assert!(count > 0);
    let after = std::fs::read(&path).unwrap();
    assert!(after.starts_with(&before), "a trace only grows");
    assert!((after.len() - before.len()) * 4 <= after.len() + 4096);
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), modified);
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.warnings(), []);
    assert_eq!(trace.keyframes().count(), count);
    assert!(!trace.wants_keyframes());
    // Groups before the last one are never looked at.
    let last = trace.keyframes().last().unwrap();
    let entry = trace.keyframe_before(u64::MAX).unwrap().unwrap();
    let mut heap = Replay::resume(Options::default(), &entry).unwrap();
    let mut feed = Feed::new(trace.steps_from(entry.seqno));
    assert!(last > 0);
    assert_eq!(feed.seqno(), last);
    feed.go_on(&mut heap, Until::End, 0).unwrap();
    heap.finish();
    assert_eq!(heap.live_set(), session(&path).replay().unwrap().live_set());
}

#[test]
fn an_append_that_was_cut_takes_nothing_from_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (path, cut) = (dir.path().join("a.hwt"), dir.path().join("cut.hwt"));
    write(&path, 5, 24, 2);
    let before = std::fs::read(&path).unwrap().len();
    let totals = session(&path).replay().unwrap().totals();
    assert!(add_keyframes(&path) > 0);
    let bytes = std::fs::read(&path).unwrap();
    let step = ((bytes.len() - before) / 97).max(1);
    for len in (before..bytes.len()).step_by(step).chain([before + 1, bytes.len() - 1]) {
        std::fs::write(&cut, &bytes[..len]).unwrap();
        let trace = Trace::open(&cut).unwrap();
        assert_eq!(trace.warnings(), [], "cut at {len}");
        let mut session = session(&cut);
        assert_eq!(session.replay().unwrap().totals(), totals, "cut at {len}");
        assert_eq!(session.live_at(Until::End).unwrap().len() as u64, totals.live_blocks);
    }
}

#[test]
fn nothing_is_appended_while_another_is_at_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 5, 24, 1);
    let lock = std::fs::File::open(&path).unwrap();
    lock.lock().unwrap();
    assert_eq!(add_keyframes(&path), 0);
    drop(lock);
    assert!(add_keyframes(&path) > 0);
}
