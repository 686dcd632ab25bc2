//! A `no_std` program in Rust, its heap recorded by the C agent.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use highwater_interchange::mddout::merge;
use highwater_tests_embedded::session::*;
use highwater_tests_embedded::told::*;
use highwater_tests_embedded::{child, rust};
use highwater_trace::Trace;
use highwater_trace::model::{Op, Step};
use tempfile::tempdir;

/// Runs the program; its console is in `folder/console`, its dump in `folder/rust.mddout`.
fn run(folder: &Path, program: &Path) {
    let console = File::create(folder.join("console")).unwrap();
    let mut started = child::start(Command::new(program).current_dir(folder).stdout(Stdio::from(console)));
    child::wait_for("the program's end", || started.0.try_wait().unwrap().is_some());
    assert!(started.0.wait().unwrap().success());
}

/// `history -f FORMAT`, and the places of each event, innermost first.
fn history(program: &Path, dump: &Path, levels: usize) -> Vec<(String, Vec<String>)> {
    let format = (1..=levels).fold(FORMAT.to_string(), |all, n| format!("{all}|%w{n}"));
    let (status, out, err) = mdd(&["history", "-f", &format], &[program, dump]);
    assert_eq!(status, 0, "{err}");
    assert!(!out.contains("Caution"), "{err}");
    let event = |line: &str| {
        let mut parts = line.split('|').map(|p| p.rsplit('/').next().unwrap_or(p).to_string());
        let head = parts.next().unwrap_or_default();
        (head, parts.collect())
    };
    out.lines().map(event).collect()
}

#[test]
fn boxes_vectors_and_maps_are_recorded_with_kind_size_and_line() {
    let folder = tempdir().unwrap();
    let program = rust::link(folder.path(), &["HISTORY=1", "BACKTRACE=8", "UNWIND=2"]);
    run(folder.path(), &program);
    let file = folder.path().join("rust.mddout");
    let found = history(&program, &file, 8);
    let wanted = told(&folder.path().join("console"), 16, Some("consume.rs"));
    assert!(wanted.len() > 160, "{}", wanted.len());
    for (want, (head, places)) in wanted.iter().zip(&found) {
        // a vector that grows does so in a function of the library's: the next level is the program's
        let own = places.iter().find(|p| p.starts_with("consume.rs:")).cloned().unwrap_or_default();
        assert_eq!(*want, format!("{head} {own}"), "the program's words, the dump's");
    }
    // the rest is the map's, all of it alive
    let rest = &found[wanted.len()..];
    assert!(rest.len() >= 4 && rest.iter().all(|(head, _)| head.contains(" alloc() ")), "{rest:?}");
    let functions = mdd(&["dump", "-f", "%f1 %f2 %f3 %f4 %f5"], &[&program, &file]).1;
    assert_eq!(functions.lines().filter(|l| l.contains("consume::maps")).count(), rest.len(), "{functions}");

    let dump = &flawless(&[file])[0];
    assert!(merge::merge(std::slice::from_ref(dump)).unwrap().complete);
    assert_eq!(dump.kind_names, ["alloc()", "dealloc()", "alloc_zeroed()"]);
    assert_eq!(dump.heaps[0].name, "arena");
    assert!(dump.live.iter().all(|b| (dump.heaps[0].start..dump.heaps[0].end).contains(&b.ptr)));
    assert_eq!(dump.threads[0].name, "consume");
    assert_eq!(dump.counters.foreign, 0, "every release is of a block that was recorded");
}

#[test]
fn as_a_trace_no_release_is_a_mismatch() {
    let folder = tempdir().unwrap();
    let program = rust::link(folder.path(), &["HISTORY=1"]);
    run(folder.path(), &program);
    let trace = folder.path().join("rust.hwt");
    let files = [&program, &folder.path().join("rust.mddout"), Path::new("-o"), &trace];
    let (status, _, err) = mdd(&["import"], &files);
    assert_eq!(status, 0, "{err}");
    let trace = Trace::open(&trace).unwrap();
    let mut steps = trace.steps();
    let (mut made, mut released) = (HashMap::new(), 0);
    while let Some(step) = steps.next().unwrap() {
        let Step::Event(event) = step else { continue };
        match event.op {
            Op::Alloc { .. } => {
                made.insert(event.addr, event.api);
            }
            Op::Free => {
                let api = made.remove(&event.addr).unwrap();
                assert!(api.matches(event.api), "{api:?} {:?}", event.api);
                released += 1;
            }
        }
    }
    assert!(released > 50 && !made.is_empty(), "{released}");
}

#[test]
fn gdb_dumps_a_rust_program_in_the_middle_of_rust() {
    let folder = tempdir().unwrap();
    let program = rust::link(folder.path(), &["HISTORY=1"]);
    let commands = format!(
        "file {}\nset startup-with-shell off\nbreak highwater_mdd_posix_dump\nrun\nup\nshow language\n\
         with language c -- mdd_dump\ncontinue",
        program.to_str().unwrap()
    );
    let text = child::run(&mut debugger("gdb", folder.path(), &commands), Duration::from_secs(120)).text;
    assert!(text.contains("currently rust"), "{text}");
    let dumps = flawless(&[folder.path().join("mddout.0"), folder.path().join("rust.mddout")]);
    assert_eq!(dumps[0].live, dumps[1].live, "{text}");
    assert!(!dumps[0].history.is_empty() && dumps[1].history.is_empty(), "GDB took the ring");
}

#[test]
fn one_return_address_is_the_callers_and_guards_go_round_every_block() {
    let folder = tempdir().unwrap();
    let program = rust::link(folder.path(), &["HISTORY=1", "GUARDS=1", "UNWIND=0", "BACKTRACE=1"]);
    run(folder.path(), &program);
    let dump = &flawless(&[folder.path().join("rust.mddout")])[0];
    assert!(dump.problems.is_empty(), "{:?}", dump.problems);
    assert!(dump.live.iter().all(|b| b.made.flags & 1 == 1 && b.actual.unwrap() >= b.size + 24));
    // Box::new is inlined: the wrapper's own frames would be here, if it had any
    let found = history(&program, &folder.path().join("rust.mddout"), 1);
    let console = fs::read_to_string(folder.path().join("console")).unwrap();
    let mut boxes = 0;
    for (want, (head, places)) in
        told(&folder.path().join("console"), 16, Some("consume.rs")).iter().zip(&found)
    {
        let (event, _) = want.rsplit_once(' ').unwrap();
        assert_eq!(event, head, "{console}");
        if !head.contains("realloc()") && [" 40", " 512"].iter().any(|size| head.ends_with(size)) {
            assert_eq!(*want, format!("{head} {}", places[0]));
            boxes += 1;
        }
    }
    assert!(boxes >= 20 * 3 + 10, "{boxes}");
}
