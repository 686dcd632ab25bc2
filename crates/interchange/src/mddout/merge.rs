//! Several dumps of one run to one history.
//!
//! Each dump's ring holds the releases since the ring was last reset; put
//! together with the live blocks of the last dump, they are all events, if each
//! number from 0 to the last is there.

use std::collections::HashSet;

use super::decode::is_void;
use super::model::{Block, Dump, Event};

/// One event of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The block.
    pub block: Block,
    /// Its end, if this is the event of its end; else this is the event of its making.
    pub ended: Option<Event>,
    /// For a making: the block was released later.
    pub freed: bool,
}

impl Entry {
    /// What happened.
    pub fn event(&self) -> &Event {
        self.ended.as_ref().unwrap_or(&self.block.made)
    }
}

/// The events of a run in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Earliest first.
    pub entries: Vec<Entry>,
    /// Every event of the run up to the last dump is there.
    pub complete: bool,
    /// Numbers for which there is no event.
    pub missing: u64,
}

/// Why dumps cannot be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// No dump.
    #[error("no dump")]
    Nothing,
    /// They are of different programs or runs. The number is that of the dump, from 0.
    #[error("is of another {what} than the first file")]
    Stranger {
        /// Index of the dump.
        index: usize,
        /// In what they differ.
        what: &'static str,
    },
}

/// Checks that all dumps are of one run.
///
/// # Errors
/// If they are not.
pub fn same_run(dumps: &[Dump]) -> Result<(), MergeError> {
    let first = dumps.first().ok_or(MergeError::Nothing)?;
    for (index, d) in dumps.iter().enumerate() {
        let stranger = |what| Err(MergeError::Stranger { index, what });
        if d.build_id != first.build_id || d.self_addr != first.self_addr || d.options != first.options {
            return stranger("program");
        }
        if d.run_id != 0 && first.run_id != 0 && d.run_id != first.run_id {
            return stranger("run");
        }
    }
    Ok(())
}

/// Merges the dumps of one run, in any order: releases from all, live blocks
/// from the latest.
///
/// # Errors
/// If they are not of one run.
pub fn merge(dumps: &[Dump]) -> Result<History, MergeError> {
    same_run(dumps)?;
    let mut order: Vec<&Dump> = dumps.iter().collect();
    order.sort_by_key(|d| d.counters.next_seq);
    let last = *order.last().ok_or(MergeError::Nothing)?;
    let next = last.counters.next_seq;
    let mut seen = HashSet::new();
    let mut entries = Vec::new();
    for past in order.iter().flat_map(|d| &d.history) {
        // a ring that was not reset comes again in the next dump
        if !seen.insert(past.ended.seq) || is_void(past) {
            continue;
        }
        if seen.insert(past.block.made.seq) {
            entries.push(Entry { block: past.block.clone(), ended: None, freed: true });
        }
        entries.push(Entry { block: past.block.clone(), ended: Some(past.ended.clone()), freed: true });
    }
    for block in &last.live {
        if seen.insert(block.made.seq) {
            entries.push(Entry { block: block.clone(), ended: None, freed: false });
        }
    }
    // by age, so that a counter that has wrapped still gives the order
    entries.sort_by_key(|e| std::cmp::Reverse(next.wrapping_sub(e.event().seq)));
    let missing = u64::from(next).saturating_sub(seen.len() as u64);
    let complete = missing == 0 && last.counters.lost == 0 && !last.is_damaged();
    Ok(History { entries, complete, missing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mddout::model::{Past, flag};
    use crate::mddout::write::sample;

    #[test]
    fn one_complete_dump() {
        let dump = sample();
        let history = merge(std::slice::from_ref(&dump)).unwrap();
        assert!(history.complete);
        let seqs: Vec<_> =
            history.entries.iter().map(|e| (e.event().seq, e.ended.is_some(), e.freed)).collect();
        assert_eq!(seqs, [(0, false, false), (1, false, true), (2, false, false), (3, true, true)]);
    }

    /// Three dumps with a ring of one entry, as overflow dumps make them.
    fn chain() -> Vec<Dump> {
        let first = sample();
        let mut second = first.clone();
        second.history.clear();
        let gone = second.live.remove(0);
        second.history.push(Past { ended: Event { seq: 4, kind: 32, ..gone.made.clone() }, block: gone });
        second.counters.next_seq = 5;
        let mut third = second.clone();
        third.history.clear();
        let gone = third.live.remove(0);
        third.history.push(Past { ended: Event { seq: 5, kind: 32, ..gone.made.clone() }, block: gone });
        third.counters.next_seq = 6;
        vec![first, second, third]
    }

    #[test]
    fn a_chain_is_complete_in_any_order_and_a_missing_link_is_noticed() {
        let dumps = chain();
        let whole = merge(&dumps).unwrap();
        assert!(whole.complete);
        assert_eq!(whole.entries.len(), 6);
        let mut shuffled = dumps.clone();
        shuffled.rotate_left(1);
        assert_eq!(merge(&shuffled).unwrap(), whole);
        let gap = merge(&[dumps[0].clone(), dumps[2].clone()]).unwrap();
        assert!(!gap.complete);
        assert_eq!(gap.missing, 2); // the release of block 0 and its making
    }

    #[test]
    fn a_ring_that_was_not_reset_counts_once() {
        let dumps = chain();
        let mut again = dumps.clone();
        again[1].history.insert(0, dumps[0].history[0].clone());
        assert_eq!(merge(&again).unwrap(), merge(&dumps).unwrap());
    }

    #[test]
    fn a_failed_realloc_uses_up_a_number_and_is_no_event() {
        let mut dump = sample();
        let block = dump.live[0].clone();
        let ended = Event { seq: 4, kind: 36, flags: flag::VOID, ..block.made.clone() };
        dump.history.push(Past { block, ended });
        dump.counters.next_seq = 5;
        let history = merge(&[dump]).unwrap();
        assert!(history.complete);
        assert_eq!(history.entries.len(), 4);
    }

    #[test]
    fn another_boot_is_refused() {
        let mut dumps = chain();
        dumps[1].run_id = 8;
        assert_eq!(merge(&dumps), Err(MergeError::Stranger { index: 1, what: "run" }));
        dumps[1].build_id = vec![1];
        assert_eq!(merge(&dumps), Err(MergeError::Stranger { index: 1, what: "program" }));
    }
}
