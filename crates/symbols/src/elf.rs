//! An ELF file: its identity, its sections, its links to debug files.

use std::path::{Path, PathBuf};

use object::{BinaryFormat, CompressionFormat, Object, ObjectSection};

use crate::bytes::{Bytes, OpenError};
use crate::cache::{self, Stamp};
use crate::xz;

/// No section is unpacked to more than this. The largest real ones (browsers)
/// are about half of it.
const SECTION_LIMIT: u64 = 4 << 30;
/// DWARF packs to a fifth or so; whoever claims more than this factor, above
/// [`SMALL_SECTION`], is not a compiler.
const RATIO_LIMIT: u64 = 64;
/// Below this size any factor is fine: small tables of zeroes are real.
const SMALL_SECTION: u64 = 1 << 20;
/// The same for `.gnu_debugdata`, a whole file of symbols.
const MINI_LIMIT: usize = 512 << 20;

/// An ELF file in memory.
#[derive(Clone, Debug)]
pub(crate) struct Elf {
    /// Where it came from.
    pub(crate) path: PathBuf,
    /// Its GNU build-id, empty if it has none.
    pub(crate) build_id: Vec<u8>,
    /// What tells it from other files of this name; `None` for what is no file.
    pub(crate) stamp: Option<Stamp>,
    /// The whole file.
    pub(crate) bytes: Bytes,
}

impl Elf {
    /// Opens a file and reads its build-id.
    pub(crate) fn open(path: &Path) -> Result<Elf, OpenError> {
        // Before the bytes are read: whoever changes them later changes the stamp.
        let stamp = std::fs::metadata(path).ok().map(|facts| cache::stamp(&facts));
        Ok(Elf { stamp, ..Elf::parse(path, Bytes::open(path)?)? })
    }

    /// Takes bytes for a file; `path` is only its name.
    pub(crate) fn parse(path: &Path, bytes: Bytes) -> Result<Elf, OpenError> {
        let file = object::File::parse(&*bytes).map_err(|e| OpenError::NotElf(e.to_string()))?;
        if file.format() != BinaryFormat::Elf {
            return Err(OpenError::NotElf(format!("it is {:?}", file.format())));
        }
        // An unreadable build-id is as good as none: the caller compares it.
        let build_id = file.build_id().ok().flatten().unwrap_or_default().to_vec();
        Ok(Elf { path: path.to_owned(), build_id, stamp: None, bytes })
    }

    /// A view of the headers. Cheap; it cannot fail twice, as it succeeded once,
    /// unless the file under a mapping changed.
    pub(crate) fn object(&self) -> Option<object::File<'_>> {
        object::File::parse(&*self.bytes).ok()
    }

    /// Whether a section of this name has contents.
    pub(crate) fn has_section(&self, name: &str) -> bool {
        self.object().is_some_and(|file| {
            file.section_by_name(name).is_some_and(|s| s.data().is_ok_and(|data| !data.is_empty()))
        })
    }

    /// The contents of a section, unpacked; `None` if it is missing, damaged or
    /// claims a size beyond belief.
    pub(crate) fn section(&self, name: &str) -> Option<Bytes> {
        let file = self.object()?;
        let data = file.section_by_name(name)?.compressed_data().ok()?;
        if data.format == CompressionFormat::None {
            return self.bytes.part(data.data);
        }
        let packed = data.data.len() as u64;
        let most = SECTION_LIMIT.min(packed.saturating_mul(RATIO_LIMIT).max(SMALL_SECTION));
        if data.uncompressed_size > most {
            return None;
        }
        Some(Bytes::from(data.decompress().ok()?.into_owned()))
    }

    /// The file inside `.gnu_debugdata` (MiniDebugInfo): the symbols of local
    /// functions of an otherwise stripped file.
    pub(crate) fn mini_debug_info(&self) -> Option<Elf> {
        let packed = self.section(".gnu_debugdata")?;
        let all = xz::unpack(&packed, MINI_LIMIT)?;
        Elf::parse(&self.path, Bytes::from(all)).ok()
    }

    /// Name and CRC-32 in `.gnu_debuglink`.
    pub(crate) fn debug_link(&self) -> Option<(PathBuf, u32)> {
        let file = self.object()?;
        let (name, crc) = file.gnu_debuglink().ok()??;
        // Only a plain file name: it is joined to folders of ours.
        let name = Path::new(std::str::from_utf8(name).ok()?);
        let plain = name.file_name().is_some_and(|f| f == name.as_os_str());
        plain.then(|| (name.to_owned(), crc))
    }

    /// Name and build-id in `.gnu_debugaltlink`.
    pub(crate) fn alt_link(&self) -> Option<(PathBuf, Vec<u8>)> {
        let file = self.object()?;
        let (name, id) = file.gnu_debugaltlink().ok()??;
        Some((PathBuf::from(std::str::from_utf8(name).ok()?), id.to_vec()))
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_elf_is_refused() {
        let not = |bytes: &[u8]| Elf::parse(Path::new("x"), Bytes::from(bytes.to_vec())).unwrap_err();
        assert!(matches!(not(b""), OpenError::NotElf(_)));
        assert!(matches!(not(b"\x7fELF"), OpenError::NotElf(_)));
        assert!(matches!(not(b"#!/bin/sh\n"), OpenError::NotElf(_)));
        assert!(matches!(not(b"!<arch>\n"), OpenError::NotElf(_)));
    }

    #[test]
    fn hex_keeps_leading_zeroes() {
        assert_eq!(hex(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(hex(&[]), "");
    }
}
