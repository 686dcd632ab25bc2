//! The same agent in programs of this machine.

use std::fs;
use std::process::Command;
use std::time::Duration;

use highwater_interchange::mddout::merge;
use highwater_tests_embedded::build::{Firmware, Target};
use highwater_tests_embedded::child;
use highwater_tests_embedded::session::*;
use highwater_tests_embedded::told::*;
use tempfile::tempdir;

#[test]
fn a_position_independent_program_under_its_own_gdb() {
    let folder = tempdir().unwrap();
    let firmware = Firmware::new(Target::Native, &["ops.c"]).set("HISTORY=1").set("HISTORY_RECORDS=64");
    let firmware = firmware.set("BACKTRACE=4").set("UNWIND=2").with("-fno-omit-frame-pointer");
    let elf = firmware.link(folder.path(), "ops");
    let commands = format!(
        "file {}\nset startup-with-shell off\nbreak finished\nmdd_watch_overflow\nrun\nmdd_dump\nkill",
        elf.to_str().unwrap()
    );
    let done = child::run(&mut debugger("gdb", folder.path(), &commands), Duration::from_secs(120));
    let files = dump_files(folder.path());
    assert!(files.len() > 3, "{}", done.text);
    assert!(flawless(&files)[0].self_addr > 0x5000_0000_0000, "the program is position-independent");
    // the console is GDB's
    let console = folder.path().join("console");
    fs::write(&console, &done.text).unwrap();
    assert_history(&console, &elf, &files, true);
    let (_, out, err) = mdd(&["dump", "-f", "%f1|%f2|%f3"], &[&elf, files.last().unwrap()]);
    assert!(!out.is_empty() && out.lines().all(|l| l == "operate|churn|main"), "{out}{err}");
}

#[test]
fn threads_at_once_lose_nothing() {
    let folder = tempdir().unwrap();
    let firmware = Firmware::new(Target::Native, &["native/threads.cxx"]).set("HISTORY=1");
    let elf = firmware.set("HISTORY_RECORDS=20000").set("RECORDS=1000").link(folder.path(), "threads");
    let done = child::run(Command::new(&elf).current_dir(folder.path()), Duration::from_secs(120));
    assert!(done.success, "{}", done.text);
    let dump = &flawless(&[folder.path().join("threads.mddout")])[0];
    for worker in 0..4u64 {
        let name = format!("worker{worker}");
        let own = dump.live.iter().filter(|b| b.size == (worker + 1) * 100);
        let threads: Vec<_> =
            own.map(|b| b.made.thread.and_then(|t| dump.thread(t)).unwrap().name.clone()).collect();
        assert_eq!(threads.len(), 50);
        assert!(threads.iter().all(|t| *t == name));
    }
    assert_eq!((dump.counters.allocs, dump.counters.frees), (8000, 7800));
    assert!(merge::merge(std::slice::from_ref(dump)).unwrap().complete);
}
