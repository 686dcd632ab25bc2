//! `highwater count`: what a program does with its heap in numbers, no trace.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::output::say;

/// Options of `count`.
#[derive(clap::Args)]
#[command(
    trailing_var_arg = true,
    after_help = "Examples:\n  highwater count -- ./app --its-options\n  \
        highwater count --json counts.json -- python3 script.py\n\n\
        Peak and live are in usable bytes (what the allocator gave), the rest in requested ones.\n\
        Exit status: as that of run."
)]
pub struct Args {
    /// Print nothing of our own
    #[arg(short, long)]
    quiet: bool,
    /// Write the counts to FILE too, document highwater.count/1
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, value_name = "PROG")]
    command: Vec<OsString>,
}

/// Runs and tells; exits as the program did.
pub fn run(args: &Args) -> ExitCode {
    let options = highwater_record::Options { count: true, ..Default::default() };
    match highwater_record::run::run(&args.command, crate::AGENT, &options) {
        Ok(outcome) => {
            let counted = outcome.images.last().and_then(|image| image.counted);
            if let Some(counted) = &counted {
                if !args.quiet {
                    highwater_render::count::lines(counted).iter().for_each(|line| say(line));
                }
                if let Some(path) = &args.json
                    && let Err(error) = std::fs::File::create(path).and_then(|file| {
                        highwater_render::count::json(std::io::BufWriter::new(file), counted)
                    })
                {
                    say(&format!("cannot write {}: {error}", path.display()));
                }
            }
            if !args.quiet {
                outcome.sentences().iter().for_each(|line| say(line));
            }
            crate::run::exit(outcome.status)
        }
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(error.exit_code() as u8)
        }
    }
}
