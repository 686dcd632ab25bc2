//! Writes a trace, append-only; a failed write leaves a valid prefix.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use highwater_event::codec::State;
use highwater_event::columns::{COLUMNS, SLACK, Stop, Taken};

use crate::defs;
use crate::error::{BlockKind, TraceError};
use crate::frame::{
    BLOCK_HEADER, BlockHeader, END_BLOCK, FILE_HEADER, FORMAT_VERSION, MAX_RAW, Packed, Packer, file_header,
    trailer,
};
use crate::group::{BlockInfo, Part, put_parts, put_table};
use crate::index::{FrameKind, GroupRef, Index, KeyframeRef};
use crate::keyframe::{BLOCKS_A_PART, put_live, put_threads};
use crate::left_out::LeftOut;
use crate::model::{
    ClockPoint, End, EventBlock, LiveBlock, Mark, Meta, ModuleDef, NameDef, NodeDef, Note, Renumbered,
    RssSample, ThreadDef, ThreadNo,
};
use crate::reach::{self, Reach, ScanRef};
use crate::records::Records;

/// How block payloads are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4: the least work.
    Lz4,
    /// zstd at this level (1 to 22).
    Zstd(i32),
}

/// How to write.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Replace a file of that name.
    pub overwrite: bool,
    /// Compression of the payloads.
    pub compression: Compression,
    /// Greatest size of the file, bytes; `None` for no limit. The footer index
    /// counts, so the file is never larger.
    pub max_size: Option<u64>,
}

impl Default for WriterOptions {
    /// A new file, zstd level 1, no limit.
    fn default() -> Self {
        WriterOptions { overwrite: false, compression: Compression::Zstd(1), max_size: None }
    }
}

/// Records of one thread that make one block once there are this many bytes.
const BLOCK_TARGET: usize = 192 << 10;
/// The longest run of records that is kept in one piece.
const PART_MAX: usize = 256 << 10;
/// Raw bytes of a group above which it is written at the end of its epoch.
const GROUP_TARGET: usize = 1 << 20;
/// Raw bytes of definitions above which they are written at once.
const DEFS_TARGET: usize = 128 << 10;
/// Bytes of a scan's record in one block.
const REACH_PART: usize = 4 << 20;
/// The longest reason kept in the end record, bytes.
const CUT_MAX: usize = 512;

/// Effective stamps of a run: least and greatest.
#[derive(Clone, Copy)]
struct Span {
    first: u64,
    last: u64,
}

/// A part with the effective stamps of its ends.
type SpannedPart = (Part, Span);

/// What a thread has brought and that is in no block yet.
#[derive(Default)]
struct Pending {
    parts: Vec<SpannedPart>,
    /// How many of the parts, from the first on, are of epochs at their end.
    closed: usize,
    /// The records of all parts.
    columns: [Vec<u8>; COLUMNS],
}

impl Pending {
    /// Parts of the epoch that is not at its end.
    fn open(&self) -> &[SpannedPart] {
        self.parts.get(self.closed..).unwrap_or_default()
    }

    /// Bytes of all records.
    fn bytes(&self) -> usize {
        self.columns.iter().map(Vec::len).sum()
    }

    /// Takes back all parts but the first `parts`.
    fn truncate(&mut self, parts: usize) {
        for (part, _) in self.parts.drain(parts..) {
            for (column, len) in self.columns.iter_mut().zip(part.lens) {
                column.truncate(column.len() - len as usize);
            }
        }
    }
}

/// Writes one `.hwt` file.
///
/// An *epoch* is what lies between two calls of [`Writer::end_epoch`]; the
/// records of an epoch are merged by stamp when they are read, and those of
/// one epoch come before all of the next. Whole epochs wait in memory until
/// they make up about a megabyte or [`Writer::flush`] is called.
pub struct Writer {
    path: PathBuf,
    file: File,
    file_id: u64,
    options: WriterOptions,
    packer: Packer,
    /// Bytes of the file that are valid: where the next block goes.
    len: u64,
    index: Index,
    defs: Vec<u8>,
    defs_count: u32,
    threads: Vec<(ThreadNo, Pending)>,
    /// Where a thread is in `threads`.
    places: rustc_hash::FxHashMap<ThreadNo, usize>,
    /// Event blocks of the group that is not written yet.
    blocks: Vec<(BlockInfo, Packed)>,
    /// Epochs closed since the last group was written.
    epochs: u32,
    /// Raw bytes of closed and open epochs.
    closed_raw: usize,
    seqno: u64,
    last_stamp: u64,
    keyframe_bytes: u64,
    failed: Option<String>,
    /// A part of a group is in the file, so that an index could not name it.
    ragged: bool,
    scratch: Vec<u8>,
    /// Both clocks, waiting for the group that they belong to.
    reading: Option<ClockPoint>,
}

impl Writer {
    /// Creates the file (mode 0600) and writes its header and `meta`.
    ///
    /// # Errors
    /// [`TraceError::Exists`] if there is such a file and `overwrite` is not
    /// set; [`TraceError::Create`], [`TraceError::Write`] for the system's reasons.
    pub fn create(path: impl AsRef<Path>, meta: &Meta, options: WriterOptions) -> Result<Writer, TraceError> {
        let path = path.as_ref().to_path_buf();
        let mut open = OpenOptions::new();
        open.read(true).write(true).mode(0o600);
        if options.overwrite {
            open.create(true).truncate(true);
        } else {
            open.create_new(true);
        }
        let file = open.open(&path).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => TraceError::Exists { path: path.clone() },
            _ => TraceError::Create { path: path.clone(), source },
        })?;
        let packer = match options.compression {
            Compression::None => Packer::None,
            Compression::Lz4 => Packer::Lz4,
            Compression::Zstd(level) => Packer::Zstd(Box::new(
                zstd::bulk::Compressor::new(level)
                    .map_err(|source| TraceError::Create { path: path.clone(), source })?,
            )),
        };
        let file_id = new_file_id(meta);
        let mut writer = Writer {
            path,
            file,
            file_id,
            options,
            packer,
            len: 0,
            index: Index::default(),
            defs: Vec::new(),
            defs_count: 0,
            threads: Vec::new(),
            places: rustc_hash::FxHashMap::default(),
            blocks: Vec::new(),
            epochs: 0,
            closed_raw: 0,
            seqno: 0,
            last_stamp: 0,
            keyframe_bytes: 0,
            failed: None,
            ragged: false,
            scratch: Vec::new(),
            reading: None,
        };
        let mut out = file_header(FORMAT_VERSION, file_id).to_vec();
        writer.end_block(None).place(&mut out, 0, file_id);
        let meta = serde_json::to_vec(meta).unwrap_or_default();
        let header = BlockHeader { kind: BlockKind::Meta as u8, ..BlockHeader::default() };
        writer.packer.block(&mut out, 0, file_id, header, &meta);
        writer.append(&out, &[0, out.len() as u64])?;
        Ok(writer)
    }

    /// Bytes in the file so far, without what waits in memory.
    pub fn bytes_written(&self) -> u64 {
        self.len
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Both clocks at an instant.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn clock(&mut self, point: ClockPoint) -> Result<(), TraceError> {
        self.define(|out| defs::put_clock(out, point))
    }

    /// Both clocks, as read when the epoch that is about to end was bounded: no
    /// record of it has a later stamp. It is written before the group that holds
    /// the epoch, and only with one, so that whoever reads the group while the
    /// file grows sees the times that it keeps.
    pub fn reading(&mut self, point: ClockPoint) {
        self.reading = Some(point);
    }

    /// A module, new or changed.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn module(&mut self, module: &ModuleDef) -> Result<(), TraceError> {
        self.define(|out| defs::put_module(out, module))
    }

    /// A thread, new or renamed.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn thread(&mut self, thread: &ThreadDef) -> Result<(), TraceError> {
        self.define(|out| defs::put_thread(out, thread))
    }

    /// Nodes; parents before their children. To be called before the epoch
    /// that refers to them is at its end.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn nodes(&mut self, nodes: &[NodeDef]) -> Result<(), TraceError> {
        for nodes in nodes.chunks(8192) {
            self.define(|out| defs::put_nodes(out, nodes))?;
        }
        Ok(())
    }

    /// A sample of resident memory.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn rss(&mut self, sample: RssSample) -> Result<(), TraceError> {
        self.define(|out| defs::put_rss(out, sample))
    }

    /// A named instant.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn mark(&mut self, mark: &Mark) -> Result<(), TraceError> {
        self.define(|out| defs::put_mark(out, mark))
    }

    /// Names at addresses.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn names(&mut self, names: &[NameDef]) -> Result<(), TraceError> {
        names.iter().try_for_each(|name| self.define(|out| defs::put_name(out, name)))
    }

    /// What numbers events had in the data that the trace is made of; in order.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn renumbered(&mut self, run: Renumbered) -> Result<(), TraceError> {
        self.define(|out| defs::put_renumbered(out, run))
    }

    /// A total of what is left out.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn left_out(&mut self, what: &LeftOut) -> Result<(), TraceError> {
        self.define(|out| defs::put_left_out(out, what))
    }

    /// Bytes under a name.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn note(&mut self, note: &Note) -> Result<(), TraceError> {
        self.define(|out| defs::put_note(out, note))
    }

    /// Records of one thread, in the order of the thread. They may be any
    /// number of bytes, but hold whole records.
    ///
    /// # Errors
    /// [`TraceError::BadRecords`] if the bytes are no records, or not as many
    /// events as `block` says (nothing of them is kept then, the writer goes
    /// on). [`TraceError::Write`] or [`TraceError::SizeLimit`] when the file
    /// cannot grow; after that [`TraceError::Stopped`] at once.
    pub fn events(&mut self, block: &EventBlock<'_>) -> Result<(), TraceError> {
        self.check()?;
        let epoch = self.epochs;
        let Some(pending) = self.pending(block.thread) else { return Ok(()) };
        let known = pending.parts.len();
        let (taken, stop) = take(Records::Bytes(block.payload), block.start, u64::MAX, epoch, pending);
        if stop == Stop::End && taken.events == block.events {
            return Ok(());
        }
        pending.truncate(known);
        Err(TraceError::BadRecords { path: self.path.clone(), thread: block.thread, offset: taken.bytes })
    }

    /// What a thread's ring holds, as far as it goes: records of the thread from
    /// `state` on, up to the first with a stamp above `bound`, a pad, or words
    /// that are no records. Says what was taken and kept, and why no more.
    ///
    /// # Errors
    /// [`TraceError::Stopped`] after a write failed: nothing is taken then.
    pub fn ring(
        &mut self,
        thread: ThreadNo,
        state: State,
        words: &[u64],
        bound: u64,
    ) -> Result<(Taken, Stop), TraceError> {
        self.check()?;
        let epoch = self.epochs;
        Ok(match self.pending(thread) {
            Some(pending) => take(Records::Words(words), state, bound, epoch, pending),
            None => (Taken { state, ..Taken::default() }, Stop::End),
        })
    }

    fn pending(&mut self, thread: ThreadNo) -> Option<&mut Pending> {
        let place = *self.places.entry(thread).or_insert_with(|| {
            self.threads.push((thread, Pending::default()));
            self.threads.len() - 1
        });
        self.threads.get_mut(place).map(|(_, pending)| pending)
    }

    /// Closes the epoch: all that comes now comes after all that came so far.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn end_epoch(&mut self) -> Result<(), TraceError> {
        self.check()?;
        let mut any = false;
        for place in 0..self.threads.len() {
            let Some((thread, pending)) = self.threads.get_mut(place) else { break };
            let open = pending.open();
            if open.is_empty() {
                continue;
            }
            any = true;
            self.closed_raw += open.iter().map(|(part, _)| part.bytes()).sum::<usize>();
            pending.closed = pending.parts.len();
            if pending.bytes() >= BLOCK_TARGET {
                pack_closed(&mut self.packer, &mut self.scratch, *thread, pending, &mut self.blocks);
            }
        }
        if any {
            self.epochs += 1;
        }
        if self.closed_raw >= GROUP_TARGET || self.epochs >= 1 << 16 {
            return self.write_group();
        }
        Ok(())
    }

    /// Writes what waits in memory: all definitions, and all epochs that are
    /// at their end.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.check()?;
        self.write_group()
    }

    /// The full live set as it is after the epochs so far; to be called right
    /// after [`Writer::end_epoch`]. Returns `false`, and writes nothing of it,
    /// where all keyframes together would make up more than a quarter of the file.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn keyframe(&mut self, live: &[LiveBlock]) -> Result<bool, TraceError> {
        self.flush()?;
        let parts = live.len().div_ceil(BLOCKS_A_PART).max(1);
        let mut packed = Vec::with_capacity(parts);
        let mut raw = Vec::new();
        for part in 0..parts {
            let from = part * BLOCKS_A_PART;
            let blocks = live.get(from..live.len().min(from + BLOCKS_A_PART)).unwrap_or_default();
            raw.clear();
            put_threads(&mut raw, None);
            put_live(&mut raw, blocks);
            let header = BlockHeader {
                kind: BlockKind::Keyframe as u8,
                serial: self.index.groups.len() as u64,
                count: blocks.len() as u32,
                first: self.seqno,
                last: self.last_stamp,
                first_epoch: part as u32,
                last_epoch: parts as u32,
                ..BlockHeader::default()
            };
            packed.push(self.packer.pack(header, &raw));
        }
        let total: u64 = packed.iter().map(|p| p.header.total()).sum();
        if (self.keyframe_bytes + total).saturating_mul(4) > self.len + total {
            return Ok(false);
        }
        let mut out = Vec::new();
        let mut bounds = vec![0];
        let mut refs = Vec::new();
        for (part, packed) in packed.iter().enumerate() {
            refs.push(KeyframeRef {
                offset: self.len + out.len() as u64,
                seqno: self.seqno,
                stamp: self.last_stamp,
                part: part as u32,
                parts: parts as u32,
                kind: FrameKind::Whole,
            });
            packed.place(&mut out, self.len, self.file_id);
            bounds.push(out.len() as u64);
        }
        self.append(&out, &bounds)?;
        self.index.keyframes.extend(refs);
        self.keyframe_bytes += total;
        Ok(true)
    }

    /// What a scan found; to be called after an epoch's end. The result goes into
    /// [`End::scan`].
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn reach(&mut self, reach: &Reach) -> Result<ScanRef, TraceError> {
        self.flush()?;
        let raw = reach::encode(reach);
        let parts = raw.len().div_ceil(REACH_PART).max(1);
        let offset = self.len;
        let mut out = Vec::new();
        let mut bounds = vec![0];
        for (part, bytes) in raw.chunks(REACH_PART).enumerate() {
            let header = BlockHeader {
                kind: BlockKind::Reach as u8,
                first: self.seqno,
                last: self.last_stamp,
                first_epoch: part as u32,
                last_epoch: parts as u32,
                ..BlockHeader::default()
            };
            self.packer.block(&mut out, self.len, self.file_id, header, bytes);
            bounds.push(out.len() as u64);
        }
        self.append(&out, &bounds)?;
        Ok(ScanRef::At(offset))
    }

    /// Bytes that a keyframe may have now so that [`Writer::keyframe`] takes it.
    pub fn keyframe_room(&self) -> u64 {
        // (k + x) * 4 <= len + x
        (self.len.saturating_sub(self.keyframe_bytes * 4)) / 3
    }

    /// Closes the epoch, writes what waits, the footer index and `end`, in this order.
    ///
    /// After a failed write `end` is written at least, with the reason in
    /// [`End::cut`] unless there is one already: its room is in the file from
    /// the start. Counters that do not fit into 4 KiB are left out, the last first.
    ///
    /// # Errors
    /// [`TraceError::Write`] if not even that can be written.
    pub fn finish(mut self, end: &End) -> Result<u64, TraceError> {
        let mut end = end.clone();
        if self.failed.is_none() {
            // What goes wrong here is told by the end record.
            let _ = self.end_epoch().and_then(|()| self.flush());
        }
        if !self.ragged {
            let _ = self.write_index();
        }
        if end.cut.is_none() {
            end.cut.clone_from(&self.failed);
        }
        let mut out = Vec::with_capacity(END_BLOCK);
        self.end_block(Some(&end)).place(&mut out, FILE_HEADER as u64, self.file_id);
        self.file
            .write_all_at(&out, FILE_HEADER as u64)
            .map_err(|source| self.write_error(FILE_HEADER as u64, source))?;
        Ok(self.len)
    }

    /// The reserved block, empty or with the end in it: always as long.
    fn end_block(&self, end: Option<&End>) -> Packed {
        let room = END_BLOCK - BLOCK_HEADER;
        let mut raw = Vec::new();
        if let Some(end) = end {
            let mut end = end.clone();
            if let Some(cut) = &mut end.cut {
                let keep = (0..=CUT_MAX.min(cut.len())).rev().find(|&at| cut.is_char_boundary(at));
                cut.truncate(keep.unwrap_or(0));
            }
            raw = serde_json::to_vec(&end).unwrap_or_default();
            while raw.len() > room && end.counters.pop().is_some() {
                raw = serde_json::to_vec(&end).unwrap_or_default();
            }
        }
        // JSON may be followed by blanks.
        raw.resize(room, b' ');
        let header = BlockHeader {
            kind: BlockKind::End as u8,
            count: u32::from(end.is_some()),
            ..BlockHeader::default()
        };
        Packer::None.pack(header, &raw)
    }

    fn check(&self) -> Result<(), TraceError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(TraceError::Stopped { path: self.path.clone(), reason: reason.clone() }),
        }
    }

    fn define(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), TraceError> {
        self.check()?;
        put(&mut self.defs);
        self.defs_count += 1;
        if self.defs.len() >= DEFS_TARGET { self.write_defs() } else { Ok(()) }
    }

    fn write_defs(&mut self) -> Result<(), TraceError> {
        if self.defs.is_empty() {
            return Ok(());
        }
        let header = BlockHeader {
            kind: BlockKind::Definitions as u8,
            serial: self.index.definitions.len() as u64,
            count: self.defs_count,
            ..BlockHeader::default()
        };
        let mut out = Vec::new();
        self.packer.block(&mut out, self.len, self.file_id, header, &self.defs);
        let offset = self.len;
        self.defs.clear();
        self.defs_count = 0;
        self.append(&out, &[0, out.len() as u64])?;
        self.index.definitions.push(offset);
        Ok(())
    }

    /// Writes the definitions and all closed epochs.
    fn write_group(&mut self) -> Result<(), TraceError> {
        if (self.closed_raw > 0 || !self.blocks.is_empty())
            && let Some(point) = self.reading.take()
        {
            self.clock(point)?;
        }
        self.write_defs()?;
        for (thread, pending) in &mut self.threads {
            pack_closed(&mut self.packer, &mut self.scratch, *thread, pending, &mut self.blocks);
            // Open parts belong to the first epoch of the next group.
            for (part, _) in &mut pending.parts {
                part.epoch = 0;
            }
        }
        self.closed_raw = 0;
        self.epochs = 0;
        let mut blocks = mem::take(&mut self.blocks);
        if blocks.is_empty() {
            return Ok(());
        }
        // In the order of their first records: a cut then loses the least. The
        // sort is stable, so a thread's blocks stay in order.
        blocks.sort_by_key(|(info, _)| (info.first_epoch, info.first));
        let infos: Vec<BlockInfo> = blocks.iter().map(|(info, _)| *info).collect();
        let events: u64 = infos.iter().map(|info| u64::from(info.events)).sum();
        let mut table = Vec::new();
        put_table(&mut table, &infos);
        let serial = self.index.groups.len() as u64;
        let header = BlockHeader {
            kind: BlockKind::Group as u8,
            serial,
            count: infos.len() as u32,
            first: self.seqno,
            last: events,
            ..BlockHeader::default()
        };
        let mut out = mem::take(&mut self.scratch);
        out.clear();
        self.packer.block(&mut out, self.len, self.file_id, header, &table);
        let mut bounds = vec![0, out.len() as u64];
        for (_, packed) in &mut blocks {
            packed.header.serial = serial;
            packed.place(&mut out, self.len, self.file_id);
            bounds.push(out.len() as u64);
        }
        let group = GroupRef {
            offset: self.len,
            end: self.len + out.len() as u64,
            serial,
            first_seqno: self.seqno,
            events,
            first: infos.iter().map(|info| info.first).min().unwrap_or(0),
            last: infos.iter().map(|info| info.last).max().unwrap_or(0),
        };
        let result = self.append(&out, &bounds);
        self.scratch = out;
        result?;
        self.seqno += events;
        self.last_stamp = group.last;
        self.index.groups.push(group);
        Ok(())
    }

    fn write_index(&mut self) -> Result<(), TraceError> {
        let raw = self.index.encode();
        if raw.len() > MAX_RAW as usize {
            return Ok(());
        }
        let header = BlockHeader {
            kind: BlockKind::Index as u8,
            count: self.index.groups.len() as u32,
            first: self.seqno,
            ..BlockHeader::default()
        };
        let mut out = Vec::new();
        self.packer.block(&mut out, self.len, self.file_id, header, &raw);
        out.extend_from_slice(&trailer(self.file_id, self.len));
        // All or nothing: half an index is of no use.
        self.put(&out, &[0], self.options.max_size)
    }

    /// Appends whole blocks; on failure as many of them as fit stay. `bounds`
    /// are the offsets in `bytes` at which the file may end, from 0 up.
    fn append(&mut self, bytes: &[u8], bounds: &[u64]) -> Result<(), TraceError> {
        // The index must fit below the limit too: about 32 bytes an entry.
        let entries = self.index.groups.len() + self.index.definitions.len() + self.index.keyframes.len() + 8;
        let room = BLOCK_HEADER as u64 + 32 * entries as u64;
        self.put(bytes, bounds, self.options.max_size.map(|limit| limit.saturating_sub(room)))
    }

    fn put(&mut self, bytes: &[u8], bounds: &[u64], limit: Option<u64>) -> Result<(), TraceError> {
        if limit.is_some_and(|limit| self.len + bytes.len() as u64 > limit) {
            let error = TraceError::SizeLimit {
                path: self.path.clone(),
                limit: self.options.max_size.unwrap_or_default(),
            };
            self.failed.get_or_insert_with(|| "--max-trace-size reached".into());
            return Err(error);
        }
        let mut done = 0usize;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.file.write_at(rest, self.len + done as u64) {
                Ok(0) => return Err(self.fail(done as u64, bounds, io::ErrorKind::WriteZero.into())),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fail(done as u64, bounds, error)),
            }
        }
        self.len += done as u64;
        Ok(())
    }

    /// Takes back the piece of a block behind the last whole one.
    fn fail(&mut self, done: u64, bounds: &[u64], source: io::Error) -> TraceError {
        let whole = bounds.iter().copied().filter(|&bound| bound <= done).max().unwrap_or(0);
        self.len += whole;
        self.ragged = whole > 0;
        // If this fails too, the reader finds the piece and says so.
        let _ = self.file.set_len(self.len);
        self.failed.get_or_insert_with(|| source.to_string());
        self.write_error(self.len, source)
    }

    fn write_error(&self, offset: u64, source: io::Error) -> TraceError {
        TraceError::Write { path: self.path.clone(), offset, source }
    }
}

/// A number that no other trace has, most likely: it keeps blocks of one file
/// from being taken for another's.
fn new_file_id(meta: &Meta) -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(meta.wall_ns);
    hasher.write_u32(meta.pid);
    hasher.finish()
}

/// Takes records into `pending`, in parts of at most [`PART_MAX`] bytes.
fn take(records: Records<'_>, start: State, bound: u64, epoch: u32, pending: &mut Pending) -> (Taken, Stop) {
    let greatest = pending.open().last().map_or(0, |(_, span)| span.last);
    let mut all = Taken { state: start, greatest, ..Taken::default() };
    loop {
        let rest = records.from(all.bytes);
        let piece = rest.up_to(PART_MAX);
        let mut taken = all;
        let mut out = [std::ptr::null_mut(); COLUMNS];
        for (column, out) in pending.columns.iter_mut().zip(&mut out) {
            column.reserve(piece.len() + SLACK);
            *out = column.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        }
        let before = out;
        // SAFETY: each place has the reserved room, in a vector of its own.
        let stop = unsafe { piece.split(&mut taken, bound, &mut out) };
        let mut lens = [0; COLUMNS];
        for (c, column) in pending.columns.iter_mut().enumerate() {
            let len = out[c] as usize - before[c] as usize;
            // SAFETY: so many bytes were written behind the vector's end.
            unsafe { column.set_len(column.len() + len) };
            lens[c] = len as u32;
        }
        if taken.records > 0 {
            let part = Part { epoch, lens, events: taken.events, start: all.state };
            pending.parts.push((part, Span { first: taken.first, last: taken.greatest }));
        }
        let first = if all.records == 0 { taken.first } else { all.first };
        all = Taken {
            bytes: all.bytes + taken.bytes,
            records: all.records + taken.records,
            events: all.events + taken.events,
            first,
            ..taken
        };
        // A piece may end inside a record: that one begins the next piece.
        if piece.len() == rest.len() || taken.bytes == 0 || !matches!(stop, Stop::End | Stop::Damage(_)) {
            return (all, stop);
        }
    }
}

/// Makes blocks of the whole epochs of a thread, and adds them to `blocks`.
fn pack_closed(
    packer: &mut Packer,
    scratch: &mut Vec<u8>,
    thread: ThreadNo,
    pending: &mut Pending,
    blocks: &mut Vec<(BlockInfo, Packed)>,
) {
    let closed = pending.parts.get(..pending.closed).unwrap_or_default();
    let mut from = [0; COLUMNS];
    let mut left: usize = closed.iter().map(|(part, _)| part.bytes()).sum();
    let mut rest = closed;
    while !rest.is_empty() {
        // What is left over makes the last block a bit larger.
        let mut size = 0;
        let count = if left < 2 * BLOCK_TARGET {
            rest.len()
        } else {
            let large = |(part, _): &SpannedPart| {
                size += part.bytes();
                size >= BLOCK_TARGET
            };
            rest.iter().position(large).map_or(rest.len(), |at| at + 1)
        };
        let (parts, behind) = rest.split_at(count);
        left = left.saturating_sub(size);
        rest = behind;
        blocks.extend(pack_block(packer, scratch, thread, parts, &pending.columns, &mut from));
    }
    pending.parts.drain(..pending.closed);
    pending.closed = 0;
    for (column, from) in pending.columns.iter_mut().zip(from) {
        column.drain(..from);
    }
}

/// Makes a block of some parts of a thread, whose records begin at `from` in
/// the columns; moves `from` behind them.
fn pack_block(
    packer: &mut Packer,
    scratch: &mut Vec<u8>,
    thread: ThreadNo,
    spanned: &[SpannedPart],
    columns: &[Vec<u8>; COLUMNS],
    from: &mut [usize; COLUMNS],
) -> Option<(BlockInfo, Packed)> {
    let (first, first_span) = *spanned.first()?;
    let (last, last_span) = *spanned.last()?;
    let parts: Vec<Part> = spanned.iter().map(|(part, _)| *part).collect();
    scratch.clear();
    put_parts(scratch, &parts);
    for (c, (column, from)) in columns.iter().zip(from).enumerate() {
        let len: usize = parts.iter().map(|part| part.lens[c] as usize).sum();
        scratch.extend_from_slice(column.get(*from..*from + len).unwrap_or_default());
        *from += len;
    }
    let mut info = BlockInfo {
        thread,
        events: parts.iter().map(|part| part.events).sum(),
        first: first_span.first,
        last: last_span.last,
        first_epoch: first.epoch,
        last_epoch: last.epoch,
        total: 0,
    };
    let header = BlockHeader {
        kind: BlockKind::Events as u8,
        thread,
        count: info.events,
        first: info.first,
        last: info.last,
        first_epoch: info.first_epoch,
        last_epoch: info.last_epoch,
        ..BlockHeader::default()
    };
    let packed = packer.pack(header, scratch);
    info.total = packed.header.total();
    Some((info, packed))
}
