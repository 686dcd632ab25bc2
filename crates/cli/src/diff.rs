//! `highwater diff`

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use highwater_query::diff::measure;
use highwater_query::diff::{self, Amount, Diff, SameBuilds, Side};
use highwater_query::group::Metric;
use highwater_query::{By, Filter, Item, Session};
use highwater_render::diff::{self as render, Of, Shown};
use highwater_render::modes;
use highwater_replay::Until;

use crate::leaks::SuppressionArgs;
use crate::output::{self, Colour};
use crate::trace::{self, NameArgs};
use crate::view::{self, Output, Rows, SelectArgs, ShowArgs};

/// Options of `diff`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    highwater diff old.hwt new.hwt                two runs, or an old and a new build\n  \
    highwater diff --metric peak old.hwt new.hwt  who held the memory at the peaks\n  \
    highwater diff --from @loaded --to end app.hwt   two instants of one run\n  \
    highwater diff mddout.1 mddout.2              two dumps of one run of a target")]
pub struct Args {
    /// The trace (or dump) before
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The trace (or dump) after; without it two instants of A are compared
    #[arg(value_name = "B")]
    after: Option<PathBuf>,
    /// What is compared: live, peak, allocated, allocations, temporary or leaked
    #[arg(long, value_name = "NAME", default_value = "live")]
    metric: Metric,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    suppressed: SuppressionArgs,
    #[command(flatten)]
    names: NameArgs,
}

impl Args {
    fn by(&self) -> By {
        self.show.by.unwrap_or_default()
    }
}

/// What has changed.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let (filter, output) = (args.select.filter()?, args.show.output()?);
    if args.show.sort.is_some() {
        bail!("-S: changes come in the order of their size; --metric says of what");
    }
    if args.metric == Metric::Temporary && !filter.is_empty() {
        bail!(
            "-F: temporary allocations are only counted by site; filters do not go with --metric temporary"
        );
    }
    if args.metric == Metric::Temporary && !args.by().needs_only_stacks() {
        bail!("--by {}: temporary allocations are only counted by site", args.by().name());
    }
    let mut first = open(args, &args.before)?;
    let mut second = args.after.as_deref().map(|path| open(args, path)).transpose()?;
    let one_run = match &second {
        None => true,
        Some(second) => is_one_run(&first, second)?,
    };
    let instants = args.select.from.is_some() || args.select.to.is_some();
    if second.is_none() && !instants {
        bail!("name a second trace, or two instants of this one with --from and --to");
    }
    if instants && !one_run {
        bail!("--from and --to are instants of one run, and these are two runs: use --at");
    }
    if second.is_none() && args.metric != Metric::Live {
        bail!("--metric {}: two instants of one run are compared by what is live", args.metric.name());
    }
    let mut done = if one_run && args.metric == Metric::Live {
        by_block(args, &filter, &mut first, second.as_mut())?
    } else {
        let Some(second) = &mut second else { bail!("name a second trace") };
        by_group(args, &filter, &mut first, second)?
    };
    if args.show.reverse {
        done.diff.changes.reverse();
    }
    write(args, &output, colour, &done, second.as_mut().unwrap_or(&mut first))?;
    if output == Output::Text {
        trace::notes(second.as_ref().unwrap_or(&first));
    }
    Ok(())
}

struct Done {
    diff: Diff,
    before: Of,
    after: Of,
    blocks: bool,
}

fn open(args: &Args, path: &Path) -> anyhow::Result<Session> {
    let session = args.names.open(&[path.to_path_buf()])?;
    view::warn_of_damage(&session);
    if session.modes().sample > 0 {
        output::say(&format!("note: {}: {}", path.display(), modes::ESTIMATES));
    }
    if let Some(by) = args.show.by {
        by.require(&session)?;
    }
    Ok(session)
}

/// Are seqnos of these two the same events? Of two traces if it is one recording
/// (one of them a copy from before its end), of two dumps if one run made both.
fn is_one_run(a: &Session, b: &Session) -> anyhow::Result<bool> {
    let (one, other) = (a.facts(), b.facts());
    let from = |meta: &highwater_trace::model::Meta| meta.option("from").map(str::to_string);
    if from(&one.meta).as_deref() == Some("mddout") && from(&other.meta).as_deref() == Some("mddout") {
        return Ok(highwater_interchange::import::same_run(&one.path, &other.path)?);
    }
    let place = |path: &Path| std::fs::canonicalize(path).ok();
    if place(&one.path).is_some() && place(&one.path) == place(&other.path) {
        return Ok(true);
    }
    let id = |meta: &highwater_trace::model::Meta| {
        (meta.pid, meta.wall_ns, meta.host.clone(), meta.image, from(meta), meta.exe.clone())
    };
    Ok(one.meta.pid != 0 && one.meta.wall_ns != 0 && id(&one.meta) == id(&other.meta))
}

/// The instant that an option names.
fn instant(session: &mut Session, text: Option<&str>, default: Until) -> anyhow::Result<Until> {
    text.map_or(Ok(default), |text| trace::instant(session, text))
}

/// `live at 1.5s`
fn live_at(text: &str) -> String {
    match text {
        "end" => "live at the end".to_string(),
        "start" => "live at the start".to_string(),
        "peak" => "live at the peak".to_string(),
        other => format!("live at {other}"),
    }
}

/// Blocks of one run at two instants.
fn by_block(
    args: &Args,
    filter: &Filter,
    first: &mut Session,
    second: Option<&mut Session>,
) -> anyhow::Result<Done> {
    let at = args.select.at.as_deref();
    // Two files of one run are each looked at at their end.
    let early = args.select.from.as_deref().or(at).unwrap_or(if second.is_some() { "end" } else { "start" });
    let late = args.select.to.as_deref().or(at).unwrap_or("end");
    let until = instant(first, Some(early), Until::Start)?;
    let (before, replay) = measure::live(first, until, filter)?;
    let mut of_before = of(first, live_at(early));
    of_before.totals = totals(&replay.totals());
    let items = |blocks: &[highwater_replay::LiveBlock], replay: &highwater_replay::Replay| -> Vec<Item> {
        blocks.iter().map(|block| Item::of_block(block, replay)).collect()
    };
    let sum = |items: &[Item]| Amount::sum(items.iter().map(Amount::from));
    let total_before = sum(&items(&before, &replay));
    let later = |session: &mut Session| -> anyhow::Result<_> {
        let until = instant(session, Some(late), Until::End)?;
        let (after, replay_after) = measure::live(session, until, filter)?;
        let mut of_after = of(session, live_at(late));
        of_after.totals = totals(&replay_after.totals());
        let found = highwater_replay::diff(&before, &after);
        let new = items(&found.new, &replay_after);
        let groups = highwater_query::group::group(session, new, args.by());
        Ok((of_after, sum(&items(&after, &replay_after)), groups, found))
    };
    let (of_after, total_after, new, found) = match second {
        Some(session) => later(session)?,
        None => later(first)?,
    };
    let gone = highwater_query::group::group(first, items(&found.gone, &replay), args.by());
    let diff = diff::blocks(total_before, total_after, gone, new, found.kept.len());
    Ok(Done { diff, before: of_before, after: of_after, blocks: true })
}

/// Groups of two runs.
fn by_group(args: &Args, filter: &Filter, first: &mut Session, second: &mut Session) -> anyhow::Result<Done> {
    let same = SameBuilds::of(first, second);
    let rules = args.suppressed.rules()?;
    let at = args.select.at.as_deref();
    let side = |session: &mut Session| -> anyhow::Result<(Side, Of)> {
        let until = instant(session, at, Until::End)?;
        let (items, whole) = measure::items(session, args.metric, until, filter, &rules, args.by())?;
        let side = Side::new(session, items, args.by(), &same);
        let what = match args.metric {
            Metric::Live => live_at(at.unwrap_or("end")),
            other => measure::words(other).to_string(),
        };
        let mut of = of(session, what);
        of.totals = match whole {
            Some(found) => totals(&found),
            None => totals(session.outcome()?.totals()),
        };
        Ok((side, of))
    };
    let (a, before) = side(first)?;
    let (b, after) = side(second)?;
    Ok(Done { diff: diff::groups(&a, &b, measure::rank(args.metric)), before, after, blocks: false })
}

fn of(session: &Session, what: String) -> Of {
    Of { name: session.facts().path.display().to_string(), what, totals: Vec::new() }
}

fn totals(totals: &highwater_replay::Totals) -> Vec<(&'static str, u64)> {
    vec![
        ("events", totals.events),
        ("allocations", totals.allocations),
        ("bytes_allocated", totals.bytes_allocated),
        ("frees", totals.frees),
        ("temporary", totals.temporary),
        ("live_blocks", totals.live_blocks),
        ("live_bytes", totals.live_bytes),
        ("peak_bytes", totals.peak_bytes),
    ]
}

fn write(
    args: &Args,
    output: &Output,
    colour: Colour,
    done: &Done,
    session: &mut Session,
) -> anyhow::Result<()> {
    let shown = Shown {
        before: &done.before,
        after: &done.after,
        by: args.by(),
        metric: args.metric.name(),
        rank: measure::rank(args.metric),
        blocks: done.blocks,
    };
    let limit = args.show.limit(20);
    let mut out = output::stdout();
    match output {
        Output::Json => render::json(&mut out, &shown, &done.diff, limit)?,
        Output::Text => render::text(&mut out, &colour.stdout(), &shown, &done.diff, limit)?,
        Output::Csv | Output::Format(_) => {
            let mut rows = Rows::begin(&mut out, output, render::COLUMNS, session)?;
            for change in done.diff.changes.iter().take(limit) {
                rows.row(&render::row(change), session)?;
            }
            rows.end()?;
        }
    }
    out.flush().map_err(|error| anyhow!(error))
}
