//! The layouts of `diff` against files in `golden/`.

use highwater_query::diff::measure::{items, rank};
use highwater_query::diff::{Diff, SameBuilds, Side, groups};
use highwater_query::group::Metric;
use highwater_query::leaks::suppressions::Suppressions;
use highwater_query::session::made::Made;
use highwater_query::{Filter, Session};
use highwater_replay::Until;

use super::*;
use crate::golden::{check, keys};

fn build(folder: &str, down: u32) -> Made {
    let file = |name: &str| format!("{folder}/{name}");
    Made::default()
        .thread(0, 4711, "app")
        .node(1, 0, "main", &file("main.c"), 12 + down)
        .node(2, 1, "parse_file", &file("parse.c"), 40 + down)
        .node(
            3,
            1,
            "ns::Table<std::string, std::vector<int> >::insert(std::string const&, int)",
            &file("table.cc"),
            7,
        )
}

fn compared(by: By, measure: Metric) -> Diff {
    let mut before = build("/home/a/src", 0)
        .node(4, 1, "old_cache", "/home/a/src/cache.c", 9)
        .alloc(0, 0x10, 4096, 2)
        .alloc(0, 0x2000, 300, 3)
        .alloc(0, 0x3000, 70_000, 4)
        .alloc(0, 0x90000, 1 << 30, 1)
        .session();
    let mut after = build("/build/src", 5)
        .node(5, 1, "new_cache", "/build/src/cache.c", 9)
        .alloc(0, 0x10, 4096, 2)
        .alloc(0, 0x2000, 200, 3)
        .alloc(0, 0x5000, 1 << 20, 2)
        .alloc(0, 0x3000, 50, 5)
        .alloc(0, 0x90000, 1 << 30, 1)
        .session();
    let side = |session: &mut Session| {
        let (filter, rules) = (Filter::default(), Suppressions::default());
        let (items, _) = items(session, measure, Until::End, &filter, &rules, by).unwrap();
        Side::new(session, items, by, &SameBuilds::default())
    };
    groups(&side(&mut before), &side(&mut after), rank(measure))
}

fn written(by: By, measure: Metric, limit: usize) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let diff = compared(by, measure);
    let of = |name: &str| Of {
        name: name.into(),
        what: "live at the end".into(),
        totals: vec![("allocations", 4), ("peak_bytes", 5)],
    };
    let (before, after) = (of("highwater.app.17.hwt"), of("highwater.app.18.hwt"));
    let shown = Shown {
        before: &before,
        after: &after,
        by,
        metric: measure.name(),
        rank: rank(measure),
        blocks: false,
    };
    let (mut plain, mut list, mut document) = (Vec::new(), Vec::new(), Vec::new());
    text(&mut plain, &Look::default(), &shown, &diff, limit).unwrap();
    crate::csv::header(&mut list, COLUMNS).unwrap();
    for change in diff.changes.iter().take(limit) {
        crate::csv::record(&mut list, &row(change)).unwrap();
    }
    json(&mut document, &shown, &diff, limit).unwrap();
    (plain, list, document)
}

#[test]
fn sites() {
    let (text, csv, json) = written(By::Site, Metric::Live, 100);
    check("diff.txt", &text);
    check("diff.json", &json);
    keys(
        &json,
        "highwater.diff/1",
        &[
            "new[].function",
            "new[].file",
            "new[].line",
            "new[].module",
            "new[].bytes",
            "new[].blocks",
            "new[].stack[].function",
            "gone[].bytes",
            "grown[].before.bytes",
            "grown[].after.blocks",
            "shrunk[].change.bytes",
            "totals.before.bytes",
            "totals.after.blocks",
            "totals.before.peak_bytes",
        ],
    );
    let csv = String::from_utf8(csv).unwrap();
    let rows: Vec<&str> = csv.split_terminator("\r\n").collect();
    assert_eq!(rows.len(), 5);
    assert_eq!(
        rows[1],
        "grown,parse_file (/build/src/parse.c:45),parse_file,/build/src/parse.c,45,/usr/bin/app,4096,1,1052672,2,1048576,1"
    );
    // A comma of C++ is inside quotes.
    assert!(
        rows[3].starts_with("shrunk,\"ns::Table<std::string, std::vector<int> >::insert("),
        "{}",
        rows[3]
    );
}

#[test]
fn stacks_numbers_and_what_is_left_out() {
    check("diff-by-stack.txt", &written(By::Stack, Metric::Live, 2).0);
    check("diff-allocations.txt", &written(By::Function, Metric::Allocations, 100).0);
}

#[test]
fn nothing() {
    let of = Of { name: "a.hwt".into(), what: "live".into(), totals: Vec::new() };
    let shown =
        Shown { before: &of, after: &of, by: By::Site, metric: "live", rank: Rank::Bytes, blocks: true };
    let mut out = Vec::new();
    text(&mut out, &Look::default(), &shown, &Diff::default(), 9).unwrap();
    assert!(String::from_utf8(out).unwrap().ends_with("change  0 B, 0 blocks\n\nnothing has changed\n"));
}
