//! Counting only what happens in a window.

use super::Replay;
use crate::histogram::Histogram;
use crate::series::Series;
use crate::totals::Totals;

impl Replay {
    /// Begins a window: from here on, that is with the event `seqno`, everything
    /// is counted from zero. The heap stays as it is: what is alive at this
    /// instant lives on, counts in `live_*` and can be freed inside the window,
    /// and the peak is at least what is alive now.
    ///
    /// Of a window that begins inside an epoch, what was decided about the order
    /// of events on both sides of its begin counts in the window. Where that
    /// takes back what was counted before the window, the count stops at 0.
    /// [`Replay::sites`] leaves out sites that have no part in the window;
    /// [`Replay::threads`] keeps all that have acted so far. The
    /// [series](Replay::series) is 0 before the window.
    pub fn begin_window(&mut self, seqno: u64) {
        self.window = Some(seqno);
        let sampled = self.totals.sampled.restarted();
        self.totals = Totals { first_ns: self.now, last_ns: self.now, sampled, ..Totals::default() };
        self.fed = 0;
        self.peak.restart(self.now, seqno.saturating_sub(1));
        for site in &mut self.sites {
            site.settle(self.peak.epoch);
            (site.allocations, site.bytes, site.frees, site.temporary) = (0, 0, 0, 0);
            site.variance = 0;
        }
        for thread in &mut self.threads {
            (thread.allocations, thread.frees, thread.temporary) = (0, 0, 0);
            (thread.bytes_allocated, thread.bytes_freed) = (0, 0);
            (thread.peak_bytes, thread.peak_ns) = (thread.live_bytes, self.now);
        }
        self.errors.clear();
        self.sizes = Histogram::default();
        self.lifetimes = Histogram::default();
        self.series = Series::default();
        self.series.note(self.now, self.peak.level.live_bytes);
    }

    /// Counts that fell below zero, because what was counted before the window
    /// was taken back in it, are zero.
    pub(super) fn clamp(&mut self) {
        let clamp = |count: &mut u64| *count = (*count).cast_signed().max(0).cast_unsigned();
        clamp(&mut self.totals.bytes_freed);
        clamp(&mut self.totals.temporary);
        for thread in &mut self.threads {
            clamp(&mut thread.bytes_freed);
            clamp(&mut thread.temporary);
        }
        for site in &mut self.sites {
            clamp(&mut site.frees);
            clamp(&mut site.temporary);
        }
    }
}
