//! `highwater leaks`

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use highwater_query::leaks::report::{self, Leaks};
use highwater_query::leaks::suppressions::Suppressions;
use highwater_query::{By, Group, Session, Stats};
use highwater_render::sites::{self, LeaksJson};
use highwater_render::{gcc, github, junit, place, sarif};
use highwater_replay::Replay;

use crate::output::{self, Colour};
use crate::trace::{self, TraceArgs};
use crate::windows::{self, WindowArgs};

/// What makes a block a leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// Alive at the end
    Exit,
    /// Made in a window, alive after it
    Window,
}

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
#[derive(Clone, Debug, clap::Args)]
pub struct SuppressionArgs {
    /// Hide what fits the rules of this file (leak:PATTERN lines, as LeakSanitizer reads them); may be repeated
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
}

impl SuppressionArgs {
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

/// Options of `leaks`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  highwater leaks app.hwt\n  highwater leaks --by stack --json app.hwt\n  \
                  highwater leaks --json --blocks app.hwt | jq '.blocks[0]'\n  \
                  highwater leaks --format sarif app.hwt > leaks.sarif\n  \
                  highwater leaks --from @A1 --to @A2 --until @A3 app.hwt\n  highwater leaks --windows A app.hwt\n  \
                  highwater leaks --gen-suppressions app.hwt > known.supp; highwater leaks --suppressions known.supp app.hwt"
)]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    /// JSON, document highwater.leaks/1
    #[arg(long)]
    json: bool,
    /// With --json: every block too
    #[arg(long, requires = "json")]
    blocks: bool,
    /// site, stack, function, file, module, thread, api or size
    #[arg(long, value_name = "WHAT", default_value = "site")]
    by: By,
    /// Lines to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// For whom
    #[arg(long, value_enum, default_value_t, value_name = "NAME", conflicts_with = "json")]
    format: Format,
    /// What makes a block a leak [default: exit; window with --from, --to, --until, --windows]
    #[arg(long, value_enum, value_name = "NAME")]
    method: Option<Method>,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    suppressed: SuppressionArgs,
    /// Show only what is suppressed, and by which rule
    #[arg(long)]
    show_suppressed: bool,
    /// Print a file of suppressions that hides all that is reported now
    #[arg(long, conflicts_with_all = ["json", "format", "show_suppressed"])]
    gen_suppressions: bool,
}

/// What is alive at the end.
pub fn run(args: &Args, colour: Colour) -> anyhow::Result<()> {
    let rules = args.suppressed.rules()?;
    let mut session = args.trace.open()?;
    let (replay, mut stats) = trace::replay(&mut session)?;
    match args.method {
        Some(Method::Exit) if args.window.is_given() => {
            bail!("--from, --to, --until and --windows belong to --method window")
        }
        Some(Method::Window) => return window(args, colour, &mut session, &stats, &rules),
        None if args.window.is_given() => return window(args, colour, &mut session, &stats, &rules),
        Some(Method::Exit) | None => {}
    }
    let mut leaks = report::live(&mut session, &replay, args.by, &rules);
    if args.show_suppressed {
        std::mem::swap(&mut leaks.groups, &mut leaks.suppressed);
    }
    let format = if args.json { Format::Json } else { args.format };
    if format != Format::Json {
        trace::warn(&stats);
    }
    if args.gen_suppressions {
        let mut out = output::stdout();
        out.write_all(report::generate(&leaks.groups).as_bytes())?;
        return Ok(out.flush()?);
    }
    if format == Format::Text {
        // The headline counts what the table shows.
        stats.totals.live_bytes = leaks.groups.iter().map(|group| group.bytes).sum();
        stats.totals.live_blocks = leaks.groups.iter().map(|group| group.blocks).sum();
    }
    write(args, format, colour, &mut session, &replay, &stats, &leaks)?;
    if format == Format::Text {
        tell_suppressed(args, &leaks);
    }
    if format != Format::Json {
        trace::notes(&session);
    }
    Ok(())
}

/// What windows left behind.
fn window(
    args: &Args,
    colour: Colour,
    session: &mut Session,
    stats: &Stats,
    rules: &Suppressions,
) -> anyhow::Result<()> {
    let mut found = args.window.find(session, args.by, rules)?;
    if args.show_suppressed {
        found.some.clear();
        std::mem::swap(&mut found.all, &mut found.suppressed);
    }
    let format = if args.json { Format::Json } else { args.format };
    if format != Format::Json {
        trace::warn(stats);
    }
    let mut out = output::stdout();
    let groups = found.groups();
    match format {
        _ if args.gen_suppressions => out.write_all(report::generate(&groups).as_bytes())?,
        Format::Text => windows::text(&mut out, colour, session, &found, args.by, args.limit)?,
        Format::Json => {
            highwater_render::windows::json(&mut out, session, stats, &found, args.by, args.blocks)?;
        }
        other => write_groups(&mut out, other, session, &groups)?,
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

/// Groups for other programs.
fn write_groups(
    out: &mut impl Write,
    format: Format,
    session: &Session,
    groups: &[Group],
) -> anyhow::Result<()> {
    match format {
        Format::Text | Format::Json => {}
        Format::Gcc => gcc::write(out, groups)?,
        Format::Sarif => sarif::write(out, groups, &base()?)?,
        Format::Junit => junit::write(out, groups, &base()?, &session.facts().program())?,
        Format::Github => github::write(out, groups, &base()?)?,
    }
    Ok(())
}

fn write(
    args: &Args,
    format: Format,
    colour: Colour,
    session: &mut Session,
    replay: &Replay,
    stats: &Stats,
    leaks: &Leaks,
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let groups = &leaks.groups;
    match format {
        Format::Text if args.show_suppressed && groups.is_empty() => {
            writeln!(out, "nothing that is live at the end is suppressed")?;
        }
        Format::Text if groups.is_empty() && leaks.hidden().blocks > 0 => {
            writeln!(out, "no leaks: all that is live at the end is suppressed")?;
        }
        Format::Text => {
            sites::leaks_text(&mut out, &colour.stdout(), session, stats, groups, args.by, args.limit)?;
        }
        Format::Json => {
            let blocks = args.blocks.then(|| replay.live_set());
            let more = LeaksJson { blocks: blocks.as_deref() };
            sites::leaks_json(&mut out, session, stats, groups, args.by, more)?;
        }
        other => write_groups(&mut out, other, session, groups)?,
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

/// The folder that paths are relative to: the repository that this folder is
/// in, else this folder.
fn base() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir()?;
    let root = here.ancestors().find(|folder| folder.join(".git").exists());
    Ok(root.unwrap_or(&here).to_path_buf())
}
