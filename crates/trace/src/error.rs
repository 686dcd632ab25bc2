//! What can go wrong with a trace, as values and as one line each.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The kinds of block in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockKind {
    /// The slot of the end record.
    End = 1,
    /// Facts about the recording.
    Meta = 2,
    /// Nodes, modules, threads, clock points, RSS samples, marks.
    Definitions = 3,
    /// The list of the event blocks of one group of epochs.
    Group = 4,
    /// Heap operations of one thread.
    Events = 5,
    /// The live set at an instant.
    Keyframe = 6,
    /// The footer index.
    Index = 7,
    /// What a scan for unreachable blocks found.
    Reach = 8,
    /// What a replay of the whole trace found.
    Outcome = 9,
    /// What it found that leaks are ranked by.
    Evidence = 10,
    /// The live set at an instant, as differences to a keyframe before it.
    Difference = 11,
    /// What was counted up to an instant of which the live set is known.
    Totals = 12,
    /// A live set that is only there to be differed from.
    Base = 13,
}

impl BlockKind {
    /// The kind with this number, if this version knows it.
    pub const fn from_u8(value: u8) -> Option<BlockKind> {
        Some(match value {
            1 => BlockKind::End,
            2 => BlockKind::Meta,
            3 => BlockKind::Definitions,
            4 => BlockKind::Group,
            5 => BlockKind::Events,
            6 => BlockKind::Keyframe,
            7 => BlockKind::Index,
            8 => BlockKind::Reach,
            9 => BlockKind::Outcome,
            10 => BlockKind::Evidence,
            11 => BlockKind::Difference,
            12 => BlockKind::Totals,
            13 => BlockKind::Base,
            _ => return None,
        })
    }

    /// What users read.
    pub const fn name(self) -> &'static str {
        match self {
            BlockKind::End => "end record",
            BlockKind::Meta => "recording facts",
            BlockKind::Definitions => "definitions",
            BlockKind::Group => "group table",
            BlockKind::Events => "events",
            BlockKind::Keyframe => "keyframe",
            BlockKind::Index => "index",
            BlockKind::Reach => "reachability scan",
            BlockKind::Outcome => "outcome",
            BlockKind::Evidence => "evidence",
            BlockKind::Difference => "difference of keyframes",
            BlockKind::Totals => "totals at a keyframe",
            BlockKind::Base => "base of differences",
        }
    }
}

/// Why a trace cannot be written or opened. Each is one line that names the
/// file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There is a file of that name already.
    #[error("{}: exists already; use --force to overwrite it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be created.
    #[error("{}: cannot create the trace: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A write failed. What was written before stays readable, and
    /// [`crate::Writer::finish`] can still say why.
    #[error("{}: cannot write at offset {offset}: {source}; the trace ends there", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Where the write began.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The size limit of [`crate::WriterOptions::max_size`] is reached.
    #[error("{}: --max-trace-size of {limit} bytes reached; the trace ends there", path.display())]
    SizeLimit {
        /// The file.
        path: PathBuf,
        /// The limit, bytes.
        limit: u64,
    },
    /// An earlier write failed; nothing is taken any more.
    #[error("{}: the trace was cut short before: {reason}", path.display())]
    Stopped {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The bytes given to [`crate::Writer::events`] are not records.
    #[error("{}: thread {thread} gave bytes that are no records (at byte {offset} of its block)", path.display())]
    BadRecords {
        /// The file.
        path: PathBuf,
        /// The thread.
        thread: u32,
        /// Offset in the payload.
        offset: usize,
    },
    /// The file could not be opened or read.
    #[error("{}: cannot read at offset {offset}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is empty.
    #[error("{}: the file is empty, so nothing was recorded; record again with `highwater run`", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Something else than a highwater trace.
    #[error("{}: not a highwater trace: {looks_like} at offset 0; {advice}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it seems to be.
        looks_like: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// A trace of a later version.
    #[error(
        "{}: written by format version {version}; this highwater reads up to {supported}; upgrade highwater",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The greatest that is understood.
        supported: u32,
    },
    /// The first bytes are a trace's but damaged.
    #[error("{}: damaged file header at offset 0 ({what}); the trace cannot be read, use another copy", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

/// Something that is wrong with a trace that can be read all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The file ends inside a block; what is before it is used.
    CutTail {
        /// Where the valid part ends.
        offset: u64,
        /// Bytes behind it.
        bytes: u64,
    },
    /// One block cannot be used.
    Damaged {
        /// Where it starts.
        offset: u64,
        /// What it was, where that is known.
        kind: Option<BlockKind>,
        /// Events in it.
        events: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// No usable footer index: it was rebuilt.
    MissingIndex,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::CutTail { offset, bytes } => {
                write!(f, "the file is cut at offset {offset}: {bytes} bytes behind it are ignored")
            }
            Warning::Damaged { offset, kind, events, what } => {
                let kind = kind.map_or("unknown", BlockKind::name);
                write!(f, "damaged block at offset {offset} ({kind}): {what}")?;
                if *events > 0 {
                    write!(f, "; {events} events lost")?;
                }
                Ok(())
            }
            Warning::MissingIndex => {
                f.write_str("no index at the end of the file: it was rebuilt by reading")
            }
        }
    }
}
