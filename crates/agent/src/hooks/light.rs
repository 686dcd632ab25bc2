//! The short ways: entry points of a program that is only sampled, or only counted.
//!
//! **A sample.** Most blocks of a sample are not in it. Making one comes down to one
//! comparison of the size with the bytes up to the next mark, freeing one to one byte
//! of the set's filter; both are counted, and the real function is jumped to. So
//! nothing of ours is on the stack, and no register is saved. A realloc is both.
//!
//! **Operator new and delete** of the C++ libraries call malloc and free once each,
//! with the same size and the same address, and those come back to us. Where a first
//! call was seen to do that (see [`learn`]), later ones are not counted here but
//! there: what is not of the sample is jumped over. A block that a mark falls into,
//! and one that may be in the set, goes the way of all hooks, so it is recorded as
//! what it is. (A signal handler that allocates between the two comparisons can
//! bring the mark to the second one; the block is then one of malloc's.)
//!
//! **Counting** is ordinary code, in [`super::counting`].
//!
//! Everything else goes the way of all hooks, with nothing changed: no state yet, a
//! forked child (whose state is zero), a mark, an address that may be in the set, a
//! hook inside a hook ([`Thread::light`] is false then), sizes of zero and such as no
//! allocator has. A call that fails for want of memory counts here as one that did not.
//!
//! Without these modes the price is one comparison with a byte that never changes.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, Ordering::*};

use highwater_event::api::ApiKind;
use highwater_event::layout::{Counts, OPT_COUNT, OPT_SAMPLE, OPT_SELECT, SET_FILTER, Slot};
use highwater_event::sample::Sampler;

use super::{c, counting, cxx};
use crate::real::{self, REAL, Real};
use crate::set::Set;
use crate::thread::Thread;

/// What this process is recorded for: [`SAMPLE`], [`COUNT`], or 0 for anything else.
pub static MODE: AtomicU8 = AtomicU8::new(0);
/// A sample, and nothing else.
const SAMPLE: u8 = 1;
/// Counting alone.
const COUNT: u8 = 2;

/// [`MODE`] for each form of operator new and delete that is known to be malloc or
/// free and nothing else; 0 for the others.
static PLAIN: [AtomicU8; 6] = [const { AtomicU8::new(0) }; 6];
/// 1 where the question was decided.
static ASKED: [AtomicU8; 6] = [const { AtomicU8::new(0) }; 6];

// The filter's index is the low 16 bits of the page number.
const _: () = assert!(SET_FILTER == 1 << 16);

const LIGHT: usize = offset_of!(Thread, light);
const LEFT: usize = offset_of!(Thread, sampler) + Sampler::LEFT;
const FILTER: usize = offset_of!(Thread, set) + Set::FILTER;
const SLOT: usize = offset_of!(Thread, slot);
const MADE: usize = offset_of!(Slot, counts) + offset_of!(Counts, made);
const MADE_BYTES: usize = offset_of!(Slot, counts) + offset_of!(Counts, made_bytes);
const FREED: usize = offset_of!(Slot, counts) + offset_of!(Counts, freed);
const REMADE: usize = offset_of!(Slot, counts) + offset_of!(Counts, remade);

/// [`MODE`] under these options.
pub fn mode(options: u32) -> u8 {
    match options & OPT_SELECT {
        OPT_SAMPLE => SAMPLE,
        OPT_COUNT => COUNT,
        _ => 0,
    }
}

/// The place of an entry point in [`PLAIN`], and its symbol.
fn place(api: ApiKind) -> Option<(usize, &'static [u8])> {
    Some(match api {
        ApiKind::New => (0, b"_Znwm"),
        ApiKind::NewArray => (1, b"_Znam"),
        ApiKind::Delete => (2, b"_ZdlPv"),
        ApiKind::DeleteArray => (3, b"_ZdaPv"),
        ApiKind::DeleteSized => (4, b"_ZdlPvm"),
        ApiKind::DeleteArraySized => (5, b"_ZdaPvm"),
        _ => return None,
    })
}

/// A call of this entry point went to malloc or free, once, with what it got itself:
/// if it is that of a C++ library that always does so, later calls take the short way.
#[cold]
#[inline(never)]
pub fn learn(api: ApiKind) {
    let Some((place, symbol)) = place(api) else { return };
    if let (Some(asked), Some(plain)) = (ASKED.get(place), PLAIN.get(place)) {
        asked.store(1, Relaxed);
        if real::is_of_cxx_library(symbol) {
            plain.store(MODE.load(Relaxed), Release);
        }
    }
}

/// Is there anything to [`learn`] of this entry point?
#[inline(always)]
pub fn wonders(api: ApiKind) -> bool {
    place(api).and_then(|(place, _)| ASKED.get(place)).is_some_and(|asked| asked.load(Relaxed) == 0)
}

/// This thread's state into r8; anything odd goes to 2.
macro_rules! thread {
    () => {
        "mov r8, qword ptr [rip + highwater_thread@GOTTPOFF]
         mov r8, qword ptr fs:[r8]
         test r8, r8
         jz 2b
         cmp byte ptr [r8 + {light}], 0
         je 2b"
    };
}

/// A block of as many bytes as the register says is not in the sample, or goes to 2.
macro_rules! passed {
    ($size:literal) => {
        concat!(
            "test ",
            $size,
            ", ",
            $size,
            "\njz 2b\nmov rcx, qword ptr [r8 + {left}]\nsub rcx, ",
            $size,
            "\njbe 2b"
        )
    };
}

/// Counts it as made; its slot is in r9 then.
macro_rules! made {
    ($size:literal) => {
        concat!(
            "mov qword ptr [r8 + {left}], rcx
             mov r9, qword ptr [r8 + {slot}]
             inc qword ptr [r9 + {made}]
             add qword ptr [r9 + {made_bytes}], ",
            $size
        )
    };
}

/// The block at rdi is not in the set, or goes to 2.
macro_rules! unlisted {
    () => {
        "mov rcx, rdi
         shr rcx, 12
         movzx ecx, cx
         mov rdx, qword ptr [r8 + {filter}]
         cmp byte ptr [rdx + rcx], 0
         jne 2b"
    };
}

/// An exported entry point: the short way `$body`, `$to` for all else, and `$count`
/// where blocks are only counted. `$sp` and `$bp` take what hooks are told of their
/// caller, behind the function's own arguments.
macro_rules! short {
    ($symbol:literal, $name:ident, $sp:literal, $bp:literal, $to:path, $count:path,
     [$($body:expr),*], $real:ident { $($operand:ident = $value:expr),* }) => {
        #[doc = concat!("`", $symbol, "`")]
        #[unsafe(naked)]
        #[cfg_attr(highwater_preload, unsafe(export_name = $symbol))]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "endbr64",
                "cmp byte ptr [rip + {mode}], {sample}",
                "jae 3f",
                "2:",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                "jmp {to}",
                "5:",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                "jmp {count}",
                "3:",
                "jne 5b",
                thread!(),
                $($body,)*
                "jmp qword ptr [rip + {real} + {function}]",
                mode = sym MODE,
                sample = const SAMPLE,
                to = sym $to,
                count = sym $count,
                real = sym REAL,
                function = const offset_of!(Real, $real),
                light = const LIGHT,
                $($operand = const $value,)*
            )
        }
    };
}

short!("malloc", stub_malloc, "rsi", "rdx", c::malloc, counting::malloc,
    [passed!("rdi"), made!("rdi")],
    malloc { left = LEFT, slot = SLOT, made = MADE, made_bytes = MADE_BYTES });

short!("calloc", stub_calloc, "rdx", "rcx", c::calloc, counting::calloc,
    ["mov rax, rdi", "mul rsi", "jo 2b", passed!("rax"), made!("rax")],
    calloc { left = LEFT, slot = SLOT, made = MADE, made_bytes = MADE_BYTES });

short!("free", stub_free, "rsi", "rdx", c::free, counting::free,
    ["test rdi, rdi", "jz 2b", unlisted!(), "mov r9, qword ptr [r8 + {slot}]", "inc qword ptr [r9 + {freed}]"],
    free { filter = FILTER, slot = SLOT, freed = FREED });

short!("realloc", stub_realloc, "rdx", "rcx", c::realloc, counting::realloc,
    ["test rdi, rdi", "jz 4f", unlisted!(), "4:", passed!("rsi"), made!("rsi"),
     "test rdi, rdi", "jz 6f", "inc qword ptr [r9 + {freed}]", "inc qword ptr [r9 + {remade}]", "6:"],
    realloc { left = LEFT, slot = SLOT, made = MADE, made_bytes = MADE_BYTES, filter = FILTER, freed = FREED,
        remade = REMADE });

/// An exported form of operator new that takes a size, or of operator delete, which
/// malloc or free counts where it is plain. (A size of zero is not: the library asks
/// for one byte then.)
macro_rules! plain {
    (new $symbol:literal, $name:ident, $place:literal, $to:path, $real:ident) => {
        plain!(@ $symbol, $name, $place, $to, $real,
            ["test rdi, rdi", "jz 2b"], ["mov rcx, qword ptr [r8 + {at}]", "cmp rdi, rcx", "jae 2b"], [], LEFT);
    };
    (delete $symbol:literal, $name:ident, $place:literal, $sp:literal, $bp:literal, $to:path, $real:ident) => {
        plain!(@ $symbol, $name, $place, $to, $real, [],
            ["mov r9, rdi", "shr r9, 12", "movzx r9d, r9w", "mov rcx, qword ptr [r8 + {at}]",
             "cmp byte ptr [rcx + r9], 0", "jne 2b"],
            [concat!("mov ", $sp, ", rsp"), concat!("mov ", $bp, ", rbp")], FILTER);
    };
    (@ $symbol:literal, $name:ident, $place:literal, $to:path, $real:ident,
     [$($first:expr),*], [$($sampled:expr),*], [$($arguments:expr),*], $at:expr) => {
        #[doc = concat!("`", $symbol, "`")]
        #[unsafe(naked)]
        #[cfg_attr(highwater_preload, unsafe(export_name = $symbol))]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "endbr64",
                "cmp byte ptr [rip + {plain} + {place}], 0",
                "jne 3f",
                "2:",
                $($arguments,)*
                "jmp {to}",
                "3:",
                $($first,)*
                "cmp byte ptr [rip + {plain} + {place}], {sample}",
                "jne 5f",
                thread!(),
                $($sampled,)*
                "5:",
                "jmp qword ptr [rip + {real} + {function}]",
                plain = sym PLAIN,
                place = const $place,
                sample = const SAMPLE,
                to = sym $to,
                real = sym REAL,
                function = const offset_of!(Real, $real),
                light = const LIGHT,
                at = const $at,
            )
        }
    };
}

plain!(new "_Znwm", stub_new, 0, cxx::stub_new, new);
plain!(new "_Znam", stub_new_array, 1, cxx::stub_new_array, new_array);
plain!(delete "_ZdlPv", stub_delete, 2, "rsi", "rdx", cxx::delete, delete);
plain!(delete "_ZdaPv", stub_delete_array, 3, "rsi", "rdx", cxx::delete_array, delete_array);
plain!(delete "_ZdlPvm", stub_delete_sized, 4, "rdx", "rcx", cxx::delete_sized, delete_sized);
plain!(delete "_ZdaPvm", stub_delete_array_sized, 5, "rdx", "rcx", cxx::delete_array_sized, delete_array_sized);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plain_form_has_a_place_of_its_own() {
        let mut places: Vec<usize> =
            ApiKind::ALL.iter().filter_map(|&api| place(api)).map(|(place, _)| place).collect();
        places.sort_unstable();
        assert_eq!(places, (0..PLAIN.len()).collect::<Vec<_>>());
        assert_eq!(place(ApiKind::NewAligned), None);
    }

    #[test]
    fn a_mode_with_another_one_beside_it_has_no_short_way() {
        use highwater_event::layout::OPT_MIN_SIZE;
        assert_eq!([mode(OPT_SAMPLE), mode(OPT_COUNT)], [SAMPLE, COUNT]);
        assert_eq!([mode(0), mode(OPT_MIN_SIZE), mode(OPT_SAMPLE | OPT_MIN_SIZE)], [0; 3]);
    }
}
