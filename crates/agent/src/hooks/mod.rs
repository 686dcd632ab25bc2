//! The entry points.
//!
//! Each is a stub of a few instructions that notes where its return slot lies
//! and what rbp holds, and then jumps into an ordinary function: that function
//! returns straight to the caller, and a walk begins at the caller's own frame,
//! whatever our frames look like.
//!
//! The symbols are exported only from the shared object (`highwater_preload`).

pub mod by_hand;
pub mod c;
pub mod counting;
pub mod cxx;
pub mod exec;
pub mod exit;
pub mod light;
pub mod map;
pub mod prefixed;
pub mod rare;

/// An address in [`crate::real::REAL`] as a function of the given type; `None`
/// where the program has no such function.
macro_rules! real {
    ($field:ident, $type:ty) => {{
        let mut address = $crate::real::REAL.$field.load(core::sync::atomic::Ordering::Relaxed);
        if address == 0 {
            $crate::start::resolve();
            address = $crate::real::REAL.$field.load(core::sync::atomic::Ordering::Relaxed);
        }
        if address == 0 {
            None
        } else {
            // SAFETY: the function that bears this name in the C or C++ library.
            Some(unsafe { core::mem::transmute::<usize, $type>(address) })
        }
    }};
}
pub(crate) use real;

/// Defines an exported stub that jumps to `$to` with two more arguments: the
/// address of the return slot and rbp.
macro_rules! stub {
    ($symbol:literal, $name:ident, 0, $to:path) => { stub!(@ $symbol, $name, "rdi", "rsi", $to); };
    ($symbol:literal, $name:ident, 1, $to:path) => { stub!(@ $symbol, $name, "rsi", "rdx", $to); };
    ($symbol:literal, $name:ident, 2, $to:path) => { stub!(@ $symbol, $name, "rdx", "rcx", $to); };
    ($symbol:literal, $name:ident, 3, $to:path) => { stub!(@ $symbol, $name, "rcx", "r8", $to); };
    ($symbol:literal, $name:ident, 4, $to:path) => { stub!(@ $symbol, $name, "r8", "r9", $to); };
    (@ $symbol:literal, $name:ident, $sp:literal, $bp:literal, $to:path) => {
        #[doc = concat!("`", $symbol, "`")]
        #[unsafe(naked)]
        #[cfg_attr(highwater_preload, unsafe(export_name = $symbol))]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "endbr64",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $bp, ", rbp"),
                "jmp {to}",
                to = sym $to,
            )
        }
    };
}
pub(crate) use stub;
