//! The `highwater` command: one file a subcommand, no logic of its own.

mod alive;
mod budget;
mod by_hand;
mod check;
mod config;
mod control;
mod count;
mod diff;
mod dump;
mod errors;
mod findleaks;
mod gates;
mod history;
mod import;
mod leaks;
mod leaks_in_slices;
mod mdd;
mod open;
mod output;
mod peak;
mod progress;
mod run;
mod slices;
mod standing;
mod stats;
mod threads;
mod trace;
mod tree;
mod unreachable;
mod view;
mod windows;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Records what a program does with its heap, and tells who holds the memory,
/// who leaks it, who churns it and who corrupts it.
#[derive(Parser)]
#[command(
    name = "highwater",
    bin_name = "highwater",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Start here:\n  \
        highwater run -- ./app --its-options    record a program and say what was seen\n  \
        highwater peak                          who held the memory when there was most of it\n  \
        highwater leaks                         what was never given back\n\n\
        A command without TRACE takes the newest highwater.*.hwt in this folder.\n\
        Each command has its own --help with examples."
)]
struct Cli {
    /// Colours: when a terminal reads (auto), always, never
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    color: output::Colour,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Record a program
    Run(run::Args),
    /// Count a program's heap operations, without a trace
    Count(count::Args),
    /// Totals of a recording
    Stats(stats::Args),
    /// Who held the memory at the peak
    Peak(peak::Args),
    /// What is alive at the end and was never given back
    Leaks(leaks::Args),
    /// Blocks alive at an instant
    Dump(dump::Args),
    /// Heap operations, one after the other
    History(history::Args),
    /// What is new, gone, grown or shrunk between two runs, builds or instants
    Diff(diff::Args),
    /// Who called whom, and what that holds
    Tree(tree::Args),
    /// Bad frees: double, invalid, mismatched
    Errors(errors::Args),
    /// What each thread did
    Threads(threads::Args),
    /// Limits for CI: exit 1 when the recording exceeds one
    Check(check::Args),
    /// Blocks made in a range of events and never given back, as the article's script shows them
    Findleaks(findleaks::Args),
    /// Name this instant of a recording that is going on
    Mark(control::Mark),
    /// Write a slice of a recording that makes slices, now
    Slice(control::SliceArgs),
    /// Look now for blocks of a recorded program that nothing points to
    Scan(control::ScanArgs),
    /// Say what is being recorded
    Status(control::StatusArgs),
    /// End a recording; the program runs on
    Stop(control::Stop),
    /// Make a trace of another tool's file: the DTrace script's text, dumps of a target
    Import(import::Args),
    /// Print the path of the agent, for LD_PRELOAD by hand
    AgentPath,
    /// Dumps of an embedded target: eCos's commands, numbering, transfer
    Mdd(mdd::Args),
    /// Make links by whose names this program runs as another (ecosmdd, findleaks)
    InstallLinks(mdd::Links),
    /// Print a completion script for a shell
    Completions(standing::Completions),
    /// Write the manual pages into a folder
    Man(standing::Man),
    /// The recorder of an agent that was preloaded by hand
    #[command(name = "__record", hide = true)]
    Record(by_hand::Args),
}

/// The agent's shared object, compiled by the build script.
pub(crate) static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libhighwater_agent.so"));

fn main() -> ExitCode {
    if let Some(code) = mdd::by_name().or_else(findleaks::by_name) {
        return code;
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let code = execute(cli.command, cli.color);
    progress::clear();
    code
}

fn execute(command: Command, colour: output::Colour) -> ExitCode {
    match command {
        Command::Run(args) => run::run(args, colour),
        Command::Count(args) => count::run(&args),
        Command::Stats(args) => output::finish(stats::run(&args, colour)),
        Command::Peak(args) => output::finish(peak::run(&args, colour)),
        Command::Leaks(args) => output::finish(leaks::run(&args, colour)),
        Command::Dump(args) => output::finish(dump::run(&args, colour)),
        Command::History(args) => output::finish(history::run(&args, colour)),
        Command::Diff(args) => output::finish(diff::run(&args, colour)),
        Command::Tree(args) => output::finish(tree::run(&args, colour)),
        Command::Errors(args) => output::finish(errors::run(&args, colour)),
        Command::Threads(args) => output::finish(threads::run(&args, colour)),
        Command::Check(args) => check::run(&args, colour),
        Command::Findleaks(args) => findleaks::run(&args),
        Command::Mark(args) => output::finish(control::mark(&args)),
        Command::Slice(args) => output::finish(control::slice(&args)),
        Command::Scan(args) => output::finish(control::scan(&args)),
        Command::Status(args) => output::finish(control::status(&args, colour)),
        Command::Stop(args) => output::finish(control::stop(&args)),
        Command::Import(args) => output::finish(import::run(&args)),
        Command::AgentPath => by_hand::agent_path(),
        Command::Mdd(args) => mdd::run(&args),
        Command::InstallLinks(args) => output::finish(mdd::install_links(&args)),
        Command::Completions(args) => standing::completions(&args),
        Command::Man(args) => output::finish(standing::man(&args)),
        Command::Record(args) => by_hand::record(&args),
    }
}

/// The command line, completed by variables and files.
fn parse() -> Result<Cli, ExitCode> {
    let line: Vec<OsString> = std::env::args_os().collect();
    let mut command = Cli::command();
    let usage = |error: clap::Error| output::usage(&error);
    let matches = command.try_get_matches_from_mut(&line).map_err(usage)?;
    let matches = match config::completed(&mut command, &matches, &line) {
        Ok(None) => matches,
        Ok(Some(more)) => Cli::command().try_get_matches_from(more).map_err(|error| {
            let code = output::usage(&error);
            output::say("options came from variables (HIGHWATER_*) or files (highwater.toml), too");
            code
        })?,
        Err(error) => return Err(output::misconfigured(&error)),
    };
    Cli::from_arg_matches(&matches).map_err(usage)
}
