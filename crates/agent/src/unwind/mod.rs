//! Unwinding: from a return address to a rule, and along rules up the stack.
//!
//! A *rule* says, for one code address, how the caller's registers follow from
//! this frame's. It is compiled once from `.eh_frame` ([`cfi`]), packed into 64
//! bits ([`rule`]) and kept in a process-wide table that is read without a lock
//! ([`table`]). [`walk`] applies rules frame by frame; [`cache`] stands in front
//! and walks only what has changed; [`memo`] stands in front of that and knows
//! the stacks that were met before.

pub mod cache;
pub mod cfi;
pub mod memo;
pub mod rule;
pub mod table;
pub mod walk;

#[cfg(test)]
mod tests;
