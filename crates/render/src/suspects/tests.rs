use super::*;
use highwater_query::leaks::evidence::{Evidence, Slicing};
use highwater_query::leaks::rank::{self, Findings, Options};
use highwater_query::leaks::suppressions::Suppressions;
use highwater_query::session::made::Made;
use highwater_trace::model::MemoryLimit;
use serde_json::Value;

/// Text and JSON of a program that loses 100 bytes every 30 ms, so many times.
fn shown(leaks: u64) -> (String, Value) {
    limited(leaks, Some(1 << 30), Vec::new())
}

/// The same with a limit that was asked for, and limits of the program.
fn limited(leaks: u64, limit: Option<u64>, recorded: Vec<MemoryLimit>) -> (String, Value) {
    let mut made = Made::default().node(1, 0, "lose", "/src/a.c", 3).node(2, 0, "work", "/src/a.c", 9);
    for at in 0..leaks {
        made = made.alloc(0, 0x1_0000 + at * 0x100, 100, 1).alloc(0, 0x10, 8, 2).free(0, 0x10);
    }
    made.facts.meta.memory_limits = recorded;
    let mut session = made.session();
    let evidence = Evidence::collect(&mut session, Slicing::Events).unwrap();
    let stats = Stats::collect(&session, &evidence.found);
    let options = Options { limit, ..Options::default() };
    let rules = Suppressions::default();
    let ranking = rank::rank(&mut session, &evidence, &Findings::default(), &rules, &options);
    let show = Show { limit: 9, all: false, verbose: false, unicode: false };
    let mut out = Vec::new();
    text(&mut out, &Look::default(), &mut session, &stats, &ranking, show).unwrap();
    let mut document = Json::document(Vec::new(), "leaks").unwrap();
    json(&mut document, &ranking).unwrap();
    let bytes = document.finish().unwrap();
    (String::from_utf8(out).unwrap(), serde_json::from_slice(&bytes).unwrap())
}

#[test]
fn sentences_are_broken_at_blanks() {
    assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
    assert_eq!(wrap("unbreakable", 4), ["unbreakable"]);
}

#[test]
fn a_run_of_six_seconds_says_nothing_of_the_next_hour() {
    let (text, json) = shown(200);
    let growth = &json["suspects"][0]["growth"];
    assert_eq!(growth["grows"], true, "{text}");
    assert!(growth["forecast"].is_null() && growth["in_an_hour"].is_null(), "{growth:#}");
    assert!(growth["seconds"].as_f64().is_some_and(|seconds| (4.0..6.0).contains(&seconds)), "{growth:#}");
    assert!(!text.contains("it holds"), "{text}");
    assert!(text.contains("; grows by 3.3 KiB/s (3.2\n     KiB to 3.3 KiB)\n"), "{text}");
    // Who asks when a limit is reached is told, and what that rests on.
    let heap = text.lines().take(3).collect::<Vec<_>>().join(" ");
    assert!(heap.contains("; the limit is reached in 89 h if it goes on as in the 5.1 s seen"), "{text}");
}

#[test]
fn a_limit_of_the_program_is_told_where_it_is_near() {
    let group = |bytes| vec![MemoryLimit { of: "cgroup".to_string(), bytes }];
    let (text, json) = limited(200, None, group(100_000));
    let head: Vec<&str> = text.lines().skip(1).take(2).collect();
    assert!(head.join(" ").ends_with("; it alone reaches the limit of 97.7 KiB (cgroup) in 24 s"), "{text}");
    assert_eq!(
        (json["heap"]["limit"].as_u64(), json["heap"]["limit_of"].as_str()),
        (Some(100_000), Some("cgroup"))
    );
    let (text, json) = limited(200, None, group(1 << 30));
    assert!(!text.contains("limit"), "{text}");
    assert_eq!(json["heap"]["limit"], 1 << 30);
    // What was asked for goes before.
    let (_, json) = limited(200, Some(7), group(1 << 30));
    assert_eq!((json["heap"]["limit"].as_u64(), json["heap"]["limit_of"].is_null()), (Some(7), true));
    assert!(limited(200, None, Vec::new()).1["heap"]["limit"].is_null());
}

#[test]
fn seven_minutes_carry_a_forecast_of_an_hour() {
    let (text, json) = shown(14_000);
    assert!(text.contains("     in an hour it holds 12.8 MiB\n"), "{text}");
    let growth = &json["suspects"][0]["growth"];
    let near = |value: &Value| value.as_f64().is_some_and(|value| (value - 13.4e6).abs() < 1e5);
    assert!(near(&growth["in_an_hour"]) && near(&growth["forecast"]["bytes"]), "{growth:#}");
    assert_eq!(growth["forecast"]["in"].as_f64(), Some(3600.0));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}
