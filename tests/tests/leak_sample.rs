//! Leaks in recordings that have only a part of the events: a sample, or what is
//! alive at the end.

use highwater_tests::corpus::{Scenario, scenarios};
use highwater_tests::highwater::record_with;
use highwater_tests::{Highwater, Recorded};
use serde_json::Value;

fn scenario(name: &str) -> &'static Scenario {
    scenarios().iter().find(|scenario| scenario.name == name).expect("a scenario of this name")
}

fn record(options: &[&str], name: &str) -> Recorded {
    let scenario = scenario(name);
    record_with(options, |child| child.arg("--").arg(&scenario.program).arg(name)).expect_code(0)
}

#[track_caller]
fn leaks(recorded: &Recorded, key: &str) -> Vec<Value> {
    Highwater::json(&["leaks"], &recorded.trace)[key].as_array().expect("a list").clone()
}

#[test]
fn a_leak_keeps_its_verdict_in_a_sample() {
    for (name, verdict) in [("loop", "GROWTH"), ("map_grows", "GROWTH"), ("error_path", "LEAK")] {
        let recorded = record(&["-q", "--sample", "128"], name);
        let found = leaks(&recorded, "suspects");
        assert_eq!(scenario(name).place(&found), Some(1), "{name}: {found:#?}");
        assert_eq!(found[0]["verdict"], verdict, "{name}");
    }
}

#[test]
fn a_clean_program_has_no_suspect_however_small_the_sample_is() {
    for rate in ["512", "64k"] {
        for name in ["cache_fills", "lru", "pool", "sawtooth_open_end", "start_up_tables", "heavy_tail"] {
            let recorded = record(&["-q", "--sample", rate], name);
            let found = leaks(&recorded, "suspects");
            assert!(found.is_empty(), "{name} with one of {rate}: {found:#?}");
        }
    }
}

#[test]
fn a_handful_of_samples_was_taken_for_a_short_run_and_all_of_it_for_a_leak() {
    // Its three blocks of 100,000 bytes are hardly all missing, of the small ones few
    // are there.
    let recorded = record(&["-q", "--sample", "32k"], "phases");
    let found = leaks(&recorded, "suspects");
    assert!(found.is_empty(), "{found:#?}");
    let kept = leaks(&recorded, "folded");
    let reason = kept.iter().find(|site| site["function"] == "phases").map(|site| &site["reason"]);
    assert_eq!(reason.and_then(Value::as_str), Some("alive at exit; the sample is too small to tell more"));
}

#[test]
fn stacks_whose_blocks_were_all_left_out_were_missing_in_what_their_site_made() {
    let of = |options: &[&str]| -> Value {
        let recorded = record(options, "constructor");
        let all = leaks(&recorded, "suspects").into_iter().chain(leaks(&recorded, "folded"));
        let mut all = all.filter(|site| site["function"] == "new_session");
        all.next().expect("the constructor")
    };
    let (whole, live) = (of(&["-q"]), of(&["-q", "--live-only"]));
    assert_eq!(whole["allocations"], 1875, "{whole:#}");
    assert_eq!(live["allocations"], 1875, "{live:#}");
    let reason = live["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("375 of 1875 blocks made there stay"), "{reason}");
}
