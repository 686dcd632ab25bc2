//! `stats`: the totals.

use std::io::{self, Write};

use highwater_query::{By, Group, Session, Stats};
use highwater_replay::histogram::Histogram;
use highwater_trace::model::EndedHow;

use crate::human::{bytes, count, counted, percent, rate, time};
use crate::json::Json;
use crate::look::Look;
use crate::modes::give_or_take;
use crate::parts;

/// The word for how the target ended, as in JSON.
pub fn ended_word(how: EndedHow) -> &'static str {
    match how {
        EndedHow::Exit => "exit",
        EndedHow::Signal => "signal",
        EndedHow::Exec => "exec",
        EndedHow::Detached => "detached",
        EndedHow::Running => "running",
        EndedHow::Lost => "lost",
    }
}

/// How the target ended, as the end of a sentence that begins with its name.
pub fn ended_text(stats: &Stats) -> String {
    match stats.ended {
        EndedHow::Exit => format!("exited with status {}", stats.code),
        EndedHow::Signal => match signal_name(stats.code) {
            Some(name) => format!("was killed by {name} (signal {})", stats.code),
            None => format!("was killed by signal {}", stats.code),
        },
        EndedHow::Exec => "became another program (exec)".to_string(),
        EndedHow::Detached => "was let go of and runs on".to_string(),
        EndedHow::Running => "still runs".to_string(),
        EndedHow::Lost => "has no recorded end".to_string(),
    }
}

/// Names of the Linux signals that end programs (`signal(7)`, all machines but
/// alpha, sparc and mips).
fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// Writes the totals as JSON, and `groups` of them where asked for.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(out: W, stats: &Stats, groups: Option<(By, &[Group])>) -> io::Result<()> {
    let totals = &stats.totals;
    let mut json = Json::document(out, "stats")?;
    json.field_u64("events", totals.events)?;
    json.field_u64("allocations", totals.allocations)?;
    json.field_u64("frees", totals.frees)?;
    json.field_u64("reallocations", totals.reallocations)?;
    json.field_u64("failed_reallocations", totals.failed_reallocations)?;
    json.field_u64("bytes_allocated", totals.bytes_allocated)?;
    json.field_u64("bytes_freed", totals.bytes_freed)?;
    json.field_u64("temporary", totals.temporary)?;
    json.field_u64("live_blocks", totals.live_blocks)?;
    json.field_u64("live_bytes", totals.live_bytes)?;
    json.field_u64("peak_bytes", totals.peak_bytes)?;
    json.field_u64("peak_blocks", totals.peak_blocks)?;
    json.field_time("peak_time", totals.peak_ns)?;
    json.field_u64("peak_seqno", totals.peak_seqno)?;
    json.field_u64("peak_uncertainty", totals.peak_uncertainty)?;
    json.field_time("duration", stats.duration_ns)?;
    json.field_time("stalled", stats.stalled_ns)?;
    json.field_u64("threads", stats.threads)?;
    json.key("errors")?;
    json.begin_object()?;
    json.field_u64("double_free", totals.double_free)?;
    json.field_u64("invalid_free", totals.invalid_free)?;
    json.field_u64("mismatched", totals.mismatched)?;
    json.end_object()?;
    json.field_u64("foreign_frees", totals.foreign_frees)?;
    json.field_u64("missing_frees", totals.missing_frees)?;
    json.key("stacks")?;
    json.begin_object()?;
    json.field_u64("complete", stats.stacks_complete)?;
    json.field_u64("truncated", stats.stacks_truncated)?;
    json.key("reasons")?;
    json.begin_object()?;
    for (reason, count) in &stats.truncations {
        json.field_u64(reason.name(), *count)?;
    }
    json.end_object()?;
    json.end_object()?;
    json.field_u64("order_repairs", totals.order_repairs)?;
    json.field_u64("dropped", stats.dropped)?;
    json.key("ended")?;
    json.begin_object()?;
    json.field_str("how", ended_word(stats.ended))?;
    json.field_i64("code", stats.code.into())?;
    json.end_object()?;
    crate::modes::json(&mut json, &stats.modes, Some(stats))?;
    json.field_bool("complete", stats.complete)?;
    json.key("incomplete")?;
    json.begin_array()?;
    for reason in &stats.incomplete {
        json.str(reason)?;
    }
    json.end_array()?;
    json.key("by_api")?;
    json.begin_object()?;
    for (name, count) in totals.calls() {
        json.field_u64(name, count)?;
    }
    json.end_object()?;
    if let Some((by, groups)) = groups {
        json.field_str("by", by.name())?;
        json.key("groups")?;
        json.begin_array()?;
        for group in groups {
            let of = &group.counts;
            json.begin_object()?;
            json.field_str("label", &group.label)?;
            parts::json_site(&mut json, group.stack.site())?;
            json.field_u64("allocations", of.allocations)?;
            json.field_u64("bytes_allocated", of.allocated)?;
            json.field_u64("frees", of.frees)?;
            json.field_u64("bytes_freed", of.freed)?;
            json.field_u64("temporary", of.temporary)?;
            json.field_u64("live_blocks", of.live_blocks)?;
            json.field_u64("live_bytes", of.live_bytes)?;
            json.field_u64("peak_blocks", of.peak_blocks)?;
            json.field_u64("peak_bytes", of.peak_bytes)?;
            parts::json_stack(&mut json, &group.stack)?;
            json.end_object()?;
        }
        json.end_array()?;
    }
    json.finish()?;
    Ok(())
}

/// Writes the totals as text; `sizes` and `lifetimes` are those of the blocks.
///
/// # Errors
/// The output's.
pub fn text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &Session,
    stats: &Stats,
    sizes: &Histogram,
    lifetimes: &Histogram,
) -> io::Result<()> {
    let (totals, bad) = (&stats.totals, look.palette.bad);
    if let Some(nothing) = stats.nothing(session) {
        return writeln!(out, "{}", nothing.sentence());
    }
    headline(out, look, session, stats)?;
    let mut row = |label: &str, blocks: u64, size: Option<u64>, note: String| {
        let size = size.map(bytes).unwrap_or_default();
        let line = format!("  {label:<15} {:>15} {size:>12}  {note}", count(blocks));
        writeln!(out, "{}", line.trim_end())
    };
    let per_second = rate(totals.allocations, stats.duration_ns);
    row("allocations", totals.allocations, Some(totals.bytes_allocated), per_second)?;
    row("frees", totals.frees, Some(totals.bytes_freed), String::new())?;
    row("reallocations", totals.reallocations, None, String::new())?;
    let share = format!("{} of allocations", percent(totals.temporary, totals.allocations));
    if stats.modes.sample == 0 {
        row("temporary", totals.temporary, None, share)?;
    }
    let sure = give_or_take(totals.sampled.peak_variance, totals.peak_uncertainty);
    row("peak", totals.peak_blocks, Some(totals.peak_bytes), format!("at {}{sure}", time(totals.peak_ns)))?;
    let sure = give_or_take(totals.sampled.live_variance, 0);
    let sure = sure.trim_start_matches(", ").to_string();
    row("live at the end", totals.live_blocks, Some(totals.live_bytes), sure)?;
    writeln!(out)?;

    let calls: Vec<String> = totals.calls().iter().map(|(name, n)| format!("{name} {}", count(*n))).collect();
    list(out, look, "calls", &calls)?;
    writeln!(out, "  {:<15} {}", "threads", count(stats.threads))?;
    let stacks = stats.stacks_complete + stats.stacks_truncated;
    if stacks > 0 {
        let mut words = vec![format!("{} complete", percent(stats.stacks_complete, stacks))];
        words.extend(stats.truncations.iter().map(|(why, n)| format!("{} {}", count(*n), why.name())));
        list(out, look, "stacks", &words)?;
    }
    if totals.errors() > 0 {
        let words = error_words(stats).join(", ");
        writeln!(out, "  {:<15} {bad}{words}{bad:#}", "errors")?;
    }
    if totals.foreign_frees > 0 {
        let what = "of blocks from before the recording";
        writeln!(out, "  {:<15} {} {what}", "foreign frees", count(totals.foreign_frees))?;
    }
    if totals.missing_frees > 0 {
        writeln!(out, "  {:<15} {} blocks were freed unseen", "missing frees", count(totals.missing_frees))?;
    }
    if totals.order_repairs > 0 {
        let what = "between threads";
        writeln!(out, "  {:<15} {} {what}", "order repairs", count(totals.order_repairs))?;
    }
    if stats.stalled_ns > 0 {
        writeln!(out, "  {:<15} {} waiting for the recorder", "stalled", time(stats.stalled_ns))?;
    }
    if stats.dropped > 0 {
        writeln!(out, "  {:<15} {bad}{}{bad:#}", "dropped", counted(stats.dropped, "event", "events"))?;
    }
    let buckets = |of: &Histogram, unit: fn(u64) -> String| {
        let mut all: Vec<_> = of.buckets().collect();
        let whole: u64 = all.iter().map(|bucket| bucket.count).sum();
        all.sort_by_key(|bucket| (std::cmp::Reverse(bucket.count), bucket.low));
        all.truncate(4);
        all.iter()
            .map(|bucket| {
                format!("{} {} to {}", percent(bucket.count, whole), unit(bucket.low), unit(bucket.high))
            })
            .collect::<Vec<_>>()
    };
    let sizes = buckets(sizes, bytes);
    list(out, look, "usual sizes", &sizes)?;
    let lives = buckets(lifetimes, time);
    list(out, look, "usual lifetimes", &lives)?;
    if totals.errors() > 0 {
        parts::hint(out, look, session, "errors", "the bad frees")
    } else {
        parts::hint(out, look, session, "peak", "who held the memory at the peak")
    }
}

/// Whose numbers these are, and how it ended.
fn headline<W: Write>(out: &mut W, look: &Look, session: &Session, stats: &Stats) -> io::Result<()> {
    let strong = look.palette.strong;
    let (program, length) = (session.facts().program(), time(stats.duration_ns));
    if let Some(tool) = session.facts().meta.option("from").filter(|_| !stats.part) {
        return writeln!(out, "{strong}{program}{strong:#} as {tool} tells it: {length}\n");
    }
    let what = match stats.part {
        true => format!(", a part of its recording, {length} long"),
        false => format!(" {} after {length}", ended_text(stats)),
    };
    writeln!(out, "{strong}{program}{strong:#}{what}\n")
}

/// Writes the totals by group as text, in the order given; `limit` of them.
///
/// # Errors
/// The output's.
pub fn groups_text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &Session,
    stats: &Stats,
    groups: &[Group],
    by: By,
    limit: usize,
) -> io::Result<()> {
    if let Some(nothing) = stats.nothing(session) {
        return writeln!(out, "{}", nothing.sentence());
    }
    let strong = look.palette.strong;
    headline(out, look, session, stats)?;
    writeln!(
        out,
        "{strong}{:>10} {:>11} {:>10} {:>9} {:>9}  {}{strong:#}",
        "allocated",
        "blocks",
        "temporary",
        "live",
        "at peak",
        by.name()
    )?;
    let width = look.width.saturating_sub(55);
    for group in groups.iter().take(limit) {
        let what = match by {
            By::Site | By::Stack => parts::site_text(look, &group.stack, width),
            _ => crate::human::middle(&group.label, width),
        };
        let of = &group.counts;
        writeln!(
            out,
            "{:>10} {:>11} {:>10} {:>9} {:>9}  {what}",
            bytes(of.allocated),
            count(of.allocations),
            count(of.temporary),
            bytes(of.live_bytes),
            bytes(of.peak_bytes),
        )?;
    }
    if groups.len() > limit {
        writeln!(out, "{:>53}  and {} more", "", count((groups.len() - limit) as u64))?;
    }
    parts::hint(out, look, session, "peak", "who held the memory at the peak")
}

/// `1 double free`, `2 mismatched frees`, … of what there is.
pub(crate) fn error_words(stats: &Stats) -> Vec<String> {
    let totals = &stats.totals;
    [
        (totals.double_free, "double free", "double frees"),
        (totals.invalid_free, "invalid free", "invalid frees"),
        (totals.mismatched, "mismatched free", "mismatched frees"),
    ]
    .into_iter()
    .filter(|(n, ..)| *n > 0)
    .map(|(n, one, many)| counted(n, one, many))
    .collect()
}

/// A label and words, broken to the width.
fn list<W: Write>(out: &mut W, look: &Look, label: &str, words: &[String]) -> io::Result<()> {
    if words.is_empty() {
        return Ok(());
    }
    let mut line = format!("  {label:<15} ");
    let mut fresh = true;
    for (at, word) in words.iter().enumerate() {
        let word = if at + 1 < words.len() { format!("{word},") } else { word.clone() };
        if !fresh && line.chars().count() + word.chars().count() + 1 > look.width {
            writeln!(out, "{}", line.trim_end())?;
            line = " ".repeat(18);
        }
        line.push_str(&word);
        line.push(' ');
        fresh = false;
    }
    writeln!(out, "{}", line.trim_end())
}
