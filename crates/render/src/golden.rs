//! Every layout and every document, on one small made-up program, against files
//! in `golden/`. `HIGHWATER_BLESS=1 cargo test -p highwater-render` writes them
//! anew; read the difference before it is committed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use highwater_event::api::ApiKind;
use highwater_event::layout::MODULE_MAIN;
use highwater_event::node::Truncation;
use highwater_query::leaks::evidence::{Evidence, Slicing};
use highwater_query::leaks::rank::{self, Findings};
use highwater_query::leaks::suppressions::Suppressions;
use highwater_query::session::made::Made;
use highwater_query::tree::{Direction, Shape, Tree};
use highwater_query::{Ask, By, Item, Metric, Selection, Session, Stats, Survey};
use highwater_replay::{Outcome, Until};
use highwater_trace::model::{End, EndedHow, ModuleDef, Op, Special};
use serde_json::Value;

use crate::history::Range;
use crate::sites::LeaksJson;
use crate::tree::Show;
use crate::{Look, Palette, dump, errors, history, notices, run_summary, sites, stats, threads, tree};

/// A program of two threads: it parses, keeps a table, grows a buffer by
/// realloc, fails to grow it once, frees something twice and something in the
/// middle, and leaks.
fn program() -> Session {
    let alloc = |size| Op::Alloc { size, usable: None };
    let mut made = Made::default()
        .thread(0, 4711, "app")
        .thread(1, 4712, "worker")
        .node(1, 0, "main", "/src/app/main.c", 12)
        .node(2, 1, "parse_file", "/src/app/parse.c", 40)
        .node(3, 2, "strdup", "/src/libc/strdup.c", 5)
        .node(
            4,
            1,
            "ns::Table<std::string, std::vector<int> >::insert(std::string const&, int)",
            "/src/app/table.cc",
            77,
        )
        .node(5, 0, "work", "/src/app/work.c", 9)
        .truncated(6, Truncation::NoUnwindInfo)
        .node(7, 6, "callback", "/src/app/work.c", 30)
        .node(8, 1, "cleanup", "/src/app/main.c", 99);
    made.facts.file_size = 210;
    made.facts.meta.exe = PathBuf::from("/usr/bin/app");
    made.facts.modules =
        vec![ModuleDef { path: "/usr/bin/app".into(), flags: MODULE_MAIN, ..ModuleDef::default() }];
    made.facts.end = Some(End {
        how: EndedHow::Exit,
        duration_ns: 1_234_567_890,
        stalled_ns: 2_000_000,
        ..End::default()
    });
    made.alloc(0, 0x1000, 1 << 20, 2)
        .alloc(0, 0x20_0000, 300, 3)
        .event(0, 0x30_0000, alloc(48), ApiKind::New, 4, None)
        .alloc(1, 0x40_0000, 4096, 5)
        .event(1, 0x40_0000, Op::Free, ApiKind::ReallocFree, 5, None)
        .event(1, 0x50_0000, alloc(8192), ApiKind::Realloc, 5, Some(4))
        .event(1, 0x50_0000, Op::Free, ApiKind::ReallocFree, 5, None)
        .special(1, Special::ReallocUndo { free_seqno: Some(6), addr: 0x50_0000 })
        .alloc(1, 0x60_0000, 64, 7)
        .free(1, 0x60_0000)
        .event(0, 0x1000, Op::Free, ApiKind::Free, 8, None)
        .event(0, 0x1000, Op::Free, ApiKind::Free, 1, None)
        .event(0, 0x30_0000, Op::Free, ApiKind::Free, 8, None)
        .free(0, 0x20_0010)
        .free(0, 0x7000_0000)
        .session()
}

fn replayed(mut session: Session) -> (Session, Arc<Outcome>, Stats) {
    let found = session.outcome().unwrap();
    let stats = Stats::collect(&session, &found);
    (session, found, stats)
}

#[track_caller]
pub(crate) fn check(name: &str, text: &[u8]) {
    let text = String::from_utf8(text.to_vec()).unwrap();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os("HIGHWATER_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name} differs from golden/{name}; it is now:\n{text}");
    if name.ends_with(".txt") {
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "wider than 80 columns: {line}");
        }
    } else {
        serde_json::from_str::<Value>(&text).unwrap();
    }
}

/// Holds the document all of these keys (`a.b` is `b` inside of `a`, `a[]` every
/// element of `a`)?
#[track_caller]
pub(crate) fn keys(document: &[u8], schema: &str, paths: &[&str]) {
    let value: Value = serde_json::from_slice(document).unwrap();
    assert_eq!(value["schema"], schema);
    for path in paths {
        let mut here = vec![&value];
        for part in path.split('.') {
            let (key, each) = match part.strip_suffix("[]") {
                Some(key) => (key, true),
                None => (part, false),
            };
            here = here
                .into_iter()
                .flat_map(|value| {
                    let inner = value.get(key).unwrap_or_else(|| panic!("{schema} has no {path}: {value}"));
                    if each { inner.as_array().unwrap().iter().collect() } else { vec![inner] }
                })
                .collect();
            assert!(!here.is_empty(), "{schema}: {path} has no element to look at");
        }
    }
}

#[test]
fn stats_views() {
    let (session, found, stats) = replayed(program());
    let mut text = Vec::new();
    self::stats::text(&mut text, &Look::default(), &session, &stats, found.sizes(), found.lifetimes())
        .unwrap();
    check("stats.txt", &text);
    let mut json = Vec::new();
    self::stats::json(&mut json, &stats, None).unwrap();
    check("stats.json", &json);
    keys(
        &json,
        "highwater.stats/1",
        &[
            "events",
            "allocations",
            "frees",
            "reallocations",
            "bytes_allocated",
            "bytes_freed",
            "temporary",
            "live_blocks",
            "live_bytes",
            "peak_bytes",
            "peak_time",
            "peak_uncertainty",
            "duration",
            "stalled",
            "threads",
            "errors.double_free",
            "errors.invalid_free",
            "errors.mismatched",
            "foreign_frees",
            "stacks.complete",
            "stacks.truncated",
            "order_repairs",
            "dropped",
            "ended.how",
            "ended.code",
            "complete",
            "by_api.malloc",
            "by_api.realloc",
        ],
    );
    let value: Value = serde_json::from_slice(&json).unwrap();
    // Six blocks: four of malloc, one of new, one of a realloc; the failed realloc
    // counts nowhere. 3 bad frees and a foreign one are frees too.
    assert_eq!(value["allocations"], 6);
    assert_eq!(value["frees"], 7);
    assert_eq!(value["events"], 13);
    assert_eq!(value["by_api"]["realloc"], 1);
    assert_eq!(value["complete"], true);
}

#[test]
fn dump_views() {
    let (mut session, ..) = replayed(program());
    let live = session.live_at(Until::End).unwrap();
    let mut text = Vec::new();
    dump::text(&mut text, &Look::default(), &mut session, &live, 100).unwrap();
    check("dump.txt", &text);
    let mut json = Vec::new();
    dump::json(&mut json, &mut session, &live).unwrap();
    check("dump.json", &json);
    keys(
        &json,
        "highwater.dump/1",
        &[
            "blocks[].address",
            "blocks[].size",
            "blocks[].seqno",
            "blocks[].time",
            "blocks[].thread",
            "blocks[].api",
            "blocks[].stack[].address",
            "blocks[].stack[].function",
            "blocks[].stack[].file",
            "blocks[].stack[].line",
            "blocks[].stack[].module",
            "blocks[].stack[].inlined",
        ],
    );
    let mut text = Vec::new();
    dump::text(&mut text, &Look::default(), &mut session, &[], 100).unwrap();
    assert_eq!(text, b"nothing is live then\n");
}

#[test]
fn history_views() {
    let (mut session, ..) = replayed(program());
    let mut all = Selection::default();
    let mut text = Vec::new();
    history::text(&mut text, &Look::default(), &mut session, &Range::default(), &mut all).unwrap();
    check("history.txt", &text);
    let mut wide = Vec::new();
    history::text(
        &mut wide,
        &Look { width: 120, ..Look::default() },
        &mut session,
        &Range::default(),
        &mut all,
    )
    .unwrap();
    let wide = String::from_utf8(wide).unwrap();
    assert!(wide.contains("work (/src/app/work.c:9)  of #4"), "{wide}");
    let mut json = Vec::new();
    history::json(&mut json, &mut session, &Range::default(), &mut all).unwrap();
    check("history.json", &json);
    keys(
        &json,
        "highwater.history/1",
        &[
            "events[].seqno",
            "events[].time",
            "events[].thread",
            "events[].op",
            "events[].api",
            "events[].address",
            "events[].size",
            "events[].stack",
        ],
    );
    let value: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(value["events"][5]["pair"], 4);
    // A free carries the size of the block that it frees.
    assert_eq!(value["events"][4]["size"], 4096);
    let mut filter = highwater_query::Filter::default();
    filter.add("size_min=1M").unwrap();
    let mut few = Vec::new();
    let mut large = filter.select(&mut session).unwrap();
    history::json(&mut few, &mut session, &Range::default(), &mut large).unwrap();
    let value: Value = serde_json::from_slice(&few).unwrap();
    assert_eq!(value["events"].as_array().unwrap().len(), 2);
}

#[test]
fn peak_views() {
    let (mut session, found, stats) = replayed(program());
    let groups = sites::at_peak(&mut session, &found, By::Site).unwrap();
    let mut text = Vec::new();
    sites::peak_text(&mut text, &Look::default(), &session, &stats, &groups, By::Site, 3).unwrap();
    check("peak.txt", &text);
    let mut json = Vec::new();
    sites::peak_json(&mut json, &stats, &groups, By::Site).unwrap();
    check("peak.json", &json);
    let site = [
        "sites[].function",
        "sites[].file",
        "sites[].line",
        "sites[].module",
        "sites[].bytes",
        "sites[].blocks",
        "sites[].stack[].function",
    ];
    keys(&json, "highwater.peak/1", &site);
    let total: u64 = groups.iter().map(|group| group.bytes).sum();
    assert_eq!(total, stats.totals.peak_bytes);
    // By thread the blocks themselves are replayed up to the peak: the same sum.
    let groups = sites::at_peak(&mut session, &found, By::Thread).unwrap();
    assert_eq!(groups.iter().map(|group| group.bytes).sum::<u64>(), stats.totals.peak_bytes);
    let mut text = Vec::new();
    sites::peak_text(&mut text, &Look::default(), &session, &stats, &groups, By::Thread, 9).unwrap();
    check("peak-by-thread.txt", &text);
}

#[test]
fn leaks_views() {
    let (mut session, found, stats) = replayed(program());
    let groups = sites::live(&mut session, &found);
    let mut text = Vec::new();
    sites::leaks_text(&mut text, &Look::default(), &session, &stats, &groups, By::Site, 9).unwrap();
    check("leaks.txt", &text);
    let live = session.live_at(Until::End).unwrap();
    let mut json = Vec::new();
    let evidence = Evidence::collect(&mut session, Slicing::Events).unwrap();
    let (rules, options) = (Suppressions::default(), rank::Options::default());
    let ranking = rank::rank(&mut session, &evidence, &Findings::default(), &rules, &options);
    let more = LeaksJson { blocks: Some(&live), ranking: Some(&ranking) };
    sites::leaks_json(&mut json, &mut session, &stats, &groups, By::Site, more).unwrap();
    check("leaks.json", &json);
    keys(
        &json,
        "highwater.leaks/1",
        &[
            "suspects[].rank",
            "suspects[].function",
            "suspects[].file",
            "suspects[].line",
            "suspects[].bytes",
            "suspects[].blocks",
            "suspects[].methods[]",
            "suspects[].confidence",
            "suspects[].reason",
            "suspects[].stack[].function",
            "suspects[].verdict",
            "suspects[].series[]",
            "sites[].bytes",
            "blocks[].address",
        ],
    );
}

#[test]
fn nothing_live_is_a_sentence() {
    let made = Made::default().node(1, 0, "main", "a.c", 1).alloc(0, 64, 8, 1).free(0, 64);
    let (session, _, stats) = replayed(made.session());
    let mut text = Vec::new();
    sites::leaks_text(&mut text, &Look::default(), &session, &stats, &[], By::Site, 9).unwrap();
    assert_eq!(text, b"nothing is live at the end: no leaks\n");
}

#[test]
fn errors_views() {
    let (mut session, found, stats) = replayed(program());
    let mut text = Vec::new();
    errors::text(&mut text, &Look::default(), &mut session, &stats, found.errors(), 9).unwrap();
    check("errors.txt", &text);
    let mut json = Vec::new();
    errors::json(&mut json, &mut session, found.errors()).unwrap();
    check("errors.json", &json);
    keys(
        &json,
        "highwater.errors/1",
        &[
            "errors[].kind",
            "errors[].address",
            "errors[].time",
            "errors[].thread",
            "errors[].stack",
            "errors[].allocated.stack",
            "errors[].freed",
        ],
    );
    let value: Value = serde_json::from_slice(&json).unwrap();
    let kinds: BTreeSet<&str> =
        value["errors"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, BTreeSet::from(["double_free", "invalid_free", "mismatched"]));
    assert_eq!(value["errors"][0]["freed"]["stack"][0]["function"], "cleanup");
}

#[test]
fn threads_views() {
    let (session, found, stats) = replayed(program());
    let mut sorted = found.threads().to_vec();
    highwater_query::sort::threads(&session, &mut sorted, &[], false);
    let mut text = Vec::new();
    threads::text(&mut text, &Look::default(), &session, &stats, &sorted, 9).unwrap();
    check("threads.txt", &text);
    let mut json = Vec::new();
    threads::json(&mut json, &session, found.threads()).unwrap();
    check("threads.json", &json);
    let paths = ["id", "tid", "name", "allocations", "bytes", "live_bytes", "peak_bytes"];
    keys(
        &json,
        "highwater.threads/1",
        &paths.map(|key| format!("threads[].{key}")).each_ref().map(String::as_str),
    );
}

#[test]
fn tree_views() {
    let (mut session, found, _) = replayed(program());
    let items: Vec<Item> = found.sites().iter().map(|site| Item::of(site, Metric::Peak)).collect();
    for (name, direction) in [
        ("tree", Direction::TopDown),
        ("tree-bottom-up", Direction::BottomUp),
        ("tree-callers", Direction::Callers("work".into())),
    ] {
        let shape = Shape { direction, by: By::Function, ..Shape::default() };
        let built = Tree::build(&mut session, items.iter().copied(), &shape);
        let mut text = Vec::new();
        tree::text(&mut text, &Look::default(), &session, &built, &shape.direction, &Show::ALL).unwrap();
        check(&format!("{name}.txt"), &text);
    }
    let shape = Shape { by: By::Function, ..Shape::default() };
    let built = Tree::build(&mut session, items, &shape);
    let mut json = Vec::new();
    tree::json(&mut json, &session, &built, &shape.direction, &Show::ALL).unwrap();
    check("tree.json", &json);
    let frame = ["address", "function", "file", "line", "module", "inlined", "bytes", "blocks"];
    let nodes = frame.iter().flat_map(|key| [format!("roots[].{key}"), format!("roots[].children[].{key}")]);
    let nodes: Vec<String> = nodes.filter(|path| !path.starts_with("roots[].children[].")).collect();
    keys(&json, "highwater.tree/1", &nodes.iter().map(String::as_str).collect::<Vec<_>>());
    let value: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(value["roots"][0]["children"][0]["function"], "parse_file");
    // Two levels only: what lies below is said to be cut.
    let mut few = Vec::new();
    let two = Show { depth: 1, ..Show::ALL };
    tree::json(&mut few, &session, &built, &shape.direction, &two).unwrap();
    let value: Value = serde_json::from_slice(&few).unwrap();
    assert_eq!(
        (&value["roots"][0]["cut"], &value["roots"][0]["children"]),
        (&true.into(), &Value::Array(vec![]))
    );
    // No recursion: a stack may be deeper than this program's.
    let mut deep = Made::default();
    for id in 1..20_000 {
        deep = deep.node(id, id - 1, "down", "deep.c", 1);
    }
    let (mut session, found, _) = replayed(deep.alloc(0, 64, 8, 19_000).session());
    let items: Vec<Item> = found.sites().iter().map(|site| Item::of(site, Metric::Peak)).collect();
    let built = Tree::build(&mut session, items, &shape);
    let mut json = Vec::new();
    tree::json(&mut json, &session, &built, &shape.direction, &Show::ALL).unwrap();
    assert_eq!(json.windows(10).filter(|window| window == b"\"children\"").count(), 19_000);
    tree::text(&mut json, &Look::default(), &session, &built, &shape.direction, &Show::ALL).unwrap();
}

#[test]
fn groups_of_totals_views() {
    let (mut session, _, _) = replayed(program());
    let ask = Ask { by: By::Thread, ..Ask::default() };
    let survey = Survey::of(&mut session, &ask).unwrap();
    let items = survey.items.iter().map(|item| item.with(Metric::Allocated));
    let groups = highwater_query::group::group(&mut session, items, By::Thread);
    let mut text = Vec::new();
    let stats = &survey.stats;
    self::stats::groups_text(&mut text, &Look::default(), &session, stats, &groups, By::Thread, 9).unwrap();
    check("stats-by-thread.txt", &text);
    let mut json = Vec::new();
    self::stats::json(&mut json, stats, Some((By::Thread, &groups))).unwrap();
    check("stats-by-thread.json", &json);
    let mut text = Vec::new();
    let live: Vec<Item> = session.live_at(Until::End).unwrap().iter().map(Item::from).collect();
    let groups = highwater_query::group::group(&mut session, live, By::Api);
    sites::dump_text(&mut text, &Look::default(), &session, &groups, By::Api, 9).unwrap();
    check("dump-by-api.txt", &text);
    // A part is not the whole run: neither its end nor its length is told.
    let mut filter = highwater_query::Filter::default();
    filter.add("thread=1").unwrap();
    let survey = Survey::of(&mut session, &Ask { filter, ..Ask::default() }).unwrap();
    let mut text = Vec::new();
    self::stats::text(&mut text, &Look::default(), &session, &survey.stats, &survey.sizes, &survey.lifetimes)
        .unwrap();
    check("stats-part.txt", &text);
}

#[test]
fn the_run_summary_is_short_and_fits() {
    let (mut session, found, stats) = replayed(program());
    let lines = run_summary::lines(&Look::default(), &mut session, &stats, &found);
    assert!(lines.len() <= 20, "{} lines", lines.len());
    let text: String = lines.iter().map(|line| format!("highwater: {line}\n")).collect();
    check("run_summary.txt", text.as_bytes());
}

#[test]
fn a_cut_recording_says_so_first() {
    let mut made = Made::default().node(1, 0, "main", "a.c", 1).alloc(0, 64, 8, 1);
    made.facts.warnings = vec!["the file is cut at byte 4096".to_string()];
    let (_, _, stats) = replayed(made.special(0, Special::Dropped { count: 3 }).session());
    assert_eq!(
        notices::lines(&stats),
        [
            "note: the file is cut at byte 4096",
            "note: the trace has no end: the recorder was interrupted",
            "note: 3 events are missing, so totals are too low",
        ]
    );
    let mut json = Vec::new();
    self::stats::json(&mut json, &stats, None).unwrap();
    let value: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&value["complete"], &value["dropped"]), (&Value::Bool(false), &Value::from(3)));
}

#[test]
fn no_event_is_no_report() {
    let (mut session, found, stats) = replayed(Made::default().session());
    let mut text = Vec::new();
    self::stats::text(&mut text, &Look::default(), &session, &stats, found.sizes(), found.lifetimes())
        .unwrap();
    assert!(text.starts_with(b"nothing was recorded"));
    let lines = run_summary::lines(&Look::default(), &mut session, &stats, &found);
    assert_eq!(lines.len(), 2);
}

#[test]
fn colour_only_where_it_is_asked_for() {
    let (mut session, found, stats) = replayed(program());
    let plain = run_summary::lines(&Look::default(), &mut session, &stats, &found).concat();
    assert!(!plain.contains('\x1b'));
    let look = Look { palette: Palette::coloured(), ..Look::default() };
    let coloured = run_summary::lines(&look, &mut session, &stats, &found).concat();
    assert!(coloured.contains("\x1b["));
    // The same words, once the colours are taken out.
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
}
