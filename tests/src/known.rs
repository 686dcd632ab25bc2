//! What a program says of itself: the counts that `programs/known.h` writes.

use std::path::Path;

use serde_json::Value;

use crate::number;

/// Heap operations, by the program's own count or by highwater's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Blocks made; both halves of a realloc count.
    pub allocations: i64,
    /// Blocks given back; both halves of a realloc count.
    pub frees: i64,
    /// Requested bytes of all blocks made.
    pub bytes_allocated: i64,
    /// Requested bytes of all blocks given back.
    pub bytes_freed: i64,
    /// Blocks that were resized.
    pub reallocations: i64,
    /// The greatest number of bytes alive at once.
    pub peak_bytes: i64,
    /// Blocks alive at the end.
    pub live_blocks: i64,
    /// Their requested bytes.
    pub live_bytes: i64,
}

impl Known {
    /// Reads the numbers of a document with the keys of `stats --json`.
    #[track_caller]
    pub fn from_json(document: &Value) -> Self {
        Known {
            allocations: number(document, "allocations"),
            frees: number(document, "frees"),
            bytes_allocated: number(document, "bytes_allocated"),
            bytes_freed: number(document, "bytes_freed"),
            reallocations: number(document, "reallocations"),
            peak_bytes: number(document, "peak_bytes"),
            live_blocks: number(document, "live_blocks"),
            live_bytes: number(document, "live_bytes"),
        }
    }

    /// Reads the file that a program wrote.
    #[track_caller]
    pub fn from_file(path: &Path) -> Self {
        Self::from_json(&json_file(path))
    }

    /// Without what `before` holds: a program's own work, when `before` is the
    /// same program with nothing to do. The peak is the difference too, which
    /// is right where all of `before` lives throughout.
    pub fn minus(self, before: Known) -> Known {
        Known {
            allocations: self.allocations - before.allocations,
            frees: self.frees - before.frees,
            bytes_allocated: self.bytes_allocated - before.bytes_allocated,
            bytes_freed: self.bytes_freed - before.bytes_freed,
            reallocations: self.reallocations - before.reallocations,
            peak_bytes: self.peak_bytes - before.peak_bytes,
            live_blocks: self.live_blocks - before.live_blocks,
            live_bytes: self.live_bytes - before.live_bytes,
        }
    }
}

/// A JSON document that a program wrote.
#[track_caller]
pub fn json_file(path: &Path) -> Value {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => panic!("the program left no counts in {}: {error}", path.display()),
    };
    match serde_json::from_str(&text) {
        Ok(value) => value,
        Err(error) => panic!("{}: {error}: {text}", path.display()),
    }
}
