//! Live blocks by address: a slab of blocks and an index of their places.

use crate::block::{Block, Fields};
use crate::index::{Hash, Index};
use crate::prefetch::prefetch;

/// Blocks in a chunk of the slab.
const CHUNK: usize = 4096;

/// The live blocks, by address.
///
/// A place that was given back is the next to be used again, so the young blocks,
/// which most programs use most, stay in a few cache lines.
#[derive(Default)]
pub struct Table {
    index: Index,
    slab: Slab,
    vacant: Vec<u32>,
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
        let at = match self.vacant.pop() {
            Some(at) => at,
            None => slab.extend(),
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
        self.vacant.push(found.place);
        let block = slab.get_mut(found.place);
        let result = with(block);
        block.end();
        Some(result)
    }

    /// All live blocks, in no order.
    pub fn live(&self) -> impl Iterator<Item = &Block> {
        self.slab
            .chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .take(self.slab.used as usize)
            .filter(|block| block.is_live())
    }

    /// Number of places that [`Table::live`] looks at.
    pub fn places(&self) -> usize {
        self.slab.used as usize
    }

    /// Bytes that the table takes from the heap.
    pub fn heap_bytes(&self) -> usize {
        self.slab.chunks.len() * CHUNK * size_of::<Block>()
            + self.index.heap_bytes()
            + self.vacant.capacity() * size_of::<u32>()
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
    fn a_block_takes_at_most_56_bytes_in_all() {
        // Just behind a growth of the index, where it is emptiest.
        let mut table = Table::default();
        for i in 0..1_900_000u64 {
            table.put(&block(0x7f00_0000_0000 + i * 48, i));
            if i > 100_000 && i % 1000 == 0 {
                let each = table.heap_bytes() as f64 / (i + 1) as f64;
                assert!(each <= 54.0, "{each} bytes a block at {i}");
            }
        }
    }
}
