//! `highwater threads`

use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};

/// Options of `threads`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  highwater threads app.hwt\n  highwater threads --json app.hwt")]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// JSON, document highwater.threads/1
    #[arg(long)]
    json: bool,
}

/// What each thread did.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let mut session = args.trace.open()?;
    let (replay, stats) = trace::replay(&mut session)?;
    let mut out = output::stdout();
    if args.json {
        highwater_render::threads::json(&mut out, &session, replay.threads())?;
    } else {
        trace::warn(&stats);
        highwater_render::threads::text(&mut out, &colour.stdout(), &session, &stats, replay.threads())?;
    }
    std::io::Write::flush(&mut out)?;
    Ok(())
}
