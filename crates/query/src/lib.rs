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
//! | [`filter`] | `-F key=value` |
//! | [`sort`] | `-S keys` |
//! | [`group`] | `--by` |
//! | [`modes`] | what the recording left out on purpose |
//! | [`summary`] | the facts of a recording and its totals in one value |
//! | [`leaks`] | which blocks count as leaks, and limits that a run must keep |

pub mod filter;
pub mod glob;
pub mod group;
pub mod instant;
pub mod leaks;
pub mod modes;
pub mod session;
pub mod site;
pub mod sort;
pub mod stack;
pub mod summary;
pub mod units;

pub use filter::Filter;
pub use group::{By, Group, Item};
pub use instant::Instant;
pub use modes::{Counted, Modes};
pub use session::{Facts, QueryError, Session, SessionOptions};
pub use sort::{SortKey, SortOrder};
pub use stack::{Frame, Stack};
pub use summary::{Nothing, Stats};
