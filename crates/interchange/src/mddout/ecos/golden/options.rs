//! Every option, every key and every conversion of the manual's "Standard Options".

use super::*;

/// Four blocks that each key puts into an order of its own.
fn four() -> Named {
    let block = |ptr, size, seq, kind, thread| {
        block(ptr, size, size + 16, event(seq, kind, 10 * u64::from(seq), thread, 0x40ed8))
    };
    let live = vec![
        block(0x1000, 40, 3, NEW_NOTHROW, 2),
        block(0x2000, 10, 4, MALLOC, 3),
        block(0x3000, 30, 1, REALLOC, 2),
        block(0x4000, 10, 2, CALLOC, 1),
    ];
    named("mddout.0", &dump(live, Vec::new()))
}

/// The seqnos that a command line shows, in its order.
fn seqnos(options: &[&str]) -> Vec<u32> {
    let args: Vec<&str> = ["dump", "-f", "%s"].iter().chain(options).copied().collect();
    shown(&args, &[four()], false).lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn every_sort_key_and_its_inverse() {
    for (keys, order) in [
        ("p", [3, 4, 1, 2]),
        ("P", [2, 1, 4, 3]),
        // What is equal comes by its number.
        ("n", [2, 4, 1, 3]),
        ("N", [3, 1, 2, 4]),
        ("s", [1, 2, 3, 4]),
        ("S", [4, 3, 2, 1]),
        // malloc, calloc, realloc, new(nothrow)
        ("a", [4, 2, 1, 3]),
        ("t", [2, 1, 3, 4]),
        ("T", [4, 1, 3, 2]),
        ("nP", [2, 4, 1, 3]),
        ("np", [4, 2, 1, 3]),
        ("tN", [2, 3, 1, 4]),
        ("TnS", [4, 1, 3, 2]),
    ] {
        assert_eq!(seqnos(&[&format!("-S{keys}")]), order, "-S{keys}");
        assert_eq!(seqnos(&["-S", keys]), order, "-S {keys}");
    }
    assert_eq!(seqnos(&[]), [3, 4, 1, 2], "by address where nothing is said");
}

#[test]
fn every_filter_with_both_bounds_and_several_together() {
    for (filters, left) in [
        (&["thread=2"][..], &[3, 1][..]),
        (&["size_min=30"], &[3, 1]),
        (&["size_max=30"], &[4, 1, 2]),
        (&["seqno_min=3"], &[3, 4]),
        (&["seqno_max=3"], &[3, 1, 2]),
        (&["time_min=20"], &[3, 4, 2]),
        (&["time_max=20"], &[1, 2]),
        (&["ptr_min=0x2000"], &[4, 1, 2]),
        (&["ptr_max=0x2000"], &[3, 4]),
        (&["thread=2", "size_min=31"], &[3]),
        (&["size_min=10", "size_max=10", "time_max=20"], &[2]),
        (&["thread=9"], &[]),
    ] {
        let options: Vec<String> = filters.iter().map(|filter| format!("-F{filter}")).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        assert_eq!(seqnos(&options), left, "{filters:?}");
    }
}

#[test]
fn every_conversion_up_to_the_eighth_level() {
    let sites: Vec<u64> = SITES.iter().take(8).map(|site| site.0).collect();
    let mut deep = dump(
        vec![block(0x00097d78, 256, 272, Event { backtrace: sites, ..event(7, MALLOC, 42, 3, 0) })],
        Vec::new(),
    );
    deep.options.backtrace = 8;
    let files = [named("mddout.0", &deep)];
    let format = "100%% %p|%n|%m|%o|%s|%a|%T|%t|%h|%N";
    assert_eq!(
        shown(&["dump", "-f", format], &files, false),
        "100% 0x00097d78|256|272|16|7|malloc()|42|3|0x000739b0|thread_0\n"
    );
    for (level, site) in (1..=8).zip(SITES) {
        let format = format!("%b{level}#%f{level}#%w{level}#%l{level}");
        let expected = format!("{:#010x}#{}#{}:{}#{}\n", site.0, site.1, site.2, site.3, site.4);
        assert_eq!(shown(&["dump", "-f", &format], &files, true), expected);
    }
    // The usual layout has a block of lines for each level.
    let usual = shown(&["dump"], &files, true);
    assert_eq!(usual.lines().count(), 2 + 8 * 3);
    assert!(
        usual.contains("\n  8) backtrace 0x00040fc0 function worker2()\n     /tmp/mdd/consume.cxx:417\n"),
        "{usual}"
    );
}

/// Calls that are inlined: two of headers into one of a source file.
struct Inlined;

impl Names for Inlined {
    fn places(&mut self, _: u64) -> Vec<Place> {
        let place = |function: &str, file: &str| Place {
            function: Some(function.into()),
            location: Some((file.into(), 1)),
        };
        vec![
            place("dick()", "/opt/include/harry.h"),
            place("dora()", "/src/dora.h"),
            place("tom()", "/src/tom.cxx"),
        ]
    }
    fn text(&mut self, _: &str, _: u32) -> Option<String> {
        None
    }
}

#[test]
fn inline_functions_of_ignored_files_are_passed_over_on_the_command_line() {
    let files = [four()];
    let function = |options: &[&str]| {
        let args = ["dump", "-f", "%f1"].iter().chain(options).chain(&["-Fseqno_max=1", "mddout.0"]);
        let options = args::parse(&args.map(OsString::from).collect::<Vec<_>>()).unwrap();
        let mut out = Vec::new();
        show(&options, &files, Some(&mut Inlined as &mut dyn Names), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(function(&[]), "dora()\n");
    assert_eq!(function(&["-n"]), "dick()\n");
    assert_eq!(function(&["-I*.h"]), "tom()\n");
    assert_eq!(function(&["-I", "*.h", "-Adeepthought-elf", "-A", "arm-elf"]), "tom()\n");
}

#[test]
fn a_history_of_several_files_takes_rings_from_all_and_blocks_from_the_last() {
    let past = |ptr, made, ended| Past {
        block: block(ptr, 8, 24, event(made, MALLOC, 0, 2, 0x000415b4)),
        ended: event(ended, FREE, 1, 2, 0x000415b4),
    };
    let live = |seq, ptr| block(ptr, 9, 25, event(seq, NEW_NOTHROW, 0, 2, 0x00040b78));
    // All that the target ever did, so that its counts fit its records.
    let of = |next: u32, live: Vec<Block>, ring: Vec<Past>| {
        let frees = (next - live.len() as u32) / 2;
        let cur_bytes = live.iter().map(|block| block.size).sum();
        let mut dump = dump(live, ring);
        dump.counters =
            Counters { next_seq: next, allocs: next - frees, frees, cur_bytes, ..Counters::default() };
        dump
    };
    // 0 is freed by 2, 1 by 4, 3 stays.
    let files = [
        named("mddout.0", &of(3, vec![live(1, 0x20)], vec![past(0x10, 0, 2)])),
        named("mddout.1", &of(5, vec![live(3, 0x30)], vec![past(0x20, 1, 4)])),
    ];
    let expected = "malloc() 0x00000010 0\nmalloc() 0x00000020 1\nfree() 0x00000010 2\n\
                    new(nothrow) 0x00000030 3\nfree() 0x00000020 4\n";
    let args = ["history", "-f", "%a %p %s"];
    assert_eq!(shown(&args, &files, false), expected);
    let backwards: String = expected.lines().rev().map(|line| format!("{line}\n")).collect();
    assert_eq!(shown(&["history", "-r", "-f", "%a %p %s"], &files, false), backwards);
    // The last alone lacks what only the first has.
    let last = shown(&args, &files[1..], false);
    assert!(last.starts_with("Caution: history is incomplete.\n\nmalloc() 0x00000020 1\n"), "{last}");
}

#[test]
fn a_diff_takes_the_standard_options_and_counts_before_they_filter() {
    let at = |ptr, size, seq| block(ptr, size, size + 16, event(seq, MALLOC, 0, 1, 0x40ed8));
    let kept = at(0x100, 1, 1);
    let before = dump(vec![kept.clone(), at(0x300, 30, 2), at(0x200, 20, 3)], Vec::new());
    let after = dump(vec![kept, at(0x300, 31, 6), at(0x200, 22, 5)], Vec::new());
    let files = [named("a", &before), named("b", &after)];
    let text = |options: &[&str]| {
        let args: Vec<&str> = ["diff", "-f", "%p %n %s"].iter().chain(options).copied().collect();
        shown(&args, &files, false)
    };
    let head = "File a : 0K (51 bytes) used in 3 allocations.\nFile b : 0K (54 bytes) used in 3 allocations.\n\
                2 new allocations in b but not in a\n2 allocations in a but freed in b\n\n\
                New allocations in b but not in a\n";
    let (new, freed) = ("0x00000200 22 5\n0x00000300 31 6\n", "0x00000200 20 3\n0x00000300 30 2\n");
    let middle = "\nAllocations in a but freed in b\n";
    assert_eq!(text(&[]), format!("{head}{new}{middle}{freed}"));
    assert_eq!(
        text(&["-SN", "-Fsize_min=22", "-n", "-I*.h", "-Aarm-elf"]),
        format!("{head}0x00000300 31 6\n0x00000200 22 5\n{middle}0x00000300 30 2\n")
    );
}
