//! The `.hwt` trace: writer, streaming reader, index, recovery.
//!
//! `docs/format.md` has the format byte by byte. In short: a file header, a
//! slot for the end record, a block of facts, and then blocks of definitions
//! and *groups* of event blocks; a group holds one or more whole epochs. A
//! footer index lets a reader go to an instant; without one the file is read
//! from the front. Nothing in a file is trusted: every length is checked, every
//! byte lies under a checksum, and damage is named, skipped and counted.
//!
//! | module | holds |
//! |---|---|
//! | [`model`] | the values that go in and come out |
//! | [`writer`] | [`Writer`] |
//! | [`reader`] | [`Trace`]: opening, recovery, definitions, keyframes |
//! | [`steps`] | [`Steps`]: the merged order |
//! | [`recording`] | [`Recording`]: a whole recording as values, for importers |
//! | [`clock`] | stamps to nanoseconds |
//! | [`nodes`] | the table of stack nodes |
//! | [`left_out`] | totals of what `--cull` and `--live-only` leave out |
//! | [`varint`] | numbers of variable length |
//! | [`reach`] | what a scan for unreachable blocks found |
//! | [`error`] | [`TraceError`], [`Warning`] |

pub mod clock;
mod defs;
mod entry;
pub mod error;
mod extend;
mod frame;
mod group;
mod index;
mod keyframe;
pub mod left_out;
pub mod model;
pub mod nodes;
#[cfg(feature = "fuzzing")]
pub mod noise;
mod outcome;
pub mod reach;
pub mod reader;
pub mod recording;
mod records;
mod scan;
pub mod steps;
pub mod varint;
pub mod writer;

pub use entry::{Entry, KeyframeReader};
pub use error::{BlockKind, TraceError, Warning};
pub use extend::{Appended, Difference, GroupStart, KeyframePacker, PackedKeyframe};
pub use frame::FORMAT_VERSION;
pub use keyframe::{Keyframe, ThreadState};
pub use outcome::{Kept, PackedOutcome};
pub use reader::{Progress, Trace};
pub use recording::Recording;
pub use steps::{Batch, Brief, Steps};
pub use writer::{Compression, Writer, WriterOptions};
