//! Address space: mmap, munmap, mremap, brk, sbrk, and dlclose.
//!
//! What the C library maps for itself does not pass here; the samples of the
//! resident set show it all the same.

use highwater_event::codec::SpecialKind;

use super::{real, stub};
use crate::modules;
use crate::record::{self, Caller};

const FAILED: u64 = u64::MAX;

/// Six arguments fill the registers: the two more go over the stack.
macro_rules! mmap_stub {
    ($symbol:literal, $name:ident) => {
        #[doc = concat!("`", $symbol, "`")]
        #[unsafe(naked)]
        #[cfg_attr(highwater_preload, unsafe(export_name = $symbol))]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "mov r11, rsp",
                "sub rsp, 8",
                "push rbp",
                "push r11",
                ".cfi_adjust_cfa_offset 24",
                "call {to}",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "ret",
                ".cfi_endproc",
                to = sym mmap,
            )
        }
    };
}

mmap_stub!("mmap", stub_mmap);
mmap_stub!("mmap64", stub_mmap64);
stub!("munmap", stub_munmap, 2, munmap);
stub!("brk", stub_brk, 1, brk);
stub!("sbrk", stub_sbrk, 1, sbrk);
stub!("dlclose", stub_dlclose, 1, dlclose);

/// Five arguments and the return slot: rbp is the sixth and our seventh.
#[doc = "`mremap`"]
#[unsafe(naked)]
#[cfg_attr(highwater_preload, unsafe(export_name = "mremap"))]
pub unsafe extern "C" fn stub_mremap() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "mov r9, rsp",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        "call {to}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        to = sym mremap,
    )
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn mmap(
    at: u64,
    len: u64,
    prot: i32,
    flags: i32,
    fd: i32,
    offset: i64,
    sp: u64,
    bp: u64,
) -> u64 {
    type Fn = extern "C" fn(u64, u64, i32, i32, i32, i64) -> u64;
    let Some(real) = real!(mmap, Fn) else { return FAILED };
    let result = real(at, len, prot, flags, fd, offset);
    if result != FAILED {
        record::mapping(Caller { sp, bp }, SpecialKind::Mmap, &[result, len]);
    }
    result
}

unsafe extern "C" fn munmap(at: u64, len: u64, sp: u64, bp: u64) -> i32 {
    let Some(real) = real!(munmap, extern "C" fn(u64, u64) -> i32) else { return -1 };
    let result = real(at, len);
    if result == 0 {
        record::mapping(Caller { sp, bp }, SpecialKind::Munmap, &[at, len]);
    }
    result
}

unsafe extern "C" fn mremap(old: u64, old_len: u64, len: u64, flags: i32, at: u64, sp: u64, bp: u64) -> u64 {
    type Fn = extern "C" fn(u64, u64, u64, i32, u64) -> u64;
    let Some(real) = real!(mremap, Fn) else { return FAILED };
    let result = real(old, old_len, len, flags, at);
    if result != FAILED {
        record::mapping(Caller { sp, bp }, SpecialKind::Mremap, &[old, old_len, result, len]);
    }
    result
}

unsafe extern "C" fn brk(at: u64, sp: u64, bp: u64) -> i32 {
    let Some(real) = real!(brk, extern "C" fn(u64) -> i32) else { return -1 };
    let before = real!(sbrk, extern "C" fn(i64) -> u64).map_or(0, |sbrk| sbrk(0));
    let result = real(at);
    if result == 0 {
        record::mapping(Caller { sp, bp }, SpecialKind::Brk, &[before, at]);
    }
    result
}

unsafe extern "C" fn sbrk(by: i64, sp: u64, bp: u64) -> u64 {
    let Some(real) = real!(sbrk, extern "C" fn(i64) -> u64) else { return FAILED };
    let result = real(by);
    if result != FAILED && by != 0 {
        record::mapping(Caller { sp, bp }, SpecialKind::Brk, &[result, result.wrapping_add(by as u64)]);
    }
    result
}

unsafe extern "C" fn dlclose(handle: u64, _sp: u64, _bp: u64) -> i32 {
    let Some(real) = real!(dlclose, extern "C" fn(u64) -> i32) else { return -1 };
    modules::before_unload();
    let result = real(handle);
    modules::after_unload();
    result
}
