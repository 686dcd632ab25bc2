//! What of the target's memory is a root.
//!
//! Data of all objects but our agent's; stacks of the threads that live, from
//! their stack pointers on; memory that the program mapped for itself. Not: the
//! allocator's pages (of those only live blocks count), stacks of threads that
//! have ended, what is ours.

use highwater_replay::reach::{Blocks, Pages, RootRange};
use highwater_trace::reach::Place;

use super::maps::Mapping;
use super::objects::Object;
use super::stop::Thread;
use super::target::{Target, within};

/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;
/// glibc keeps a thread's descriptor in the last bytes of its stack, within this many.
const DESCRIPTOR: u64 = 4096;
/// Bytes of glibc's thread descriptor.
const DESCRIPTOR_SIZE: u64 = 0x900;
/// Where it holds the thread's id: 0 once it has ended, -1 once it was joined.
const DESCRIPTOR_TID: u64 = 0x2d0;
/// Shared mappings up to this size are read wholly.
const WHOLE: u64 = 64 << 20;

/// What is known of the target.
pub struct Known<'a> {
    /// Its mappings, by address.
    pub maps: &'a [Mapping],
    /// Its objects.
    pub objects: &'a [Object],
    /// An address in the agent's data.
    pub agent: u64,
    /// The agent's private mappings, sorted.
    pub own: &'a [(u64, u64)],
    /// Its threads.
    pub threads: &'a [Thread],
    /// From where on the stack of the thread that waits to exit is the program's.
    pub parked: Option<(u32, u64)>,
    /// Pages of the allocator.
    pub pages: &'a Pages,
    /// Live blocks.
    pub blocks: &'a Blocks,
}

/// First bytes and ends, sorted.
type Ranges = Vec<(u64, u64)>;

/// Ranges that are read wholly, whatever the page map says, and ranges of
/// objects that are not code.
pub fn ranges(maps: &[Mapping]) -> (Ranges, Ranges) {
    let of_file = |mapping: &&Mapping| mapping.inode != 0 && mapping.read && !is_device(&mapping.path);
    let whole = maps
        .iter()
        .filter(of_file)
        .filter(|mapping| !mapping.shared || mapping.end - mapping.start <= WHOLE)
        .map(|mapping| (mapping.start, mapping.end))
        .collect();
    let objects = maps
        .iter()
        .filter(of_file)
        .filter(|mapping| !mapping.exec && !mapping.shared)
        .map(|mapping| (mapping.start, mapping.end))
        .collect();
    (whole, objects)
}

/// The roots in memory.
pub fn roots(known: &Known<'_>, target: &Target) -> Vec<RootRange> {
    let mut roots = Vec::new();
    for (at, mapping) in known.maps.iter().enumerate() {
        if !mapping.read || is_ours(&mapping.path) || is_device(&mapping.path) || is_kernels(&mapping.path) {
            continue;
        }
        let guarded = at
            .checked_sub(1)
            .and_then(|before| known.maps.get(before))
            .is_some_and(|before| before.end == mapping.start && !before.read && !before.write);
        roots_of(known, target, mapping, guarded, &mut roots);
    }
    roots
}

fn roots_of(
    known: &Known<'_>,
    target: &Target,
    mapping: &Mapping,
    guarded: bool,
    roots: &mut Vec<RootRange>,
) {
    // Data of objects first; what is left of the mapping is something else.
    let mut rest = vec![(mapping.start, mapping.end)];
    for object in known.objects {
        if mapping.inode != object.inode && (mapping.inode != 0 || !mapping.write) {
            continue;
        }
        for &(from, to) in &object.data {
            let (start, end) = (from.max(mapping.start), to.min(mapping.end));
            if start >= end {
                continue;
            }
            if !object.holds(known.agent) {
                let place = Place::Data { addr: start };
                roots.push(RootRange { start, end, place, starts_only: object.allocator });
            }
            rest = without(&rest, &[(start, end)]);
        }
    }
    if !mapping.write {
        return;
    }
    let rest = stacks(known, mapping, guarded || mapping.path == "[stack]", rest, roots);
    let general =
        |start, end| RootRange { start, end, place: Place::Mapping { addr: start }, starts_only: false };
    if mapping.path == "[heap]" {
        for &(from, to) in known.pages.breaks() {
            let (start, end) = (from.max(mapping.start), to.min(mapping.end));
            let parts = known.pages.outside(start.min(end), end);
            roots.extend(parts.into_iter().map(|(start, end)| general(start, end)));
        }
        return;
    }
    let anonymous = mapping.is_anonymous() && !mapping.shared;
    if anonymous
        && guarded
        && let Some(descriptor) = dead_stack(known, target, mapping)
    {
        roots.extend(descriptor.map(|(start, end)| general(start, end)));
        return;
    }
    for (start, end) in without(&rest, known.own) {
        let large = anonymous || end - start > WHOLE;
        let there = if large { target.present(start, end) } else { vec![(start, end)] };
        for (start, end) in there {
            let parts = if anonymous { known.pages.outside(start, end) } else { vec![(start, end)] };
            roots.extend(parts.into_iter().map(|(start, end)| general(start, end)));
        }
    }
}

/// Takes the stacks of living threads out of a mapping; returns the rest. What
/// lies below a stack pointer is dead, where it is known to be stack.
fn stacks(
    known: &Known<'_>,
    mapping: &Mapping,
    bounded: bool,
    mut rest: Vec<(u64, u64)>,
    roots: &mut Vec<RootRange>,
) -> Vec<(u64, u64)> {
    let mut below = mapping.start;
    let mut here: Vec<(u64, &Thread)> = known
        .threads
        .iter()
        .map(|thread| match known.parked {
            Some((tid, stack)) if tid == thread.tid => (stack, thread),
            _ => (thread.registers.rsp.saturating_sub(RED_ZONE), thread),
        })
        .filter(|(stack, _)| mapping.holds(*stack))
        .collect();
    here.sort_unstable_by_key(|(stack, _)| *stack);
    for (stack, thread) in here {
        let mut push = |start: u64, end: u64| {
            let place = Place::Stack { tid: thread.tid, addr: start };
            roots.push(RootRange { start, end, place, starts_only: false });
        };
        let start = stack & !7;
        // A coroutine's stack in a block of the heap.
        if known.pages.has(start)
            && let Some((block, _)) = known.blocks.find(start)
        {
            if let Some(block) = known.blocks.all().get(block as usize) {
                push(start, block.addr.saturating_add(block.size));
            }
            continue;
        }
        let base = thread.registers.fs_base;
        let end = if mapping.path != "[stack]" && mapping.holds(base) && base > start {
            (base + DESCRIPTOR).next_multiple_of(4096).min(mapping.end)
        } else {
            mapping.end
        };
        push(start, end);
        rest = without(&rest, &[(start, end)]);
        if bounded {
            rest = without(&rest, &[(below, start)]);
        }
        below = end;
    }
    rest
}

/// Is this mapping the stack of a thread that has ended, which glibc keeps for
/// the next one? Then `Some`, with the thread's descriptor if its result may
/// still be asked for.
fn dead_stack(known: &Known<'_>, target: &Target, mapping: &Mapping) -> Option<Option<(u64, u64)>> {
    let mut at = mapping.end.saturating_sub(8) & !63;
    let low = mapping.end.saturating_sub(DESCRIPTOR).max(mapping.start);
    while at >= low {
        // The descriptor begins with its own address, twice.
        if target.word(at) == at && target.word(at + 16) == at {
            if known.threads.iter().any(|thread| thread.registers.fs_base == at) {
                return None;
            }
            let tid = target.word(at + DESCRIPTOR_TID) as u32;
            let end = (at + DESCRIPTOR_SIZE).min(mapping.end);
            return Some((tid != u32::MAX).then_some((at, end)));
        }
        at = at.checked_sub(64)?;
    }
    None
}

/// `ranges` without `out`; both sorted.
fn without(ranges: &[(u64, u64)], out: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    for &(start, end) in ranges {
        let mut at = start;
        for &(from, to) in out {
            if to <= at || from >= end {
                continue;
            }
            if from > at {
                left.push((at, from));
            }
            at = at.max(to);
        }
        if at < end {
            left.push((at, end));
        }
    }
    left
}

/// The words of registers that may be pointers, with the registers' numbers.
pub fn registers(thread: &Thread) -> [u64; 16] {
    let r = &thread.registers;
    [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
        r.r14, r.r15,
    ]
}

/// Is the address in one of the mappings that may be written?
pub fn is_writable(maps: &[Mapping], addr: u64) -> bool {
    let ranges: Vec<(u64, u64)> =
        maps.iter().filter(|mapping| mapping.write).map(|mapping| (mapping.start, mapping.end)).collect();
    within(&ranges, addr)
}

fn is_ours(path: &str) -> bool {
    path.starts_with("/memfd:highwater")
}

fn is_kernels(path: &str) -> bool {
    path.starts_with("[v") || path.starts_with("anon_inode:")
}

/// Reading a device's memory may do something.
fn is_device(path: &str) -> bool {
    path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && !path.starts_with("/dev/zero")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_out() {
        assert_eq!(without(&[(0, 10), (20, 30)], &[(2, 4), (8, 22), (30, 40)]), [(0, 2), (4, 8), (22, 30)]);
        assert_eq!(without(&[(0, 10)], &[(0, 10)]), []);
        assert_eq!(without(&[(0, 10)], &[]), [(0, 10)]);
    }

    #[test]
    fn devices_and_the_kernels_pages_are_left_alone() {
        assert!(is_device("/dev/dri/card0") && !is_device("/dev/zero (deleted)") && !is_device("/dev/shm/x"));
        assert!(is_kernels("[vvar]") && is_kernels("[vsyscall]") && !is_kernels("[heap]"));
        assert!(is_ours("/memfd:highwater (deleted)") && !is_ours("/memfd:other"));
    }
}
