//! From the registers at an entry point to all return addresses above.
//!
//! The state of a frame is (pc, sp, bp). One step applies the rule of pc:
//! memory is read only at addresses that the rule names, each checked to lie
//! in stack memory that is known to be mapped ([`Span`]).

use highwater_event::layout::Counter;
use highwater_event::node::{Node, Truncation};

use super::rule::Kind;
use super::{rule::Rule, table};
use crate::arch::{SIGNAL_RBP, SIGNAL_RIP, SIGNAL_RSP};
use crate::{modules, start, sys};

/// The greatest number of frames that are walked.
pub const MAX_FRAMES: usize = 64 << 10;

/// Stack memory of this thread that was seen to be mapped: walks touch it
/// again and again, so the kernel is asked once a page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Span {
    /// The first address at which eight bytes may be read.
    low: u64,
    /// The last one; 0 of an empty span. (Not the end: a sum of an address and eight
    /// can wrap around.)
    last: u64,
}

impl Default for Span {
    fn default() -> Self {
        Span { low: u64::MAX, last: 0 }
    }
}

const PAGE: u64 = 4096;

impl Span {
    /// May the eight bytes at `address` be read?
    #[inline(always)]
    pub fn covers(&mut self, address: u64) -> bool {
        if address >= self.low && address <= self.last { true } else { self.extend(address) }
    }

    /// How far above `address` words are known to be there: the greatest offset of
    /// one. `None` where not even the word at `address` is known.
    #[inline(always)]
    pub fn above(&self, address: u64) -> Option<u64> {
        if address >= self.low && address <= self.last { Some(self.last - address) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn extend(&mut self, address: u64) -> bool {
        if !(PAGE..=Node::PC_MASK).contains(&address) || !sys::readable(address) {
            return false;
        }
        let page = address & !(PAGE - 1);
        // Eight bytes may reach into the next page.
        let end = ((address + 7) & !(PAGE - 1)) + PAGE;
        if end - page > PAGE && !sys::readable(end - PAGE) {
            return false;
        }
        // A frame may skip whole pages of locals: they are between two
        // addresses of one stack, so they are mapped too.
        let near = 8 << 20;
        if self.last != 0
            && page + near >= self.low
            && page <= self.last + near
            && contiguous(self, page, end)
        {
            self.low = self.low.min(page);
            self.last = self.last.max(end - 8);
        } else {
            *self = Span { low: page, last: end - 8 };
        }
        true
    }
}

/// Is everything between the span and the new page mapped?
fn contiguous(span: &Span, page: u64, end: u64) -> bool {
    let known = span.last + 8;
    let (mut at, stop) = if page >= known { (known, page) } else { (end, span.low) };
    while at < stop {
        if !sys::readable(at) {
            return false;
        }
        at += PAGE;
    }
    true
}

/// One frame's registers.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// Return address, or for an interrupted frame its pc.
    pub pc: u64,
    /// Stack pointer in that frame.
    pub sp: u64,
    /// Frame pointer in that frame.
    pub bp: u64,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the outermost frame.
    Complete,
    /// Somewhere else.
    Cut(Truncation),
}

/// An address whose rule must be that of the very instruction (a signal
/// interrupted it), not of the call before it, carries this bit in the table.
const EXACT: u64 = 1 << 47;

/// The packed address and the rule of `pc`.
#[inline(always)]
pub fn rule_of(pc: u64, exact: bool) -> (u64, Rule) {
    if pc >= EXACT {
        return (Node::pack(pc, Node::NO_MODULE), Rule::bad(Truncation::NoModule));
    }
    let key = if exact { pc | EXACT } else { pc };
    match table::find(key) {
        Some(found) => found,
        None => resolve(pc, exact),
    }
}

#[cold]
#[inline(never)]
fn resolve(pc: u64, exact: bool) -> (u64, Rule) {
    let at = if exact { pc } else { pc.wrapping_sub(1) };
    let Some(module) = modules::find(at) else {
        return (Node::pack(pc, Node::NO_MODULE), Rule::bad(Truncation::NoModule));
    };
    let bounds = super::cfi::Bounds { start: module.start, end: module.end };
    let mut rule = super::cfi::compile(module.eh_frame_hdr, bounds, at);
    // Where makecontext begins a stack, the "return address" is the first byte of
    // a function, and the byte before it belongs to none: nobody called here.
    if !exact
        && rule == Rule::bad(Truncation::NoUnwindInfo)
        && super::cfi::starts_at(module.eh_frame_hdr, bounds, pc)
    {
        rule = Rule::END;
    }
    let key = Node::pack(if exact { pc | EXACT } else { pc }, module.index);
    start::count(Counter::RulesCompiled, 1);
    if !modules::unloading() && !table::insert(key, rule) {
        start::count(Counter::RulesFull, 1);
    }
    (key, rule)
}

/// A word that a step read.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Word {
    /// Where it lies.
    pub address: u64,
    /// What it was.
    pub value: u64,
}

/// The words that one step read, in the order of the walk; a saved rbp last.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Words {
    /// The words; those beyond `count` mean nothing.
    pub words: [Word; 3],
    /// How many.
    pub count: usize,
}

impl Words {
    /// Memory of words that mean nothing yet.
    ///
    /// # Safety
    /// `place` is for us alone to write.
    #[inline(always)]
    pub unsafe fn reset(place: *mut Words) {
        // SAFETY: the caller's promise.
        unsafe { (&raw mut (*place).count).write(0) };
    }

    /// One more word.
    ///
    /// # Safety
    /// `place` is for us alone to write, and has been reset.
    #[inline(always)]
    unsafe fn push(place: *mut Words, address: u64, value: u64) {
        // SAFETY: the caller's promise; a step reads three words at most.
        unsafe {
            let count = (*place).count;
            (&raw mut (*place).words).cast::<Word>().add(count).write(Word { address, value });
            (&raw mut (*place).count).write(count + 1);
        }
    }
}

/// The registers in the frame that called an entry point, from those at entry:
/// `sp` is the address of the return slot.
///
/// # Safety
/// `sp` is this thread's stack pointer at the entry of a function.
#[inline(always)]
pub unsafe fn caller(sp: u64, bp: u64) -> Registers {
    // SAFETY: the return slot of a function that is running.
    Registers { pc: unsafe { read(sp) }, sp: sp + 8, bp }
}

/// Walks from `now`, without a cache. Fills `frames` with packed addresses,
/// innermost first, and returns their number and how it ended.
///
/// # Safety
/// `now` describes a frame of this thread that stays alive during the call.
pub unsafe fn walk(mut now: Registers, span: &mut Span, frames: &mut [u64]) -> (usize, End) {
    let mut count = 0;
    let mut exact = false;
    loop {
        if now.pc == 0 {
            return (count, End::Complete);
        }
        let Some(place) = frames.get_mut(count) else {
            return (count, End::Cut(Truncation::TooDeep));
        };
        let (key, rule) = rule_of(now.pc, exact);
        // The tree keeps return addresses; one past an interrupted instruction
        // stands for it, so that every reader may look up the byte before.
        *place = if exact { Node::pack(now.pc + 1, (key >> 48) as u16) } else { key };
        count += 1;
        // SAFETY: the caller's promise.
        match unsafe { step(&mut now, rule, span, &mut Words::default()) } {
            Step::Caller => exact = false,
            Step::Interrupted => exact = true,
            Step::End(end) => return (count, end),
        }
    }
}

/// Eight bytes of stack.
///
/// # Safety
/// Readable.
#[inline(always)]
pub(super) unsafe fn read(address: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (address as *const u64).read_unaligned() }
}

/// A frame without unwind information is the outermost one if it stands on the
/// initial stack: the loader's entry code, which nobody called.
#[cold]
fn outermost(reason: Truncation, sp: u64) -> End {
    let initial = crate::loader::initial_stack();
    if reason == Truncation::NoUnwindInfo && sp <= initial && initial - sp <= 64 {
        End::Complete
    } else {
        End::Cut(reason)
    }
}

/// Where one step led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To the caller: the new pc is a return address.
    Caller,
    /// To a frame that a signal interrupted at the new pc.
    Interrupted,
    /// There is no further frame.
    End(End),
}

/// Applies one rule, and notes the words it reads.
///
/// Nearly every frame has one of the two kinds that need no memory for the cfa. Which
/// of them, and whether rbp is loaded, changes from frame to frame without a pattern:
/// the choices are made by masks, not by branches that would be guessed wrong. A step
/// that loads no rbp reads the return address twice.
///
/// # Safety
/// As [`walk`]; `words` is for us alone to write, and has been reset.
#[inline(always)]
pub unsafe fn step(now: &mut Registers, rule: Rule, span: &mut Span, words: *mut Words) -> Step {
    if rule.kind() > Kind::CfaBp as u64 {
        // SAFETY: the caller's promise.
        return unsafe { step_odd(now, rule, span, words) };
    }
    let cfa = select(rule.from_bp(), now.bp, now.sp).wrapping_add(rule.cfa_offset() as u64);
    // SAFETY: the caller's promise.
    unsafe { to_caller(now, rule, cfa, span, words) }
}

/// `yes` where the mask has ones, `no` elsewhere.
#[inline(always)]
fn select(mask: u64, yes: u64, no: u64) -> u64 {
    no ^ ((no ^ yes) & mask)
}

/// The caller's state from the cfa.
///
/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn to_caller(now: &mut Registers, rule: Rule, cfa: u64, span: &mut Span, words: *mut Words) -> Step {
    let ra_at = cfa.wrapping_add(rule.ra_offset() as u64);
    let base = select(rule.bp_from_bp(), now.bp, cfa);
    let bp_at = select(rule.loads_bp(), base.wrapping_add(rule.bp_offset() as u64), ra_at);
    // The caller's frame lies above: otherwise a walk could go in circles.
    if cfa <= now.sp || !span.covers(ra_at) || !span.covers(bp_at) {
        return Step::End(End::Cut(Truncation::BadStack));
    }
    // SAFETY: both are covered; the caller's promise of `words`: a step reads three at
    // the most, and of those one lies before these.
    unsafe {
        let (pc, bp) = (read(ra_at), read(bp_at));
        let count = (*words).count;
        let place = (&raw mut (*words).words).cast::<Word>().add(count);
        place.write(Word { address: ra_at, value: pc });
        place.add(1).write(Word { address: bp_at, value: bp });
        (&raw mut (*words).count).write(count + 1 + (rule.loads_bp() & 1) as usize);
        *now = Registers { pc, sp: cfa, bp: select(rule.loads_bp(), bp, now.bp) };
    }
    Step::Caller
}

/// The rarer kinds of rule.
///
/// # Safety
/// As [`step`].
#[cold]
#[inline(never)]
unsafe fn step_odd(now: &mut Registers, rule: Rule, span: &mut Span, words: *mut Words) -> Step {
    const CFA_DEREF: u64 = Kind::CfaDerefBp as u64;
    const CFA_PLT: u64 = Kind::CfaPlt as u64;
    const SIGNAL: u64 = Kind::Signal as u64;
    const END: u64 = Kind::End as u64;
    let bad_stack = Step::End(End::Cut(Truncation::BadStack));
    let cfa = match rule.kind() {
        CFA_DEREF => {
            let at = now.bp.wrapping_add(rule.cfa_offset() as u64);
            if !span.covers(at) {
                return bad_stack;
            }
            // SAFETY: covered; the caller's promise.
            unsafe {
                let cfa = read(at);
                Words::push(words, at, cfa);
                cfa
            }
        }
        CFA_PLT => now.sp + if now.pc & 15 >= 11 { 16 } else { 8 },
        SIGNAL => {
            let at = now.sp;
            for offset in [SIGNAL_RBP, SIGNAL_RSP, SIGNAL_RIP] {
                if !span.covers(at.wrapping_add(offset)) {
                    return bad_stack;
                }
            }
            // SAFETY: all three are covered; the caller's promise.
            unsafe {
                *now = Registers {
                    bp: read(at + SIGNAL_RBP),
                    sp: read(at + SIGNAL_RSP),
                    pc: read(at + SIGNAL_RIP),
                };
                Words::push(words, at + SIGNAL_RIP, now.pc);
                Words::push(words, at + SIGNAL_RSP, now.sp);
                Words::push(words, at + SIGNAL_RBP, now.bp);
            }
            return Step::Interrupted;
        }
        END => return Step::End(End::Complete),
        _ => {
            let reason = Truncation::from_u8(rule.cfa_offset() as u8).unwrap_or(Truncation::UnsupportedRule);
            return Step::End(outermost(reason, now.sp));
        }
    };
    // SAFETY: the caller's promise.
    unsafe { to_caller(now, rule, cfa, span, words) }
}
