//! `highwater history`

use highwater_render::history::{self, Range};
use highwater_render::rows;

use crate::output::{self, Colour};
use crate::view::{self, Output, Rows, ViewArgs};

/// Options of `history`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  highwater history app.hwt | less\n  \
                  highwater history --from 1s --to 1.2s app.hwt\n  \
                  highwater history -F api=realloc -F size=1MiB.. --json app.hwt\n  \
                  highwater history -r --limit 10 -f '%a %p, %n bytes, seqno %s' app.hwt")]
pub struct Args {
    #[command(flatten)]
    view: ViewArgs,
    /// More dumps (mddout.N) of the same run
    #[arg(value_name = "DUMP")]
    more: Vec<std::path::PathBuf>,
}

/// Events one after the other.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let (select, show) = (&args.view.select, &args.view.show);
    show.no_groups("history", "stats")?;
    if show.sort.is_some() {
        anyhow::bail!("-S: history is in the order of events; -r reverses it");
    }
    let (filter, output) = (select.filter()?, show.output()?);
    let mut session = args.view.trace.open_with(&args.more)?;
    let window = select.window(&mut session)?;
    let mut selection = filter.select(&mut session)?;
    let range = Range { from: window.from, to: window.to, limit: show.limit(0), reverse: show.reverse };
    let mut out = output::stdout();
    match &output {
        Output::Json => history::json(&mut out, &mut session, &range, &mut selection)?,
        Output::Text => {
            view::warn_of_damage(&session);
            history::text(&mut out, &colour.stdout(), &mut session, &range, &mut selection)?;
        }
        Output::Csv | Output::Format(_) => {
            view::warn_of_damage(&session);
            let mut rows = Rows::begin(&mut out, &output, rows::HISTORY, &session)?;
            history::walk(&mut session, &range, &mut selection, |session, seen| {
                let row = rows::event(session, seen);
                rows.row(&row, session)
            })?;
            rows.end()?;
        }
    }
    std::io::Write::flush(&mut out)?;
    Ok(())
}
