//! Programs that know what they did: every count is equal to theirs.

use highwater_tests::scale::{note, times};
use highwater_tests::{Highwater, Known, Program, Recorded, number, record};

/// Records `PROGRAM FILE ARGS`; what it says of itself, and the recording.
#[track_caller]
fn counted(program: &Program, args: &[&str]) -> (Known, Recorded) {
    let folder = highwater_tests::folder();
    let counts = folder.path().join("counts.json");
    let file = counts.to_str().expect("a path of ASCII");
    let recorded = record(program.build(), std::iter::once(file).chain(args.iter().copied())).expect_code(0);
    (Known::from_file(&counts), recorded)
}

#[track_caller]
fn seen(recorded: &Recorded) -> Known {
    Known::from_json(&recorded.stats())
}

#[test]
fn an_empty_program_has_no_event_and_no_made_up_one() {
    let recorded = record(Program::new("empty.c").build(), [""; 0]).expect_code(0);
    let stats = recorded.stats();
    assert_eq!(Known::from_json(&stats), Known::default(), "{stats:#}");
    assert_eq!(number(&stats, "events"), 0);
    assert_eq!(stats["complete"], true, "{stats:#}");
}

#[test]
fn every_c_entry_point_is_counted_once_with_its_requested_size() {
    let (known, recorded) = counted(&Program::new("entry_points.c"), &[]);
    let stats = recorded.stats();
    assert_eq!(Known::from_json(&stats), known, "{stats:#}");
    assert_eq!(number(&stats, "events"), known.allocations + known.frees);
    assert_eq!(number(&stats, "foreign_frees"), 0);
    assert_eq!(number(&stats["errors"], "double_free"), 0);
    assert_eq!(number(&stats["errors"], "invalid_free"), 0);
    // strdup and strndup are malloc's; the failed calls and free(NULL) are nobody's.
    let expected = [
        ("malloc", 1000 + 5),
        ("calloc", 2),
        ("memalign", 1),
        ("aligned_alloc", 1),
        ("posix_memalign", 1),
        ("valloc", 1),
        ("pvalloc", 1),
    ];
    for (api, count) in expected {
        assert_eq!(number(&stats["by_api"], api), count, "{api} in {:#}", stats["by_api"]);
    }
}

#[test]
fn realloc_to_zero_is_a_free_and_not_a_leak() {
    let (_, recorded) = counted(&Program::new("entry_points.c"), &[]);
    let survivors = recorded.survivors();
    let mut sizes: Vec<i64> = survivors.iter().map(|block| number(block, "size")).collect();
    sizes.sort_unstable();
    // 7777 was given to realloc(p, 0); memalign's and pvalloc's blocks are no unknown pointers.
    assert_eq!(sizes, [0, 13, 500, 1000, 1280, 10000]);
}

#[test]
fn the_halves_of_a_realloc_find_each_other() {
    let (_, recorded) = counted(&Program::new("entry_points.c"), &[]);
    let events = recorded.history();
    let mut halves: std::collections::BTreeMap<i64, Vec<&str>> = Default::default();
    for event in &events {
        if let Some(pair) = event.get("pair").and_then(serde_json::Value::as_i64) {
            halves.entry(pair).or_default().push(event["op"].as_str().unwrap_or("?"));
        }
    }
    assert_eq!(halves.len(), 4, "four blocks were resized");
    assert!(halves.values().all(|ops| ops == &["free", "alloc"]), "{halves:?}");
}

#[test]
fn seqnos_and_times_never_run_backwards() {
    let (known, recorded) = counted(&Program::new("entry_points.c"), &[]);
    let events = recorded.history();
    assert_eq!(events.len() as i64, known.allocations + known.frees);
    let mut last = (-1, 0.0);
    for event in &events {
        let this = (number(event, "seqno"), event["time"].as_f64().expect("a time"));
        assert!(this.0 > last.0 && this.1 >= last.1, "event {this:?} after {last:?}");
        last = this;
    }
    // A realloc that failed has used up the number of its free half: no other gaps.
    let failed = number(&recorded.stats(), "failed_reallocations");
    assert_eq!((failed, last.0 + 1 - events.len() as i64), (1, 1));
}

#[test]
fn c23_sized_frees_are_frees() {
    let (known, recorded) = counted(&Program::new("sized_free.c"), &[]);
    let stats = recorded.stats();
    assert_eq!(Known::from_json(&stats), known, "{stats:#}");
}

#[test]
fn every_form_of_new_and_delete_is_counted_once() {
    let program = Program::new("operators.cpp");
    let (_, idle) = counted(&program, &["nothing"]);
    let (known, recorded) = counted(&program, &["work"]);
    let (idle, stats) = (seen(&idle), recorded.stats());
    // Exception objects are blocks of the runtime's own, made and given back: one
    // for the constructor that throws, one in each nothrow form (it catches its
    // own), and two for each of the three that throw, because highwater asks the
    // nothrow form first, so that no exception flies through its frames.
    let own = Known::from_json(&stats).minus(idle);
    let exceptions = 1 + 2 + 3 * 2;
    assert_eq!(own.allocations, known.allocations + exceptions, "{stats:#}");
    assert_eq!(own.frees, known.frees + exceptions, "{stats:#}");
    assert_eq!(own.live_blocks, known.live_blocks);
    assert_eq!(own.live_bytes, known.live_bytes);
    let expected = [
        ("new", 100 * 3 + 1),
        ("new(nothrow)", 100),
        ("new(align)", 100 * 2 + 1),
        ("new(align,nothrow)", 100),
        ("new[]", 100 * 2 + 1 + 10),
        ("new[](nothrow)", 100),
        ("new[](align)", 100 * 2),
        ("new[](align,nothrow)", 100),
        ("delete(nothrow)", 100),
        ("delete(align,nothrow)", 100),
        ("delete[](nothrow)", 100),
        ("delete[](align,nothrow)", 100),
        ("delete[](size)", 100),
        ("delete(size,align)", 100 + 1),
        ("delete[](size,align)", 100),
    ];
    for (api, count) in expected {
        assert_eq!(number(&stats["by_api"], api), count, "{api} in {:#}", stats["by_api"]);
    }
    assert_eq!(number(&stats["errors"], "mismatched"), 0, "{stats:#}");
}

#[test]
fn four_threads_and_frees_by_their_neighbours_add_up_exactly() {
    let program = Program::new("threads.c");
    let (_, idle) = counted(&program, &["0"]);
    let (known, recorded) = counted(&program, &["20000"]);
    let stats = recorded.stats();
    // What is left is the C library's: a thread's own table, made with the thread.
    let own = Known::from_json(&stats).minus(seen(&idle));
    let uncertain = number(&stats, "peak_uncertainty");
    assert_eq!(Known { peak_bytes: 0, ..own }, Known { peak_bytes: 0, ..known }, "{stats:#}");
    assert!(
        (own.peak_bytes - known.peak_bytes).abs() <= uncertain,
        "peak {} instead of {}, said to be uncertain by {uncertain}",
        own.peak_bytes,
        known.peak_bytes
    );
    assert_eq!(number(&stats["errors"], "double_free"), 0, "{stats:#}");
    assert_eq!(number(&stats, "foreign_frees"), 0, "{stats:#}");
    assert_eq!(number(&stats, "threads"), 5, "{stats:#}");
}

#[test]
fn ten_thousand_short_threads_lose_nothing() {
    let program = Program::new("churn.c");
    let (_, idle) = counted(&program, &["1"]);
    let threads = times(10_000, 100_000);
    let (known, recorded) = counted(&program, &[&threads.to_string()]);
    let stats = recorded.stats();
    let own = Known::from_json(&stats).minus(seen(&idle));
    assert_eq!(Known { peak_bytes: 0, ..own }, Known { peak_bytes: 0, ..known }, "{stats:#}");
    assert_eq!(number(&stats, "dropped"), 0, "{stats:#}");
    assert_eq!(stats["complete"], true);
    // The rings of ended threads are used again: memory does not follow their number.
    let own = Highwater::json(&["stats", "--self"], &recorded.trace);
    let shared = number(&own["counters"], "shared_bytes");
    assert!(shared < 32 << 20, "{shared} bytes of shared memory");
    note("short threads, one after the other", &format!("{threads}, {} KiB of shared memory", shared / 1024));
}

#[test]
fn a_rust_program_with_caught_panics_adds_up_exactly() {
    let program = Program::new("rust_heap.rs");
    let (known_idle, idle) = counted(&program, &["nothing"]);
    let (known, recorded) = counted(&program, &["work"]);
    let stats = recorded.stats();
    // The C library and the unwinder use malloc without asking Rust's global
    // allocator; both runs have the start-up part of that, only the second has
    // one exception object a panic, which Rust's own allocator makes too.
    let own = Known::from_json(&stats).minus(seen(&idle));
    let expected = known.minus(known_idle);
    assert_eq!(own.live_blocks, expected.live_blocks, "{stats:#}");
    assert_eq!(own.live_bytes, expected.live_bytes, "{stats:#}");
    assert_eq!(own.allocations, expected.allocations, "{stats:#}");
    assert_eq!(own.frees, expected.frees, "{stats:#}");
    assert_eq!(own.bytes_allocated, expected.bytes_allocated, "{stats:#}");
}

#[test]
fn allocators_under_a_prefix_are_recorded_where_a_library_exports_them() {
    let library = Program::new("prefixed_library.c").flags(&["-shared", "-fPIC"]).build();
    let folder = highwater_tests::folder();
    std::fs::copy(&library, folder.path().join("libprefixed.so")).expect("a copy");
    let here = folder.path().display().to_string();
    // A program of its own folder: it finds the library through its run path.
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/prefixed.c");
    let program = folder.path().join("prefixed");
    highwater_tests::Child::new("cc")
        .args(["-g", "-O1", "-fno-builtin", "-L", &here, &format!("-Wl,-rpath,{here}")])
        .arg(&source)
        .args(["-lprefixed", "-o"])
        .arg(&program)
        .run()
        .expect_code(0);
    let counts = folder.path().join("counts");
    let recorded = record(&program, [&counts]).expect_code(0);
    let (known, stats) = (Known::from_file(&counts), recorded.stats());
    // malloc, calloc, and the alloc half of realloc are one kind in these
    // families, so the halves of a realloc are not told apart from others.
    assert_eq!(Known::from_json(&stats), Known { reallocations: 0, ..known }, "{stats:#}");
    for (api, count) in
        [("je_malloc", 10 * 3), ("_rjem_malloc", 20 * 3), ("mi_malloc", 30 * 3), ("tc_malloc", 40 * 3)]
    {
        assert_eq!(number(&stats["by_api"], api), count, "{api} in {:#}", stats["by_api"]);
    }
    assert_eq!(number(&stats["errors"], "mismatched"), 0, "{stats:#}");
}

#[test]
fn a_block_that_another_thread_has_just_made_is_not_freed_before_it_was_made() {
    // The clock was once read before the processor knew which block had been
    // handed over: the free seemed to come first, and the next one twice.
    let program = Program::new("exchange.c").flags(&["-O2", "-pthread"]).build();
    for _ in 0..3 {
        let recorded = record(&program, ["200000"]).expect_code(0);
        let stats = recorded.stats();
        assert_eq!(number(&stats["errors"], "double_free"), 0, "{stats:#}");
        assert_eq!(number(&stats, "foreign_frees"), 0, "{stats:#}");
        assert_eq!(number(&stats, "missing_frees"), 0, "{stats:#}");
        // The tables that the C library makes for the four threads.
        assert_eq!(number(&stats, "live_blocks"), 4, "{stats:#}");
    }
}
