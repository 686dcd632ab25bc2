//! Where records come from on their way into a trace.

use highwater_event::columns::{self, COLUMNS, Stop, Taken};
use highwater_event::ring;

/// Records, one behind the other.
#[derive(Clone, Copy)]
pub(crate) enum Records<'a> {
    /// As [`highwater_event::codec`] has them.
    Bytes(&'a [u8]),
    /// As a ring has them.
    Words(&'a [u64]),
}

impl<'a> Records<'a> {
    /// How many bytes they are.
    pub fn len(self) -> usize {
        match self {
            Records::Bytes(bytes) => bytes.len(),
            Records::Words(words) => 8 * words.len(),
        }
    }

    /// What lies behind the first `bytes` bytes.
    pub fn from(self, bytes: usize) -> Records<'a> {
        match self {
            Records::Bytes(all) => Records::Bytes(all.get(bytes..).unwrap_or_default()),
            Records::Words(all) => Records::Words(all.get(bytes / 8..).unwrap_or_default()),
        }
    }

    /// At most the first `bytes` bytes.
    pub fn up_to(self, bytes: usize) -> Records<'a> {
        match self {
            Records::Bytes(all) => Records::Bytes(all.get(..bytes).unwrap_or(all)),
            Records::Words(all) => Records::Words(all.get(..bytes / 8).unwrap_or(all)),
        }
    }

    /// Cuts them into columns: see [`columns::split`] and [`ring::split`].
    ///
    /// # Safety
    /// At each place of `out`, `len() + SLACK` bytes can be written, and these do not
    /// overlap each other or the records.
    pub unsafe fn split(self, taken: &mut Taken, bound: u64, out: &mut [*mut u8; COLUMNS]) -> Stop {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Records::Bytes(bytes) => columns::split(bytes, taken, bound, out),
                Records::Words(words) => ring::split(words, taken, bound, out),
            }
        }
    }
}
