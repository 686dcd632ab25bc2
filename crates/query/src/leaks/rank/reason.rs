//! Why a site is a suspect, in a sentence.

use super::signs::{Run, Signs};
use super::verdict::{Judged, Verdict};
use crate::leaks::growth::{Class, Trend, words};
use crate::units;

/// The sentence; parts are divided by semicolons. `held` says who points to its blocks.
pub fn sentence(run: &Run<'_>, signs: &Signs, judged: &Judged, held: Option<String>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let found = &signs.found;
    let given_back = signs.given_back(run);
    match (found.definite_blocks, found.lost_blocks()) {
        (_, 0) => {}
        (0, lost) => parts.push(format!("only lost blocks point to {lost} of its blocks")),
        (_, 1) if signs.exit_blocks == 1 => parts.push("nothing points to it".to_string()),
        (_, lost) if lost >= signs.exit_blocks => {
            parts.push(format!("nothing points to any of its {lost} blocks"));
        }
        (_, lost) => parts.push(format!("nothing points to {lost} of its {} blocks", signs.exit_blocks)),
    }
    if run.windows > 0 && found.windows > 0 {
        let times = if run.windows == 1 { "action" } else { "actions" };
        let each = found.window_blocks / found.windows.max(1);
        parts.push(format!("left blocks in {} of {} {times}, {each} each", found.windows, run.windows));
    }
    if let Some(survivors) = signs.survivors
        && survivors.blocks > 0
        && survivors.of > 0
        && !matches!(judged.verdict, Verdict::StartUp)
    {
        // What was made after the instant at which it is judged may stay too.
        let blocks = signs.blocks.max(signs.exit_blocks);
        // Then a part of them was given back, so that fewer are left now.
        let tidied = run.evidence.tidied() && signs.exit_blocks < signs.blocks;
        let until = if tidied { " until the program tidied up" } else { "" };
        let rate = rate(blocks, signs.allocations, tidied);
        parts.push(match blocks {
            1 => format!("{rate}{until}"),
            _ => format!("{rate}{until}, in {} of {} periods", survivors.with, survivors.of),
        });
    }
    if let Some(stale) = signs.stale {
        let usual = signs.usual_age.map_or(String::new(), |age| {
            format!("; 99 of 100 that were freed lived {} at most", units::time_text(age))
        });
        let age = units::time_text(stale.age);
        let blocks = if stale.blocks == 1 { "1 is".to_string() } else { format!("{} are", stale.blocks) };
        parts.push(format!("{blocks} older than {age}{usual}"));
    }
    let kept = judged.verdict == Verdict::Kept;
    if let Some(growth) = signs.growth.as_ref().filter(|growth| growth.grows && !kept) {
        let how = if growth.class == Class::Exp { ", ever faster" } else { "" };
        if signs.blocks <= 2 {
            parts.push("a block that is resized again and again".to_string());
        }
        match run.trend {
            Trend::Own => parts.push(format!("grows by {}{how}", words::rate(&growth.bytes))),
            // They tell that it grows and not how fast.
            other => parts.push(format!("grows, as {} has it{how}", other.name())),
        }
    } else if let Some(growth) = signs.growth.as_ref()
        && kept
    {
        match growth.class {
            _ if growth.grows => {
                let once = signs.survivors.is_some_and(|survivors| survivors.once());
                let how = if once { "made in many ways, each gone once" } else { "made now and then" };
                parts.push(how.to_string());
            }
            Class::Log => parts.push("it filled up and stands".to_string()),
            Class::Step => parts.push("it grew once or twice and stands".to_string()),
            _ => {}
        }
    }
    let possible = found.possible_blocks > 0 && found.possible_blocks >= signs.exit_blocks;
    match judged.verdict {
        Verdict::StartUp => parts.push("made in the first eighth of the run and kept".to_string()),
        Verdict::Growth if run.scanned && possible => {
            parts.push("only pointers into the middle of blocks lead to it".to_string());
        }
        Verdict::Growth if run.scanned && !given_back => {
            parts.push(held.unwrap_or_else(|| "something still points to it".to_string()))
        }
        Verdict::Leak if parts.is_empty() && signs.frees > 0 => {
            parts.push("alive at exit, while others from the same place were freed".to_string());
        }
        _ if parts.is_empty() && signs.exit_blocks > 0 && run.exited => {
            let more = if run.sampled && !run.long { "; the sample is too small to tell more" } else { "" };
            parts.push(format!("alive at exit{more}"));
        }
        _ if parts.is_empty() => parts.push("alive at the end of the recording".to_string()),
        _ => {}
    }
    parts.join("; ")
}

/// How many of the blocks that a site made stay, or stayed.
fn rate(blocks: u64, made: u64, past: bool) -> String {
    let (stays, stay) = if past { ("stayed", "stayed") } else { ("stays", "stay") };
    match (blocks, made) {
        (1, 1) => format!("the one block made there {stays}"),
        (blocks, made) if blocks >= made => format!("every block made there {stays}"),
        (1, made) => format!("1 of {made} blocks made there {stays}"),
        (blocks, made) => format!("{blocks} of {made} blocks made there {stay}"),
    }
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn a_count_of_blocks_was_written_as_a_fraction() {
        assert_eq!(rate(1, 1002, false), "1 of 1002 blocks made there stays");
        assert_eq!(rate(2, 3, false), "2 of 3 blocks made there stay");
        assert_eq!(rate(7, 7, false), "every block made there stays");
    }

    #[test]
    fn one_block_was_called_every_block() {
        assert_eq!(rate(1, 1, false), "the one block made there stays");
        assert_eq!(rate(2, 3, true), "2 of 3 blocks made there stayed");
    }
}
