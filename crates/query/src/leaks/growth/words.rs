//! Growth in words.

use super::forecast::{Forecast, Range};
use super::own::Judged;
use super::robust::Slope;
use crate::units;

/// Seconds from which on growth is told by the second.
const BY_THE_SECOND: f64 = 1.0;

/// How fast it grows, to be put behind "grows by": a rate and the range that it is in
/// with 95 % confidence; of what was seen for less than a second only what came
/// together meanwhile.
pub fn rate(growth: &Judged) -> String {
    if growth.seconds < BY_THE_SECOND {
        return format!("{} in {}", units::size_text(growth.rise), time(growth.seconds));
    }
    let Slope { value, low, high } = growth.slope;
    between(Range { low, value, high }, "/s")
}

/// `in an hour it holds 3.0 MiB (2.9 MiB to 3.1 MiB)`
pub fn ahead(forecast: &Forecast) -> String {
    format!("in {} it holds {}", forecast.called, between(forecast.held, ""))
}

/// A size and the range around it, where that is wide enough to be seen.
fn between(range: Range, unit: &str) -> String {
    let [low, value, high] = [range.low, range.value, range.high].map(units::size_text);
    if low == value && value == high {
        format!("{value}{unit}")
    } else {
        format!("{value}{unit} ({low} to {high})")
    }
}

/// A number of seconds.
pub fn time(seconds: f64) -> String {
    if seconds.is_finite() && seconds < 1e9 {
        // Negative ones become 0.
        units::time_text((seconds * 1e9) as u64)
    } else {
        "ages".to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{forecast, own};
    use super::*;

    fn line(unit: f64) -> Judged {
        let times: Vec<f64> = (0..=90).map(|i| f64::from(i) * unit).collect();
        let bytes: Vec<f64> = (0..=90).map(|i| f64::from(i) * 1024.0).collect();
        own::judge(&times, &bytes).unwrap()
    }

    #[test]
    fn a_rate_by_the_second_needs_a_second() {
        assert_eq!(rate(&line(0.001)), "80.0 KiB in 80 ms");
        assert_eq!(rate(&line(0.1)), "10.0 KiB/s");
        let slope = Slope { value: 10_240.0, low: 9_216.0, high: 11_264.0 };
        assert_eq!(rate(&Judged { slope, ..line(0.1) }), "10.0 KiB/s (9.0 KiB to 11.0 KiB)");
    }

    #[test]
    fn a_forecast_names_its_horizon() {
        let growth = line(1.0);
        let text = ahead(&forecast::ahead(90.0 * 1024.0, &growth).unwrap());
        assert_eq!(text, "in ten minutes it holds 690.0 KiB");
    }

    #[test]
    fn a_time_is_never_written_as_infinite() {
        assert_eq!(time(f64::INFINITY), "ages");
        assert_eq!(time(1.5), "1.5 s");
    }
}
