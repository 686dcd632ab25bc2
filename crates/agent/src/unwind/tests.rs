//! The memo and the cache against plain walks, on stacks that nobody compiled.
//!
//! A made-up program calls, returns, moves its stack pointer, is interrupted, changes
//! stacks like coroutines do and overwrites words of its own stack; unwind rules for its
//! made-up functions are in the table. At each event the answer of [`Memo::node`], or
//! else that of [`Cache::walk`], must be what [`walk::walk`] finds in that very memory.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::OnceLock;
use std::vec::Vec;

use highwater_event::layout::Header;
use highwater_event::node::{Node, NodeId, ROOT, Truncation};
use highwater_event::sample::mix;

use super::cache::{Cache, Edges, Scratch, Tally};
use super::memo::Memo;
use super::rule::{BpAt, Kind, Rule};
use super::table;
use super::walk::{self, End, Registers, Span};
use crate::arch::{SIGNAL_RBP, SIGNAL_RIP, SIGNAL_RSP};
use crate::intern;
use crate::start::Shared;

const NODES: u32 = 1 << 21;
const WORDS: usize = 1 << 12;
const FUNCTIONS: u64 = 40;
const MODULE: u16 = 5;
const EXACT: u64 = 1 << 47;
const BASE: u64 = 0x2000_0000;
const TRAMPOLINE: u64 = BASE - 64;

/// How a function keeps its frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A fixed frame; rbp is the caller's.
    Fixed,
    /// A fixed frame in which rbp is saved, and then used for anything.
    Saves,
    /// rbp is the frame pointer; below it the frame has any size.
    Pointer,
    /// A realigned stack: the cfa lies in memory.
    Realigned,
    /// The outermost function.
    Outermost,
}

fn shape(function: u64) -> Shape {
    match function % 8 {
        0 | 1 => Shape::Fixed,
        2 | 3 => Shape::Saves,
        4 | 5 => Shape::Pointer,
        6 if function != 6 => Shape::Realigned,
        6 => Shape::Outermost,
        _ => Shape::Fixed,
    }
}

/// Words of a fixed frame, with the return address.
fn size(function: u64) -> u64 {
    4 + function % 5
}

fn rule(function: u64) -> Rule {
    let bytes = 8 * size(function) as i64;
    match shape(function) {
        Shape::Fixed => Rule::new(Kind::CfaSp, bytes, -8, BpAt::Same, 0),
        Shape::Saves => Rule::new(Kind::CfaSp, bytes, -8, BpAt::Cfa, -16),
        Shape::Pointer => Rule::new(Kind::CfaBp, 16, -8, BpAt::Cfa, -16),
        Shape::Realigned => Rule::new(Kind::CfaDerefBp, -8, -8, BpAt::Bp, 0),
        Shape::Outermost => Some(Rule::END),
    }
    .unwrap()
}

/// Two call sites each.
fn site(function: u64, which: u64) -> u64 {
    BASE + function * 64 + 8 + 16 * (which % 2)
}

/// Zeroed memory that stays for ever.
fn zeroed<T>() -> *mut T {
    // SAFETY: no type here is of size zero.
    unsafe { alloc_zeroed(Layout::new::<T>()).cast() }
}

/// Shared memory with nothing but nodes, one of all tests as of a process, and the rules
/// of the made-up functions.
fn shared() -> &'static Shared {
    // An address: what lies there is for all threads.
    static SHARED: OnceLock<usize> = OnceLock::new();
    // SAFETY: made once, and there for ever.
    unsafe { &*(*SHARED.get_or_init(|| std::ptr::from_ref(prepare()) as usize) as *const Shared) }
}

fn prepare() -> &'static Shared {
    for bit in [0, EXACT] {
        for (function, which) in (0..FUNCTIONS).flat_map(|function| [(function, 0), (function, 1)]) {
            assert!(table::insert(Node::pack(site(function, which) | bit, MODULE), rule(function)));
        }
        assert!(table::insert(Node::pack(TRAMPOLINE | bit, MODULE), Rule::SIGNAL));
    }
    assert!(intern::prepare(NODES));
    let size = size_of::<Header>() + NODES as usize * size_of::<Node>();
    // SAFETY: zeroed and aligned like a page; a header of zeros is one.
    unsafe {
        let memory = alloc_zeroed(Layout::from_size_align(size, 4096).unwrap());
        let header = memory.cast::<Header>();
        (*header).nodes_off = size_of::<Header>() as u64;
        (*header).nodes_cap = NODES;
        (*header).agent.node_count.store(intern::FIRST_NODE, core::sync::atomic::Ordering::Relaxed);
        &*memory.cast()
    }
}

/// What a thread has for its walks.
fn state() -> (&'static mut Memo, &'static mut Cache, &'static mut Edges, &'static mut Scratch) {
    // SAFETY: all of these are plain numbers, for which zero is a value.
    unsafe {
        (&mut *zeroed::<Memo>(), &mut *zeroed::<Cache>(), &mut *zeroed::<Edges>(), &mut *zeroed::<Scratch>())
    }
}

/// The made-up program.
struct Program {
    random: u64,
    memory: Vec<u64>,
    /// The present registers, and below them those of all callers.
    frames: Vec<Registers>,
    /// What lay where something was overwritten.
    damage: Vec<(u64, u64)>,
}

impl Program {
    fn new(seed: u64) -> Program {
        let mut program =
            Program { random: seed, memory: vec![0; WORDS], frames: Vec::new(), damage: Vec::new() };
        let top = program.memory.as_ptr() as u64 + 8 * (WORDS as u64 - 64);
        program.frames.push(Registers { pc: site(6, 0), sp: top & !63, bp: 0 });
        program
    }

    fn chance(&mut self, of: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random) % of
    }

    fn now(&self) -> Registers {
        *self.frames.last().unwrap()
    }

    fn put(&mut self, address: u64, value: u64) {
        let index = (address - self.memory.as_ptr() as u64) / 8;
        self.memory[index as usize] = value;
    }

    fn call(&mut self, function: u64, which: u64) {
        let Registers { pc, sp: cfa, bp } = self.now();
        if cfa < self.memory.as_ptr() as u64 + 2048 {
            return;
        }
        self.put(cfa - 8, pc);
        let pc = site(function, which);
        let more = self.chance(3) * 8;
        let sp = cfa - 8 * size(function);
        let next = match shape(function) {
            Shape::Fixed | Shape::Outermost => Registers { pc, sp, bp },
            Shape::Saves => {
                self.put(cfa - 16, bp);
                let other = if self.chance(2) == 0 { bp } else { self.chance(1 << 20) };
                Registers { pc, sp, bp: other }
            }
            Shape::Pointer => {
                self.put(cfa - 16, bp);
                Registers { pc, sp: cfa - 16 - more, bp: cfa - 16 }
            }
            Shape::Realigned => {
                let at = (cfa - 32) & !31;
                self.put(at, bp);
                self.put(at - 8, cfa);
                Registers { pc, sp: at - 8 - more, bp: at }
            }
        };
        self.frames.push(next);
    }

    /// A signal arrives, and its handler calls something.
    fn interrupt(&mut self) {
        let Registers { pc, sp, bp } = self.now();
        if sp < self.memory.as_ptr() as u64 + 4096 {
            return;
        }
        let frame = sp - 128 - 512;
        for (offset, value) in [(SIGNAL_RBP, bp), (SIGNAL_RSP, sp), (SIGNAL_RIP, pc)] {
            self.put(frame + offset, value);
        }
        self.frames.push(Registers { pc: TRAMPOLINE, sp: frame, bp });
        let function = self.chance(6);
        self.call(function, 0);
    }

    /// A word that could mean something.
    fn word(&mut self) -> u64 {
        match self.chance(5) {
            0 => self.chance(FUNCTIONS) * 64 + BASE + 8,
            1 => self.memory.as_ptr() as u64 + 8 * self.chance(WORDS as u64),
            2 => self.now().bp,
            3 => 0,
            _ => self.chance(100),
        }
    }

    fn mend(&mut self) {
        while let Some((at, value)) = self.damage.pop() {
            self.put(at, value);
        }
    }

    fn step(&mut self, others: &mut Vec<(Vec<u64>, Vec<Registers>)>) {
        match self.chance(100) {
            0..30 => {
                let (function, which) = (self.chance(12) * 3 % FUNCTIONS, self.chance(2));
                if function != 6 {
                    self.call(function, which);
                }
            }
            30..64 if self.frames.len() > 1 + self.chance(12) as usize => {
                self.frames.pop();
            }
            // The same function again at the same place, from another call site.
            64..75 if self.frames.len() > 2 => {
                let which = self.chance(2);
                let frame = self.frames.last_mut().unwrap();
                if frame.pc != TRAMPOLINE {
                    frame.pc = (frame.pc & !63) + 8 + 16 * which;
                }
            }
            75..78 => self.interrupt(),
            // A local variable, and the damage of one that was written past its end.
            78..82 => {
                let low = self.now().sp;
                let words = (self.memory.as_ptr() as u64 + 8 * (WORDS as u64 - 64) - low) / 8;
                let near = if self.chance(3) == 0 { words } else { words.min(3) };
                if near > 0 {
                    let at = low + 8 * self.chance(near);
                    let value = self.word();
                    self.damage.push((at, self.memory[((at - self.memory.as_ptr() as u64) / 8) as usize]));
                    self.put(at, value);
                }
            }
            82..88 => self.mend(),
            // Where rbp is saved it may hold anything.
            88..90 => {
                let value = self.word();
                let frame = self.frames.last_mut().unwrap();
                if frame.pc != TRAMPOLINE && shape((frame.pc - BASE) / 64) == Shape::Saves {
                    frame.bp = value;
                }
            }
            90 => {
                self.mend();
                others.push((self.memory.clone(), self.frames.clone()));
            }
            91..98 if !others.is_empty() => {
                let index = self.chance(others.len() as u64) as usize;
                let (memory, frames) = others[index].clone();
                self.memory.copy_from_slice(&memory);
                self.frames = frames;
                self.damage.clear();
                if others.len() > 6 {
                    others.swap_remove(index);
                }
            }
            _ => {}
        }
    }
}

/// What a walk without memo and cache says.
fn plain(shared: &Shared, now: Registers, limit: usize, frames: &mut [u64]) -> NodeId {
    // SAFETY: the stack is memory of ours, and the kernel is asked before it is read.
    let (count, end) = unsafe { walk::walk(now, &mut Span::default(), frames) };
    let mut id = match end {
        End::Complete => ROOT,
        End::Cut(reason) => intern::marker(reason),
    };
    for (depth, &packed) in frames[..count].iter().rev().enumerate() {
        if depth < limit {
            id = intern::intern(shared, id, packed);
        } else if depth == limit {
            id = intern::intern(shared, id, Node::marker(Truncation::DepthLimit));
        }
    }
    id
}

#[test]
fn memo_and_cache_say_what_a_plain_walk_says() {
    let shared = shared();
    let (memo, cache, edges, scratch) = state();
    let mut frames = vec![0; walk::MAX_FRAMES];
    let (mut known, mut behind, mut walked, mut whole) = (0u32, 0u32, 0u32, 0u32);
    for (seed, limit) in [(1, usize::MAX), (2, usize::MAX), (3, 5)] {
        // Nodes depend on the limit: a process has one.
        cache.clear();
        memo.clear();
        let mut program = Program::new(mix(seed));
        let (mut span, mut epoch, mut others) = (Span::default(), seed as u32, Vec::new());
        for _ in 0..60_000 {
            program.step(&mut others);
            if program.chance(4000) == 0 {
                epoch += 1;
            }
            let now = program.now();
            // The entry point's return slot.
            program.put(now.sp - 8, now.pc);
            let right = plain(shared, now, limit, &mut frames);
            // SAFETY: as in `plain`.
            let seen = unsafe { memo.node(cache, now, &span, epoch) };
            if let Some(node) = seen {
                assert_eq!(node, right, "the memo, in state {:x?}", program.frames);
                known += 1;
                // SAFETY: as in `plain`.
                behind += u32::from(unsafe { memo.joins(cache, now, &span, epoch) } == Some(false));
                continue;
            }
            if !cache.is_of(epoch) {
                memo.clear();
            }
            assert!(span.covers(now.sp - 8));
            let mut tally = Tally::default();
            // SAFETY: as in `plain`.
            let node =
                unsafe { cache.walk(shared, now, &mut span, scratch, edges, limit, epoch, &mut tally) };
            assert_eq!(node, right, "the cache, in state {:x?}", program.frames);
            walked += 1;
            whole += u32::from(tally.full);
            // SAFETY: as in `plain`.
            unsafe { memo.keep(cache, now, node, tally.fresh as usize, &span) };
        }
    }
    // The stacks must come again, and change, or nothing was tried.
    assert!(
        known > 40_000 && behind > 1_000 && walked > 20_000 && whole < walked,
        "{known} known, {behind} of them from join to join, {walked} walked, {whole} whole"
    );
}

/// The walks of eight rounds of events in three places of each turn, each compared with
/// a plain walk.
fn walks_of_rounds(program: &mut Program, turns: &[(Vec<u64>, Vec<Registers>)]) -> [u32; 8] {
    let shared = shared();
    let (memo, cache, edges, scratch) = state();
    cache.clear();
    memo.clear();
    let mut span = Span::default();
    let mut frames = vec![0; walk::MAX_FRAMES];
    let mut walks_of_a_round = [0; 8];
    for walks in &mut walks_of_a_round {
        for (memory, callers) in turns {
            for function in [0, 8, 16] {
                program.memory.copy_from_slice(memory);
                program.frames.clone_from(callers);
                program.call(function, 1);
                let now = program.now();
                program.put(now.sp - 8, now.pc);
                assert!(span.covers(now.sp - 8));
                // SAFETY: the stack is memory of ours, and the kernel is asked before it is read.
                let known = unsafe { memo.node(cache, now, &span, 1) };
                let node = known.unwrap_or_else(|| {
                    *walks += 1;
                    let mut tally = Tally::default();
                    let limit = usize::MAX;
                    // SAFETY: as above.
                    unsafe {
                        let node = cache.walk(shared, now, &mut span, scratch, edges, limit, 1, &mut tally);
                        memo.keep(cache, now, node, tally.fresh as usize, &span);
                        node
                    }
                });
                assert_eq!(node, plain(shared, now, usize::MAX, &mut frames));
            }
        }
    }
    walks_of_a_round
}

/// A database parses a statement, runs it and parses the next: the stack that the cache
/// has is always the other turn's. Each event was a walk of a dozen frames.
#[test]
fn stacks_of_turns_are_known_though_the_cache_has_the_other_one() {
    let mut program = Program::new(7);
    program.call(1, 0);
    program.call(4, 0);
    let base = (program.memory.clone(), program.frames.clone());
    let turns = [[8, 3, 5, 9], [2, 16, 12, 1], [17, 10, 4, 11]].map(|functions| {
        program.memory.copy_from_slice(&base.0);
        program.frames.clone_from(&base.1);
        for which in 0..14 {
            program.call(functions[which % 4], which as u64 % 2);
        }
        (program.memory.clone(), program.frames.clone())
    });
    let walks = walks_of_rounds(&mut program, &turns);
    assert_eq!(walks[0], 9, "nothing is known yet: {walks:?}");
    assert_eq!(walks[5..], [0; 3], "{walks:?}");
}

/// The same inner functions under callers that differ farther out: their stacks have one
/// leaf, and each took the other's entry.
#[test]
fn stacks_that_differ_beyond_their_leaf_do_not_put_each_other_out() {
    let mut program = Program::new(8);
    program.call(1, 0);
    let base = (program.memory.clone(), program.frames.clone());
    // Frames of one size and one shape, so all the rest lies where it lay.
    let turns = [1, 16].map(|function| {
        program.memory.copy_from_slice(&base.0);
        program.frames.clone_from(&base.1);
        program.call(function, u64::from(function == 16));
        program.call(function, 1);
        for which in 0..14 {
            program.call(8, which % 2);
        }
        (program.memory.clone(), program.frames.clone())
    });
    let walks = walks_of_rounds(&mut program, &turns);
    assert_eq!(walks[0], 6, "nothing is known yet: {walks:?}");
    assert_eq!(walks[5..], [0; 3], "{walks:?}");
}

/// A stack is kept when it is met for the second time lately: two whose nodes have one
/// place among those met once pushed each other out, and neither was ever kept.
#[test]
fn stacks_are_met_again_though_their_nodes_share_a_place() {
    let (memo, ..) = state();
    for round in 0..3 {
        for node in [20, 20 + 1024, 20 + 4096] {
            assert_eq!(memo.met(node), round > 0, "node {node} in round {round}");
        }
    }
}

/// A saved rbp of 0 and a rule that looks eight bytes below it: the sum that should
/// have found the address too high came out at 0, and the word was read.
#[test]
fn the_last_bytes_of_the_address_space_are_no_stack() {
    let word = 1u64;
    let here = &raw const word as u64;
    let mut span = Span::default();
    assert!(span.above(here).is_none() && span.above(0).is_none());
    for mut span in [Span::default(), {
        assert!(span.covers(here));
        span
    }] {
        for address in [0, 7, u64::MAX - 7, u64::MAX - 3, u64::MAX] {
            assert!(!span.covers(address), "{address:x}");
            // A word there is never within what is known above this one.
            assert!(span.above(here).is_none_or(|above| address.wrapping_sub(here) > above), "{address:x}");
        }
    }
    assert!(span.above(here).is_some());
}
