//! The classifier of edleak's server: a logistic regression on the three
//! coefficients of a parabola.
//!
//! Sizes and numbers of slices are brought to `[0, 1]` each, `y = b0 + b1 x + b2
//! x²` is fitted by least squares, and a leak is what has
//! `w·b + intercept > 0` with the weights the server was trained to.

use super::robust::solve3;

/// The weights of `b0`, `b1`, `b2`.
const WEIGHTS: [f64; 3] = [-2.544608791, 4.840186409, 4.878873393];
const INTERCEPT: f64 = -3.936865375;

/// Is it a leak? `None` where there is no parabola: fewer than three slices.
/// A site that never changes is none.
pub fn is_leak(slices: &[i64]) -> Option<bool> {
    let score = score(slices)?;
    Some(score > 0.0)
}

/// The classifier's value: above 0 is a leak, and `1/(1+e^-score)` its
/// probability.
pub fn score(slices: &[i64]) -> Option<f64> {
    let (min, max) = (*slices.iter().min()?, *slices.iter().max()?);
    if slices.len() < 3 {
        return None;
    }
    if min == max {
        return Some(INTERCEPT);
    }
    let span = max as f64 - min as f64;
    let last = (slices.len() - 1) as f64;
    let mut rows = [[0.0f64; 4]; 3];
    for (i, &m) in slices.iter().enumerate() {
        let x = i as f64 / last;
        let base = [1.0, x, x * x, (m as f64 - min as f64) / span];
        for row in 0..3 {
            for column in 0..4 {
                rows[row][column] += base[row] * base[column];
            }
        }
    }
    let b = solve3(rows)?;
    Some(b.iter().zip(WEIGHTS).map(|(b, w)| b * w).sum::<f64>() + INTERCEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_scores_what_the_weights_say() {
        let linear: Vec<i64> = (0..20).map(|i| 100 * i).collect();
        // b = (0, 1, 0)
        assert!((score(&linear).unwrap() - (WEIGHTS[1] + INTERCEPT)).abs() < 1e-9);
        assert_eq!(is_leak(&linear), Some(true));
        let square: Vec<i64> = (0..20).map(|i| 10 * i * i).collect();
        assert!((score(&square).unwrap() - (WEIGHTS[2] + INTERCEPT)).abs() < 1e-9);
    }

    #[test]
    fn what_fills_falls_or_stands_is_no_leak() {
        let filling: Vec<i64> =
            (0..20).map(|i| (1000.0 * (1.0 - (-f64::from(i) / 3.0).exp())) as i64).collect();
        assert_eq!(is_leak(&filling), Some(false));
        let falling: Vec<i64> = (0..20).map(|i| 2000 - 100 * i).collect();
        assert_eq!(is_leak(&falling), Some(false));
        assert_eq!(is_leak(&[7; 9]), Some(false));
        assert_eq!(is_leak(&[1, 2]), None);
        assert_eq!(is_leak(&[]), None);
        assert!(is_leak(&[i64::MIN, 0, i64::MAX]).is_some());
    }
}
