//! The `highwater` command: one file a subcommand, no logic of its own.

mod by_hand;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Records what a program does with its heap, and tells who holds the memory,
/// who leaks it, who churns it and who corrupts it.
#[derive(Parser)]
#[command(name = "highwater", version, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Record a program
    Run(run::Args),
    /// Print the path of the agent, for LD_PRELOAD by hand
    AgentPath,
    /// The recorder of an agent that was preloaded by hand
    #[command(name = "__record", hide = true)]
    Record(by_hand::Args),
}

/// The agent's shared object, compiled by the build script.
pub(crate) static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libhighwater_agent.so"));

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::run(args),
        Command::AgentPath => by_hand::agent_path(),
        Command::Record(args) => by_hand::record(&args),
    }
}
