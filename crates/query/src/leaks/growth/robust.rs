//! Statistics that a few wild values do not sway.

/// Most points that a slope is computed from; more are thinned out evenly.
const MAX_POINTS: usize = 128;

/// A slope and between what it lies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slope {
    /// The median of the slopes between all pairs of points (Theil 1950, Sen 1968).
    pub value: f64,
    /// With 95 % confidence it is no less.
    pub low: f64,
    /// And no more.
    pub high: f64,
}

/// Theil-Sen's slope of `y` over `x`, with Sen's confidence interval. Points
/// with equal `x` make no pair. `None` with fewer than three pairs.
pub fn theil_sen(x: &[f64], y: &[f64]) -> Option<Slope> {
    let points = x.len().min(y.len());
    let thin = points.div_ceil(MAX_POINTS).max(1);
    let points: Vec<(f64, f64)> = x.iter().copied().zip(y.iter().copied()).step_by(thin).collect();
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (at, a) in points.iter().enumerate() {
        for b in &points[at + 1..] {
            if b.0 > a.0 {
                slopes.push((b.1 - a.1) / (b.0 - a.0));
            }
        }
    }
    if slopes.len() < 3 {
        return None;
    }
    let n = slopes.len();
    let values: Vec<f64> = points.iter().map(|point| point.1).collect();
    let off = 1.96 * mann_kendall_variance(&values).sqrt();
    let low = ((n as f64 - off) / 2.0).floor().max(0.0) as usize;
    let high = ((n as f64 + off) / 2.0).ceil().min((n - 1) as f64) as usize;
    // Not all of them need be in order: only these at their places.
    let (before, &mut after, _) = slopes.select_nth_unstable_by(n / 2, f64::total_cmp);
    let value = match before.iter().copied().max_by(f64::total_cmp) {
        Some(before) if n % 2 == 0 => (before + after) / 2.0,
        _ => after,
    };
    let mut nth = |at: usize| *slopes.select_nth_unstable_by(at.min(n - 1), f64::total_cmp).1;
    Some(Slope { value, low: nth(low), high: nth(high) })
}

/// Mann and Kendall's test for a trend: `z` above 1.645 is a rise that chance
/// makes in one of twenty series without one.
pub fn mann_kendall(y: &[f64]) -> f64 {
    let mut s = 0i64;
    for (at, a) in y.iter().enumerate() {
        for b in &y[at + 1..] {
            s += match b.total_cmp(a) {
                std::cmp::Ordering::Greater => 1,
                std::cmp::Ordering::Less => -1,
                std::cmp::Ordering::Equal => 0,
            };
        }
    }
    let deviation = mann_kendall_variance(y).sqrt();
    if deviation == 0.0 { 0.0 } else { (s - s.signum()) as f64 / deviation }
}

/// The variance of its sum, with ties.
fn mann_kendall_variance(y: &[f64]) -> f64 {
    let term = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let mut sorted = y.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|tie| term(tie.len() as f64)).sum();
    (term(y.len() as f64) - ties) / 18.0
}

/// Solves three equations; each row holds the coefficients and the right side.
/// `None` where they do not say one thing.
pub fn solve3(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        if rows[column][column].abs() < 1e-12 {
            return None;
        }
        for row in 0..3 {
            if row != column {
                let pivot = rows[column];
                let factor = rows[row][column] / pivot[column];
                for (value, pivot) in rows[row].iter_mut().zip(pivot) {
                    *value -= factor * pivot;
                }
            }
        }
    }
    Some(std::array::from_fn(|at| rows[at][3] / rows[at][at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_bounds_are_those_of_all_slopes_in_order() {
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 59) as f64
        };
        for count in 3..40 {
            let x: Vec<f64> = (0..count).map(f64::from).collect();
            let y: Vec<f64> = x.iter().map(|_| next()).collect();
            let pairs = (0..x.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
            let mut slopes: Vec<f64> = pairs.map(|(a, b)| (y[b] - y[a]) / (x[b] - x[a])).collect();
            slopes.sort_by(f64::total_cmp);
            let n = slopes.len();
            let middle = if n % 2 == 1 { slopes[n / 2] } else { (slopes[n / 2 - 1] + slopes[n / 2]) / 2.0 };
            let slope = theil_sen(&x, &y).unwrap();
            let off = 1.96 * mann_kendall_variance(&y).sqrt();
            let low = slopes[((n as f64 - off) / 2.0).floor().max(0.0) as usize];
            let high = slopes[((n as f64 + off) / 2.0).ceil().min((n - 1) as f64) as usize];
            assert_eq!(slope, Slope { value: middle, low, high });
        }
    }

    #[test]
    fn one_wild_value_does_not_move_the_slope() {
        let x: Vec<f64> = (0..30).map(f64::from).collect();
        let mut y: Vec<f64> = x.iter().map(|x| 5.0 * x + 3.0).collect();
        y[29] = 1e9;
        let slope = theil_sen(&x, &y).unwrap();
        assert!((slope.value - 5.0).abs() < 1e-9, "{slope:?}");
        assert!((slope.low - 5.0).abs() < 1e-9 && slope.high < 1e9, "{slope:?}");
    }

    #[test]
    fn irregular_sampling_does_not_bend_a_line() {
        let x: Vec<f64> = (0..30).map(|i| f64::from(i * i * i)).collect();
        let y: Vec<f64> = x.iter().map(|x| 2.0 * x).collect();
        assert!((theil_sen(&x, &y).unwrap().value - 2.0).abs() < 1e-9);
        assert_eq!(theil_sen(&[1.0; 9], &[2.0; 9]), None);
        assert_eq!(theil_sen(&[], &[]), None);
    }

    #[test]
    fn the_interval_of_noise_holds_zero_and_that_of_a_trend_does_not() {
        let x: Vec<f64> = (0..100).map(f64::from).collect();
        // A fixed sequence without a trend (a linear congruence).
        let noise: Vec<f64> = (0..100u64).map(|i| ((i * 7919 + 13) % 101) as f64).collect();
        let slope = theil_sen(&x, &noise).unwrap();
        assert!(slope.low < 0.0 && slope.high > 0.0, "{slope:?}");
        assert!(mann_kendall(&noise).abs() < 1.645);
        let trend: Vec<f64> = noise.iter().zip(&x).map(|(noise, x)| noise + x).collect();
        let slope = theil_sen(&x, &trend).unwrap();
        assert!(slope.low > 0.4 && slope.high < 1.6, "{slope:?}");
        assert!(mann_kendall(&trend) > 4.0);
    }

    #[test]
    fn the_test_for_a_trend_knows_its_tabled_value() {
        // n = 10, strictly rising: S = 45, variance 125.
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        assert!((mann_kendall(&rising) - 44.0 / 125f64.sqrt()).abs() < 1e-12);
        assert_eq!(mann_kendall(&[1.0; 10]), 0.0);
    }

    #[test]
    fn equations_without_one_answer_have_none() {
        assert_eq!(solve3([[1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0], [0.0, 0.0, 1.0, 1.0]]), None);
        let x = solve3([[0.0, 2.0, 0.0, 4.0], [1.0, 0.0, 0.0, 3.0], [0.0, 0.0, 4.0, 2.0]]).unwrap();
        assert_eq!(x, [3.0, 2.0, 0.5]);
    }
}
