//! A cache line of the index: entries that are compared all at once.

/// Entries in a line.
pub(super) const WIDTH: usize = 12;

const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// Twelve entries.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line {
    /// The tags of the first eight entries and of the last four, 0 for vacant.
    tags: u64,
    more_tags: u32,
    /// Entries that would have their place here or before and stand behind.
    pub(super) over: u32,
    pub(super) places: [u32; WIDTH],
}

/// Bit 7 of each byte that is zero.
#[inline(always)]
const fn zero_bytes(word: u64) -> u64 {
    !(((word & LOW) + LOW) | word | LOW)
}

/// Which entry the lowest bit of [`Line::matches`] stands for.
#[inline(always)]
pub(super) const fn first_of(matches: u64) -> usize {
    let bit = matches.trailing_zeros() as usize;
    bit >> 3 | (bit & 1) << 3
}

impl Line {
    /// No entry.
    pub(super) const EMPTY: Line = Line { tags: 0, more_tags: 0, over: 0, places: [0; WIDTH] };

    /// The entries with this tag, as bits for [`first_of`].
    #[inline(always)]
    pub(super) const fn matches(&self, tag: u8) -> u64 {
        let all = tag as u64 * 0x0101_0101_0101_0101;
        let more = zero_bytes(self.more_tags as u64 ^ all) & 0x8080_8080;
        zero_bytes(self.tags ^ all) >> 7 | more >> 6
    }

    #[inline(always)]
    pub(super) fn set(&mut self, entry: usize, tag: u8) {
        let shift = entry % 8 * 8;
        if entry < 8 {
            self.tags = self.tags & !(0xff << shift) | u64::from(tag) << shift;
        } else {
            self.more_tags = self.more_tags & !(0xff << shift) | u32::from(tag) << shift;
        }
    }

    /// The places of its entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> {
        let vacant = self.matches(0);
        let taken = move |entry: &usize| vacant >> (entry % 8 * 8 + entry / 8) & 1 == 0;
        (0..WIDTH).filter(taken).map(|entry| self.places[entry])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fills_a_cache_line() {
        assert_eq!(size_of::<Line>(), 64);
        let mut line = Line::EMPTY;
        for entry in 0..WIDTH {
            assert_eq!(line.matches(0).count_ones() as usize, WIDTH - entry);
            assert!(line.matches(0) & 1 << (entry % 8 * 8 + entry / 8) != 0);
            line.set(entry, 7 + (entry as u8 & 1));
        }
        assert_eq!((line.matches(7).count_ones(), line.matches(8).count_ones()), (6, 6));
        assert_eq!((first_of(line.matches(7)), line.matches(0)), (0, 0));
        let mut seven = line.matches(7);
        let mut entries = Vec::new();
        while seven != 0 {
            entries.push(first_of(seven));
            seven &= seven - 1;
        }
        entries.sort_unstable();
        assert_eq!(entries, [0, 2, 4, 6, 8, 10]);
    }
}
