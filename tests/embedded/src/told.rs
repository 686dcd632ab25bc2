//! What `demo/ops.c` says that it did, against what dumps say.

use std::fs;
use std::path::{Path, PathBuf};

use crate::session::mdd;

/// One event in the firmware's own words: as `history` prints it with [`FORMAT`].
pub const FORMAT: &str = "%s %a %p %n";

/// The lines of the console as `history -f FORMAT` has them, with the line of `source`
/// behind where there is one. `digits` are those of an address.
///
/// # Panics
/// If the console cannot be read.
pub fn told(console: &Path, digits: usize, source: Option<&str>) -> Vec<String> {
    let mut out = Vec::new();
    let text = fs::read(console).unwrap();
    let text = String::from_utf8_lossy(&text).into_owned();
    let words: Vec<Vec<&str>> = text.lines().map(|l| l.split(' ').collect()).collect();
    for (seq, line) in
        words.iter().filter(|w| matches!(w.as_slice(), ["A" | "F", _, _, _, _] | ["V"])).enumerate()
    {
        let [what, kind, address, size, at] = line.as_slice() else { continue };
        let name = match (*what, *kind) {
            ("F", "realloc") => "free by realloc()".to_string(),
            (_, kind) if kind.starts_with("new") || kind.starts_with("delete") => kind.to_string(),
            (_, kind) => format!("{kind}()"),
        };
        let line = source.map_or(String::new(), |file| format!(" {file}:{at}"));
        out.push(format!("{seq} {name} 0x{address:0>digits$} {size}{line}"));
    }
    out
}

/// The complete history of the dumps must be what `ops.c` told, source
/// lines included where `lines` is set.
///
/// # Panics
/// If it is not.
pub fn assert_history(console: &Path, elf: &Path, dumps: &[PathBuf], lines: bool) {
    assert_history_of(console, elf, dumps, lines.then_some("ops.c"));
}

/// The complete history of the dumps must be what the firmware told, with the lines of
/// its `source` where it is named.
///
/// # Panics
/// If it is not.
pub fn assert_history_of(console: &Path, elf: &Path, dumps: &[PathBuf], source: Option<&str>) {
    let lines = source.is_some();
    let format = if lines { format!("{FORMAT} %w1") } else { FORMAT.into() };
    let mut files = vec![elf];
    files.extend(dumps.iter().map(PathBuf::as_path));
    let (status, out, err) = mdd(&["history", "-f", &format], &files);
    assert_eq!(status, 0, "{err}");
    assert!(!out.contains("Caution"), "the history is not complete: {err}");
    let digits = if out.lines().any(|l| l.contains("0x0000")) { 16 } else { 8 };
    // only the last part of the path
    let found: Vec<String> = out
        .lines()
        .map(|l| match l.rsplit_once(' ') {
            Some((head, place)) if lines => format!("{head} {}", place.rsplit('/').next().unwrap_or(place)),
            _ => l.to_string(),
        })
        .collect();
    let told = told(console, digits, source);
    assert!(told.len() > 100, "the firmware told too little: {}", told.len());
    for (n, (a, b)) in told.iter().zip(&found).enumerate() {
        assert_eq!(a, b, "event {n}: the firmware's words, the dump's");
    }
    assert_eq!(told.len(), found.len());
}
