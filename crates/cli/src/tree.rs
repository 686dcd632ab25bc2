//! `highwater tree`

use highwater_query::tree::{Direction, KEYS, Shape, Tree};
use highwater_query::{By, Metric};
use highwater_render::tree::{self, Show};

use crate::output::{self, Colour};
use crate::trace;
use crate::view::{self, Output, Rows, ViewArgs};

/// Options of `tree`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  highwater tree app.hwt                        from main inward, at the peak\n  \
                  highwater tree --bottom-up --metric leaked app.hwt\n  \
                  highwater tree --callers parse_file --metric allocations app.hwt\n  \
                  highwater tree --callees 'Server::*' --by site app.hwt\n  \
                  highwater tree --by thread --json app.hwt"
)]
pub struct Args {
    #[command(flatten)]
    view: ViewArgs,
    /// From the sites outward
    #[arg(long)]
    bottom_up: bool,
    /// Who calls this function (a name, a part of it, or a pattern)
    #[arg(long, value_name = "FUNC", conflicts_with_all = ["bottom_up", "callees"])]
    callers: Option<String>,
    /// What this function calls
    #[arg(long, value_name = "FUNC", conflicts_with = "bottom_up")]
    callees: Option<String>,
    /// peak, live, allocated, allocations, temporary or leaked
    #[arg(long, value_name = "WHAT", default_value = "peak")]
    metric: Metric,
    /// Leave out what has a smaller share [default: 1 in text, 0 in data]
    #[arg(long, value_name = "P", value_parser = share)]
    min_percent: Option<u64>,
    /// Levels to show (0 for all) [default: all in text, 60 in JSON, which not every reader takes deeper]
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// Also the frames inside of allocators and standard libraries
    #[arg(long)]
    full: bool,
}

/// A share in tenths of a percent.
fn share(text: &str) -> Result<u64, String> {
    let number: Option<f64> = text.trim_end_matches('%').trim().parse().ok();
    match number {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok((percent * 10.0).round() as u64),
        _ => Err(format!("`{text}` is no share: write a number from 0 to 100")),
    }
}

impl Args {
    fn direction(&self) -> Direction {
        match (&self.callers, &self.callees) {
            (Some(of), _) => Direction::Callers(of.clone()),
            (_, Some(of)) => Direction::Callees(of.clone()),
            _ if self.bottom_up => Direction::BottomUp,
            _ => Direction::TopDown,
        }
    }

    fn limits(&self) -> Show {
        let show = &self.view.show;
        let all = |given: usize| if given == 0 { usize::MAX } else { given };
        Show {
            least: self.min_percent.unwrap_or(if show.is_data() { 0 } else { 10 }),
            lines: show.limit(60),
            depth: all(self.depth.unwrap_or(if show.json { 60 } else { 0 })),
            unicode: output::unicode(),
        }
    }
}

/// Who called whom.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let show = &args.view.show;
    let (output, keys) = (show.output()?, show.sort(KEYS, "")?);
    let mut session = args.view.trace.open()?;
    let by = show.by.unwrap_or(By::Function);
    let survey = view::survey(&args.view, &mut session, by, Some(args.metric))?;
    let shape = Shape { direction: args.direction(), by, metric: args.metric, full: args.full };
    let mut found = Tree::build(&mut session, survey.items.iter().copied(), &shape);
    if !keys.is_empty() || show.reverse {
        found.sort(&keys, show.reverse);
    }
    let (limits, direction) = (args.limits(), &shape.direction);
    let mut out = output::stdout();
    match &output {
        Output::Json => tree::json(&mut out, &session, &found, direction, &limits)?,
        Output::Text => {
            trace::warn(&survey.stats);
            tree::text(&mut out, &colour.stdout(), &session, &found, direction, &limits)?;
        }
        Output::Csv | Output::Format(_) => {
            let mut table = Rows::begin(&mut out, &output, tree::COLUMNS, &session)?;
            tree::walk(&found, &limits, |node, path| {
                table.row(&tree::row(&found, node, path), &mut session)
            })?;
            table.end()?;
        }
    }
    std::io::Write::flush(&mut out)?;
    if output == Output::Text {
        trace::notes(&session);
    }
    Ok(())
}
