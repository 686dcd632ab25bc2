//! What the tests of this crate share: random streams, encoded as an agent
//! does, and the merged order by brute force.
#![allow(dead_code)]

use std::path::Path;

use highwater_event::api::ApiKind;
use highwater_event::codec::{Encoder, MAX_RECORD, Record, SpecialKind, State};
use highwater_trace::model::*;
use highwater_trace::{Compression, Trace, Writer, WriterOptions};

pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Encodes records; state at the start, bytes, number of events.
pub fn encode(encoder: &mut Encoder, records: &[Record]) -> (State, Vec<u8>, u32) {
    let start = encoder.state;
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend_from_slice(encoder.record(record, &mut [0; MAX_RECORD]));
    }
    (start, bytes, records.iter().filter(|r| r.is_event()).count() as u32)
}

/// One run of one thread in one epoch.
#[derive(Clone, Debug)]
pub struct Run {
    pub thread: u32,
    pub records: Vec<Record>,
}

/// Epochs of runs.
pub type Story = Vec<Vec<Run>>;

/// A random program: `threads` threads, reallocs, specials, equal stamps, and
/// special records with stamps that go back.
pub fn story(seed: u64, epochs: usize, threads: u32, per_run: u64) -> Story {
    let mut rng = Rng(seed | 1);
    let mut stamps = vec![1_000u64; threads as usize];
    (0..epochs)
        .map(|_| {
            let mut runs = Vec::new();
            for _ in 0..rng.below(u64::from(threads) * 2 + 1) {
                let thread = rng.below(u64::from(threads)) as u32;
                let mut records = Vec::new();
                for _ in 0..rng.below(per_run) + 1 {
                    let stamp = &mut stamps[thread as usize];
                    *stamp += rng.below(4);
                    let stamp = *stamp;
                    let ptr = 0x5555_0000_0000 + rng.below(1 << 12) * 16;
                    let node = rng.below(50) as u32;
                    match rng.below(12) {
                        0..=4 => records.push(Record::Alloc {
                            stamp,
                            ptr,
                            size: rng.below(300),
                            usable: (rng.below(5) == 0).then_some(512),
                            node,
                            api: [ApiKind::Malloc, ApiKind::New, ApiKind::Calloc, ApiKind::PosixMemalign]
                                [rng.below(4) as usize],
                            pair: false,
                        }),
                        5..=8 => records.push(Record::Free { stamp, ptr, node: 0, api: ApiKind::Free }),
                        9 => records.push(Record::Free { stamp, ptr, node, api: ApiKind::ReallocFree }),
                        10 => records.push(Record::Alloc {
                            stamp,
                            ptr,
                            size: 77,
                            usable: None,
                            node,
                            api: ApiKind::Realloc,
                            pair: true,
                        }),
                        _ => {
                            let mut words = [0; 8];
                            (words[0], words[1]) = (stamp.saturating_sub(rng.below(9)), ptr);
                            let kind =
                                [SpecialKind::ReallocUndo, SpecialKind::Stalled][rng.below(2) as usize];
                            records.push(Record::Special { kind, len: 2, words });
                        }
                    }
                }
                runs.push(Run { thread, records });
            }
            runs
        })
        .collect()
}

pub fn meta() -> Meta {
    Meta { writer: "test".into(), args: vec!["prog".into(), "ü".into()], wall_ns: 5, ..Meta::default() }
}

pub fn options(compression: Compression) -> WriterOptions {
    WriterOptions { compression, ..WriterOptions::default() }
}

/// Writes a story, with definitions, flushing after the epochs that `flush` names.
pub fn write(path: &Path, story: &Story, options: WriterOptions, flush: impl Fn(usize) -> bool) -> u64 {
    let mut writer = Writer::create(path, &meta(), options).expect("create");
    writer.clock(ClockPoint { stamp: 1_000, ns: 0 }).expect("clock");
    writer.clock(ClockPoint { stamp: 2_000, ns: 500 }).expect("clock");
    let nodes: Vec<NodeDef> =
        (1..50).map(|id| NodeDef { id, parent: id / 2, pc: 0x1000 + u64::from(id) * 4, module: 0 }).collect();
    writer.nodes(&nodes).expect("nodes");
    let mut encoders = vec![Encoder::default(); 64];
    for (epoch, runs) in story.iter().enumerate() {
        for run in runs {
            let (start, payload, events) = encode(&mut encoders[run.thread as usize], &run.records);
            let block = EventBlock { thread: run.thread, events, start, payload: &payload };
            writer.events(&block).expect("events");
        }
        writer.mark(&Mark { ns: epoch as u64, name: format!("epoch {epoch}") }).expect("mark");
        writer.end_epoch().expect("end_epoch");
        if flush(epoch) {
            writer.flush().expect("flush");
        }
    }
    writer.finish(&End { how: EndedHow::Exit, code: 3, ..End::default() }).expect("finish")
}

/// The merged order by brute force: a stable sort an epoch.
pub fn expected(story: &Story) -> Vec<(u32, u64, Record)> {
    let mut all = Vec::new();
    for runs in story {
        let mut epoch: Vec<(u64, u32, Record)> = Vec::new();
        for thread in 0..64 {
            let mut floor = 0;
            for record in runs.iter().filter(|run| run.thread == thread).flat_map(|run| &run.records) {
                floor = record.stamp().max(floor);
                epoch.push((floor, thread, *record));
            }
        }
        epoch.sort_by_key(|&(stamp, thread, _)| (stamp, thread));
        all.extend(epoch.into_iter().map(|(stamp, thread, record)| (thread, stamp, record)));
    }
    all
}

/// The steps that [`expected`] stands for, as the reader should give them.
pub fn expected_steps(story: &Story, trace: &Trace) -> Vec<Step> {
    let mut latest = std::collections::HashMap::new();
    let mut seqno = 0;
    expected(story)
        .into_iter()
        .map(|(thread, effective, record)| {
            let ns = trace.to_ns(effective);
            let event = |op, api, addr, node, stamp, pair| {
                Step::Event(Event { seqno, ns, stamp, thread, op, api, addr, node, pair })
            };
            let step = match record {
                Record::Alloc { stamp, ptr, size, usable, node, api, pair } => {
                    let pair = if pair { latest.get(&thread).copied() } else { None };
                    event(Op::Alloc { size, usable }, api, ptr, node, stamp, pair)
                }
                Record::Free { stamp, ptr, node, api } => {
                    let own = (api == ApiKind::ReallocFree).then_some(seqno);
                    if own.is_some() {
                        latest.insert(thread, seqno);
                    }
                    event(Op::Free, api, ptr, node, stamp, own)
                }
                Record::Special { kind, words, .. } => {
                    let what = match kind {
                        SpecialKind::ReallocUndo => {
                            Special::ReallocUndo { free_seqno: latest.get(&thread).copied(), addr: words[1] }
                        }
                        _ => Special::Stalled { ns: words[1] },
                    };
                    Step::Special { ns, thread, what }
                }
            };
            seqno += u64::from(record.is_event());
            step
        })
        .collect()
}

pub fn all_steps(trace: &Trace) -> Vec<Step> {
    let mut steps = trace.steps();
    let mut all = Vec::new();
    while let Some(step) = steps.next().expect("read") {
        all.push(step);
    }
    all
}

/// All steps by [`highwater_trace::Steps::next_batch`], at most `most` events at a time,
/// each with its epoch.
pub fn all_in_batches(trace: &Trace, most: usize) -> Vec<(u32, Step)> {
    let mut steps = trace.steps();
    let mut batch = highwater_trace::Batch::default();
    let mut all = Vec::new();
    while steps.next_batch(&mut batch, most).expect("read") {
        assert!(batch.events.len() <= most);
        for (seqno, brief) in (batch.seqno..).zip(&batch.events) {
            let highwater_trace::Brief { ns, stamp, addr, size, node, thread, api, paired } = *brief;
            let op = if api.is_free() { Op::Free } else { Op::Alloc { size, usable: None } };
            let pair = paired.then_some(u64::MAX);
            all.push((
                batch.epoch,
                Step::Event(Event { seqno, ns, stamp, thread, op, api, addr, node, pair }),
            ));
        }
        all.extend(batch.last.map(|step| (batch.epoch, step)));
    }
    all
}

/// A step as a batch tells it: that it is the second half of a realloc, not of which.
pub fn brief(step: &Step) -> Step {
    let mut step = *step;
    if let Step::Event(event) = &mut step
        && !matches!(event.op, Op::Alloc { usable: Some(_), .. })
    {
        event.pair = event.pair.filter(|_| event.op != Op::Free).map(|_| u64::MAX);
    }
    step
}
