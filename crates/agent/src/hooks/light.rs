//! malloc and free of a program that is only sampled, in a dozen instructions.
//!
//! Most blocks of a sample are not in it. Their malloc comes down to one
//! comparison of the size with the bytes up to the next mark, their free to one
//! byte of the set's filter; both are counted, and the real function is jumped
//! to. So nothing of ours is on the stack, and no register is saved. Everything
//! else goes the way of all hooks, with nothing changed: no state yet, a forked
//! child (whose state is zero), a mark, an address that may be in the set, a
//! hook inside a hook ([`Thread::light`] is false then), sizes of zero and such
//! as no allocator has.
//!
//! A malloc that fails for want of memory counts here as a block made.
//!
//! Without `--sample` the price is one comparison with a byte that never changes.

use core::mem::offset_of;
use core::sync::atomic::AtomicU8;

use highwater_event::layout::{Counts, SET_FILTER, Slot};
use highwater_event::sample::Sampler;

use super::c;
use crate::real::{REAL, Real};
use crate::set::Set;
use crate::thread::Thread;

/// 1 where this process is sampled and nothing else is asked for.
pub static SAMPLED: AtomicU8 = AtomicU8::new(0);

// The filter's index is the low 16 bits of the page number.
const _: () = assert!(SET_FILTER == 1 << 16);

/// `malloc`
#[unsafe(naked)]
#[cfg_attr(highwater_preload, unsafe(export_name = "malloc"))]
pub unsafe extern "C" fn stub_malloc() {
    core::arch::naked_asm!(
        "endbr64",
        "cmp byte ptr [rip + {sampled}], 0",
        "jne 3f",
        "2:",
        "mov rsi, rsp",
        "mov rdx, rbp",
        "jmp {to}",
        "3:",
        "mov rax, qword ptr [rip + highwater_thread@GOTTPOFF]",
        "mov rax, qword ptr fs:[rax]",
        "test rax, rax",
        "jz 2b",
        "cmp byte ptr [rax + {light}], 0",
        "je 2b",
        // 1 <= size < left, in one unsigned comparison.
        "mov rcx, qword ptr [rax + {left}]",
        "lea rdx, [rdi - 1]",
        "dec rcx",
        "cmp rdx, rcx",
        "jae 2b",
        "sub qword ptr [rax + {left}], rdi",
        "mov rcx, qword ptr [rax + {slot}]",
        "inc qword ptr [rcx + {made}]",
        "add qword ptr [rcx + {made_bytes}], rdi",
        "jmp qword ptr [rip + {real} + {malloc}]",
        sampled = sym SAMPLED,
        to = sym c::malloc,
        light = const offset_of!(Thread, light),
        left = const offset_of!(Thread, sampler) + Sampler::LEFT,
        slot = const offset_of!(Thread, slot),
        made = const offset_of!(Slot, counts) + offset_of!(Counts, made),
        made_bytes = const offset_of!(Slot, counts) + offset_of!(Counts, made_bytes),
        real = sym REAL,
        malloc = const offset_of!(Real, malloc),
    )
}

/// `free`
#[unsafe(naked)]
#[cfg_attr(highwater_preload, unsafe(export_name = "free"))]
pub unsafe extern "C" fn stub_free() {
    core::arch::naked_asm!(
        "endbr64",
        "cmp byte ptr [rip + {sampled}], 0",
        "jne 3f",
        "2:",
        "mov rsi, rsp",
        "mov rdx, rbp",
        "jmp {to}",
        "3:",
        "test rdi, rdi",
        "jz 2b",
        "mov rax, qword ptr [rip + highwater_thread@GOTTPOFF]",
        "mov rax, qword ptr fs:[rax]",
        "test rax, rax",
        "jz 2b",
        "cmp byte ptr [rax + {light}], 0",
        "je 2b",
        "mov rcx, rdi",
        "shr rcx, 12",
        "movzx ecx, cx",
        "mov rdx, qword ptr [rax + {filter}]",
        "cmp byte ptr [rdx + rcx], 0",
        "jne 2b",
        "mov rcx, qword ptr [rax + {slot}]",
        "inc qword ptr [rcx + {freed}]",
        "jmp qword ptr [rip + {real} + {free}]",
        sampled = sym SAMPLED,
        to = sym c::free,
        light = const offset_of!(Thread, light),
        filter = const offset_of!(Thread, set) + Set::FILTER,
        slot = const offset_of!(Thread, slot),
        freed = const offset_of!(Slot, counts) + offset_of!(Counts, freed),
        real = sym REAL,
        free = const offset_of!(Real, free),
    )
}
