//! `highwater scan`: a look for unreachable blocks while the program runs.

use std::time::Duration;

use highwater_tests::child::{Running, wait_until};
use highwater_tests::{Ended, Highwater, Program, TempDir, number, schema};
use serde_json::Value;

fn start(options: &[&str]) -> (Running, TempDir) {
    let folder = highwater_tests::folder();
    let run = Highwater::command(["run", "-q", "-o"])
        .arg(folder.path().join("trace.hwt"))
        .args(options)
        .arg("--")
        .arg(Program::new("holder.c").flags(&["-pthread"]).build())
        .env("XDG_RUNTIME_DIR", folder.path())
        .talks()
        .start();
    wait_until("the program is ready", Duration::from_secs(30), || run.stdout_so_far().contains("ready"));
    wait_until("the recording can be talked to", Duration::from_secs(10), || {
        control(&folder, "status").contains("trace.hwt")
    });
    (run, folder)
}

fn control(folder: &TempDir, command: &str) -> String {
    Highwater::command([command]).env("XDG_RUNTIME_DIR", folder.path()).run().stdout()
}

fn scan(folder: &TempDir) -> Ended {
    Highwater::command(["scan"]).env("XDG_RUNTIME_DIR", folder.path()).run()
}

fn lose(run: &mut Running, times: usize) {
    run.say("lose\n");
    wait_until("blocks are lost", Duration::from_secs(30), || {
        run.stdout_so_far().matches("done lose").count() >= times
    });
}

/// Blocks of a line of the program by class.
fn classes(folder: &TempDir, line: u64) -> Vec<(i64, i64)> {
    let trace = folder.path().join("trace.hwt");
    let document = Highwater::json(&["leaks", "--method", "unreachable", "--by", "site"], &trace);
    assert_eq!(document["scan"]["scanned"], true, "{:#}", document["scan"]);
    let of = |site: &Value, class: &str| number(&site[class], "blocks");
    let sites = document["sites"].as_array().unwrap();
    let here = sites.iter().filter(|site| site["line"].as_u64() == Some(line));
    here.map(|site| (of(site, "definite") + of(site, "indirect"), of(site, "reachable"))).collect()
}

fn line_of(word: &str) -> u64 {
    let text = include_str!("../programs/holder.c");
    1 + text.lines().position(|line| line.contains(&format!("/* {word} */"))).expect("the mark") as u64
}

#[test]
fn blocks_are_found_lost_while_the_program_runs_and_it_runs_on() {
    let (mut run, folder) = start(&[]);
    let clean = scan(&folder).expect_code(0);
    assert!(clean.stdout().starts_with("lost       0 B in 0 blocks\n"), "{}", clean.stdout());
    assert!(clean.stderr().contains("stood still for"), "{}", clean.stderr());
    lose(&mut run, 1);
    let found = scan(&folder).expect_code(0).stdout();
    assert!(found.starts_with("lost       1000 B in 10 blocks\n"), "{found}");
    // Of the trace that is still being written, and of the whole one, the latest counts.
    assert_eq!(classes(&folder, line_of("LOST")), [(10, 0)]);
    lose(&mut run, 2);
    let found = scan(&folder).expect_code(0).stdout();
    assert!(found.starts_with("lost       2.0 KiB in 20 blocks\n"), "{found}");
    let json = Highwater::command(["scan", "--json"]).env("XDG_RUNTIME_DIR", folder.path()).run();
    let json = schema::document(&json.expect_code(0).out);
    assert_eq!((&json["lost"]["bytes"], &json["lost"]["blocks"]), (&2000.into(), &20.into()));
    run.say("end\n");
    run.wait().expect_code(3);
    assert_eq!(classes(&folder, line_of("LOST")), [(20, 0)]);
    assert_eq!(classes(&folder, line_of("ENTRY")), [(0, 128)]);
    let found = Highwater::json(&["leaks"], &folder.path().join("trace.hwt"));
    let first = &found["suspects"][0];
    assert_eq!((&first["verdict"], first["line"].as_u64()), (&"LEAK".into(), Some(line_of("LOST"))));
    assert_eq!((number(first, "blocks"), number(first, "bytes")), (20, 2000));
}

#[test]
fn what_a_table_points_to_in_the_middle_of_a_realloc_was_called_lost() {
    let (mut run, folder) = start(&[]);
    for _ in 0..highwater_tests::scale::times(20, 100) {
        let found = scan(&folder).expect_code(0).stdout();
        assert!(found.starts_with("lost       0 B in 0 blocks\n"), "{found}");
        assert!(found.contains("possibly   0 B in 0 blocks\n"), "{found}");
    }
    run.say("end\n");
    run.wait().expect_code(3);
}

#[test]
fn a_scan_while_it_ran_leaves_the_one_at_the_exit_alone() {
    let (mut run, folder) = start(&["--leak-check"]);
    lose(&mut run, 1);
    scan(&folder).expect_code(0);
    lose(&mut run, 2);
    run.say("end\n");
    run.wait().expect_code(3);
    assert_eq!(classes(&folder, line_of("LOST")), [(20, 0)]);
}

#[test]
fn a_recording_that_does_not_know_all_blocks_is_not_scanned() {
    let (mut run, folder) = start(&["--min-size", "1000"]);
    let refused = scan(&folder).expect_code(2).stderr();
    assert!(refused.contains("not scanned: not all blocks are recorded"), "{refused}");
    run.say("end\n");
    run.wait().expect_code(3);
}
