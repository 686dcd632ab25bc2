//! What grows and is not lost is held by something: who that is, with its name.

use highwater_tests::corpus::scenarios;
use highwater_tests::highwater::record_with;
use highwater_tests::{Highwater, Program, number};
use serde_json::Value;

/// The first suspect of a program, scanned or not.
#[track_caller]
fn first(scan: bool, program: &std::path::Path, args: &[&str]) -> (Value, String) {
    let options: &[&str] = if scan { &["-q", "--leak-check"] } else { &["-q"] };
    let recorded = record_with(options, |child| child.arg("--").arg(program).args(args)).expect_code(0);
    let json = Highwater::json(&["leaks"], &recorded.trace);
    let text = Highwater::command(["leaks"]).arg(&recorded.trace).run().expect_code(0).stdout();
    (json["suspects"][0].clone(), text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The first suspect of a program of the corpus, scanned.
#[track_caller]
fn of_corpus(name: &str) -> (Value, String) {
    let scenario = scenarios().iter().find(|scenario| scenario.name == name).expect("a scenario");
    let (suspect, text) = first(true, &scenario.program, &[name]);
    assert!(scenario.is(&suspect), "{suspect:#}");
    (suspect, text)
}

#[test]
fn what_a_global_list_holds_is_said_to_be_held_by_it() {
    let leaker = Program::new("leaker.c").build();
    let (suspect, text) = first(true, &leaker, &["linear", "400"]);
    assert_eq!(suspect["verdict"], "GROWTH", "{suspect:#}");
    let held = &suspect["held_by"][0];
    assert_eq!((held["symbol"].as_str(), held["kind"].as_str()), (Some("kept"), Some("data")));
    assert_eq!(held["place"], "`kept` in leaker");
    // The whole list counts, not its head.
    assert_eq!((number(held, "blocks"), number(held, "bytes")), (800, 800 * 56), "{held:#}");
    assert!(text.contains("; held by `kept` in leaker "), "{text}");
    let (blind, text) = first(false, &leaker, &["linear", "400"]);
    assert!(blind["held_by"].is_null() && !text.contains("held by"), "{text}");
}

#[test]
fn the_fields_of_a_table_are_one_holder() {
    let (suspect, _) = of_corpus("map_grows");
    let held = suspect["held_by"].as_array().expect("held_by");
    assert_eq!(held.len(), 1, "{held:#?}");
    assert_eq!((held[0]["symbol"].as_str(), number(&held[0], "blocks")), (Some("buckets"), 1500));
}

#[test]
fn blocks_of_others_on_the_way_are_named() {
    let (suspect, text) = of_corpus("hash_map_grows");
    let held = &suspect["held_by"][0];
    assert!(held["symbol"].as_str().is_some_and(|symbol| symbol.contains("known")), "{held:#}");
    assert_eq!(held["through"][0]["function"], "hash_map_grows()", "{held:#}");
    assert!(text.contains(" in leaky_cpp -> hash_map_grows() (leaky_cpp.cpp:"), "{text}");
}

#[test]
fn what_the_end_gave_back_was_said_to_be_pointed_to_still() {
    let (suspect, text) = of_corpus("freed_at_the_end");
    assert_eq!(suspect["verdict"], "GROWTH", "{suspect:#}");
    assert!(suspect["held_by"].is_null(), "{suspect:#}");
    assert!(text.contains("stayed until the program tidied up") && !text.contains("points to it"), "{text}");
}
