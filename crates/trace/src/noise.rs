//! Parsers that fuzz targets reach by themselves.

use crate::keyframe::{read_difference, read_live};

/// Live blocks and threads in the payload of a keyframe's part, if it is one.
pub fn keyframe(bytes: &[u8], count: u32) -> Option<usize> {
    let mut blocks = Vec::new();
    let threads = read_live(bytes, count, &mut blocks)?;
    Some(blocks.len() + threads.map_or(0, |threads| threads.len()))
}

/// The same, and what is gone, of the first part of a difference at `seqno`.
pub fn difference(bytes: &[u8], seqno: u64, count: u32) -> Option<usize> {
    let mut blocks = Vec::new();
    let (threads, gone) = read_difference(bytes, seqno, count, &mut blocks)?;
    assert!(gone.base <= seqno && gone.places.is_sorted_by(|a, b| a < b));
    Some(blocks.len() + gone.places.len() + threads.map_or(0, |threads| threads.len()))
}
