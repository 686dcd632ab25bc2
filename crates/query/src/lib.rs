//! What every command shares: an opened trace with names ([`Session`]), the
//! site of a stack, filters, sort keys, instants, groups.
//!
//! | module | holds |
//! |---|---|
//! | [`session`] | [`Session`]: a trace and its names |
//! | [`stack`] | [`Stack`], [`Frame`]: a resolved call stack |
//! | [`site`] | which frame of a stack matters to the user |
//! | [`units`] | sizes and times as people write them |
//! | [`instant`] | `120ms`, `#4711`, `@mark`, `peak` |
//! | [`glob`] | `*` and `?` |
//! | [`inlining`] | `-n`, `-I GLOB` |
//! | [`phase`] | what lies between marks |
//! | [`capability`] | what a trace can serve |
//! | [`walk`] | events, with the blocks that they make and end |
//! | [`filter`] | `-F key=value` |
//! | [`sort`] | `-S keys` |
//! | [`group`] | `--by` |
//! | [`modes`] | what the recording left out on purpose |
//! | [`format`] | `-f FORMAT`, rows |
//! | [`diff`] | what has changed between two instants, runs or builds |
//! | [`summary`] | the facts of a recording and its totals in one value |
//! | [`tree`] | stacks put together as trees |
//! | [`survey`] | the counts of a part of a trace |
//! | [`leaks`] | which blocks count as leaks, and limits that a run must keep |

pub mod capability;
pub mod diff;
pub mod filter;
pub mod format;
pub mod glob;
pub mod group;
mod held;
pub mod inlining;
pub mod instant;
pub mod leaks;
pub mod modes;
mod nearest;
pub mod phase;
pub mod session;
pub mod site;
pub mod sort;
pub mod stack;
pub mod summary;
pub mod survey;
pub mod tree;
pub mod units;
pub mod walk;

pub use capability::Capability;
pub use filter::{Filter, Selection};
pub use format::{Format, Row, Value};
pub use group::{By, Counts, Group, Item, Metric};
pub use inlining::Inlining;
pub use instant::Instant;
pub use modes::{Counted, Modes};
pub use session::{Facts, QueryError, Session, SessionOptions};
pub use sort::{SortKey, SortOrder};
pub use stack::{Frame, Stack};
pub use summary::{Nothing, Stats};
pub use survey::{Ask, Survey};
