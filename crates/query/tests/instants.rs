//! Instants and windows of a trace with keyframes are those of a trace without,
//! and those of a replay from the start.

mod common;
#[path = "instants/large_heap.rs"]
mod large_heap;

use std::path::Path;

use common::{extend, options, session, write, write_sample};
use highwater_replay::outcome::{RULES, SoFar};
use highwater_replay::{Feed, Options, Replay, Until};
use highwater_trace::model::Step;
use highwater_trace::{Appended, Entry, Trace};
use proptest::prelude::*;

/// By step and from the start: the heap and the window, without any index.
fn brute(path: &Path, from: Until, to: Until) -> Replay {
    let trace = Trace::open(path).unwrap();
    let mut steps = trace.steps();
    let mut heap = Replay::new(options(&trace));
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

/// The places at which a trace says what was counted up to there.
fn with_totals(trace: &Trace) -> Vec<Entry> {
    let options = options(trace);
    let read = |entry: &Entry| trace.totals_at(entry, RULES).unwrap();
    let sound = |entry: &Entry| read(entry).and_then(|bytes| SoFar::decode(&bytes, &options)).is_some();
    trace.entries_before(u64::MAX).filter(sound).collect()
}

#[test]
fn what_was_counted_before_an_instant_is_read_and_not_counted_again() {
    for (seed, sample) in [(21, 0), (22, 0), (23, 200)] {
        let dir = tempfile::tempdir().unwrap();
        let (plain, framed) = (dir.path().join("plain.hwt"), dir.path().join("framed.hwt"));
        write_sample(&plain, seed, 60, 2, sample);
        std::fs::copy(&plain, &framed).unwrap();
        extend(&framed);
        let entries = with_totals(&Trace::open(&framed).unwrap());
        assert!(entries.iter().filter(|entry| entry.differs).count() > 2, "{entries:?}");
        assert!(entries.iter().filter(|entry| !entry.differs).count() > 0, "{entries:?}");
        // No event before the last of them can be read.
        let last = entries.first().unwrap().seqno;
        let mut bytes = std::fs::read(&framed).unwrap();
        let len = std::fs::metadata(&plain).unwrap().len() as usize;
        let mut before = 0;
        for (at, kind) in blocks_of(&bytes[..len], 0, &[4, 5]) {
            match kind {
                4 => before = u64::from_le_bytes(bytes[at + 32..at + 40].try_into().unwrap()),
                _ if before < last => bytes[at + 64] ^= 0xff,
                _ => {}
            }
        }
        std::fs::write(&framed, bytes).unwrap();
        let events = Trace::open(&plain).unwrap().event_count();
        for at in [last, (last + events) / 2, events - 2] {
            let at = Until::Seqno(at);
            let truth = brute(&plain, Until::Start, at);
            let mut ours = session(&framed);
            let heap = ours.window(Until::Start, at).unwrap();
            assert_eq!(heap.outcome(), truth.outcome());
            assert_eq!(heap.live_set(), truth.live_set());
            let mut heap = ours.replay_until(at).unwrap();
            heap.finish();
            assert_eq!(heap.outcome(), truth.outcome());
            assert_eq!(ours.facts().warnings, [""; 0]);
        }
    }
}

#[test]
fn totals_that_are_damaged_or_of_another_heap_are_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 24, 40, 2);
    let len = std::fs::metadata(&path).unwrap().len() as usize;
    let until = Until::Seqno(Trace::open(&path).unwrap().event_count() - 2);
    let truth = brute(&path, Until::Start, until).outcome();
    extend(&path);
    let sound = std::fs::read(&path).unwrap();
    let all = blocks_of(&sound, len, &[12]);
    assert!(all.len() > 3);
    for (at, _) in all {
        let mut bytes = sound.clone();
        bytes[at + 70] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(session(&path).window(Until::Start, until).unwrap().outcome(), truth);
        let mut trace = Trace::open(&path).unwrap();
        trace.verify().unwrap();
        let warnings: Vec<String> = trace.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [format!("damaged block at offset {at} (totals at a keyframe): it cannot be read")]
        );
    }
    // Those of one place with the heap of another.
    std::fs::write(&path, &sound).unwrap();
    let trace = Trace::open(&path).unwrap();
    let entries = with_totals(&trace);
    let so_far = |entry: &Entry| {
        SoFar::decode(&trace.totals_at(entry, RULES).unwrap().unwrap(), &Options::default()).unwrap()
    };
    let counted = |entry: &Entry, so_far| {
        let mut keyframe = trace.enter(entry).unwrap().unwrap();
        Replay::resume_counted(Options::default(), &mut keyframe, so_far).unwrap()
    };
    assert_eq!(counted(&entries[0], so_far(&entries[0])).unwrap().so_far(), so_far(&entries[0]));
    assert!(counted(&entries[0], so_far(&entries[1])).is_none());
    assert!(counted(&entries[0], SoFar::default()).is_none());
    let other = Options { remember_freed: 5, ..Options::default() };
    assert_eq!(SoFar::decode(&trace.totals_at(&entries[0], RULES).unwrap().unwrap(), &other), None);
    assert_eq!(trace.totals_at(&entries[0], RULES + 1).unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn instants_and_windows_are_the_same_with_keyframes(
        seed in any::<u64>(),
        threads in 1u32..4,
        sample in 0u64..3,
        places in prop::collection::vec((0u64..1000, 0u64..1000, any::<bool>()), 6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (plain, framed) = (dir.path().join("plain.hwt"), dir.path().join("framed.hwt"));
        write_sample(&plain, seed, 12, threads, sample * 100);
        std::fs::copy(&plain, &framed).unwrap();
        extend(&framed);
        let events = Trace::open(&plain).unwrap().event_count();
        let ns = Trace::open(&framed).unwrap().to_ns(1_000 + events);
        for (a, b, by_time) in places {
            let (a, b) = (a.min(b), a.max(b));
            let at = |part: u64| match by_time {
                true => Until::Ns(ns * part / 1000),
                false => Until::Seqno(events * part / 1000),
            };
            let heap = brute(&plain, at(a), at(b));
            let all = brute(&plain, Until::Start, at(b));
            for path in [&plain, &framed] {
                let mut session = session(path);
                same(&session.window(at(a), at(b)).unwrap(), &heap)?;
                prop_assert_eq!(session.live_at(at(b)).unwrap(), all.live_set());
                // From the start every figure is the same, to the last one.
                let ours = session.window(Until::Start, at(b)).unwrap();
                prop_assert_eq!(ours.outcome(), all.outcome());
                prop_assert_eq!(ours.live_set(), all.live_set());
                let mut ours = session.replay_until(at(b)).unwrap();
                ours.finish();
                prop_assert_eq!(ours.outcome(), all.outcome());
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
    let Appended { keyframes: count, outcome, .. } = extend(&path);
    assert!(count > 0 && outcome);
    let after = std::fs::read(&path).unwrap();
    assert!(after.starts_with(&before), "a trace only grows");
    let stored = |at: usize| u32::from_le_bytes(after[at + 12..at + 16].try_into().unwrap()) as usize;
    let of = |kinds: &[u8]| -> usize {
        blocks_of(&after, before.len(), kinds).iter().map(|(at, _)| 64 + stored(*at)).sum()
    };
    // Keyframes and what belongs to them together, the outcome, and the evidence.
    for kinds in [&[6, 11, 12, 13][..], &[9], &[10]] {
        assert!(of(kinds) > 0 && of(kinds) * 4 <= after.len(), "{kinds:?}");
    }
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), modified);
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.warnings(), []);
    assert_eq!(trace.keyframes().count(), count);
    assert!(!trace.wants_keyframes());
    // Groups before the last one are never looked at.
    let last = trace.keyframes().last().unwrap();
    let entry = trace.entries_before(u64::MAX).next().unwrap();
    let mut keyframe = trace.enter(&entry).unwrap().unwrap();
    let mut heap = Replay::resume(Options::default(), &mut keyframe).unwrap().unwrap();
    let mut feed = Feed::new(trace.steps_from(entry.seqno));
    assert!(last > 0);
    assert_eq!(feed.seqno(), last);
    feed.go_on(&mut heap, Until::End, 0).unwrap();
    heap.finish();
    assert_eq!(heap.live_set(), session(&path).replay().unwrap().live_set());
}

/// Where the blocks of these kinds are that were appended behind `len` bytes.
fn blocks_of(bytes: &[u8], len: usize, kinds: &[u8]) -> Vec<(usize, u8)> {
    let its = |at: usize| bytes[at..].starts_with(b"\xb7HWB") && kinds.contains(&bytes[at + 4]);
    (len..bytes.len() - 64).filter(|&at| its(at)).map(|at| (at, bytes[at + 4])).collect()
}

#[test]
fn a_damaged_keyframe_and_all_that_differs_from_it_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let (path, plain) = (dir.path().join("a.hwt"), dir.path().join("plain.hwt"));
    write(&path, 6, 30, 2);
    std::fs::copy(&path, &plain).unwrap();
    let len = std::fs::metadata(&path).unwrap().len() as usize;
    extend(&path);
    let sound = std::fs::read(&path).unwrap();
    let instants: Vec<u64> = Trace::open(&path).unwrap().keyframes().collect();
    let lives = |path: &Path, seqno: u64| session(path).live_at(Until::Seqno(seqno)).unwrap();
    let truth: Vec<_> = instants.iter().map(|&seqno| lives(&plain, seqno)).collect();
    let blocks = blocks_of(&sound, len, &[6, 11, 13]);
    for kind in [6, 11, 13] {
        assert!(blocks.iter().any(|block| block.1 == kind), "{blocks:?}");
    }
    for (at, kind) in blocks {
        // In the header, behind it, and in the last byte.
        let stored = u32::from_le_bytes(sound[at + 12..at + 16].try_into().unwrap()) as usize;
        for place in [at + 40, at + 64, at + 63 + stored] {
            let mut bytes = sound.clone();
            bytes[place] ^= 0x20;
            std::fs::write(&path, &bytes).unwrap();
            for (&seqno, truth) in instants.iter().zip(&truth) {
                assert_eq!(&lives(&path, seqno), truth, "byte {place} of a block of kind {kind}");
            }
            let mut trace = Trace::open(&path).unwrap();
            trace.verify().unwrap();
            let name = match kind {
                6 => "keyframe",
                11 => "difference of keyframes",
                _ => "base of differences",
            };
            let warnings: Vec<String> = trace.warnings().iter().map(ToString::to_string).collect();
            assert_eq!(warnings, [format!("damaged block at offset {at} ({name}): it cannot be read")]);
        }
    }
    // Where the index is lost they are found all the same.
    std::fs::write(&path, &sound[..sound.len() - 20]).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert!(trace.keyframes().eq(instants.iter().copied()));
    for (&seqno, truth) in instants.iter().zip(&truth) {
        assert_eq!(&lives(&path, seqno), truth);
    }
}

#[test]
fn an_append_that_was_cut_takes_nothing_from_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (path, cut) = (dir.path().join("a.hwt"), dir.path().join("cut.hwt"));
    write(&path, 5, 24, 2);
    let before = std::fs::read(&path).unwrap().len();
    let totals = session(&path).replay().unwrap().totals();
    assert!(extend(&path).keyframes > 0);
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
    assert_eq!(extend(&path), Appended::default());
    drop(lock);
    assert!(extend(&path).keyframes > 0);
}
