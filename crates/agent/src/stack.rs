//! From the registers at an entry point to a node of the stack tree.

use highwater_event::layout::OPT_VALIDATE;
use highwater_event::node::{Node, NodeId, ROOT, Truncation};

use crate::thread::Thread;
use crate::unwind::cache::{Cache, Tally};
use crate::unwind::walk::{self, End, Registers};
use crate::{intern, modules, start, sys};

/// The node of the stack that called the entry point. `MORE` as in [`crate::record`].
///
/// # Safety
/// `sp` is the address of the entry point's return slot and `bp` the frame
/// pointer there, of the calling thread.
#[inline(always)]
pub unsafe fn node<const MORE: bool>(thread: &mut Thread, sp: u64, bp: u64) -> NodeId {
    // SAFETY: the caller's promise.
    let now = unsafe { walk::caller(sp, bp) };
    let epoch = modules::epoch();
    // SAFETY: the caller's promise.
    match unsafe { thread.memo().node(thread.cache(), now, &thread.span, epoch) } {
        Some(node) if !MORE || thread.options & OPT_VALIDATE == 0 => node,
        // SAFETY: the caller's promise.
        known => unsafe { walked(thread, now, epoch, known) },
    }
}

#[inline(never)]
unsafe fn walked(thread: &mut Thread, now: Registers, epoch: u32, known: Option<NodeId>) -> NodeId {
    let Some(shared) = start::shared() else { return Truncation::NotTaken as NodeId };
    let node = match known {
        Some(node) => node,
        None => {
            let mut tally = Tally::default();
            let cache: *mut Cache = thread.cache();
            let memo = thread.memo();
            if !thread.cache().is_of(epoch) {
                memo.clear();
            }
            // The return slot may lie in a page that no walk has touched.
            thread.span.covers(now.sp - 8);
            let scratch = thread.scratch();
            let edges = thread.edges();
            // SAFETY: the caller's promise; cache, scratch and span are different memory.
            let node = unsafe {
                (*cache).walk(
                    shared,
                    now,
                    &mut thread.span,
                    &mut *scratch,
                    &mut *edges,
                    thread.depth,
                    epoch,
                    &mut tally,
                )
            };
            // SAFETY: the caller's promise.
            unsafe { memo.keep(thread.cache(), now, node, tally.fresh as usize, &thread.span) };
            thread.tally(tally);
            node
        }
    };
    if thread.options & OPT_VALIDATE != 0 {
        // SAFETY: the caller's promise.
        unsafe { validate(thread, now, node) };
    }
    node
}

/// Walks without the cache and ends the process on a difference.
#[cold]
unsafe fn validate(thread: &mut Thread, now: Registers, node: NodeId) {
    let Some(shared) = start::shared() else { return };
    let frames = thread.plain_frames();
    // SAFETY: the caller's promise; frames and span are different memory.
    let (count, end) = unsafe { walk::walk(now, &mut thread.span, &mut *frames) };
    let mut id = match end {
        End::Complete => ROOT,
        End::Cut(reason) => intern::marker(reason),
    };
    // SAFETY: the memory of this thread, filled by walk().
    for (depth, &packed) in unsafe { (*frames).iter() }.take(count).rev().enumerate() {
        if depth < thread.depth {
            id = intern::intern(shared, id, packed);
        } else if depth == thread.depth {
            id = intern::intern(shared, id, Node::marker(Truncation::DepthLimit));
        }
    }
    start::count(highwater_event::layout::Counter::Validated, 1);
    if id != node {
        sys::abort();
    }
}
