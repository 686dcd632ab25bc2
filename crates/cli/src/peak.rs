//! `highwater peak`

use highwater_query::sort::OF_GROUPS;
use highwater_query::{By, Metric};
use highwater_render::sites;

use crate::output::{self, Colour};
use crate::trace;
use crate::view::{self, Output, ViewArgs};

/// Options of `peak`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  highwater peak app.hwt\n  highwater peak --by module app.hwt\n  \
                  highwater peak --from @load --to @serve -F thread!=main app.hwt\n  \
                  highwater peak --by stack --limit 3 --json app.hwt")]
pub struct Args {
    #[command(flatten)]
    view: ViewArgs,
}

/// Who held the memory at the peak.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let show = &args.view.show;
    let (output, keys) = (show.output()?, show.sort(OF_GROUPS, "")?);
    let mut session = args.view.trace.open()?;
    let by = show.by.unwrap_or(By::Site);
    let survey = view::survey(&args.view, &mut session, by, Some(Metric::Peak))?;
    let groups = view::groups(show, &mut session, &survey, (by, Metric::Peak), &keys);
    let stats = &survey.stats;
    let mut out = output::stdout();
    match &output {
        Output::Json => sites::peak_json(&mut out, stats, &groups, by)?,
        Output::Text => {
            trace::warn(stats);
            sites::peak_text(&mut out, &colour.stdout(), &session, stats, &groups, by, show.limit(20))?;
        }
        Output::Csv | Output::Format(_) => view::group_rows(&mut out, &output, &mut session, &groups)?,
    }
    std::io::Write::flush(&mut out)?;
    if output == Output::Text {
        trace::notes(&session);
    }
    Ok(())
}
