//! The demo `consume`: four tasks, C and C++ heaps, the four commands on it.

use std::path::Path;

use highwater_tests_embedded::build::{Firmware, Target};
use highwater_tests_embedded::session::*;
use highwater_tests_embedded::told::assert_history_of;
use tempfile::tempdir;

#[test]
fn the_four_commands_show_it_as_the_manual_shows_its_own() {
    let folder = tempdir().unwrap();
    let firmware = Firmware::new(Target::Nano, &["consume.cxx", "tasks.c"]).set("CONFIG=\"tasks.h\"");
    let elf = firmware.set("HISTORY=1").set("HISTORY_RECORDS=512").link(folder.path(), "consume");
    let commands = "break finished\nmdd_watch_overflow\ncontinue\nmdd_dump\ncontinue\nmdd_dump";
    let text = session(Target::Nano, folder.path(), &elf, commands);
    let files = dump_files(folder.path());
    assert!(files.len() >= 3, "{text}");
    let dumps = flawless(&files);
    let (first, last) = (files[files.len() - 2].as_path(), files[files.len() - 1].as_path());

    let stats = mdd(&["stats"], &[first]).1;
    let lines: Vec<&str> = stats.lines().collect();
    assert!(lines[0].ends_with(": statistics"));
    assert!(
        lines[1].starts_with("Heap      : 0x20") && lines[1].contains(" to 0x203fffff, size "),
        "{stats}"
    );
    for wanted in ["malloc() ", "new(nothrow) ", "new(nothrow)[] ", "new ", "calloc() ", "realloc() "] {
        assert!(lines.iter().any(|l| l.starts_with(&format!("            {wanted}"))), "{wanted}: {stats}");
    }
    for (n, name) in
        ["Idle Thread", "thread_0", "thread_1", "thread_2", "thread_3", "main"].iter().enumerate()
    {
        let line =
            lines.iter().find(|l| l.ends_with(&format!(", {name}"))).unwrap_or_else(|| panic!("{stats}"));
        assert!(line.starts_with(&format!("{:9} : handle 0x", n + 1)), "{line}");
    }
    assert!(
        stats.contains("time stamps enabled, thread info enabled\n          : backtrace enabled, 1 levels\n")
    );

    let dump = mdd(&["dump"], &[&elf, first]).1;
    let blocks = dump.lines().filter(|l| l.starts_with("0x")).count();
    assert_eq!(blocks, dumps[dumps.len() - 2].live.len());
    assert!(dump.contains("  By thread 3, 0x"), "{dump}");
    assert!(dump.contains("worker1(int)\n") && dump.contains("worker2(int)\n"), "{dump}");
    assert!(dump.contains("consume.cxx:"), "{dump}");
    assert!(dump.contains("\"        case LARGE: a.data.large = new (std::nothrow) Large; SAY("), "{dump}");
    assert!(
        dump.contains("malloc() 256 bytes, actual size 260 (+4), seqno 0, time 0\n  By thread 1, 0x"),
        "{dump}"
    );

    let mut all: Vec<&Path> = vec![&elf];
    all.extend(files.iter().map(|f| f.as_path()));
    let (status, history, _) = mdd(&["history"], &all);
    assert_eq!(status, 0);
    assert!(!history.contains("Caution"));
    let events = history.lines().filter(|l| l.contains(" bytes: 0x")).count();
    assert_eq!(events, dumps.last().unwrap().counters.next_seq as usize);
    assert!(
        history.lines().any(|l| l.starts_with("delete[] ")) && history.contains(" (freed) , actual size ")
    );
    // only the last dump's ring: the rest is not there
    assert!(mdd(&["history"], &[last]).1.starts_with("Caution: history is incomplete.\n\n"));

    let diff = mdd(&["diff", "-f", "%n bytes by %f1"], &[&elf, first, last]).1;
    assert!(diff.contains("\n0 new allocations in ") && diff.contains("\n1 allocations in "), "{diff}");
    assert!(diff.ends_with("\n131072 bytes by main\n"), "{diff}");

    let stacks = mdd(&["stacks"], &[last]).1;
    assert!(stacks.lines().count() == 5 && stacks.contains("of 2048"), "{stacks}");
    let used = |line: &str| line.trim_start().split(' ').next().and_then(|n| n.parse::<u32>().ok()).unwrap();
    assert!(stacks.lines().skip(1).all(|l| (100..2048).contains(&used(l))), "{stacks}");

    let trace = folder.path().join("consume.hwt");
    all.extend([Path::new("-o"), &trace]);
    let (status, _, err) = mdd(&["import"], &all);
    assert_eq!(status, 0, "{err}");
    let trace = highwater_trace::Trace::open(&trace).unwrap();
    assert_eq!(trace.event_count(), u64::from(dumps.last().unwrap().counters.next_seq));
    assert!(trace.warnings().is_empty(), "{:?}", trace.warnings());
    assert_eq!(trace.threads().len(), 6);
}

#[test]
fn the_history_of_four_tasks_is_what_they_did() {
    let folder = tempdir().unwrap();
    let firmware = Firmware::new(Target::Nano, &["consume.cxx", "tasks.c"]).set("CONFIG=\"tasks.h\"");
    let elf =
        firmware.set("HISTORY=1").set("HISTORY_RECORDS=256").with("-DTELL").link(folder.path(), "consume");
    let commands = "break board_exit\nmdd_watch_overflow\ncontinue\nmdd_dump";
    let text = session(Target::Nano, folder.path(), &elf, commands);
    let files = dump_files(folder.path());
    assert!(files.len() > 3, "{text}");
    flawless(&files);
    assert_history_of(&folder.path().join("console"), &elf, &files, Some("consume.cxx"));
}
