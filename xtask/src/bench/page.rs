//! The page: tables, targets, and what misses them.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::extra::{Instructions, StartUp};
use super::modes;
use super::result::{self, LoadResult, mean_over};
use super::tools::Tool;
use super::workloads::Kind;

/// Everything that a page tells.
pub struct Report {
    /// The command that made it.
    pub command: String,
    /// Rounds.
    pub runs: usize,
    /// Tools that took part.
    pub tools: Vec<Tool>,
    /// Results.
    pub loads: Vec<LoadResult>,
    /// Results of recording less ([`modes`]).
    pub less: Vec<LoadResult>,
    /// Loads whose programs are not installed.
    pub missing: Vec<&'static str>,
    /// Instruction counts.
    pub instructions: Vec<Instructions>,
    /// Start-up.
    pub start_up: Option<StartUp>,
    /// Load average before and after.
    pub load_average: (String, String),
    /// How long it took, s.
    pub seconds: f64,
}

/// A target and what was seen.
struct Target {
    what: &'static str,
    limit: f64,
    unit: &'static str,
    seen: Option<f64>,
    note: String,
}

/// Rows of cells as an aligned Markdown table; the first row is the heading.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, &width) in widths.iter().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            let _ = if column == 0 {
                write!(text, "| {cell:<width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
        }
        text.push_str("|\n");
        if number == 0 {
            for (column, &width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width.max(2));
                let _ = if column == 0 { write!(text, "|:{dashes}-") } else { write!(text, "|-{dashes}:") };
            }
            text.push_str("|\n");
        }
    }
    text
}

/// A figure with so many decimals, or a dash.
pub fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_string(), |value| format!("{value:.decimals$}"))
}

/// A row of a table.
pub fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

/// A ratio, or why there is none.
fn ratio(load: &LoadResult, tool: Tool, value: Option<f64>) -> String {
    match (value, load.failures(tool)) {
        (Some(value), 0) => format!("{value:.2}"),
        (Some(value), failed) => format!("{value:.2} ({failed} failed)"),
        (None, 0) => "-".to_string(),
        (None, _) => "failed".to_string(),
    }
}

/// The ratios of every load and tool, with the mean of the programs that the targets name.
fn ratios(report: &Report, of: impl Fn(&LoadResult, Tool) -> Option<f64>) -> String {
    let tools: Vec<Tool> = report.tools.iter().copied().filter(|&tool| tool != Tool::Native).collect();
    let mut rows = vec![row(&["program", "native s"])];
    rows[0].extend(tools.iter().map(|tool| tool.name().to_string()));
    for load in report.loads.iter().filter(|load| load.kind != Kind::Own) {
        let mut cells = vec![load.name.to_string(), figure(load.of(Tool::Native, |run| run.took.wall), 2)];
        cells.extend(tools.iter().map(|&tool| ratio(load, tool, of(load, tool))));
        rows.push(cells);
    }
    let mut cells = vec!["geometric mean of 7".to_string(), String::new()];
    for &tool in &tools {
        let (mean, over) = mean_over(&report.loads, |load| of(load, tool));
        cells.push(match mean {
            Some(mean) if over == 7 => format!("{mean:.2}"),
            Some(mean) if over > 1 => format!("{mean:.2} (of {over})"),
            _ => "-".to_string(),
        });
    }
    rows.push(cells);
    table(&rows)
}

fn load<'a>(report: &'a Report, name: &str) -> Option<&'a LoadResult> {
    report.loads.iter().find(|load| load.name == name)
}

/// The targets that can be measured today.
fn targets(report: &Report) -> Vec<Target> {
    let of = |name, figure: &dyn Fn(&LoadResult) -> Option<f64>| load(report, name).and_then(figure);
    let ours = Tool::Highwater;
    let less = Tool::NoFreeStacks;
    let steady = |name| of(name, &|load| load.steady(ours));
    let without = |name| match of(name, &|load| load.steady(less)) {
        Some(value) => format!("{value:.1} with `--no-free-stacks`"),
        None => String::new(),
    };
    let mut list = vec![
        Target {
            what: "micro at depth 5: CPU added to the program",
            limit: 20.0,
            unit: "ns/event",
            seen: steady("micro-5"),
            note: without("micro-5"),
        },
        Target {
            what: "micro at depth 40: the same",
            limit: 25.0,
            unit: "ns/event",
            seen: steady("micro-40"),
            note: without("micro-40"),
        },
    ];
    for (what, limit, figure) in [
        (
            "7 programs: geometric mean of wall to native",
            1.25,
            LoadResult::wall as fn(&LoadResult, Tool) -> Option<f64>,
        ),
        ("7 programs: the same, CPU of everything", 1.6, LoadResult::cpu),
    ] {
        let (seen, over) = mean_over(&report.loads, |load| figure(load, ours));
        let (other, _) = mean_over(&report.loads, |load| figure(load, less));
        let note = other.map_or_else(String::new, |other| format!("{other:.2} with `--no-free-stacks`"));
        list.push(Target { what, limit, unit: "x", seen: seen.filter(|_| over == 7), note });
    }
    for (what, name) in [
        ("cc1plus: CPU added to the program", "cc1plus"),
        ("tree (hundreds of thousands of stack nodes): the same", "tree"),
    ] {
        let note = of(name, &|load| load.target(less))
            .map_or_else(String::new, |value| format!("{value:.0} with `--no-free-stacks`"));
        list.push(Target {
            what,
            limit: 120.0,
            unit: "ns/event",
            seen: of(name, &|load| load.target(ours)),
            note,
        });
    }
    let two = |figure: fn(&LoadResult, Tool) -> Option<f64>| {
        Some(figure(load(report, "micro-5x2")?, ours)? / figure(load(report, "micro-5")?, ours)?)
    };
    list.push(Target {
        what: "2 threads against 1: CPU of the program an event",
        limit: 1.15,
        unit: "x",
        seen: two(LoadResult::loop_cost),
        note: "the recorder shares the two CPUs with both threads".into(),
    });
    let worst = |figure: &dyn Fn(&LoadResult) -> Option<f64>| {
        let programs = report
            .loads
            .iter()
            .filter(|load| load.kind != Kind::Own && load.name != "node" && load.name != "git");
        programs
            .filter_map(|load| Some((figure(load)?, load.name)))
            .max_by(|(left, _), (right, _)| left.total_cmp(right))
    };
    for (what, limit, unit, seen) in [
        ("the largest of the 7: bytes of trace an event", 2.5, "B", worst(&|load| load.bytes_an_event(ours))),
        ("the largest of the 7: recorder CPU an event", 25.0, "ns/event", worst(&|load| load.recorder(ours))),
    ] {
        let note = seen.map_or_else(String::new, |(_, name)| name.to_string());
        list.push(Target { what, limit, unit, seen: seen.map(|(value, _)| value), note });
    }
    let micro = report.less.iter().find(|load| load.name == "micro-5");
    let sampling = modes::sampling(&report.less);
    list.push(Target {
        what: "`count`, micro at depth 5: CPU over a do-nothing forwarder",
        limit: 5.0,
        unit: "ns/event",
        seen: micro.and_then(modes::counting),
        note: String::new(),
    });
    list.push(Target {
        what: "`--sample 512KiB`: geometric mean of CPU to native",
        limit: 1.02,
        unit: "x",
        seen: sampling.map(|(mean, _)| mean),
        note: sampling.map_or_else(String::new, |(_, worst)| format!("the worst is {worst}")),
    });
    list.push(Target {
        what: "start-up of `highwater run -- true` over native",
        limit: 15.0,
        unit: "ms",
        seen: report.start_up.map(|up| (up.highwater - up.native) * 1e3),
        note: report.start_up.map_or_else(String::new, |up| format!("median of {} pairs", up.pairs)),
    });
    list
}

fn targets_table(report: &Report) -> String {
    let mut rows = vec![row(&["target", "at most", "seen", "", "beside it"])];
    for target in targets(report) {
        let decimals = if target.unit == "x" { 2 } else { 1 };
        let verdict = match target.seen {
            Some(seen) if seen <= target.limit => "met",
            Some(_) => "MISSED",
            None => "not measured",
        };
        rows.push(vec![
            target.what.to_string(),
            format!("{} {}", target.limit, target.unit),
            figure(target.seen, decimals),
            verdict.to_string(),
            target.note,
        ]);
    }
    table(&rows)
}

fn details_table(report: &Report) -> String {
    let mut rows = vec![row(&[
        "load",
        "M events",
        "threads",
        "k nodes",
        "program ns",
        "recorder ns",
        "B/event",
        "complete %",
        "nfs: program ns",
        "nfs: recorder ns",
        "nfs: B/event",
    ])];
    for load in &report.loads {
        let ours = Tool::Highwater;
        let less = Tool::NoFreeStacks;
        let seen = load.recorded.get(&ours).copied().unwrap_or_default();
        rows.push(vec![
            load.name.to_string(),
            figure(load.events().map(|events| events / 1e6), 2),
            seen.threads.to_string(),
            figure(Some(seen.nodes as f64 / 1e3), 1),
            figure(load.target(ours), 1),
            figure(load.recorder(ours), 1),
            figure(load.bytes_an_event(ours), 2),
            figure(load.complete(ours), 3),
            figure(load.target(less), 1),
            figure(load.recorder(less), 1),
            figure(load.bytes_an_event(less), 2),
        ]);
    }
    table(&rows)
}

fn own_table(
    report: &Report,
    of: impl Fn(&LoadResult, Tool) -> Option<f64>,
    own: bool,
    decimals: usize,
) -> String {
    let tools: Vec<Tool> = report.tools.iter().copied().filter(|&tool| tool != Tool::Native).collect();
    let mut rows = vec![row(&["load"])];
    rows[0].extend(tools.iter().map(|tool| tool.name().to_string()));
    for load in report.loads.iter().filter(|load| !own || load.kind == Kind::Own) {
        let mut cells = vec![load.name.to_string()];
        cells.extend(tools.iter().map(|&tool| figure(of(load, tool), decimals)));
        rows.push(cells);
    }
    table(&rows)
}

fn steady_table(report: &Report) -> String {
    let mut rows = vec![row(&["load", "native ns/event", "highwater: added", "--no-free-stacks: added"])];
    for load in report.loads.iter().filter(|load| load.inner_events > 0) {
        rows.push(vec![
            load.name.to_string(),
            figure(load.loop_cost(Tool::Native), 1),
            figure(load.steady(Tool::Highwater), 1),
            figure(load.steady(Tool::NoFreeStacks), 1),
        ]);
    }
    table(&rows)
}

fn analysis_table(report: &Report) -> String {
    let mut rows = vec![row(&["load", "step", "wall s", "CPU s", "peak MB"])];
    for load in &report.loads {
        for step in &load.analysis {
            rows.push(vec![
                load.name.to_string(),
                step.step.to_string(),
                figure(Some(step.wall), 2),
                figure(Some(step.cpu), 2),
                figure(Some(step.rss as f64 / 1e6), 0),
            ]);
        }
    }
    table(&rows)
}

/// The first line of what a program says about its version.
fn version(words: &[&str]) -> Option<String> {
    let (program, rest) = words.split_first()?;
    let output = Command::new(program).args(rest).stdin(Stdio::null()).output().ok()?;
    let text =
        String::from_utf8_lossy(if output.stdout.is_empty() { &output.stderr } else { &output.stdout })
            .into_owned();
    Some(text.lines().next()?.trim().to_string())
}

/// The three load averages.
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn proc_value(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Processor, memory, kernel, system, versions.
pub fn machine() -> Vec<String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let processor = proc_value("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
    let memory = proc_value("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(0.0, |kib| kib / 1024.0 / 1024.0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split('-').next().unwrap_or_default().trim().to_string();
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or("unknown system")
        .trim_matches('"')
        .to_string();
    let virtual_machine =
        proc_value("/proc/cpuinfo", "flags").is_some_and(|flags| flags.contains("hypervisor"));
    let model = |key| proc_value("/proc/cpuinfo", key).unwrap_or_default();
    let mut lines = vec![
        format!(
            "{cpus} x {processor} (family {}, model {}){}, {memory:.0} GiB, Linux {kernel}, {system}",
            model("cpu family"),
            model("model\t"),
            if virtual_machine { ", in a virtual machine" } else { "" }
        ),
        version(&["ldd", "--version"]).unwrap_or_default(),
    ];
    for words in [["gcc", "--version"], ["heaptrack", "--version"], ["valgrind", "--version"]] {
        lines.extend(version(&words));
    }
    lines
}

/// Today, UTC.
pub fn date() -> String {
    version(&["date", "-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default()
}

/// Commit of the tree that was measured, with a mark when files differ from it.
pub fn commit() -> String {
    let Some(commit) = version(&["git", "rev-parse", "--short=10", "HEAD"]) else { return "unknown".into() };
    let changed = Command::new("git")
        .args(["status", "--porcelain", "--untracked-files=no", "--", "crates", "Cargo.lock"])
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| !output.stdout.is_empty());
    if changed { format!("{commit} with uncommitted changes") } else { commit }
}

/// The page as Markdown; it is also what is printed.
pub fn page(report: &Report) -> String {
    let mut text = String::from("# Performance\n\n");
    let _ = writeln!(
        text,
        "Written by `{}` on {}, in {:.0} s, at commit {}. Load average before {} and after {}.\n",
        report.command,
        date(),
        report.seconds,
        commit(),
        report.load_average.0,
        report.load_average.1
    );
    for line in machine() {
        let _ = writeln!(text, "- {line}");
    }
    let pairs = if report.runs == 1 {
        "one pair".to_string()
    } else {
        format!("the median of {} pairs", report.runs)
    };
    let _ = writeln!(
        text,
        "\nEach figure is {pairs}: every tool runs once a round, and is set against the native run of the same round. \
         *CPU* is user and system time of everything a tool starts: program, recorder, interpreter, compressor. \
         Programs with one thread are pinned to one CPU, their recorder or interpreter to another; the rest is the \
         scheduler's. Inputs are generated and the same everywhere; `benches/README.md` says what the loads are, and \
         how to measure again. `target/bench/performance.json` keeps every run.\n"
    );
    if !report.missing.is_empty() {
        let _ = writeln!(text, "Not installed, so not measured: {}.\n", report.missing.join(", "));
    }
    if report.loads.iter().any(|load| load.kind != Kind::Own) || report.start_up.is_some() {
        let _ = writeln!(text, "## Targets\n\n{}", targets_table(report));
    }
    if report.loads.iter().any(|load| load.kind != Kind::Own) {
        let _ = writeln!(text, "## Wall to native\n\n{}", ratios(report, LoadResult::wall));
        let _ = writeln!(text, "## CPU of everything to native\n\n{}", ratios(report, LoadResult::cpu));
        text.push_str(
            "redis: wall is redis-benchmark's, CPU the server's and the tool's; the load generator shares its CPU with \
             the recorder. LeakSanitizer only looks for leaks, and its preloaded library does not start in perl, \
             sqlite3 and git; jemalloc's profiler samples every 512 KiB and brings another allocator: neither records \
             events.\n\n",
        );
    }
    if !report.less.is_empty() {
        text.push_str(&modes::section(&report.less));
    }
    let _ = writeln!(text, "## highwater, event by event\n\n{}", details_table(report));
    text.push_str(
        "An event is an allocation or a free; both carry their complete stack, `nfs` is `--no-free-stacks`. *program* is \
         the CPU of everything less the recorder's own and the native run's, so start-up, first touches of ring and \
         table pages and the last writes of the trace are in it; *recorder* is what `highwater stats --self` tells.\n\n",
    );
    if report.loads.iter().any(|load| load.inner_events > 0) {
        let _ = writeln!(
            text,
            "## Steady state\n\nThe measured loop alone, after a warm-up, as the program itself reads its CPU clock \
             (`tree` warms nothing up: its first pass makes all its stacks).\n\n{}",
            steady_table(report)
        );
    }
    if !report.instructions.is_empty() {
        let mut rows = vec![row(&[
            "micro",
            "native",
            "highwater",
            "added",
            "--no-free-stacks",
            "added",
            "forwarder",
            "added",
            "count",
            "added",
            "--sample 512KiB",
            "added",
        ])];
        for count in &report.instructions {
            let mut cells = vec![format!("{} frames", count.depth), figure(Some(count.native), 0)];
            for of in [count.highwater, count.no_free_stacks, count.forwarder, count.count, count.sample] {
                cells.extend([figure(Some(of), 0), figure(Some(of - count.native), 0)]);
            }
            rows.push(cells);
        }
        let _ = writeln!(
            text,
            "## Instructions an event\n\nFrom callgrind, over two lengths of the run, so without start-up \
             (`highwater run -- valgrind --tool=callgrind …`).\n\n{}",
            table(&rows)
        );
    }
    let _ = writeln!(
        text,
        "## CPU added by everything, ns an event\n\n{}",
        own_table(report, LoadResult::added, false, 0)
    );
    text.push_str(
        "heaptrack's own symbol reading is in its figure, and weighs on short runs; its interpreter (1.4.0) dies of \
         `std::bad_alloc` on micro in several threads, so it is left out there.\n\n",
    );
    let _ = writeln!(
        text,
        "## Peak memory to native\n\nThe largest single process: for heaptrack often its interpreter, for highwater the \
         program or the recorder. Programs below a few MB all count as the size of the process that starts them.\n\n{}",
        own_table(report, LoadResult::rss, false, 2)
    );
    let _ = writeln!(
        text,
        "## Bytes written an event\n\n{}",
        own_table(report, LoadResult::bytes_an_event, false, 2)
    );
    text.push_str(
        "heaptrack's files have no times, no frees' stacks, no threads; `-r` is not yet interpreted.\n\n",
    );
    if report.loads.iter().any(|load| !load.analysis.is_empty()) {
        let _ = writeln!(text, "## Looking at a recording\n\n{}", analysis_table(report));
    }
    if let Some(up) = report.start_up {
        let _ = writeln!(
            text,
            "## Start-up\n\n`true` takes {:.1} ms, `highwater run -q -- true` {:.1} ms, of which {:.1} ms are CPU \
             (medians of {} interleaved pairs).\n",
            up.native * 1e3,
            up.highwater * 1e3,
            up.highwater_cpu * 1e3,
            up.pairs
        );
    }
    let _ = writeln!(text, "## The loads\n");
    for load in &report.loads {
        let _ = writeln!(
            text,
            "- `{}`: {}{}",
            load.name,
            load.what,
            if load.pinned { "" } else { " (not pinned)" }
        );
    }
    text
}

/// The same for programs.
pub fn json(report: &Report) -> Value {
    json!({
        "schema": "highwater.bench/1",
        "command": report.command,
        "date": date(),
        "commit": commit(),
        "machine": machine(),
        "load_average": [report.load_average.0, report.load_average.1],
        "runs": report.runs,
        "loads": result::json(&report.loads),
        "less": result::json(&report.less),
        "instructions": report.instructions.iter().map(|count| json!({"depth": count.depth, "native": count.native,
            "highwater": count.highwater, "no_free_stacks": count.no_free_stacks, "forwarder": count.forwarder,
            "count": count.count, "sample": count.sample})).collect::<Vec<_>>(),
        "start_up": report.start_up.map(|up| json!({"native": up.native, "highwater": up.highwater,
            "cpu": up.highwater_cpu, "pairs": up.pairs})),
        "targets": targets(report).iter().map(|target| json!({"what": target.what, "limit": target.limit,
            "unit": target.unit, "seen": target.seen})).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let text = table(&[row(&["a", "bb"]), row(&["long", "1"])]);
        assert_eq!(text, "| a    | bb |\n|:-----|---:|\n| long |  1 |\n");
    }

    #[test]
    fn a_page_of_nothing_says_what_was_not_measured() {
        let report = Report {
            command: "cargo xtask bench".into(),
            runs: 5,
            tools: vec![Tool::Native, Tool::Highwater],
            loads: vec![],
            less: vec![],
            missing: vec!["node"],
            instructions: vec![],
            start_up: Some(StartUp { native: 0.001, highwater: 0.021, highwater_cpu: 0.01, pairs: 3 }),
            load_average: ("0 0 0".into(), "1 1 1".into()),
            seconds: 1.0,
        };
        let text = page(&report);
        assert!(text.contains("Not installed, so not measured: node."));
        let start_up = text.lines().find(|line| line.contains("start-up of")).unwrap();
        assert!(start_up.contains("20.0") && start_up.contains("MISSED"), "{start_up}");
        assert!(text.contains("not measured"));
    }
}
