//! The event model of highwater, its byte encoding, and the layout of the
//! memory that a target shares with its recorder.
//!
//! Constraints, in the order in which they decide:
//!
//! * This crate is compiled twice: into the `highwater` command, and by plain
//!   `rustc` into the agent that runs inside the target. So it is `no_std`, has
//!   no dependency, and never allocates.
//! * What an agent writes is read by another process that may not trust it:
//!   every decoder here works on a slice, checks every length and returns a
//!   value, never a panic.
//! * What can be done in the recorder is not done in the target: a thread puts
//!   plain words into its ring, and the recorder makes the small numbers of the
//!   trace of them.
//!
//! | module | holds |
//! |---|---|
//! | [`api`] | [`api::ApiKind`], the entry points of the heap |
//! | [`ring`] | a heap operation as words, as a thread's ring holds it |
//! | [`codec`] | a heap operation as bytes: [`codec::Encoder`], [`codec::Decoder`] |
//! | [`columns`] | the same records with a column for each field, as the trace keeps them |
//! | [`node`] | call stacks as an interned tree: [`node::Node`] |
//! | [`counted`] | what a target's threads counted by themselves |
//! | [`sample`] | which blocks a sampling recorder keeps |
//! | [`layout`] | the shared memory: header, slots, rings, nodes, modules |
#![cfg_attr(not(test), no_std)]

pub mod api;
pub mod codec;
pub mod columns;
pub mod counted;
pub mod layout;
pub mod node;
pub mod ring;
pub mod sample;
