//! Memory, as fast as it can be had.

/// Asks for the cache line of an element; nothing where there is none, and on
/// processors for which there is no such instruction here.
#[inline(always)]
pub fn prefetch<T>(all: &[T], at: usize) {
    let Some(element) = all.get(at) else { return };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of every x86-64; a prefetch reads nothing and cannot
    // fault, and the address is that of an element.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
}

/// The same for an element that may lie in two lines.
#[inline(always)]
pub fn prefetch_both<T>(all: &[T], at: usize) {
    let Some(element) = all.get(at) else { return };
    // SAFETY: these are the bytes of the element, and nobody looks at what they are.
    let bytes = unsafe {
        let first = std::ptr::from_ref(element).cast::<std::mem::MaybeUninit<u8>>();
        std::slice::from_raw_parts(first, size_of::<T>())
    };
    prefetch(bytes, 0);
    prefetch(bytes, bytes.len().saturating_sub(1));
}

/// An array on the heap. It is made there: one that is made elsewhere and copied costs
/// several times as much, and drives what is needed out of the caches.
pub fn boxed<T: Copy, const N: usize>(value: T) -> Box<[T; N]> {
    vec![value; N].into_boxed_slice().try_into().unwrap_or_else(|_| Box::new([value; N]))
}
