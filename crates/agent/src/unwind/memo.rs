//! Stacks met before, by their innermost frame.
//!
//! Programs allocate and free from the same few hundred places under the same
//! callers, in turns. [`Cache`] holds one stack: the last that was walked. An
//! entry here holds the inner end of a stack that was walked some time ago: the
//! words that the walk read there (its *leaf*, at most [`LEAF`] words), the state
//! that they led to (the *join*), and the node of it all. If the leaf's words are
//! what they were, the walk comes to the join again; if the cache has the join's
//! frame, and its words outward of it are what they were, the rest follows, and
//! with it the node. This is the argument of [`super::cache`] twice: nothing is
//! taken for granted that was not read again.
//!
//! **Where an entry is.** The hash is of the innermost frame's return address and its
//! place. Many stacks share both: all callers of a wrapper around malloc. Where two of
//! them meet in one entry, the first word in which they differ (it lies at the same
//! address in both, since all before it is the same) becomes a *branch*: its value
//! goes into the hash of all stacks that come this way. A branch is a hint; a wrong
//! one costs a walk.
//!
//! **Joins that are gone.** Programs work in turns: a statement is parsed, then run,
//! then the next one parsed. The cache has the stack of the other turn then, and the
//! join is not in it; but where the walk would go on from there may be in an entry, too.
//! So a join is looked up like a stack. If its node is the one that the entry was made
//! with, the entry's node is the answer. If it is another one (the same inner functions,
//! called from elsewhere farther out), there may be an entry of the same leaf under that
//! node: its place is that of the leaf's hash and the join's node.
//!
//! **What is kept.** A stack that is met for the second time lately: where every stack
//! is new, nothing is written.
//!
//! A look-up costs a hash or two, one entry of two cache lines, and the compares. The
//! cache is left as it is: a stack that is known needs no place of its own.

use highwater_event::node::NodeId;

use super::cache::{Cache, Frame, Outer};
use super::walk::{Registers, Span, Word, read};

/// Words of a leaf.
const LEAF: usize = 8;
/// Entries at the most: what fits the second-level cache beside the program's own
/// data. A table begins small, and grows with the misses.
const ENTRIES: usize = 1024;
const FIRST_ENTRIES: u32 = 64;
const BRANCHES: usize = 2048;
/// Branches that one look-up follows at the most.
const LEVELS: usize = 3;
/// Entries that one look-up follows at the most, from join to join.
const HOPS: usize = 4;
/// Sets of nodes that are remembered as met once.
const ONCE: usize = 256;
/// Nodes of a set: with one alone, two stacks that take turns there would be met for the
/// first time for ever.
const WAYS: usize = 4;

/// One stack. Offsets count from the entry point's return slot.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Entry {
    /// Start state: the return address; 0 if the entry is empty.
    pc: u64,
    /// Start state: address of the return slot, eight below the stack pointer.
    slot: u64,
    /// Start state: frame pointer.
    bp: u64,
    /// The join's frame pointer.
    join_bp: u64,
    /// What lies outward of the join.
    outer: Outer,
    /// The answer.
    node: NodeId,
    /// Offset of the join's stack pointer, in eights.
    join_sp: u16,
    /// The join's place in the cache, and [`LIVE_BP`] if the walk depends on `bp`.
    join: i16,
    /// Where the words lie, in eights. The last is the join's return address; a
    /// leaf of fewer words has the entry point's return slot for the others.
    offsets: [u16; LEAF],
    /// What they were.
    values: [u64; LEAF],
}

const LIVE_BP: i16 = i16::MIN;
/// The farthest that a join can lie above the return slot, bytes.
const MAX_HEIGHT: u64 = 8 * u16::MAX as u64;
const _: () = assert!(size_of::<Entry>() == 128 && super::cache::FRAMES <= LIVE_BP.unsigned_abs() as usize);

/// Where two stacks differ that were the same so far.
#[derive(Clone, Copy)]
#[repr(C)]
struct Branch {
    /// Low half of the hash so far.
    tag: u32,
    /// The word's offset, in eights.
    offset: u16,
}

/// A thread's table.
#[repr(C)]
pub struct Memo {
    /// Entries in use less one: a power of two less one.
    mask: u32,
    /// Entries written since the table has this size.
    written: u32,
    branches: [Branch; BRANCHES],
    entries: [Entry; ENTRIES],
    once: [[NodeId; WAYS]; ONCE],
}

/// The last walk, and what of the stack may be read.
#[derive(Clone, Copy)]
struct Last<'a> {
    cache: &'a Cache,
    span: &'a Span,
    epoch: u32,
}

#[inline(always)]
fn mix(bits: u64) -> u64 {
    bits.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Memo {
    /// Forgets everything.
    pub fn clear(&mut self) {
        for entry in self.entries.iter_mut().take(self.mask as usize + 1) {
            entry.pc = 0;
        }
        self.mask = FIRST_ENTRIES - 1;
        self.written = 0;
    }

    /// The hash of the stack that starts at `now`, along the branches. Words are known
    /// to be there up to `above` above the return slot.
    ///
    /// # Safety
    /// As [`Memo::node`].
    #[inline(always)]
    unsafe fn hash(&self, now: Registers, above: u64) -> u64 {
        let slot = now.sp - 8;
        let mut hash = mix(now.pc ^ slot << 24);
        for _ in 0..LEVELS {
            let branch = self.branches[Self::branch(hash)];
            let offset = 8 * u64::from(branch.offset);
            if branch.tag != hash as u32 || offset > above {
                break;
            }
            // SAFETY: no farther above the slot than is known.
            hash = mix(hash ^ unsafe { read(slot + offset) });
        }
        hash
    }

    #[inline(always)]
    fn branch(hash: u64) -> usize {
        const { assert!(BRANCHES == 1 << 11) };
        (hash >> 32) as usize % BRANCHES
    }

    #[inline(always)]
    fn index(&self, hash: u64) -> usize {
        (hash >> 48) as usize & self.mask as usize
    }

    /// The entry in the place of the stack that starts at `now`, if it starts there, too.
    ///
    /// # Safety
    /// As [`Memo::node`]. Words are known to be there up to `above` above the return slot.
    #[inline(always)]
    unsafe fn entry(&self, now: Registers, above: u64) -> Option<&Entry> {
        // SAFETY: the caller's promise; the mask is below ENTRIES.
        let entry = unsafe { self.entries.get_unchecked(self.index(self.hash(now, above))) };
        (entry.pc == now.pc && entry.slot == now.sp - 8).then_some(entry)
    }

    /// The node of the stack that starts at `now`, if it is known and unchanged.
    ///
    /// # Safety
    /// As [`super::walk::walk`]; `now` is the caller of an entry point, whose
    /// return slot lies below `now.sp`.
    #[inline(always)]
    pub unsafe fn node(&self, cache: &Cache, now: Registers, span: &Span, epoch: u32) -> Option<NodeId> {
        let slot = now.sp - 8;
        let above = span.above(slot)?;
        // SAFETY: the caller's promise.
        let entry = unsafe { self.entry(now, above) }?;
        // The leaf's words lie between the slot and the join's stack pointer.
        if entry.height() - 8 > above {
            return None;
        }
        if let Some(join) = cache.frame(entry.join(), epoch)
            // SAFETY: just seen.
            && unsafe { entry.leaf_differs(now) } | entry.join_differs(join) == 0
            // SAFETY: the caller's promise.
            && unsafe { cache.verify(join.outer.words(), slot, above, span) } == 0
        {
            return Some(entry.node);
        }
        // Nothing of the above is handed on, so that it needs no place on the stack.
        // SAFETY: the caller's promise.
        unsafe { self.behind(cache, now, span, epoch) }
    }

    /// [`Memo::far`] of a stack's start.
    ///
    /// # Safety
    /// As [`Memo::node`].
    #[cold]
    #[inline(never)]
    unsafe fn behind(&self, cache: &Cache, now: Registers, span: &Span, epoch: u32) -> Option<NodeId> {
        let above = span.above(now.sp - 8)?;
        // SAFETY: the caller's promise.
        unsafe { self.far(Last { cache, span, epoch }, now, None, above, HOPS) }
    }

    /// The node of the stack that starts at `now`, where its entry's leaf is as it was, but
    /// the join is not the one that the entry was made with: looks the join up, in the
    /// cache or like a stack, and then for the entry of this leaf under that join.
    ///
    /// `live`: must the walk outward depend on rbp, must it not, or may it do either?
    ///
    /// # Safety
    /// As [`Memo::node`]. Words are known to be there up to `above` above the return slot.
    unsafe fn far(
        &self,
        last: Last,
        now: Registers,
        live: Option<bool>,
        above: u64,
        hops: usize,
    ) -> Option<NodeId> {
        // SAFETY: the caller's promise.
        let hash = unsafe { self.hash(now, above) };
        // SAFETY: as above.
        let entry = unsafe { self.unchanged(hash, now, above) }?;
        if live.is_some_and(|live| entry.live_bp() != live) {
            return None;
        }
        let join = entry.joined();
        let there = last.cache.frame(entry.join(), last.epoch).filter(|frame| {
            let words = frame.outer.words();
            // SAFETY: the caller's promise.
            entry.joins_at(frame) && unsafe { last.cache.verify(words, now.sp - 8, above, last.span) } == 0
        });
        let node = match there {
            Some(frame) => frame.outer.node(),
            // SAFETY: the join's return slot is the leaf's outermost word, or below it: no
            // farther above than is known.
            None if hops > 1 => unsafe {
                let above = above - (entry.height() - 8);
                self.far(last, join, Some(entry.outer.live_bp()), above, hops - 1)?
            },
            None => return None,
        };
        if node == entry.outer.node() {
            return Some(entry.node);
        }
        // SAFETY: as above.
        let other = unsafe { self.unchanged(Self::under(hash, node), now, above) }?;
        let same = other.outer.node() == node
            && other.outer.live_bp() == entry.outer.live_bp()
            && other.live_bp() == entry.live_bp()
            && (other.join_sp, other.joined().pc) == (entry.join_sp, join.pc);
        same.then_some(other.node)
    }

    /// The entry of this hash, if it starts at `now` and its leaf is as it was.
    ///
    /// # Safety
    /// As [`Memo::far`].
    unsafe fn unchanged(&self, hash: u64, now: Registers, above: u64) -> Option<&Entry> {
        let entry = &self.entries[self.index(hash)];
        let starts_here = entry.pc == now.pc && entry.slot == now.sp - 8;
        // SAFETY: the leaf lies below the join's stack pointer, and that is no farther
        // above than is known.
        let is = starts_here && entry.height() - 8 <= above && unsafe { entry.leaf_differs(now) } == 0;
        is.then_some(entry)
    }

    /// The hash of the leaf of this hash under the join of this node.
    fn under(hash: u64, join: NodeId) -> u64 {
        mix(hash ^ u64::from(join))
    }

    /// Is the join of the entry of `now` in the cache, and the same?
    ///
    /// # Safety
    /// As [`Memo::node`].
    #[cfg(test)]
    pub unsafe fn joins(&self, cache: &Cache, now: Registers, span: &Span, epoch: u32) -> Option<bool> {
        // SAFETY: the caller's promise.
        let entry = unsafe { self.entry(now, span.above(now.sp - 8)?) }?;
        Some(cache.frame(entry.join(), epoch).is_some_and(|join| entry.join_differs(join) == 0))
    }

    /// Keeps the stack that the cache has just taken in, which starts at `now`, if
    /// it was met before. The innermost `fresh` frames of it were walked.
    ///
    /// # Safety
    /// As [`Memo::node`].
    #[inline(always)]
    pub unsafe fn keep(&mut self, cache: &Cache, now: Registers, node: NodeId, fresh: usize, span: &Span) {
        if !self.met(node) {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.put(cache, now, fresh, span) }
    }

    /// Was this node met lately? From now on it was.
    #[inline(always)]
    pub(super) fn met(&mut self, node: NodeId) -> bool {
        let once = &mut self.once[node as usize % ONCE];
        let met = once.contains(&node);
        if !met {
            *once = [node, once[0], once[1], once[2]];
        }
        met
    }

    #[inline(never)]
    unsafe fn put(&mut self, cache: &Cache, now: Registers, fresh: usize, span: &Span) {
        let Some(mut index) = cache.depth().checked_sub(1) else { return };
        if cache.frame_at(index).is_none_or(|frame| frame.pc != now.pc || frame.sp != now.sp) {
            return;
        }
        // Where the entry was there already, its join was not: the way goes on from
        // join to join, up to a frame that the stack before had, too.
        let known = cache.depth().saturating_sub(fresh);
        let mut start = now;
        for hop in 0..HOPS {
            let Some(entry) = Entry::new(cache, index, start) else { return };
            let join = entry.join();
            // SAFETY: the caller's promise, of a caller farther out.
            let old = unsafe { self.put_one(cache, index, entry, span) };
            start = entry.joined();
            let gone = hop > 0 || (old.values, old.offsets) == (entry.values, entry.offsets);
            if !gone || join == index || join < known || !entry.joins_at_its_slot() {
                return;
            }
            index = join;
        }
    }

    /// Puts the entry of the cache's frame `index` into the table. Returns what was found
    /// in its place.
    ///
    /// # Safety
    /// As [`Memo::node`].
    unsafe fn put_one(&mut self, cache: &Cache, index: usize, entry: Entry, span: &Span) -> Entry {
        let Some(above) = span.above(entry.slot) else { return entry };
        self.grow();
        // SAFETY: the caller's promise.
        let mut hash = unsafe { self.hash(entry.start(), above) };
        let old = self.entries[self.index(hash)];
        // Where a place is another stack's, there is a second one. It is taken if it is free,
        // and every other time if the table cannot grow. (Two stacks of one place would else
        // put each other out for ever.)
        let turn = self.mask as usize == ENTRIES - 1 && self.written.is_multiple_of(2);
        let parting = if old.pc != entry.pc || old.slot != entry.slot {
            // The return slot's own word leads to it.
            let second = self.entries[self.index(mix(hash ^ entry.pc))];
            (old.pc != 0 && (second.pc == 0 || turn)).then_some((0, entry.pc))
        } else if (old.values, old.offsets) != (entry.values, entry.offsets) {
            entry.parting(cache, index, &old)
        } else {
            // The same leaf: its join leads to it, if that is another one.
            let under = Self::under(hash, entry.outer.node());
            let second = self.entries[self.index(under)];
            let ours = second.pc == entry.pc && second.slot == entry.slot;
            if old.outer != entry.outer && old.join_sp == entry.join_sp && (second.pc == 0 || ours || turn) {
                hash = under;
            }
            None
        };
        if let Some((offset, value)) = parting {
            self.branches[Self::branch(hash)] = Branch { tag: hash as u32, offset };
            hash = mix(hash ^ value);
        }
        self.entries[self.index(hash)] = entry;
        old
    }

    /// Doubles the table where a quarter of it has been written. What it held
    /// is found no more where its place is another one now.
    fn grow(&mut self) {
        self.written += 1;
        if 4 * self.written > self.mask && (self.mask as usize) < ENTRIES - 1 {
            self.written = 0;
            self.mask = 2 * self.mask + 1;
            // Most branches led to second places: there is room now.
            self.branches.fill(Branch { tag: 0, offset: 0 });
        }
    }
}

impl Entry {
    /// Where it starts.
    #[inline(always)]
    fn start(&self) -> Registers {
        Registers { pc: self.pc, sp: self.slot + 8, bp: self.bp }
    }

    /// Where its leaf led to.
    #[inline(always)]
    fn joined(&self) -> Registers {
        Registers { pc: self.values[LEAF - 1], sp: self.slot + self.height(), bp: self.join_bp }
    }

    /// From the return slot to the join's stack pointer, bytes; at least 8.
    #[inline(always)]
    fn height(&self) -> u64 {
        8 * u64::from(self.join_sp)
    }

    /// The join's place in the cache.
    #[inline(always)]
    fn join(&self) -> usize {
        (self.join & !LIVE_BP) as usize
    }

    /// Does the walk from its start depend on rbp?
    #[inline(always)]
    fn live_bp(&self) -> bool {
        self.join < 0
    }

    /// 0 if the walk from `now`, which has this start's pc and sp, comes to the join.
    ///
    /// # Safety
    /// Words are known to be there below the join's stack pointer.
    #[inline(always)]
    unsafe fn leaf_differs(&self, now: Registers) -> u64 {
        let bp_mask = i64::from(self.join >> 15) as u64;
        let mut differs = (self.bp ^ now.bp) & bp_mask;
        for i in 0..LEAF {
            // SAFETY: the caller's promise: [`Entry::new`] takes no words from elsewhere.
            differs |= unsafe { read(self.slot + 8 * u64::from(self.offsets[i])) } ^ self.values[i];
        }
        differs
    }

    /// 0 if this frame of the cache is the join.
    #[inline(always)]
    fn join_differs(&self, join: &Frame) -> u64 {
        (join.bp ^ self.join_bp) & self.outer.bp_mask()
            | join.outer.differs(self.outer)
            | join.sp ^ (self.slot + self.height())
            | join.pc ^ self.values[LEAF - 1]
    }

    /// Has this frame of the cache the state of the join? (What lies outward of it may be
    /// another stack.)
    fn joins_at(&self, frame: &Frame) -> bool {
        let join = self.joined();
        (frame.pc, frame.sp) == (join.pc, join.sp)
            && frame.outer.live_bp() == self.outer.live_bp()
            && (frame.bp == join.bp || !frame.outer.live_bp())
    }

    /// Does the join's return address lie right below its stack pointer, as that of a
    /// caller of an entry point does?
    fn joins_at_its_slot(&self) -> bool {
        self.offsets[LEAF - 1] + 1 == self.join_sp
    }

    /// The stack from the cache's frame `top` outward, which starts at `now`. The leaf is
    /// as long as it may be: the farther out the join lies, the longer it stays where it is.
    fn new(cache: &Cache, top: usize, now: Registers) -> Option<Entry> {
        let (frames, words) = cache.outward(top)?;
        let first = frames.last()?;
        let slot = now.sp - 8;
        let (mut offsets, mut values) = ([0; LEAF], [0; LEAF]);
        // Places filled, and the one of the outermost return address.
        let (mut used, mut last) = (0, LEAF - 1);
        let (mut join, mut frame) = (top, first);
        while let Some(outer) = frames.get(join.wrapping_sub(1)) {
            let height = outer.sp.wrapping_sub(slot);
            let Some(read) = words.get(outer.outer.words()..frame.outer.words()) else { break };
            // The state of an interrupted frame is never met again.
            if outer.pc == 0 || used + read.len() > LEAF || height > MAX_HEIGHT {
                break;
            }
            // All words between the slot and the join, and a return address among them.
            let (mut places, mut inside, mut found) = (height, true, LEAF);
            for (i, word) in read.iter().enumerate() {
                let (at, bytes) = ((used + i) % LEAF, word.address.wrapping_sub(slot));
                places |= bytes;
                inside &= bytes < height;
                offsets[at] = (bytes / 8) as u16;
                values[at] = word.value;
                found = if word.value == outer.pc { found.min(at) } else { found };
            }
            if found == LEAF || !inside || places % 8 != 0 {
                break;
            }
            (used, last, join, frame) = (used + read.len(), found, join - 1, outer);
        }
        // Always what they are: we are inside a function with this return slot.
        offsets[used..].fill(0);
        values[used..].fill(now.pc);
        offsets.swap(last, LEAF - 1);
        values.swap(last, LEAF - 1);
        let live = if first.outer.live_bp() { LIVE_BP } else { 0 };
        Some(Entry {
            pc: now.pc,
            slot,
            bp: now.bp,
            join_bp: frame.bp,
            outer: frame.outer,
            node: first.outer.node(),
            join_sp: (frame.sp.wrapping_sub(slot) / 8) as u16,
            join: i16::try_from(join).ok()? | live,
            offsets,
            values,
        })
    }

    /// Where this stack, which the cache holds from its frame `top` outward, parts from an
    /// older one with the same innermost frame: the offset of the first word, in the order
    /// of the walk, that is another one, and what it is here.
    fn parting(&self, cache: &Cache, top: usize, old: &Entry) -> Option<(u16, u64)> {
        let mut index = top + 1;
        while index > self.join() + 1 {
            index -= 1;
            for &Word { address, value } in cache.words(index) {
                let offset = (address.wrapping_sub(self.slot) / 8) as u16;
                let known = old.offsets.iter().position(|&o| o == offset)?;
                if old.values.get(known) != Some(&value) {
                    return Some((offset, value));
                }
            }
        }
        None
    }
}
