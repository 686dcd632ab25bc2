//! The live set as a scan needs it: sorted, and found by any address inside.

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;

use crate::live::LiveBlock;

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where.
    pub addr: u64,
    /// Requested bytes.
    pub size: u64,
    /// Seqno of its allocation.
    pub seqno: u64,
    /// From where.
    pub node: NodeId,
    /// Made by `new[]`.
    pub array: bool,
}

impl From<&LiveBlock> for Block {
    fn from(block: &LiveBlock) -> Block {
        Block {
            addr: block.addr,
            size: block.size,
            seqno: block.seqno,
            node: block.node,
            array: matches!(
                block.api,
                ApiKind::NewArray
                    | ApiKind::NewArrayNothrow
                    | ApiKind::NewArrayAligned
                    | ApiKind::NewArrayAlignedNothrow
            ),
        }
    }
}

/// Bits of an address inside a granule: the index has an entry a granule.
const GRANULE: u32 = 10;
/// Bits of an address inside a region: the upper level has an entry a region.
const REGION: u32 = 30;
/// User addresses have so many bits.
const ADDRESS: u32 = 47;
const GRANULES: usize = 1 << (REGION - GRANULE);

/// The live blocks by address.
#[derive(Default)]
pub struct Blocks {
    blocks: Vec<Block>,
    /// For each region with blocks the number of blocks that begin before each
    /// of its granules, and before its end.
    regions: Vec<Vec<u32>>,
    /// Region of an address -> place in `regions`, plus one.
    top: Vec<u32>,
    /// Some block lies inside another: an allocator built on another one, both recorded.
    nested: bool,
}

impl Blocks {
    /// Sorts and indexes. Blocks above the user's half of the address space, or
    /// beyond four billion, are left out: there are none.
    pub fn new(mut blocks: Vec<Block>) -> Blocks {
        blocks.retain(|block| block.addr >> ADDRESS == 0);
        blocks.sort_unstable_by_key(|block| (block.addr, block.seqno));
        blocks.truncate(u32::MAX as usize - 1);
        let nested = blocks.windows(2).any(|pair| match pair {
            [a, b] => a.addr.saturating_add(a.size) > b.addr,
            _ => false,
        });
        let mut index = Blocks { blocks, regions: Vec::new(), top: Vec::new(), nested };
        index.build();
        index
    }

    fn build(&mut self) {
        if self.blocks.is_empty() {
            return;
        }
        self.top = vec![0; 1 << (ADDRESS - REGION)];
        for at in 0..self.blocks.len() {
            let block = self.blocks[at];
            let last = block.addr.saturating_add(block.size.max(1) - 1).min((1 << ADDRESS) - 1);
            for region in block.addr >> REGION..=last >> REGION {
                if self.top[region as usize] == 0 {
                    let table = self.table(region);
                    self.regions.push(table);
                    self.top[region as usize] = self.regions.len() as u32;
                }
            }
        }
    }

    /// The number of blocks that begin before each granule of a region.
    fn table(&self, region: u64) -> Vec<u32> {
        let mut at = self.blocks.partition_point(|block| block.addr < region << REGION);
        let mut table = Vec::with_capacity(GRANULES + 1);
        for granule in 0..=GRANULES as u64 {
            let start = (region << REGION) + (granule << GRANULE);
            while self.blocks.get(at).is_some_and(|block| block.addr < start) {
                at += 1;
            }
            table.push(at as u32);
        }
        table
    }

    /// The blocks, by address.
    pub fn all(&self) -> &[Block] {
        &self.blocks
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The block that a word points to, and how far into it: 0 where it counts
    /// as a pointer to the start.
    ///
    /// A block of no bytes has one. A pointer just behind an array of eight
    /// bytes is one to its start: `new T[0]` keeps only its count there, and the
    /// program has the address of the elements.
    #[inline]
    pub fn find(&self, word: u64) -> Option<(u32, u64)> {
        let region = *self.top.get((word >> REGION) as usize)?;
        if region == 0 {
            return None;
        }
        let table = self.regions.get(region as usize - 1)?;
        let granule = (word >> GRANULE) as usize & (GRANULES - 1);
        let (first, after) = (*table.get(granule)?, *table.get(granule + 1)?);
        let inside = self.blocks.get(first as usize..after as usize)?;
        let at = first as usize + inside.partition_point(|block| block.addr <= word);
        let at = at.checked_sub(1)?;
        let block = self.blocks.get(at)?;
        let into = word - block.addr;
        if into < block.size.max(1) {
            return Some((at as u32, into));
        }
        if into == 8 && block.size == 8 && block.array {
            return Some((at as u32, 0));
        }
        if self.nested { self.around(at, word) } else { None }
    }

    /// A block further before that reaches to `word`; looks at a few.
    #[cold]
    fn around(&self, before: usize, word: u64) -> Option<(u32, u64)> {
        (before.saturating_sub(256)..before).rev().find_map(|at| {
            let block = self.blocks.get(at)?;
            let into = word - block.addr;
            (into < block.size).then_some((at as u32, into))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(addr: u64, size: u64) -> Block {
        Block { addr, size, seqno: 0, node: 0, array: false }
    }

    #[test]
    fn a_pointer_to_the_end_is_none_but_that_of_an_empty_array() {
        let array = Block { array: true, ..block(0x2000, 8) };
        let blocks = Blocks::new(vec![block(0x1000, 16), array, block(0x3000, 0), block(0x4000, 8)]);
        assert_eq!(blocks.find(0x1000), Some((0, 0)));
        assert_eq!(blocks.find(0x100f), Some((0, 15)));
        assert_eq!(blocks.find(0x1010), None);
        assert_eq!(blocks.find(0x2008), Some((1, 0)), "new T[0]");
        assert_eq!(blocks.find(0x3000), Some((2, 0)), "malloc(0)");
        assert_eq!(blocks.find(0x3001), None);
        assert_eq!(blocks.find(0x4008), None);
        for word in [0, 8, 0xfff, u64::MAX, 1 << 47, (1 << 47) - 1] {
            assert_eq!(blocks.find(word), None);
        }
    }

    #[test]
    fn a_block_may_span_regions_and_hold_others() {
        let blocks =
            Blocks::new(vec![block(0x3fff_0000, 5 << 30), block(0x4000_0100, 16), block(0x4000_0200, 16)]);
        assert_eq!(blocks.find(0x4000_0108), Some((1, 8)));
        assert_eq!(blocks.find(0x4000_0110), Some((0, 0x10110)));
        assert_eq!(blocks.find(0x1_0000_0000), Some((0, 0x1_0000_0000 - 0x3fff_0000)));
        assert_eq!(blocks.find(0x1_8000_0000), None);
    }

    proptest! {
        // Each case fills an index of a million entries.
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_address_finds_what_a_look_at_all_blocks_finds(
            sizes in proptest::collection::vec((0u64..4000, 0u64..3000), 0..200),
            base in 0x3fff_0000u64..0x4000_0000,
            probes in proptest::collection::vec(0u64..1_000_000, 50),
        ) {
            let mut at = base;
            let mut list = Vec::new();
            for (gap, size) in sizes {
                at += gap & !7;
                list.push(block(at, size));
                at += size.max(1).next_multiple_of(16);
            }
            let blocks = Blocks::new(list.clone());
            for probe in probes {
                let word = base + probe;
                let want = list.iter().position(|b| word >= b.addr && word - b.addr < b.size.max(1));
                let want = want.map(|i| (i as u32, word - list[i].addr));
                prop_assert_eq!(blocks.find(word), want);
            }
        }
    }
}
