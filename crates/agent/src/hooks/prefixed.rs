//! Allocators under names of their own, where a shared library exports them:
//! jemalloc (`je_`, Rust's `_rjem_`), mimalloc, tcmalloc, the Boehm collector,
//! GLib's slices.

use highwater_event::api::ApiKind;

use super::{rare, real, stub};
use crate::record::Caller;

type Ptr = u64;

/// malloc, calloc, realloc, free, memalign, aligned_alloc, posix_memalign of a family.
macro_rules! family {
    ($alloc:ident, $free:ident;
     $malloc:ident $malloc_symbol:literal, $calloc:ident $calloc_symbol:literal,
     $realloc:ident $realloc_symbol:literal, $free_fn:ident $free_symbol:literal,
     $memalign:ident $memalign_symbol:literal, $aligned:ident $aligned_symbol:literal,
     $posix:ident $posix_symbol:literal, $module:ident) => {
        /// One family.
        pub mod $module {
            use super::*;
            stub!($malloc_symbol, stub_malloc, 1, $malloc);
            stub!($calloc_symbol, stub_calloc, 2, $calloc);
            stub!($realloc_symbol, stub_realloc, 2, $realloc);
            stub!($free_symbol, stub_free, 1, $free_fn);
            stub!($memalign_symbol, stub_memalign, 2, $memalign);
            stub!($aligned_symbol, stub_aligned, 2, $aligned);
            stub!($posix_symbol, stub_posix, 3, $posix);

            unsafe extern "C" fn $malloc(size: u64, sp: u64, bp: u64) -> Ptr {
                let Some(real) = real!($malloc, extern "C" fn(u64) -> Ptr) else { return 0 };
                rare::alloc_around(Caller { sp, bp }, size, ApiKind::$alloc, || real(size))
            }
            unsafe extern "C" fn $calloc(count: u64, size: u64, sp: u64, bp: u64) -> Ptr {
                let Some(real) = real!($calloc, extern "C" fn(u64, u64) -> Ptr) else { return 0 };
                let bytes = count.wrapping_mul(size);
                rare::alloc_around(Caller { sp, bp }, bytes, ApiKind::$alloc, || real(count, size))
            }
            unsafe extern "C" fn $realloc(old: Ptr, size: u64, sp: u64, bp: u64) -> Ptr {
                let Some(real) = real!($realloc, extern "C" fn(Ptr, u64) -> Ptr) else { return 0 };
                let caller = Caller { sp, bp };
                rare::realloc(caller, old, size, ApiKind::$free, ApiKind::$alloc, || real(old, size))
            }
            unsafe extern "C" fn $free_fn(ptr: Ptr, sp: u64, bp: u64) {
                let Some(real) = real!($free_fn, extern "C" fn(Ptr)) else { return };
                rare::free_around(Caller { sp, bp }, ptr, ApiKind::$free, || real(ptr));
            }
            unsafe extern "C" fn $memalign(align: u64, size: u64, sp: u64, bp: u64) -> Ptr {
                let Some(real) = real!($memalign, extern "C" fn(u64, u64) -> Ptr) else { return 0 };
                rare::alloc_around(Caller { sp, bp }, size, ApiKind::$alloc, || real(align, size))
            }
            unsafe extern "C" fn $aligned(align: u64, size: u64, sp: u64, bp: u64) -> Ptr {
                let Some(real) = real!($aligned, extern "C" fn(u64, u64) -> Ptr) else { return 0 };
                rare::alloc_around(Caller { sp, bp }, size, ApiKind::$alloc, || real(align, size))
            }
            unsafe extern "C" fn $posix(out: *mut Ptr, align: u64, size: u64, sp: u64, bp: u64) -> i32 {
                const ENOMEM: i32 = 12;
                let Some(real) = real!($posix, extern "C" fn(*mut Ptr, u64, u64) -> i32) else {
                    return ENOMEM;
                };
                let mut status = 0;
                rare::alloc_around(Caller { sp, bp }, size, ApiKind::$alloc, || {
                    status = real(out, align, size);
                    // SAFETY: on success the function has stored the block there.
                    if status == 0 { unsafe { *out } } else { 0 }
                });
                status
            }
        }
    };
}

family!(JeAlloc, JeFree;
    je_malloc "je_malloc", je_calloc "je_calloc", je_realloc "je_realloc", je_free "je_free",
    je_memalign "je_memalign", je_aligned_alloc "je_aligned_alloc", je_posix_memalign "je_posix_memalign", je);
family!(RjemAlloc, RjemFree;
    rjem_malloc "_rjem_malloc", rjem_calloc "_rjem_calloc", rjem_realloc "_rjem_realloc", rjem_free "_rjem_free",
    rjem_memalign "_rjem_memalign", rjem_aligned_alloc "_rjem_aligned_alloc",
    rjem_posix_memalign "_rjem_posix_memalign", rjem);
family!(MiAlloc, MiFree;
    mi_malloc "mi_malloc", mi_calloc "mi_calloc", mi_realloc "mi_realloc", mi_free "mi_free",
    mi_memalign "mi_memalign", mi_aligned_alloc "mi_aligned_alloc", mi_posix_memalign "mi_posix_memalign", mi);
family!(TcAlloc, TcFree;
    tc_malloc "tc_malloc", tc_calloc "tc_calloc", tc_realloc "tc_realloc", tc_free "tc_free",
    tc_memalign "tc_memalign", tc_aligned_alloc "tc_aligned_alloc", tc_posix_memalign "tc_posix_memalign", tc);

stub!("GC_malloc", stub_gc_malloc, 1, gc_malloc);
stub!("GC_malloc_atomic", stub_gc_malloc_atomic, 1, gc_malloc_atomic);
stub!("GC_malloc_uncollectable", stub_gc_malloc_uncollectable, 1, gc_malloc_uncollectable);
stub!("GC_realloc", stub_gc_realloc, 2, gc_realloc);
stub!("GC_free", stub_gc_free, 1, gc_free);
stub!("g_slice_alloc", stub_g_slice_alloc, 1, g_slice_alloc);
stub!("g_slice_alloc0", stub_g_slice_alloc0, 1, g_slice_alloc0);
stub!("g_slice_free1", stub_g_slice_free1, 2, g_slice_free1);

macro_rules! one_argument {
    ($name:ident, $api:ident) => {
        unsafe extern "C" fn $name(size: u64, sp: u64, bp: u64) -> Ptr {
            let Some(real) = real!($name, extern "C" fn(u64) -> Ptr) else { return 0 };
            rare::alloc_around(Caller { sp, bp }, size, ApiKind::$api, || real(size))
        }
    };
}

one_argument!(gc_malloc, GcAlloc);
one_argument!(gc_malloc_atomic, GcAlloc);
one_argument!(gc_malloc_uncollectable, GcAlloc);
one_argument!(g_slice_alloc, GSliceAlloc);
one_argument!(g_slice_alloc0, GSliceAlloc);

unsafe extern "C" fn gc_realloc(old: Ptr, size: u64, sp: u64, bp: u64) -> Ptr {
    let Some(real) = real!(gc_realloc, extern "C" fn(Ptr, u64) -> Ptr) else { return 0 };
    rare::realloc(Caller { sp, bp }, old, size, ApiKind::GcFree, ApiKind::GcAlloc, || real(old, size))
}

unsafe extern "C" fn gc_free(ptr: Ptr, sp: u64, bp: u64) {
    let Some(real) = real!(gc_free, extern "C" fn(Ptr)) else { return };
    rare::free_around(Caller { sp, bp }, ptr, ApiKind::GcFree, || real(ptr));
}

unsafe extern "C" fn g_slice_free1(size: u64, ptr: Ptr, sp: u64, bp: u64) {
    let Some(real) = real!(g_slice_free1, extern "C" fn(u64, Ptr)) else { return };
    rare::free_around(Caller { sp, bp }, ptr, ApiKind::GSliceFree, || real(size, ptr));
}
