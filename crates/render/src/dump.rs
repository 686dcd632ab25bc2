//! `dump`: the live set, block by block.

use std::io::{self, Write};

use highwater_query::Session;
use highwater_replay::LiveBlock;
use highwater_replay::sampling::Weight;

use crate::human::{bytes, counted, time};
use crate::json::Json;
use crate::look::Look;
use crate::parts;

/// `blocks`, in the open object. Written one by one.
pub(crate) fn json_blocks<W: Write>(
    json: &mut Json<W>,
    session: &mut Session,
    blocks: &[LiveBlock],
) -> io::Result<()> {
    let rate = session.modes().sample;
    json.key("blocks")?;
    json.begin_array()?;
    for block in blocks {
        json.begin_object()?;
        json.field_addr("address", block.addr)?;
        json.field_u64("size", block.size)?;
        if let Some(usable) = block.usable {
            json.field_u64("actual_size", usable)?;
        }
        if rate > 0 {
            let weight = Weight::sampled(rate, block.size, block.seqno);
            json.field_u64("stands_for_bytes", weight.bytes)?;
            json.field_u64("stands_for_blocks", weight.blocks)?;
        }
        json.field_u64("seqno", block.seqno)?;
        json.field_time("time", block.ns)?;
        json.field_u64("thread", block.thread.into())?;
        json.field_str("api", block.api.name())?;
        parts::json_stack(json, &session.stack(block.node))?;
        json.end_object()?;
    }
    json.end_array()
}

/// Writes blocks as JSON, in the order given.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(out: W, session: &mut Session, blocks: &[LiveBlock]) -> io::Result<()> {
    let mut json = Json::document(out, "dump")?;
    json_blocks(&mut json, session, blocks)?;
    crate::modes::json(&mut json, &session.modes(), None)?;
    json.finish()?;
    Ok(())
}

/// Writes blocks as text, in the order given; `limit` of them.
///
/// # Errors
/// The output's.
pub fn text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &mut Session,
    blocks: &[LiveBlock],
    limit: usize,
) -> io::Result<()> {
    if blocks.is_empty() {
        return writeln!(out, "nothing is live then");
    }
    let strong = look.palette.strong;
    writeln!(
        out,
        "{strong}{:<14} {:>10} {:>7} {:>9} {:>3} {:<7} site{strong:#}",
        "address", "size", "seqno", "time", "thr", "api"
    )?;
    for block in blocks.iter().take(limit) {
        let site = parts::site_text(look, &session.stack(block.node), look.width.saturating_sub(56));
        writeln!(
            out,
            "{:<14} {:>10} {:>7} {:>9} {:>3} {:<7} {site}",
            format!("{:#x}", block.addr),
            bytes(block.size),
            block.seqno,
            time(block.ns),
            block.thread,
            block.api.name(),
        )?;
    }
    // What the blocks stand for, where they are a sample.
    let rate = session.modes().sample;
    let weight = |block: &LiveBlock| match rate {
        0 => Weight::whole(block.size),
        rate => Weight::sampled(rate, block.size, block.seqno),
    };
    let total: u64 = blocks.iter().map(|block| weight(block).bytes).sum();
    let number: u64 = blocks.iter().map(|block| weight(block).blocks).sum();
    let variance = blocks.iter().map(|block| weight(block).variance).fold(0, u64::saturating_add);
    let sure = crate::modes::give_or_take(variance, 0);
    let shown = if blocks.len() > limit { format!(", {limit} shown") } else { String::new() };
    writeln!(out, "\n{}, {}{sure}{shown}", counted(number, "block", "blocks"), bytes(total))?;
    parts::hint(out, look, session, "leaks", "the same by site")
}
