//! The highest live size, when it was reached, and how sure that is.
//!
//! **Tie.** The peak is the first instant of the maximum: a later instant that
//! only equals it does not move it.
//!
//! **Uncertainty.** Inside an epoch (see [`crate::Replay::barrier`]) the order
//! of different threads' events is not known, each thread's own order is. With
//! `net(t)` the bytes that thread t has made less those that it has freed since
//! the epoch's beginning, the live size at any true instant is that at the
//! beginning plus one value of `net(t)` for each thread. So the epoch's true
//! maximum is
//!
//! * at most the live size before it plus the greatest `net(t)` of every thread;
//! * at least the live size at its two ends, and at least, for any one thread,
//!   the live size before plus its greatest `net` and the least of all others.
//!
//! The greatest of the upper bounds over the recording, less the reported peak,
//! and the reported peak, less the greatest of the lower bounds, are how far the
//! truth may be off on either side; `peak_uncertainty` is the greater of both.
//! An epoch in which one thread acts is exact. Where the order at an address was
//! decided anew, the sizes of its blocks widen that epoch's bounds.
//!
//! **What this leaves out.** Where two threads free at one address in one epoch,
//! they may have freed each other's block; if the sizes differ and nothing in the
//! order seen contradicts it, the difference is not accounted for.

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

    /// Live bytes at the beginning of the epoch.
    before: u64,
    /// Greatest live size in it, as replayed.
    greatest: u64,
    nets: Vec<Net>,
    /// Threads that acted in it.
    acting: Vec<u32>,
    slack: u64,
    upper: u64,
    lower: u64,
}

/// What a thread did in the epoch, bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Net {
    acts: bool,
    now: i64,
    most: i64,
    least: i64,
}

impl Peak {
    pub(crate) fn new() -> Peak {
        Peak {
            live_bytes: 0,
            live_blocks: 0,
            bytes: 0,
            blocks: 0,
            ns: 0,
            seqno: 0,
            epoch: 0,
            before: 0,
            greatest: 0,
            nets: Vec::new(),
            acting: Vec::new(),
            slack: 0,
            upper: 0,
            lower: 0,
        }
    }

    /// Ends the epoch.
    pub(crate) fn barrier(&mut self) {
        let (upper, lower) = self.bounds();
        (self.upper, self.lower) = (upper, lower);
        for thread in self.acting.drain(..) {
            if let Some(net) = self.nets.get_mut(thread as usize) {
                *net = Net::default();
            }
        }
        self.before = self.live_bytes;
        self.greatest = self.live_bytes;
        self.slack = 0;
    }

    /// The bounds of the whole recording, with the present epoch.
    fn bounds(&self) -> (u64, u64) {
        if self.acting.len() <= 1 && self.slack == 0 {
            return (self.upper.max(self.greatest), self.lower.max(self.greatest));
        }
        let nets = || self.acting.iter().filter_map(|&thread| self.nets.get(thread as usize));
        let most: i64 = nets().map(|net| net.most).sum();
        let least: i64 = nets().map(|net| net.least).sum();
        let best = nets().map(|net| net.most + least - net.least).max().unwrap_or(0);
        let upper = self.before.saturating_add_signed(most).saturating_add(self.slack);
        let lower = self.before.saturating_add_signed(best).saturating_sub(self.slack);
        (
            self.upper.max(upper).max(self.greatest),
            self.lower.max(lower).max(self.before).max(self.live_bytes),
        )
    }

    #[inline]
    fn net(&mut self, thread: u32, bytes: i64) {
        let place = thread as usize;
        if place >= self.nets.len() {
            self.nets.resize(place + 1, Net::default());
        }
        if let Some(net) = self.nets.get_mut(place) {
            if !net.acts {
                net.acts = true;
                self.acting.push(thread);
            }
            net.now = net.now.wrapping_add(bytes);
            net.most = net.most.max(net.now);
            net.least = net.least.min(net.now);
        }
    }

    /// A block came, made by `thread`.
    #[inline]
    pub(crate) fn add(&mut self, size: u64, ns: u64, seqno: u64, thread: u32) {
        self.live_bytes = self.live_bytes.wrapping_add(size);
        self.live_blocks = self.live_blocks.wrapping_add(1);
        self.net(thread, size as i64);
        self.greatest = self.greatest.max(self.live_bytes);
        if self.live_bytes > self.bytes {
            self.bytes = self.live_bytes;
            self.blocks = self.live_blocks;
            self.ns = ns;
            self.seqno = seqno;
            self.epoch += 1;
        }
    }

    /// A block went, freed by `thread`.
    #[inline]
    pub(crate) fn sub(&mut self, size: u64, thread: u32) {
        self.live_bytes = self.live_bytes.wrapping_sub(size);
        self.live_blocks = self.live_blocks.wrapping_sub(1);
        self.net(thread, (size as i64).wrapping_neg());
    }

    /// Blocks of `size` bytes in all were in a wrong order in this epoch.
    pub(crate) fn widen(&mut self, size: u64) {
        self.slack = self.slack.saturating_add(size);
    }

    /// How far the true peak may be from `bytes`, with all events so far.
    pub fn uncertainty(&self) -> u64 {
        let (upper, lower) = self.bounds();
        upper.saturating_sub(self.bytes).max(self.bytes.saturating_sub(lower))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_certain_however_long_the_epoch() {
        let mut peak = Peak::new();
        for seqno in 0..10 {
            peak.add(10, 5, seqno, 0);
            peak.sub(10, 0);
        }
        assert_eq!((peak.bytes, peak.seqno, peak.uncertainty()), (10, 0, 0));
    }

    #[test]
    fn events_of_two_threads_in_one_epoch_bound_the_truth() {
        let mut peak = Peak::new();
        peak.add(100, 1, 0, 0);
        peak.barrier();
        // In one epoch: thread 0 frees 100, thread 1 allocates 40. The other
        // order would reach 140.
        peak.sub(100, 0);
        peak.add(40, 2, 2, 1);
        peak.barrier();
        peak.sub(40, 1);
        assert_eq!((peak.bytes, peak.uncertainty()), (100, 40));
    }

    #[test]
    fn a_peak_inside_a_mixed_epoch_may_be_too_high() {
        let mut peak = Peak::new();
        peak.add(100, 1, 0, 0);
        peak.barrier();
        peak.add(40, 2, 1, 1);
        peak.sub(100, 0);
        peak.barrier();
        peak.add(1, 3, 3, 0);
        // 140 was seen; 100 is all that is sure.
        assert_eq!((peak.bytes, peak.uncertainty()), (140, 40));
    }

    #[test]
    fn what_a_thread_frees_itself_adds_nothing() {
        let mut peak = Peak::new();
        peak.add(1000, 1, 0, 0);
        peak.barrier();
        for seqno in 0..50 {
            let thread = seqno as u32 % 2;
            peak.add(8, 2, seqno, thread);
            peak.sub(8, thread);
        }
        // Both at once at most, one at least.
        assert_eq!((peak.bytes, peak.uncertainty()), (1008, 8));
    }
}
