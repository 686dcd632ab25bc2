//! (parent, address) -> node id.
//!
//! The nodes themselves lie in shared memory, in the order in which they were
//! made ([`highwater_event::node::Node`]). Which id a pair has is answered by an
//! index of ours, built for locality: the children of eight neighbouring
//! parents share one cache line of sixteen entries. A chain of frames is made
//! in one go, so its nodes, and the lines of its nodes, are neighbours too.
//! What does not fit its line goes to a hash table in levels.
//!
//! An entry holds 24 bits of id and 8 bits of hash; it is confirmed by reading
//! the node. Entries are only ever added, so readers need no lock.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

use highwater_event::node::{Node, NodeId, Truncation};

use crate::start::Shared;
use crate::sys;

/// Ids below this are truncation markers: their number is their reason.
pub const FIRST_NODE: NodeId = 16;
/// The greatest number of nodes that an entry can name.
pub const MAX_NODES: u32 = 1 << 24;

const LINE: usize = 16;
const PARENTS_A_LINE: u32 = 8;
const ID_MASK: u32 = MAX_NODES - 1;
const LEVELS: usize = 4;
const LEVEL_SIZES: [usize; LEVELS] = [1 << 12, 1 << 16, 1 << 20, 1 << 23];
const PROBES: usize = 24;

/// The index's memory, mapped at the start for as many nodes as there may be.
static LINES: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());
static OVERFLOW: [AtomicPtr<AtomicU32>; LEVELS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; LEVELS];

/// Maps the index for `nodes` nodes. False if there is no memory.
pub fn prepare(nodes: u32) -> bool {
    let bytes = (nodes as usize / PARENTS_A_LINE as usize + 1) * LINE * 4;
    let Some(lines) = sys::map_private(bytes) else { return false };
    sys::madvise(lines, bytes, sys::MADV_DONTDUMP);
    LINES.store(lines.cast(), Release);
    true
}

#[inline(always)]
fn hash(parent: NodeId, packed: u64) -> u64 {
    (packed ^ u64::from(parent).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The id of the child of `parent` at `packed`, made if it is new.
#[inline]
pub fn intern(shared: &Shared, parent: NodeId, packed: u64) -> NodeId {
    let hash = hash(parent, packed);
    let tag = (hash >> 56) as u32;
    let lines = LINES.load(Acquire);
    // SAFETY: prepare() mapped a line for every parent id below nodes_cap.
    let line = unsafe { lines.add((parent / PARENTS_A_LINE) as usize * LINE) };
    let mut fresh = 0;
    for i in 0..LINE {
        // SAFETY: within the line.
        let place = unsafe { &*line.add(i) };
        let entry = place.load(Acquire);
        if entry == 0 {
            match claim(shared, place, parent, packed, tag, &mut fresh) {
                Claim::Done(id) => return id,
                Claim::Taken => {}
            }
        } else if entry >> 24 == tag && matches(shared, entry & ID_MASK, parent, packed) {
            return entry & ID_MASK;
        }
    }
    overflow(shared, parent, packed, hash, fresh)
}

#[inline(always)]
fn matches(shared: &Shared, id: NodeId, parent: NodeId, packed: u64) -> bool {
    let node = shared.node(id);
    node.pc_module == packed && node.parent == parent
}

enum Claim {
    Done(NodeId),
    Taken,
}

/// Makes the node and puts it into a free entry. If another thread was first
/// with the same node, its id is the answer and ours stays unused; if it was
/// first with another one, the search goes on with our node in hand.
#[cold]
#[inline(never)]
fn claim(
    shared: &Shared,
    place: &AtomicU32,
    parent: NodeId,
    packed: u64,
    tag: u32,
    fresh: &mut NodeId,
) -> Claim {
    if *fresh == 0 {
        *fresh = make(shared, parent, packed);
        if *fresh < FIRST_NODE {
            return Claim::Done(*fresh);
        }
    }
    match place.compare_exchange(0, *fresh | tag << 24, AcqRel, Acquire) {
        Ok(_) => Claim::Done(*fresh),
        Err(entry) if entry >> 24 == tag && matches(shared, entry & ID_MASK, parent, packed) => {
            Claim::Done(entry & ID_MASK)
        }
        Err(_) => Claim::Taken,
    }
}

/// Writes a new node; the marker for a full table if there is no room.
fn make(shared: &Shared, parent: NodeId, packed: u64) -> NodeId {
    let header = shared.header();
    let id = header.agent.node_count.fetch_add(1, Relaxed);
    if id >= header.nodes_cap.min(MAX_NODES) {
        header.agent.node_count.fetch_sub(1, Relaxed);
        return Truncation::TableFull as NodeId;
    }
    // SAFETY: the id is ours alone, and below nodes_cap.
    unsafe {
        let node = shared.node_ptr(id);
        (&raw mut (*node).pc_module).write(packed);
        (&raw mut (*node).parent).write(parent);
        AtomicU32::from_ptr(&raw mut (*node).ready).store(1, Release);
    }
    id
}

/// The hash table for what did not fit its line: parents with many children.
#[cold]
#[inline(never)]
fn overflow(shared: &Shared, parent: NodeId, packed: u64, hash: u64, mut fresh: NodeId) -> NodeId {
    let tag = (hash >> 56) as u32;
    for (level, place) in OVERFLOW.iter().enumerate() {
        let size = LEVEL_SIZES[level];
        let mut table = place.load(Acquire);
        if table.is_null() {
            let Some(mapped) = sys::map_private(size * 4) else { break };
            sys::madvise(mapped, size * 4, sys::MADV_DONTDUMP);
            match place.compare_exchange(core::ptr::null_mut(), mapped.cast(), AcqRel, Acquire) {
                Ok(_) => table = mapped.cast(),
                Err(theirs) => {
                    // SAFETY: nobody has seen our mapping.
                    unsafe { sys::unmap(mapped, size * 4) };
                    table = theirs;
                }
            }
        }
        let mut at = (hash >> 20) as usize & (size - 1);
        for _ in 0..PROBES {
            // SAFETY: at < size.
            let place = unsafe { &*table.add(at) };
            let entry = place.load(Acquire);
            if entry == 0 {
                match claim(shared, place, parent, packed, tag, &mut fresh) {
                    Claim::Done(id) => return id,
                    Claim::Taken => continue,
                }
            }
            if entry >> 24 == tag && matches(shared, entry & ID_MASK, parent, packed) {
                return entry & ID_MASK;
            }
            at = (at + 1) & (size - 1);
        }
    }
    Truncation::TableFull as NodeId
}

/// The packed address of a truncation marker is not stored: its id says it.
pub const fn marker(reason: Truncation) -> NodeId {
    reason as NodeId
}

/// Fills in the markers' nodes; the recorder does it when it makes the memory.
pub fn marker_node(id: NodeId) -> Option<Node> {
    let reason = Truncation::from_u8(id as u8)?;
    Some(Node { pc_module: Node::marker(reason), parent: 0, ready: 1 })
}
