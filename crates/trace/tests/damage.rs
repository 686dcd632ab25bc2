//! Cut files, flipped bits, foreign files: never a panic, never other events.

mod common;
use common::*;

use std::fs;

use highwater_event::codec::{Encoder, Record};
use highwater_trace::model::*;
use highwater_trace::reach::{Amount, Class, Reach, ReachBlock, ReachSite, Scanned};
use highwater_trace::{Compression, Trace, TraceError, Warning, Writer};

fn scan() -> Reach {
    let block = |addr: u64| ReachBlock {
        addr,
        size: 24,
        seqno: addr / 16,
        node: 1,
        class: Class::Definite,
        owner: None,
        retained: 24,
        pointers: 0,
    };
    Reach {
        seqno: 9,
        sites: vec![ReachSite { node: 1, owned: Amount { blocks: 2, bytes: 48 }, ..ReachSite::default() }],
        blocks: (1..40).map(|i| block(i * 4096)).collect(),
        notes: vec!["a test".to_string()],
        ..Reach::default()
    }
}

/// A small file with every kind of block, and its steps.
fn small(dir: &std::path::Path) -> (std::path::PathBuf, Vec<u8>, Vec<Step>) {
    let path = dir.join("small.hwt");
    let story = story(99, 9, 3, 8);
    let mut writer =
        highwater_trace::Writer::create(&path, &meta(), options(Compression::Zstd(1))).expect("create");
    writer.clock(ClockPoint { stamp: 1_000, ns: 0 }).expect("clock");
    writer.nodes(&[NodeDef { id: 1, parent: 0, pc: 5, module: 0 }]).expect("nodes");
    let mut encoders = [highwater_event::codec::Encoder::default(); 8];
    let mut found = None;
    for (epoch, runs) in story.iter().enumerate() {
        for run in runs {
            let (start, payload, events) = encode(&mut encoders[run.thread as usize], &run.records);
            writer
                .events(&EventBlock { thread: run.thread, events, start, payload: &payload })
                .expect("events");
        }
        writer.end_epoch().expect("epoch");
        if epoch % 3 == 1 {
            writer.flush().expect("flush");
        }
        if epoch == 6 {
            found = Some(writer.reach(&scan()).expect("reach"));
        }
        if epoch == 4 {
            writer.mark(&Mark { ns: 4, name: "middle".into() }).expect("mark");
            assert!(writer.keyframe(&[]).expect("keyframe"), "an empty live set is small");
        }
    }
    writer.finish(&End { how: EndedHow::Exit, scan: found, ..End::default() }).expect("finish");
    let trace = Trace::open(&path).expect("open");
    assert_eq!(trace.warnings(), []);
    assert_eq!(trace.reach().expect("read"), Scanned::Done(Box::new(scan())));
    let steps = all_steps(&trace);
    assert_eq!(steps, expected_steps(&story, &trace));
    let bytes = fs::read(&path).expect("read");
    (path, bytes, steps)
}

#[test]
fn a_file_cut_at_every_byte_opens_with_its_prefix() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (_, bytes, want) = small(dir.path());
    let path = dir.path().join("cut.hwt");
    let mut least = 0;
    for cut in 0..bytes.len() {
        // The end record's slot is all blanks: a few cuts there are enough.
        if (200..4_000).contains(&cut) {
            continue;
        }
        fs::write(&path, &bytes[..cut]).expect("write");
        let trace = match Trace::open(&path) {
            Ok(trace) => trace,
            Err(TraceError::Empty { .. }) => {
                assert_eq!(cut, 0);
                continue;
            }
            Err(TraceError::Header { .. }) => {
                assert!(cut < 32, "only a cut inside the file header cannot be opened: {cut}");
                continue;
            }
            Err(other) => panic!("cut at {cut}: {other}"),
        };
        let steps = all_steps(&trace);
        assert_eq!(steps, want[..steps.len()], "cut at {cut}");
        let events = steps.iter().filter(|step| matches!(step, Step::Event(_))).count();
        assert_eq!(trace.event_count(), events as u64, "cut at {cut}");
        assert!(steps.len() >= least, "more bytes never give fewer events: {cut}");
        least = steps.len();
        assert!(!trace.warnings().is_empty(), "cut at {cut} is told");
    }
    assert_eq!(least, want.len(), "without its trailer all events are there");
}

#[test]
fn a_growing_file_can_be_followed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (_, bytes, want) = small(dir.path());
    let path = dir.path().join("grow.hwt");
    // What a recorder has written before its end: the slot is still empty, but
    // the bytes behind it are the same.
    fs::write(&path, &bytes[..4_200]).expect("write");
    let mut trace = Trace::open(&path).expect("open");
    for cut in (4_200..=bytes.len()).step_by(13).chain([bytes.len()]) {
        fs::write(&path, &bytes[..cut]).expect("write");
        trace.refresh().expect("refresh");
        let steps = all_steps(&trace);
        assert_eq!(steps, want[..steps.len()], "at {cut}");
        assert_eq!(trace.lost_events(), 0);
    }
    assert_eq!(all_steps(&trace), want);
    assert!(!trace.refresh().expect("refresh"), "complete: nothing more comes");
}

/// Every step that was read must be one of the sound file, with the same
/// number, in the same order; the rest must be reported as lost.
fn check_against(steps: &[Step], want: &[Step], clock_lost: bool, context: &str) {
    let mut rest = want.iter();
    for step in steps {
        match *step {
            Step::Special { what: Special::Dropped { .. }, .. } => {}
            Step::Special { thread, what, .. } => {
                let found = rest.clone().any(|step| match *step {
                    Step::Special { thread: t, what: w, .. } => {
                        let undo = matches!((w, what), (Special::ReallocUndo { addr: a, .. }, Special::ReallocUndo { addr: b, .. }) if a == b);
                        t == thread && (w == what || undo)
                    }
                    Step::Event(_) => false,
                });
                assert!(found, "{context}: {step:?} is not in the sound file");
            }
            Step::Event(event) => {
                let same = |step: &&Step| match **step {
                    Step::Event(other) => {
                        let pair = event.pair.is_none() || other.pair.is_some();
                        let ns = clock_lost || event.ns == other.ns;
                        // Inside the span of a lost block numbers may be off.
                        pair && ns
                            && Event { pair: None, ns: 0, seqno: 0, ..event }
                                == Event { pair: None, ns: 0, seqno: 0, ..other }
                    }
                    Step::Special { .. } => false,
                };
                assert!(
                    rest.any(|step| same(&step)),
                    "{context}: {event:?} is not in the sound file's order"
                );
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (_, bytes, want) = small(dir.path());
    let path = dir.path().join("flip.hwt");
    let events = |steps: &[Step]| steps.iter().filter(|step| matches!(step, Step::Event(_))).count() as u64;
    for at in 0..bytes.len() {
        // Blanks in the end record's slot: one bit in a hundred bytes is enough.
        if (400..4_100).contains(&at) && at % 100 != 0 {
            continue;
        }
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            fs::write(&path, &flipped).expect("write");
            let context = format!("bit {bit} of byte {at}");
            let mut trace = match Trace::open(&path) {
                Ok(trace) => trace,
                Err(TraceError::Header { .. }) => {
                    assert!(at < 32, "{context}");
                    continue;
                }
                Err(other) => panic!("{context}: {other}"),
            };
            trace.verify().expect("verify");
            let named = trace.warnings().iter().any(|warning| matches!(warning, Warning::Damaged { .. }));
            assert!(named, "{context}: {:?}", trace.warnings());
            let steps = all_steps(&trace);
            let clock_lost = trace.clock().points().is_empty();
            check_against(&steps, &want, clock_lost, &context);
            assert_eq!(
                events(&steps) + trace.lost_events(),
                events(&want),
                "{context}: {:?}",
                trace.warnings()
            );
            assert_eq!(trace.event_count(), events(&want), "{context}: nothing is renumbered");
            // What comes after the damaged block's group has its old numbers.
            if let (Some(Step::Event(last)), Some(Step::Event(old))) = (steps.last(), want.last())
                && last.addr == old.addr
            {
                assert_eq!(last.seqno, old.seqno, "{context}");
            }
        }
    }
}

#[test]
fn a_scan_is_whole_or_not_there() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (path, bytes, _) = small(dir.path());
    let record = bytes.windows(5).position(|w| w == b"\xb7HWB\x08").expect("the scan's block");
    let mut flipped = bytes.clone();
    flipped[record + 80] ^= 4;
    fs::write(&path, &flipped).expect("write");
    let damaged = Scanned::Not("the record of the scan is damaged".to_string());
    assert_eq!(Trace::open(&path).expect("open").reach().expect("read"), damaged);
    // Without an end record it is found where it stands, or not at all.
    let cut = |at: usize| {
        let mut cut = bytes[..at].to_vec();
        cut[96..4_128].fill(b' ');
        fs::write(&path, &cut).expect("write");
        Trace::open(&path).expect("open").reach().expect("read")
    };
    assert!(matches!(cut(bytes.len() - 20), Scanned::Done(scan) if scan.seqno == 9));
    assert!(matches!(cut(record + 80), Scanned::Not(_)));
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_damage_not_a_fault() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (path, bytes, want) = small(dir.path());
    let trace = Trace::open(&path).expect("open");
    let mut steps = trace.steps();
    assert!(steps.next().expect("read").is_some());
    fs::write(&path, &bytes[..5_000.min(bytes.len() / 2 + 2_000)]).expect("write");
    let mut count = 1;
    while steps.next().expect("read").is_some() {
        count += 1;
    }
    assert!(count < want.len() && steps.lost_events() > 0);
    assert!(!steps.warnings().is_empty());
}

#[test]
fn what_is_no_trace_is_told_by_name() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("foreign");
    let cases: &[(&[u8], &str)] = &[
        (b"", "empty"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "ELF"),
        (b"\x1f\x8b\x08\0\0\0", "gzip"),
        (b"\x28\xb5\x2f\xfd\0\0\0\0\0", "zstd"),
        (b"hello, world\n", "text"),
        (b"v 10500 3\nx /bin/ls\n", "heaptrack"),
        (b"{\"a\":1}", "JSON"),
        (&[0; 64], "zero"),
        (&[1, 2, 3], "unknown data"),
        (b"\x89HWT", "damaged file header"),
    ];
    for (bytes, word) in cases {
        fs::write(&path, bytes).expect("write");
        let error = Trace::open(&path).expect_err(word).to_string();
        assert!(error.contains(word) && error.contains("foreign") && !error.contains('\n'), "{error}");
    }
    let error = Trace::open(dir.path().join("none")).expect_err("none").to_string();
    assert!(error.contains("none") && error.contains("No such file"), "{error}");
    let error = Trace::open(dir.path()).expect_err("folder").to_string();
    assert!(error.contains("directory"), "{error}");
}

#[test]
fn other_versions_are_refused() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (path, mut bytes, _) = small(dir.path());
    bytes[8..12].copy_from_slice(&9u32.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, bytes).expect("write");
    let error = Trace::open(&path).expect_err("newer").to_string();
    let newest = highwater_trace::FORMAT_VERSION;
    let want = format!("written by format version 9; this highwater reads up to {newest}; upgrade");
    assert!(error.contains(&want), "{error}");
    // Version 1 had other event blocks and was never released.
    let mut bytes = fs::read(&path).expect("read");
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, bytes).expect("write");
    let error = Trace::open(&path).expect_err("older").to_string();
    assert!(error.contains("before the first release"), "{error}");
}

#[test]
fn the_times_of_a_growing_trace_moved_when_the_clocks_were_read_again() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("grow.hwt");
    let story = story(11, 60, 4, 40);
    let mut writer = Writer::create(&path, &meta(), options(Compression::None)).expect("create");
    let mut encoders = [Encoder::default(); 4];
    let mut shown: Vec<Step> = Vec::new();
    let (mut bound, mut ns) = (1_000, 0);
    writer.clock(ClockPoint { stamp: bound, ns }).expect("clock");
    let check = |shown: &mut Vec<Step>| {
        let steps = all_steps(&Trace::open(&path).expect("open"));
        for (now, before) in steps.iter().zip(&*shown) {
            assert_eq!(now, before);
        }
        assert!(steps.len() >= shown.len());
        let grown = steps.len() - shown.len();
        *shown = steps;
        grown
    };
    let mut grown = 0;
    for (epoch, runs) in story.iter().enumerate() {
        let before = bound;
        for run in runs {
            bound = run.records.iter().map(Record::stamp).fold(bound, u64::max);
            let (start, payload, events) = encode(&mut encoders[run.thread as usize], &run.records);
            writer
                .events(&EventBlock { thread: run.thread, events, start, payload: &payload })
                .expect("events");
        }
        // The two clocks do not run evenly against each other.
        ns += (bound - before) * [3, 7, 2][epoch % 3];
        writer.reading(ClockPoint { stamp: bound, ns });
        writer.end_epoch().expect("end_epoch");
        if epoch % 4 == 3 {
            writer.flush().expect("flush");
            grown += usize::from(check(&mut shown) > 0);
        }
        if epoch % 10 == 9 {
            writer.clock(ClockPoint { stamp: bound, ns }).expect("clock");
        }
    }
    assert!(grown > 5, "the file grew {grown} times");
    writer.finish(&End { how: EndedHow::Exit, ..End::default() }).expect("finish");
    check(&mut shown);
}
