//! Leaks: which blocks count, who is to blame, and when a run fails for them.
//!
//! | module | holds |
//! |---|---|
//! | [`findleaks`] | the search of the article's `findleaks`: made in a range, never given back |
//! | [`pattern`] | LeakSanitizer's patterns |
//! | [`suppressions`] | what is not reported: files of `leak:pattern`, and the runtime's own residues |
//! | [`residues`] | the blocks that libc, libstdc++ and the loader never give back |
//! | [`reach`] | what a scan found unreachable: by stack, suppressed blocks apart |
//! | [`holders`] | who still points to what is not lost |
//! | [`report`] | what is alive at the end, without what is suppressed |
//! | [`window`] | made in a window, alive after it |
//! | [`actions`] | what survives every one of several equal actions |
//! | [`per_action`] | how much each of these adds, and how sure that is |
//! | [`evidence`] | one pass over the trace: each stack's levels by slice, lifetimes |
//! | [`lifetimes`] | how long a site's blocks live, and which are stale |
//! | [`growth`] | does it grow: edleak's ways, and our own |
//! | [`wrappers`] | functions that only hand memory on |
//! | [`rank`] | all of it put together: who leaks |
//! | [`fingerprint`] | what makes a leak the same one in the next recording |
//! | [`baseline`] | what an earlier recording had |
//! | [`budget`] | limits of single sites |
//! | [`gates`] | limits that a run must keep |

pub mod actions;
pub mod baseline;
pub mod budget;
pub mod evidence;
pub mod findleaks;
pub mod fingerprint;
pub mod gates;
pub mod growth;
pub mod holders;
pub mod lifetimes;
pub mod pattern;
pub mod per_action;
pub mod rank;
pub mod reach;
pub mod report;
pub mod residues;
pub mod suppressions;
pub mod window;
pub mod wrappers;
