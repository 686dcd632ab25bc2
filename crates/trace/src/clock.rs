//! Stamps to nanoseconds.

use crate::model::ClockPoint;

/// Fraction bits of a rate.
const SHIFT: u32 = 60;

/// One straight line: `ns = n0 + (stamp - s0) * rate`.
#[derive(Clone, Copy, Debug)]
struct Line {
    s0: u64,
    n0: u64,
    /// Nanoseconds a stamp, times 2^60.
    rate: u64,
}

impl Line {
    #[inline(always)]
    fn at(&self, stamp: u64) -> u64 {
        if stamp >= self.s0 {
            let ns = (u128::from(stamp - self.s0) * u128::from(self.rate)) >> SHIFT;
            self.n0.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX))
        } else {
            let ns = (u128::from(self.s0 - stamp) * u128::from(self.rate)) >> SHIFT;
            self.n0.saturating_sub(u64::try_from(ns).unwrap_or(u64::MAX))
        }
    }
}

/// All clock points of a trace, as lines between them.
///
/// With no point a stamp is taken for nanoseconds; with one point, a stamp for
/// a nanosecond from there on. Times before 0 are 0.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    points: Vec<ClockPoint>,
    /// `lines[i]` holds from its `s0` to the next line's.
    lines: Vec<Line>,
}

impl Clock {
    /// Takes a point in. Points that do not lie behind the last one in both
    /// clocks are left out: they make no line.
    pub fn add(&mut self, point: ClockPoint) {
        let Some(last) = self.points.last().copied() else {
            self.points.push(point);
            self.lines = vec![Line { s0: point.stamp, n0: point.ns, rate: 1 << SHIFT }];
            return;
        };
        if point.stamp <= last.stamp || point.ns < last.ns {
            return;
        }
        // Rounded up, so that the line meets the point itself: the one before and
        // the one after say the same of a stamp that is the point's.
        let rate = (u128::from(point.ns - last.ns) << SHIFT).div_ceil(u128::from(point.stamp - last.stamp));
        let Ok(rate) = u64::try_from(rate) else { return };
        let line = Line { s0: last.stamp, n0: last.ns, rate };
        if self.points.len() == 1 {
            self.lines.clear();
        }
        self.lines.push(line);
        self.points.push(point);
    }

    /// The points, in order.
    pub fn points(&self) -> &[ClockPoint] {
        &self.points
    }

    /// Nanoseconds since the start of the recording.
    pub fn to_ns(&self, stamp: u64) -> u64 {
        match self.line(stamp) {
            Some(line) => line.at(stamp),
            None => stamp,
        }
    }

    fn line(&self, stamp: u64) -> Option<&Line> {
        let after = self.lines.partition_point(|line| line.s0 <= stamp);
        self.lines.get(after.saturating_sub(1))
    }

    /// A cursor for stamps that mostly rise.
    pub(crate) fn cursor(&self) -> ClockCursor<'_> {
        let line = Line { s0: 0, n0: 0, rate: 1 << SHIFT };
        ClockCursor { clock: self, line, from: 1, to: 0, latest: None }
    }
}

/// Remembers the line of the last stamp, so that the next costs a multiplication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockCursor<'a> {
    clock: &'a Clock,
    line: Line,
    /// The line holds for `from..=to`.
    from: u64,
    to: u64,
    /// The latest stamp and its time: many records share one stamp.
    latest: Option<(u64, u64)>,
}

impl ClockCursor<'_> {
    #[inline(always)]
    pub(crate) fn ns_of(&mut self, stamp: u64) -> u64 {
        if let Some((latest, ns)) = self.latest
            && stamp == latest
        {
            return ns;
        }
        if stamp < self.from || stamp > self.to {
            self.seek(stamp);
        }
        let ns = self.line.at(stamp);
        self.latest = Some((stamp, ns));
        ns
    }

    #[cold]
    fn seek(&mut self, stamp: u64) {
        let lines = &self.clock.lines;
        let after = lines.partition_point(|line| line.s0 <= stamp);
        let Some(line) = lines.get(after.saturating_sub(1)) else {
            (self.from, self.to) = (0, u64::MAX);
            return;
        };
        self.line = *line;
        self.from = if after <= 1 { 0 } else { line.s0 };
        self.to = lines.get(after.max(1)).map_or(u64::MAX, |next| next.s0 - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_through_their_points() {
        let mut clock = Clock::default();
        assert_eq!(clock.to_ns(5), 5);
        clock.add(ClockPoint { stamp: 3_000, ns: 1_000 });
        assert_eq!(clock.to_ns(3_010), 1_010);
        clock.add(ClockPoint { stamp: 6_000, ns: 2_000 });
        clock.add(ClockPoint { stamp: 5_000, ns: 2_500 });
        clock.add(ClockPoint { stamp: 7_000, ns: 3_000 });
        assert_eq!(clock.points().len(), 3, "a point that goes backwards makes no line");
        for point in clock.points() {
            assert_eq!(clock.to_ns(point.stamp), point.ns);
        }
        // A third of a nanosecond a stamp does not come out even.
        for (stamp, ns) in
            [(3_000, 1_000), (4_500, 1_500), (0, 0), (6_000, 2_000), (6_500, 2_500), (8_000, 4_000)]
        {
            let got = clock.to_ns(stamp);
            assert!(got.abs_diff(ns) <= 1, "{stamp}: {got} for {ns}");
        }
        let mut cursor = clock.cursor();
        for stamp in (0..9_000).chain((0..9_000).rev()) {
            assert_eq!(cursor.ns_of(stamp), clock.to_ns(stamp));
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut clock = Clock::default();
        clock.add(ClockPoint { stamp: 10, ns: 0 });
        clock.add(ClockPoint { stamp: 11, ns: 15 });
        assert_eq!(clock.to_ns(u64::MAX), u64::MAX);
        assert_eq!(clock.to_ns(0), 0);
    }
}
