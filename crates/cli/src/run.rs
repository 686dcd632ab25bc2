//! `highwater run`: record a program, then say what was seen.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use highwater_query::leaks::gates;
use highwater_query::{Session, SessionOptions, Stats};
use highwater_record::{Outcome, Status};
use highwater_trace::Progress;

use crate::gates::{GateArgs, Gates};
use crate::output::{self, Colour, say};
use crate::slices::SliceArgs;
use crate::{progress, trace};

/// Options of `run`.
#[derive(clap::Args)]
#[command(
    trailing_var_arg = true,
    after_help = "Examples:\n  \
        highwater run -- ./app --its-options\n  \
        highwater run -o app.hwt --force -- python3 script.py\n  \
        highwater run -o 'out/%n.%p.hwt' -- make check\n  \
        highwater run --fail-on leak --max-peak 64MiB -- ./test\n\n\
        Exit status: the program's own (a signal that kills it kills highwater too);\n\
        --error-exitcode if a gate fails;\n\
        125 highwater failed, 126 PROG cannot be executed, 127 PROG was not found."
)]
pub struct Args {
    /// Trace to write; %p pid, %n program, %i image, %r MPI rank, %h host, %t time [default: highwater.%n.%p.hwt]
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    /// Overwrite an existing trace
    #[arg(long)]
    force: bool,
    /// Print nothing of our own
    #[arg(short, long)]
    quiet: bool,
    /// Record the usable size of each block too
    #[arg(long)]
    actual_size: bool,
    /// Take no stacks for frees: smaller and faster, but bad frees are told without their stacks
    #[arg(long)]
    no_free_stacks: bool,
    /// Walk every stack twice, with and without the cache; abort the program on a difference
    #[arg(long, hide = true)]
    validate: bool,
    /// Keep only the N outermost frames of each stack, and mark the cut
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    depth: u32,
    /// Record a sample: about one block for so many bytes allocated, and estimate the rest: 512k
    #[arg(long, value_name = "BYTES", value_parser = sample)]
    sample: Option<u64>,
    /// Only count blocks below this size
    #[arg(long, value_name = "BYTES", value_parser = size)]
    min_size: Option<u64>,
    /// Leave blocks that are freed before this age out of the events (totals have them): 10ms, 1s
    #[arg(long, value_name = "AGE", value_parser = age)]
    cull: Option<u64>,
    /// Keep only totals and the blocks alive at the end: a small file, however long the run
    #[arg(long, conflicts_with = "cull")]
    live_only: bool,
    /// When a thread's ring is full: wait for the recorder (nothing is lost), or drop and count
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    on_full: OnFull,
    /// What is recorded besides the program: its own later images (exec), or nothing (none)
    #[arg(long, value_parser = follow, default_value = "exec", value_name = "none|exec")]
    follow: Follow,
    /// Stop writing at this size (the program runs on): 500MiB, 2g
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_trace_size: Option<u64>,
    #[command(flatten)]
    slices: SliceArgs,
    #[command(flatten)]
    gates: GateArgs,
    /// Exit code when a gate fails
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Gates")]
    error_exitcode: u8,
    /// When the program exits, look through its memory for blocks that nothing points to any more
    #[arg(long)]
    leak_check: bool,
    /// The program and its arguments
    #[arg(required = true, value_name = "PROG")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum OnFull {
    #[default]
    Wait,
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follow {
    None,
    Exec,
}

fn follow(text: &str) -> Result<Follow, String> {
    match text {
        "none" => Ok(Follow::None),
        "exec" => Ok(Follow::Exec),
        "fork,exec" | "exec,fork" | "fork" => {
            Err("children cannot be recorded yet; run the child itself under `highwater run`".to_owned())
        }
        _ => Err("write none or exec".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    highwater_query::units::size(text)
        .ok_or_else(|| format!("`{text}` is no size; write 4096, 64k, 10MiB or 2g"))
}

fn age(text: &str) -> Result<u64, String> {
    match highwater_query::units::time(text) {
        None => Err(format!("`{text}` is no time; write 10ms, 1s or 2m")),
        Some(0) => Err("no block is freed before it is 0 ns old; leave --cull out".to_owned()),
        Some(ns) => Ok(ns),
    }
}

fn sample(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("0 B between two marks would be every byte; leave --sample out to record all".to_owned()),
        bytes if bytes > 1 << 40 => Err("at most 1 TiB".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Runs and reports; exits as the program did.
pub fn run(args: Args, colour: Colour) -> ExitCode {
    let mut gates = match args.gates.prepare(false) {
        Ok(gates) => gates,
        Err(error) => return output::misconfigured(&error),
    };
    if let Some(path) = args.slices.exists().filter(|_| !args.force) {
        say(&format!("{} exists already; --force overwrites it", path.display()));
        return ExitCode::from(125);
    }
    let slices = args.slices.slicing(args.force);
    if slices.is_some() && (args.sample.is_some() || args.min_size.is_some()) {
        say("slices are of all blocks: --slices goes neither with --sample nor with --min-size");
        return ExitCode::from(125);
    }
    // Nobody can say what is lost without a look at the memory.
    let scan = gates.wanted.findings.contains(&gates::Finding::LeakDefinite);
    let options = highwater_record::Options {
        output: args.output,
        force: args.force,
        actual_size: args.actual_size,
        no_free_stacks: args.no_free_stacks,
        depth: args.depth,
        sample: args.sample.unwrap_or(0),
        min_size: args.min_size.unwrap_or(0),
        cull: args.cull.unwrap_or(0),
        live_only: args.live_only,
        validate: args.validate,
        drop_when_full: args.on_full == OnFull::Drop,
        follow_exec: args.follow == Follow::Exec,
        leak_check: args.leak_check || scan,
        slices,
        max_trace_size: args.max_trace_size,
        ..Default::default()
    };
    if let Err(reason) = options.check() {
        say(&reason);
        return ExitCode::from(125);
    }
    match highwater_record::run::run(&args.command, crate::AGENT, &options) {
        Ok(outcome) => {
            let passed = report(&outcome, &mut gates, args.quiet, colour);
            match outcome.status {
                Status::Exited(_) if !passed => ExitCode::from(args.error_exitcode),
                status => exit(status),
            }
        }
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(error.exit_code() as u8)
        }
    }
}

/// Ends as the target did.
pub fn exit(status: Status) -> ExitCode {
    match status {
        Status::Exited(code) => ExitCode::from(code as u8),
        Status::Signaled(signal) => highwater_record::signals::die_of(signal),
    }
}

/// The summary of the last image, what else there is to say, and the gates:
/// were they kept? A quiet run says nothing and looks only for gates.
fn report(outcome: &Outcome, gates: &mut Gates, quiet: bool, colour: Colour) -> bool {
    let say = |line: &str| {
        if !quiet {
            output::say(line)
        }
    };
    let asked = !gates.wanted.is_empty();
    let mut results = Vec::new();
    match outcome.images.last() {
        Some(last) if asked || !quiet => match Analysis::of(&last.path, quiet) {
            Ok(mut analysis) => {
                if !quiet {
                    analysis.summary(colour);
                    if outcome.own_allocator {
                        say(&unseen(&analysis.stats, outcome.max_rss));
                    }
                }
                results = match analysis.gates(gates) {
                    Ok(results) => results,
                    Err(error) => gates::unknown(&gates.wanted, &format!("{error:#}")),
                };
            }
            Err(error) => {
                say(&format!("{error:#}"));
                results = gates::unknown(&gates.wanted, "the trace cannot be read");
            }
        },
        Some(_) => {}
        None => results = gates::unknown(&gates.wanted, "nothing was recorded"),
    }
    if outcome.images.len() > 1 {
        let earlier: Vec<String> =
            outcome.images.iter().rev().skip(1).rev().map(|i| i.path.display().to_string()).collect();
        say(&format!("the images before its exec are in {}", earlier.join(", ")));
    }
    for line in outcome.sentences() {
        say(&line);
    }
    for line in highwater_render::check::lines(&colour.stderr(), &results) {
        say(&line);
    }
    progress::clear();
    results.iter().all(gates::Gate::passed)
}

/// A finished trace, read once for all that is said of it.
struct Analysis {
    session: Session,
    found: Arc<highwater_replay::Outcome>,
    stats: Stats,
}

impl Analysis {
    fn of(path: &Path, quiet: bool) -> anyhow::Result<Analysis> {
        let progress = (!quiet).then_some(progress::tell as Progress);
        let options = SessionOptions { symbols: trace::symbols(), progress, ..SessionOptions::default() };
        let mut session = Session::open(path, options)?;
        let (found, stats) = trace::outcome(&mut session)?;
        Ok(Analysis { session, found, stats })
    }

    fn summary(&mut self, colour: Colour) {
        for line in highwater_render::notices::lines(&self.stats) {
            output::say(&line);
        }
        let look = colour.stderr();
        for line in highwater_render::run_summary::lines(&look, &mut self.session, &self.stats, &self.found) {
            output::say(&line);
        }
    }

    fn gates(&mut self, gates: &mut Gates) -> anyhow::Result<Vec<gates::Gate>> {
        if gates.wanted.is_empty() {
            return Ok(Vec::new());
        }
        gates.know(&self.session);
        gates.check(&mut self.session, &self.found)
    }
}

/// How much of the program's memory passed its own allocator.
fn unseen(stats: &Stats, max_rss: u64) -> String {
    let seen = stats.totals.peak_bytes.min(max_rss);
    let share = (max_rss - seen).saturating_mul(100).checked_div(max_rss).unwrap_or(0);
    format!(
        "{} of {} that were resident at most passed no malloc of the C library: {share} % of the memory is unseen",
        highwater_render::human::bytes(max_rss - seen),
        highwater_render::human::bytes(max_rss),
    )
}
