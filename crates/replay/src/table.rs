//! Blocks by address: a slab of blocks and an index of their places.

use hashbrown::HashTable;

use crate::block::Block;

/// Blocks in a chunk of the slab.
const CHUNK: usize = 4096;
/// Place of no block.
pub const NOWHERE: u32 = u32::MAX;

/// Live and lately freed blocks, by address.
///
/// A freed block keeps its place until the memory of freed blocks forgets it, so
/// that the usual cycle (free, and malloc hands the same address out again)
/// changes no index.
#[derive(Default)]
pub struct Table {
    index: HashTable<u32>,
    chunks: Vec<Box<[Block]>>,
    /// Places below this have been used.
    used: u32,
    vacant: Vec<u32>,
}

/// Spreads an address over all 64 bits: the index takes its position from the
/// lowest bits and its tag from the highest.
#[inline]
fn hash(addr: u64) -> u64 {
    let wide = u128::from(addr ^ 0x2545_f491_4f6c_dd1d) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
    (wide as u64) ^ ((wide >> 64) as u64)
}

impl Table {
    /// The block at a place that this table gave out.
    #[inline]
    pub fn get(&self, at: u32) -> &Block {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, at: u32) -> &mut Block {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    /// The place of the latest block at `addr`, live or freed.
    #[inline]
    pub fn find(&self, addr: u64) -> Option<u32> {
        let chunks = &self.chunks;
        self.index
            .find(hash(addr), |&at| chunks[at as usize / CHUNK][at as usize % CHUNK].addr() == addr)
            .copied()
    }

    /// Puts in a block whose address is not in the table.
    pub fn insert(&mut self, block: Block) -> u32 {
        let at = match self.vacant.pop() {
            Some(at) => at,
            None => {
                let at = self.used;
                if at as usize / CHUNK >= self.chunks.len() {
                    self.chunks.push(vec![Block::EMPTY; CHUNK].into_boxed_slice());
                }
                self.used += 1;
                at
            }
        };
        *self.get_mut(at) = block;
        let chunks = &self.chunks;
        self.index.insert_unique(hash(block.addr()), at, |&at| {
            hash(chunks[at as usize / CHUNK][at as usize % CHUNK].addr())
        });
        at
    }

    /// Forgets the block at a place.
    pub fn remove(&mut self, at: u32) {
        let addr = self.get(at).addr();
        if let Ok(entry) = self.index.find_entry(hash(addr), |&other| other == at) {
            entry.remove();
            *self.get_mut(at) = Block::EMPTY;
            self.vacant.push(at);
        }
    }

    /// All live blocks, in no order.
    pub fn live(&self) -> impl Iterator<Item = &Block> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .take(self.used as usize)
            .filter(|block| block.is_live())
    }

    /// Number of places that [`Table::live`] looks at.
    pub fn places(&self) -> usize {
        self.used as usize
    }

    /// Bytes that the table takes from the heap.
    pub fn heap_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Block>()
            + self.index.allocation_size()
            + self.vacant.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Fields;
    use highwater_event::api::ApiKind;

    fn block(addr: u64) -> Block {
        Block::live(&Fields {
            addr,
            size: 1,
            ns: 0,
            seqno: addr,
            thread: 0,
            api: ApiKind::Malloc as u8,
            site: 0,
        })
    }

    #[test]
    fn a_removed_place_is_used_again() {
        let mut table = Table::default();
        for i in 1..=10_000u64 {
            table.insert(block(i * 16));
        }
        for i in 1..=5_000u64 {
            let at = table.find(i * 32).unwrap();
            table.remove(at);
            assert_eq!(table.find(i * 32), None);
        }
        assert_eq!(table.live().count(), 5_000);
        for i in 1..=5_000u64 {
            table.insert(block(i * 32));
        }
        assert_eq!(table.places(), 10_000);
        assert_eq!(table.live().count(), 10_000);
    }

    #[test]
    fn a_block_takes_at_most_48_bytes_in_all() {
        // Just behind a growth of the index, where it is emptiest.
        let mut table = Table::default();
        for i in 0..1_900_000u64 {
            table.insert(block(0x7f00_0000_0000 + i * 48));
            if i > 100_000 && i % 1000 == 0 {
                let each = table.heap_bytes() as f64 / (i + 1) as f64;
                assert!(each <= 49.5, "{each} bytes a block at {i}");
            }
        }
        let each = table.heap_bytes() as f64 / 1_900_000.0;
        assert!(each <= 48.0, "{each} bytes a block");
    }
}
