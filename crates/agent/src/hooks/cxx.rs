//! operator new and operator delete, all forms.
//!
//! The throwing forms call the real *nothrow* form; where that returns null,
//! the stub restores the arguments and jumps to the real throwing form. So an
//! exception never crosses a frame of ours, and no state of ours is set when
//! one is thrown. What real operator new allocates through malloc comes back
//! through our malloc while the flag is set; it is the same block and is
//! recorded once, as `new`.

use core::mem::offset_of;

use highwater_event::api::ApiKind;
use highwater_event::layout::OPT_SELECT;

use super::{rare, real, stub};
use crate::real::{REAL, Real};
use crate::record::{self, Access, Caller};
use crate::select;

type Ptr = u64;

/// Stands for `std::nothrow`: an empty object of which only the type counts.
static NOTHROW: u8 = 0;

fn nothrow() -> u64 {
    &raw const NOTHROW as u64
}

/// A throwing form: `$imp` returns null for "let the real one do it".
macro_rules! throwing {
    ($symbol:literal, $name:ident, $sp:literal, $bp:literal, $real:ident, $imp:path) => {
        throwing!(@ [cfg_attr(highwater_preload, unsafe(export_name = $symbol))] $name, $sp, $bp, $real, $imp);
    };
    // Reached through [`super::light`].
    ($name:ident, $sp:literal, $bp:literal, $real:ident, $imp:path) => {
        throwing!(@ [doc = ""] $name, $sp, $bp, $real, $imp);
    };
    (@ [$($exported:tt)*] $name:ident, $sp:literal, $bp:literal, $real:ident, $imp:path) => {
        #[doc = concat!("`", stringify!($imp), "`")]
        #[unsafe(naked)]
        #[$($exported)*]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "sub rsp, 24",
                ".cfi_adjust_cfa_offset 24",
                "mov [rsp], rdi",
                "mov [rsp + 8], rsi",
                concat!("lea ", $sp, ", [rsp + 24]"),
                concat!("mov ", $bp, ", rbp"),
                "call {imp}",
                "test rax, rax",
                "jz 2f",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "ret",
                ".cfi_adjust_cfa_offset 24",
                "2:",
                "mov rdi, [rsp]",
                "mov rsi, [rsp + 8]",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "jmp qword ptr [rip + {table} + {offset}]",
                ".cfi_endproc",
                imp = sym $imp,
                table = sym REAL,
                offset = const offset_of!(Real, $real),
            )
        }
    };
}

throwing!(stub_new, "rsi", "rdx", new, new);
throwing!(stub_new_array, "rsi", "rdx", new_array, new_array);
throwing!("_ZnwmSt11align_val_t", stub_new_aligned, "rdx", "rcx", new_aligned, new_aligned);
throwing!("_ZnamSt11align_val_t", stub_new_array_aligned, "rdx", "rcx", new_array_aligned, new_array_aligned);

/// Calls the real nothrow form and records; 0 hands over to the throwing one.
#[inline(always)]
fn try_new(caller: Caller, size: u64, api: ApiKind, real: impl FnOnce() -> Ptr) -> Ptr {
    match record::access(caller) {
        Access::Free(thread) => {
            if thread.options & OPT_SELECT != 0 {
                // Below another hook: libstdc++'s nothrow form calls the throwing one.
                // To call the nothrow form here again would have no end.
                if size >= thread.pass {
                    return 0;
                }
                // SAFETY: this thread's own state.
                return unsafe { select::alloc_around(thread, caller, size, api, real) };
            }
            thread.begin(caller);
            thread.expect(size);
            let ptr = real();
            thread.got(ptr);
            if ptr != 0 {
                thread.alloc::<true>(caller, ptr, size, api);
            }
            thread.end();
            ptr
        }
        Access::Nested(_) | Access::Off => 0,
    }
}

macro_rules! throwing_impl {
    ($name:ident, $real:ident, $nothrow:ident, $api:ident) => {
        unsafe extern "C" fn $name(size: u64, sp: u64, bp: u64) -> Ptr {
            // The stub's jump needs the throwing form in the table.
            let _ = real!($real, extern "C" fn(u64) -> Ptr);
            let Some(real) = real!($nothrow, extern "C" fn(u64, u64) -> Ptr) else { return 0 };
            try_new(Caller { sp, bp }, size, ApiKind::$api, || real(size, nothrow()))
        }
    };
    (aligned $name:ident, $real:ident, $nothrow:ident, $api:ident) => {
        unsafe extern "C" fn $name(size: u64, align: u64, sp: u64, bp: u64) -> Ptr {
            let _ = real!($real, extern "C" fn(u64, u64) -> Ptr);
            let Some(real) = real!($nothrow, extern "C" fn(u64, u64, u64) -> Ptr) else { return 0 };
            try_new(Caller { sp, bp }, size, ApiKind::$api, || real(size, align, nothrow()))
        }
    };
}

throwing_impl!(new, new, new_nothrow, New);
throwing_impl!(new_array, new_array, new_array_nothrow, NewArray);
throwing_impl!(aligned new_aligned, new_aligned, new_aligned_nothrow, NewAligned);
throwing_impl!(aligned new_array_aligned, new_array_aligned, new_array_aligned_nothrow, NewArrayAligned);

macro_rules! nothrow_new {
    ($symbol:literal, $stub:ident, $name:ident, $real:ident, $api:ident) => {
        stub!($symbol, $stub, 2, $name);
        unsafe extern "C" fn $name(size: u64, tag: u64, sp: u64, bp: u64) -> Ptr {
            let Some(real) = real!($real, extern "C" fn(u64, u64) -> Ptr) else { return 0 };
            rare::alloc_around(Caller { sp, bp }, size, ApiKind::$api, || real(size, tag))
        }
    };
    (aligned $symbol:literal, $stub:ident, $name:ident, $real:ident, $api:ident) => {
        stub!($symbol, $stub, 3, $name);
        unsafe extern "C" fn $name(size: u64, align: u64, tag: u64, sp: u64, bp: u64) -> Ptr {
            let Some(real) = real!($real, extern "C" fn(u64, u64, u64) -> Ptr) else { return 0 };
            rare::alloc_around(Caller { sp, bp }, size, ApiKind::$api, || real(size, align, tag))
        }
    };
}

nothrow_new!("_ZnwmRKSt9nothrow_t", stub_new_nothrow, new_nothrow, new_nothrow, NewNothrow);
nothrow_new!(
    "_ZnamRKSt9nothrow_t",
    stub_new_array_nothrow,
    new_array_nothrow,
    new_array_nothrow,
    NewArrayNothrow
);
nothrow_new!(aligned "_ZnwmSt11align_val_tRKSt9nothrow_t", stub_new_aligned_nothrow, new_aligned_nothrow,
    new_aligned_nothrow, NewAlignedNothrow);
nothrow_new!(aligned "_ZnamSt11align_val_tRKSt9nothrow_t", stub_new_array_aligned_nothrow,
    new_array_aligned_nothrow, new_array_aligned_nothrow, NewArrayAlignedNothrow);

macro_rules! delete {
    // Reached through [`super::light`], whose caller's promises hold here.
    ($how:ident 1, $name:ident, $api:ident) => {
        #[doc = stringify!($name)]
        pub(super) unsafe extern "C" fn $name(ptr: Ptr, sp: u64, bp: u64) {
            let Some(real) = real!($name, extern "C" fn(Ptr)) else { return };
            $how::free_around(Caller { sp, bp }, ptr, ApiKind::$api, || real(ptr));
        }
    };
    ($how:ident 2, $symbol:literal, $stub:ident, $name:ident, $api:ident) => {
        stub!($symbol, $stub, 2, $name);
        delete!($how 2, $name, $api);
    };
    ($how:ident 2, $name:ident, $api:ident) => {
        #[doc = stringify!($name)]
        pub(super) unsafe extern "C" fn $name(ptr: Ptr, second: u64, sp: u64, bp: u64) {
            let Some(real) = real!($name, extern "C" fn(Ptr, u64)) else { return };
            $how::free_around(Caller { sp, bp }, ptr, ApiKind::$api, || real(ptr, second));
        }
    };
    ($how:ident 3, $symbol:literal, $stub:ident, $name:ident, $api:ident) => {
        stub!($symbol, $stub, 3, $name);
        unsafe extern "C" fn $name(ptr: Ptr, second: u64, third: u64, sp: u64, bp: u64) {
            let Some(real) = real!($name, extern "C" fn(Ptr, u64, u64)) else { return };
            $how::free_around(Caller { sp, bp }, ptr, ApiKind::$api, || real(ptr, second, third));
        }
    };
}

delete!(record 1, delete, Delete);
delete!(record 1, delete_array, DeleteArray);
delete!(record 2, delete_sized, DeleteSized);
delete!(record 2, delete_array_sized, DeleteArraySized);
delete!(rare 2, "_ZdlPvSt11align_val_t", stub_delete_aligned, delete_aligned, DeleteAligned);
delete!(rare 2, "_ZdaPvSt11align_val_t", stub_delete_array_aligned, delete_array_aligned, DeleteArrayAligned);
delete!(rare 3, "_ZdlPvmSt11align_val_t", stub_delete_sized_aligned, delete_sized_aligned, DeleteSizedAligned);
delete!(rare 3,
    "_ZdaPvmSt11align_val_t",
    stub_delete_array_sized_aligned,
    delete_array_sized_aligned,
    DeleteArraySizedAligned
);
delete!(rare 2, "_ZdlPvRKSt9nothrow_t", stub_delete_nothrow, delete_nothrow, DeleteNothrow);
delete!(rare 2, "_ZdaPvRKSt9nothrow_t", stub_delete_array_nothrow, delete_array_nothrow, DeleteArrayNothrow);
delete!(rare 3,
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    stub_delete_aligned_nothrow,
    delete_aligned_nothrow,
    DeleteAlignedNothrow
);
delete!(rare 3,
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    stub_delete_array_aligned_nothrow,
    delete_array_aligned_nothrow,
    DeleteArrayAlignedNothrow
);
