//! What a newcomer trips over gets a sentence that helps, never a zero report
//! and never a hang.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use highwater_tests::highwater::record_with;
use highwater_tests::{Child, Ended, Highwater, Program, TempDir, number, record, tools};

/// `highwater run -- PROGRAM` that is expected to refuse: exit code and words.
#[track_caller]
fn refused(program: &Path, code: i32, words: &[&str]) -> Ended {
    let folder = highwater_tests::folder();
    let ended = Highwater::command(["run", "--"]).arg(program).cwd(folder.path()).run();
    assert_eq!(ended.code(), code, "stdout: {}\nstderr: {}", ended.stdout(), ended.stderr());
    let text = ended.stderr();
    for word in words {
        assert!(text.to_lowercase().contains(&word.to_lowercase()), "no `{word}` in: {text}");
    }
    assert!(text.lines().all(|line| line.starts_with("highwater: ")), "{text}");
    assert!(text.lines().count() <= 3, "{text}");
    ended
}

/// A copy of a compiled program in a folder of its own.
fn copy_of(program: &Path) -> (TempDir, PathBuf) {
    let folder = highwater_tests::folder();
    let copy = folder.path().join("program");
    fs::copy(program, &copy).expect("a copy");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("permissions");
    (folder, copy)
}

#[test]
fn a_command_that_is_not_there_is_127() {
    refused(Path::new("/no/such/program"), 127, &["/no/such/program"]);
    refused(Path::new("no-such-command-on-path"), 127, &["no-such-command-on-path"]);
}

#[test]
fn a_file_that_is_not_executable_is_126() {
    let folder = highwater_tests::folder();
    let file = folder.path().join("data.txt");
    fs::write(&file, "text").expect("a file");
    refused(&file, 126, &["data.txt"]);
    refused(folder.path(), 126, &[]);
}

#[test]
fn a_script_without_a_first_line_is_run_as_shells_do_or_refused_with_126() {
    let folder = highwater_tests::folder();
    let file = folder.path().join("script");
    fs::write(&file, "#!/no/such/interpreter\n").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("permissions");
    let ended = Highwater::command(["run", "--"]).arg(&file).cwd(folder.path()).run();
    assert!([126, 127].contains(&ended.code()), "{}: {}", ended.code(), ended.stderr());
    assert!(ended.stderr().contains("/no/such/interpreter"), "{}", ended.stderr());
}

#[test]
fn a_program_of_another_machine_is_126_and_says_which() {
    let (_folder, copy) = copy_of(&Program::new("empty.c").build());
    let mut bytes = fs::read(&copy).expect("the program");
    bytes[18] = 183; // e_machine: aarch64
    fs::write(&copy, bytes).expect("the program");
    refused(&copy, 126, &["aarch64"]);
}

#[test]
fn a_static_program_gets_a_way_out() {
    let program = Program::new("endings.c").flags(&["-static"]).build();
    let folder = highwater_tests::folder();
    let ended = Highwater::command(["run", "--"]).arg(&program).arg("return").cwd(folder.path()).run();
    // Refused, or run without a recording: either way the words are there.
    assert!([3, 125, 126].contains(&ended.code()), "{}: {}", ended.code(), ended.stderr());
    let words = ended.stderr();
    assert!(words.contains("statically linked") && words.contains("link it dynamically"), "{words}");
}

#[test]
fn a_setuid_program_says_why_it_cannot_be_recorded() {
    let (_folder, copy) = copy_of(&Program::new("empty.c").build());
    // Owned by another user, else the bit means nothing.
    let another = std::os::unix::fs::chown(&copy, Some(65534), Some(65534));
    if another.is_err() {
        eprintln!("only root can make another user's file: not tested");
        return;
    }
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("permissions");
    let folder = highwater_tests::folder();
    let ended = Highwater::command(["run", "--"]).arg(&copy).cwd(folder.path()).run();
    assert!(ended.stderr().contains("setuid"), "{}: {}", ended.code(), ended.stderr());
}

#[test]
fn a_program_built_with_address_sanitizer_is_refused_with_advice() {
    let program = Program::new("empty.c").flags(&["-fsanitize=address"]).build();
    refused(&program, 125, &["sanitizer", "build it without"]);
}

#[test]
fn an_allocator_of_the_programs_own_is_not_a_zero_report() {
    let recorded = record(Program::new("own_allocator.c").build(), [""; 0]).expect_code(0);
    assert_eq!(recorded.ended.stdout(), "done\n");
    let words = recorded.ended.stderr();
    assert!(words.contains("its own allocator"), "the reason: {words}");
    assert!(words.contains("MiB") || words.contains('%'), "how much is unseen: {words}");
    assert!(words.contains("build with"), "the way out: {words}");
}

#[test]
fn pymalloc_gets_a_hint() {
    let code = "x = [str(i) for i in range(100000)]";
    let hidden = record("/usr/bin/python3", ["-S", "-c", code]).expect_code(0);
    assert!(hidden.ended.stderr().contains("PYTHONMALLOC=malloc"), "{}", hidden.ended.stderr());
    let open = record_with(&[], |child| {
        child.env("PYTHONMALLOC", "malloc").args(["--", "/usr/bin/python3", "-S", "-c", code])
    });
    assert!(!open.ended.stderr().contains("PYTHONMALLOC"), "{}", open.ended.stderr());
}

#[test]
fn a_musl_program_is_recorded() {
    tools::need("musl-gcc");
    let program = Program::new("endings.c").compiler("musl-gcc").build();
    let recorded = record(&program, ["return"]).expect_code(3);
    assert_eq!(number(&recorded.stats(), "allocations"), 1001);
}

#[test]
fn a_cache_folder_that_cannot_be_used_does_not_stop_a_recording() {
    let folder = highwater_tests::folder();
    let trace = folder.path().join("t.hwt");
    for cache in ["/proc/no/such", "/dev/null"] {
        let ended = Highwater::command(["run", "--force", "-o"])
            .arg(&trace)
            .args(["--", "/usr/bin/python3", "-S", "-c", "pass"])
            .env("XDG_CACHE_HOME", cache)
            .env("HOME", cache)
            .run()
            .expect_code(0);
        assert!(!ended.stderr().contains("ld.so"), "{}", ended.stderr());
        assert!(number(&Highwater::json(&["stats"], &trace), "allocations") > 100);
    }
}

#[test]
fn the_summary_says_what_counts_and_what_to_type_next() {
    let recorded = record("/usr/bin/python3", ["-S", "-c", "x = bytearray(3000000)"]).expect_code(0);
    let words = recorded.ended.stderr();
    assert!(words.lines().all(|line| line.starts_with("highwater: ")), "{words}");
    for word in [
        "events",
        "allocated",
        "temporary",
        "peak",
        "live at end",
        "stacks",
        "trace.hwt",
        "bytes an event",
        "next",
    ] {
        assert!(words.contains(word), "no `{word}` in:\n{words}");
    }
}

#[test]
fn no_terminal_means_no_colours_and_no_color_means_none_either() {
    let recorded = record("/usr/bin/python3", ["-S", "-c", "pass"]).expect_code(0);
    assert!(!recorded.ended.stderr().contains('\u{1b}'));
    for view in ["stats", "peak", "leaks", "dump", "history", "errors", "threads"] {
        let plain = Highwater::command([view]).arg(&recorded.trace).run().expect_code(0);
        assert!(!plain.stdout().contains('\u{1b}'), "{view}");
        assert!(!plain.out.is_empty(), "{view} prints nothing");
    }
    let coloured =
        Highwater::command(["stats", "--color", "always"]).arg(&recorded.trace).run().expect_code(0);
    assert!(coloured.stdout().contains('\u{1b}'), "{}", coloured.stdout());
    let none = Highwater::command(["stats"]).arg(&recorded.trace).env("NO_COLOR", "1").run().expect_code(0);
    assert!(!none.stdout().contains('\u{1b}'));
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let recorded = record("/usr/bin/python3", ["-S", "-c", "pass"]).expect_code(0);
    let script = format!("{} history {} | head -1", Highwater::path().display(), recorded.trace.display());
    let ended = Highwater::plain("/bin/sh").args(["-c", &script]).run().expect_code(0);
    assert!(
        !ended.stderr().contains("panicked") && !ended.stderr().contains("Broken pipe"),
        "{}",
        ended.stderr()
    );
}

#[test]
fn the_newest_trace_is_taken_when_none_is_named() {
    let folder = highwater_tests::folder();
    Highwater::command(["run", "-q", "--", "/usr/bin/python3", "-S", "-c", "pass"])
        .cwd(folder.path())
        .run()
        .expect_code(0);
    let ended = Highwater::command(["stats", "--json"]).cwd(folder.path()).run().expect_code(0);
    assert!(ended.stderr().contains("highwater.python3"), "named on stderr: {}", ended.stderr());
    let empty = highwater_tests::folder();
    let ended = Highwater::command(["stats"]).cwd(empty.path()).run().expect_code(2);
    assert!(ended.stderr().contains("highwater run"), "says how to make one: {}", ended.stderr());
}

#[test]
fn wrong_arguments_get_one_line_and_the_right_code() {
    for (args, code) in [
        (&["frobnicate"][..], 2),
        (&["stats", "--no-such-option"], 2),
        (&["stats", "a.hwt", "b.hwt", "c.hwt"], 2),
        (&["run"], 125),
        (&["run", "--no-such-option", "--", "true"], 125),
        (&["run", "--depth", "many", "--", "true"], 125),
    ] {
        let ended = Highwater::command(args).run();
        assert_eq!(ended.code(), code, "{args:?}: {}", ended.stderr());
        assert!(
            !ended.stderr().is_empty() && !ended.stderr().contains("panicked"),
            "{args:?}: {}",
            ended.stderr()
        );
    }
}

#[test]
fn help_has_examples() {
    for args in
        [&["--help"][..], &["run", "--help"], &["stats", "--help"], &["leaks", "--help"], &["peak", "--help"]]
    {
        let ended = Highwater::command(args).run().expect_code(0);
        assert!(
            ended.stdout().contains("highwater run") || ended.stdout().contains("Examples"),
            "{args:?}: {}",
            ended.stdout()
        );
    }
    Highwater::command(["--version"]).run().expect_code(0);
}

#[test]
fn a_read_only_root_and_a_pid_namespace_as_in_a_container() {
    let unshare = tools::need("unshare");
    let home = highwater_tests::folder();
    let trace = home.path().join("t.hwt");
    if Child::new(&unshare).args(["-rmpf", "--mount-proc", "true"]).run().code() != 0 {
        eprintln!("no pid namespaces here: not tested");
        return;
    }
    let script = format!(
        "{} run -o {} -- /usr/bin/python3 -S -c 'import os; print(os.getpid() < 100)'",
        Highwater::path().display(),
        trace.display()
    );
    let ended =
        Highwater::plain(unshare).args(["-rmpf", "--mount-proc", "sh", "-c", &script]).run().expect_code(0);
    assert_eq!(ended.stdout(), "True\n");
    assert!(number(&Highwater::json(&["stats"], &trace), "allocations") > 100);
}

#[test]
fn a_wild_pointer_with_all_bits_broke_the_records_behind_it() {
    let program = Program::new("wild.c").build();
    let plain = Child::new(&program).run();
    let recorded = record(&program, [""; 0]);
    assert_eq!(recorded.ended.status, plain.status, "{}", recorded.ended.stderr());
    assert_eq!(recorded.ended.stdout(), plain.stdout());
    let stats = recorded.stats();
    assert_eq!(number(&stats["errors"], "invalid_free"), 4, "{stats:#}");
    // 10 bytes and four times 100, and what stdio has made for its output.
    let freed = (number(&stats, "frees"), number(&stats, "bytes_freed"));
    assert_eq!(freed, (4 + 5, 410), "{stats:#}");
    assert_eq!(number(&stats["stacks"], "truncated"), 0, "{stats:#}");
    let errors = Highwater::json(&["errors"], &recorded.trace);
    let seen: Vec<&str> =
        errors["errors"].as_array().unwrap().iter().map(|error| error["address"].as_str().unwrap()).collect();
    let wanted = ["0xdeadbeefdeadbeef", "0xdeadbeefdeadbee8", "0x6b6b6b6b6b6b6b6b", "0xfffffffffffffff8"];
    assert_eq!(seen, wanted, "{errors:#}");
}

#[test]
fn mismatched_and_double_frees_are_reported_and_change_nothing() {
    let recorded =
        record(Program::new("mismatched.cpp").flags(&["-Wno-mismatched-new-delete"]).build(), [""; 0]);
    let stats = recorded.expect_code(0).stats();
    assert_eq!(number(&stats["errors"], "mismatched"), 6, "{stats:#}");

    let program = Program::new("double_free.c").build();
    let plain = Child::new(&program).run();
    let recorded = record(&program, [""; 0]);
    assert_eq!(recorded.ended.status, plain.status, "{}", recorded.ended.stderr());
    let stats = recorded.stats();
    assert_eq!(number(&stats["errors"], "double_free"), 1, "{stats:#}");
    let errors = Highwater::json(&["errors"], &recorded.trace);
    assert_eq!(errors["errors"][0]["kind"], "double_free", "{errors:#}");
    let text = errors["errors"][0]["stack"].to_string();
    assert!(text.contains("give_back"), "where: {errors:#}");
    assert!(errors["errors"][0]["allocated"]["stack"].to_string().contains("main"), "{errors:#}");
}
