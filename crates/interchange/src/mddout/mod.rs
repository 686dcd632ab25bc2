//! `mddout.N`: the memory debug data of an embedded target.
//!
//! The C agent (`embedded/agent`) keeps one record for each live block, and
//! where asked a ring of the latest releases, in the target's memory. A dump is
//! a copy of that memory, made by GDB, semihosting, a serial line, or lying
//! inside a core file or RAM image. It describes itself: word size, byte order,
//! which fields a record has and where. `docs/embedded.md` has the layout.
//!
//! | module | does |
//! |---|---|
//! | [`layout`] | the header and the section table |
//! | [`raw`] | a dump cut into its sections, out of a file |
//! | [`image`] | the same out of ELF cores, RAM images, Intel hex, S-records |
//! | [`model`] | [`model::Dump`]: what a dump says, as values |
//! | [`decode`] | sections to values; finds what cannot be trusted |
//! | [`write`](mod@write) | values to a dump, for any target |
//! | [`merge`] | several dumps of one run to one history |
//! | [`matching`] | does this ELF file belong to this dump? |
//! | [`unwind`] | backtraces found by scanning, checked against the ELF's unwind tables |
//! | [`number`] | the next free number |
//! | [`receive`] | dumps out of frames on a serial line |
//! | [`command`] | `highwater mdd …`, all of it |
//! | [`trace`] | dumps to a `.hwt` trace |
//! | [`ecos`] | `stats`, `dump`, `history`, `diff` as eCos's ecosmdd prints them |
//!
//! Everything here reads bytes from strangers: lengths are checked against what
//! is there before anything is read or reserved, and a damaged dump gives what
//! can be trusted together with a list of what cannot.

pub mod command;
pub mod decode;
pub mod ecos;
pub mod image;
pub mod layout;
pub mod matching;
pub mod merge;
pub mod model;
pub mod number;
pub mod raw;
pub mod receive;
pub mod trace;
pub mod unwind;
pub mod write;

use std::path::Path;

pub use command::run;
pub use model::{Block, Dump, Event, Past, Problem};

/// Why nothing at all can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// No header anywhere.
    #[error("not a memory debug dump: no header found")]
    NotADump,
    /// The file ends inside its header.
    #[error("the file ends after {have} bytes, inside the header of {want}")]
    ShortHeader {
        /// Bytes there are.
        have: usize,
        /// Bytes the header claims.
        want: usize,
    },
    /// Written by a newer agent.
    #[error("format version {major}.{minor} is newer than this program knows (1.x)")]
    Version {
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// The header contradicts itself.
    #[error("damaged header: {0}")]
    Header(&'static str),
}

/// Reads a dump: an `mddout.N` file, or an ELF core or memory image that holds
/// one. The whole file is read into memory.
///
/// # Errors
/// If there is no header that can be understood. Everything less is a
/// [`Problem`] of the dump.
pub fn read(path: &Path) -> Result<Dump, ReadError> {
    parse(&std::fs::read(path)?)
}

/// Like [`read`], from bytes.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8]) -> Result<Dump, ReadError> {
    if bytes.starts_with(&layout::MAGIC) {
        return Ok(decode::decode(&raw::split(bytes)?));
    }
    let image = image::Image::parse(bytes)?;
    Ok(decode::decode(&image.find()?))
}
