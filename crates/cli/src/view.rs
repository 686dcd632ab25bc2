//! The options that all views share.

use anyhow::{Context, anyhow, bail};
use highwater_query::filter::Subject;
use highwater_query::{
    Ask, By, Filter, Format, Group, Inlining, Metric, Row, Selection, Session, SortKey, SortOrder, Survey,
    group,
};
use highwater_render::{csv, rows};
use highwater_replay::{LiveBlock, Until};

use crate::output;
use crate::trace::{self, TraceArgs};

/// Which trace, which part of it, and how it is shown.
#[derive(Clone, Debug, clap::Args)]
pub struct ViewArgs {
    #[command(flatten)]
    pub trace: TraceArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub show: ShowArgs,
}

/// Which events and blocks.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Selection")]
pub struct SelectArgs {
    /// Only what fits: thread, size, class, seqno, time, ptr, api, phase, age, lifetime, site, function,
    /// file, module, stack; a list (api=malloc,new*), a range (size=4k..1MiB), != for all others; may be
    /// repeated
    #[arg(short = 'F', value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
    /// The instant: 1.5s, 120ms, 3m, #seqno, @mark, peak, start, end
    #[arg(long, value_name = "T", conflicts_with = "to", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// Only what happened after this instant
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Only what happened up to this instant
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub to: Option<String>,
}

/// How it is shown.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct ShowArgs {
    /// JSON, document highwater.NAME/1
    #[arg(long, conflicts_with_all = ["csv", "format_string"])]
    pub json: bool,
    /// CSV (RFC 4180) with a header row
    #[arg(long, conflicts_with = "format_string")]
    pub csv: bool,
    /// A line for each row in these words: %p address, %n size, %s seqno, %a entry point, %T time, %t %h %N
    /// thread, %m %o actual size and overhead, %b1 %f1 %w1 %l1 the stack; {column} for any column of --csv
    #[arg(short = 'f', value_name = "FORMAT", id = "format_string", allow_hyphen_values = true)]
    pub format: Option<String>,
    /// Sort keys, the first counts most: size, seqno, time, site, ...; -KEY turns a key round; or the
    /// letters p ptr, n size, s seqno, a api, t thread, capitals descending
    #[arg(short = 'S', value_name = "KEYS", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Reverse the order
    #[arg(short = 'r')]
    pub reverse: bool,
    /// Group by site, stack, function, file, module, thread, api, size or phase
    #[arg(long, value_name = "WHAT")]
    pub by: Option<By>,
    /// Rows to show (0 for all)
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// For people
    Text,
    /// One document
    Json,
    /// Rows
    Csv,
    /// Rows in the user's words
    Format(Format),
}

impl ShowArgs {
    /// What is to be written.
    ///
    /// # Errors
    /// The format string makes no sense.
    pub fn output(&self) -> anyhow::Result<Output> {
        Ok(match &self.format {
            _ if self.json => Output::Json,
            _ if self.csv => Output::Csv,
            Some(text) => Output::Format(Format::parse(text).map_err(|reason| anyhow!("-f: {reason}"))?),
            None => Output::Text,
        })
    }

    /// The keys of `-S`, of those that the list has; else those of `default`.
    ///
    /// # Errors
    /// A key that the list does not have.
    pub fn sort(&self, known: &[SortKey], default: &str) -> anyhow::Result<Vec<SortOrder>> {
        let text = self.sort.as_deref().unwrap_or(default);
        if text.is_empty() && self.sort.is_none() {
            return Ok(Vec::new());
        }
        SortOrder::list_of(text, known).map_err(|reason| anyhow!("-S {text}: {reason}"))
    }

    /// Is the output for programs?
    pub fn is_data(&self) -> bool {
        self.json || self.csv || self.format.is_some()
    }

    /// Rows to show: what `--limit` says; else `default` in text, all in data.
    pub fn limit(&self, default: usize) -> usize {
        let unless = if self.is_data() { 0 } else { default };
        match self.limit.unwrap_or(unless) {
            0 => usize::MAX,
            limit => limit,
        }
    }

    /// Refuses options of groups where a view has none.
    ///
    /// # Errors
    /// `--by` was given.
    pub fn no_groups(&self, view: &str, instead: &str) -> anyhow::Result<()> {
        match self.by {
            Some(by) => bail!("--by {}: {view} shows no groups; {instead} does", by.name()),
            None => Ok(()),
        }
    }
}

/// A part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// What happened up to here does not count.
    pub from: Until,
    /// The last instant.
    pub to: Until,
}

impl Window {
    /// Was this block, which is alive at the window's end, made inside of it?
    pub fn made(&self, block: &LiveBlock) -> bool {
        !self.from.includes(block.seqno, block.ns)
    }
}

impl SelectArgs {
    /// The filter of `-F`.
    ///
    /// # Errors
    /// The first condition that makes no sense.
    pub fn filter(&self) -> anyhow::Result<Filter> {
        trace::filter(&self.filter)
    }

    /// The window of `--from` and `--to` (or `--at`).
    ///
    /// # Errors
    /// An instant that is none, a mark that is not there, an end before the beginning.
    pub fn window(&self, session: &mut Session) -> anyhow::Result<Window> {
        let mut instant = |option: &str, text: Option<&String>, default: Until| match text {
            None => Ok(default),
            Some(text) => trace::instant(session, text).with_context(|| format!("{option} {text}")),
        };
        let from = instant("--from", self.from.as_ref(), Until::Start)?;
        let to = instant("--at", self.at.as_ref(), Until::End)?;
        let to = instant("--to", self.to.as_ref(), to)?;
        let empty = match (from, to) {
            (Until::Ns(from), Until::Ns(to)) | (Until::Seqno(from), Until::Seqno(to)) => from > to,
            (Until::End, to) => to != Until::End,
            (from, Until::Start) => from != Until::Start,
            _ => false,
        };
        if empty {
            bail!("--from lies behind --to: nothing happens in between");
        }
        Ok(Window { from, to })
    }
}

/// Counts what the options select; `by` is the grouping where none is asked for.
///
/// # Errors
/// An option makes no sense; the trace cannot serve it or cannot be read.
pub fn survey(
    args: &ViewArgs,
    session: &mut Session,
    by: By,
    metric: Option<Metric>,
) -> anyhow::Result<Survey> {
    let filter = args.select.filter()?;
    let Window { from, to } = args.select.window(session)?;
    if let Some(by) = args.show.by {
        by.require(session)?;
    }
    let by = args.show.by.unwrap_or(by);
    Ok(Survey::of(session, &Ask { filter, from, to, by, metric })?)
}

/// The groups of a metric, in the order of `-S`; in data no more than `--limit`.
pub fn groups(
    show: &ShowArgs,
    session: &mut Session,
    survey: &Survey,
    (by, metric): (By, Metric),
    keys: &[SortOrder],
) -> Vec<Group> {
    let items = survey.items.iter().map(|item| item.with(metric));
    let mut groups = group::group(session, items, by);
    if !keys.is_empty() || show.reverse {
        group::sort(session, &mut groups, keys, show.reverse);
    }
    if show.is_data() {
        groups.truncate(show.limit(0));
    }
    groups
}

/// Writes groups as rows.
///
/// # Errors
/// The format asks for what there is not; the output's.
pub fn group_rows(
    out: impl std::io::Write,
    output: &Output,
    session: &mut Session,
    groups: &[Group],
) -> anyhow::Result<()> {
    let mut rows = Rows::begin(out, output, rows::GROUPS, session)?;
    for group in groups {
        rows.row(&rows::group(group), session)?;
    }
    Ok(rows.end()?)
}

/// Says of a trace what a reader of rows must know: what is wrong with it.
pub fn warn_of_damage(session: &Session) {
    for warning in &session.facts().warnings {
        output::say(&format!("note: {warning}"));
    }
}

/// Writes rows as `--csv` or `-f` want them; the first error ends it.
pub struct Rows<W: std::io::Write> {
    out: W,
    format: Option<Format>,
}

impl<W: std::io::Write> Rows<W> {
    /// Begins with the header, or checks that the format can be filled.
    ///
    /// # Errors
    /// The format asks for what the view or the trace does not have; the output's.
    pub fn begin(
        mut out: W,
        output: &Output,
        columns: &[&str],
        session: &Session,
    ) -> anyhow::Result<Rows<W>> {
        let format = match output {
            Output::Format(format) => {
                format.check(columns, session)?;
                Some(format.clone())
            }
            _ => {
                csv::header(&mut out, columns)?;
                None
            }
        };
        Ok(Rows { out, format })
    }

    /// Writes a row.
    ///
    /// # Errors
    /// The output's.
    pub fn row(&mut self, row: &Row, session: &mut Session) -> std::io::Result<()> {
        match &self.format {
            Some(format) => writeln!(self.out, "{}", format.fill(row, session)),
            None => csv::record(&mut self.out, row),
        }
    }

    /// Flushes.
    ///
    /// # Errors
    /// The output's.
    pub fn end(mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// The blocks alive at the end of a window that were made in it and pass, by seqno.
///
/// # Errors
/// The file cannot be read.
pub fn live(
    session: &mut Session,
    window: Window,
    selection: &mut Selection,
    now: u64,
) -> anyhow::Result<Vec<LiveBlock>> {
    let mut blocks = alive(session, window, selection, now)?;
    blocks.sort_by_cached_key(|block| block.seqno);
    Ok(blocks)
}

/// The same in no order, for who puts them in one.
///
/// # Errors
/// The file cannot be read.
pub fn alive(
    session: &mut Session,
    window: Window,
    selection: &mut Selection,
    now: u64,
) -> anyhow::Result<Vec<LiveBlock>> {
    let mut blocks = session.alive_at(window.to)?;
    blocks.retain(|block| {
        window.made(block) && (selection.is_empty() || selection.passes(&Subject::alive(block, now), session))
    });
    Ok(blocks)
}

/// `-n` and `-I`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Names")]
pub struct InliningArgs {
    /// Show no inlined functions: one frame for each return address
    #[arg(short = 'n')]
    no_inline: bool,
    /// One frame for each return address: the innermost function whose file does not fit this pattern
    #[arg(short = 'I', value_name = "GLOB", conflicts_with = "no_inline")]
    ignore: Option<String>,
}

impl InliningArgs {
    /// What is shown of inlined functions.
    pub fn inlining(&self) -> Inlining {
        match &self.ignore {
            Some(glob) => Inlining::Ignored(glob.clone()),
            None if self.no_inline => Inlining::Hidden,
            None => Inlining::Shown,
        }
    }
}

/// The time of an instant, ns; read from the trace only where it is `wanted`.
///
/// # Errors
/// The file cannot be read.
pub fn instant_ns(session: &mut Session, until: Until, wanted: bool) -> anyhow::Result<u64> {
    Ok(match until {
        Until::Start => 0,
        Until::Ns(ns) => ns,
        Until::Seqno(_) | Until::End if wanted => session.replay_until(until)?.totals().last_ns,
        Until::Seqno(_) | Until::End => 0,
    })
}
