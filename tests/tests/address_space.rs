//! Address space and resident memory have records of their own.

use highwater_tests::{Program, record};
use highwater_trace::Trace;
use highwater_trace::model::{Special, Step};

#[test]
fn mappings_and_the_break_are_recorded_with_their_stacks() {
    let recorded = record(Program::new("mapping.c").build(), [""; 0]).expect_code(0);
    let trace = Trace::open(&recorded.trace).unwrap();
    let mut steps = trace.steps();
    let mut seen = Vec::new();
    while let Some(step) = steps.next().unwrap() {
        if let Step::Special { what, .. } = step {
            seen.push(what);
        }
    }
    let stack = |node: u32| node >= 16 && trace.nodes().get(node).is_some();
    let mib = 1 << 20;
    let made = seen.iter().find_map(|what| match what {
        Special::Mmap { addr, len, node } if *len == 3 * mib && stack(*node) => Some(*addr),
        _ => None,
    });
    let made = made.unwrap_or_else(|| panic!("no mmap of 3 MiB: {seen:?}"));
    let moved = seen.iter().find_map(|what| match what {
        Special::Mremap { old, old_len, new, new_len, node }
            if *old == made && *old_len == 3 * mib && *new_len == 5 * mib && stack(*node) =>
        {
            Some(*new)
        }
        _ => None,
    });
    let moved = moved.unwrap_or_else(|| panic!("no mremap: {seen:?}"));
    let has = |wanted: &dyn Fn(&Special) -> bool| seen.iter().any(wanted);
    assert!(
        has(&|what| matches!(what, Special::Munmap { addr, len, .. } if *addr == moved && *len == 5 * mib)),
        "{seen:?}"
    );
    assert!(has(&|what| matches!(what, Special::Brk { old, new, .. } if new - old == 64 << 10)), "{seen:?}");
}

#[test]
fn resident_memory_is_sampled_without_what_we_share() {
    let recorded = record(Program::new("mapping.c").build(), [""; 0]).expect_code(0);
    let trace = Trace::open(&recorded.trace).unwrap();
    let highest = trace.rss().iter().map(|sample| sample.rss).max().unwrap_or(0);
    // Five mebibytes that were written to, and a small C program.
    assert!((5 << 20..9 << 20).contains(&highest), "{:?}", trace.rss());
    assert!(trace.rss().len() >= 3, "a sample each tenth of a second: {:?}", trace.rss());
}
