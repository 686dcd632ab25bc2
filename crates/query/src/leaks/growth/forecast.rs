//! What growth comes to: in an hour, and when a limit is reached.

use super::robust::Slope;

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
