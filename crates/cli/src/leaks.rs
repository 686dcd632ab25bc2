//! `highwater leaks`

use highwater_query::By;
use highwater_render::sites::{self, LeaksJson};

use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};

/// Options of `leaks`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  highwater leaks app.hwt\n  highwater leaks --by stack --json app.hwt\n  \
                  highwater leaks --json --blocks app.hwt | jq '.blocks[0]'"
)]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// JSON, document highwater.leaks/1
    #[arg(long)]
    json: bool,
    /// With --json: every block too
    #[arg(long, requires = "json")]
    blocks: bool,
    /// site, stack, function, file, module, thread, api or size
    #[arg(long, value_name = "WHAT", default_value = "site")]
    by: By,
    /// Lines to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
}

/// What is alive at the end.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let mut session = args.trace.open()?;
    let (replay, stats) = trace::replay(&mut session)?;
    let groups = sites::live(&mut session, &replay, args.by);
    let mut out = output::stdout();
    if args.json {
        let blocks = args.blocks.then(|| replay.live_set());
        let more = LeaksJson { blocks: blocks.as_deref() };
        sites::leaks_json(&mut out, &mut session, &stats, &groups, args.by, more)?;
    } else {
        trace::warn(&stats);
        sites::leaks_text(&mut out, &colour.stdout(), &session, &stats, &groups, args.by, args.limit)?;
    }
    std::io::Write::flush(&mut out)?;
    if !args.json {
        trace::notes(&session);
    }
    Ok(())
}
