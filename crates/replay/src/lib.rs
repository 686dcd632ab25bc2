//! What a heap did: pure functions over the merged stream of
//! [`Step`](highwater_trace::model::Step)s.
//!
//! One streaming pass; memory is bounded by the live set, the number of sites
//! and threads, and the constants that are named here, never by the length of
//! the stream:
//!
//! * a live block: 36 bytes in a slab and at most 16 bytes of index (lines of 64
//!   bytes for four to eight entries), so at most 54 bytes. While the index grows,
//!   the old one lives beside the new one for a moment;
//! * the present epoch: 8 bytes an event, 8 MiB at most;
//! * recently freed blocks ([`Options::remember_freed`], 262,144 by default): 80
//!   bytes each, 20 MiB in all, used only as far as there are any, and as much
//!   again to find them by address where many frees are of unknown blocks;
//! * a site: about 100 bytes; a thread: about 120 bytes.
//!
//! | module | holds |
//! |---|---|
//! | [`replay`](mod@replay) | [`Replay`]: the pass itself |
//! | [`feed`] | a trace's events into a replay, many at a time |
//! | [`additions`] | keyframes and an outcome for the trace, made on the way |
//! | [`outcome`] | what a finished replay says without its live blocks, in memory and as bytes |
//! | [`evidence`] | what leaks are ranked by: each stack's course, lifetimes, what is left of it |
//! | [`totals`] | what is counted: overall, a thread, a site |
//! | [`live`] | the live set at an instant, survivors, the difference of two |
//! | [`errors`] | double, invalid and mismatched frees |
//! | [`sampling`] | estimates and their errors, where only some blocks were recorded |
//! | [`peak`] | the highest live size, when, and how sure that is |
//! | [`series`] | live bytes over time in a bounded number of points |
//! | [`histogram`] | counts by powers of two |
//!
//! ```
//! use highwater_replay::{Options, Replay};
//! let steps: Vec<highwater_trace::model::Step> = Vec::new();
//! let mut steps = steps.into_iter();
//! let replay = Replay::run(Options::default(), || Ok::<_, std::convert::Infallible>(steps.next().map(|step| (0, step))))?;
//! assert_eq!(replay.totals().events, 0);
//! # Ok::<(), std::convert::Infallible>(())
//! ```

pub mod additions;
mod ahead;
mod block;
mod contest;
mod dense;
pub mod errors;
pub mod evidence;
pub mod feed;
mod freed;
pub mod histogram;
mod index;
pub mod live;
mod memory;
mod order;
pub mod outcome;
pub mod peak;
pub mod reach;
pub mod replay;
pub mod sampling;
pub mod series;
mod table;
pub mod totals;
pub mod watch;

#[cfg(test)]
mod coarse;
#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;

pub use additions::Additions;
pub use errors::{AllocRecord, ErrorKind, FreeRecord, HeapError};
pub use evidence::Evidence;
pub use feed::Feed;
pub use live::{LiveBlock, LiveDiff, diff};
pub use outcome::Outcome;
pub use replay::{Options, Replay, Until};
pub use totals::{SiteTotals, ThreadTotals, Totals};
