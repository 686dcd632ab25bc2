//! Totals of blocks whose events the recording left out.

use highwater_trace::left_out::LeftOut;

use super::Replay;
use crate::totals::{SiteTotals, ThreadTotals};

impl Replay {
    /// Adds what the recording counted instead of recording it; once, after
    /// [`Replay::finish`].
    pub fn add_left_out(&mut self, list: &[LeftOut]) {
        let (mut unseen, mut peak) = (0, None);
        for what in list {
            match *what {
                LeftOut::Site { node, blocks, bytes, temporary } => {
                    let site = self.site_of(node);
                    site.allocations = site.allocations.saturating_add(blocks);
                    site.bytes = site.bytes.saturating_add(bytes);
                    site.frees = site.frees.saturating_add(blocks);
                    site.temporary = site.temporary.saturating_add_signed(temporary);
                    let totals = &mut self.totals;
                    totals.allocations = totals.allocations.saturating_add(blocks);
                    totals.frees = totals.frees.saturating_add(blocks);
                    totals.bytes_allocated = totals.bytes_allocated.saturating_add(bytes);
                    totals.bytes_freed = totals.bytes_freed.saturating_add(bytes);
                    totals.temporary = totals.temporary.saturating_add_signed(temporary);
                }
                LeftOut::Thread { thread, allocations, bytes, frees, bytes_freed, temporary } => {
                    let (index, new) = self.thread_index.index(thread);
                    if new {
                        self.threads.push(ThreadTotals::new(thread, self.now));
                    }
                    if let Some(totals) = self.threads.get_mut(index as usize) {
                        totals.allocations = totals.allocations.saturating_add(allocations);
                        totals.bytes_allocated = totals.bytes_allocated.saturating_add(bytes);
                        totals.frees = totals.frees.saturating_add(frees);
                        totals.bytes_freed = totals.bytes_freed.saturating_add(bytes_freed);
                        totals.temporary = totals.temporary.saturating_add_signed(temporary);
                    }
                }
                LeftOut::Calls { api, count } => {
                    let calls = &mut self.totals.by_api[usize::from(api & 63)];
                    *calls = calls.saturating_add(count);
                }
                LeftOut::Pairs { array, count } => {
                    let pairs = &mut self.totals.pairs[usize::from(array)];
                    *pairs = pairs.saturating_add(count);
                    self.totals.reallocations = self.totals.reallocations.saturating_add(count);
                }
                LeftOut::Bucket { lifetimes, bits, count, sum } => {
                    let histogram = if lifetimes { &mut self.lifetimes } else { &mut self.sizes };
                    histogram.add_bucket(bits, count, sum);
                }
                LeftOut::Unseen { bytes } => unseen = unseen.max(bytes),
                LeftOut::Peak { bytes, blocks, ns, uncertainty } => {
                    peak = Some((bytes, blocks, ns, uncertainty));
                }
                LeftOut::SitePeak { .. } => {}
                LeftOut::Foreign { count } => {
                    self.totals.foreign_frees = self.totals.foreign_frees.saturating_add(count);
                    self.totals.frees = self.totals.frees.saturating_add(count);
                }
            }
        }
        self.peak.unseen(unseen);
        if let Some((bytes, blocks, ns, uncertainty)) = peak {
            self.peak.known(bytes, blocks, ns, uncertainty);
            // What the events show at their own peak has nothing to do with it.
            let epoch = self.peak.epoch;
            for site in &mut self.sites {
                site.settle(epoch);
                (site.peak_bytes, site.peak_blocks) = (0, 0);
            }
            for what in list {
                if let LeftOut::SitePeak { node, bytes, blocks } = *what {
                    let site = self.site_of(node);
                    (site.peak_bytes, site.peak_blocks) = (bytes, blocks);
                }
            }
        }
    }

    fn site_of(&mut self, node: u32) -> &mut SiteTotals {
        let (index, new) = self.site_index.index(node);
        if new {
            self.sites.push(SiteTotals::new(node, self.peak.epoch));
        }
        // An index is given out once for each site that was pushed.
        let last = self.sites.len().saturating_sub(1);
        &mut self.sites[(index as usize).min(last)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn what_was_left_out_is_in_the_totals() {
        let mut replay = Replay::new(Options::default());
        replay.finish();
        replay.add_left_out(&[
            LeftOut::Site { node: 5, blocks: 10, bytes: 100, temporary: 4 },
            LeftOut::Site { node: 5, blocks: 1, bytes: 1, temporary: -1 },
            LeftOut::Thread {
                thread: 2,
                allocations: 11,
                bytes: 101,
                frees: 11,
                bytes_freed: 101,
                temporary: 3,
            },
            LeftOut::Calls { api: 0, count: 11 },
            LeftOut::Pairs { array: false, count: 2 },
            LeftOut::Bucket { lifetimes: true, bits: 4, count: 11, sum: 99 },
            LeftOut::Unseen { bytes: 30 },
            LeftOut::Unseen { bytes: 20 },
            LeftOut::Foreign { count: 1 },
        ]);
        let totals = replay.totals();
        assert_eq!((totals.allocations, totals.frees, totals.bytes_freed), (11, 12, 101));
        assert_eq!((totals.temporary, totals.reallocations, totals.foreign_frees), (3, 2, 1));
        assert_eq!((totals.peak_bytes, totals.peak_uncertainty), (0, 30));
        let site = replay.site(5).unwrap();
        assert_eq!((site.allocations, site.frees, site.temporary, site.live_blocks), (11, 11, 3, 0));
        assert_eq!(replay.threads()[0].allocations, 11);
        assert_eq!(replay.lifetimes().buckets().next().map(|b| b.count), Some(11));
        replay.add_left_out(&[
            LeftOut::Peak { bytes: 77, blocks: 3, ns: 9, uncertainty: 1 },
            LeftOut::SitePeak { node: 5, bytes: 70, blocks: 2 },
        ]);
        let totals = replay.totals();
        assert_eq!((totals.peak_bytes, totals.peak_blocks, totals.peak_ns), (77, 3, 9));
        assert_eq!(totals.peak_uncertainty, 1);
        assert_eq!(replay.site(5).map(|site| (site.peak_bytes, site.peak_blocks)), Some((70, 2)));
    }
}
