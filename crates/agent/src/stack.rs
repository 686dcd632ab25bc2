//! From the registers at an entry point to a node of the stack tree.

use highwater_event::node::{NodeId, ROOT, Truncation};

use crate::intern;
use crate::start;
use crate::thread::Thread;
use crate::unwind::walk::{End, walk};

/// The node of the stack that called the entry point.
///
/// # Safety
/// `sp` is the address of the entry point's return slot and `bp` the frame
/// pointer there, of the calling thread.
#[inline]
pub unsafe fn node(thread: &mut Thread, sp: u64, bp: u64) -> NodeId {
    let Some(shared) = start::shared() else { return Truncation::NotTaken as NodeId };
    let frames = &raw mut thread.frames;
    // SAFETY: the caller's promise; `frames` and `span` are different fields.
    let (count, end) = unsafe { walk(sp, bp, &mut thread.span, &mut *frames) };
    let mut id = match end {
        End::Complete => ROOT,
        End::Cut(reason) => intern::marker(reason),
    };
    // SAFETY: walk() has filled `count` entries.
    let frames = unsafe { &*frames };
    for &packed in frames.iter().take(count).rev() {
        id = intern::intern(shared, id, packed);
    }
    id
}
