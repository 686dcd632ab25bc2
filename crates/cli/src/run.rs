//! `highwater run`: record a program, then say what was seen.

use std::ffi::OsString;
use std::process::ExitCode;

use highwater_record::{Outcome, Status};

/// Options of `run`.
#[derive(clap::Args)]
#[command(trailing_var_arg = true)]
pub struct Args {
    /// Trace to write; %p pid, %n program, %i image, %r MPI rank, %h host, %t time
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Overwrite an existing trace
    #[arg(long)]
    force: bool,
    /// Print nothing of our own
    #[arg(short, long)]
    quiet: bool,
    /// Record usable sizes too
    #[arg(long)]
    actual_size: bool,
    /// The program and its arguments
    #[arg(required = true, value_name = "PROG", allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs and reports; exits as the program did.
pub fn run(args: Args) -> ExitCode {
    let options = highwater_record::Options {
        output: args.output,
        force: args.force,
        actual_size: args.actual_size,
        ..Default::default()
    };
    match highwater_record::run::run(&args.command, crate::AGENT, &options) {
        Ok(outcome) => {
            if !args.quiet {
                report(&outcome);
            }
            exit_like(outcome.status)
        }
        Err(error) => {
            eprintln!("highwater: {error}");
            ExitCode::from(error.exit_code() as u8)
        }
    }
}

fn report(outcome: &Outcome) {
    for image in &outcome.images {
        eprintln!(
            "highwater: {}: {} events, {} bytes, {}",
            image.exe.display(),
            image.events,
            image.bytes,
            image.path.display()
        );
        if let Some(cut) = &image.cut {
            eprintln!("highwater: the trace was cut: {cut}");
        }
    }
    for hint in &outcome.hints {
        eprintln!("highwater: {hint}");
    }
    if let Some(path) = &outcome.unrecorded {
        eprintln!("highwater: nothing recorded after {}", path.display());
    }
}

fn exit_like(status: Status) -> ExitCode {
    match status {
        Status::Exited(code) => ExitCode::from(code as u8),
        Status::Signaled(signal) => highwater_record::signals::die_of(signal),
    }
}
