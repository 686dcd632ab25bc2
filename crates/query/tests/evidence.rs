//! What leaks are ranked by is read from the trace again: the ranking is the same, no
//! event is read for it, and what is not to be trusted is not used.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{extend, session, write};
use highwater_query::Session;
use highwater_query::leaks::evidence::{Evidence, Slicing};
use highwater_query::leaks::growth::Trend;
use highwater_query::leaks::rank::{Findings, Method, Options, rank};
use highwater_query::leaks::suppressions::Suppressions;
use highwater_replay::evidence::RULES;
use highwater_trace::{Appended, Kept, Trace};
use proptest::prelude::*;

/// Where the evidence's block is, and what stands behind it.
fn place(path: &Path) -> (usize, usize) {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let index = word(bytes.len() - 16) as usize;
    (word(index + 16) as usize, index)
}

/// The rankings by each method and trend.
fn seen(session: &mut Session) -> Vec<String> {
    let evidence = Evidence::collect(session, Slicing::Events).unwrap();
    let methods = Method::EACH.into_iter().chain([Method::All]).map(|method| (method, Trend::Own));
    let all = methods.chain([(Method::Growth, Trend::Edleak), (Method::All, Trend::EdkitLogistic)]);
    let rules = Suppressions::default();
    let ranked = all.map(|(method, trend)| {
        let options = Options { method, trend, limit: Some(1 << 20), ..Options::default() };
        format!("{:?}", rank(session, &evidence, &Findings::default(), &rules, &options))
    });
    ranked.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_trace_ranks_the_same_with_its_evidence(seed in any::<u64>(), threads in 1u32..4) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.hwt");
        write(&path, seed, 30, threads);
        let mut first = session(&path);
        let (truth, before) = (first.evidence().unwrap(), seen(&mut first));
        prop_assert!(truth.slices.len() >= 64 && truth.sites.iter().any(|site| site.held.is_some()));
        prop_assert!(extend(&path).evidence);
        let mut again = session(&path);
        prop_assert_eq!(again.evidence().unwrap(), truth);
        prop_assert_eq!(seen(&mut again), before);
    }
}

#[test]
fn no_event_is_read_for_a_ranking() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 21, 40, 2);
    let len = std::fs::metadata(&path).unwrap().len() as usize;
    let before = seen(&mut session(&path));
    assert!(extend(&path).evidence);
    let mut bytes = std::fs::read(&path).unwrap();
    let blocks: Vec<usize> = (0..len - 64).filter(|&at| bytes[at..].starts_with(b"\xb7HWB\x05")).collect();
    assert!(blocks.len() > 10);
    blocks.iter().for_each(|at| bytes[at + 64] ^= 0xff);
    std::fs::write(&path, bytes).unwrap();
    let mut session = session(&path);
    assert_eq!(seen(&mut session), before);
    assert_eq!(session.facts().warnings, [""; 0]);
    // Slices of time need the events.
    Evidence::collect(&mut session, Slicing::Period(1000)).unwrap();
    assert!(session.facts().warnings[0].contains("(events)"), "{:?}", session.facts().warnings);
}

#[test]
fn evidence_that_is_damaged_is_not_used_and_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 22, 30, 2);
    let before = seen(&mut session(&path));
    assert!(extend(&path).evidence);
    let (from, to) = place(&path);
    let sound = std::fs::read(&path).unwrap();
    assert!(to - from > 200);
    for at in (from..to).step_by((to - from) / 12) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Trace::open(&path).unwrap().kept(Kept::Evidence, RULES).unwrap(), None, "byte {at}");
        assert_eq!(seen(&mut session(&path)), before, "byte {at}");
    }
    let mut trace = Trace::open(&path).unwrap();
    trace.verify().unwrap();
    let warnings: Vec<String> = trace.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings, [format!("damaged block at offset {from} (evidence): it cannot be read")]);
    assert_eq!(extend(&path), Appended { keyframes: 0, outcome: false, evidence: true });
    assert!(Trace::open(&path).unwrap().kept(Kept::Evidence, RULES).unwrap().is_some());
    assert_eq!(seen(&mut session(&path)), before);
    // A reader that goes from block to block finds it too.
    let mut bytes = std::fs::read(&path).unwrap();
    let len = bytes.len();
    bytes[len - 16] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(seen(&mut session(&path)), before);
}

#[test]
fn evidence_by_other_rules_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 23, 30, 2);
    let truth = session(&path).evidence().unwrap();
    let options = session(&path).replay_options();
    let append = |rules: u32| {
        let trace = Trace::open(&path).unwrap();
        let nothing = highwater_replay::Evidence::default().encode(&options).unwrap();
        let packed = trace.pack(Kept::Evidence, rules, &nothing).unwrap();
        assert!(trace.append(&[], &[packed]).evidence);
    };
    assert!(extend(&path).evidence);
    let sound = std::fs::read(&path).unwrap();
    // It would be used if it were by these rules.
    append(RULES);
    assert_eq!(session(&path).evidence().unwrap(), Arc::default());
    for (rules, wanted) in [(RULES - 1, true), (RULES + 1, false)] {
        std::fs::write(&path, &sound).unwrap();
        append(rules);
        assert_eq!(session(&path).evidence().unwrap(), truth, "{rules}");
        assert_eq!(Trace::open(&path).unwrap().wants(Kept::Evidence, RULES), wanted, "{rules}");
    }
}

/// Evidence is as untrusted as the rest of a file: what is in it is ranked, whatever it
/// says.
#[test]
fn evidence_that_is_not_true_makes_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hwt");
    write(&path, 24, 30, 2);
    assert!(extend(&path).evidence);
    let sound = std::fs::read(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    let truth = trace.kept(Kept::Evidence, RULES).unwrap().unwrap();
    let mut random = common::Random(5);
    let (mut used, mut unused) = (0, 0);
    for _ in 0..120 {
        let mut bytes = truth.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            // Now and then a very great number.
            match random.below(3) {
                0 => drop(bytes.splice(at..=at, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1])),
                _ => bytes[at] ^= 1 << random.below(7),
            }
        }
        std::fs::write(&path, &sound).unwrap();
        let trace = Trace::open(&path).unwrap();
        let packed = trace.pack(Kept::Evidence, RULES, &bytes).unwrap();
        assert!(trace.append(&[], &[packed]).evidence);
        let sites = trace.kept(Kept::Outcome, highwater_replay::outcome::RULES).unwrap().map_or(0, |_| 6);
        let read = highwater_replay::Evidence::decode(&bytes, &session(&path).replay_options(), sites);
        if read.is_some() {
            used += 1
        } else {
            unused += 1
        }
        seen(&mut session(&path));
    }
    assert!(used > 10 && unused > 10, "{used} {unused}");
}
