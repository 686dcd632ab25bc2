//! Firmware on a simulated RISC-V 32 without any C library.

use highwater_tests_embedded::build::{Firmware, Target};
use highwater_tests_embedded::session::*;
use highwater_tests_embedded::told::*;
use tempfile::tempdir;

#[test]
fn the_history_is_what_the_firmware_did() {
    let folder = tempdir().unwrap();
    let firmware = Firmware::new(Target::Riscv, &["ops.c"]).set("HISTORY=1").set("HISTORY_RECORDS=64");
    let firmware = firmware.set("BACKTRACE=4").set("UNWIND=2").set("STACKS=1");
    let elf = firmware.with("-fno-omit-frame-pointer").link(folder.path(), "ops.elf");
    let commands = "break finished\nmdd_watch_overflow\ncontinue\nmdd_dump";
    let text = session(Target::Riscv, folder.path(), &elf, commands);
    let files = dump_files(folder.path());
    assert!(files.len() > 3, "{text}");
    assert_eq!(flawless(&files)[0].machine, 243);
    assert_history(&folder.path().join("console"), &elf, &files, true);
    let (_, out, err) = mdd(&["dump", "-f", "%f1|%f2|%f3"], &[&elf, files.last().unwrap()]);
    assert!(!out.is_empty() && out.lines().all(|l| l == "operate|churn|main"), "{out}{err}");
}

#[test]
fn a_scan_of_the_stack_that_the_host_checks_is_cut_short_at_worst() {
    let folder = tempdir().unwrap();
    let firmware = Firmware::new(Target::Riscv, &["ops.c"]).set("BACKTRACE=8").set("UNWIND=4");
    let elf = firmware.set("STACKS=1").link(folder.path(), "ops.elf");
    let text = session(Target::Riscv, folder.path(), &elf, "break finished\ncontinue\nmdd_dump");
    let dump = folder.path().join("mddout.0");
    flawless(std::slice::from_ref(&dump));
    let (_, out, err) = mdd(&["dump", "-f", "%f1|%f2|%f3"], &[&elf, &dump]);
    let wanted = ["operate", "churn", "main"];
    let whole = out.lines().filter(|l| l.split('|').eq(wanted)).count();
    assert!(whole > 0 && whole * 10 >= out.lines().count() * 9, "{out}{err}{text}");
    for line in out.lines() {
        assert!(line.split('|').zip(wanted).all(|(f, w)| f == w || f == "??"), "{line}");
    }
}
