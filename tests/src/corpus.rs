//! The corpus of leaks: `tests/programs/leaks`. Each file holds scenarios; in
//! those that leak, the line that does bears `LEAK: scenario`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

use crate::programs::Program;

/// The files, and whether their scenarios leak.
const FILES: [(&str, bool); 4] = [
    ("leaks/leaky.c", true),
    ("leaks/leaky_cpp.cpp", true),
    ("leaks/clean.c", false),
    ("leaks/clean_cpp.cpp", false),
];

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name: the argument of the program.
    pub name: String,
    /// The compiled program.
    pub program: PathBuf,
    /// Name of the source file.
    pub file: String,
    /// Lines that leak; none in a clean scenario.
    pub lines: BTreeSet<u64>,
}

impl Scenario {
    /// Does it leak?
    pub fn leaks(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Is this suspect the culprit?
    pub fn is(&self, suspect: &Value) -> bool {
        let file = suspect["file"].as_str().unwrap_or_default();
        Path::new(file).file_name().is_some_and(|name| *name == *self.file)
            && suspect["line"].as_u64().is_some_and(|line| self.lines.contains(&line))
    }

    /// Place of the culprit among the suspects, from 1.
    pub fn place(&self, suspects: &[Value]) -> Option<usize> {
        suspects.iter().position(|suspect| self.is(suspect)).map(|at| at + 1)
    }
}

/// All scenarios. The files are compiled at the same time, once a test program:
/// its tests ask for them all at once.
///
/// # Panics
/// A scenario of a leaky file has no line, or the other way round.
pub fn scenarios() -> &'static [Scenario] {
    static ALL: OnceLock<Vec<Scenario>> = OnceLock::new();
    ALL.get_or_init(|| {
        std::thread::scope(|scope| {
            let files = FILES.map(|(file, leaks)| scope.spawn(move || of_file(file, leaks)));
            files.into_iter().flat_map(|file| file.join().expect("a file of the corpus compiles")).collect()
        })
    })
}

fn of_file(file: &'static str, leaks: bool) -> Vec<Scenario> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(file);
    let text = std::fs::read_to_string(&path).expect("the corpus is there");
    let mut lines: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    let mut names = Vec::new();
    for (number, line) in (1u64..).zip(text.lines()) {
        if let Some((_, mark)) = line.split_once("LEAK: ") {
            let name = mark.split_whitespace().next().expect("a name behind LEAK:");
            lines.entry(name).or_default().insert(number);
        }
        if let Some(name) = line.strip_prefix("    {\"").and_then(|rest| rest.split('"').next()) {
            names.push(name.to_string());
        }
    }
    let program = Program::new(file).build();
    let file = path.file_name().and_then(|name| name.to_str()).expect("a name").to_string();
    names
        .into_iter()
        .map(|name| {
            let lines = lines.get(name.as_str()).cloned().unwrap_or_default();
            assert_eq!(leaks, !lines.is_empty(), "{file}: {name}");
            Scenario { name, program: program.clone(), file: file.clone(), lines }
        })
        .collect()
}

/// How well a method did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Leaky scenarios.
    pub leaky: usize,
    /// Whose culprit was reported.
    pub found: usize,
    /// In first place.
    pub first: usize,
    /// Sum of one over the place.
    pub reciprocal: f64,
    /// Reports in leaky scenarios that are not the culprit.
    pub beside: usize,
    /// Clean scenarios.
    pub clean: usize,
    /// With any report.
    pub flagged: usize,
    /// Reports in clean scenarios.
    pub reports: usize,
}

impl Score {
    /// Counts what was reported of a scenario.
    pub fn add(&mut self, scenario: &Scenario, suspects: &[Value]) {
        if !scenario.leaks() {
            self.clean += 1;
            self.flagged += usize::from(!suspects.is_empty());
            self.reports += suspects.len();
            return;
        }
        self.leaky += 1;
        self.beside += suspects.iter().filter(|suspect| !scenario.is(suspect)).count();
        if let Some(place) = scenario.place(suspects) {
            self.found += 1;
            self.first += usize::from(place == 1);
            self.reciprocal += 1.0 / place as f64;
        }
    }

    /// The part of the leaks that was found.
    pub fn recall(&self) -> f64 {
        self.found as f64 / self.leaky.max(1) as f64
    }

    /// The part of the flagged scenarios that leak where it was said.
    pub fn precision(&self) -> f64 {
        self.found as f64 / (self.found + self.flagged).max(1) as f64
    }

    /// Mean reciprocal rank.
    pub fn mrr(&self) -> f64 {
        self.reciprocal / self.leaky.max(1) as f64
    }

    /// A row of the table in docs/leaks.md.
    pub fn row(&self, name: &str) -> String {
        format!(
            "| {name} | {} of {} | {} | {:.3} | {:.2} | {:.2} | {} of {} |",
            self.found,
            self.leaky,
            self.first,
            self.mrr(),
            self.precision(),
            self.recall(),
            self.flagged,
            self.clean
        )
    }
}
