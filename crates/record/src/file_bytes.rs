//! The bytes of a program's file, without reading what nobody looks at.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// Files up to this size are read, greater ones mapped: a mapped file that is cut
/// while we look at it raises SIGBUS, and small ones are what compilers rewrite all
/// the time. To read a large interpreter whole took longer than to start it.
const READ_UP_TO: u64 = 1 << 20;

/// See [`FileBytes::open`].
pub enum FileBytes {
    /// Copied.
    Read(Vec<u8>),
    /// Mapped.
    Mapped(Mmap),
}

impl FileBytes {
    /// Reads or maps a regular file.
    ///
    /// # Errors
    /// That of the system, or that it is no regular file (a FIFO would block).
    pub fn open(path: &Path) -> io::Result<FileBytes> {
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let file = File::open(path)?;
        if file.metadata()?.len() <= READ_UP_TO {
            let mut all = Vec::new();
            file.take(READ_UP_TO).read_to_end(&mut all)?;
            return Ok(FileBytes::Read(all));
        }
        // SAFETY: private and read-only. Who writes the file meanwhile changes bytes
        // under us: they are parsed as hostile input, and no reference to them
        // outlives the look. A program that runs cannot be written at all.
        Ok(FileBytes::Mapped(unsafe { Mmap::map(&file) }?))
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            FileBytes::Read(all) => all,
            FileBytes::Mapped(map) => map,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_files_have_their_bytes_and_folders_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for size in [0, 1, READ_UP_TO as usize, READ_UP_TO as usize + 1] {
            let bytes: Vec<u8> = (0..size).map(|i| (i / 7) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            let seen = FileBytes::open(&path).unwrap();
            assert!(*seen == *bytes, "{size}");
            assert_eq!(matches!(seen, FileBytes::Mapped(_)), size > READ_UP_TO as usize);
        }
        assert!(FileBytes::open(folder.path()).is_err());
        assert!(FileBytes::open(&folder.path().join("none")).is_err());
    }
}
