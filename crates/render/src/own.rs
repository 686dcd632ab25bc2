//! `stats --self`: what the recording itself cost and met, by name.

use std::io::{self, Write};

use highwater_query::Session;

use crate::human::{count, time};
use crate::json::Json;

/// Writes the recorder's and the agent's counters as JSON.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(out: W, session: &Session) -> io::Result<()> {
    let mut json = Json::document(out, "self")?;
    if let Some(end) = &session.facts().end {
        json.field_time("recorder_cpu", end.recorder_cpu_ns)?;
        json.field_time("stalled", end.stalled_ns)?;
        json.field_u64("dropped", end.dropped)?;
        json.key("counters")?;
        json.begin_object()?;
        for (name, value) in &end.counters {
            json.field_u64(name, *value)?;
        }
        json.end_object()?;
    }
    json.finish()?;
    Ok(())
}

/// Writes them as text.
///
/// # Errors
/// The output's.
pub fn text<W: Write>(out: &mut W, session: &Session) -> io::Result<()> {
    let Some(end) = &session.facts().end else {
        return writeln!(out, "the trace has no end record, so there are no counters");
    };
    writeln!(out, "{:<20} {:>16}", "recorder CPU", time(end.recorder_cpu_ns))?;
    writeln!(out, "{:<20} {:>16}", "stalled", time(end.stalled_ns))?;
    writeln!(out, "{:<20} {:>16}", "dropped", count(end.dropped))?;
    for (name, value) in &end.counters {
        writeln!(out, "{:<20} {:>16}", name.replace('_', " "), count(*value))?;
    }
    Ok(())
}
