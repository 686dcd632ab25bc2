//! The demo leaker: each kind of leak is called what it is.

use highwater_tests::highwater::record_with;
use highwater_tests::{Highwater, Program, Recorded};
use serde_json::Value;

fn record(kind: &str) -> Recorded {
    let leaker = Program::new("leaker.c").build();
    record_with(&["-q"], |child| child.arg("--").arg(leaker).args([kind, "400"]))
}

fn leaks(recorded: &Recorded, options: &[&str]) -> Value {
    let view: Vec<&str> = ["leaks"].iter().chain(options).copied().collect();
    Highwater::json(&view, &recorded.trace)
}

#[test]
fn each_kind_of_growth_is_called_what_it_is() {
    for (kind, verdict, class) in [
        ("const", None, "const"),
        ("linear", Some("GROWTH"), "linear"),
        ("log", None, "log"),
        ("exp", Some("GROWTH"), "exp"),
        ("lost", Some("GROWTH"), "linear"),
        ("growing", Some("GROWTH"), "linear"),
    ] {
        let recorded = record(kind).expect_code(0);
        let json = leaks(&recorded, &[]);
        let suspect = &json["suspects"][0];
        assert_eq!(suspect["verdict"].as_str(), verdict, "{kind}: {json:#}");
        let site = if verdict.is_some() { suspect } else { &json["folded"][0] };
        assert_eq!(site["growth"]["class"], class, "{kind}: {json:#}");
        assert_eq!(suspect["growth"]["grows"].as_bool(), verdict.map(|_| true), "{kind}");
    }
    // Whether a step is one or the site's whole life depends on when that begins.
    assert_eq!(leaks(&record("step").expect_code(0), &[])["suspects"].as_array().unwrap().len(), 0);
    // A sawtooth that ended at its bottom left nothing at all.
    let json = leaks(&record("sawtooth").expect_code(0), &[]);
    assert_eq!(json["suspects"].as_array().unwrap().len(), 0, "{json:#}");
}

#[test]
fn the_limits_of_the_programs_memory_are_recorded() {
    let leaker = Program::new("leaker.c").build();
    let folder = highwater_tests::folder();
    let trace = folder.path().join("limited.hwt");
    Highwater::plain("/bin/sh")
        .args(["-c", "ulimit -d 1048576; exec \"$0\" \"$@\""])
        .arg(Highwater::path())
        .args(["run", "-q", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(leaker)
        .args(["linear", "400"])
        .run()
        .expect_code(0);
    let heap = &Highwater::json(&["leaks"], &trace)["heap"];
    assert_eq!((heap["limit"].as_u64(), heap["limit_of"].as_str()), (Some(1 << 30), Some("RLIMIT_DATA")));
    assert!(heap["limit_in"].as_f64().is_some_and(|seconds| seconds > 0.0), "{heap:#}");
}

#[test]
fn slices_of_edleak_are_judged_by_each_trend() {
    let folder = highwater_tests::folder();
    let file = folder.path().join("slices.json");
    let slices: Vec<String> = (0..20)
        .map(|i| {
            let step = if i < 10 { 0 } else { 5000 };
            format!("[{{\"mem\":{},\"alc\":0}},{{\"mem\":{step},\"alc\":1}}]", 100 * i)
        })
        .collect();
    let stacks = "{\"id\":0,\"stack\":[\"0x10:line\"],\"soname\":[\"0x0:/app\"]},\
                  {\"id\":1,\"stack\":[\"0x20:step\"],\"soname\":[\"0x0:/app\"]}";
    let text = format!("{{\"slice\":[{}],\"allocer\":[{stacks}]}}", slices.join(","));
    std::fs::write(&file, text).unwrap();
    let names = |trend: &str| -> Vec<(String, i64)> {
        let json = Highwater::json(&["leaks", "--trend", trend], &file);
        let suspects = json["suspects"].as_array().unwrap().clone();
        let of = |s: &Value| (s["function"].as_str().unwrap().to_string(), s["leak"].as_i64().unwrap());
        suspects.iter().map(of).collect()
    };
    assert_eq!(names("own"), [("line".to_string(), 2000)]);
    let document = Highwater::json(&["leaks"], &file);
    assert_eq!((&document["live_bytes"], &document["live_blocks"]), (&6900.into(), &Value::Null));
    assert_eq!(document["suspects"][0]["reason"], "grows: linear, leak factor 2000");
    assert_eq!(document["sites"][1]["function"], "step");
    assert_eq!(names("edleak"), [("step".to_string(), 7518), ("line".to_string(), 2000)]);
    let text = Highwater::command(["leaks"]).arg(&file).run().expect_code(0).stdout();
    assert!(text.starts_with("1 of 2 sites grow over 20 slices\n"), "{text}");
}

/// The site still holds half of its blocks when the program ends: that is its
/// number, as in every other view, and not what it held before.
#[test]
fn a_site_that_gave_blocks_back_at_the_end_was_shown_with_all_of_them() {
    let program = Program::new("threads.c").flags(&["-pthread"]).build();
    let recorded = highwater_tests::record(&program, ["/dev/null", "20000"]).expect_code(0);
    let dump = Highwater::json(&["leaks", "--by", "site", "--method", "exit"], &recorded.trace);
    let (bytes, blocks) = (dump["live_bytes"].clone(), dump["live_blocks"].clone());
    let found = Highwater::json(&["leaks"], &recorded.trace);
    let suspects = found["suspects"].as_array().unwrap();
    assert_eq!(suspects.len(), 1, "{suspects:#?}");
    assert_eq!(suspects[0]["blocks"], 8000, "{suspects:#?}");
    // The C library's four blocks, one a thread, are the rest.
    assert_eq!(blocks.as_u64(), Some(8004));
    assert!(suspects[0]["bytes"].as_u64() < bytes.as_u64());
    assert!(suspects[0]["before_end"]["blocks"].as_u64() > Some(15_000), "{suspects:#?}");
    let text = Highwater::command(["leaks"]).arg(&recorded.trace).run().expect_code(0).stdout();
    assert!(text.contains(" in 8,000 blocks, ") && text.contains("before the program tidied up"), "{text}");
}

/// An interpreter builds up what it needs, works for a moment and gives it back.
#[test]
fn the_modules_of_an_interpreter_were_called_growth() {
    let python = highwater_tests::tools::need("python3");
    let code = "import json, re; print(sum(len(str(i)) for i in range(1000)))";
    let recorded = highwater_tests::record(&python, ["-c", code]).expect_code(0);
    let found = Highwater::json(&["leaks"], &recorded.trace);
    let suspects = found["suspects"].as_array().unwrap();
    assert!(suspects.iter().all(|suspect| suspect["verdict"] != "GROWTH"), "{suspects:#?}");
}
