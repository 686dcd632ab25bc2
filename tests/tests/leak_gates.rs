//! `findleaks`, the formats and suppressions of `leaks`, and `check`.

use std::path::{Path, PathBuf};

use highwater_tests::highwater::record_with;
use highwater_tests::{Child, Ended, Highwater, Program, Recorded, schema};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

fn findleaks(file: &Path, begin: &str, end: &str) -> Ended {
    Highwater::command(["findleaks", "-f"]).arg(file).args(["-b", begin, "-e", end]).run()
}

#[test]
fn findleaks_prints_the_articles_example() {
    let ended = findleaks(&golden("findleaks.txt"), "2968", "3511").expect_code(0);
    let expected = std::fs::read_to_string(golden("findleaks.expected")).unwrap();
    assert_eq!(ended.stdout(), expected);
    assert_eq!(ended.stderr(), "");
    let none = findleaks(&golden("findleaks.txt"), "3512", "3600").expect_code(0);
    assert!(none.stdout().ends_with("\n\n\nNo leaks found in specified range\n"), "{}", none.stdout());
}

#[test]
fn findleaks_by_its_own_name_says_what_is_missing_in_the_scripts_words() {
    let folder = highwater_tests::folder();
    Highwater::command(["install-links"]).arg(folder.path()).run().expect_code(0);
    let link = folder.path().join("findleaks");
    let file = golden("findleaks.txt");
    let file = file.to_str().unwrap();
    for (args, message) in [
        (&["-e", "1", "-f", file][..], "Please specify a begin sequence id (-b)\n"),
        (&["-b", "1", "-f", file], "Please specify a end sequence id (-e)\n"),
        (&["-b", "2", "-e", "2"], "-e must be greater than -b\n"),
        (&["-b", "1", "-e", "2"], "Please specify an input memory file (-f)\n"),
    ] {
        let ended = Child::new(&link).args(args).run().expect_code(2);
        assert_eq!((ended.stdout(), ended.stderr()), (String::new(), message.into()), "{args:?}");
    }
    let ended = Child::new(&link).args(["-b", "2968", "-e", "3511", "-f", file]).run().expect_code(0);
    assert!(ended.stdout().contains("Found 2 stacks\n"));
}

#[test]
fn findleaks_lists_no_address_that_was_only_freed() {
    let folder = highwater_tests::folder();
    let file = folder.path().join("leaks.txt");
    // A production record of the article's comments: counts below zero.
    let text = "<__0;t;1;new;0x10;8;\n f\n__>\n\n<__1;t;1;delete;0x10__>\n<__2;t;1;delete;0x10__>\n\
                <__3;t;1;delete;0x20__>\n<__4;t;1;new[];0x30;16;\n f\n__>\n\n== REPORT ==\n\n\
                0x10 => 18446744073709551615\n0x20 => 18446744073709549605\n0x30 => 1\n";
    std::fs::write(&file, text).unwrap();
    let ended = findleaks(&file, "0", "9").expect_code(0);
    assert!(ended.stdout().starts_with("Suspicious addresses are:\n\t- 0x30\n\n\n"), "{}", ended.stdout());
    assert!(ended.stdout().contains("It consumed 16 bytes\n"));
    assert!(ended.stderr().contains("2 frees of blocks whose birth is not in the record"));
}

/// The leaks that `leaks.c` makes: the word that marks their lines, and bytes.
const KNOWN: [(&str, u64); 3] = [("CACHE", 4096), ("LIST", 1000), ("NAME", 24)];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/leaks.c")
}

fn line_of(word: &str) -> usize {
    let text = std::fs::read_to_string(source()).unwrap();
    let mark = format!("/* {word} */");
    1 + text.lines().position(|line| line.contains(&mark)).expect("the mark is in the source")
}

fn leaker() -> Recorded {
    record_with(&["-q"], |child| child.arg("--").arg(Program::new("leaks.c").build())).expect_code(0)
}

#[track_caller]
fn leaks(recorded: &Recorded, args: &[&str]) -> Ended {
    let folder = source();
    Highwater::command(["leaks"])
        .args(args)
        .arg(&recorded.trace)
        .cwd(folder.parent().unwrap())
        .run()
        .expect_code(0)
}

#[test]
fn every_format_has_every_leak_at_its_line_and_stdio_is_none() {
    let recorded = leaker();
    let file = source();
    let gcc: String = KNOWN
        .iter()
        .map(|(word, bytes)| {
            format!("{}:{}: error: {bytes} bytes leaked here\n", file.display(), line_of(word))
        })
        .collect();
    assert_eq!(leaks(&recorded, &["--format", "gcc"]).stdout(), gcc);

    let sarif: serde_json::Value =
        serde_json::from_slice(&leaks(&recorded, &["--format", "sarif"]).out).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), KNOWN.len());
    for (result, (word, bytes)) in results.iter().zip(KNOWN) {
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["region"]["startLine"], line_of(word));
        let uri = place["artifactLocation"]["uri"].as_str().unwrap();
        assert!(uri.ends_with("programs/leaks.c") || uri == "leaks.c", "{uri}");
        assert_eq!(place["artifactLocation"]["uriBaseId"], "SRCROOT");
        assert_eq!(result["properties"]["bytes"], bytes);
        assert!(result["partialFingerprints"]["highwaterStack/v1"].is_string());
    }

    let github = leaks(&recorded, &["--format", "github"]).stdout();
    let junit = leaks(&recorded, &["--format", "junit"]).stdout();
    for (word, bytes) in KNOWN {
        let line = line_of(word);
        assert!(
            github.contains(&format!("leaks.c,line={line},title=memory leak::{bytes} bytes")),
            "{github}"
        );
        assert!(junit.contains(&format!("leaks.c:{line})\"")), "{junit}");
    }
    assert!(junit.contains("tests=\"3\" failures=\"3\""));

    let json = schema::document(&leaks(&recorded, &["--format", "json"]).out);
    let bytes: Vec<u64> =
        json["suspects"].as_array().unwrap().iter().map(|s| s["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes, KNOWN.map(|(_, bytes)| bytes));
}

#[test]
fn a_suppression_hides_what_fits_and_is_told() {
    let recorded = leaker();
    let rules = recorded.folder().join("known.supp");
    std::fs::write(&rules, "# kept on purpose\nleak:fill_cache\n").unwrap();
    let rules = rules.to_str().unwrap();
    let left = leaks(&recorded, &["--format", "gcc", "--suppressions", rules]).stdout();
    assert_eq!(left.lines().count(), 2, "{left}");
    assert!(!left.contains(": 4096 bytes"), "{left}");
    let shown = leaks(&recorded, &["--show-suppressed", "--suppressions", rules]);
    assert!(shown.stdout().contains("fill_cache"));
    assert!(shown.stderr().contains("4096 bytes in 1 block suppressed by leak:fill_cache"));
    assert!(shown.stderr().contains("in 1 block suppressed by built-in: caches and buffers of libc"));

    // What is generated hides all of it.
    let all = recorded.folder().join("all.supp");
    std::fs::write(&all, leaks(&recorded, &["--gen-suppressions"]).stdout()).unwrap();
    let none = leaks(&recorded, &["--format", "gcc", "--suppressions", all.to_str().unwrap()]);
    assert_eq!(none.stdout(), "");
    let text = leaks(&recorded, &["--suppressions", all.to_str().unwrap()]);
    assert_eq!(text.stdout(), "no leaks: all that is live at the end is suppressed\n");
    assert!(text.stderr().contains("suppressed; --show-suppressed lists them"), "{}", text.stderr());

    std::fs::write(&all, "leak:a\nnonsense\n").unwrap();
    let bad =
        Highwater::command(["leaks", "--suppressions"]).arg(&all).arg(&recorded.trace).run().expect_code(2);
    assert!(bad.stderr().contains("all.supp:2: `nonsense` is no suppression"), "{}", bad.stderr());
}

#[test]
fn gates_pass_at_the_value_and_fail_below_it() {
    let recorded = leaker();
    let stats = recorded.stats();
    let check = |args: &[&str]| Highwater::command(["check"]).arg(&recorded.trace).args(args).run();
    for (option, value) in [
        ("--max-peak", highwater_tests::number(&stats, "peak_bytes")),
        ("--max-leak", 4096 + 1000 + 24),
        ("--max-allocs", highwater_tests::number(&stats, "allocations")),
        ("--max-temporary", 50),
    ] {
        check(&[option, &value.to_string()]).expect_code(0);
        let ended = check(&[option, &(value - 1).to_string(), "--json"]).expect_code(1);
        let json = schema::document(&ended.out);
        assert_eq!(json["passed"], false);
        assert_eq!(json["gates"][0]["gate"], option.trim_start_matches('-'));
        assert_eq!(json["gates"][0]["value"], value);
        assert_eq!(json["gates"][0]["limit"], value - 1);
    }
    let both = check(&["--max-leak", "0", "--max-peak", "1GiB"]).expect_code(1).stdout();
    assert!(both.contains("passed  max-peak") && both.contains("FAILED  max-leak"), "{both}");
    check(&[]).expect_code(2);
    check(&["--max-leak", "many"]).expect_code(2);
    Highwater::command(["check", "/nonexistent.hwt", "--max-leak", "0"]).run().expect_code(2);
}

#[test]
fn findleaks_reads_a_trace_too() {
    let recorded = leaker();
    let events = recorded.history();
    let first = events.first().expect("events")["seqno"].as_u64().unwrap();
    let last = events.last().expect("events")["seqno"].as_u64().unwrap();
    let text = findleaks(&recorded.trace, &first.to_string(), &last.to_string()).expect_code(0).stdout();
    let place = format!("leaks`leak_list ({}:{})\n", source().display(), line_of("LIST"));
    assert!(text.contains("Saw 10 times:\nIt consumed 1000 bytes\n"), "{text}");
    assert!(text.contains(&place), "{text}");
    let after = (last + 1).to_string();
    let none = findleaks(&recorded.trace, &after, &(last + 2).to_string()).expect_code(0).stdout();
    assert!(none.ends_with("No leaks found in specified range\n"), "{none}");
}
