//! Entering a trace in the middle: places from which the heap is known, and the
//! blocks that live there, read a part at a time.

use std::collections::VecDeque;

use crate::error::{BlockKind, TraceError};
use crate::frame::BlockHeader;
use crate::index::{FrameKind, KeyframeRef};
use crate::keyframe::{Keyframe, ThreadState, read_difference, read_live};
use crate::model::LiveBlock;
use crate::reader::Trace;
use crate::scan::Buffers;

/// The least bytes of the file that a live block takes in what is believed without
/// having been read: of what packs better only less room is made beforehand.
const LEAST_BYTES: u64 = 4;

/// A place from which the heap is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The instant: all events below this seqno have happened.
    pub seqno: u64,
    /// When that is, nanoseconds since the start (time of the last event before it).
    pub ns: u64,
    /// Is the heap there known by its differences to an earlier one?
    pub differs: bool,
    /// Where it stands in the index.
    at: usize,
}

/// A block of the file.
type Place = (u64, BlockHeader);

/// What a keyframe holds, a part at a time.
///
/// Those of a whole one come by address. Of one that is differences the blocks of
/// its base come first, without those that are gone, and then the new ones, by
/// address again.
pub struct KeyframeReader<'a> {
    trace: &'a Trace,
    entry: Entry,
    threads: Option<Vec<ThreadState>>,
    parts: VecDeque<Part>,
    gone: std::iter::Peekable<std::vec::IntoIter<u32>>,
    /// Blocks of the base so far.
    passed: u32,
    blocks: Vec<LiveBlock>,
    raw: Vec<u8>,
    buffers: Buffers,
    count: u64,
    sound: bool,
}

/// What is still to be given out.
enum Part {
    /// The first part, read for what it says of the threads.
    Read(Vec<LiveBlock>),
    /// A block of the file.
    Placed(Place),
    /// The same, of the keyframe that this one differs from.
    OfBase(Place),
}

impl Trace {
    /// The places at or before an event from which the heap is known, the nearest first.
    /// Go on from one with `steps_from(entry.seqno)`.
    pub fn entries_before(&self, seqno: u64) -> impl Iterator<Item = Entry> + '_ {
        let refs = self.index.keyframes.iter().enumerate().rev();
        refs.filter(move |(_, head)| head.begins() && head.seqno <= seqno).map(|(at, head)| Entry {
            seqno: head.seqno,
            ns: self.to_ns(head.stamp),
            differs: head.kind == FrameKind::Difference,
            at,
        })
    }

    /// Begins to read what lives at such a place. `None` where that is damaged.
    ///
    /// # Errors
    /// [`TraceError::Read`].
    pub fn enter(&self, entry: &Entry) -> Result<Option<KeyframeReader<'_>>, TraceError> {
        let Some(parts) = self.parts_of(entry.at)? else { return Ok(None) };
        let mut parts = parts.into_iter();
        let Some((offset, header)) = parts.next() else { return Ok(None) };
        let mut reader = KeyframeReader {
            trace: self,
            entry: *entry,
            threads: None,
            parts: VecDeque::new(),
            gone: Vec::new().into_iter().peekable(),
            passed: 0,
            blocks: Vec::new(),
            raw: Vec::new(),
            buffers: Buffers::default(),
            count: 0,
            sound: true,
        };
        let mut first = Vec::new();
        if self.source.payload(offset, &header, &mut reader.buffers, &mut reader.raw)?.is_err() {
            return Ok(None);
        }
        let mut room = Room::default();
        room.add(&header);
        if header.is(BlockKind::Keyframe) {
            let Some(threads) = read_live(&reader.raw, header.count, &mut first) else { return Ok(None) };
            reader.threads = threads;
        } else {
            let Some((threads, gone)) = read_difference(&reader.raw, header.first, header.count, &mut first)
            else {
                return Ok(None);
            };
            let Some(base) = self.base_of(entry.at, gone.base)? else { return Ok(None) };
            base.iter().for_each(|(_, header)| room.add(header));
            reader.parts.extend(base.into_iter().map(Part::OfBase));
            reader.threads = threads;
            reader.gone = gone.places.into_iter().peekable();
        }
        reader.parts.push_back(Part::Read(first));
        reader.parts.extend(parts.inspect(|(_, header)| room.add(header)).map(Part::Placed));
        reader.count = room.count.min(room.stored.min(self.size) / LEAST_BYTES);
        Ok(Some(reader))
    }

    /// What was counted up to such a place, if the trace has that by this version of its
    /// rules, and is sound and finished.
    ///
    /// # Errors
    /// [`TraceError::Read`]. What is damaged counts as none.
    pub fn totals_at(&self, entry: &Entry, rules: u32) -> Result<Option<Vec<u8>>, TraceError> {
        let behind = self.index.keyframes.get(entry.at..).unwrap_or_default();
        let mut here = behind.iter().take_while(|place| place.seqno == entry.seqno);
        let place = here.find(|place| place.kind == FrameKind::Totals && place.part == 0);
        let Some(place) = place.filter(|_| self.is_sound()) else { return Ok(None) };
        let Some(header) = self.keyframe_header(place)? else { return Ok(None) };
        // None of ours unpacks to more than the file has.
        let fits = header.count == rules && u64::from(header.raw_len) <= self.size;
        let mut bytes = Vec::new();
        let read =
            fits && self.source.payload(place.offset, &header, &mut Buffers::default(), &mut bytes)?.is_ok();
        Ok(read.then_some(bytes))
    }

    /// The parts of the whole keyframe or base with this seqno before what is at `at`.
    fn base_of(&self, at: usize, seqno: u64) -> Result<Option<Vec<Place>>, TraceError> {
        let before = self.index.keyframes.get(..at).unwrap_or_default();
        let its = |head: &KeyframeRef| {
            matches!(head.kind, FrameKind::Whole | FrameKind::Base) && head.part == 0 && head.seqno == seqno
        };
        match before.iter().rposition(its) {
            Some(at) => self.parts_of(at),
            None => Ok(None),
        }
    }

    /// The blocks of the file that a keyframe lies in, from its first in the index; `None`
    /// if one is not what the index says.
    fn parts_of(&self, at: usize) -> Result<Option<Vec<Place>>, TraceError> {
        let refs = self.index.keyframes.get(at..).unwrap_or_default();
        let Some(head) = refs.first() else { return Ok(None) };
        let Some(refs) = refs.get(..head.parts as usize) else { return Ok(None) };
        let mut parts = Vec::with_capacity(refs.len());
        for (part, place) in (0..).zip(refs) {
            let wanted = KeyframeRef { offset: place.offset, stamp: place.stamp, part, ..*head };
            if *place != wanted {
                return Ok(None);
            }
            let Some(header) = self.keyframe_header(place)? else { return Ok(None) };
            parts.push((place.offset, header));
        }
        Ok(Some(parts))
    }

    /// The header of a block among the keyframes, if it is what the index says.
    pub(crate) fn keyframe_header(&self, place: &KeyframeRef) -> Result<Option<BlockHeader>, TraceError> {
        let header = self.source.header(place.offset)?;
        let its = (place.seqno, place.part, place.parts);
        Ok(header.filter(|header| {
            place.kind.block().is_some_and(|kind| header.is(kind))
                && (header.first, header.first_epoch, header.last_epoch) == its
        }))
    }

    /// The last readable keyframe at or before an event, all of it. Go on from it with
    /// `steps_from(keyframe.seqno)`.
    ///
    /// # Errors
    /// [`TraceError::Read`]. A damaged keyframe is passed over for an earlier one.
    pub fn keyframe_before(&self, seqno: u64) -> Result<Option<Keyframe>, TraceError> {
        for entry in self.entries_before(seqno) {
            let Some(mut reader) = self.enter(&entry)? else { continue };
            let mut blocks = Vec::new();
            while let Some(part) = reader.next_part()? {
                blocks.extend_from_slice(part);
            }
            if reader.is_sound() {
                let Entry { seqno, ns, .. } = entry;
                return Ok(Some(Keyframe { seqno, ns, blocks, threads: reader.threads }));
            }
        }
        Ok(None)
    }
}

impl KeyframeReader<'_> {
    /// The place.
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// The threads that have acted, in the order of their first events; `None` where
    /// the writer did not say.
    pub fn threads(&self) -> Option<&[ThreadState]> {
        self.threads.as_deref()
    }

    /// About so many blocks will come, unless the keyframe is damaged. The number is
    /// in proportion to the bytes of the file.
    pub fn about(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// Was all that was read in order? Only behind the last part it is certain that
    /// what was given out is a heap.
    pub fn is_sound(&self) -> bool {
        self.sound
    }

    /// The next of the live blocks; `None` at the end, and where a part is damaged.
    ///
    /// # Errors
    /// [`TraceError::Read`].
    pub fn next_part(&mut self) -> Result<Option<&[LiveBlock]>, TraceError> {
        match self.parts.pop_front() {
            None => {
                // What is gone has been there.
                self.sound &= self.gone.peek().is_none();
                return Ok(None);
            }
            Some(Part::Read(blocks)) => self.blocks = blocks,
            Some(Part::Placed(place)) => self.read(place)?,
            Some(Part::OfBase(place)) => {
                self.read(place)?;
                let (gone, passed) = (&mut self.gone, &mut self.passed);
                self.blocks.retain(|_| {
                    let at = *passed;
                    *passed = passed.saturating_add(1);
                    gone.next_if_eq(&at).is_none()
                });
            }
        }
        if !self.sound {
            self.parts.clear();
            return Ok(None);
        }
        Ok(Some(&self.blocks))
    }

    /// The same into `blocks`, whose memory is used again; false instead of `None`.
    ///
    /// # Errors
    /// [`TraceError::Read`].
    pub fn next_part_into(&mut self, blocks: &mut Vec<LiveBlock>) -> Result<bool, TraceError> {
        let any = self.next_part()?.is_some();
        if any {
            std::mem::swap(&mut self.blocks, blocks);
        }
        Ok(any)
    }

    /// Reads a part into `blocks`.
    fn read(&mut self, (offset, header): Place) -> Result<(), TraceError> {
        self.blocks.clear();
        let source = &self.trace.source;
        self.sound &= source.payload(offset, &header, &mut self.buffers, &mut self.raw)?.is_ok()
            && read_live(&self.raw, header.count, &mut self.blocks).is_some();
        Ok(())
    }
}

/// What the headers of a keyframe's parts say that there will be.
#[derive(Default)]
struct Room {
    count: u64,
    stored: u64,
}

impl Room {
    fn add(&mut self, header: &BlockHeader) {
        self.count += u64::from(header.count);
        self.stored += u64::from(header.stored_len);
    }
}
