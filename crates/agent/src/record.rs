//! Events: what every hook does around the real function.
//!
//! free is recorded before the real call and alloc after it, so the address of
//! a block never appears in two threads' streams the wrong way round.
//!
//! Re-entrance: while a hook is at work, [`Thread::busy`] holds its stack
//! pointer. An operation that comes meanwhile (a signal handler, or operator
//! new calling malloc) is put aside and written when the outer one ends.
//!
//! `MORE`: an option asks for more than to record ([`OPT_MORE`]). The frequent way
//! asks once, and has none of it in its code.

use core::sync::atomic::{Ordering::*, compiler_fence};

use highwater_event::api::{ApiKind, Family};
use highwater_event::codec::SpecialKind;
use highwater_event::layout::{OPT_COUNT, OPT_FREE_STACKS, OPT_MORE, OPT_SELECT, OPT_USABLE};
use highwater_event::node::{NodeId, Truncation};

use crate::thread::{self, IDLE, Thread};
use crate::{select, stack, start};

/// Where a hook was called from: the address of its return slot, and rbp.
#[derive(Clone, Copy)]
pub struct Caller {
    /// Address of the return slot.
    pub sp: u64,
    /// Frame pointer at entry.
    pub bp: u64,
}

/// What a hook may do with the thread it runs on.
pub enum Access {
    /// Record: nobody of ours is at work on this thread.
    Free(&'static mut Thread),
    /// A hook is at work below us on this stack.
    Nested(&'static mut Thread),
    /// Forward only.
    Off,
}

/// May this thread record?
#[inline(always)]
pub fn access(caller: Caller) -> Access {
    let thread = thread::current();
    if thread.is_null() {
        return first_access();
    }
    // SAFETY: this thread's own state.
    let thread = unsafe { &mut *thread };
    if thread.busy == IDLE { Access::Free(thread) } else { odd_access(thread, caller) }
}

#[cold]
#[inline(never)]
fn first_access() -> Access {
    if !start::recording() {
        return Access::Off;
    }
    let thread = thread::enter();
    // SAFETY: this thread's own, new state.
    match unsafe { thread.as_mut() } {
        Some(thread) => Access::Free(thread),
        None => Access::Off,
    }
}

#[cold]
#[inline(never)]
fn odd_access(thread: &'static mut Thread, caller: Caller) -> Access {
    // Zero: wiped, we are a forked child.
    if thread.busy == 0 || !start::recording() {
        return Access::Off;
    }
    if thread.is_stale(caller.sp) {
        thread.recover();
        return Access::Free(thread);
    }
    Access::Nested(thread)
}

impl Thread {
    /// From here on operations on this thread are nested ones.
    #[inline(always)]
    pub fn begin(&mut self, caller: Caller) {
        self.busy = caller.sp;
        compiler_fence(SeqCst);
    }

    /// The hook is done.
    #[inline(always)]
    pub fn end(&mut self) {
        compiler_fence(SeqCst);
        if self.nested_count.load(Relaxed) != 0 {
            self.flush_nested();
        }
        self.busy = IDLE;
    }

    #[cold]
    #[inline(never)]
    fn flush_nested(&mut self) {
        let marker = Truncation::Nested as NodeId;
        let mut i = 0;
        while i < self.nested_count.load(Relaxed) as usize {
            let one = self.nested[i];
            if let Some(api) = ApiKind::from_u8(one.api) {
                if api.is_free() {
                    self.write_free(one.stamp, one.ptr, marker, api);
                } else {
                    self.write_alloc(one.stamp, one.ptr, one.size, marker, api, None, false);
                }
            }
            i += 1;
        }
        self.nested_count.store(0, Relaxed);
    }

    /// Takes back the nested alloc that returned `ptr`: the outer one reports it.
    pub fn take_back(&mut self, ptr: u64) {
        let count = self.nested_count.load(Relaxed) as usize;
        for i in (0..count).rev() {
            if self.nested[i].ptr == ptr && self.nested[i].api < ApiKind::FREE_BASE {
                self.nested[i].api = 255;
                if i + 1 == count {
                    self.nested_count.store(i as u32, Relaxed);
                }
                return;
            }
        }
    }

    #[inline(always)]
    fn room(&mut self) -> bool {
        self.cursor <= self.limit || self.make_room()
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn write_alloc(
        &mut self,
        stamp: u64,
        ptr: u64,
        size: u64,
        node: NodeId,
        api: ApiKind,
        usable: Option<u64>,
        pair: bool,
    ) {
        if self.room() {
            // SAFETY: room for MAX_RECORD bytes.
            self.cursor =
                unsafe { self.encoder.alloc(self.cursor, stamp, ptr, size, node, api, usable, pair) };
            self.publish();
        }
    }

    #[inline(always)]
    fn write_free(&mut self, stamp: u64, ptr: u64, node: NodeId, api: ApiKind) {
        if self.room() {
            // SAFETY: room for MAX_RECORD bytes.
            self.cursor = unsafe { self.encoder.free(self.cursor, stamp, ptr, node, api) };
            self.publish();
        }
    }

    /// The node of the caller's stack.
    #[inline(always)]
    pub fn node<const MORE: bool>(&mut self, caller: Caller) -> NodeId {
        // SAFETY: the hooks pass the registers that they were entered with.
        unsafe { stack::node::<MORE>(self, caller.sp, caller.bp) }
    }

    /// Records a block between [`Thread::begin`] and [`Thread::end`].
    #[inline(always)]
    pub fn alloc<const MORE: bool>(&mut self, caller: Caller, ptr: u64, size: u64, api: ApiKind) {
        // The clock first: it is read while the stack is looked at.
        let stamp = self.stamp();
        let node = self.node::<MORE>(caller);
        self.write_block::<MORE>(stamp, node, ptr, size, api, false);
    }

    /// The same with a known stack.
    #[inline(always)]
    pub fn alloc_at<const MORE: bool>(
        &mut self,
        node: NodeId,
        ptr: u64,
        size: u64,
        api: ApiKind,
        pair: bool,
    ) {
        let stamp = self.stamp();
        self.write_block::<MORE>(stamp, node, ptr, size, api, pair);
    }

    #[inline(always)]
    fn write_block<const MORE: bool>(
        &mut self,
        stamp: u64,
        node: NodeId,
        ptr: u64,
        size: u64,
        api: ApiKind,
        pair: bool,
    ) {
        let usable = if MORE && self.options & OPT_USABLE != 0 { usable_through(ptr, api) } else { None };
        self.write_alloc(stamp, ptr, size, node, api, usable, pair);
    }

    /// Records a free between begin and end; returns the stack if it was taken.
    #[inline(always)]
    pub fn free<const MORE: bool>(&mut self, caller: Caller, ptr: u64, api: ApiKind) -> NodeId {
        let stamp = self.stamp();
        let node = if self.options & OPT_FREE_STACKS != 0 { self.node::<MORE>(caller) } else { 0 };
        self.write_free(stamp, ptr, node, api);
        node
    }

    /// Records the free half of a realloc; returns the stack of both halves.
    #[inline(always)]
    pub fn realloc_free<const MORE: bool>(&mut self, caller: Caller, old: u64, api: ApiKind) -> NodeId {
        let stamp = self.stamp();
        let stack = self.node::<MORE>(caller);
        let shown = if self.options & OPT_FREE_STACKS != 0 { stack } else { 0 };
        self.write_free(stamp, old, shown, api);
        stack
    }

    /// Records something rare.
    #[cold]
    pub fn special(&mut self, kind: SpecialKind, fields: &[u64]) {
        let mut words = [0u64; 8];
        words[0] = self.stamp();
        let count = fields.len().min(7);
        words[1..=count].copy_from_slice(&fields[..count]);
        if self.room() {
            // SAFETY: room for MAX_RECORD bytes.
            self.cursor = unsafe { self.encoder.special(self.cursor, kind, &words[..=count]) };
            self.publish();
        }
    }
}

/// The usable size of a block of an entry point whose blocks malloc makes.
#[cold]
fn usable_through(ptr: u64, api: ApiKind) -> Option<u64> {
    matches!(api.family(), Family::C | Family::New | Family::NewArray).then(|| usable(ptr)).flatten()
}

/// The usable size of a block that malloc has made; `None` where nobody knows it.
#[inline(always)]
pub fn usable(ptr: u64) -> Option<u64> {
    let function = crate::real::USABLE.load(Relaxed);
    if function == 0 {
        return None;
    }
    // SAFETY: malloc_usable_size's type, on a block that the allocator has just made.
    unsafe {
        let function: extern "C" fn(u64) -> u64 = core::mem::transmute(function);
        Some(function(ptr))
    }
}

/// A block came into being.
#[inline(always)]
pub fn alloc(caller: Caller, ptr: u64, size: u64, api: ApiKind) {
    if ptr == 0 {
        return;
    }
    match access(caller) {
        Access::Free(thread) => {
            if thread.options & OPT_MORE != 0 {
                return more_alloc(thread, caller, ptr, size, api);
            }
            thread.begin(caller);
            thread.alloc::<false>(caller, ptr, size, api);
            thread.end();
        }
        Access::Nested(thread) if thread.options & OPT_SELECT != 0 => {
            select::nested_alloc(thread, ptr, size, api);
        }
        Access::Nested(thread) => thread.nested_alloc(ptr, size, api),
        Access::Off => {}
    }
}

#[cold]
#[inline(never)]
fn more_alloc(thread: &'static mut Thread, caller: Caller, ptr: u64, size: u64, api: ApiKind) {
    if thread.options & OPT_SELECT != 0 {
        return select::alloc(thread, caller, ptr, size, api);
    }
    thread.begin(caller);
    thread.alloc::<true>(caller, ptr, size, api);
    thread.end();
}

/// A block is about to go.
#[inline(always)]
pub fn free(caller: Caller, ptr: u64, api: ApiKind) {
    if ptr == 0 {
        return;
    }
    match access(caller) {
        Access::Free(thread) => {
            if thread.options & OPT_MORE != 0 {
                return more_free(thread, caller, ptr, api);
            }
            thread.begin(caller);
            thread.free::<false>(caller, ptr, api);
            thread.end();
        }
        Access::Nested(thread) if thread.options & OPT_SELECT != 0 => select::nested_free(thread, ptr, api),
        Access::Nested(thread) => {
            if thread.deleting != ptr {
                thread.push_nested(ptr, 0, api);
            }
        }
        Access::Off => {}
    }
}

#[cold]
#[inline(never)]
fn more_free(thread: &'static mut Thread, caller: Caller, ptr: u64, api: ApiKind) {
    if thread.options & OPT_SELECT != 0 {
        return select::free(thread, caller, ptr, api);
    }
    thread.begin(caller);
    thread.free::<true>(caller, ptr, api);
    thread.end();
}

/// A realloc, around the real call: the old block goes before it, the new one
/// comes after it, both with one stack.
#[inline(always)]
pub fn realloc(
    caller: Caller,
    old: u64,
    size: u64,
    free_api: ApiKind,
    alloc_api: ApiKind,
    real: impl FnOnce() -> u64,
) -> u64 {
    if select::applies() {
        return select::realloc(caller, old, size, free_api, alloc_api, real);
    }
    let mut node = None;
    if old != 0 {
        match access(caller) {
            Access::Free(thread) => {
                thread.begin(caller);
                node = Some(thread.realloc_free::<true>(caller, old, free_api));
                thread.end();
            }
            Access::Nested(thread) => thread.push_nested(old, 0, free_api),
            Access::Off => {}
        }
    }
    let new = real();
    match access(caller) {
        Access::Free(thread) => {
            thread.begin(caller);
            if new != 0 {
                let node = match node {
                    Some(node) => node,
                    None => thread.node::<true>(caller),
                };
                thread.alloc_at::<true>(node, new, size, alloc_api, old != 0);
            } else if old != 0 && size != 0 {
                thread.special(SpecialKind::ReallocUndo, &[old]);
            }
            thread.end();
        }
        Access::Nested(thread) => {
            if new != 0 {
                thread.push_nested(new, size, alloc_api);
            } else if old != 0 && size != 0 {
                // The free that was put aside did not happen.
                let count = thread.nested_count.load(Relaxed) as usize;
                for one in thread.nested.iter_mut().take(count).rev() {
                    if one.ptr == old && one.api == free_api as u8 {
                        one.api = 255;
                        break;
                    }
                }
            }
        }
        Access::Off => {}
    }
    new
}

/// A change of the address space.
#[cold]
#[inline(never)]
pub fn mapping(caller: Caller, kind: SpecialKind, fields: &[u64]) {
    if let Access::Free(thread) = access(caller)
        && thread.options & OPT_COUNT == 0
    {
        thread.begin(caller);
        let node = thread.node::<true>(caller);
        let mut words = [0u64; 7];
        let count = fields.len().min(6);
        words[..count].copy_from_slice(&fields[..count]);
        words[count] = u64::from(node);
        thread.special(kind, &words[..=count]);
        thread.end();
    }
}

/// An allocation whose real function may itself come back through a hook
/// (operator new calls malloc): the inner one is the same block.
#[inline(always)]
pub fn alloc_around(caller: Caller, size: u64, api: ApiKind, real: impl FnOnce() -> u64) -> u64 {
    match access(caller) {
        Access::Free(thread) => {
            if thread.options & OPT_SELECT != 0 {
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
        Access::Nested(_) | Access::Off => real(),
    }
}

/// A release whose real function may itself come back through a hook.
#[inline(always)]
pub fn free_around(caller: Caller, ptr: u64, api: ApiKind, real: impl FnOnce()) {
    if ptr == 0 {
        return real();
    }
    match access(caller) {
        Access::Free(thread) => {
            if thread.options & OPT_SELECT != 0 {
                // SAFETY: this thread's own state.
                return unsafe { select::free_around(thread, caller, ptr, api, real) };
            }
            thread.begin(caller);
            thread.free::<true>(caller, ptr, api);
            thread.deleting = ptr;
            real();
            thread.deleting = 0;
            thread.end();
        }
        Access::Nested(thread) if thread.options & OPT_SELECT != 0 => {
            // SAFETY: this thread's own state.
            unsafe { select::nested_free_around(thread, ptr, api, real) };
        }
        Access::Nested(thread) => {
            let outer = thread.deleting;
            if outer != ptr {
                thread.push_nested(ptr, 0, api);
                thread.deleting = ptr;
            }
            real();
            thread.deleting = outer;
        }
        Access::Off => real(),
    }
}
