//! `errors`: bad frees, with both stacks.

use std::io::{self, Write};

use highwater_event::node::NodeId;
use highwater_query::{Session, Stats};
use highwater_replay::{AllocRecord, ErrorKind, FreeRecord, HeapError};

use crate::human::{bytes, count, time};
use crate::json::Json;
use crate::look::Look;
use crate::parts;

fn json_allocated<W: Write>(
    json: &mut Json<W>,
    session: &mut Session,
    record: &AllocRecord,
) -> io::Result<()> {
    json.key("allocated")?;
    json.begin_object()?;
    json.field_addr("address", record.addr)?;
    json.field_u64("size", record.size)?;
    json.field_u64("seqno", record.seqno)?;
    json.field_time("time", record.ns)?;
    json.field_u64("thread", record.thread.into())?;
    json.field_str("api", record.api.name())?;
    parts::json_stack(json, &session.stack(record.node))?;
    json.end_object()
}

fn json_freed<W: Write>(json: &mut Json<W>, session: &mut Session, record: &FreeRecord) -> io::Result<()> {
    json.key("freed")?;
    json.begin_object()?;
    json.field_u64("seqno", record.seqno)?;
    json.field_time("time", record.ns)?;
    json.field_u64("thread", record.thread.into())?;
    json.field_str("api", record.api.name())?;
    parts::json_stack(json, &session.stack(record.node))?;
    json.end_object()
}

/// Writes bad frees as JSON.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(out: W, session: &mut Session, errors: &[HeapError]) -> io::Result<()> {
    let mut json = Json::document(out, "errors")?;
    json.key("errors")?;
    json.begin_array()?;
    for error in errors {
        json.begin_object()?;
        json.field_str("kind", error.kind.name())?;
        json.field_addr("address", error.addr)?;
        json.field_u64("seqno", error.free.seqno)?;
        json.field_time("time", error.free.ns)?;
        json.field_u64("thread", error.free.thread.into())?;
        json.field_str("api", error.free.api.name())?;
        parts::json_stack(&mut json, &session.stack(error.free.node))?;
        match &error.allocated {
            Some(record) => json_allocated(&mut json, session, record)?,
            None => json.field_null("allocated")?,
        }
        match &error.freed {
            Some(record) => json_freed(&mut json, session, record)?,
            None => json.field_null("freed")?,
        }
        json.end_object()?;
    }
    json.end_array()?;
    crate::modes::json(&mut json, &session.modes(), None)?;
    json.finish()?;
    Ok(())
}

/// Writes bad frees as text; `limit` of them.
///
/// # Errors
/// The output's.
pub fn text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &mut Session,
    stats: &Stats,
    errors: &[HeapError],
    limit: usize,
) -> io::Result<()> {
    if let Some(nothing) = stats.nothing(session) {
        return writeln!(out, "{}", nothing.sentence());
    }
    if errors.is_empty() {
        return writeln!(out, "no double, invalid or mismatched free was seen");
    }
    let bad = look.palette.bad;
    for error in errors.iter().take(limit) {
        let what = match (error.kind, &error.allocated) {
            (ErrorKind::DoubleFree, Some(block)) => {
                format!("double free of a block of {}", bytes(block.size))
            }
            (ErrorKind::DoubleFree, None) => "double free".to_string(),
            (ErrorKind::InvalidFree, Some(block)) => format!(
                "invalid free: {} bytes into a block of {}",
                count(error.addr.saturating_sub(block.addr)),
                bytes(block.size)
            ),
            (ErrorKind::InvalidFree, None) => "invalid free: no block starts there".to_string(),
            (ErrorKind::Mismatched, Some(block)) => {
                format!("mismatched free: {} of what {} made", error.free.api.name(), block.api.name())
            }
            (ErrorKind::Mismatched, None) => "mismatched free".to_string(),
        };
        writeln!(out, "{bad}{what}{bad:#}, at {:#x}", error.addr)?;
        let free = &error.free;
        part(out, look, session, "freed", free.api.name(), free.ns, free.thread, free.node)?;
        if let Some(freed) = &error.freed {
            part(out, look, session, "freed before", freed.api.name(), freed.ns, freed.thread, freed.node)?;
        }
        if let Some(made) = &error.allocated {
            part(out, look, session, "allocated", made.api.name(), made.ns, made.thread, made.node)?;
        }
        writeln!(out)?;
    }
    let total = stats.totals.errors();
    let shown = errors.len().min(limit) as u64;
    if total > shown {
        writeln!(out, "{} more are not shown", count(total - shown))?;
    } else {
        writeln!(out, "{}", super::stats::error_words(stats).join(", "))?;
    }
    parts::hint(out, look, session, "errors --json", "the same with full names")
}

#[allow(clippy::too_many_arguments)]
fn part<W: Write>(
    out: &mut W,
    look: &Look,
    session: &mut Session,
    label: &str,
    api: &str,
    ns: u64,
    thread: u32,
    node: NodeId,
) -> io::Result<()> {
    let thread = parts::thread_text(session.facts(), thread);
    writeln!(out, "  {label:<13} by {api} at {}, thread {thread}", time(ns))?;
    if node == 0 {
        return Ok(());
    }
    for frame in &session.stack(node).frames {
        writeln!(out, "      {}", parts::frame_text(look, frame, look.width.saturating_sub(6)))?;
    }
    Ok(())
}
