//! How much a test does: a taste by default, everything under `cargo xtask soak`.

use std::io::Write;

/// Is this a soak?
pub fn soak() -> bool {
    std::env::var_os("HIGHWATER_SOAK").is_some_and(|value| value != "0")
}

/// `small` in the suite, `full` in a soak.
pub fn times(small: usize, full: usize) -> usize {
    if soak() { full } else { small }
}

/// A line for `docs/soak.md`; nothing outside a soak.
pub fn note(topic: &str, seen: &str) {
    let Some(path) = std::env::var_os("HIGHWATER_SOAK_NOTES") else { return };
    let line = format!("{}\t{}\n", topic, seen.replace('\n', " "));
    // One write in append mode: test programs do not tear each other's lines.
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the notes of the soak can be written");
}
