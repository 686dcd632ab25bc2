//! The options that all views share: what they select, and that every document
//! is what its schema says. The truth here is the list of all events
//! (`history --json`), put together by the test itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use highwater_tests::{Highwater, Program, Recorded, number, record, schema};
use serde_json::Value;

fn threads() -> Recorded {
    record(Program::new("threads.c").flags(&["-pthread"]).build(), ["/dev/null", "60"]).expect_code(0)
}

fn array(document: &Value, key: &str) -> Vec<Value> {
    document[key].as_array().unwrap_or_else(|| panic!("no list {key} in {document}")).clone()
}

/// A block, by the two events that made and ended it.
struct Block {
    made: Value,
    ended: Option<i64>,
}

/// All blocks of a history.
fn blocks(history: &[Value]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut live: BTreeMap<String, usize> = BTreeMap::new();
    for event in history {
        let address = event["address"].as_str().expect("an address").to_string();
        if event["op"] == "alloc" {
            live.insert(address, blocks.len());
            blocks.push(Block { made: event.clone(), ended: None });
        } else if let Some(at) = live.remove(&address) {
            blocks[at].ended = Some(number(event, "seqno"));
        }
    }
    blocks
}

#[test]
fn filters_and_windows_select_what_the_history_says() {
    let recorded = threads();
    let history = recorded.history();
    let all = blocks(&history);
    let seqnos =
        |blocks: &[Value]| blocks.iter().map(|block| number(block, "seqno")).collect::<BTreeSet<_>>();
    let (from, to) = (history.len() as i64 / 3, history.len() as i64 * 2 / 3);
    let (first, last) = (format!("#{from}"), format!("#{to}"));
    let in_window = |block: &&Block| {
        let made = number(&block.made, "seqno");
        made > from && made <= to
    };
    let alive = |block: &&Block| block.ended.is_none_or(|ended| ended > to);
    let fits = |block: &&Block| {
        (100..=300).contains(&number(&block.made, "size")) && number(&block.made, "thread") != 0
    };
    let select = ["-F", "size=100..300", "-F", "thread!=0"];
    let view = |name: &str, more: &[&str]| {
        Highwater::json(&[&[name], select.as_slice(), more].concat(), &recorded.trace)
    };

    let expected: BTreeSet<i64> = all
        .iter()
        .filter(|b| alive(b) && fits(b) && number(&b.made, "seqno") <= to)
        .map(|b| number(&b.made, "seqno"))
        .collect();
    assert!(!expected.is_empty());
    assert_eq!(seqnos(&array(&view("dump", &["--at", &last]), "blocks")), expected);
    let survivors: BTreeSet<i64> = all
        .iter()
        .filter(|b| in_window(b) && alive(b) && fits(b))
        .map(|b| number(&b.made, "seqno"))
        .collect();
    assert_eq!(seqnos(&array(&view("dump", &["--from", &first, "--to", &last]), "blocks")), survivors);

    let stats = view("stats", &["--from", &first, "--to", &last]);
    let made: Vec<&Block> = all.iter().filter(in_window).filter(fits).collect();
    assert_eq!(number(&stats, "allocations"), made.len() as i64);
    assert_eq!(number(&stats, "bytes_allocated"), made.iter().map(|b| number(&b.made, "size")).sum::<i64>());
    let freed = all.iter().filter(fits).filter(|b| b.ended.is_some_and(|at| at > from && at <= to)).count();
    assert_eq!(number(&stats, "frees"), freed as i64);
    assert_eq!(number(&stats, "live_blocks"), expected.len() as i64);

    let shown = array(&view("history", &["--from", &first, "--to", &last]), "events");
    let thread_and_size = |event: &&Value| {
        let seqno = number(event, "seqno");
        let size = event["size"].as_i64();
        seqno > from
            && seqno <= to
            && number(event, "thread") != 0
            && size.is_some_and(|s| (100..=300).contains(&s))
    };
    assert_eq!(seqnos(&shown), seqnos(&history.iter().filter(thread_and_size).cloned().collect::<Vec<_>>()));

    // Every group of a view adds up to the whole, whatever it is grouped by.
    for by in ["site", "stack", "function", "file", "module", "thread", "api", "size"] {
        let peak = view("peak", &["--by", by]);
        let sum: i64 = array(&peak, "sites").iter().map(|group| number(group, "bytes")).sum();
        assert_eq!(sum, number(&peak, "peak_bytes"), "{by}");
        let tree = view("tree", &["--by", by, "--metric", "live"]);
        let sum: i64 = array(&tree, "roots").iter().map(|root| number(root, "bytes")).sum();
        assert_eq!(sum, number(&tree, "bytes"), "{by}");
        let stats = view("stats", &["--by", by]);
        let sum: i64 = array(&stats, "groups").iter().map(|group| number(group, "allocations")).sum();
        assert_eq!(sum, number(&stats, "allocations"), "{by}");
    }
}

#[test]
fn every_document_fits_its_schema() {
    let of = |program: &'static str, flags: &'static [&'static str], args: &[&str]| {
        record(Program::new(program).flags(flags).build(), args)
    };
    let traces = [
        of("threads.c", &["-pthread"], &["/dev/null", "20"]),
        of("leaks.c", &[], &[]),
        of("mismatched.cpp", &[], &[]),
        of("double_free.c", &[], &[]),
    ];
    let views: [&[&str]; 19] = [
        &["stats"],
        &["stats", "--by", "thread"],
        &["stats", "--self"],
        &["stats", "-F", "size=..50", "--from", "#3"],
        &["dump"],
        &["dump", "--at", "peak"],
        &["dump", "--by", "size"],
        &["history"],
        &["history", "-r", "--limit", "3"],
        &["peak"],
        &["peak", "--by", "api"],
        &["leaks"],
        &["leaks", "--by", "stack", "--blocks"],
        &["tree"],
        &["tree", "--bottom-up", "--metric", "allocations"],
        &["tree", "--callers", "main", "--depth", "1"],
        &["threads"],
        &["errors"],
        &["check", "--max-leak", "1G"],
    ];
    for recorded in &traces {
        for view in views {
            let document = Highwater::json(view, &recorded.trace);
            schema::expect(&document);
            // The schema is no formality: without any of what it requires it does not fit.
            let name = document["schema"].as_str().and_then(|name| name.split('.').nth(1)?.split('/').next());
            let rules = schema::schema(name.expect("a name"));
            for key in rules["required"].as_array().expect("a list") {
                let mut less = document.clone();
                less.as_object_mut().expect("an object").remove(key.as_str().expect("a key"));
                assert_eq!(schema::faults(&less, &rules).len(), 1, "{view:?} without {key}");
            }
        }
    }
}

#[test]
fn every_schema_says_which_it_is() {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(schema::folder()).expect("the folder of schemas") {
        let name = entry.expect("a file").file_name().into_string().expect("a name");
        let document = name.strip_prefix("highwater.").and_then(|name| name.strip_suffix(".v1.json"));
        let document = document.unwrap_or_else(|| panic!("{name} is no name of a schema"));
        let rules = schema::schema(document);
        assert_eq!(rules["$id"], name);
        assert_eq!(rules["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(rules["properties"]["schema"]["const"], format!("highwater.{document}/1"));
        names.insert(document.to_string());
    }
    for view in ["stats", "dump", "history", "peak", "leaks", "tree", "threads", "errors", "check", "diff"] {
        assert!(names.contains(view), "no schema of {view}");
    }
}

#[test]
fn csv_has_the_rows_of_the_document() {
    let recorded = threads();
    for (view, list) in [
        (["history"].as_slice(), "events"),
        (&["dump"], "blocks"),
        (&["peak"], "sites"),
        (&["threads"], "threads"),
        (&["stats", "--by", "function"], "groups"),
    ] {
        let rows = array(&Highwater::json(view, &recorded.trace), list).len();
        let csv = Highwater::command(view).arg("--csv").arg(&recorded.trace).run().expect_code(0).stdout();
        let lines: Vec<&str> = csv.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), rows + 1, "{view:?}");
        let columns = lines[0].split(',').count();
        // No name of this program has a comma or a quote.
        assert!(lines.iter().all(|line| line.split(',').count() == columns), "{csv}");
        let again =
            Highwater::command(view).args(["--csv", "--limit", "2"]).arg(&recorded.trace).run().stdout();
        assert_eq!(again.lines().count(), 3.min(rows + 1), "{view:?}");
    }
}

#[test]
fn formats_fill_every_conversion() {
    let recorded = record(Program::new("leaks.c").build(), [""; 0]).expect_code(0);
    let run = |format: &str| {
        let select = ["dump", "-F", "function=fill_cache", "-S", "Ns", "-f", format];
        Highwater::command(select).arg(&recorded.trace).run().expect_code(0).stdout()
    };
    let block =
        &array(&Highwater::json(&["dump", "-F", "function=fill_cache"], &recorded.trace), "blocks")[0];
    let frame = &block["stack"][0];
    let line = number(frame, "line");
    assert_eq!(
        run("%p %a %n #%s t%t {size} 100%% %f1 {function}"),
        format!(
            "{} calloc() 4096 #{} t0 4096 100% fill_cache fill_cache\n",
            block["address"].as_str().expect("an address"),
            number(block, "seqno"),
        )
    );
    assert_eq!(run("%b1"), format!("{}\n", frame["address"].as_str().expect("an address")));
    let place = run("%w1|%l1|%f2");
    assert!(place.contains(&format!("leaks.c:{line}|")) && place.contains("/* CACHE */|main"), "{place}");
    let time: f64 = run("%T").trim().parse().expect("seconds");
    assert!((time - block["time"].as_f64().expect("seconds")).abs() < 1e-9);
    let thread = run("%h %N");
    assert!(thread.trim().split(' ').next().is_some_and(|tid| tid.parse::<u32>().is_ok()), "{thread}");
}

#[test]
fn what_cannot_be_served_says_so() {
    let recorded = record(Program::new("leaks.c").build(), [""; 0]).expect_code(0);
    for (args, words) in [
        (["dump", "-f", "%m"].as_slice(), "no actual sizes in"),
        (&["dump", "-F", "phase=load"], "no marks in"),
        (&["peak", "--by", "phase"], "no marks in"),
        (&["peak", "-f", "%p"], "no such column"),
        (&["dump", "-F", "tread=1"], "did you mean `thread`?"),
        (&["dump", "-F", "api=maloc"], "did you mean `malloc`?"),
        (&["dump", "-S", "sizee"], "did you mean `size`?"),
        (&["dump", "--at", "@nowhere"], "no mark `nowhere`"),
        (&["dump", "--from", "2s", "--to", "1s"], "--from lies behind --to"),
        (&["stats", "-F", "age=1s.."], "ages are counted at an instant"),
        (&["history", "-S", "p"], "in the order of events"),
        (&["threads", "--by", "file"], "shows no groups"),
        (&["tree", "--metric", "leek"], "no metric"),
    ] {
        let ended = Highwater::command(args).arg(&recorded.trace).run().expect_code(2);
        assert!(ended.stderr().contains(words), "{args:?}: {}", ended.stderr());
        assert!(ended.out.is_empty(), "{args:?}: {}", ended.stdout());
    }
}

#[test]
fn leaks_take_the_options_of_the_other_views() {
    let recorded = record(Program::new("leaks.c").build(), [""; 0]).expect_code(0);
    let leaks = |options: &[&str]| Highwater::json(&[&["leaks"], options].concat(), &recorded.trace);
    let all = leaks(&[]);
    let few = leaks(&["-F", "size=100"]);
    schema::expect(&few);
    let sites = array(&few, "sites");
    assert_eq!(sites.len(), 1, "{few}");
    assert_eq!((&sites[0]["function"], number(&sites[0], "bytes")), (&"leak_list".into(), 1000));
    assert_eq!((number(&few, "live_bytes"), number(&few, "live_blocks")), (1000, 10));
    assert!(array(&few, "suspects").iter().all(|suspect| suspect["function"] == "leak_list"));
    assert!(array(&all, "sites").len() > 2, "{all}");
    let text = |options: &[&str]| {
        Highwater::command([&["leaks"], options].concat()).arg(&recorded.trace).run().expect_code(0).stdout()
    };
    assert_eq!(
        text(&["-F", "function=leak_*", "-S", "-size", "-f", "%n {function}"]),
        "24 leak_name\n1000 leak_list\n"
    );
    assert_eq!(text(&["-F", "function=leak_*", "--csv"]).lines().count(), 3);
    let listed = array(&leaks(&["--at", "#3", "--by", "function", "-F", "function=main"]), "sites");
    let before: i64 = listed.iter().map(|site| number(site, "blocks")).sum();
    let blocks =
        array(&Highwater::json(&["dump", "--at", "#3", "-F", "function=main"], &recorded.trace), "blocks");
    assert_eq!(before, blocks.len() as i64);
}

#[test]
fn inlined_functions_are_frames_unless_asked_otherwise() {
    let program = Program::new("inlined.cpp").flags(&["-O2"]).build();
    let recorded = record(program, [""; 0]).expect_code(0);
    let frames = |options: &[&str]| -> Vec<(String, bool)> {
        let view = [&["dump", "-F", "size=1234"], options].concat();
        let blocks = array(&Highwater::json(&view, &recorded.trace), "blocks");
        assert_eq!(blocks.len(), 1);
        let stack = array(&blocks[0], "stack");
        let frame = |f: &Value| {
            let name = f["function"].as_str().unwrap_or("?").split('(').next().unwrap_or("?").to_string();
            (name, f["inlined"] == true)
        };
        stack.iter().map(frame).take_while(|(name, _)| name != "main").collect()
    };
    let inlined = |name: &str| (name.to_string(), true);
    let outer = ("outer".to_string(), false);
    assert_eq!(frames(&[]), [inlined("innermost"), inlined("middle"), outer.clone()]);
    assert_eq!(frames(&["-n"]), [outer]);
    assert_eq!(frames(&["-I", "*/include/*"]), [("innermost".to_string(), false)]);
    assert_eq!(frames(&["-I", "*/nothing/*"]).len(), 1);
}

#[test]
fn a_long_history_needs_no_more_memory_than_a_short_one() {
    let program = Program::new("footprint.c").build();
    let peak = |events: &str, format: &[&str]| -> i64 {
        let recorded = record(&program, [events, "100"]).expect_code(0);
        let ended = Highwater::plain("/usr/bin/time")
            .args(["-f", "%M", "sh", "-c", "exec \"$@\" > /dev/null", "sh"])
            .arg(Highwater::path())
            .arg("history")
            .args(format)
            .arg(&recorded.trace)
            .limit(Duration::from_secs(240))
            .run()
            .expect_code(0);
        ended.stderr().lines().last().unwrap_or_default().trim().parse().expect("KiB")
    };
    for format in [["--json"], ["--csv"]] {
        let (short, long) = (peak("5000", &format), peak("50000", &format));
        // The memory of freed blocks fills up; 50,000 rows of output would be 40 MiB.
        assert!(long < short + 12 * 1024, "{format:?}: {short} KiB, then {long} KiB");
    }
}

#[test]
fn text_fits_eighty_columns() {
    let recorded = record("/usr/bin/perl", ["-e", "my @a = map { {n => $_} } 1..50; print scalar @a"]);
    for view in [
        ["stats"].as_slice(),
        &["stats", "--by", "site"],
        &["peak"],
        &["tree"],
        &["tree", "--bottom-up"],
        &["dump", "--limit", "40"],
        &["history", "--limit", "40"],
        &["threads"],
    ] {
        let ended = Highwater::command(view).arg(&recorded.trace).run().expect_code(0);
        for line in ended.stdout().lines() {
            assert!(line.chars().count() <= 80 || line.starts_with("next:"), "{view:?}: {line}");
        }
    }
}
