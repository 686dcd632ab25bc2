//! `history`: event after event.

use std::collections::VecDeque;
use std::io::Write;

use highwater_query::filter::Subject;
use highwater_query::walk::{Met, Seen, Walk};
use highwater_query::{Selection, Session};
use highwater_replay::Until;
use highwater_trace::model::Op;

use crate::RenderError;
use crate::human::{bytes, count, time};
use crate::json::Json;
use crate::look::Look;
use crate::parts;
use crate::rows::op_name;

/// Which events.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Events up to and with this instant are left out.
    pub from: Until,
    /// The last instant.
    pub to: Until,
    /// Greatest number of events.
    pub limit: usize,
    /// The latest first. What is shown is kept in memory then.
    pub reverse: bool,
}

impl Default for Range {
    fn default() -> Self {
        Range { from: Until::Start, to: Until::End, limit: usize::MAX, reverse: false }
    }
}

/// Calls `each` with the events of a range that pass, one after the other, and
/// returns how many there were.
///
/// # Errors
/// Those of `each`; the trace cannot be read.
pub fn walk(
    session: &mut Session,
    range: &Range,
    selection: &mut Selection,
    mut each: impl FnMut(&mut Session, &Seen) -> std::io::Result<()>,
) -> Result<u64, RenderError> {
    let source = session.source();
    let mut walk = Walk::new(&source, session.replay_options(), range.from, range.to)?;
    let mut kept: VecDeque<Seen> = VecDeque::new();
    let mut shown = 0;
    while let Some(met) = walk.advance()? {
        let Met::Event(seen) = met else { continue };
        if !selection.is_empty() && !selection.passes(&Subject::event(&seen.event, seen.block()), session) {
            continue;
        }
        if range.reverse {
            if kept.len() == range.limit {
                kept.pop_front();
            }
            kept.push_back(seen);
        } else {
            each(session, &seen)?;
            shown += 1;
            if shown == range.limit as u64 {
                break;
            }
        }
    }
    session.learn(walk.steps());
    for seen in kept.iter().rev() {
        each(session, seen)?;
        shown += 1;
    }
    Ok(shown)
}

/// Columns in front of the site.
const COLUMNS: usize = 62;
/// Columns that `  of #SEQNO` takes.
const ROOM_FOR_PAIR: usize = 14;

/// Writes events as JSON, each as soon as it is read.
///
/// # Errors
/// The output's; the trace cannot be read.
pub fn json<W: Write>(
    out: W,
    session: &mut Session,
    range: &Range,
    selection: &mut Selection,
) -> Result<(), RenderError> {
    let mut json = Json::document(out, "history")?;
    json.key("events")?;
    json.begin_array()?;
    walk(session, range, selection, |session, seen| {
        let event = &seen.event;
        json.begin_object()?;
        json.field_u64("seqno", event.seqno)?;
        json.field_time("time", event.ns)?;
        json.field_u64("thread", event.thread.into())?;
        json.field_str("op", op_name(event.op))?;
        json.field_str("api", event.api.name())?;
        json.field_addr("address", event.addr)?;
        match seen.block() {
            Some(block) => json.field_u64("size", block.size)?,
            None => json.field_null("size")?,
        }
        if let Some(usable) = seen.block().and_then(|block| block.usable) {
            json.field_u64("actual_size", usable)?;
        }
        if let Some(pair) = event.pair {
            json.field_u64("pair", pair)?;
        }
        parts::json_stack(&mut json, &session.stack(event.node))?;
        json.end_object()
    })?;
    json.end_array()?;
    crate::modes::json(&mut json, &session.modes(), None)?;
    json.finish()?;
    Ok(())
}

/// Writes events as text, each as soon as it is read.
///
/// # Errors
/// The output's; the trace cannot be read.
pub fn text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &mut Session,
    range: &Range,
    selection: &mut Selection,
) -> Result<(), RenderError> {
    let (strong, dim) = (look.palette.strong, look.palette.dim);
    let room = look.width.saturating_sub(COLUMNS);
    let width = if room >= 2 * ROOM_FOR_PAIR { room - ROOM_FOR_PAIR } else { room };
    let mut first = true;
    let shown = walk(session, range, selection, |session, seen| {
        let event = &seen.event;
        if std::mem::take(&mut first) {
            writeln!(
                out,
                "{strong}{:>7} {:>9} {:>3} {:<5} {:<7} {:<14} {:>9}  site{strong:#}",
                "seqno", "time", "thr", "op", "api", "address", "size"
            )?;
        }
        let site = match event.node {
            // Frees without a stack are the rule: no words about it.
            0 if event.op == Op::Free => String::new(),
            node => parts::site_text(look, &session.stack(node), width),
        };
        // Which free half a realloc's block follows: where there is room for it.
        let pair = match event.pair {
            Some(pair) if width < room => format!("  {dim}of #{pair}{dim:#}"),
            _ => String::new(),
        };
        let line = format!(
            "{:>7} {:>9} {:>3} {:<5} {:<7} {:<14} {:>9}  {site}{pair}",
            event.seqno,
            time(event.ns),
            event.thread,
            op_name(event.op),
            event.api.name(),
            format!("{:#x}", event.addr),
            seen.block().map_or_else(|| "?".to_string(), |block| bytes(block.size)),
        );
        writeln!(out, "{}", line.trim_end())
    })?;
    if shown == 0 {
        writeln!(out, "no event is in this range and fits these conditions")?;
    } else {
        writeln!(out, "\n{} of {} events", count(shown), count(session.facts().events))?;
    }
    Ok(())
}
