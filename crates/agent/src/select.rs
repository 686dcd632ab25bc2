//! Blocks that leave no event: sampling, `--min-size`, and counting alone.
//!
//! Every operation is counted, in the thread's own cache line of its slot; what
//! is chosen is recorded as always. Which frees belong to recorded blocks:
//!
//! * Sampling: those of the addresses in the shared [`Set`](crate::set::Set).
//! * `--min-size`: a block whose usable size is below the limit was smaller still
//!   when it was asked for. Where the usable size does not say it (the few sizes
//!   just below the limit, and what did not come from malloc itself), the address
//!   of the small block is in the set. If the set is full the small block is
//!   recorded: one event too many, and nothing wrong.
//!
//! Functions that call malloc or free inside (operator new, posix_memalign, …)
//! are counted once: [`Thread::pass`] tells the inner hook that the outer one
//! has the block, [`Thread::deleting`] names the block of an outer free. A block
//! that is smaller than what the outer hook was asked for is another one: where
//! operator new fails, it makes an exception object on its way out.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::*;

use highwater_event::api::{ApiKind, Family};
use highwater_event::codec::SpecialKind;
use highwater_event::layout::*;

use crate::hooks::light;
use crate::record::{Access, Caller, access, usable};
use crate::start;
use crate::thread::{self, Thread};

/// [`Thread::pass`] of a thread in which no hook waits for a block.
pub const NO_PASS: u64 = u64::MAX;

/// Adds to a counter that only this thread writes.
#[inline(always)]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// The usable size of a block that malloc itself made.
#[inline(always)]
fn usable_of(ptr: u64, api: ApiKind) -> Option<u64> {
    if matches!(api.family(), Family::C) { usable(ptr) } else { None }
}

/// Does this thread count, and record not all?
#[inline(always)]
pub fn applies() -> bool {
    // SAFETY: null, or this thread's own state.
    match unsafe { thread::current().as_ref() } {
        Some(thread) => thread.options & OPT_SELECT != 0,
        None => first_applies(),
    }
}

#[cold]
#[inline(never)]
fn first_applies() -> bool {
    start::recording() && start::shared().is_some_and(|shared| shared.header().options & OPT_SELECT != 0)
}

impl Thread {
    /// What this thread has counted.
    #[inline(always)]
    pub fn counts(&self) -> &'static Counts {
        // SAFETY: the slot is ours and stays mapped.
        unsafe { &(*self.slot).counts }
    }

    /// Live bytes by this thread, and what all threads have together in batches.
    #[inline(always)]
    pub fn add_live(&mut self, bytes: u64) {
        let counts = self.counts();
        let delta = counts.delta.load(Relaxed).wrapping_add(bytes as i64);
        counts.delta.store(delta, Relaxed);
        if delta > counts.most.load(Relaxed) {
            counts.most.store(delta, Relaxed);
        }
        if delta.unsigned_abs() >= COUNT_BATCH {
            self.settle_live();
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_live(&mut self) {
        let Some(shared) = start::shared() else { return };
        let (counts, all) = (self.counts(), &shared.header().live);
        let before = all.bytes.fetch_add(counts.delta.swap(0, Relaxed), AcqRel);
        all.peak.fetch_max(before.wrapping_add(counts.most.swap(0, Relaxed)), AcqRel);
    }

    /// The events of a sample are too far apart to share a reading of the clock.
    fn read_clock(&mut self) {
        if self.options & OPT_SAMPLE != 0 {
            self.stamp_credit = 0;
        }
    }

    /// Counts a block that was made, and says whether it is to be recorded.
    #[inline(always)]
    fn chooses(&mut self, ptr: u64, size: u64, api: ApiKind) -> bool {
        let counts = self.counts();
        add(&counts.made, 1);
        add(&counts.made_bytes, size);
        if self.options & (OPT_MIN_SIZE | OPT_COUNT) != 0 {
            if self.options & OPT_COUNT != 0 {
                return false;
            }
            if size < self.min_size {
                return self.keeps_small(ptr, size, api);
            }
            if self.options & OPT_SAMPLE == 0 {
                return true;
            }
        }
        self.sampler.take(size) && self.keeps_sample(ptr)
    }

    #[inline(never)]
    fn keeps_small(&mut self, ptr: u64, size: u64, api: ApiKind) -> bool {
        // A sample's frees are told by the set; else the free must be known for
        // one of a small block.
        if self.options & OPT_SAMPLE == 0
            && usable_of(ptr, api).is_none_or(|usable| usable >= self.min_size)
            && !self.set.insert(ptr)
        {
            return true;
        }
        let counts = self.counts();
        add(&counts.small, 1);
        add(&counts.small_bytes, size);
        false
    }

    #[cold]
    #[inline(never)]
    fn keeps_sample(&mut self, ptr: u64) -> bool {
        let kept = self.set.insert(ptr);
        if !kept {
            start::count(Counter::SampleFull, 1);
        }
        kept
    }

    /// Was the block that is about to go recorded? Takes it out of the set.
    #[inline(always)]
    fn recorded(&mut self, ptr: u64, api: ApiKind) -> Recorded {
        let listed = self.set.may_hold(ptr) && self.set.remove(ptr);
        if self.options & OPT_SAMPLE != 0 {
            return Recorded { listed, yes: listed };
        }
        let yes = !listed && usable_of(ptr, api).is_none_or(|usable| usable >= self.min_size);
        Recorded { listed, yes }
    }

    #[cold]
    #[inline(never)]
    fn record_alloc(&mut self, caller: Caller, ptr: u64, size: u64, api: ApiKind) {
        self.begin(caller);
        self.read_clock();
        self.alloc::<true>(caller, ptr, size, api);
        self.end();
    }

    #[cold]
    #[inline(never)]
    fn record_free(&mut self, caller: Caller, ptr: u64, api: ApiKind) {
        self.begin(caller);
        self.read_clock();
        self.free::<true>(caller, ptr, api);
        self.end();
    }
}

/// What is known of a block that is about to go.
#[derive(Clone, Copy)]
struct Recorded {
    /// Its address was in the set.
    listed: bool,
    /// The trace has it.
    yes: bool,
}

/// A block came into being.
#[inline(always)]
pub fn alloc(thread: &mut Thread, caller: Caller, ptr: u64, size: u64, api: ApiKind) {
    if size >= thread.pass {
        return inner_alloc(thread, ptr, size, api);
    }
    if thread.options & OPT_COUNT != 0 {
        thread.add_live(usable_of(ptr, api).unwrap_or(0));
    }
    if thread.chooses(ptr, size, api) {
        thread.record_alloc(caller, ptr, size, api);
    }
}

/// The block of an outer hook, which counts it.
#[inline(never)]
fn inner_alloc(thread: &mut Thread, ptr: u64, size: u64, api: ApiKind) {
    thread.pass = NO_PASS;
    thread.passed = (ptr, size);
    if thread.options & OPT_COUNT != 0 {
        thread.add_live(usable_of(ptr, api).unwrap_or(0));
    }
}

/// The same while a hook is at work below us on this stack.
#[cold]
#[inline(never)]
pub fn nested_alloc(thread: &mut Thread, ptr: u64, size: u64, api: ApiKind) {
    if size >= thread.pass {
        return inner_alloc(thread, ptr, size, api);
    }
    if thread.options & OPT_COUNT != 0 {
        thread.add_live(usable_of(ptr, api).unwrap_or(0));
    }
    if thread.chooses(ptr, size, api) {
        thread.push_nested(ptr, size, api);
    }
}

/// An allocation whose real function may come back through a hook.
///
/// # Safety
/// `thread` is the calling thread's own state. It is a plain pointer since the
/// hooks below `real` read and write the same state: a reference that lives
/// through the call would let the compiler forget what is stored in front of it.
#[inline(always)]
pub unsafe fn alloc_around(
    thread: *mut Thread,
    caller: Caller,
    size: u64,
    api: ApiKind,
    real: impl FnOnce() -> u64,
) -> u64 {
    // SAFETY: the caller's promise; each reference ends with its statement.
    unsafe {
        if size >= (*thread).pass {
            // Below another hook (aligned operator new calls aligned_alloc), whose block it is.
            let ptr = real();
            if ptr != 0 && size >= (*thread).pass {
                inner_alloc(&mut *thread, ptr, size, api);
            }
            return ptr;
        }
        let light = core::mem::replace(&mut (*thread).light, false);
        // A handler of operator new's may allocate while another call waits for its block.
        let outer = core::mem::replace(&mut (*thread).pass, size);
        let ptr = real();
        (*thread).light = light;
        let unseen = core::mem::replace(&mut (*thread).pass, outer) != NO_PASS;
        if ptr != 0 {
            made_around(&mut *thread, caller, ptr, size, api, unseen);
            if light::wonders(api) && !unseen && (*thread).passed == (ptr, size) {
                light::learn(api);
            }
        }
        ptr
    }
}

/// The block of [`alloc_around`]; `unseen`: no hook below has seen it.
#[inline(always)]
fn made_around(thread: &mut Thread, caller: Caller, ptr: u64, size: u64, api: ApiKind, unseen: bool) {
    if unseen && thread.options & OPT_COUNT != 0 {
        thread.add_live(usable_of(ptr, api).unwrap_or(0));
    }
    if thread.chooses(ptr, size, api) {
        thread.record_alloc(caller, ptr, size, api);
    }
}

/// A block is about to go.
#[inline(always)]
pub fn free(thread: &mut Thread, caller: Caller, ptr: u64, api: ApiKind) {
    if thread.deleting == ptr {
        return inner_free(thread, ptr, api);
    }
    add(&thread.counts().freed, 1);
    if thread.options & OPT_COUNT != 0 {
        thread.add_live(usable_of(ptr, api).unwrap_or(0).wrapping_neg());
    } else if thread.recorded(ptr, api).yes {
        thread.record_free(caller, ptr, api);
    }
}

/// The block of an outer hook, which has counted its end.
#[inline(never)]
fn inner_free(thread: &mut Thread, ptr: u64, api: ApiKind) {
    thread.passed = (ptr, 0);
    if thread.options & OPT_COUNT != 0 && thread.inner_counts {
        thread.add_live(usable_of(ptr, api).unwrap_or(0).wrapping_neg());
    }
}

/// The same while a hook is at work below us on this stack.
#[cold]
#[inline(never)]
pub fn nested_free(thread: &mut Thread, ptr: u64, api: ApiKind) {
    if thread.deleting == ptr {
        return inner_free(thread, ptr, api);
    }
    add(&thread.counts().freed, 1);
    if thread.options & OPT_COUNT != 0 {
        thread.add_live(usable_of(ptr, api).unwrap_or(0).wrapping_neg());
    } else if thread.recorded(ptr, api).yes {
        thread.push_nested(ptr, 0, api);
    }
}

/// A release whose real function may come back through a hook.
///
/// # Safety
/// As [`alloc_around`].
#[inline(always)]
pub unsafe fn free_around(thread: *mut Thread, caller: Caller, ptr: u64, api: ApiKind, real: impl FnOnce()) {
    // SAFETY: the caller's promise.
    unsafe {
        free(&mut *thread, caller, ptr, api);
        delete(thread, ptr, api, real);
    }
}

/// The same while a hook is at work below us on this stack.
///
/// # Safety
/// As [`alloc_around`].
#[cold]
pub unsafe fn nested_free_around(thread: *mut Thread, ptr: u64, api: ApiKind, real: impl FnOnce()) {
    // SAFETY: the caller's promise.
    unsafe {
        nested_free(&mut *thread, ptr, api);
        delete(thread, ptr, api, real);
    }
}

#[inline(always)]
unsafe fn delete(thread: *mut Thread, ptr: u64, api: ApiKind, real: impl FnOnce()) {
    // What malloc did not make itself has its bytes counted where it reaches free.
    let counted = matches!(api.family(), Family::C);
    // SAFETY: the caller's promise; no reference is held while the real function runs.
    unsafe {
        let outer = core::mem::replace(&mut (*thread).deleting, ptr);
        let light = core::mem::replace(&mut (*thread).light, false);
        let counts = core::mem::replace(&mut (*thread).inner_counts, !counted);
        (*thread).passed = (0, 0);
        real();
        if light::wonders(api) && (*thread).passed == (ptr, 0) {
            light::learn(api);
        }
        (*thread).light = light;
        (*thread).deleting = outer;
        (*thread).inner_counts = counts;
    }
}

/// A realloc, around the real call. Each half is recorded or not for itself; the
/// two are a pair only where both are.
#[inline(never)]
pub fn realloc(
    caller: Caller,
    old: u64,
    size: u64,
    free_api: ApiKind,
    alloc_api: ApiKind,
    real: impl FnOnce() -> u64,
) -> u64 {
    let mut gone = Recorded { listed: false, yes: false };
    let mut stack = None;
    let mut before = 0;
    if old != 0
        && let Access::Free(thread) = access(caller)
    {
        add(&thread.counts().freed, 1);
        if thread.options & OPT_COUNT != 0 {
            before = usable_of(old, free_api).unwrap_or(0);
        } else {
            gone = thread.recorded(old, free_api);
        }
        if gone.yes {
            thread.begin(caller);
            thread.read_clock();
            stack = Some(thread.realloc_free::<true>(caller, old, free_api));
            thread.end();
        }
    }
    let new = real();
    let Access::Free(thread) = access(caller) else { return new };
    if new != 0 {
        if old != 0 {
            add(&thread.counts().remade, 1);
        }
        if thread.options & OPT_COUNT != 0 {
            let after = usable_of(new, alloc_api).unwrap_or(0);
            thread.add_live(after.wrapping_sub(before));
        }
        if thread.chooses(new, size, alloc_api) {
            thread.begin(caller);
            thread.read_clock();
            let node = match stack {
                Some(node) => node,
                None => thread.node::<true>(caller),
            };
            thread.alloc_at::<true>(node, new, size, alloc_api, gone.yes);
            thread.end();
        }
    } else if old != 0 && size != 0 {
        // It failed: the old block lives on, in the set too.
        add(&thread.counts().freed, u64::MAX);
        if gone.listed && !thread.set.insert(old) {
            start::count(Counter::SampleFull, 1);
        }
        if gone.yes {
            thread.begin(caller);
            thread.special(SpecialKind::ReallocUndo, &[old]);
            thread.end();
        }
    } else if old != 0 {
        thread.add_live(before.wrapping_neg());
    }
    new
}
