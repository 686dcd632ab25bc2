//! Traces and the dumps they were made of.

use std::ffi::OsString;
use std::path::PathBuf;

use highwater_trace::WriterOptions;

use crate::import::{self, Format};
use crate::mddout::model::{Block, Dump, Event, Past};
use crate::mddout::write;

/// What a command line prints, and its status.
fn shown(command: &[&str], files: &[&PathBuf]) -> (i32, String, String) {
    let mut args: Vec<OsString> = command.iter().map(OsString::from).collect();
    args.extend(files.iter().map(OsString::from));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = crate::mddout::ecos::run(&args, &mut out, &mut err);
    (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// A whole history of one thread: numbers from 0, without gaps.
fn run() -> (Dump, Dump) {
    let event = |seq: u32, kind: u8, time: u64| Event {
        seq,
        kind,
        thread: Some(1 + seq % 2),
        time: Some(time),
        backtrace: vec![0x4010 + u64::from(seq) % 3],
        ..Event::default()
    };
    let block = |ptr: u64, size: u64, made: Event| Block { ptr, size, actual: Some(size + 16), made };
    let mut early = write::sample();
    early.options.backtrace = 1;
    early.options.unwind = Default::default();
    early.live = vec![block(0x2000_0100, 100, event(0, 0, 3)), block(0x2000_0300, 50, event(1, 9, 4))];
    early.history = Vec::new();
    early.counters.next_seq = 2;
    early.counters.cur_bytes = 150;
    let mut late = early.clone();
    let freed = late.live.remove(0);
    late.history = vec![Past { block: freed, ended: event(2, 32, 70) }];
    late.live.push(block(0x2000_0100, 100, event(3, 1, 71)));
    late.counters.next_seq = 4;
    (early, late)
}

#[test]
fn a_trace_is_shown_to_the_letter_as_the_dumps_it_was_made_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (early, late) = run();
    let mut pairs = Vec::new();
    for (name, dump) in [("mddout.0", &early), ("mddout.1", &late)] {
        std::fs::write(path(name), write::file(dump)).unwrap();
        let read = import::read(Format::Mddout, &[path(name)], None).unwrap();
        let to = path(&format!("{name}.hwt"));
        read.recording.write(&to, WriterOptions::default()).unwrap();
        pairs.push((path(name), to));
    }
    let [(a, a_trace), (b, b_trace)] = pairs.as_slice() else { panic!() };
    let formats = "%p %n %m %o %s %a %T %t %N %b1 %%";
    for command in [
        &["dump"][..],
        &["dump", "-Sn", "-Fsize_min=60"],
        &["dump", "-Fthread=2", "-Ftime_max=71"],
        &["dump", "-f", formats],
        &["history"],
        &["history", "-r", "-f", formats],
        &["history", "-Fseqno_min=1", "-Fseqno_max=2"],
        &["dump", "-f", "%b2"],
        &["dump", "-f", "%f1"],
    ] {
        // A handle is the kernel's number of a thread; an import has none.
        let plain = |text: String| {
            let mut lines: Vec<String> = Vec::new();
            for line in text.lines() {
                let words: Vec<&str> = line.split(' ').collect();
                let by = line.starts_with("  By thread");
                lines.push(if by { [&words[..5], &words[6..]].concat().join(" ") } else { line.to_string() });
            }
            lines.join("\n")
        };
        let (status, out, err) = shown(command, &[b]);
        let (trace_status, trace_out, trace_err) = shown(command, &[b_trace]);
        assert_eq!((status, plain(out)), (trace_status, plain(trace_out)), "{command:?}: {err}{trace_err}");
    }
    let names = |text: &str| {
        let (a_trace, b_trace) = (a_trace.to_str().unwrap(), b_trace.to_str().unwrap());
        text.replace(a_trace, a.to_str().unwrap()).replace(b_trace, b.to_str().unwrap())
    };
    let f = ["diff", "-f", formats];
    assert_eq!(names(&shown(&f, &[a_trace, b_trace]).1), shown(&f, &[a, b]).1);
    let stats = shown(&["stats"], &[b_trace]).1;
    assert!(stats.contains("\nCurrent   : 0K (150 bytes) used in 2 allocations\n"), "{stats}");
    assert!(stats.contains(
        "\nActual    : approximately 0K (182 bytes)\nOverhead  : approximately 0K (32 bytes), 17%\n"
    ));
    assert!(stats.contains("\nHistory   : 3 memory allocations, 1 frees\n"), "{stats}");
    assert!(stats.contains("\nHeap      : 0x20000100 to 0x20000331, size 0K (562 bytes)\n"), "{stats}");
}

#[test]
fn traces_of_two_runs_are_strangers() {
    let folder = tempfile::tempdir().unwrap();
    let trace = |name: &str, pid| {
        let (_, late) = run();
        let mut recording =
            crate::mddout::trace::recording(&[late], None, crate::mddout::unwind::unpacked).unwrap().0;
        recording.meta.pid = pid;
        let to = folder.path().join(name);
        recording.write(&to, WriterOptions::default()).unwrap();
        to
    };
    let (one, copy, other) = (trace("a.hwt", 7), trace("b.hwt", 7), trace("c.hwt", 8));
    let (status, out, _) = shown(&["diff"], &[&one, &copy]);
    assert!(status == 0 && out.contains("\n0 new allocations in "), "{out}");
    let (status, _, err) = shown(&["diff"], &[&one, &other]);
    assert!(status == 2 && err.contains("is of another run than the first file"), "{err}");
    let (status, _, err) = shown(&["history"], &[&one, &copy]);
    assert!(status == 2 && err.contains("one trace, or the dumps of one run"), "{err}");
}
