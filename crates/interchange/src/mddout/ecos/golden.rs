//! The manual's own printed examples, rebuilt from made data, letter by letter.

mod options;

use super::args::{self, Command};
use super::*;
use crate::mddout::layout::Abi;
use crate::mddout::model::{Block, Counters, Event, Heap, Past, Thread, Unwind};
use crate::mddout::write;

const MALLOC: u8 = 0;
const CALLOC: u8 = 1;
const REALLOC: u8 = 2;
const NEW_NOTHROW: u8 = 11;
const NEW_ARRAY_NOTHROW: u8 = 12;
const FREE: u8 = 32;
const DELETE: u8 = 38;

/// What the manual's executable would tell.
struct Consume;

const STREAMBUF: &str = "/opt/ecos/packages/language/c/libc/stdio/current/src/common/streambuf.cxx";
const CONSUME: &str = "/tmp/mdd/consume.cxx";

/// Return address, function, file, line, text.
const SITES: &[(u64, &str, &str, u32, &str)] = &[
    (
        0x0004da74,
        "Cyg_StdioStreamBuffer::set_buffer(unsigned, unsigned char*)",
        STREAMBUF,
        96,
        "        malloced_buf = (cyg_uint8 * )malloc( size );",
    ),
    (0x00040ed8, "worker2()", CONSUME, 393, "            allocs[index].data.c    = malloc(size);"),
    (
        0x00040c48,
        "worker1(int)",
        CONSUME,
        315,
        "            allocs[index].data.large    = new(std::nothrow) Large;",
    ),
    (0x000415b4, "main", CONSUME, 575, "    spare   = malloc(128 * 1024);"),
    (
        0x00040f4c,
        "worker2()",
        "/tmp//consume.cxx",
        409,
        "            allocs[index].data.small    = new(std::nothrow) Small;",
    ),
    (0x00040cb8, "worker1(int)", CONSUME, 251, "        break;"),
    (0x000409a4, "worker1(int)", CONSUME, 216, "            free(allocs[index].data.c);"),
    (
        0x00040fc0,
        "worker2()",
        CONSUME,
        417,
        "            allocs[index].data.smallv   = new(std::nothrow) Small[count];",
    ),
    (
        0x00040b78,
        "worker1(int)",
        CONSUME,
        296,
        "            allocs[index].data.medium    = new(std::nothrow) Medium;",
    ),
    (
        0x00041028,
        "worker2()",
        CONSUME,
        424,
        "            allocs[index].data.medium    = new(std::nothrow) Medium;",
    ),
];

impl Names for Consume {
    fn places(&mut self, pc: u64) -> Vec<Place> {
        let site = SITES.iter().find(|s| s.0 == pc).expect("a site of the manual");
        vec![Place { function: Some(site.1.into()), location: Some((site.2.into(), site.3)) }]
    }
    fn text(&mut self, file: &str, line: u32) -> Option<String> {
        SITES.iter().find(|s| (s.2, s.3) == (file, line)).map(|s| s.4.into())
    }
}

fn event(seq: u32, kind: u8, time: u64, thread: u32, pc: u64) -> Event {
    Event { seq, kind, thread: Some(thread), flags: 0, time: Some(time), backtrace: vec![pc] }
}

fn block(ptr: u64, size: u64, actual: u64, made: Event) -> Block {
    Block { ptr, size, actual: Some(actual), made }
}

/// A dump with the manual's heap, threads and options, and these records.
fn dump(live: Vec<Block>, history: Vec<Past>) -> Dump {
    let mut dump = write::sample();
    dump.abi = Abi { big: false, word: 4 };
    dump.options.history = true;
    dump.options.unwind = Unwind::ReturnAddress;
    dump.heaps = vec![Heap { start: 0x0009_7d68, end: 0x0200_0000, name: String::new() }];
    let thread = |handle, name: &str| Thread { handle, name: name.into() };
    dump.threads = vec![
        thread(0x00075670, "Idle Thread"),
        thread(0x00093af8, "main"),
        thread(0x000739b0, "thread_0"),
        thread(0x00073a50, "thread_1"),
        thread(0x00073af0, "thread_2"),
        thread(0x00073b90, "thread_3"),
    ];
    dump.static_bytes = 110280;
    dump.dynamic_bytes = 94628;
    dump.history_capacity = 2048;
    dump.live_capacity = 4096;
    dump.counters = Counters {
        allocs: 132773,
        frees: 130257,
        next_seq: 263030,
        cur_bytes: live.iter().map(|b| b.size).sum(),
        ..Counters::default()
    };
    dump.live = live;
    dump.history = history;
    dump
}

/// Sends the dump through its file form: what is shown is what was read.
fn named(name: &str, dump: &Dump) -> Named {
    Named { name: name.into(), dump: crate::mddout::parse(&write::file(dump)).unwrap() }
}

fn shown(args: &[&str], dumps: &[Named], exe: bool) -> String {
    let mut line: Vec<OsString> = args.iter().map(OsString::from).collect();
    line.extend(dumps.iter().map(|d| OsString::from(&d.name)));
    let options = args::parse(&line).unwrap();
    let mut out = Vec::new();
    let mut consume = Consume;
    let names = exe.then_some(&mut consume as &mut dyn Names);
    show(&options, dumps, names, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// `count` blocks that together have these sizes.
fn filler(count: u64, bytes: u64, actual: u64, kinds: &[(u8, u64)]) -> Vec<Block> {
    let kinds = kinds.iter().flat_map(|&(kind, n)| (0..n).map(move |_| kind));
    kinds
        .enumerate()
        .map(|(n, kind)| {
            let n = n as u64;
            let share =
                |total: u64| if n == 0 { total - (count - 1) * (total / count) } else { total / count };
            block(0x9_8000 + n * 16, share(bytes), share(actual), event(n as u32, kind, 0, 1, 0x40ed8))
        })
        .collect()
}

#[test]
fn stats() {
    let kinds = [(NEW_NOTHROW, 788), (NEW_ARRAY_NOTHROW, 451), (MALLOC, 1009), (CALLOC, 251), (REALLOC, 17)];
    let dump = dump(filler(2516, 1298850, 1544784, &kinds), Vec::new());
    let expected = "\
mddout.0: statistics
Heap      : 0x00097d68 to 0x01ffffff, size 32160K (32932504 bytes)
History   : 132773 memory allocations, 130257 frees
Current   : 1268K (1298850 bytes) used in 2516 allocations
Actual    : approximately 1508K (1544784 bytes)
Overhead  : approximately 240K (245934 bytes), 15%
Debugdata : approximately 107K (110280 bytes) static, 92K (94628 bytes) dynamic
          : (debug data is in addition to other overheads)
Allocators:
            malloc() 1009
            new(nothrow) 788
            new(nothrow)[] 451
            calloc() 251
            realloc() 17
Threads   :
        1 : handle 0x00075670, Idle Thread
        2 : handle 0x00093af8, main
        3 : handle 0x000739b0, thread_0
        4 : handle 0x00073a50, thread_1
        5 : handle 0x00073af0, thread_2
        6 : handle 0x00073b90, thread_3
Options   : actual_size enabled, time stamps enabled, thread info enabled
          : backtrace enabled, 1 levels
          : history enabled, 2048 records max
";
    assert_eq!(shown(&["stats"], &[named("mddout.0", &dump)], false), expected);
}

#[test]
fn stats_of_what_was_not_kept() {
    let mut bare = dump(Vec::new(), Vec::new());
    bare.options = crate::mddout::model::Options::default();
    bare.threads.clear();
    let text = shown(&["stats"], &[named("m", &bare)], false);
    assert!(!text.contains("Actual") && !text.contains("Threads") && !text.contains("Overhead"));
    assert!(text.ends_with(
        "Options   : actual_size disabled, time stamps disabled, thread info disabled
          : backtrace disabled
          : history disabled
"
    ));
}

fn first_three() -> Dump {
    dump(
        vec![
            block(0x000c0f70, 1024, 1040, event(251083, NEW_NOTHROW, 4329, 5, 0x00040c48)),
            block(0x00097d78, 256, 272, event(0, MALLOC, 0, 1, 0x0004da74)),
            block(0x000c0f50, 13, 32, event(229605, MALLOC, 3960, 3, 0x00040ed8)),
        ],
        Vec::new(),
    )
}

#[test]
fn dump_with_and_without_the_executable() {
    let files = [named("mddout.0", &first_three())];
    let expected = r#"0x00097d78 : malloc() 256 bytes, actual size 272 (+16), seqno 0, time 0
  By thread 1, 0x00075670 Idle Thread
  1) backtrace 0x0004da74 function Cyg_StdioStreamBuffer::set_buffer(unsigned, unsigned char*)
     /opt/ecos/packages/language/c/libc/stdio/current/src/common/streambuf.cxx:96
     "        malloced_buf = (cyg_uint8 * )malloc( size );"
0x000c0f50 : malloc() 13 bytes, actual size 32 (+19), seqno 229605, time 3960
  By thread 3, 0x000739b0 thread_0
  1) backtrace 0x00040ed8 function worker2()
     /tmp/mdd/consume.cxx:393
     "            allocs[index].data.c    = malloc(size);"
0x000c0f70 : new(nothrow) 1024 bytes, actual size 1040 (+16), seqno 251083, time 4329
  By thread 5, 0x00073af0 thread_2
  1) backtrace 0x00040c48 function worker1(int)
     /tmp/mdd/consume.cxx:315
     "            allocs[index].data.large    = new(std::nothrow) Large;"
"#;
    assert_eq!(shown(&["dump"], &files, true), expected);
    let expected = "0x00097d78 : malloc() 256 bytes, actual size 272 (+16), seqno 0, time 0
  By thread 1, 0x00075670 Idle Thread
  1) backtrace return address 0x0004da74
";
    assert!(shown(&["dump"], &files, false).starts_with(expected));
}

#[test]
fn dump_in_a_format_of_ones_own() {
    let rows: &[(u64, u8, u64, u64)] = &[
        (0x001217c0, MALLOC, 7, 4190),
        (0x002a43e8, MALLOC, 1553, 4079),
        (0x000f9308, MALLOC, 1139, 4149),
        (0x00292428, NEW_ARRAY_NOTHROW, 388, 4194),
        (0x000c2a80, NEW_NOTHROW, 1024, 4104),
        (0x000e0998, MALLOC, 240, 4147),
        (0x0023f7a8, NEW_NOTHROW, 128, 4194),
        (0x00238c40, NEW_NOTHROW, 128, 4104),
        (0x00275678, NEW_NOTHROW, 128, 4013),
        (0x000e1048, MALLOC, 18, 4014),
        (0x0032cfe8, NEW_NOTHROW, 16, 4106),
        (0x0015d1a8, MALLOC, 8, 4125),
        (0x00131fa0, MALLOC, 8, 4107),
        (0x002162d8, MALLOC, 7, 4129),
    ];
    let block_at = |&(ptr, kind, size, time): &(u64, u8, u64, u64)| {
        block(ptr, size, size + 16, event(time as u32 * 60 + size as u32 % 50, kind, time, 4, 0x40ed8))
    };
    let mut live: Vec<_> = rows.iter().map(block_at).collect();
    // what the filters keep out: another thread, too early, too late
    live.push(block(0x10, 5000, 5016, event(1, MALLOC, 4100, 3, 0x40ed8)));
    live.push(block(0x20, 5000, 5016, event(2, MALLOC, 3999, 4, 0x40ed8)));
    live.push(block(0x30, 5000, 5016, event(3, MALLOC, 4201, 4, 0x40ed8)));
    let files = [named("mddout.0", &dump(live, Vec::new()))];
    let args = ["dump", "-Fthread=4", "-Ftime_min=4000", "-Ftime_max=4200", "-SNs", "-f", "%p %a %n @ %T"];
    let expected = "\
0x002a43e8 malloc() 1553 @ 4079
0x000f9308 malloc() 1139 @ 4149
0x000c2a80 new(nothrow) 1024 @ 4104
0x00292428 new(nothrow)[] 388 @ 4194
0x000e0998 malloc() 240 @ 4147
0x00275678 new(nothrow) 128 @ 4013
0x00238c40 new(nothrow) 128 @ 4104
0x0023f7a8 new(nothrow) 128 @ 4194
0x000e1048 malloc() 18 @ 4014
0x0032cfe8 new(nothrow) 16 @ 4106
0x00131fa0 malloc() 8 @ 4107
0x0015d1a8 malloc() 8 @ 4125
0x002162d8 malloc() 7 @ 4129
0x001217c0 malloc() 7 @ 4190
";
    assert_eq!(shown(&args, &files, false), expected);

    let rows = [
        (0x00097d78, MALLOC, 256, 0),
        (0x00097e88, MALLOC, 131072, 0),
        (0x000b7e98, MALLOC, 4, 0),
        (0x000b7eb0, CALLOC, 3724, 0),
    ];
    let live = rows.iter().enumerate().map(|(n, &(ptr, kind, size, time))| {
        block(ptr, size, size + 16, event(n as u32, kind, time, 4, 0x40ed8))
    });
    let files = [named("mddout.0", &dump(live.collect(), Vec::new()))];
    let expected = "\
malloc() for 256 bytes -> 0x00097d78
malloc() for 131072 bytes -> 0x00097e88
malloc() for 4 bytes -> 0x000b7e98
calloc() for 3724 bytes -> 0x000b7eb0
";
    assert_eq!(shown(&["dump", "-f", "%a for %n bytes -> %p"], &files, false), expected);
}

#[test]
fn dump_in_the_documented_default_format() {
    let format = r#"%p : %a %n bytes, %m (+%o), seqno %s, time %T\n By thread %t, %h %N\n 1) backtrace %b1 function %f1\n %w1\n \"%l1\""#;
    let text = shown(&["dump", "-Fsize_max=13", "-f", format], &[named("m", &first_three())], true);
    let expected = r#"0x000c0f50 : malloc() 13 bytes, 32 (+19), seqno 229605, time 3960
 By thread 3, 0x000739b0 thread_0
 1) backtrace 0x00040ed8 function worker2()
 /tmp/mdd/consume.cxx:393
 "            allocs[index].data.c    = malloc(size);"
"#;
    assert_eq!(text, expected);
}

#[test]
fn history() {
    let past = |block: Block, ended: Event| Past { block, ended };
    let live = vec![block(0x00097d78, 256, 272, event(0, MALLOC, 0, 1, 0x0004da74))];
    let ring = vec![
        past(
            block(0x001e6b08, 347, 368, event(100, MALLOC, 1, 6, 0x00040ed8)),
            event(258951, FREE, 4461, 6, 0x000409a4),
        ),
        past(
            block(0x00097e88, 131072, 131088, event(1, MALLOC, 0, 2, 0x000415b4)),
            event(263029, FREE, 4500, 2, 0x000415b4),
        ),
        past(
            block(0x00319270, 16, 32, event(223425, NEW_NOTHROW, 3851, 3, 0x00040f4c)),
            event(262000, DELETE, 4490, 3, 0x00040cb8),
        ),
        past(
            block(0x00156218, 16, 40, event(101, NEW_NOTHROW, 1, 5, 0x00040f4c)),
            event(258950, DELETE, 4461, 5, 0x00040cb8),
        ),
    ];
    let mut one = dump(live, ring);
    // the manual prints thread_0's name for threads 5 and 6, too
    for n in [4, 5] {
        one.threads[n] = one.threads[2].clone();
    }
    let files = [named("mddout.0", &one)];
    let text = shown(&["history", "-Fseqno_max=1"], &files, true)
        + &shown(&["history", "-Fseqno_min=223425", "-Fseqno_max=258951"], &files, true)
            .replace("Caution: history is incomplete.\n\n", "");
    let expected = r#"Caution: history is incomplete.

malloc() 256 bytes: 0x00097d78 , actual size 272 (+16), seqno 0, time 0
  By thread 1, 0x00075670 Idle Thread
  1) backtrace 0x0004da74 function Cyg_StdioStreamBuffer::set_buffer(unsigned, unsigned char*)
     /opt/ecos/packages/language/c/libc/stdio/current/src/common/streambuf.cxx:96
     "        malloced_buf = (cyg_uint8 * )malloc( size );"
malloc() 131072 bytes: 0x00097e88 (freed) , actual size 131088 (+16), seqno 1, time 0
  By thread 2, 0x00093af8 main
  1) backtrace 0x000415b4 function main
     /tmp/mdd/consume.cxx:575
     "    spare   = malloc(128 * 1024);"
new(nothrow) 16 bytes: 0x00319270 (freed) , actual size 32 (+16), seqno 223425, time 3851
  By thread 3, 0x000739b0 thread_0
  1) backtrace 0x00040f4c function worker2()
     /tmp//consume.cxx:409
     "            allocs[index].data.small    = new(std::nothrow) Small;"
delete 16 bytes: 0x00156218 , actual size 40 (+24), seqno 258950, time 4461
  By thread 5, 0x000739b0 thread_0
  1) backtrace 0x00040cb8 function worker1(int)
     /tmp/mdd/consume.cxx:251
     "        break;"
free() 347 bytes: 0x001e6b08 , actual size 368 (+21), seqno 258951, time 4461
  By thread 6, 0x000739b0 thread_0
  1) backtrace 0x000409a4 function worker1(int)
     /tmp/mdd/consume.cxx:216
     "            free(allocs[index].data.c);"
"#;
    assert_eq!(text, expected);
}

#[test]
fn history_backwards_in_a_format_of_ones_own() {
    let past = |ptr, size, made, ended| Past {
        block: block(ptr, size, size + 16, event(made, MALLOC, 0, 2, 0x000415b4)),
        ended: event(ended, FREE, 4500, 2, 0x000415b4),
    };
    let ring = vec![past(0x00302490, 11, 262001, 263028), past(0x00097e88, 131072, 1, 263029)];
    let live = vec![block(0x00182cc0, 128, 144, event(263027, NEW_NOTHROW, 4500, 2, 0x00040b78))];
    let files = [named("mddout.0", &dump(live, ring))];
    let text = shown(&["history", "-r", "-f", "%a %p, %n bytes, seqno %s"], &files, true);
    let expected = "\
Caution: history is incomplete.

free() 0x00097e88, 131072 bytes, seqno 263029
free() 0x00302490, 11 bytes, seqno 263028
new(nothrow) 0x00182cc0, 128 bytes, seqno 263027
malloc() 0x00302490, 11 bytes, seqno 262001
malloc() 0x00097e88, 131072 bytes, seqno 1
";
    assert_eq!(text, expected);
}

/// The two dumps of the manual's diff: so many blocks in both, so many in one only.
fn two(new: Vec<Block>, freed: Vec<Block>) -> [Named; 2] {
    let common = 2543 - 1391u64;
    let shared = filler(common, 5000, 20000, &[(MALLOC, common)]);
    let side = |mut own: Vec<Block>, count: u64, bytes: u64, from: u32| {
        let missing = count - own.len() as u64;
        let left = bytes - 5000 - own.iter().map(|b| b.size).sum::<u64>();
        own.extend((0..missing).map(|n| {
            let size = if n == 0 { left - (missing - 1) * 16 } else { 16 };
            block(0x40_0000 + n * 16, size, size + 16, event(from + n as u32, CALLOC, 0, 1, 0x40ed8))
        }));
        own.extend(shared.iter().cloned());
        dump(own, Vec::new())
    };
    let before = side(freed, 1391, 1532048, 20_000);
    let after = side(new, 1331, 1523769, 50_000);
    [named("mddout.1", &before), named("mddout.2", &after)]
}

const DIFF_HEAD: &str = "\
File mddout.1 : 1496K (1532048 bytes) used in 2543 allocations.
File mddout.2 : 1488K (1523769 bytes) used in 2483 allocations.
1331 new allocations in mddout.2 but not in mddout.1
1391 allocations in mddout.1 but freed in mddout.2

New allocations in mddout.2 but not in mddout.1
";

#[test]
fn diff() {
    let new = vec![
        block(0x000ba8a8, 228, 256, event(11001, NEW_ARRAY_NOTHROW, 214, 3, 0x00040fc0)),
        block(0x000ba9a8, 128, 144, event(11528, NEW_NOTHROW, 222, 5, 0x00040b78)),
    ];
    let freed = vec![
        block(0x000ba9a8, 128, 144, event(8213, NEW_NOTHROW, 162, 5, 0x00040b78)),
        block(0x000baa68, 128, 144, event(9539, NEW_NOTHROW, 185, 6, 0x00041028)),
    ];
    let files = two(new, freed);
    let text = shown(&["diff", "-Fseqno_min=5000", "-Fseqno_max=12000"], &files, true);
    let expected = r#"0x000ba8a8 : new(nothrow)[] 228 bytes, actual size 256 (+28), seqno 11001, time 214
  By thread 3, 0x000739b0 thread_0
  1) backtrace 0x00040fc0 function worker2()
     /tmp/mdd/consume.cxx:417
     "            allocs[index].data.smallv   = new(std::nothrow) Small[count];"
0x000ba9a8 : new(nothrow) 128 bytes, actual size 144 (+16), seqno 11528, time 222
  By thread 5, 0x00073af0 thread_2
  1) backtrace 0x00040b78 function worker1(int)
     /tmp/mdd/consume.cxx:296
     "            allocs[index].data.medium    = new(std::nothrow) Medium;"

Allocations in mddout.1 but freed in mddout.2
0x000ba9a8 : new(nothrow) 128 bytes, actual size 144 (+16), seqno 8213, time 162
  By thread 5, 0x00073af0 thread_2
  1) backtrace 0x00040b78 function worker1(int)
     /tmp/mdd/consume.cxx:296
     "            allocs[index].data.medium    = new(std::nothrow) Medium;"
0x000baa68 : new(nothrow) 128 bytes, actual size 144 (+16), seqno 9539, time 185
  By thread 6, 0x00073b90 thread_3
  1) backtrace 0x00041028 function worker2()
     /tmp/mdd/consume.cxx:424
     "            allocs[index].data.medium    = new(std::nothrow) Medium;"
"#;
    assert_eq!(text, format!("{DIFF_HEAD}{expected}"));
}

#[test]
fn diff_filtered_and_sorted() {
    let at = |ptr, size, seq, pc| block(ptr, size, size + 16, event(seq, MALLOC, 200, 3, pc));
    let new = vec![at(0x00273758, 19233, 11001, 0x00040ed8), at(0x0025d498, 19691, 11002, 0x00040c48)];
    let freed = vec![at(0x001a2bf8, 18085, 8000, 0x00040ed8), at(0x0025d498, 19858, 8001, 0x00040ed8)];
    let files = two(new, freed);
    let args = ["diff", "-Fsize_min=10240", "-Fptr_max=0x3fffff", "-f", "%n bytes at %p by %f1", "-SN"];
    let expected = "\
19691 bytes at 0x0025d498 by worker1(int)
19233 bytes at 0x00273758 by worker2()

Allocations in mddout.1 but freed in mddout.2
19858 bytes at 0x0025d498 by worker2()
18085 bytes at 0x001a2bf8 by worker2()
";
    assert_eq!(shown(&args, &files, true), format!("{DIFF_HEAD}{expected}"));
}

#[test]
fn inline_functions_of_headers_are_passed_over() {
    struct Inlined;
    impl Names for Inlined {
        fn places(&mut self, _: u64) -> Vec<Place> {
            let place =
                |f: &str, file: &str| Place { function: Some(f.into()), location: Some((file.into(), 1)) };
            vec![place("dick()", "/opt/include/harry.h"), place("tom()", "/src/tom.cxx")]
        }
        fn text(&mut self, _: &str, _: u32) -> Option<String> {
            None
        }
    }
    let function = |ignore: Option<&str>| names::place(&mut Inlined, 1, ignore).function.unwrap();
    assert_eq!(function(Some("*/include/*")), "tom()");
    assert_eq!(function(None), "dick()");
    assert_eq!(function(Some("*.cxx")), "dick()");
    assert_eq!(function(Some("*")), "dick()");
}

#[test]
fn what_lies_between_a_rust_program_and_its_allocator_is_passed_over() {
    struct Inlined;
    impl Names for Inlined {
        fn places(&mut self, pc: u64) -> Vec<Place> {
            let place = |f: &str, file: &str, line| Place {
                function: Some(f.into()),
                location: Some((file.into(), line)),
            };
            let library = "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/alloc/src";
            let all = vec![
                place("<highwater::mdd::Recorded<A> as core::alloc::GlobalAlloc>::alloc", "/x/mdd.rs", 1),
                place("__rustc::__rust_alloc", "/app/main.rs", 2),
                place("alloc::boxed::Box<T>::new", &format!("{library}/boxed.rs"), 3),
                place("app::work", "/app/library/main.rs", 4),
            ];
            if pc == 1 { all } else { all[2..3].to_vec() }
        }
        fn text(&mut self, _: &str, _: u32) -> Option<String> {
            None
        }
    }
    let line = |pc, ignore| names::place(&mut Inlined, pc, ignore).location.unwrap().1;
    assert_eq!(line(1, Some("*/include/*")), 4);
    assert_eq!(line(1, Some("*.h")), 4);
    assert_eq!(line(1, None), 1);
    assert_eq!(line(2, Some("*/include/*")), 3, "better than nothing");
}

#[test]
fn exit_statuses_and_messages() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mddout.0");
    let mut thin = first_three();
    thin.options.thread = false;
    thin.threads.clear();
    std::fs::write(&file, write::file(&thin)).unwrap();
    let file = file.to_str().unwrap();
    let status = |args: &[&str]| {
        let args: Vec<_> = args.iter().map(OsString::from).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        (run(&args, &mut out, &mut err), String::from_utf8(err).unwrap())
    };
    assert_eq!(status(&["stats", file]).0, 0);
    let (code, text) = status(&["dump", "-Fthread=1", file]);
    assert_eq!((code, text.contains(&format!("no thread information in {file}"))), (2, true));
    assert_eq!(status(&["dump", "/nowhere/mddout.0"]).0, 2);
    assert_eq!(status(&["dump", "-Q", file]).0, 2);
    let own = std::env::current_exe().unwrap();
    let (code, text) = status(&["dump", own.to_str().unwrap(), file]);
    assert!(code == 2 && text.contains("does not belong to"), "{text}");

    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    assert_eq!(run(&["stats".into(), file.into()], &mut Closed, &mut Vec::new()), 0);
    assert!(matches!(args::parse(&["--help".into()]).unwrap().command, Command::Help));
}
