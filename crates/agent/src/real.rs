//! The functions that we stand in front of, found once in the loader's tables:
//! the next definition after ours, as `dlsym(RTLD_NEXT)` would choose it.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::loader::{self, LinkMap};

macro_rules! reals {
    ($($field:ident = $symbol:literal;)*) => {
        /// Addresses of the real functions, 0 where the program has none.
        #[allow(missing_docs)]
        pub struct Real { $(pub $field: AtomicUsize,)* }

        /// The one table.
        pub static REAL: Real = Real { $($field: AtomicUsize::new(0),)* };

        impl Real {
            /// Looks everything up. Called again after dlopen may have brought more.
            #[cold]
            pub fn resolve(&self) {
                $(
                    if self.$field.load(Relaxed) == 0
                        && let Some(address) = next($symbol)
                    {
                        self.$field.store(address, Relaxed);
                    }
                )*
                resolve_usable();
            }
        }
    };
}

reals! {
    malloc = b"malloc";
    calloc = b"calloc";
    realloc = b"realloc";
    reallocarray = b"reallocarray";
    free = b"free";
    cfree = b"cfree";
    free_sized = b"free_sized";
    free_aligned_sized = b"free_aligned_sized";
    memalign = b"memalign";
    aligned_alloc = b"aligned_alloc";
    posix_memalign = b"posix_memalign";
    valloc = b"valloc";
    pvalloc = b"pvalloc";

    new = b"_Znwm";
    new_array = b"_Znam";
    new_nothrow = b"_ZnwmRKSt9nothrow_t";
    new_array_nothrow = b"_ZnamRKSt9nothrow_t";
    new_aligned = b"_ZnwmSt11align_val_t";
    new_array_aligned = b"_ZnamSt11align_val_t";
    new_aligned_nothrow = b"_ZnwmSt11align_val_tRKSt9nothrow_t";
    new_array_aligned_nothrow = b"_ZnamSt11align_val_tRKSt9nothrow_t";
    delete = b"_ZdlPv";
    delete_array = b"_ZdaPv";
    delete_sized = b"_ZdlPvm";
    delete_array_sized = b"_ZdaPvm";
    delete_aligned = b"_ZdlPvSt11align_val_t";
    delete_array_aligned = b"_ZdaPvSt11align_val_t";
    delete_sized_aligned = b"_ZdlPvmSt11align_val_t";
    delete_array_sized_aligned = b"_ZdaPvmSt11align_val_t";
    delete_nothrow = b"_ZdlPvRKSt9nothrow_t";
    delete_array_nothrow = b"_ZdaPvRKSt9nothrow_t";
    delete_aligned_nothrow = b"_ZdlPvSt11align_val_tRKSt9nothrow_t";
    delete_array_aligned_nothrow = b"_ZdaPvSt11align_val_tRKSt9nothrow_t";

    mmap = b"mmap";
    munmap = b"munmap";
    mremap = b"mremap";
    brk = b"brk";
    sbrk = b"sbrk";

    execve = b"execve";
    execvpe = b"execvpe";
    execveat = b"execveat";
    fexecve = b"fexecve";
    execl = b"execl";
    execlp = b"execlp";
    execle = b"execle";
    execv = b"execv";
    execvp = b"execvp";
    dlclose = b"dlclose";
    exit = b"exit";
    cxa_atexit = b"__cxa_atexit";
    exit_now = b"_exit";
    quick_exit = b"quick_exit";
    dl_find_object = b"_dl_find_object";

    je_malloc = b"je_malloc";
    je_calloc = b"je_calloc";
    je_realloc = b"je_realloc";
    je_free = b"je_free";
    je_memalign = b"je_memalign";
    je_aligned_alloc = b"je_aligned_alloc";
    je_posix_memalign = b"je_posix_memalign";
    rjem_malloc = b"_rjem_malloc";
    rjem_calloc = b"_rjem_calloc";
    rjem_realloc = b"_rjem_realloc";
    rjem_free = b"_rjem_free";
    rjem_memalign = b"_rjem_memalign";
    rjem_aligned_alloc = b"_rjem_aligned_alloc";
    rjem_posix_memalign = b"_rjem_posix_memalign";
    mi_malloc = b"mi_malloc";
    mi_calloc = b"mi_calloc";
    mi_realloc = b"mi_realloc";
    mi_free = b"mi_free";
    mi_memalign = b"mi_memalign";
    mi_aligned_alloc = b"mi_aligned_alloc";
    mi_posix_memalign = b"mi_posix_memalign";
    tc_malloc = b"tc_malloc";
    tc_calloc = b"tc_calloc";
    tc_realloc = b"tc_realloc";
    tc_free = b"tc_free";
    tc_memalign = b"tc_memalign";
    tc_aligned_alloc = b"tc_aligned_alloc";
    tc_posix_memalign = b"tc_posix_memalign";
    gc_malloc = b"GC_malloc";
    gc_malloc_atomic = b"GC_malloc_atomic";
    gc_malloc_uncollectable = b"GC_malloc_uncollectable";
    gc_realloc = b"GC_realloc";
    gc_free = b"GC_free";
    g_slice_alloc = b"g_slice_alloc";
    g_slice_alloc0 = b"g_slice_alloc0";
    g_slice_free1 = b"g_slice_free1";
}

/// malloc_usable_size, where it belongs to malloc. (An allocator that defines
/// malloc alone leaves the C library's behind it, which must never see this
/// allocator's blocks.)
pub static USABLE: AtomicUsize = AtomicUsize::new(0);

#[cold]
fn resolve_usable() {
    if let Some((malloc, _)) = next_in(b"malloc")
        && let Some((object, address)) = next_in(b"malloc_usable_size")
        && core::ptr::eq(malloc, object)
    {
        USABLE.store(address, Relaxed);
    }
}

/// The definition that follows ours in load order; where none follows, the
/// first that is not ours.
fn next(name: &[u8]) -> Option<usize> {
    next_in(name).map(|(_, address)| address)
}

/// The same, with the object that has it.
fn next_in(name: &[u8]) -> Option<(&'static LinkMap, usize)> {
    let own = loader::own()?;
    let mut at = own.next();
    while let Some(map) = at {
        if let Some(address) = map.function(name) {
            return Some((map, address));
        }
        at = map.next();
    }
    let mut at = loader::first();
    while let Some(map) = at {
        if !core::ptr::eq(map, own)
            && let Some(address) = map.function(name)
        {
            return Some((map, address));
        }
        at = map.next();
    }
    None
}

/// Is this form of operator new or delete that of a C++ library in which it is malloc
/// or free, whatever the size?
#[cold]
pub fn is_of_cxx_library(symbol: &[u8]) -> bool {
    next_in(symbol).is_some_and(|(object, _)| {
        let file = object.path().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let names: [&[u8]; 3] = [b"libstdc++.so", b"libc++.so", b"libc++abi.so"];
        names.iter().any(|name| file.starts_with(name))
    })
}
