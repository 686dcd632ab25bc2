//! Writers that cannot write, and keyframes.

mod common;
use common::*;

use std::collections::BTreeMap;
use std::process::Command;

use highwater_event::codec::Encoder;
use highwater_trace::model::*;
use highwater_trace::{Compression, Trace, TraceError, Writer, WriterOptions};

/// Writes a story until it fails; the error, and what `finish` said.
fn write_until_failure(
    path: &std::path::Path,
    story: &Story,
    options: WriterOptions,
) -> (Option<TraceError>, bool) {
    let mut writer = Writer::create(path, &meta(), options).expect("create");
    let mut encoders = vec![Encoder::default(); 64];
    let mut failed = None;
    'all: for runs in story {
        for run in runs {
            let (start, payload, events) = encode(&mut encoders[run.thread as usize], &run.records);
            let block = EventBlock { thread: run.thread, events, start, payload: &payload };
            if let Err(error) = writer.events(&block) {
                failed = Some(error);
                break 'all;
            }
        }
        if let Err(error) = writer.end_epoch().and_then(|()| writer.flush()) {
            failed = Some(error);
            let block = EventBlock { thread: 0, events: 0, start: Default::default(), payload: &[0] };
            assert!(matches!(writer.events(&block), Err(TraceError::Stopped { .. })));
            break;
        }
    }
    let end = End { how: EndedHow::Exit, code: 4, ..End::default() };
    (failed, writer.finish(&end).is_ok())
}

/// A prefix of the story, and an end that says why it is one.
fn check_cut(path: &std::path::Path, story: &Story, reason: &str) {
    let trace = Trace::open(path).expect("open");
    let end = trace.end().expect("the end is there");
    assert_eq!((end.how, end.code), (EndedHow::Exit, 4));
    assert!(end.cut.as_deref().is_some_and(|cut| cut.contains(reason)), "{end:?}");
    let steps = all_steps(&trace);
    let want = expected_steps(story, &trace);
    assert!(steps.len() > 100 && steps.len() < want.len());
    assert_eq!(steps, want[..steps.len()]);
    assert_eq!(trace.lost_events(), 0);
}

#[test]
fn the_size_limit_stops_cleanly() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("t.hwt");
    let story = story(5, 200, 4, 100);
    let options = WriterOptions { max_size: Some(30_000), ..WriterOptions::default() };
    let (failed, finished) = write_until_failure(&path, &story, options);
    assert!(matches!(failed, Some(TraceError::SizeLimit { limit: 30_000, .. })), "{failed:?}");
    assert!(finished);
    assert!(std::fs::metadata(&path).expect("stat").len() <= 30_000);
    check_cut(&path, &story, "--max-trace-size");
    assert_eq!(Trace::open(&path).expect("open").warnings(), [], "the index fitted below the limit");
}

/// The child half of the next test: it runs under a file size limit.
#[test]
fn child_with_a_file_size_limit() {
    let Some(path) = std::env::var_os("HIGHWATER_TEST_LIMITED") else { return };
    let (failed, finished) =
        write_until_failure(path.as_ref(), &story(5, 200, 4, 100), options(Compression::Lz4));
    assert!(matches!(failed, Some(TraceError::Write { .. })), "{failed:?}");
    assert!(finished);
}

#[test]
fn a_failed_write_leaves_a_valid_prefix_and_a_reason() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("t.hwt");
    // The shell sets the limit (blocks of 512 or 1024 bytes) and ignores SIGXFSZ, so that the write
    // fails with EFBIG, as one on a full disk fails with ENOSPC.
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 40; exec \"$0\" --exact child_with_a_file_size_limit"])
        .arg(std::env::current_exe().expect("exe"))
        .env("HIGHWATER_TEST_LIMITED", &path)
        .status()
        .expect("sh");
    assert!(status.success());
    check_cut(&path, &story(5, 200, 4, 100), "large");
}

/// The child half of the next test: it runs where a small file system of its own is mounted.
#[test]
fn child_on_a_small_disk() {
    let Some(folder) = std::env::var_os("HIGHWATER_TEST_SMALL_DISK") else { return };
    let path = std::path::Path::new(&folder).join("t.hwt");
    let story = story(5, 200, 4, 100);
    let (failed, finished) = write_until_failure(&path, &story, options(Compression::Lz4));
    let failed = failed.expect("the disk is smaller than the trace");
    assert!(
        matches!(&failed, TraceError::Write { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{failed:?}"
    );
    assert!(finished, "the end record has its room from the start");
    check_cut(&path, &story, "No space left");
    println!("the disk was full");
}

#[test]
fn a_full_disk_leaves_a_valid_prefix_and_a_reason() {
    let dir = tempfile::tempdir().expect("tempdir");
    // In a mount name space of its own, so that nothing is left whatever happens.
    let mount = "mount -t tmpfs -o size=24k none \"$HIGHWATER_TEST_SMALL_DISK\"";
    let inside = |command: String| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &command])
            .arg(std::env::current_exe().expect("exe"))
            .env("HIGHWATER_TEST_SMALL_DISK", dir.path())
            .output()
    };
    if !inside(mount.to_owned()).is_ok_and(|output| output.status.success()) {
        eprintln!("this system lets nobody mount: the test with a file size limit stands alone");
        return;
    }
    let output =
        inside(format!("{mount} && exec \"$0\" --exact child_on_a_small_disk --nocapture")).expect("run");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("the disk was full"), "{output:?}");
}

/// The child half of the next test: writes, says when it has flushed, and goes on.
#[test]
fn child_that_will_be_killed() {
    let Some(path) = std::env::var_os("HIGHWATER_TEST_KILLED") else { return };
    let mut writer = Writer::create(&path, &meta(), options(Compression::Zstd(1))).expect("create");
    let mut encoders = vec![Encoder::default(); 64];
    for (number, runs) in story(9, 300, 4, 100).iter().enumerate() {
        for run in runs {
            let (start, payload, events) = encode(&mut encoders[run.thread as usize], &run.records);
            let block = EventBlock { thread: run.thread, events, start, payload: &payload };
            writer.events(&block).expect("events");
        }
        writer.end_epoch().expect("epoch");
        if number == 200 {
            writer.flush().expect("flush");
            println!("flushed");
        }
    }
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

#[test]
fn a_killed_writer_loses_only_what_it_had_not_flushed() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("t.hwt");
    let mut child = Command::new(std::env::current_exe().expect("exe"))
        .args(["--exact", "child_that_will_be_killed", "--nocapture"])
        .env("HIGHWATER_TEST_KILLED", &path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("spawn");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let flushed = lines.any(|line| line.is_ok_and(|line| line.contains("flushed")));
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert!(flushed);
    let trace = Trace::open(&path).expect("open");
    assert!(trace.end().is_none());
    let story = story(9, 300, 4, 100);
    let whole = |epochs: &[Vec<Run>]| {
        epochs.iter().flatten().flat_map(|run| &run.records).filter(|record| record.is_event()).count()
    };
    assert!(trace.event_count() >= whole(&story[..=200]) as u64);
    let steps = all_steps(&trace);
    assert_eq!(steps, expected_steps(&story, &trace)[..steps.len()]);
    assert_eq!(trace.lost_events(), 0);
}

#[test]
fn an_existing_file_is_kept() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("t.hwt");
    std::fs::write(&path, "precious").expect("write");
    let error = Writer::create(&path, &meta(), WriterOptions::default()).err().expect("exists");
    assert!(matches!(&error, TraceError::Exists { path: p } if *p == path));
    assert!(error.to_string().contains("--force"));
    assert_eq!(std::fs::read(&path).expect("read"), b"precious");
    let options = WriterOptions { overwrite: true, ..WriterOptions::default() };
    Writer::create(&path, &meta(), options).expect("overwrite").finish(&End::default()).expect("finish");
    assert_eq!(Trace::open(&path).expect("open").event_count(), 0);
}

#[test]
fn bytes_that_are_no_records_are_refused_and_the_writer_goes_on() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("t.hwt");
    let mut writer = Writer::create(&path, &meta(), WriterOptions::default()).expect("create");
    let bad = EventBlock { thread: 1, events: 1, start: Default::default(), payload: &[0xff, 0xff, 0xff] };
    assert!(matches!(writer.events(&bad), Err(TraceError::BadRecords { thread: 1, .. })));
    let miscounted = EventBlock { events: 5, payload: &[2], ..bad };
    assert!(matches!(writer.events(&miscounted), Err(TraceError::BadRecords { .. })));
    writer.events(&EventBlock { events: 1, payload: &[2], ..bad }).expect("a free of nothing");
    writer.finish(&End::default()).expect("finish");
    assert_eq!(Trace::open(&path).expect("open").event_count(), 1);
}

/// The live set by brute force: address to block.
fn apply(live: &mut BTreeMap<u64, LiveBlock>, step: &Step) {
    if let Step::Event(event) = step {
        match event.op {
            Op::Alloc { size, usable } => {
                let block = LiveBlock {
                    addr: event.addr,
                    size,
                    usable,
                    node: event.node,
                    thread: event.thread,
                    api: event.api,
                    seqno: event.seqno,
                    ns: event.ns,
                };
                live.insert(event.addr, block);
            }
            Op::Free => {
                live.remove(&event.addr);
            }
        }
    }
}

#[test]
fn keyframes_are_the_live_set_and_stay_under_a_quarter() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (first, path) = (dir.path().join("first.hwt"), dir.path().join("t.hwt"));
    let story = story(11, 120, 4, 200);
    // A first pass gives the numbers that a live recorder has from its replay.
    write(&first, &story, WriterOptions::default(), |_| true);
    let first = Trace::open(&first).expect("open");
    let steps = all_steps(&first);
    let mut live = BTreeMap::new();
    let mut writer = Writer::create(&path, &meta(), WriterOptions::default()).expect("create");
    writer.clock(ClockPoint { stamp: 1_000, ns: 0 }).expect("clock");
    writer.clock(ClockPoint { stamp: 2_000, ns: 500 }).expect("clock");
    let mut encoders = vec![Encoder::default(); 64];
    let (mut done, mut taken, mut refused) = (0, 0, 0);
    for runs in &story {
        for run in runs {
            let (start, payload, events) = encode(&mut encoders[run.thread as usize], &run.records);
            writer
                .events(&EventBlock { thread: run.thread, events, start, payload: &payload })
                .expect("events");
            for step in &steps[done..done + run.records.len()] {
                apply(&mut live, step);
            }
            done += run.records.len();
        }
        writer.end_epoch().expect("epoch");
        let blocks: Vec<LiveBlock> = live.values().copied().collect();
        if writer.keyframe(&blocks).expect("keyframe") { taken += 1 } else { refused += 1 }
    }
    writer.finish(&End::default()).expect("finish");
    assert!(taken > 3 && refused > 3, "{taken} {refused}");

    let trace = Trace::open(&path).expect("open");
    assert_eq!(trace.warnings(), []);
    assert_eq!(all_steps(&trace), steps);
    let seqnos: Vec<u64> = trace.keyframes().collect();
    assert_eq!(seqnos.len(), taken);
    for &seqno in &seqnos {
        let keyframe = trace.keyframe_before(seqno + 1).expect("read").expect("there is one");
        assert!(keyframe.seqno >= seqno);
        let mut live = BTreeMap::new();
        for step in steps.iter().filter(|s| matches!(s, Step::Event(e) if e.seqno < keyframe.seqno)) {
            apply(&mut live, step);
        }
        assert_eq!(keyframe.blocks, live.into_values().collect::<Vec<_>>());
        assert_eq!(trace.steps_from(keyframe.seqno).seqno(), keyframe.seqno, "a group begins there");
    }
    assert_eq!(trace.keyframe_before(0).expect("read").filter(|k| k.seqno > 0), None);
}
