//! edleak's leak factor, as its client computed it until 2015.
//!
//! A parabola `y = c0 x^2 + c1 x + c2` is laid by least squares through the
//! slices of a site, with `x = i/n` and `y = (m - min)/(max - min)`. The leak
//! factor is how much the parabola rises from 0 to 1, in bytes: `(c0 + c1)(max -
//! min)`, cut to an integer. What rises by at most a byte is `const`; else the
//! curvature decides: below -0.2 it is `log`, above 0.2 `exp`, else `linear`.
//! Reported as leaks are `linear` and `exp`.
//!
//! Its known weaknesses are kept, that is the point of a named method: a step
//! and a sawtooth are called linear leaks, time does not count but only the
//! number of the slice, and nothing says how well the parabola fits. See
//! [`super::own`] for what we go by.
//!
//! The numbers are computed exactly, in integers, so that no rounding turns a
//! factor of 2000 into 1999: with `t = 2i - (n-1)` and the sums `Tk = Σ t^k (m -
//! min)`, orthogonal polynomials give
//! `factor = (6 T1 (n²-4) + 15 (3 T2 - (n²-1) T0)) / ((n²-1)(n²-4))` and
//! `c0 = 15 n (3 T2 - (n²-1) T0) / ((n²-1)(n²-4)(max - min))`.

use super::Class;

/// More slices than this are thinned out: beyond, the integers overflow.
const MAX_SLICES: usize = 16_384;

/// The fit of one site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Fewest bytes of a slice.
    pub min_size: i64,
    /// Most bytes of a slice.
    pub max_size: i64,
    /// `c0`, `c1`, `c2`.
    pub coef: [f64; 3],
    /// The leak factor, bytes.
    pub leak: i64,
    /// `const`, `linear`, `log` or `exp`.
    pub class: Class,
}

impl Fit {
    /// Is it reported as a leak?
    pub fn is_leak(&self) -> bool {
        self.leak > 0 && matches!(self.class, Class::Linear | Class::Exp)
    }
}

/// Fits the bytes of a site in each slice where it occurs. `None` without
/// slices, and where a slice has fewer than 0 bytes.
pub fn fit(slices: &[i64]) -> Option<Fit> {
    let min = slices.iter().copied().min()?;
    let max = slices.iter().copied().max()?;
    if min < 0 {
        return None;
    }
    let thin = slices.len().div_ceil(MAX_SLICES);
    let y: Vec<i128> = slices.iter().step_by(thin).map(|&m| i128::from(m - min)).collect();
    let span = i128::from(if max == min { 1 } else { max - min });
    let n = y.len() as i128;
    let (leak, c0, coef) = match *y.as_slice() {
        [_] => (0, Sign { over: 0, under: 1 }, [0.0; 3]),
        // Two points have many parabolas; the client's solver took the one with
        // the smallest coefficients.
        [first, second] => {
            let rise = second - first;
            let (first, slope) = (first as f64 / span as f64, rise as f64 / span as f64);
            (12 * rise / 5, Sign { over: 4 * rise, under: 5 * span }, [0.8 * slope, 1.6 * slope, first])
        }
        _ => parabola(&y, n, span),
    };
    let leak = i64::try_from(leak).unwrap_or(if leak < 0 { i64::MIN } else { i64::MAX });
    let class = match c0 {
        _ if leak <= 1 => Class::Const,
        c0 if 5 * c0.over < -c0.under => Class::Log,
        c0 if 5 * c0.over > c0.under => Class::Exp,
        _ => Class::Linear,
    };
    Some(Fit { min_size: min, max_size: if max == min { min + 1 } else { max }, coef, leak, class })
}

/// `over / under`, under > 0.
#[derive(Clone, Copy)]
struct Sign {
    over: i128,
    under: i128,
}

fn parabola(y: &[i128], n: i128, span: i128) -> (i128, Sign, [f64; 3]) {
    let (mut t0, mut t1, mut t2) = (0i128, 0i128, 0i128);
    for (i, &y) in y.iter().enumerate() {
        let t = 2 * i as i128 - (n - 1);
        t0 += y;
        t1 += t * y;
        t2 += t * t * y;
    }
    let (a, b) = (n * n - 1, n * n - 4);
    let bend = 3 * t2 - a * t0;
    let leak = (6 * t1 * b + 15 * bend) / (a * b);
    let (nf, af, bf, span_f) = (n as f64, a as f64, b as f64, span as f64);
    // Around the middle: mean, slope and bend in t; then back to x = i/n.
    let mean = t0 as f64 / nf;
    let slope = 3.0 * t1 as f64 / (nf * af);
    let curve = 15.0 * bend as f64 / (4.0 * nf * af * bf);
    let c0 = 4.0 * nf * nf * curve / span_f;
    let c1 = (2.0 * nf * slope - 4.0 * nf * (nf - 1.0) * curve) / span_f;
    let c2 = (mean - slope * (nf - 1.0) + curve * ((nf - 1.0).powi(2) - af / 3.0)) / span_f;
    // Numbers are cut to what the comparison needs, so that it cannot overflow.
    let (over, under) = (15 * n * bend, a * b);
    let c0_exact = match under.checked_mul(span) {
        Some(under) if under < i128::MAX / 8 && over.abs() < i128::MAX / 8 => Sign { over, under },
        _ => Sign { over: (c0 * 1e15) as i128, under: 1_000_000_000_000_000 },
    };
    (leak, c0_exact, [c0, c1, c2])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(slices: &[i64], coef: [f64; 3], leak: i64, class: Class) {
        let fit = fit(slices).unwrap();
        for (got, expected) in fit.coef.iter().zip(coef) {
            assert!((got - expected).abs() < 6e-6, "{:?} is not {coef:?}", fit.coef);
        }
        assert_eq!((fit.leak, fit.class), (leak, class));
    }

    #[test]
    fn edleaks_own_vectors() {
        let near_linear: Vec<i64> = [200, 400].into_iter().chain((0..17).map(|i| 1000 + 200 * i)).collect();
        assert_eq!((near_linear.len(), near_linear[18]), (19, 4200));
        check(&near_linear, [-0.22619, 1.22095, 0.03068], 3979, Class::Log);
        let linear: Vec<i64> = (0..20).map(|i| 100 * i).collect();
        check(&linear, [0.0, 1.05263, 0.0], 2000, Class::Linear);
        let square: Vec<i64> = (0..20).map(|i| 10 * i * i).collect();
        check(&square, [1.10803, 0.0, 0.0], 4000, Class::Exp);
        let filling: Vec<i64> =
            (0..20).map(|i| (1000.0 * (1.0 - (-f64::from(i) / 3.0).exp())) as i64).collect();
        check(&filling, [-1.93983, 2.58564, 0.19585], 644, Class::Log);
        let falling: Vec<i64> = (0..20).map(|i| 2000 - 100 * i).collect();
        assert_eq!((fit(&falling).unwrap().leak, fit(&falling).unwrap().class), (-2000, Class::Const));
    }

    #[test]
    fn edleaks_false_alarms_are_kept() {
        let step: Vec<i64> = [0; 10].into_iter().chain([5000; 10]).collect();
        assert_eq!((fit(&step).unwrap().leak, fit(&step).unwrap().class), (7518, Class::Linear));
        let saw: Vec<i64> = [0, 100].repeat(10);
        assert_eq!((fit(&saw).unwrap().leak, fit(&saw).unwrap().class), (15, Class::Linear));
        assert!(fit(&step).unwrap().is_leak() && fit(&saw).unwrap().is_leak());
    }

    #[test]
    fn the_classes_divide_at_their_thresholds() {
        // y = c x² + (1-c) x on 0..=1 has its minimum and maximum at the ends, so
        // that the fit gives c back up to the step from n-1 to n.
        for (c, class) in
            [(0.17, Class::Linear), (0.23, Class::Exp), (-0.17, Class::Linear), (-0.23, Class::Log)]
        {
            let slices: Vec<i64> = (0..1000)
                .map(|i| f64::from(i) / 999.0)
                .map(|x| (1e9 * (c * x * x + (1.0 - c) * x)) as i64)
                .collect();
            let fit = fit(&slices).unwrap();
            assert_eq!(fit.class, class, "{c}: {:?}", fit.coef);
            assert!((fit.coef[0] - c).abs() < 0.01, "{c}: {:?}", fit.coef);
        }
    }

    #[test]
    fn short_flat_and_impossible_series_are_no_leaks() {
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[5, -1, 7]), None);
        assert_eq!(fit(&[7]).unwrap().class, Class::Const);
        assert_eq!(fit(&[7, 7, 7]).unwrap().leak, 0);
        assert_eq!(fit(&[0, 100]).unwrap().leak, 240);
        assert_eq!(fit(&[100, 0]).unwrap().class, Class::Const);
        let huge = [0, i64::MAX, 0, i64::MAX];
        assert!(fit(&huge).is_some());
        let long: Vec<i64> = (0..40_000).map(|i| i64::MAX / 40_000 * i).collect();
        assert_eq!(fit(&long).unwrap().class, Class::Linear);
    }

    proptest::proptest! {
        #[test]
        fn the_integers_agree_with_solving_the_normal_equations(
            slices in proptest::collection::vec(0i64..1_000_000, 3..60)
        ) {
            let fit = fit(&slices).unwrap();
            let (min, span) = (fit.min_size as f64, (fit.max_size - fit.min_size) as f64);
            let n = slices.len() as f64;
            let mut rows = [[0.0f64; 4]; 3];
            for (i, &m) in slices.iter().enumerate() {
                let x = i as f64 / n;
                let base = [x * x, x, 1.0, (m as f64 - min) / span];
                for row in 0..3 {
                    for column in 0..4 {
                        rows[row][column] += base[row] * base[column];
                    }
                }
            }
            let solved = crate::leaks::growth::robust::solve3(rows).unwrap();
            for (got, expected) in fit.coef.iter().zip(solved) {
                proptest::prop_assert!((got - expected).abs() < 1e-5 * (1.0 + expected.abs()),
                    "{:?} {:?}", fit.coef, solved);
            }
        }
    }
}
