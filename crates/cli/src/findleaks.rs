//! `highwater findleaks`: the options, messages and layout of the article's
//! script, for its text and for traces.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use highwater_interchange::dtrace::{self, trace::Setting};
use highwater_query::leaks::findleaks::{Event, Survivor, What, by_stack, survivors};
use highwater_query::session::Source;
use highwater_query::stack::{base_name, function, function_name, is_pseudo};
use highwater_query::{SessionOptions, Stack};

use crate::{open, output, progress, trace};

/// Options of `findleaks`. All three are needed; which one is missing is said
/// in the script's words.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  highwater findleaks -f leaks.txt -b 2968 -e 3511")]
pub struct Args {
    /// Number of the first event of the action
    #[arg(short = 'b', value_name = "BEGIN", allow_hyphen_values = true)]
    begin: Option<String>,
    /// Number of its last event
    #[arg(short = 'e', value_name = "END", allow_hyphen_values = true)]
    end: Option<String>,
    /// Text of the DTrace script, or a trace
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Runs as `findleaks`, if that is the name we were called by.
pub fn by_name() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = PathBuf::from(arguments.next()?);
    if name.file_name()? != "findleaks" && name.file_name()? != "findleaks.pl" {
        return None;
    }
    let words = std::iter::once(OsString::from("findleaks")).chain(arguments);
    let command = <Args as clap::Args>::augment_args(clap::Command::new("findleaks"));
    let parsed = command
        .try_get_matches_from(words)
        .and_then(|matches| <Args as clap::FromArgMatches>::from_arg_matches(&matches));
    Some(match parsed {
        Ok(args) => run(&args),
        Err(error) => output::usage(&error),
    })
}

/// Searches. 0 also where it finds leaks; 2 with the script's own words for
/// options that make no sense.
pub fn run(args: &Args) -> ExitCode {
    match checked(args) {
        Ok((begin, end, file)) => output::finish(search(begin, end, file)),
        Err(reason) => {
            // Nobody may be listening.
            let _ = writeln!(std::io::stderr(), "{reason}");
            ExitCode::from(2)
        }
    }
}

fn search(begin: u64, end: u64, file: &Path) -> anyhow::Result<()> {
    let found = match kind(file)? {
        Kind::Text(input) => of_text(input, file)?,
        Kind::Trace => of_trace(file, (begin, end))?,
    };
    let groups = by_stack(&found.blocks, begin, end);
    let mut out = output::stdout();
    let stack = |number: u32| found.stacks.get(number as usize).map_or("", String::as_str);
    highwater_render::findleaks::write(&mut out, &found.suspicious, &groups, stack)?;
    out.flush()?;
    Ok(())
}

/// The options, in the order in which the script looks at them.
fn checked(args: &Args) -> anyhow::Result<(u64, u64, &Path)> {
    let number = |text: &str, option: &str| -> anyhow::Result<u64> {
        text.trim().parse().map_err(|_| anyhow!("{option} {text}: a sequence id is a number"))
    };
    let Some(begin) = &args.begin else { bail!("Please specify a begin sequence id (-b)") };
    let Some(end) = &args.end else { bail!("Please specify a end sequence id (-e)") };
    let (begin, end) = (number(begin, "-b")?, number(end, "-e")?);
    if begin >= end {
        bail!("-e must be greater than -b");
    }
    let Some(file) = &args.file else { bail!("Please specify an input memory file (-f)") };
    Ok((begin, end, file))
}

/// What a file holds.
struct Found {
    blocks: Vec<Survivor>,
    stacks: Vec<String>,
    suspicious: Vec<u64>,
}

enum Kind {
    Text(BufReader<File>),
    Trace,
}

fn kind(path: &Path) -> anyhow::Result<Kind> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut input = BufReader::with_capacity(1 << 16, file);
    let start = input.fill_buf().with_context(|| format!("cannot read {}", path.display()))?;
    Ok(if dtrace::is_text(start) { Kind::Text(input) } else { Kind::Trace })
}

fn of_text(input: impl BufRead, path: &Path) -> anyhow::Result<Found> {
    let text = dtrace::read(input).with_context(|| format!("cannot read {}", path.display()))?;
    if let Some(line) = text.bad_lines.first() {
        let more = text.bad_lines.len();
        output::say(&format!("{}:{line}: not understood ({more} such in all)", path.display()));
    }
    let mut events: Vec<Event> = text
        .events
        .iter()
        .map(|event| {
            let what = event.made.map_or(What::Free, |(size, stack)| What::Alloc { size, stack });
            Event { seq: event.seq, address: event.address, tid: event.tid, what }
        })
        .collect();
    let found = survivors(&mut events);
    if found.unmatched_frees > 0 {
        let frees = found.unmatched_frees;
        output::say(&format!(
            "{frees} frees of blocks whose birth is not in the record; none of them is a leak"
        ));
    }
    if found.unseen_frees > 0 {
        let blocks = found.unseen_frees;
        output::say(&format!(
            "{blocks} blocks whose address was used again: their frees are not in the record"
        ));
    }
    let known: HashSet<u64> = events.iter().map(|event| event.address).collect();
    let report: Vec<(u64, bool)> = text
        .report
        .iter()
        .map(|&(address, count)| (address, count, known.contains(&address)))
        // Of an address without events there is only the count.
        .filter(|&(_, count, known)| known || count > 0)
        .map(|(address, _, known)| (address, known))
        .collect();
    let suspicious = suspicious(&report, &found.blocks);
    Ok(Found { blocks: found.blocks, stacks: text.stacks, suspicious })
}

/// The addresses to show: in the report's order, as the script has it, those with
/// a block that is alive and those without events; then what it does not know.
fn suspicious(report: &[(u64, bool)], blocks: &[Survivor]) -> Vec<u64> {
    let mut alive: HashMap<u64, bool> = blocks.iter().map(|block| (block.address, false)).collect();
    let mut suspicious = Vec::new();
    for &(address, known) in report {
        match alive.get_mut(&address) {
            Some(listed) if !*listed => {
                *listed = true;
                suspicious.push(address);
            }
            Some(_) => {}
            None if !known => suspicious.push(address),
            None => {}
        }
    }
    suspicious.extend(
        blocks.iter().map(|block| block.address).filter(|address| alive.get(address) == Some(&false)),
    );
    suspicious
}

fn of_trace(path: &Path, range: (u64, u64)) -> anyhow::Result<Found> {
    let options = SessionOptions {
        symbols: trace::symbols(),
        progress: Some(progress::tell),
        ..SessionOptions::default()
    };
    let mut session = open::session(&[path.to_path_buf()], None, options)?;
    let replay = session.replay()?;
    let (_, stats) = trace::outcome(&mut session)?;
    trace::warn(&stats);
    if session.modes().sample > 0 {
        bail!(
            "{}: recorded with --sample, and this layout has no place for estimates; use: \
             highwater leaks --from '#{}' --to '#{}'",
            path.display(),
            range.0.saturating_sub(1),
            range.1,
        );
    }
    let source = session.source();
    // A text that was imported is shown as it was: its numbers, its order, its setting.
    let imported = match &*source {
        Source::Trace(trace) => Some(trace),
        Source::Made { .. } => None,
    };
    let note = |name: &str| imported.and_then(|trace| trace.note(name));
    let setting = note(dtrace::trace::FRAMES).and_then(Setting::from_note).unwrap_or(Setting {
        indent: 0,
        before: 1,
        after: 1,
    });
    let report = note(dtrace::trace::REPORT).map(dtrace::trace::report_from_note).unwrap_or_default();
    let mut blocks = replay.live_set();
    blocks.sort_by_key(|block| block.seqno);
    let mut stacks: Vec<String> = Vec::new();
    let mut numbers: HashMap<String, u32> = HashMap::new();
    let mut of_node = HashMap::new();
    let mut found = Vec::with_capacity(blocks.len());
    for block in blocks {
        let stack = *of_node.entry(block.node).or_insert_with(|| {
            let text = stack_text(&session.stack(block.node), setting);
            *numbers.entry(text).or_insert_with_key(|text| {
                stacks.push(text.clone());
                (stacks.len() - 1) as u32
            })
        });
        let tid = session.facts().thread(block.thread).map_or(block.thread.into(), |def| def.tid.into());
        let seq = imported.map_or(block.seqno, |trace| trace.original_seqno(block.seqno));
        found.push(Survivor { seq, address: block.addr, size: block.size, tid, stack });
    }
    let suspicious = suspicious(&report, &found);
    Ok(Found { blocks: found, stacks, suspicious })
}

/// A stack as DTrace writes it: ``module`function+0x12``; with a file and line
/// in place of the offset where they are known.
fn stack_text(stack: &Stack, setting: Setting) -> String {
    let mut text = "\n".repeat(setting.before.into());
    for frame in &stack.frames {
        text += &" ".repeat(setting.indent.into());
        let name = function_name(frame);
        if is_pseudo(frame) || function(frame).is_none() {
            text += &name;
        } else {
            match base_name(&frame.module) {
                "[unknown]" => text += &name,
                module => text += &format!("{module}`{name}"),
            }
            match (&frame.file, frame.line, frame.offset) {
                (Some(file), Some(line), _) => text += &format!(" ({file}:{line})"),
                (Some(file), None, _) => text += &format!(" ({file})"),
                (None, _, Some(offset)) => text += &format!("+{offset:#x}"),
                (None, _, None) => {}
            }
        }
        text.push('\n');
    }
    text += &"\n".repeat(setting.after.into());
    text
}
