//! Limits that a run must keep.

use std::sync::Arc;

use highwater_replay::Totals;

use super::report::Leaks;
use crate::group::Group;
use crate::stack::Stack;

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

/// A limit and what came of it.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Its name: that of the option, without the dashes.
    pub name: &'static str,
    /// Greatest value that passes.
    pub limit: u64,
    /// The value.
    pub value: u64,
    /// Are they bytes (else a count)?
    pub bytes: bool,
    /// The stack that has most of it, where one is known.
    pub worst: Option<Arc<Stack>>,
}

impl Gate {
    /// Was the limit kept?
    pub fn passed(&self) -> bool {
        self.value <= self.limit
    }
}

/// Compares a recording with `limits`. `peak` are the groups at the peak,
/// largest first.
pub fn check(limits: &Limits, totals: &Totals, peak: &[Group], leaks: &Leaks) -> Vec<Gate> {
    let first = |groups: &[Group]| groups.first().map(|group| Arc::clone(&group.stack));
    let gate = |name, limit: Option<u64>, value, bytes, worst| {
        limit.map(|limit| Gate { name, limit, value, bytes, worst })
    };
    [
        gate("max-peak", limits.max_peak, totals.peak_bytes, true, first(peak)),
        gate("max-leak", limits.max_leak, leaks.bytes(), true, first(&leaks.groups)),
        gate("max-allocs", limits.max_allocs, totals.allocations, false, None),
        gate("max-temporary", limits.max_temporary, totals.temporary, false, None),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::report;
    use super::super::suppressions::Suppressions;
    use super::*;
    use crate::group::By;
    use crate::session::made::Made;

    #[test]
    fn a_limit_itself_passes_and_one_more_does_not() {
        let mut session = Made::default()
            .node(1, 0, "main", "/src/main.c", 3)
            .alloc(0, 0x10, 100, 1)
            .alloc(0, 0x200, 50, 1)
            .free(0, 0x200)
            .session();
        let replay = session.replay().unwrap();
        let leaks = report::live(&mut session, &replay, By::Site, &Suppressions::default());
        let verdicts = |limits: &Limits| -> Vec<(&str, u64, bool)> {
            let gates = check(limits, &replay.totals(), &[], &leaks);
            gates.iter().map(|gate| (gate.name, gate.value, gate.passed())).collect()
        };
        let kept =
            Limits { max_peak: Some(150), max_leak: Some(100), max_allocs: Some(2), max_temporary: Some(1) };
        let expected = |passed| {
            [
                ("max-peak", 150, passed),
                ("max-leak", 100, passed),
                ("max-allocs", 2, passed),
                ("max-temporary", 1, passed),
            ]
        };
        assert_eq!(verdicts(&kept), expected(true));
        let broken =
            Limits { max_peak: Some(149), max_leak: Some(99), max_allocs: Some(1), max_temporary: Some(0) };
        assert_eq!(verdicts(&broken), expected(false));
        assert_eq!(verdicts(&Limits { max_allocs: Some(5), ..Limits::default() }), [("max-allocs", 2, true)]);
        assert!(Limits::default().is_empty() && !kept.is_empty());
    }
}
