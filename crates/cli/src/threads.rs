//! `highwater threads`

use highwater_query::sort::{self, OF_THREADS};
use highwater_query::{By, Capability};
use highwater_render::{rows, threads};

use crate::output::{self, Colour};
use crate::trace;
use crate::view::{self, Output, Rows, ViewArgs};

/// Options of `threads`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  highwater threads app.hwt\n  highwater threads --json app.hwt\n  \
                  highwater threads --from 1s -F size=1MiB.. -S live app.hwt")]
pub struct Args {
    #[command(flatten)]
    view: ViewArgs,
}

/// What each thread did.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let show = &args.view.show;
    show.no_groups("threads", "stats")?;
    let (output, keys) = (show.output()?, show.sort(OF_THREADS, "")?);
    let mut session = args.view.trace.open()?;
    Capability::Threads.require(session.facts(), "threads")?;
    let mut survey = view::survey(&args.view, &mut session, By::Stack, None)?;
    let list = &mut survey.threads;
    if !keys.is_empty() || show.reverse || !show.json {
        sort::threads(&session, list, &keys, show.reverse);
    }
    let limit = show.limit(0);
    let shown = list.get(..limit.min(list.len())).unwrap_or_default();
    let mut out = output::stdout();
    match &output {
        Output::Json => threads::json(&mut out, &session, shown)?,
        Output::Text => {
            trace::warn(&survey.stats);
            threads::text(&mut out, &colour.stdout(), &session, &survey.stats, list, limit)?;
        }
        Output::Csv | Output::Format(_) => {
            let mut table = Rows::begin(&mut out, &output, rows::THREADS, &session)?;
            for thread in shown {
                let row = rows::thread_totals(&session, thread);
                table.row(&row, &mut session)?;
            }
            table.end()?;
        }
    }
    std::io::Write::flush(&mut out)?;
    Ok(())
}
