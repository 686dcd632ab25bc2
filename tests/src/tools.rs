//! Numbers of other tools, to be compared with ours.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::child::Child;
use crate::highwater::Highwater;
use crate::number;
use crate::programs::Program;

/// valgrind's "total heap usage" line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapUsage {
    /// Blocks made; a realloc counts as one alloc and one free.
    pub allocs: i64,
    /// Blocks given back.
    pub frees: i64,
    /// Requested bytes.
    pub bytes: i64,
}

/// The path of a command on PATH, or the advice how to get it.
#[track_caller]
pub fn need(command: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|folder| folder.join(command)).find(|file| file.is_file()) {
        Some(file) => file,
        None => panic!("{command} is not here; `cargo xtask packages` installs what the tests need"),
    }
}

/// Runs a program under memcheck and reads the totals. `prepare` may set
/// variables and input.
///
/// memcheck's own release of libc's internal blocks at the end is switched
/// off: these frees are not the program's.
#[track_caller]
pub fn valgrind<A: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = A>,
    prepare: impl FnOnce(Child) -> Child,
) -> HeapUsage {
    let child = Highwater::plain(need("valgrind"))
        .args(["--run-libc-freeres=no", "--run-cxx-freeres=no", "--leak-check=no", "--undef-value-errors=no"])
        .arg(program)
        .args(args)
        .limit(Duration::from_secs(240));
    let ended = prepare(child).run();
    let text = ended.stderr();
    match text.lines().find_map(parse_heap_usage) {
        Some(usage) => usage,
        None => panic!("valgrind printed no totals:\n{text}"),
    }
}

/// The C++ compiler proper, and a preprocessed source for it: the driver `g++`
/// only starts others.
#[track_caller]
pub fn cc1plus(folder: &Path, source: &str) -> (PathBuf, PathBuf) {
    let (file, ready) = (folder.join("a.cpp"), folder.join("a.ii"));
    std::fs::write(&file, source).expect("a source");
    Child::new(need("g++")).arg("-E").arg(&file).arg("-o").arg(&ready).run().expect_code(0);
    let path = Child::new(need("g++")).arg("-print-prog-name=cc1plus").run().expect_code(0).stdout();
    (PathBuf::from(path.trim()), ready)
}

/// Gives a child the environment that a program has under valgrind, which adds
/// variables: programs that copy their environment allocate accordingly. What
/// the loader would act on gets another name of the same length. `prepare` is
/// what the run under valgrind was prepared with.
pub fn with_valgrinds_environment(child: Child, prepare: impl FnOnce(Child) -> Child) -> Child {
    let list = prepare(Highwater::plain(need("valgrind")).args(["-q", "/usr/bin/env"])).run().expect_code(0);
    let list = list.stdout();
    let variables = list.lines().filter_map(|line| line.split_once('='));
    variables.fold(child.env_clear(), |child, (name, value)| {
        let name =
            if name.starts_with("LD_") { format!("{}_", &name[..name.len() - 1]) } else { name.to_string() };
        child.env(&name, value)
    })
}

/// `programs/counter.c`, preloaded into a program beside the agent.
pub struct Counter {
    file: PathBuf,
    library: PathBuf,
    exe: PathBuf,
}

impl Counter {
    /// For this program; its file lies in `folder`.
    pub fn new(program: &Path, folder: &Path) -> Self {
        let library = Program::new("counter.c").flags(&["-shared", "-fPIC"]).build();
        let exe = program.canonicalize().expect("the program is there");
        Counter { file: folder.join("counter"), library, exe }
    }

    /// Sets the variables.
    pub fn beside(&self, child: Child) -> Child {
        child.env("LD_PRELOAD", &self.library).env("COUNTER_FILE", &self.file).env("COUNTER_EXE", &self.exe)
    }

    /// What it counted.
    #[track_caller]
    pub fn usage(&self) -> HeapUsage {
        let bytes =
            std::fs::read(&self.file).unwrap_or_else(|error| panic!("the counter wrote nothing: {error}"));
        let word = |index: usize| -> i64 {
            bytes[index * 8..index * 8 + 8].try_into().map(i64::from_le_bytes).expect("three words")
        };
        HeapUsage { allocs: word(0), frees: word(1), bytes: word(2) }
    }
}

impl HeapUsage {
    /// The same three numbers of `stats --json`.
    #[track_caller]
    pub fn from_stats(stats: &serde_json::Value) -> Self {
        HeapUsage {
            allocs: number(stats, "allocations"),
            frees: number(stats, "frees"),
            bytes: number(stats, "bytes_allocated"),
        }
    }
}

fn parse_heap_usage(line: &str) -> Option<HeapUsage> {
    let (_, rest) = line.split_once("total heap usage: ")?;
    let mut numbers = rest.split(", ").filter_map(|part| {
        let digits: String = part.chars().filter(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    Some(HeapUsage { allocs: numbers.next()?, frees: numbers.next()?, bytes: numbers.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_totals_is_read() {
        let line = "==12==   total heap usage: 1,234 allocs, 1,200 frees, 73,728,001 bytes allocated";
        let usage = HeapUsage { allocs: 1234, frees: 1200, bytes: 73_728_001 };
        assert_eq!(parse_heap_usage(line), Some(usage));
        assert_eq!(parse_heap_usage("==12== All heap blocks were freed"), None);
    }
}
