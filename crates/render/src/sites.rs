//! `peak` and `leaks`: groups of blocks, largest first.

use std::io::{self, Write};

use highwater_query::leaks::rank::Ranking;
use highwater_query::stack::is_pseudo;
use highwater_query::{By, Group, Item, Session, Stats};
use highwater_replay::sampling::error95;
use highwater_replay::{LiveBlock, Outcome, Until};

use crate::dump;
use crate::human::{bytes, count, counted, percent, time};
use crate::json::Json;
use crate::look::Look;
use crate::{RenderError, modes, parts, suspects};

/// Who held memory at the global peak, largest first. `found` is the whole
/// trace's; groupings that need the blocks themselves read it a second time.
///
/// # Errors
/// The trace cannot be read.
pub fn at_peak(session: &mut Session, found: &Outcome, by: By) -> Result<Vec<Group>, RenderError> {
    if by.needs_only_stacks() {
        return Ok(highwater_query::group::group(session, found.sites().iter().map(Item::at_peak), by));
    }
    if found.totals().peak_bytes == 0 {
        return Ok(Vec::new());
    }
    let until = Until::Seqno(found.totals().peak_seqno);
    let part = session.replay_until(until)?;
    Ok(highwater_query::group::group(session, part.live().map(|block| Item::of_block(&block, &part)), by))
}

/// The sites that hold memory at the end, largest first.
pub fn live(session: &mut Session, found: &Outcome) -> Vec<Group> {
    highwater_query::group::group(session, found.sites().iter().map(Item::live), By::Site)
}

fn json_groups<W: Write>(json: &mut Json<W>, groups: &[Group]) -> io::Result<()> {
    json.key("sites")?;
    json.begin_array()?;
    for group in groups {
        json.begin_object()?;
        json.field_str("label", &group.label)?;
        parts::json_site(json, group.stack.site())?;
        json.field_u64("bytes", group.bytes)?;
        json.field_u64("blocks", group.blocks)?;
        json.field_u64("allocations", group.allocations)?;
        modes::json_error(json, group.variance)?;
        parts::json_stack(json, &group.stack)?;
        json.end_object()?;
    }
    json.end_array()
}

/// Writes the groups at the peak as JSON.
///
/// # Errors
/// The output's.
pub fn peak_json<W: Write>(out: W, stats: &Stats, groups: &[Group], by: By) -> io::Result<()> {
    let mut json = Json::document(out, "peak")?;
    json.field_u64("peak_bytes", stats.totals.peak_bytes)?;
    json.field_u64("peak_blocks", stats.totals.peak_blocks)?;
    json.field_time("peak_time", stats.totals.peak_ns)?;
    json.field_u64("peak_seqno", stats.totals.peak_seqno)?;
    json.field_u64("peak_uncertainty", stats.totals.peak_uncertainty)?;
    modes::json(&mut json, &stats.modes, Some(stats))?;
    json.field_bool("complete", stats.complete)?;
    json.field_str("by", by.name())?;
    json_groups(&mut json, groups)?;
    json.finish()?;
    Ok(())
}

/// Writes the groups at the peak as text; `limit` lines of them.
///
/// # Errors
/// The output's.
pub fn peak_text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &Session,
    stats: &Stats,
    groups: &[Group],
    by: By,
    limit: usize,
) -> io::Result<()> {
    let totals = &stats.totals;
    if let Some(nothing) = stats.nothing(session) {
        return writeln!(out, "{}", nothing.sentence());
    }
    if groups.is_empty() {
        return writeln!(out, "no bytes were ever alive: there is no peak");
    }
    let strong = look.palette.strong;
    let sure = modes::give_or_take(totals.sampled.peak_variance, totals.peak_uncertainty);
    let of = if stats.part { String::new() } else { format!(" of {}", time(stats.duration_ns)) };
    writeln!(
        out,
        "{strong}peak {}{strong:#} in {} at {}{of}{sure}\n",
        bytes(totals.peak_bytes),
        counted(totals.peak_blocks, "block", "blocks"),
        time(totals.peak_ns),
    )?;
    table(out, look, groups, totals.peak_bytes, by, limit)?;
    parts::hint(out, look, session, "leaks", "what is never given back")
}

/// What `leaks --json` holds besides the groups.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeaksJson<'a> {
    /// The live blocks themselves (`--blocks`).
    pub blocks: Option<&'a [LiveBlock]>,
    /// The suspects.
    pub ranking: Option<&'a Ranking>,
}

/// Writes what is alive at the end as JSON: `suspects`, `sites`, and on request
/// the `blocks`.
///
/// # Errors
/// The output's.
pub fn leaks_json<W: Write>(
    out: W,
    session: &mut Session,
    stats: &Stats,
    groups: &[Group],
    by: By,
    more: LeaksJson<'_>,
) -> io::Result<()> {
    let mut json = Json::document(out, "leaks")?;
    json.field_u64("live_bytes", stats.totals.live_bytes)?;
    json.field_u64("live_blocks", stats.totals.live_blocks)?;
    modes::json(&mut json, &stats.modes, Some(stats))?;
    json.field_bool("complete", stats.complete)?;
    json.field_str("by", by.name())?;
    if let Some(ranking) = more.ranking {
        suspects::json(&mut json, ranking)?;
    }
    json_groups(&mut json, groups)?;
    if let Some(blocks) = more.blocks {
        dump::json_blocks(&mut json, session, blocks)?;
    }
    json.finish()?;
    Ok(())
}

/// Writes what is alive at the end as text; `limit` lines of it.
///
/// # Errors
/// The output's.
pub fn leaks_text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &Session,
    stats: &Stats,
    groups: &[Group],
    by: By,
    limit: usize,
) -> io::Result<()> {
    let totals = &stats.totals;
    if let Some(nothing) = stats.nothing(session) {
        return writeln!(out, "{}", nothing.sentence());
    }
    if totals.live_blocks == 0 {
        return match stats.modes.sample {
            0 => writeln!(out, "nothing is live at the end: no leaks"),
            _ => writeln!(out, "nothing in the sample is live at the end"),
        };
    }
    let strong = look.palette.strong;
    writeln!(
        out,
        "{strong}live at the end: {}{strong:#} in {}{}\n",
        bytes(totals.live_bytes),
        counted(totals.live_blocks, "block", "blocks"),
        modes::give_or_take(totals.sampled.live_variance, 0),
    )?;
    table(out, look, groups, totals.live_bytes, by, limit)?;
    parts::hint(out, look, session, "dump --at end", "the blocks one by one")
}

/// Writes what is alive at an instant by group, in the order given; `limit` lines.
///
/// # Errors
/// The output's.
pub fn dump_text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &Session,
    groups: &[Group],
    by: By,
    limit: usize,
) -> io::Result<()> {
    if groups.is_empty() {
        return writeln!(out, "nothing is live then");
    }
    let whole: u64 = groups.iter().map(|group| group.bytes).sum();
    let blocks: u64 = groups.iter().map(|group| group.blocks).sum();
    let strong = look.palette.strong;
    let sure = modes::give_or_take(modes::variance(groups), 0);
    let blocks = counted(blocks, "block", "blocks");
    writeln!(out, "{strong}live: {}{strong:#} in {blocks}{sure}\n", bytes(whole))?;
    table(out, look, groups, whole, by, limit)?;
    parts::hint(out, look, session, "dump", "the blocks one by one")
}

/// Writes what is alive at an instant by group as JSON.
///
/// # Errors
/// The output's.
pub fn dump_json<W: Write>(out: W, session: &Session, groups: &[Group], by: By) -> io::Result<()> {
    let mut json = Json::document(out, "dump")?;
    modes::json(&mut json, &session.modes(), None)?;
    json.field_str("by", by.name())?;
    json_groups(&mut json, groups)?;
    json.finish()?;
    Ok(())
}

/// The table of groups; below each site the frames that led there.
fn table<W: Write>(
    out: &mut W,
    look: &Look,
    groups: &[Group],
    whole: u64,
    by: By,
    limit: usize,
) -> io::Result<()> {
    let (strong, dim) = (look.palette.strong, look.palette.dim);
    // Estimates have their error where else the share stands.
    let estimates = groups.iter().any(|group| group.variance > 0);
    let second = if estimates { "+-" } else { "share" };
    writeln!(out, "{strong}{:>11} {second:>8} {:>11}  {}{strong:#}", "bytes", "blocks", by.name())?;
    let width = look.width.saturating_sub(34);
    for group in groups.iter().take(limit) {
        let what = match by {
            By::Site | By::Stack => parts::site_text(look, &group.stack, width),
            _ => crate::human::middle(&group.label, width),
        };
        let share = match estimates {
            true => bytes(error95(group.variance)),
            false => percent(group.bytes, whole),
        };
        writeln!(out, "{:>11} {share:>8} {:>11}  {what}", bytes(group.bytes), count(group.blocks))?;
        if matches!(by, By::Site | By::Stack) {
            let depth = if by == By::Stack { usize::MAX } else { 2 };
            let callers = group.stack.frames.iter().skip(group.stack.site + 1);
            for frame in callers.filter(|frame| by == By::Stack || !is_pseudo(frame)).take(depth) {
                let plain = Look { palette: crate::Palette::plain(), ..*look };
                let text = parts::frame_text(&plain, frame, width.saturating_sub(7));
                writeln!(out, "{:>34}{dim}  from {text}{dim:#}", "")?;
            }
        }
    }
    if groups.len() > limit {
        let rest: u64 = groups.iter().skip(limit).map(|group| group.bytes).sum();
        let more = count((groups.len() - limit) as u64);
        let share = match estimates {
            true => String::new(),
            false => percent(rest, whole),
        };
        writeln!(out, "{:>11} {share:>8} {:>11}  and {more} more", bytes(rest), "")?;
    }
    Ok(())
}
