//! `highwater peak`

use highwater_query::By;
use highwater_render::sites;

use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};

/// Options of `peak`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  highwater peak app.hwt\n  highwater peak --by module app.hwt\n  \
                  highwater peak --by stack --limit 3 --json app.hwt")]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// JSON, document highwater.peak/1
    #[arg(long)]
    json: bool,
    /// site, stack, function, file, module, thread, api or size
    #[arg(long, value_name = "WHAT", default_value = "site")]
    by: By,
    /// Lines to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

/// Who held the memory at the peak.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let mut session = args.trace.open()?;
    let (replay, stats) = trace::replay(&mut session)?;
    let groups = sites::at_peak(&mut session, &replay, args.by)?;
    let mut out = output::stdout();
    if args.json {
        sites::peak_json(&mut out, &stats, &groups, args.by)?;
    } else {
        trace::warn(&stats);
        sites::peak_text(&mut out, &colour.stdout(), &session, &stats, &groups, args.by, args.limit)?;
    }
    std::io::Write::flush(&mut out)?;
    if !args.json {
        trace::notes(&session);
    }
    Ok(())
}
