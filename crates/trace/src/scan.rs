//! Reading blocks at places, and finding the next one behind damage.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{BlockKind, TraceError};
use crate::frame::{BLOCK_HEADER, BlockHeader, SYNC, Unpacker};
use crate::group::{BlockInfo, read_table};
use crate::index::GroupRef;

/// Bytes read at a time while looking for the next block.
const CHUNK: usize = 64 << 10;

/// An open file. Positioned reads only: a file that shrinks meanwhile is a
/// short read, not a fault.
#[derive(Debug)]
pub(crate) struct Source {
    pub path: PathBuf,
    pub file: File,
    pub file_id: u64,
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Source, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::Read {
            path: path.to_path_buf(),
            offset: 0,
            source,
        })?;
        Ok(Source { path: path.to_path_buf(), file, file_id: 0 })
    }

    pub(crate) fn size(&self) -> Result<u64, TraceError> {
        let meta = self.file.metadata().map_err(|source| self.error(0, source))?;
        if meta.is_dir() {
            return Err(self.error(0, io::ErrorKind::IsADirectory.into()));
        }
        Ok(meta.len())
    }

    pub(crate) fn error(&self, offset: u64, source: io::Error) -> TraceError {
        TraceError::Read { path: self.path.clone(), offset, source }
    }

    /// Reads up to `out.len()` bytes; fewer only at the end of the file.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<usize, TraceError> {
        // Beyond what a file can have there is nothing; the system would call it an error.
        if offset > i64::MAX as u64 / 2 {
            return Ok(0);
        }
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(offset + done as u64, error)),
            }
        }
        Ok(done)
    }

    /// The block header at `offset`, if there is a valid one.
    pub(crate) fn header(&self, offset: u64) -> Result<Option<BlockHeader>, TraceError> {
        let mut bytes = [0; BLOCK_HEADER];
        if self.read(offset, &mut bytes)? < BLOCK_HEADER {
            return Ok(None);
        }
        Ok(BlockHeader::decode(&bytes, self.file_id, offset))
    }

    /// Reads, checks and decompresses the payload of the block at `offset`.
    /// The inner error says what is wrong with the block.
    pub(crate) fn payload(
        &self,
        offset: u64,
        header: &BlockHeader,
        buffers: &mut Buffers,
        raw: &mut Vec<u8>,
    ) -> Result<Result<(), &'static str>, TraceError> {
        // Grow as far as the file has bytes, not as far as the header says.
        let want = header.stored_len as usize;
        let stored = &mut buffers.stored;
        stored.clear();
        while stored.len() < want {
            let at = stored.len();
            stored.resize(want.min(at + (4 << 20)), 0);
            let got =
                self.read(offset + (BLOCK_HEADER + at) as u64, stored.get_mut(at..).unwrap_or_default())?;
            if at + got < stored.len() {
                return Ok(Err("the file ends inside it"));
            }
        }
        Ok(buffers.unpacker.unpack(header, stored, raw))
    }

    /// The next valid block header in `from..to`, with its offset.
    pub(crate) fn resync(&self, from: u64, to: u64) -> Result<Option<(u64, BlockHeader)>, TraceError> {
        let mut chunk = vec![0; CHUNK + BLOCK_HEADER];
        let mut base = from;
        while base < to {
            let got = self.read(base, &mut chunk)?;
            let bytes = chunk.get(..got).unwrap_or_default();
            for (at, window) in bytes.windows(BLOCK_HEADER).enumerate().take(CHUNK) {
                let offset = base + at as u64;
                if offset >= to {
                    return Ok(None);
                }
                if window.starts_with(&SYNC)
                    && let Ok(window) = window.try_into()
                    && let Some(header) = BlockHeader::decode(window, self.file_id, offset)
                {
                    return Ok(Some((offset, header)));
                }
            }
            if got < chunk.len() {
                break;
            }
            base += CHUNK as u64;
        }
        Ok(None)
    }

    /// The event blocks of a group, from its table, or, where that is damaged,
    /// from their own headers.
    pub(crate) fn group(&self, group: &GroupRef, buffers: &mut Buffers) -> Result<GroupBlocks, TraceError> {
        let mut at = group.offset;
        let mut damage = None;
        match self.header(group.offset)? {
            Some(header) if header.is(BlockKind::Group) => {
                at += header.total();
                let mut raw = Vec::new();
                match self.payload(group.offset, &header, buffers, &mut raw)? {
                    Ok(()) => match read_table(&raw) {
                        Some(blocks) => return Ok(GroupBlocks::from_table(at, blocks)),
                        None => damage = Some("its table makes no sense"),
                    },
                    Err(what) => damage = Some(what),
                }
            }
            // A group whose table was lost begins with its first event block.
            Some(header) if header.is(BlockKind::Events) => {}
            _ => damage = Some("its header is damaged"),
        }
        let mut blocks = Vec::new();
        while at < group.end {
            let (offset, header) = match self.header(at)? {
                Some(header) => (at, header),
                None => match self.resync(at + 1, group.end)? {
                    Some(found) => found,
                    None => break,
                },
            };
            at = offset.saturating_add(header.total());
            if header.is(BlockKind::Events) && header.serial == group.serial && at <= group.end {
                blocks.push((offset, info(&header)));
            }
        }
        Ok(GroupBlocks { blocks, damage })
    }
}

/// What the header of an event block says about it.
pub(crate) fn info(header: &BlockHeader) -> BlockInfo {
    BlockInfo {
        thread: header.thread,
        events: header.count,
        first: header.first,
        last: header.last,
        first_epoch: header.first_epoch,
        last_epoch: header.last_epoch,
        total: header.total(),
    }
}

/// Working memory of [`Source::payload`].
#[derive(Default)]
pub(crate) struct Buffers {
    stored: Vec<u8>,
    unpacker: Unpacker,
}

/// The event blocks of a group with their offsets, in the order of the file.
pub(crate) struct GroupBlocks {
    pub blocks: Vec<(u64, BlockInfo)>,
    /// What is wrong with the table.
    pub damage: Option<&'static str>,
}

impl GroupBlocks {
    pub(crate) fn from_table(mut at: u64, infos: Vec<BlockInfo>) -> GroupBlocks {
        let mut blocks = Vec::with_capacity(infos.len());
        for info in infos {
            blocks.push((at, info));
            at = at.saturating_add(info.total);
        }
        GroupBlocks { blocks, damage: None }
    }
}
