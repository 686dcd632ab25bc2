//! Talking to a recording that is going on: `mark`, `status`, `stop`.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater_tests::child::{Running, is_alive, wait_until};
use highwater_tests::{Child, Ended, Highwater, Program, TempDir, schema};
use serde_json::{Value, json};

/// A recorded `actions.c`, its sockets in a folder of the test's own.
struct Live {
    run: Running,
    folder: TempDir,
    /// Words done so far.
    done: usize,
}

fn start(options: &[&str]) -> Live {
    let folder = highwater_tests::folder();
    start_in(folder, "trace.hwt", options)
}

fn start_in(folder: TempDir, trace: &str, options: &[&str]) -> Live {
    let run = run_in(folder.path(), trace, options);
    Live { run, folder, done: 0 }
}

fn run_in(folder: &Path, trace: &str, options: &[&str]) -> Running {
    let run = Highwater::command(["run", "-q", "-o"])
        .arg(folder.join(trace))
        .args(options)
        .arg("--")
        .arg(Program::new("actions.c").build())
        .env("XDG_RUNTIME_DIR", folder)
        .talks()
        .start();
    wait_until("the program is ready", Duration::from_secs(30), || run.stdout_so_far().contains("ready"));
    // The socket comes with the trace, a moment after the agent.
    let before = sockets(folder).len();
    if before == 0 {
        wait_until("a socket", Duration::from_secs(10), || !sockets(folder).is_empty());
    }
    run
}

fn sockets(runtime: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(runtime.join("highwater")) else { return Vec::new() };
    let mut list: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    list.sort();
    list
}

fn ask(runtime: &Path, args: &[&str]) -> Ended {
    command(runtime, args).run()
}

fn command(runtime: &Path, args: &[&str]) -> Child {
    Highwater::command(args).env("XDG_RUNTIME_DIR", runtime)
}

impl Live {
    fn trace(&self) -> PathBuf {
        self.folder.path().join("trace.hwt")
    }

    /// Lets the program do something, and waits until it has.
    fn act(&mut self, word: &str) {
        self.run.say(&format!("{word}\n"));
        self.done += 1;
        let done = self.done;
        let run = &self.run;
        wait_until(word, Duration::from_secs(30), || run.stdout_so_far().matches("done ").count() >= done);
    }

    fn mark(&self, name: &str) {
        ask(self.folder.path(), &["mark", name]).expect_code(0);
    }

    fn status(&self) -> Value {
        let ended = command(self.folder.path(), &["status", "--json", "--trace"])
            .arg(self.trace())
            .run()
            .expect_code(0);
        schema::document(&ended.out)
    }

    /// Lets the program end; the folder with the trace.
    fn end(mut self) -> TempDir {
        self.run.say("end\n");
        self.run.wait().expect_code(3);
        self.folder
    }
}

/// Nobody records into this trace. (Others may be recording elsewhere.)
#[track_caller]
fn assert_none(trace: &Path) {
    let folder = trace.parent().expect("a trace in a folder");
    let none = command(folder, &["mark", "late", "--trace"]).arg(trace).run().expect_code(2).stderr();
    assert!(none.contains("nothing is being recorded") || none.contains("no recording into"), "{none}");
}

/// The seqnos at the addresses of the program's own lines.
fn events(trace: &Path) -> Vec<Value> {
    match Highwater::json(&["history"], trace)["events"].take() {
        Value::Array(events) => events,
        other => panic!("no events: {other}"),
    }
}

#[test]
fn a_mark_comes_after_all_that_was_done_before_it_and_before_all_that_is_done_after() {
    let mut live = start(&[]);
    // A single thread shares one reading of the clock among several events: the
    // place where a mark could slip between them.
    let mut names = Vec::new();
    for n in 0..12 {
        live.act("grow");
        let name = format!("m{n}");
        live.mark(&name);
        names.push(name);
    }
    live.act("grow");
    let folder = live.end();
    let trace = folder.path().join("trace.hwt");
    let growths: Vec<u64> = events(&trace)
        .iter()
        .filter(|event| event["op"] == "alloc" && event["api"] == "realloc")
        .map(|event| event["seqno"].as_u64().unwrap())
        .collect();
    assert_eq!(growths.len(), 13);
    for (n, name) in names.iter().enumerate() {
        let text = Highwater::command(["dump", "--json", "--at", &format!("@{name}")])
            .arg(&trace)
            .run()
            .expect_code(0);
        let dump = schema::document(&text.out);
        let size = 64 * (n as u64 + 2);
        let buffer: Vec<u64> = dump["blocks"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|block| block["api"] == "realloc")
            .map(|block| block["size"].as_u64().unwrap())
            .collect();
        assert_eq!(buffer, [size], "at {name}");
    }
}

#[test]
fn status_says_what_is_recorded_and_nothing_is_left_at_the_end() {
    let mut live = start(&[]);
    live.act("burst");
    live.mark("one");
    live.mark("two");
    let found = sockets(live.folder.path());
    assert_eq!(found.len(), 1);
    let facts = std::fs::symlink_metadata(&found[0]).unwrap();
    assert!(facts.file_type().is_socket());
    assert_eq!(facts.permissions().mode() & 0o777, 0o600);
    let folder_mode = std::fs::metadata(live.folder.path().join("highwater")).unwrap().permissions().mode();
    assert_eq!(folder_mode & 0o777, 0o700);

    let trace = live.trace();
    // Events come with the next look at the rings.
    wait_until("the events are counted", Duration::from_secs(10), || {
        live.status()["recordings"][0]["events"].as_u64().unwrap() >= 2000
    });
    let status = live.status();
    assert_eq!(status["schema"], "highwater.status/1");
    let one = &status["recordings"][0];
    assert_eq!(one["trace"], trace.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(one["marks"], 2);
    assert!(one["program"].as_str().unwrap().ends_with("/actions"));
    assert!(one["duration"].as_f64().unwrap() > 0.0);
    let pid = one["pid"].as_u64().unwrap();
    assert!(found[0].ends_with(format!("{pid}.sock")));
    let text = ask(live.folder.path(), &["status", "--pid", &pid.to_string()]).expect_code(0).stdout();
    assert!(text.contains(" actions for ") && text.contains("2 marks"), "{text}");

    let folder = live.end();
    assert_eq!(sockets(folder.path()), Vec::<PathBuf>::new());
    assert_none(&folder.path().join("trace.hwt"));
}

#[test]
fn of_several_recordings_one_has_to_be_named() {
    let folder = highwater_tests::folder();
    let runtime = folder.path().to_path_buf();
    let mut one = run_in(&runtime, "one.hwt", &[]);
    let mut two = run_in(&runtime, "two.hwt", &[]);
    wait_until("two sockets", Duration::from_secs(10), || sockets(&runtime).len() == 2);
    let several = ask(&runtime, &["mark", "m"]).expect_code(2).stderr();
    assert!(several.contains("several recordings"), "{several}");
    assert!(several.contains("one.hwt") && several.contains("two.hwt"), "{several}");
    let by_trace = command(&runtime, &["mark", "m", "--trace"]).arg(runtime.join("two.hwt")).run();
    by_trace.expect_code(0);
    let missing = ask(&runtime, &["mark", "m", "--pid", "1"]).expect_code(2).stderr();
    assert!(missing.contains("no recording of process 1") && missing.contains("one.hwt"), "{missing}");
    let missing = ask(&runtime, &["stop", "--trace", "three.hwt"]).expect_code(2).stderr();
    assert!(missing.contains("no recording into three.hwt"), "{missing}");
    for bad in ["", "a\nb", &"x".repeat(2000)] {
        let ended = command(&runtime, &["mark", bad, "--trace"]).arg(runtime.join("one.hwt")).run();
        assert!(ended.expect_code(2).stderr().contains("a mark's name has"), "{bad}");
    }
    one.say("end\n");
    two.say("end\n");
    one.wait().expect_code(3);
    two.wait().expect_code(3);
    let at = |trace: &str| Highwater::command(["dump", "--at", "@m"]).arg(runtime.join(trace)).run().code();
    assert_eq!((at("one.hwt"), at("two.hwt")), (2, 0));
}

#[test]
fn a_stopped_recording_is_complete_and_the_program_runs_on() {
    let mut live = start(&[]);
    live.act("act");
    let pid = live.status()["recordings"][0]["pid"].as_u64().unwrap() as u32;
    let marked = schema::document(&ask(live.folder.path(), &["mark", "done", "--json"]).expect_code(0).out);
    let stopped = ask(live.folder.path(), &["stop", "--json"]).expect_code(0);
    let said = stopped.stderr();
    assert!(said.contains("actions") && said.contains("runs on"), "{said}");
    let stopped = schema::document(&stopped.out);
    let trace = live.trace();
    let before = Highwater::json(&["stats"], &trace);
    for document in [&marked, &stopped] {
        assert_eq!((document["pid"].as_u64(), &document["trace"]), (Some(pid.into()), &json!(trace)));
    }
    assert_eq!((&marked["name"], &stopped["marks"]), (&json!("done"), &json!(1)));
    assert_eq!(stopped["events"], before["events"]);
    assert!(marked["time"].as_f64() <= stopped["duration"].as_f64(), "{marked} {stopped}");
    assert_eq!(before["ended"]["how"], "detached");
    assert_eq!(before["complete"], true);
    assert!(is_alive(pid));
    assert_eq!(sockets(live.folder.path()), Vec::<PathBuf>::new());
    // More than all rings hold: the program must not wait for anybody.
    for _ in 0..200 {
        live.act("burst");
    }
    let folder = live.end();
    let after = Highwater::json(&["stats"], &folder.path().join("trace.hwt"));
    assert_eq!(before, after);
}

#[test]
fn a_killed_recorder_hinders_no_later_one() {
    let folder = highwater_tests::folder();
    let runtime = folder.path().to_path_buf();
    let mut killed = run_in(&runtime, "killed.hwt", &[]);
    let left = sockets(&runtime);
    assert_eq!(left.len(), 1);
    killed.signal(libc::SIGKILL);
    killed.hang_up();
    drop(killed);
    // Its file is still there; nobody answers.
    assert_eq!(sockets(&runtime), left);
    assert_none(&runtime.join("killed.hwt"));
    let live = start_in(folder, "trace.hwt", &[]);
    wait_until("a recording answers", Duration::from_secs(10), || ask(&runtime, &["mark", "m"]).code() == 0);
    live.end();
}

#[test]
fn a_folder_that_others_may_enter_holds_no_socket_and_the_recording_goes_on() {
    let folder = highwater_tests::folder();
    // In the way: a folder that others may enter is not used.
    let bad = folder.path().join("highwater");
    std::fs::create_dir(&bad).unwrap();
    std::fs::set_permissions(&bad, std::fs::Permissions::from_mode(0o777)).unwrap();
    let trace = folder.path().join("trace.hwt");
    let ended = Highwater::command(["run", "-q", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(Program::new("actions.c").build())
        .env("XDG_RUNTIME_DIR", folder.path())
        .input(b"act\nend\n")
        .run();
    ended.expect_code(3);
    assert_eq!(std::fs::read_dir(&bad).unwrap().count(), 0);
    assert_eq!(Highwater::json(&["stats"], &trace)["ended"]["how"], "exit");
}

#[test]
fn a_recorder_that_the_agent_started_can_be_talked_to_as_well() {
    let folder = highwater_tests::folder();
    let runtime = folder.path().to_path_buf();
    let agent = Highwater::command(["agent-path"]).run().expect_code(0).stdout();
    let mut program = Highwater::plain(Program::new("actions.c").build())
        .env("LD_PRELOAD", agent.trim())
        .env("HIGHWATER_RECORDER", Highwater::path())
        .env("XDG_RUNTIME_DIR", &runtime)
        .cwd(&runtime)
        .talks()
        .start();
    let pid = program.pid().to_string();
    let marked = || ask(&runtime, &["mark", "m", "--pid", &pid]).code() == 0;
    wait_until("a mark is set", Duration::from_secs(30), marked);
    program.say("act\n");
    wait_until("it is done", Duration::from_secs(30), || program.stdout_so_far().contains("done act"));
    ask(&runtime, &["stop", "--pid", &pid]).expect_code(0);
    let trace = runtime.join(format!("highwater.actions.{pid}.hwt"));
    let stats = Highwater::json(&["stats"], &trace);
    assert_eq!(stats["ended"]["how"], "detached");
    assert!(events(&trace).iter().any(|event| event["api"] == "calloc"));
    program.say("end\n");
    program.wait().expect_code(3);
    wait_until("the socket goes", Duration::from_secs(10), || sockets(&runtime).is_empty());
}

#[track_caller]
fn assert_beginning(before: &[u8], now: &[u8]) {
    if now.starts_with(before) {
        return;
    }
    let line = now.split(|&byte| byte == b'\n').zip(before.split(|&byte| byte == b'\n'));
    let (now, before) = line.into_iter().find(|(now, before)| now != before).expect("a line that differs");
    let text = String::from_utf8_lossy;
    panic!("it said `{}` and says `{}`", text(before), text(now));
}

#[test]
fn what_was_shown_of_a_trace_that_is_being_written_never_changes() {
    let mut live = start(&[]);
    let trace = live.trace();
    let view = |live: &Live, args: &[&str]| {
        let ended = command(live.folder.path(), args).arg(live.trace()).run().expect_code(0);
        let said = ended.stderr();
        assert!(said.contains("trace.hwt is still being written"), "{args:?}: {said}");
        assert!(!said.contains("cut at") && !said.contains("no index"), "{args:?}: {said}");
        ended.out
    };
    // Byte by byte: a line for each event, with its time in nanoseconds.
    let history = ["history", "--csv"];
    let mut shown: Vec<u8> = Vec::new();
    let mut lengths = Vec::new();
    for round in 0..6 {
        // Views look while four threads are at it.
        live.run.say("race\n");
        live.done += 1;
        for _ in 0..2 {
            let now = view(&live, &history);
            assert_beginning(&shown, &now);
            shown = now;
            lengths.push(shown.len());
        }
        let done = live.done;
        let run = &live.run;
        wait_until("race", Duration::from_secs(60), || run.stdout_so_far().matches("done ").count() >= done);
        live.mark(&format!("r{round}"));
    }
    lengths.dedup();
    assert!(lengths.len() > 2, "the trace did not grow between the views: {lengths:?}");

    let stats = schema::document(&view(&live, &["stats", "--json"]));
    assert_eq!(stats["ended"]["how"], "running");
    assert_eq!(stats["complete"], false);
    let lines = shown.iter().filter(|&&byte| byte == b'\n').count() as u64;
    assert!(stats["events"].as_u64().unwrap() >= lines - 1, "{lines} lines, the first with names");
    let dump = schema::document(&view(&live, &["dump", "--json"]));
    assert!(!dump["blocks"].as_array().unwrap().is_empty());
    view(&live, &["stats"]);
    view(&live, &["dump"]);
    view(&live, &["history"]);

    let folder = live.end();
    assert_beginning(&shown, &Highwater::command(history).arg(&trace).run().expect_code(0).out);
    let ended = Highwater::command(["stats"]).arg(&trace).run().expect_code(0).stderr();
    assert!(!ended.contains("still being written"), "{ended}");
    drop(folder);
}
