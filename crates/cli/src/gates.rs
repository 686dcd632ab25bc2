//! The gates of `run` and `check`: options, budgets in `highwater.toml`,
//! baselines.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use highwater_query::leaks::baseline::{Baseline, Tolerance};
use highwater_query::leaks::gates::{FailOn, Finding, Gate, Limits, Wanted, check};
use highwater_query::leaks::suppressions::Suppressions;
use highwater_query::{Modes, Session, SessionOptions};
use highwater_replay::Outcome;

use crate::leaks::SuppressionArgs;
use crate::{budget, trace};

/// What a recording has to keep.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Gates")]
pub struct GateArgs {
    /// Greatest size of the heap: 64MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_peak: Option<u64>,
    /// Greatest size alive at the end, without what is suppressed
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_leak: Option<u64>,
    /// Greatest number of allocations
    #[arg(long, value_name = "N")]
    max_allocs: Option<u64>,
    /// Greatest number of allocations that were freed before the thread's next
    #[arg(long, value_name = "N")]
    max_temporary: Option<u64>,
    /// What must not be: leak (=exit, definite, growth, window), double_free, invalid_free, mismatched, error, any; may be repeated
    #[arg(long, value_name = "KIND")]
    fail_on: Vec<FailOn>,
    /// Only leaks that are not in this trace, or in this file of `check --write-baseline`, count
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// How much more than a limit passes (5%, 4k); with --baseline its peak and counts are limits too
    #[arg(long, value_name = "T")]
    tolerance: Option<Tolerance>,
    /// Limits from the [budget] table of this file
    #[arg(long, value_name = "FILE")]
    budget: Option<PathBuf>,
    #[command(flatten)]
    suppressed: SuppressionArgs,
}

fn size(text: &str) -> Result<u64, String> {
    highwater_query::units::size(text).ok_or_else(|| "write a size as 4096, 64k, 1.5MiB or 2GB".to_string())
}

/// Gates, ready to be asked.
pub struct Gates {
    /// What is asked.
    pub wanted: Wanted,
    /// What does not count.
    pub rules: Suppressions,
    suppressed: SuppressionArgs,
}

impl GateArgs {
    /// Reads all files that the options name. `look` for a budget in a
    /// `highwater.toml` up the tree where no option asks for anything.
    ///
    /// # Errors
    /// One of them cannot be read or makes no sense.
    pub fn prepare(&self, look: bool) -> anyhow::Result<Gates> {
        let file = match &self.budget {
            Some(path) => Some(
                budget::read(path)?
                    .with_context(|| format!("{}: there is no table [budget] in it", path.display()))?,
            ),
            None if look && self.is_empty() => budget::find()?,
            None => None,
        };
        let file = file.unwrap_or_default();
        let mut rules = self.suppressed.rules()?;
        for path in &file.suppressions {
            rules.add_file(path)?;
        }
        let limits = Limits {
            max_peak: self.max_peak.or(file.limits.max_peak),
            max_leak: self.max_leak.or(file.limits.max_leak),
            max_allocs: self.max_allocs.or(file.limits.max_allocs),
            max_temporary: self.max_temporary.or(file.limits.max_temporary),
        };
        let mut findings: Vec<Finding> =
            self.fail_on.iter().chain(&file.fail_on).flat_map(|list| list.0.clone()).collect();
        findings.sort_unstable();
        findings.dedup();
        let baseline = match self.baseline.as_ref().or(file.baseline.as_ref()) {
            Some(path) => Some(baseline(path, &rules)?),
            None => None,
        };
        let tolerance = self.tolerance.or(file.tolerance);
        let wanted = Wanted { limits, sites: file.sites, findings, baseline, tolerance };
        Ok(Gates { wanted, rules, suppressed: self.suppressed.clone() })
    }

    fn is_empty(&self) -> bool {
        self.max_peak.is_none()
            && self.max_leak.is_none()
            && self.max_allocs.is_none()
            && self.max_temporary.is_none()
            && self.fail_on.is_empty()
            && self.baseline.is_none()
    }
}

impl Gates {
    /// Adds the rules that the recorded program brought along.
    pub fn know(&mut self, session: &Session) {
        self.suppressed.add_recorded(&mut self.rules, session);
    }

    /// Compares what the whole trace says.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn check(&self, session: &mut Session, found: &Outcome) -> anyhow::Result<Vec<Gate>> {
        self.can_be_told(&session.modes())?;
        Ok(check(session, found, &self.wanted, &self.rules)?)
    }

    /// A gate on what the recording left out would pass for no reason.
    fn can_be_told(&self, modes: &Modes) -> anyhow::Result<()> {
        let sites = self.wanted.sites.iter().map(|site| &site.limits);
        let temporary = sites.chain([&self.wanted.limits]).any(|limits| limits.max_temporary.is_some());
        if modes.sample > 0 && temporary {
            bail!(
                "max-temporary: the recording is a sample (--sample), which does not tell temporary blocks"
            );
        }
        if modes.sample > 0 && self.wanted.sites.iter().any(|site| site.limits.max_allocs.is_some()) {
            bail!(
                "max-allocs of a site: the recording is a sample (--sample), which does not tell how sure \
                 that number is"
            );
        }
        let bad_frees = self.wanted.findings.iter().any(|finding| matches!(finding, Finding::Error(_)));
        let how = match modes {
            Modes { sample: 1.., .. } => "--sample",
            Modes { live_only: true, .. } => "--live-only",
            Modes { cull_ns: 1.., .. } => "--cull",
            _ => return Ok(()),
        };
        if modes.live_only && self.wanted.findings.contains(&Finding::LeakGrowth) {
            bail!(
                "fail-on leak=growth: recorded with --live-only, which does not tell what grew and was freed"
            );
        }
        if bad_frees {
            bail!("fail-on: the recording was made with {how}, which does not tell all bad frees");
        }
        Ok(())
    }
}

/// A baseline out of a trace or of a file that `check --write-baseline` made.
///
/// # Errors
/// It cannot be read, or is neither.
pub fn baseline(path: &Path, rules: &Suppressions) -> anyhow::Result<Baseline> {
    let mut start = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read(&mut start));
    let read = read.with_context(|| format!("cannot read {}", path.display()))?;
    if Baseline::is_one(start.get(..read).unwrap_or_default()) {
        return Ok(Baseline::read(path)?);
    }
    let options = SessionOptions { symbols: trace::symbols(), ..SessionOptions::default() };
    let mut session = Session::open(path, options)?;
    let found = session.outcome()?;
    // The leaks that its program meant are no leaks, as in the other recording.
    let mut rules = rules.clone();
    rules.add_recorded(&session.facts().meta);
    Ok(Baseline::of(&mut session, &found, &rules))
}
