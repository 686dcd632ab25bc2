//! malloc and its kin.

use highwater_event::api::ApiKind;

use super::{rare, real, stub};
use crate::record::{self, Caller};

type Ptr = u64;

stub!("reallocarray", stub_reallocarray, 3, reallocarray);
stub!("cfree", stub_cfree, 1, cfree);
stub!("free_sized", stub_free_sized, 2, free_sized);
stub!("free_aligned_sized", stub_free_aligned_sized, 3, free_aligned_sized);
stub!("memalign", stub_memalign, 2, memalign);
stub!("aligned_alloc", stub_aligned_alloc, 2, aligned_alloc);
stub!("posix_memalign", stub_posix_memalign, 3, posix_memalign);
stub!("valloc", stub_valloc, 1, valloc);
stub!("pvalloc", stub_pvalloc, 1, pvalloc);

/// malloc, reached through [`super::light`].
///
/// # Safety
/// As the function itself; `sp` and `bp` are those of the caller.
pub(super) unsafe extern "C" fn malloc(size: u64, sp: u64, bp: u64) -> Ptr {
    let Some(real) = real!(malloc, extern "C" fn(u64) -> Ptr) else { return 0 };
    let ptr = real(size);
    record::alloc(Caller { sp, bp }, ptr, size, ApiKind::Malloc);
    ptr
}

/// calloc, reached through [`super::light`].
///
/// # Safety
/// As [`malloc`].
pub(super) unsafe extern "C" fn calloc(count: u64, size: u64, sp: u64, bp: u64) -> Ptr {
    let Some(real) = real!(calloc, extern "C" fn(u64, u64) -> Ptr) else { return 0 };
    let ptr = real(count, size);
    // A product that overflows makes the real one fail.
    record::alloc(Caller { sp, bp }, ptr, count.wrapping_mul(size), ApiKind::Calloc);
    ptr
}

/// realloc, reached through [`super::light`].
///
/// # Safety
/// As [`malloc`].
pub(super) unsafe extern "C" fn realloc(old: Ptr, size: u64, sp: u64, bp: u64) -> Ptr {
    let Some(real) = real!(realloc, extern "C" fn(Ptr, u64) -> Ptr) else { return 0 };
    record::realloc(Caller { sp, bp }, old, size, ApiKind::ReallocFree, ApiKind::Realloc, || real(old, size))
}

unsafe extern "C" fn reallocarray(old: Ptr, count: u64, size: u64, sp: u64, bp: u64) -> Ptr {
    type Plain = extern "C" fn(Ptr, u64) -> Ptr;
    let product = count.checked_mul(size);
    match (product, real!(realloc, Plain)) {
        // glibc's reallocarray is realloc of the product; called through realloc
        // it would come back through our own hook.
        (Some(bytes), Some(real)) => rare::realloc(
            Caller { sp, bp },
            old,
            bytes,
            ApiKind::ReallocarrayFree,
            ApiKind::Reallocarray,
            || real(old, bytes),
        ),
        // The real one refuses an overflow and sets errno.
        _ => match real!(reallocarray, extern "C" fn(Ptr, u64, u64) -> Ptr) {
            Some(real) => real(old, count, size),
            None => 0,
        },
    }
}

/// free, reached through [`super::light`].
///
/// # Safety
/// As the function itself; `sp` and `bp` are those of the caller.
pub(super) unsafe extern "C" fn free(ptr: Ptr, sp: u64, bp: u64) {
    let Some(real) = real!(free, extern "C" fn(Ptr)) else { return };
    record::free(Caller { sp, bp }, ptr, ApiKind::Free);
    real(ptr);
}

unsafe extern "C" fn cfree(ptr: Ptr, sp: u64, bp: u64) {
    // Gone from glibc since 2.26; who still calls it gets free.
    let Some(real) = real!(cfree, extern "C" fn(Ptr)).or(real!(free, extern "C" fn(Ptr))) else { return };
    rare::free_around(Caller { sp, bp }, ptr, ApiKind::Cfree, || real(ptr));
}

unsafe extern "C" fn free_sized(ptr: Ptr, size: u64, sp: u64, bp: u64) {
    let caller = Caller { sp, bp };
    match real!(free_sized, extern "C" fn(Ptr, u64)) {
        Some(real) => rare::free_around(caller, ptr, ApiKind::FreeSized, || real(ptr, size)),
        None => {
            let Some(real) = real!(free, extern "C" fn(Ptr)) else { return };
            rare::free(caller, ptr, ApiKind::FreeSized);
            real(ptr);
        }
    }
}

unsafe extern "C" fn free_aligned_sized(ptr: Ptr, align: u64, size: u64, sp: u64, bp: u64) {
    let caller = Caller { sp, bp };
    match real!(free_aligned_sized, extern "C" fn(Ptr, u64, u64)) {
        Some(real) => {
            rare::free_around(caller, ptr, ApiKind::FreeAlignedSized, || real(ptr, align, size));
        }
        None => {
            let Some(real) = real!(free, extern "C" fn(Ptr)) else { return };
            rare::free(caller, ptr, ApiKind::FreeAlignedSized);
            real(ptr);
        }
    }
}

unsafe extern "C" fn memalign(align: u64, size: u64, sp: u64, bp: u64) -> Ptr {
    let Some(real) = real!(memalign, extern "C" fn(u64, u64) -> Ptr) else { return 0 };
    let ptr = real(align, size);
    rare::alloc(Caller { sp, bp }, ptr, size, ApiKind::Memalign);
    ptr
}

unsafe extern "C" fn aligned_alloc(align: u64, size: u64, sp: u64, bp: u64) -> Ptr {
    let Some(real) = real!(aligned_alloc, extern "C" fn(u64, u64) -> Ptr) else { return 0 };
    rare::alloc_around(Caller { sp, bp }, size, ApiKind::AlignedAlloc, || real(align, size))
}

unsafe extern "C" fn posix_memalign(out: *mut Ptr, align: u64, size: u64, sp: u64, bp: u64) -> i32 {
    const ENOMEM: i32 = 12;
    let Some(real) = real!(posix_memalign, extern "C" fn(*mut Ptr, u64, u64) -> i32) else { return ENOMEM };
    let mut status = 0;
    rare::alloc_around(Caller { sp, bp }, size, ApiKind::PosixMemalign, || {
        status = real(out, align, size);
        // SAFETY: on success the function has stored the block there.
        if status == 0 { unsafe { *out } } else { 0 }
    });
    status
}

unsafe extern "C" fn valloc(size: u64, sp: u64, bp: u64) -> Ptr {
    let Some(real) = real!(valloc, extern "C" fn(u64) -> Ptr) else { return 0 };
    rare::alloc_around(Caller { sp, bp }, size, ApiKind::Valloc, || real(size))
}

unsafe extern "C" fn pvalloc(size: u64, sp: u64, bp: u64) -> Ptr {
    let Some(real) = real!(pvalloc, extern "C" fn(u64) -> Ptr) else { return 0 };
    rare::alloc_around(Caller { sp, bp }, size, ApiKind::Pvalloc, || real(size))
}
