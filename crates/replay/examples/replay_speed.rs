//! How long a replay takes: events a second on a made-up heap, and bytes a live
//! block.
//!
//! `cargo run --release -p highwater-replay --example replay_speed [EVENTS] [LIVE]`
//!
//! The stream is made beforehand in pieces, and only the replay is timed.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use highwater_event::api::ApiKind;
use highwater_replay::{Options, Replay};
use highwater_trace::model::{Event, Op, Step};

/// Events made at a time.
const PIECE: usize = 1 << 12;

struct Heap {
    random: u64,
    seqno: u64,
    live: Vec<u64>,
    spare: Vec<u64>,
    top: u64,
    want: usize,
    full: bool,
}

impl Heap {
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn step(&mut self) -> Step {
        let random = self.random();
        // Fill the heap first, then keep it about as full.
        self.full |= self.live.len() >= self.want;
        let free = self.full && self.live.len() * 2 > self.want && random & 1 == 0;
        let thread = (random >> 8 & 3) as u32;
        let (op, api, addr) = if free {
            // Mostly the young die, as in most programs.
            let len = self.live.len();
            let young = (random >> 16) as usize % len.min(32) + 1;
            let at = if random & 0x700 == 0 { (random >> 20) as usize % len } else { len - young };
            let addr = self.live.swap_remove(at);
            self.spare.push(addr);
            (Op::Free, ApiKind::Free, addr)
        } else {
            let addr = self.spare.pop().unwrap_or_else(|| {
                self.top += 64;
                self.top
            });
            self.live.push(addr);
            let size = 1 << (random >> 40 & 7);
            (Op::Alloc { size, usable: None }, ApiKind::Malloc, addr)
        };
        let seqno = self.seqno;
        self.seqno += 1;
        let ns = seqno * 100;
        let node = (random >> 50 & 1023) as u32;
        Step::Event(Event { seqno, ns, stamp: ns, thread, op, api, addr, node, pair: None })
    }
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>().unwrap_or(0));
    let events = args.next().unwrap_or(10_000_000);
    let want = args.next().unwrap_or(100_000);
    let mut heap = Heap {
        random: 0x9e37_79b9_7f4a_7c15,
        seqno: 0,
        live: Vec::new(),
        spare: Vec::new(),
        top: 0x5555_0000_0000,
        want,
        full: false,
    };
    let mut replay = Replay::new(Options::default());
    let mut spent = Duration::ZERO;
    let mut made = 0;
    while made < events {
        let piece: Vec<Step> = (0..PIECE.min(events - made)).map(|_| heap.step()).collect();
        made += piece.len();
        let mut piece = piece.iter();
        let start = Instant::now();
        let mut next = || Ok::<_, Infallible>(piece.next().copied());
        while let Ok(Some(step)) = next() {
            replay.feed(&step);
        }
        spent += start.elapsed();
    }
    replay.finish();
    let totals = replay.totals();
    println!(
        "{} events in {:.3} s: {:.1} ns each, {:.3} s for 10 million",
        totals.events,
        spent.as_secs_f64(),
        spent.as_nanos() as f64 / totals.events as f64,
        spent.as_secs_f64() * 1e7 / totals.events as f64,
    );
    println!(
        "{} blocks live, {:.1} bytes each (lately freed ones included), peak {} bytes, {} repairs",
        totals.live_blocks,
        replay.table_bytes() as f64 / totals.live_blocks.max(1) as f64,
        totals.peak_bytes,
        totals.order_repairs,
    );
}
