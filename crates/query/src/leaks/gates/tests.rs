use highwater_event::api::ApiKind;
use highwater_trace::model::Op;

use super::super::budget::Whose;
use super::*;
use crate::session::made::Made;
use crate::stack::function;

fn made() -> Made {
    Made::default()
        .node(1, 0, "main", "/src/main.c", 3)
        .node(2, 1, "parse", "/src/parse.c", 7)
        .alloc(0, 0x10, 100, 1)
        .alloc(0, 0x200, 50, 2)
        .free(0, 0x200)
}

fn gates(made: Made, wanted: &Wanted) -> Vec<Gate> {
    let mut session = made.session();
    let found = session.outcome().unwrap();
    check(&mut session, &found, wanted, &Suppressions::default()).unwrap()
}

/// Name, value, verdict, and the function that is named first.
fn verdicts(gates: &[Gate]) -> Vec<(&str, u64, bool, Option<&str>)> {
    let site = |gate: &Gate| -> Option<&'static str> {
        let frame = gate.sites.first()?.stack.site()?;
        match function(frame) {
            Some("main") => Some("main"),
            Some("parse") => Some("parse"),
            _ => Some("another"),
        }
    };
    gates.iter().map(|gate| (gate.name, gate.value, gate.passed(), site(gate))).collect()
}

#[test]
fn a_limit_itself_passes_and_one_more_does_not() {
    let limits = |peak, leak, allocs, temporary| Wanted {
        limits: Limits {
            max_peak: Some(peak),
            max_leak: Some(leak),
            max_allocs: Some(allocs),
            max_temporary: Some(temporary),
        },
        ..Wanted::default()
    };
    let expected = |passed| {
        [
            ("max-peak", 150, passed, Some("main")),
            ("max-leak", 100, passed, Some("main")),
            ("max-allocs", 2, passed, Some("main")),
            ("max-temporary", 1, passed, Some("parse")),
        ]
    };
    assert_eq!(verdicts(&gates(made(), &limits(150, 100, 2, 1))), expected(true));
    let tight = limits(149, 99, 1, 0);
    assert_eq!(verdicts(&gates(made(), &tight)), expected(false));
    // With a tolerance of one they pass again.
    let wide = Wanted { tolerance: Some(Tolerance::Amount(1)), ..tight };
    assert_eq!(verdicts(&gates(made(), &wide)), expected(true));
    assert!(Wanted::default().is_empty() && !wide.is_empty());
}

#[test]
fn a_site_has_limits_of_its_own() {
    let budget = |pattern: &str, limits| SiteBudget {
        whose: Whose { function: Some(pattern.to_string()), ..Whose::default() },
        limits,
    };
    let limits = Limits { max_peak: Some(50), max_leak: Some(0), ..Limits::default() };
    let wanted = Wanted {
        sites: vec![budget("parse", limits), budget("ma*", limits), budget("nobody", limits)],
        ..Wanted::default()
    };
    let gates = gates(made(), &wanted);
    assert_eq!(
        verdicts(&gates),
        [
            ("max-peak", 50, true, Some("parse")),
            ("max-leak", 0, true, None),
            ("max-peak", 100, false, Some("main")),
            ("max-leak", 100, false, Some("main")),
            ("max-peak", 0, true, None),
            ("max-leak", 0, true, None),
        ]
    );
    assert_eq!(gates[2].of.as_deref(), Some("function ma*"));
}

#[test]
fn what_a_baseline_has_does_not_fail_and_what_is_new_does() {
    let mut session = made().session();
    let found = session.outcome().unwrap();
    let baseline = Baseline::of(&mut session, &found, &Suppressions::default());
    let wanted = Wanted { baseline: Some(baseline), ..Wanted::default() };
    assert_eq!(verdicts(&gates(made(), &wanted)), [("baseline", 0, true, None)]);
    let more = || made().alloc(0, 0x300, 7, 2);
    assert_eq!(verdicts(&gates(more(), &wanted)), [("baseline", 7, false, Some("parse"))]);
    // With a tolerance the totals count too, and a known leak that has grown.
    let strict = Wanted { tolerance: Some(Tolerance::Percent(4.0)), ..wanted.clone() };
    assert_eq!(
        verdicts(&gates(made().alloc(0, 0x300, 20, 1), &strict)),
        [
            ("baseline", 120, false, Some("main")),
            ("baseline-peak", 150, true, Some("main")),
            ("baseline-allocs", 3, false, Some("main")),
            ("baseline-temporary", 1, true, Some("parse")),
        ]
    );
    // What is known does not count in other gates of leaks either.
    let both = Wanted {
        limits: Limits { max_leak: Some(0), ..Limits::default() },
        findings: vec![Finding::LeakExit],
        ..wanted
    };
    assert!(gates(made(), &both).iter().all(Gate::passed));
}

#[test]
fn findings_fail_and_what_cannot_be_known_does_not_pass() {
    let all: Vec<Finding> = ["leak", "leak=window", "leak=definite", "error"]
        .iter()
        .flat_map(|word| word.parse::<FailOn>().unwrap().0)
        .collect();
    let wanted = Wanted { findings: all, ..Wanted::default() };
    let bad = made().event(0, 0x200, Op::Free, ApiKind::Free, 2, None);
    let gates = gates(bad, &wanted);
    assert_eq!(
        verdicts(&gates),
        [
            ("leak=exit", 100, false, Some("main")),
            ("leak=window", 0, false, None),
            ("leak=definite", 0, false, None),
            ("double_free", 1, false, Some("parse")),
            ("invalid_free", 0, true, None),
            ("mismatched", 0, true, None),
        ]
    );
    assert!(gates[1].unknown.as_ref().unwrap().contains("no marks"));
    assert!(gates[2].unknown.as_ref().unwrap().contains("not scanned"));
    let none = unknown(&wanted, "nothing was recorded");
    assert_eq!(none.len(), 6);
    assert!(none.iter().all(|gate| !gate.passed()));
}

#[test]
fn a_leaked_block_of_no_bytes_is_a_leak() {
    let wanted = Wanted { findings: vec![Finding::LeakExit], ..Wanted::default() };
    let made = Made::default().node(1, 0, "main", "/src/main.c", 3).alloc(0, 0x10, 0, 1);
    assert_eq!(verdicts(&gates(made, &wanted)), [("leak=exit", 1, false, Some("main"))]);
}

#[test]
fn a_site_that_grows_all_the_time_fails_and_one_that_goes_up_and_down_does_not() {
    let wanted = Wanted { findings: vec![Finding::LeakGrowth], ..Wanted::default() };
    let run = |leaks: bool| {
        let mut made = Made::default().node(1, 0, "main", "/src/main.c", 3).node(2, 1, "parse", "/p.c", 7);
        for at in 0..3000u64 {
            made = made.alloc(0, 0x10, 100, 1).free(0, 0x10);
            made = made.alloc(0, 0x1000 + at * 64, 32, 2);
            if !leaks {
                made = made.free(0, 0x1000 + at * 64);
            }
        }
        gates(made, &wanted)
    };
    assert_eq!(verdicts(&run(false)), [("leak=growth", 0, true, None)]);
    let grown = run(true);
    let [("leak=growth", value, false, Some("parse"))] = verdicts(&grown)[..] else { panic!("{grown:?}") };
    assert!(value > 0);
}

#[test]
fn growth_passed_in_a_run_that_was_too_short_to_see_any() {
    let wanted = Wanted { findings: vec![Finding::LeakGrowth], ..Wanted::default() };
    let short = gates(made(), &wanted);
    assert!(!short[0].passed());
    assert_eq!(short[0].unknown.as_deref(), Some("too few events to see anything grow"));
    // Of which nothing is left: that has not grown.
    let empty = gates(made().free(0, 0x10), &wanted);
    assert!(empty[0].passed(), "{empty:?}");
}

#[test]
fn words_of_fail_on_are_read() {
    assert_eq!("leak".parse(), Ok(FailOn(vec![Finding::LeakExit])));
    assert_eq!("any".parse::<FailOn>().unwrap().0.len(), 4);
    assert_eq!("mismatched, leak=growth".parse::<FailOn>().unwrap().0.len(), 2);
    assert!("leaks".parse::<FailOn>().unwrap_err().contains("there are leak,"));
    assert!("".parse::<FailOn>().is_err());
}
