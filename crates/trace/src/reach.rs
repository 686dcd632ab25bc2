//! The result of a scan for unreachable blocks: what it is, and its bytes.
//!
//! `docs/format.md` has the bytes ("Reach"). The totals and the sums by stack
//! are always whole; single blocks and the pointers between them are kept up to
//! a bound, the lost ones first.

use highwater_event::node::NodeId;

use crate::varint::{Reader, put, put_signed};

/// What [`crate::model::Meta::options`] says where a scan was asked for.
pub const LEAK_CHECK: &str = "leak_check";

/// How a block is reached, as memcheck and LeakSanitizer use the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// *Definitely lost*: nothing that is not lost itself points to it, and it
    /// leads its own structure (the head of a lost list; of a ring the block
    /// with the lowest address).
    Definite = 0,
    /// *Indirectly lost*: only other lost blocks point to it.
    Indirect = 1,
    /// *Possibly lost*: every way to it passes through a pointer into the
    /// middle of a block.
    Possible = 2,
    /// *Still reachable*.
    Reachable = 3,
}

impl Class {
    /// All, in the order of their numbers.
    pub const ALL: [Class; 4] = [Class::Definite, Class::Indirect, Class::Possible, Class::Reachable];

    /// The class with this number.
    pub const fn from_u8(value: u8) -> Option<Class> {
        Some(match value {
            0 => Class::Definite,
            1 => Class::Indirect,
            2 => Class::Possible,
            3 => Class::Reachable,
            _ => return None,
        })
    }

    /// As users read it.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Definite => "definitely lost",
            Class::Indirect => "indirectly lost",
            Class::Possible => "possibly lost",
            Class::Reachable => "still reachable",
        }
    }

    /// As scripts read it.
    pub const fn key(self) -> &'static str {
        match self {
            Class::Definite => "definite",
            Class::Indirect => "indirect",
            Class::Possible => "possible",
            Class::Reachable => "reachable",
        }
    }
}

/// Blocks and their requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub blocks: u64,
    /// How much.
    pub bytes: u64,
}

impl Amount {
    /// One more block.
    pub fn add(&mut self, bytes: u64) {
        self.blocks = self.blocks.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// All of another amount too.
    pub fn join(&mut self, other: Amount) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What one stack made and a scan found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReachSite {
    /// The stack.
    pub node: NodeId,
    /// By [`Class`].
    pub classes: [Amount; 4],
    /// What is lost with the definitely lost blocks of this stack: the blocks
    /// of any stack that only they lead to.
    pub owned: Amount,
}

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachBlock {
    /// Where.
    pub addr: u64,
    /// Requested bytes.
    pub size: u64,
    /// Seqno of its allocation.
    pub seqno: u64,
    /// From where.
    pub node: NodeId,
    /// How it is reached.
    pub class: Class,
    /// Address of the definitely lost block that it is lost with, if it is
    /// indirectly lost.
    pub owner: Option<u64>,
    /// Bytes that would be free if it were freed and all that only it leads to
    /// with it; its own size included.
    pub retained: u64,
    /// How many pointers lead to it, from roots and from blocks.
    pub pointers: u64,
}

/// Where a pointer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In a block that [`Reach::blocks`] has: its number there, and the offset
    /// of the pointer in bytes.
    Block {
        /// Number in [`Reach::blocks`].
        index: u32,
        /// Offset in it.
        offset: u64,
    },
    /// In the data of a loaded object.
    Data {
        /// Address.
        addr: u64,
    },
    /// On a thread's stack, or in its thread-local variables.
    Stack {
        /// Kernel thread id.
        tid: u32,
        /// Address.
        addr: u64,
    },
    /// In a register of a thread.
    Register {
        /// Kernel thread id.
        tid: u32,
        /// Number: x86-64's order rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
        register: u8,
    },
    /// In memory that the program mapped itself.
    Mapping {
        /// Address.
        addr: u64,
    },
}

/// A pointer to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Number of the block in [`Reach::blocks`] that it points to.
    pub to: u32,
    /// How far into the block it points; 0 at its first byte.
    pub into: u64,
    /// Where it stands.
    pub from: Place,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Events before the scan: the blocks are those alive after them.
    pub seqno: u64,
    /// When, nanoseconds since the start.
    pub ns: u64,
    /// How long the program's threads stood still for it, ns.
    pub stopped_ns: u64,
    /// How many threads were stopped.
    pub threads: u64,
    /// Bytes of roots that were read.
    pub root_bytes: u64,
    /// Bytes of blocks that were read.
    pub heap_bytes: u64,
    /// All blocks by [`Class`].
    pub classes: [Amount; 4],
    /// All blocks by stack, by node id.
    pub sites: Vec<ReachSite>,
    /// Single blocks, by address.
    pub blocks: Vec<ReachBlock>,
    /// Reachable blocks that are not in `blocks` to keep the trace small.
    pub left_out: u64,
    /// Pointers to `blocks`, by `to`; for a block with very many only some,
    /// one on a shortest way from a root among them.
    pub pointers: Vec<Pointer>,
    /// What was not looked at, in sentences.
    pub notes: Vec<String>,
}

impl Reach {
    /// All blocks of a class.
    pub fn class(&self, class: Class) -> Amount {
        self.classes[class as usize & 3]
    }

    /// The block at, or around, an address.
    pub fn block_at(&self, addr: u64) -> Option<u32> {
        let after = self.blocks.partition_point(|block| block.addr <= addr);
        let at = after.checked_sub(1)?;
        let block = self.blocks.get(at)?;
        (addr - block.addr < block.size.max(1)).then_some(at as u32)
    }

    /// The pointers to a block of `blocks`.
    pub fn pointers_to(&self, block: u32) -> &[Pointer] {
        let from = self.pointers.partition_point(|pointer| pointer.to < block);
        let to = self.pointers.partition_point(|pointer| pointer.to <= block);
        self.pointers.get(from..to).unwrap_or_default()
    }

    /// A shortest way from a root to a block of `blocks`: pointers, the root's
    /// first. Empty if there is none (the block is lost, or parts of the way
    /// were left out).
    pub fn path_to(&self, block: u32) -> Vec<Pointer> {
        // Backwards, breadth first: the first root met is the nearest.
        let mut next: Vec<Option<Pointer>> = vec![None; self.blocks.len()];
        let mut seen = vec![false; self.blocks.len()];
        let mut queue = std::collections::VecDeque::from([block]);
        if let Some(seen) = seen.get_mut(block as usize) {
            *seen = true;
        }
        while let Some(at) = queue.pop_front() {
            for pointer in self.pointers_to(at) {
                let Place::Block { index, .. } = pointer.from else {
                    let mut path = vec![*pointer];
                    let mut at = at;
                    while at != block
                        && let Some(Some(onward)) = next.get(at as usize)
                    {
                        path.push(*onward);
                        at = onward.to;
                    }
                    return path;
                };
                if let Some(seen) = seen.get_mut(index as usize)
                    && !*seen
                {
                    *seen = true;
                    if let Some(next) = next.get_mut(index as usize) {
                        *next = Some(*pointer);
                    }
                    queue.push_back(index);
                }
            }
        }
        Vec::new()
    }
}

/// Is there a scan, and what did it find?
#[derive(Clone, Debug, PartialEq)]
pub enum Scanned {
    /// It was done.
    Done(Box<Reach>),
    /// It was not: why, as half a sentence ("recorded without --leak-check").
    Not(String),
}

/// Where a scan's blocks are in the file, or why there are none.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScanRef {
    /// Offset of the first block of the record.
    At(u64),
    /// Half a sentence.
    NotScanned(String),
}

const KIND_DATA: u64 = 0;
const KIND_STACK: u64 = 1;
const KIND_REGISTER: u64 = 2;
const KIND_MAPPING: u64 = 3;
const KIND_BLOCK: u64 = 4;

fn put_amount(out: &mut Vec<u8>, amount: Amount) {
    put(out, amount.blocks);
    put(out, amount.bytes);
}

fn amount(reader: &mut Reader<'_>) -> Option<Amount> {
    Some(Amount { blocks: reader.u64()?, bytes: reader.u64()? })
}

/// The record's bytes.
pub(crate) fn encode(reach: &Reach) -> Vec<u8> {
    let mut out = Vec::new();
    let heads = [reach.seqno, reach.ns, reach.stopped_ns, reach.threads, reach.root_bytes, reach.heap_bytes];
    for value in heads.into_iter().chain([reach.left_out]) {
        put(&mut out, value);
    }
    for class in reach.classes {
        put_amount(&mut out, class);
    }
    put(&mut out, reach.notes.len() as u64);
    for note in &reach.notes {
        crate::varint::put_bytes(&mut out, note.as_bytes());
    }
    put(&mut out, reach.sites.len() as u64);
    let mut node = 0;
    for site in &reach.sites {
        put_signed(&mut out, i64::from(site.node) - i64::from(node));
        node = site.node;
        for class in site.classes.into_iter().chain([site.owned]) {
            put_amount(&mut out, class);
        }
    }
    put_blocks(&mut out, &reach.blocks);
    put_pointers(&mut out, &reach.pointers);
    out
}

fn put_blocks(out: &mut Vec<u8>, blocks: &[ReachBlock]) {
    put(out, blocks.len() as u64);
    let (mut addr, mut seqno, mut node) = (0u64, 0u64, 0);
    for block in blocks {
        let more = block.retained != block.size;
        put(out, block.class as u64 | u64::from(more) << 2 | u64::from(block.owner.is_some()) << 3);
        put_signed(out, block.addr.wrapping_sub(addr) as i64);
        put(out, block.size);
        put_signed(out, block.seqno.wrapping_sub(seqno) as i64);
        put_signed(out, i64::from(block.node) - i64::from(node));
        put(out, block.pointers);
        if more {
            put(out, block.retained);
        }
        if let Some(owner) = block.owner {
            put_signed(out, block.addr.wrapping_sub(owner) as i64);
        }
        (addr, seqno, node) = (block.addr, block.seqno, block.node);
    }
}

fn put_pointers(out: &mut Vec<u8>, pointers: &[Pointer]) {
    put(out, pointers.len() as u64);
    let (mut to, mut index, mut addr) = (0, 0, 0u64);
    for pointer in pointers {
        let inside = u64::from(pointer.into != 0) << 3;
        let head = |out: &mut Vec<u8>, kind| {
            put(out, kind | inside);
            put(out, u64::from(pointer.to.wrapping_sub(to)));
            if pointer.into != 0 {
                put(out, pointer.into);
            }
        };
        let mut at = |out: &mut Vec<u8>, new: u64| {
            put_signed(out, new.wrapping_sub(addr) as i64);
            addr = new;
        };
        match pointer.from {
            Place::Block { index: from, offset } => {
                head(out, KIND_BLOCK);
                put_signed(out, i64::from(from) - i64::from(index));
                put(out, offset);
                index = from;
            }
            Place::Data { addr } => {
                head(out, KIND_DATA);
                at(out, addr);
            }
            Place::Mapping { addr } => {
                head(out, KIND_MAPPING);
                at(out, addr);
            }
            Place::Stack { tid, addr } => {
                head(out, KIND_STACK);
                put(out, u64::from(tid));
                at(out, addr);
            }
            Place::Register { tid, register } => {
                head(out, KIND_REGISTER);
                put(out, u64::from(tid));
                put(out, u64::from(register));
            }
        }
        to = pointer.to;
    }
}

/// The record in `bytes`, if they are one through and through.
pub(crate) fn decode(bytes: &[u8]) -> Option<Reach> {
    let mut reader = Reader::new(bytes);
    let mut reach = Reach {
        seqno: reader.u64()?,
        ns: reader.u64()?,
        stopped_ns: reader.u64()?,
        threads: reader.u64()?,
        root_bytes: reader.u64()?,
        heap_bytes: reader.u64()?,
        left_out: reader.u64()?,
        ..Reach::default()
    };
    for class in &mut reach.classes {
        *class = amount(&mut reader)?;
    }
    for _ in 0..reader.u64()? {
        reach.notes.push(String::from_utf8_lossy(reader.bytes()?).into_owned());
    }
    let mut node = 0;
    for _ in 0..reader.u64()? {
        node = u32::try_from(i64::from(node).checked_add(reader.i64()?)?).ok()?;
        let mut site = ReachSite { node, ..ReachSite::default() };
        for class in &mut site.classes {
            *class = amount(&mut reader)?;
        }
        site.owned = amount(&mut reader)?;
        reach.sites.push(site);
    }
    read_blocks(&mut reader, &mut reach.blocks)?;
    read_pointers(&mut reader, reach.blocks.len(), &mut reach.pointers)?;
    reader.is_empty().then_some(reach)
}

fn read_blocks(reader: &mut Reader<'_>, blocks: &mut Vec<ReachBlock>) -> Option<()> {
    let (mut addr, mut seqno, mut node) = (0u64, 0u64, 0);
    for _ in 0..reader.u64()? {
        let head = reader.u64()?;
        let next = addr.wrapping_add(reader.i64()? as u64);
        // Sorted, so that they can be searched.
        if !blocks.is_empty() && next <= addr || head > 15 {
            return None;
        }
        addr = next;
        let size = reader.u64()?;
        seqno = seqno.wrapping_add(reader.i64()? as u64);
        node = u32::try_from(i64::from(node).checked_add(reader.i64()?)?).ok()?;
        let pointers = reader.u64()?;
        let retained = if head & 4 != 0 { reader.u64()? } else { size };
        let owner = if head & 8 != 0 { Some(addr.wrapping_sub(reader.i64()? as u64)) } else { None };
        let class = Class::from_u8((head & 3) as u8)?;
        blocks.push(ReachBlock { addr, size, seqno, node, class, owner, retained, pointers });
    }
    Some(())
}

fn read_pointers(reader: &mut Reader<'_>, blocks: usize, pointers: &mut Vec<Pointer>) -> Option<()> {
    let (mut to, mut index, mut addr) = (0u32, 0u32, 0u64);
    for _ in 0..reader.u64()? {
        let head = reader.u64()?;
        to = to.checked_add(reader.u32()?)?;
        let into = if head & 8 != 0 { reader.u64()? } else { 0 };
        let at = |reader: &mut Reader<'_>, addr: &mut u64| -> Option<u64> {
            *addr = addr.wrapping_add(reader.i64()? as u64);
            Some(*addr)
        };
        let from = match head & !8 {
            KIND_BLOCK => {
                index = u32::try_from(i64::from(index).checked_add(reader.i64()?)?).ok()?;
                Place::Block { index, offset: reader.u64()? }
            }
            KIND_DATA => Place::Data { addr: at(reader, &mut addr)? },
            KIND_MAPPING => Place::Mapping { addr: at(reader, &mut addr)? },
            KIND_STACK => Place::Stack { tid: reader.u32()?, addr: at(reader, &mut addr)? },
            KIND_REGISTER => {
                Place::Register { tid: reader.u32()?, register: u8::try_from(reader.u64()?).ok()? }
            }
            _ => return None,
        };
        if to as usize >= blocks || index as usize >= blocks.max(1) {
            return None;
        }
        pointers.push(Pointer { to, into, from });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(addr: u64, class: Class) -> ReachBlock {
        let (owner, retained) = match class {
            Class::Indirect => (Some(0x1000), 64),
            _ => (None, 4096),
        };
        ReachBlock { addr, size: 64, seqno: addr / 3, node: 70, class, owner, retained, pointers: 2 }
    }

    /// Root, 0x2000, 0x3000 in a chain; 0x1000 and 0x1800 lost.
    fn reach() -> Reach {
        let mut classes = [Amount::default(); 4];
        classes[3] = Amount { blocks: 900, bytes: u64::MAX };
        Reach {
            seqno: 77,
            ns: 1 << 40,
            stopped_ns: 12,
            threads: 2,
            root_bytes: 4096,
            heap_bytes: 1 << 33,
            classes,
            sites: vec![
                ReachSite { node: 9, classes, owned: Amount { blocks: 1, bytes: 64 } },
                ReachSite { node: 70, ..ReachSite::default() },
            ],
            blocks: vec![
                block(0x1000, Class::Definite),
                block(0x1800, Class::Indirect),
                block(0x2000, Class::Reachable),
                block(0x3000, Class::Possible),
            ],
            left_out: 5,
            pointers: vec![
                Pointer { to: 1, into: 0, from: Place::Block { index: 0, offset: 8 } },
                Pointer { to: 2, into: 0, from: Place::Data { addr: 0x5555_0000 } },
                Pointer { to: 2, into: 0, from: Place::Register { tid: 7, register: 3 } },
                Pointer { to: 2, into: 0, from: Place::Block { index: 3, offset: 56 } },
                Pointer { to: 3, into: 24, from: Place::Block { index: 2, offset: 16 } },
                Pointer { to: 3, into: 24, from: Place::Stack { tid: 9, addr: 0x7fff_0000 } },
                Pointer { to: 3, into: 1, from: Place::Mapping { addr: 8 } },
            ],
            notes: vec!["a thread was not stopped".to_string()],
        }
    }

    #[test]
    fn a_record_round_trips_and_no_part_of_it_is_one() {
        let reach = reach();
        let bytes = encode(&reach);
        assert_eq!(decode(&bytes).as_ref(), Some(&reach));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn blocks_are_found_by_any_address_in_them() {
        let reach = reach();
        assert_eq!(reach.block_at(0x1000), Some(0));
        assert_eq!(reach.block_at(0x103f), Some(0));
        assert_eq!(reach.block_at(0x1040), None);
        assert_eq!(reach.block_at(0xfff), None);
        assert_eq!(reach.pointers_to(2).len(), 3);
    }

    #[test]
    fn the_way_to_a_block_begins_at_the_nearest_root() {
        let reach = reach();
        let places: Vec<Place> = reach.path_to(3).iter().map(|p| p.from).collect();
        assert_eq!(places, [Place::Stack { tid: 9, addr: 0x7fff_0000 }]);
        let mut longer = reach.clone();
        longer.pointers.truncate(5);
        let ends: Vec<u32> = longer.path_to(3).iter().map(|p| p.to).collect();
        assert_eq!(ends, [2, 3]);
        assert!(matches!(longer.path_to(3)[0].from, Place::Data { .. }));
        assert!(longer.path_to(1).is_empty(), "nothing leads to what is lost");
    }

    proptest::proptest! {
        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            decode(&bytes);
        }
    }
}
