//! Live bytes over time, in a bounded number of points.

use crate::outcome::Numbers;

/// Greatest number of points.
pub const MAX_POINTS: usize = 1024;

/// First width of a bucket: 2^10 ns, about a microsecond.
const FIRST_SHIFT: u32 = 10;

/// The live bytes in one bucket of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Greatest live size in it, bytes.
    pub max: u64,
    /// Live size at its end, bytes.
    pub last: u64,
}

/// Live bytes over time: at most [`MAX_POINTS`] buckets of equal width, which
/// doubles, joining buckets in pairs, when the time outgrows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    points: Vec<Point>,
    shift: u32,
}

impl Default for Series {
    fn default() -> Self {
        Series { points: Vec::new(), shift: FIRST_SHIFT }
    }
}

impl Series {
    /// Notes that `live` bytes were alive from `ns` on. Times must not go back;
    /// one that does counts as the latest.
    pub fn note(&mut self, ns: u64, live: u64) {
        self.note_all(ns, live, live);
    }

    /// Notes several levels, the latest of them at `ns` and none before the bucket in which
    /// that lies: at most `most` bytes were alive, `last` in the end.
    pub fn note_all(&mut self, ns: u64, most: u64, last: u64) {
        let at = (ns >> self.shift) as usize;
        let len = self.points.len();
        if at < len {
            if let Some(point) = self.points.last_mut() {
                point.max = point.max.max(most);
                point.last = last;
            }
        } else {
            self.grow(ns, most, last);
        }
    }

    /// The last time that surely lies in the bucket in which `ns` does.
    pub fn end_of(&self, ns: u64) -> u64 {
        ns | ((1 << self.shift) - 1)
    }

    #[cold]
    fn grow(&mut self, ns: u64, most: u64, last: u64) {
        while (ns >> self.shift) >= MAX_POINTS as u64 {
            self.shift += 1;
            let half: Vec<Point> = self
                .points
                .chunks(2)
                .map(|pair| Point {
                    max: pair.iter().map(|point| point.max).max().unwrap_or(0),
                    last: pair.last().map_or(0, |point| point.last),
                })
                .collect();
            self.points = half;
        }
        let at = (ns >> self.shift) as usize;
        let before = self.points.last().map_or(0, |point| point.last);
        if at < self.points.len() {
            return self.note_all(ns, most, last);
        }
        // In between nothing happened; a bucket starts with what was alive then.
        self.points.resize(at, Point { max: before, last: before });
        self.points.push(Point { max: before.max(most), last });
    }

    /// Goes over its numbers.
    pub(crate) fn numbers(&mut self, numbers: &mut impl Numbers) {
        numbers.u32(&mut self.shift);
        let count = numbers.count(self.points.len(), 2);
        // No width beyond all times, and no more points than there can be.
        if self.shift >= u64::BITS || count > MAX_POINTS {
            return numbers.fail();
        }
        self.points.resize(count, Point::default());
        for point in &mut self.points {
            numbers.u64(&mut point.max);
            numbers.u64(&mut point.last);
        }
    }

    /// Width of a bucket, ns.
    pub fn width_ns(&self) -> u64 {
        1 << self.shift
    }

    /// The buckets, from time 0; bucket `i` starts at `i * width_ns()`.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_stays_small_and_keeps_its_maximum() {
        let mut series = Series::default();
        for i in 0..100_000u64 {
            series.note(i * 777, if i == 54_321 { 1_000_000 } else { i });
        }
        assert!(series.points().len() <= MAX_POINTS);
        assert!(series.points().len() > MAX_POINTS / 2);
        let max = series.points().iter().map(|p| p.max).max();
        assert_eq!(max, Some(1_000_000));
        let at = series.points().iter().position(|p| p.max == 1_000_000).unwrap() as u64;
        assert_eq!(at, 54_321 * 777 / series.width_ns());
        assert_eq!(series.points().last().unwrap().last, 99_999);
    }

    #[test]
    fn levels_that_are_told_together_are_as_good_as_one_by_one() {
        let (mut single, mut together) = (Series::default(), Series::default());
        let (mut until, mut told) = (0, None);
        let mut random = 1u64;
        let mut ns = 0;
        for _ in 0..20_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            ns += random >> 40 & ((1 << (random >> 60)) - 1);
            let live = random >> 50;
            if ns > until {
                if let Some((ns, most, last)) = told.take() {
                    together.note_all(ns, most, last);
                }
                until = together.end_of(ns);
            }
            let most = told.map_or(live, |(_, most, _): (u64, u64, u64)| most.max(live));
            told = Some((ns, most, live));
            single.note(ns, live);
        }
        let (ns, most, last) = told.unwrap();
        together.note_all(ns, most, last);
        assert_eq!(single, together);
        assert!(single.points().len() > MAX_POINTS / 2 && single.width_ns() > 1 << FIRST_SHIFT);
        assert_eq!(single.end_of(u64::MAX), u64::MAX);
    }

    #[test]
    fn silence_keeps_the_level() {
        let mut series = Series::default();
        series.note(0, 10);
        series.note(5 << FIRST_SHIFT, 3);
        assert_eq!(series.points()[3], Point { max: 10, last: 10 });
        assert_eq!(series.points()[5], Point { max: 10, last: 3 });
    }

    #[test]
    fn a_time_far_away_is_no_trouble() {
        let mut series = Series::default();
        series.note(1, 1);
        series.note(u64::MAX, 2);
        assert!(series.points().len() <= MAX_POINTS);
    }
}
