//! Any bytes as a trace: an error or steps, never a panic, never more seqnos
//! than the trace says that it has.
#![no_main]

use std::io::Write;

use highwater_trace::model::Step;
use highwater_trace::{Kept, Trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = std::env::temp_dir().join(format!("highwater-fuzz-{}.hwt", std::process::id()));
    let Ok(mut file) = std::fs::File::create(&path) else { return };
    if file.write_all(data).is_err() {
        return;
    }
    let Ok(mut trace) = Trace::open(&path) else { return };
    let mut steps = trace.steps();
    let mut next = 0;
    while let Ok(Some(step)) = steps.next() {
        if let Step::Event(event) = step {
            assert!(event.seqno >= next && event.seqno < trace.event_count());
            next = event.seqno + 1;
        }
    }
    for warning in trace.warnings() {
        let _ = warning.to_string();
    }
    let middle = trace.event_count() / 2;
    let _ = trace.keyframe_before(middle);
    for what in Kept::EACH {
        let _ = trace.kept(what, 1);
    }
    let _ = trace.steps_from(middle).next();
    let _ = trace.steps_from_ns(middle).next();
    let _ = trace.verify();
    let _ = trace.refresh();
});
