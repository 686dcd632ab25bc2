//! Waiting at the exit while the recorder looks at the program's memory
//! (`run --leak-check`).
//!
//! When: in a handler that is registered with `__cxa_atexit` before libc's own
//! and before any of the program's, so that it runs after all of them: after
//! the destructors of all objects, too. `quick_exit` waits at its beginning;
//! `_exit` does not wait at all.
//!
//! How long: until the recorder says so, but no longer than [`LONGEST`] without a
//! sign of work of it. A recorder that dies is seen through its robust futex.

use core::sync::atomic::Ordering::*;

use highwater_event::layout::*;

use crate::hooks::real;
use crate::real::REAL;
use crate::{arch, start, sys};

/// Nanoseconds that the exit waits at most for a recorder that lives and does nothing.
const LONGEST: u64 = 30_000_000_000;
/// One sleep, ns: so often it is asked whether the recorder lives.
const SLICE: u64 = 50_000_000;
/// Looks at the recorder's word before it must have answered: at least ten
/// seconds of a processor that pauses for as little as 40 cycles each.
const LOOKS: u64 = 1 << 30;

/// Registers the handler, if the recorder wants to look.
pub fn prepare() {
    let Some(shared) = start::shared() else { return };
    let words = &shared.header().scan;
    // A scan may also be asked for while the program runs.
    words.own.store(&raw const sys::OWN as u64, Release);
    if shared.header().options & OPT_LEAK_CHECK == 0 {
        return;
    }
    words.exit.store(REAL.exit.load(Relaxed) as u64, Relaxed);
    type Handler = extern "C" fn(*mut u8);
    if let Some(register) = real!(cxa_atexit, extern "C" fn(Handler, *mut u8, *mut u8) -> i32) {
        register(handler, core::ptr::null_mut(), core::ptr::null_mut());
    }
}

extern "C" fn handler(_: *mut u8) {
    at(arch::stack_pointer(), false);
}

/// Waits, the first time that the recorded process comes here. `exact`: all
/// above `stack` belongs to the program.
#[cold]
#[inline(never)]
pub fn at(stack: u64, exact: bool) {
    let Some(shared) = start::shared() else { return };
    let header = shared.header();
    if header.options & OPT_LEAK_CHECK == 0 || sys::getpid() != start::owner() || !start::recording() {
        return;
    }
    let words = &header.scan;
    // A second thread that exits meanwhile, or an exit inside an exit, waits for nobody.
    if words.stack.compare_exchange(0, stack, AcqRel, Acquire).is_err() {
        return;
    }
    words.exact.store(u64::from(exact), Relaxed);
    words.parked.store(sys::gettid(), Release);
    header.recorder.doorbell.fetch_add(1, Release);
    // No system call until the recorder has seen that there is no filter.
    let mut looks = 0;
    while matches!(words.answer.load(Acquire), SCAN_NOT_SEEN | SCAN_BEGUN_FILTERED) {
        looks += 1;
        if looks > LOOKS || !shared.recorder_lives() {
            return;
        }
        core::hint::spin_loop();
    }
    if words.answer.load(Acquire) != SCAN_BEGUN {
        return;
    }
    let mut beat = words.beat.load(Relaxed);
    let mut from = sys::monotonic_ns();
    while words.answer.load(Acquire) == SCAN_BEGUN
        && sys::monotonic_ns() - from < LONGEST
        && shared.recorder_lives()
    {
        sys::futex_wait(&words.answer, SCAN_BEGUN, SLICE);
        if words.beat.load(Relaxed) != beat {
            beat = words.beat.load(Relaxed);
            from = sys::monotonic_ns();
        }
    }
}
