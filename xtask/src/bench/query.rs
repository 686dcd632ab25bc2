//! `cargo xtask bench-query`: how long the views take on long traces, and the
//! page `docs/analysis.md` with what was seen.
//!
//! Nothing here passes or fails by a time: it measures, and says so.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use super::process::{self, Placing, Running, Took};
use super::{page, result, screens, workloads};
use crate::suite::{self, Tally};

/// A view that takes longer than this is killed and told as failed.
const LIMIT: Duration = Duration::from_secs(300);

/// Makes a few million heap operations of each round; 6 rounds are about 10 million.
const PYTHON: &str = "\
import json
for k in range(ROUNDS):
    data = [{'n': i, 'name': 'item%d' % i, 'tags': [str(j) for j in range(i % 7)]} for i in range(20000)]
    json.loads(json.dumps(data))
";

/// Has a view gone through the whole trace before? The first one keeps in it what it
/// found, and keyframes.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Never,
    Before,
}

/// One row of the page.
pub(super) struct Row {
    trace: String,
    view: String,
    runs: usize,
    took: Took,
    /// What it should take at most, and how that compares.
    target: Option<(&'static str, bool)>,
}

impl Row {
    pub(super) fn new(trace: &str, view: String, runs: usize, took: Took, target: Target) -> Row {
        eprintln!("xtask: {trace}: {view}: {:.2} s CPU, {:.2} s", took.cpu, took.wall);
        let target = target.judge(&took);
        Row { trace: trace.into(), view, runs, took, target }
    }
}

/// What a view should take, and the figure that counts.
#[derive(Clone, Copy)]
pub(super) enum Target {
    Cpu(&'static str, f64),
    Wall(&'static str, f64),
    None,
}

impl Target {
    fn judge(self, took: &Took) -> Option<(&'static str, bool)> {
        match self {
            Target::Cpu(text, limit) => Some((text, took.cpu <= limit)),
            Target::Wall(text, limit) => Some((text, took.wall <= limit)),
            Target::None => None,
        }
    }
}

/// Measures, prints the table, writes `docs/analysis.md` on a full run.
pub fn bench_query(args: &[String]) -> anyhow::Result<bool> {
    let counts = counts(args)?;
    process::adopt_orphans().context("cannot adopt orphans")?;
    let root = super::suite_root()?;
    let target = super::target_dir(&root)?;
    let mut tally = Tally::default();
    let highwater = suite::build_highwater(&mut tally)?.context("highwater does not build")?;
    let maker = suite::build_long_trace(&mut tally)?.context("the maker of long traces does not build")?;
    let dir = target.join("bench/query");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let load_before = page::load_average();
    let mut rows = Vec::new();
    for &events in &counts {
        let trace = dir.join("made.hwt");
        let mut command = Command::new(&maker);
        command.arg(events.to_string()).arg(&trace);
        let took = once(&mut command, &dir)?;
        let name = format!("{} million, made", events / 1_000_000);
        let bytes = fs::metadata(&trace).map_or(0, |data| data.len());
        eprintln!("xtask: {name}: {} MiB in {:.0} s", bytes >> 20, took.wall);
        views(&highwater, &dir, &trace, &name, events, &mut rows)?;
        fs::remove_file(&trace).ok();
    }
    recorded(&highwater, &dir, &mut rows)?;
    screens::short(&highwater, &maker, &dir, &mut rows)?;
    screens::symbols(&highwater, &root, &dir, &mut rows)?;
    fs::remove_dir_all(&dir).ok();

    let load = (load_before, page::load_average());
    let command = format!("cargo xtask bench-query --events {}", words(&counts));
    let mut text = text(&rows, &command, &load);
    print!("{text}");
    let json = target.join("bench/query.json");
    fs::write(&json, serde_json::to_string_pretty(&document(&rows, &command, &load))?)
        .with_context(|| format!("cannot write {}", json.display()))?;
    eprintln!("xtask: every figure is in {}", json.display());
    if counts == DEFAULT {
        let file = root.join("docs/analysis.md");
        if let Ok(reasons) = fs::read_to_string(root.join("benches/analysis-reasons.md")) {
            text.push('\n');
            text.push_str(&reasons);
        }
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("xtask: wrote {}", file.display());
    }
    Ok(true)
}

const DEFAULT: [u64; 2] = [10_000_000, 100_000_000];

/// `--events 10M,100M`, whole millions.
fn counts(args: &[String]) -> anyhow::Result<Vec<u64>> {
    let value = match args {
        [] => return Ok(DEFAULT.to_vec()),
        [option, value] if option == "--events" => value.as_str(),
        [option] => option.strip_prefix("--events=").context("expected --events 10M,100M")?,
        _ => anyhow::bail!("expected nothing or `--events 10M,100M`, not `{}`", args.join(" ")),
    };
    value
        .split(',')
        .map(|word| {
            let millions = word.strip_suffix('M').and_then(|number| number.parse::<u64>().ok());
            millions
                .filter(|count| (1..=1000).contains(count))
                .map(|count| count * 1_000_000)
                .with_context(|| format!("`{word}` is not a number of events such as 10M (1M to 1000M)"))
        })
        .collect()
}

fn words(counts: &[u64]) -> String {
    counts.iter().map(|count| format!("{}M", count / 1_000_000)).collect::<Vec<_>>().join(",")
}

pub(super) fn once(command: &mut Command, dir: &Path) -> anyhow::Result<Took> {
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let took = Running::start(command, Placing::Free, LIMIT)?.finish()?;
    anyhow::ensure!(took.good, "{command:?} failed");
    Ok(took)
}

/// The median of each figure over `runs` runs.
pub(super) fn middle(runs: usize, mut run: impl FnMut() -> anyhow::Result<Took>) -> anyhow::Result<Took> {
    let all = (0..runs).map(|_| run()).collect::<anyhow::Result<Vec<Took>>>()?;
    let of = |figure: fn(&Took) -> f64| result::median(all.iter().map(figure).collect()).context("no runs");
    Ok(Took {
        wall: of(|took| took.wall)?,
        cpu: of(|took| took.cpu)?,
        rss: all.iter().map(|took| took.rss).max().unwrap_or(0),
        good: true,
    })
}

/// Every view of a trace: as the first that is taken of it (a copy for each run), and
/// after others.
fn views(
    highwater: &Path,
    dir: &Path,
    trace: &Path,
    name: &str,
    events: u64,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let whole = match events {
        0..=11_000_000 => Target::Cpu("0.3 s CPU", 0.3),
        90_000_000..=110_000_000 => Target::Wall("3 s wall", 3.0),
        _ => Target::None,
    };
    let fast = if events > 20_000_000 { Target::Wall("0.3 s wall", 0.3) } else { Target::None };
    let at = format!("#{}", events / 2);
    let to = format!("#{}", events / 2 + events / 100);
    let (fresh, unseen) = (dir.join("fresh.hwt"), dir.join("unseen.hwt"));
    // As nobody has looked at it: the first look leaves what it found in the trace.
    fs::copy(trace, &unseen).with_context(|| format!("cannot copy {}", trace.display()))?;
    let copy = || fs::copy(&unseen, &fresh).with_context(|| format!("cannot copy {}", unseen.display()));
    let once_seen = |args: &[&str], trace: &Path| once(Command::new(highwater).args(args).arg(trace), dir);
    // A tenth of the events for the same time.
    let runs = if events > 20_000_000 { 1 } else { 3 };
    let list: [(&str, &[&str], Target); 8] = [
        ("stats", &["stats"], whole),
        ("peak", &["peak"], whole),
        ("leaks --method exit", &["leaks", "--method", "exit"], whole),
        ("leaks", &["leaks"], whole),
        ("dump --at", &["dump", "--limit", "20", "--at", &at], fast),
        ("dump --at peak", &["dump", "--limit", "20", "--at", "peak"], Target::None),
        ("stats --at", &["stats", "--at", &at], fast),
        ("stats --from --to, 1 %", &["stats", "--from", &at, "--to", &to], fast),
    ];
    once_seen(&["stats"], trace)?;
    for (view, args, target) in list {
        for (seen, word, runs) in [(Seen::Never, "first", runs), (Seen::Before, "again", 3)] {
            let run = || match seen {
                Seen::Never => copy().and_then(|_| once_seen(args, &fresh)),
                Seen::Before => once_seen(args, trace),
            };
            let view = format!("{view}, {word}");
            let took = middle(runs, run).with_context(|| format!("{view} of {name}"))?;
            rows.push(Row::new(name, view, runs, took, target));
        }
    }
    fs::remove_file(&fresh).ok();
    fs::remove_file(&unseen).ok();
    Ok(())
}

/// The same python program under highwater, and under heaptrack where it is installed.
fn recorded(highwater: &Path, dir: &Path, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let Some(python) = workloads::find("python3") else { return Ok(()) };
    let program = dir.join("load.py");
    fs::write(&program, PYTHON.replace("ROUNDS", "6"))?;
    let run = |words: &[&std::ffi::OsStr]| {
        let (first, rest) = words.split_first().context("nothing to run")?;
        let mut command = Command::new(first);
        command.args(rest).arg(&python).arg(&program).env("PYTHONMALLOC", "malloc");
        once(&mut command, dir)
    };
    let trace = dir.join("python.hwt");
    run(&[
        highwater.as_os_str(),
        "run".as_ref(),
        "-q".as_ref(),
        "--force".as_ref(),
        "-o".as_ref(),
        trace.as_os_str(),
        "--".as_ref(),
    ])?;
    let events = events_in(highwater, &trace)?;
    let name = format!("python3, {:.1} million", events as f64 / 1e6);
    views(highwater, dir, &trace, &name, events, rows)?;
    let Some(heaptrack) = workloads::find("heaptrack") else { return Ok(()) };
    run(&[heaptrack.as_os_str(), "-o".as_ref(), dir.join("peer").as_os_str()])?;
    let file = ["peer.zst", "peer.gz"].map(|name| dir.join(name)).into_iter().find(|file| file.exists());
    let Some(file): Option<PathBuf> = file else { return Ok(()) };
    let took = middle(3, || once(Command::new("heaptrack_print").arg(&file), dir))?;
    rows.push(Row { trace: name.clone(), view: "heaptrack_print".into(), runs: 3, took, target: None });
    Ok(())
}

/// How many events a trace has. A copy is looked at: a view of the whole would leave
/// what it found in the trace.
pub(super) fn events_in(highwater: &Path, trace: &Path) -> anyhow::Result<u64> {
    let copy = trace.with_extension("copy.hwt");
    fs::copy(trace, &copy).with_context(|| format!("cannot copy {}", trace.display()))?;
    let output = Command::new(highwater).args(["stats", "--json"]).arg(&copy).output()?;
    fs::remove_file(&copy).ok();
    let seen: Value = serde_json::from_slice(&output.stdout).context("stats --json is not JSON")?;
    Ok(seen.get("events").and_then(Value::as_u64).unwrap_or(0))
}

fn text(rows: &[Row], command: &str, load: &(String, String)) -> String {
    let mut text = String::from("# Looking at long traces\n\n");
    let _ = writeln!(
        text,
        "Written by `{command}` on {}, at commit {}. Load average before {} and after {}: where the machine is shared, CPU is the figure to read and wall is pessimistic.\n",
        page::date(),
        page::commit(),
        load.0,
        load.1
    );
    for line in page::machine() {
        let _ = writeln!(text, "- {line}");
    }
    text.push_str(
        "\nThe made traces are those of `crates/trace/examples/long_trace.rs`: four threads, 2,300 sites, a live set of one block for 100 events. CPU (user and system) and wall are medians of the runs, memory is the largest resident set. *First*: no view has gone through the whole trace before, a copy for each run; it keeps what it found, and keyframes, in the trace. *Again*: one has.\n\n",
    );
    let mut cells =
        vec![["trace", "view", "runs", "CPU s", "wall s", "MiB", "target", "met"].map(String::from).to_vec()];
    for row in rows {
        let (target, met) =
            row.target.map_or(("-", "-"), |(text, met)| (text, if met { "yes" } else { "no" }));
        cells.push(vec![
            row.trace.clone(),
            row.view.clone(),
            row.runs.to_string(),
            format!("{:.2}", row.took.cpu),
            format!("{:.2}", row.took.wall),
            (row.took.rss >> 20).to_string(),
            target.into(),
            met.into(),
        ]);
    }
    text.push_str(&page::table(&cells));
    text
}

fn document(rows: &[Row], command: &str, load: &(String, String)) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "trace": row.trace, "view": row.view, "runs": row.runs, "cpu": row.took.cpu,
                "wall": row.took.wall, "rss": row.took.rss,
                "target": row.target.map(|(text, _)| text), "met": row.target.map(|(_, met)| met),
            })
        })
        .collect();
    json!({"command": command, "commit": page::commit(), "machine": page::machine(), "load_average": [load.0, load.1], "rows": rows})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_millions() {
        let parse = |words: &[&str]| counts(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parse(&[]).unwrap(), DEFAULT);
        assert_eq!(parse(&["--events", "1M,20M"]).unwrap(), [1_000_000, 20_000_000]);
        assert_eq!(words(&parse(&["--events=3M"]).unwrap()), "3M");
        for wrong in [&["--events"] as &[&str], &["--events", "10"], &["--events", "0M"], &["--fast", "1M"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_target_is_met_by_the_figure_that_it_names() {
        let took = Took { wall: 2.0, cpu: 0.2, rss: 3 << 20, good: true };
        assert_eq!(Target::Cpu("0.3 s CPU", 0.3).judge(&took), Some(("0.3 s CPU", true)));
        assert_eq!(Target::Wall("0.3 s wall", 0.3).judge(&took), Some(("0.3 s wall", false)));
        let target = Target::Wall("0.3 s wall", 0.3).judge(&took);
        let rows = [Row { trace: "t".into(), view: "stats".into(), runs: 3, took, target }];
        let text = text(&rows, "cargo xtask bench-query", &("0 0 0".into(), "1 1 1".into()));
        let last = text.trim_end().lines().last();
        assert_eq!(last, Some("| t     | stats |    3 |  0.20 |   2.00 |   3 | 0.3 s wall |  no |"));
    }
}
