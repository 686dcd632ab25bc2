//! Our own verdict on growth: by the level that is never given back.
//!
//! What a site holds goes up and down; a leak shows in what it never goes below
//! again. So the series is replaced by its *kept level*: at each instant the
//! smallest value from then on. It cannot fall. What a sawtooth or a queue adds
//! and takes away is not in it, however long its period, save what the last
//! tooth has built up; a step is one rise; a slow leak under noise raises it
//! again and again.
//!
//! The time since the site's first block is cut into nine windows of equal
//! numbers of slices. The last one tells nothing (what will be given back is
//! still there) and is left out. The site grows if the kept level rises in at
//! least 70 % of the other eight, if the later four rise nearly as much as the
//! earlier four (else something fills), and if Theil-Sen's slope through the
//! smallest values of sixteen windows is above zero with 95 % confidence. Times
//! are those of the slices, so that irregular sampling changes nothing.

use super::Class;
use super::robust::{Slope, mann_kendall, theil_sen};

/// Windows that count.
const WINDOWS: usize = 8;
/// Fewest slices to judge by.
pub const MIN_SLICES: usize = WINDOWS + 1;
/// Points of the lower envelope.
const ENVELOPE: usize = 16;
/// Share of the windows that must rise.
const SHARE: f64 = 0.7;
/// The later half rises by less than this part of the earlier: something fills.
const FILLS: f64 = 0.45;
/// And by more than so many times: ever faster.
const FASTER: f64 = 2.2;

/// What became of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// How it grows.
    pub class: Class,
    /// Windows in which the kept level rose.
    pub rises: u32,
    /// Of so many.
    pub windows: u32,
    /// Growth per second.
    pub slope: Slope,
    /// How much the kept level rose in the windows that count.
    pub rise: f64,
    /// How long these windows are together: what is said of the time to come rests
    /// on that many seconds.
    pub seconds: f64,
    /// Mann-Kendall's z of the lower envelope.
    pub z: f64,
}

impl Judged {
    /// Does it grow, and go on growing?
    pub fn grows(&self) -> bool {
        matches!(self.class, Class::Linear | Class::Exp)
            && f64::from(self.rises) >= SHARE * f64::from(self.windows)
            && self.slope.low > 0.0
            && self.z > 1.645
    }
}

/// Judges a series: the smallest value in each slice and the time of each
/// slice's end, from the slice of the first block on. `None` with fewer than
/// [`MIN_SLICES`] slices.
pub fn judge(times: &[f64], lows: &[f64]) -> Option<Judged> {
    let n = times.len().min(lows.len());
    if n < MIN_SLICES {
        return None;
    }
    let (times, lows) = (&times[..n], &lows[..n]);
    let mut kept = lows.to_vec();
    for at in (1..n).rev() {
        kept[at - 1] = kept[at - 1].min(kept[at]);
    }
    let border = |window: usize| (window * (n - 1) / (WINDOWS + 1)).min(n - 1);
    let rise: Vec<f64> = (0..WINDOWS).map(|w| kept[border(w + 1)] - kept[border(w)]).collect();
    let total: f64 = rise.iter().sum();
    let rises = rise.iter().filter(|&&rise| rise > 0.0).count();
    let (early, late) = rise.split_at(WINDOWS / 2);
    let (early, late): (f64, f64) = (early.iter().sum(), late.iter().sum());
    let largest = rise.iter().copied().fold(0.0, f64::max);
    let ended = rise[WINDOWS - 2..].iter().all(|&rise| rise <= 0.02 * total);
    // What it made at its beginning and kept is its level, not growth.
    let class = if rise[1..].iter().all(|&rise| rise <= 0.0) {
        Class::Const
    } else if rises <= 2 || (largest >= 0.8 * total && rises <= WINDOWS / 2) {
        Class::Step
    } else if ended || late < FILLS * early {
        Class::Log
    } else if late > FASTER * early {
        Class::Exp
    } else {
        Class::Linear
    };
    let (envelope_times, envelope) = envelope(times, lows);
    Some(Judged {
        class,
        rises: rises as u32,
        windows: WINDOWS as u32,
        slope: theil_sen(&envelope_times, &envelope).unwrap_or_default(),
        rise: total,
        seconds: times[border(WINDOWS)] - times[0],
        z: mann_kendall(&envelope),
    })
}

/// The smallest value of each of at most sixteen windows, and when it was.
fn envelope(times: &[f64], lows: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let n = lows.len();
    let windows = ENVELOPE.min(n);
    (0..windows)
        .filter_map(|window| {
            let (from, to) = (window * n / windows, (window + 1) * n / windows);
            // Of equal values the latest: a level that holds counts up to its end.
            (from..to).rev().min_by(|&a, &b| lows[a].total_cmp(&lows[b])).map(|at| (times[at], lows[at]))
        })
        .unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lows: impl Iterator<Item = f64>) -> Judged {
        let lows: Vec<f64> = lows.collect();
        let times: Vec<f64> = (1..=lows.len()).map(|i| i as f64).collect();
        judge(&times, &lows).unwrap()
    }

    /// Between 0 and 1, the same every time, without a trend.
    fn noise(i: usize) -> f64 {
        ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 24) as f64
    }

    #[test]
    fn a_line_grows_at_its_slope() {
        let judged = judged((0..100).map(|i| 3.0 * f64::from(i)));
        assert_eq!((judged.class, judged.rises), (Class::Linear, 8));
        assert!(judged.grows());
        assert!((judged.slope.value - 3.0).abs() < 1e-9, "{judged:?}");
    }

    #[test]
    fn edleaks_near_linear_vector_is_a_leak() {
        let judged = judged([200.0, 400.0].into_iter().chain((0..17).map(|i| 1000.0 + 200.0 * f64::from(i))));
        assert_eq!(judged.class, Class::Linear);
        assert!(judged.grows(), "{judged:?}");
    }

    #[test]
    fn a_step_is_no_leak() {
        let one = judged((0..100).map(|i| if i < 50 { 0.0 } else { 5000.0 }));
        assert_eq!(one.class, Class::Step);
        let two = judged((0..100).map(|i| f64::from(i / 40) * 5000.0));
        assert_eq!(two.class, Class::Step);
        assert!(!one.grows() && !two.grows());
    }

    #[test]
    fn a_sawtooth_is_no_leak_whatever_its_period() {
        for period in [2, 7, 20, 33, 50] {
            let judged = judged((0..100).map(|i| f64::from(i % period) * 100.0));
            assert!(!judged.grows(), "{period}: {judged:?}");
        }
        // With a leak below many teeth it is one.
        for period in [2, 4, 7] {
            let judged = judged((0..100).map(|i| f64::from(i % period) * 100.0 + f64::from(i)));
            assert!(judged.grows(), "{period}: {judged:?}");
        }
    }

    #[test]
    fn what_fills_is_no_leak() {
        for speed in [2.5, 4.0, 10.0] {
            let judged = judged((0..100).map(|i| 1000.0 * (1.0 - (-speed * f64::from(i) / 100.0).exp())));
            assert!(!judged.grows(), "{speed}: {judged:?}");
        }
        // Full at two thirds of the time.
        let full = judged((0..99).map(|i| f64::from(i.min(66)) * 10.0));
        assert_eq!(full.class, Class::Log);
    }

    #[test]
    fn a_slow_leak_under_noise_is_found_and_noise_alone_is_none() {
        let alone = judged((0..128).map(|i| 1000.0 + 100.0 * noise(i)));
        assert!(!alone.grows(), "{alone:?}");
        let slow = judged((0..128).map(|i| 1000.0 + 100.0 * noise(i) + i as f64));
        assert!(slow.grows(), "{slow:?}");
        assert!(slow.slope.low < 1.0 && slow.slope.high > 1.0, "{slow:?}");
    }

    #[test]
    fn irregular_slices_do_not_bend_a_line() {
        let times: Vec<f64> = (1..=60).map(|i| f64::from(i * i)).collect();
        let lows: Vec<f64> = times.iter().map(|t| 2.0 * t).collect();
        let judged = judge(&times, &lows).unwrap();
        assert!((judged.slope.value - 2.0).abs() < 1e-9);
    }

    #[test]
    fn growth_ever_faster_is_growth_and_shrinking_is_not() {
        let faster = judged((0..100).map(|i| f64::from(i * i)));
        assert_eq!(faster.class, Class::Exp);
        assert!(faster.grows());
        let less = judged((0..100).map(|i| f64::from(100 - i)));
        assert_eq!(less.class, Class::Const);
        assert!(judge(&[1.0; 8], &[1.0; 8]).is_none());
    }
}
