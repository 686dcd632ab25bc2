//! Trends of series that another tool took: instants and bytes.

use super::own;
use super::robust::Slope;
use super::{Class, Trend, edkit, edleak};

/// What became of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Is it a leak, by the trend that was asked for?
    pub leak: bool,
    /// By that trend; `None` where it says only yes or no.
    pub class: Option<Class>,
    /// edleak's leak factor, bytes.
    pub factor: i64,
    /// Growth per unit of time, by [`own`]; `None` with too few slices.
    pub slope: Option<Slope>,
}

/// Judges a series of sizes at instants. `None` where the trend cannot: with too
/// few slices, or fewer than 0 bytes.
pub fn judge(trend: Trend, times: &[f64], sizes: &[i64]) -> Option<Verdict> {
    let floats: Vec<f64> = sizes.iter().map(|&size| size as f64).collect();
    let judged = own::judge(times, &floats);
    let fit = edleak::fit(sizes);
    let (leak, class) = match trend {
        Trend::Own => judged.map(|judged| (judged.grows(), Some(judged.class)))?,
        Trend::Edleak => fit.map(|fit| (fit.is_leak(), Some(fit.class)))?,
        Trend::EdkitLogistic => (edkit::is_leak(sizes)?, None),
    };
    Some(Verdict {
        leak,
        class,
        factor: fit.map_or(0, |fit| fit.leak),
        slope: judged.map(|judged| judged.slope),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trend_has_its_own_word() {
        let times: Vec<f64> = (1..=20).map(f64::from).collect();
        let step: Vec<i64> = [0; 10].into_iter().chain([5000; 10]).collect();
        let own = judge(Trend::Own, &times, &step).unwrap();
        assert_eq!((own.leak, own.class), (false, Some(Class::Step)));
        let edleak = judge(Trend::Edleak, &times, &step).unwrap();
        assert_eq!((edleak.leak, edleak.class, edleak.factor), (true, Some(Class::Linear), 7518));
        let edkit = judge(Trend::EdkitLogistic, &times, &step).unwrap();
        assert_eq!(edkit.class, None);
        let line: Vec<i64> = (0..20).map(|i| 100 * i).collect();
        let slope = judge(Trend::Own, &times, &line).unwrap().slope.unwrap();
        assert!((slope.value - 100.0).abs() < 1e-9);
        assert_eq!(judge(Trend::Own, &times[..5], &line[..5]), None);
        assert_eq!(judge(Trend::Edleak, &[], &[]), None);
        assert_eq!(judge(Trend::Edleak, &times[..2], &[-1, 5]), None);
    }
}
