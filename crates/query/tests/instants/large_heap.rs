//! Instants of a heap so large that its keyframes are read by a thread of their own.

use std::path::Path;

use highwater_event::api::ApiKind;
use highwater_event::codec::{Encoder, Record};
use highwater_query::{Session, SessionOptions};
use highwater_replay::{Options, Replay, Until};
use highwater_trace::model::{ClockPoint, End, EndedHow, EventBlock, Meta};
use highwater_trace::{Compression, Trace, Writer, WriterOptions};

use super::common::{Random, encode, session};

/// Blocks alive from then on: more than what one thread reads alone.
const BLOCKS: u64 = 160_000;
const EVENTS: u64 = 1_100_000;
const A_GROUP: u64 = 50_000;

/// One thread fills its heap and then moves a block at a time.
fn write(path: &Path) {
    let options = WriterOptions { compression: Compression::None, ..WriterOptions::default() };
    let mut writer = Writer::create(path, &Meta::default(), options).unwrap();
    writer.clock(ClockPoint { stamp: 0, ns: 0 }).unwrap();
    let (mut random, mut encoder) = (Random(5), Encoder::default());
    let addr = |place: u64, turn: u64| 0x7000_0000 + place * 0x200 + turn % 2 * 0x100;
    let mut turns = vec![0u64; BLOCKS as usize];
    let mut gone = None;
    let mut records = Vec::new();
    for stamp in 0..EVENTS {
        let place = if stamp < BLOCKS { stamp } else { gone.unwrap_or_else(|| random.below(BLOCKS)) };
        let turn = &mut turns[place as usize];
        let (node, ptr) = (1 + (place % 50) as u32, addr(place, *turn));
        let is_free = stamp >= BLOCKS && gone.is_none();
        records.push(match is_free {
            true => Record::Free { stamp, ptr, node: 0, api: ApiKind::Free },
            false => Record::Alloc {
                stamp,
                ptr,
                size: 16 + random.below(200),
                usable: None,
                node,
                api: ApiKind::Malloc,
                pair: false,
            },
        });
        *turn += u64::from(is_free);
        gone = is_free.then_some(place);
        if records.len() as u64 == A_GROUP || stamp == EVENTS - 1 {
            let (start, payload, events) = encode(&mut encoder, &records);
            writer.events(&EventBlock { thread: 0, events, start, payload: &payload }).unwrap();
            writer.end_epoch().unwrap();
            writer.flush().unwrap();
            records.clear();
        }
    }
    writer.finish(&End { how: EndedHow::Exit, ..End::default() }).unwrap();
}

#[test]
fn a_large_keyframe_read_by_a_thread_of_its_own_is_the_heap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.hwt");
    write(&path);
    Session::open(&path, SessionOptions::default()).unwrap().replay().unwrap();
    let trace = Trace::open(&path).unwrap();
    let entry = trace.entries_before(u64::MAX).next().expect("a keyframe");
    let about = trace.enter(&entry).unwrap().expect("a sound one").about();
    assert!(about >= 1 << 17, "{about} blocks are read by one thread");
    let until = Until::Seqno(entry.seqno + 12_345);
    let mut heap = Replay::new(Options::default());
    let mut steps = trace.steps();
    heap.go_on(until, || steps.next().map(|step| step.map(|step| (steps.epoch(), step)))).unwrap();
    heap.finish();
    let mut session = session(&path);
    assert_eq!(session.live_at(until).unwrap(), heap.live_set());
    let mut counted = session.replay_until(until).unwrap();
    counted.finish();
    assert_eq!(counted.outcome(), heap.outcome());
}
