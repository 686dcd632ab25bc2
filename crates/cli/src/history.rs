//! `highwater history`

use highwater_render::history::{self, Range};
use highwater_replay::Until;

use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};

/// Options of `history`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  highwater history app.hwt | less\n  \
                  highwater history --from 1s --to 1.2s app.hwt\n  \
                  highwater history -F api=realloc -F size_min=1MiB --json app.hwt")]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// More dumps (mddout.N) of the same run
    #[arg(value_name = "DUMP")]
    more: Vec<std::path::PathBuf>,
    /// JSON, document highwater.history/1
    #[arg(long)]
    json: bool,
    /// Leave out what happened up to this instant: 1.5s, #seqno, @mark, peak
    #[arg(long, value_name = "T")]
    from: Option<String>,
    /// The last instant
    #[arg(long, value_name = "T")]
    to: Option<String>,
    /// Only events with KEY=VALUE; may be repeated
    #[arg(short = 'F', value_name = "KEY=VALUE")]
    filter: Vec<String>,
    /// Events to show (0 for all)
    #[arg(long, value_name = "N", default_value_t = 0)]
    limit: u64,
}

/// Events one after the other.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let filter = trace::filter(&args.filter)?;
    let mut session = args.trace.open_with(&args.more)?;
    let mut at = |text: &Option<String>, default: Until| match text {
        Some(text) => trace::instant(&mut session, text),
        None => Ok(default),
    };
    let range = Range {
        from: at(&args.from, Until::Start)?,
        to: at(&args.to, Until::End)?,
        filter,
        limit: if args.limit == 0 { u64::MAX } else { args.limit },
    };
    let mut out = output::stdout();
    if args.json {
        history::json(&mut out, &mut session, &range)?;
    } else {
        for warning in &session.facts().warnings {
            output::say(&format!("note: {warning}"));
        }
        history::text(&mut out, &colour.stdout(), &mut session, &range)?;
    }
    std::io::Write::flush(&mut out)?;
    Ok(())
}
