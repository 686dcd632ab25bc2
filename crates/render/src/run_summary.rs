//! The lines that end `highwater run`.

use highwater_query::leaks::reach::{self, LEAK_CHECK, Lost, Scanned};
use highwater_query::leaks::suppressions::Suppressions;
use highwater_query::{By, Group, Session, Stats};
use highwater_replay::Outcome;

use crate::human::{bytes, count, counted, percent, rate, time};
use crate::look::Look;
use crate::modes::give_or_take;
use crate::parts;
use crate::sites;
use crate::stats::{ended_text, error_words};

/// Sites shown at the peak.
const PEAK_SITES: usize = 4;
/// Sites shown of what is live at the end.
const LIVE_SITES: usize = 3;
/// Columns that the caller's `highwater: ` takes.
const PREFIX: usize = 11;

/// The summary of a finished recording, about 15 lines and never more than 20;
/// the caller puts `highwater: ` before each and writes them to stderr.
pub fn lines(look: &Look, session: &mut Session, stats: &Stats, found: &Outcome) -> Vec<String> {
    let (strong, bad) = (look.palette.strong, look.palette.bad);
    let totals = &stats.totals;
    let program = session.facts().program();
    let mut lines =
        vec![format!("{strong}{program}{strong:#} {} after {}", ended_text(stats), time(stats.duration_ns))];
    if let Some(nothing) = stats.nothing(session) {
        lines.push(nothing.sentence().to_string());
        return lines;
    }
    for reason in stats.incomplete.iter().take(3) {
        lines.push(format!("{bad}note: {reason}{bad:#}"));
    }
    let threads = counted(stats.threads, "thread", "threads");
    lines.push(row("events", format!("{}, {threads}", count(totals.events))));
    lines.push(row(
        "allocated",
        format!(
            "{} in {}, {}",
            bytes(totals.bytes_allocated),
            counted(totals.allocations, "block", "blocks"),
            rate(totals.allocations, stats.duration_ns)
        ),
    ));
    if stats.modes.sample == 0 {
        lines.push(row(
            "temporary",
            format!(
                "{}, {} of all blocks",
                count(totals.temporary),
                percent(totals.temporary, totals.allocations)
            ),
        ));
    }
    let sure = give_or_take(totals.sampled.peak_variance, totals.peak_uncertainty);
    lines.push(row(
        "peak",
        format!("{strong}{}{strong:#} at {}{sure}", bytes(totals.peak_bytes), time(totals.peak_ns)),
    ));
    // A grouping by stacks reads nothing again, so it cannot fail.
    let groups = sites::at_peak(session, found, By::Site).unwrap_or_default();
    lines.extend(site_lines(look, &groups, PEAK_SITES));
    if totals.live_blocks == 0 {
        let nothing = match stats.modes.sample {
            0 => "nothing: no leaks",
            _ => "nothing that the sample holds",
        };
        lines.push(row("live at end", nothing.to_string()));
    } else {
        let blocks = counted(totals.live_blocks, "block", "blocks");
        let sure = give_or_take(totals.sampled.live_variance, 0);
        let live = bytes(totals.live_bytes);
        lines.push(row("live at end", format!("{strong}{live}{strong:#} in {blocks}{sure}")));
        let groups = sites::live(session, found);
        lines.extend(site_lines(look, &groups, LIVE_SITES));
    }
    if let Some(text) = scan_line(session) {
        lines.push(row("lost", text));
    }
    if totals.errors() > 0 {
        lines.push(row("errors", format!("{bad}{}{bad:#}", error_words(stats).join(", "))));
    }
    let stacks = stats.stacks_complete + stats.stacks_truncated;
    if stacks > 0 {
        lines.push(row("stacks", format!("{} complete", percent(stats.stacks_complete, stacks))));
    }
    if stats.stalled_ns > 0 {
        lines.push(row("stalled", format!("{} waiting for the recorder", time(stats.stalled_ns))));
    }
    let facts = session.facts();
    let each = match totals.events {
        0 => String::new(),
        events => {
            let tenths = (u128::from(facts.file_size) * 20 + u128::from(events)) / (2 * u128::from(events));
            format!(", {}.{} bytes an event", tenths / 10, tenths % 10)
        }
    };
    lines.push(row("trace", format!("{}, {}{each}", facts.path.display(), bytes(facts.file_size))));
    let next = match (totals.errors() > 0, totals.live_blocks > 0) {
        (true, _) => "errors",
        (false, true) => "leaks",
        (false, false) => "peak",
    };
    lines.push(row("next", format!("highwater {next} {}", parts::trace_word(facts))));
    lines
}

/// What a scan found, where one was asked for.
fn scan_line(session: &mut Session) -> Option<String> {
    let asked = session.facts().meta.options.iter().any(|option| option == LEAK_CHECK);
    let scanned = if asked { reach::of(session).ok()? } else { return None };
    let lost = match &scanned {
        Scanned::Done(found) => reach::lost(session, found, &Suppressions::built_in()),
        Scanned::Not(_) => Lost::default(),
    };
    Some(crate::reach::short(&scanned, &lost))
}

fn row(label: &str, text: String) -> String {
    format!("  {label:<11} {text}")
}

fn site_lines(look: &Look, groups: &[Group], limit: usize) -> Vec<String> {
    let width = look.width.saturating_sub(PREFIX + 27);
    groups
        .iter()
        .take(limit)
        .map(|group| format!("{:>25}  {}", bytes(group.bytes), parts::site_text(look, &group.stack, width)))
        .collect()
}
