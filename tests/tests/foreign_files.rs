//! Files that highwater did not record: the DTrace script's text, dumps of
//! embedded targets. Views open them as they would a trace; `import` makes one.

use std::path::{Path, PathBuf};

use highwater_tests::{Ended, Highwater};
use serde_json::Value;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

fn highwater(args: &[&str]) -> Ended {
    Highwater::command(args).run()
}

/// The stdout of a view and what it is of, without what names the file.
fn shown(view: &[&str], file: &Path) -> String {
    let ended = Highwater::command(view).arg(file).run().expect_code(0);
    ended.stdout().lines().filter(|line| !line.starts_with("next:")).collect::<Vec<_>>().join("\n")
}

#[test]
fn findleaks_prints_of_an_imported_text_what_it_prints_of_the_text() {
    let folder = highwater_tests::folder();
    let to = folder.path().join("leaks.hwt");
    let (text, to) = (golden("findleaks.txt"), to.to_str().unwrap());
    let text = text.to_str().unwrap();
    let ended = highwater(&["import", text, "-o", to]).expect_code(0);
    assert_eq!(
        (ended.stdout(), ended.stderr()),
        (String::new(), format!("highwater: wrote {to}: 10 events\n"))
    );
    for (begin, end) in [("2968", "3511"), ("0", "99999"), ("2971", "3000"), ("3512", "3600")] {
        let of = |file: &str| highwater(&["findleaks", "-b", begin, "-e", end, "-f", file]).expect_code(0);
        assert_eq!(of(to).stdout(), of(text).stdout(), "-b {begin} -e {end}");
    }
    // Once more: it is not replaced unasked.
    let ended = highwater(&["import", text, "-o", to]).expect_code(2);
    assert!(ended.stderr().contains("exists already"), "{}", ended.stderr());
    highwater(&["import", text, "-o", to, "--force"]).expect_code(0);
}

#[test]
fn views_open_the_text_as_they_do_its_trace() {
    let folder = highwater_tests::folder();
    let to = folder.path().join("leaks.hwt");
    let text = golden("findleaks.txt");
    highwater(&["import", text.to_str().unwrap(), "-o", to.to_str().unwrap()]).expect_code(0);
    for view in [&["leaks"][..], &["threads"], &["errors"]] {
        assert_eq!(shown(view, &text), shown(view, &to), "{view:?}");
    }
    let peak = |file: &Path| Highwater::json(&["peak"], file)["sites"].clone();
    assert_eq!(peak(&text), peak(&to));
    let stats = Highwater::json(&["stats"], &text);
    assert_eq!((stats["allocations"].clone(), stats["live_blocks"].clone()), (8.into(), 6.into()));
    // The text's own numbers are shown where they are not lost.
    let dump = Highwater::json(&["dump"], &text);
    let seqnos: Vec<u64> =
        dump["blocks"].as_array().unwrap().iter().map(|b| b["seqno"].as_u64().unwrap()).collect();
    assert_eq!(seqnos, [2968, 3511, 3000, 2970, 0, 3601]);
    let frame: &Value = &dump["blocks"][0]["stack"][0];
    assert_eq!(
        (frame["function"].clone(), frame["module"].clone()),
        ("void*operator new(unsigned)".into(), "libCrun.so.1".into())
    );
}

#[test]
fn a_file_of_no_known_format_is_refused_with_what_there_is() {
    let folder = highwater_tests::folder();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "hello\n").unwrap();
    let file = file.to_str().unwrap();
    let ended = highwater(&["import", file]).expect_code(2);
    assert!(ended.stderr().contains("use --from (dtrace, mddout)"), "{}", ended.stderr());
    let ended = highwater(&["import", "--from", "heapview", file]).expect_code(2);
    assert!(ended.stderr().contains("there are dtrace, mddout"), "{}", ended.stderr());
    let ended = highwater(&["import", "--from", "mddout", file]).expect_code(2);
    assert!(ended.stderr().contains("not a memory debug dump"), "{}", ended.stderr());
    assert!(highwater(&["stats", file]).expect_code(2).stderr().contains("not a highwater trace"));
    highwater(&["import", "/nowhere/x"]).expect_code(2);
}
