//! `highwater check`: limits for CI.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use highwater_query::leaks::baseline::Baseline;
use highwater_query::leaks::gates::Gate;
use highwater_render::check;

use crate::gates::GateArgs;
use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};

/// How the gates are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// The document highwater.check/1
    Json,
    /// FILE:LINE: error: N bytes leaked here
    Gcc,
    /// SARIF 2.1.0: what failed
    Sarif,
    /// JUnit XML: a case a gate
    Junit,
    /// Annotations of GitHub Actions: what failed
    Github,
}

/// Options of `check`.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 all limits kept, 1 one is exceeded, 2 the trace or the command line is bad.\n\
                  Without a limit the [budget] of a highwater.toml up the tree counts.\n\n\
                  Examples:\n  highwater check app.hwt --max-peak 64MiB --max-leak 0\n  \
                  highwater check app.hwt --write-baseline known.json\n  \
                  highwater check app.hwt --baseline known.json --tolerance 5%\n  \
                  highwater check app.hwt --budget highwater.toml --format sarif > app.sarif"
)]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    gates: GateArgs,
    /// Write what this recording has, as a --baseline for later ones
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// For whom
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    format: Format,
    /// JSON, document highwater.check/1
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// Compares a recording with the limits.
pub fn run(args: &Args, colour: Colour) -> ExitCode {
    let mut passed = true;
    let done = output::finish(compare(args, colour, &mut passed));
    // What cannot be read has not passed, and says so with its own code.
    if done == ExitCode::SUCCESS && !passed { ExitCode::from(1) } else { done }
}

fn compare(args: &Args, colour: Colour, passed: &mut bool) -> anyhow::Result<()> {
    let mut gates = args.gates.prepare(args.write_baseline.is_none())?;
    if gates.wanted.is_empty() && args.write_baseline.is_none() {
        bail!(
            "nothing to check: give --max-peak, --max-leak, --max-allocs, --max-temporary, --fail-on, \
             --baseline or --budget"
        );
    }
    let mut session = args.trace.open()?;
    gates.know(&session);
    let (found, stats) = trace::outcome(&mut session)?;
    if let Some(path) = &args.write_baseline {
        let baseline = Baseline::of(&mut session, &found, &gates.rules);
        std::fs::write(path, baseline.to_text())
            .with_context(|| format!("cannot write {}", path.display()))?;
        let leaks = baseline.leaks.len();
        output::say(&format!(
            "{}: {leaks} known {}",
            path.display(),
            if leaks == 1 { "leak" } else { "leaks" }
        ));
        if gates.wanted.is_empty() {
            return Ok(());
        }
    }
    let gates = gates.check(&mut session, &found)?;
    *passed = gates.iter().all(Gate::passed);
    // Numbers of a recording with losses are lower bounds.
    trace::warn(&stats);
    let mut out = output::stdout();
    let base = output::base()?;
    match if args.json { Format::Json } else { args.format } {
        Format::Text => check::text(&mut out, &colour.stdout(), &gates)?,
        Format::Json => check::json(&mut out, &gates)?,
        Format::Gcc => check::gcc(&mut out, &gates)?,
        Format::Sarif => check::sarif(&mut out, &gates, &base)?,
        Format::Junit => check::junit(&mut out, &gates, &base, &session.facts().program())?,
        Format::Github => check::github(&mut out, &gates, &base)?,
    }
    out.flush()?;
    Ok(())
}
