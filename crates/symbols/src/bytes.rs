//! Bytes of a file, shared: a mapped file, a read one, an unpacked section.

use std::fs::File;
use std::io::{self, Read};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

/// Files up to this size are read, greater ones mapped. A mapped file that is
/// cut while we read it raises SIGBUS; small ones are what a compiler rewrites
/// all the time, and copying them costs less than a page fault a page.
const READ_UP_TO: u64 = 4 << 20;

/// A shared, immutable run of bytes. Cloning and slicing copy nothing.
#[derive(Clone)]
pub(crate) struct Bytes {
    backing: Arc<Backing>,
    range: Range<usize>,
}

enum Backing {
    Map(Mmap),
    Heap(Vec<u8>),
}

/// Why a file could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The system said no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A FIFO or a device could block for ever, or have no end.
    #[error("not a regular file")]
    NotRegular,
    /// Not ELF, or cut.
    #[error("not a readable ELF file: {0}")]
    NotElf(String),
}

impl OpenError {
    /// Whether there is no such file.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, OpenError::Io(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
    }
}

impl Bytes {
    /// Reads or maps a regular file.
    pub(crate) fn open(path: &Path) -> Result<Bytes, OpenError> {
        // Asked before opening, because opening a FIFO blocks.
        if !std::fs::metadata(path)?.is_file() {
            return Err(OpenError::NotRegular);
        }
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        if size <= READ_UP_TO {
            let mut all = Vec::new();
            file.by_ref().take(READ_UP_TO).read_to_end(&mut all)?;
            return Ok(Bytes::from(all));
        }
        // SAFETY: the mapping is private and read-only. Someone else writing the
        // file changes bytes under us, which every reader of them stands: they
        // are checked as hostile input at each use and never taken for `str`
        // without a check on a copy or a fresh borrow.
        let map = unsafe { Mmap::map(&file) }?;
        let range = 0..map.len();
        Ok(Bytes { backing: Arc::new(Backing::Map(map)), range })
    }

    /// The part of these bytes that `part`, borrowed from them, covers.
    pub(crate) fn part(&self, part: &[u8]) -> Option<Bytes> {
        let start = (part.as_ptr() as usize).checked_sub(self.as_ptr() as usize)?;
        let end = start.checked_add(part.len())?;
        if end > self.len() {
            return None;
        }
        let range = self.range.start + start..self.range.start + end;
        Some(Bytes { backing: Arc::clone(&self.backing), range })
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(all: Vec<u8>) -> Bytes {
        let range = 0..all.len();
        Bytes { backing: Arc::new(Backing::Heap(all)), range }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &*self.backing {
            Backing::Map(map) => map,
            Backing::Heap(all) => all,
        };
        all.get(self.range.clone()).unwrap_or_default()
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({})", self.range.len())
    }
}

// SAFETY: the bytes lie in a mapping or a vector behind an `Arc`; neither moves
// nor changes its size while any clone lives, wherever the `Bytes` itself moves.
unsafe impl gimli::StableDeref for Bytes {}
// SAFETY: as above; a clone holds the same `Arc` and so derefs to the same bytes.
unsafe impl gimli::CloneStableDeref for Bytes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_bounded_by_the_whole() {
        let bytes = Bytes::from(b"hello world".to_vec());
        let world = bytes.part(&bytes[6..]).unwrap();
        assert_eq!(&*world, b"world");
        assert_eq!(&*world.part(&world[1..3]).unwrap(), b"or");
        assert!(world.part(&bytes[..3]).is_none(), "before its start");
        assert!(bytes.part(b"elsewhere").is_none());
    }

    #[test]
    fn only_regular_files_are_opened() {
        assert!(matches!(Bytes::open(Path::new("/dev/zero")), Err(OpenError::NotRegular)));
        assert!(matches!(Bytes::open(Path::new("/")), Err(OpenError::NotRegular)));
        assert!(Bytes::open(Path::new("/no/such/file")).unwrap_err().is_missing());
    }

    #[test]
    fn big_files_are_mapped_and_equal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("big");
        let data: Vec<u8> = (0..READ_UP_TO as usize + 5).map(|i| i as u8).collect();
        std::fs::write(&path, &data).unwrap();
        let bytes = Bytes::open(&path).unwrap();
        assert!(matches!(*bytes.backing, Backing::Map(_)));
        assert_eq!(&*bytes, &data[..]);
    }
}
