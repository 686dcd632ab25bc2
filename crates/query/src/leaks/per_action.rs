//! How much an action adds, and how sure that is.

use super::growth::forecast::Range;

/// Student's t for a two-sided confidence of 95 %, by degrees of freedom from 1
/// ("Student", The probable error of a mean, Biometrika 6, 1908; values of the
/// usual tables). Above 30 the normal distribution's 1.96 is close enough.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The mean of what equal actions added, with the interval that holds the true one
/// with 95 % confidence; not below 0. `None` for a single action.
pub fn mean(added: &[u64]) -> Option<Range> {
    let n = added.len();
    if n < 2 {
        return None;
    }
    let mean = added.iter().map(|&one| one as f64).sum::<f64>() / n as f64;
    let squares: f64 = added.iter().map(|&one| (one as f64 - mean).powi(2)).sum();
    let t = T.get(n - 2).copied().unwrap_or(1.96);
    let error = t * (squares / (n - 1) as f64 / n as f64).sqrt();
    Some(Range { low: (mean - error).max(0.0), value: mean, high: mean + error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(added: &[u64]) -> (f64, f64, f64) {
        let range = mean(added).unwrap();
        let round = |value: f64| (value * 10.0).round() / 10.0;
        (round(range.low), round(range.value), round(range.high))
    }

    #[test]
    fn equal_actions_leave_no_doubt() {
        assert_eq!(of(&[200, 200, 200]), (200.0, 200.0, 200.0));
        assert!(mean(&[200]).is_none() && mean(&[]).is_none());
    }

    #[test]
    fn the_interval_is_students() {
        // Mean 5, standard deviation 2.449, error 2.449 / sqrt(5) * 2.776.
        assert_eq!(of(&[2, 4, 4, 7, 8]), (2.0, 5.0, 8.0));
        // Two actions that differ say little.
        assert_eq!(of(&[10, 30]), (0.0, 20.0, 147.1));
        let many: Vec<u64> = (0..100).map(|n| 100 + n % 2).collect();
        assert_eq!(of(&many), (100.4, 100.5, 100.6));
    }
}
