//! What the target's threads counted by themselves.

use std::sync::atomic::Ordering::*;

use highwater_event::layout::*;

use crate::memory::Memory;

/// Operations of all threads, recorded or not. There is one only under
/// `--sample` and `--min-size`, and where nothing but counting was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Blocks made, those of reallocs too.
    pub made: u64,
    /// Requested bytes of them.
    pub made_bytes: u64,
    /// Frees, those of reallocs too.
    pub freed: u64,
    /// Reallocs of a block.
    pub remade: u64,
    /// Blocks below `--min-size`.
    pub small: u64,
    /// Requested bytes of them.
    pub small_bytes: u64,
    /// Usable bytes alive (counting only); never below 0.
    pub live: u64,
    /// The most of them at once (counting only).
    pub peak: u64,
    /// The true peak is within so many bytes of `peak`.
    pub peak_uncertainty: u64,
    /// Threads that took part.
    pub threads: u64,
}

impl Counted {
    /// Adds up what the slots hold. All is exact once the target has ended.
    pub fn of(memory: &Memory) -> Counted {
        let header = memory.header();
        let mut sum =
            Counted { threads: u64::from(header.agent.thread_count.load(Relaxed)), ..Counted::default() };
        let base = header.live.bytes.load(Relaxed);
        let (mut live, mut peak) = (base, header.live.peak.load(Relaxed));
        for index in 0..memory.slots() {
            let counts = &memory.slot(index).counts;
            let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Relaxed);
            sum.made = sum.made.wrapping_add(of(&counts.made));
            sum.made_bytes = sum.made_bytes.wrapping_add(of(&counts.made_bytes));
            sum.freed = sum.freed.wrapping_add(of(&counts.freed));
            sum.remade = sum.remade.wrapping_add(of(&counts.remade));
            sum.small = sum.small.wrapping_add(of(&counts.small));
            sum.small_bytes = sum.small_bytes.wrapping_add(of(&counts.small_bytes));
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
    pub fn counters(&self) -> [(String, u64); 5] {
        [
            ("made", self.made),
            ("made_bytes", self.made_bytes),
            ("freed", self.freed),
            ("small", self.small),
            ("small_bytes", self.small_bytes),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }
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
        let counted = Counted::of(&memory);
        assert_eq!((counted.made, counted.live, counted.peak), (7, 75, 125));
        assert_eq!(counted.peak_uncertainty, 3 * COUNT_BATCH);
        // More freed than made: blocks from before us.
        first.delta.store(-1000, Relaxed);
        assert_eq!(Counted::of(&memory).live, 0);
    }
}
