//! `agent-path` and the hidden recorder of an agent preloaded by hand.

use std::process::ExitCode;

/// Arguments of the hidden recorder.
#[derive(clap::Args)]
pub struct Args {
    pid: u32,
    fd: i32,
    token: u64,
}

/// Prints where the agent lies.
pub fn agent_path() -> ExitCode {
    match highwater_record::agent_file::provide(crate::AGENT) {
        Ok(agent) => {
            println!("{}", agent.path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("highwater: {error}");
            ExitCode::from(2)
        }
    }
}

/// Records for an agent that has started us.
pub fn record(args: &Args) -> ExitCode {
    let options = highwater_record::Options::default();
    match highwater_record::by_hand::record(args.pid, args.fd, args.token, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(2),
    }
}
