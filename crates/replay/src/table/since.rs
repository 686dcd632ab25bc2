//! What has changed in a table since an instant: which of the blocks that lived then
//! are gone, and which are new. No event costs anything for it; both are found by one
//! pass over the table.
//!
//! A block keeps its place in the slab for as long as it lives, so a list of the seqnos
//! at all places tells which block is still the same. Those that were young then moved
//! into the slab later: they are few, and are looked for by their seqnos. One that was
//! given back and lives again elsewhere (a realloc's failure) is gone and new.

use super::Table;
use crate::block::Block;

/// Who lived at an instant: the blocks in the order of their addresses, each with its
/// number in that order.
#[derive(Default)]
pub struct Roll {
    /// Of each place of the slab the seqno of the block that lived there, and its number.
    seqnos: Vec<u64>,
    numbers: Vec<u32>,
    /// The same of those that were young, by seqno.
    young: Vec<(u64, u32)>,
    /// The number of the next one.
    count: u32,
}

/// No block's seqno (they have 46 bits).
const NOBODY: u64 = u64::MAX;

/// What has changed since then.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// The numbers of those that are gone, rising.
    pub gone: Vec<u32>,
    /// Addresses and places of those that are new, by address.
    new: Vec<(u64, u32)>,
}

impl Since {
    /// How many are new.
    pub fn new_count(&self) -> usize {
        self.new.len()
    }
}

impl Table {
    /// All live blocks by address, which are put on a roll as they come.
    pub fn enrol<'a>(&'a self, roll: &'a mut Roll) -> impl Iterator<Item = &'a Block> {
        let places = self.slab.used as usize;
        *roll = Roll { seqnos: vec![NOBODY; places], numbers: vec![0; places], ..Roll::default() };
        self.live_by_addr().map(|(at, block)| {
            let (seqno, number) = (block.seqno(), roll.count);
            match (roll.seqnos.get_mut(at as usize), roll.numbers.get_mut(at as usize)) {
                (Some(of), Some(its)) => (*of, *its) = (seqno, number),
                _ => {
                    let behind = roll.young.partition_point(|young| young.0 < seqno);
                    roll.young.insert(behind, (seqno, number));
                }
            }
            roll.count = roll.count.saturating_add(1);
            block
        })
    }

    /// What has changed since all live blocks were put on this roll. `None` where more
    /// than `most` blocks are new.
    pub fn since(&self, roll: &Roll, most: usize) -> Option<Since> {
        let mut lives = vec![0u64; (roll.count as usize).div_ceil(64)];
        let mut new = Vec::new();
        for (at, block) in (0u32..).zip(self.all()).filter(|(_, block)| block.is_live()) {
            let seqno = block.seqno();
            let number = match roll.seqnos.get(at as usize) {
                Some(&its) if its == seqno => roll.numbers.get(at as usize).copied(),
                // What stands at another place now was young, or is new.
                _ => {
                    let young = roll.young.binary_search_by_key(&seqno, |young| young.0);
                    young.ok().and_then(|young| roll.young.get(young)).map(|young| young.1)
                }
            };
            match number.and_then(|number| Some((lives.get_mut(number as usize / 64)?, number % 64))) {
                Some((word, bit)) => *word |= 1 << bit,
                None if new.len() >= most => return None,
                None => new.push((block.addr(), at)),
            }
        }
        sort(&mut new);
        let mut gone = Vec::new();
        for (word, lives) in (0u32..).zip(lives) {
            let mut gone_here = !lives;
            while gone_here != 0 {
                gone.push(word * 64 + gone_here.trailing_zeros());
                gone_here &= gone_here - 1;
            }
        }
        while gone.last().is_some_and(|&number| number >= roll.count) {
            gone.pop();
        }
        Some(Since { gone, new })
    }

    /// The blocks that are new, by address. The table must be as it was when they were found.
    pub fn new_since<'a>(&'a self, since: &'a Since) -> impl Iterator<Item = &'a Block> {
        since.new.iter().map(|&(_, at)| self.at_place(at))
    }
}

/// Sorts addresses with their places. Where both fit into a word together that is what is
/// sorted: it takes half the time.
fn sort(list: &mut [(u64, u32)]) {
    const PLACE: u32 = 24;
    let least = list.iter().map(|one| one.0).min().unwrap_or(0);
    let fits = |&(addr, at): &(u64, u32)| (addr - least) >> (u64::BITS - PLACE) == 0 && at >> PLACE == 0;
    if !list.iter().all(fits) {
        return list.sort_unstable();
    }
    let mut words: Vec<u64> =
        list.iter().map(|&(addr, at)| (addr - least) << PLACE | u64::from(at)).collect();
    words.sort_unstable();
    for (one, word) in list.iter_mut().zip(words) {
        *one = (least + (word >> PLACE), word as u32 & ((1 << PLACE) - 1));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::block::Fields;

    fn block(addr: u64, seqno: u64) -> Fields {
        Fields { addr, size: 1, ns: 0, seqno, thread: 0, api: 0, site: 0 }
    }

    #[test]
    fn addresses_near_each_other_and_far_apart_are_sorted_alike() {
        let mut random = 3u64;
        for bits in [8, 39, 40, 41, 64] {
            let mut list: Vec<(u64, u32)> = (0..1_000)
                .map(|_| {
                    random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    (u64::MAX - (random >> (64 - bits)), (random >> 3) as u32 >> (bits % 9))
                })
                .collect();
            let mut sorted = list.clone();
            sorted.sort_unstable();
            sort(&mut list);
            assert_eq!(list, sorted, "{bits}");
        }
    }

    #[test]
    fn what_is_gone_and_what_is_new_is_the_difference_of_two_heaps() {
        let mut random = 3u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % limit
        };
        let (mut table, mut roll) = (Table::default(), Roll::default());
        // Of each address the seqno of its block; and those of the roll by address.
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let mut then: Vec<u64> = Vec::new();
        let mut gone: Vec<(u64, u64)> = Vec::new();
        let (mut checked, mut again) = (0, 0);
        for seqno in 0..200_000u64 {
            let addr = 16 + below(3_000) * 16;
            match model.remove(&addr) {
                Some(old) => {
                    assert_eq!(table.take(addr, Block::seqno), Some(old));
                    gone.push((addr, old));
                }
                // Now and then a block lives again, wherever it stands then.
                None if below(20) == 0 && !gone.is_empty() => {
                    let (addr, seqno) = gone.swap_remove(below(gone.len() as u64) as usize);
                    if let std::collections::btree_map::Entry::Vacant(vacant) = model.entry(addr) {
                        vacant.insert(seqno);
                        table.put(&block(addr, seqno));
                        again += 1;
                    }
                }
                None => {
                    model.insert(addr, seqno);
                    table.put(&block(addr, seqno));
                }
            }
            if seqno % 30_000 == 20_000 {
                again = 0;
                then = table.enrol(&mut roll).map(Block::seqno).collect();
                assert!(then.iter().eq(model.values()));
            } else if seqno % 1_000 == 0 {
                let since = table.since(&roll, usize::MAX).unwrap();
                assert!(since.gone.is_sorted_by(|a, b| a < b));
                let new: Vec<u64> = table.new_since(&since).map(Block::seqno).collect();
                // Those that live again may stand where they stood, or count as new.
                let kept: BTreeSet<u64> = (0u32..)
                    .zip(&then)
                    .filter(|(number, _)| since.gone.binary_search(number).is_err())
                    .map(|(_, &seqno)| seqno)
                    .collect();
                let lives: BTreeSet<u64> = model.values().copied().collect();
                assert!(kept.is_subset(&lives), "at {seqno}");
                let others: Vec<u64> = model.values().copied().filter(|its| !kept.contains(its)).collect();
                assert_eq!(new, others, "at {seqno}");
                let old = new.iter().filter(|its| then.contains(its)).count();
                assert!(old <= again, "{old} of {again} that live again at {seqno}");
                assert_eq!(table.since(&roll, new.len()), Some(since));
                if let Some(fewer) = new.len().checked_sub(1) {
                    assert_eq!(table.since(&roll, fewer), None);
                }
                checked += usize::from(!kept.is_empty() && !new.is_empty() && kept.len() < then.len());
            }
        }
        assert!(checked > 50, "{checked}");
    }
}
