//! What a recording left out on purpose: its options, read back from the trace.

use highwater_trace::model::{End, Meta};

/// The ways of recording less, as the trace names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// `--sample`: mean distance of marks, bytes; 0 where every block was recorded.
    pub sample: u64,
    /// `--min-size`: smaller blocks were only counted, bytes.
    pub min_size: u64,
    /// `--cull`: blocks that were freed before this age left only totals, ns.
    pub cull_ns: u64,
    /// `--live-only`: every block that was freed left only totals.
    pub live_only: bool,
    /// What the target's threads counted, recorded or not; only where something
    /// was left out before it reached the recorder.
    pub counted: Option<Counted>,
}

/// Operations that the target's threads counted; these numbers are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Blocks made.
    pub allocations: u64,
    /// Their requested bytes.
    pub bytes: u64,
    /// Frees of all kinds.
    pub frees: u64,
    /// Of the blocks made, those below `--min-size`.
    pub small: u64,
    /// Their requested bytes.
    pub small_bytes: u64,
}

impl Modes {
    /// Reads the options and the end of a trace.
    pub fn of(meta: &Meta, end: Option<&End>) -> Modes {
        let number = |name: &str| meta.option(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut modes = Modes {
            sample: number("sample"),
            min_size: number("min_size"),
            cull_ns: meta.option("cull").and_then(crate::units::time).unwrap_or(0),
            live_only: meta.option("live_only").is_some(),
            counted: None,
        };
        if let Some(end) = end.filter(|_| modes.sample > 0 || modes.min_size > 0) {
            let counter = |name: &str| end.counters.iter().find(|(known, _)| known == name).map(|c| c.1);
            modes.counted = counter("made").map(|allocations| Counted {
                allocations,
                bytes: counter("made_bytes").unwrap_or(0),
                frees: counter("freed").unwrap_or(0),
                small: counter("small").unwrap_or(0),
                small_bytes: counter("small_bytes").unwrap_or(0),
            });
        }
        modes
    }

    /// Was every event of every block recorded?
    pub fn is_whole(&self) -> bool {
        *self == Modes::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_back() {
        let meta = |list: &[&str]| Meta {
            options: list.iter().map(ToString::to_string).collect(),
            ..Meta::default()
        };
        let end = End { counters: vec![("made".into(), 7), ("small".into(), 3)], ..End::default() };
        let modes = Modes::of(&meta(&["depth=4", "sample=524288", "min_size=64"]), Some(&end));
        assert_eq!((modes.sample, modes.min_size, modes.live_only), (524_288, 64, false));
        assert_eq!(modes.counted.map(|c| (c.allocations, c.small)), Some((7, 3)));
        let modes = Modes::of(&meta(&["cull=10ms", "live_only"]), None);
        assert_eq!((modes.cull_ns, modes.live_only), (10_000_000, true));
        assert!(Modes::of(&meta(&["actual_size"]), Some(&end)).is_whole());
        // Noise is no option.
        assert!(Modes::of(&meta(&["sample=many", "cull=-1", "samples=4"]), None).is_whole());
    }
}
