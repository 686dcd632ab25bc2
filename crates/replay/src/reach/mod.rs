//! Which blocks a program can still reach: the analysis of a scan.
//!
//! The scan's own work, stopping the program and reading its memory, is not
//! here: [`Memory`] stands for it. The order of the work:
//!
//! 1. [`Blocks`]: the live set, sorted, with an index that finds the block
//!    around any address in constant time;
//! 2. [`Graph`]: every word of every block that points into a block, and with
//!    [`graph::roots`] the same for the roots;
//! 3. [`classify::classify`]: memcheck's four classes;
//! 4. [`retained::retained`]: the dominator tree, and what would go with a block;
//! 5. [`record::record`]: the result as the trace keeps it.
//!
//! | module | holds |
//! |---|---|
//! | [`blocks`] | address -> block |
//! | [`pages`] | which pages are the allocator's |
//! | [`graph`] | the pointers |
//! | [`heuristics`] | pointers into the middle that are as good as to the start |
//! | [`classify`] | definitely, indirectly, possibly lost, still reachable |
//! | [`retained`] | retained sizes |
//! | [`record`] | a [`highwater_trace::reach::Reach`] of all that |

pub mod blocks;
pub mod classify;
pub mod graph;
pub mod heuristics;
pub mod pages;
pub mod record;
pub mod retained;

#[cfg(test)]
mod model;

pub use blocks::{Block, Blocks};
pub use graph::{Graph, RootPointer, RootRange};
pub use pages::Pages;

/// The memory of a program that stands still.
pub trait Memory: Sync {
    /// Fills `words` with the memory from `addr` (a multiple of 8) on. What
    /// cannot be read, or was never touched, is zeros.
    fn read(&self, addr: u64, words: &mut [u64]);

    /// Is this address in a loaded object, outside of its code?
    fn in_object(&self, addr: u64) -> bool;
}
