//! `highwater leaks`

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use highwater_query::leaks::baseline::Baseline;
use highwater_query::leaks::evidence::{Evidence, Slicing};
use highwater_query::leaks::growth::Trend;
use highwater_query::leaks::rank::{self, Findings, Method, Ranking};
use highwater_query::leaks::reach::{self, Scanned};
use highwater_query::leaks::report::{self, Leaks};
use highwater_query::leaks::suppressions::Suppressions;
use highwater_query::{By, Session, Stats, units};
use highwater_render::finding::{Finding, Judged, Left};
use highwater_render::sites::{self, LeaksJson};
use highwater_render::{gcc, github, junit, place, sarif, suspects};
use highwater_replay::Replay;

use crate::alive::AliveArgs;
use crate::leaks_in_slices;
use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};
use crate::unreachable;
use crate::windows::{self, WindowArgs};

/// How leaks are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// FILE:LINE: error: N bytes leaked here
    Gcc,
    /// SARIF 2.1.0
    Sarif,
    /// JUnit XML
    Junit,
    /// Annotations of GitHub Actions
    Github,
    /// The document highwater.leaks/1
    Json,
}

/// What is not reported.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SuppressionArgs {
    /// Hide what fits the rules of this file (leak:PATTERN lines, as LeakSanitizer reads them); may be repeated
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// Do not apply what the recorded program tells LeakSanitizer (__lsan_default_suppressions, LSAN_OPTIONS)
    #[arg(long)]
    no_recorded_suppressions: bool,
}

impl SuppressionArgs {
    /// Adds the rules that the recorded program brought along, unless they are
    /// not wanted.
    pub fn add_recorded(&self, rules: &mut Suppressions, session: &Session) {
        if !self.no_recorded_suppressions {
            rules.add_recorded(&session.facts().meta);
        }
    }

    /// The rules: the files' and the built-in ones.
    ///
    /// # Errors
    /// A file cannot be read or has a line that is no rule.
    pub fn rules(&self) -> anyhow::Result<Suppressions> {
        let mut rules = Suppressions::built_in();
        for path in &self.suppressions {
            rules.add_file(path)?;
        }
        Ok(rules)
    }
}

/// How suspects are found and ranked.
#[derive(Clone, Debug, clap::Args)]
pub struct RankArgs {
    /// What counts: exit, unreachable, window, growth, stale or all [default: all; window with --from, --to, --until, --windows]
    #[arg(long, value_name = "NAME")]
    method: Option<Method>,
    /// What growth is: own, edleak or edkit-logistic
    #[arg(long, value_name = "NAME", default_value = "own")]
    trend: Trend,
    /// Look at the heap every S (1s, 5m); without it, at equal numbers of events
    #[arg(long, value_name = "S", value_parser = period)]
    period: Option<u64>,
    /// Say when the heap reaches this size [default: the program's own limit, where that is near]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    limit_at: Option<u64>,
    /// A function that only hands memory on: blame its caller; may be repeated
    #[arg(long, value_name = "GLOB")]
    wrapper: Vec<String>,
    /// Do not look for such functions
    #[arg(long)]
    no_wrappers: bool,
    /// What is not suspected too: start-up, and what is kept
    #[arg(long)]
    all: bool,
    /// Whole stacks
    #[arg(long, short)]
    verbose: bool,
}

fn period(text: &str) -> Result<u64, String> {
    units::time(text)
        .filter(|&ns| ns > 0)
        .ok_or_else(|| format!("`{text}` is no length of time: 1s, 500ms, 5m"))
}

fn size(text: &str) -> Result<u64, String> {
    units::size(text).ok_or_else(|| format!("`{text}` is no size: 4096, 64k, 1.5GiB"))
}

/// Options of `leaks`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  highwater leaks app.hwt\n  highwater leaks --by stack --json app.hwt\n  \
                  highwater leaks --method growth --limit-at 2GiB app.hwt\n  \
                  highwater leaks --json --blocks app.hwt | jq '.blocks[0]'\n  \
                  highwater leaks --format sarif app.hwt > leaks.sarif\n  \
                  highwater leaks --from @A1 --to @A2 --until @A3 app.hwt\n  highwater leaks --windows A app.hwt\n  \
                  highwater leaks --gen-suppressions app.hwt > known.supp; highwater leaks --suppressions known.supp app.hwt"
)]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    rank: RankArgs,
    #[command(flatten)]
    window: WindowArgs,
    /// JSON, document highwater.leaks/1
    #[arg(long)]
    json: bool,
    /// With --json: every block too
    #[arg(long, requires = "json")]
    blocks: bool,
    /// List what is alive at the end by site, stack, function, file, module, thread, api or size
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,
    /// Lines, or suspects, to show (0 for all) [default: 20 in text]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    alive: AliveArgs,
    /// Who points to the block at this address (recorded with `run --leak-check`)
    #[arg(long, value_name = "ADDR", value_parser = unreachable::address, conflicts_with_all = ["method", "format"])]
    who: Option<u64>,
    /// For whom
    #[arg(long, value_enum, default_value_t, value_name = "NAME", conflicts_with = "json")]
    format: Format,
    #[command(flatten)]
    suppressed: SuppressionArgs,
    /// Only what is not in this trace, or in this file of `check --write-baseline`
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Show only what is suppressed, and by which rule
    #[arg(long)]
    show_suppressed: bool,
    /// Print a file of suppressions that hides all that is reported now
    #[arg(long, conflicts_with_all = ["json", "format", "show_suppressed"])]
    gen_suppressions: bool,
}

impl Args {
    /// Lines of text.
    fn limit(&self) -> usize {
        match self.limit.unwrap_or(20) {
            0 => usize::MAX,
            limit => limit,
        }
    }

    fn by(&self) -> By {
        self.by.unwrap_or_default()
    }

    /// What is alive at the end, as the options want it.
    /// `replay` is the whole trace's, where there is one.
    fn alive(
        &self,
        session: &mut Session,
        replay: Option<&Replay>,
        rules: &Suppressions,
    ) -> anyhow::Result<Leaks> {
        let by = self.by.unwrap_or_default();
        let mut leaks = match replay {
            _ if self.alive.is_given() => self.alive.find(session, by, rules)?,
            Some(replay) => report::of_replay(session, replay, by, rules),
            None => report::live(session, by, rules)?,
        };
        if self.show_suppressed {
            std::mem::swap(&mut leaks.groups, &mut leaks.suppressed);
        }
        Ok(leaks)
    }

    fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// Is this about what is alive at the end, whoever is to blame?
    fn plain(&self) -> bool {
        let asked = self.alive.lists() || self.show_suppressed || self.gen_suppressions || self.by.is_some();
        asked || self.rank.method == Some(Method::Exit)
    }

    /// Is this about what a scan found, for people or as JSON?
    fn classes(&self) -> bool {
        let unreachable = self.rank.method == Some(Method::Unreachable);
        unreachable && matches!(self.format(), Format::Text | Format::Json) && !self.gen_suppressions
    }

    /// Is this about windows alone?
    fn windows(&self) -> bool {
        match self.rank.method {
            Some(method) => method == Method::Window,
            None => self.window.is_given(),
        }
    }
}

/// Who leaks, or what is alive at the end.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let mut rules = args.suppressed.rules()?;
    if let Some(path) = &args.baseline {
        let baseline = crate::gates::baseline(path, &rules)?;
        rules.add_known(baseline.known(&Baseline::default(), None));
    }
    if let Some(path) = args.trace.path().filter(|path| leaks_in_slices::is(path)) {
        return leaks_in_slices::run(path, args.rank.trend, args.format() == Format::Json, args.limit());
    }
    let mut session = args.trace.open()?;
    args.suppressed.add_recorded(&mut rules, &session);
    if let Some(addr) = args.who {
        return unreachable::who(&mut session, colour, addr, args.json);
    }
    if args.classes() {
        args.alive.refuse("--method unreachable")?;
        let (by, json) = (args.by.unwrap_or_default(), args.format() == Format::Json);
        return unreachable::classes(&mut session, colour, &rules, by, args.limit(), json);
    }
    if args.windows() {
        args.alive.refuse("--method window")?;
        return window(args, colour, &mut session, &rules);
    }
    if args.window.is_given() {
        bail!("--from, --to, --until and --windows belong to --method window");
    }
    if args.plain() && args.format() != Format::Json {
        return at_exit(args, colour, &rules, &mut session);
    }
    let slicing = args.rank.period.map_or(Slicing::Events, Slicing::Period);
    // Single blocks, and groups by other than stacks, are known of a replay alone.
    let of_blocks = args.format() == Format::Json && (args.blocks || !args.by().needs_only_stacks());
    let replay = if of_blocks { Some(session.evidence_by(Slicing::Events)?.0) } else { None };
    let evidence = Evidence::collect(&mut session, slicing)?;
    let (_, mut stats) = trace::outcome(&mut session)?;
    let options = rank::Options {
        method: args.rank.method.unwrap_or_default(),
        trend: args.rank.trend,
        wrappers: args.rank.wrapper.clone(),
        no_wrappers: args.rank.no_wrappers,
        limit: args.rank.limit_at,
    };
    let findings = findings(&mut session)?;
    let mut ranking = rank::rank(&mut session, &evidence, &findings, &rules, &options);
    args.alive.restrict(&mut session, &mut ranking)?;
    let format = args.format();
    if format == Format::Json {
        let by = args.by();
        let leaks = args.alive(&mut session, replay.as_ref(), &rules)?;
        if args.alive.is_given() {
            count(&mut stats, &leaks);
        }
        let blocks = replay.filter(|_| args.blocks).map(|replay| replay.live_set());
        let more = LeaksJson { blocks: blocks.as_deref(), ranking: Some(&ranking) };
        sites::leaks_json(output::stdout(), &mut session, &stats, &leaks.groups, by, more)?;
        return Ok(());
    }
    trace::warn(&stats);
    if format == Format::Text {
        let mut out = output::stdout();
        let show = suspects::Show {
            limit: args.limit(),
            all: args.rank.all,
            verbose: args.rank.verbose,
            unicode: output::unicode(),
        };
        suspects::text(&mut out, &colour.stdout(), &mut session, &stats, &ranking, show)?;
        unreachable::sums(&mut out, &mut session, &rules)?;
        out.flush()?;
        tell(&ranking);
    } else {
        let listed = Judged::of(&ranking, findings.reach.is_some(), args.rank.all);
        for_machines(&mut output::stdout(), format, &session, &listed)?;
    }
    trace::notes(&session);
    // Hundreds of thousands of stacks may hang on it, and the process ends now.
    std::mem::forget(session);
    Ok(())
}

/// What windows left behind.
fn window(args: &Args, colour: Colour, session: &mut Session, rules: &Suppressions) -> anyhow::Result<()> {
    let (_, stats) = trace::outcome(session)?;
    let by = args.by.unwrap_or_default();
    let mut found = args.window.find(session, by, rules)?;
    if args.show_suppressed {
        found.some.clear();
        std::mem::swap(&mut found.all, &mut found.suppressed);
    }
    let format = args.format();
    if format != Format::Json {
        trace::warn(&stats);
    }
    let mut out = output::stdout();
    match format {
        _ if args.gen_suppressions => out.write_all(report::generate(&found.groups()).as_bytes())?,
        Format::Text => windows::text(&mut out, colour, session, &found, by, args.limit())?,
        Format::Json => {
            highwater_render::windows::json(&mut out, session, &stats, &found, by, args.blocks)?;
        }
        other => for_machines(&mut out, other, session, &Left::of(&found))?,
    }
    out.flush()?;
    if format == Format::Text {
        windows::tell(&found);
    }
    if format != Format::Json {
        trace::notes(session);
    }
    Ok(())
}

/// What methods found that need more than the events.
fn findings(session: &mut Session) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    highwater_query::leaks::window::evidence(session, &mut findings)?;
    if let Scanned::Done(reach) = reach::of(session)? {
        findings.scan(reach);
    }
    Ok(findings)
}

/// What a ranking leaves out, and what it could not do.
fn tell(ranking: &Ranking) {
    let (bytes, blocks) = ranking.suppressed;
    if blocks > 0 {
        output::say(&format!("{} suppressed; --show-suppressed lists them", place::amount(bytes, blocks)));
    }
    for line in &ranking.missing {
        output::say(line);
    }
}

/// What is alive at the end, by whatever was asked for.
fn at_exit(args: &Args, colour: Colour, rules: &Suppressions, session: &mut Session) -> anyhow::Result<()> {
    // First: it may replay the trace, which gives the totals as well.
    let leaks = args.alive(session, None, rules)?;
    let (_, mut stats) = trace::outcome(session)?;
    trace::warn(&stats);
    if args.gen_suppressions {
        let mut out = output::stdout();
        out.write_all(report::generate(&leaks.groups).as_bytes())?;
        return Ok(out.flush()?);
    }
    if args.alive.rows() {
        return args.alive.write(session, &leaks, args.limit);
    }
    if args.format() != Format::Text {
        for_machines(&mut output::stdout(), args.format(), session, &leaks.groups)?;
        trace::notes(session);
        return Ok(());
    }
    // The headline counts what the table shows.
    count(&mut stats, &leaks);
    table(args, colour, session, &stats, &leaks)?;
    tell_suppressed(args, &leaks);
    trace::notes(session);
    Ok(())
}

/// Makes the totals those of these groups.
fn count(stats: &mut Stats, leaks: &Leaks) {
    let totals = &mut stats.totals;
    totals.live_bytes = leaks.bytes();
    totals.live_blocks = leaks.groups.iter().map(|group| group.blocks).sum();
    // That of their number stays the whole's, which it cannot exceed.
    totals.sampled.live_variance = highwater_render::modes::variance(&leaks.groups);
}

fn table(
    args: &Args,
    colour: Colour,
    session: &mut Session,
    stats: &Stats,
    leaks: &Leaks,
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let groups = &leaks.groups;
    if args.show_suppressed && groups.is_empty() {
        writeln!(out, "nothing that is live at the end is suppressed")?;
    } else if groups.is_empty() && leaks.hidden().blocks > 0 {
        writeln!(out, "no leaks: all that is live at the end is suppressed")?;
    } else {
        let by = args.by.unwrap_or_default();
        sites::leaks_text(&mut out, &colour.stdout(), session, stats, groups, by, args.limit())?;
    }
    out.flush()?;
    Ok(())
}

/// Sites for other programs.
fn for_machines(
    out: &mut impl Write,
    format: Format,
    session: &Session,
    groups: &[impl Finding],
) -> anyhow::Result<()> {
    match format {
        Format::Gcc => gcc::write(out, groups)?,
        Format::Sarif => sarif::write(out, groups, &output::base()?)?,
        Format::Junit => junit::write(out, groups, &output::base()?, &session.facts().program())?,
        Format::Github => github::write(out, groups, &output::base()?)?,
        Format::Text | Format::Json => {}
    }
    out.flush()?;
    Ok(())
}

/// One line about what the table leaves out; with `--show-suppressed` one a rule.
fn tell_suppressed(args: &Args, leaks: &Leaks) {
    if args.show_suppressed {
        for (rule, hidden) in &leaks.rules {
            output::say(&format!("{} suppressed by {rule}", place::amount(hidden.bytes, hidden.blocks)));
        }
        return;
    }
    let hidden = leaks.hidden();
    if hidden.blocks > 0 {
        let amount = place::amount(hidden.bytes, hidden.blocks);
        output::say(&format!("{amount} suppressed; --show-suppressed lists them"));
    }
}
