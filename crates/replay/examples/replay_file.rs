//! What reading and replaying a trace costs, ns of processor time an event.
//!
//! `cargo run --release -p highwater-replay --example replay_file TRACE…`

use std::fs;

use highwater_replay::{Options, Replay};
use highwater_trace::{Batch, Trace, TraceError};

/// Processor time of this thread so far, ns.
fn spent() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

fn main() -> Result<(), TraceError> {
    for path in std::env::args().skip(1) {
        let trace = Trace::open(&path)?;
        let each = |start: f64| (spent() - start) / trace.event_count().max(1) as f64;
        let start = spent();
        let mut steps = trace.steps();
        let mut batch = Batch::default();
        let mut sum = 0u64;
        while steps.next_batch(&mut batch, 2048)? {
            for event in &batch.events {
                sum = sum.wrapping_add(event.addr ^ event.ns);
            }
        }
        let decoding = each(start);
        let start = spent();
        let mut steps = trace.steps();
        let mut replay = Replay::new(Options::default());
        while steps.next_batch(&mut batch, 2048)? {
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
