//! Phases: what lies between marks.

use highwater_trace::model::Mark;

use crate::session::Facts;

/// The phase before the first mark.
pub const FIRST: &str = "start";

/// The phases of a recording: `start` up to the first mark, then one from each
/// mark to the next, by the mark's name. Phases of the same name are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// By time.
    marks: Vec<Mark>,
}

impl Phases {
    /// Those of a recording.
    pub fn of(facts: &Facts) -> Phases {
        let mut marks = facts.marks.clone();
        marks.sort_by_key(|mark| mark.ns);
        Phases { marks }
    }

    /// Number of the phase that an instant (ns) lies in: 0 for the first. What
    /// happened at the very nanosecond of a mark is before it, as `--to @mark`
    /// takes it.
    pub fn at(&self, ns: u64) -> u32 {
        self.marks.partition_point(|mark| mark.ns < ns) as u32
    }

    /// The name of a phase.
    pub fn name(&self, phase: u32) -> &str {
        match phase.checked_sub(1) {
            None => FIRST,
            Some(at) => self.marks.get(at as usize).map_or(FIRST, |mark| &mark.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_begins_behind_its_mark() {
        let mark = |ns, name: &str| Mark { ns, name: name.to_string() };
        let facts = Facts { marks: vec![mark(50, "serve"), mark(10, "load")], ..Facts::default() };
        let phases = Phases::of(&facts);
        let name = |ns| phases.name(phases.at(ns)).to_string();
        assert_eq!(
            [0, 10, 11, 50, 51, u64::MAX].map(name),
            ["start", "start", "load", "load", "serve", "serve"]
        );
        assert_eq!(Phases::default().name(Phases::default().at(9)), "start");
    }
}
