//! What a trace holds, as values: the same types go into a writer and come out
//! of a reader, and everything downstream (replay, query, interchange) sees
//! only these.

use std::path::PathBuf;

use highwater_event::api::ApiKind;
use highwater_event::codec::State;
pub use highwater_event::node::{Node, NodeId, Truncation};

/// Number of a thread in this trace, from 0 in the order of first events.
pub type ThreadNo = u32;

/// Facts about the whole recording, known when it starts.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Version of highwater that wrote the trace.
    pub writer: String,
    /// Path of the program (`/proc/PID/exe`).
    pub exe: PathBuf,
    /// Its arguments, argv[0] first (lossy UTF-8).
    pub args: Vec<String>,
    /// Working directory at the start.
    pub cwd: PathBuf,
    /// Process id, in the recorder's name space.
    pub pid: u32,
    /// Number of this image in a chain of execs, from 0.
    pub image: u32,
    /// `x86_64`
    pub arch: String,
    /// Bytes in a page.
    pub page_size: u64,
    /// What a stamp is: `tsc` or `ns`.
    pub stamp_kind: String,
    /// Wall clock at time 0, ns since 1970.
    pub wall_ns: u64,
    /// Host name.
    pub host: String,
    /// Recording options that left something out or added something, by name
    /// (`min_size=64`, `sample=524288`, `cull=10ms`, `live_only`, `depth=16`,
    /// `on_full=drop`, `actual_size`, `no_free_stacks`).
    /// Imported ones say `from=TOOL` and what that does not keep: `no_threads`,
    /// `no_times`, `no_stacks`, `no_history` (only what was alive at the end);
    /// `tick_hz=100` is the clock that their times were read from.
    pub options: Vec<String>,
    /// What the program tells LeakSanitizer about leaks that are meant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suppressions: Vec<Suppressions>,
    /// How much memory the program may have, the tightest limit first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory_limits: Vec<MemoryLimit>,
}

/// A limit of a program's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct MemoryLimit {
    /// `RLIMIT_AS`, `RLIMIT_DATA` or `cgroup`.
    pub of: String,
    /// In bytes.
    pub bytes: u64,
}

/// Rules of suppression, as LeakSanitizer reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Suppressions {
    /// The function or file that they come from.
    pub from: String,
    /// The rules, a line each.
    pub text: String,
}

impl Meta {
    /// The value of an option of the recording (`""` for one without), if it was given.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| match option.split_once('=') {
            Some((key, value)) => (key == name).then_some(value),
            None => (option == name).then_some(""),
        })
    }
}

/// A point at which both clocks were read; times between two points are
/// interpolated on a straight line, times outside follow the nearest line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPoint {
    /// The agent's stamp.
    pub stamp: u64,
    /// Nanoseconds since the start of the recording (monotonic).
    pub ns: u64,
}

/// A node of the stack tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeDef {
    /// Its id, never 0. A parent is always defined before its children, but ids
    /// may leave gaps.
    pub id: NodeId,
    /// The caller's node, 0 for an outermost frame.
    pub parent: NodeId,
    /// Return address in the target's memory; [`Node::truncation`] markers keep
    /// their packed form in `module` = [`Node::MARKER_MODULE`].
    pub pc: u64,
    /// Index of the module, or `Node::NO_MODULE`, `Node::MARKER_MODULE`.
    pub module: u16,
}

/// A loaded object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleDef {
    /// Its index; a node's `module` refers to it.
    pub index: u16,
    /// File, as the loader named it; the program itself has its real path.
    pub path: String,
    /// Address in memory minus address in the file.
    pub bias: u64,
    /// First mapped address.
    pub start: u64,
    /// One past the last mapped address.
    pub end: u64,
    /// GNU build-id, empty if it has none.
    pub build_id: Vec<u8>,
    /// Stamp of the first sight.
    pub loaded: u64,
    /// Stamp of its end, 0 while it is loaded. A module is written again, with
    /// the same index, when this changes.
    pub unloaded: u64,
    /// `highwater_event::layout::MODULE_*`
    pub flags: u32,
}

/// A thread. Written again, with the same number, when its name changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadDef {
    /// Its number.
    pub thread: ThreadNo,
    /// Kernel thread id.
    pub tid: u32,
    /// Name, at most 15 bytes of it, lossy UTF-8.
    pub name: String,
    /// Stamp of its first sight.
    pub start: u64,
}

/// A sample of the target's memory as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RssSample {
    /// Nanoseconds since the start.
    pub ns: u64,
    /// Resident bytes, without what highwater shares with the target.
    pub rss: u64,
    /// Bytes that highwater shares with the target.
    pub own: u64,
}

/// A named instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Nanoseconds since the start.
    pub ns: u64,
    /// Its name.
    pub name: String,
}

/// The names at an address, where they came with the trace: they are believed
/// before any file is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameDef {
    /// As in [`NodeDef::module`].
    pub module: u16,
    /// As in [`NodeDef::pc`].
    pub pc: u64,
    /// The functions there, inlined ones first, the physical one last.
    pub frames: Vec<NameFrame>,
}

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameFrame {
    /// Its name, demangled; empty where unknown.
    pub function: String,
    /// Bytes from its start, where known.
    pub offset: Option<u64>,
    /// Path of the module; empty: as the module's definition says.
    pub module: String,
    /// Source file; empty where unknown.
    pub file: String,
    /// Line, from 1; 0 where unknown.
    pub line: u32,
}

/// From this event on, events were numbered from `original` on in the data that
/// the trace was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renumbered {
    /// Seqno in this trace.
    pub seqno: u64,
    /// What it was.
    pub original: u64,
}

/// Bytes under a name, for whoever knows what they mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The name. What it is about, then a dot, then what it says: `dtrace.report`.
    pub name: String,
    /// The bytes.
    pub value: Vec<u8>,
}

/// A run of records of one thread: exactly the bytes of its ring.
#[derive(Clone, Copy, Debug)]
pub struct EventBlock<'a> {
    /// Whose.
    pub thread: ThreadNo,
    /// Allocs and frees in it (special records do not count).
    pub events: u32,
    /// The codec's state before the first record.
    pub start: State,
    /// The records (`highwater_event::codec`), no pads.
    pub payload: &'a [u8],
}

/// A block of the live set, as a keyframe holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Where.
    pub addr: u64,
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes, where recorded.
    pub usable: Option<u64>,
    /// From where.
    pub node: NodeId,
    /// Who made it.
    pub thread: ThreadNo,
    /// Through which entry point.
    pub api: ApiKind,
    /// Seqno of the event that made it.
    pub seqno: u64,
    /// Nanoseconds since the start, then.
    pub ns: u64,
}

/// How the target ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedHow {
    /// By exit; the code is the status.
    Exit,
    /// By a signal; the code is its number.
    Signal,
    /// By becoming another image.
    Exec,
    /// The recorder let go of it.
    Detached,
    /// It still runs (the trace is being written).
    Running,
    /// Nobody knows: the trace has no end.
    #[default]
    Lost,
}

/// The end of a recording.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct End {
    /// How.
    pub how: EndedHow,
    /// Exit status or signal number.
    pub code: i32,
    /// Nanoseconds from start to end.
    pub duration_ns: u64,
    /// Events that were not recorded.
    pub dropped: u64,
    /// Nanoseconds that threads waited for room in their rings, summed.
    pub stalled_ns: u64,
    /// CPU time of the recorder, ns.
    pub recorder_cpu_ns: u64,
    /// Why the recorder stopped writing before the end, if it did (`no space
    /// left on device`, `--max-trace-size reached`).
    pub cut: Option<String>,
    /// Processes that the target started and that were not recorded.
    pub children: u64,
    /// The scan for unreachable blocks; `None` if nobody asked for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<crate::reach::ScanRef>,
    /// The agent's counters, by name.
    pub counters: Vec<(String, u64)>,
}

/// What an event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Made a block.
    Alloc {
        /// Requested bytes.
        size: u64,
        /// Usable bytes, where recorded.
        usable: Option<u64>,
    },
    /// Gave one back.
    Free,
}

/// One heap operation in the merged order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number in the merged order, from 0.
    pub seqno: u64,
    /// Nanoseconds since the start.
    pub ns: u64,
    /// The raw stamp.
    pub stamp: u64,
    /// Who.
    pub thread: ThreadNo,
    /// What.
    pub op: Op,
    /// Through which entry point.
    pub api: ApiKind,
    /// The block.
    pub addr: u64,
    /// From where; 0 where no stack was taken.
    pub node: NodeId,
    /// The two halves of a realloc carry the same number here (the seqno of
    /// the free half).
    pub pair: Option<u64>,
}

/// A record that is not an alloc or a free, in its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// The realloc whose free half was the event `free_seqno` failed: that free
    /// did not happen.
    ReallocUndo {
        /// Seqno of the free half, `None` if it is not in the trace.
        free_seqno: Option<u64>,
        /// The block.
        addr: u64,
    },
    /// A mapping was made (`mmap`).
    Mmap {
        /// Where.
        addr: u64,
        /// Bytes.
        len: u64,
        /// From where.
        node: NodeId,
    },
    /// A mapping was removed.
    Munmap {
        /// Where.
        addr: u64,
        /// Bytes.
        len: u64,
        /// From where.
        node: NodeId,
    },
    /// A mapping was moved or resized.
    Mremap {
        /// Old place.
        old: u64,
        /// Old bytes.
        old_len: u64,
        /// New place.
        new: u64,
        /// New bytes.
        new_len: u64,
        /// From where.
        node: NodeId,
    },
    /// The program break moved.
    Brk {
        /// Old break.
        old: u64,
        /// New break.
        new: u64,
        /// From where.
        node: NodeId,
    },
    /// Events are missing here.
    Dropped {
        /// How many.
        count: u64,
    },
    /// The thread waited for room in its ring.
    Stalled {
        /// How long, ns.
        ns: u64,
    },
}

/// One step of the merged stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An alloc or a free.
    Event(Event),
    /// Anything else.
    Special {
        /// Nanoseconds since the start.
        ns: u64,
        /// Who.
        thread: ThreadNo,
        /// What.
        what: Special,
    },
}
