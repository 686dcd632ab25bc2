//! The memory that a target shares with its recorder.
//!
//! One anonymous file (`memfd`), made by the recorder, mapped by the agent:
//!
//! ```text
//! 0              Header
//! modules_off    Module[modules_cap]      written by the agent, append only
//! strings_off    bytes                    paths of modules, append only
//! slots_off      Slot[slots_cap]          one per thread at a time
//! nodes_off      Node[nodes_cap]          the stack tree, append only
//! set_off        the set of addresses: SET_FILTER bytes, 2^set_bits buckets
//! rings_off      rings: the first `big_rings` of BIG_RING bytes, then small ones
//! ```
//!
//! Everything here is plain old data for which all bit patterns are valid; both
//! sides use atomics on it. Who writes a field stands beside it.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

use crate::codec::State;

/// First bytes of the shared memory: `HWSHM` and the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HWSHM\0\0\x01");

/// Environment variable that carries `pid:fd:token` of the memory to the agent.
pub const ENV_SHARED: &str = "HIGHWATER_SHARED";
/// Environment variable that names the recorder for a plain `LD_PRELOAD`.
pub const ENV_RECORDER: &str = "HIGHWATER_RECORDER";

/// Bytes in one of the first rings. A power of two.
pub const BIG_RING: u64 = 2 << 20;
/// Bytes in the other rings. A power of two.
pub const SMALL_RING: u64 = 256 << 10;

/// Option bit: record the usable size of each block.
pub const OPT_USABLE: u32 = 1;
/// Option bit: take a stack for frees too.
pub const OPT_FREE_STACKS: u32 = 2;
/// Option bit: on a full ring drop and count, do not wait.
pub const OPT_DROP: u32 = 4;
/// Option bit: compare each cached stack with a fresh walk, abort on a difference.
pub const OPT_VALIDATE: u32 = 8;
/// Option bit: record only blocks that [`Header::sample`] chooses.
pub const OPT_SAMPLE: u32 = 16;
/// Option bit: record only blocks of [`Header::min_size`] and above.
pub const OPT_MIN_SIZE: u32 = 32;
/// Option bit: record nothing, only count.
pub const OPT_COUNT: u32 = 64;
/// The options under which operations are counted and not all recorded.
pub const OPT_SELECT: u32 = OPT_SAMPLE | OPT_MIN_SIZE | OPT_COUNT;
/// The options under which a hook does more than to record.
pub const OPT_MORE: u32 = OPT_SELECT | OPT_USABLE | OPT_VALIDATE;

/// Counters in the filter of the set of addresses, a byte each.
pub const SET_FILTER: usize = 1 << 16;
/// Addresses in one of its buckets.
pub const SET_BUCKET: usize = 8;

/// A thread that only counts adds its live bytes to all threads' once they have
/// moved by so much.
pub const COUNT_BATCH: u64 = 64 << 10;

/// Option bit: wait at the program's exit until the recorder has looked at its
/// memory ([`ScanWords`]).
pub const OPT_LEAK_CHECK: u32 = 1 << 8;

/// [`ScanWords::answer`]: nothing yet.
pub const SCAN_NOT_SEEN: u32 = 0;
/// [`ScanWords::answer`]: the recorder is about to look; the thread may sleep.
pub const SCAN_BEGUN: u32 = 1;
/// [`ScanWords::answer`]: the recorder is about to look; the thread makes no
/// system call, since a filter of the program's may kill it for one.
pub const SCAN_BEGUN_FILTERED: u32 = 2;
/// [`ScanWords::answer`]: the program may end.
pub const SCAN_OVER: u32 = 3;

/// [`Header::agent_state`]: nobody has come yet.
pub const AGENT_ABSENT: u32 = 0;
/// [`Header::agent_state`]: the agent maps this memory and records.
pub const AGENT_ATTACHED: u32 = 1;
/// [`Header::agent_state`]: the agent is about to call exec; see [`Header::exec_pid`].
pub const AGENT_EXEC: u32 = 2;

/// [`Header::recorder_state`]: draining.
pub const RECORDER_ALIVE: u32 = 1;
/// [`Header::recorder_state`]: drains and counts, writes nothing any more.
pub const RECORDER_FULL: u32 = 2;
/// [`Header::recorder_state`]: gone on purpose; the agent only forwards.
pub const RECORDER_GONE: u32 = 3;

/// [`Slot::state`]: nobody owns the ring.
pub const SLOT_FREE: u32 = 0;
/// [`Slot::state`]: a thread writes into the ring.
pub const SLOT_OWNED: u32 = 1;
/// [`Slot::state`]: a thread has taken the slot and is filling it in; the other
/// fields may still be those of the last owner.
pub const SLOT_CLAIMED: u32 = 2;

/// Rare things that the agent counts, by name. The order is the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Unwind rules compiled from `.eh_frame`.
    RulesCompiled = 0,
    /// Rules that could not be stored because the table was full.
    RulesFull = 1,
    /// Heap operations inside the agent's own work.
    Nested = 2,
    /// Nested operations for which there was no room.
    NestedLost = 3,
    /// Threads for which no ring was free.
    NoSlot = 4,
    /// Events of such threads.
    NoSlotEvents = 5,
    /// A hook found its busy flag stale (a signal handler left with longjmp).
    StaleBusy = 6,
    /// Times that a thread waited for room.
    Stalls = 7,
    /// Modules found.
    Modules = 8,
    /// Times that a module went away.
    Unloads = 9,
    /// Stacks compared with a fresh walk.
    Validated = 10,
    /// Lost events: a full ring and nobody may wait.
    Dropped = 11,
    /// Blocks that were chosen for the sample and found no room in the set.
    SampleFull = 12,
}

impl Counter {
    /// How many there are room for.
    pub const COUNT: usize = 32;
    /// The names, in the order of the numbers.
    pub const NAMES: [&'static str; 13] = [
        "rules_compiled",
        "rules_full",
        "nested",
        "nested_lost",
        "no_slot",
        "no_slot_events",
        "stale_busy",
        "stalls",
        "modules",
        "unloads",
        "validated",
        "dropped",
        "sample_full",
    ];
}

/// The first page.
#[repr(C, align(4096))]
pub struct Header {
    /// [`MAGIC`], stored last by the recorder.
    pub magic: AtomicU64,
    /// Random; the same as in [`ENV_SHARED`], so that a stranger's file is refused.
    pub token: u64,
    /// Bytes of the whole memory.
    pub size: u64,
    /// Where the modules are.
    pub modules_off: u64,
    /// Where the strings are.
    pub strings_off: u64,
    /// Where the slots are.
    pub slots_off: u64,
    /// Where the nodes are.
    pub nodes_off: u64,
    /// Where the rings are.
    pub rings_off: u64,
    /// How many modules fit.
    pub modules_cap: u32,
    /// How many bytes of strings fit.
    pub strings_cap: u32,
    /// How many slots there are.
    pub slots_cap: u32,
    /// How many of them have a [`BIG_RING`].
    pub big_rings: u32,
    /// How many nodes fit.
    pub nodes_cap: u32,
    /// `OPT_*`
    pub options: u32,
    /// Greatest number of frames to keep, 0 for all.
    pub depth: u32,
    /// The recorder's process id, in its own name space.
    pub recorder_pid: u32,
    /// Blocks below this size (bytes) are not recorded.
    pub min_size: u64,
    /// The memory for the image after an exec: the recorder's descriptor, -1 for none.
    pub next_fd: AtomicI32,
    /// 1: the recorded process keeps being recorded over exec.
    pub follow_exec: u32,
    /// Token of that memory.
    pub next_token: AtomicU64,
    /// Mean distance of a sample's marks, bytes ([`crate::sample`]).
    pub sample: u64,
    /// Where the set of addresses is.
    pub set_off: u64,
    /// Logarithm of the number of its buckets; 0: there is none.
    pub set_bits: u32,

    /// Written by the recorder, read by waiting agents.
    pub recorder: RecorderWords,
    /// Written by the agent, rarely.
    pub agent: AgentWords,
    /// Written by agents that only count, rarely.
    pub live: LiveWords,
    /// [`Counter`]s, written by the agent, rarely or per thread at its end.
    pub counters: [AtomicU64; Counter::COUNT],
    /// For a scan of the target's memory at its exit.
    pub scan: ScanWords,
}

/// What the two sides say to each other about a scan at exit.
#[repr(C, align(64))]
pub struct ScanWords {
    /// Kernel id of the thread that waits to exit, 0 while none does. Written by
    /// the agent, last.
    pub parked: AtomicU32,
    /// `SCAN_*`, written by the recorder; the thread sleeps on it.
    pub answer: AtomicU32,
    /// Bumped by the recorder while it works: it is worth waiting on.
    pub beat: AtomicU32,
    /// The waiting thread's stack pointer: all below is the agent's.
    pub stack: AtomicU64,
    /// 1 if all above `stack` is the program's; 0 if frames of libc's `exit` come first.
    pub exact: AtomicU64,
    /// Address of libc's `exit`, 0 if unknown.
    pub exit: AtomicU64,
    /// Address in the target of the agent's [`Own`].
    pub own: AtomicU64,
}

/// How many mappings [`Own`] has room for.
pub const OWN_CAP: usize = 4608;

/// The agent's private mappings, in its own memory: not the program's, so no
/// roots of it.
#[repr(C)]
pub struct Own {
    /// How many; more than [`OWN_CAP`] if some did not fit.
    pub count: AtomicU64,
    /// First byte and length of each; a length of 0 is not written yet.
    pub ranges: [[AtomicU64; 2]; OWN_CAP],
}

/// Live bytes of all threads, without what they have not added yet
/// ([`Counts::delta`]).
#[repr(C, align(64))]
pub struct LiveWords {
    /// Usable bytes alive.
    pub bytes: AtomicI64,
    /// The most there were.
    pub peak: AtomicI64,
}

/// What a slot's threads counted, its successive owners together; written by the
/// owner, and only with one of [`OPT_SELECT`].
#[repr(C, align(64))]
pub struct Counts {
    /// Blocks made.
    pub made: AtomicU64,
    /// Requested bytes of them.
    pub made_bytes: AtomicU64,
    /// Frees.
    pub freed: AtomicU64,
    /// Blocks below [`Header::min_size`].
    pub small: AtomicU64,
    /// Requested bytes of them.
    pub small_bytes: AtomicU64,
    /// Reallocs of a block: each is a free and a block made too.
    pub remade: AtomicU64,
    /// Usable bytes made less those freed, since they were last added to
    /// [`LiveWords`].
    pub delta: AtomicI64,
    /// The greatest value of `delta` since then.
    pub most: AtomicI64,
}

/// The recorder's words, on a cache line of their own.
#[repr(C, align(64))]
pub struct RecorderWords {
    /// `RECORDER_*`
    pub state: AtomicU32,
    /// A robust futex: the recorder's thread id while it lives; the kernel sets
    /// `FUTEX_OWNER_DIED` when it does not.
    pub robust: AtomicU32,
    /// A waiting producer bumps and wakes this; the recorder sleeps on it.
    pub doorbell: AtomicU32,
    /// Coarse time: bumped by the recorder.
    pub tick: AtomicU32,
}

/// The agent's words, on cache lines of their own.
#[repr(C, align(64))]
pub struct AgentWords {
    /// `AGENT_*`, and what the recorder waits for.
    pub state: AtomicU32,
    /// Process id of the target in its own name space.
    pub pid: AtomicU32,
    /// Nodes made so far (ids below this may be read once `ready`).
    pub node_count: AtomicU32,
    /// Modules published so far.
    pub module_count: AtomicU32,
    /// Bytes of strings used.
    pub strings_used: AtomicU32,
    /// Number that the next thread gets.
    pub thread_count: AtomicU32,
    /// Greatest slot index in use, plus one.
    pub slots_used: AtomicU32,
    /// The process's name when the agent came, zero-terminated.
    pub name: [AtomicU64; 2],
    /// 1 once the program has begun to exit by itself (exit, _exit, quick_exit).
    pub leaving: AtomicU32,
    /// Process id that is about to exec.
    pub exec_pid: AtomicU32,
    /// Bytes of the program's path: they lead the strings.
    pub exe_len: AtomicU32,
    /// Bytes of its arguments, each with its zero: they follow the path.
    pub args_len: AtomicU32,
    /// Stamp when the agent came.
    pub start_stamp: AtomicU64,
    /// CLOCK_MONOTONIC then, ns.
    pub start_ns: AtomicU64,
}

/// One thread's place: its ring's two ends and who it is.
#[repr(C, align(64))]
pub struct Slot {
    /// Bytes written so far, ever. Written by the thread, once an event.
    pub head: AtomicU64,
    /// Nanoseconds waited for room. Written by the thread.
    pub stalled_ns: AtomicU64,
    /// Events dropped. Written by the thread.
    pub dropped: AtomicU64,
    /// 1 while the thread sleeps on `tail`. Written by the thread.
    pub waiting: AtomicU32,
    /// Unused.
    pub pad0: u32,
    /// Stacks that were walked, wholly or in part. Written by the thread.
    pub walks: AtomicU64,
    /// Frames found by walking. Written by the thread.
    pub fresh: AtomicU64,
    /// Walks to the outermost frame: nothing cached was met. Written by the thread.
    pub full: AtomicU64,
    /// Walks that met a cached frame which did not verify. Written by the thread.
    pub stale: AtomicU64,
    /// Bytes read so far, ever. Written by the recorder.
    pub tail: AtomicU64,
    /// The end of the consumer's cache line.
    pub pad2: [u64; 7],
    /// `SLOT_*`: FREE to CLAIMED (compare and swap) to OWNED by a thread, back to
    /// FREE by the recorder, which does that only to OWNED slots.
    pub state: AtomicU32,
    /// Kernel thread id of the owner, in the target's name space.
    pub tid: AtomicU32,
    /// The owner's number in this trace, from 0.
    pub thread: AtomicU32,
    /// Bumped each time that the slot gets an owner.
    pub generation: AtomicU32,
    /// Stamp when the owner took it.
    pub start_stamp: AtomicU64,
    /// The owner's name then, zero-terminated.
    pub name: [AtomicU64; 2],
    /// The codec's state that the owner started with: zeros but the stamp.
    pub start_state: State,
    /// What the owners counted.
    pub counts: Counts,
}

/// One loaded object.
#[repr(C)]
pub struct Module {
    /// Difference between an address in memory and in the file (`l_addr`).
    pub bias: u64,
    /// First mapped address.
    pub start: u64,
    /// One past the last mapped address.
    pub end: u64,
    /// Address of `.eh_frame_hdr`, 0 if none.
    pub eh_frame_hdr: u64,
    /// Stamp when it was first seen.
    pub loaded: u64,
    /// Stamp when it was gone, 0 while it is there.
    pub unloaded: AtomicU64,
    /// An address of its code: the first that was met.
    pub code: AtomicU64,
    /// Offset of its path in the strings.
    pub path_off: u32,
    /// Length of the path; 0 for the program itself.
    pub path_len: u32,
    /// GNU build-id.
    pub build_id: [u8; 32],
    /// Length of the build-id, 0 if it has none.
    pub build_id_len: u32,
    /// `MODULE_*`
    pub flags: u32,
}

/// [`Module::flags`]: the program itself.
pub const MODULE_MAIN: u32 = 1;
/// [`Module::flags`]: the kernel's vdso.
pub const MODULE_VDSO: u32 = 2;
/// [`Module::flags`]: our own agent.
pub const MODULE_AGENT: u32 = 4;

/// Offset in the memory and size in bytes of slot `index`'s ring.
pub const fn ring_range(rings_off: u64, big_rings: u32, index: u32) -> (u64, u64) {
    if index < big_rings {
        (rings_off + index as u64 * BIG_RING, BIG_RING)
    } else {
        let small = (index - big_rings) as u64;
        (rings_off + big_rings as u64 * BIG_RING + small * SMALL_RING, SMALL_RING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_ends_of_a_ring_share_no_cache_line() {
        use core::mem::offset_of;
        assert_eq!(offset_of!(Slot, tail), 64);
        assert_eq!(offset_of!(Slot, state), 128);
        assert_eq!(offset_of!(Slot, counts), 192);
        assert_eq!(size_of::<Header>(), 4096);
        assert_eq!(offset_of!(Header, recorder) % 64, 0);
    }

    /// A thread writes the first line of its slot and its counts at every event, the
    /// recorder the second: no two of these are one, nor are two slots'.
    #[test]
    fn every_line_of_a_slot_has_one_writer() {
        use core::mem::offset_of;
        assert_eq!((align_of::<Slot>() % 64, size_of::<Slot>() % 64), (0, 0));
        let line = |offset: usize| offset / 64;
        let (head, tail, state) = (offset_of!(Slot, head), offset_of!(Slot, tail), offset_of!(Slot, state));
        let counts = offset_of!(Slot, counts);
        assert!(line(head) < line(tail) && line(tail) < line(state) && line(state) < line(counts));
        assert!(line(offset_of!(Slot, stale) + 7) < line(tail), "what the thread writes ends before");
        assert_eq!(line(counts + size_of::<Counts>() - 1), line(counts));
        assert_eq!((BIG_RING % 64, SMALL_RING % 64), (0, 0));
    }

    /// The options and the recorder's tick are read at every event.
    #[test]
    fn what_threads_read_in_the_header_is_beside_nothing_that_they_write() {
        use core::mem::offset_of;
        let line = |offset: usize| offset / 64;
        let read = [offset_of!(Header, options), offset_of!(Header, recorder)];
        let written = [
            (offset_of!(Header, agent), size_of::<AgentWords>()),
            (offset_of!(Header, live), size_of::<LiveWords>()),
            (offset_of!(Header, counters), Counter::COUNT * 8),
            (offset_of!(Header, scan), size_of::<ScanWords>()),
        ];
        for (offset, size) in written {
            for place in read {
                assert!(
                    line(place) < line(offset) || line(place) > line(offset + size - 1),
                    "{place}, {offset}"
                );
            }
        }
    }

    #[test]
    fn rings_follow_each_other() {
        assert_eq!(ring_range(4096, 2, 0), (4096, BIG_RING));
        assert_eq!(ring_range(4096, 2, 2), (4096 + 2 * BIG_RING, SMALL_RING));
        assert_eq!(ring_range(4096, 2, 3), (4096 + 2 * BIG_RING + SMALL_RING, SMALL_RING));
    }
}
