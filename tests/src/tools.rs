//! Numbers of other tools, to be compared with ours.

use std::ffi::OsStr;
use std::time::Duration;

use crate::child::Child;

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
pub fn need(command: &str) -> std::path::PathBuf {
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
    let child = Child::new(need("valgrind"))
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
