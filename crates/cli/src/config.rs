//! Options that are not on the command line: variables and files.
//!
//! What an option of a command is not given, comes from the first of
//!
//! 1. the variable `HIGHWATER_` and its name, in capitals, `_` for `-`;
//! 2. `highwater.toml` in this folder or the nearest one above that has one;
//! 3. `$XDG_CONFIG_HOME/highwater/config.toml`.
//!
//! In a file an option is a key of the table that has the command's name, or of
//! the top for every command that has it. What belongs to the command line
//! alone (the trace, the program) is in no file. An option that contradicts one
//! on the command line gives way.

use std::any::TypeId;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use toml::{Table, Value};

/// The files that there are, the nearest first.
pub fn files() -> Vec<PathBuf> {
    let mut list = Vec::new();
    if let Ok(here) = std::env::current_dir() {
        let near = here.ancestors().map(|folder| folder.join("highwater.toml")).find(|path| path.is_file());
        list.extend(near.filter(|path| is_trusted(path)));
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(home).map(|folder| folder.join("highwater/config.toml"));
    list.extend(config.filter(|path| path.is_file()));
    list
}

/// Whoever owns the file says what we do: only ourselves, or root.
fn is_trusted(path: &Path) -> bool {
    // SAFETY: no arguments, cannot fail.
    let user = unsafe { libc::geteuid() };
    std::fs::metadata(path).is_ok_and(|facts| facts.uid() == user || facts.uid() == 0)
}

/// The command line with what variables and files add to it, or `None` if they
/// add nothing. `matches` is what the command line alone says.
///
/// # Errors
/// A file cannot be read, or has a key that is no option.
pub fn completed(
    command: &mut Command,
    matches: &ArgMatches,
    line: &[OsString],
) -> anyhow::Result<Option<Vec<OsString>>> {
    let Some((name, given)) = matches.subcommand() else { return Ok(None) };
    command.build();
    let Some(sub) = command.find_subcommand(name) else { return Ok(None) };
    let mut tables = Vec::new();
    for path in files() {
        tables.push(File::read(&path, command)?);
    }
    let mut added: Vec<OsString> = Vec::new();
    let mut taken: Vec<&str> = Vec::new();
    for arg in options(sub) {
        let Some(long) = arg.get_long() else { continue };
        let id = arg.get_id().as_str();
        // Options that all commands have are known to the outer level, too.
        let by_hand = |matches: &ArgMatches| {
            matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine)
        };
        if by_hand(given) || by_hand(matches) {
            continue;
        }
        let rivals = sub.get_arg_conflicts_with(arg);
        let contradicts = rivals.iter().any(|rival| {
            let rival = rival.get_id().as_str();
            taken.contains(&rival)
                || (given.try_contains_id(rival).is_ok()
                    && given.value_source(rival) == Some(ValueSource::CommandLine))
        });
        if contradicts {
            continue;
        }
        let words = match std::env::var_os(variable(long)) {
            Some(value) => of_variable(arg, long, &value)?,
            None => match tables.iter().find_map(|file| file.value(name, long).map(|value| (file, value))) {
                Some((file, value)) => file.words(arg, long, value)?,
                None => continue,
            },
        };
        if !words.is_empty() {
            taken.push(id);
            added.extend(words);
        }
    }
    if added.is_empty() {
        return Ok(None);
    }
    // Behind the command's name: before it stand options of all commands.
    let at = line.iter().skip(1).position(|word| word == name).map_or(line.len(), |at| at + 2);
    let (front, back) = line.split_at(at.min(line.len()));
    Ok(Some(front.iter().cloned().chain(added).chain(back.iter().cloned()).collect()))
}

/// `HIGHWATER_MAX_PEAK` of `max-peak`.
fn variable(long: &str) -> String {
    format!("HIGHWATER_{}", long.to_uppercase().replace('-', "_"))
}

/// Options that have a name and do something.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| {
        let shows = matches!(
            arg.get_action(),
            ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
        );
        arg.get_long().is_some() && !shows && !arg.is_positional()
    })
}

fn is_flag(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count)
}

fn of_variable(arg: &Arg, long: &str, value: &OsStr) -> anyhow::Result<Vec<OsString>> {
    if !is_flag(arg) {
        return Ok(vec![assignment(long, value)]);
    }
    match value.to_string_lossy().to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(vec![format!("--{long}").into()]),
        "" | "0" | "false" | "no" | "off" => Ok(Vec::new()),
        other => bail!("{}={other}: write 1 or 0", variable(long)),
    }
}

fn assignment(long: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(format!("--{long}="));
    word.push(value);
    word
}

/// A file of options.
struct File {
    path: PathBuf,
    table: Table,
}

impl File {
    fn read(path: &Path, command: &Command) -> anyhow::Result<File> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let table: Table = text.parse().map_err(|error| anyhow!("{}: {error}", path.display()))?;
        let file = File { path: path.to_path_buf(), table };
        file.check(command)?;
        Ok(file)
    }

    /// A key that means nothing is a mistake that would go unseen.
    fn check(&self, command: &Command) -> anyhow::Result<()> {
        let has = |command: &Command, key: &str| options(command).any(|arg| arg.get_long() == Some(key));
        for (key, value) in &self.table {
            match (value, command.find_subcommand(key)) {
                // Limits for `check` and `run`, which read them themselves.
                (Value::Table(_), _) if key == "budget" => {}
                (Value::Table(table), Some(sub)) => {
                    if let Some(bad) = table.keys().find(|inner| !has(sub, inner)) {
                        bail!(
                            "{}: `{bad}` in [{key}] is no option of `highwater {key}`",
                            self.path.display()
                        );
                    }
                }
                (Value::Table(_), None) => {
                    bail!("{}: [{key}] is no command of highwater", self.path.display())
                }
                _ if command.get_subcommands().any(|sub| has(sub, key)) => {}
                _ => bail!("{}: `{key}` is no option of any command", self.path.display()),
            }
        }
        Ok(())
    }

    fn value(&self, command: &str, long: &str) -> Option<&Value> {
        let own = self.table.get(command).and_then(Value::as_table).and_then(|table| table.get(long));
        own.or_else(|| self.table.get(long).filter(|value| !value.is_table()))
    }

    fn words(&self, arg: &Arg, long: &str, value: &Value) -> anyhow::Result<Vec<OsString>> {
        match value {
            Value::Array(list) => {
                let mut words = Vec::new();
                for value in list {
                    words.extend(self.words(arg, long, value)?);
                }
                Ok(words)
            }
            Value::Boolean(on) if is_flag(arg) => {
                Ok(if *on { vec![format!("--{long}").into()] } else { Vec::new() })
            }
            _ if is_flag(arg) => bail!("{}: `{long}` is true or false", self.path.display()),
            Value::String(text) if arg.get_value_parser().type_id() == TypeId::of::<PathBuf>() => {
                // A path in a file is relative to the file.
                let folder = self.path.parent().unwrap_or(Path::new(""));
                Ok(vec![assignment(long, folder.join(text).as_os_str())])
            }
            Value::String(text) => Ok(vec![assignment(long, text.as_ref())]),
            Value::Integer(number) => Ok(vec![assignment(long, number.to_string().as_ref())]),
            Value::Float(number) => Ok(vec![assignment(long, number.to_string().as_ref())]),
            _ => bail!("{}: `{long}` has a value of a wrong kind", self.path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_has_the_name_of_a_variable_that_means_something_else() {
        use clap::CommandFactory;
        let mut command = crate::Cli::command();
        command.build();
        // The agent's own.
        let reserved = [highwater_event::layout::ENV_SHARED, highwater_event::layout::ENV_RECORDER];
        for sub in command.get_subcommands() {
            for long in options(sub).filter_map(Arg::get_long) {
                assert!(!reserved.contains(&variable(long).as_str()), "--{long} of {}", sub.get_name());
            }
        }
    }
}
