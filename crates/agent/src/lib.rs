//! What runs inside the target.
//!
//! Constraints, in the order in which they decide:
//!
//! * **The target must never depend on us.** No thread, no descriptor kept, no
//!   signal, no lock across the real allocator, nothing printed, errno kept, no
//!   block padded, no allocation. If the recorder dies, the target runs on.
//! * **One shared object for every C library.** No std, no DT_NEEDED entry: what
//!   we need of the C library is found by reading the loader's own tables.
//! * **The hot path is a thread writing into its own ring.** Everything rare is
//!   out of line and `#[cold]`.
//!
//! The crate is compiled as an ordinary library for tests and lints, and, by
//! the build script of `crates/cli` with `--cfg highwater_preload`, as the
//! shared object that exports the heap's entry points.
//!
//! | module | holds |
//! |---|---|
//! | [`arch`] | what depends on the processor: entry stubs, TLS, stamp, system calls |
//! | [`loader`] | the dynamic loader's tables: objects, symbols |
//! | [`real`] | the functions that we stand in front of |
//! | [`start`] | finding the recorder, mapping its memory, cleaning the environment |
//! | [`thread`] | a thread's private state, its slot and ring |
//! | [`record`] | events: the hot path |
//! | [`stack`] | from registers to a node: walk and interning |
//! | [`unwind`] | rules compiled from `.eh_frame`, and the walk along them |
//! | [`modules`] | loaded objects, found when an address in them is met |
//! | [`hooks`] | the entry points themselves |
#![cfg_attr(highwater_preload, no_std)]
#![allow(clippy::missing_safety_doc)]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the agent knows x86-64 only; add arch/<machine>.rs");

#[path = "arch/x86_64.rs"]
pub mod arch;
pub mod hooks;
pub mod intern;
pub mod loader;
pub mod maps;
pub mod modules;
pub mod park;
pub mod real;
pub mod record;
pub mod select;
pub mod set;
pub mod stack;
pub mod start;
pub mod sys;
pub mod thread;
pub mod unwind;

#[cfg(highwater_preload)]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing in the agent panics on purpose. If something does, the least harm
    // is to stop this process where a debugger can see it.
    sys::abort()
}

// The precompiled core refers to the personality routine of unwinding, which
// `panic=abort` never calls. It must stay hidden: exported, it would take the
// place of the real one in programs that load std as a shared library.
#[cfg(highwater_preload)]
core::arch::global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    "rust_eh_personality:",
    "ud2"
);
