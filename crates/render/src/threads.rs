//! `threads`: who allocates.

use std::io::{self, Write};

use highwater_query::{Session, Stats};
use highwater_replay::ThreadTotals;

use crate::human::{bytes, count};
use crate::json::Json;
use crate::look::Look;
use crate::parts;

/// Writes the threads as JSON, in the order given.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(out: W, session: &Session, threads: &[ThreadTotals]) -> io::Result<()> {
    let mut json = Json::document(out, "threads")?;
    json.key("threads")?;
    json.begin_array()?;
    for thread in threads {
        let def = session.facts().thread(thread.thread);
        json.begin_object()?;
        json.field_u64("id", thread.thread.into())?;
        match def {
            Some(def) => json.field_u64("tid", def.tid.into())?,
            None => json.field_null("tid")?,
        }
        json.field_opt_str("name", def.map(|def| def.name.as_str()))?;
        json.field_u64("allocations", thread.allocations)?;
        json.field_u64("frees", thread.frees)?;
        json.field_u64("bytes", thread.bytes_allocated)?;
        json.field_u64("bytes_freed", thread.bytes_freed)?;
        json.field_u64("temporary", thread.temporary)?;
        json.field_u64("live_blocks", thread.live_blocks)?;
        json.field_u64("live_bytes", thread.live_bytes)?;
        json.field_u64("peak_bytes", thread.peak_bytes)?;
        json.field_time("peak_time", thread.peak_ns)?;
        json.field_time("first", thread.first_ns)?;
        json.field_time("last", thread.last_ns)?;
        json.end_object()?;
    }
    json.end_array()?;
    crate::modes::json(&mut json, &session.modes(), None)?;
    json.finish()?;
    Ok(())
}

/// Writes the threads as text, in the order given; `limit` of them.
///
/// # Errors
/// The output's.
pub fn text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &Session,
    stats: &Stats,
    threads: &[ThreadTotals],
    limit: usize,
) -> io::Result<()> {
    if let Some(nothing) = stats.nothing(session) {
        return writeln!(out, "{}", nothing.sentence());
    }
    let strong = look.palette.strong;
    writeln!(
        out,
        "{strong}{:<20} {:>13} {:>13} {:>10} {:>10} {:>9}{strong:#}",
        "thread", "allocations", "frees", "bytes", "peak", "live"
    )?;
    for thread in threads.iter().take(limit) {
        writeln!(
            out,
            "{:<20} {:>13} {:>13} {:>10} {:>10} {:>9}",
            parts::thread_text(session.facts(), thread.thread),
            count(thread.allocations),
            count(thread.frees),
            bytes(thread.bytes_allocated),
            bytes(thread.peak_bytes),
            bytes(thread.live_bytes),
        )?;
    }
    if threads.len() > limit {
        writeln!(out, "and {} more", count((threads.len() - limit) as u64))?;
    }
    parts::hint(out, look, session, "peak --by thread", "whose memory the peak was")
}
