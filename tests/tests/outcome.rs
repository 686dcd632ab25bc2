//! The first view of all of a large trace leaves in it what it found. Later views
//! say the same, to the last byte, and read no event for it.

use std::fs::{self, File};
use std::path::Path;

use highwater_tests::{Highwater, Program, Recorded, record};
use highwater_trace::Trace;

/// A recording of more than a million events, which ends with many frees, and its bytes
/// before anything was added to it (the summary of `run` has done so already).
fn recorded() -> (Recorded, Vec<u8>) {
    let program = Program::new("threads.c").flags(&["-pthread"]).build();
    plain(record(program, ["/dev/null", "120000"]))
}

/// The same of a program with one thread that does not tidy up.
fn steady() -> (Recorded, Vec<u8>) {
    plain(record(Program::new("steady.c").build(), ["260000"]))
}

fn plain(recorded: Recorded) -> (Recorded, Vec<u8>) {
    let recorded = recorded.expect_code(0);
    let bytes = fs::read(&recorded.trace).expect("the trace");
    // The first trailer behind which nothing is missing is the recorder's.
    let plain = (1..=bytes.len()).filter(|&end| bytes[..end].ends_with(b"THWE")).find_map(|end| {
        fs::write(&recorded.trace, &bytes[..end]).expect("write");
        Trace::open(&recorded.trace).expect("open").wants_keyframes().then(|| bytes[..end].to_vec())
    });
    let plain = plain.expect("a trailer");
    assert!(plain.len() < bytes.len(), "run has added nothing");
    (recorded, plain)
}

/// What a view writes.
#[track_caller]
fn view(args: &[&str], trace: &Path) -> String {
    let ended = Highwater::command(args).arg(trace).run().expect_code(0);
    format!("{}\n---\n{}", ended.stdout(), ended.stderr())
}

/// Makes the first block of events unreadable.
fn damage(trace: &Path) {
    let mut bytes = fs::read(trace).expect("the trace");
    let at = bytes.windows(5).position(|window| window == b"\xb7HWB\x05").expect("a block of events");
    bytes[at + 100] ^= 0xff;
    fs::write(trace, bytes).expect("write");
}

/// Where the outcome's block is, which the index's header says.
fn place(bytes: &[u8]) -> usize {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize;
    word(word(bytes.len() - 16) + 40)
}

#[test]
fn every_view_says_the_same_before_and_after_the_first_look() {
    let (recorded, plain) = recorded();
    let trace = &recorded.trace;
    let other = recorded.folder().join("other.hwt");
    fs::write(&other, &plain).expect("write");
    let other = other.to_str().expect("a name");
    let views: &[&[&str]] = &[
        &["stats"],
        &["stats", "--json"],
        &["stats", "--by", "thread"],
        &["stats", "-F", "size=100.."],
        &["stats", "--to", "#500000", "--json"],
        &["peak"],
        &["peak", "--json", "--by", "stack"],
        &["peak", "--by", "thread"],
        &["peak", "-F", "thread=2", "--json"],
        &["dump", "--at", "peak", "--limit", "5"],
        &["threads"],
        &["threads", "--json"],
        &["errors"],
        &["errors", "--json"],
        &["tree"],
        &["tree", "--json", "--metric", "allocations"],
        &["tree", "--bottom-up", "--by", "thread"],
        &["leaks", "--method", "exit"],
        &["leaks", "--method", "exit", "--json"],
        &["leaks", "--by", "module"],
        &["leaks"],
        &["leaks", "--json"],
        &["leaks", "--all", "--verbose"],
        &["leaks", "--method", "growth", "--trend", "edleak"],
        &["leaks", "--method", "stale", "--json"],
        &["leaks", "--no-wrappers", "--json", "--limit", "3"],
        &["leaks", "--period", "10ms"],
        &["leaks", "--json", "--by", "thread"],
        &["leaks", "-F", "size=100..", "--json"],
        &["leaks", "--format", "sarif"],
        &["leaks", "--by", "thread"],
        &["leaks", "--format", "gcc"],
        &["check", "--max-leak", "1GiB", "--max-peak", "1GiB", "--json"],
        &["diff", other],
        &["diff", "--json", "--metric", "peak", other],
    ];
    let mut before = Vec::new();
    for args in views {
        fs::write(trace, &plain).expect("write");
        before.push(view(args, trace));
    }
    fs::write(trace, &plain).expect("write");
    let modified = || fs::metadata(trace).and_then(|data| data.modified()).expect("a time");
    let time = modified();
    view(&["stats"], trace);
    view(&["leaks"], trace);
    let framed = fs::read(trace).expect("the trace");
    assert!(framed.len() > plain.len() && framed.starts_with(&plain) && modified() == time);
    for (args, before) in views.iter().zip(before) {
        assert_eq!(view(args, trace), before, "{args:?}");
    }
    assert!(fs::read(trace).expect("the trace") == framed, "a view has changed the trace again");
}

#[test]
fn a_second_look_reads_no_event() {
    let (recorded, plain) = recorded();
    let trace = &recorded.trace;
    fs::write(trace, &plain).expect("write");
    let views: &[&[&str]] = &[
        &["stats", "--json"],
        &["peak", "--json"],
        &["threads"],
        &["errors"],
        &["tree"],
        &["leaks", "--method", "exit"],
        &["leaks"],
        &["leaks", "--all", "--json"],
        &["leaks", "--method", "growth", "--trend", "edkit-logistic"],
        &["leaks", "--format", "gcc"],
        &["check", "--max-allocs", "100000000"],
    ];
    let sound: Vec<String> = views.iter().map(|args| view(args, trace)).collect();
    damage(trace);
    for (args, sound) in views.iter().zip(&sound) {
        assert_eq!(view(args, trace), *sound, "{args:?}");
    }
    // Who needs the events names the damage.
    let told = view(&["stats", "--by", "thread"], trace);
    assert!(told.contains("damaged block at offset") && told.contains("(events)"), "{told}");
    // And so does every view where the outcome cannot be read.
    let mut bytes = fs::read(trace).expect("the trace");
    let at = place(&bytes);
    bytes[at + 80] ^= 1;
    fs::write(trace, bytes).expect("write");
    let told = view(&["stats"], trace);
    assert!(told.contains("damaged block at offset") && told.contains("(events)"), "{told}");
}

#[test]
fn whatever_is_looked_at_first_leaves_the_outcome() {
    let (recorded, plain) = recorded();
    let trace = &recorded.trace;
    let mut added = Vec::new();
    // It gives back more in the end than a replay remembers: only `leaks` itself looks
    // twice to see what that was.
    for first in [&["peak"][..], &["leaks", "--by", "thread"], &["check", "--max-leak", "1GiB"], &["leaks"]] {
        fs::write(trace, &plain).expect("write");
        let before = view(first, trace);
        let bytes = fs::read(trace).expect("the trace");
        assert!(bytes.len() > plain.len(), "{first:?} has added nothing");
        assert_eq!(view(first, trace), before, "{first:?}");
        added.push(bytes);
    }
    let ranked = added.pop().expect("four");
    assert!(added.windows(2).all(|pair| pair[0] == pair[1]), "they have not all added the same");
    assert!(ranked.len() > added[0].len(), "leaks has added no evidence");
}

#[test]
fn whatever_is_looked_at_first_leaves_what_leaks_are_ranked_by() {
    let (recorded, plain) = steady();
    let trace = &recorded.trace;
    let ranks: &[&[&str]] = &[&["leaks"], &["leaks", "--json"], &["leaks", "--all", "--method", "stale"]];
    fs::write(trace, &plain).expect("write");
    let lock = File::open(trace).expect("open");
    lock.lock().expect("lock");
    let ranked: Vec<String> = ranks.iter().map(|args| view(args, trace)).collect();
    assert!(fs::read(trace).expect("the trace") == plain && ranked[0].contains("steady.c:27"), "{ranked:?}");
    drop(lock);
    let mut added = Vec::new();
    for first in [&["stats"][..], &["leaks"], &["tree"], &["leaks", "--json", "--blocks"], &["threads"]] {
        fs::write(trace, &plain).expect("write");
        view(first, trace);
        added.push(fs::read(trace).expect("the trace"));
        damage(trace);
        for (args, ranked) in ranks.iter().zip(&ranked) {
            assert_eq!(view(args, trace), *ranked, "{args:?} after {first:?}");
        }
    }
    assert!(added.windows(2).all(|pair| pair[0] == pair[1]), "they have not all added the same");
}

#[test]
fn a_trace_that_cannot_be_written_says_the_same_each_time() {
    let (recorded, plain) = recorded();
    let trace = &recorded.trace;
    fs::write(trace, &plain).expect("write");
    // Somebody else is at it: the same as one that must not be written, for root as well.
    let lock = File::open(trace).expect("open");
    lock.lock().expect("lock");
    let first = view(&["stats"], trace);
    assert_eq!(view(&["stats"], trace), first);
    assert!(fs::read(trace).expect("the trace") == plain);
    drop(lock);
    assert_eq!(view(&["stats"], trace), first);
    assert!(fs::read(trace).expect("the trace").len() > plain.len());
    assert_eq!(view(&["stats"], trace), first);
}
