//! Live blocks by address: a slab of blocks and an index of their places.

use std::ops::RangeInclusive;

use crate::block::{Block, Fields};
use crate::index::{Hash, Index};
use crate::prefetch::prefetch;

/// Blocks in a chunk of the slab.
const CHUNK: usize = 8192;
/// Blocks from which on [`Table::live_by_addr`] goes through all more than once,
/// and how often at most.
const PASS: usize = 1 << 16;
const PASSES: usize = 16;
/// Addresses that say where to part all of them.
const SAMPLES: usize = 1 << 12;
/// No place.
const NONE: u32 = u32::MAX;

/// The live blocks, by address.
///
/// A place that was given back is the next to be used again, so the young blocks,
/// which most programs use most, stay in a few cache lines.
pub struct Table {
    index: Index,
    slab: Slab,
    /// The place that was given back last; each such place names the one before.
    vacant: u32,
}

impl Default for Table {
    fn default() -> Self {
        Table { index: Index::default(), slab: Slab::default(), vacant: NONE }
    }
}

#[derive(Default)]
struct Slab {
    chunks: Vec<Box<[Block; CHUNK]>>,
    /// Places below this have been used.
    used: u32,
}

impl Slab {
    #[inline(always)]
    fn get(&self, at: u32) -> &Block {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    #[inline(always)]
    fn get_mut(&mut self, at: u32) -> &mut Block {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    /// A place that was never used.
    #[cold]
    fn extend(&mut self) -> u32 {
        let at = self.used;
        if at as usize / CHUNK >= self.chunks.len() {
            self.chunks.push(Box::new([Block::EMPTY; CHUNK]));
        }
        self.used += 1;
        at
    }
}

impl Table {
    /// Asks for the memory of the index in which `addr` stands.
    #[inline(always)]
    pub fn prefetch_index(&self, addr: u64) {
        self.index.prefetch(Hash::new(addr));
    }

    /// Asks for the memory of the block that lives at `addr`, most likely.
    #[inline(always)]
    pub fn prefetch_block(&self, addr: u64) {
        if let Some(at) = self.index.guess(Hash::new(addr))
            && let Some(chunk) = self.slab.chunks.get(at as usize / CHUNK)
        {
            prefetch(&chunk[..], at as usize % CHUNK);
        }
    }

    /// The block that lives at `addr`.
    #[inline]
    pub fn find(&self, addr: u64) -> Option<&Block> {
        let slab = &self.slab;
        let found = self.index.find(Hash::new(addr), |at| slab.get(at).addr() == addr)?;
        Some(slab.get(found.place))
    }

    /// Puts in a block, and gives back the one that lived at its address.
    #[inline(always)]
    pub fn put(&mut self, fields: &Fields) -> Option<Block> {
        let slab = &mut self.slab;
        let (addr, hash) = (fields.addr, Hash::new(fields.addr));
        if let Some(found) = self.index.find(hash, |at| slab.get(at).addr() == addr) {
            return Some(std::mem::replace(slab.get_mut(found.place), Block::live(fields)));
        }
        let at = if self.vacant == NONE {
            slab.extend()
        } else {
            let at = self.vacant;
            self.vacant = slab.get(at).next_vacant();
            at
        };
        slab.get_mut(at).set(fields);
        self.index.insert(hash, at, |at| Hash::new(slab.get(at).addr()));
        None
    }

    /// Takes out the block that lives at `addr`; what `with` makes of it.
    #[inline(always)]
    pub fn take<R>(&mut self, addr: u64, with: impl FnOnce(&Block) -> R) -> Option<R> {
        let slab = &mut self.slab;
        let hash = Hash::new(addr);
        let found = self.index.find(hash, |at| slab.get(at).addr() == addr)?;
        self.index.remove(hash, found);
        let block = slab.get_mut(found.place);
        let result = with(block);
        block.end(self.vacant);
        self.vacant = found.place;
        Some(result)
    }

    /// All live blocks, in no order.
    pub fn live(&self) -> impl Iterator<Item = &Block> {
        self.all().filter(|block| block.is_live())
    }

    /// All places that have been used.
    fn all(&self) -> impl Iterator<Item = &Block> {
        self.slab.chunks.iter().flat_map(|chunk| chunk.iter()).take(self.places())
    }

    /// All live blocks, by address. Their places are put in order a range of
    /// addresses after the other, a sixteenth of them at a time (of a million or
    /// more): that takes 1 byte a block.
    pub fn live_by_addr(&self) -> impl Iterator<Item = &Block> {
        let ranges = self.ranges();
        ranges.into_iter().flat_map(|range| {
            let places = (0..).zip(self.all()).filter(|(_, block)| block.is_live());
            let its = places.map(|(at, block)| (block.addr(), at)).filter(|(addr, _)| range.contains(addr));
            let mut its: Vec<(u64, u32)> = its.collect();
            its.sort_unstable();
            its.into_iter().map(|(_, at)| self.slab.get(at))
        })
    }

    /// All addresses, in ranges in which about as many blocks live.
    fn ranges(&self) -> Vec<RangeInclusive<u64>> {
        let count = (self.count() / PASS).clamp(1, PASSES);
        // An odd distance, for patterns tend to have even ones.
        let step = (self.places() / SAMPLES) | 1;
        let mut sample: Vec<u64> =
            self.all().step_by(step).filter(|block| block.is_live()).map(Block::addr).collect();
        sample.sort_unstable();
        let ends = (1..count).filter_map(|at| sample.get(at * sample.len() / count).copied());
        let ends = ends.filter(|&end| end != u64::MAX);
        let mut ranges = Vec::with_capacity(count);
        let mut from = 0;
        for end in ends.chain([u64::MAX]) {
            ranges.push(from..=end);
            from = end.saturating_add(1);
        }
        ranges
    }

    /// Number of live blocks.
    pub fn count(&self) -> usize {
        self.index.count()
    }

    /// Number of places that [`Table::live`] looks at.
    pub fn places(&self) -> usize {
        self.slab.used as usize
    }

    /// Bytes that the table takes from the heap.
    pub fn heap_bytes(&self) -> usize {
        self.slab.chunks.len() * CHUNK * size_of::<Block>() + self.index.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_event::api::ApiKind;

    fn block(addr: u64, seqno: u64) -> Fields {
        Fields { addr, size: 1, ns: 0, seqno, thread: 0, api: ApiKind::Malloc as u8, site: 0 }
    }

    #[test]
    fn a_place_given_back_is_used_again() {
        let mut table = Table::default();
        for i in 1..=10_000u64 {
            assert!(table.put(&block(i * 16, i)).is_none());
        }
        for i in 1..=5_000u64 {
            assert_eq!(table.take(i * 32, Block::seqno), Some(i * 2));
            assert!(table.find(i * 32).is_none());
            assert!(table.take(i * 32, |_| ()).is_none());
        }
        assert_eq!(table.live().count(), 5_000);
        for i in 1..=5_000u64 {
            assert!(table.put(&block(i * 32, i)).is_none());
        }
        assert_eq!(table.places(), 10_000);
        assert_eq!(table.live().count(), 10_000);
        assert_eq!(table.put(&block(32, 7)).map(|block| block.seqno()), Some(1));
        assert_eq!(table.live().count(), 10_000);
    }

    #[test]
    fn live_blocks_come_by_address_in_parts_of_all() {
        let mut table = Table::default();
        assert_eq!(table.live_by_addr().count(), 0);
        // Up and down through two heaps far from each other, and the last address there is.
        let addr = |i: u64| if i.is_multiple_of(3) { u64::MAX - i * 16 } else { (i ^ 0xfff) * 32 };
        for i in 0..200_000 {
            table.put(&block(addr(i), i));
        }
        for i in (0..200_000).filter(|i| i % 5 == 1) {
            table.take(addr(i), |_| ());
        }
        let ranges = table.ranges();
        assert_eq!((ranges.len(), table.count()), (2, 160_000));
        for range in ranges {
            let its = table.live().filter(|block| range.contains(&block.addr())).count();
            assert!((60_000..100_000).contains(&its), "{its} blocks in {range:?}");
        }
        let mut wanted: Vec<u64> = table.live().map(Block::addr).collect();
        wanted.sort_unstable();
        assert_eq!(wanted.last(), Some(&u64::MAX));
        assert!(table.live_by_addr().map(Block::addr).eq(wanted));
        let mut last = Table::default();
        for i in 0..3 * PASS as u64 {
            last.put(&block(u64::MAX - i, i));
        }
        assert!(last.live_by_addr().map(Block::addr).eq((0..3 * PASS as u64).rev().map(|i| u64::MAX - i)));
    }

    #[test]
    fn a_block_takes_at_most_48_bytes_in_all() {
        let mut table = Table::default();
        let addr = |i: u64| 0x7f00_0000_0000 + i * 48;
        let check = |table: &Table, count: u64| {
            let each = table.heap_bytes() as f64 / count as f64;
            assert!(each <= 47.0, "{each} bytes a block at {count}");
        };
        for i in 0..1_900_000u64 {
            table.put(&block(addr(i), i));
            if i > 500_000 && i % 1000 == 0 {
                check(&table, i + 1);
            }
        }
        // What is given back takes nothing on top.
        for i in 0..1_900_000u64 {
            table.take(addr(i), |_| ());
        }
        check(&table, 1_900_000);
    }
}
