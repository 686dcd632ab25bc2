//! `highwater dump`

use anyhow::anyhow;
use highwater_query::SortOrder;
use highwater_query::filter::Subject;

use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};

/// Options of `dump`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  highwater dump app.hwt                        blocks alive at the end\n  \
                  highwater dump --at peak -S size app.hwt      at the peak, largest first\n  \
                  highwater dump -F size_min=4k -F thread=2 app.hwt"
)]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// JSON, document highwater.dump/1
    #[arg(long)]
    json: bool,
    /// The instant: 1.5s, 120ms, #seqno, @mark, peak, start, end
    #[arg(long, value_name = "T", default_value = "end")]
    at: String,
    /// Only blocks with KEY=VALUE; may be repeated
    #[arg(short = 'F', value_name = "KEY=VALUE")]
    filter: Vec<String>,
    /// Sort keys, the first counts most: ptr, size, seqno, time, thread, api, stack;
    /// or letters: p ptr, n size, s seqno, a api, t thread, capitals descending
    #[arg(short = 'S', value_name = "KEYS", default_value = "ptr")]
    sort: String,
    /// Reverse the order
    #[arg(short = 'r')]
    reverse: bool,
    /// Blocks to show (text only; 0 for all)
    #[arg(long, value_name = "N", default_value_t = 0)]
    limit: usize,
}

/// Blocks alive at an instant.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let filter = trace::filter(&args.filter)?;
    let keys = SortOrder::list(&args.sort).map_err(|reason| anyhow!("-S {}: {reason}", args.sort))?;
    let mut session = args.trace.open()?;
    let until = trace::instant(&mut session, &args.at)?;
    let mut replay = session.replay_until(until)?;
    replay.finish();
    let mut blocks = replay.live_set();
    if !filter.is_empty() {
        blocks.retain(|block| filter.passes(&Subject::from(block), &mut session));
    }
    highwater_query::sort::blocks(&mut blocks, &keys, args.reverse);
    let mut out = output::stdout();
    if args.json {
        highwater_render::dump::json(&mut out, &mut session, &blocks)?;
    } else {
        warn_of_damage(&session);
        let limit = if args.limit == 0 { usize::MAX } else { args.limit };
        highwater_render::dump::text(&mut out, &colour.stdout(), &mut session, &blocks, limit)?;
    }
    std::io::Write::flush(&mut out)?;
    if !args.json {
        trace::notes(&session);
    }
    Ok(())
}

fn warn_of_damage(session: &highwater_query::Session) {
    for warning in &session.facts().warnings {
        output::say(&format!("note: {warning}"));
    }
}
