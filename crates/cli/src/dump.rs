//! `highwater dump`

use highwater_query::sort::{OF_BLOCKS, OF_GROUPS};
use highwater_query::{By, Item, Metric, Session, Survey, group};
use highwater_render::{rows, sites};
use highwater_replay::LiveBlock;

use crate::output::{self, Colour};
use crate::trace;
use crate::view::{self, Output, Rows, ShowArgs, ViewArgs};

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
    let keys = if show.by.is_none() { show.sort(OF_BLOCKS, "ptr")? } else { Vec::new() };
    let mut session = args.view.trace.open()?;
    let window = select.window(&mut session)?;
    let mut selection = filter.select(&mut session)?;
    let now = view::instant_ns(&mut session, window.to, filter.has_age())?;
    if let Some(by) = show.by {
        let blocks = view::live(&mut session, window, &mut selection, now)?;
        return by_group(show, &output, colour, &mut session, &blocks, by);
    }
    let mut blocks = view::alive(&mut session, window, &mut selection, now)?;
    let limit = show.limit(0);
    highwater_query::sort::first_blocks(&mut session, &mut blocks, &keys, show.reverse, limit)?;
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

/// The blocks put together.
fn by_group(
    show: &ShowArgs,
    output: &Output,
    colour: Colour,
    session: &mut Session,
    blocks: &[LiveBlock],
    by: By,
) -> anyhow::Result<()> {
    by.require(session)?;
    let keys = show.sort(OF_GROUPS, "")?;
    let rate = session.modes().sample;
    let items = blocks.iter().map(|block| Item::weighed(block, group::weight(rate, block))).collect();
    let survey = Survey { items, ..Survey::default() };
    let groups = view::groups(show, session, &survey, (by, Metric::Live), &keys);
    let mut out = output::stdout();
    match output {
        Output::Json => sites::dump_json(&mut out, session, &groups, by)?,
        Output::Text => {
            view::warn_of_damage(session);
            sites::dump_text(&mut out, &colour.stdout(), session, &groups, by, show.limit(20))?;
        }
        Output::Csv | Output::Format(_) => view::group_rows(&mut out, output, session, &groups)?,
    }
    Ok(std::io::Write::flush(&mut out)?)
}
