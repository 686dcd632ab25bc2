//! What a dump says, as values.

use super::layout::Abi;

/// Flags of an event or a block.
pub mod flag {
    /// Canaries around the block.
    pub const GUARDED: u16 = 1;
    /// The canary before the block was overwritten.
    pub const HEAD_DAMAGED: u16 = 2;
    /// The canary behind the block was overwritten.
    pub const TAIL_DAMAGED: u16 = 4;
    /// Half of a realloc.
    pub const PAIR: u16 = 8;
    /// A release that was taken back since the realloc failed; only its number counts.
    pub const VOID: u16 = 0x100;
}

/// How the target finds more return addresses than one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unwind {
    /// Not at all.
    #[default]
    ReturnAddress,
    /// By `_Unwind_Backtrace`: exact.
    Tables,
    /// By frame pointers.
    FramePointer,
    /// By scanning the stack: some may be stale.
    Scan,
    /// By scanning the stack, with the place of each: see [`super::unwind`].
    ScanOffset,
    /// A way that this program does not know.
    Unknown(u8),
}

impl Unwind {
    /// From its number in the options.
    pub fn from_u8(value: u8) -> Unwind {
        match value {
            0 => Unwind::ReturnAddress,
            1 => Unwind::Tables,
            2 => Unwind::FramePointer,
            3 => Unwind::Scan,
            4 => Unwind::ScanOffset,
            other => Unwind::Unknown(other),
        }
    }

    /// Its number in the options.
    pub fn to_u8(self) -> u8 {
        match self {
            Unwind::ReturnAddress => 0,
            Unwind::Tables => 1,
            Unwind::FramePointer => 2,
            Unwind::Scan => 3,
            Unwind::ScanOffset => 4,
            Unwind::Unknown(other) => other,
        }
    }
}

/// What the target was configured to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Actual sizes.
    pub actual: bool,
    /// Times.
    pub time: bool,
    /// Threads.
    pub thread: bool,
    /// Releases.
    pub history: bool,
    /// Return addresses an event, 0 to 15.
    pub backtrace: u8,
    /// How they are found.
    pub unwind: Unwind,
    /// Canaries.
    pub guards: bool,
    /// Checksums.
    pub checksum: bool,
}

/// The target's own counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of the next event.
    pub next_seq: u32,
    /// Allocations recorded, without those taken back.
    pub allocs: u32,
    /// Releases recorded.
    pub frees: u32,
    /// Allocations that failed.
    pub failed: u32,
    /// Allocations for which there was no record free.
    pub lost: u32,
    /// Releases of blocks without a record.
    pub foreign: u32,
    /// History entries overwritten before a dump took them.
    pub history_lost: u32,
    /// History entries ever made.
    pub history_total: u32,
    /// Event numbers that stand for nothing (a realloc failed).
    pub voided: u32,
    /// Canaries found overwritten.
    pub damaged: u32,
    /// Live bytes as requested.
    pub cur_bytes: u64,
    /// Most live bytes as requested.
    pub peak_bytes: u64,
    /// The event that made the peak.
    pub peak_seq: u32,
}

/// The making or the end of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub seq: u32,
    /// Entry point: [`highwater_event::api::ApiKind`]'s number, from 64 on the program's own.
    pub kind: u8,
    /// Number of the thread from 1, `None` where unknown.
    pub thread: Option<u32>,
    /// [`flag`]
    pub flags: u16,
    /// In ticks.
    pub time: Option<u64>,
    /// Return addresses, innermost first, 0 where there was none. With
    /// [`Unwind::ScanOffset`] all but the first are packed.
    pub backtrace: Vec<u64>,
}

/// A block of the heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// What the program got.
    pub ptr: u64,
    /// Bytes it asked for.
    pub size: u64,
    /// Bytes taken from the heap.
    pub actual: Option<u64>,
    /// How it was made.
    pub made: Event,
}

/// A block that has been released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The block.
    pub block: Block,
    /// How it ended.
    pub ended: Event,
}

/// A thread that used the heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The kernel's handle.
    pub handle: u64,
    /// Its name.
    pub name: String,
}

/// A heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heap {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Its name, may be empty.
    pub name: String,
}

/// A task's stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The task's handle.
    pub handle: u64,
    /// First byte.
    pub low: u64,
    /// One past the last.
    pub high: u64,
    /// Bytes that were never written, as last measured.
    pub untouched: u64,
}

/// A loaded object of a hosted program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Where it was loaded.
    pub base: u64,
    /// Its path.
    pub path: String,
}

/// One dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// How the target writes numbers.
    pub abi: Abi,
    /// ELF's number of the processor, 0 unknown.
    pub machine: u16,
    /// What was kept.
    pub options: Options,
    /// An update was under way.
    pub busy: bool,
    /// Counts.
    pub counters: Counters,
    /// Ticks a second, 0 unknown.
    pub tick_hz: u32,
    /// Differs per boot, 0 unknown.
    pub run_id: u32,
    /// Address of the header in the target.
    pub self_addr: u64,
    /// Address of `highwater_mdd_done`.
    pub anchor: u64,
    /// What packed return addresses count from.
    pub text_base: u64,
    /// Bytes of the agent's own memory.
    pub static_bytes: u64,
    /// Bytes of memory given to it.
    pub dynamic_bytes: u64,
    /// GNU build-id of the program, empty if unknown.
    pub build_id: Vec<u8>,
    /// Heaps.
    pub heaps: Vec<Heap>,
    /// Threads; number 1 is the first.
    pub threads: Vec<Thread>,
    /// Task stacks.
    pub stacks: Vec<Stack>,
    /// Names of the kinds from 64 on.
    pub kind_names: Vec<String>,
    /// Loaded objects.
    pub modules: Vec<Module>,
    /// Blocks that were alive, in no order.
    pub live: Vec<Block>,
    /// Blocks there is room for.
    pub live_capacity: u32,
    /// Released blocks, in no order.
    pub history: Vec<Past>,
    /// Released blocks there is room for.
    pub history_capacity: u32,
    /// What cannot be trusted, or is missing.
    pub problems: Vec<Problem>,
}

impl Dump {
    /// Requested bytes of the blocks that were alive.
    pub fn live_bytes(&self) -> u64 {
        self.live.iter().fold(0, |sum, b| sum.saturating_add(b.size))
    }

    /// A thread by its number.
    pub fn thread(&self, number: u32) -> Option<&Thread> {
        self.threads.get((number as usize).checked_sub(1)?)
    }

    /// Is anything wrong that makes the records doubtful (and not only few)?
    pub fn is_damaged(&self) -> bool {
        self.problems.iter().any(Problem::is_damage)
    }
}

/// Something that the reader of a dump should know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The dump was made in the middle of an update.
    #[error("made in the middle of an update: the latest event may be missing or doubled")]
    Busy,
    /// The file ends early.
    #[error("the file ends inside the {section}: {have} of {want} entries are there")]
    Truncated {
        /// What is cut.
        section: &'static str,
        /// Whole entries that are there.
        have: u64,
        /// Entries the header claims.
        want: u64,
    },
    /// A section claims more entries than it has room for.
    #[error("the {section} claims {count} entries but has room for {capacity}")]
    Overfull {
        /// Which.
        section: &'static str,
        /// Entries claimed.
        count: u32,
        /// Room.
        capacity: u32,
    },
    /// A section cannot be understood.
    #[error("the {section} cannot be read: {why}")]
    Unreadable {
        /// Which.
        section: &'static str,
        /// Why.
        why: &'static str,
    },
    /// A section's memory is not in the image.
    #[error("the {section} at {addr:#x} is not in this image")]
    NotInImage {
        /// Which.
        section: &'static str,
        /// Where it should be.
        addr: u64,
    },
    /// Records were left out since they cannot be.
    #[error("{count} {section} were left out: {why}")]
    Dropped {
        /// Which.
        section: &'static str,
        /// How many.
        count: u64,
        /// Why.
        why: &'static str,
    },
    /// A checksum does not fit.
    #[error("the checksum of the {0} does not fit: some of them are damaged")]
    Checksum(&'static str),
    /// The trailer does not fit.
    #[error("the file's own checksum does not fit: it was damaged on its way")]
    Trailer,
    /// There is something behind the end.
    #[error("{0} bytes behind the end were ignored")]
    Trailing(u64),
    /// The target's counts do not fit its records.
    #[error("the target counts {counted} live blocks, {found} are recorded")]
    Count {
        /// By the counters.
        counted: u32,
        /// In the table.
        found: u64,
    },
    /// Or its bytes.
    #[error("the target counts {counted} live bytes, the records hold {found}")]
    Bytes {
        /// By the counter.
        counted: u64,
        /// In the table.
        found: u64,
    },
    /// A record names a thread that is not in the table.
    #[error("{0} records name a thread that is not in the table")]
    Threads(u64),
    /// The table was full.
    #[error("{0} ALLOCATIONS ARE MISSING: the target's table was full; raise HIGHWATER_MDD_RECORDS")]
    Lost(u32),
    /// Blocks from before the agent, or whose record was lost.
    #[error("{0} releases of blocks that the target had no record of")]
    Foreign(u32),
    /// Allocations that failed.
    #[error("{0} allocations failed for want of memory")]
    Failed(u32),
    /// Overwritten canaries.
    #[error("{0} blocks were found with bytes written before or behind them")]
    Overruns(u32),
}

impl Problem {
    /// Does it put the records that are there in doubt (rather than tell of others)?
    pub fn is_damage(&self) -> bool {
        !matches!(
            self,
            Problem::Lost(_)
                | Problem::Foreign(_)
                | Problem::Failed(_)
                | Problem::Overruns(_)
                | Problem::Trailing(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwind_kinds_round_trip() {
        for n in 0..16 {
            assert_eq!(Unwind::from_u8(n).to_u8(), n);
        }
    }

    #[test]
    fn a_full_table_is_no_damage_but_a_cut_file_is() {
        assert!(!Problem::Lost(3).is_damage());
        assert!(Problem::Truncated { section: "x", have: 0, want: 1 }.is_damage());
    }
}
