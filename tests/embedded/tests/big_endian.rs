//! The same agent on a big-endian machine: Linux programs for PowerPC in QEMU's user mode.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use highwater_tests_embedded::build::{Firmware, Target};
use highwater_tests_embedded::child;
use highwater_tests_embedded::session::*;
use highwater_tests_embedded::told::*;
use tempfile::tempdir;

#[test]
fn a_dump_of_a_big_endian_target_is_what_the_program_did() {
    let folder = tempdir().unwrap();
    let firmware = Firmware::new(Target::PowerPc, &["ops.c"]).set("HISTORY=1").set("HISTORY_RECORDS=1000");
    // a gigabyte would be granted
    let firmware = firmware.with("-DTOO_MUCH=((size_t)-1/2+2)").with("-DDUMP=\"ops.mddout\"");
    let elf = firmware.link(folder.path(), "ops");
    let console = File::create(folder.path().join("console")).unwrap();
    let mut emulator = Command::new("qemu-ppc");
    emulator.args(["-L", "/usr/powerpc-linux-gnu"]).arg(&elf).current_dir(folder.path());
    let mut program = child::start(emulator.stdout(Stdio::from(console)));
    child::wait_for("the program's end", || program.0.try_wait().unwrap().is_some());
    assert!(program.0.wait().unwrap().success());

    let files: Vec<PathBuf> = vec![folder.path().join("ops.mddout")];
    let dump = &flawless(&files)[0];
    assert!(dump.abi.big && dump.abi.word == 4 && dump.machine == 20);
    assert_eq!((dump.tick_hz, dump.threads[0].name.as_str()), (1000, "qemu-ppc"));
    // milliseconds since the machine started: with its words swapped it would be millions of years
    assert!(dump.live.iter().all(|b| (1..1 << 42).contains(&b.made.time.unwrap())));
    assert_history(&folder.path().join("console"), &elf, &files, true);
    let stats = mdd(&["stats"], &[&files[0]]).1;
    assert!(stats.contains("            memalign() "), "{stats}");
}
