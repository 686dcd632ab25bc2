//! Live blocks by address: a few young ones, and a slab of blocks with an index of
//! their places.
//!
//! Most blocks die young. A new one stands among the young first, where its address
//! says its place, and moves into the slab when another takes that place: the many
//! that are freed before never come into slab and index.
//!
//! **A vacant place among the young** has the address of the block that stood there last,
//! or of a block of the slab that has ended since. That address is not in the index, for
//! it would have to come by this place again. So an address that is used again soon,
//! as most are, is not looked for.

mod since;
mod vacant;

use std::ops::RangeInclusive;

pub use since::{Roll, Since};

use crate::block::{Block, Fields};
use crate::index::{Hash, Index, Key};
use crate::memory::{boxed, prefetch_both};
use vacant::Vacant;

/// Blocks in a chunk of the slab.
const CHUNK: usize = 8192;
/// Blocks from which on [`Table::live_by_addr`] goes through all more than once,
/// and how often at most.
const PASS: usize = 1 << 16;
const PASSES: usize = 4;
/// Addresses that say where to part all of them.
const SAMPLES: usize = 1 << 12;
/// Places for young blocks; together they fit into the first cache.
const YOUNG: usize = 512;
/// Blocks of [`Table::put_new`] between asking for memory and using it.
const AHEAD: usize = 16;
/// The live blocks, by address.
///
/// A place that was given back is the next to be used again, so the blocks of
/// middle age stay in a few cache lines too.
pub struct Table {
    young: Box<[Block; YOUNG]>,
    /// Live blocks among them.
    young_count: usize,
    index: Index,
    slab: Slab,
    vacant: Vacant,
}

impl Default for Table {
    fn default() -> Self {
        Table {
            young: boxed(Block::EMPTY),
            young_count: 0,
            index: Index::default(),
            slab: Slab::default(),
            vacant: Vacant::default(),
        }
    }
}

/// The place of an address among the young.
#[inline(always)]
fn young(addr: u64) -> usize {
    (addr >> 4 ^ addr >> 13) as usize % YOUNG
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

    /// Asks for the memory of a place, if there is one.
    #[inline(always)]
    fn prefetch(&self, at: u32) {
        if let Some(chunk) = self.chunks.get(at as usize / CHUNK) {
            prefetch_both(&chunk[..], at as usize % CHUNK);
        }
    }

    /// A place that was never used.
    #[inline]
    fn extend(&mut self) -> u32 {
        let at = self.used;
        if at as usize / CHUNK >= self.chunks.len() {
            self.add_chunk();
        }
        self.used += 1;
        at
    }

    #[cold]
    #[inline(never)]
    fn add_chunk(&mut self) {
        self.chunks.push(boxed(Block::EMPTY));
    }
}

impl Table {
    /// What stands for an address in the other functions.
    #[inline(always)]
    pub fn key(&self, addr: u64) -> Key {
        self.index.key(Hash::new(addr))
    }

    /// The same, but [no key](Key::is_known) where most likely none will be needed: where
    /// the address's place among the young has that address. Any function takes such a
    /// key, too.
    #[inline(always)]
    pub fn likely_key(&self, addr: u64) -> Key {
        match self.young[young(addr)].addr() == addr {
            true => Key::default(),
            false => self.key(addr),
        }
    }

    /// Asks for the memory of the index in which an address stands.
    #[inline(always)]
    pub fn prefetch_index(&self, key: &Key) {
        self.index.prefetch(key);
    }

    /// Asks for the memory of the block that lives at the key's address, most likely, if
    /// it is not a young one.
    #[inline(always)]
    pub fn prefetch_block(&self, key: &Key) {
        if key.is_known()
            && let Some(at) = self.index.guess(key)
        {
            self.slab.prefetch(at);
        }
    }

    /// The block that lives at `addr`.
    #[inline]
    pub fn find(&self, addr: u64) -> Option<&Block> {
        self.find_at(&self.key(addr), addr)
    }

    /// [`Table::find`] with the address's key.
    #[inline(always)]
    pub fn find_at(&self, key: &Key, addr: u64) -> Option<&Block> {
        let block = &self.young[young(addr)];
        if block.is_live() && block.addr() == addr {
            return Some(block);
        }
        if block.addr() == addr {
            return None;
        }
        let slab = &self.slab;
        let found = self.index.find(&self.index.known(key, addr), |at| slab.get(at).addr() == addr)?;
        Some(slab.get(found.place))
    }

    /// Puts in a block, and gives back the one that lived at its address.
    pub fn put(&mut self, fields: &Fields) -> Option<Block> {
        self.put_at(&self.key(fields.addr), fields)
    }

    /// [`Table::put`] with the address's key.
    #[inline(always)]
    pub fn put_at(&mut self, key: &Key, fields: &Fields) -> Option<Block> {
        let addr = fields.addr;
        let there = &mut self.young[young(addr)];
        let taken = there.is_live();
        if there.addr() != addr {
            let slab = &mut self.slab;
            let key = self.index.known(key, addr);
            if let Some(found) = self.index.find(&key, |at| slab.get(at).addr() == addr) {
                return Some(std::mem::replace(slab.get_mut(found.place), Block::live(fields)));
            }
        } else if taken {
            return Some(std::mem::replace(there, Block::live(fields)));
        }
        if taken {
            let at = self.place();
            let (there, slab) = (&self.young[young(addr)], &mut self.slab);
            slab.get_mut(at).assign(there);
            let key = self.index.key(Hash::new(there.addr()));
            self.index.insert(&key, at, |at| Hash::new(slab.get(at).addr()));
        } else {
            self.young_count += 1;
        }
        self.young[young(addr)].set(fields);
        None
    }

    /// Makes room in the index for so many blocks, if there is none yet.
    pub fn reserve(&mut self, count: usize) {
        self.index.reserve(count);
    }

    /// Puts in many blocks. No two of them, and none that lives here, may have an address
    /// in common: nothing is looked for.
    pub fn put_new(&mut self, blocks: &[Fields]) {
        let mut keys = [[Key::default(); AHEAD]; 2];
        let (mut pieces, mut next) = (blocks.chunks(AHEAD), 0);
        let mut piece = pieces.next().unwrap_or_default();
        self.look_for_new(piece, &mut keys[0]);
        while !piece.is_empty() {
            let later = pieces.next().unwrap_or_default();
            next ^= 1;
            self.look_for_new(later, &mut keys[next]);
            for (key, fields) in keys[next ^ 1].iter().zip(piece) {
                let there = &mut self.young[young(fields.addr)];
                if there.addr() == fields.addr {
                    // A vacant place must not say any more that it is not in the index. No
                    // address that differs in this bit has this place.
                    there.lived_at(fields.addr ^ 16);
                }
                let at = self.place();
                self.slab.get_mut(at).set(fields);
                let slab = &self.slab;
                self.index.insert(key, at, |at| Hash::new(slab.get(at).addr()));
            }
            piece = later;
        }
    }

    /// Finds the keys of some addresses, and asks for the memory of the index in which they
    /// will stand.
    #[inline(always)]
    fn look_for_new(&self, blocks: &[Fields], keys: &mut [Key; AHEAD]) {
        for (key, fields) in keys.iter_mut().zip(blocks) {
            *key = self.key(fields.addr);
            self.prefetch_index(key);
        }
    }

    /// A place in the slab that is not in use.
    #[inline(always)]
    fn place(&mut self) -> u32 {
        match self.vacant.pop(&self.slab) {
            Some(at) => at,
            None => self.slab.extend(),
        }
    }

    /// Takes out the block that lives at `addr`; what `with` makes of it.
    pub fn take<R>(&mut self, addr: u64, with: impl FnOnce(&Block) -> R) -> Option<R> {
        self.take_at(&self.key(addr), addr, with)
    }

    /// [`Table::take`] with the address's key.
    #[inline(always)]
    pub fn take_at<R>(&mut self, key: &Key, addr: u64, with: impl FnOnce(&Block) -> R) -> Option<R> {
        let there = &mut self.young[young(addr)];
        let block = if there.is_live() && there.addr() == addr {
            self.young_count -= 1;
            there
        } else {
            // Nothing is at an address that a vacant place has.
            if there.addr() == addr {
                return None;
            }
            let slab = &mut self.slab;
            let key = self.index.known(key, addr);
            let found = self.index.find(&key, |at| slab.get(at).addr() == addr)?;
            self.index.remove(&key, found);
            let block = slab.get_mut(found.place);
            let result = with(block);
            block.end();
            self.vacant.push(slab, found.place);
            if !there.is_live() {
                there.lived_at(addr);
            }
            return Some(result);
        };
        let result = with(block);
        block.end();
        Some(result)
    }

    /// All live blocks, in no order.
    pub fn live(&self) -> impl Iterator<Item = &Block> {
        self.all().filter(|block| block.is_live())
    }

    /// All places that have been used, those of young blocks behind the others.
    fn all(&self) -> impl Iterator<Item = &Block> {
        let slab = self.slab.chunks.iter().flat_map(|chunk| chunk.iter()).take(self.slab.used as usize);
        slab.chain(self.young.iter())
    }

    /// All live blocks with their places, by address. The places are put in order a range of
    /// addresses after the other, a quarter of them at a time (of a quarter of a
    /// million or more): that takes 4 bytes a block.
    fn live_by_addr(&self) -> impl Iterator<Item = (u32, &Block)> {
        let ranges = self.ranges();
        ranges.into_iter().flat_map(|range| {
            let places = (0u32..).zip(self.all()).filter(|(_, block)| block.is_live());
            let its = places.map(|(at, block)| (block.addr(), at)).filter(|(addr, _)| range.contains(addr));
            let mut its: Vec<(u64, u32)> = its.collect();
            its.sort_unstable();
            its.into_iter().map(|(_, at)| (at, self.at_place(at)))
        })
    }

    /// The block at a place: those of the young are behind the others'.
    fn at_place(&self, at: u32) -> &Block {
        match at.checked_sub(self.slab.used) {
            Some(at) => &self.young[at as usize % YOUNG],
            None => self.slab.get(at),
        }
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
        self.index.count() + self.young_count
    }

    /// Number of places that [`Table::live`] looks at.
    pub fn places(&self) -> usize {
        self.slab.used as usize + self.young_count
    }

    /// Bytes that the table takes from the heap.
    pub fn heap_bytes(&self) -> usize {
        let blocks = self.slab.chunks.len() * CHUNK + YOUNG;
        blocks * size_of::<Block>() + self.index.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_event::api::ApiKind;
    use std::collections::BTreeMap;

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
    fn young_and_old_blocks_are_one_table() {
        let (mut table, mut model) = (Table::default(), BTreeMap::new());
        let mut random = 1u64;
        // Keys are asked for a while before they are used.
        let mut ahead = std::collections::VecDeque::new();
        for seqno in 0..60_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            // Four thousand addresses, of which eight share each place among the young.
            let addr = (random >> 40) % 4096 * 16;
            ahead.push_back((random, addr, table.likely_key(addr)));
            if ahead.len() < 20 {
                continue;
            }
            let Some((random, addr, key)) = ahead.pop_front() else { break };
            assert_eq!(table.find_at(&key, addr).map(Block::seqno), model.get(&addr).copied());
            if random >> 62 == 0 || seqno % 9_000 < 4_000 && random >> 63 == 0 {
                assert_eq!(table.take_at(&key, addr, Block::seqno), model.remove(&addr));
            } else {
                let before = table.put_at(&key, &block(addr, seqno));
                assert_eq!(before.map(|block| block.seqno()), model.insert(addr, seqno));
            }
            assert_eq!(table.count(), model.len());
            if seqno % 1_000 == 0 {
                let by_addr: Vec<(u64, u64)> =
                    table.live_by_addr().map(|(_, block)| (block.addr(), block.seqno())).collect();
                assert!(by_addr.into_iter().eq(model.iter().map(|(&addr, &seqno)| (addr, seqno))));
                assert_eq!(table.live().count(), model.len());
            }
        }
        assert!(table.young_count > 0 && table.index.count() > 0);
    }

    #[test]
    fn many_new_blocks_at_once_are_as_good_as_one_by_one() {
        let (mut one, mut many) = (Table::default(), Table::default());
        let fields: Vec<Fields> = (0..50_000).map(|i| block((i * 16) ^ 0x50, i)).collect();
        many.reserve(40_000);
        for part in fields.chunks(1_777) {
            many.put_new(part);
        }
        fields.iter().for_each(|fields| _ = one.put(fields));
        let all = |table: &Table| table.live_by_addr().map(|(_, block)| block.fields()).collect::<Vec<_>>();
        assert_eq!(all(&one), all(&many));
        assert_eq!(one.count(), many.count());
        assert!(many.heap_bytes() <= one.heap_bytes() + size_of::<[Block; CHUNK]>());
        // What was given back before is used again.
        for i in 0..1_000 {
            assert_eq!(many.take(fields[i * 50].addr, Block::seqno), Some(i as u64 * 50));
        }
        let places = many.places();
        many.put_new(&fields.iter().step_by(50).copied().collect::<Vec<_>>());
        assert_eq!((all(&one), many.places()), (all(&many), places));
        for fields in &fields {
            assert_eq!(many.find(fields.addr).map(Block::seqno), Some(fields.seqno), "{:#x}", fields.addr);
        }
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
        assert!(table.live_by_addr().map(|(_, block)| block.addr()).eq(wanted));
        let mut last = Table::default();
        for i in 0..3 * PASS as u64 {
            last.put(&block(u64::MAX - i, i));
        }
        assert!(
            last.live_by_addr()
                .map(|(_, block)| block.addr())
                .eq((0..3 * PASS as u64).rev().map(|i| u64::MAX - i))
        );
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
