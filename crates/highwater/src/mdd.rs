//! Memory debug data of Rust firmware.
//!
//! [`Recorded`] wraps the program's allocator, whatever it is, and tells the C
//! agent (`embedded/agent/highwater_mdd.c`) of every block: kind, size, and where
//! the call came from. The dump is that of a C program: the GDB macros, the
//! transports and `highwater mdd` need to know nothing of Rust.
//!
//! ```ignore
//! use highwater::mdd::Recorded;
//!
//! #[global_allocator]
//! static HEAP: Recorded<embedded_alloc::LlffHeap> = Recorded::new(embedded_alloc::LlffHeap::empty());
//!
//! // HEAP.inner().init(…) as without the wrapper
//! ```
//!
//! The agent and `embedded/ports/rust/highwater_mdd_rust.c` are linked by the
//! firmware's build; `docs/embedded.md` has the lines. Without them a program that
//! uses [`Recorded`] does not link.

use core::alloc::{GlobalAlloc, Layout};

// embedded/ports/rust/highwater_mdd_rust.c
unsafe extern "C" {
    fn highwater_mdd_rust_alloc(size: usize, packed: *const u8) -> *mut u8;
    fn highwater_mdd_rust_alloc_zeroed(size: usize, packed: *const u8) -> *mut u8;
    fn highwater_mdd_rust_realloc(ptr: *mut u8, size: usize, new_size: usize, packed: *const u8) -> *mut u8;
    fn highwater_mdd_rust_dealloc(ptr: *mut u8, size: usize, packed: *const u8);
    fn highwater_mdd_heap(start: *const u8, end: *const u8, name: *const core::ffi::c_char);
}

/// The wrapped allocator's functions, as C calls them.
#[repr(C)]
struct Functions<A> {
    alloc: unsafe extern "C" fn(*const Recorded<A>, usize, usize) -> *mut u8,
    alloc_zeroed: unsafe extern "C" fn(*const Recorded<A>, usize, usize) -> *mut u8,
    realloc: unsafe extern "C" fn(*const Recorded<A>, *mut u8, usize, usize, usize) -> *mut u8,
    dealloc: unsafe extern "C" fn(*const Recorded<A>, *mut u8, usize, usize),
}

/// A global allocator that records what the program does with `A`.
///
/// The alignment leaves six low bits of its address free, in which the logarithm
/// of a block's alignment travels to C: as many arguments as ARM passes in
/// registers, so that the last call of each function can be a jump.
#[repr(C, align(64))]
pub struct Recorded<A> {
    functions: Functions<A>,
    inner: A,
}

impl<A: GlobalAlloc> Recorded<A> {
    /// Wraps an allocator.
    pub const fn new(inner: A) -> Recorded<A> {
        let functions = Functions {
            alloc: Self::make,
            alloc_zeroed: Self::make_zeroed,
            realloc: Self::resize,
            dealloc: Self::release,
        };
        Recorded { functions, inner }
    }

    /// The wrapped allocator, for whatever else it can do. Blocks that are made
    /// through it are not recorded, and must be released through it.
    pub const fn inner(&self) -> &A {
        &self.inner
    }

    /// The address of this, with the logarithm of an alignment in the low bits.
    #[inline(always)]
    fn packed(&self, align: usize) -> *const u8 {
        core::ptr::from_ref(self).cast::<u8>().wrapping_add(align.trailing_zeros() as usize)
    }

    unsafe extern "C" fn make(this: *const Self, size: usize, align: usize) -> *mut u8 {
        let Ok(layout) = Layout::from_size_align(size, align) else { return core::ptr::null_mut() };
        // SAFETY: C hands back the address that `packed` had; the size is at least the
        // one that the caller of `alloc` promised to be more than 0.
        unsafe { (*this).inner.alloc(layout) }
    }

    unsafe extern "C" fn make_zeroed(this: *const Self, size: usize, align: usize) -> *mut u8 {
        let Ok(layout) = Layout::from_size_align(size, align) else { return core::ptr::null_mut() };
        // SAFETY: as in `make`.
        unsafe { (*this).inner.alloc_zeroed(layout) }
    }

    unsafe extern "C" fn resize(
        this: *const Self,
        ptr: *mut u8,
        size: usize,
        align: usize,
        new_size: usize,
    ) -> *mut u8 {
        // with guards the new size may be more than a layout can have
        if Layout::from_size_align(new_size, align).is_err() {
            return core::ptr::null_mut();
        }
        // SAFETY: `ptr` was made by `inner` with this size and alignment: C adds the
        // same guards to both at each call.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size, align);
            (*this).inner.realloc(ptr, layout, new_size)
        }
    }

    unsafe extern "C" fn release(this: *const Self, ptr: *mut u8, size: usize, align: usize) {
        // SAFETY: as in `resize`.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size, align);
            (*this).inner.dealloc(ptr, layout);
        }
    }
}

// Each function ends in a call with the arguments of its own at most: a jump where
// the optimizer is on. That keeps the wrapper out of the backtraces.
//
// SAFETY: blocks are those of `inner`, which is a global allocator; C passes them on
// with the layouts it was given (longer by the guards, on both ways).
unsafe impl<A: GlobalAlloc> GlobalAlloc for Recorded<A> {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `packed` is the address of a `Recorded`, whose functions C calls.
        unsafe { highwater_mdd_rust_alloc(layout.size(), self.packed(layout.align())) }
    }

    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { highwater_mdd_rust_alloc_zeroed(layout.size(), self.packed(layout.align())) }
    }

    #[inline(always)]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`; the caller promises that `ptr` is a block of this layout.
        unsafe { highwater_mdd_rust_realloc(ptr, layout.size(), new_size, self.packed(layout.align())) }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as in `realloc`.
        unsafe { highwater_mdd_rust_dealloc(ptr, layout.size(), self.packed(layout.align())) }
    }
}

/// Tells the agent where the heap lies, by the addresses of its first byte and of the one behind
/// its last, so that `highwater mdd stats` can show it. The name is cut at 7 bytes.
pub fn heap(range: core::ops::Range<usize>, name: &core::ffi::CStr) {
    let at = core::ptr::without_provenance;
    // SAFETY: the agent only keeps the addresses, and copies the name.
    unsafe { highwater_mdd_heap(at(range.start), at(range.end), name.as_ptr()) }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::alloc::System;

    use super::*;

    #[test]
    fn the_alignment_travels_beside_the_address_and_comes_back() {
        let recorded = Recorded::new(System);
        let address = core::ptr::from_ref(&recorded) as usize;
        for log in 0..usize::BITS - 1 {
            // what the C side takes apart
            let packed = recorded.packed(1 << log) as usize;
            assert_eq!((packed & !63, 1usize << (packed & 63)), (address, 1 << log));
        }
    }

    #[test]
    fn what_c_calls_is_the_wrapped_allocator() {
        let recorded = Recorded::new(System);
        let f = &recorded.functions;
        // SAFETY: the block is used with the sizes that it was made with.
        unsafe {
            let p = (f.alloc_zeroed)(&recorded, 10, 32);
            assert!(!p.is_null() && (p as usize).is_multiple_of(32));
            assert_eq!(std::slice::from_raw_parts(p, 10), [0; 10]);
            p.write(7);
            let p = (f.realloc)(&recorded, p, 10, 32, 2000);
            assert_eq!((p as usize % 32, p.read()), (0, 7));
            // no layout: no panic, no undefined behaviour
            assert!((f.realloc)(&recorded, p, 2000, 32, usize::MAX - 3).is_null());
            assert!((f.alloc)(&recorded, usize::MAX, 8).is_null());
            (f.dealloc)(&recorded, p, 2000, 32);
        }
    }
}
