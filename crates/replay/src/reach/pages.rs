//! Which pages are the allocator's.
//!
//! Of those only live blocks count. What else lies in them is the allocator's
//! bookkeeping and the remains of freed blocks, whose stale pointers would hide
//! leaks. An allocator's pages are those that ever held a block; a mapping that
//! the program makes for itself later takes its pages out again.

use highwater_trace::model::{Op, Special, Step};
use rustc_hash::FxHashMap;

const PAGE: u32 = 12;
/// Pages in a word of bits.
const WORD: u32 = 6;

/// A set of pages.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// 64 pages each.
    words: FxHashMap<u64, u64>,
    /// The latest word and its bits, not in the map yet: most events stay near.
    latest: (u64, u64),
    /// What the program itself added to the break.
    breaks: Vec<(u64, u64)>,
}

impl Pages {
    /// Takes in a step of the trace.
    #[inline]
    pub fn see(&mut self, step: &Step) {
        match step {
            Step::Event(event) => {
                if let Op::Alloc { size, .. } = event.op {
                    self.add(event.addr, size);
                }
            }
            Step::Special { what, .. } => match *what {
                Special::Mmap { addr, len, .. } => self.remove(addr, len),
                Special::Munmap { addr, len, .. } => self.remove(addr, len),
                Special::Mremap { new, new_len, .. } => self.remove(new, new_len),
                Special::Brk { old, new, .. } if new > old => {
                    self.remove(old, new - old);
                    self.breaks.push((old, new));
                }
                _ => {}
            },
        }
    }

    /// The pages of a block.
    #[inline]
    pub fn add(&mut self, addr: u64, size: u64) {
        let last = addr.saturating_add(size.max(1) - 1) >> PAGE;
        for page in (addr >> PAGE)..=last.min((addr >> PAGE) + (1 << 24)) {
            let (word, bit) = (page >> WORD, 1u64 << (page & 63));
            if word != self.latest.0 {
                self.settle();
                self.latest = (word, 0);
            }
            self.latest.1 |= bit;
        }
    }

    fn settle(&mut self) {
        let (word, bits) = self.latest;
        if bits != 0 {
            *self.words.entry(word).or_default() |= bits;
        }
    }

    /// Whole pages of a mapping are not the allocator's any more.
    #[cold]
    pub fn remove(&mut self, addr: u64, len: u64) {
        self.settle();
        self.latest = (0, 0);
        let (first, after) = (addr.div_ceil(1 << PAGE), addr.saturating_add(len) >> PAGE);
        if after.saturating_sub(first) >> WORD > self.words.len() as u64 {
            // A reservation larger than the whole set.
            self.words.retain(|&word, bits| {
                for page in 0..64 {
                    if (first..after).contains(&(word << WORD | page)) {
                        *bits &= !(1 << page);
                    }
                }
                *bits != 0
            });
            return;
        }
        for page in first..after {
            if let Some(bits) = self.words.get_mut(&(page >> WORD)) {
                *bits &= !(1 << (page & 63));
            }
        }
    }

    /// What the program itself, not its allocator, added to the break.
    pub fn breaks(&self) -> &[(u64, u64)] {
        &self.breaks
    }

    /// Is the page of this address one?
    pub fn has(&self, addr: u64) -> bool {
        let page = addr >> PAGE;
        let known = self.words.get(&(page >> WORD)).copied().unwrap_or(0);
        let latest = if self.latest.0 == page >> WORD { self.latest.1 } else { 0 };
        (known | latest) & 1 << (page & 63) != 0
    }

    /// The parts of `start..end` that are not the allocator's, in order.
    pub fn outside(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut at = start;
        while at < end {
            let next = ((at >> PAGE) + 1).checked_shl(PAGE).unwrap_or(end).min(end);
            if !self.has(at) {
                match parts.last_mut() {
                    Some(last) if last.1 == at => last.1 = next,
                    _ => parts.push((at, next)),
                }
            }
            at = next;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_held_a_block_are_the_allocators_until_they_are_mapped_anew() {
        let mut pages = Pages::default();
        pages.add(0x1ff8, 16);
        pages.add(0x10_0000, 0);
        pages.add(0x7000_0000_0000, 0x5000);
        assert!(pages.has(0x1000) && pages.has(0x2fff) && pages.has(0x10_0fff));
        assert!(!pages.has(0) && !pages.has(0x3000));
        assert_eq!(pages.outside(0x800, 0x4000), [(0x800, 0x1000), (0x3000, 0x4000)]);
        pages.remove(0x7000_0000_1000, 0x2000);
        assert_eq!(
            pages.outside(0x7000_0000_0000, 0x7000_0000_6000),
            [(0x7000_0000_1000, 0x7000_0000_3000), (0x7000_0000_5000, 0x7000_0000_6000)]
        );
        pages.remove(0, 1 << 46);
        assert!(!pages.has(0x1000) && pages.has(0x7000_0000_0000));
    }
}
