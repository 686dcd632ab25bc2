//! Where output goes and how it looks: data to stdout, words to stderr, colours
//! for terminals only, a closed pipe is no error.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use highwater_render::{Look, RenderError};

use crate::progress;

/// `--color`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Colour {
    fn wanted(self, terminal: bool) -> bool {
        match self {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => {
                terminal
                    && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }

    /// How text on stdout looks.
    pub fn stdout(self) -> Look {
        let terminal = io::stdout().is_terminal();
        Look::new(self.wanted(terminal), terminal.then(|| columns(1)).flatten())
    }

    /// How text on stderr looks.
    pub fn stderr(self) -> Look {
        let terminal = io::stderr().is_terminal();
        Look::new(self.wanted(terminal), terminal.then(|| columns(2)).flatten())
    }
}

/// May output be more than ASCII? As the locale says; the first of these variables
/// that is set counts.
pub fn unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|value| !value.is_empty())
        .unwrap_or_default()
        .to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Columns of the terminal at this descriptor.
fn columns(fd: i32) -> Option<usize> {
    // SAFETY: a buffer of the type that the request fills.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(fd, libc::TIOCGWINSZ, &mut size) != 0 {
            return None;
        }
        size
    };
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Stdout, for the data of a view: as soon as there is some, no progress is shown any more.
pub struct Data(StdoutLock<'static>);

impl Write for Data {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        progress::end();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Buffered stdout.
pub fn stdout() -> BufWriter<Data> {
    BufWriter::with_capacity(64 << 10, Data(io::stdout().lock()))
}

/// One line of ours on stderr.
pub fn say(line: &str) {
    progress::clear();
    // Nobody may be listening; that is their choice.
    let _ = writeln!(io::stderr(), "highwater: {line}");
}

/// The exit code of a bad command line (or of --help): 2, but 125 from `run`,
/// whose other codes are the program's own.
pub fn usage(error: &clap::Error) -> ExitCode {
    // Nobody may be listening.
    let _ = error.print();
    if error.exit_code() == 0 { ExitCode::SUCCESS } else { bad_usage() }
}

/// The exit code of what is wrong before a command begins.
fn bad_usage() -> ExitCode {
    let command = std::env::args_os().skip(1).find(|a| !a.to_string_lossy().starts_with('-'));
    ExitCode::from(if command.is_some_and(|a| a == "run" || a == "count") { 125 } else { 2 })
}

/// A file of options that makes no sense: the reason on stderr, and the exit
/// code of a bad command line.
pub fn misconfigured(error: &anyhow::Error) -> ExitCode {
    say(&in_one_line(error));
    bad_usage()
}

/// The folder that paths are relative to: the repository that this folder is
/// in, else this folder.
///
/// # Errors
/// This folder is gone.
pub fn base() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir()?;
    let root = here.ancestors().find(|folder| folder.join(".git").exists());
    Ok(root.unwrap_or(&here).to_path_buf())
}

/// The exit code of a view: 0, or 2 with the reason on stderr. Who closes the
/// pipe has seen enough: 0.
pub fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(&in_one_line(&error));
            ExitCode::from(2)
        }
    }
}

/// An error and its causes, without those that the line tells already.
fn in_one_line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |line, cause| {
        if line.is_empty() {
            cause
        } else if line.contains(&cause) {
            line
        } else {
            format!("{line}: {cause}")
        }
    })
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let broken = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(broken)
        || matches!(error.downcast_ref::<RenderError>(), Some(RenderError::Write(e)) if broken(e))
}
