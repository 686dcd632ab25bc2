//! What goes in comes out, in the merged order.

mod common;
use common::*;

use highwater_trace::model::*;
use highwater_trace::{Compression, Trace, Writer, WriterOptions};
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn everything_round_trips_in_the_merged_order() {
    let dir = tempfile::tempdir().expect("tempdir");
    for (i, compression) in
        [Compression::None, Compression::Lz4, Compression::Zstd(1)].into_iter().enumerate()
    {
        let path = dir.path().join(format!("{i}.hwt"));
        let story = story(7 + i as u64, 40, 5, 30);
        write(&path, &story, options(compression), |epoch| epoch % 7 == 0);
        let trace = Trace::open(&path).expect("open");
        assert_eq!(trace.warnings(), []);
        assert_eq!(trace.meta(), &meta());
        assert_eq!(trace.end().map(|end| (end.how, end.code)), Some((EndedHow::Exit, 3)));
        assert_eq!(trace.nodes().len(), 49);
        assert_eq!(trace.nodes().get(9).map(|n| (n.parent, n.pc)), Some((4, 0x1000 + 36)));
        assert_eq!(trace.marks().len(), 40);
        let want = expected_steps(&story, &trace);
        assert_eq!(all_steps(&trace), want);
        let events = want.iter().filter(|step| matches!(step, Step::Event(_))).count();
        assert_eq!(trace.event_count(), events as u64);
        let mode = std::fs::metadata(&path).expect("stat").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_stories(seed in any::<u64>(), epochs in 0usize..30, threads in 1u32..9, per_run in 1u64..60, flush in 1usize..9) {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("t.hwt");
        let story = story(seed, epochs, threads, per_run);
        write(&path, &story, WriterOptions::default(), |epoch| epoch % flush == 0);
        let trace = Trace::open(&path).expect("open");
        prop_assert_eq!(trace.warnings(), []);
        let want = expected_steps(&story, &trace);
        prop_assert_eq!(all_steps(&trace), want.clone());
        // Many at a time they are the same.
        let mut epochs = Vec::new();
        let mut steps = trace.steps();
        while let Some(step) = steps.next().expect("read") {
            epochs.push((steps.epoch(), brief(&step)));
        }
        prop_assert_eq!(all_in_batches(&trace, flush * 5), epochs);
        // Entered anywhere, the numbers and pairs are the same.
        let middle = trace.event_count() / 2;
        let mut steps = trace.steps_from(middle);
        let from = steps.seqno();
        prop_assert!(from <= middle);
        let mut rest = Vec::new();
        while let Some(step) = steps.next().expect("read") {
            rest.push(step);
        }
        prop_assert_eq!(&want[want.len() - rest.len()..], &rest[..]);
    }
}

#[test]
fn a_group_begins_a_new_epoch() {
    let dir = tempfile::tempdir().expect("tempdir");
    let story = story(3, 20, 3, 10);
    let of_epochs = story.iter().map(|runs| runs.iter().map(|run| run.records.len()).sum::<usize>());
    let want: Vec<usize> = of_epochs.filter(|&records| records > 0).collect();
    for flush in [1, 3, 100] {
        let path = dir.path().join(format!("{flush}.hwt"));
        write(&path, &story, WriterOptions::default(), |epoch| epoch % flush == 0);
        let trace = Trace::open(&path).expect("open");
        let mut steps = trace.steps();
        let mut runs: Vec<(u32, usize)> = Vec::new();
        while steps.next().expect("read").is_some() {
            match runs.last_mut() {
                Some((epoch, count)) if *epoch == steps.epoch() => *count += 1,
                _ => runs.push((steps.epoch(), 1)),
            }
        }
        assert_eq!(runs.iter().map(|run| run.1).collect::<Vec<_>>(), want, "flushed every {flush}");
    }
}

#[test]
fn many_threads_in_any_order_are_known_by_their_last_definition() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("t.hwt");
    let mut writer = Writer::create(&path, &meta(), WriterOptions::default()).expect("create");
    // As they come from the rings: not by number, and again where one gets another name.
    let numbers: Vec<u32> = (0..20_000).map(|n| n * 7919 % 20_000 + 3).collect();
    let def = |thread: u32, name: &str| ThreadDef { thread, tid: thread + 1, name: name.into(), start: 0 };
    for &thread in &numbers {
        writer.thread(&def(thread, "first")).expect("write");
    }
    for &thread in numbers.iter().step_by(3) {
        writer.thread(&def(thread, "second")).expect("write");
    }
    writer.finish(&End::default()).expect("finish");
    let trace = Trace::open(&path).expect("open");
    let wanted: Vec<ThreadDef> =
        numbers.iter().enumerate().map(|(at, &n)| def(n, ["second", "first", "first"][at % 3])).collect();
    assert_eq!(trace.threads(), wanted);
    assert!(wanted.iter().all(|one| trace.thread(one.thread) == Some(one)));
    assert_eq!(trace.thread(2), None);
}
