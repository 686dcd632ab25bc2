//! The target does not notice: what it sees, prints and returns is what it
//! sees, prints and returns without highwater.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use highwater_tests::child::{is_alive, wait_until};
use highwater_tests::highwater::record_with;
use highwater_tests::{Child, Ended, Highwater, Program, number, record, schema, tools};

/// stderr without the lines that are highwater's own.
fn words_of_the_target(ended: &Ended) -> String {
    ended
        .stderr()
        .lines()
        .filter(|line| !line.starts_with("highwater: "))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// `observed WHAT` prints the same, recorded and not, and it is not nothing.
#[track_caller]
fn sees_the_same(what: &str) {
    let program = Program::new("observed.c").build();
    let plain = Highwater::plain(&program).arg(what).run().expect_code(42);
    let recorded = record(&program, [what]);
    assert_eq!(recorded.ended.stdout(), plain.stdout());
    assert_eq!(words_of_the_target(&recorded.ended), plain.stderr());
    assert_eq!(recorded.ended.code(), 42);
    assert_eq!(recorded.stats()["complete"], true);
}

#[test]
fn no_descriptor_is_open_in_the_target() {
    sees_the_same("descriptors");
}

#[test]
fn no_thread_is_added_to_the_target() {
    sees_the_same("threads");
}

#[test]
fn no_signal_is_taken_blocked_or_ignored() {
    sees_the_same("signals");
}

#[test]
fn errno_is_kept_by_every_call_that_succeeds() {
    sees_the_same("errno");
}

#[test]
fn a_user_namespace_can_still_be_made() {
    sees_the_same("userns");
}

#[test]
fn the_environment_is_what_it_was() {
    let program = Program::new("observed.c").build();
    // The order of variables means nothing.
    let sorted = |ended: &Ended| {
        let text = ended.stdout();
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.sort_unstable();
        lines
    };
    let plain = Highwater::plain(&program).arg("env").run().expect_code(42);
    assert_eq!(sorted(&record(&program, ["env"]).ended), sorted(&plain));
}

#[test]
fn umask_priority_and_break_are_what_they_were() {
    sees_the_same("limits");
}

#[test]
fn signal_handlers_may_use_the_heap_and_jump_out() {
    sees_the_same("handlers");
}

#[test]
fn a_storm_of_signals_does_no_harm() {
    sees_the_same("storm");
}

#[test]
fn a_target_that_closes_every_descriptor_is_still_recorded() {
    sees_the_same("closes");
}

#[test]
fn a_target_that_changes_its_folder_is_still_recorded() {
    sees_the_same("folder");
}

#[test]
fn stdin_goes_through_to_the_target() {
    let program = Program::new("observed.c").build();
    let input: Vec<u8> = (0..1_000_000u32).map(|number| (number * 7 / 3) as u8).collect();
    let recorded = record_with(&[], |child| child.input(&input).arg("--").arg(&program).arg("passes"));
    assert!(recorded.ended.out == input, "{} bytes came out", recorded.ended.out.len());
    assert_eq!(words_of_the_target(&recorded.ended), "words for stderr\n");
}

#[test]
fn quiet_is_silent() {
    let program = Program::new("observed.c").build();
    let recorded = record_with(&["-q"], |child| child.input(b"text").arg("--").arg(&program).arg("passes"));
    assert_eq!(
        (recorded.ended.stdout(), recorded.ended.stderr()),
        ("text".into(), "words for stderr\n".into())
    );
    assert_eq!(recorded.ended.code(), 42);
    assert_eq!(recorded.stats()["complete"], true);
}

#[test]
fn exit_statuses_come_through() {
    for code in [0, 1, 2, 77, 125, 126, 127, 128, 255] {
        let recorded = record("/bin/sh", ["-c", &format!("exit {code}")]);
        assert_eq!(recorded.ended.status.code(), Some(code), "{}", recorded.ended.stderr());
    }
}

#[test]
fn arguments_come_through_as_they_are() {
    let args = ["-n", "--", "a b", "", "*", "$HOME", "--output", "\u{e4}\u{f6}", "-q"];
    let recorded = record("/usr/bin/printf", std::iter::once("[%s]").chain(args)).expect_code(0);
    let expected: String = args.iter().map(|arg| format!("[{arg}]")).collect();
    assert_eq!(recorded.ended.stdout(), expected);
}

#[test]
fn a_signal_to_highwater_reaches_the_target() {
    let folder = highwater_tests::folder();
    let trace = folder.path().join("trace.hwt");
    let script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let running = Highwater::command(["run", "-o"])
        .arg(&trace)
        .args(["--", "/bin/sh", "-c", script])
        .limit(Duration::from_secs(30))
        .start();
    wait_until("the target's start", Duration::from_secs(20), || running.stdout_so_far().contains("ready"));
    running.signal(libc::SIGTERM);
    let ended = running.wait();
    assert_eq!((ended.code(), ended.stdout().as_str()), (9, "ready\ngot it\n"), "{}", ended.stderr());
}

#[test]
fn a_killed_recorder_leaves_the_target_running_and_a_trace_that_opens() {
    let folder = highwater_tests::folder();
    let (trace, out) = (folder.path().join("trace.hwt"), folder.path().join("out"));
    let script = format!(
        "import os,sys\nopen({out:?} + '.pid', 'w').write(str(os.getpid()))\n\
         kept = []\nfor i in range(500):\n  kept.append(bytearray(20000 + i))\n  import time; time.sleep(0.005)\n\
         open({out:?}, 'w').write(str(sum(map(len, kept))))\n"
    );
    let running = Highwater::command(["run", "-o"])
        .arg(&trace)
        .args(["--", "/usr/bin/python3", "-c", &script])
        .limit(Duration::from_secs(30))
        .start();
    let pid_file = folder.path().join("out.pid");
    wait_until("the target's start", Duration::from_secs(20), || {
        fs::metadata(&pid_file).is_ok_and(|m| m.len() > 0)
    });
    std::thread::sleep(Duration::from_millis(1400));
    let target: u32 = fs::read_to_string(&pid_file).ok().and_then(|text| text.parse().ok()).expect("its pid");
    running.signal(libc::SIGKILL);
    assert_eq!(running.wait().code(), 128 + libc::SIGKILL);
    wait_until("the target's end", Duration::from_secs(20), || !is_alive(target));
    let sum: usize = (0..500).map(|i| 20000 + i).sum();
    assert_eq!(fs::read_to_string(&out).ok(), Some(sum.to_string()), "the target's own result");
    let view = Highwater::command(["stats", "--json"]).arg(&trace).run().expect_code(0);
    let stats = schema::document(&view.out);
    assert!(number(&stats, "allocations") > 0, "{stats:#}");
    assert_eq!(stats["ended"]["how"], "lost", "{stats:#}");
    assert_eq!(stats["complete"], false, "{stats:#}");
    assert!(stats["incomplete"].to_string().contains("no end"), "a warning: {stats:#}");
}

/// Runs a shell script as root of a mount namespace of its own, `$D` being an
/// empty file system of `size`; `None` where the kernel does not allow that.
fn on_a_small_disk(size: &str, script: &str, home: &Path) -> Option<Ended> {
    let unshare = tools::need("unshare");
    if Child::new(&unshare).args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]).run().code() != 0 {
        eprintln!("no mount namespaces here: not tested");
        return None;
    }
    let disk = home.join("disk");
    fs::create_dir(&disk).expect("a mount point");
    let script =
        format!("mount -t tmpfs -o size={size} none {0} || exit 98\nD={0}\n{script}", disk.display());
    Some(Highwater::plain(unshare).args(["-rm", "sh", "-c", &script]).limit(Duration::from_secs(60)).run())
}

#[test]
fn a_full_disk_stops_the_trace_and_not_the_target() {
    let home = highwater_tests::folder();
    let copy = home.path().join("copy.hwt");
    let script = format!(
        "{} run -o $D/t.hwt -- /usr/bin/python3 -c 'x = [bytearray(600 + i % 7000) for i in range(300000)]; print(len(x))'\n\
         code=$?; cp $D/t.hwt {}; exit $code",
        Highwater::path().display(),
        copy.display()
    );
    let Some(ended) = on_a_small_disk("128k", &script, home.path()) else { return };
    assert_eq!((ended.code(), ended.stdout().as_str()), (0, "300000\n"), "{}", ended.stderr());
    assert!(ended.stderr().to_lowercase().contains("no space left"), "says so: {}", ended.stderr());
    let view = Highwater::command(["stats", "--json"]).arg(&copy).run().expect_code(0);
    let stats = schema::document(&view.out);
    assert!(number(&stats, "allocations") > 1000, "{stats:#}");
    assert_eq!(stats["complete"], false, "{stats:#}");
}

#[test]
fn an_unwritable_folder_gets_one_clear_line_and_the_target_does_not_start() {
    let folder = highwater_tests::folder();
    let out = folder.path().join("no/such/folder/t.hwt");
    let ended = Highwater::command(["run", "-o"]).arg(&out).args(["--", "/bin/echo", "started"]).run();
    assert_eq!((ended.code(), ended.stdout().as_str()), (125, ""), "{}", ended.stderr());
    let words = ended.stderr();
    assert!(words.lines().count() <= 2 && words.contains("no/such/folder"), "{words}");
}

#[test]
fn an_existing_file_is_not_overwritten_unasked() {
    let folder = highwater_tests::folder();
    let out = folder.path().join("precious.hwt");
    fs::write(&out, "precious").expect("a file");
    let run = |options: &[&str]| {
        Highwater::command(["run", "-o"]).arg(&out).args(options).args(["--", "/bin/echo", "started"]).run()
    };
    let ended = run(&[]);
    assert_eq!((ended.code(), ended.stdout().as_str()), (125, ""), "{}", ended.stderr());
    assert!(ended.stderr().contains("--force"), "{}", ended.stderr());
    assert_eq!(fs::read(&out).expect("still there"), b"precious");
    run(&["--force"]).expect_code(0);
    assert_ne!(fs::read(&out).expect("a trace"), b"precious");
}

#[test]
fn a_trace_is_for_its_owner_only() {
    let recorded = record("/bin/true", [""; 0]).expect_code(0);
    let mode = fs::metadata(&recorded.trace).expect("the trace").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
}

#[test]
fn nothing_is_left_behind_but_the_trace() {
    let folder = highwater_tests::folder();
    let temporary = highwater_tests::folder();
    Highwater::command(["run", "--", "/bin/true"])
        .cwd(folder.path())
        .env("TMPDIR", temporary.path())
        .run()
        .expect_code(0);
    let names: Vec<String> = fs::read_dir(folder.path())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    assert!(
        matches!(&names[..], [name] if name.starts_with("highwater.true.") && name.ends_with(".hwt")),
        "{names:?}"
    );
    assert_eq!(fs::read_dir(temporary.path()).expect("the folder").count(), 0);
}
