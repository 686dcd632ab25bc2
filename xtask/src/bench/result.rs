//! What was measured, and the medians over it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::process::Took;
use super::tools::Tool;
use super::workloads::{IN_THE_MEAN, Kind};

/// One run of one tool.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Wall, CPU, memory.
    pub took: Took,
    /// CPU of the loop as the program itself measured it, s.
    pub inner: Option<f64>,
    /// CPU of the recorder as it says itself, s; ours only.
    pub recorder: Option<f64>,
}

/// What highwater recorded of a load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorded {
    /// Heap operations.
    pub events: u64,
    /// Stacks with and without a cut.
    pub complete: u64,
    /// Stacks that were cut short.
    pub truncated: u64,
    /// Stack nodes of the agent.
    pub nodes: u64,
    /// Threads.
    pub threads: u64,
}

/// Time to look at a recording, s.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// `highwater stats`, or `heaptrack_interpret`, …
    pub step: &'static str,
    /// Wall, s, median.
    pub wall: f64,
    /// CPU, s, median.
    pub cpu: f64,
    /// Peak resident set, bytes.
    pub rss: u64,
}

/// All rounds of one load.
#[derive(Clone, Debug)]
pub struct LoadResult {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Pinned to one CPU?
    pub pinned: bool,
    /// One entry a round; `None` where the run failed.
    pub rounds: BTreeMap<Tool, Vec<Option<Sample>>>,
    /// By `highwater` and by `highwater --no-free-stacks`.
    pub recorded: BTreeMap<Tool, Recorded>,
    /// Bytes of what each tool wrote.
    pub bytes: BTreeMap<Tool, u64>,
    /// Events of the measured loop as the program says; 0 where it cannot know.
    pub inner_events: u64,
    /// Time to look at the recordings.
    pub analysis: Vec<Analysis>,
}

/// The middle value; of an even number the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (Some(&upper), 1) => Some(upper),
        (Some(&upper), _) => values.get(middle.wrapping_sub(1)).map(|&lower| f64::midpoint(lower, upper)),
        (None, _) => None,
    }
}

/// The geometric mean; `None` of nothing.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty())
        .then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

impl LoadResult {
    /// The median of a figure over the rounds of a tool.
    pub fn of(&self, tool: Tool, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        median(self.rounds.get(&tool)?.iter().flatten().map(figure).collect())
    }

    /// The median over the rounds of a figure made from a run and the native run of the same round.
    pub fn paired(&self, tool: Tool, figure: impl Fn(&Sample, &Sample) -> Option<f64>) -> Option<f64> {
        self.against(Tool::Native, tool, figure)
    }

    /// The same with the runs of another tool in place of the native ones.
    fn against(
        &self,
        base: Tool,
        tool: Tool,
        figure: impl Fn(&Sample, &Sample) -> Option<f64>,
    ) -> Option<f64> {
        let pairs = self.rounds.get(&base)?.iter().zip(self.rounds.get(&tool)?);
        median(pairs.filter_map(|(base, other)| figure(base.as_ref()?, other.as_ref()?)).collect())
    }

    /// CPU over that of another tool, ns an event: in the measured loop where there
    /// is one, else of everything.
    pub fn over(&self, base: Tool, tool: Tool) -> Option<f64> {
        if self.inner_events > 0 {
            let events = self.inner_events as f64;
            return self.against(base, tool, |base, run| Some((run.inner? - base.inner?) / events * 1e9));
        }
        let events = self.events()?;
        self.against(base, tool, |base, run| Some((run.took.cpu - base.took.cpu) / events * 1e9))
    }

    /// Wall to native.
    pub fn wall(&self, tool: Tool) -> Option<f64> {
        self.paired(tool, |native, run| Some(run.took.wall / native.took.wall))
    }

    /// CPU of everything to native.
    pub fn cpu(&self, tool: Tool) -> Option<f64> {
        self.paired(tool, |native, run| Some(run.took.cpu / native.took.cpu))
    }

    /// Largest resident set to native.
    pub fn rss(&self, tool: Tool) -> Option<f64> {
        self.paired(tool, |native, run| Some(run.took.rss as f64 / native.took.rss as f64))
    }

    /// Did it fail in a round, or in all? Nothing when it was not tried.
    pub fn failures(&self, tool: Tool) -> usize {
        self.rounds.get(&tool).map_or(0, |rounds| rounds.iter().filter(|run| run.is_none()).count())
    }

    /// Heap operations; those with stacks for frees, when both were recorded.
    pub fn events(&self) -> Option<f64> {
        self.recorded.values().next().map(|recorded| recorded.events as f64).filter(|&events| events > 0.0)
    }

    /// CPU of everything over native, ns an event.
    pub fn added(&self, tool: Tool) -> Option<f64> {
        let events = self.events()?;
        self.paired(tool, |native, run| Some((run.took.cpu - native.took.cpu) / events * 1e9))
    }

    /// CPU over native in the program alone, ns an event; ours only.
    pub fn target(&self, tool: Tool) -> Option<f64> {
        let events = self.events()?;
        self.paired(tool, |native, run| Some((run.took.cpu - run.recorder? - native.took.cpu) / events * 1e9))
    }

    /// CPU of the recorder, ns an event; ours only.
    pub fn recorder(&self, tool: Tool) -> Option<f64> {
        let events = self.events()?;
        self.paired(tool, |_, run| Some(run.recorder? / events * 1e9))
    }

    /// CPU over native in the measured loop, ns an event of that loop.
    pub fn steady(&self, tool: Tool) -> Option<f64> {
        if self.inner_events == 0 {
            return None;
        }
        self.paired(tool, |native, run| Some((run.inner? - native.inner?) / self.inner_events as f64 * 1e9))
    }

    /// CPU of the measured loop, ns an event of that loop.
    pub fn loop_cost(&self, tool: Tool) -> Option<f64> {
        if self.inner_events == 0 {
            return None;
        }
        let events = self.inner_events as f64;
        self.paired(tool, |_, run| Some(run.inner? / events * 1e9))
    }

    /// Bytes of its output, an event.
    pub fn bytes_an_event(&self, tool: Tool) -> Option<f64> {
        Some(*self.bytes.get(&tool)? as f64 / self.events()?)
    }

    /// Share of stacks that reach the outermost frame, percent.
    pub fn complete(&self, tool: Tool) -> Option<f64> {
        let recorded = self.recorded.get(&tool)?;
        let all = recorded.complete + recorded.truncated;
        (all > 0).then(|| recorded.complete as f64 / all as f64 * 100.0)
    }
}

/// Geometric mean of a ratio over the programs of the targets, and how many of them it is over.
pub fn mean_over(loads: &[LoadResult], ratio: impl Fn(&LoadResult) -> Option<f64>) -> (Option<f64>, usize) {
    let values: Vec<f64> =
        loads.iter().filter(|load| IN_THE_MEAN.contains(&load.name)).filter_map(ratio).collect();
    (geometric_mean(&values), values.len())
}

/// The figures behind the page, run by run.
pub fn json(loads: &[LoadResult]) -> Value {
    let load = |load: &LoadResult| {
        let runs: serde_json::Map<String, Value> = load
            .rounds
            .iter()
            .map(|(tool, rounds)| {
                let rounds: Vec<Value> = rounds
                    .iter()
                    .map(|run| match run {
                        Some(run) => json!({"wall": run.took.wall, "cpu": run.took.cpu, "rss": run.took.rss,
                            "loop": run.inner, "recorder": run.recorder}),
                        None => Value::Null,
                    })
                    .collect();
                (tool.name().to_string(), Value::Array(rounds))
            })
            .collect();
        let recorded = load.recorded.iter().map(|(tool, seen)| {
            (
                tool.name().to_string(),
                json!({"events": seen.events, "complete": seen.complete,
                "truncated": seen.truncated, "nodes": seen.nodes, "threads": seen.threads}),
            )
        });
        let bytes = load.bytes.iter().map(|(tool, bytes)| (tool.name().to_string(), json!(bytes)));
        json!({"name": load.name, "pinned": load.pinned, "runs": runs,
            "recorded": recorded.collect::<serde_json::Map<_, _>>(),
            "bytes": bytes.collect::<serde_json::Map<_, _>>(),
            "loop_events": load.inner_events,
            "analysis": load.analysis.iter().map(|step| json!({"step": step.step, "wall": step.wall,
                "cpu": step.cpu, "rss": step.rss})).collect::<Vec<_>>()})
    };
    Value::Array(loads.iter().map(load).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_means() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
        assert_eq!(geometric_mean(&[]), None);
        assert!((geometric_mean(&[2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
    }

    fn sample(cpu: f64, recorder: Option<f64>) -> Option<Sample> {
        Some(Sample { took: Took { wall: cpu, cpu, rss: 1000, good: true }, inner: None, recorder })
    }

    #[test]
    fn costs_are_taken_pair_by_pair() {
        let mut load = LoadResult {
            name: "jq",
            what: "",
            kind: Kind::Program,
            pinned: true,
            rounds: BTreeMap::new(),
            recorded: BTreeMap::from([(
                Tool::Highwater,
                Recorded { events: 1_000_000_000, ..Recorded::default() },
            )]),
            bytes: BTreeMap::from([(Tool::Highwater, 2_000_000_000)]),
            inner_events: 0,
            analysis: vec![],
        };
        load.rounds.insert(Tool::Native, vec![sample(1.0, None), sample(2.0, None), sample(1.0, None)]);
        // The second pair was taken on a slow machine, the third run failed.
        load.rounds.insert(Tool::Highwater, vec![sample(2.0, Some(0.25)), sample(3.0, Some(0.25)), None]);
        assert_eq!(load.added(Tool::Highwater), Some(1.0));
        assert_eq!(load.target(Tool::Highwater), Some(0.75));
        assert_eq!(load.recorder(Tool::Highwater), Some(0.25));
        assert_eq!(load.bytes_an_event(Tool::Highwater), Some(2.0));
        assert_eq!((load.failures(Tool::Highwater), load.failures(Tool::Dhat)), (1, 0));
        // Over another tool: the loop's CPU where there is one, else everybody's.
        load.rounds.insert(Tool::Count, vec![sample(4.0, None), sample(4.0, None), None]);
        assert_eq!(load.over(Tool::Highwater, Tool::Count), Some(1.5));
        let inner = |cpu| Some(Sample { inner: Some(cpu), ..sample(9.0, None).unwrap() });
        let mut looped = load.clone();
        looped.inner_events = 1_000_000_000;
        looped.rounds.insert(Tool::Forwarder, vec![inner(1.0)]);
        looped.rounds.insert(Tool::Count, vec![inner(4.0)]);
        assert_eq!(looped.over(Tool::Forwarder, Tool::Count), Some(3.0));
        let (mean, over) = mean_over(&[load], |load| load.cpu(Tool::Highwater));
        assert!((mean.unwrap() - 1.75).abs() < 1e-9 && over == 1);
    }
}
