//! `highwater errors`

use highwater_query::sort::{self, OF_ERRORS};
use highwater_query::survey::subject;
use highwater_query::{Ask, By, Survey};
use highwater_render::{errors, rows};

use crate::output::{self, Colour};
use crate::trace;
use crate::view::{Output, Rows, ViewArgs, Window};

/// Options of `errors`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  highwater errors app.hwt\n  \
                  highwater errors --json app.hwt | jq '.errors[].kind'\n  \
                  highwater errors -F function=cleanup -f '{kind} of %p at %w1' app.hwt")]
pub struct Args {
    #[command(flatten)]
    view: ViewArgs,
}

/// Bad frees.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let (select, show) = (&args.view.select, &args.view.show);
    show.no_groups("errors", "stats")?;
    let (filter, output, keys) = (select.filter()?, show.output()?, show.sort(OF_ERRORS, "")?);
    let mut session = args.view.trace.open()?;
    let Window { from, to } = select.window(&mut session)?;
    // The bad frees of the window; the filter is about the frees themselves.
    let mut survey = Survey::of(&mut session, &Ask { from, to, by: By::Stack, ..Ask::default() })?;
    let mut selection = filter.select(&mut session)?;
    survey.stats.part |= !selection.is_empty();
    let list = &mut survey.errors;
    list.retain(|error| selection.is_empty() || selection.passes(&subject(error), &mut session));
    sort::errors(&mut session, list, &keys, show.reverse);
    let limit = show.limit(20);
    let shown = list.get(..limit.min(list.len())).unwrap_or_default();
    let mut out = output::stdout();
    match &output {
        Output::Json => errors::json(&mut out, &mut session, shown)?,
        Output::Text => {
            trace::warn(&survey.stats);
            errors::text(&mut out, &colour.stdout(), &mut session, &survey.stats, list, limit)?;
        }
        Output::Csv | Output::Format(_) => {
            let mut table = Rows::begin(&mut out, &output, rows::ERRORS, &session)?;
            for error in shown {
                let row = rows::error(&mut session, error);
                table.row(&row, &mut session)?;
            }
            table.end()?;
        }
    }
    std::io::Write::flush(&mut out)?;
    Ok(())
}
