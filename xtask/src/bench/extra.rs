//! What is measured once beside the loads: instructions an event, start-up, analysis.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;

use super::process::{Placing, Running};
use super::result::{Analysis, median};
use super::tools::{Own, Tool};
use super::workloads::find;

/// Instructions an event of the micro under callgrind.
#[derive(Clone, Copy, Debug)]
pub struct Instructions {
    /// Frames above the call sites.
    pub depth: u32,
    /// By itself.
    pub native: f64,
    /// With the agent, by `highwater run -- valgrind --tool=callgrind`.
    pub highwater: f64,
    /// The same with `--no-free-stacks`.
    pub no_free_stacks: f64,
    /// The same with `--sample 512KiB`.
    pub sample: f64,
    /// By `highwater count -- valgrind …`.
    pub count: f64,
    /// With the library that does nothing.
    pub forwarder: f64,
}

/// How a program is put under callgrind.
#[derive(Clone, Copy)]
enum Under<'a> {
    Nothing,
    Run(&'a [&'a str]),
    Count,
    Forwarder,
}

/// Counts the instructions of `micro` at two lengths: the difference over the
/// difference in events is free of start-up.
///
/// Callgrind does not replace malloc, so the agent stands in the program as it
/// does without it.
pub fn instructions(micro: &Path, own: &Own, dir: &Path, depth: u32) -> anyhow::Result<Instructions> {
    let count = |under: Under, pairs: u32| -> anyhow::Result<f64> {
        let mut argv: Vec<std::ffi::OsString> = Vec::new();
        match under {
            Under::Nothing | Under::Forwarder => {}
            Under::Count => {
                argv.push(own.highwater.clone().into());
                argv.extend(["count", "-q", "--"].map(Into::into));
            }
            Under::Run(options) => {
                argv.push(own.highwater.clone().into());
                argv.extend(["run", "-q", "--force", "-o"].map(Into::into));
                argv.push(dir.join("callgrind.hwt").into());
                argv.extend(options.iter().map(Into::into));
                argv.push("--".into());
            }
        }
        argv.extend(["valgrind".into(), "--tool=callgrind".into()]);
        argv.push(format!("--callgrind-out-file={}", dir.join("callgrind.out").display()).into());
        argv.push(micro.into());
        argv.extend([depth.to_string().into(), pairs.to_string().into(), "1".into()]);
        let (program, rest) = argv.split_first().context("nothing to run")?;
        let mut command = Command::new(program);
        command.args(rest).current_dir(dir).stdin(Stdio::null());
        if matches!(under, Under::Forwarder) {
            command.env("LD_PRELOAD", &own.forwarder);
        }
        let output = command.output().context("no valgrind")?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = text.lines().find_map(|line| line.split_once("Collected :"));
        line.and_then(|(_, number)| number.trim().parse().ok())
            .with_context(|| format!("callgrind said: {text}"))
    };
    let (short, long) = (20_000_u32, 60_000_u32);
    let each = |under: Under| -> anyhow::Result<f64> {
        // `micro` warms up with a twentieth of its pairs.
        let events = f64::from(long - short) * 2.0 * 1.05;
        Ok((count(under, long)? - count(under, short)?) / events)
    };
    Ok(Instructions {
        depth,
        native: each(Under::Nothing)?,
        highwater: each(Under::Run(&[]))?,
        no_free_stacks: each(Under::Run(&["--no-free-stacks"]))?,
        sample: each(Under::Run(&["--sample", "512KiB"]))?,
        count: each(Under::Count)?,
        forwarder: each(Under::Forwarder)?,
    })
}

/// Start-up: wall of `true` by itself and under `highwater run`, s, medians of interleaved pairs.
#[derive(Clone, Copy, Debug)]
pub struct StartUp {
    /// By itself.
    pub native: f64,
    /// Recorded.
    pub highwater: f64,
    /// CPU of everything, recorded.
    pub highwater_cpu: f64,
    /// How many pairs.
    pub pairs: usize,
}

/// Measures the start-up over so many pairs.
pub fn start_up(highwater: &Path, dir: &Path, pairs: usize) -> anyhow::Result<StartUp> {
    let program = find("true").context("no true")?;
    let (mut native, mut ours, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pairs {
        let mut command = Command::new(&program);
        native.push(quiet(&mut command, dir)?.wall);
        let mut command = Command::new(highwater);
        command.args(["run", "-q", "--force", "-o", "true.hwt", "--"]).arg(&program);
        let took = quiet(&mut command, dir)?;
        ours.push(took.wall);
        cpu.push(took.cpu);
    }
    let middle = |values| median(values).context("no pairs");
    Ok(StartUp { native: middle(native)?, highwater: middle(ours)?, highwater_cpu: middle(cpu)?, pairs })
}

fn quiet(command: &mut Command, dir: &Path) -> anyhow::Result<super::process::Took> {
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let took = Running::start(command, Placing::Free, Duration::from_secs(120))?.finish()?;
    anyhow::ensure!(took.good, "{command:?} failed");
    Ok(took)
}

/// Times the views of the last recordings in `dir` (see [`Tool::output`]), each `runs` times.
pub fn analyse(highwater: &Path, dir: &Path, runs: usize) -> anyhow::Result<Vec<Analysis>> {
    let trace = Tool::Highwater.output(dir).filter(|file| file.exists()).context("no trace to look at")?;
    let ours = |view: &str| {
        let mut command = Command::new(highwater);
        command.arg(view).arg(&trace);
        command
    };
    let mut steps: Vec<(&'static str, Command)> = vec![
        ("highwater stats", ours("stats")),
        ("highwater peak", ours("peak")),
        ("highwater leaks", ours("leaks")),
    ];
    let raw = Tool::HeaptrackRaw.output(dir).filter(|file| file.exists());
    if let (Some(interpret), Some(raw)) = (interpreter(), raw) {
        let mut command = Command::new("sh");
        command.args(["-c", "zstd -dc \"$1\" | \"$2\" > interpreted", "sh"]).arg(raw).arg(interpret);
        steps.push(("heaptrack_interpret", command));
    }
    if let Some(file) = Tool::Heaptrack.output(dir).filter(|file| file.exists()) {
        let mut command = Command::new("heaptrack_print");
        command.arg(file);
        steps.push(("heaptrack_print", command));
    }
    steps
        .into_iter()
        .map(|(step, mut command)| {
            let runs = (0..runs).map(|_| quiet(&mut command, dir)).collect::<anyhow::Result<Vec<_>>>()?;
            Ok(Analysis {
                step,
                wall: median(runs.iter().map(|took| took.wall).collect()).context("no runs")?,
                cpu: median(runs.iter().map(|took| took.cpu).collect()).context("no runs")?,
                rss: runs.iter().map(|took| took.rss).max().unwrap_or(0),
            })
        })
        .collect()
}

fn interpreter() -> Option<PathBuf> {
    [
        "/usr/lib/heaptrack/libexec/heaptrack_interpret",
        "/usr/lib/x86_64-linux-gnu/libexec/heaptrack_interpret",
    ]
    .iter()
    .map(PathBuf::from)
    .find(|file| file.exists())
}
