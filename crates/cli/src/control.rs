//! `mark`, `status`, `stop`, `slice`, `scan`: talking to a recording that is going on.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use highwater_record::control::{Recording, Reply, Request, Scanned, Status, Which};
use highwater_render::json::Json;
use highwater_render::{human, status};

use crate::output::{self, Colour};

/// Which recording is meant.
#[derive(Clone, Debug, clap::Args)]
pub struct Target {
    /// The recorded process; without it the only recording there is
    #[arg(long, value_name = "P")]
    pid: Option<u32>,
    /// The recording that writes this trace
    #[arg(long, value_name = "FILE", conflicts_with = "pid")]
    trace: Option<PathBuf>,
}

impl Target {
    fn which(&self) -> Which {
        match (self.pid, &self.trace) {
            (Some(pid), _) => Which::Pid(pid),
            (None, Some(trace)) => Which::Trace(trace.clone()),
            (None, None) => Which::Only,
        }
    }

    fn find(&self) -> anyhow::Result<Recording> {
        Ok(Recording::find(&self.which())?)
    }
}

/// Options of `mark`.
#[derive(clap::Args)]
#[command(after_help = "All that the program did before this command comes before the mark.\n\n\
                  Example, three times the same action:\n  \
                  highwater mark A1; act; highwater mark A2; act; highwater mark A3; act\n  \
                  highwater leaks --from @A1 --to @A2 --until @A3")]
pub struct Mark {
    /// The mark's name; views then take @NAME for the instant
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    target: Target,
    /// JSON, document highwater.mark/1
    #[arg(long)]
    json: bool,
}

/// Names this instant of a live recording.
pub fn mark(args: &Mark) -> anyhow::Result<()> {
    let mut recording = args.target.find()?;
    match recording.ask(&Request::Mark { name: args.name.clone() })? {
        Reply::Marked { ns } => {
            output::say(&format!(
                "mark {} at {} of {}",
                args.name,
                human::time(ns),
                program(&recording.status)
            ));
            if args.json { instant_json("mark", Some(&args.name), ns, &recording.status) } else { Ok(()) }
        }
        other => bail!("the recorder gave an answer to something else: {other:?}"),
    }
}

/// Options of `slice`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  highwater run --slices app.json --period 0 -- ./app &\n  highwater slice"
)]
pub struct SliceArgs {
    #[command(flatten)]
    target: Target,
    /// JSON, document highwater.slice/1
    #[arg(long)]
    json: bool,
}

/// Has a slice written now.
pub fn slice(args: &SliceArgs) -> anyhow::Result<()> {
    let mut recording = args.target.find()?;
    match recording.ask(&Request::Slice)? {
        Reply::Sliced { ns } => {
            output::say(&format!("a slice at {} of {}", human::time(ns), program(&recording.status)));
            if args.json { instant_json("slice", None, ns, &recording.status) } else { Ok(()) }
        }
        other => bail!("the recorder gave an answer to something else: {other:?}"),
    }
}

/// Writes the document of a mark or a slice.
fn instant_json(document: &str, name: Option<&str>, ns: u64, status: &Status) -> anyhow::Result<()> {
    let mut json = Json::document(output::stdout(), document)?;
    if let Some(name) = name {
        json.field_str("name", name)?;
    }
    json.field_time("time", ns)?;
    json.field_u64("pid", status.pid.into())?;
    json.field_str("program", &status.program.to_string_lossy())?;
    json.field_str("trace", &status.trace.to_string_lossy())?;
    json.finish()?;
    Ok(())
}

/// Options of `scan`.
#[derive(clap::Args)]
#[command(
    after_help = "The program stands still while its memory is read. What was found is in the trace.\n\n\
                  Example:\n  highwater scan && highwater leaks --method unreachable"
)]
pub struct ScanArgs {
    #[command(flatten)]
    target: Target,
    /// JSON, document highwater.scan/1
    #[arg(long)]
    json: bool,
}

/// Has the memory of the running program scanned for blocks that nothing points to.
pub fn scan(args: &ScanArgs) -> anyhow::Result<()> {
    let mut recording = args.target.find()?;
    match recording.ask(&Request::Scan)? {
        Reply::Scanned(found) => {
            if args.json {
                scan_json(&found)?;
            } else {
                scan_text(&found)?;
            }
            output::say(&format!(
                "{} was scanned at {} and stood still for {}",
                program(&recording.status),
                human::time(found.ns),
                human::time(found.stopped_ns)
            ));
            output::say(&format!(
                "next: highwater leaks --method unreachable {}",
                recording.status.trace.display()
            ));
            Ok(())
        }
        other => bail!("the recorder gave an answer to something else: {other:?}"),
    }
}

fn scan_text(found: &Scanned) -> anyhow::Result<()> {
    let mut out = output::stdout();
    for (name, (bytes, blocks)) in amounts(found) {
        let blocks = human::counted(blocks, "block", "blocks");
        writeln!(out, "{name:<10} {} in {blocks}", human::bytes(bytes))?;
    }
    Ok(out.flush()?)
}

fn scan_json(found: &Scanned) -> anyhow::Result<()> {
    let mut json = Json::document(output::stdout(), "scan")?;
    json.field_time("time", found.ns)?;
    json.field_time("stopped", found.stopped_ns)?;
    for (name, (bytes, blocks)) in amounts(found) {
        json.key(name)?;
        json.begin_object()?;
        json.field_u64("bytes", bytes)?;
        json.field_u64("blocks", blocks)?;
        json.end_object()?;
    }
    json.finish()?;
    Ok(())
}

/// Bytes and blocks by what they are.
fn amounts(found: &Scanned) -> [(&'static str, (u64, u64)); 3] {
    [("lost", found.lost), ("possibly", found.possible), ("reachable", found.reachable)]
}

/// Options of `stop`.
#[derive(clap::Args)]
#[command(after_help = "The program runs on without being recorded, and the trace is complete.\n\n\
                  Example:\n  highwater stop --pid 4711")]
pub struct Stop {
    #[command(flatten)]
    target: Target,
    /// JSON, document highwater.stop/1
    #[arg(long)]
    json: bool,
}

/// Ends a recording; the program runs on.
pub fn stop(args: &Stop) -> anyhow::Result<()> {
    let mut recording = args.target.find()?;
    match recording.ask(&Request::Stop)? {
        Reply::Stopped(status) => {
            output::say(&format!("{} runs on; its trace is {}", program(&status), status.trace.display()));
            if args.json { Ok(status::stopped_json(output::stdout(), &line(&status))?) } else { Ok(()) }
        }
        other => bail!("the recorder gave an answer to something else: {other:?}"),
    }
}

/// Options of `status`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  highwater status --json | jq -r '.recordings[].trace'")]
pub struct StatusArgs {
    #[command(flatten)]
    target: Target,
    /// JSON, document highwater.status/1
    #[arg(long)]
    json: bool,
}

/// What is being recorded: all of it where no recording is named.
pub fn status(args: &StatusArgs, colour: Colour) -> anyhow::Result<()> {
    let list: Vec<status::Line> = match args.target.which() {
        Which::Only => Recording::all().into_iter().map(|recording| line(&recording.status)).collect(),
        which => vec![line(&Recording::find(&which)?.status)],
    };
    let mut out = output::stdout();
    if args.json {
        status::json(&mut out, &list)?;
    } else {
        status::text(&mut out, &colour.stdout(), &list)?;
    }
    Ok(out.flush()?)
}

fn line(status: &Status) -> status::Line {
    status::Line {
        pid: status.pid,
        program: status.program.clone(),
        trace: status.trace.clone(),
        events: status.events,
        trace_bytes: status.trace_bytes,
        ns: status.ns,
        marks: status.marks,
        cut: status.cut.clone(),
    }
}

fn program(status: &Status) -> String {
    let name = status.program.file_name().unwrap_or(status.program.as_os_str());
    format!("{} ({})", name.to_string_lossy(), status.pid)
}
