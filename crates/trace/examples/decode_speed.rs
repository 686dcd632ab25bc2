//! Measures writing and reading a trace: `cargo run --release -p highwater-trace
//! --example decode_speed [million events | trace]`; a trace is only read.
//!
//! The synthetic stream is made to resemble real programs: a few hundred call
//! sites of which few are hot, sizes that belong to the site, size-class
//! addresses reused last in first out, most blocks short-lived, stamps of a
//! time stamp counter some tens to hundreds of ticks apart.

use std::time::Instant;

use highwater_event::api::ApiKind;
use highwater_event::codec::{Decoder, Encoder, MAX_RECORD, State};
use highwater_trace::model::*;
use highwater_trace::{Compression, Trace, Writer, WriterOptions};

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

struct Run {
    thread: u32,
    events: u32,
    start: State,
    payload: Vec<u8>,
}

/// Streams of `threads` threads in runs of about 20 KiB, an epoch a round.
fn generate(events: u64, threads: u32, free_stacks: bool) -> Vec<Vec<Run>> {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let sizes: Vec<u64> = (0..400).map(|_| 8 + rng.next() % (1 << (4 + rng.next() % 8))).collect();
    let mut encoders = vec![Encoder::default(); threads as usize];
    let mut live: Vec<Vec<(u64, usize)>> = vec![Vec::new(); threads as usize];
    let mut free: Vec<Vec<Vec<u64>>> = vec![vec![Vec::new(); 200]; threads as usize];
    let mut fresh: Vec<u64> = (0..threads).map(|t| 0x7f00_0000_0000 + (u64::from(t) << 30)).collect();
    let (mut done, mut stamp) = (0, 1_000_000u64);
    let mut epochs = Vec::new();
    while done < events {
        let begin = stamp;
        let mut runs = Vec::new();
        for thread in 0..threads {
            let t = thread as usize;
            stamp = begin;
            let start = encoders[t].state;
            let mut payload: Vec<u8> = Vec::with_capacity(21_000);
            let mut count = 0u32;
            while payload.len() < 20_000 {
                payload.reserve(MAX_RECORD);
                stamp +=
                    40 + rng.next() % 64 + if rng.next().is_multiple_of(16) { rng.next() % 4096 } else { 0 };
                // SAFETY: MAX_RECORD bytes are reserved behind the length.
                unsafe {
                    let at = payload.as_mut_ptr().add(payload.len());
                    let live = &mut live[t];
                    let end = if live.len() < 50 || (rng.next() % 100 < 50 && live.len() < 20_000) {
                        let r = rng.next();
                        let site = if r % 8 < 6 { (r >> 8) % 24 } else { (r >> 8) % 400 } as usize;
                        let size = sizes[site];
                        let class = (size as usize + 8).div_ceil(16).min(199);
                        let ptr = free[t][class].pop().unwrap_or_else(|| {
                            fresh[t] += class as u64 * 16;
                            fresh[t]
                        });
                        live.push((ptr, class));
                        encoders[t].alloc(
                            at,
                            stamp,
                            ptr,
                            size,
                            site as u32 * 3 + 1,
                            ApiKind::Malloc,
                            None,
                            false,
                        )
                    } else {
                        let back =
                            if rng.next() % 4 < 3 { rng.next() % 8 } else { rng.next() % live.len() as u64 };
                        let (ptr, class) = live.remove(live.len() - 1 - back as usize % live.len());
                        free[t][class].push(ptr);
                        let node = if free_stacks { class as u32 + 2000 } else { 0 };
                        encoders[t].free(at, stamp, ptr, node, ApiKind::Free)
                    };
                    let len = end as usize - payload.as_ptr() as usize;
                    payload.set_len(len);
                }
                count += 1;
            }
            done += u64::from(count);
            runs.push(Run { thread, events: count, start, payload });
        }
        epochs.push(runs);
    }
    epochs
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(path) = std::env::args().nth(1).filter(|arg| arg.parse::<u64>().is_err()) {
        return read_only(&path);
    }
    let millions: u64 = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(10);
    let path = std::env::temp_dir().join(format!("decode_speed.{}.hwt", std::process::id()));
    for (threads, free_stacks) in [(1, false), (1, true), (4, false)] {
        let epochs = generate(millions * 1_000_000, threads, free_stacks);
        let events: u64 = epochs.iter().flatten().map(|run| u64::from(run.events)).sum();
        let raw: usize = epochs.iter().flatten().map(|run| run.payload.len()).sum();
        let each = |ns: u128| ns as f64 / events as f64;
        println!(
            "{threads} thread(s), free stacks {free_stacks}: {events} events, {:.2} bytes/event encoded",
            raw as f64 / events as f64
        );
        let begin = Instant::now();
        let mut sum = 0u64;
        for run in epochs.iter().flatten() {
            let mut decoder = Decoder::new(&run.payload, run.start);
            while let Some(record) = decoder.next()? {
                sum = sum.wrapping_add(record.stamp());
            }
        }
        println!("  codec alone: {:.2} ns/event to decode ({sum:x})", each(begin.elapsed().as_nanos()));
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1), Compression::Zstd(3)] {
            let options = WriterOptions { overwrite: true, compression, max_size: None };
            let begin = Instant::now();
            let mut writer = Writer::create(&path, &Meta::default(), options)?;
            writer.clock(ClockPoint { stamp: 0, ns: 0 })?;
            writer.clock(ClockPoint { stamp: 3_000_000_000, ns: 1_000_000_000 })?;
            for runs in &epochs {
                for run in runs {
                    let (thread, events, start) = (run.thread, run.events, run.start);
                    writer.events(&EventBlock { thread, events, start, payload: &run.payload })?;
                }
                writer.end_epoch()?;
            }
            let size = writer.finish(&End::default())?;
            let write = begin.elapsed();

            let begin = Instant::now();
            let trace = Trace::open(&path)?;
            let open = begin.elapsed();
            let begin = Instant::now();
            let (mut steps, mut seen, mut sum) = (trace.steps(), 0u64, 0u64);
            while let Some(step) = steps.next()? {
                if let Step::Event(event) = step {
                    seen += 1;
                    sum = sum.wrapping_add(event.addr ^ event.ns);
                }
            }
            let read = begin.elapsed();
            assert_eq!((seen, trace.warnings().len()), (events, 0));
            println!(
                "  {compression:?}: {:.2} bytes/event, write {:.1} ns/event, open {:.1} ms, read {:.1} ns/event = {:.0} M/s ({sum:x})",
                size as f64 / events as f64,
                each(write.as_nanos()),
                open.as_secs_f64() * 1e3,
                each(read.as_nanos()),
                seen as f64 / read.as_secs_f64() / 1e6,
            );
        }
    }
    std::fs::remove_file(&path)?;
    Ok(())
}

/// Opens and reads a trace that is there.
fn read_only(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let trace = Trace::open(path)?;
    let open = begin.elapsed();
    let begin = Instant::now();
    let (mut steps, mut seen, mut sum) = (trace.steps(), 0u64, 0u64);
    while let Some(step) = steps.next()? {
        if let Step::Event(event) = step {
            seen += 1;
            sum = sum.wrapping_add(event.addr ^ event.ns);
        }
    }
    let each = begin.elapsed().as_nanos() as f64 / seen.max(1) as f64;
    println!(
        "{path}: {seen} events, {:.2} bytes/event, open {:.1} ms, read {each:.2} ns/event ({sum:x})",
        trace.file_size() as f64 / seen.max(1) as f64,
        open.as_secs_f64() * 1e3,
    );
    Ok(())
}
