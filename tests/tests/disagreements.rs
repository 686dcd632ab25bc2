//! Where the tools that highwater follows disagree, it has made a decision. Each
//! has its test here (docs/development.md has the list).

use std::path::PathBuf;

use highwater_tests::highwater::record_with;
use highwater_tests::{Child, Highwater, Program, Recorded, schema};
use serde_json::Value;

fn program() -> PathBuf {
    Program::new("disagree.c").build()
}

fn recorded(mode: &str, options: &[&str]) -> Recorded {
    record_with(options, |child| child.arg("--").arg(program()).arg(mode))
}

fn view(args: &[&str], of: &Recorded) -> Value {
    Highwater::json(args, &of.trace)
}

/// The functions of the suspects of a method.
fn suspects(of: &Recorded, args: &[&str]) -> Vec<String> {
    let args: Vec<&str> = ["leaks"].iter().chain(args).copied().collect();
    let mut list: Vec<String> = view(&args, of)["suspects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|suspect| suspect["function"].as_str().unwrap_or("?").to_string())
        .collect();
    list.sort();
    list
}

/// C1: live at exit (Basilisk, malloc_count), survivor of a window (DTrace), new
/// since (eCos's diff), growing (edleak), unreachable: each has its own name.
#[test]
fn c1_each_meaning_of_leak_has_its_name() {
    let run = recorded("leaks", &["--leak-check"]).expect_code(0);
    assert_eq!(suspects(&run, &["--method", "exit"]), ["grows", "keeps", "loses"]);
    assert_eq!(suspects(&run, &["--method", "unreachable"]), ["loses"]);
    let (first, last) = ("#0", "#1003");
    // Made after the first event: not `keeps`, whose only block it is.
    let window = suspects(&run, &["--method", "window", "--from", first, "--to", last]);
    assert_eq!(window, ["grows", "loses"]);
    let trace = run.trace.to_str().unwrap();
    let since =
        Highwater::command(["diff", "--json", trace, "--from", "#3", "--to", last]).run().expect_code(0);
    let since = schema::document(&since.out);
    let new: Vec<_> =
        since["new"].as_array().unwrap().iter().map(|c| (&c["function"], &c["blocks"])).collect();
    assert_eq!(new, [(&Value::from("grows"), &Value::from(1000))]);
    let growing = view(&["leaks", "--method", "growth"], &run);
    assert_eq!(growing["suspects"][0]["function"], "grows", "{growing:#}");
    let methods = growing["suspects"][0]["methods"].as_array().unwrap();
    assert!(methods.contains(&Value::from("growth")), "{methods:?}");
}

/// C2: a realloc is two events with one pair number; both halves count in totals,
/// and the block belongs to who called realloc. One that fails is no event.
#[test]
fn c2_a_realloc_is_two_events_with_one_pair_and_a_failed_one_is_none() {
    let run = recorded("realloc", &[]).expect_code(0);
    assert_eq!(run.ended.stdout(), "failed\n");
    let events = run.history();
    let site = |event: &Value| event["stack"][0]["function"].as_str().unwrap_or("?").to_string();
    let own: Vec<_> = events
        .iter()
        .filter(|event| ["origin", "moves"].contains(&site(event).as_str()))
        .map(|event| {
            (
                site(event),
                event["op"].as_str().unwrap(),
                event["api"].as_str().unwrap(),
                event["size"].as_u64(),
            )
        })
        .collect();
    let row = |site: &str, op, api, size| (site.to_string(), op, api, Some(size));
    assert_eq!(
        own,
        [
            row("origin", "alloc", "malloc", 100),
            row("moves", "free", "realloc", 100),
            row("moves", "alloc", "realloc", 5000)
        ]
    );
    let half = |op: &str| events.iter().find(|e| e["api"] == "realloc" && e["op"] == op).unwrap();
    assert_eq!(half("alloc")["pair"], half("free")["seqno"], "the origin can be followed");
    // The failed one left the old block: it is freed later, with its size.
    let freed = events.iter().find(|e| e["op"] == "free" && e["api"] == "free" && e["size"] == 5000);
    assert_eq!(freed.map(|e| e["address"].clone()), Some(half("alloc")["address"].clone()));
    let stats = run.stats();
    assert_eq!(stats["reallocations"], 1);
    let halves = |op: &str| events.iter().filter(|e| e["op"] == op).count() as u64;
    assert_eq!(stats["allocations"], halves("alloc"));
    assert_eq!(stats["frees"], halves("free"));
}

/// C3: Basilisk's leaks force status 1, others' never do: here only where asked.
#[test]
fn c3_a_leak_changes_the_exit_status_only_where_that_was_asked_for() {
    assert_eq!(recorded("leaks", &[]).ended.code(), 0);
    assert_eq!(recorded("leaks", &["--fail-on", "leak"]).ended.code(), 1);
    let run = recorded("leaks", &[]);
    let check = |limit: &str| Highwater::command(["check", "--max-leak", limit]).arg(&run.trace).run();
    check("0").expect_code(1);
    check("1GiB").expect_code(0);
    Highwater::command(["run", "--no-such-option"]).run().expect_code(125);
    Highwater::command(["stats", "--no-such-option"]).run().expect_code(2);
}

/// C4: Basilisk aborts on a bad free, malloc_count reports, edleak ignores: it is
/// recorded always, and the program goes on as it would have.
#[test]
fn c4_a_bad_free_is_recorded_and_the_program_goes_on() {
    let program = Program::new("mismatch.cpp").build();
    let run = record_with(&[], |child| child.arg("--").arg(&program)).expect_code(3);
    assert_eq!(run.ended.stdout(), "went on\n");
    let errors = view(&["errors"], &run);
    assert_eq!(errors["errors"][0]["kind"], "mismatched");
    assert_eq!(errors["errors"].as_array().unwrap().len(), 1);
}

/// C5: malloc_count makes NULL of malloc(0) and programs stop; here the allocator
/// decides, and the block is recorded with 0 bytes.
#[test]
fn c5_malloc_of_nothing_returns_what_the_allocator_returns() {
    let plain = Child::new(program()).arg("zero").run().expect_code(0);
    let run = recorded("zero", &[]).expect_code(0);
    assert_eq!(run.ended.stdout(), plain.stdout());
    assert!(plain.stdout().starts_with("1 1 1 "), "{}", plain.stdout());
    let empty = run.history().iter().filter(|e| e["op"] == "alloc" && e["size"] == 0).count();
    assert_eq!(empty, 3);
}

/// C6: edleak puts 24 to 56 bytes before each block, malloc_count and Basilisk 16,
/// eCos keeps 16 to 64 beside it: here a block has none at all in the program.
#[test]
fn c6_no_block_is_larger_or_lies_otherwise() {
    let plain = Child::new(program()).arg("usable").run().expect_code(0);
    let run = recorded("usable", &[]).expect_code(0);
    assert_eq!(run.ended.stdout(), plain.stdout());
    assert!(plain.stdout().lines().count() > 5);
}

/// C7: ticks (eCos), seconds (memprofile), calendar (DTrace), nothing (edleak): time
/// is kept in ns, and turned into the other units where it is shown.
#[test]
fn c7_time_is_kept_in_nanoseconds_and_shown_in_the_units_of_who_asks() {
    let run = recorded("leaks", &[]).expect_code(0);
    let raw = Highwater::command(["history", "--json"]).arg(&run.trace).run().expect_code(0).stdout();
    let times: Vec<&str> =
        raw.split("\"time\":").skip(1).map(|rest| rest.split([',', '}']).next().unwrap()).collect();
    assert!(
        !times.is_empty() && times.iter().all(|time| time.split('.').nth(1).is_some_and(|f| f.len() == 9))
    );
    let ns = |text: &str| text.replace('.', "").parse::<u64>().unwrap();
    let ticks =
        Highwater::command(["mdd", "history", "-f", "%T"]).arg(&run.trace).run().expect_code(0).stdout();
    let ticks: Vec<u64> = ticks.lines().map(|tick| tick.parse().unwrap()).collect();
    assert_eq!(ticks, times.iter().map(|time| ns(time) / 10_000_000).collect::<Vec<_>>());
    let trace = highwater_trace::Trace::open(&run.trace).unwrap();
    // One anchor on the calendar: after 2020, before 2200.
    assert!((1_577_836_800_000_000_000..7_258_118_400_000_000_000).contains(&trace.meta().wall_ns));
}

/// C8: malloc_count groups digits by the locale and sets that of its host; here the
/// program's locale is its own, and grouping ours.
#[test]
fn c8_the_programs_locale_is_not_touched() {
    let with = |child: Child| child.env("LC_ALL", "de_DE.UTF-8").env("LC_NUMERIC", "de_DE.UTF-8");
    let plain = with(Child::new(program()).arg("locale")).run().expect_code(0);
    let run = record_with(&[], |child| with(child).arg("--").arg(program()).arg("locale")).expect_code(0);
    assert_eq!((run.ended.stdout(), plain.stdout()), ("C 1234.50\n".into(), "C 1234.50\n".into()));
    let many = recorded("leaks", &[]);
    let text =
        Highwater::command(["stats"]).env("LC_ALL", "de_DE.UTF-8").arg(&many.trace).run().expect_code(0);
    assert!(text.stdout().contains(" 2,00"), "{}", text.stdout());
}

/// C9: eCos truncates K and percents, others round: its layouts truncate, all else
/// is in IEC units and rounded.
#[test]
fn c9_ecos_layouts_truncate_and_all_else_is_rounded() {
    let run = recorded("size", &["--actual-size"]).expect_code(0);
    let ecos = Highwater::command(["mdd", "stats"]).arg(&run.trace).run().expect_code(0).stdout();
    // 1535 of 1544 bytes: 1.499 K, and 0.58 % are 0 %.
    assert!(ecos.contains("\nCurrent   : 1K (1535 bytes) used in 1 allocations\n"), "{ecos}");
    assert!(ecos.contains("\nOverhead  : approximately 0K (9 bytes), 0%\n"), "{ecos}");
    let own = Highwater::command(["stats"]).arg(&run.trace).run().expect_code(0).stdout();
    assert!(own.contains(" 1.5 KiB"), "{own}");
}
