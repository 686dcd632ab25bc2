//! `stats`, `dump`, `history`, `diff` as eCos's `ecosmdd` has them: its command
//! lines, its layouts, its arithmetic. `K` is bytes / 1024 and percents are of
//! the actual size, both truncated.
//!
//! Beyond ecosmdd: sizes and addresses in filters may be hexadecimal (`0x…`) or
//! end in `k` or `M`; sorts are stable with the number of the event as the last
//! key; `--force` takes an executable that does not fit the dump; what is wrong
//! with a dump goes to stderr; a `.hwt` trace may stand for a dump ([`of_trace`]).

mod args;
mod diff;
mod dump;
mod format;
mod glob;
mod history;
mod names;
mod of_trace;
mod record;
mod select;
mod stats;
mod trace_names;

#[cfg(test)]
mod golden;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use super::model::Dump;
use super::{ReadError, matching, read};
pub(super) use args::is_executable;
use args::{Command, Options};
pub use names::{Names, Place};
use of_trace::OfTrace;

/// How the four commands are used.
pub const USAGE: &str = "\
usage: ecosmdd stats FILE
       ecosmdd dump [options] [exe] FILE
       ecosmdd history [options] [exe] FILE [FILE...]
       ecosmdd diff [options] [exe] FILE1 FILE2
options, right after the command:
  -A TARGET       accepted for compatibility: any architecture is read
  -n              show the innermost inline function, whatever its file
  -I GLOB         skip inline functions of files like GLOB (*/include/*)
  -S KEYS         sort by p n s a t; capitals downwards (not for history)
  -F KEY=VALUE    thread, size_min, size_max, seqno_min, seqno_max,
                  time_min, time_max, ptr_min, ptr_max
  -f FORMAT       %p %n %m %o %s %a %T %t %h %N %b1 %f1 %w1 %l1 ... %b8, %%
  -r              latest first (history)
  --force         use an executable that does not fit the dump
";

/// Why a command ends early. All but the first make exit status 2.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The output cannot be written.
    #[error("{0}")]
    Output(#[from] io::Error),
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read.
    #[error("{file}: {error}")]
    Read {
        /// Its name.
        file: String,
        /// Why.
        error: ReadError,
    },
    /// The data cannot serve what was asked.
    #[error("{0}")]
    Missing(String),
}

/// A dump and the name it was given by.
#[derive(Clone, Debug)]
pub struct Named {
    /// As on the command line.
    pub name: String,
    /// What it says.
    pub dump: Dump,
}

/// Runs one of the four commands. `args` begins with the command's name. Data go
/// to `out`, words to `err`.
///
/// Returns the exit status: 0 done, 2 usage or unreadable input.
pub fn run(args: &[OsString], out: &mut dyn Write, err: &mut dyn Write) -> i32 {
    let failure = match execute(args, out, err) {
        Ok(()) => return 0,
        Err(failure) => failure,
    };
    match failure {
        // whoever reads has seen enough
        Failure::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => 0,
        other => {
            // if stderr is gone, too, there is nobody to tell
            let _ = writeln!(err, "highwater: mdd: {other}");
            if matches!(other, Failure::Usage(_)) {
                let _ = write!(err, "{USAGE}");
            }
            2
        }
    }
}

fn execute(args: &[OsString], out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
    let options = args::parse(args)?;
    if options.command == Command::Help {
        return Ok(write!(out, "{USAGE}")?);
    }
    let mut exe = options.exe.clone();
    let mut dumps = Vec::new();
    let mut trace = None;
    for file in &options.files {
        let name = file.to_string_lossy().into_owned();
        if of_trace::is_trace(Path::new(file)) {
            let of = OfTrace::open(Path::new(file))?;
            for warning in of.warnings() {
                writeln!(err, "highwater: {name}: {warning}")?;
            }
            dumps.push(Named { name, dump: of.dump()? });
            trace = Some(of);
            continue;
        }
        match read(Path::new(file)) {
            Ok(dump) => dumps.push(Named { name, dump }),
            Err(error) => return Err(Failure::Read { file: name, error }),
        }
    }
    for d in &dumps {
        for problem in &d.dump.problems {
            writeln!(err, "highwater: {}: {problem}", d.name)?;
        }
    }
    let mut names: Option<Box<dyn Names>> = match (exe.take(), dumps.last()) {
        (Some(path), Some(last)) => {
            let exe = open(Path::new(&path), last, options.force, err)?;
            Some(match &trace {
                // It knows where each of its libraries lies.
                Some(trace) => Box::new(trace.names()),
                None => Box::new(exe),
            })
        }
        _ => None,
    };
    let names = names.as_mut().map(|n| n.as_mut() as &mut dyn Names);
    match (&trace, dumps.as_slice()) {
        (Some(trace), [one]) if options.command == Command::History => {
            trace.history(&options, one, names, out)
        }
        (Some(_), [_, ..]) if options.command == Command::History => {
            Err(Failure::Missing("history takes one trace, or the dumps of one run".into()))
        }
        _ => show(&options, &dumps, names, out),
    }
}

/// Writes what the command shows of dumps that have been read.
fn show<'a>(
    options: &'a Options,
    dumps: &[Named],
    names: Option<&'a mut dyn Names>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match (options.command, dumps) {
        (Command::Stats, [one]) => Ok(stats::write(one, out)?),
        (Command::Dump, [one]) => dump::write(options, one, names, out),
        (Command::Diff, [before, after]) => diff::write(options, before, after, names, out),
        (Command::History, [_, ..]) => history::write(options, dumps, names, out),
        _ => Err(Failure::Usage("wrong number of files".into())),
    }
}

/// Opens the executable, if it is the dump's.
fn open(path: &Path, of: &Named, force: bool, err: &mut dyn Write) -> Result<names::Exe, Failure> {
    let shown = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::Read { file: shown.to_string(), error: ReadError::Io(error) })?;
    let slide = match matching::matches(&of.dump, &bytes) {
        Ok(found) => found.slide,
        Err(matching::MatchError::Unknown) => {
            writeln!(err, "highwater: {shown}: nothing in it tells whether {} is a dump of it", of.name)?;
            0
        }
        Err(error) if force => {
            writeln!(err, "highwater: {shown}: does not belong to {}: {error}", of.name)?;
            0
        }
        Err(error) => {
            return Err(Failure::Missing(format!("{shown} does not belong to {}: {error}", of.name)));
        }
    };
    Ok(names::Exe::new(path, bytes, slide))
}
