//! Keyframes, an outcome and evidence for a finished trace: made on the way through a whole
//! replay, and appended behind what is there, with a new index and trailer.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::error::{BlockKind, TraceError};
use crate::frame::{BLOCK_HEADER, BlockHeader, MAX_RAW, Packed, Packer, TRAILER, parse_trailer, trailer};
use crate::index::{FrameKind, KeyframeRef};
use crate::keyframe::{BLOCKS_A_PART, ThreadState, put_gone, put_live, put_threads};
use crate::model::{EndedHow, LiveBlock};
use crate::outcome::{Kept, PackedOutcome};
use crate::reader::Trace;

/// A place for a keyframe: the beginning of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStart {
    /// Seqno of the group's first event.
    pub seqno: u64,
    /// Groups before it.
    pub(crate) group: u64,
    /// Greatest stamp before it.
    pub(crate) stamp: u64,
}

/// A keyframe as it will stand in the file: whole, or as differences.
pub struct PackedKeyframe {
    start: GroupStart,
    /// Seqno of the whole one that it differs from.
    base: Option<u64>,
    parts: Vec<Packed>,
    /// What was counted up to there.
    totals: Option<Packed>,
}

impl PackedKeyframe {
    /// The instant: all events below this seqno have happened.
    pub fn seqno(&self) -> u64 {
        self.start.seqno
    }

    /// Seqno of the keyframe that it differs from; `None` for a whole one.
    pub fn base(&self) -> Option<u64> {
        self.base
    }

    /// It is not to be entered: only differences to it are. Nothing for those themselves.
    pub fn only_as_base(&mut self) {
        if self.base.is_none() {
            self.parts.iter_mut().for_each(|part| part.header.kind = BlockKind::Base as u8);
            self.totals = None;
        }
    }

    fn kind(&self) -> FrameKind {
        let kind = self.parts.first().and_then(|part| BlockKind::from_u8(part.header.kind));
        kind.and_then(FrameKind::of).unwrap_or(FrameKind::Whole)
    }

    /// Bytes in the file.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().chain(&self.totals).map(|part| part.header.total()).sum()
    }

    /// Its blocks, and where each stands.
    fn blocks(&self) -> impl Iterator<Item = (KeyframeRef, &Packed)> {
        let place = |part: usize, parts: usize, kind| KeyframeRef {
            offset: 0,
            seqno: self.start.seqno,
            stamp: self.start.stamp,
            part: part as u32,
            parts: parts as u32,
            kind,
        };
        let parts = self.parts.iter().enumerate();
        let parts = parts.map(move |(at, part)| (place(at, self.parts.len(), self.kind()), part));
        let totals = self.totals.iter().map(move |totals| (place(0, 1, FrameKind::Totals), totals));
        parts.chain(totals)
    }
}

/// What a keyframe differs in from a whole one before it.
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    /// Seqno of that one.
    pub base: u64,
    /// Which of its blocks live no longer: their places in its order, rising.
    pub gone: &'a [u32],
}

/// What was appended to a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// So many keyframes, those that are differences among them.
    pub keyframes: usize,
    /// An outcome.
    pub outcome: bool,
    /// Evidence.
    pub evidence: bool,
}

/// Packs keyframes.
pub struct KeyframePacker(Packer);

impl KeyframePacker {
    /// `None` if there is no memory for it.
    pub fn new() -> Option<KeyframePacker> {
        let compressor = zstd::bulk::Compressor::new(1).ok()?;
        Some(KeyframePacker(Packer::Zstd(Box::new(compressor))))
    }

    /// Packs the heap as it is at the beginning of a group: `count` live blocks,
    /// which `live` gives in their order in the file. `None` where that takes more
    /// than `room` bytes; then not all blocks are asked for. Beside the result only
    /// a part of the blocks is held at a time.
    pub fn pack(
        &mut self,
        start: GroupStart,
        threads: &[ThreadState],
        count: usize,
        mut live: impl Iterator<Item = LiveBlock>,
        room: u64,
    ) -> Option<PackedKeyframe> {
        self.pack_as(start, threads, None, count, &mut live, room)
    }

    /// The same as differences to a whole keyframe before it: `live` gives only the `count`
    /// blocks that are not among that one's.
    pub fn pack_difference(
        &mut self,
        start: GroupStart,
        threads: &[ThreadState],
        difference: &Difference<'_>,
        count: usize,
        mut live: impl Iterator<Item = LiveBlock>,
        room: u64,
    ) -> Option<PackedKeyframe> {
        self.pack_as(start, threads, Some(difference), count, &mut live, room)
    }

    /// Puts beside a keyframe what was counted up to there, by this version of its rules,
    /// if that takes no more than `room` bytes; how many it takes.
    pub fn pack_totals(&mut self, frame: &mut PackedKeyframe, rules: u32, bytes: &[u8], room: u64) -> u64 {
        if bytes.len() > MAX_RAW as usize {
            return 0;
        }
        let header = BlockHeader {
            kind: BlockKind::Totals as u8,
            serial: frame.start.group,
            count: rules,
            first: frame.start.seqno,
            last: frame.start.stamp,
            last_epoch: 1,
            ..BlockHeader::default()
        };
        let packed = self.0.pack(header, bytes);
        let taken = packed.header.total();
        if taken > room {
            return 0;
        }
        frame.totals = Some(packed);
        taken
    }

    fn pack_as(
        &mut self,
        start: GroupStart,
        threads: &[ThreadState],
        difference: Option<&Difference<'_>>,
        count: usize,
        live: &mut dyn Iterator<Item = LiveBlock>,
        room: u64,
    ) -> Option<PackedKeyframe> {
        let count = count.div_ceil(BLOCKS_A_PART).max(1);
        let mut room = room.checked_sub((count * BLOCK_HEADER) as u64)?;
        let kind = if difference.is_some() { BlockKind::Difference } else { BlockKind::Keyframe };
        let (mut raw, mut blocks) = (Vec::new(), Vec::new());
        let mut parts = Vec::with_capacity(count);
        for part in 0..count {
            blocks.clear();
            blocks.extend((&mut *live).take(BLOCKS_A_PART));
            raw.clear();
            put_threads(&mut raw, if part == 0 { Some(threads) } else { None });
            if let Some(difference) = difference.filter(|_| part == 0) {
                put_gone(&mut raw, start.seqno, difference.base, difference.gone);
            }
            put_live(&mut raw, &blocks);
            let header = BlockHeader {
                kind: kind as u8,
                serial: start.group,
                count: blocks.len() as u32,
                first: start.seqno,
                last: start.stamp,
                first_epoch: part as u32,
                last_epoch: count as u32,
                ..BlockHeader::default()
            };
            let packed = self.0.pack(header, &raw);
            room = room.checked_sub(u64::from(packed.header.stored_len))?;
            parts.push(packed);
        }
        let base = difference.map(|difference| difference.base);
        Some(PackedKeyframe { start, base, parts, totals: None })
    }
}

impl Trace {
    /// Could keyframes be appended? Only to a sound and finished trace that has none.
    pub fn wants_keyframes(&self) -> bool {
        self.is_sound() && self.index.keyframes.is_empty()
    }

    /// Is the trace finished, and nothing wrong with it as far as it was read?
    pub(crate) fn is_sound(&self) -> bool {
        self.is_complete()
            && self.warnings.is_empty()
            && self.end().is_some_and(|end| !matches!(end.how, EndedHow::Running | EndedHow::Lost))
    }

    /// The places for keyframes, in the order of the trace.
    pub fn group_starts(&self) -> Vec<GroupStart> {
        let mut stamp = 0;
        let mut starts = Vec::new();
        for (number, pair) in self.index.groups.windows(2).enumerate() {
            let [before, group] = pair else { continue };
            stamp = before.last.max(stamp);
            // Between groups without an event the place would not be certain.
            if before.events > 0 && group.events > 0 {
                starts.push(GroupStart { seqno: group.first_seqno, group: number as u64 + 1, stamp });
            }
        }
        starts
    }

    /// Appends keyframes and what is to be kept with a new index and trailer, if this may be
    /// done: if the file can be written, is still the one that was opened, and nobody
    /// else is at it. Its modification time stays. Where writing fails the file
    /// becomes as it was. Keyframes are taken in their order as long as all
    /// together are at most a quarter of the file, the rest not counted.
    pub fn append(&self, frames: &[PackedKeyframe], kept: &[PackedOutcome]) -> Appended {
        self.try_append(frames, kept).unwrap_or_default()
    }

    fn try_append(&self, frames: &[PackedKeyframe], kept: &[PackedOutcome]) -> Result<Appended, TraceError> {
        let nothing = Appended::default();
        let path = self.path();
        let failed = |source| self.source.error(self.size, source);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        if file.try_lock().is_err() {
            return Ok(nothing);
        }
        let (there, opened) =
            (file.metadata().map_err(failed)?, self.source.file.metadata().map_err(failed)?);
        let mut end = [0; TRAILER];
        let same = (there.dev(), there.ino(), there.len()) == (opened.dev(), opened.ino(), self.size)
            && file.read_at(&mut end, self.size - TRAILER as u64).is_ok_and(|count| count == TRAILER)
            && parse_trailer(&end, self.source.file_id).is_some();
        if !same {
            return Ok(nothing);
        }
        // (all keyframes) * 4 <= the file with them
        let mut room = self.size / 3;
        let mut taken: Vec<&PackedKeyframe> = Vec::new();
        for frame in frames {
            // A difference to what is not there says nothing.
            let whole = |base| taken.iter().any(|whole| whole.base.is_none() && whole.seqno() == base);
            if let Some(rest) = room.checked_sub(frame.bytes())
                && frame.base.is_none_or(whole)
            {
                room = rest;
                taken.push(frame);
            }
        }
        if taken.is_empty() && kept.is_empty() {
            return Ok(nothing);
        }
        if let Err(source) = self.write_appended(&file, &taken, kept) {
            let _ = file.set_len(self.size);
            return Err(failed(source));
        }
        if let Ok(modified) = there.modified() {
            let _ = file.set_modified(modified);
        }
        let has = |what| kept.iter().any(|kept| kept.what == what);
        let (outcome, evidence) = (has(Kept::Outcome), has(Kept::Evidence));
        let keyframes = taken.iter().filter(|frame| frame.kind() != FrameKind::Base).count();
        Ok(Appended { keyframes, outcome, evidence })
    }

    /// Writes keyframes and what is to be kept behind what is there, then the index and
    /// the trailer.
    fn write_appended(
        &self,
        file: &File,
        frames: &[&PackedKeyframe],
        kept: &[PackedOutcome],
    ) -> std::io::Result<()> {
        let mut index = self.index.clone();
        let (mut out, mut offset) = (Vec::new(), self.size);
        for frame in frames {
            for (place, packed) in frame.blocks() {
                index.keyframes.push(KeyframeRef { offset, ..place });
                out.clear();
                packed.place(&mut out, offset, self.source.file_id);
                file.write_all_at(&out, offset)?;
                offset += out.len() as u64;
            }
        }
        for PackedOutcome { what, packed } in kept {
            index.kept[*what as usize] = Some(offset);
            out.clear();
            packed.place(&mut out, offset, self.source.file_id);
            file.write_all_at(&out, offset)?;
            offset += out.len() as u64;
        }
        let header = BlockHeader {
            kind: BlockKind::Index as u8,
            count: index.groups.len() as u32,
            first: self.event_count(),
            last: index.kept[Kept::Outcome as usize].unwrap_or(0),
            serial: index.kept[Kept::Evidence as usize].unwrap_or(0),
            ..BlockHeader::default()
        };
        out.clear();
        Packer::None.block(&mut out, offset, self.source.file_id, header, &index.encode());
        out.extend_from_slice(&trailer(self.source.file_id, offset));
        file.write_all_at(&out, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_event::api::ApiKind;

    /// Where a pack of two parts that has this much room ends, and how many blocks it asked for.
    fn pack(room: u64) -> (Option<u64>, usize) {
        let start = GroupStart { seqno: 7, group: 1, stamp: 9 };
        let block = |i: u64| LiveBlock {
            addr: i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            size: i,
            usable: None,
            node: 1,
            thread: 0,
            api: ApiKind::Malloc,
            seqno: i,
            ns: i,
        };
        let (mut asked, count) = (0, 2 * BLOCKS_A_PART);
        let live = (0..count as u64).map(block).inspect(|_| asked += 1);
        let frame = KeyframePacker::new().expect("memory").pack(start, &[], count, live, room);
        (frame.map(|frame| frame.bytes()), asked)
    }

    #[test]
    fn a_keyframe_that_cannot_fit_is_not_built() {
        let (bytes, asked) = pack(u64::MAX);
        let bytes = bytes.expect("room");
        assert_eq!(asked, 2 * BLOCKS_A_PART);
        assert_eq!(pack(bytes), (Some(bytes), asked));
        assert_eq!(pack(bytes - 1), (None, asked));
        assert_eq!(pack(bytes / 3), (None, BLOCKS_A_PART));
        assert_eq!(pack(2 * BLOCK_HEADER as u64 - 1), (None, 0));
    }
}
