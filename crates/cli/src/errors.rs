//! `highwater errors`

use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};

/// Options of `errors`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  highwater errors app.hwt\n  highwater errors --json app.hwt | jq '.errors[].kind'"
)]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// JSON, document highwater.errors/1
    #[arg(long)]
    json: bool,
    /// Errors to show (text only; 0 for all)
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

/// Bad frees.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let mut session = args.trace.open()?;
    let (replay, stats) = trace::replay(&mut session)?;
    let mut out = output::stdout();
    if args.json {
        highwater_render::errors::json(&mut out, &mut session, replay.errors())?;
    } else {
        trace::warn(&stats);
        let limit = if args.limit == 0 { usize::MAX } else { args.limit };
        let look = colour.stdout();
        highwater_render::errors::text(&mut out, &look, &mut session, &stats, replay.errors(), limit)?;
    }
    std::io::Write::flush(&mut out)?;
    Ok(())
}
