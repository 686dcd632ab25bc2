//! Which place of the slab an address has.
//!
//! A hash table of cache lines. A line holds twelve entries: a byte of hash each,
//! which are compared all at once, and their places. An entry that finds its
//! line full goes to the next one, and each line counts the entries that went
//! by, so that a search knows where to stop and a removal leaves no trace. The
//! line comes from the address without its low bits: blocks that lie side by
//! side in the heap have their entries in one line. (After the tables of F14 by
//! N. Bronson and X. Shi, and of Abseil's Swiss tables.)

use crate::prefetch::prefetch;

/// Entries in a line.
const WIDTH: usize = 12;
/// Entries a line above which the table grows, on average.
const FULL: usize = 8;
/// Low bits of an address that do not count for its line: 128 bytes.
const REGION: u32 = 7;
/// Lines at first.
const FIRST: usize = 64;

const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;

#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line {
    /// The tags of the first eight entries and of the last four, 0 for vacant.
    tags: u64,
    more_tags: u32,
    /// Entries that would have their place here or before and stand behind.
    over: u32,
    places: [u32; WIDTH],
}

/// Bit 7 of each byte that is zero.
#[inline(always)]
const fn zero_bytes(word: u64) -> u64 {
    !(((word & LOW) + LOW) | word | LOW)
}

/// Which entry the lowest bit of [`Line::matches`] stands for.
#[inline(always)]
const fn first_of(matches: u64) -> usize {
    let bit = matches.trailing_zeros() as usize;
    bit >> 3 | (bit & 1) << 3
}

impl Line {
    /// The entries with this tag, as bits for [`first_of`].
    #[inline(always)]
    const fn matches(&self, tag: u8) -> u64 {
        let all = tag as u64 * 0x0101_0101_0101_0101;
        let more = zero_bytes(self.more_tags as u64 ^ all) & 0x8080_8080;
        zero_bytes(self.tags ^ all) >> 7 | more >> 6
    }

    #[inline(always)]
    fn set(&mut self, entry: usize, tag: u8) {
        let shift = entry % 8 * 8;
        if entry < 8 {
            self.tags = self.tags & !(0xff << shift) | u64::from(tag) << shift;
        } else {
            self.more_tags = self.more_tags & !(0xff << shift) | u32::from(tag) << shift;
        }
    }
}

/// An address, hashed.
#[derive(Clone, Copy)]
pub struct Hash {
    line: u64,
    tag: u8,
}

impl Hash {
    /// That of an address.
    #[inline(always)]
    pub fn new(addr: u64) -> Hash {
        let line = (addr >> REGION).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let tag = addr.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 56;
        // The upper bits are the mixed ones.
        Hash { line: line >> 20, tag: (tag as u8).max(1) }
    }
}

/// Where an entry is.
#[derive(Clone, Copy)]
pub struct Found {
    line: usize,
    entry: usize,
    /// The place.
    pub place: u32,
}

/// The index.
#[derive(Default)]
pub struct Index {
    /// A power of two of them, or none.
    lines: Vec<Line>,
    count: usize,
}

impl Index {
    #[inline(always)]
    fn home(&self, hash: Hash) -> usize {
        hash.line as usize & self.lines.len().wrapping_sub(1)
    }

    #[inline(always)]
    fn next(&self, line: usize) -> usize {
        (line + 1) & self.lines.len().wrapping_sub(1)
    }

    /// Asks the processor for the cache line.
    #[inline(always)]
    pub fn prefetch(&self, hash: Hash) {
        prefetch(&self.lines, self.home(hash));
    }

    /// The place that most likely is the address's: it is in the right line and
    /// has the right tag.
    #[inline(always)]
    pub fn guess(&self, hash: Hash) -> Option<u32> {
        let line = self.lines.get(self.home(hash))?;
        let matches = line.matches(hash.tag);
        (matches != 0).then(|| line.places[first_of(matches) % WIDTH])
    }

    /// The entry with this hash for which `is` holds.
    #[inline(always)]
    pub fn find(&self, hash: Hash, is: impl Fn(u32) -> bool) -> Option<Found> {
        let mut at = self.home(hash);
        loop {
            let line = self.lines.get(at)?;
            let mut matches = line.matches(hash.tag);
            while matches != 0 {
                let entry = first_of(matches);
                let place = line.places[entry % WIDTH];
                if is(place) {
                    return Some(Found { line: at, entry, place });
                }
                matches &= matches - 1;
            }
            if line.over == 0 {
                return None;
            }
            at = self.next(at);
        }
    }

    /// Adds a place. `hash_of` says the hash of the places that are there.
    #[inline(always)]
    pub fn insert(&mut self, hash: Hash, place: u32, hash_of: impl Fn(u32) -> Hash) {
        if self.count >= self.lines.len() * FULL {
            self.grow(hash_of);
        }
        self.count += 1;
        self.store(hash, place);
    }

    #[inline(always)]
    fn store(&mut self, hash: Hash, place: u32) {
        let mut at = self.home(hash);
        // There is always a vacant one.
        while let Some(line) = self.lines.get_mut(at) {
            let vacant = line.matches(0);
            if vacant != 0 {
                let entry = first_of(vacant);
                line.set(entry, hash.tag);
                line.places[entry % WIDTH] = place;
                return;
            }
            line.over = line.over.saturating_add(1);
            at = self.next(at);
        }
    }

    #[cold]
    fn grow(&mut self, hash_of: impl Fn(u32) -> Hash) {
        let len = (self.lines.len() * 2).max(FIRST);
        let old = std::mem::replace(&mut self.lines, vec![Line::default(); len]);
        for line in old {
            let vacant = line.matches(0);
            for entry in 0..WIDTH {
                if vacant >> (entry % 8 * 8 + entry / 8) & 1 == 0 {
                    let place = line.places[entry];
                    self.store(hash_of(place), place);
                }
            }
        }
    }

    /// Removes an entry that [`Index::find`] found with this hash.
    #[inline(always)]
    pub fn remove(&mut self, hash: Hash, found: Found) {
        let mut at = self.home(hash);
        while at != found.line {
            let Some(line) = self.lines.get_mut(at) else { return };
            line.over = line.over.saturating_sub(1);
            at = self.next(at);
        }
        if let Some(line) = self.lines.get_mut(at) {
            line.set(found.entry, 0);
            self.count -= 1;
        }
    }

    /// Bytes taken from the heap.
    pub fn heap_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_line_fills_a_cache_line() {
        assert_eq!(size_of::<Line>(), 64);
        let mut line = Line::default();
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

    /// Against a map, on a dense heap that grows and shrinks.
    fn check(hash: impl Fn(u64) -> Hash, slots: u64) {
        let mut index = Index::default();
        let mut model: BTreeMap<u64, u32> = BTreeMap::new();
        let mut addrs: Vec<u64> = Vec::new();
        let mut random = 1u64;
        for round in 0..200_000u32 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let addr = (random >> 33) % slots * 16 + u64::from(random >> 60 == 0) * 3;
            addrs.push(addr);
            let found = index.find(hash(addr), |place| addrs[place as usize] == addr);
            assert_eq!(found.map(|found| found.place), model.get(&addr).copied());
            match found {
                None => {
                    index.insert(hash(addr), round, |place| hash(addrs[place as usize]));
                    model.insert(addr, round);
                }
                Some(found) if round / 30_000 % 2 == 1 || random & 1 == 0 => {
                    index.remove(hash(addr), found);
                    model.remove(&addr);
                }
                Some(_) => {}
            }
        }
        assert_eq!(index.count, model.len());
        for (&addr, &place) in &model {
            let found = index.find(hash(addr), |place| addrs[place as usize] == addr);
            assert_eq!(found.map(|found| found.place), Some(place));
        }
        // Nothing is left of what is gone: empty, no line says that some went by.
        for addr in model.into_keys() {
            let found = index.find(hash(addr), |place| addrs[place as usize] == addr).unwrap();
            index.remove(hash(addr), found);
        }
        assert!(index.lines.iter().all(|line| line.over == 0 && line.matches(0).count_ones() == 12));
    }

    #[test]
    fn equal_to_a_map_whatever_comes() {
        check(Hash::new, 6_000);
    }

    #[test]
    fn lines_that_are_full_overflow_into_the_next() {
        // Every address in one of two lines, and of one of two tags.
        check(|addr| Hash { line: addr >> 4 & 1, tag: 1 + (addr >> 5 & 1) as u8 }, 300);
    }
}
