//! `cargo xtask soak`: the end-to-end tests at their full counts, and the page
//! that says what was seen.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;

use crate::packages;
use crate::suite::{self, Tally};

/// Runs the end-to-end tests with `HIGHWATER_SOAK=1` and writes `docs/soak.md`.
///
/// The tests append what they measured to the file named in
/// `HIGHWATER_SOAK_NOTES`, one `topic TAB text` a line.
pub fn soak(only: Option<&str>) -> anyhow::Result<bool> {
    let mut tally = Tally::default();
    packages::install_missing()?;
    let Some(highwater) = suite::build_highwater(&mut tally)? else {
        return Ok(suite::close(tally));
    };
    let notes = std::env::temp_dir().join(format!("highwater-soak-{}.txt", std::process::id()));
    std::fs::write(&notes, "").with_context(|| format!("cannot write {}", notes.display()))?;
    let env = [
        ("HIGHWATER_BIN", highwater.display().to_string()),
        ("HIGHWATER_SOAK", "1".to_string()),
        ("HIGHWATER_SOAK_NOTES", notes.display().to_string()),
    ];
    let mut args = vec!["--release", "--package", "highwater-tests", "--no-fail-fast"];
    if let Some(name) = only {
        args.push(name);
    }
    let start = Instant::now();
    suite::cargo_test(&mut tally, &args, &env)?;
    let text = std::fs::read_to_string(&notes).unwrap_or_default();
    std::fs::remove_file(&notes).ok();
    if only.is_none() {
        let file = page_path()?;
        std::fs::write(&file, page(&text, tally, start.elapsed().as_secs()))
            .with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("xtask: wrote {}", file.display());
    }
    Ok(suite::close(tally))
}

fn page_path() -> anyhow::Result<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(root.parent().context("xtask has no parent folder")?.join("docs/soak.md"))
}

/// The page: one row for each note, in the order of topics.
fn page(notes: &str, tally: Tally, seconds: u64) -> String {
    let mut rows: Vec<(&str, &str)> = notes.lines().filter_map(|line| line.split_once('\t')).collect();
    rows.sort_by_key(|row| row.0);
    let mut text = String::from(
        "# Soak\n\nWritten by `cargo xtask soak`: the end-to-end tests at their full counts.\n\n",
    );
    let _ = writeln!(
        text,
        "{} passed, {} failed in {} min {} s on {}.\n",
        tally.passed,
        tally.failed,
        seconds / 60,
        seconds % 60,
        machine()
    );
    text.push_str("| what | seen |\n|---|---|\n");
    for (topic, seen) in rows {
        let _ = writeln!(text, "| {} | {} |", topic.replace('|', "\\|"), seen.replace('|', "\\|"));
    }
    text
}

/// Processors and kernel, in words.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split_once(':'))
        .map_or("an unnamed processor", |(_, name)| name.trim());
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // What a distribution adds to the version says nothing here.
    format!("{count} x {model}, Linux {}", kernel.split('-').next().unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_row_for_each_note() {
        let text = page("redis\t1 million requests\nkill\ta|b\nno tab\n", Tally { passed: 3, failed: 0 }, 61);
        assert!(text.contains("3 passed, 0 failed in 1 min 1 s"));
        assert!(text.contains("| kill | a\\|b |\n| redis | 1 million requests |\n"));
        assert!(!text.contains("no tab"));
    }
}
