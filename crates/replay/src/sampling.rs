//! Estimates from a sample of the blocks.
//!
//! With [`Options::sample`](crate::Options::sample) the stream holds only the
//! blocks that a [`Sampler`](highwater_event::sample::Sampler) kept. A block of
//! `s` bytes was kept with probability `p = 1 - exp(-s / rate)`, so it stands for
//! `w = 1 / p` blocks like it, `w s` bytes. Sums over the weighted blocks are
//! unbiased estimates of the sums over all blocks (Horvitz and Thompson, 1952);
//! since blocks are kept independently of each other, the sum of `w (w - 1) s^2`
//! over the kept blocks is an unbiased estimate of the estimate's variance.
//!
//! Counts stay whole numbers: a block stands for `w` rounded up or down, by a
//! random bit of its seqno that makes the mean `w` again.

use highwater_event::sample::{extent, mix};

/// Variances of counts are kept in such parts of one: those of nearly certain
/// blocks are far below one each.
pub const COUNT_PARTS: u64 = 1024;

/// What one kept block stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// So many blocks.
    pub blocks: u64,
    /// So many bytes.
    pub bytes: u64,
    /// What it adds to the variance of a sum of bytes, bytes squared.
    pub variance: u64,
    /// What it adds to the variance of a count, in parts of [`COUNT_PARTS`].
    pub blocks_variance: u64,
}

impl Weight {
    /// What a block stands for where every block is in the stream.
    #[inline]
    pub const fn whole(size: u64) -> Weight {
        Weight { blocks: 1, bytes: size, variance: 0, blocks_variance: 0 }
    }

    /// What a kept block of `size` bytes stands for, where marks have a mean
    /// distance of `rate` bytes. `seqno` names the block.
    pub fn sampled(rate: u64, size: u64, seqno: u64) -> Weight {
        let chance = -(-(extent(size) as f64) / rate.max(1) as f64).exp_m1();
        let weight = 1.0 / chance;
        let floor = weight.floor();
        let rest = weight - floor;
        let random = (mix(seqno ^ 0x5851_f42d_4c95_7f2d) >> 11) as f64 / (1u64 << 53) as f64;
        let blocks = floor + f64::from(u8::from(random < rest));
        let size = size as f64;
        // Casts of floats saturate; the sums of these are what must not overflow soon.
        Weight {
            blocks: blocks as u64,
            bytes: (weight * size).round() as u64,
            variance: (weight * (weight - 1.0) * size * size).round() as u64,
            blocks_variance: ((weight * (weight - 1.0) + rest * (1.0 - rest)) * COUNT_PARTS as f64).round()
                as u64,
        }
    }
}

/// The sample behind the estimates in [`Totals`](crate::Totals). All zero where
/// nothing was sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Mean distance of marks, bytes; 0: every block was recorded.
    pub rate: u64,
    /// Blocks in the sample.
    pub blocks: u64,
    /// Of them, alive.
    pub live: u64,
    /// Variance of the estimated sum of all bytes allocated.
    pub bytes_variance: u64,
    /// Variance of the estimated number of all blocks, in parts of [`COUNT_PARTS`].
    pub blocks_variance: u64,
    /// Variance of the estimated live bytes.
    pub live_variance: u64,
    /// Variance of the estimated number of live blocks, in such parts.
    pub live_blocks_variance: u64,
    /// Variance of the estimated peak, bytes.
    pub peak_variance: u64,
    /// Variance of the estimated number of blocks at the peak, in such parts.
    pub peak_blocks_variance: u64,
}

impl Sampled {
    /// A block of the sample was made.
    #[inline]
    pub fn made(&mut self, weight: &Weight) {
        self.blocks += 1;
        self.bytes_variance = self.bytes_variance.saturating_add(weight.variance);
        self.blocks_variance = self.blocks_variance.saturating_add(weight.blocks_variance);
        self.came(weight);
    }

    /// A block of the sample lives (again).
    #[inline]
    pub fn came(&mut self, weight: &Weight) {
        self.live = self.live.wrapping_add(1);
        self.live_variance = self.live_variance.wrapping_add(weight.variance);
        self.live_blocks_variance = self.live_blocks_variance.wrapping_add(weight.blocks_variance);
    }

    /// A block of the sample ended.
    #[inline]
    pub fn went(&mut self, weight: &Weight) {
        self.live = self.live.wrapping_sub(1);
        self.live_variance = self.live_variance.wrapping_sub(weight.variance);
        self.live_blocks_variance = self.live_blocks_variance.wrapping_sub(weight.blocks_variance);
    }

    /// Of a window that begins now: only what lives counts so far.
    pub(crate) fn restarted(&self) -> Sampled {
        Sampled {
            peak_variance: self.live_variance,
            peak_blocks_variance: self.live_blocks_variance,
            blocks: 0,
            bytes_variance: 0,
            blocks_variance: 0,
            ..*self
        }
    }

    /// The live size is the greatest so far.
    #[inline]
    pub fn peaked(&mut self) {
        self.peak_variance = self.live_variance;
        self.peak_blocks_variance = self.live_blocks_variance;
    }
}

/// Half the width of the interval around an estimate that holds the truth with
/// 95 % probability: 1.96 standard errors. 0 for an exact number.
pub fn error95(variance: u64) -> u64 {
    (1.96 * (variance as f64).sqrt()).round() as u64
}

/// The same for a count, of which the variance is in parts of [`COUNT_PARTS`].
pub fn count_error95(variance: u64) -> u64 {
    (1.96 * (variance as f64 / COUNT_PARTS as f64).sqrt()).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Replay};
    use highwater_event::api::ApiKind;
    use highwater_event::sample::Sampler;
    use highwater_trace::model::{Event, Op, Step};

    /// A heap's operations, all of them: (address, size, is it an alloc), three sites.
    fn operations(seed: u64) -> Vec<(u64, u64, u32, bool)> {
        let mut random = seed;
        let mut next = || {
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(random)
        };
        let mut live: Vec<(u64, u64, u32)> = Vec::new();
        let mut list = Vec::new();
        for step in 0..6000u64 {
            if next() % 5 < 2 && !live.is_empty() {
                let place = (next() % live.len() as u64) as usize;
                let (addr, size, site) = live.swap_remove(place);
                list.push((addr, size, site, false));
            } else {
                let size = match next() % 10 {
                    0..=5 => 8 + next() % 120,
                    6..=8 => next() % 4096,
                    _ => next() % 100_000,
                };
                let block = (0x1000 + step * 0x10_0000, size, 1 + (size % 3) as u32);
                live.push(block);
                list.push((block.0, block.1, block.2, true));
            }
        }
        list
    }

    struct Truth {
        live: (u64, u64),
        peak: u64,
        bytes: u64,
        blocks: u64,
        site: u64,
    }

    fn truth(list: &[(u64, u64, u32, bool)]) -> Truth {
        let mut truth = Truth { live: (0, 0), peak: 0, bytes: 0, blocks: 0, site: 0 };
        for &(_, size, site, alloc) in list {
            if alloc {
                truth.blocks += 1;
                truth.bytes += size;
                truth.live.0 += size;
                truth.live.1 += 1;
                truth.peak = truth.peak.max(truth.live.0);
                truth.site += if site == 2 { size } else { 0 };
            } else {
                truth.live.0 -= size;
                truth.live.1 -= 1;
                truth.site -= if site == 2 { size } else { 0 };
            }
        }
        truth
    }

    fn sampled(list: &[(u64, u64, u32, bool)], rate: u64, seed: u64) -> Replay {
        let mut sampler = Sampler::new(rate, seed);
        let mut kept = std::collections::HashSet::new();
        let mut replay = Replay::new(Options { sample: rate, ..Options::default() });
        let mut seqno = 0;
        for &(addr, size, node, alloc) in list {
            let keep = if alloc { sampler.take(size) && kept.insert(addr) } else { kept.remove(&addr) };
            if !keep {
                continue;
            }
            let (op, api) = match alloc {
                true => (Op::Alloc { size, usable: None }, ApiKind::Malloc),
                false => (Op::Free, ApiKind::Free),
            };
            let event = Event { seqno, ns: seqno, stamp: seqno, thread: 0, op, api, addr, node, pair: None };
            replay.feed(&Step::Event(event));
            seqno += 1;
        }
        replay.finish();
        replay
    }

    /// Over many seeds the mean of an estimate is the truth, and its interval
    /// holds the truth about 95 times in a hundred.
    #[test]
    fn estimates_are_unbiased_and_their_intervals_hold() {
        let list = operations(42);
        let truth = truth(&list);
        let mut covered = 0;
        for rate in [256u64, 4096, 32_768] {
            let runs = 400;
            // live bytes, live blocks, bytes, blocks, one site's live bytes
            let want = [truth.live.0, truth.live.1, truth.bytes, truth.blocks, truth.site];
            let (mut sums, mut squares, mut holds) = ([0.0; 5], [0.0; 5], [0u32; 5]);
            for seed in 0..runs {
                let replay = sampled(&list, rate, 1000 + seed * 77);
                let totals = replay.totals();
                let site = replay.site(2);
                let of_site = |f: fn(&crate::SiteTotals) -> u64| site.as_ref().map_or(0, f);
                let got = [
                    (totals.live_bytes, totals.sampled.live_variance),
                    (totals.live_blocks, totals.sampled.live_blocks_variance),
                    (totals.bytes_allocated, totals.sampled.bytes_variance),
                    (totals.allocations, totals.sampled.blocks_variance),
                    (of_site(|s| s.live_bytes), of_site(|s| s.live_variance)),
                ];
                for (i, (estimate, variance)) in got.into_iter().enumerate() {
                    let off = estimate as f64 - want[i] as f64;
                    sums[i] += off;
                    squares[i] += off * off;
                    let error = if i % 2 == 1 { count_error95(variance) } else { error95(variance) };
                    holds[i] += u32::from(off.abs() <= error as f64);
                }
            }
            for i in 0..5 {
                let runs = runs as f64;
                let mean = sums[i] / runs;
                let deviation = (squares[i] / runs - mean * mean).max(0.0).sqrt();
                // The mean of so many runs is off by its own standard error.
                let allowed = 4.0 * deviation / runs.sqrt() + 1e-3 * want[i] as f64 + 1.0;
                assert!(mean.abs() <= allowed, "rate {rate}, number {i}: off by {mean} of {}", want[i]);
                let share = f64::from(holds[i]) / runs;
                // Where a handful of blocks carries the estimate (its error is
                // a good part of it), no interval of this kind holds 95 %.
                if deviation < 0.15 * want[i] as f64 {
                    assert!(share >= 0.91, "rate {rate}, number {i}: held {share}");
                    covered += 1;
                }
            }
        }
        assert!(covered >= 8, "{covered}");
    }

    #[test]
    fn with_a_mark_on_every_byte_the_estimate_is_the_truth() {
        // A rate of one byte keeps every block of 40 bytes or more for certain.
        let list: Vec<_> = operations(7).into_iter().filter(|op| op.1 >= 40).collect();
        let truth = truth(&list);
        let totals = sampled(&list, 1, 3).totals();
        assert_eq!((totals.live_bytes, totals.live_blocks), truth.live);
        assert_eq!((totals.peak_bytes, totals.allocations), (truth.peak, truth.blocks));
        assert_eq!(totals.sampled.live_variance, 0);
    }

    #[test]
    fn what_is_freed_is_taken_off_to_the_last_byte() {
        let list = operations(9);
        let mut replay = sampled(&list, 1024, 5);
        for block in replay.live_set() {
            let event = Event {
                seqno: 1_000_000 + block.seqno,
                ns: u64::MAX >> 9,
                stamp: 0,
                thread: 0,
                op: Op::Free,
                api: ApiKind::Free,
                addr: block.addr,
                node: 0,
                pair: None,
            };
            replay.feed(&Step::Event(event));
        }
        replay.finish();
        let totals = replay.totals();
        assert_eq!((totals.live_bytes, totals.live_blocks), (0, 0));
        assert_eq!((totals.sampled.live, totals.sampled.live_variance), (0, 0));
        assert_eq!(totals.sampled.live_blocks_variance, 0);
        assert_eq!(totals.allocations, totals.frees);
        assert!(replay.sites().all(|site| site.live_variance == 0 && site.live_bytes == 0));
    }

    #[test]
    fn weights_of_odd_sizes_are_whole_and_finite() {
        for rate in [1, 64, 1 << 40] {
            for size in [0, 1, 63, 1 << 20, u64::MAX >> 8] {
                let weight = Weight::sampled(rate, size, 5);
                assert!(weight.blocks >= 1, "{rate} {size}");
                assert!(weight.bytes >= size - size / 1000, "{rate} {size}");
            }
        }
    }
}
