//! The verified stack cache: a stack that has not changed is not walked again.
//!
//! **Why it is sound.** A walk is a deterministic function of its start (pc, sp,
//! bp), the rules, and the words it reads. The cache keeps, for the last walk,
//! every frame's start state and every word that the step out of it read, in
//! the order of the walk. If a new walk reaches the start state of a cached
//! frame, and re-reading the words from there outward gives the same values,
//! then by induction over the steps the rest of the new walk is the rest of the
//! old one. Nothing else needs to be known: alloca, longjmp, exceptions,
//! coroutines, signal frames and alternate stacks either change a value or do
//! not matter.
//!
//! **rbp.** A state's rbp takes part only where an outer step uses it before
//! it is loaded anew ([`Frame::live_bp`]): elsewhere it is the program's data.
//! For the same reason a saved rbp is among the words only where it is needed.
//!
//! **Rules** change when a module goes ([`crate::modules::epoch`]); a cache of an
//! older epoch is empty.
//!
//! **Cost.** A verified word is two loads and a compare, without a hash or a table.
//! New frames are walked by rules until one meets a cached state, and only they are
//! interned. [`super::memo`] stands in front.
//!
//! The words may be compared in any order where all of them lie in stack memory
//! that is known to be mapped ([`Span`]); the check of the span comes first.

use core::mem::MaybeUninit;

use highwater_event::node::{Node, NodeId, ROOT, Truncation};

use super::rule::Rule;
use super::walk::{End, MAX_FRAMES, Registers, Span, Step, Word, Words, rule_of, step};
use crate::intern;
use crate::start::Shared;

/// Frames that a cache holds; a deeper stack is walked in full each time.
pub const FRAMES: usize = 16 << 10;
const WORDS: usize = 2 * FRAMES;
/// Places in front of the outermost word: they hold what is always as it was, so that
/// words can be compared four at a time to the end.
const PAD: usize = 3;

/// One cached frame.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Frame {
    /// Start state: the address that the walk stood at.
    pub pc: u64,
    /// Start state: stack pointer.
    pub sp: u64,
    /// Start state: frame pointer.
    pub bp: u64,
    /// What lies outward of here.
    pub outer: Outer,
}

/// A stack from one of its frames outward, in one number: compared as one.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Outer(u64);

const LIVE_BP: u64 = 1 << 63;

impl Outer {
    fn new(node: NodeId, words: usize, live_bp: bool) -> Outer {
        Outer(u64::from(node) | (words as u64) << 32 | if live_bp { LIVE_BP } else { 0 })
    }

    /// The stack from here outward.
    #[inline(always)]
    pub fn node(self) -> NodeId {
        self.0 as NodeId
    }

    /// Number of words of this frame and all outer ones.
    #[inline(always)]
    pub fn words(self) -> usize {
        ((self.0 & !LIVE_BP) >> 32) as usize
    }

    /// Does the walk from here outward depend on the frame's rbp?
    #[inline(always)]
    pub fn live_bp(self) -> bool {
        self.0 & LIVE_BP != 0
    }

    /// All ones if it does, else none.
    #[inline(always)]
    pub fn bp_mask(self) -> u64 {
        ((self.0 as i64) >> 63) as u64
    }

    /// 0 of the same, and of nothing else.
    #[inline(always)]
    pub fn differs(self, other: Outer) -> u64 {
        self.0 ^ other.0
    }
}

/// A frame that the present walk has found.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Fresh {
    packed: u64,
    at: Registers,
    rule: Rule,
    words: Words,
}

/// Memory that a walk needs besides the cache.
pub type Scratch = [MaybeUninit<Fresh>; MAX_FRAMES];

/// The last walk on one thread. Outermost frame first.
#[repr(C)]
pub struct Cache {
    len: usize,
    epoch: u32,
    frames: [Frame; FRAMES],
    words: [Word; PAD + WORDS],
}

impl Word {
    /// Is it still what it was?
    ///
    /// # Safety
    /// Eight bytes at the address can be read.
    #[inline(always)]
    unsafe fn is_same(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (self.address as *const u64).read_unaligned() == self.value }
    }
}

/// What a look-up cost, for the counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Frames walked by rules.
    pub fresh: u32,
    /// Nothing of the cache was of use.
    pub full: bool,
    /// A part looked the same at first and was not.
    pub stale: bool,
}

impl Cache {
    /// Forgets everything. To be called before anything else, at the cache's place.
    pub fn clear(&mut self) {
        self.len = 0;
        for word in self.words.iter_mut().take(PAD) {
            word.address = &raw const word.value as u64;
        }
    }

    /// Is it of this module epoch? Of another one, nothing of it counts.
    pub fn is_of(&self, epoch: u32) -> bool {
        self.epoch == epoch
    }

    /// Frame `index`, outermost first, if there is one of this epoch.
    #[inline(always)]
    pub(super) fn frame(&self, index: usize, epoch: u32) -> Option<&Frame> {
        if index >= self.len || self.epoch != epoch {
            return None;
        }
        // SAFETY: len <= FRAMES.
        Some(unsafe { self.frames.get_unchecked(index) })
    }

    /// Number of frames.
    pub(super) fn depth(&self) -> usize {
        self.len
    }

    /// Frame `index`, outermost first.
    pub(super) fn frame_at(&self, index: usize) -> Option<&Frame> {
        self.frames.get(..self.len)?.get(index)
    }

    /// The frames from `index` outward, outermost first, and what their steps read.
    pub(super) fn outward(&self, index: usize) -> Option<(&[Frame], &[Word])> {
        let frames = self.frames.get(..self.len)?.get(..=index)?;
        Some((frames, self.words.get(PAD..)?))
    }

    /// Where and what the step out of frame `index` read.
    pub(super) fn words(&self, index: usize) -> &[Word] {
        let from = self.words_below(index);
        let to = self.frame_at(index).map_or(from, |frame| frame.outer.words());
        self.words.get(PAD + from..PAD + to).unwrap_or_default()
    }

    /// Compares the `words` outermost words with the stack. Returns 0 if all
    /// are the same, else one more than the index of a word that is not.
    ///
    /// `low` is an address below which none of them lies, and `above` how far above
    /// it words are known to be there.
    ///
    /// # Safety
    /// As [`super::walk::walk`].
    #[inline(always)]
    pub(super) unsafe fn verify(&self, words: usize, low: u64, above: u64, span: &Span) -> usize {
        // All words lie above the start's sp (or it is an odd stack, and then
        // they are not all known); the outermost is the first.
        // SAFETY: there is always a first place.
        if words != 0 && unsafe { self.words.get_unchecked(PAD) }.address.wrapping_sub(low) > above {
            // SAFETY: the caller's promise.
            return unsafe { self.verify_in_order(words, span) };
        }
        let mut left = words as isize;
        // SAFETY: places below PAD + WORDS; addresses inside the span (a word between
        // two addresses of the span is mapped), or our own in the places in front.
        unsafe {
            let mut at = self.words.as_ptr().add(PAD + words);
            while left > 0 {
                at = at.sub(4);
                if !(0..4).rev().all(|i| (*at.add(i)).is_same()) {
                    return self.differing(words);
                }
                left -= 4;
            }
        }
        0
    }

    /// One more than the index of the innermost of the `words` outermost words that is
    /// not the same.
    #[cold]
    #[inline(never)]
    unsafe fn differing(&self, words: usize) -> usize {
        // SAFETY: as [`Cache::verify`].
        (1..=words).rev().find(|&word| !unsafe { self.words[PAD + word - 1].is_same() }).unwrap_or(1)
    }

    /// The same one by one, in the order of the walk: touches memory only where
    /// a fresh walk would.
    #[cold]
    #[inline(never)]
    unsafe fn verify_in_order(&self, words: usize, span: &Span) -> usize {
        let mut span = *span;
        for word in (1..=words).rev() {
            let kept = &self.words[PAD + word - 1];
            // SAFETY: just seen to be readable.
            if !span.covers(kept.address) || !unsafe { kept.is_same() } {
                return word;
            }
        }
        0
    }

    /// The node of the stack that starts at `now`: walks what is new, verifies
    /// and takes the rest from the last walk, and keeps the result.
    ///
    /// # Safety
    /// As [`super::walk::walk`].
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn walk(
        &mut self,
        shared: &Shared,
        start: Registers,
        span: &mut Span,
        scratch: &mut Scratch,
        edges: &mut Edges,
        limit: usize,
        epoch: u32,
        tally: &mut Tally,
    ) -> NodeId {
        if self.epoch != epoch {
            self.len = 0;
            self.epoch = epoch;
        }
        let mut now = start;
        let mut exact = false;
        let mut count = 0;
        // What the kernel said of unmapped memory may be otherwise next time.
        let mut lasting = true;
        // Cached frames below this index may still be met.
        let mut candidates = self.len;
        let (root, live) = loop {
            // Cached frames with a lower sp are dead: the stack has shrunk past them.
            // SAFETY: candidates <= len <= FRAMES.
            while candidates > 0 && unsafe { self.frames.get_unchecked(candidates - 1) }.sp < now.sp {
                candidates -= 1;
            }
            if candidates > 0 && !exact {
                // SAFETY: as above.
                let frame = unsafe { self.frames.get_unchecked(candidates - 1) };
                let outer = frame.outer;
                if frame.sp == now.sp && frame.pc == now.pc && (frame.bp == now.bp || !outer.live_bp()) {
                    let (node, live) = (outer.node(), outer.live_bp());
                    // SAFETY: the caller's promise.
                    let bad = unsafe {
                        match span.above(now.sp) {
                            Some(above) => self.verify(outer.words(), now.sp, above, span),
                            None => self.verify_in_order(outer.words(), span),
                        }
                    };
                    if bad == 0 {
                        self.len = candidates;
                        break (node, live);
                    }
                    tally.stale = true;
                    candidates = self.before_word(candidates, bad);
                }
            }
            if count == MAX_FRAMES {
                self.len = 0;
                tally.full = true;
                break (intern::marker(Truncation::TooDeep), false);
            }
            if now.pc == 0 {
                self.len = 0;
                tally.full = true;
                break (ROOT, false);
            }
            let (packed, rule) = rule_of(now.pc, exact);
            // SAFETY: count < MAX_FRAMES.
            let place = unsafe { scratch.get_unchecked_mut(count) }.as_mut_ptr();
            // SAFETY: plain fields of memory that is ours; the words are filled by step().
            let step = unsafe {
                (&raw mut (*place).packed).write(if exact {
                    // One past an interrupted instruction stands for it.
                    Node::pack(now.pc + 1, (packed >> 48) as u16)
                } else {
                    packed
                });
                // The state of an interrupted frame is never met again by its
                // return address: it gets one that no frame has.
                (&raw mut (*place).at).write(if exact { Registers { pc: 0, ..now } } else { now });
                (&raw mut (*place).rule).write(rule);
                let words = &raw mut (*place).words;
                Words::reset(words);
                step(&mut now, rule, span, words)
            };
            count += 1;
            match step {
                Step::Caller => exact = false,
                Step::Interrupted => exact = true,
                Step::End(end) => {
                    // Whatever the rule was, it loaded nothing.
                    // SAFETY: as above.
                    unsafe { (&raw mut (*place).rule).write(Rule::END) };
                    self.len = 0;
                    tally.full = true;
                    lasting = end != End::Cut(Truncation::BadStack);
                    break (
                        match end {
                            End::Complete => ROOT,
                            End::Cut(reason) => intern::marker(reason),
                        },
                        false,
                    );
                }
            }
        };
        tally.fresh = count as u32;
        // SAFETY: `count` entries of the scratch were filled above.
        let node = unsafe { self.push(shared, edges, limit, root, live, scratch, count) };
        if !lasting {
            self.len = 0;
        }
        node
    }

    /// The frames that can still be met when word `bad` (counted from one, of
    /// the frames below `candidates`) has changed: those outside the frame whose
    /// step reads it.
    #[cold]
    fn before_word(&self, mut candidates: usize, bad: usize) -> usize {
        while candidates > 0 && self.words_below(candidates - 1) >= bad {
            candidates -= 1;
        }
        candidates.saturating_sub(1)
    }

    /// Words of the frames outside `index`.
    fn words_below(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.frames[index - 1].outer.words() }
    }

    /// Interns and keeps the fresh frames, outermost first. Nodes are made for
    /// the `limit` outermost frames only.
    ///
    /// How many words are kept changes from frame to frame without a pattern, so two
    /// are always written, and the next frame's begin where those that count end.
    ///
    /// # Safety
    /// `count` entries of `scratch` are filled.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    unsafe fn push(
        &mut self,
        shared: &Shared,
        edges: &mut Edges,
        limit: usize,
        root: NodeId,
        mut outer_live: bool,
        scratch: &Scratch,
        count: usize,
    ) -> NodeId {
        let mut node = root;
        let mut words = self.words_below(self.len);
        let fits = self.len + count <= FRAMES && words + 3 * count <= WORDS;
        let mut depth = self.len;
        let mut i = count;
        while i > 0 {
            i -= 1;
            // SAFETY: i < count; filled, and where a step read fewer words, the others are
            // what was there before: the scratch was zeroed when it was mapped.
            let fresh = unsafe { scratch.get_unchecked(i).assume_init_ref() };
            // Beyond the limit all inner frames are one marker.
            if depth < limit {
                node = edges.child(shared, node, fresh.packed);
            } else if depth == limit {
                node = edges.child(shared, node, Node::marker(Truncation::DepthLimit));
            }
            if fits {
                let live = fresh.rule.needs_bp(outer_live);
                // The saved rbp, the last word, matters to the caller alone.
                let drop = fresh.rule.loads_bp() & 1 & u64::from(!outer_live);
                // SAFETY: `fits`: three more words and one more frame a fresh frame.
                unsafe {
                    let to = self.words.as_mut_ptr().add(PAD + words);
                    let [first, second, third] = fresh.words.words;
                    to.write(first);
                    to.add(1).write(second);
                    if fresh.words.count > 2 {
                        to.add(2).write(third);
                    }
                    words += fresh.words.count - drop as usize;
                    self.frames.as_mut_ptr().add(depth).write(Frame {
                        pc: fresh.at.pc,
                        sp: fresh.at.sp,
                        bp: fresh.at.bp,
                        outer: Outer::new(node, words, live),
                    });
                }
                outer_live = live;
            }
            depth += 1;
        }
        self.len = if fits { depth } else { 0 };
        node
    }
}

/// The thread's own memory of recent (parent, address) -> node, in front of the
/// shared index: a few kilobytes that stay in the first-level cache.
#[repr(C)]
pub struct Edges {
    edges: [Edge; EDGES],
}

const EDGES: usize = 2048;

#[derive(Clone, Copy)]
#[repr(C)]
struct Edge {
    packed: u64,
    parent: NodeId,
    /// 0: the entry is empty.
    node: NodeId,
}

impl Edges {
    /// The child of `parent` at `packed`.
    #[inline(always)]
    fn child(&mut self, shared: &Shared, parent: NodeId, packed: u64) -> NodeId {
        let mixed = (packed ^ u64::from(parent) << 17).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // SAFETY: the top eleven bits are below EDGES.
        let edge = unsafe { self.edges.get_unchecked_mut((mixed >> 53) as usize) };
        if edge.packed == packed && edge.parent == parent && edge.node != 0 {
            return edge.node;
        }
        let node = intern::intern(shared, parent, packed);
        *edge = Edge { packed, parent, node };
        node
    }
}
