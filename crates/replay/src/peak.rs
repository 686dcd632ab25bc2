//! The highest live size, when it was reached, and how sure that is.
//!
//! **Tie.** The peak is the first instant of the maximum: a later instant that
//! only equals it does not move it.
//!
//! **Uncertainty.** Stamps do not order the events of different threads that
//! fall in one tick of the clock (equal times, or [`crate::Options::tick_ns`]).
//! For each such tick in which more than one thread acted,
//!
//! * the true maximum is at most the live size before the tick plus all bytes
//!   allocated in it (every allocation first, every free last);
//! * the true maximum is at least the live size at its two ends.
//!
//! The greatest of the upper bounds over the recording, less the reported peak,
//! and the reported peak, less the greatest of the lower bounds, are how far the
//! truth may be off on either side. A repair of the order (an event that was
//! seen before the one it must follow) of `s` bytes widens the upper bound to
//! the greatest live size of the last one to two milliseconds plus `s`, and the
//! lower one by `s` if the peak lies within the last millisecond. A failed
//! realloc counts as a repair where there are several threads, because its block
//! was missing between its two records. `peak_uncertainty` is the greater of
//! both sides; with one thread it is 0.
//!
//! **What this leaves out.** Where an address is allocated twice inside one tick,
//! by different threads, nothing says which of the two blocks came last. One of
//! them is kept, and if their sizes differ, the live size is off by that
//! difference, unaccounted, until the address is freed. The number of live
//! blocks is right all the same.

/// Width of the window that a repair looks back on: 2^20 ns, about 1 ms.
const WINDOW_SHIFT: u32 = 20;

/// Follows the live size.
#[derive(Clone, Debug)]
pub struct Peak {
    /// Live requested bytes.
    pub live_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Greatest live size so far, bytes.
    pub bytes: u64,
    /// Blocks alive then.
    pub blocks: u64,
    /// First instant of it, ns.
    pub ns: u64,
    /// Seqno of the event that reached it.
    pub seqno: u64,
    /// How often a new peak was reached; names the peak for the sites.
    pub epoch: u64,

    tick: u64,
    group: u64,
    group_thread: u32,
    group_mixed: bool,
    group_before: u64,
    group_alloc: u64,
    group_max: u64,
    upper: u64,
    lower: u64,
    window: u64,
    recent: [u64; 2],
    /// Bytes by which the present peak may be too high because of repairs.
    over: u64,
    repaired_ns: u64,
}

impl Peak {
    pub(crate) fn new(tick_ns: u64) -> Peak {
        Peak {
            live_bytes: 0,
            live_blocks: 0,
            bytes: 0,
            blocks: 0,
            ns: 0,
            seqno: 0,
            epoch: 0,
            tick: tick_ns.max(1),
            group: u64::MAX,
            group_thread: 0,
            group_mixed: false,
            group_before: 0,
            group_alloc: 0,
            group_max: 0,
            upper: 0,
            lower: 0,
            window: 0,
            recent: [0; 2],
            over: 0,
            repaired_ns: 0,
        }
    }

    /// An event of `thread` at `ns` comes.
    #[inline]
    pub(crate) fn tick(&mut self, ns: u64, thread: u32) {
        let group = if self.tick == 1 { ns } else { ns / self.tick };
        if group == self.group {
            self.group_mixed |= thread != self.group_thread;
            return;
        }
        self.close();
        self.group = group;
        self.group_thread = thread;
        let window = ns >> WINDOW_SHIFT;
        if window != self.window {
            self.recent = [if window == self.window + 1 { self.recent[1] } else { 0 }, 0];
            self.window = window;
        }
    }

    /// Ends the present tick.
    #[inline]
    fn close(&mut self) {
        if self.group_mixed {
            self.upper = self.upper.max(self.group_before.saturating_add(self.group_alloc));
            self.lower = self.lower.max(self.group_before).max(self.live_bytes);
            self.group_mixed = false;
        } else {
            self.upper = self.upper.max(self.group_max);
            self.lower = self.lower.max(self.group_max);
        }
        self.recent[1] = self.recent[1].max(self.group_max);
        self.group_before = self.live_bytes;
        self.group_max = self.live_bytes;
        self.group_alloc = 0;
    }

    /// A block came.
    #[inline]
    pub(crate) fn add(&mut self, size: u64, ns: u64, seqno: u64) {
        self.live_bytes = self.live_bytes.wrapping_add(size);
        self.live_blocks = self.live_blocks.wrapping_add(1);
        self.group_alloc = self.group_alloc.saturating_add(size);
        self.group_max = self.group_max.max(self.live_bytes);
        if self.live_bytes > self.bytes {
            self.bytes = self.live_bytes;
            self.blocks = self.live_blocks;
            self.ns = ns;
            self.seqno = seqno;
            self.epoch += 1;
            if ns > self.repaired_ns.saturating_add(1 << WINDOW_SHIFT) {
                self.over = 0;
            }
        }
    }

    /// A block went.
    #[inline]
    pub(crate) fn sub(&mut self, size: u64) {
        self.live_bytes = self.live_bytes.wrapping_sub(size);
        self.live_blocks = self.live_blocks.wrapping_sub(1);
    }

    /// The order was repaired by moving a block of `size` bytes.
    pub(crate) fn repaired(&mut self, size: u64, ns: u64) {
        let around = self.recent[0].max(self.recent[1]).max(self.group_max);
        self.upper = self.upper.max(around.saturating_add(size));
        if self.ns.saturating_add(1 << WINDOW_SHIFT) >= ns {
            self.over = self.over.saturating_add(size);
        }
        self.repaired_ns = ns;
    }

    /// How far the true peak may be from `bytes`, with all events so far.
    pub fn uncertainty(&self) -> u64 {
        let mut last = self.clone();
        last.close();
        let above = last.upper.saturating_sub(last.bytes);
        let below = last.bytes.saturating_sub(last.lower).saturating_add(last.over);
        above.max(below).min(last.upper.max(last.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_certain_whatever_the_stamps() {
        let mut peak = Peak::new(1);
        for seqno in 0..10 {
            peak.tick(5, 0);
            peak.add(10, 5, seqno);
            peak.tick(5, 0);
            peak.sub(10);
        }
        assert_eq!((peak.bytes, peak.seqno, peak.uncertainty()), (10, 0, 0));
    }

    #[test]
    fn events_of_two_threads_in_one_tick_bound_the_truth() {
        let mut peak = Peak::new(1);
        peak.tick(1, 0);
        peak.add(100, 1, 0);
        // In one tick: thread 0 frees 100, thread 1 allocates 40. The other
        // order would reach 140.
        peak.tick(2, 0);
        peak.sub(100);
        peak.tick(2, 1);
        peak.add(40, 2, 2);
        peak.tick(3, 1);
        peak.sub(40);
        assert_eq!((peak.bytes, peak.uncertainty()), (100, 40));
    }

    #[test]
    fn a_peak_inside_a_mixed_tick_may_be_too_high() {
        let mut peak = Peak::new(1);
        peak.tick(1, 0);
        peak.add(100, 1, 0);
        peak.tick(2, 1);
        peak.add(40, 2, 1);
        peak.tick(2, 0);
        peak.sub(100);
        peak.tick(3, 0);
        peak.add(1, 3, 3);
        // 140 was seen; 100 is all that is sure.
        assert_eq!((peak.bytes, peak.uncertainty()), (140, 40));
    }

    #[test]
    fn the_last_tick_counts_too() {
        let mut peak = Peak::new(1);
        peak.tick(15, 0);
        peak.add(140, 15, 0);
        for (thread, size, free) in [(0, 35, false), (0, 37, true), (1, 31, true)] {
            peak.tick(18, thread);
            if free { peak.sub(size) } else { peak.add(size, 18, 1) }
        }
        assert_eq!((peak.bytes, peak.uncertainty()), (175, 35));
    }
}
