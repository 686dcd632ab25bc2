//! `run --leak-check`: what a scan finds is what memcheck and LeakSanitizer
//! find, and the program never notices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater_tests::child::wait_until;
use highwater_tests::highwater::record_with;
use highwater_tests::tools::need;
use highwater_tests::{Highwater, Program, Recorded, number};
use serde_json::Value;

const FLAGS: &[&str] = &["-ldl", "-Wno-unused-result"];
/// Classes by memcheck's words and ours.
const CLASSES: [(&str, &str); 4] = [
    ("definitely lost", "definite"),
    ("indirectly lost", "indirect"),
    ("possibly lost", "possible"),
    ("still reachable", "reachable"),
];

/// (class, function that allocated) -> (bytes, blocks).
type Found = BTreeMap<(String, String), (i64, i64)>;

fn lost() -> PathBuf {
    Program::new("lost.cpp").flags(FLAGS).build()
}

fn keeper() -> PathBuf {
    Program::new("keeper.c").flags(&["-shared", "-fPIC"]).build()
}

fn scanned(program: &Path, case: &str) -> Recorded {
    record_with(&["-q", "--leak-check"], |child| child.arg("--").arg(program).arg(case).arg(keeper()))
}

#[track_caller]
fn classes(recorded: &Recorded) -> Value {
    Highwater::json(&["leaks", "--method", "unreachable", "--by", "stack"], &recorded.trace)
}

/// A function of the corpus: its name says what is true of its blocks.
fn own(function: &str) -> Option<String> {
    let name = function.split(['(', ' ']).next().unwrap_or_default();
    let ours = ["lost_", "kept_", "possibly_"].iter().any(|prefix| name.starts_with(prefix));
    ours.then(|| name.to_string())
}

/// What highwater found, of the corpus' own functions.
#[track_caller]
fn by_highwater(recorded: &Recorded) -> Found {
    let document = classes(recorded);
    assert_eq!(document["scan"]["scanned"], true, "{:#}", document["scan"]);
    let mut found = Found::new();
    for site in document["sites"].as_array().unwrap() {
        let frames = site["stack"].as_array().unwrap();
        let Some(name) = frames.iter().find_map(|frame| own(frame["function"].as_str()?)) else { continue };
        for (_, class) in CLASSES {
            let blocks = number(&site[class], "blocks");
            if blocks > 0 {
                let sum = found.entry((class.to_string(), name.clone())).or_default();
                *sum = (sum.0 + number(&site[class], "bytes"), sum.1 + blocks);
            }
        }
    }
    found
}

/// What memcheck found, of the corpus' own functions.
#[track_caller]
fn by_memcheck(program: &Path, case: &str) -> Found {
    let ended = Highwater::plain(need("valgrind"))
        .args(["--run-libc-freeres=no", "--run-cxx-freeres=no", "--leak-check=full"])
        .args(["--show-leak-kinds=all", "--undef-value-errors=no", "--num-callers=40"])
        .arg(program)
        .arg(case)
        .arg(keeper())
        .limit(Duration::from_secs(240))
        .run();
    let mut found = Found::new();
    let mut record: Option<(&str, (i64, i64))> = None;
    for line in ended.stderr().lines() {
        let text = line.split_once("== ").map_or("", |(_, text)| text);
        if let Some((_, class)) =
            CLASSES.iter().find(|(words, _)| text.contains(&format!("are {words} in loss record")))
        {
            record = Some((class, amounts(text)));
        } else if text.trim().is_empty() {
            record = None;
        } else if let Some((class, (bytes, blocks))) = record
            && let Some((_, function)) = text.split_once(": ")
            && let Some(name) = own(function)
        {
            let sum = found.entry((class.to_string(), name)).or_default();
            *sum = (sum.0 + bytes, sum.1 + blocks);
            record = None;
        }
    }
    found
}

/// `560 (56 direct, 504 indirect) bytes in 1 blocks are …`: 56 and 1.
fn amounts(text: &str) -> (i64, i64) {
    let number = |text: &str| -> i64 {
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    let (bytes, rest) = text.split_once(" bytes in ").unwrap_or_default();
    let bytes = match bytes.split_once('(') {
        Some((_, direct)) => direct.split_once(" direct").unwrap_or_default().0,
        None => bytes,
    };
    (number(bytes), number(rest.split(' ').next().unwrap_or_default()))
}

/// What LeakSanitizer found: direct and indirect bytes and blocks by function.
#[track_caller]
fn by_leak_sanitizer(case: &str) -> BTreeMap<(bool, String), (i64, i64)> {
    let program =
        Program::new("lost.cpp").flags(FLAGS).flags(&["-fsanitize=leak", "-fno-omit-frame-pointer"]).build();
    let ended = Highwater::plain(program)
        .arg(case)
        .arg(keeper())
        .env("LSAN_OPTIONS", "exitcode=0:fast_unwind_on_malloc=0")
        .run();
    let mut found = BTreeMap::new();
    let mut record: Option<(bool, (i64, i64))> = None;
    let text = ended.stderr();
    assert!(!text.contains("LeakSanitizer has encountered a fatal error"), "{text}");
    for line in text.lines() {
        if let Some((kind, rest)) = line.split_once(" leak of ") {
            let words: Vec<&str> = rest.split(' ').collect();
            let amount = (words[0].parse().unwrap_or(0), words[3].parse().unwrap_or(0));
            record = Some((kind.trim() == "Direct", amount));
        } else if let Some((direct, amount)) = record
            && let Some((_, function)) = line.split_once(" in ")
            && let Some(name) = own(function)
        {
            let sum: &mut (i64, i64) = found.entry((direct, name)).or_default();
            *sum = (sum.0 + amount.0, sum.1 + amount.1);
            record = None;
        }
    }
    found
}

/// Compares with memcheck by class and function, and with LeakSanitizer by
/// function: what it calls leaked is what we call lost, or lies in `but`.
#[track_caller]
fn compare(case: &str, but: &[&str]) -> Found {
    let program = lost();
    let recorded = scanned(&program, case).expect_code(0);
    let ours = by_highwater(&recorded);
    assert_eq!(ours, by_memcheck(&program, case), "{case}: highwater, then memcheck");
    let mut leaked: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for ((class, name), amount) in &ours {
        if class == "definite" || class == "indirect" {
            let sum = leaked.entry(name.clone()).or_default();
            *sum = (sum.0 + amount.0, sum.1 + amount.1);
        }
    }
    let mut theirs: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for ((_, name), amount) in by_leak_sanitizer(case) {
        if !but.contains(&name.as_str()) {
            let sum = theirs.entry(name).or_default();
            *sum = (sum.0 + amount.0, sum.1 + amount.1);
        }
    }
    assert_eq!(leaked, theirs, "{case}: highwater, then LeakSanitizer");
    for (class, name) in ours.keys() {
        let right = match class.as_str() {
            "definite" | "indirect" => "lost_",
            "possible" => "possibly_",
            _ => "kept_",
        };
        assert!(name.starts_with(right), "{case}: {name} is called {class}");
    }
    ours
}

fn amount(found: &Found, class: &str, name: &str) -> (i64, i64) {
    found.get(&(class.to_string(), name.to_string())).copied().unwrap_or_default()
}

#[test]
fn single_blocks_and_every_entry_point() {
    let found = compare("single", &[]);
    assert_eq!(amount(&found, "definite", "lost_single"), (77, 1));
    assert_eq!(amount(&found, "reachable", "kept_single"), (33, 1));
    let found = compare("kinds", &[]);
    assert_eq!(amount(&found, "definite", "lost_kinds").1, 7);
}

#[test]
fn a_lost_list_has_one_head() {
    let found = compare("list", &[]);
    assert_eq!(amount(&found, "definite", "lost_list"), (56, 1));
    assert_eq!(amount(&found, "indirect", "lost_list"), (9 * 56, 9));
    let direct = by_leak_sanitizer("list")[&(true, "lost_list".to_string())];
    assert_eq!(direct, (56, 1), "LeakSanitizer says the same");
}

#[test]
fn a_lost_tree_has_one_head() {
    let found = compare("tree", &[]);
    assert_eq!(amount(&found, "indirect", "lost_tree").1, 14);
}

#[test]
fn a_lost_ring_has_one_head() {
    let found = compare("ring", &[]);
    assert_eq!(amount(&found, "definite", "lost_ring"), (56, 1));
    let found = compare("headed_ring", &[]);
    assert_eq!(amount(&found, "definite", "lost_head"), (56, 1));
    assert_eq!(amount(&found, "indirect", "lost_ringed"), (112, 2));
}

#[test]
fn a_pointer_into_the_middle_is_a_possible_loss() {
    let found = compare("middle", &[]);
    assert_eq!(amount(&found, "possible", "possibly_chained"), (112, 2));
    let found = compare("lost_middle", &[]);
    assert_eq!(amount(&found, "indirect", "lost_follower"), (56, 1));
}

#[test]
fn arrays_old_strings_and_lengths_in_front_are_kept() {
    assert_eq!(compare("prefixes", &[]).len(), 3);
}

#[test]
fn a_pointer_to_a_second_base_keeps_the_object() {
    assert_eq!(compare("bases", &[]).len(), 1);
}

#[test]
fn a_lost_map_loses_its_nodes_and_strings() {
    let found = compare("words", &[]);
    assert_eq!(amount(&found, "definite", "lost_words"), (48, 1));
    compare("strings", &[]);
}

#[test]
fn what_threads_hold_is_kept() {
    compare("stacks", &[]);
    compare("registers", &[]);
    compare("locals", &[]);
    compare("specific", &[]);
}

#[test]
fn what_a_joined_thread_held_is_lost() {
    assert_eq!(compare("joined", &[]).len(), 1);
}

#[test]
fn memory_that_the_program_mapped_holds_pointers() {
    // LeakSanitizer does not look there.
    compare("mapping", &["kept_in_mapping"]);
}

#[test]
fn a_librarys_globals_hold_pointers_until_it_is_unloaded() {
    let program = lost();
    let found = by_highwater(&scanned(&program, "plugged").expect_code(0));
    assert_eq!(amount(&found, "reachable", "kept_by_library"), (321, 1));
    assert_eq!(amount(&found, "reachable", "kept_by_local"), (322, 1));
    // memcheck counts what the loader makes for itself there, too.
    let theirs = by_memcheck(&program, "plugged");
    assert!(theirs.keys().all(|(class, _)| class == "reachable"), "{theirs:?}");
    assert_eq!(amount(&theirs, "reachable", "kept_by_library"), (321, 1));
    let found = by_highwater(&scanned(&program, "unplugged").expect_code(0));
    assert_eq!(amount(&found, "definite", "kept_by_library"), (321, 1));
}

#[test]
fn remains_of_freed_blocks_hold_nothing() {
    assert_eq!(compare("freed", &[]).len(), 1);
}

#[test]
fn what_main_holds_at_exit_is_kept_and_the_status_is_the_programs() {
    let found = by_highwater(&scanned(&lost(), "exit").expect_code(7));
    assert_eq!(amount(&found, "reachable", "kept_by_main"), (222, 1));
    let found = by_highwater(&scanned(&lost(), "quick").expect_code(4));
    assert_eq!(amount(&found, "definite", "lost_single"), (77, 1));
}

#[track_caller]
fn not_scanned(recorded: &Recorded) -> String {
    let document = classes(recorded);
    assert_eq!(document["scan"]["scanned"], false);
    let why = document["scan"]["not_scanned"].as_str().unwrap().to_string();
    let ended =
        Highwater::command(["leaks", "--method", "unreachable"]).arg(&recorded.trace).run().expect_code(2);
    assert!(ended.stderr().contains(&format!("not scanned: {why}")), "{}", ended.stderr());
    why
}

#[test]
fn an_end_without_an_exit_is_not_scanned_and_says_so() {
    let program = lost();
    assert!(not_scanned(&scanned(&program, "at_once").expect_code(5)).contains("_exit"));
    assert!(not_scanned(&scanned(&program, "killed").expect_code(137)).contains("signal"));
    let unasked = record_with(&["-q"], |child| child.arg("--").arg(&program).arg("single"));
    assert_eq!(not_scanned(&unasked), "recorded without --leak-check");
    // A block that is not recorded may hold the only pointer to one that is.
    let sample = Highwater::command(["run", "--leak-check", "--sample", "64KiB", "--"]).arg(&program).run();
    assert!(sample.expect_code(125).stderr().contains("--leak-check needs every block"));
}

#[test]
fn a_crowd_of_running_threads_is_stopped_and_goes_on() {
    let found = by_highwater(&scanned(&lost(), "crowd").expect_code(0));
    assert_eq!(amount(&found, "definite", "lost_single"), (77, 1));
    assert_eq!(amount(&found, "reachable", "kept_on_stack"), (3 * 44, 3));
}

#[test]
fn a_filter_that_kills_for_a_futex_does_not_kill() {
    let found = by_highwater(&scanned(&lost(), "filtered").expect_code(0));
    assert_eq!(amount(&found, "definite", "lost_single"), (77, 1));
}

#[test]
fn the_run_tells_what_is_lost() {
    let recorded = record_with(&["--leak-check"], |child| child.arg("--").arg(lost()).arg("list"));
    let text = recorded.ended.stderr();
    assert!(
        text.contains("definitely lost: 1 block, 56 bytes; indirectly lost: 9 blocks, 504 bytes"),
        "{text}"
    );
}

#[test]
fn who_points_to_a_block_is_told_with_the_way_from_a_root() {
    let recorded = scanned(&lost(), "list").expect_code(0);
    let kept = recorded
        .survivors()
        .into_iter()
        .filter(|block| block["stack"].as_array().unwrap().iter().any(|f| f["function"] == "kept_list()"))
        .map(|block| block["address"].as_str().unwrap().to_string())
        .collect::<Vec<_>>();
    assert_eq!(kept.len(), 7);
    // The first that was made is the last of the list.
    let who = Highwater::json(&["leaks", "--who", &kept[0]], &recorded.trace);
    assert_eq!((who["class"].as_str(), number(&who, "retained")), (Some("reachable"), 56));
    assert_eq!(who["from"][0]["block"].as_str(), Some(kept[1].as_str()));
    assert_eq!(number(&who["from"][0], "offset"), 0);
    let path = who["path"].as_array().unwrap();
    assert_eq!(path.len(), 7);
    let root = path[0]["place"].as_str().unwrap();
    assert!(root.contains("global_pointer"), "{root}");
    let who = Highwater::json(&["leaks", "--who", &kept[6]], &recorded.trace);
    assert_eq!(number(&who, "retained"), 7 * 56, "it leads to all others");
}

/// A program whose scan takes a while: many blocks.
fn many() -> PathBuf {
    Program::new("many.c").build()
}

#[test]
fn a_target_that_is_killed_during_the_scan_leaves_a_trace() {
    let folder = highwater_tests::folder();
    let trace = folder.path().join("t.hwt");
    let run = Highwater::command(["run", "-q", "--leak-check", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(many())
        .arg(folder.path().join("pid"))
        .limit(Duration::from_secs(240))
        .start();
    let target = pid_of(&folder.path().join("pid"));
    wait_until("the scan holds the target", Duration::from_secs(200), || is_traced(target));
    // SAFETY: a process that this test has started, and that is not collected yet.
    unsafe { libc::kill(target as i32, libc::SIGKILL) };
    run.wait().expect_code(137);
    let why = Highwater::json(&["leaks", "--method", "unreachable"], &trace)["scan"].clone();
    // It may have been read to its end just before, or not have stopped yet.
    let known = ["killed during the scan", "ended before it could be stopped"];
    let text = why["not_scanned"].as_str().unwrap_or_default();
    assert!(why["scanned"] == true || known.iter().any(|words| text.contains(words)), "{why}");
}

#[test]
fn a_target_whose_recorder_is_killed_during_the_scan_runs_to_its_end() {
    let folder = highwater_tests::folder();
    let run = Highwater::command(["run", "-q", "--leak-check", "-o"])
        .arg(folder.path().join("t.hwt"))
        .arg("--")
        .arg(many())
        .arg(folder.path().join("pid"))
        .limit(Duration::from_secs(240))
        .start();
    let target = pid_of(&folder.path().join("pid"));
    wait_until("the scan holds the target", Duration::from_secs(200), || is_traced(target));
    run.signal(libc::SIGKILL);
    run.wait().expect_code(137);
    wait_until("the target ends", Duration::from_secs(20), || !highwater_tests::child::is_alive(target));
}

#[track_caller]
fn pid_of(file: &Path) -> u32 {
    let mut pid = 0;
    wait_until("the target says who it is", Duration::from_secs(60), || {
        pid = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        pid != 0
    });
    pid
}

fn is_traced(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
}

#[test]
fn real_programs_lose_no_more_than_memcheck_says() {
    let programs: [(&str, &[&str]); 3] = [
        ("perl", &["-e", "my %h; $h{$_} = [1 .. $_] for 1 .. 200; print scalar keys %h"]),
        ("sqlite3", &[":memory:", "create table t(a); insert into t values(1),(2); select sum(a) from t"]),
        ("jq", &["-n", "[range(100)] | map({a: ., b: [., .]}) | length"]),
    ];
    for (name, args) in programs {
        let program = need(name);
        let recorded = record_with(&["-q", "--leak-check"], |child| child.arg("--").arg(&program).args(args));
        let recorded = recorded.expect_code(0);
        let scan = classes(&recorded)["scan"].clone();
        assert_eq!(scan["scanned"], true, "{name}: {scan}");
        let ended = Highwater::plain(need("valgrind"))
            .args([
                "--run-libc-freeres=no",
                "--run-cxx-freeres=no",
                "--leak-check=full",
                "--undef-value-errors=no",
            ])
            .arg(&program)
            .args(args)
            .limit(Duration::from_secs(240))
            .run();
        let text = ended.stderr();
        let theirs = |class: &str| {
            let line = text.lines().find_map(|line| line.split_once(&format!("{class}: ")));
            line.map_or((0, 0), |(_, rest)| amounts(rest))
        };
        let ours = |class: &str| (number(&scan[class], "bytes"), number(&scan[class], "blocks"));
        assert_eq!(ours("definite"), theirs("definitely lost"), "{name}\n{text}");
        assert_eq!(ours("indirect"), theirs("indirectly lost"), "{name}\n{text}");
    }
}
