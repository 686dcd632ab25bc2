//! What the target's threads counted by themselves.

use std::sync::atomic::Ordering::*;

use highwater_event::counted::Counted;
use highwater_event::layout::*;

use crate::memory::Memory;

/// Adds up what the slots hold. All is exact once the target has ended.
pub fn of(memory: &Memory) -> Counted {
    let header = memory.header();
    let mut sum =
        Counted { threads: u64::from(header.agent.thread_count.load(Relaxed)), ..Counted::default() };
    let base = header.live.bytes.load(Relaxed);
    let (mut live, mut peak) = (base, header.live.peak.load(Relaxed));
    for index in 0..memory.slots() {
        let counts = &memory.slot(index).counts;
        let now = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
        sum.made = sum.made.wrapping_add(now(&counts.made));
        sum.made_bytes = sum.made_bytes.wrapping_add(now(&counts.made_bytes));
        sum.freed = sum.freed.wrapping_add(now(&counts.freed));
        sum.remade = sum.remade.wrapping_add(now(&counts.remade));
        sum.small = sum.small.wrapping_add(now(&counts.small));
        sum.small_bytes = sum.small_bytes.wrapping_add(now(&counts.small_bytes));
        live = live.wrapping_add(counts.delta.load(Relaxed));
        peak = peak.max(base.wrapping_add(counts.most.load(Relaxed)));
    }
    let peak = peak.max(live);
    (sum.live, sum.peak) = (live.max(0) as u64, peak.max(0) as u64);
    // One thread's peak is exact: each of its batches knows its greatest value.
    // With several, each may have a batch that the others do not know of.
    let slots = u64::from(memory.slots());
    sum.peak_uncertainty = if slots > 1 { (slots + 1) * COUNT_BATCH } else { 0 };
    sum
}

/// As counters of the end record.
pub fn counters(counted: &Counted) -> [(String, u64); 5] {
    [
        ("made", counted.made),
        ("made_bytes", counted.made_bytes),
        ("freed", counted.freed),
        ("small", counted.small),
        ("small_bytes", counted.small_bytes),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Settings;

    #[test]
    fn slots_add_up_and_the_peak_is_the_greatest_known() {
        let memory = Memory::create(&Settings::default()).unwrap();
        let header = memory.header();
        header.agent.slots_used.store(2, Relaxed);
        header.live.bytes.store(100, Relaxed);
        header.live.peak.store(110, Relaxed);
        let (first, second) = (&memory.slot(0).counts, &memory.slot(1).counts);
        first.made.store(3, Relaxed);
        second.made.store(4, Relaxed);
        first.delta.store(-30, Relaxed);
        second.delta.store(5, Relaxed);
        second.most.store(25, Relaxed);
        let counted = of(&memory);
        assert_eq!((counted.made, counted.live, counted.peak), (7, 75, 125));
        assert_eq!(counted.peak_uncertainty, 3 * COUNT_BATCH);
        // More freed than made: blocks from before us.
        first.delta.store(-1000, Relaxed);
        assert_eq!(of(&memory).live, 0);
    }
}
