//! `cargo xtask bench`: highwater against native and against its peers, and the
//! page `docs/performance.md` with what was seen.
//!
//! Nothing here passes or fails by a time: it measures, and says so.

mod extra;
mod inputs;
mod modes;
mod page;
mod process;
pub mod query;
mod redis;
mod result;
mod screens;
mod tools;
mod workloads;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

use self::process::{Placing, Running};
use self::result::{LoadResult, Recorded, Sample};
use self::tools::{Own, Tool};
use self::workloads::{Kind, Maker, Workload};
use crate::suite::{self, Tally};

/// A run that takes longer than this is killed and told as failed.
const LIMIT: Duration = Duration::from_secs(60);

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
struct Options {
    /// Loads whose name contains one of these; all when empty.
    only: Vec<String>,
    quick: bool,
    slow: bool,
    runs: usize,
    highwater: Option<PathBuf>,
}

impl Options {
    fn parse(args: &[String]) -> anyhow::Result<Self> {
        let mut options = Self { only: vec![], quick: false, slow: false, runs: 0, highwater: None };
        let mut words = args.iter().flat_map(|word| match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => vec![name, value],
            _ => vec![word.as_str()],
        });
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word {
                "--only" => options.only.extend(value()?.split(',').map(String::from)),
                "--runs" => options.runs = value()?.parse().context("--runs needs a number")?,
                "--highwater" => options.highwater = Some(value()?.into()),
                "--quick" => options.quick = true,
                "--slow" => options.slow = true,
                other => anyhow::bail!(
                    "`{other}` is not an option of bench; there are --only NAME[,NAME], --quick, --runs N, --slow, --highwater FILE"
                ),
            }
        }
        if options.runs == 0 {
            options.runs = if options.quick { 1 } else { 5 };
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.contains(only.as_str()))
    }

    /// The command that measures this again: whose highwater it is stays out of it.
    fn command(&self) -> String {
        let mut text = String::from("cargo xtask bench");
        if !self.only.is_empty() {
            text.push_str(&format!(" --only {}", self.only.join(",")));
        }
        for (set, word) in [(self.quick, " --quick"), (self.slow, " --slow")] {
            text.push_str(if set { word } else { "" });
        }
        text.push_str(&format!(" --runs {}", self.runs));
        text
    }

    /// Is this the run that the page is written from?
    fn is_full(&self) -> bool {
        self.only.is_empty() && !self.quick && self.runs >= 5
    }
}

/// What all measurements share.
struct Bench {
    own: Own,
    dir: PathBuf,
    runs: usize,
    requests: u32,
    tools: Vec<Tool>,
}

/// Measures, prints the tables; a full run writes `docs/performance.md`.
pub fn bench(args: &[String]) -> anyhow::Result<bool> {
    let options = Options::parse(args)?;
    process::adopt_orphans().context("cannot adopt orphans")?;
    let root = suite_root()?;
    let highwater = match &options.highwater {
        Some(file) => file.canonicalize().with_context(|| format!("no {}", file.display()))?,
        None => {
            let mut tally = Tally::default();
            suite::build_highwater(&mut tally)?.context("highwater does not build")?.canonicalize()?
        }
    };
    let dir = target_dir(&root)?.join("bench");
    let runs_dir = dir.join("run");
    fs::create_dir_all(&runs_dir).with_context(|| format!("cannot create {}", runs_dir.display()))?;
    let tools: Vec<Tool> =
        tools::ALL.into_iter().filter(|tool| tool.is_here() && (options.slow || !tool.is_slow())).collect();
    let scale = if options.quick { 0.3 } else { 1.0 };
    let inputs = inputs::Inputs::new(&dir.join("inputs"), scale)?;
    let own = Own { highwater, forwarder: modes::forwarder(&root, &dir)? };
    let bench = Bench { own, dir: runs_dir, runs: options.runs, requests: inputs.scaled(50_000), tools };
    let maker = Maker { root: &root, build: dir.clone(), inputs };

    let start = Instant::now();
    let load_before = page::load_average();
    let mut loads = Vec::new();
    let mut missing = Vec::new();
    for name in workloads::NAMES.into_iter().filter(|name| options.wants(name)) {
        match maker.make(name)? {
            Some(load) => {
                eprint!("xtask: {name} …");
                let began = Instant::now();
                loads.push(bench.measure(&load, &bench.tools)?);
                eprintln!(" {:.0} s", began.elapsed().as_secs_f64());
            }
            None => missing.push(name),
        }
    }
    let mut less = Vec::new();
    for name in modes::LOADS.into_iter().filter(|name| options.wants(&modes::name(name))) {
        if let Some(load) = maker.make(name)? {
            eprint!("xtask: {} …", modes::name(name));
            let began = Instant::now();
            less.push(bench.measure(&Workload { analysed: false, ..load }, &modes::TOOLS)?);
            eprintln!(" {:.0} s", began.elapsed().as_secs_f64());
        }
    }
    let mut instructions = Vec::new();
    if options.wants("instructions") && workloads::find("valgrind").is_some() {
        let micro = maker.compile("micro.c")?;
        for depth in [5, 40] {
            instructions.push(extra::instructions(&micro, &bench.own, &bench.dir, depth)?);
        }
    }
    let start_up = if options.wants("start-up") {
        Some(extra::start_up(&bench.own.highwater, &bench.dir, if options.quick { 5 } else { 41 })?)
    } else {
        None
    };

    let report = page::Report {
        command: options.command(),
        runs: options.runs,
        tools: bench.tools.clone(),
        loads,
        less,
        missing,
        instructions,
        start_up,
        load_average: (load_before, page::load_average()),
        seconds: start.elapsed().as_secs_f64(),
    };
    let mut text = page::page(&report);
    print!("{text}");
    let json = dir.join("performance.json");
    fs::write(&json, serde_json::to_string_pretty(&page::json(&report))?)
        .with_context(|| format!("cannot write {}", json.display()))?;
    eprintln!("xtask: every run is in {}", json.display());
    if options.is_full() {
        let file = root.join("docs/performance.md");
        // Why a target is missed is found by looking, not by measuring: a person keeps it there.
        if let Ok(reasons) = fs::read_to_string(root.join("benches/reasons.md")) {
            text.push('\n');
            text.push_str(&reasons);
        }
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("xtask: wrote {}", file.display());
    }
    fs::remove_dir_all(&bench.dir).ok();
    Ok(true)
}

fn suite_root() -> anyhow::Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask has no parent folder")?.to_path_buf())
}

fn target_dir(root: &Path) -> anyhow::Result<PathBuf> {
    let dir = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    std::path::absolute(&dir).with_context(|| format!("no path to {}", dir.display()))
}

impl Bench {
    /// All rounds of a load: every tool once a round, beginning with another one each time.
    fn measure(&self, load: &Workload, tools: &[Tool]) -> anyhow::Result<LoadResult> {
        let mut result = LoadResult {
            name: load.name,
            what: load.what,
            kind: load.kind,
            pinned: load.pinned,
            rounds: BTreeMap::new(),
            recorded: BTreeMap::new(),
            bytes: BTreeMap::new(),
            inner_events: 0,
            analysis: Vec::new(),
        };
        let mut tools: Vec<Tool> = tools.iter().copied().filter(|tool| tool.takes(load)).collect();
        for round in 0..self.runs {
            for &tool in &tools {
                let dir = self.dir.join(format!("{}-{}", load.name, tool.name().replace(' ', "")));
                fs::create_dir_all(&dir)?;
                let sample = self.once(load, tool, &dir, &mut result)?;
                if sample.is_some() && round == 0 {
                    if let Some(output) = tool.output(&dir) {
                        result.bytes.insert(tool, fs::metadata(&output).map_or(0, |data| data.len()));
                    }
                    if tool.is_ours() {
                        result.recorded.insert(tool, self.recorded(&dir)?);
                    }
                }
                result.rounds.entry(tool).or_default().push(sample);
                let analyse = load.analysed && round + 1 == self.runs;
                if !analyse {
                    fs::remove_dir_all(&dir).ok();
                }
            }
            tools.rotate_left(1);
        }
        if load.analysed {
            result.analysis = self.analyse(load)?;
        }
        Ok(result)
    }

    /// One run; `None` when it did not end well.
    fn once(
        &self,
        load: &Workload,
        tool: Tool,
        dir: &Path,
        result: &mut LoadResult,
    ) -> anyhow::Result<Option<Sample>> {
        let mut command = tool.command(load, &self.own, dir);
        let output = dir.join("stdout");
        let stdin = match &load.stdin {
            Some(file) => Stdio::from(fs::File::open(file)?),
            None => Stdio::null(),
        };
        command.stdin(stdin).stdout(fs::File::create(&output)?).stderr(Stdio::null());
        let placing = match (load.pinned, std::thread::available_parallelism().map_or(1, usize::from)) {
            (true, cpus @ 2..) => {
                Placing::Split { program: cpus - 1, helpers: 0, starter_helps: tool.starter_helps() }
            }
            _ => Placing::Free,
        };
        let took = if load.kind == Kind::Server {
            redis::run(&mut command, placing, LIMIT, self.requests)
        } else {
            Running::start(&mut command, placing, LIMIT).and_then(Running::finish).map_err(Into::into)
        };
        let took = match took {
            Ok(took) if took.good => took,
            Ok(_) => {
                eprint!(" [{} failed]", tool.name());
                return Ok(None);
            }
            Err(error) => {
                eprint!(" [{}: {error:#}]", tool.name());
                return Ok(None);
            }
        };
        let mut sample = Sample { took, inner: None, recorder: None };
        if load.kind == Kind::Own {
            let text = String::from_utf8_lossy(&fs::read(&output)?).into_owned();
            if let Some((cpu, events)) = inner_loop(&text) {
                sample.inner = Some(cpu);
                result.inner_events = events;
            }
        }
        if tool.is_ours() {
            let own = self.stats(dir, &["stats", "--self", "--json"])?;
            sample.recorder = own.get("recorder_cpu").and_then(Value::as_f64);
        }
        Ok(Some(sample))
    }

    fn stats(&self, dir: &Path, words: &[&str]) -> anyhow::Result<Value> {
        let output = Command::new(&self.own.highwater)
            .args(words)
            .arg(dir.join("trace.hwt"))
            .stdin(Stdio::null())
            .output()
            .context("cannot start highwater")?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).context("highwater stats --json is not JSON")
    }

    fn recorded(&self, dir: &Path) -> anyhow::Result<Recorded> {
        let seen = self.stats(dir, &["stats", "--json"])?;
        let own = self.stats(dir, &["stats", "--self", "--json"])?;
        let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        Ok(Recorded {
            events: number(&seen, "/events"),
            complete: number(&seen, "/stacks/complete"),
            truncated: number(&seen, "/stacks/truncated"),
            nodes: number(&own, "/counters/agent_nodes"),
            threads: number(&seen, "/threads"),
        })
    }

    /// Gathers the last recordings of each tool in one folder and times the views.
    fn analyse(&self, load: &Workload) -> anyhow::Result<Vec<result::Analysis>> {
        let together = self.dir.join("analysis");
        fs::create_dir_all(&together)?;
        for &tool in &self.tools {
            let dir = self.dir.join(format!("{}-{}", load.name, tool.name().replace(' ', "")));
            let here = (tool != Tool::NoFreeStacks).then(|| tool.output(&dir)).flatten();
            if let (Some(from), Some(to)) = (here.filter(|file| file.exists()), tool.output(&together)) {
                fs::rename(from, to)?;
            }
            fs::remove_dir_all(&dir).ok();
        }
        let steps = extra::analyse(&self.own.highwater, &together, self.runs.min(3));
        fs::remove_dir_all(&together).ok();
        steps
    }
}

/// CPU (s) and events of the line `loop CPU_NS EVENTS`.
fn inner_loop(text: &str) -> Option<(f64, u64)> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("loop "))?;
    let mut words = line.split_whitespace();
    let cpu = words.next()?.parse::<f64>().ok()? / 1e9;
    Some((cpu, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> anyhow::Result<Options> {
        Options::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let options = parse(&["--only", "jq,perl", "--runs=7"]).unwrap();
        assert_eq!((options.only.len(), options.runs), (2, 7));
        assert_eq!(options.command(), "cargo xtask bench --only jq,perl --runs 7");
        assert!(options.wants("perl") && !options.wants("git") && !options.is_full());
        assert!(parse(&[]).unwrap().is_full() && !parse(&["--quick"]).unwrap().is_full());
        assert_eq!(parse(&["--quick"]).unwrap().runs, 1);
        assert!(parse(&["--runs"]).is_err() && parse(&["--fast"]).is_err());
    }

    #[test]
    fn the_line_of_the_loop_is_found_among_a_tools_own() {
        assert_eq!(inner_loop("heaptrack output\nloop 2000000000 10\nstatistics\n"), Some((2.0, 10)));
        assert_eq!(inner_loop("nothing"), None);
    }
}
