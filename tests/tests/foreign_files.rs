//! Files that highwater did not record: the DTrace script's text, dumps of
//! embedded targets. Views open them as they would a trace; `import` makes one.

use std::path::{Path, PathBuf};

use highwater_interchange::mddout::layout::Abi;
use highwater_interchange::mddout::model::{Block, Counters, Dump, Event, Heap, Options, Past, Thread};
use highwater_interchange::mddout::write;
use highwater_tests::highwater::record_with;
use highwater_tests::{Ended, Highwater, Program, schema};
use serde_json::Value;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

fn highwater(args: &[&str]) -> Ended {
    Highwater::command(args).run()
}

/// The stdout of a view, without what names the file.
fn shown(view: &[&str], file: &Path) -> String {
    let ended = Highwater::command(view).arg(file).run().expect_code(0);
    ended.stdout().lines().filter(|line| !line.starts_with("next:")).collect::<Vec<_>>().join("\n")
}

#[test]
fn findleaks_prints_of_an_imported_text_what_it_prints_of_the_text() {
    let folder = highwater_tests::folder();
    let to = folder.path().join("leaks.hwt");
    let (text, to) = (golden("findleaks.txt"), to.to_str().unwrap());
    let text = text.to_str().unwrap();
    let ended = highwater(&["import", text, "-o", to]).expect_code(0);
    assert_eq!(
        (ended.stdout(), ended.stderr()),
        (String::new(), format!("highwater: wrote {to}: 10 events\n"))
    );
    for (begin, end) in [("2968", "3511"), ("0", "99999"), ("2971", "3000"), ("3512", "3600")] {
        let of = |file: &str| highwater(&["findleaks", "-b", begin, "-e", end, "-f", file]).expect_code(0);
        assert_eq!(of(to).stdout(), of(text).stdout(), "-b {begin} -e {end}");
    }
    // Once more: it is not replaced unasked.
    let ended = highwater(&["import", text, "-o", to]).expect_code(2);
    assert!(ended.stderr().contains("exists already"), "{}", ended.stderr());
    highwater(&["import", text, "-o", to, "--force"]).expect_code(0);
}

#[test]
fn views_open_the_text_as_they_do_its_trace() {
    let folder = highwater_tests::folder();
    let to = folder.path().join("leaks.hwt");
    let text = golden("findleaks.txt");
    highwater(&["import", text.to_str().unwrap(), "-o", to.to_str().unwrap()]).expect_code(0);
    for view in [&["leaks"][..], &["threads"], &["errors"]] {
        assert_eq!(shown(view, &text), shown(view, &to), "{view:?}");
    }
    let peak = |file: &Path| Highwater::json(&["peak"], file)["sites"].clone();
    assert_eq!(peak(&text), peak(&to));
    let stats = Highwater::json(&["stats"], &text);
    assert_eq!((stats["allocations"].clone(), stats["live_blocks"].clone()), (8.into(), 6.into()));
    // The text's own numbers are shown where they are not lost.
    let dump = Highwater::json(&["dump"], &text);
    let seqnos: Vec<u64> =
        dump["blocks"].as_array().unwrap().iter().map(|b| b["seqno"].as_u64().unwrap()).collect();
    assert_eq!(seqnos, [2968, 3511, 3000, 2970, 0, 3601]);
    let frame: &Value = &dump["blocks"][0]["stack"][0];
    assert_eq!(
        (frame["function"].clone(), frame["module"].clone()),
        ("void*operator new(unsigned)".into(), "libCrun.so.1".into())
    );
}

#[test]
fn a_file_of_no_known_format_is_refused_with_what_there_is() {
    let folder = highwater_tests::folder();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "hello\n").unwrap();
    let file = file.to_str().unwrap();
    let ended = highwater(&["import", file]).expect_code(2);
    assert!(ended.stderr().contains("use --from (dtrace, mddout)"), "{}", ended.stderr());
    let ended = highwater(&["import", "--from", "heapview", file]).expect_code(2);
    assert!(ended.stderr().contains("there are dtrace, mddout"), "{}", ended.stderr());
    let ended = highwater(&["import", "--from", "mddout", file]).expect_code(2);
    assert!(ended.stderr().contains("not a memory debug dump"), "{}", ended.stderr());
    assert!(highwater(&["stats", file]).expect_code(2).stderr().contains("not a highwater trace"));
    highwater(&["import", "/nowhere/x"]).expect_code(2);
}

/// Two dumps of one run of a target, the second after it freed a block and made
/// another at its address.
fn dumps(folder: &Path) -> [PathBuf; 2] {
    let event = |seq: u32, kind: u8, time: u64| Event {
        seq,
        kind,
        thread: Some(1 + seq % 2),
        time: Some(time),
        backtrace: vec![0x4010 + u64::from(seq % 3)],
        ..Event::default()
    };
    let block = |ptr: u64, size: u64, made: Event| Block { ptr, size, actual: Some(size + 16), made };
    let thread = |handle, name: &str| Thread { handle, name: name.into() };
    let early = Dump {
        abi: Abi { big: false, word: 4 },
        machine: 40,
        options: Options {
            actual: true,
            time: true,
            thread: true,
            history: true,
            backtrace: 1,
            ..Options::default()
        },
        busy: false,
        counters: Counters { next_seq: 2, allocs: 2, cur_bytes: 150, ..Counters::default() },
        tick_hz: 100,
        run_id: 7,
        self_addr: 0x2000_0000,
        anchor: 0x101,
        text_base: 0,
        static_bytes: 1000,
        dynamic_bytes: 0,
        build_id: vec![1; 20],
        heaps: vec![Heap { start: 0x2000_0100, end: 0x2001_0000, name: String::new() }],
        threads: vec![thread(0x2000_0050, "Idle Thread"), thread(0x2000_0090, "main")],
        stacks: Vec::new(),
        kind_names: Vec::new(),
        modules: Vec::new(),
        live: vec![block(0x2000_0100, 100, event(0, 0, 3)), block(0x2000_0300, 50, event(1, 9, 4))],
        live_capacity: 100,
        history: Vec::new(),
        history_capacity: 50,
        problems: Vec::new(),
    };
    let mut late = early.clone();
    let freed = late.live.remove(0);
    late.history = vec![Past { block: freed, ended: event(2, 32, 70) }];
    late.live.push(block(0x2000_0100, 300, event(3, 1, 71)));
    late.counters = Counters { next_seq: 4, allocs: 3, frees: 1, cur_bytes: 350, ..Counters::default() };
    let paths = ["mddout.0", "mddout.1"].map(|name| folder.join(name));
    for (path, dump) in paths.iter().zip([early, late]) {
        std::fs::write(path, write::file(&dump)).unwrap();
    }
    paths
}

#[test]
fn views_open_dumps_of_a_target() {
    let folder = highwater_tests::folder();
    let [early, late] = dumps(folder.path());
    let stats = Highwater::json(&["stats"], &late);
    let number = |key: &str| stats[key].as_u64().unwrap();
    assert_eq!(
        (number("allocations"), number("frees"), number("live_bytes"), number("live_blocks")),
        (3, 1, 350, 2)
    );
    let dump = Highwater::json(&["dump", "-F", "size_min=100"], &late);
    let block = &dump["blocks"][0];
    assert_eq!(dump["blocks"].as_array().unwrap().len(), 1);
    assert_eq!((block["seqno"].as_u64(), block["size"].as_u64()), (Some(3), Some(300)));
    assert_eq!((block["actual_size"].as_u64(), block["api"].as_str()), (Some(316), Some("calloc")));
    assert_eq!((block["time"].as_f64(), block["stack"][0]["address"].as_str()), (Some(0.71), Some("0x4010")));
    // The ring of the first is needed for what only it has; here nothing is missing.
    let both = Highwater::command(["history", "--json"]).arg(&early).arg(&late).run().expect_code(0);
    let events = schema::document(&both.out);
    let seqnos: Vec<_> = events["events"].as_array().unwrap().iter().map(|e| e["seqno"].as_u64()).collect();
    assert_eq!(seqnos, [0, 1, 2, 3].map(Some));
    let ended = Highwater::command(["diff", "--json"]).arg(&early).arg(&late).run().expect_code(0);
    let diff = schema::document(&ended.out);
    assert_eq!(diff["matched"], "seqno");
    assert_eq!((diff["new"][0]["bytes"].as_i64(), diff["gone"][0]["bytes"].as_i64()), (Some(300), Some(100)));
    for view in [&["threads"][..], &["errors"], &["leaks"], &["peak"]] {
        Highwater::command(view).arg(&late).run().expect_code(0);
    }
}

#[test]
fn what_a_dump_does_not_have_is_named_with_the_file() {
    let folder = highwater_tests::folder();
    let [_, late] = dumps(folder.path());
    let mut thin = highwater_interchange::mddout::read(&late).unwrap();
    thin.options.thread = false;
    thin.options.time = false;
    thin.threads.clear();
    thin.live.iter_mut().for_each(|block| (block.made.thread, block.made.time) = (None, None));
    thin.history.clear();
    std::fs::write(&late, write::file(&thin)).unwrap();
    let name = late.to_str().unwrap();
    for (args, missing) in [
        (&["dump", "-F", "thread=1"][..], "no thread information in"),
        (&["dump", "-S", "thread"], "no thread information in"),
        (&["dump", "-F", "time_min=1"], "no time stamps in"),
        (&["diff", "--by", "thread", name], "no thread information in"),
        (&["mdd", "dump", "-Fthread=1"], "no thread information in"),
        (&["mdd", "dump", "-f", "%T"], "no time stamps in"),
    ] {
        let ended = Highwater::command(args).arg(&late).run().expect_code(2);
        assert!(ended.stderr().contains(&format!("{missing} {name}")), "{args:?}: {}", ended.stderr());
    }
    let ended = Highwater::command(["stats"]).arg(&late).run().expect_code(0);
    assert!(ended.stderr().contains("events are in no dump"), "{}", ended.stderr());
    assert!(ended.stdout().starts_with("the program as mddout tells it: "), "{}", ended.stdout());
}

#[test]
fn ecos_commands_show_a_trace_in_their_layouts() {
    let program = Program::new("leaks.c").build();
    let recorded = record_with(&["--actual-size"], |child| child.arg("--").arg(&program)).expect_code(0);
    let trace = recorded.trace.to_str().unwrap();
    let mdd = |args: &[&str]| {
        let args: Vec<&str> = ["mdd"].iter().chain(args).copied().collect();
        highwater(&args).expect_code(0).stdout()
    };
    let stats = recorded.stats();
    let number = |key: &str| stats[key].as_u64().unwrap();
    let text = mdd(&["stats", trace]);
    let (live, blocks, made) = (number("live_bytes"), number("live_blocks"), number("allocations"));
    assert!(text.starts_with(&format!("{trace}: statistics\nHeap      : 0x")), "{text}");
    let kilo = live / 1024;
    assert!(
        text.contains(&format!("\nCurrent   : {kilo}K ({live} bytes) used in {blocks} allocations\n")),
        "{text}"
    );
    let frees = made - blocks;
    assert!(text.contains(&format!("\nHistory   : {made} memory allocations, {frees} frees\n")), "{text}");

    // Every event, by its number, size, address; from the other end with -r.
    let events = recorded.history();
    let rows: Vec<String> = events
        .iter()
        .map(|e| format!("{} {} {}", e["seqno"], e["size"], e["address"].as_str().unwrap()))
        .collect();
    let own = |text: &str| -> Vec<String> {
        let row = |line: &str| {
            let (head, address) = line.rsplit_once(' ').unwrap();
            let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
            format!("{head} {address:#x}")
        };
        text.lines().map(row).collect()
    };
    let shown = mdd(&["history", "-f", "%s %n %p", trace]);
    assert_eq!(own(&shown), rows);
    let turned: Vec<String> = rows.iter().rev().cloned().collect();
    assert_eq!(own(&mdd(&["history", "-r", "-f", "%s %n %p", trace])), turned);

    let program = program.to_str().unwrap();
    let named = mdd(&["dump", "-Fsize_min=100", "-Fsize_max=100", "-f", "%f1 %w1 %m", program, trace]);
    let lines: Vec<&str> = named.lines().collect();
    assert_eq!(lines.len(), 10);
    assert!(
        lines.iter().all(|l| l.starts_with("leak_list ") && l.contains("leaks.c:") && l.ends_with(" 104")),
        "{named}"
    );
    let other = std::env::current_exe().unwrap();
    let ended = highwater(&["mdd", "dump", other.to_str().unwrap(), trace]).expect_code(2);
    assert!(ended.stderr().contains("does not belong to"), "{}", ended.stderr());
    let same = mdd(&["diff", trace, trace]);
    assert!(same.contains("\n0 new allocations in ") && same.contains("\n0 allocations in "), "{same}");
}
