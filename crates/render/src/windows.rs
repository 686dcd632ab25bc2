//! `leaks --method window`: what actions left behind.

use std::io::{self, Write};

use highwater_query::leaks::actions::{Actions, Kept};
use highwater_query::leaks::window::Window;
use highwater_query::{By, Session, Stats, units};
use highwater_replay::{LiveBlock, Until};

use crate::dump;
use crate::human::{bytes, count, counted, middle, time};
use crate::json::Json;
use crate::look::Look;
use crate::{modes, parts};

/// An instant as people name it.
fn instant(until: Until) -> String {
    match until {
        Until::Start => "the start".to_string(),
        Until::End => "the end".to_string(),
        Until::Seqno(seqno) => format!("event {seqno}"),
        Until::Ns(ns) => time(ns),
    }
}

/// Writes the table: sites that survive in every window, most bytes first.
///
/// # Errors
/// The output's.
pub fn text<W: Write + ?Sized>(
    out: &mut W,
    look: &Look,
    session: &Session,
    found: &Actions,
    by: By,
    limit: usize,
) -> io::Result<()> {
    let (strong, dim) = (look.palette.strong, look.palette.dim);
    let sure = modes::give_or_take(modes::variance(found.all.iter().map(|kept| &kept.group)), 0);
    let sum = format!("{} in {}{sure}", bytes(found.bytes()), counted(found.blocks(), "block", "blocks"));
    match found.windows.as_slice() {
        [one] => {
            let (from, to, until) = (instant(one.from), instant(one.to), instant(one.until));
            writeln!(out, "made after {from} and up to {to}, alive at {until}:")?;
            writeln!(out, "{strong}{sum}{strong:#}")?;
        }
        several => {
            let names: Vec<&str> = several.iter().map(|window| window.name.as_str()).collect();
            let names = middle(&names.join(", "), look.width.saturating_sub(28));
            writeln!(out, "left behind by each of {} actions ({names}):", several.len())?;
            writeln!(out, "{strong}{sum}{strong:#}")?;
        }
    }
    if !found.all.is_empty() {
        writeln!(out, "\n{strong}{:>11} {:>11}  {}{strong:#}", "bytes", "blocks", by.name())?;
    }
    for kept in found.all.iter().take(limit) {
        row(out, look, kept, by)?;
    }
    if found.all.len() > limit {
        let more = count((found.all.len() - limit) as u64);
        let rest = found.all.iter().skip(limit).map(|kept| kept.group.bytes).sum();
        writeln!(out, "{:>11} {:>11}  and {more} more", bytes(rest), "")?;
    }
    if !found.some.is_empty() {
        let some = counted(found.some.len() as u64, "site survives", "sites survive");
        let rest = found.some.iter().map(|kept| kept.group.bytes).sum();
        writeln!(
            out,
            "\n{dim}{some} only some of the actions ({}): what fills once is no leak{dim:#}",
            bytes(rest)
        )?;
    }
    parts::hint(out, look, session, "leaks --method exit", "all that is alive at the end")
}

fn row<W: Write + ?Sized>(out: &mut W, look: &Look, kept: &Kept, by: By) -> io::Result<()> {
    let dim = look.palette.dim;
    let width = look.width.saturating_sub(25);
    let group = &kept.group;
    let what = match by {
        By::Site | By::Stack => parts::site_text(look, &group.stack, width),
        _ => middle(&group.label, width),
    };
    writeln!(out, "{:>11} {:>11}  {what}", bytes(group.bytes), count(group.blocks))?;
    if kept.blocks.len() > 1 {
        writeln!(out, "{:>25}{}", "", kept.reason())?;
    }
    if let Some(each) = kept.per_action() {
        let size = units::size_text;
        let text = format!("adds {} an action ({} to {})", size(each.value), size(each.low), size(each.high));
        writeln!(out, "{:>25}{text}", "")?;
    }
    if matches!(by, By::Site | By::Stack) {
        let depth = if by == By::Stack { usize::MAX } else { 2 };
        for frame in group.stack.frames.iter().skip(group.stack.site + 1).take(depth) {
            let plain = Look { palette: crate::Palette::plain(), ..*look };
            let text = parts::frame_text(&plain, frame, width.saturating_sub(7));
            writeln!(out, "{:>25}{dim}  from {text}{dim:#}", "")?;
        }
    }
    Ok(())
}

/// Writes the document `highwater.leaks/1` with the windows and, of each
/// suspect, what it kept of every one.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(
    out: W,
    session: &mut Session,
    stats: &Stats,
    found: &Actions,
    by: By,
    with_blocks: bool,
) -> io::Result<()> {
    let mut json = Json::document(out, "leaks")?;
    json.field_str("method", "window")?;
    json.field_u64("live_bytes", stats.totals.live_bytes)?;
    json.field_u64("live_blocks", stats.totals.live_blocks)?;
    modes::json(&mut json, &stats.modes, Some(stats))?;
    json.field_bool("complete", stats.complete)?;
    json.field_str("by", by.name())?;
    json.key("windows")?;
    json.begin_array()?;
    for window in &found.windows {
        json_window(&mut json, window)?;
    }
    json.end_array()?;
    json.key("suspects")?;
    json.begin_array()?;
    for (at, kept) in found.all.iter().enumerate() {
        json.begin_object()?;
        json.field_u64("rank", at as u64 + 1)?;
        json_kept(&mut json, kept)?;
        json.end_object()?;
    }
    json.end_array()?;
    json.key("sites")?;
    json.begin_array()?;
    for kept in found.all.iter().chain(&found.some) {
        json.begin_object()?;
        json.field_str("label", &kept.group.label)?;
        json.field_u64("allocations", kept.group.allocations)?;
        json_kept(&mut json, kept)?;
        json.end_object()?;
    }
    json.end_array()?;
    if with_blocks {
        let mut blocks: Vec<LiveBlock> = found.survivors.iter().flatten().map(|s| s.block).collect();
        blocks.sort_unstable_by_key(|block| block.seqno);
        blocks.dedup_by_key(|block| block.seqno);
        dump::json_blocks(&mut json, session, &blocks)?;
    }
    json.finish()?;
    Ok(())
}

fn json_window<W: Write>(json: &mut Json<W>, window: &Window) -> io::Result<()> {
    json.begin_object()?;
    json.field_str("name", &window.name)?;
    for (key, until) in [("from", window.from), ("to", window.to), ("until", window.until)] {
        match until {
            Until::Start => json.field_str(key, "start")?,
            Until::End => json.field_str(key, "end")?,
            Until::Seqno(seqno) => json.field_str(key, &format!("#{seqno}"))?,
            Until::Ns(ns) => json.field_time(key, ns)?,
        }
    }
    json.end_object()
}

fn json_kept<W: Write>(json: &mut Json<W>, kept: &Kept) -> io::Result<()> {
    let group = &kept.group;
    parts::json_site(json, group.stack.site())?;
    json.field_u64("bytes", group.bytes)?;
    json.field_u64("blocks", group.blocks)?;
    modes::json_error(json, group.variance)?;
    json.key("methods")?;
    json.begin_array()?;
    json.str("window")?;
    json.end_array()?;
    json.field_str("confidence", kept.confidence())?;
    json.field_str("reason", &kept.reason())?;
    json.key("actions")?;
    json.begin_object()?;
    json.field_u64("of", kept.blocks.len() as u64)?;
    json.field_u64("survived", kept.survived() as u64)?;
    for (key, list) in [("blocks", &kept.blocks), ("bytes", &kept.bytes)] {
        json.key(key)?;
        json.begin_array()?;
        for value in list {
            json.u64(*value)?;
        }
        json.end_array()?;
    }
    if let Some(each) = kept.per_action() {
        json.key("per_action")?;
        json.begin_object()?;
        json.field_f64("bytes", each.value)?;
        json.field_f64("at_least", each.low)?;
        json.field_f64("at_most", each.high)?;
        json.end_object()?;
    }
    json.end_object()?;
    parts::json_stack(json, &group.stack)
}

#[cfg(test)]
mod tests {
    use highwater_query::leaks::actions::find;
    use highwater_query::leaks::suppressions::Suppressions;
    use highwater_query::leaks::window::of_series;
    use highwater_query::session::made::Made;

    use super::*;

    fn found() -> (Session, Actions) {
        let mut made = Made::default()
            .node(1, 0, "main", "/src/main.c", 3)
            .node(2, 1, "forget", "/src/leak.c", 7)
            .node(3, 1, "fill", "/src/cache.c", 9);
        for action in 0..4u64 {
            made = made.mark(&format!("A{action}"), action * 20_000_000 + 5_000_000);
        }
        for action in 0..3u64 {
            let other = if action == 0 { 3 } else { 2 };
            made = made.alloc(0, 0x1000 + action * 64, 10, 2).alloc(0, 0x8000 + action * 64, 100, other);
        }
        let mut session = made.session();
        let windows = of_series(&session.facts().marks.clone(), "A");
        let found = find(&mut session, windows, By::Site, &Suppressions::default()).expect("made in memory");
        (session, found)
    }

    #[test]
    fn the_document_and_the_table_say_the_same() {
        let (mut session, found) = found();
        let mut out = Vec::new();
        text(&mut out, &Look::new(false, None), &session, &found, By::Site, 20).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with(
                "left behind by each of 3 actions (A0..A1, A1..A2, A2..A3):\n230 B in 5 blocks\n"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "forget (/src/leak.c:7)\n                         3 of 3 actions, 1 to 2 blocks each\n"
            ),
            "{text}"
        );
        assert!(text.contains("1 site survives only some of the actions (100 B)"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let whole = session.outcome().unwrap();
        let stats = Stats::collect(&session, &whole);
        let mut out = Vec::new();
        json(&mut out, &mut session, &stats, &found, By::Site, true).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["schema"], "highwater.leaks/1");
        assert_eq!(value["suspects"].as_array().unwrap().len(), 1);
        assert_eq!(value["suspects"][0]["line"], 7);
        assert_eq!(value["suspects"][0]["methods"][0], "window");
        assert_eq!(value["suspects"][0]["actions"]["blocks"], serde_json::json!([1, 2, 2]));
        let each = &value["suspects"][0]["actions"]["per_action"];
        assert!(each["at_least"].as_f64() < each["bytes"].as_f64(), "{each}");
        assert!(value["sites"][1]["actions"]["per_action"].is_null());
        assert_eq!(value["suspects"][0]["confidence"], "high");
        assert_eq!(value["sites"][1]["actions"]["survived"], 1);
        assert_eq!(value["windows"][2]["until"], "end");
        assert_eq!(value["windows"][0]["from"], 0.005);
        assert_eq!(value["blocks"].as_array().unwrap().len(), 6);
    }
}
