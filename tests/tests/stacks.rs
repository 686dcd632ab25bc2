//! Stacks are those of a second unwinder, frame by frame.

use std::path::Path;

use highwater_tests::oracle::{Agreement, compare};
use highwater_tests::scale::{note, times};
use highwater_tests::{Child, Program, number, record, tools};

const VARIANTS: [&[&str]; 3] = [
    &["-O0", "-Wno-infinite-recursion"],
    &["-O2", "-Wno-infinite-recursion"],
    &["-Os", "-fno-omit-frame-pointer", "-Wno-infinite-recursion"],
];

fn untouched(child: Child) -> Child {
    child
}

/// `shapes WHAT`, compiled in several ways; all stacks complete and equal.
#[track_caller]
fn shapes(what: &str, at_least: usize) -> Agreement {
    let agreement = shapes_up_to_their_end(what, at_least);
    assert_eq!(agreement.cut, 0, "{agreement:?}");
    agreement
}

/// The same, where the outermost frame itself has no unwind information.
#[track_caller]
fn shapes_up_to_their_end(what: &str, at_least: usize) -> Agreement {
    let mut sum = Agreement::default();
    for flags in VARIANTS {
        let program = Program::new("shapes.cpp").flags(flags).build();
        let seen = compare(&program, [what], 100_000, untouched);
        assert!(seen.compared >= at_least && seen.short == 0, "{flags:?}: only {seen:?}");
        sum.cut += seen.cut;
        sum.deepest = sum.deepest.max(seen.deepest);
    }
    sum
}

#[test]
fn plain_calls() {
    shapes("plain", 300);
}

#[test]
fn ten_thousand_frames_are_ten_thousand_frames() {
    assert!(shapes("deep", 3).deepest >= 10_000);
}

#[test]
fn alloca_variable_arrays_and_realigned_frames() {
    shapes("alloca", 300);
}

#[test]
fn exceptions_and_destructors_that_allocate_while_they_fly() {
    shapes("exceptions", 500);
}

#[test]
fn callbacks_of_qsort_and_sort() {
    shapes("qsort", 1000);
}

#[test]
fn signal_handlers_on_either_stack() {
    shapes("signals", 200);
}

#[test]
fn longjmp_leaves_no_stale_frame() {
    shapes("longjmp", 300);
}

#[test]
fn coroutines_on_stacks_of_their_own() {
    // The C library starts them in a function without unwind information: both
    // unwinders see it as the last frame.
    shapes_up_to_their_end("coroutines", 50);
}

#[test]
fn threads_have_their_own_outermost_frames() {
    shapes("threads", 800);
}

#[test]
fn the_standard_library() {
    shapes("library", 200);
}

/// A real program: equal stacks, and the share of complete ones goes into the notes.
#[track_caller]
fn real(
    name: &str,
    program: &Path,
    args: &[&str],
    most: usize,
    prepare: impl FnOnce(Child) -> Child,
) -> Agreement {
    let seen = compare(program, args, most, prepare);
    note(
        &format!("stacks of {name} equal libgcc's"),
        &format!(
            "{} stacks, {} frames, deepest {}, {} cut (and said so), {} of them shorter than libgcc's",
            seen.compared, seen.frames, seen.deepest, seen.cut, seen.short
        ),
    );
    seen
}

#[test]
fn rust() {
    let program = Program::new("rust_heap.rs").build();
    let folder = highwater_tests::folder();
    let counts = folder.path().join("counts").display().to_string();
    let seen = real("Rust", &program, &[&counts, "work"], times(8000, 100_000), untouched);
    assert!(seen.compared > 5000 && seen.cut == 0, "{seen:?}");
}

#[test]
fn python() {
    let code = "import json, re\nx = [json.dumps({'a': [i, {'b': re.escape(str(i))}]}) for i in range(300)]";
    let seen = real(
        "python3",
        Path::new("/usr/bin/python3"),
        &["-S", "-c", code],
        times(10_000, 200_000),
        |child| child.env("PYTHONMALLOC", "malloc"),
    );
    assert!(seen.compared > 5000 && seen.cut == 0, "{seen:?}");
}

#[test]
fn perl_and_its_regular_expressions() {
    let code =
        "my %h; for my $i (1..500) { my $s = 'x' x $i; $s =~ s/(x+)/<$1>/; $h{$i} = [$s, {k => $i}]; }";
    let seen = real("perl", &tools::need("perl"), &["-e", code], times(8000, 200_000), untouched);
    assert!(seen.compared > 1000 && seen.cut == 0, "{seen:?}");
}

#[test]
fn sqlite() {
    let sql = "create table t(a,b); with recursive n(x) as (select 1 union all select x+1 from n where x<500) \
               insert into t select x, printf('%d',x) from n; select count(*), max(b) from t order by 1;";
    let seen = real("sqlite3", &tools::need("sqlite3"), &[":memory:", sql], times(8000, 200_000), untouched);
    assert!(seen.compared > 1000 && seen.cut == 0, "{seen:?}");
}

#[test]
fn node_and_its_compiled_javascript() {
    let code = "const a=[]; for (let i=0;i<300;i++) a.push(Buffer.alloc(9000+i), new URL('http://x/'+i)); console.log(a.length)";
    // Frames of compiled JavaScript have no unwind information for either
    // unwinder; such a stack is cut, says so, and agrees up to there.
    let seen = real("node", &tools::need("node"), &["-e", code], times(8000, 100_000), untouched);
    assert!(seen.compared > 3000, "{seen:?}");
}

#[test]
fn a_plugin_at_the_address_of_an_unloaded_one_keeps_its_own_name() {
    let flags = |name: &'static str, size: &'static str| vec!["-shared", "-fPIC", name, size];
    let alpha = Program::new("plugin.c").flags(&flags("-DNAME=alpha", "-DSIZE=1111")).build();
    let beta = Program::new("plugin.c").flags(&flags("-DNAME=beta", "-DSIZE=2222")).build();
    let recorded = record(Program::new("plugins.c").build(), [&alpha, &beta]).expect_code(0);
    let places: std::collections::HashSet<String> =
        recorded.ended.stdout().lines().map(String::from).collect();
    let blocks = recorded.survivors();
    let mut found = [0, 0];
    for block in &blocks {
        let text = block["stack"].to_string();
        match number(block, "size") {
            1111 => {
                assert!(text.contains("work_of_alpha") && !text.contains("work_of_beta"), "{block:#}");
                found[0] += 1;
            }
            2222 => {
                assert!(text.contains("work_of_beta") && !text.contains("work_of_alpha"), "{block:#}");
                found[1] += 1;
            }
            _ => {}
        }
    }
    assert_eq!(found, [3, 3], "{} places", places.len());
    assert!(places.len() < 6, "the loader never gave an address twice: this tests nothing");
}

#[test]
fn the_share_of_complete_stacks_is_printed() {
    let recorded = record("/usr/bin/python3", ["-S", "-c", "pass"]).expect_code(0);
    let stats = recorded.stats();
    let complete = number(&stats["stacks"], "complete");
    assert!(complete > 500, "{stats:#}");
    assert_eq!(number(&stats["stacks"], "truncated"), 0, "{stats:#}");
}

#[test]
fn a_depth_limit_is_a_reason_and_not_a_lie() {
    let program = Program::new("shapes.cpp").flags(VARIANTS[1]).build();
    let recorded = highwater_tests::highwater::record_with(&["--depth", "8"], |child| {
        child.arg("--").arg(&program).arg("plain")
    });
    let stats = recorded.expect_code(0).stats();
    assert!(number(&stats["stacks"], "truncated") > 200, "{stats:#}");
}
