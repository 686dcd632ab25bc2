//! Gates: of `run`, from budgets, against baselines; their formats.

use std::path::{Path, PathBuf};

use highwater_tests::highwater::record_with;
use highwater_tests::{Ended, Highwater, Program, Recorded};
use serde_json::Value;

/// Bytes that `leaks.c` leaks.
const LEAKED: u64 = 4096 + 1000 + 24;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/leaks.c")
}

fn run(options: &[&str], program: &str) -> Recorded {
    record_with(options, |child| child.arg("--").arg(Program::new(program_file(program)).build()))
}

fn program_file(name: &str) -> &'static str {
    match name {
        "leaks" => "leaks.c",
        "double_free" => "double_free.c",
        _ => "empty.c",
    }
}

fn check(recorded: &Recorded, args: &[&str]) -> Ended {
    Highwater::command(["check"]).arg(&recorded.trace).args(args).run()
}

fn json(ended: &Ended) -> Value {
    serde_json::from_slice(&ended.out).expect("JSON")
}

#[test]
fn a_run_whose_gate_fails_exits_with_the_code_that_was_asked_for_and_names_the_culprit() {
    let clean = run(&["--fail-on", "any", "--max-leak", "0"], "empty");
    let said = clean.expect_code(0).ended.stderr();
    assert!(said.contains("passed  leak=exit") && said.contains("passed  max-leak"), "{said}");

    let failed = run(&["--max-leak", "0"], "leaks").expect_code(1).ended.stderr();
    assert!(failed.contains("highwater: FAILED  max-leak: 5.0 KiB, limit 0 B"), "{failed}");
    assert!(failed.contains("most by fill_cache (") && failed.contains("leaks.c:"), "{failed}");
    run(&["--fail-on", "leak", "--error-exitcode", "42"], "leaks").expect_code(42);
    run(&["--max-peak", "64MiB", "--max-allocs", "100000"], "leaks").expect_code(0);
    run(&["--max-allocs", "3", "--error-exitcode", "9"], "leaks").expect_code(9);
    run(&["--max-temporary", "49"], "leaks").expect_code(1);
    run(&["--max-temporary", "50"], "leaks").expect_code(0);
    // Nothing asked for: the program's own status, whatever it leaks.
    run(&[], "leaks").expect_code(0);
    let quiet = run(&["-q", "--fail-on", "leak"], "leaks").expect_code(1);
    assert_eq!(quiet.ended.stderr(), "");
}

#[test]
fn what_nothing_points_to_fails_a_run_that_asks_for_it_and_the_scan_comes_by_itself() {
    // The cache is still pointed to; the list and the name are not.
    let failed = run(&["--fail-on", "leak=definite"], "leaks").expect_code(1);
    let said = failed.ended.stderr();
    assert!(said.contains("FAILED  leak=definite: 1.0 KiB, limit 0 B"), "{said}");
    assert!(said.contains("most by leak_list (") && !said.contains("by fill_cache ("), "{said}");
    run(&["--fail-on", "leak=definite"], "empty").expect_code(0);
}

#[test]
fn a_double_free_fails_a_run_only_where_it_was_asked_for() {
    // glibc aborts at some double frees: the program dies of its signal then.
    let recorded = run(&["-q"], "double_free");
    let errors = recorded.stats()["errors"]["double_free"].as_i64().unwrap();
    assert!(errors > 0);
    check(&recorded, &["--fail-on", "double_free"]).expect_code(1);
    check(&recorded, &["--fail-on", "error"]).expect_code(1);
    check(&recorded, &["--fail-on", "mismatched"]).expect_code(0);
    let gates = json(&check(&recorded, &["--fail-on", "double_free", "--json"]));
    assert_eq!(gates["gates"][0]["gate"], "double_free");
    assert_eq!(gates["gates"][0]["value"], errors);
    assert!(gates["gates"][0]["site"]["file"].as_str().unwrap().ends_with("double_free.c"));
}

#[test]
fn a_gate_that_cannot_be_judged_has_not_passed() {
    let recorded = run(&["-q"], "leaks");
    let ended =
        check(&recorded, &["--fail-on", "leak=definite,leak=window,leak=growth", "--json"]).expect_code(1);
    let gates = json(&ended);
    assert_eq!(gates["gates"][0]["passed"], false);
    assert!(gates["gates"][0]["reason"].as_str().unwrap().starts_with("not scanned"), "{gates:#}");
    assert!(gates["gates"][2]["reason"].as_str().unwrap().contains("no marks"), "{gates:#}");
    // Few blocks, and some of them are left: whether they grow nobody can say.
    assert_eq!(gates["gates"][1]["passed"], false);
    assert_eq!(gates["gates"][1]["reason"], "too few events to see anything grow", "{gates:#}");
    let bad = check(&recorded, &["--fail-on", "leeks"]).expect_code(2).stderr();
    assert!(bad.contains("`leeks` is nothing to fail on"), "{bad}");
    let bad = run(&["--fail-on", "leeks"], "leaks").expect_code(125).ended.stderr();
    assert!(bad.contains("`leeks` is nothing to fail on"), "{bad}");
    // A file that is not there is told before the program runs.
    let bad = run(&["--baseline", "/nonexistent.json"], "leaks").expect_code(125);
    assert!(!bad.trace.exists());
    assert_eq!(bad.ended.stdout(), "");
}

#[test]
fn only_what_a_baseline_does_not_have_fails() {
    let recorded = run(&["-q"], "leaks");
    let known = recorded.folder().join("known.json");
    let known = known.to_str().unwrap();
    let said = check(&recorded, &["--write-baseline", known]).expect_code(0).stderr();
    assert!(said.contains("3 known leaks"), "{said}");
    let trace = recorded.trace.to_str().unwrap();
    // Compiled anew with other lines: the same leaks.
    let moved = record_with(&["-q"], |child| {
        child.arg("--").arg(Program::new("leaks.c").flags(&["-include", "stddef.h", "-O2"]).build())
    });
    for baseline in [known, trace] {
        for recorded in [&recorded, &moved] {
            let passed = check(recorded, &["--baseline", baseline]).expect_code(0).stdout();
            assert!(passed.contains("passed  baseline: 0 B, limit 0 B"), "{passed}");
        }
        check(&recorded, &["--baseline", baseline, "--max-leak", "0"]).expect_code(0);
        check(&recorded, &["--baseline", baseline, "--tolerance", "5%"]).expect_code(0);
        run(&["-q", "--baseline", baseline], "leaks").expect_code(0);
        let left = Highwater::command(["leaks", "--format", "gcc", "--baseline", baseline]).arg(trace).run();
        assert_eq!(left.expect_code(0).stdout(), "");
    }
    // One of the three is taken out: it is new.
    let text = std::fs::read_to_string(known).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    file["leaks"].as_array_mut().unwrap().retain(|leak| leak["function"] != "leak_list");
    file["peak_bytes"] = 1000.into();
    std::fs::write(known, file.to_string()).unwrap();
    let ended = check(&recorded, &["--baseline", known, "--json"]).expect_code(1);
    let gates = json(&ended);
    assert_eq!(gates["gates"][0]["gate"], "baseline");
    assert_eq!(gates["gates"][0]["value"], 1000);
    assert_eq!(gates["gates"][0]["site"]["function"], "leak_list");
    let new = Highwater::command(["leaks", "--format", "gcc", "--baseline", known]).arg(trace).run();
    assert_eq!(new.stdout().lines().count(), 1);
    let ended = check(&recorded, &["--baseline", known, "--tolerance", "5%", "--json"]).expect_code(1);
    let peak = &json(&ended)["gates"][1];
    assert_eq!(
        (&peak["gate"], &peak["passed"], &peak["limit"]),
        (&"baseline-peak".into(), &false.into(), &1050.into())
    );

    std::fs::write(known, "{\"schema\": \"other\"}").unwrap();
    let bad = check(&recorded, &["--baseline", known]).expect_code(2).stderr();
    assert!(bad.contains("neither a trace nor a baseline"), "{bad}");
}

#[test]
fn a_budget_has_limits_for_the_program_and_for_single_functions() {
    let recorded = run(&["-q"], "leaks");
    let file = recorded.folder().join("highwater.toml");
    let budget = |text: &str| std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    budget(&format!(
        "[budget]\nmax-leak = {LEAKED}\nmax-peak = \"1MiB\"\n\n[[budget.site]]\nfunction = \"fill_*\"\nmax-peak = 4096\n"
    ));
    let passed = check(&recorded, &["--budget", path]).expect_code(0).stdout();
    assert_eq!(passed.matches("passed").count(), 3, "{passed}");
    // In the current folder it is found by itself.
    let found = Highwater::command(["check"]).arg(&recorded.trace).cwd(recorded.folder()).run();
    assert_eq!(found.expect_code(0).stdout(), passed);
    budget(
        "[[budget.site]]\nfile = \"leaks.c\"\nmax-leak = \"4k\"\n[[budget.site]]\nfunction = \"fill_*\"\nmax-allocs = 0\n",
    );
    let failed = check(&recorded, &["--budget", path]).expect_code(1).stdout();
    assert!(failed.contains("FAILED  max-leak of file leaks.c: 5.0 KiB, limit 4.0 KiB"), "{failed}");
    assert!(failed.contains("FAILED  max-allocs of function fill_*: 1, limit 0"), "{failed}");
    // The command line goes before the file.
    budget("[budget]\nmax-leak = 0\n");
    check(&recorded, &["--budget", path]).expect_code(1);
    check(&recorded, &["--budget", path, "--max-leak", "1MiB"]).expect_code(0);
    run(&["-q", "--budget", path], "leaks").expect_code(1);
    budget("[budget]\nmax-leek = 0\n");
    let bad = check(&recorded, &["--budget", path]).expect_code(2).stderr();
    assert!(bad.contains("max-leek") && bad.contains("highwater.toml"), "{bad}");
    budget("[run]\ndepth = 3\n");
    let bad = check(&recorded, &["--budget", path]).expect_code(2).stderr();
    assert!(bad.contains("there is no table [budget]"), "{bad}");
}

#[test]
fn every_format_of_check_names_what_failed_at_its_line() {
    let recorded = run(&["-q"], "leaks");
    let args = ["--max-leak", "0", "--max-peak", "1GiB"];
    let with = |format: &str| {
        let folder = source();
        Highwater::command(["check"])
            .arg(&recorded.trace)
            .args(args)
            .args(["--format", format])
            .cwd(folder.parent().unwrap())
            .run()
            .expect_code(1)
    };
    let sarif = json(&with("sarif"));
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 3, "a result a leak");
    assert!(results.iter().all(|result| result["ruleId"] == "max-leak"));
    assert!(results[0]["locations"][0]["physicalLocation"]["region"]["startLine"].is_u64());
    let gcc = with("gcc").stdout();
    assert_eq!(gcc.matches(" bytes leaked here\n").count(), 3, "{gcc}");
    assert!(gcc.starts_with(source().to_str().unwrap()), "{gcc}");
    let junit = with("junit").stdout();
    assert!(junit.contains("tests=\"2\" failures=\"1\""), "{junit}");
    let github = with("github").stdout();
    assert_eq!(github.matches("::error file=").count(), 3, "{github}");
    let document = json(&with("json"));
    assert_eq!(document["schema"], "highwater.check/1");
    assert_eq!(document["gates"][1]["gate"], "max-leak");
    assert_eq!(document["gates"][1]["value"], LEAKED);
    assert_eq!(document["gates"][1]["sites"].as_array().unwrap().len(), 3);
}

#[test]
fn what_the_program_tells_leak_sanitizer_holds_here_too() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "leak:other\n").unwrap();
    let options = format!("verbosity=0:suppressions={}", file.path().display());
    for flags in [&["-O2"][..], &["-O0"], &["-O1", "-no-pie", "-fcf-protection=none"]] {
        let program = Program::new("lsan_hooks.c").flags(flags).build();
        let record = |variable: &str| {
            record_with(&["-q"], |child| child.env("LSAN_OPTIONS", variable).arg("--").arg(&program))
        };
        let leaks = |recorded: &Recorded, more: &[&str]| {
            let view = Highwater::command(["leaks", "--format", "gcc", "--method", "exit"]).args(more);
            let text = view.arg(&recorded.trace).run().expect_code(0).stdout();
            let bytes = |line: &str| Some(line.split("error: ").nth(1)?.split(' ').next()?.to_owned());
            text.lines().filter_map(bytes).collect::<Vec<String>>()
        };
        let recorded = record("");
        assert_eq!(leaks(&recorded, &[]), ["77", "5"], "{flags:?}");
        assert_eq!(leaks(&recorded, &["--no-recorded-suppressions"]), ["1000", "77", "30", "5"]);
        check(&recorded, &["--max-leak", "82"]).expect_code(0);
        check(&recorded, &["--max-leak", "81"]).expect_code(1);
        assert_eq!(leaks(&record(&options), &[]), ["77"], "{flags:?}");
    }
}
