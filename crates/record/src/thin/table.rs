//! The live set of a live-only recording, in at most 24 bytes a block.
//!
//! An entry takes 20 bytes, so the table must be five sixths full at least. It
//! is cut into shards that grow by an eighth each, by themselves; each is a hash
//! table with linear probing in the manner of Robin Hood (Celis, Larson and
//! Munro, 1985): an entry that is farther from its place takes that of one that
//! is nearer, so probes stay short although the table is up to 95 % full, and
//! removing shifts back what follows.
//!
//! What does not fit the fields of an entry lies in a table of its own: blocks of
//! 64 GiB and more, addresses that are no multiple of 8, threads beyond 65,535.

use highwater_event::api::ApiKind;
use rustc_hash::FxHashMap;

/// A live block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub addr: u64,
    pub size: u64,
    /// Index of its site, below 2^24.
    pub site: u32,
    pub thread: u32,
    /// Number of its [`ApiKind`], below 32.
    pub api: u8,
    /// When it was made, in units of 2^20 ns (about a millisecond), below 2^34.
    pub time: u64,
}

const ADDR_BITS: u32 = 45;
const SIZE_BITS: u32 = 36;
const SITE_BITS: u32 = 24;
const API_BITS: u32 = 5;
const THREAD_BITS: u32 = 16;
const TIME_BITS: u32 = 34;
const SHARD_BITS: u32 = 8;

/// A block in 160 bits; all zero is an empty place (no block has address 0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry([u32; 5]);

impl Entry {
    fn pack(block: &Block) -> Option<Entry> {
        let fits = |value: u64, bits: u32| value >> bits == 0;
        let whole = block.addr & 7 == 0
            && fits(block.addr >> 3, ADDR_BITS)
            && fits(block.size, SIZE_BITS)
            && fits(block.site.into(), SITE_BITS)
            && fits(block.api.into(), API_BITS)
            && fits(block.thread.into(), THREAD_BITS)
            && fits(block.time, TIME_BITS);
        if !whole {
            return None;
        }
        let mut bits = u128::from(block.addr >> 3);
        let mut at = ADDR_BITS;
        // 128 bits hold all but the time.
        for (value, width) in [
            (block.size, SIZE_BITS),
            (block.site.into(), SITE_BITS),
            (block.api.into(), API_BITS),
            (block.thread.into(), THREAD_BITS),
        ] {
            bits |= u128::from(value) << at;
            at += width;
        }
        // 126 bits so far; two of the time beside them, 32 in the last word.
        bits |= u128::from(block.time & 3) << at;
        let word = |n: u32| (bits >> (32 * n)) as u32;
        Some(Entry([word(0), word(1), word(2), word(3), (block.time >> 2) as u32]))
    }

    fn block(self) -> Block {
        let [a, b, c, d, e] = self.0;
        let bits = u128::from(a) | u128::from(b) << 32 | u128::from(c) << 64 | u128::from(d) << 96;
        let mut at = 0;
        let mut take = |width: u32| {
            let value = (bits >> at) as u64 & ((1 << width) - 1);
            at += width;
            value
        };
        Block {
            addr: take(ADDR_BITS) << 3,
            size: take(SIZE_BITS),
            site: take(SITE_BITS) as u32,
            api: take(API_BITS) as u8,
            thread: take(THREAD_BITS) as u32,
            time: take(2) | u64::from(e) << 2,
        }
    }

    fn key(self) -> u64 {
        (u64::from(self.0[0]) | u64::from(self.0[1]) << 32) & ((1 << ADDR_BITS) - 1)
    }

    fn is_empty(self) -> bool {
        self.key() == 0
    }
}

fn hash(key: u64) -> u64 {
    highwater_event::sample::mix(key.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A part of the table.
#[derive(Default)]
struct Shard {
    places: Vec<Entry>,
    used: usize,
}

impl Shard {
    /// The place where a key would like to be.
    fn home(&self, key: u64) -> usize {
        // The low bits of the hash have chosen the shard; scale the high ones.
        ((u128::from(hash(key)) * self.places.len() as u128) >> 64) as usize
    }

    fn distance(&self, entry: Entry, at: usize) -> usize {
        let home = self.home(entry.key());
        if at >= home { at - home } else { at + self.places.len() - home }
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.places.len() { 0 } else { at + 1 }
    }

    fn find(&self, key: u64) -> Option<usize> {
        if self.used == 0 {
            return None;
        }
        let mut at = self.home(key);
        let mut distance = 0;
        loop {
            let entry = *self.places.get(at)?;
            if entry.is_empty() || self.distance(entry, at) < distance {
                return None;
            }
            if entry.key() == key {
                return Some(at);
            }
            at = self.next(at);
            distance += 1;
        }
    }

    fn grow(&mut self) {
        let more = (self.places.len() / 8).max(4);
        let mut fresh = Vec::new();
        fresh.reserve_exact(self.places.len() + more);
        fresh.resize(self.places.len() + more, Entry::default());
        let old = std::mem::replace(&mut self.places, fresh);
        for entry in old.into_iter().filter(|entry| !entry.is_empty()) {
            self.put(entry);
        }
    }

    /// Puts in an entry whose key is not there; there is room.
    fn put(&mut self, mut entry: Entry) {
        let mut at = self.home(entry.key());
        let mut distance = 0;
        loop {
            let there = self.places[at];
            if there.is_empty() {
                self.places[at] = entry;
                return;
            }
            let its = self.distance(there, at);
            if its < distance {
                self.places[at] = entry;
                (entry, distance) = (there, its);
            }
            at = self.next(at);
            distance += 1;
        }
    }

    fn insert(&mut self, entry: Entry) -> Option<Entry> {
        if let Some(at) = self.find(entry.key()) {
            return self.places.get_mut(at).map(|place| std::mem::replace(place, entry));
        }
        if (self.used + 1) * 20 > self.places.len() * 19 {
            self.grow();
        }
        self.used += 1;
        self.put(entry);
        None
    }

    fn remove(&mut self, key: u64) -> Option<Entry> {
        let mut at = self.find(key)?;
        let gone = *self.places.get(at)?;
        loop {
            let next = self.next(at);
            let entry = self.places[next];
            if entry.is_empty() || self.distance(entry, next) == 0 {
                self.places[at] = Entry::default();
                break;
            }
            self.places[at] = entry;
            at = next;
        }
        self.used -= 1;
        Some(gone)
    }
}

/// The live set.
pub struct Table {
    shards: Vec<Shard>,
    odd: FxHashMap<u64, Block>,
}

impl Default for Table {
    fn default() -> Self {
        Table { shards: (0..1 << SHARD_BITS).map(|_| Shard::default()).collect(), odd: FxHashMap::default() }
    }
}

impl Table {
    fn shard(&mut self, addr: u64) -> Option<&mut Shard> {
        let place = hash(addr >> 3) & ((1 << SHARD_BITS) - 1);
        self.shards.get_mut(place as usize)
    }

    /// Puts a block in; the one that was at its address.
    pub fn insert(&mut self, block: &Block) -> Option<Block> {
        let before = self.remove(block.addr);
        match Entry::pack(block).filter(|entry| !entry.is_empty()) {
            Some(entry) => {
                if let Some(shard) = self.shard(block.addr) {
                    shard.insert(entry);
                }
            }
            None => _ = self.odd.insert(block.addr, *block),
        }
        before
    }

    /// Takes the block at an address out.
    pub fn remove(&mut self, addr: u64) -> Option<Block> {
        if !self.odd.is_empty()
            && let Some(block) = self.odd.remove(&addr)
        {
            return Some(block);
        }
        if addr & 7 != 0 || addr == 0 || addr >> (ADDR_BITS + 3) != 0 {
            return None;
        }
        self.shard(addr)?.remove(addr >> 3).map(Entry::block)
    }

    /// All blocks, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        let entries = self.shards.iter().flat_map(|shard| &shard.places);
        let packed = entries.filter(|entry| !entry.is_empty()).map(|entry| entry.block());
        packed.chain(self.odd.values().copied())
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        let shards: usize = self.shards.iter().map(|s| s.places.capacity() * size_of::<Entry>()).sum();
        shards + self.shards.capacity() * size_of::<Shard>() + self.odd.capacity() * (size_of::<Block>() + 9)
    }
}

/// The entry point that a block's number names.
pub fn api(block: &Block) -> ApiKind {
    ApiKind::from_u8(block.api).unwrap_or(ApiKind::Malloc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_event::sample::mix;
    use std::collections::HashMap;

    fn block(random: u64) -> Block {
        let odd = random.is_multiple_of(97);
        Block {
            addr: 0x5000_0000_0000 + (random % 50_000) * 8 + u64::from(odd) * 3,
            size: if random.is_multiple_of(89) { 1 << 37 } else { random >> 40 },
            site: (random >> 13) as u32 & 0xff_ffff,
            thread: if random.is_multiple_of(83) { 70_000 } else { (random >> 9) as u32 & 0xffff },
            api: (random >> 5) as u8 & 31,
            time: random >> 30,
        }
    }

    #[test]
    fn it_holds_what_a_map_holds() {
        let mut table = Table::default();
        let mut model: HashMap<u64, Block> = HashMap::new();
        for step in 0..300_000u64 {
            let random = mix(step);
            let block = block(random);
            if random >> 62 == 0 {
                assert_eq!(table.remove(block.addr), model.remove(&block.addr), "{step}");
            } else {
                assert_eq!(table.insert(&block), model.insert(block.addr, block), "{step}");
            }
        }
        let mut all: Vec<Block> = table.iter().collect();
        let mut want: Vec<Block> = model.into_values().collect();
        all.sort_by_key(|block| block.addr);
        want.sort_by_key(|block| block.addr);
        assert_eq!(all, want);
        for block in want {
            assert_eq!(table.remove(block.addr), Some(block));
        }
        assert_eq!(table.iter().count(), 0);
    }

    /// K2.3: at most 24 bytes a live block, whatever their number.
    #[test]
    fn a_live_block_takes_at_most_24_bytes() {
        assert_eq!(size_of::<Entry>(), 20);
        let mut table = Table::default();
        for n in 1..=300_000u64 {
            let block = Block { addr: n * 48, size: 40, site: 7, thread: 0, api: 0, time: n };
            table.insert(&block);
            // Below that the tables' own heads weigh.
            if n >= 100_000 && n.is_multiple_of(1511) {
                let each = table.memory() as f64 / n as f64;
                assert!(each <= 24.0, "{each} bytes a block with {n}");
            }
        }
    }

    #[test]
    fn extremes_fit_or_lie_beside() {
        let most = Block {
            addr: ((1 << ADDR_BITS) - 1) << 3,
            size: (1 << SIZE_BITS) - 1,
            site: (1 << SITE_BITS) - 1,
            thread: (1 << THREAD_BITS) - 1,
            api: 31,
            time: (1 << TIME_BITS) - 1,
        };
        assert_eq!(Entry::pack(&most).map(Entry::block), Some(most));
        let mut table = Table::default();
        for block in [
            most,
            Block { size: u64::MAX, ..most },
            Block { addr: u64::MAX, ..most },
            Block { addr: 0, ..most },
            Block { time: u64::MAX, addr: 8, ..most },
        ] {
            table.insert(&block);
            assert_eq!(table.remove(block.addr), Some(block));
        }
    }
}
