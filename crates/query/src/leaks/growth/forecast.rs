//! What growth comes to: after a while, and when a limit is reached.
//!
//! A straight line through what was seen reaches [`REACH`] times as far as that, no
//! further: nobody knows from 50 ms what a program will do in an hour.

use super::own::Judged;
use super::robust::Slope;

/// How far a forecast reaches, in lengths of the time that it was made from.
pub const REACH: f64 = 10.0;

/// Stretches of time that forecasts are made for, longest first: seconds, and how
/// they are called.
pub const HORIZONS: [(f64, &str); 3] = [(3600.0, "an hour"), (600.0, "ten minutes"), (60.0, "a minute")];

/// What a site will hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// In so many seconds.
    pub seconds: f64,
    /// That is in `an hour`, …
    pub called: &'static str,
    /// So many bytes.
    pub held: Range,
}

/// What will be held that is `now` bytes, as far ahead as the growth was seen long
/// enough for; `None` where that is not even the shortest of [`HORIZONS`].
pub fn ahead(now: f64, growth: &Judged) -> Option<Forecast> {
    let reached = |horizon: &&(f64, &str)| horizon.0 <= REACH * growth.seconds;
    let &(seconds, called) = HORIZONS.iter().find(reached)?;
    Some(Forecast { seconds, called, held: held_after(now, &growth.slope, seconds) })
}

/// A range of values that one expects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The least.
    pub low: f64,
    /// What is most likely.
    pub value: f64,
    /// The most; may be infinite.
    pub high: f64,
}

/// What will be held `seconds` after it was `now`.
pub fn held_after(now: f64, slope: &Slope, seconds: f64) -> Range {
    let at = |slope: f64| (now + slope * seconds).max(0.0);
    Range { low: at(slope.low), value: at(slope.value), high: at(slope.high) }
}

/// In how many seconds `limit` is reached. `None` if it does not grow; 0 if it
/// is reached already.
pub fn reaches(limit: f64, now: f64, slope: &Slope) -> Option<Range> {
    if slope.value <= 0.0 {
        return None;
    }
    let rest = (limit - now).max(0.0);
    let after = |slope: f64| if slope > 0.0 { rest / slope } else { f64::INFINITY };
    Some(Range { low: after(slope.high), value: after(slope.value), high: after(slope.low) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_a_blink_foretold_the_hour_to_come() {
        let times: Vec<f64> = (0..=90).map(f64::from).collect();
        let bytes: Vec<f64> = times.iter().map(|t| 5.0 * t).collect();
        let seen = |unit: f64| {
            let times: Vec<f64> = times.iter().map(|t| t * unit).collect();
            super::super::own::judge(&times, &bytes).unwrap()
        };
        // The last of nine windows does not count: 80 units are seen.
        assert_eq!(seen(0.0005).seconds, 0.04);
        assert_eq!(ahead(450.0, &seen(0.0005)), None);
        assert_eq!(ahead(450.0, &seen(0.07)), None);
        let minute = ahead(450.0, &seen(0.08)).unwrap();
        assert_eq!((minute.seconds, minute.called), (60.0, "a minute"));
        assert!((minute.held.value - (450.0 + 60.0 * 5.0 / 0.08)).abs() < 1e-6, "{minute:?}");
        assert_eq!(ahead(450.0, &seen(1.0)).unwrap().seconds, 600.0);
        assert_eq!(ahead(450.0, &seen(5.0)).unwrap().called, "an hour");
    }

    #[test]
    fn a_limit_is_reached_when_the_slope_says() {
        let slope = Slope { value: 10.0, low: 5.0, high: 20.0 };
        assert_eq!(held_after(100.0, &slope, 60.0), Range { low: 400.0, value: 700.0, high: 1300.0 });
        assert_eq!(reaches(1100.0, 100.0, &slope), Some(Range { low: 50.0, value: 100.0, high: 200.0 }));
        assert_eq!(reaches(50.0, 100.0, &slope).unwrap().value, 0.0);
        let unsure = Slope { value: 1.0, low: -1.0, high: 2.0 };
        assert_eq!(reaches(200.0, 100.0, &unsure).unwrap().high, f64::INFINITY);
        assert_eq!(reaches(200.0, 100.0, &Slope::default()), None);
    }
}
