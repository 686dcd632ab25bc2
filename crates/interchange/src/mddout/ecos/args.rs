//! ecosmdd's command lines.

use std::ffi::{OsStr, OsString};
use std::io::Read;

use super::Failure;
use super::format::{self, Piece};
use super::select::{Filter, Key};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// `stats`
    Stats,
    /// `dump`
    Dump,
    /// `history`
    History,
    /// `diff`
    Diff,
    /// `--help`
    Help,
}

/// A command line.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// What to do.
    pub command: Command,
    /// Inline functions of such files are skipped; `None`: of no files.
    pub ignore: Option<String>,
    /// Sort keys, the first is the primary.
    pub sort: Vec<Key>,
    /// Filters, all of which must hold.
    pub filters: Vec<Filter>,
    /// A format of the user's own.
    pub format: Option<Vec<Piece>>,
    /// Latest first.
    pub reverse: bool,
    /// Take any executable.
    pub force: bool,
    /// The executable.
    pub exe: Option<OsString>,
    /// The dumps.
    pub files: Vec<OsString>,
}

impl Options {
    /// A command without options.
    pub fn new(command: Command) -> Options {
        Options {
            command,
            ignore: Some("*/include/*".into()),
            sort: Vec::new(),
            filters: Vec::new(),
            format: None,
            reverse: false,
            force: false,
            exe: None,
            files: Vec::new(),
        }
    }
}

fn usage(text: impl Into<String>) -> Failure {
    Failure::Usage(text.into())
}

/// Reads a command line that begins with the command's name. Files are only
/// looked at to tell an executable from a dump.
pub(super) fn parse(args: &[OsString]) -> Result<Options, Failure> {
    let mut rest = args.iter();
    let name = rest.next().map(|n| n.to_string_lossy().into_owned());
    let command = match name.as_deref() {
        Some("stats") => Command::Stats,
        Some("dump") => Command::Dump,
        Some("history") => Command::History,
        Some("diff") => Command::Diff,
        Some("-h" | "--help" | "help") => return Ok(Options::new(Command::Help)),
        Some(other) => return Err(usage(format!("unknown command {other}"))),
        None => return Err(usage("a command is missing")),
    };
    let mut options = Options::new(command);
    let mut positional = Vec::new();
    while let Some(arg) = rest.next() {
        let text = arg.to_string_lossy();
        if text == "--" {
            positional.extend(rest.by_ref().cloned());
        } else if text == "--force" {
            options.force = true;
        } else if text == "-h" || text == "--help" {
            return Ok(Options::new(Command::Help));
        } else if text.len() > 1 && text.starts_with('-') {
            if !text.is_char_boundary(2) {
                return Err(usage(format!("unknown option {text}")));
            }
            let (letter, attached) = text.split_at(2);
            let mut value = || match attached {
                "" => rest.next().map(|v| v.to_string_lossy().into_owned()),
                attached => Some(attached.to_string()),
            };
            option(&mut options, letter, attached, &mut value)?;
        } else {
            // options come first: everything from here on is a file
            positional.push(arg.clone());
            positional.extend(rest.by_ref().cloned());
        }
    }
    files(&mut options, positional)?;
    Ok(options)
}

fn option(
    options: &mut Options,
    letter: &str,
    attached: &str,
    value: &mut dyn FnMut() -> Option<String>,
) -> Result<(), Failure> {
    let command = options.command;
    if command == Command::Stats {
        return Err(usage(format!("stats has no option {letter}")));
    }
    let mut need = || value().ok_or_else(|| usage(format!("{letter} needs a value")));
    let flag = || {
        if attached.is_empty() { Ok(()) } else { Err(usage(format!("unknown option {letter}{attached}"))) }
    };
    match letter {
        "-A" => {
            need()?;
        }
        "-n" => {
            flag()?;
            options.ignore = None;
        }
        "-I" => options.ignore = Some(need()?),
        "-S" if command == Command::History => {
            return Err(usage("history has no option -S: it is in the order of time"));
        }
        "-S" => {
            for c in need()?.chars() {
                options.sort.push(Key::parse(c).ok_or_else(|| usage(format!("unknown sort key {c}")))?);
            }
        }
        "-F" => options.filters.push(Filter::parse(&need()?).map_err(usage)?),
        "-f" => options.format = Some(format::parse(&need()?).map_err(usage)?),
        "-r" if command == Command::History => {
            flag()?;
            options.reverse = true;
        }
        other => return Err(usage(format!("unknown option {other}"))),
    }
    Ok(())
}

/// An ELF file that is no core dump: an executable.
pub(in crate::mddout) fn is_executable(file: &OsStr) -> bool {
    let mut start = [0; 18];
    let read = std::fs::File::open(file).and_then(|mut f| f.read_exact(&mut start));
    let big = start[5] == 2;
    let kind = if big { [start[16], start[17]] } else { [start[17], start[16]] };
    read.is_ok() && start.starts_with(b"\x7fELF") && u16::from_be_bytes(kind) != object::elf::ET_CORE.0
}

fn files(options: &mut Options, mut positional: Vec<OsString>) -> Result<(), Failure> {
    let command = options.command;
    if command != Command::Stats && positional.first().is_some_and(|f| is_executable(f)) {
        options.exe = Some(positional.remove(0));
    }
    let wanted = match command {
        Command::Stats | Command::Dump => 1..=1,
        Command::Diff => 2..=2,
        Command::History | Command::Help => 1..=usize::MAX,
    };
    if !wanted.contains(&positional.len()) {
        let extra = positional.len() > *wanted.end();
        return Err(match positional.first() {
            Some(first) if extra && options.exe.is_none() => {
                usage(format!("too many files, and {} is no executable", first.to_string_lossy()))
            }
            _ if extra => usage("too many files"),
            _ => usage("a dump file is missing"),
        });
    }
    options.files = positional;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Options, Failure> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_seeds_command_lines() {
        let o = parsed(&[
            "dump",
            "-Fthread=4",
            "-Ftime_min=4000",
            "-SNs",
            "-f",
            "%p %a",
            "-I*.h",
            "-Am68k-elf",
            "mddout.0",
        ])
        .unwrap();
        assert_eq!((o.filters.len(), o.sort.len(), o.ignore.as_deref()), (2, 2, Some("*.h")));
        assert_eq!(o.files, ["mddout.0"]);
        assert_eq!(parsed(&["dump", "-n", "m"]).unwrap().ignore, None);
        assert!(parsed(&["history", "-r", "a", "b", "c"]).unwrap().reverse);
        assert_eq!(parsed(&["diff", "a", "b"]).unwrap().files.len(), 2);
    }

    #[test]
    fn an_executable_is_known_by_its_first_bytes() {
        let own = std::env::current_exe().unwrap();
        let own = own.to_str().unwrap();
        assert!(parsed(&["dump", own, "mddout.0"]).unwrap().exe.is_some());
        assert!(parsed(&["dump", "mddout.0", "mddout.1"]).is_err());
        assert!(parsed(&["diff", own, "a", "b"]).unwrap().exe.is_some());
    }

    #[test]
    fn what_is_wrong_is_a_usage_error() {
        for wrong in [
            &["stats"][..],
            &["stats", "a", "b"],
            &["stats", "-n", "a"],
            &["history", "-SN", "a"],
            &["dump", "-r", "a"],
            &["dump", "-Sx", "a"],
            &["dump", "-Fx=1", "a"],
            &["dump", "-Fsize_min=", "a"],
            &["dump", "-f"],
            &["dump", "-f", "%q", "a"],
            &["dump", "-nx", "a"],
            &["dump", "-é", "a"],
            &["dump"],
            &["diff", "a"],
            &["frob"],
            &[],
        ] {
            assert!(matches!(parsed(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
