//! The ways to record less: `count`, `--sample`, `--min-size`, `--live-only`.
//!
//! They are measured like everything else, on some of the loads, beside full
//! recording and beside a preloaded library that only calls the real functions:
//! what that one costs is the price of the place in front of the heap.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use super::page::{figure, row, table};
use super::result::{LoadResult, geometric_mean};
use super::tools::Tool;
use super::workloads::Kind;

/// The loads, in the order of the table; the last is here alone.
pub const LOADS: [&str; 10] = [
    "micro-5",
    "micro-40",
    "micro-5x2",
    "micro-5x64",
    "micro-5x1000",
    "churn",
    "python3",
    "perl",
    "sqlite3",
    "short-100k",
];

/// What is compared.
pub const TOOLS: [Tool; 7] = [
    Tool::Native,
    Tool::Forwarder,
    Tool::Highwater,
    Tool::Count,
    Tool::Sample,
    Tool::MinSize,
    Tool::LiveOnly,
];

/// What `--only` takes for the row of a load.
pub fn name(load: &str) -> String {
    format!("modes/{load}")
}

/// Compiles the library that does nothing, `benches/forward.c`.
pub fn forwarder(root: &Path, build: &Path) -> anyhow::Result<PathBuf> {
    let to = build.join("forward.so");
    let status = Command::new("gcc")
        .args(["-O2", "-shared", "-fPIC", "-fno-builtin", "-fno-plt", "-o"])
        .arg(&to)
        .arg(root.join("benches/forward.c"))
        .stdin(Stdio::null())
        .status()
        .context("cannot start gcc")?;
    anyhow::ensure!(status.success(), "gcc does not compile benches/forward.c");
    Ok(to)
}

/// What `count` costs over doing nothing, ns an event.
pub fn counting(load: &LoadResult) -> Option<f64> {
    load.over(Tool::Forwarder, Tool::Count)
}

/// CPU of a sample to native: the geometric mean over the programs, and the one
/// that is worst.
pub fn sampling(loads: &[LoadResult]) -> Option<(f64, &'static str)> {
    let ratios: Vec<(f64, &'static str)> = loads
        .iter()
        .filter(|load| load.kind != Kind::Own)
        .filter_map(|load| Some((load.cpu(Tool::Sample)?, load.name)))
        .collect();
    let (_, worst) = ratios.iter().copied().max_by(|(left, _), (right, _)| left.total_cmp(right))?;
    let mean = geometric_mean(&ratios.iter().map(|&(ratio, _)| ratio).collect::<Vec<_>>())?;
    Some((mean, worst))
}

/// The section of the page.
pub fn section(loads: &[LoadResult]) -> String {
    let ways = [Tool::Highwater, Tool::Count, Tool::Sample, Tool::MinSize, Tool::LiveOnly];
    let mut text = String::from("## Recording less\n\n");
    for (what, of) in [
        ("Wall to native:", LoadResult::wall as fn(&LoadResult, Tool) -> Option<f64>),
        ("CPU of everything to native:", LoadResult::cpu),
    ] {
        let mut rows = vec![row(&["load", "native s", "forwarder"])];
        rows[0].extend(ways.iter().map(|way| way.name().to_string()));
        for load in loads {
            let native = match what {
                "Wall to native:" => load.of(Tool::Native, |run| run.took.wall),
                _ => load.of(Tool::Native, |run| run.took.cpu),
            };
            let mut cells = vec![load.name.to_string(), figure(native, 2)];
            let tools = std::iter::once(Tool::Forwarder).chain(ways);
            cells.extend(tools.map(|way| match load.failures(way) {
                0 => figure(of(load, way), 2),
                failed => format!("{failed} failed"),
            }));
            rows.push(cells);
        }
        text.push_str(&format!("{what}\n\n{}\n", table(&rows)));
    }
    let mut rows = vec![row(&["load", "M events", "forwarder", "count over it", "--sample 512KiB over it"])];
    for load in loads {
        rows.push(vec![
            load.name.to_string(),
            figure(load.events().map(|events| events / 1e6), 2),
            figure(load.over(Tool::Native, Tool::Forwarder), 1),
            figure(counting(load), 1),
            figure(load.over(Tool::Forwarder, Tool::Sample), 1),
        ]);
    }
    text.push_str(&format!(
        "CPU added, ns an event: by a preloaded library that only calls the real functions, and over that one. In \
         loads of our own with a loop it is the loop's, else that of everything, recorder and start-up included.\n\n{}\n",
        table(&rows)
    ));
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::process::{CHILDREN, Took};
    use super::super::result::{Recorded, Sample};
    use super::*;

    fn load(name: &'static str, kind: Kind, cpus: &[(Tool, f64)]) -> LoadResult {
        let run = |cpu| {
            Some(Sample { took: Took { wall: cpu, cpu, rss: 1, good: true }, inner: None, recorder: None })
        };
        LoadResult {
            name,
            what: "",
            kind,
            pinned: true,
            rounds: cpus.iter().map(|&(tool, cpu)| (tool, vec![run(cpu)])).collect(),
            recorded: BTreeMap::from([(
                Tool::Highwater,
                Recorded { events: 100_000_000, ..Recorded::default() },
            )]),
            bytes: BTreeMap::new(),
            inner_events: 0,
            analysis: vec![],
        }
    }

    #[test]
    fn counting_is_set_against_the_library_that_does_nothing() {
        let cpus = [(Tool::Native, 1.0), (Tool::Forwarder, 1.25), (Tool::Count, 2.0), (Tool::Sample, 1.5)];
        let one = load("perl", Kind::Program, &cpus);
        assert!((counting(&one).unwrap() - 7.5).abs() < 1e-9);
        let text = section(&[one]);
        let last = text.lines().rfind(|line| line.contains("perl")).unwrap();
        let cells: Vec<&str> = last.split('|').map(str::trim).collect();
        assert_eq!(cells, ["", "perl", "100.00", "2.5", "7.5", "2.5", ""]);
        // Not tried is not zero.
        let ratios = text.lines().find(|line| line.contains("perl")).unwrap();
        assert!(ratios.contains("1.50") && ratios.contains(" - "), "{ratios}");
    }

    #[test]
    fn a_sample_is_judged_by_programs_alone_and_the_worst_is_named() {
        let of = |name, kind, ratio| load(name, kind, &[(Tool::Native, 1.0), (Tool::Sample, ratio)]);
        let loads = [
            of("micro-5", Kind::Own, 9.0),
            of("python3", Kind::Program, 2.0),
            of("perl", Kind::Program, 8.0),
        ];
        let (mean, worst) = sampling(&loads).unwrap();
        assert!((mean - 4.0).abs() < 1e-9, "{mean}");
        assert_eq!(worst, "perl");
        assert_eq!(sampling(&loads[..1]), None);
    }

    #[test]
    fn the_forwarder_compiles_and_programs_run_on_it() {
        let _alone = CHILDREN.lock().unwrap();
        let build = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let library = forwarder(root, build.path()).unwrap();
        let ended = Command::new("ls").arg("/").env("LD_PRELOAD", &library).output().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    }
}
