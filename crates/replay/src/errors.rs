//! Bad frees.

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_trace::model::ThreadNo;

/// What was wrong with a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The block was free already.
    DoubleFree,
    /// The address is no block's start.
    InvalidFree,
    /// The block belongs to another family of functions.
    Mismatched,
}

impl ErrorKind {
    /// The name in JSON: `double_free`, `invalid_free`, `mismatched`.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::DoubleFree => "double_free",
            ErrorKind::InvalidFree => "invalid_free",
            ErrorKind::Mismatched => "mismatched",
        }
    }
}

/// How a block was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocRecord {
    /// Its address.
    pub addr: u64,
    /// Requested bytes.
    pub size: u64,
    /// Seqno of the allocation.
    pub seqno: u64,
    /// When, ns.
    pub ns: u64,
    /// Who.
    pub thread: ThreadNo,
    /// Through which entry point.
    pub api: ApiKind,
    /// From where.
    pub node: NodeId,
}

/// How a block was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeRecord {
    /// Seqno of the free.
    pub seqno: u64,
    /// When, ns.
    pub ns: u64,
    /// Who.
    pub thread: ThreadNo,
    /// Through which entry point.
    pub api: ApiKind,
    /// From where, 0 where no stack was taken.
    pub node: NodeId,
}

/// A bad free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapError {
    /// What was wrong.
    pub kind: ErrorKind,
    /// The address that was given to free.
    pub addr: u64,
    /// The bad free itself.
    pub free: FreeRecord,
    /// The block: the one freed before, the one around the address, the one of
    /// the other family. `None` where there is no such block.
    pub allocated: Option<AllocRecord>,
    /// The earlier free, of a double free.
    pub freed: Option<FreeRecord>,
}

/// Error records that are kept; further ones are only counted.
pub const MAX_ERRORS: usize = 10_000;
