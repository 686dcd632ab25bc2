//! Recordings that leave blocks out on purpose: what is left in is right, and
//! what was left out is told.

use std::path::PathBuf;

use highwater_tests::highwater::{Recorded, record_with};
use highwater_tests::known::Known;
use highwater_tests::programs::Program;
use highwater_tests::{Highwater, number, schema};

fn program() -> PathBuf {
    Program::new("modes.c").build()
}

/// Records `modes WHAT`; the recording, and the program's counts of all and of large blocks.
#[track_caller]
fn recorded(options: &[&str], what: &str) -> (Recorded, Known, Known) {
    let folder = highwater_tests::folder();
    let (all, large) = (folder.path().join("all"), folder.path().join("large"));
    let program = program();
    let recorded =
        record_with(options, |child| child.arg("--").arg(&program).arg(what).arg(&all).arg(&large))
            .expect_code(0);
    (recorded, Known::from_file(&all), Known::from_file(&large))
}

/// No error may be told where none was made.
#[track_caller]
fn no_false_word(stats: &serde_json::Value) {
    for key in ["foreign_frees", "missing_frees", "order_repairs", "dropped"] {
        assert_eq!(number(stats, key), 0, "{key}: {stats:#}");
    }
    for key in ["double_free", "invalid_free", "mismatched"] {
        assert_eq!(stats["errors"][key], 0, "{key}: {stats:#}");
    }
    assert_eq!(stats["complete"], true, "{stats:#}");
}

/// `got` may differ from `want` by five of its standard errors.
#[track_caller]
fn about(stats: &serde_json::Value, key: &str, want: i64) {
    let (got, error) = (number(stats, key), number(&stats["modes"]["errors95"], key));
    assert!(error > 0, "{key} has no error: {stats:#}");
    assert!(
        (got - want).abs() as f64 <= error as f64 / 1.96 * 5.0 + 1.0,
        "{key}: {got} of {want}, +-{error}"
    );
}

#[test]
fn min_size_leaves_small_blocks_out_and_nothing_else() {
    let (recorded, all, large) = recorded(&["--min-size", "64"], "boundary");
    let stats = recorded.stats();
    let got = Known::from_json(&stats);
    // A realloc from small to large, or back, is one half of a pair.
    assert_eq!(got, large);
    no_false_word(&stats);
    let modes = &stats["modes"];
    assert_eq!(modes["min_size"], 64);
    assert_eq!(number(modes, "left_out_blocks"), all.allocations - large.allocations);
    assert_eq!(number(modes, "left_out_bytes"), all.bytes_allocated - large.bytes_allocated);
    let notes = Highwater::command(["stats"]).arg(&recorded.trace).run().expect_code(0).stderr();
    assert!(notes.contains("--min-size 64 B: "), "{notes}");
}

/// Every form of operator new and delete, recorded with these options.
#[track_caller]
fn operators(options: &[&str]) -> serde_json::Value {
    let program = Program::new("operators.cpp").build();
    let counts = highwater_tests::folder();
    let recorded = record_with(options, |child| child.arg("--").arg(&program).arg(counts.path().join("own")));
    recorded.expect_code(0).stats()
}

/// libstdc++'s nothrow form calls the throwing one, whose hook called the nothrow
/// form: every C++ program died of a stack without end.
#[test]
fn min_size_counts_operator_new_and_delete_once() {
    let whole = operators(&[]);
    let least = operators(&["--min-size", "1"]);
    no_false_word(&least);
    // Blocks of no bytes are the only ones below one byte.
    assert_eq!(number(&least["modes"], "left_out_blocks"), 100);
    assert_eq!(number(&least, "allocations"), number(&whole, "allocations") - 100, "{least:#}");
    assert_eq!(number(&least, "frees"), number(&whole, "frees") - 100, "{least:#}");
    for key in ["bytes_allocated", "live_blocks", "live_bytes"] {
        assert_eq!(number(&least, key), number(&whole, key), "{key}");
    }
    for api in ["new", "new[]", "new(nothrow)", "new(align)", "new[](align,nothrow)", "malloc"] {
        let zeros = if api == "new" { 100 } else { 0 };
        assert_eq!(number(&least["by_api"], api), number(&whole["by_api"], api) - zeros, "{api}");
    }
}

#[test]
fn a_sample_counts_operator_new_and_delete_once() {
    let whole = operators(&[]);
    // Marks everywhere, now and then, and next to nowhere.
    for rate in ["1", "700", "100MiB"] {
        let sample = operators(&["--sample", rate]);
        no_false_word(&sample);
        for key in ["allocations", "frees", "bytes_allocated"] {
            assert_eq!(number(&sample, key), number(&whole, key), "{key} with --sample {rate}");
        }
        if rate == "1" {
            for api in ["new", "new[]", "new(nothrow)", "new(align)", "new[](align,nothrow)", "malloc"] {
                let close = (number(&sample["by_api"], api) - number(&whole["by_api"], api)).abs();
                // A block of no bytes counts as one on the line of marks.
                assert!(close <= 100, "{api}: {sample:#} {whole:#}");
            }
        }
    }
}

#[test]
fn a_sample_counts_exactly_and_estimates_the_rest() {
    for rate in ["2k", "32KiB"] {
        let (recorded, all, _) = recorded(&["--sample", rate], "handed");
        let stats = recorded.stats();
        no_false_word(&stats);
        // The C library makes one block for the thread.
        assert_eq!(number(&stats, "allocations"), all.allocations + 1);
        let own = number(&stats, "bytes_allocated") - all.bytes_allocated;
        assert!(own > 0 && own < 4096, "{own}");
        assert_eq!(number(&stats, "frees"), all.frees);
        about(&stats, "live_bytes", all.live_bytes);
        about(&stats, "live_blocks", all.live_blocks);
        let kept = number(&stats["modes"], "sampled_blocks");
        assert!(kept > 100 && kept < all.allocations / 4, "{kept} of {}", all.allocations);
        // What leaks: the same estimate, by site, with its error.
        let leaks = Highwater::json(&["leaks"], &recorded.trace);
        assert_eq!(leaks["live_bytes"], stats["live_bytes"]);
        assert!(number(&leaks["sites"][0], "error95") > 0, "{leaks:#}");
        assert_eq!(leaks["sites"][0]["function"], "make");
        let text = Highwater::command(["peak"]).arg(&recorded.trace).run().expect_code(0);
        assert!(text.stdout().contains("+-"), "{}", text.stdout());
        assert!(text.stderr().contains("estimates"), "{}", text.stderr());
    }
}

#[test]
fn a_sample_follows_reallocs() {
    let (recorded, all, _) = recorded(&["--sample", "8"], "boundary");
    let stats = recorded.stats();
    no_false_word(&stats);
    assert_eq!(number(&stats, "allocations"), all.allocations);
    assert_eq!(number(&stats, "frees"), all.frees);
    about(&stats, "live_blocks", all.live_blocks);
}

/// The short ways of malloc, calloc, realloc and free, and the long ones, count alike.
#[test]
fn a_sample_counts_every_c_entry_point_whether_a_mark_falls_into_a_block_or_not() {
    let program = Program::new("entry_points.c").build();
    let counts = highwater_tests::folder();
    let run = |options: &[&str]| {
        let file = counts.path().join("own");
        let recorded = record_with(options, |child| child.arg("--").arg(&program).arg(&file).arg("work"));
        (recorded.expect_code(0).stats(), Known::from_file(&file))
    };
    let (whole, known) = run(&[]);
    for rate in ["1", "300", "100MiB"] {
        let (sample, own) = run(&["--sample", rate]);
        assert_eq!(own, known);
        no_false_word(&sample);
        for key in ["allocations", "frees", "bytes_allocated"] {
            assert_eq!(number(&sample, key), number(&whole, key), "{key} with --sample {rate}");
        }
    }
}

#[test]
fn a_sample_of_large_blocks_leaves_small_ones_out() {
    let (recorded, _, large) = recorded(&["--sample", "32", "--min-size", "64"], "boundary");
    let stats = recorded.stats();
    no_false_word(&stats);
    assert_eq!(number(&stats, "allocations"), large.allocations);
    assert_eq!(number(&stats, "bytes_allocated"), large.bytes_allocated);
    about(&stats, "live_blocks", large.live_blocks);
}

#[test]
fn a_sample_cannot_pass_a_gate_that_it_does_not_measure() {
    let (recorded, ..) = recorded(&["--sample", "4k"], "boundary");
    let ended = Highwater::command(["check", "--max-temporary", "1"]).arg(&recorded.trace).run();
    assert_eq!(ended.code(), 2);
    assert!(ended.stderr().contains("does not tell temporary"), "{}", ended.stderr());
    let ended = Highwater::command(["check", "--fail-on", "double_free"]).arg(&recorded.trace).run();
    assert_eq!(ended.code(), 2);
    assert!(ended.stderr().contains("does not tell all bad frees"), "{}", ended.stderr());
}

/// Sum of the `bytes` of a list.
fn bytes_of(list: &serde_json::Value) -> i64 {
    list.as_array().into_iter().flatten().map(|one| number(one, "bytes")).sum()
}

/// Is at least one number of a list an estimate with its error?
fn has_errors(list: &serde_json::Value) -> bool {
    list.as_array().into_iter().flatten().any(|one| one["error95"].as_u64().is_some_and(|error| error > 0))
}

#[test]
fn every_view_of_a_sample_has_the_estimates_of_stats() {
    let (recorded, ..) = recorded(&["--sample", "64"], "boundary");
    let (stats, trace) = (recorded.stats(), &recorded.trace);
    let (live, peak) = (number(&stats, "live_bytes"), number(&stats, "peak_bytes"));
    let errors = &stats["modes"]["errors95"];
    let json = |args: &[&str]| Highwater::json(args, trace);

    let leaks = json(&["leaks"]);
    assert_eq!(bytes_of(&leaks["suspects"]) + bytes_of(&leaks["folded"]), live, "{leaks:#}");
    for args in [
        &["leaks", "--method", "exit"][..],
        &["leaks", "--from", "start", "--to", "end"],
        &["leaks", "--from", "start", "--to", "end", "--by", "size"],
    ] {
        let leaks = json(args);
        assert_eq!(bytes_of(&leaks["suspects"]), live, "{args:?} {leaks:#}");
        assert!(has_errors(&leaks["suspects"]), "{args:?} {leaks:#}");
        assert_eq!(leaks["modes"]["sample"], 64);
    }
    for (args, want) in [
        (&["leaks", "--by", "thread"][..], live),
        (&["dump", "--by", "site"], live),
        (&["peak", "--by", "thread"], peak),
        (&["peak", "--by", "size"], peak),
    ] {
        let view = json(args);
        assert_eq!(bytes_of(&view["sites"]), want, "{args:?}");
        assert!(has_errors(&view["sites"]), "{args:?} {view:#}");
    }
    for (metric, want) in [("leaked", live), ("peak", peak)] {
        let tree = json(&["tree", "--metric", metric]);
        assert_eq!(number(&tree, "bytes"), want);
        assert_eq!(
            number(&tree, "error95"),
            number(errors, if want == live { "live_bytes" } else { "peak_bytes" })
        );
    }
    let dump = json(&["dump"]);
    let stands: i64 =
        dump["blocks"].as_array().into_iter().flatten().map(|block| number(block, "stands_for_bytes")).sum();
    assert_eq!(stands, live);
    let threads = json(&["threads"]);
    let of_threads: i64 =
        threads["threads"].as_array().into_iter().flatten().map(|thread| number(thread, "live_bytes")).sum();
    assert_eq!(of_threads, live);
    let filtered = json(&["stats", "-F", "size=1.."]);
    assert_eq!(number(&filtered, "live_bytes"), live);
    assert_eq!(filtered["modes"]["errors95"]["peak_bytes"], errors["peak_bytes"]);
    let diff = json(&["diff", "--from", "start", "--to", "end"]);
    assert_eq!(number(&diff["totals"]["after"], "bytes"), live);
    assert_eq!(bytes_of(&diff["new"]), live);
    assert_eq!(diff["totals"]["after"]["error95"], errors["live_bytes"]);

    let check = ["check", "--json", "--max-peak", "0", "--max-leak", "0", "--max-allocs", "0"];
    let ended = Highwater::command(check).arg(trace).run();
    assert_eq!(ended.code(), 1);
    let check = schema::document(&ended.out);
    for (at, key) in ["peak_bytes", "live_bytes", "allocations"].into_iter().enumerate() {
        let gate = &check["gates"][at];
        assert_eq!(gate["value"], stats[key], "{gate:#}");
        assert_eq!(gate["error95"], errors[key], "{gate:#}");
    }

    let ended = Highwater::command(["findleaks", "-b", "0", "-e", "9", "-f"]).arg(trace).run();
    assert_eq!(ended.code(), 2);
    assert!(ended.stderr().contains("no place for estimates"), "{}", ended.stderr());
    let ended = Highwater::command(["leaks", "--method", "unreachable"]).arg(trace).run();
    assert_eq!(ended.code(), 2, "{}", ended.stdout());
    assert!(ended.stderr().contains("not scanned"), "{}", ended.stderr());
}

#[test]
fn a_sample_of_nothing_is_refused() {
    for bad in [["--sample", "0"], ["--sample", "many"], ["--min-size", "-1"]] {
        let ended = Highwater::command(["run"]).args(bad).args(["--", "true"]).run();
        assert_eq!(ended.code(), 125, "{bad:?} {}", ended.stderr());
    }
}

/// `highwater count -- PROGRAM ARGS`: its document, its words, its exit code.
#[track_caller]
fn counted(program: &std::path::Path, args: &[&std::ffi::OsStr]) -> (serde_json::Value, String, i32) {
    let folder = highwater_tests::folder();
    let file = folder.path().join("count.json");
    let ended = Highwater::command(["count", "--json"]).arg(&file).arg("--").arg(program).args(args).run();
    let document = schema::document(&std::fs::read(&file).expect("the counts"));
    assert_eq!(document["schema"], "highwater.count/1");
    (document, ended.stderr(), ended.code())
}

#[test]
fn counting_alone_gives_the_programs_own_numbers() {
    for what in ["boundary", "handed"] {
        let folder = highwater_tests::folder();
        let file = folder.path().join("all");
        let (count, words, code) = counted(&program(), &[what.as_ref(), file.as_os_str()]);
        let all = Known::from_file(&file);
        // The C library makes one block for a thread.
        let own = i64::from(what == "handed");
        assert_eq!(number(&count, "allocations"), all.allocations + own, "{words}");
        assert_eq!(number(&count, "frees"), all.frees);
        assert_eq!(number(&count, "reallocations"), all.reallocations);
        assert_eq!(number(&count, "live_blocks"), all.live_blocks + own);
        // Usable sizes: a block has at most 24 bytes and a part of a page more.
        let live = number(&count, "live_usable_bytes");
        let blocks = number(&count, "live_blocks");
        assert!(live >= all.live_bytes && live <= all.live_bytes + blocks * 24 + 8192, "{count:#}");
        let (peak, off) = (number(&count, "peak_usable_bytes"), number(&count, "peak_uncertainty"));
        if what == "boundary" {
            assert_eq!(off, 0, "one thread's peak is exact");
            assert!(peak >= all.peak_bytes && peak <= all.peak_bytes * 2, "{count:#}");
        } else {
            assert!(peak + off >= live && off > 0, "{count:#}");
        }
        assert_eq!(code, 0);
        assert!(words.lines().count() == 6 && words.contains("allocations"), "{words}");
    }
}

#[test]
fn counting_counts_operator_new_once_and_leaves_no_trace() {
    let program = Program::new("operators.cpp").build();
    let whole = operators(&[]);
    let (folder, own) = (highwater_tests::folder(), highwater_tests::folder());
    let file = folder.path().join("count.json");
    let ended = Highwater::command(["count", "--json"])
        .arg(&file)
        .arg("--")
        .arg(&program)
        .arg(own.path().join("own"))
        .cwd(folder.path())
        .run()
        .expect_code(0);
    let count = schema::document(&std::fs::read(&file).expect("the counts"));
    // A recording asks the nothrow form first, which throws and catches an exception of
    // its own: one block more for each of the three calls that fail.
    for (key, more) in [("allocations", 3), ("frees", 3), ("bytes_allocated", 3 * 136)] {
        assert_eq!(number(&count, key), number(&whole, key) - more, "{key}: {count:#} {whole:#}");
    }
    // Usable bytes: at least what was asked for, at most 24 and a page's rest more.
    let live = number(&count, "live_usable_bytes") - number(&whole, "live_bytes");
    assert!(live >= 0 && live <= number(&whole, "live_blocks") * 24 + 8192, "{count:#} {whole:#}");
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1, "{}", ended.stderr());
}

#[test]
fn the_c_librarys_usable_size_is_not_asked_of_blocks_of_another_malloc() {
    let library = Program::new("foreign_usable.c").flags(&["-shared", "-fPIC"]).build();
    let folder = highwater_tests::folder();
    std::fs::copy(&library, folder.path().join("libforeign.so")).expect("a copy");
    let here = folder.path().display().to_string();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/modes.c");
    let program = folder.path().join("modes");
    highwater_tests::Child::new("cc")
        .args(["-g", "-O1", "-fno-builtin", "-pthread", "-Wl,--no-as-needed", "-L", &here])
        .arg(format!("-Wl,-rpath,{here}"))
        .arg(&source)
        .args(["-lforeign", "-o"])
        .arg(&program)
        .run()
        .expect_code(0);
    let (all, large) = (folder.path().join("all"), folder.path().join("large"));
    // The program dies where the question is asked.
    for options in [&["--min-size", "64"][..], &["--actual-size"], &["--sample", "64"]] {
        let recorded =
            record_with(options, |child| child.arg("--").arg(&program).arg("boundary").arg(&all).arg(&large))
                .expect_code(0);
        let (stats, known) = (recorded.stats(), Known::from_file(&all));
        no_false_word(&stats);
        match options[0] {
            "--min-size" => assert_eq!(Known::from_json(&stats), Known::from_file(&large)),
            "--actual-size" => assert_eq!(Known::from_json(&stats), known),
            _ => assert_eq!(number(&stats, "frees"), known.frees),
        }
    }
    let (count, words, code) = counted(&program, &["boundary".as_ref(), all.as_os_str()]);
    let known = Known::from_file(&all);
    assert_eq!(code, 0, "{words}");
    assert_eq!((number(&count, "allocations"), number(&count, "frees")), (known.allocations, known.frees));
    assert_eq!(number(&count, "live_usable_bytes"), 0, "nobody knows usable sizes");
}

#[test]
fn counting_ends_as_the_program_does() {
    let sh = std::path::Path::new("/bin/sh");
    assert_eq!(counted(sh, &["-c".as_ref(), "exit 7".as_ref()]).2, 7);
    assert_eq!(Highwater::command(["count", "--", "/no/such/program"]).run().code(), 127);
    assert_eq!(Highwater::command(["count", "--no-such-option"]).run().code(), 125);
}

/// Sites of `peak --json` or `leaks --json`: function and number of allocations.
fn allocations_by_function(trace: &std::path::Path) -> Vec<(String, i64)> {
    let peak = Highwater::json(&["peak", "--by", "stack"], trace);
    let mut list: Vec<(String, i64)> = peak["sites"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|site| (site["stack"][1]["function"].to_string(), number(site, "allocations")))
        .collect();
    list.sort();
    list
}

/// The totals that no way of recording less may change.
#[track_caller]
fn same_totals(stats: &serde_json::Value, whole: &serde_json::Value) {
    for key in [
        "allocations",
        "frees",
        "bytes_allocated",
        "bytes_freed",
        "reallocations",
        "temporary",
        "live_blocks",
        "live_bytes",
    ] {
        assert_eq!(number(stats, key), number(whole, key), "{key}: {stats:#}");
    }
    assert_eq!(stats["by_api"], whole["by_api"]);
    no_false_word(stats);
}

#[test]
fn culled_blocks_leave_every_total_and_no_event() {
    let (whole, all, _) = recorded(&[], "young");
    let (culled, ..) = recorded(&["--cull", "100ms"], "young");
    let (want, got) = (whole.stats(), culled.stats());
    assert_eq!(Known::from_json(&want), all);
    same_totals(&got, &want);
    let (peak, off) = (number(&got, "peak_bytes"), number(&got, "peak_uncertainty"));
    assert!(peak <= all.peak_bytes && all.peak_bytes <= peak + off, "{peak} {off} {all:?}");
    let events = culled.history();
    // 20 old blocks, 10 of them freed, the last block, and its free.
    assert!(events.len() >= 32 && events.len() < 60, "{}", events.len());
    // Sites that hold memory at the peak have the allocations that were left out, too.
    let sites = allocations_by_function(&culled.trace);
    assert_eq!(sites.len(), 2, "{sites:?}");
    assert!(sites.iter().all(|site| allocations_by_function(&whole.trace).contains(site)), "{sites:?}");
    let notes = Highwater::command(["history"]).arg(&culled.trace).run().expect_code(0).stderr();
    let stats = Highwater::command(["stats"]).arg(&culled.trace).run().expect_code(0).stderr();
    assert!(stats.contains("--cull 100.0 ms"), "{stats}{notes}");
    assert_eq!(got["modes"]["cull"], 0.1);
}

#[test]
fn culling_with_two_threads_loses_nothing() {
    let (culled, all, _) = recorded(&["--cull", "1s"], "handed");
    let stats = culled.stats();
    no_false_word(&stats);
    assert_eq!(number(&stats, "allocations"), all.allocations + 1);
    assert_eq!(number(&stats, "frees"), all.frees);
    assert_eq!(number(&stats, "bytes_freed"), all.bytes_freed);
    assert_eq!(number(&stats, "live_blocks"), all.live_blocks + 1);
}

#[test]
fn live_only_leaves_totals_the_live_blocks_and_a_tiny_file() {
    let (whole, all, _) = recorded(&[], "young");
    let (live, ..) = recorded(&["--live-only"], "young");
    let (want, got) = (whole.stats(), live.stats());
    same_totals(&got, &want);
    assert_eq!(number(&got, "peak_bytes"), all.peak_bytes);
    assert_eq!(number(&got, "peak_blocks"), number(&want, "peak_blocks"));
    assert_eq!(live.history().len() as i64, all.live_blocks);
    let sizes = |list: Vec<serde_json::Value>| {
        let mut list: Vec<i64> = list.iter().map(|block| number(block, "size")).collect();
        list.sort_unstable();
        list
    };
    assert_eq!(sizes(live.survivors()), sizes(whole.survivors()));
    assert_eq!(allocations_by_function(&live.trace), allocations_by_function(&whole.trace));
    let size = |path: &std::path::Path| std::fs::metadata(path).unwrap().len();
    assert!(size(&live.trace) < 16 << 10, "{}", size(&live.trace));
    let ended = Highwater::command(["dump", "--at", "peak"]).arg(&live.trace).run();
    assert_eq!(ended.code(), 2);
    assert!(ended.stderr().contains("--live-only"), "{}", ended.stderr());
}

#[test]
fn what_needs_the_past_is_refused_where_it_was_left_out() {
    let (whole, all, _) = recorded(&[], "young");
    for option in [&["--live-only"][..], &["--cull", "100ms"]] {
        let (less, ..) = recorded(option, "young");
        let refused = |args: &[&str]| {
            let ended = Highwater::command(args).arg(&less.trace).run();
            assert_eq!(ended.code(), 2, "{option:?} {args:?} {}", ended.stdout());
            assert!(ended.stderr().contains(option[0]), "{args:?} {}", ended.stderr());
        };
        refused(&["peak", "--by", "thread"]);
        refused(&["peak", "--by", "size"]);
        refused(&["stats", "--by", "api"]);
        refused(&["stats", "-F", "size=1.."]);
        refused(&["stats", "--to", "#3"]);
        refused(&["threads", "--from", "#1"]);
        refused(&["tree", "--metric", "allocated", "--by", "thread"]);
        if option[0] == "--live-only" {
            refused(&["dump", "--at", "#3"]);
            refused(&["diff", "--from", "#1", "--to", "end"]);
            refused(&["leaks", "--from", "start", "--to", "#3", "--until", "#4"]);
            refused(&["check", "--fail-on", "leak=growth"]);
        }
        // What is alive at the end is known block by block.
        for args in [
            &["leaks", "--by", "thread"][..],
            &["leaks", "--by", "size", "-F", "size=60.."],
            &["tree", "--metric", "leaked", "--by", "thread"],
            &["leaks", "--from", "start", "--to", "end", "--until", "end"],
        ] {
            let (got, want) = (Highwater::json(args, &less.trace), Highwater::json(args, &whole.trace));
            let key = if args[0] == "tree" { "bytes" } else { "live_bytes" };
            assert_eq!(got[key], want[key], "{option:?} {args:?}");
        }
        let threads = Highwater::json(&["threads"], &less.trace);
        assert_eq!(number(&threads["threads"][0], "allocations"), all.allocations);
        let leaks = Highwater::json(&["leaks"], &less.trace);
        let suspects = leaks["suspects"].as_array().into_iter().chain(leaks["folded"].as_array());
        for one in suspects.flatten() {
            let growth = one["growth"]["grows"].as_bool().unwrap_or(false);
            assert!(!growth || option[0] == "--cull", "{one:#}");
        }
    }
}

#[test]
fn live_only_with_two_threads_loses_nothing() {
    let (live, all, _) = recorded(&["--live-only"], "handed");
    let stats = live.stats();
    no_false_word(&stats);
    assert_eq!(number(&stats, "allocations"), all.allocations + 1);
    assert_eq!(number(&stats, "bytes_freed"), all.bytes_freed);
    assert_eq!(number(&stats, "live_blocks"), all.live_blocks + 1);
    // K2.3 in a real run: blocks, sites and what a run costs at least.
    let own = Highwater::json(&["stats", "--self"], &live.trace);
    let bytes = number(&own["counters"], "thinning_bytes");
    assert!(bytes > 0 && bytes < number(&stats, "peak_blocks") * 24 + 64 * 1024, "{own:#}");
}

#[test]
fn what_cannot_go_together_is_refused() {
    for options in [
        &["--sample", "4k", "--cull", "1s"][..],
        &["--sample", "4k", "--live-only"],
        &["--cull", "1s", "--live-only"],
        &["--live-only", "--actual-size"],
        &["--leak-check", "--sample", "4k"],
        &["--leak-check", "--min-size", "64"],
        &["--cull", "soon"],
        &["--cull", "0"],
    ] {
        let ended = Highwater::command(["run"]).args(options).args(["--", "true"]).run();
        assert_eq!(ended.code(), 125, "{options:?} {}", ended.stderr());
    }
}
