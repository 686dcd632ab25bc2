//! The first screens of `cargo xtask bench-query`: of a short trace that nobody has looked
//! at, and of a large C++ program with and without a cache of its symbols.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::inputs::Inputs;
use super::query::{Row, Target, events_in, middle, once};
use super::workloads::Maker;

/// A short trace has fewer than a million events.
const SHORT: u64 = 900_000;

/// What people look at first.
const SCREENS: [&[&str]; 6] =
    [&["stats"], &["peak"], &["leaks"], &["dump", "--limit", "20"], &["tree"], &["threads"]];

/// The first screen of each view of a short trace, made by `maker`: a copy for each run.
pub fn short(highwater: &Path, maker: &Path, dir: &Path, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let (trace, fresh) = (dir.join("short.hwt"), dir.join("fresh.hwt"));
    once(Command::new(maker).arg(SHORT.to_string()).arg(&trace), dir)?;
    for words in SCREENS {
        let view = format!("{}, first", words.join(" "));
        let took = middle(3, || {
            fs::copy(&trace, &fresh).with_context(|| format!("cannot copy {}", trace.display()))?;
            once(Command::new(highwater).args(words).arg(&fresh), dir)
        });
        let took = took.with_context(|| format!("{view} of a short trace"))?;
        rows.push(Row::new("0.9 million, made", view, 3, took, Target::Wall("0.2 s wall", 0.2)));
    }
    fs::remove_file(&fresh).ok();
    fs::remove_file(&trace).ok();
    Ok(())
}

/// `peak` of GCC's C++ compiler, the trace looked at before: what is left is to find names.
pub fn symbols(highwater: &Path, root: &Path, dir: &Path, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let inputs = Inputs::new(&dir.join("inputs"), 1.0)?;
    let maker = Maker { root, build: dir.to_path_buf(), inputs };
    let Some(load) = maker.make("cc1plus")? else { return Ok(()) };
    let (trace, cache) = (dir.join("cc1plus.hwt"), dir.join("cache"));
    let mut record = Command::new(highwater);
    record.args(["run", "-q", "--force", "-o"]).arg(&trace).arg("--").args(&load.argv);
    once(record.envs(load.env.iter().copied()), dir)?;
    let look = |words: &[&str]| {
        let mut command = Command::new(highwater);
        command.args(words).arg(&trace).env_remove("HIGHWATER_SYMBOL_CACHE").env("XDG_CACHE_HOME", &cache);
        once(&mut command, dir)
    };
    look(&["stats"])?;
    let name = format!("cc1plus, {:.1} million", events_in(highwater, &trace)? as f64 / 1e6);
    let took = middle(3, || {
        fs::remove_dir_all(&cache).ok();
        look(&["peak"])
    });
    rows.push(Row::new(&name, "peak, no cache of symbols".into(), 3, took?, Target::Wall("2 s wall", 2.0)));
    let took = middle(3, || look(&["peak"]))?;
    rows.push(Row::new(
        &name,
        "peak, symbols from the cache".into(),
        3,
        took,
        Target::Wall("0.2 s wall", 0.2),
    ));
    fs::remove_file(&trace).ok();
    Ok(())
}
