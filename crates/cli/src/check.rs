//! `highwater check`: limits for CI.

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use highwater_query::By;
use highwater_query::leaks::gates::{self, Limits};
use highwater_query::leaks::report;
use highwater_render::{check, sites};

use crate::leaks::SuppressionArgs;
use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};

/// Options of `check`.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 all limits kept, 1 one is exceeded, 2 the trace or the command line is bad.\n\n\
                  Example:\n  highwater check app.hwt --max-peak 64MiB --max-leak 0"
)]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// Greatest size of the heap
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_peak: Option<u64>,
    /// Greatest size alive at the end, without what is suppressed
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_leak: Option<u64>,
    /// Greatest number of allocations
    #[arg(long, value_name = "N")]
    max_allocs: Option<u64>,
    /// Greatest number of allocations that were freed before the thread's next
    #[arg(long, value_name = "N")]
    max_temporary: Option<u64>,
    /// JSON, document highwater.check/1
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    suppressed: SuppressionArgs,
}

fn size(text: &str) -> Result<u64, String> {
    highwater_query::units::size(text).ok_or_else(|| "write a size as 4096, 64k, 1.5MiB or 2GB".to_string())
}

/// Compares a recording with the limits.
pub fn run(args: &Args, colour: Colour) -> ExitCode {
    let mut passed = true;
    let done = output::finish(compare(args, colour, &mut passed));
    // What cannot be read has not passed, and says so with its own code.
    if done == ExitCode::SUCCESS && !passed { ExitCode::from(1) } else { done }
}

fn compare(args: &Args, colour: Colour, passed: &mut bool) -> anyhow::Result<()> {
    let limits = Limits {
        max_peak: args.max_peak,
        max_leak: args.max_leak,
        max_allocs: args.max_allocs,
        max_temporary: args.max_temporary,
    };
    if limits.is_empty() {
        bail!("nothing to check: give --max-peak, --max-leak, --max-allocs or --max-temporary");
    }
    let rules = args.suppressed.rules()?;
    let mut session = args.trace.open()?;
    let (replay, stats) = trace::replay(&mut session)?;
    if stats.modes.sample > 0 && limits.max_temporary.is_some() {
        bail!("--max-temporary: the recording is a sample (--sample), which does not tell temporary blocks");
    }
    let leaks = report::live(&mut session, &replay, By::Site, &rules);
    let peak = match limits.max_peak {
        Some(_) => sites::at_peak(&mut session, &replay, By::Site)?,
        None => Vec::new(),
    };
    let gates = gates::check(&limits, &stats.totals, &peak, &leaks);
    *passed = gates.iter().all(gates::Gate::passed);
    // Numbers of a recording with losses are lower bounds.
    trace::warn(&stats);
    let mut out = output::stdout();
    if args.json {
        check::json(&mut out, &gates)?;
    } else {
        check::text(&mut out, &colour.stdout(), &gates)?;
    }
    out.flush()?;
    Ok(())
}
