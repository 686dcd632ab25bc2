//! The highest live size, when it was reached, and how sure that is.
//!
//! **Tie.** The peak is the first instant of the maximum: a later instant that
//! only equals it does not move it.
//!
//! **Uncertainty.** Inside an epoch (see [`crate::Replay::barrier`]) the order
//! of different threads' events is not known, each thread's own order is. A
//! thread's events of one stamp are a *group*: they happened at that stamp or
//! later, but before the thread's next stamp and before the epoch's end. At the
//! true instant of a stamp every thread has therefore done all its groups but the
//! latest, and of that some first part. With `net` the bytes that a part of a
//! group made less those that it freed, the true live size at that instant is
//!
//! * at most the replayed one, plus for each thread by how much the greatest net
//!   of a first part of its latest group exceeds the whole group's;
//! * at least the replayed one, less for each thread by how much the whole
//!   group's net exceeds the least of a first part.
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

use crate::totals::Totals;

/// Follows the live size.
#[derive(Clone, Debug)]
pub struct Peak {
    /// What is alive now, and what the present thread's events change.
    pub(crate) level: Level,
    /// Blocks alive at the greatest live size so far.
    pub blocks: u64,
    /// First instant of it, ns.
    pub ns: u64,
    /// Seqno of the event that reached it.
    pub seqno: u64,
    /// How often a new peak was reached; names the peak for the sites.
    pub epoch: u64,

    /// The latest group of each thread but the present one.
    groups: Vec<Group>,
    /// The thread that acted last.
    present: u32,
    /// Threads that acted in the epoch.
    acting: Vec<u32>,
    slack: u64,
    upper: u64,
    lower: u64,
    unseen: u64,
    known: Option<u64>,
}

/// What each event of the thread that acts looks at: a copy of it may stand in the
/// processor's registers as long as no other thread acts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Level {
    /// Live requested bytes.
    pub live_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Greatest live size so far, bytes.
    pub greatest: u64,
    /// The same in the epoch, as replayed.
    epoch_greatest: u64,
    /// The latest group of the present thread.
    group: Group,
    /// By how much the true live size may exceed the replayed one now, and fall
    /// short of it, because of all threads but the present one.
    above: i64,
    below: i64,
    /// Bounds of the epoch's maximum.
    epoch_upper: u64,
    epoch_lower: u64,
}

/// No thread.
const NOBODY: u32 = u32::MAX;
/// The stamp of a group whose stamp is not known.
const UNKNOWN: u64 = u64::MAX;

/// A thread's latest events of one stamp.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    acts: bool,
    stamp: u64,
    /// By how much the greatest net of a first part exceeds the whole group's, bytes.
    above: i64,
    /// By how much the whole group's net exceeds the least of a first part.
    below: i64,
}

impl Level {
    /// The upper bound of the epoch, with the present group.
    #[inline(always)]
    fn upper_now(&self) -> u64 {
        // While one thread acts, the bound is greatest when its net is.
        self.epoch_upper.max(self.live_bytes.saturating_add_signed(self.above + self.group.above))
    }

    /// An event of the present thread comes, which has acted in this epoch.
    #[inline(always)]
    pub fn tick(&mut self, stamp: u64) {
        if self.group.stamp != stamp {
            if self.group.stamp != UNKNOWN {
                self.next_group();
            }
            self.group.stamp = stamp;
        }
    }

    #[inline(always)]
    fn next_group(&mut self) {
        self.epoch_upper = self.upper_now();
        self.epoch_lower = self.epoch_lower.max(self.live_bytes.saturating_add_signed(-self.below));
        (self.group.above, self.group.below) = (0, 0);
    }

    /// `blocks` blocks of `bytes` bytes together came, made by the present thread; says
    /// whether there never were more bytes.
    #[inline(always)]
    pub fn add(&mut self, bytes: u64, blocks: u64) -> bool {
        self.live_bytes = self.live_bytes.wrapping_add(bytes);
        self.live_blocks = self.live_blocks.wrapping_add(blocks);
        self.net(bytes.min(i64::MAX as u64) as i64);
        self.epoch_greatest = self.epoch_greatest.max(self.live_bytes);
        let peaks = self.live_bytes > self.greatest;
        if peaks {
            self.greatest = self.live_bytes;
        }
        peaks
    }

    /// `blocks` blocks of `bytes` bytes together went, freed by the present thread.
    #[inline(always)]
    pub fn sub(&mut self, bytes: u64, blocks: u64) {
        self.live_bytes = self.live_bytes.wrapping_sub(bytes);
        self.live_blocks = self.live_blocks.wrapping_sub(blocks);
        self.net(-(bytes.min(i64::MAX as u64) as i64));
    }

    #[inline(always)]
    fn net(&mut self, bytes: i64) {
        let group = &mut self.group;
        group.above = group.above.wrapping_sub(bytes).max(0);
        group.below = group.below.wrapping_add(bytes).max(0);
    }

    /// Between two epochs.
    fn barrier(&mut self) {
        self.group = Group::default();
        (self.above, self.below) = (0, 0);
        self.epoch_greatest = self.live_bytes;
        (self.epoch_upper, self.epoch_lower) = (self.live_bytes, self.live_bytes);
    }
}

impl Default for Peak {
    fn default() -> Self {
        Peak::new()
    }
}

impl Peak {
    /// Before the first event.
    pub fn new() -> Peak {
        Peak {
            level: Level::default(),
            blocks: 0,
            ns: 0,
            seqno: 0,
            epoch: 0,
            groups: Vec::new(),
            present: NOBODY,
            acting: Vec::new(),
            slack: 0,
            upper: 0,
            lower: 0,
            unseen: 0,
            known: None,
        }
    }

    /// Greatest live size so far, bytes.
    pub fn bytes(&self) -> u64 {
        self.level.greatest
    }

    /// The bounds of the recording so far, between two epochs.
    pub(crate) fn bounds_so_far(&self) -> (u64, u64) {
        (self.upper, self.lower)
    }

    /// Between two epochs, after what these totals and bounds say, with what lives now.
    pub(crate) fn go_on_with(&mut self, totals: &Totals, upper: u64, lower: u64) {
        (self.level.greatest, self.blocks) = (totals.peak_bytes, totals.peak_blocks);
        (self.ns, self.seqno) = (totals.peak_ns, totals.peak_seqno);
        (self.upper, self.lower, self.slack) = (upper, lower, 0);
        let level = &mut self.level;
        level.epoch_greatest = level.live_bytes;
        (level.epoch_upper, level.epoch_lower) = (level.live_bytes, level.live_bytes);
    }

    /// Forgets how high it was: what lives now is the peak so far.
    pub(crate) fn restart(&mut self, ns: u64, seqno: u64) {
        let level = &mut self.level;
        (level.greatest, self.blocks) = (level.live_bytes, level.live_blocks);
        (self.ns, self.seqno) = (ns, seqno);
        self.epoch += 1;
        (self.upper, self.lower, self.slack) = (0, 0, 0);
        level.epoch_greatest = level.live_bytes;
        level.epoch_upper = 0;
        level.epoch_upper = level.upper_now();
        let below = level.below + level.group.below;
        level.epoch_lower = level.live_bytes.saturating_add_signed(-below);
    }

    /// Ends the epoch.
    pub fn barrier(&mut self) {
        (self.upper, self.lower) = self.bounds();
        for thread in self.acting.drain(..) {
            if let Some(group) = self.groups.get_mut(thread as usize) {
                *group = Group::default();
            }
        }
        (self.present, self.slack) = (NOBODY, 0);
        self.level.barrier();
    }

    /// The bounds of the whole recording, with the present epoch.
    fn bounds(&self) -> (u64, u64) {
        let level = &self.level;
        if self.acting.len() <= 1 && self.slack == 0 {
            return (self.upper.max(level.epoch_greatest), self.lower.max(level.epoch_greatest));
        }
        let upper = level.upper_now().max(level.epoch_greatest).saturating_add(self.slack);
        let lower = level.epoch_lower.saturating_sub(self.slack);
        (self.upper.max(upper), self.lower.max(lower).max(level.live_bytes))
    }

    /// An event of `thread` with this stamp comes.
    #[inline(always)]
    pub fn tick(&mut self, thread: u32, stamp: u64) {
        if thread != self.present && self.switch(thread) {
            self.level.next_group();
            self.level.group.stamp = stamp;
        }
        self.level.tick(stamp);
    }

    /// Makes another thread the present one; says whether it had not acted yet
    /// in this epoch.
    pub(crate) fn switch(&mut self, thread: u32) -> bool {
        if thread == self.present {
            return false;
        }
        let level = &mut self.level;
        level.epoch_upper = level.upper_now();
        if let Some(group) = self.groups.get_mut(self.present as usize) {
            *group = level.group;
            level.above += group.above;
            level.below += group.below;
        }
        let place = thread as usize;
        if place >= self.groups.len() {
            self.groups.resize(place + 1, Group::default());
        }
        let Some(group) = self.groups.get_mut(place) else { return false };
        let first = !group.acts;
        if first {
            // An event of its own need not come (a realloc's failure, a repair).
            *group = Group { acts: true, stamp: UNKNOWN, ..Group::default() };
            self.acting.push(thread);
        } else {
            level.above -= group.above;
            level.below -= group.below;
        }
        (self.present, level.group) = (thread, *group);
        first
    }

    /// `blocks` blocks of `bytes` bytes together came, made by `thread`.
    #[inline]
    pub fn add(&mut self, bytes: u64, blocks: u64, ns: u64, seqno: u64, thread: u32) {
        if thread != self.present {
            self.switch(thread);
        }
        if self.level.add(bytes, blocks) {
            self.reached(self.level.live_blocks, ns, seqno);
        }
    }

    /// The live size is the greatest so far, with so many blocks.
    #[inline(always)]
    pub(crate) fn reached(&mut self, blocks: u64, ns: u64, seqno: u64) {
        self.blocks = blocks;
        self.ns = ns;
        self.seqno = seqno;
        self.epoch += 1;
    }

    /// `blocks` blocks of `bytes` bytes together went, freed by `thread`.
    #[inline]
    pub fn sub(&mut self, bytes: u64, blocks: u64, thread: u32) {
        if thread != self.present {
            self.switch(thread);
        }
        self.level.sub(bytes, blocks);
    }

    /// Blocks of `size` bytes in all were in a wrong order in this epoch.
    pub(crate) fn widen(&mut self, size: u64) {
        self.slack = self.slack.saturating_add(size);
    }

    /// Is every block among the events?
    pub(crate) fn sees_all(&self) -> bool {
        self.unseen == 0 && self.known.is_none()
    }

    /// Up to `bytes` more were alive at any time, unseen.
    pub(crate) fn unseen(&mut self, bytes: u64) {
        self.unseen = self.unseen.max(bytes);
    }

    /// The peak that somebody else has followed.
    pub(crate) fn known(&mut self, bytes: u64, blocks: u64, ns: u64, uncertainty: u64) {
        (self.level.greatest, self.blocks, self.ns) = (bytes, blocks, ns);
        self.known = Some(uncertainty);
    }

    /// How far the true peak may be from `bytes`, with all events so far.
    pub fn uncertainty(&self) -> u64 {
        if let Some(uncertainty) = self.known {
            return uncertainty;
        }
        let (upper, lower) = self.bounds();
        let upper = upper.saturating_add(self.unseen);
        let greatest = self.level.greatest;
        upper.saturating_sub(greatest).max(greatest.saturating_sub(lower))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(peak: &mut Peak, size: u64, stamp: u64, thread: u32) {
        peak.tick(thread, stamp);
        peak.add(size, 1, stamp, stamp, thread);
    }

    fn sub(peak: &mut Peak, size: u64, stamp: u64, thread: u32) {
        peak.tick(thread, stamp);
        peak.sub(size, 1, thread);
    }

    #[test]
    fn one_thread_is_certain_however_long_the_epoch() {
        let mut peak = Peak::new();
        for stamp in 0..10 {
            add(&mut peak, 10, stamp / 4, 0);
            sub(&mut peak, 10, stamp / 4, 0);
        }
        assert_eq!((peak.bytes(), peak.seqno, peak.uncertainty()), (10, 0, 0));
    }

    #[test]
    fn events_of_two_threads_in_one_epoch_bound_the_truth() {
        let mut peak = Peak::new();
        add(&mut peak, 100, 1, 0);
        peak.barrier();
        // In one epoch: thread 0 frees 100, thread 1 allocates 40. The other
        // order would reach 140.
        sub(&mut peak, 100, 2, 0);
        add(&mut peak, 40, 3, 1);
        peak.barrier();
        sub(&mut peak, 40, 4, 1);
        assert_eq!((peak.bytes(), peak.uncertainty()), (100, 40));
    }

    #[test]
    fn a_peak_inside_a_mixed_epoch_may_be_too_high() {
        let mut peak = Peak::new();
        add(&mut peak, 100, 1, 0);
        peak.barrier();
        add(&mut peak, 40, 2, 1);
        sub(&mut peak, 100, 3, 0);
        peak.barrier();
        add(&mut peak, 1, 4, 0);
        // 140 was seen; 100 is all that is sure.
        assert_eq!((peak.bytes(), peak.uncertainty()), (140, 40));
    }

    #[test]
    fn later_stamps_make_it_sure_what_came_before() {
        let mut peak = Peak::new();
        // One thread makes what the other frees: never more than two at once.
        for stamp in 0..100 {
            add(&mut peak, 10, 2 * stamp, 0);
            sub(&mut peak, 10, 2 * stamp + 1, 1);
        }
        assert_eq!(peak.bytes(), 10);
        assert!(peak.uncertainty() <= 20, "{}", peak.uncertainty());
    }
}
