//! Limits that a recording must keep, and what must not be in it at all.

use std::str::FromStr;

use highwater_event::node::NodeId;
use highwater_replay::sampling::{count_error95, error95};
use highwater_replay::{ErrorKind, Outcome, SiteTotals};

use super::baseline::{Baseline, Tolerance};
use super::budget::{SiteBudget, Taken};
use super::evidence::{Evidence, Slicing};
use super::reach::{self, Class, Scanned};
use super::suppressions::Suppressions;
use super::{actions, rank, report, window};
use crate::group::{By, Group, Item, group};
use crate::session::{QueryError, Session};
use crate::summary::Stats;

/// Sites that a gate names.
const MOST_SITES: usize = 10;

/// The limits; what is `None` is not asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes alive at once.
    pub max_peak: Option<u64>,
    /// Bytes alive at the end that are not suppressed.
    pub max_leak: Option<u64>,
    /// Allocations.
    pub max_allocs: Option<u64>,
    /// Allocations that their thread freed before it made another.
    pub max_temporary: Option<u64>,
}

impl Limits {
    /// Is nothing asked?
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}

/// What a recording must not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// Blocks alive at the end.
    LeakExit,
    /// Blocks that nothing points to (needs a scan).
    LeakDefinite,
    /// Sites that grow.
    LeakGrowth,
    /// Sites of which something survives every action (needs marks).
    LeakWindow,
    /// Bad frees.
    Error(ErrorKind),
}

impl Finding {
    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Finding::LeakExit => "leak=exit",
            Finding::LeakDefinite => "leak=definite",
            Finding::LeakGrowth => "leak=growth",
            Finding::LeakWindow => "leak=window",
            Finding::Error(kind) => kind.name(),
        }
    }
}

const ERRORS: [Finding; 3] = [
    Finding::Error(ErrorKind::DoubleFree),
    Finding::Error(ErrorKind::InvalidFree),
    Finding::Error(ErrorKind::Mismatched),
];

/// A word of `--fail-on`: one finding or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailOn(pub Vec<Finding>);

impl FromStr for FailOn {
    type Err = String;

    fn from_str(text: &str) -> Result<FailOn, String> {
        let mut list = Vec::new();
        for word in text.split(',').map(str::trim) {
            match word {
                "leak" | "leak=exit" => list.push(Finding::LeakExit),
                "leak=definite" => list.push(Finding::LeakDefinite),
                "leak=growth" => list.push(Finding::LeakGrowth),
                "leak=window" => list.push(Finding::LeakWindow),
                "error" | "errors" => list.extend(ERRORS),
                "any" => list.extend(std::iter::once(Finding::LeakExit).chain(ERRORS)),
                other => match ERRORS.iter().find(|error| error.name() == other) {
                    Some(error) => list.push(*error),
                    None => {
                        return Err(format!(
                            "`{word}` is nothing to fail on: there are leak, leak=exit, leak=definite, \
                             leak=growth, leak=window, double_free, invalid_free, mismatched, error and any"
                        ));
                    }
                },
            }
        }
        Ok(FailOn(list))
    }
}

/// All that is asked of a recording.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Limits of the whole program.
    pub limits: Limits,
    /// Limits of single sites.
    pub sites: Vec<SiteBudget>,
    /// What must not be there.
    pub findings: Vec<Finding>,
    /// What is known: its leaks do not count, and with a tolerance its totals
    /// are limits.
    pub baseline: Option<Baseline>,
    /// How much more than a limit passes.
    pub tolerance: Option<Tolerance>,
}

impl Wanted {
    /// Is nothing asked?
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty() && self.sites.is_empty() && self.findings.is_empty() && self.baseline.is_none()
    }
}

/// A limit and what came of it.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Its name: that of the option, without the dashes.
    pub name: &'static str,
    /// Whose, if not the whole program's.
    pub of: Option<String>,
    /// Greatest value that passes.
    pub limit: u64,
    /// The value.
    pub value: u64,
    /// Half the width of the interval around `value` that holds the truth with
    /// 95 % probability, where it is an estimate from a sample; 0 where it is exact.
    pub error95: u64,
    /// Are they bytes (else a count)?
    pub bytes: bool,
    /// Who has most of it, first; a few. Empty where nobody has any.
    pub sites: Vec<Group>,
    /// Why the value is not known: the gate has failed.
    pub unknown: Option<String>,
}

impl Gate {
    /// Was the limit kept?
    pub fn passed(&self) -> bool {
        self.unknown.is_none() && self.value <= self.limit
    }
}

/// Compares a recording with what is wanted. `found` is the whole trace's
/// outcome.
///
/// # Errors
/// The trace cannot be read.
pub fn check(
    session: &mut Session,
    found: &Outcome,
    wanted: &Wanted,
    rules: &Suppressions,
) -> Result<Vec<Gate>, QueryError> {
    let mut rules = rules.clone();
    let mut check = Check { session, found, tolerance: wanted.tolerance, gates: Vec::new() };
    if let Some(baseline) = &wanted.baseline {
        let now = Baseline::of(check.session, found, &rules);
        rules.add_known(baseline.known(&now, wanted.tolerance));
    }
    check.limits(&wanted.limits, &rules);
    if let Some(baseline) = &wanted.baseline {
        check.baseline(baseline, &rules);
    }
    for finding in &wanted.findings {
        check.finding(*finding, &rules)?;
    }
    for budget in &wanted.sites {
        check.site(budget, &rules);
    }
    Ok(check.gates)
}

struct Check<'a> {
    session: &'a mut Session,
    found: &'a Outcome,
    tolerance: Option<Tolerance>,
    gates: Vec<Gate>,
}

impl Check<'_> {
    fn gate(&mut self, name: &'static str, limit: Option<u64>, value: u64, bytes: bool, items: Vec<Item>) {
        let Some(limit) = limit else { return };
        let limit = self.tolerance.map_or(limit, |tolerance| tolerance.widen(limit));
        let sites = self.sites(items);
        let error95 = 0;
        self.gates.push(Gate { name, of: None, limit, value, error95, bytes, sites, unknown: None });
    }

    fn sites(&mut self, items: Vec<Item>) -> Vec<Group> {
        let mut groups = group(self.session, items, By::Site);
        groups.truncate(MOST_SITES);
        groups
    }

    /// What each stack has, with `value` in place of bytes or blocks.
    fn counted(&self, value: impl Fn(&SiteTotals) -> u64) -> Vec<Item> {
        self.found
            .sites()
            .iter()
            .map(|site| Item { bytes: 0, blocks: value(site), ..Item::live(site) })
            .collect()
    }

    fn peak(&self) -> Vec<Item> {
        self.found.sites().iter().map(Item::at_peak).collect()
    }

    fn limits(&mut self, limits: &Limits, rules: &Suppressions) {
        // With the exact counts, where the target's threads made some.
        let totals = Stats::collect(self.session, self.found).totals;
        if limits.max_peak.is_some() {
            let items = self.peak();
            self.gate("max-peak", limits.max_peak, totals.peak_bytes, true, items);
            self.give_or_take("max-peak", error95(totals.sampled.peak_variance));
        }
        if limits.max_leak.is_some() {
            let leaks = report::by_site(self.session, self.found, rules);
            self.gate("max-leak", limits.max_leak, leaks.bytes(), true, Vec::new());
            self.name(leaks.groups);
        }
        if limits.max_allocs.is_some() {
            let items = self.counted(|site| site.allocations);
            self.gate("max-allocs", limits.max_allocs, totals.allocations, false, items);
            let error = self.allocations_error();
            self.give_or_take("max-allocs", error);
        }
        if limits.max_temporary.is_some() {
            let items = self.counted(|site| site.temporary);
            self.gate("max-temporary", limits.max_temporary, totals.temporary, false, items);
        }
    }

    /// How sure the latest gate's value is, if there is one of this name.
    fn give_or_take(&mut self, name: &str, error95: u64) {
        if let Some(gate) = self.gates.last_mut().filter(|gate| gate.name == name) {
            gate.error95 = error95;
        }
    }

    /// The latest gate's sites, and how sure their sum is.
    fn name(&mut self, mut groups: Vec<Group>) {
        let error95 = bytes_error(&groups);
        groups.truncate(MOST_SITES);
        if let Some(gate) = self.gates.last_mut() {
            gate.sites = groups;
            gate.error95 = error95;
        }
    }

    /// `rules` hide what is known.
    fn baseline(&mut self, baseline: &Baseline, rules: &Suppressions) {
        let leaks = report::by_site(self.session, self.found, rules);
        let value = leaks.bytes();
        self.gates.push(Gate {
            name: "baseline",
            of: None,
            limit: 0,
            value,
            error95: 0,
            bytes: true,
            sites: Vec::new(),
            unknown: None,
        });
        self.name(leaks.groups);
        if self.tolerance.is_some() {
            let totals = Stats::collect(self.session, self.found).totals;
            let items = self.peak();
            self.gate("baseline-peak", Some(baseline.peak_bytes), totals.peak_bytes, true, items);
            self.give_or_take("baseline-peak", error95(totals.sampled.peak_variance));
            let items = self.counted(|site| site.allocations);
            self.gate("baseline-allocs", Some(baseline.allocations), totals.allocations, false, items);
            let error = self.allocations_error();
            self.give_or_take("baseline-allocs", error);
            // A sample does not tell temporary blocks: there is nothing to compare.
            if totals.sampled.rate == 0 {
                let items = self.counted(|site| site.temporary);
                self.gate("baseline-temporary", Some(baseline.temporary), totals.temporary, false, items);
            }
        }
    }

    /// How sure the number of allocations is: exact where it was counted.
    fn allocations_error(&self) -> u64 {
        match self.session.modes().counted {
            Some(_) => 0,
            None => count_error95(self.found.totals().sampled.blocks_variance),
        }
    }

    fn finding(&mut self, finding: Finding, rules: &Suppressions) -> Result<(), QueryError> {
        let gate = |value, bytes, sites, unknown| Gate {
            name: finding.name(),
            of: None,
            limit: 0,
            value,
            error95: 0,
            bytes,
            sites,
            unknown,
        };
        let gate = match finding {
            Finding::LeakExit => {
                let leaks = report::by_site(self.session, self.found, rules);
                leaked(finding, leaks.groups)
            }
            Finding::LeakDefinite => match reach::of(self.session)? {
                Scanned::Not(reason) => gate(0, true, Vec::new(), Some(format!("not scanned: {reason}"))),
                Scanned::Done(scan) => {
                    let lost = reach::lost(self.session, &scan, rules);
                    let class = |class| lost.class(class);
                    let (definite, indirect) = (class(Class::Definite), class(Class::Indirect));
                    let items = lost
                        .sites
                        .iter()
                        .map(|site| {
                            let amount = site.classes[Class::Definite as usize];
                            item(site.node, amount.bytes, amount.blocks)
                        })
                        .collect();
                    let sites = self.sites(items);
                    let bytes = definite.bytes.saturating_add(indirect.bytes);
                    if bytes == 0 {
                        gate(definite.blocks + indirect.blocks, false, sites, None)
                    } else {
                        gate(bytes, true, sites, None)
                    }
                }
            },
            Finding::LeakGrowth => match self.growth(rules)? {
                Ok(sites) => leaked(finding, sites),
                Err(reason) => gate(0, true, Vec::new(), Some(reason)),
            },
            Finding::LeakWindow => {
                let marks = self.session.facts().marks.clone();
                match window::series(&marks) {
                    None => gate(0, true, Vec::new(), Some("no marks that name equal actions".to_string())),
                    Some(series) => {
                        let windows = window::of_series(&marks, &series);
                        let found = actions::find(self.session, windows, By::Site, rules)?;
                        leaked(finding, found.groups())
                    }
                }
            }
            Finding::Error(kind) => {
                let errors = self.found.errors().iter().filter(|error| error.kind == kind);
                let items: Vec<Item> = errors.map(|error| item(error.free.node, 0, 1)).collect();
                let totals = self.found.totals();
                let value = match kind {
                    ErrorKind::DoubleFree => totals.double_free,
                    ErrorKind::InvalidFree => totals.invalid_free,
                    ErrorKind::Mismatched => totals.mismatched,
                };
                let sites = self.sites(items);
                gate(value, false, sites, None)
            }
        };
        self.gates.push(gate);
        self.gates.last_mut().into_iter().for_each(|gate| gate.sites.truncate(MOST_SITES));
        Ok(())
    }

    /// The sites that grow, or why that cannot be told.
    fn growth(&mut self, rules: &Suppressions) -> Result<Result<Vec<Group>, String>, QueryError> {
        let evidence = Evidence::collect(self.session, Slicing::Events)?;
        let options = rank::Options { method: rank::Method::Growth, ..rank::Options::default() };
        let ranking = rank::rank(self.session, &evidence, &rank::Findings::default(), rules, &options);
        let grows =
            |suspect: &rank::Suspect| matches!(suspect.verdict, rank::Verdict::Leak | rank::Verdict::Growth);
        let sites: Vec<Group> =
            ranking.suspects.into_iter().filter(grows).map(|suspect| suspect.group).collect();
        // Where nothing is left there is nothing that could have grown.
        let mut left = || !report::by_site(self.session, self.found, rules).groups.is_empty();
        match ranking.missing.into_iter().next() {
            Some(reason) if sites.is_empty() && left() => Ok(Err(reason)),
            _ => Ok(Ok(sites)),
        }
    }

    fn site(&mut self, budget: &SiteBudget, rules: &Suppressions) {
        let mut taken = Taken::default();
        let found = self.found;
        let mut fitting = Vec::new();
        for site in found.sites() {
            let stack = self.session.stack(site.node);
            if budget.whose.fits(&stack) {
                taken.add(site, rules.rule(&stack).is_some());
                fitting.push(site);
            }
        }
        let items = |item: &dyn Fn(&SiteTotals) -> Item| fitting.iter().map(|site| item(site)).collect();
        let counted = |site: &SiteTotals, blocks| Item { bytes: 0, blocks, ..Item::live(site) };
        let first = self.gates.len();
        let limits = &budget.limits;
        self.gate("max-peak", limits.max_peak, taken.peak, true, items(&Item::at_peak));
        if limits.max_peak.is_some() {
            self.give_or_take("max-peak", error95(taken.peak_variance));
        }
        self.gate("max-leak", limits.max_leak, taken.leak, true, items(&Item::live));
        if limits.max_leak.is_some() {
            self.give_or_take("max-leak", error95(taken.leak_variance));
        }
        self.gate(
            "max-allocs",
            limits.max_allocs,
            taken.allocs,
            false,
            items(&|s| counted(s, s.allocations)),
        );
        self.gate(
            "max-temporary",
            limits.max_temporary,
            taken.temporary,
            false,
            items(&|s| counted(s, s.temporary)),
        );
        for gate in self.gates.iter_mut().skip(first) {
            gate.of = Some(budget.whose.text());
        }
    }
}

/// The gate of leaks, none of which may be: their bytes, or where they have none
/// their number.
fn leaked(finding: Finding, sites: Vec<Group>) -> Gate {
    let bytes: u64 = sites.iter().map(|group| group.bytes).sum();
    let blocks = sites.iter().map(|group| group.blocks).sum();
    let (value, bytes) = if bytes == 0 { (blocks, false) } else { (bytes, true) };
    // Their number has no error of its own: it is 0 or not.
    let error95 = if bytes { bytes_error(&sites) } else { 0 };
    Gate { name: finding.name(), of: None, limit: 0, value, error95, bytes, sites, unknown: None }
}

fn bytes_error(groups: &[Group]) -> u64 {
    error95(groups.iter().map(|group| group.variance).fold(0, u64::saturating_add))
}

fn item(node: NodeId, bytes: u64, blocks: u64) -> Item {
    Item { node, bytes, blocks, allocations: blocks, ..Item::default() }
}

/// The gates of a recording that there is none of: none can pass.
pub fn unknown(wanted: &Wanted, reason: &str) -> Vec<Gate> {
    let limits = &wanted.limits;
    let names = [
        limits.max_peak.map(|_| "max-peak"),
        limits.max_leak.map(|_| "max-leak"),
        limits.max_allocs.map(|_| "max-allocs"),
        limits.max_temporary.map(|_| "max-temporary"),
        wanted.baseline.as_ref().map(|_| "baseline"),
    ];
    let names = names.into_iter().flatten().chain(wanted.findings.iter().map(|finding| finding.name()));
    let names = names.chain(wanted.sites.iter().map(|_| "site"));
    let gate = |name| Gate {
        name,
        of: None,
        limit: 0,
        value: 0,
        error95: 0,
        bytes: true,
        sites: Vec::new(),
        unknown: Some(reason.to_string()),
    };
    names.map(gate).collect()
}

#[cfg(test)]
mod tests;
