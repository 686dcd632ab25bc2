//! Leaving: `_exit`, `_Exit`, `quick_exit`, and the end of `exit`.
//!
//! Nothing has to be saved (all events are outside the process already). The
//! recorder only wants to know that the program left by itself: a process that
//! ends without having said so may have become another program behind our back,
//! by a system call that passed no wrapper.

use core::sync::atomic::Ordering::*;

use super::{real, stub};
use crate::{park, start, sys};

stub!("_exit", stub_exit_now, 1, exit_now);
stub!("_Exit", stub_exit_now_c99, 1, exit_now);
stub!("quick_exit", stub_quick_exit, 1, quick_exit);

fn leaving() {
    // A vfork child that gives up is not the program.
    if let Some(shared) = start::shared()
        && sys::getpid() == start::owner()
    {
        shared.header().agent.leaving.store(1, Release);
    }
}

unsafe extern "C" fn exit_now(code: i32, _sp: u64, _bp: u64) {
    leaving();
    if let Some(real) = real!(exit_now, extern "C" fn(i32)) {
        real(code);
    }
    sys::exit_group(code)
}

unsafe extern "C" fn quick_exit(code: i32, sp: u64, _bp: u64) {
    leaving();
    park::at(sp, true);
    if let Some(real) = real!(quick_exit, extern "C" fn(i32)) {
        real(code);
    }
    sys::exit_group(code)
}

/// The destructor: exit() runs it, and so does the return from main.
#[cfg(highwater_preload)]
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = {
    extern "C" fn destruct() {
        leaving();
    }
    destruct
};
