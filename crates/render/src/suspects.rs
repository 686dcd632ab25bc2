//! `leaks`: the suspects, worst first, each with its reason, its curve and the
//! stack that led there.

use std::io::{self, Write};

use highwater_query::leaks::growth::{forecast, words};
use highwater_query::leaks::holders::Holder;
use highwater_query::leaks::rank::signs::Growth;
use highwater_query::leaks::rank::{Ranking, Suspect, Verdict};
use highwater_query::leaks::reach::Place;
use highwater_query::stack::is_pseudo;
use highwater_query::{Session, Stats};

use crate::human::{bytes, counted};
use crate::json::Json;
use crate::look::Look;
use crate::modes::{self, variance};
use crate::{Palette, human, parts, spark};

/// Columns of a curve.
const CURVE: usize = 32;

/// How the text is to be.
#[derive(Clone, Copy, Debug)]
pub struct Show {
    /// Suspects at most.
    pub limit: usize,
    /// The folded ones too.
    pub all: bool,
    /// Whole stacks, and every number.
    pub verbose: bool,
    /// Curves in Unicode.
    pub unicode: bool,
}

/// Writes the ranking as text.
///
/// # Errors
/// The output's.
pub fn text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &mut Session,
    stats: &Stats,
    ranking: &Ranking,
    show: Show,
) -> io::Result<()> {
    if let Some(nothing) = stats.nothing(session) {
        return writeln!(out, "{}", nothing.sentence());
    }
    let strong = look.palette.strong;
    let suspects = &ranking.suspects;
    let (sum, blocks) = total(suspects);
    match suspects.len() {
        0 if ranking.folded.is_empty() && ranking.suppressed.1 > 0 => {
            return writeln!(out, "no leaks: all that is live at the end is suppressed");
        }
        0 if ranking.folded.is_empty() && stats.modes.sample > 0 => {
            return writeln!(out, "nothing in the sample is live at the end");
        }
        0 if ranking.folded.is_empty() => return writeln!(out, "nothing is live at the end: no leaks"),
        0 => writeln!(out, "{strong}no leak is suspected{strong:#}")?,
        n => writeln!(
            out,
            "{strong}{}{strong:#}: {} in {}{}",
            counted(n as u64, "suspect", "suspects"),
            bytes(sum),
            counted(blocks, "block", "blocks"),
            modes::give_or_take(variance(suspects.iter().map(|suspect| &suspect.group)), 0),
        )?,
    }
    if let Some(heap) = ranking.heap.as_ref().filter(|heap| heap.grows) {
        for line in wrap(&heap_line(heap, ranking), look.width) {
            writeln!(out, "{line}")?;
        }
    }
    for suspect in suspects.iter().take(show.limit) {
        writeln!(out)?;
        one(out, look, session, suspect, show)?;
    }
    if suspects.len() > show.limit {
        writeln!(out, "\nand {} more; --limit shows them", suspects.len() - show.limit)?;
    }
    folded(out, look, session, ranking, show)?;
    let next = if suspects.is_empty() { "peak" } else { "leaks --method exit" };
    let what = if suspects.is_empty() { "who holds the memory" } else { "all that is alive at the end" };
    parts::hint(out, look, session, next, what)
}

fn total(suspects: &[Suspect]) -> (u64, u64) {
    suspects.iter().fold((0, 0), |sum, suspect| {
        (u64::saturating_add(sum.0, suspect.group.bytes), sum.1 + suspect.group.blocks)
    })
}

fn heap_line(heap: &Growth, ranking: &Ranking) -> String {
    let mut text = format!("the heap grows by {}", words::rate(&heap.bytes));
    let Some((limit, full)) = ranking.limit.as_ref().zip(ranking.full_in) else { return text };
    let near = full.value <= forecast::REACH * heap.bytes.seconds;
    match &limit.of {
        Some(of) if near => {
            let (size, time) = (bytes(limit.bytes), words::time(full.value));
            text += &format!("; it alone reaches the limit of {size} ({of}) in {time}");
        }
        // Nobody has asked, and it is far off.
        Some(_) => {}
        None => {
            text += &format!("; the limit is reached in {}", words::time(full.value));
            if !near {
                text += &format!(" if it goes on as in the {} seen", words::time(heap.bytes.seconds));
            }
        }
    }
    text
}

/// What it had grown to.
fn grown(suspect: &Suspect) -> u64 {
    suspect.held.map_or(suspect.group.bytes, |(bytes, _)| bytes)
}

/// A suspect.
fn one<W: Write>(
    out: &mut W,
    look: &Look,
    session: &mut Session,
    suspect: &Suspect,
    show: Show,
) -> io::Result<()> {
    let Palette { strong, dim, bad, .. } = look.palette;
    let style = if matches!(suspect.verdict, Verdict::Leak | Verdict::Growth) { bad } else { strong };
    let head = format!("{:>3}  ", suspect.rank);
    let room = look.width.saturating_sub(head.len() + 9);
    let site = parts::site_text(look, &suspect.group.stack, room);
    writeln!(out, "{head}{style}{:<8}{style:#} {site}", suspect.verdict.name())?;
    let curve = spark::line(&suspect.series, CURVE, show.unicode);
    writeln!(
        out,
        "     {} in {}{}, {:.0} % sure  {dim}{curve}{dim:#}",
        bytes(suspect.group.bytes),
        counted(suspect.group.blocks, "block", "blocks"),
        modes::give_or_take(suspect.group.variance, 0),
        suspect.confidence * 100.0,
    )?;
    if let Some((held, blocks)) = suspect.held.filter(|(_, blocks)| *blocks > suspect.group.blocks) {
        let blocks = counted(blocks, "block", "blocks");
        writeln!(out, "     {} in {blocks} before the program tidied up", bytes(held))?;
    }
    for line in wrap(&suspect.reason, look.width.saturating_sub(5)) {
        writeln!(out, "     {line}")?;
    }
    if let Some(growth) = suspect.signs.growth.as_ref().filter(|growth| growth.grows)
        && let Some(forecast) = forecast::ahead(grown(suspect) as f64, &growth.bytes)
    {
        writeln!(out, "     {}", words::ahead(&forecast))?;
    }
    let stack = &suspect.group.stack;
    let site = stack.frames.get(stack.site);
    if let Some((file, line)) = site.and_then(|frame| frame.file.as_deref().zip(frame.line))
        && let Some(text) = session.source_line(file, line)
    {
        let text = human::middle(text.trim(), look.width.saturating_sub(9));
        writeln!(out, "       {dim}> {text}{dim:#}")?;
    }
    let depth = if show.verbose { usize::MAX } else { 4 };
    let plain = Look { palette: Palette::plain(), ..*look };
    let callers = stack.frames.iter().skip(stack.site + 1).filter(|frame| !is_pseudo(frame) || show.verbose);
    for frame in callers.take(depth) {
        writeln!(out, "       {dim}from {}{dim:#}", parts::frame_text(&plain, frame, look.width - 12))?;
    }
    if suspect.stacks > 1 {
        writeln!(
            out,
            "       {dim}and {}{dim:#}",
            counted(suspect.stacks as u64 - 1, "other stack", "other stacks")
        )?;
    }
    Ok(())
}

/// What is alive but no suspect: a line, or with `--all` one each.
fn folded<W: Write>(
    out: &mut W,
    look: &Look,
    session: &mut Session,
    ranking: &Ranking,
    show: Show,
) -> io::Result<()> {
    if ranking.folded.is_empty() {
        return Ok(());
    }
    if show.all {
        for suspect in &ranking.folded {
            writeln!(out)?;
            one(out, look, session, suspect, show)?;
        }
        return Ok(());
    }
    let dim = look.palette.dim;
    let of = |verdict: Verdict| -> Option<String> {
        let some: Vec<&Suspect> = ranking.folded.iter().filter(|s| s.verdict == verdict).collect();
        let sum: u64 = some.iter().map(|s| s.group.bytes).fold(0, u64::saturating_add);
        let blocks: u64 = some.iter().map(|s| s.group.blocks).fold(0, u64::saturating_add);
        (!some.is_empty()).then(|| {
            let (sites, blocks) =
                (counted(some.len() as u64, "site", "sites"), counted(blocks, "block", "blocks"));
            format!("{sites} {} ({} in {blocks})", verdict.name(), bytes(sum))
        })
    };
    let parts: Vec<String> = [Verdict::StartUp, Verdict::Kept, Verdict::Growth, Verdict::Leak]
        .into_iter()
        .filter_map(of)
        .collect();
    let more = if ranking.scanned { "" } else { ", `run --leak-check` tells which of them are lost" };
    let text = format!("not suspected: {}; --all shows them{more}", parts.join(", "));
    writeln!(out, "\n{dim}{}{dim:#}", wrap(&text, look.width).join("\n"))
}

/// Breaks a text at blanks into lines of at most `width` columns.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// Writes `suspects`, `folded`, `wrappers`, `heap` into an open document.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(json: &mut Json<W>, ranking: &Ranking) -> io::Result<()> {
    for (key, list) in [("suspects", &ranking.suspects), ("folded", &ranking.folded)] {
        json.key(key)?;
        json.begin_array()?;
        for suspect in list {
            json_one(json, suspect)?;
        }
        json.end_array()?;
    }
    json.key("wrappers")?;
    json.begin_array()?;
    for name in &ranking.wrappers {
        json.str(name)?;
    }
    json.end_array()?;
    if let Some(heap) = &ranking.heap {
        json.key("heap")?;
        json.begin_object()?;
        json_growth(json, heap, ranking.heap_bytes)?;
        if let Some(limit) = &ranking.limit {
            json.field_u64("limit", limit.bytes)?;
            json.field_opt_str("limit_of", limit.of.as_deref())?;
        }
        if let Some(full) = ranking.full_in {
            json.field_f64("limit_in", full.value)?;
            json.field_f64("limit_in_at_least", full.low)?;
        }
        json.end_object()?;
    }
    Ok(())
}

fn json_one<W: Write>(json: &mut Json<W>, suspect: &Suspect) -> io::Result<()> {
    let signs = &suspect.signs;
    json.begin_object()?;
    json.field_u64("rank", suspect.rank as u64)?;
    json.field_str("verdict", suspect.verdict.name())?;
    parts::json_site(json, suspect.group.stack.site())?;
    json.field_u64("bytes", suspect.group.bytes)?;
    json.field_u64("blocks", suspect.group.blocks)?;
    json.field_u64("allocations", suspect.group.allocations)?;
    modes::json_error(json, suspect.group.variance)?;
    if let Some((bytes, blocks)) = suspect.held {
        json.key("before_end")?;
        json.begin_object()?;
        json.field_u64("bytes", bytes)?;
        json.field_u64("blocks", blocks)?;
        json.end_object()?;
    }
    json.key("methods")?;
    json.begin_array()?;
    for method in &suspect.methods {
        json.str(method.name())?;
    }
    json.end_array()?;
    json.field_f64("confidence", suspect.confidence)?;
    json.field_str("reason", &suspect.reason)?;
    if let Some(survivors) = signs.survivors {
        json.key("survivors")?;
        json.begin_object()?;
        json.field_u64("periods_with", survivors.with as u64)?;
        json.field_u64("periods", survivors.of as u64)?;
        json.field_u64("blocks", survivors.blocks)?;
        json.field_f64("evenness", survivors.evenness)?;
        json.field_f64("recurring", survivors.recurring)?;
        json.end_object()?;
    }
    if let Some(stale) = signs.stale {
        json.key("stale")?;
        json.begin_object()?;
        json.field_u64("blocks", stale.blocks)?;
        json.field_u64("bytes", stale.bytes)?;
        json.field_time("age", stale.age)?;
        json.end_object()?;
    }
    if let Some(growth) = &signs.growth {
        json.key("growth")?;
        json.begin_object()?;
        json_growth(json, growth, grown(suspect))?;
        json.end_object()?;
    }
    json_held_by(json, &suspect.held_by)?;
    let found = &signs.found;
    if found.definite_blocks + found.indirect_blocks + found.possible_blocks > 0 {
        for (name, value) in [
            ("definite_blocks", found.definite_blocks),
            ("definite_bytes", found.definite_bytes),
            ("indirect_blocks", found.indirect_blocks),
            ("indirect_bytes", found.indirect_bytes),
            ("possible_blocks", found.possible_blocks),
            ("possible_bytes", found.possible_bytes),
        ] {
            json.field_u64(name, value)?;
        }
    }
    json.key("series")?;
    json.begin_array()?;
    for &value in &suspect.series {
        json.u64(value)?;
    }
    json.end_array()?;
    parts::json_stack(json, &suspect.group.stack)?;
    json.end_object()
}

/// `held_by`, where a scan found that something still points to it.
fn json_held_by<W: Write>(json: &mut Json<W>, holders: &[Holder]) -> io::Result<()> {
    if holders.is_empty() {
        return Ok(());
    }
    json.key("held_by")?;
    json.begin_array()?;
    for holder in holders {
        json.begin_object()?;
        json.field_str("place", &holder.name)?;
        let kind = match holder.place {
            Place::Block { .. } => "block",
            Place::Data { .. } => "data",
            Place::Stack { .. } => "stack",
            Place::Register { .. } => "register",
            Place::Mapping { .. } => "mapping",
        };
        json.field_str("kind", kind)?;
        json.field_opt_str("symbol", holder.symbol.as_deref())?;
        json.field_u64("blocks", holder.amount.blocks)?;
        json.field_u64("bytes", holder.amount.bytes)?;
        json.key("through")?;
        json.begin_array()?;
        for frame in &holder.through {
            json.begin_object()?;
            parts::json_site(json, Some(frame))?;
            json.end_object()?;
        }
        json.end_array()?;
        json.end_object()?;
    }
    json.end_array()
}

/// Fields of growth; `forecast` only where it goes on growing and was seen for long
/// enough.
fn json_growth<W: Write>(json: &mut Json<W>, growth: &Growth, now: u64) -> io::Result<()> {
    json.field_bool("grows", growth.grows)?;
    json.field_str("class", growth.class.name())?;
    json.field_f64("bytes_per_second", growth.bytes.slope.value)?;
    json.field_f64("at_least", growth.bytes.slope.low)?;
    json.field_f64("at_most", growth.bytes.slope.high)?;
    json.field_u64("rises", growth.bytes.rises.into())?;
    json.field_u64("windows", growth.bytes.windows.into())?;
    json.field_f64("rise", growth.bytes.rise)?;
    json.field_f64("seconds", growth.bytes.seconds)?;
    if let Some(forecast) = forecast::ahead(now as f64, &growth.bytes).filter(|_| growth.grows) {
        json.key("forecast")?;
        json.begin_object()?;
        json.field_f64("in", forecast.seconds)?;
        json.field_f64("bytes", forecast.held.value)?;
        json.field_f64("at_least", forecast.held.low)?;
        json.field_f64("at_most", forecast.held.high)?;
        json.end_object()?;
        if forecast.seconds == 3600.0 {
            json.field_f64("in_an_hour", forecast.held.value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
