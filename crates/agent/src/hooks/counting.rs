//! malloc and its kin of a program whose operations are only counted.
//!
//! What [`crate::select`] does for all modes, for this one alone: a few additions to
//! the thread's own cache line, and the question how large the block is. What is odd
//! goes the way of all hooks.

use core::sync::atomic::{AtomicU64, Ordering::*};

use super::{c, real};
use crate::record::usable;
use crate::thread::{self, Thread};

type Ptr = u64;

/// The calling thread's state, where nothing odd is going on.
#[inline(always)]
fn plain() -> Option<&'static mut Thread> {
    // SAFETY: null, or this thread's own state, which stays mapped.
    unsafe { thread::current().as_mut() }.filter(|thread| thread.light)
}

/// Adds to a counter that only this thread writes.
#[inline(always)]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// Counts a block that was made.
#[inline(always)]
fn made(ptr: Ptr, size: u64) {
    if ptr != 0
        && let Some(thread) = plain()
    {
        let counts = thread.counts();
        add(&counts.made, 1);
        add(&counts.made_bytes, size);
        thread.add_live(usable(ptr).unwrap_or(0));
    }
}

/// # Safety
/// As [`c::malloc`].
pub(super) unsafe extern "C" fn malloc(size: u64, sp: u64, bp: u64) -> Ptr {
    match real!(malloc, extern "C" fn(u64) -> Ptr) {
        Some(real) if plain().is_some() => {
            let ptr = real(size);
            made(ptr, size);
            ptr
        }
        // SAFETY: the caller's promise.
        _ => unsafe { c::malloc(size, sp, bp) },
    }
}

/// # Safety
/// As [`c::calloc`].
pub(super) unsafe extern "C" fn calloc(count: u64, size: u64, sp: u64, bp: u64) -> Ptr {
    match real!(calloc, extern "C" fn(u64, u64) -> Ptr) {
        Some(real) if plain().is_some() => {
            let ptr = real(count, size);
            // A product that overflows makes the real one fail.
            made(ptr, count.wrapping_mul(size));
            ptr
        }
        // SAFETY: the caller's promise.
        _ => unsafe { c::calloc(count, size, sp, bp) },
    }
}

/// # Safety
/// As [`c::free`].
pub(super) unsafe extern "C" fn free(ptr: Ptr, sp: u64, bp: u64) {
    match real!(free, extern "C" fn(Ptr)) {
        Some(real) if ptr != 0 => {
            let Some(thread) = plain() else {
                // SAFETY: the caller's promise.
                return unsafe { c::free(ptr, sp, bp) };
            };
            add(&thread.counts().freed, 1);
            thread.add_live(usable(ptr).unwrap_or(0).wrapping_neg());
            real(ptr);
        }
        // SAFETY: the caller's promise.
        _ => unsafe { c::free(ptr, sp, bp) },
    }
}

/// # Safety
/// As [`c::realloc`].
pub(super) unsafe extern "C" fn realloc(old: Ptr, size: u64, sp: u64, bp: u64) -> Ptr {
    match real!(realloc, extern "C" fn(Ptr, u64) -> Ptr) {
        // What begins or ends a block is rare enough for the other way.
        Some(real) if old != 0 && size != 0 && plain().is_some() => {
            let before = usable(old).unwrap_or(0);
            let ptr = real(old, size);
            if ptr != 0
                && let Some(thread) = plain()
            {
                let counts = thread.counts();
                add(&counts.freed, 1);
                add(&counts.remade, 1);
                add(&counts.made, 1);
                add(&counts.made_bytes, size);
                thread.add_live(usable(ptr).unwrap_or(0).wrapping_sub(before));
            }
            ptr
        }
        // SAFETY: the caller's promise.
        _ => unsafe { c::realloc(old, size, sp, bp) },
    }
}
