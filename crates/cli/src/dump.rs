//! `highwater dump`

use highwater_query::Session;
use highwater_query::sort::OF_BLOCKS;
use highwater_render::rows;
use highwater_replay::Until;

use crate::output::{self, Colour};
use crate::trace;
use crate::view::{self, Output, Rows, ViewArgs};

/// Options of `dump`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  highwater dump app.hwt                        blocks alive at the end\n  \
                  highwater dump --at peak -S size app.hwt      at the peak, largest first\n  \
                  highwater dump --from @load --to @serve app.hwt    made between two marks, alive at the second\n  \
                  highwater dump -F size=4k.. -F thread!=0 -S Ns -f '%p %a %n @ %T' app.hwt"
)]
pub struct Args {
    #[command(flatten)]
    view: ViewArgs,
}

/// Blocks alive at an instant.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let (select, show) = (&args.view.select, &args.view.show);
    let (filter, output) = (select.filter()?, show.output()?);
    let keys = show.sort(OF_BLOCKS, "ptr")?;
    let mut session = args.view.trace.open()?;
    let window = select.window(&mut session)?;
    let mut selection = filter.select(&mut session)?;
    let now = instant_ns(&mut session, window.to, filter.has_age())?;
    let mut blocks = view::live(&mut session, window, &mut selection, now)?;
    highwater_query::sort::blocks(&mut session, &mut blocks, &keys, show.reverse)?;
    let limit = show.limit(0);
    let shown = blocks.get(..limit.min(blocks.len())).unwrap_or_default();
    let mut out = output::stdout();
    match &output {
        Output::Json => highwater_render::dump::json(&mut out, &mut session, shown)?,
        Output::Text => {
            view::warn_of_damage(&session);
            highwater_render::dump::text(&mut out, &colour.stdout(), &mut session, &blocks, limit)?;
        }
        Output::Csv | Output::Format(_) => {
            let mut rows = Rows::begin(&mut out, &output, rows::DUMP, &session)?;
            for block in shown {
                let row = rows::block(&mut session, block);
                rows.row(&row, &mut session)?;
            }
            rows.end()?;
        }
    }
    std::io::Write::flush(&mut out)?;
    if output == Output::Text {
        trace::notes(&session);
    }
    Ok(())
}

/// The time of an instant, ns; read from the trace only where it is `wanted`.
fn instant_ns(session: &mut Session, until: Until, wanted: bool) -> anyhow::Result<u64> {
    Ok(match until {
        Until::Start => 0,
        Until::Ns(ns) => ns,
        Until::Seqno(_) | Until::End if wanted => session.replay_until(until)?.totals().last_ns,
        Until::Seqno(_) | Until::End => 0,
    })
}
