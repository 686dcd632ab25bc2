//! `highwater stats`

use anyhow::bail;
use highwater_query::sort::OF_GROUPS;
use highwater_query::{By, Metric};
use highwater_render::{own, rows, stats};

use crate::output::{self, Colour};
use crate::trace;
use crate::view::{self, Output, Rows, ViewArgs};

/// Options of `stats`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  highwater stats app.hwt\n  highwater stats --json app.hwt | jq .peak_bytes\n  \
                  highwater stats --from 1s --to 2s -F thread=2 app.hwt\n  \
                  highwater stats --by function -S temporary app.hwt"
)]
pub struct Args {
    #[command(flatten)]
    view: ViewArgs,
    /// The recorder's own counters instead
    #[arg(long = "self")]
    own: bool,
}

/// Totals.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let show = &args.view.show;
    let (output, keys) = (show.output()?, show.sort(OF_GROUPS, "")?);
    if show.by.is_none() && (show.sort.is_some() || show.reverse) {
        bail!("-S, -r: totals have no order; with --by they have");
    }
    let mut session = args.view.trace.open()?;
    let mut out = output::stdout();
    if args.own {
        match output {
            Output::Json => own::json(&mut out, &session)?,
            Output::Text => own::text(&mut out, &session)?,
            Output::Csv | Output::Format(_) => bail!("--self: there are text and --json of it"),
        }
        return Ok(std::io::Write::flush(&mut out)?);
    }
    let survey = view::survey(&args.view, &mut session, By::Site, None)?;
    let groups =
        show.by.map(|by| (by, view::groups(show, &mut session, &survey, (by, Metric::Allocated), &keys)));
    let look = colour.stdout();
    match (&output, &groups) {
        (Output::Json, groups) => {
            let groups = groups.as_ref().map(|(by, groups)| (*by, groups.as_slice()));
            stats::json(&mut out, &survey.stats, groups)?;
        }
        (Output::Text, Some((by, groups))) => {
            trace::warn(&survey.stats);
            stats::groups_text(&mut out, &look, &session, &survey.stats, groups, *by, show.limit(20))?;
        }
        (Output::Text, None) => {
            trace::warn(&survey.stats);
            let (sizes, lifetimes) = (&survey.sizes, &survey.lifetimes);
            stats::text(&mut out, &look, &session, &survey.stats, sizes, lifetimes)?;
        }
        (_, Some((_, groups))) => view::group_rows(&mut out, &output, &mut session, groups)?,
        (_, None) => {
            let mut table = Rows::begin(&mut out, &output, rows::STATS, &session)?;
            table.row(&rows::stats(&survey.stats), &mut session)?;
            table.end()?;
        }
    }
    std::io::Write::flush(&mut out)?;
    if output == Output::Text && groups.is_some() {
        trace::notes(&session);
    }
    Ok(())
}
