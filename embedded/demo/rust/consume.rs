//! Demo and test: firmware in Rust whose heap is recorded. Says what it did, one line an
//! event, as `ops.c` does:
//!
//! ```text
//!   A kind address size line       made
//!   F kind address size line       released
//! ```
//!
//! `no_std`: on a board nothing changes but `board_say` and how the program starts.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write;
use core::hint::black_box;

use highwater::mdd::{self, Recorded};

unsafe extern "C" {
    fn board_say(text: *const c_char);
    fn board_exit(status: c_int);
    fn highwater_mdd_posix_dump(file: *const c_char) -> c_int;
}

/// A heap: blocks of powers of two from one array, free ones in a list for each size.
struct Arena {
    memory: UnsafeCell<Memory>,
}

#[repr(C, align(4096))]
struct Memory {
    bytes: [u8; Self::BYTES],
    used: usize,
    free: [*mut u8; 20],
}

impl Memory {
    const BYTES: usize = 1 << 18;
}

// SAFETY: the demo has one thread, and no interrupt that allocates.
unsafe impl Sync for Arena {}

impl Arena {
    const fn new() -> Arena {
        let memory = Memory { bytes: [0; Memory::BYTES], used: 0, free: [core::ptr::null_mut(); 20] };
        Arena { memory: UnsafeCell::new(memory) }
    }

    fn range(&self) -> core::ops::Range<usize> {
        let start = self.memory.get() as usize;
        start..start + Memory::BYTES
    }

    /// Log2 of the bytes that a block takes; it lies at a multiple of them.
    fn class(layout: Layout) -> usize {
        layout.size().max(layout.align()).max(16).next_power_of_two().trailing_zeros() as usize
    }
}

// SAFETY: a block is handed out once until it is given back, at a multiple of a power
// of two that is not less than its alignment.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: one thread, and this is no reference that the caller can keep.
        let memory = unsafe { &mut *self.memory.get() };
        let class = Arena::class(layout);
        if class >= memory.free.len() {
            return core::ptr::null_mut();
        }
        let first = memory.free[class];
        if !first.is_null() {
            // SAFETY: a free block begins with the next one's address.
            memory.free[class] = unsafe { first.cast::<*mut u8>().read() };
            return first;
        }
        let start = memory.used.next_multiple_of(1 << class);
        if start + (1 << class) > Memory::BYTES {
            return core::ptr::null_mut();
        }
        memory.used = start + (1 << class);
        // SAFETY: inside the array.
        unsafe { memory.bytes.as_mut_ptr().add(start) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`; the block has room for an address.
        unsafe {
            let memory = &mut *self.memory.get();
            let class = Arena::class(layout);
            ptr.cast::<*mut u8>().write(memory.free[class]);
            memory.free[class] = ptr;
        }
    }
}

#[global_allocator]
static HEAP: Recorded<Arena> = Recorded::new(Arena::new());

struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for part in text.as_bytes().chunks(63) {
            let mut line = [0u8; 64];
            line[..part.len()].copy_from_slice(part);
            // SAFETY: ends with a 0.
            unsafe { board_say(line.as_ptr().cast()) };
        }
        Ok(())
    }
}

fn tell<T>(what: &str, at: *const T, size: usize, line: u32) {
    let _ = writeln!(Console, "{what} {:x} {size} {line}", at as usize);
}

struct Sample {
    _values: [u32; 10],
}

#[repr(align(256))]
struct Aligned {
    _bytes: [u8; 300],
}

#[inline(never)]
fn boxes(round: usize) -> Option<Box<Sample>> {
    // the call and the line that is told are one: the test compares them
    let a = Box::new(black_box(Sample { _values: [round as u32; 10] })); tell("A alloc", &raw const *a, 40, line!());
    let b = Box::new(black_box(Aligned { _bytes: [1; 300] })); tell("A alloc", &raw const *b, 512, line!());
    tell("F dealloc", &raw const *b, 512, line!() + 1);
    drop(black_box(b));
    if round % 2 == 0 {
        return Some(a);
    }
    tell("F dealloc", &raw const *a, 40, line!() + 1);
    drop(black_box(a));
    None
}

#[inline(never)]
fn vectors(round: usize) -> Vec<u16> {
    let mut v: Vec<u16> = Vec::with_capacity(black_box(5 + round)); tell("A alloc", v.as_ptr(), 2 * (5 + round), line!());
    v.resize(v.capacity(), 7);
    let (was, old) = (v.as_ptr(), v.capacity());
    v.reserve_exact(black_box(100)); tell("F realloc", was, 2 * old, line!()); tell("A realloc", v.as_ptr(), 2 * v.capacity(), line!());
    let zeroed: Vec<u8> = alloc::vec![0; black_box(33)]; tell("A alloc_zeroed", zeroed.as_ptr(), 33, line!());
    tell("F dealloc", zeroed.as_ptr(), 33, line!() + 1);
    drop(black_box(zeroed));
    black_box(v)
}

/// Its nodes' addresses and sizes are nobody's but the library's: told as counts at the end.
#[inline(never)]
fn maps() -> BTreeMap<u32, u64> {
    let mut map = BTreeMap::new();
    for n in 0..40 {
        map.insert(black_box(n * 7 % 41), u64::from(n));
    }
    map
}

#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    mdd::heap(HEAP.inner().range(), c"arena");
    let mut kept = Vec::with_capacity(black_box(20)); tell("A alloc", kept.as_ptr(), 20 * size_of::<Option<Box<Sample>>>(), line!());
    let mut vectors_kept = Vec::with_capacity(black_box(20)); tell("A alloc", vectors_kept.as_ptr(), 20 * size_of::<Vec<u16>>(), line!());
    for round in 0..20 {
        kept.push(boxes(round));
        vectors_kept.push(vectors(round));
    }
    let _ = writeln!(Console, "the rest is the map's");
    let map = maps();
    let _ = writeln!(Console, "map {}", map.len());
    const FILE: &CStr = c"rust.mddout";
    // SAFETY: a C string.
    let failed = unsafe { highwater_mdd_posix_dump(FILE.as_ptr()) };
    black_box((kept, vectors_kept, map));
    failed
}

#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        // SAFETY: ends the program.
        unsafe { board_exit(101) };
    }
}

// The library for this machine was built to unwind, and names this; nothing here does.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
