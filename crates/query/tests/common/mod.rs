//! Traces of random programs.

use std::path::Path;

use highwater_event::api::ApiKind;
use highwater_event::codec::{Encoder, MAX_RECORD, Record, SpecialKind, State};
use highwater_query::{Modes, Session, SessionOptions};
use highwater_replay::evidence::{Collector, Slicing};
use highwater_replay::watch::Both;
use highwater_replay::{Additions, Feed, Options, Replay, Until};
use highwater_trace::model::{ClockPoint, End, EndedHow, EventBlock, Meta};
use highwater_trace::{Appended, Compression, Trace, Writer, WriterOptions};

/// Random numbers.
pub struct Random(pub u64);

impl Random {
    /// One below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % limit
    }
}

/// A thread that mostly keeps to its own addresses.
#[derive(Default)]
struct Worker {
    number: u64,
    encoder: Encoder,
    stamp: u64,
    live: Vec<u64>,
    /// A realloc that will turn out to have failed.
    undo: Option<u64>,
}

impl Worker {
    /// Its records of one epoch: addresses are reused; reallocs succeed, fail, and
    /// fail in the next epoch; now and then something is freed twice, in the middle,
    /// by another thread, or unseen.
    fn records(&mut self, random: &mut Random, count: u64) -> Vec<Record> {
        let mut records = Vec::new();
        for _ in 0..count {
            self.stamp += random.below(3);
            let stamp = self.stamp;
            let wild = random.below(400) == 0;
            let whose = if wild { random.below(3) } else { self.number };
            let node = random.below(6) as u32;
            let usable = (random.below(9) == 0).then_some(4096);
            let alloc = |ptr: u64, api, pair| Record::Alloc {
                stamp,
                ptr,
                size: ptr >> 4 & 0xff,
                usable,
                node,
                api,
                pair,
            };
            let free = |ptr, api| Record::Free { stamp, ptr, node, api };
            if let Some(addr) = self.undo.take() {
                let mut words = [0; 8];
                (words[0], words[1]) = (stamp, addr);
                records.push(Record::Special { kind: SpecialKind::ReallocUndo, len: 2, words });
            }
            let fresh = 0x10_0000 + (whose << 20) + random.below(60) * 0x110;
            let place = random.below(self.live.len().max(1) as u64) as usize;
            let held = self.live.get(place).copied().filter(|_| !wild);
            match (random.below(20), held) {
                (0..=9, _) if wild || !self.live.contains(&fresh) => {
                    records.push(alloc(
                        fresh,
                        [ApiKind::Malloc, ApiKind::New][fresh as usize >> 4 & 1],
                        false,
                    ));
                    self.live.push(fresh);
                }
                (10..=15, Some(addr)) => {
                    records.push(free(addr, [ApiKind::Free, ApiKind::Delete][addr as usize >> 4 & 1]));
                    self.live.swap_remove(place);
                }
                (16..=17, Some(addr)) => {
                    records.push(free(addr, ApiKind::ReallocFree));
                    records.push(alloc(addr, ApiKind::Realloc, true));
                }
                (18, Some(addr)) => {
                    records.push(free(addr, ApiKind::ReallocFree));
                    self.undo = Some(addr);
                }
                (_, None) if wild => records.push(free(fresh + random.below(2) * 8, ApiKind::Free)),
                _ => {}
            }
        }
        records
    }
}

/// The records of a block, with the state before them and the number of events.
pub fn encode(encoder: &mut Encoder, records: &[Record]) -> (State, Vec<u8>, u32) {
    let start = encoder.state;
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend_from_slice(encoder.record(record, &mut [0; MAX_RECORD]));
    }
    (start, bytes, records.iter().filter(|record| record.is_event()).count() as u32)
}

/// Writes a trace; the same seed makes the same events.
pub fn write(path: &Path, seed: u64, epochs: u64, threads: u32) {
    write_sample(path, seed, epochs, threads, 0);
}

/// The same as a sample with marks at this mean distance; 0 for none.
pub fn write_sample(path: &Path, seed: u64, epochs: u64, threads: u32, sample: u64) {
    let options = WriterOptions { compression: Compression::None, ..WriterOptions::default() };
    let mut meta = Meta::default();
    if sample > 0 {
        meta.options.push(format!("sample={sample}"));
    }
    let mut writer = Writer::create(path, &meta, options).unwrap();
    writer.clock(ClockPoint { stamp: 0, ns: 0 }).unwrap();
    writer.clock(ClockPoint { stamp: 1_000_000, ns: 700_000 }).unwrap();
    let mut random = Random(seed);
    let worker = |number| Worker { number, stamp: 1_000, ..Worker::default() };
    let mut workers: Vec<Worker> = (0..u64::from(threads)).map(worker).collect();
    for epoch in 0..epochs {
        for worker in &mut workers {
            let count = 40 + random.below(200);
            let records = worker.records(&mut random, count);
            let (start, payload, events) = encode(&mut worker.encoder, &records);
            let block = EventBlock { thread: worker.number as u32, events, start, payload: &payload };
            writer.events(&block).unwrap();
        }
        writer.end_epoch().unwrap();
        if epoch % 2 == 1 {
            writer.flush().unwrap();
        }
        // The next epoch is later.
        let latest = workers.iter().map(|worker| worker.stamp).max().unwrap_or(0);
        workers.iter_mut().for_each(|worker| worker.stamp = latest + 1);
    }
    writer.finish(&End { how: EndedHow::Exit, ..End::default() }).unwrap();
}

/// How a trace is replayed.
pub fn options(trace: &Trace) -> Options {
    Options { sample: Modes::of(trace.meta(), None).sample, ..Options::default() }
}

/// Appends keyframes at all group starts that have room, the outcome and the evidence.
pub fn extend(path: &Path) -> Appended {
    let trace = Trace::open(path).unwrap();
    let options = options(&trace);
    let mut additions = Additions::at_least_apart(&trace, &options, 1).expect("it has none");
    let mut heap = Replay::new(options);
    let mut collector = Collector::new(Slicing::Events);
    let mut both = Both(&mut additions, &mut collector);
    Feed::new(trace.steps()).go_on_watched(&mut heap, Until::End, 0, &mut both).unwrap();
    heap.finish();
    let evidence = collector.finish(&heap, true);
    additions.append(&trace, &heap, &heap.outcome(), evidence.as_ref())
}

/// Opens a trace and adds nothing to it.
pub fn session(path: &Path) -> Session {
    Session::open(path, SessionOptions { leave_alone: true, ..SessionOptions::default() }).unwrap()
}
