//! What a replay has found is read from the trace again: it is the same, no event is
//! read for it, and what is not to be trusted is not used.

mod common;

use std::path::Path;

use common::{extend, session, write};
use highwater_query::{Ask, By, Filter, Metric, Session, SessionOptions, Survey};
use highwater_replay::outcome::RULES;
use highwater_replay::{Options, Outcome, Replay, Until};
use highwater_trace::{Appended, Kept, Trace};
use proptest::prelude::*;

/// By step, from the start.
fn brute(path: &Path) -> Outcome {
    let trace = Trace::open(path).unwrap();
    let mut steps = trace.steps();
    let heap = Replay::run(Options::default(), || steps.next().map(|s| s.map(|s| (steps.epoch(), s))));
    heap.unwrap().outcome()
}

/// Where the outcome's block is, and where the evidence's, which stands behind it.
fn place(path: &Path) -> (usize, usize) {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let index = word(bytes.len() - 16) as usize;
    (word(index + 40) as usize, word(index + 16) as usize)
}

/// Makes every block of events unreadable.
fn damage_events(path: &Path, len: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let mut blocks = 0;
    for at in 0..len - 64 {
        if bytes[at..].starts_with(b"\xb7HWB\x05") {
            bytes[at + 64] ^= 0xff;
            blocks += 1;
        }
    }
    assert!(blocks > 10, "{blocks}");
    std::fs::write(path, bytes).unwrap();
}

/// What views make of it.
fn seen(session: &mut Session) -> Vec<String> {
    let mut filter = Filter::default();
    filter.add("size=64..").unwrap();
    let asks = [
        Ask::default(),
        Ask { by: By::Stack, metric: Some(Metric::Peak), ..Ask::default() },
        Ask { by: By::Thread, ..Ask::default() },
        Ask { filter, ..Ask::default() },
        Ask { to: Until::Seqno(500), ..Ask::default() },
    ];
    asks.iter().map(|ask| format!("{:?}", Survey::of(session, ask).unwrap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_trace_says_the_same_with_its_outcome(seed in any::<u64>(), threads in 1u32..4) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.hwt");
        write(&path, seed, 12, threads);
        let (truth, before) = (brute(&path), seen(&mut session(&path)));
        prop_assert!(extend(&path).outcome);
        let mut session = session(&path);
        prop_assert_eq!(&*session.outcome().unwrap(), &truth);
        prop_assert_eq!(seen(&mut session), before);
    }
}

#[test]
fn no_event_is_read_for_what_is_known_of_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 11, 40, 2);
    let len = std::fs::metadata(&path).unwrap().len() as usize;
    let truth = brute(&path);
    assert!(extend(&path).outcome);
    damage_events(&path, len);
    let mut session = session(&path);
    assert_eq!(*session.outcome().unwrap(), truth);
    assert_eq!(
        session.instant(&highwater_query::Instant::Peak).unwrap(),
        Until::Seqno(truth.totals().peak_seqno)
    );
    assert_eq!(session.facts().warnings, [""; 0]);
    // Who reads the events sees that they are damaged.
    assert_eq!(session.replay().unwrap().totals().allocations, 0);
    assert!(session.facts().warnings[0].contains("(events)"), "{:?}", session.facts().warnings);
}

#[test]
fn a_damaged_outcome_is_not_used_and_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 12, 30, 2);
    let truth = brute(&path);
    assert!(extend(&path).outcome);
    let (from, to) = place(&path);
    let sound = std::fs::read(&path).unwrap();
    assert!(to - from > 200);
    for at in (from..to).step_by((to - from) / 24) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, bytes).unwrap();
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.kept(Kept::Outcome, RULES).unwrap(), None, "byte {at}");
        assert_eq!(*session(&path).outcome().unwrap(), truth, "byte {at}");
    }
    let mut trace = Trace::open(&path).unwrap();
    trace.verify().unwrap();
    let warnings: Vec<String> = trace.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings, [format!("damaged block at offset {from} (outcome): it cannot be read")]);
    assert_eq!(extend(&path), Appended { keyframes: 0, outcome: true, evidence: false });
    assert!(Trace::open(&path).unwrap().kept(Kept::Outcome, RULES).unwrap().is_some());
    assert_eq!(*session(&path).outcome().unwrap(), truth);
}

/// Appends an outcome that is not true.
fn append_wrong(path: &Path, rules: u32, bytes: Option<Vec<u8>>) {
    let trace = Trace::open(path).unwrap();
    let bytes = bytes.unwrap_or_else(|| Outcome::default().encode(&Options::default()));
    let packed = trace.pack(Kept::Outcome, rules, &bytes).unwrap();
    assert!(trace.append(&[], &[packed]).outcome);
}

#[test]
fn an_outcome_by_other_rules_or_options_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 13, 30, 2);
    let plain = std::fs::read(&path).unwrap();
    let truth = brute(&path);
    // It would be used if it were by these rules.
    append_wrong(&path, RULES, None);
    assert_eq!(*session(&path).outcome().unwrap(), Outcome::default());
    // Earlier ones are replaced, later ones left to the program that knows them.
    for (rules, wanted) in [(RULES - 1, true), (RULES + 1, false)] {
        std::fs::write(&path, &plain).unwrap();
        append_wrong(&path, rules, None);
        assert_eq!(*session(&path).outcome().unwrap(), truth, "{rules}");
        assert_eq!(Trace::open(&path).unwrap().wants(Kept::Outcome, RULES), wanted, "{rules}");
    }
    std::fs::write(&path, &plain).unwrap();
    let other = Options { remember_freed: 5, ..Options::default() };
    append_wrong(&path, RULES, Some(Outcome::default().encode(&other)));
    assert_eq!(*session(&path).outcome().unwrap(), truth);
    let mut session = Session::open(
        &path,
        SessionOptions { replay: other, leave_alone: true, ..SessionOptions::default() },
    )
    .unwrap();
    assert_eq!(*session.outcome().unwrap(), Outcome::default());
}

#[test]
fn an_outcome_larger_than_a_quarter_of_the_file_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 14, 4, 1);
    let trace = Trace::open(&path).unwrap();
    let size = trace.file_size();
    let mut random = common::Random(3);
    let mut noise = |len: u64| -> Vec<u8> { (0..len).map(|_| random.below(256) as u8).collect() };
    assert!(trace.pack(Kept::Outcome, RULES, &noise(size / 3 - 64)).is_some());
    assert!(trace.pack(Kept::Outcome, RULES, &noise(size / 3 - 63)).is_none());
    // However well it packs: what unpacks to more than the file is not read.
    assert!(trace.pack(Kept::Outcome, RULES, &vec![0; size as usize]).is_some());
    assert!(trace.pack(Kept::Outcome, RULES, &vec![0; size as usize + 1]).is_none());
}

#[test]
fn a_trace_with_a_warning_has_no_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 15, 30, 1);
    assert!(extend(&path).outcome);
    let mut bytes = std::fs::read(&path).unwrap();
    // The end record.
    bytes[32 + 64 + 2] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert!(!trace.warnings().is_empty() && !trace.wants(Kept::Outcome, RULES + 1));
    assert_eq!(trace.kept(Kept::Outcome, RULES).unwrap(), None);
}
