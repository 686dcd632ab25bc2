//! What every command that reads a trace has in common.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, anyhow};
use highwater_query::{Filter, Instant, Session, SessionOptions, Stats};
use highwater_replay::{Outcome, Until};
use highwater_trace::Progress;

use crate::view::InliningArgs;
use crate::{open, output, progress};

/// The trace, and where names come from.
#[derive(Clone, Debug, clap::Args)]
pub struct TraceArgs {
    /// The trace, or a dump (mddout.N) or text of the DTrace script; without it the
    /// newest highwater.*.hwt in this folder
    #[arg(value_name = "TRACE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    names: NameArgs,
}

impl TraceArgs {
    /// Opens the trace; damage is told on stderr.
    ///
    /// # Errors
    /// No trace, or one that cannot be read.
    pub fn open(&self) -> anyhow::Result<Session> {
        self.open_with(&[])
    }

    /// The file that was named.
    pub fn path(&self) -> Option<&Path> {
        self.trace.as_deref()
    }

    /// Opens the trace, which may be the first of several dumps of one run.
    ///
    /// # Errors
    /// No trace, or one that cannot be read; files that do not belong together.
    pub fn open_with(&self, more: &[PathBuf]) -> anyhow::Result<Session> {
        let mut files = vec![match &self.trace {
            Some(path) => path.clone(),
            None => newest()?,
        }];
        files.extend_from_slice(more);
        self.names.open(&files)
    }
}

/// Where names come from.
#[derive(Clone, Debug, clap::Args)]
pub struct NameArgs {
    /// Folder with debug files, beside /usr/lib/debug; may be repeated
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
    /// Read sources under B that were built under A; may be repeated
    #[arg(long, value_name = "A=B")]
    map_source: Vec<String>,
    /// The executable of dumps (mddout.N) of an embedded target
    #[arg(long, value_name = "FILE")]
    exe: Option<PathBuf>,
    #[command(flatten)]
    inlining: InliningArgs,
}

impl NameArgs {
    /// Opens the files of one recording.
    ///
    /// # Errors
    /// One that cannot be read; files that do not belong together; a
    /// `--map-source` that is none.
    pub fn open(&self, files: &[PathBuf]) -> anyhow::Result<Session> {
        let progress = Some(progress::tell as Progress);
        let mut options = SessionOptions { symbols: symbols(), progress, ..SessionOptions::default() };
        options.symbols.debug_dirs.extend(self.debug_dir.iter().cloned());
        options.inlining = self.inlining.inlining();
        for map in &self.map_source {
            let (from, to) =
                map.split_once('=').with_context(|| format!("--map-source {map}: write it as OLD=NEW"))?;
            options.symbols.source_maps.push((from.to_owned(), to.to_owned()));
        }
        open::session(files, self.exe.as_deref(), options)
    }
}

/// How names are looked up by default.
pub fn symbols() -> highwater_symbols::Options {
    highwater_symbols::Options {
        cache: highwater_symbols::default_cache_folder(),
        ..highwater_symbols::Options::default()
    }
}

/// The newest trace in the current folder, named on stderr.
fn newest() -> anyhow::Result<PathBuf> {
    let mut best: Option<(SystemTime, PathBuf)> = None;
    for entry in std::fs::read_dir(".").context("cannot look for a trace in this folder")?.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !(name.starts_with("highwater.") && name.ends_with(".hwt")) {
            continue;
        }
        let Ok(time) = entry.metadata().and_then(|m| m.modified()) else { continue };
        if best.as_ref().is_none_or(|(newest, _)| time > *newest) {
            best = Some((time, PathBuf::from(entry.file_name())));
        }
    }
    let (_, path) = best.ok_or_else(|| {
        anyhow!("no highwater.*.hwt in this folder; name a trace, or make one with: highwater run -- PROG")
    })?;
    output::say(&format!("reading {}", path.display()));
    Ok(path)
}

/// What all of it says of everything but single blocks.
///
/// # Errors
/// The file cannot be read.
pub fn outcome(session: &mut Session) -> anyhow::Result<(Arc<Outcome>, Stats)> {
    let found = session.outcome()?;
    let stats = Stats::collect(session, &found);
    Ok((found, stats))
}

/// Tells what makes the recording less than whole.
pub fn warn(stats: &Stats) {
    for line in highwater_render::notices::lines(stats) {
        output::say(&line);
    }
}

/// Tells what is missing of names, once the view is out.
pub fn notes(session: &Session) {
    for line in session.notes().iter().map(String::as_str).chain(session.hints()) {
        output::say(line);
    }
}

/// Filters of `-F`.
///
/// # Errors
/// The first that makes no sense.
pub fn filter(texts: &[String]) -> anyhow::Result<Filter> {
    let mut filter = Filter::default();
    for text in texts {
        filter.add(text).map_err(|reason| anyhow!("-F {text}: {reason}"))?;
    }
    Ok(filter)
}

/// An instant of `--at`, `--from`, `--to`.
///
/// # Errors
/// No such mark, or the trace cannot be read.
pub fn instant(session: &mut Session, text: &str) -> anyhow::Result<Until> {
    let instant: Instant = text.parse().map_err(|reason: String| anyhow!(reason))?;
    Ok(session.instant(&instant)?)
}
