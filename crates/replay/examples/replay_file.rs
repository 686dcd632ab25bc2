//! How long reading and replaying a trace takes.
//!
//! `cargo run --release -p highwater-replay --example replay_file TRACE…`

use std::time::Instant;

use highwater_replay::{Options, Replay};
use highwater_trace::{Batch, Trace, TraceError};

fn main() -> Result<(), TraceError> {
    for path in std::env::args().skip(1) {
        let trace = Trace::open(&path)?;
        let each = |start: Instant| start.elapsed().as_nanos() as f64 / trace.event_count().max(1) as f64;
        let start = Instant::now();
        let mut steps = trace.steps();
        let mut batch = Batch::default();
        let mut sum = 0u64;
        while steps.next_batch(&mut batch, 1024)? {
            for event in &batch.events {
                sum = sum.wrapping_add(event.addr ^ event.ns);
            }
        }
        let decoding = each(start);
        let start = Instant::now();
        let mut steps = trace.steps();
        let mut replay = Replay::new(Options::default());
        while std::env::var_os("D").is_none() && steps.next_batch(&mut batch, 1024)? {
            replay.feed_batch(&batch);
        }
        replay.finish();
        let all = each(start);
        println!(
            "{path}: {} events, {decoding:.1} ns each to read, {all:.1} ns to read and replay; {} live, {} bytes of table ({sum:x})",
            trace.event_count(),
            replay.totals().live_blocks,
            replay.table_bytes(),
        );
    }
    Ok(())
}
