//! `history`: event after event.

use std::io::Write;

use highwater_query::filter::Subject;
use highwater_query::{Filter, Session};
use highwater_replay::{Replay, Until};
use highwater_trace::model::{Event, Op, Step};

use crate::RenderError;
use crate::held::Held;
use crate::human::{bytes, count, time};
use crate::json::Json;
use crate::look::Look;
use crate::parts;

/// Which events.
#[derive(Clone, Debug)]
pub struct Range {
    /// Events up to and with this instant are left out.
    pub from: Until,
    /// The last instant.
    pub to: Until,
    /// Conditions.
    pub filter: Filter,
    /// Greatest number of events.
    pub limit: u64,
}

impl Default for Range {
    fn default() -> Self {
        Range { from: Until::Start, to: Until::End, filter: Filter::default(), limit: u64::MAX }
    }
}

/// Calls `each` with the events of a range and the sizes of their blocks, one
/// after the other, and returns how many there were. The heap is replayed on
/// the way, because a free does not say how much it frees.
fn walk(
    session: &mut Session,
    range: &Range,
    mut each: impl FnMut(&mut Session, &Event, Option<u64>) -> std::io::Result<()>,
) -> Result<u64, RenderError> {
    let source = session.source();
    let mut steps = source.steps();
    let mut heap = Replay::new(session.replay_options());
    let mut held = Held::default();
    let mut shown = 0;
    // Behind the range only what is still undecided matters.
    let mut over = false;
    while let Some(step) = steps.next_step()? {
        if let Step::Event(event) = &step {
            over |= !range.to.includes(event.seqno, event.ns);
        }
        held.decide(&step);
        if let Step::Event(event) = &step
            && !over
            && !range.from.includes(event.seqno, event.ns)
        {
            let size = match event.op {
                Op::Alloc { size, .. } => Some(size),
                Op::Free => heap.block_at(event.addr).map(|block| block.size),
            };
            let subject = Subject {
                seqno: event.seqno,
                ns: event.ns,
                addr: event.addr,
                size,
                thread: event.thread,
                api: event.api,
                node: event.node,
            };
            if range.filter.is_empty() || range.filter.passes(&subject, session) {
                held.push(*event, size);
            }
        }
        while let Some((event, size)) = held.next() {
            each(session, &event, size)?;
            shown += 1;
            if shown >= range.limit {
                return Ok(shown);
            }
        }
        if over && held.is_empty() {
            return Ok(shown);
        }
        heap.feed_in(steps.epoch(), &step);
    }
    held.decide_all();
    while let Some((event, size)) = held.next() {
        if shown >= range.limit {
            break;
        }
        each(session, &event, size)?;
        shown += 1;
    }
    Ok(shown)
}

/// Columns in front of the site.
const COLUMNS: usize = 62;
/// Columns that `  of #SEQNO` takes.
const ROOM_FOR_PAIR: usize = 14;

fn op_name(op: Op) -> &'static str {
    match op {
        Op::Alloc { .. } => "alloc",
        Op::Free => "free",
    }
}

/// Writes events as JSON, each as soon as it is read.
///
/// # Errors
/// The output's; the trace cannot be read.
pub fn json<W: Write>(out: W, session: &mut Session, range: &Range) -> Result<(), RenderError> {
    let mut json = Json::document(out, "history")?;
    json.key("events")?;
    json.begin_array()?;
    walk(session, range, |session, event, size| {
        json.begin_object()?;
        json.field_u64("seqno", event.seqno)?;
        json.field_time("time", event.ns)?;
        json.field_u64("thread", event.thread.into())?;
        json.field_str("op", op_name(event.op))?;
        json.field_str("api", event.api.name())?;
        json.field_addr("address", event.addr)?;
        match size {
            Some(size) => json.field_u64("size", size)?,
            None => json.field_null("size")?,
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
) -> Result<(), RenderError> {
    let (strong, dim) = (look.palette.strong, look.palette.dim);
    let room = look.width.saturating_sub(COLUMNS);
    let width = if room >= 2 * ROOM_FOR_PAIR { room - ROOM_FOR_PAIR } else { room };
    let mut first = true;
    let shown = walk(session, range, |session, event, size| {
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
            size.map_or_else(|| "?".to_string(), bytes),
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
