//! `highwater stats`

use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};

/// Options of `stats`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  highwater stats app.hwt\n  highwater stats --json app.hwt | jq .peak_bytes"
)]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// JSON, document highwater.stats/1
    #[arg(long)]
    json: bool,
    /// The recorder's own counters instead
    #[arg(long = "self")]
    own: bool,
}

/// Totals.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let mut session = args.trace.open()?;
    let (replay, stats) = trace::replay(&mut session)?;
    let mut out = output::stdout();
    if args.own {
        if args.json {
            highwater_render::own::json(&mut out, &session)?;
        } else {
            highwater_render::own::text(&mut out, &session)?;
        }
    } else if args.json {
        highwater_render::stats::json(&mut out, &stats)?;
    } else {
        trace::warn(&stats);
        highwater_render::stats::text(&mut out, &colour.stdout(), &session, &stats, &replay)?;
    }
    std::io::Write::flush(&mut out)?;
    Ok(())
}
