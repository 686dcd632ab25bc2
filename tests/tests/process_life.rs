//! How programs start, multiply and end: nothing of the recorded process is
//! lost, nothing of its children gets in, and nobody hangs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use highwater_tests::highwater::record_with;
use highwater_tests::scale::{note, times};
use highwater_tests::{Child, Highwater, Known, Program, Recorded, number, record};

fn ended(recorded: &Recorded) -> (String, i64, i64) {
    let stats = recorded.stats();
    let how = stats["ended"]["how"].as_str().unwrap_or("?").to_string();
    (how, number(&stats["ended"], "code"), number(&stats, "allocations"))
}

/// Runs `endings MODE` recorded and by itself; both end the same way, and no event is missing.
#[track_caller]
fn ends_like(mode: &str, how: &str, code: i64) {
    let program = Program::new("endings.c").build();
    let plain = Child::new(&program).arg(mode).run();
    let recorded = record(&program, [mode]);
    assert_eq!(recorded.ended.status, plain.status, "stderr: {}", recorded.ended.stderr());
    assert_eq!(ended(&recorded), (how.to_string(), code, 1001));
    let stats = recorded.stats();
    assert_eq!(number(&stats, "live_blocks"), 1001);
    assert_eq!(stats["complete"], true, "{stats:#}");
}

#[test]
fn the_last_events_before_return_are_there() {
    ends_like("return", "exit", 3);
}

#[test]
fn the_last_events_before_underscore_exit_are_there() {
    ends_like("_exit", "exit", 7);
}

#[test]
fn the_last_events_before_quick_exit_are_there() {
    ends_like("quick_exit", "exit", 8);
}

#[test]
fn the_last_events_before_a_raw_exit_group_are_there() {
    ends_like("exit_group", "exit", 9);
}

#[test]
fn the_last_events_before_abort_are_there() {
    ends_like("abort", "signal", i64::from(libc::SIGABRT));
}

#[test]
fn the_last_events_before_a_crash_are_there() {
    ends_like("segv", "signal", i64::from(libc::SIGSEGV));
}

#[test]
fn the_last_events_before_sigkill_are_there() {
    ends_like("kill", "signal", i64::from(libc::SIGKILL));
}

#[test]
fn a_termination_is_passed_on() {
    ends_like("term", "signal", i64::from(libc::SIGTERM));
}

#[test]
fn threads_that_outlive_main_are_recorded_to_their_end() {
    let program = Program::new("endings.c").build();
    let recorded = record(program, ["outlive"]).expect_code(0);
    let stats = recorded.stats();
    let own = recorded.history().iter().filter(|event| event["size"] == 16).count();
    assert_eq!(own, 1001, "{stats:#}");
    assert_eq!(stats["ended"]["how"], "exit");
}

#[test]
fn an_exec_that_no_wrapper_sees_ends_the_trace_with_exec() {
    let program = Program::new("endings.c").build();
    let recorded = record(program, ["rawexec"]).expect_code(0);
    let (how, _, allocations) = ended(&recorded);
    assert_eq!((how.as_str(), allocations), ("exec", 1001));
}

#[test]
fn a_chain_of_execs_gives_one_trace_an_image() {
    let program = Program::new("endings.c").build();
    let folder = highwater_tests::folder();
    let name = folder.path().join("t.%i.hwt");
    Highwater::command(["run", "-o"]).arg(&name).arg("--").arg(program).arg("exec").run().expect_code(5);
    let first = Highwater::json(&["stats"], &folder.path().join("t.0.hwt"));
    let second = Highwater::json(&["stats"], &folder.path().join("t.1.hwt"));
    assert_eq!(first["ended"]["how"], "exec", "{first:#}");
    assert_eq!(number(&first, "allocations"), 1001, "{first:#}");
    assert_eq!((second["ended"]["how"].as_str(), number(&second["ended"], "code")), (Some("exit"), 5));
    assert!(number(&second, "allocations") > 0, "the shell uses the heap: {second:#}");
}

#[test]
fn a_shell_shim_yields_the_heap_of_the_program_behind_it() {
    let folder = highwater_tests::folder();
    let shim = folder.path().join("python3");
    fs::write(&shim, "#!/bin/sh\nset -e\nx=$(printf 1)\nexec /usr/bin/python3 \"$@\"\n").expect("a shim");
    fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).expect("an executable shim");
    let code = "x = [bytearray(5000) for _ in range(1000)]";
    let direct = record("/usr/bin/python3", ["-S", "-c", code]).expect_code(0);
    let behind = record(&shim, ["-S", "-c", code]).expect_code(0);
    let (direct, behind) = (direct.stats(), behind.stats());
    // The two differ by what argv[0] and the environment make python allocate: little.
    let (direct, behind) = (number(&direct, "bytes_allocated"), number(&behind, "bytes_allocated"));
    assert!((direct - behind).abs() < direct / 50, "{direct} bytes directly, {behind} behind the shim");
    assert!(direct > 5_000_000);
}

/// The program's own count and the recording of `forks MODE N`.
fn forks(mode: &str, n: usize) -> (Known, Recorded) {
    let folder = highwater_tests::folder();
    let counts = folder.path().join("counts.json");
    let path = counts.to_str().expect("ASCII");
    let recorded = record(Program::new("forks.c").build(), [path, mode, &n.to_string()]).expect_code(0);
    (Known::from_file(&counts), recorded)
}

#[test]
fn what_forked_children_do_is_not_in_the_parents_trace() {
    let (known, recorded) = forks("single", 50);
    assert_eq!(Known::from_json(&recorded.stats()), known);
}

#[test]
fn children_of_a_threaded_program_do_not_hang_and_nothing_is_lost() {
    let (known, recorded) = forks("threaded", times(60, 1000));
    let stats = recorded.stats();
    // Three threads' own tables, which the C library makes and keeps, come on top.
    let seen = Known::from_json(&stats);
    assert_eq!(seen.allocations - known.allocations, 3, "{stats:#}");
    assert_eq!(seen.frees, known.frees, "{stats:#}");
}

#[test]
fn vfork_spawn_system_and_popen_leave_the_parent_recorded() {
    let (known, recorded) = forks("spawn", 20);
    let stats = recorded.stats();
    // popen's FILE is made and given back each time; what stays is the program's.
    assert_eq!(number(&stats, "live_blocks"), known.live_blocks, "{stats:#}");
    let own = recorded.history().iter().filter(|event| event["op"] == "alloc" && event["size"] == 10).count();
    assert_eq!(own as i64, known.allocations);
}

/// The sections with their lines sorted: the order of variables means nothing.
fn sorted(text: &str) -> String {
    let sections = text.split("== ").map(|section| {
        let (title, lines) = section.split_once('\n').unwrap_or((section, ""));
        let mut lines: Vec<&str> = lines.lines().collect();
        lines.sort_unstable();
        format!("{title}\n{}\n", lines.join("\n"))
    });
    sections.collect()
}

/// What the children of `spawns_env` print, with and without highwater.
fn environments(preload: Option<&Path>) -> (String, String) {
    let program = Program::new("spawns_env.c").build();
    let prepare = |child: Child| match preload {
        Some(library) => child.env("LD_PRELOAD", library),
        None => child,
    };
    let plain = prepare(Highwater::plain(&program)).run().expect_code(0);
    let recorded = record_with(&[], |child| prepare(child).arg("--").arg(&program)).expect_code(0);
    (sorted(&plain.stdout()), sorted(&recorded.ended.stdout()))
}

#[test]
fn no_child_sees_a_variable_of_ours() {
    let (plain, recorded) = environments(None);
    assert!(plain.contains("vfork execv\n") && plain.contains("ONLY=this"), "{plain}");
    assert_eq!(recorded, plain);
}

#[test]
fn the_users_own_preload_stays_for_the_program_and_for_its_children() {
    let library = Program::new("preload.c").flags(&["-shared", "-fPIC"]).build();
    let (plain, recorded) = environments(Some(&library));
    assert!(plain.matches("LD_PRELOAD=").count() >= 9, "{plain}");
    assert_eq!(recorded, plain);
}

#[test]
fn a_daemon_lives_on_and_run_does_not_wait_for_it() {
    let folder = highwater_tests::folder();
    let done = folder.path().join("done");
    let recorded = record(Program::new("daemon.c").build(), [&done]).expect_code(0);
    assert!(recorded.ended.took < Duration::from_millis(1900), "waited {:?}", recorded.ended.took);
    let stats = recorded.stats();
    assert_eq!(number(&stats, "allocations"), 100, "{stats:#}");
    highwater_tests::child::wait_until("the daemon's end", Duration::from_secs(15), || {
        fs::read(&done).is_ok_and(|text| text == b"done")
    });
}

#[test]
fn a_child_that_lives_on_is_said() {
    let folder = highwater_tests::folder();
    let recorded = record(Program::new("daemon.c").build(), [folder.path().join("done")]).expect_code(0);
    let words = recorded.ended.stderr();
    assert!(words.contains("--follow fork,exec"), "says how to see the child: {words}");
    // The daemon has two seconds to live; the folder must outlive it.
    highwater_tests::child::wait_until("the daemon's end", Duration::from_secs(15), || {
        folder.path().join("done").exists()
    });
}

/// One kill: what the target acknowledged before it died, and what the trace holds.
fn kill_at(program: &Path, after: Duration) -> (i64, i64, i64, i64) {
    let folder = highwater_tests::folder();
    let counters = folder.path().join("counters");
    fs::write(&counters, vec![0u8; 4096]).expect("a file of counters");
    let word = |index: usize| -> i64 {
        let bytes = fs::read(&counters).expect("the counters");
        i64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().expect("eight bytes"))
    };
    let trace = folder.path().join("trace.hwt");
    let running = Highwater::command(["run", "-q", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(program)
        .arg(&counters)
        .limit(Duration::from_secs(60))
        .start();
    let start = Instant::now();
    while word(0) == 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "the program did not start");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(after);
    // SAFETY: the process is a child of the recorder that runs, not reaped before it dies.
    unsafe { libc::kill(word(0) as i32, libc::SIGKILL) };
    let ended = running.wait();
    assert_eq!(ended.code(), 128 + libc::SIGKILL, "stderr: {}", ended.stderr());
    let stats = Highwater::json(&["stats"], &trace);
    assert_eq!(stats["ended"]["how"], "signal", "{stats:#}");
    (word(1), word(2), number(&stats, "allocations"), number(&stats, "frees"))
}

#[test]
fn sigkill_at_a_random_instant_loses_no_acknowledged_event() {
    let program = Program::new("killed.c").build();
    let kills = times(8, 1000);
    let mut events = 0;
    for round in 0..kills {
        // Spread without a random number generator: reproducible, and never in step with anything.
        let after = Duration::from_micros((round as u64 * 7919) % 40_000);
        let (allocs, frees, seen_allocs, seen_frees) = kill_at(&program, after);
        // The one operation that was under way may be in the trace, or not.
        let allocs_fit = (allocs..=allocs + 1).contains(&seen_allocs);
        let frees_fit = (frees..=frees + 1).contains(&seen_frees);
        assert!(
            allocs_fit && frees_fit,
            "kill {round} after {after:?}: {allocs} + {frees} done, {seen_allocs} + {seen_frees} seen"
        );
        events += seen_allocs + seen_frees;
    }
    note(
        "SIGKILL at a random instant",
        &format!("{kills} times, {events} events, no acknowledged event missing"),
    );
}

#[test]
fn a_plain_preload_records_too() {
    let folder = highwater_tests::folder();
    let agent = Highwater::command(["agent-path"]).run().expect_code(0);
    let agent = std::path::PathBuf::from(agent.stdout().trim());
    assert!(agent.is_file(), "{}", agent.display());
    let plain = Highwater::plain(Program::new("endings.c").build())
        .arg("return")
        .env("LD_PRELOAD", &agent)
        .env("HIGHWATER_RECORDER", Highwater::path())
        .cwd(folder.path())
        .run();
    assert_eq!((plain.code(), plain.stdout().as_str()), (3, ""), "{}", plain.stderr());
    let trace = || -> Option<std::path::PathBuf> {
        let mut files = fs::read_dir(folder.path()).ok()?.flatten().map(|entry| entry.path());
        files.find(|path| path.extension().is_some_and(|ending| ending == "hwt"))
    };
    // The recorder is nobody's child: it ends a moment after the target.
    let mut seen = serde_json::Value::Null;
    highwater_tests::child::wait_until("a finished trace", Duration::from_secs(15), || {
        let Some(trace) = trace() else { return false };
        let view = Highwater::command(["stats", "--json"]).arg(trace).run();
        seen = serde_json::from_slice(&view.out).unwrap_or_default();
        view.code() == 0 && seen["ended"]["how"] != "running" && seen["ended"]["how"] != "lost"
    });
    assert_eq!(number(&seen, "allocations"), 1001, "{seen:#}");
}

#[test]
fn a_preload_without_a_recorder_is_harmless() {
    let agent = Highwater::command(["agent-path"]).run().expect_code(0);
    let folder = highwater_tests::folder();
    let plain = Highwater::plain(Program::new("endings.c").build())
        .arg("return")
        .env("LD_PRELOAD", agent.stdout().trim())
        .cwd(folder.path())
        .run();
    assert_eq!((plain.code(), plain.stdout(), plain.stderr()), (3, String::new(), String::new()));
}
