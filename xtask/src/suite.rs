//! `cargo xtask test`: format, lints and every test, with one closing line.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::packages;

/// Checks that went well and checks that did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed.
    pub passed: u64,
    /// Failed.
    pub failed: u64,
}

impl Tally {
    fn check(&mut self, good: bool) {
        if good { self.passed += 1 } else { self.failed += 1 }
    }

    /// Adds what one line of libtest's output says (`test result: ok. 3 passed; 1 failed; …`).
    fn add_line(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        for part in counts.split([';', '.']) {
            let mut words = part.split_whitespace();
            let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
            match words.next() {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                _ => {}
            }
        }
    }
}

/// The cargo that runs us, so that a `+toolchain` is kept.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.stdin(Stdio::null());
    command
}

/// Where cargo puts what it builds.
fn target_dir() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR") {
        return Ok(std::env::current_dir()?.join(dir));
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(root.parent().context("xtask has no parent folder")?.join("target"))
}

/// Runs a step that passes or fails as a whole.
fn step(tally: &mut Tally, title: &str, command: &mut Command) -> anyhow::Result<bool> {
    eprintln!("xtask: {title}");
    let good = command.status().with_context(|| format!("cannot start {title}"))?.success();
    if !good {
        eprintln!("xtask: FAILED: {title}");
    }
    tally.check(good);
    Ok(good)
}

/// Builds the command that the end-to-end tests run; its path.
pub fn build_highwater(tally: &mut Tally) -> anyhow::Result<Option<PathBuf>> {
    let good = step(
        tally,
        "cargo build --release",
        cargo().args(["build", "--release", "--package", "highwater-cli"]),
    )?;
    Ok(good.then_some(target_dir()?.join("release/highwater")))
}

/// Builds the maker of long traces (`crates/trace/examples/long_trace.rs`); its path.
pub fn build_long_trace(tally: &mut Tally) -> anyhow::Result<Option<PathBuf>> {
    let words = ["build", "--release", "--package", "highwater-trace", "--example", "long_trace"];
    let good = step(tally, "cargo build --release --example long_trace", cargo().args(words))?;
    Ok(good.then_some(target_dir()?.join("release/examples/long_trace")))
}

/// Runs `cargo test ARGS` and adds up what its test programs report. A test
/// program that does not come to its end counts as one failure.
pub fn cargo_test(tally: &mut Tally, args: &[&str], env: &[(&str, String)]) -> anyhow::Result<()> {
    eprintln!("xtask: cargo test {}", args.join(" "));
    let mut child = cargo()
        .arg("test")
        .args(args)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo test")?;
    let before = *tally;
    let lines = BufReader::new(child.stdout.take().context("no output from cargo test")?);
    let mut out = std::io::stdout().lock();
    for line in lines.split(b'\n') {
        let line = line.context("cannot read the output of cargo test")?;
        tally.add_line(&String::from_utf8_lossy(&line));
        out.write_all(&line)?;
        out.write_all(b"\n")?;
    }
    let good = child.wait()?.success();
    if !good && tally.failed == before.failed {
        // It did not build, or a test program died before its result line.
        tally.failed += 1;
    }
    Ok(())
}

/// Prints the closing line; was everything right?
pub fn close(tally: Tally) -> bool {
    println!("{} passed, {} failed", tally.passed, tally.failed);
    tally.failed == 0
}

/// Format, lints, build, every test.
pub fn test(only: Option<&str>) -> anyhow::Result<bool> {
    let mut tally = Tally::default();
    packages::install_missing()?;
    if only.is_none() {
        step(&mut tally, "cargo fmt --check", cargo().args(["fmt", "--all", "--check"]))?;
        step(
            &mut tally,
            "cargo clippy",
            cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        )?;
    }
    let Some(highwater) = build_highwater(&mut tally)? else {
        return Ok(close(tally));
    };
    let env = [("HIGHWATER_BIN", highwater.display().to_string())];
    let mut args = vec!["--workspace", "--no-fail-fast"];
    if let Some(name) = only {
        args.push(name);
    }
    cargo_test(&mut tally, &args, &env)?;
    Ok(close(tally))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_added_up() {
        let mut tally = Tally::default();
        tally.add_line("running 3 tests");
        tally.add_line(
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.01s",
        );
        tally.add_line("test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(tally, Tally { passed: 8, failed: 2 });
    }
}
