//! Baselines: what is known of an earlier recording, so that only what is new
//! fails.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use highwater_replay::Outcome;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use super::fingerprint;
use super::suppressions::Suppressions;
use crate::session::Session;
use crate::stack::function_name;
use crate::summary::Stats;

/// The name of the document.
pub const SCHEMA: &str = "highwater.baseline/1";

/// Why a baseline cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no baseline.
    #[error("{} is neither a trace nor a baseline: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// What an earlier recording had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// [`SCHEMA`]
    pub schema: String,
    /// Bytes alive at once.
    pub peak_bytes: u64,
    /// Allocations.
    pub allocations: u64,
    /// Allocations that their thread freed before it made another.
    pub temporary: u64,
    /// What was alive at the end and not suppressed, by fingerprint.
    pub leaks: Vec<Known>,
}

/// A leak that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Its [fingerprint](super::fingerprint).
    pub fingerprint: String,
    /// The function to blame, for people.
    pub function: String,
    /// Its file, for people.
    #[serde(default)]
    pub file: Option<String>,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

impl Baseline {
    /// What a recording has. `rules` are those of the comparison to come.
    pub fn of(session: &mut Session, found: &Outcome, rules: &Suppressions) -> Baseline {
        // With the exact counts, where the target's threads made some.
        let totals = Stats::collect(session, found).totals;
        let mut leaks: BTreeMap<String, Known> = BTreeMap::new();
        for site in found.sites().iter().filter(|site| site.live_blocks > 0) {
            let stack = session.stack(site.node);
            if rules.rule(&stack).is_some() {
                continue;
            }
            let fingerprint = fingerprint::of(&stack);
            let known = leaks.entry(fingerprint.clone()).or_insert_with(|| Known {
                fingerprint,
                function: stack.site().map_or_else(|| "[no stack]".to_string(), function_name),
                file: stack.site().and_then(|frame| frame.file.as_deref()).map(str::to_string),
                ..Known::default()
            });
            known.bytes = known.bytes.saturating_add(site.live_bytes);
            known.blocks += site.live_blocks;
        }
        let mut leaks: Vec<Known> = leaks.into_values().collect();
        leaks.sort_by(|a, b| (&a.function, &a.fingerprint).cmp(&(&b.function, &b.fingerprint)));
        Baseline {
            schema: SCHEMA.to_string(),
            peak_bytes: totals.peak_bytes,
            allocations: totals.allocations,
            temporary: totals.temporary,
            leaks,
        }
    }

    /// Does a file begin like a baseline (and not like a trace)?
    pub fn is_one(start: &[u8]) -> bool {
        start.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
    }

    /// Reads a file that [`Baseline::to_text`] made.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub fn read(path: &Path) -> Result<Baseline, BaselineError> {
        let bytes =
            std::fs::read(path).map_err(|source| BaselineError::Read { path: path.to_path_buf(), source })?;
        let bad = |reason: String| BaselineError::Syntax { path: path.to_path_buf(), reason };
        let baseline: Baseline = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if baseline.schema != SCHEMA {
            return Err(bad(format!("its schema is `{}`", baseline.schema)));
        }
        Ok(baseline)
    }

    /// The file: sorted and a key a line, fit for version control.
    pub fn to_text(&self) -> String {
        // Strings and numbers: there is nothing that could fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The fingerprints that are known; with a tolerance only those that have
    /// not grown by more since.
    pub fn known(&self, now: &Baseline, tolerance: Option<Tolerance>) -> FxHashSet<String> {
        let grown = |known: &Known| {
            let limit = tolerance.map_or(u64::MAX, |tolerance| tolerance.widen(known.bytes));
            now.leaks.iter().any(|leak| leak.fingerprint == known.fingerprint && leak.bytes > limit)
        };
        self.leaks.iter().filter(|known| !grown(known)).map(|known| known.fingerprint.clone()).collect()
    }
}

/// How much more than a limit passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Per cent of the limit.
    Percent(f64),
    /// An amount.
    Amount(u64),
}

impl Tolerance {
    /// The limit with the tolerance on top.
    pub fn widen(self, limit: u64) -> u64 {
        match self {
            // A per cent of a count of bytes: to the byte is close enough.
            Tolerance::Percent(percent) => limit.saturating_add((limit as f64 * percent / 100.0) as u64),
            Tolerance::Amount(amount) => limit.saturating_add(amount),
        }
    }
}

impl FromStr for Tolerance {
    type Err = String;

    /// Reads `5%`, `4k`, `100`.
    fn from_str(text: &str) -> Result<Tolerance, String> {
        let bad = || format!("`{text}` is no tolerance: write 5%, 4k or 100");
        match text.trim().strip_suffix('%') {
            Some(percent) => {
                let percent: f64 = percent.trim().parse().map_err(|_| bad())?;
                if (0.0..=1e6).contains(&percent) { Ok(Tolerance::Percent(percent)) } else { Err(bad()) }
            }
            None => crate::units::size(text).map(Tolerance::Amount).ok_or_else(bad),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    fn session(sizes: &[(u32, u64)]) -> Session {
        let mut made = Made::default()
            .node(1, 0, "main", "/src/main.c", 3)
            .node(2, 1, "parse", "/src/parse.c", 70)
            .node(3, 1, "scan", "/src/scan.c", 7);
        for (at, (node, size)) in sizes.iter().enumerate() {
            made = made.alloc(0, 0x1000 + 0x100 * at as u64, *size, *node);
        }
        made.session()
    }

    fn baseline(sizes: &[(u32, u64)]) -> Baseline {
        let mut session = session(sizes);
        let found = session.outcome().unwrap();
        Baseline::of(&mut session, &found, &Suppressions::default())
    }

    #[test]
    fn what_is_written_is_read() {
        let one = baseline(&[(2, 100), (3, 7), (2, 1)]);
        assert_eq!(one.leaks.len(), 2);
        assert_eq!(
            (one.leaks[0].function.as_str(), one.leaks[0].bytes, one.leaks[0].blocks),
            ("parse", 101, 2)
        );
        assert_eq!(one.peak_bytes, 108);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), one.to_text()).unwrap();
        assert_eq!(Baseline::read(file.path()).unwrap(), one);
        assert!(Baseline::is_one(one.to_text().as_bytes()) && !Baseline::is_one(b"HWTRACE"));
        for (text, reason) in [("{", "EOF"), ("{\"schema\":\"x\"}", "missing field"), ("[]", "invalid")] {
            std::fs::write(file.path(), text).unwrap();
            let error = Baseline::read(file.path()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_known_leak_is_known_until_it_has_grown_too_much() {
        let old = baseline(&[(2, 100)]);
        let now = baseline(&[(2, 106), (3, 1)]);
        assert_eq!(old.known(&now, None).len(), 1);
        assert_eq!(old.known(&now, Some(Tolerance::Percent(6.0))).len(), 1);
        assert_eq!(old.known(&now, Some(Tolerance::Percent(5.0))).len(), 0);
        assert_eq!(old.known(&now, Some(Tolerance::Amount(6))).len(), 1);
        assert_eq!(old.known(&now, Some(Tolerance::Amount(5))).len(), 0);
    }

    #[test]
    fn tolerances_are_read() {
        assert_eq!("5%".parse(), Ok(Tolerance::Percent(5.0)));
        assert_eq!("0.5 %".parse(), Ok(Tolerance::Percent(0.5)));
        assert_eq!("4k".parse(), Ok(Tolerance::Amount(4096)));
        for text in ["", "%", "-1%", "nan%", "many"] {
            assert!(text.parse::<Tolerance>().is_err(), "{text}");
        }
        assert_eq!(Tolerance::Percent(5.0).widen(1000), 1050);
        assert_eq!(Tolerance::Percent(1e6).widen(u64::MAX), u64::MAX);
    }
}
