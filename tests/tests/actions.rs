//! What equal actions leave behind: marks set from outside, windows, the sites
//! that survive every action.

use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater_tests::child::{Running, wait_until};
use highwater_tests::{Highwater, Program, TempDir};
use serde_json::Value;

/// Plays a script on `actions.c` while it is recorded: a word for the program a
/// step, or `@name` for a mark.
fn play(script: &[&str]) -> TempDir {
    let folder = highwater_tests::folder();
    let mut run: Running = Highwater::command(["run", "-q", "-o"])
        .arg(folder.path().join("trace.hwt"))
        .arg("--")
        .arg(Program::new("actions.c").build())
        .env("XDG_RUNTIME_DIR", folder.path())
        .talks()
        .start();
    let mut done = 0;
    wait_until("the program is ready", Duration::from_secs(30), || run.stdout_so_far().contains("ready"));
    for step in script {
        if let Some(name) = step.strip_prefix('@') {
            wait_until("the mark is set", Duration::from_secs(10), || {
                let mark = Highwater::command(["mark", name, "--trace"]).arg(folder.path().join("trace.hwt"));
                mark.env("XDG_RUNTIME_DIR", folder.path()).run().code() == 0
            });
            continue;
        }
        run.say(&format!("{step}\n"));
        done += 1;
        wait_until(step, Duration::from_secs(30), || run.stdout_so_far().matches("done ").count() >= done);
    }
    run.say("end\n");
    run.wait().expect_code(3);
    folder
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/actions.c")
}

fn line_of(word: &str) -> u64 {
    let text = std::fs::read_to_string(source()).unwrap();
    let mark = format!("/* {word} */");
    1 + text.lines().position(|line| line.contains(&mark)).expect("the mark is in the source") as u64
}

fn leaks(folder: &TempDir, args: &[&str]) -> Value {
    let mut view = vec!["leaks"];
    view.extend(args);
    Highwater::json(&view, &folder.path().join("trace.hwt"))
}

/// Line, bytes and blocks of each suspect that is the program's own.
fn suspects(document: &Value) -> Vec<(u64, u64, u64)> {
    let field = |suspect: &Value, key: &str| suspect[key].as_u64().unwrap_or(0);
    let list = document["suspects"].as_array().expect("suspects");
    list.iter()
        .filter(|suspect| suspect["file"].as_str().is_some_and(|file| file.ends_with("actions.c")))
        .map(|suspect| (field(suspect, "line"), field(suspect, "bytes"), field(suspect, "blocks")))
        .collect()
}

#[test]
fn the_articles_three_actions_name_the_leak_and_neither_the_cache_nor_the_warm_up() {
    let folder = play(&["@A1", "bad", "@A2", "bad", "grow", "@A3", "bad"]);
    let found = leaks(&folder, &["--from", "@A1", "--to", "@A2", "--until", "@A3"]);
    // In the first action the table is filled, and still there: the article
    // takes the second one.
    assert_eq!(suspects(&found), [(line_of("TABLE"), 5000, 1), (line_of("FORGET"), 200, 2)]);
    let found = leaks(&folder, &["--from", "@A2", "--to", "@A3"]);
    assert_eq!(suspects(&found), [(line_of("FORGET"), 200, 2)], "the end is looked at, with no mark behind");
    assert_eq!(found["windows"][0]["until"], "end");
    assert_eq!(found["suspects"][0]["methods"], serde_json::json!(["window"]));
    // The same by seqnos, for the shell of the article.
    let stats = leaks(&folder, &["--from", "start", "--to", "end"]);
    assert!(
        suspects(&stats).contains(&(line_of("GROW"), 128, 1)),
        "a resized block is of its origin's window"
    );
}

#[test]
fn a_site_that_survives_every_action_is_the_leak_and_a_clean_program_has_none() {
    let folder = play(&["@act", "bad", "@act", "bad", "@act", "bad", "@act", "bad", "@last"]);
    for how in [&["--windows", "act"][..], &["--method", "window"]] {
        let found = leaks(&folder, how);
        assert_eq!(suspects(&found), [(line_of("FORGET"), 600, 6)], "{how:?}");
        let leak = &found["suspects"][0];
        assert_eq!(leak["reason"], "3 of 3 actions, 2 blocks each");
        assert_eq!(leak["confidence"], "high");
        let each = &leak["actions"]["per_action"];
        for key in ["bytes", "at_least", "at_most"] {
            assert_eq!(each[key].as_f64(), Some(200.0), "{key} of {each}");
        }
        let other: Vec<u64> =
            found["sites"].as_array().unwrap().iter().filter_map(|site| site["line"].as_u64()).collect();
        assert!(other.contains(&line_of("TABLE")), "it survives one action: {found:#}");
    }
    let sarif = Highwater::command(["leaks", "--windows", "act", "--format", "sarif"])
        .arg(folder.path().join("trace.hwt"))
        .run()
        .expect_code(0);
    let sarif: serde_json::Value = serde_json::from_slice(&sarif.out).expect("SARIF");
    let text = sarif["runs"][0]["results"][0]["message"]["text"].as_str().expect("a text");
    assert!(text.contains("leaked by forget: 3 of 3 actions, 2 blocks each."), "{text}");
    let gcc = Highwater::command(["leaks", "--windows", "act", "--format", "gcc"])
        .arg(folder.path().join("trace.hwt"))
        .run()
        .expect_code(0);
    let place = source();
    assert_eq!(
        gcc.stdout(),
        format!("{}:{}: error: 600 bytes leaked here\n", place.display(), line_of("FORGET"))
    );

    let clean = play(&["@A1", "act", "@A2", "act", "@A3", "act", "@A4"]);
    let found = leaks(&clean, &["--windows", "A"]);
    assert_eq!(found["suspects"], serde_json::json!([]), "{found:#}");
    assert_eq!(found["windows"].as_array().unwrap().len(), 3);
    let text = Highwater::command(["leaks", "--windows", "A1,A2,A3"])
        .arg(clean.path().join("trace.hwt"))
        .run()
        .expect_code(0)
        .stdout();
    assert!(text.contains("left behind by each of 2 actions (A1..A2, A2..A3)"), "{text}");
}

/// Phases lie between marks: each view sees the same ones, and together they are
/// the whole.
#[test]
fn views_by_phase_and_between_marks_add_up_to_the_whole() {
    let folder = play(&["act", "@load", "burst", "@work", "grow", "bad", "@load", "burst", "burst"]);
    let trace = folder.path().join("trace.hwt");
    let view = |args: &[&str]| Highwater::json(args, &trace);
    let allocations = |document: &Value| document["allocations"].as_u64().unwrap();

    let whole = view(&["stats"]);
    let by = view(&["stats", "--by", "phase"]);
    let groups = by["groups"].as_array().unwrap();
    let of = |name: &str| {
        let group = groups.iter().find(|group| group["label"] == name);
        group.unwrap_or_else(|| panic!("no phase {name}: {by:#}"))["allocations"].as_u64().unwrap()
    };
    // Two phases of one name are one group, as two calls of one function are.
    assert_eq!(groups.len(), 3, "{by:#}");
    assert_eq!(of("start") + of("load") + of("work"), allocations(&whole));
    assert_eq!(of("load"), 3000, "three bursts and nothing else");

    // What a mark begins, the options for times and the filter name alike.
    let back = ["stats", "--from", "@work", "--to", "@load"];
    let ended = Highwater::command(back).arg(&trace).run().expect_code(2);
    assert!(ended.stderr().contains("--from lies behind --to"), "the first @load is meant");
    let first = view(&["stats", "--from", "@load", "--to", "@work"]);
    assert_eq!(allocations(&first), 1000);
    assert_eq!(allocations(&view(&["stats", "-F", "phase=work"])), of("work"));
    assert_eq!(allocations(&view(&["stats", "-F", "phase=load"])), 3000);
    assert_eq!(allocations(&view(&["stats", "-F", "phase!=load"])), of("start") + of("work"));

    let events = view(&["history", "-F", "phase=work", "-F", "api=realloc"]);
    let of_work = events["events"].as_array().unwrap();
    let grown = |event: &Value| event["stack"][0]["line"].as_u64() == Some(line_of("GROW"));
    assert!(!of_work.is_empty() && of_work.iter().all(grown), "{events:#}");
    let blocks = view(&["dump", "--at", "@work", "-F", "phase=load"]);
    assert_eq!(blocks["blocks"], serde_json::json!([]), "a burst keeps nothing");
}

#[test]
fn a_window_that_cannot_be_says_why() {
    let folder = play(&["@one", "act"]);
    let trace = folder.path().join("trace.hwt");
    for (args, reason) in [
        (&["--from", "@two"][..], "no mark `two`"),
        (&["--windows", "one"], "two marks of one name are needed; the marks are: one"),
        (&["--windows", "one,nonsense"], "is no instant"),
        (&["--method", "window"], "highwater mark"),
        (&["--method", "exit", "--from", "@one"], "belong to --method window"),
    ] {
        let ended = Highwater::command(["leaks"]).args(args).arg(&trace).run().expect_code(2);
        assert!(ended.stderr().contains(reason), "{args:?}: {}", ended.stderr());
    }
}
