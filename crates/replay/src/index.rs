//! Which place of the slab an address has.
//!
//! A hash table of cache lines. A line holds twelve entries: a byte of hash each,
//! which are compared all at once, and their places. An entry that finds its
//! line full goes to the next one, and each line counts the entries that went
//! by, so that a search knows where to stop and a removal leaves no trace. The
//! line comes from the address without its low bits: blocks that lie side by
//! side in the heap have their entries in one line. (After the tables of F14 by
//! N. Bronson and X. Shi, and of Abseil's Swiss tables.)
//!
//! The table grows by one page of lines at a time, and never holds anything
//! twice: the next page in turn is split in two. Pages are told apart by the
//! first bits of a fraction made of the address, and the fractions are denser the
//! smaller they are, by a factor of two over the whole range. So the page that
//! is to be split next is always the fullest, those split last are the emptiest,
//! and the table as a whole is as full at any size as at any other. (Linear
//! hashing, W. Litwin 1980; the order by density is that of spiral storage,
//! G. Martin 1979.)

mod line;

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::memory::{boxed, prefetch};
use line::{Line, WIDTH, first_of};

/// Lines in a page.
const PAGE: usize = 256;
/// Entries a page above which the table grows, on average. The fullest page has
/// 1.44 times as many: nine a line.
const FULL: usize = 1597;
/// Low bits of an address that do not count for its line: 128 bytes.
const REGION: u32 = 7;
/// The line of an entry that found its whole page full.
const REST: u32 = u32::MAX;

/// An address, hashed.
#[derive(Clone, Copy, Default)]
pub struct Hash {
    /// From the address without its low bits, and only of one such: the upper half
    /// says the page, eight bits below it the line.
    mixed: u64,
    tag: u8,
}

impl Hash {
    /// That of an address.
    #[inline(always)]
    pub fn new(addr: u64) -> Hash {
        // The upper bits are the mixed ones.
        let mixed = (addr >> REGION).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let tag = (addr.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 56) as u8;
        Hash { mixed, tag: tag.max(1) }
    }

    #[inline(always)]
    fn line(self, step: usize) -> usize {
        ((self.mixed >> 24) as usize).wrapping_add(step) % PAGE
    }
}

/// A hash, and where it belongs. The default is no address's.
#[derive(Clone, Copy, Default)]
pub struct Key {
    hash: Hash,
    /// Its page when there were so many pages.
    page: u32,
    pages: u32,
}

impl Key {
    /// Is it that of an address?
    #[inline(always)]
    pub fn is_known(&self) -> bool {
        self.hash.tag != 0
    }
}

/// Where an entry is.
#[derive(Clone, Copy)]
pub struct Found {
    page: u32,
    line: u32,
    entry: u32,
    /// The place.
    pub place: u32,
}

/// The index.
#[derive(Default)]
pub struct Index {
    pages: Vec<Box<[Line; PAGE]>>,
    /// By how much a fraction is shifted to give one bit more than half of the
    /// pages need.
    shift: u32,
    count: usize,
    /// Entries that found their page full, by page and region: only addresses
    /// that were chosen for it come here.
    rest: FxHashMap<u32, HashMap<u64, Vec<u32>>>,
}

/// The page where the split number `number` or its left half stands. Page 1 is
/// split into 2 and 3, page 2 into 4 and 5; the left half stays where the whole
/// was, the right one is added at the end.
#[inline(always)]
fn place_of(number: u64) -> usize {
    (number.wrapping_shr(number.trailing_zeros()) >> 1) as usize
}

impl Index {
    /// The page of a hash.
    #[inline(always)]
    fn page(&self, hash: Hash) -> usize {
        // u becomes 0.66 u + 0.34 u^2, close to 2^u - 1: that has the density.
        let even = hash.mixed >> 32;
        let uneven = (even * (0xa8f5_c28f + ((even * 0x570a_3d70) >> 32))) >> 32;
        // With n pages those numbered n to 2n - 1 are there.
        let split = (1 << 32 | uneven) >> self.shift;
        let whole = split >> 1;
        place_of(if whole >= self.pages.len() as u64 { whole } else { split })
    }

    /// The key of a hash, to be used many times.
    #[inline(always)]
    pub fn key(&self, hash: Hash) -> Key {
        Key { hash, page: self.page(hash) as u32, pages: self.pages.len() as u32 }
    }

    /// This key, or that of the address if it is none.
    #[inline(always)]
    pub fn known(&self, key: &Key, addr: u64) -> Key {
        match key.is_known() {
            true => *key,
            false => self.key(Hash::new(addr)),
        }
    }

    /// The page of a key.
    #[inline(always)]
    fn page_of(&self, key: &Key) -> usize {
        match key.pages as usize == self.pages.len() {
            true => key.page as usize,
            false => self.page(key.hash),
        }
    }

    /// Asks the processor for the cache line.
    #[inline(always)]
    pub fn prefetch(&self, key: &Key) {
        if let Some(page) = self.pages.get(self.page_of(key)) {
            prefetch(&page[..], key.hash.line(0));
        }
    }

    /// The place that most likely is the address's: it is in the right line and
    /// has the right tag.
    #[inline(always)]
    pub fn guess(&self, key: &Key) -> Option<u32> {
        let line = &self.pages.get(self.page_of(key))?[key.hash.line(0)];
        let matches = line.matches(key.hash.tag);
        (matches != 0).then(|| line.places[first_of(matches) % WIDTH])
    }

    /// The entry with this key for which `is` holds.
    #[inline(always)]
    pub fn find(&self, key: &Key, is: impl Fn(u32) -> bool) -> Option<Found> {
        let number = self.page_of(key);
        let page = self.pages.get(number)?;
        for step in 0..PAGE {
            let at = key.hash.line(step);
            let line = &page[at];
            let mut matches = line.matches(key.hash.tag);
            while matches != 0 {
                let entry = first_of(matches);
                let place = line.places[entry % WIDTH];
                if is(place) {
                    return Some(Found { page: number as u32, line: at as u32, entry: entry as u32, place });
                }
                matches &= matches - 1;
            }
            if line.over == 0 {
                return None;
            }
        }
        let rest = self.find_in_rest(number as u32, key.hash, is)?;
        Some(Found { page: number as u32, line: REST, entry: (rest >> 32) as u32, place: rest as u32 })
    }

    /// The entry in the upper half, and its place. (In one word: what is put together in
    /// memory from smaller parts, and read as a whole, makes the processor wait, also where
    /// nothing was looked for here.)
    #[cold]
    #[inline(never)]
    fn find_in_rest(&self, page: u32, hash: Hash, is: impl Fn(u32) -> bool) -> Option<u64> {
        let places = self.rest.get(&page)?.get(&hash.mixed)?;
        let entry = places.iter().position(|&place| is(place))?;
        Some((entry as u64) << 32 | u64::from(*places.get(entry)?))
    }

    /// Makes room for so many entries in all, if there is none yet: the same pages to which
    /// it would have grown. (What has an entry keeps its pages.)
    pub fn reserve(&mut self, count: usize) {
        let pages = count.div_ceil(FULL).min(u32::MAX as usize);
        if self.count == 0 && pages > self.pages.len() {
            self.pages.resize_with(pages, || boxed(Line::EMPTY));
            self.shift = 31 - pages.ilog2().min(31);
        }
    }

    /// Adds a place. `hash_of` says the hash of the places that are there.
    #[inline(always)]
    pub fn insert(&mut self, key: &Key, place: u32, hash_of: impl Fn(u32) -> Hash) {
        if self.count >= self.pages.len() * FULL {
            self.grow(hash_of);
        }
        self.count += 1;
        self.store(self.page_of(key), key.hash, place);
    }

    #[inline(always)]
    fn store(&mut self, number: usize, hash: Hash, place: u32) {
        let Some(page) = self.pages.get_mut(number) else { return };
        for step in 0..PAGE {
            let line = &mut page[hash.line(step)];
            let vacant = line.matches(0);
            if vacant != 0 {
                let entry = first_of(vacant);
                line.set(entry, hash.tag);
                line.places[entry % WIDTH] = place;
                return;
            }
            line.over = line.over.saturating_add(1);
        }
        self.store_in_rest(number as u32, hash, place);
    }

    #[cold]
    #[inline(never)]
    fn store_in_rest(&mut self, page: u32, hash: Hash, place: u32) {
        self.rest.entry(page).or_default().entry(hash.mixed).or_default().push(place);
    }

    /// Splits the page whose turn it is.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, hash_of: impl Fn(u32) -> Hash) {
        let number = self.pages.len();
        self.pages.push(boxed(Line::EMPTY));
        self.shift = 31 - self.pages.len().ilog2().min(31);
        let page = place_of(number as u64);
        let Some(split) = self.pages.get_mut(page).filter(|_| number > 0) else { return };
        let old = std::mem::replace(split, boxed(Line::EMPTY));
        let rest = self.rest.remove(&(page as u32));
        let rest = rest.iter().flat_map(HashMap::values).flatten().copied();
        for place in old.iter().flat_map(Line::entries).chain(rest) {
            let hash = hash_of(place);
            self.store(self.page(hash), hash, place);
        }
    }

    /// Removes an entry that [`Index::find`] found with this key.
    #[inline(always)]
    pub fn remove(&mut self, key: &Key, found: Found) {
        let Some(page) = self.pages.get_mut(found.page as usize) else { return };
        self.count -= 1;
        for step in 0..PAGE {
            let at = key.hash.line(step);
            let line = &mut page[at];
            if at == found.line as usize {
                line.set(found.entry as usize, 0);
                return;
            }
            line.over = line.over.saturating_sub(1);
        }
        self.remove_from_rest(key.hash, found);
    }

    #[cold]
    #[inline(never)]
    fn remove_from_rest(&mut self, hash: Hash, found: Found) {
        let Some(regions) = self.rest.get_mut(&found.page) else { return };
        if let Some(places) = regions.get_mut(&hash.mixed) {
            places.retain(|&place| place != found.place);
            if places.is_empty() {
                regions.remove(&hash.mixed);
            }
        }
        if regions.is_empty() {
            self.rest.remove(&found.page);
        }
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes taken from the heap, but for what found its page full.
    pub fn heap_bytes(&self) -> usize {
        self.pages.len() * size_of::<[Line; PAGE]>() + self.pages.capacity() * size_of::<Box<[Line; PAGE]>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Against a map, on a dense heap that grows and shrinks.
    fn check(hash: impl Fn(u64) -> Hash, slots: u64, rounds: u32) -> Index {
        let mut index = Index::default();
        let mut model: BTreeMap<u64, u32> = BTreeMap::new();
        let mut addrs: Vec<u64> = Vec::new();
        let mut random = 1u64;
        for round in 0..rounds {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let addr = (random >> 33) % slots * 16 + u64::from(random >> 60 == 0) * 3;
            addrs.push(addr);
            let key = index.key(hash(addr));
            let found = index.find(&index.key(hash(addr)), |place| addrs[place as usize] == addr);
            assert_eq!(found.map(|found| found.place), model.get(&addr).copied());
            match found {
                None => {
                    index.insert(&key, round, |place| hash(addrs[place as usize]));
                    model.insert(addr, round);
                }
                Some(found) if round / (rounds / 7) % 2 == 1 || random & 1 == 0 => {
                    index.remove(&key, found);
                    model.remove(&addr);
                }
                Some(_) => {}
            }
        }
        assert_eq!(index.count, model.len());
        for (&addr, &place) in &model {
            let found = index.find(&index.key(hash(addr)), |place| addrs[place as usize] == addr);
            assert_eq!(found.map(|found| found.place), Some(place));
        }
        // Nothing is left of what is gone: empty, no line says that some went by.
        for addr in model.into_keys() {
            let key = index.key(hash(addr));
            let found = index.find(&index.key(hash(addr)), |place| addrs[place as usize] == addr).unwrap();
            index.remove(&key, found);
        }
        let mut lines = index.pages.iter().flat_map(|page| page.iter());
        assert!(lines.all(|line| line.over == 0 && line.matches(0).count_ones() == 12));
        assert!(index.rest.is_empty());
        index
    }

    #[test]
    fn equal_to_a_map_whatever_comes() {
        check(Hash::new, 6_000, 200_000);
        assert!(check(Hash::new, 60_000, 200_000).pages.len() > 16);
    }

    #[test]
    fn lines_that_are_full_overflow_into_the_next() {
        // Every address in one of two lines, and of one of two tags.
        let line = |addr: u64| Hash {
            mixed: (1 << 40) + (((addr >> 4 & 1) * (PAGE as u64 - 1)) << 24),
            tag: 1 + (addr >> 5 & 1) as u8,
        };
        check(line, 300, 50_000);
    }

    #[test]
    fn a_page_that_is_full_overflows_into_a_map() {
        // Every address in one page, however often it is split.
        let page = |addr: u64| Hash { mixed: (0x1234_5678 << 32) + (addr >> 7), ..Hash::new(addr) };
        assert!(check(page, 9_000, 20_000).pages.len() > 2);
        // All in one line, and in one list of those that find it full.
        check(|addr| Hash { mixed: 0x1234_5678 << 32, ..page(addr) }, 9_000, 20_000);
    }

    #[test]
    fn room_made_at_once_is_the_room_to_which_it_grows() {
        let addr = |place: u32| 0x7f00_0000_0000 + u64::from(place) * 48;
        for count in [0, 1, FULL - 1, FULL, FULL + 1, 5 * FULL, 40_000] {
            let (mut grown, mut made) = (Index::default(), Index::default());
            made.reserve(count);
            for place in 0..count as u32 + 5_000 {
                for index in [&mut grown, &mut made] {
                    index.insert(&index.key(Hash::new(addr(place))), place, |at| Hash::new(addr(at)));
                }
                if place + 1 == count as u32 {
                    assert_eq!(grown.pages.len(), made.pages.len(), "{count}");
                }
            }
            // And from there on they grow alike.
            assert_eq!((grown.pages.len(), grown.shift), (made.pages.len(), made.shift), "{count}");
            for place in 0..count as u32 + 5_000 {
                let key = made.key(Hash::new(addr(place)));
                assert_eq!(made.find(&key, |at| at == place).map(|found| found.place), Some(place));
            }
            made.reserve(1_000_000);
            assert_eq!(grown.pages.len(), made.pages.len(), "what has entries keeps its pages");
        }
    }

    #[test]
    fn the_index_is_as_full_at_any_size() {
        let mut index = Index::default();
        let addr = |place: u32| 0x7f00_0000_0000 + u64::from(place) * 48;
        let mut worst = 0;
        for place in 0..300_000 {
            let before = index.pages.len();
            index.insert(&index.key(Hash::new(addr(place))), place, |place| Hash::new(addr(place)));
            if index.pages.len() > before && before > 16 {
                let each = index.pages.iter().map(|page| page.iter().flat_map(Line::entries).count());
                worst = worst.max(each.max().unwrap_or(0));
            }
        }
        // The fullest page at any time: nine entries a line and some by chance.
        assert!((PAGE * 8..PAGE * 11).contains(&worst), "{worst} entries in a page");
        assert!(index.rest.is_empty());
    }
}
