//! highwater inside a program.
//!
//! `no_std`, without dependencies, for stable Rust.
//!
//! | module | for |
//! |---|---|
//! | [`mdd`] | firmware in Rust: the heap's records in the agent's `mddout` files |
#![no_std]

pub mod mdd;
