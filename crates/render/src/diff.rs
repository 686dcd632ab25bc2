//! `diff`: what is new, gone, grown and shrunk.

use std::io::{self, Write};
use std::sync::Arc;

use highwater_query::diff::{Amount, Change, Diff, Kind, Rank};
use highwater_query::stack::{function, is_pseudo};
use highwater_query::{By, Row, Value};

use crate::human::{bytes, count, counted, middle};
use crate::json::Json;
use crate::look::Look;
use crate::{modes, parts};

/// One side, in words and in totals.
#[derive(Clone, Debug, Default)]
pub struct Of {
    /// The file.
    pub name: String,
    /// What is counted of it: `live at the end`, `allocated`.
    pub what: String,
    /// Further totals for scripts, by their keys.
    pub totals: Vec<(&'static str, u64)>,
}

/// How the changes were found and are to be shown.
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    /// The earlier side.
    pub before: &'a Of,
    /// The later one.
    pub after: &'a Of,
    /// What was put together.
    pub by: By,
    /// Name of the measure.
    pub metric: &'a str,
    /// What counts first.
    pub rank: Rank,
    /// Were blocks compared, not groups?
    pub blocks: bool,
}

/// Writes the changes as JSON; `limit` of each kind.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(out: W, shown: &Shown<'_>, diff: &Diff, limit: usize) -> io::Result<()> {
    let mut json = Json::document(out, "diff")?;
    json.field_str("metric", shown.metric)?;
    json.field_str("by", shown.by.name())?;
    json.field_str("matched", if shown.blocks { "seqno" } else { "name" })?;
    json.field_u64("unchanged", diff.unchanged as u64)?;
    for kind in Kind::ALL {
        json.key(kind.name())?;
        json.begin_array()?;
        for change in diff.of(kind).take(limit) {
            json_change(&mut json, change)?;
        }
        json.end_array()?;
    }
    json.key("totals")?;
    json.begin_object()?;
    for (key, of, amount) in [("before", shown.before, diff.before), ("after", shown.after, diff.after)] {
        json.key(key)?;
        json.begin_object()?;
        json.field_str("file", &of.name)?;
        json.field_u64("bytes", amount.bytes)?;
        json.field_u64("blocks", amount.blocks)?;
        modes::json_error(&mut json, amount.variance)?;
        of.totals.iter().try_for_each(|(key, value)| json.field_u64(key, *value))?;
        json.end_object()?;
    }
    json.end_object()?;
    json.finish()?;
    Ok(())
}

/// `bytes` and `blocks` say how much is new, gone, more, or less; `change` has the sign.
fn json_change<W: Write>(json: &mut Json<W>, change: &Change) -> io::Result<()> {
    let small = |value: i128| i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX });
    let (by_bytes, by_blocks) = change.by();
    let sign = if matches!(change.kind, Kind::Gone | Kind::Shrunk) { -1 } else { 1 };
    json.begin_object()?;
    json.field_str("label", &change.label)?;
    parts::json_site(json, change.stack.site())?;
    json.field_i64("bytes", small(by_bytes * sign))?;
    json.field_i64("blocks", small(by_blocks * sign))?;
    for (key, amount) in [("before", change.before), ("after", change.after)] {
        json.key(key)?;
        json.begin_object()?;
        json.field_u64("bytes", amount.bytes)?;
        json.field_u64("blocks", amount.blocks)?;
        modes::json_error(json, amount.variance)?;
        json.end_object()?;
    }
    json.key("change")?;
    json.begin_object()?;
    json.field_i64("bytes", small(by_bytes))?;
    json.field_i64("blocks", small(by_blocks))?;
    json.end_object()?;
    parts::json_stack(json, &change.stack)?;
    json.end_object()
}

/// The columns of `--csv`.
pub const COLUMNS: &[&str] = &[
    "kind",
    "label",
    "function",
    "file",
    "line",
    "module",
    "bytes_before",
    "blocks_before",
    "bytes_after",
    "blocks_after",
    "bytes_change",
    "blocks_change",
];

/// A change as a row of [`COLUMNS`].
pub fn row(change: &Change) -> Row {
    let site = change.stack.site();
    let text = |text: Option<&str>| text.map_or(Value::Null, Value::text);
    let (bytes, blocks) = change.by();
    let values = vec![
        Value::text(change.kind.name()),
        Value::text(&change.label),
        text(site.and_then(function)),
        text(site.and_then(|frame| frame.file.as_deref())),
        site.and_then(|frame| frame.line).map_or(Value::Null, |line| Value::Number(line.into())),
        text(site.map(|frame| &*frame.module)),
        Value::Number(change.before.bytes),
        Value::Number(change.before.blocks),
        Value::Number(change.after.bytes),
        Value::Number(change.after.blocks),
        Value::text(&bytes.to_string()),
        Value::text(&blocks.to_string()),
    ];
    Row { columns: COLUMNS, values, stack: Some(Arc::clone(&change.stack)) }
}

/// `+1.0 KiB`, `-3`, `0`.
fn signed(value: i128, show: fn(u64) -> String) -> String {
    let size = show(u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX));
    match value.signum() {
        1 => format!("+{size}"),
        -1 => format!("-{size}"),
        _ => size,
    }
}

/// Writes the changes as text, the greatest first; `limit` of them.
///
/// # Errors
/// The output's.
pub fn text<W: Write>(
    out: &mut W,
    look: &Look,
    shown: &Shown<'_>,
    diff: &Diff,
    limit: usize,
) -> io::Result<()> {
    let (strong, dim) = (look.palette.strong, look.palette.dim);
    let amount = |amount: Amount| {
        let sure = modes::give_or_take(amount.variance, 0);
        format!("{} in {}{sure}", bytes(amount.bytes), counted(amount.blocks, "block", "blocks"))
    };
    for (word, of, total) in [("before", shown.before, diff.before), ("after", shown.after, diff.after)] {
        let what = format!("{}: {}", amount(total), of.what);
        let name = middle(&of.name, look.width.saturating_sub(what.chars().count() + 10).max(16));
        writeln!(out, "{word:<7} {name}  {what}")?;
    }
    let by = |a: u64, b: u64| i128::from(b) - i128::from(a);
    let (by_bytes, by_blocks) =
        (by(diff.before.bytes, diff.after.bytes), by(diff.before.blocks, diff.after.blocks));
    let noun = if by_blocks.abs() == 1 { "block" } else { "blocks" };
    writeln!(
        out,
        "{strong}change  {}, {} {noun}{strong:#}\n",
        signed(by_bytes, bytes),
        signed(by_blocks, count)
    )?;
    if diff.changes.is_empty() {
        return writeln!(out, "nothing has changed");
    }
    let by_blocks = shown.rank == Rank::Blocks;
    let second = if by_blocks { "bytes" } else { "blocks" };
    writeln!(
        out,
        "{strong}{:>11} {second:>11} {:>11} {:>11}  {}{strong:#}",
        "change",
        "before",
        "after",
        shown.by.name()
    )?;
    let width = look.width.saturating_sub(49);
    for change in diff.changes.iter().take(limit) {
        let (bytes_by, blocks_by) = change.by();
        let (bytes_by, blocks_by) = (signed(bytes_by, bytes), signed(blocks_by, count));
        let side = |amount: Amount| if by_blocks { count(amount.blocks) } else { bytes(amount.bytes) };
        let before = if change.kind == Kind::New { "new".to_string() } else { side(change.before) };
        let after = if change.kind == Kind::Gone { "gone".to_string() } else { side(change.after) };
        let (first, second) = if by_blocks { (blocks_by, bytes_by) } else { (bytes_by, blocks_by) };
        let what = match shown.by {
            By::Site | By::Stack => parts::site_text(look, &change.stack, width),
            _ => middle(&change.label, width),
        };
        writeln!(out, "{first:>11} {second:>11} {before:>11} {after:>11}  {what}")?;
        if shown.by == By::Stack {
            let callers = change.stack.frames.iter().skip(change.stack.site + 1);
            for frame in callers.filter(|frame| !is_pseudo(frame)) {
                let plain = Look { palette: crate::Palette::plain(), ..*look };
                let text = parts::frame_text(&plain, frame, width.saturating_sub(7));
                writeln!(out, "{:>49}{dim}  from {text}{dim:#}", "")?;
            }
        }
    }
    if diff.changes.len() > limit {
        let rest = diff.changes.iter().skip(limit).map(Change::by);
        let (bytes_by, blocks_by) = rest.fold((0, 0), |sum, by| (sum.0 + by.0, sum.1 + by.1));
        let (bytes_by, blocks_by) = (signed(bytes_by, bytes), signed(blocks_by, count));
        let (first, second) = if by_blocks { (blocks_by, bytes_by) } else { (bytes_by, blocks_by) };
        let more = count((diff.changes.len() - limit) as u64);
        writeln!(out, "{first:>11} {second:>11} {:>23}  and {more} more", "")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
