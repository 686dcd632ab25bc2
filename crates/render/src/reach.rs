//! `leaks --method unreachable`: what a scan of the program's memory found.

use std::io::{self, Write};

use highwater_query::leaks::reach::{Amount, Class, Lost, LostGroup, Reach, Scanned};
use highwater_query::stack::is_pseudo;
use highwater_query::{By, Session};

use crate::human::{bytes, count, counted, middle, time};
use crate::json::Json;
use crate::look::Look;
use crate::parts;

/// An amount as one cell: `96 B in 3 blocks`.
pub fn amount(amount: Amount) -> String {
    format!("{} in {}", bytes(amount.bytes), counted(amount.blocks, "block", "blocks"))
}

/// The four classes, one line each, as memcheck's summary has them.
pub fn class_lines(lost: &Lost) -> Vec<String> {
    let mut lines: Vec<String> = Class::ALL
        .iter()
        .map(|&class| format!("{:>16}  {}", class.name(), amount(lost.class(class))))
        .collect();
    if lost.suppressed.blocks > 0 {
        lines.push(format!("{:>16}  {}", "suppressed", amount(lost.suppressed)));
    }
    lines
}

/// One line for the end of `run`: what is lost, or why nobody knows.
pub fn short(scanned: &Scanned, lost: &Lost) -> String {
    match scanned {
        Scanned::Not(why) => format!("not scanned: {why}"),
        Scanned::Done(_) => {
            let cell = |class: Class| {
                let amount = lost.class(class);
                (amount.blocks > 0).then(|| {
                    let blocks = counted(amount.blocks, "block", "blocks");
                    format!("{}: {blocks}, {}", class.name(), exact(amount.bytes))
                })
            };
            let cells: Vec<String> =
                [Class::Definite, Class::Indirect, Class::Possible].into_iter().filter_map(cell).collect();
            if cells.is_empty() { "nothing is lost".to_string() } else { cells.join("; ") }
        }
    }
}

fn exact(value: u64) -> String {
    counted(value, "byte", "bytes")
}

/// What to show of a table.
#[derive(Clone, Copy, Debug)]
pub struct Show {
    /// What lines stand for.
    pub by: By,
    /// How many of them.
    pub limit: usize,
}

/// Writes the table of stacks that lost something, and the sums.
///
/// # Errors
/// The output's.
pub fn text<W: Write + ?Sized>(
    out: &mut W,
    look: &Look,
    session: &Session,
    reach: &Reach,
    lost: &Lost,
    groups: &[LostGroup],
    Show { by, limit }: Show,
) -> io::Result<()> {
    let (strong, dim) = (look.palette.strong, look.palette.dim);
    let shown: Vec<&LostGroup> = groups.iter().filter(|group| group.is_lost()).collect();
    if shown.is_empty() {
        writeln!(out, "nothing is lost: something points to every block that is alive\n")?;
    } else {
        let heads = ["definite", "with it", "blocks", "possible"];
        let [a, b, c, d] = heads;
        writeln!(out, "{strong}{a:>10} {b:>10} {c:>7} {d:>10}  {}{strong:#}", by.name())?;
    }
    let width = look.width.saturating_sub(42);
    for group in shown.iter().take(limit) {
        let what = match by {
            By::Function | By::File | By::Module => middle(&group.label, width),
            _ => parts::site_text(look, &group.stack, width),
        };
        let blocks = group.class(Class::Definite).blocks + group.owned.blocks;
        writeln!(
            out,
            "{:>10} {:>10} {:>7} {:>10}  {what}",
            cell(group.class(Class::Definite).bytes),
            cell(group.owned.bytes),
            if blocks == 0 { "-".to_string() } else { count(blocks) },
            cell(group.class(Class::Possible).bytes),
        )?;
        if group.bytes() == 0 && group.class(Class::Possible).blocks == 0 {
            let indirect = amount(group.class(Class::Indirect));
            writeln!(out, "{:>42}{dim}  {indirect}, lost with others{dim:#}", "")?;
        }
        let depth = if by == By::Stack { usize::MAX } else { 2 };
        let callers = group.stack.frames.iter().skip(group.stack.site + 1);
        if matches!(by, By::Site | By::Stack) {
            for frame in callers.filter(|frame| by == By::Stack || !is_pseudo(frame)).take(depth) {
                let plain = Look { palette: crate::Palette::plain(), ..*look };
                let text = parts::frame_text(&plain, frame, width.saturating_sub(7));
                writeln!(out, "{:>42}{dim}  from {text}{dim:#}", "")?;
            }
        }
    }
    if shown.len() > limit {
        writeln!(out, "{:>42}  and {} more", "", count((shown.len() - limit) as u64))?;
    }
    if !shown.is_empty() {
        writeln!(out)?;
    }
    for line in class_lines(lost) {
        writeln!(out, "{line}")?;
    }
    let threads = counted(reach.threads, "thread", "threads");
    writeln!(
        out,
        "\n{dim}scanned at {}: {threads} stopped for {}, {} of roots and {} of blocks read{dim:#}",
        time(reach.ns),
        time(reach.stopped_ns),
        bytes(reach.root_bytes),
        bytes(reach.heap_bytes),
    )?;
    for note in &reach.notes {
        writeln!(out, "{dim}note: {note}{dim:#}")?;
    }
    let first = reach.blocks.iter().find(|block| block.class == Class::Definite).or(reach.blocks.first());
    match first {
        Some(block) => parts::hint(
            out,
            look,
            session,
            &format!("leaks --who {:#x}", block.addr),
            "who points to a block",
        ),
        None => Ok(()),
    }
}

fn cell(value: u64) -> String {
    if value == 0 { "-".to_string() } else { bytes(value) }
}

fn json_amount<W: Write>(json: &mut Json<W>, key: &str, amount: Amount) -> io::Result<()> {
    json.key(key)?;
    json.begin_object()?;
    json.field_u64("blocks", amount.blocks)?;
    json.field_u64("bytes", amount.bytes)?;
    json.end_object()
}

/// The object `scan`: whether there was one, and the classes.
///
/// # Errors
/// The output's.
pub fn json_scan<W: Write>(json: &mut Json<W>, scanned: &Scanned, lost: &Lost) -> io::Result<()> {
    json.key("scan")?;
    json.begin_object()?;
    json.field_bool("scanned", matches!(scanned, Scanned::Done(_)))?;
    match scanned {
        Scanned::Not(why) => json.field_str("not_scanned", why)?,
        Scanned::Done(reach) => {
            for class in Class::ALL {
                json_amount(json, class.key(), lost.class(class))?;
            }
            json_amount(json, "suppressed", lost.suppressed)?;
            json.field_time("time", reach.ns)?;
            json.field_time("stopped", reach.stopped_ns)?;
            json.field_u64("threads", reach.threads)?;
            json.field_u64("root_bytes", reach.root_bytes)?;
            json.field_u64("heap_bytes", reach.heap_bytes)?;
            json.key("notes")?;
            json.begin_array()?;
            for note in &reach.notes {
                json.str(note)?;
            }
            json.end_array()?;
        }
    }
    json.end_object()
}

/// Writes the document `highwater.leaks/1`: what is lost as `suspects`, and
/// every stack with its classes as `sites`.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(
    out: W,
    scanned: &Scanned,
    lost: &Lost,
    groups: &[LostGroup],
    by: By,
) -> io::Result<()> {
    let mut json = Json::document(out, "leaks")?;
    json.field_str("method", "unreachable")?;
    json.field_str("by", by.name())?;
    let mut live = Amount::default();
    lost.classes.iter().for_each(|&class| live.join(class));
    json.field_u64("live_bytes", live.bytes)?;
    json.field_u64("live_blocks", live.blocks)?;
    json_scan(&mut json, scanned, lost)?;
    json.key("suspects")?;
    json.begin_array()?;
    let suspects = groups
        .iter()
        .filter(|group| group.class(Class::Definite).blocks > 0 || group.class(Class::Possible).blocks > 0);
    for (at, group) in suspects.enumerate() {
        let definite = group.class(Class::Definite);
        let possible = group.class(Class::Possible);
        json.begin_object()?;
        json.field_u64("rank", at as u64 + 1)?;
        parts::json_site(&mut json, group.stack.site())?;
        let sure = definite.blocks > 0;
        let (bytes, blocks) = match sure {
            true => (group.bytes(), definite.blocks + group.owned.blocks),
            false => (possible.bytes, possible.blocks),
        };
        json.field_u64("bytes", bytes)?;
        json.field_u64("blocks", blocks)?;
        json.key("methods")?;
        json.begin_array()?;
        json.str("unreachable")?;
        json.end_array()?;
        json.field_str("confidence", if sure { "high" } else { "medium" })?;
        json.field_str("reason", &reason(group))?;
        json_classes(&mut json, group)?;
        parts::json_stack(&mut json, &group.stack)?;
        json.end_object()?;
    }
    json.end_array()?;
    json.key("sites")?;
    json.begin_array()?;
    for group in groups {
        json.begin_object()?;
        json.field_str("label", &group.label)?;
        parts::json_site(&mut json, group.stack.site())?;
        json_classes(&mut json, group)?;
        parts::json_stack(&mut json, &group.stack)?;
        json.end_object()?;
    }
    json.end_array()?;
    json.finish()?;
    Ok(())
}

fn json_classes<W: Write>(json: &mut Json<W>, group: &LostGroup) -> io::Result<()> {
    for class in Class::ALL {
        json_amount(json, class.key(), group.class(class))?;
    }
    json_amount(json, "lost_with", group.owned)
}

/// Why a stack is suspected, in a sentence.
pub fn reason(group: &LostGroup) -> String {
    let definite = group.class(Class::Definite);
    if definite.blocks == 0 {
        return "only pointers into the middle lead to it".to_string();
    }
    let what = counted(definite.blocks, "block", "blocks");
    match group.owned.blocks {
        0 => format!("nothing points to {what} of it any more"),
        more => format!(
            "nothing points to {what} of it any more, nor to {} that only {} to",
            counted(more, "block", "blocks"),
            if definite.blocks == 1 { "it leads" } else { "they lead" },
        ),
    }
}
