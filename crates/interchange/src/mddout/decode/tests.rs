use proptest::prelude::*;

use super::*;
use crate::mddout::{parse, write};

fn events(options: Options, next: u32) -> impl Strategy<Value = Event> {
    (0..next.max(1), 0u8..70, 0u8..3, any::<u32>(), prop::collection::vec(any::<u32>(), 8)).prop_map(
        move |(seq, kind, thread, time, pcs)| Event {
            seq,
            kind,
            thread: (options.thread && thread > 0).then_some(u32::from(thread)),
            flags: 0,
            time: options.time.then_some(time.into()),
            backtrace: pcs.into_iter().take(options.backtrace.into()).map(u64::from).collect(),
        },
    )
}

prop_compose! {
    fn all_options()(actual: bool, time: bool, thread: bool, history: bool, backtrace in 0u8..=8, checksum: bool) -> Options {
        Options { actual, time, thread, history, backtrace, checksum, unwind: Unwind::ReturnAddress, guards: false }
    }
}

/// A dump of any option set, word size and byte order, whose counts fit.
fn dumps() -> impl Strategy<Value = Dump> {
    (all_options(), any::<bool>(), any::<bool>(), 0usize..20, 0usize..20).prop_flat_map(
        |(options, big, wide, live, past)| {
            let n = (live + past + 1) as u32 * 2;
            (
                prop::collection::vec(events(options, n), live + past * 2),
                Just((options, big, wide, live, past)),
            )
                .prop_map(|(mut events, (options, big, wide, live, past))| {
                    let mut dump = write::sample();
                    dump.options = options;
                    dump.abi = Abi { big, word: if wide { 8 } else { 4 } };
                    if !options.thread {
                        dump.threads.clear();
                    }
                    for (n, e) in events.iter_mut().enumerate() {
                        e.seq = n as u32;
                    }
                    let mut events = events.into_iter();
                    let block = |n: usize, made| Block {
                        ptr: 0x2000_0000 + 16 * n as u64,
                        size: 3 * n as u64,
                        actual: options.actual.then_some(4 * n as u64),
                        made,
                    };
                    dump.live = events.by_ref().take(live).enumerate().map(|(n, e)| block(n, e)).collect();
                    dump.history.clear();
                    while let (Some(made), Some(ended)) = (events.next(), events.next()) {
                        dump.history.push(Past { block: block(dump.history.len(), made), ended });
                    }
                    dump.live_capacity = live as u32 + 1;
                    dump.history_capacity = past as u32;
                    let bytes = dump.live_bytes();
                    let c = &mut dump.counters;
                    (c.allocs, c.frees) = ((live + past) as u32, past as u32);
                    c.next_seq = (live + 2 * past) as u32;
                    c.cur_bytes = bytes;
                    if !options.history {
                        dump.history.clear();
                        dump.history_capacity = 0;
                    }
                    dump
                })
        },
    )
}

proptest! {
    #[test]
    fn every_option_set_word_size_and_byte_order(dump in dumps()) {
        prop_assert_eq!(parse(&write::file(&dump)).unwrap(), dump.clone());
        let memory = write::memory(&dump, dump.self_addr - 128);
        prop_assert_eq!(parse(&memory).unwrap(), dump);
    }

    #[test]
    fn a_file_cut_anywhere_gives_its_whole_records_and_says_so(dump in dumps(), at in 0.0f64..1.0) {
        let bytes = write::file(&dump);
        let cut = (bytes.len() as f64 * at) as usize;
        match parse(&bytes[..cut]) {
            Err(_) => prop_assert!(cut < 600),
            Ok(found) => {
                prop_assert!(found.is_damaged());
                prop_assert!(found.live.iter().zip(&dump.live).all(|(a, b)| (a.ptr, a.size) == (b.ptr, b.size)));
                prop_assert!(found.live.len() <= dump.live.len() && found.history.len() <= dump.history.len());
            }
        }
    }

    #[test]
    fn damage_never_panics(dump in dumps(), hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9)) {
        let mut bytes = write::file(&dump);
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(found) = parse(&bytes) {
            let _ = crate::mddout::merge::merge(&[found]);
        }
    }

    #[test]
    fn a_changed_bit_of_a_live_record_is_noticed(dump in dumps(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        prop_assume!(dump.options.checksum && !dump.live.is_empty());
        let mut bytes = write::file(&dump);
        let header = Header::parse(&bytes).unwrap();
        let mut from = header.size;
        for s in &header.sections {
            if s.kind == section::LIVE {
                let hit = from + at.index(s.bytes() as usize);
                bytes[hit] ^= 1 << bit;
                break;
            }
            from += s.bytes() as usize;
        }
        prop_assert!(parse(&bytes).unwrap().is_damaged());
    }
}

#[test]
fn a_dump_of_the_middle_of_an_update_keeps_what_can_be() {
    let mut dump = write::sample();
    dump.busy = true;
    // the record that is being written: a number not given out yet, a doubled address
    let mut half = dump.live[1].clone();
    half.made.seq = 4;
    dump.live.push(half);
    let found = parse(&write::file(&dump)).unwrap();
    assert_eq!(found.live, dump.live[..2]);
    assert_eq!(found.problems[0], Problem::Busy);
    assert!(matches!(found.problems[1], Problem::Dropped { count: 1, .. }));
}

#[test]
fn of_two_records_of_one_address_the_newer_is_true() {
    let mut dump = write::sample();
    dump.live[0].ptr = dump.live[1].ptr;
    let found = parse(&write::file(&dump)).unwrap();
    assert_eq!(found.live, dump.live[1..]);
    assert!(found.is_damaged());
}

#[test]
fn counts_that_do_not_fit_are_told() {
    let mut dump = write::sample();
    dump.counters.frees = 2;
    dump.counters.lost = 5;
    let found = parse(&write::file(&dump)).unwrap();
    assert_eq!(found.problems, [Problem::Count { counted: 1, found: 2 }, Problem::Lost(5)]);
    dump.counters = write::sample().counters;
    dump.counters.cur_bytes = 31;
    assert_eq!(parse(&write::file(&dump)).unwrap().problems, [Problem::Bytes { counted: 31, found: 30 }]);
}

#[test]
fn a_trailer_of_the_target_is_checked() {
    let dump = write::sample();
    let mut bytes = write::file(&dump);
    let (len, crc) = (bytes.len() as u32, crc32fast::hash(&bytes));
    bytes.extend(crate::mddout::layout::TRAILER);
    bytes.extend(len.to_le_bytes());
    bytes.extend(crc.to_le_bytes());
    assert_eq!(parse(&bytes).unwrap(), dump);
    bytes[60] ^= 1; // the run id, which nothing else protects
    assert_eq!(parse(&bytes).unwrap().problems, [Problem::Trailer]);
}

#[test]
fn a_thread_that_is_not_in_the_table_is_unknown() {
    let mut dump = write::sample();
    dump.live[0].made.thread = Some(9);
    let found = parse(&write::file(&dump)).unwrap();
    assert_eq!(found.live[0].made.thread, None);
    assert_eq!(found.problems, [Problem::Threads(1)]);
}

#[test]
fn unknown_sections_and_fields_are_skipped() {
    let dump = write::sample();
    let bytes = write::file(&dump);
    let mut raw = crate::mddout::raw::split(&bytes).unwrap();
    raw.header.sections.insert(
        0,
        crate::mddout::layout::Section { kind: 77, entry_size: 5, count: 2, capacity: 2, addr: 0x99 },
    );
    raw.sections.insert(0, b"0123456789");
    let header = raw.header.to_bytes();
    let mut file = header;
    raw.sections.iter().for_each(|s| file.extend_from_slice(s));
    assert_eq!(parse(&file).unwrap(), dump);
}
