//! `diff`: two instants, two runs, two builds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use highwater_tests::highwater::record;
use highwater_tests::{Highwater, Recorded, schema};
use serde_json::Value;

const SOURCE: &str = r#"#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *kept[1000];
static int n;
static void cache(int k) { for (int i = 0; i < k; i++) kept[n++] = malloc(100); }
static void table(void) { kept[n++] = calloc(10, 1000); }
static void OWN(void) { kept[n++] = malloc(SIZE); }
int main(void) {
  cache(CACHE);
  table();
  OWN();
  free(kept[0]);
  free(malloc(5000));
  write(1, "done\n", 5);
  return 0;
}
"#;

/// A build of the program in a folder of its own, its lines moved down.
fn build(folder: &Path, name: &str, down: usize, flags: &[&str]) -> PathBuf {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("app.c");
    std::fs::write(&source, "\n".repeat(down) + SOURCE).unwrap();
    let program = folder.join(name);
    let built =
        Command::new("cc").args(["-g", "-O0"]).args(flags).arg(&source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    program
}

fn builds() -> (tempfile::TempDir, Recorded, Recorded) {
    let folder = highwater_tests::folder();
    let old = build(folder.path(), "app", 0, &["-DOWN=leak_old", "-DSIZE=12", "-DCACHE=20"]);
    let new = build(folder.path(), "app-2", 7, &["-DOWN=leak_new", "-DSIZE=77", "-DCACHE=50"]);
    let none: [&str; 0] = [];
    let (old, new) = (record(old, none).expect_code(0), record(new, none).expect_code(0));
    (folder, old, new)
}

fn diff(args: &[&str]) -> Value {
    let ended = Highwater::command(["diff", "--json"]).args(args).run().expect_code(0);
    schema::document(&ended.out)
}

/// Function, bytes and blocks of each change of a kind.
fn list(diff: &Value, kind: &str) -> Vec<(String, i64, i64)> {
    let row = |change: &Value| {
        let number = |key: &str| change[key].as_i64().unwrap();
        (change["function"].as_str().unwrap_or("?").to_string(), number("bytes"), number("blocks"))
    };
    diff[kind].as_array().unwrap().iter().map(row).collect()
}

fn row(function: &str, bytes: i64, blocks: i64) -> (String, i64, i64) {
    (function.to_string(), bytes, blocks)
}

fn paths<'a>(a: &'a Recorded, b: &'a Recorded) -> [&'a str; 2] {
    [a.trace.to_str().unwrap(), b.trace.to_str().unwrap()]
}

#[test]
fn two_builds_are_matched_by_function_though_paths_and_lines_differ() {
    let (_folder, old, new) = builds();
    let [a, b] = paths(&old, &new);
    let there = diff(&[a, b]);
    assert_eq!(list(&there, "new"), [row("leak_new", 77, 1)]);
    assert_eq!(list(&there, "gone"), [row("leak_old", 12, 1)]);
    assert_eq!(list(&there, "grown"), [row("cache", 3000, 30)]);
    assert_eq!(list(&there, "shrunk"), []);
    assert_eq!(there["grown"][0]["line"], 13);
    let live = |recorded: &Recorded| recorded.stats()["live_bytes"].clone();
    assert_eq!(there["totals"]["before"]["bytes"], live(&old));
    assert_eq!(there["totals"]["after"]["bytes"], live(&new));
    assert_eq!(there["totals"]["after"]["allocations"], new.stats()["allocations"]);

    let back = diff(&[b, a]);
    assert_eq!(list(&back, "gone"), list(&there, "new"));
    assert_eq!(list(&back, "new"), list(&there, "gone"));
    assert_eq!(list(&back, "shrunk"), list(&there, "grown"));

    // What only one side has is told by the whole stack, too.
    let stacks = diff(&[a, b, "--by", "stack"]);
    assert_eq!(list(&stacks, "grown"), [row("cache", 3000, 30)]);
    let allocations = diff(&[a, b, "--metric", "allocations", "--by", "function"]);
    assert_eq!(list(&allocations, "grown"), [row("cache", 3000, 30)]);
    let peak = diff(&[a, b, "--metric", "peak", "-F", "size_max=100"]);
    assert_eq!(list(&peak, "grown").first(), Some(&row("cache", 3000, 30)));
    let one = diff(&[a, b, "--by", "module"]);
    assert_eq!((list(&one, "grown").len(), list(&one, "new").len()), (1, 0), "the program's two names");
    let thread = diff(&[a, b, "--by", "thread"]);
    assert_eq!((list(&thread, "grown").len(), list(&thread, "new").len()), (1, 0));
}

#[test]
fn two_runs_of_one_build_and_a_run_and_itself_have_no_difference() {
    let folder = highwater_tests::folder();
    let program = build(folder.path(), "app", 0, &["-DOWN=leak", "-DSIZE=12", "-DCACHE=20"]);
    let none: [&str; 0] = [];
    let (one, other) = (record(&program, none), record(&program, none));
    let check = |pair: [&str; 2], by: &str, metric: &str| {
        let diff = diff(&[pair[0], pair[1], "--by", by, "--metric", metric]);
        for kind in ["new", "gone", "grown", "shrunk"] {
            assert_eq!(diff[kind], Value::Array(Vec::new()), "{by} {metric} {kind}");
        }
    };
    for (by, metric) in
        [("stack", "live"), ("thread", "allocated"), ("size", "leaked"), ("site", "allocations")]
    {
        check(paths(&one, &other), by, metric);
    }
    check(paths(&one, &one), "stack", "live");
    check(paths(&one, &one), "api", "peak");
    let text = Highwater::command(["diff"]).args(paths(&one, &other)).run().expect_code(0).stdout();
    assert!(text.ends_with("\nnothing has changed\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 200));
}

#[test]
fn two_instants_of_one_run_are_compared_block_by_block() {
    let (_folder, run, other) = builds();
    let trace = run.trace.to_str().unwrap();
    let events = run.history();
    let (from, to) = (5u64, events.len() as u64 - 3);
    // The live sets, from the history.
    let live = |until: u64| {
        let mut live: BTreeMap<String, (u64, i64)> = BTreeMap::new();
        for event in &events {
            let seqno = event["seqno"].as_u64().unwrap();
            let address = event["address"].as_str().unwrap().to_string();
            match event["op"].as_str() {
                _ if seqno > until => {}
                Some("alloc") => drop(live.insert(address, (seqno, event["size"].as_i64().unwrap()))),
                _ => drop(live.remove(&address)),
            }
        }
        live.into_values().collect::<BTreeMap<u64, i64>>()
    };
    let (early, late) = (live(from), live(to));
    let only = |a: &BTreeMap<u64, i64>, b: &BTreeMap<u64, i64>| {
        let own = a.iter().filter(|(seqno, _)| !b.contains_key(seqno));
        own.fold((0, 0), |sum, (_, size)| (sum.0 + size, sum.1 + 1))
    };
    let sum =
        |list: Vec<(String, i64, i64)>| list.iter().fold((0, 0), |sum, row| (sum.0 + row.1, sum.1 + row.2));
    let (from, to) = (format!("#{from}"), format!("#{to}"));
    for files in [&[trace][..], &[trace, trace]] {
        let args: Vec<&str> = files.iter().copied().chain(["--from", &from, "--to", &to]).collect();
        let diff = diff(&args);
        assert_eq!(diff["matched"], "seqno");
        assert_eq!(sum(list(&diff, "new")), only(&late, &early));
        assert_eq!(sum(list(&diff, "gone")), only(&early, &late));
        assert!(only(&early, &late).1 > 0 && only(&late, &early).1 > 0, "the test shows nothing");
        assert_eq!((list(&diff, "grown"), list(&diff, "shrunk")), (vec![], vec![]));
    }
    // Instants of two runs are no pair.
    let [a, b] = paths(&run, &other);
    for (args, reason) in [
        (&[a][..], "name a second trace, or two instants"),
        (&[a, b, "--from", "1"], "instants of one run, and these are two runs"),
        (&[a, "--from", "1", "--metric", "peak"], "compared by what is live"),
        (&[a, b, "--metric", "colour"], "`colour` is no metric"),
        (&[a, b, "--metric", "temporary", "--by", "thread"], "only counted by site"),
    ] {
        let ended = Highwater::command(["diff"]).args(args).run().expect_code(2);
        assert!(ended.stderr().contains(reason), "{args:?}: {}", ended.stderr());
    }
}

#[test]
fn csv_has_a_line_of_names_and_one_for_each_change() {
    let (_folder, old, new) = builds();
    let ended = Highwater::command(["diff", "--csv"]).args(paths(&old, &new)).run().expect_code(0);
    let text = ended.stdout();
    let rows: Vec<Vec<&str>> = text.split_terminator("\r\n").map(|row| row.split(',').collect()).collect();
    assert_eq!(rows[0][..3], ["kind", "label", "function"]);
    let short: Vec<_> = rows[1..].iter().map(|row| (row[0], row[2], row[10], row[11])).collect();
    assert_eq!(
        short,
        [("grown", "cache", "3000", "30"), ("new", "leak_new", "77", "1"), ("gone", "leak_old", "-12", "-1")]
    );
}
