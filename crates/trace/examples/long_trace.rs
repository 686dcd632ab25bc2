//! Makes a long trace for `cargo xtask bench-query`:
//! `cargo run --release -p highwater-trace --example long_trace EVENTS FILE`.
//!
//! Four threads on one heap, an event about every 100 ns, 2,000 call sites under
//! six frames of which 24 make three quarters of the blocks, 300 sites that free,
//! sizes that belong to the site. Of the blocks 85 % die among the next dozens,
//! 12 % among the next thousands, the rest at random out of a set of EVENTS / 100
//! that is filled first. Addresses are used again, last in first out; one free in
//! 32 is another thread's, one block in 50 is moved by realloc. The same EVENTS
//! make the same trace.

use std::error::Error;

use highwater_event::api::ApiKind;
use highwater_event::codec::{Encoder, MAX_RECORD, Record, State};
use highwater_trace::model::{
    ClockPoint, End, EndedHow, EventBlock, Meta, NameDef, NameFrame, NodeDef, ThreadDef,
};
use highwater_trace::{Writer, WriterOptions};

const THREADS: usize = 4;
/// Children of a node, from the outermost frame inwards; the product is the number of sites.
const FANS: [u32; 6] = [1, 4, 5, 5, 5, 4];
/// The first nodes of sites: behind the 631 nodes of the frames above.
const FIRST_SITE: u32 = 632;
const SITES: u32 = 2_000;
const FREE_SITES: u32 = 300;
const EPOCH: u64 = 1 << 16;
/// Size classes of 16 bytes.
const CLASSES: usize = 256;
const NS_PER_EVENT: u64 = 100;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit.max(1)
    }
}

#[derive(Clone, Copy)]
struct Block {
    addr: u64,
    size: u64,
    /// What gives it back.
    freed_by: ApiKind,
}

impl Block {
    fn class(self) -> usize {
        class(self.size)
    }
}

fn class(size: u64) -> usize {
    (size as usize + 8).div_ceil(16).min(CLASSES - 1)
}

/// What a thread has put into this epoch.
struct Stream {
    encoder: Encoder,
    start: State,
    bytes: Vec<u8>,
    events: u32,
}

impl Stream {
    fn push(&mut self, record: &Record) {
        self.bytes.extend_from_slice(self.encoder.record(record, &mut [0; MAX_RECORD]));
        self.events += 1;
    }
}

struct Heap {
    random: Random,
    writer: Writer,
    streams: Vec<Stream>,
    sizes: Vec<u64>,
    spare: Vec<Vec<u64>>,
    top: u64,
    stamp: u64,
    events: u64,
    in_epoch: u64,
    thread: usize,
}

impl Heap {
    fn tick(&mut self) {
        self.stamp += NS_PER_EVENT / 2 + self.random.next() % NS_PER_EVENT;
        self.events += 1;
        self.in_epoch += 1;
    }

    fn address(&mut self, size: u64) -> u64 {
        let class = class(size);
        self.spare[class].pop().unwrap_or_else(|| {
            self.top += (class as u64 + 1) * 16;
            self.top - class as u64 * 16
        })
    }

    fn put_alloc(&mut self, block: Block, site: u32, api: ApiKind, pair: bool) {
        self.tick();
        let (stamp, ptr, size, node) = (self.stamp, block.addr, block.size, FIRST_SITE + site);
        self.streams[self.thread].push(&Record::Alloc { stamp, ptr, size, usable: None, node, api, pair });
    }

    fn put_free(&mut self, thread: usize, block: Block, site: u32, api: ApiKind) {
        self.tick();
        let (stamp, ptr, node) = (self.stamp, block.addr, FIRST_SITE + site);
        self.streams[thread].push(&Record::Free { stamp, ptr, node, api });
        self.spare[block.class()].push(block.addr);
    }

    fn alloc(&mut self) -> Block {
        let hot = self.random.below(4) < 3;
        let site = self.random.below(if hot { 24 } else { SITES as usize }) as u32;
        let size = self.sizes[site as usize];
        let (api, freed_by) = [
            (ApiKind::Malloc, ApiKind::Free),
            (ApiKind::New, ApiKind::Delete),
            (ApiKind::Calloc, ApiKind::Free),
        ][site as usize % 3];
        let block = Block { addr: self.address(size), size, freed_by };
        self.put_alloc(block, site, api, false);
        block
    }

    /// Gives a block back; mostly on the thread that runs.
    fn free(&mut self, block: Block) {
        let other = self.random.below(32) == 0;
        let thread = if other { self.random.below(THREADS) } else { self.thread };
        let site = SITES + (block.class() as u32 * 7 + self.random.below(4) as u32) % FREE_SITES;
        self.put_free(thread, block, site, block.freed_by);
    }

    /// The block at another place, half as large again.
    fn realloc(&mut self, block: Block) -> Block {
        let site = (block.size % u64::from(SITES)) as u32;
        self.put_free(self.thread, block, site, ApiKind::ReallocFree);
        let size = (block.size + block.size / 2).min(4_000);
        let moved = Block { addr: self.address(size), size, freed_by: ApiKind::Free };
        self.put_alloc(moved, site, ApiKind::Realloc, true);
        moved
    }

    fn end_epoch(&mut self) -> Result<(), Box<dyn Error>> {
        for (thread, stream) in (0u32..).zip(&mut self.streams) {
            if stream.events > 0 {
                let (events, start) = (stream.events, stream.start);
                self.writer.events(&EventBlock { thread, events, start, payload: &stream.bytes })?;
            }
            stream.start = stream.encoder.state;
            stream.bytes.clear();
            stream.events = 0;
        }
        self.in_epoch = 0;
        Ok(self.writer.end_epoch()?)
    }

    fn run(&mut self, events: u64) -> Result<(), Box<dyn Error>> {
        let want = (events / 100) as usize;
        let mut old: Vec<Block> = Vec::with_capacity(want);
        let mut groups: [(usize, Vec<Option<Block>>); 2] = [(85, vec![None; 64]), (97, vec![None; 4096])];
        while self.events < events {
            if self.random.below(8) == 0 {
                self.thread = self.random.below(THREADS);
            }
            let block = self.alloc();
            let age = self.random.below(100);
            if let Some((_, group)) = groups.iter_mut().find(|(up_to, _)| age < *up_to) {
                let at = self.random.below(group.len());
                if let Some(dead) = group[at].replace(block) {
                    if dead.freed_by == ApiKind::Free && self.random.below(50) == 0 {
                        let moved = self.realloc(dead);
                        self.free(moved);
                    } else {
                        self.free(dead);
                    }
                }
            } else if old.len() < want {
                old.push(block);
                // Programs read their data first: the set is full after a few percent.
                for _ in 0..24.min(want - old.len()) {
                    let more = self.alloc();
                    old.push(more);
                }
            } else {
                let at = self.random.below(old.len());
                if let Some(slot) = old.get_mut(at) {
                    let dead = std::mem::replace(slot, block);
                    self.free(dead);
                }
            }
            if self.in_epoch >= EPOCH {
                self.end_epoch()?;
            }
        }
        self.end_epoch()
    }
}

/// The tree of frames: `FANS`, then the sites that free under the outermost frame.
fn nodes() -> (Vec<NodeDef>, Vec<NameDef>) {
    let (mut nodes, mut names) = (Vec::new(), Vec::new());
    let mut add = |parent: u32, depth: usize| {
        let id = nodes.len() as u32 + 1;
        let pc = 0x40_0000 + u64::from(id) * 16;
        nodes.push(NodeDef { id, parent, pc, module: highwater_trace::model::Node::NO_MODULE });
        let frame = NameFrame {
            function: format!("level{depth}_{id}"),
            file: format!("made/up{}.c", id % 50),
            line: id,
            ..NameFrame::default()
        };
        names.push(NameDef { module: highwater_trace::model::Node::NO_MODULE, pc, frames: vec![frame] });
        id
    };
    let mut row = vec![0];
    for (depth, fan) in FANS.into_iter().enumerate() {
        row = row.iter().flat_map(|&parent| (0..fan).map(move |_| parent)).map(|p| add(p, depth)).collect();
    }
    for _ in 0..FREE_SITES {
        add(1, FANS.len());
    }
    (nodes, names)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [events, file] = args.as_slice() else { return Err("usage: long_trace EVENTS FILE".into()) };
    let events: u64 = events.parse()?;
    let meta = Meta {
        writer: "long_trace".into(),
        exe: "made-up".into(),
        arch: "x86_64".into(),
        page_size: 4096,
        stamp_kind: "ns".into(),
        ..Meta::default()
    };
    let options = WriterOptions { overwrite: true, ..WriterOptions::default() };
    let mut writer = Writer::create(file, &meta, options)?;
    writer.clock(ClockPoint { stamp: 0, ns: 0 })?;
    writer.clock(ClockPoint { stamp: 1_000_000_000, ns: 1_000_000_000 })?;
    for thread in 0..THREADS as u32 {
        writer.thread(&ThreadDef { thread, tid: 100 + thread, name: format!("made{thread}"), start: 0 })?;
    }
    let (nodes, names) = nodes();
    writer.nodes(&nodes)?;
    writer.names(&names)?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let sizes = (0..SITES).map(|_| 8 + random.next() % (1 << (4 + random.next() % 8))).collect();
    let stream =
        || Stream { encoder: Encoder::default(), start: State::default(), bytes: Vec::new(), events: 0 };
    let mut heap = Heap {
        random,
        writer,
        streams: (0..THREADS).map(|_| stream()).collect(),
        sizes,
        spare: vec![Vec::new(); CLASSES],
        top: 0x5555_0000_0000,
        stamp: 0,
        events: 0,
        in_epoch: 0,
        thread: 0,
    };
    heap.run(events)?;
    let (made, ns) = (heap.events, heap.stamp);
    let end = End { how: EndedHow::Exit, duration_ns: ns, ..End::default() };
    let bytes = heap.writer.finish(&end)?;
    println!("{made} events, {ns} ns, {bytes} bytes");
    Ok(())
}
