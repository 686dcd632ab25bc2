//! A single block that a long run loses: without a scan it cannot be told from
//! one that is kept, but no list for a program may leave it out.

use highwater_tests::highwater::record_with;
use highwater_tests::{Highwater, Program, Recorded};
use serde_json::Value;

fn record(options: &[&str]) -> Recorded {
    let program = Program::new("once.c").build();
    record_with(options, |child| child.arg("--").arg(&program)).expect_code(0)
}

#[track_caller]
fn leaks(recorded: &Recorded, options: &[&str]) -> String {
    Highwater::command(["leaks"]).args(options).arg(&recorded.trace).run().expect_code(0).stdout()
}

/// Which of the program's two blocks are listed.
#[track_caller]
fn bytes_of(gcc: &str) -> Vec<&'static str> {
    let listed = |bytes: &&str| gcc.contains(&format!(" {bytes} bytes leaked here"));
    let all: Vec<&'static str> = ["333", "444"].into_iter().filter(listed).collect();
    assert_eq!(gcc.lines().count(), all.len(), "{gcc}");
    all
}

#[test]
fn a_block_lost_once_vanished_from_the_lists_for_programs() {
    let blind = record(&["-q"]);
    let gcc = leaks(&blind, &["--format", "gcc"]);
    assert_eq!(bytes_of(&gcc), ["333", "444"], "{gcc}");
    assert!(gcc.lines().all(|line| line.contains(": warning: ") && line.ends_with(" (KEPT)")), "{gcc}");
    let sarif: Value = serde_json::from_str(&leaks(&blind, &["--format", "sarif"])).expect("SARIF");
    let results = sarif["runs"][0]["results"].as_array().expect("results");
    assert_eq!(results.len(), 2, "{results:#?}");
    assert!(results.iter().all(|one| one["level"] == "warning" && one["properties"]["verdict"] == "KEPT"));
    let junit = leaks(&blind, &["--format", "junit"]);
    assert!(junit.contains("failures=\"2\"") && junit.contains("leaked by lose (KEPT)"), "{junit}");
    let github = leaks(&blind, &["--format", "github"]);
    assert_eq!(github.matches("::warning ").count(), 2, "{github}");
    let json = Highwater::json(&["leaks"], &blind.trace);
    let folded = json["folded"].as_array().expect("folded");
    let ranks: Vec<u64> = folded.iter().filter_map(|one| one["rank"].as_u64()).collect();
    assert_eq!(ranks, [1, 2], "{folded:#?}");
    let text = leaks(&blind, &[]);
    assert!(text.contains("not suspected: 2 sites KEPT (777 B in 2 blocks); --all shows them"), "{text}");
}

#[test]
fn what_a_scan_finds_still_reachable_is_listed_only_on_request() {
    let scanned = record(&["-q", "--leak-check"]);
    let gcc = leaks(&scanned, &["--format", "gcc"]);
    assert_eq!(bytes_of(&gcc), ["333"], "{gcc}");
    assert!(gcc.contains(": error: 333 bytes leaked here\n"), "{gcc}");
    let all = leaks(&scanned, &["--format", "gcc", "--all"]);
    assert_eq!(bytes_of(&all), ["333", "444"], "{all}");
}
