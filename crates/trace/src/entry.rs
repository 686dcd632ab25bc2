//! Entering a trace in the middle: places from which the heap is known, and the
//! blocks that live there, read a part at a time.

use std::collections::VecDeque;

use crate::error::TraceError;
use crate::frame::BlockHeader;
use crate::index::KeyframeRef;
use crate::keyframe::{Keyframe, ThreadState, read_live};
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
    /// Where it stands in the index.
    at: usize,
}

/// A block of the file.
type Place = (u64, BlockHeader);

/// What a keyframe holds, in the order of the file and a part at a time.
pub struct KeyframeReader<'a> {
    trace: &'a Trace,
    entry: Entry,
    threads: Option<Vec<ThreadState>>,
    parts: VecDeque<Place>,
    /// Has the first part, read for what it says of the threads, not been given out?
    first: bool,
    blocks: Vec<LiveBlock>,
    raw: Vec<u8>,
    buffers: Buffers,
    count: u64,
    sound: bool,
}

impl Trace {
    /// The places at or before an event from which the heap is known, the nearest first.
    /// Go on from one with `steps_from(entry.seqno)`.
    pub fn entries_before(&self, seqno: u64) -> impl Iterator<Item = Entry> + '_ {
        let refs = self.index.keyframes.iter().enumerate().rev();
        refs.filter(move |(_, head)| head.part == 0 && head.seqno <= seqno).map(|(at, head)| Entry {
            seqno: head.seqno,
            ns: self.to_ns(head.stamp),
            at,
        })
    }

    /// Begins to read what lives at such a place. `None` where that is damaged.
    ///
    /// # Errors
    /// [`TraceError::Read`].
    pub fn enter(&self, entry: &Entry) -> Result<Option<KeyframeReader<'_>>, TraceError> {
        let Some(mut parts) = self.parts_of(entry.at)? else { return Ok(None) };
        let Some(first) = parts.pop_front() else { return Ok(None) };
        let stored: u64 = parts.iter().chain([&first]).map(|(_, part)| u64::from(part.stored_len)).sum();
        let count: u64 = parts.iter().chain([&first]).map(|(_, part)| u64::from(part.count)).sum();
        let mut reader = KeyframeReader {
            trace: self,
            entry: *entry,
            threads: None,
            parts,
            first: true,
            blocks: Vec::new(),
            raw: Vec::new(),
            buffers: Buffers::default(),
            count: count.min(stored.min(self.size) / LEAST_BYTES),
            sound: true,
        };
        match reader.read(&first)? {
            Some(threads) => reader.threads = threads,
            None => return Ok(None),
        }
        Ok(Some(reader))
    }

    /// The blocks of the file that a keyframe lies in, from its first in the index; `None`
    /// if one is not what the index says.
    fn parts_of(&self, at: usize) -> Result<Option<VecDeque<Place>>, TraceError> {
        let refs = self.index.keyframes.get(at..).unwrap_or_default();
        let Some(head) = refs.first() else { return Ok(None) };
        let Some(refs) = refs.get(..head.parts as usize) else { return Ok(None) };
        let mut parts = VecDeque::with_capacity(refs.len());
        for (number, place) in (0..).zip(refs) {
            if (place.seqno, place.part, place.parts) != (head.seqno, number, head.parts) {
                return Ok(None);
            }
            let Some(header) = self.keyframe_header(place)? else { return Ok(None) };
            parts.push_back((place.offset, header));
        }
        Ok(Some(parts))
    }

    /// The header of a keyframe's block, if it is what the index says.
    pub(crate) fn keyframe_header(&self, place: &KeyframeRef) -> Result<Option<BlockHeader>, TraceError> {
        let header = self.source.header(place.offset)?;
        let its = (place.seqno, place.part, place.parts);
        Ok(header.filter(|header| {
            header.is(crate::BlockKind::Keyframe)
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

    /// So many blocks will come, or more, unless the keyframe is damaged. The number is
    /// in proportion to the bytes of the file.
    pub fn at_least(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// Was all that was read in order? Only after the last part it is certain that
    /// what was given out is a heap.
    pub fn is_sound(&self) -> bool {
        self.sound
    }

    /// The next of the live blocks; `None` at the end, and where a part is damaged.
    ///
    /// # Errors
    /// [`TraceError::Read`].
    pub fn next_part(&mut self) -> Result<Option<&[LiveBlock]>, TraceError> {
        if !std::mem::take(&mut self.first) {
            let Some(part) = self.parts.pop_front() else { return Ok(None) };
            if self.read(&part)?.is_none() {
                self.sound = false;
                self.parts.clear();
                return Ok(None);
            }
        }
        Ok(Some(&self.blocks))
    }

    /// Reads a part into `blocks`; what it says of the threads.
    fn read(&mut self, part: &Place) -> Result<Option<Option<Vec<ThreadState>>>, TraceError> {
        let (offset, header) = part;
        self.blocks.clear();
        let source = &self.trace.source;
        if source.payload(*offset, header, &mut self.buffers, &mut self.raw)?.is_err() {
            return Ok(None);
        }
        Ok(read_live(&self.raw, header.count, &mut self.blocks))
    }
}
