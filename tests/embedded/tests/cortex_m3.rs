//! Firmware on a simulated Cortex-M3 with newlib, a real GDB at it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use highwater_interchange::mddout::{self, Problem};
use highwater_tests_embedded::build::{Firmware, Target};
use highwater_tests_embedded::child;
use highwater_tests_embedded::session::*;
use highwater_tests_embedded::told::*;
use tempfile::tempdir;

fn ops(target: Target) -> Firmware {
    Firmware::new(target, &["ops.c"]).set("HISTORY=1").set("HISTORY_RECORDS=64")
}

const TO_THE_END: &str = "break finished\nmdd_watch_overflow\ncontinue\nmdd_dump";

#[test]
fn the_history_over_several_overflows_is_what_the_firmware_did() {
    for target in [Target::Nano, Target::Newlib] {
        let folder = tempdir().unwrap();
        let elf = ops(target).with("-DFAIL").link(folder.path(), "ops.elf");
        let text = session(target, folder.path(), &elf, &format!("mdd_dump\n{TO_THE_END}"));
        assert!(text.contains("past its start code"), "a dump before the start code must be refused: {text}");
        let files = dump_files(folder.path());
        assert!(files.len() > 3, "{text}");
        let dumps = flawless(&files);
        assert_history(&folder.path().join("console"), &elf, &files, true);
        let last = dumps.last().unwrap();
        assert!(last.counters.failed > 1 && last.counters.voided + 1 == last.counters.failed);
        assert_eq!(last.build_id.len(), 20);
    }
}

#[test]
fn the_application_may_be_built_with_lto() {
    let folder = tempdir().unwrap();
    let elf = ops(Target::Nano).app_with("-flto").link(folder.path(), "ops.elf");
    session(Target::Nano, folder.path(), &elf, TO_THE_END);
    assert_history(&folder.path().join("console"), &elf, &dump_files(folder.path()), false);
}

#[test]
fn a_given_region_serves_as_well_as_a_pool() {
    let folder = tempdir().unwrap();
    let elf = ops(Target::Nano).set("STATIC_POOL=0").set("BACKTRACE=0").link(folder.path(), "ops.elf");
    session(Target::Nano, folder.path(), &elf, TO_THE_END);
    let files = dump_files(folder.path());
    assert_history(&folder.path().join("console"), &elf, &files, false);
    assert_eq!(flawless(&files)[0].dynamic_bytes, 65536);
}

#[test]
fn guards_find_the_byte_behind_a_block() {
    let folder = tempdir().unwrap();
    let elf = ops(Target::Nano).set("GUARDS=1").with("-DOVERRUN").link(folder.path(), "ops.elf");
    session(Target::Nano, folder.path(), &elf, &format!("{TO_THE_END}\ncontinue"));
    let dumps = flawless(&dump_files(folder.path()));
    let last = dumps.last().unwrap();
    assert!(last.problems.contains(&Problem::Overruns(1)), "{:?}", last.problems);
    let past = last.history.iter().max_by_key(|p| p.ended.seq).unwrap();
    assert_eq!((past.block.size, past.ended.flags & 7), (10, 1 | 4), "guarded, the tail damaged");
    assert_eq!(past.block.actual.unwrap() % 4, 0);
}

/// `mdd history -f` of the functions at the first levels, one line an event.
fn chains(elf: &Path, folder: &Path, levels: usize) -> Vec<Vec<String>> {
    let format = (1..=levels).map(|n| format!("%f{n}")).collect::<Vec<_>>().join("|");
    let files = dump_files(folder);
    let mut all = vec![elf];
    all.extend(files.iter().map(|f| f.as_path()));
    let (status, out, err) = mdd(&["history", "-f", &format], &all);
    assert_eq!(status, 0, "{err}");
    out.lines().map(|l| l.split('|').map(String::from).collect()).collect()
}

#[test]
fn deep_backtraces_by_tables_and_by_scanning() {
    // 1 _Unwind_Backtrace, 4 a scan whose candidates the host checks
    for (kind, flags) in [("1", "-funwind-tables"), ("4", "-DNOTHING")] {
        let folder = tempdir().unwrap();
        let firmware = ops(Target::Nano).set("BACKTRACE=8").set(&format!("UNWIND={kind}")).set("STACKS=1");
        let firmware = firmware.with("-DOPS=150").with(flags).app_with(flags);
        let elf = firmware.link(folder.path(), "ops.elf");
        let text = session(Target::Nano, folder.path(), &elf, TO_THE_END);
        assert_history(&folder.path().join("console"), &elf, &dump_files(folder.path()), true);
        let chains = chains(&elf, folder.path(), 3);
        let wanted = ["operate", "churn", "main"];
        let whole = chains.iter().filter(|c| c.iter().eq(wanted.iter())).count();
        assert!(
            whole * 10 >= chains.len() * 9,
            "unwind {kind}: {whole} of {}: {:?} {text}",
            chains.len(),
            chains[0]
        );
        // cut short is allowed, wrong is not
        for chain in &chains {
            assert!(chain.iter().zip(wanted).all(|(f, w)| f == w || f == "??"), "unwind {kind}: {chain:?}");
        }
    }
}

#[test]
fn a_raw_scan_finds_every_caller_and_may_find_more() {
    for target in [Target::Nano, Target::Riscv] {
        let folder = tempdir().unwrap();
        let firmware = ops(target).set("BACKTRACE=8").set("UNWIND=3").set("STACKS=1").with("-DOPS=150");
        let elf = firmware.link(folder.path(), "ops.elf");
        let text = session(target, folder.path(), &elf, TO_THE_END);
        assert_history(&folder.path().join("console"), &elf, &dump_files(folder.path()), true);
        let chains = chains(&elf, folder.path(), 8);
        assert!(chains.len() > 100, "{text}");
        for chain in &chains {
            assert_eq!(chain[0], "operate", "the first is no guess: {chain:?}");
            let mut rest = chain.iter();
            for caller in ["churn", "main"] {
                assert!(rest.any(|f| f == caller), "{target:?}, no {caller}: {chain:?}");
            }
        }
    }
}

#[test]
fn a_dump_in_the_middle_of_an_update_is_refused_and_can_be_forced() {
    let folder = tempdir().unwrap();
    let elf = ops(Target::Nano).link(folder.path(), "ops.elf");
    let commands = "break churn
continue
watch *(unsigned int *)((char *)&highwater_mdd + 24)
continue
mdd_dump
mdd_dumpnow
delete
tbreak highwater_mdd_done
continue
mdd_dump
mdd_reset
mdd_dump";
    let text = session(Target::Nano, folder.path(), &elf, commands);
    assert!(text.contains("in the middle of an update") && text.contains("mdd_dumpnow"), "{text}");
    assert!(text.contains("the next file is mddout.0"), "{text}");
    let files = dump_files(folder.path());
    assert_eq!(files.len(), 2, "mdd_reset numbers from 0 again: {text}");
    // mddout.0 was written over by the last one; mddout.1 is the one after highwater_mdd_done
    let dumps = flawless(&files);
    assert_eq!((dumps[0].live.len(), dumps[1].live.len()), (1, 1));

    fs::remove_file(&files[0]).unwrap();
    let commands =
        "break churn\ncontinue\nwatch *(unsigned int *)((char *)&highwater_mdd + 24)\ncontinue\nmdd_dumpnow";
    session(Target::Nano, folder.path(), &elf, commands);
    let forced = mddout::read(&folder.path().join("mddout.0")).unwrap();
    assert_eq!(forced.problems[0], Problem::Busy);
}

#[test]
fn a_mark_on_the_live_bytes_dumps_and_stops() {
    let folder = tempdir().unwrap();
    let elf = ops(Target::Nano).link(folder.path(), "ops.elf");
    let text = session(Target::Nano, folder.path(), &elf, "break churn\ncontinue\nmdd_at 3000\ncontinue");
    let dumps = flawless(&dump_files(folder.path()));
    assert_eq!(dumps.len(), 1, "{text}");
    let bytes = dumps[0].live_bytes();
    assert!((3000..3301).contains(&bytes), "{bytes}: no block has more than 300");
}

#[test]
fn a_debugger_killed_in_the_middle_leaves_earlier_dumps_good() {
    let folder = tempdir().unwrap();
    let elf = ops(Target::Nano).link(folder.path(), "ops.elf");
    let _board = board(Target::Nano, folder.path(), &elf);
    let commands = format!(
        "file {}\ntarget remote g.sock\nbreak finished\ncontinue\nmdd_dump\nset $mdd_step = 1\nmdd_dump",
        elf.to_str().unwrap()
    );
    let mut gdb = debugger("gdb-multiarch", folder.path(), &commands);
    let mut gdb = child::start(gdb.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()));
    let second = folder.path().join("mddout.1");
    child::wait_for("the second dump", || child::length(&second) > 450);
    gdb.0.kill().unwrap();
    gdb.0.wait().unwrap();
    let whole = flawless(&[folder.path().join("mddout.0")]);
    let cut = mddout::read(&second).unwrap();
    assert!(cut.problems.iter().any(|p| matches!(p, Problem::Truncated { .. })), "{:?}", cut.problems);
    assert!(cut.live.len() < whole[0].live.len());
    assert_eq!(cut.live[..], whole[0].live[..cut.live.len()]);
    assert_eq!(mdd(&["check"], &[&second]).0, 1);
}

#[test]
fn semihosting_the_serial_line_and_a_core_file_say_what_gdb_says() {
    let folder = tempdir().unwrap();
    let elf = ops(Target::Nano).with("-DSEND").with("-DOPS=200").link(folder.path(), "ops.elf");
    let commands = "break finished\ncontinue\ngcore core.elf\nmdd_dump\nbreak board_exit\ncontinue";
    let text = session(Target::Nano, folder.path(), &elf, commands);
    let path = |name: &str| folder.path().join(name);
    let by_gdb = &flawless(&[path("mddout.0")])[0];
    let in_core = &flawless(&[path("core.elf")])[0];
    assert_eq!(in_core, by_gdb, "{text}");
    let semihosted = &flawless(&[path("semihosted.mddout")])[0];
    assert_eq!((&semihosted.live, &semihosted.threads), (&by_gdb.live, &by_gdb.threads));
    assert!(semihosted.history.is_empty(), "GDB took the ring");

    let (status, out, err) = mdd(&["receive", "--file"], &[&path("console"), folder.path()]);
    assert_eq!((status, out.trim()), (0, path("mddout.1").to_str().unwrap()), "{err}");
    assert_eq!(fs::read(path("mddout.1")).unwrap(), fs::read(path("semihosted.mddout")).unwrap());

    let (status, _, err) = mdd(&["extract", "-o"], &[&path("mddout.2"), &path("core.elf")]);
    assert_eq!(status, 0, "{err}");
    assert_eq!(fs::read(path("mddout.2")).unwrap(), fs::read(path("mddout.0")).unwrap());
}

#[test]
fn a_full_table_is_told_loudly() {
    let folder = tempdir().unwrap();
    let elf = Firmware::new(Target::Nano, &["ops.c"]).set("RECORDS=20").link(folder.path(), "ops.elf");
    session(Target::Nano, folder.path(), &elf, "break finished\ncontinue\nmdd_dump");
    let dump = &flawless(&dump_files(folder.path()))[0];
    assert_eq!(dump.live.len(), 20);
    assert!(dump.problems.iter().any(|p| matches!(p, Problem::Lost(n) if *n > 0)), "{:?}", dump.problems);
    assert!(mdd(&["stats"], &[&folder.path().join("mddout.0")]).2.contains("ALLOCATIONS ARE MISSING"));
}

#[test]
fn another_build_is_not_taken_for_the_dumps() {
    let folder = tempdir().unwrap();
    let elf = ops(Target::Nano).link(folder.path(), "ops.elf");
    let other = ops(Target::Nano).with("-DOPS=77").link(folder.path(), "other.elf");
    session(Target::Nano, folder.path(), &elf, "break finished\ncontinue\nmdd_dump");
    let dump = folder.path().join("mddout.0");
    assert_eq!(mdd(&["dump"], &[&elf, &dump]).0, 0);
    let (status, _, err) = mdd(&["dump"], &[&other, &dump]);
    assert!(status == 2 && err.contains("build-id"), "{err}");
    assert_eq!(mdd(&["dump", "--force"], &[&other, &dump]).0, 0);
}

#[test]
fn ten_thousand_records() {
    let folder = tempdir().unwrap();
    let firmware = Firmware::new(Target::Nano, &["ops.c"]).set("RECORDS=15500").with("-DQUIET=1");
    let elf = firmware.with("-DSLOTS=15500").with("-DOPS=100000").link(folder.path(), "ops.elf");
    let clock = "shell date +%s%N >> times";
    let commands = format!("break finished\ncontinue\n{clock}\nmdd_dump\n{clock}");
    let text = session(Target::Nano, folder.path(), &elf, &commands);
    let file = folder.path().join("mddout.0");
    let dump = &flawless(std::slice::from_ref(&file))[0];
    let bytes = child::length(&file);
    let times = fs::read_to_string(folder.path().join("times")).unwrap();
    let times: Vec<u64> = times.lines().map(|t| t.parse().unwrap()).collect();
    let taken = Duration::from_nanos(times[1] - times[0]);
    println!("{} records: {bytes} bytes in {taken:?}", dump.live.len());
    assert!(dump.live.len() >= 10_000, "{}", dump.live.len());
    assert!(bytes < dump.live.len() as u64 * 24 + 1000);
    assert!(taken < Duration::from_secs(10));
    assert!(text.contains("mddout.0 ") && text.contains(" KiB"), "progress is shown: {text}");
}

#[test]
fn the_host_tool_is_used_where_it_is() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempdir().unwrap();
    let elf = ops(Target::Nano).link(folder.path(), "ops.elf");
    // stands for the tool: says how it was called, and answers like `mdd next --gdb`
    let tool = folder.path().join("highwater");
    fs::write(&tool, "#!/bin/sh\necho \"$@\" >> calls\ncase $2 in next) echo 'set $mdd_next = 7';; esac\n")
        .unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let _board = board(Target::Nano, folder.path(), &elf);
    let commands = format!(
        "file {}\ntarget remote g.sock\nbreak finished\ncontinue\nmdd_next\nmdd_dump\nkill",
        elf.to_str().unwrap()
    );
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut gdb = debugger("gdb-multiarch", folder.path(), &commands);
    let done = child::run(gdb.env("PATH", path), Duration::from_secs(120));
    let calls = fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
    assert_eq!(calls, "mdd next --gdb\nmdd check mddout.7\n", "{}", done.text);
    assert!(folder.path().join("mddout.7").exists());
}
