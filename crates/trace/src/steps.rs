//! The merged order: a k-way merge of the threads' streams inside each epoch.
//!
//! The key of a record is (epoch, effective stamp, thread); records of one
//! thread keep their order. The effective stamp of a record is the greatest
//! stamp of its thread in the epoch so far, so the keys of a stream never fall.

mod batch;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use highwater_event::api::ApiKind;
use highwater_event::codec::{Record, SpecialKind};
use highwater_event::columns::{COLUMNS, ColumnReader, Plain, SLACK};
use rustc_hash::FxHashMap;

use crate::clock::ClockCursor;
use crate::error::{BlockKind, TraceError, Warning};
use crate::group::{BlockInfo, Part, read_parts};
use crate::model::{Event, Op, Special, Step, ThreadNo};
use crate::reader::Trace;
use crate::scan::{Buffers, info};

pub use batch::{Batch, Brief};

/// Where a record stands in the order of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    epoch: u32,
    stamp: u64,
    thread: ThreadNo,
}

impl Key {
    const END: Key = Key { epoch: u32::MAX, stamp: u64::MAX, thread: ThreadNo::MAX };

    /// The greatest stamp with which a key of `like`'s epoch and thread is below
    /// this one; `None` if there is none.
    fn bound(self, like: Key) -> Option<u64> {
        match (self.epoch, self.thread) {
            (epoch, _) if like.epoch < epoch => Some(u64::MAX),
            (epoch, _) if like.epoch > epoch => None,
            (_, thread) if like.thread < thread => Some(self.stamp),
            _ => self.stamp.checked_sub(1),
        }
    }
}

/// What a thread has next.
#[derive(Clone, Copy, Debug)]
enum Head {
    /// Its next record was not looked at yet. Only the current cursor may have this.
    Unread,
    Record(Record),
    /// Events that cannot be read.
    Lost(u32),
}

/// The stream of one thread in one group.
struct Cursor {
    thread: ThreadNo,
    blocks: VecDeque<(u64, BlockInfo)>,
    raw: Vec<u8>,
    parts: Vec<Part>,
    /// The next part, and where its columns begin.
    part: usize,
    starts: [usize; COLUMNS],
    /// The rest of the current part.
    reader: ColumnReader,
    /// Events in it.
    left: u32,
    epoch: u32,
    /// Effective stamp of the last record of this epoch.
    floor: u64,
    head: Head,
}

/// The seqno of a thread's latest realloc free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Latest {
    Known(u64),
    /// It was lost.
    Lost,
}

/// The merged stream of a trace; see [`Trace::steps`].
pub struct Steps<'a> {
    trace: &'a Trace,
    /// The next group.
    group: usize,
    /// One past the last group to read.
    until: usize,
    /// The first group that was read: earlier ones may hold the first half of a realloc.
    start: usize,
    lookback: bool,
    cursors: Vec<Cursor>,
    /// All cursors but the current one, by the key of their head.
    heap: BinaryHeap<Reverse<(Key, usize)>>,
    current: Option<usize>,
    /// The current cursor goes on while its key is below this.
    limit: Key,
    /// The greatest effective stamp below `limit` in the current cursor's epoch;
    /// `None` if there is none.
    bound: Option<u64>,
    /// The group is cut: nothing from this key on is in order.
    barrier: Key,
    key: Key,
    /// Epoch of the latest record given out.
    epoch: u32,
    /// What epoch 0 of the present group is called: a group begins a new epoch.
    base: u32,
    seqno: u64,
    clock: ClockCursor<'a>,
    latest: FxHashMap<ThreadNo, Latest>,
    warnings: Vec<Warning>,
    lost: u64,
    buffers: Buffers,
    spare: Vec<Cursor>,
    /// A step that [`Steps::next_batch`] met and has not given out, and its epoch.
    held: Option<(u32, Step)>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(trace: &'a Trace, start: usize, until: usize) -> Self {
        Steps {
            trace,
            group: start,
            until,
            start,
            lookback: true,
            cursors: Vec::new(),
            heap: BinaryHeap::new(),
            current: None,
            limit: Key::END,
            bound: None,
            barrier: Key::END,
            key: Key::END,
            epoch: 0,
            base: 0,
            seqno: trace.index.groups.get(start).map_or(trace.event_count(), |group| group.first_seqno),
            clock: trace.clock.cursor(),
            latest: FxHashMap::default(),
            warnings: Vec::new(),
            lost: 0,
            buffers: Buffers::default(),
            spare: Vec::new(),
            held: None,
        }
    }

    /// The trace.
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// The seqno that the next event gets.
    pub fn seqno(&self) -> u64 {
        self.seqno
    }

    /// The epoch of the latest step. What different threads did in one epoch may
    /// have happened in another order than the stamps say; every epoch happened
    /// before the next.
    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Damage met so far that [`Trace::warnings`] does not know.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Events met so far that could not be read. Each run of them is given out
    /// as a [`Special::Dropped`] in its place, and keeps its seqnos.
    pub fn lost_events(&self) -> u64 {
        self.lost
    }

    /// The next step, or `None` at the end.
    ///
    /// # Errors
    /// [`TraceError::Read`] when the system cannot read the file. Damage is no
    /// error: it is skipped and found in [`Steps::warnings`].
    #[allow(clippy::should_implement_trait)]
    #[inline(always)]
    pub fn next(&mut self) -> Result<Option<Step>, TraceError> {
        // Small enough to become a part of the caller's loop, where a step
        // needs no memory of its own.
        if let Some((_, step)) = self.held.take() {
            return Ok(Some(step));
        }
        match self.next_plain() {
            Some(step) => Ok(Some(step)),
            None => self.next_any(),
        }
    }

    /// The common case: a plain record of the same part, still below what the
    /// other threads have.
    #[inline(always)]
    fn next_plain(&mut self) -> Option<Step> {
        let cursor = self.cursors.get_mut(self.current?)?;
        if cursor.left == 0 || !matches!(cursor.head, Head::Unread) {
            return None;
        }
        let plain = cursor.reader.plain(&cursor.raw)?;
        cursor.left -= 1;
        cursor.floor = cursor.floor.max(plain.stamp);
        let thread = cursor.thread;
        if Some(cursor.floor) > self.bound {
            cursor.head = Head::Record(record(plain));
            self.key = cursor.key();
            return None;
        }
        let ns = self.clock.ns_of(cursor.floor);
        let Plain { stamp, ptr, size, node, api } = plain;
        let seqno = self.seqno;
        self.seqno += 1;
        let (mut op, mut pair) = (Op::Alloc { size, usable: None }, None);
        if api.is_free() {
            op = Op::Free;
            if api.is_realloc() {
                self.realloc_free(thread, seqno);
                pair = Some(seqno);
            }
        }
        Some(Step::Event(Event { seqno, ns, stamp, thread, op, api, addr: ptr, node, pair }))
    }

    #[inline(never)]
    fn realloc_free(&mut self, thread: ThreadNo, seqno: u64) {
        self.latest.insert(thread, Latest::Known(seqno));
    }

    /// All other cases, one after another until there is a step.
    #[inline(never)]
    fn next_any(&mut self) -> Result<Option<Step>, TraceError> {
        loop {
            if let Some(step) = self.next_plain() {
                return Ok(Some(step));
            }
            let Some(current) = self.current else {
                if !self.open_group()? {
                    return Ok(None);
                }
                continue;
            };
            let Some(cursor) = self.cursors.get_mut(current) else { return Ok(None) };
            if let Head::Unread = cursor.head {
                if cursor.reader.is_empty() {
                    if !self.advance(current)? {
                        self.current = None;
                        self.switch_from_empty();
                    }
                } else if cursor.decode() {
                    self.key.stamp = cursor.floor;
                } else {
                    self.bad_part(current);
                }
                continue;
            }
            if self.key >= self.limit {
                self.switch(current);
                continue;
            }
            let (head, thread, stamp) = (cursor.head, cursor.thread, self.key.stamp);
            cursor.head = Head::Unread;
            // Both hold for all plain records that follow in this part.
            self.epoch = self.base.wrapping_add(self.key.epoch);
            self.bound = self.limit.bound(self.key);
            if let Some(step) = self.step(head, thread, stamp)? {
                return Ok(Some(step));
            }
        }
    }

    fn step(&mut self, head: Head, thread: ThreadNo, stamp: u64) -> Result<Option<Step>, TraceError> {
        let ns = self.clock.ns_of(stamp);
        let record = match head {
            Head::Unread => return Ok(None),
            Head::Record(record) => record,
            Head::Lost(count) => {
                self.seqno += u64::from(count);
                self.lost += u64::from(count);
                self.latest.insert(thread, Latest::Lost);
                let what = Special::Dropped { count: u64::from(count) };
                return Ok((count > 0).then_some(Step::Special { ns, thread, what }));
            }
        };
        Ok(Some(match record {
            Record::Alloc { stamp, ptr, size, usable, node, api, pair } => {
                let pair = if pair { self.pair_of(thread)? } else { None };
                let seqno = self.seqno;
                self.seqno += 1;
                let op = Op::Alloc { size, usable };
                Step::Event(Event { seqno, ns, stamp, thread, op, api, addr: ptr, node, pair })
            }
            Record::Free { stamp, ptr, node, api } => {
                let seqno = self.seqno;
                self.seqno += 1;
                let pair = if matches!(api, ApiKind::ReallocFree | ApiKind::ReallocarrayFree) {
                    self.latest.insert(thread, Latest::Known(seqno));
                    Some(seqno)
                } else {
                    None
                };
                Step::Event(Event { seqno, ns, stamp, thread, op: Op::Free, api, addr: ptr, node, pair })
            }
            Record::Special { kind, words, .. } => {
                let what = match kind {
                    SpecialKind::ReallocUndo => {
                        Special::ReallocUndo { free_seqno: self.pair_of(thread)?, addr: words[1] }
                    }
                    SpecialKind::Mmap => {
                        Special::Mmap { addr: words[1], len: words[2], node: words[3] as u32 }
                    }
                    SpecialKind::Munmap => {
                        Special::Munmap { addr: words[1], len: words[2], node: words[3] as u32 }
                    }
                    SpecialKind::Mremap => Special::Mremap {
                        old: words[1],
                        old_len: words[2],
                        new: words[3],
                        new_len: words[4],
                        node: words[5] as u32,
                    },
                    SpecialKind::Brk => Special::Brk { old: words[1], new: words[2], node: words[3] as u32 },
                    SpecialKind::Dropped => Special::Dropped { count: words[1] },
                    SpecialKind::Stalled => Special::Stalled { ns: words[1] },
                    // The codec's own.
                    _ => return Ok(None),
                };
                Step::Special { ns, thread, what }
            }
        }))
    }

    /// The seqno of the thread's latest realloc free. Where the stream was
    /// entered in the middle it may lie before the entry: then the groups
    /// before are looked through, the nearest first.
    fn pair_of(&mut self, thread: ThreadNo) -> Result<Option<u64>, TraceError> {
        if let Some(latest) = self.latest.get(&thread) {
            return Ok(match latest {
                Latest::Known(seqno) => Some(*seqno),
                Latest::Lost => None,
            });
        }
        if !self.lookback {
            return Ok(None);
        }
        let mut found = Latest::Lost;
        for group in (0..self.start).rev() {
            let Some(place) = self.trace.index.groups.get(group) else { break };
            let blocks = self.trace.source.group(place, &mut self.buffers)?.blocks;
            if !blocks.iter().any(|(_, block)| block.thread == thread) {
                continue;
            }
            // Only the free halves and losses of this one group matter.
            let mut steps = Steps::new(self.trace, group, group + 1);
            steps.without_lookback();
            while steps.next()?.is_some() {}
            if let Some(&latest) = steps.latest.get(&thread) {
                found = latest;
                break;
            }
        }
        self.latest.insert(thread, found);
        self.pair_of(thread)
    }

    /// Pairs whose first half lies before the entry stay unresolved.
    pub(crate) fn without_lookback(&mut self) {
        self.lookback = false;
    }

    /// Starts the next group; `false` at the end of the trace.
    #[cold]
    fn open_group(&mut self) -> Result<bool, TraceError> {
        if self.group >= self.until {
            return Ok(false);
        }
        let trace = self.trace;
        let Some(group) = trace.index.groups.get(self.group) else { return Ok(false) };
        if let Some(progress) = trace.progress {
            progress(group.first_seqno, trace.event_count());
        }
        self.group += 1;
        self.base = self.epoch.wrapping_add(1);
        self.seqno = group.first_seqno;
        self.barrier = Key::END;
        let loaded = trace.source.group(group, &mut self.buffers)?;
        if let Some(what) = loaded.damage {
            self.warn(group.offset, BlockKind::Group, 0, what);
        }
        self.spare.append(&mut self.cursors);
        self.heap.clear();
        let mut places: FxHashMap<ThreadNo, usize> = FxHashMap::default();
        let named: u64 = loaded.blocks.iter().map(|(_, block)| u64::from(block.events)).sum();
        // A cut group gives fewer than its table names; no group gives more
        // than its share of the numbers.
        if named > group.events && group.end < trace.size {
            self.lost += group.events;
            self.warn(group.offset, BlockKind::Group, group.events, "it has more events than numbers");
            return Ok(true);
        }
        if named < group.events {
            self.lost += group.events - named;
            self.warn(
                group.offset,
                BlockKind::Group,
                group.events - named,
                "it has fewer events than numbers",
            );
        }
        for (offset, block) in loaded.blocks {
            if offset.saturating_add(block.total) > trace.size {
                let first = Key { epoch: block.first_epoch, stamp: block.first, thread: block.thread };
                self.barrier = self.barrier.min(first);
                continue;
            }
            let place = *places.entry(block.thread).or_insert_with(|| {
                self.cursors.push(Cursor::new(block.thread, self.spare.pop()));
                self.cursors.len() - 1
            });
            if let Some(cursor) = self.cursors.get_mut(place) {
                cursor.blocks.push_back((offset, block));
            }
        }
        for place in 0..self.cursors.len() {
            let epoch = self.key;
            if self.advance(place)? {
                self.heap.push(Reverse((self.key, place)));
            }
            self.key = epoch;
        }
        self.switch_from_empty();
        Ok(true)
    }

    /// Puts the current cursor back and takes the one with the least key.
    fn switch(&mut self, current: usize) {
        if self.key >= self.barrier {
            self.heap.clear();
            self.current = None;
            return;
        }
        // One sift instead of a push and a pop.
        let Some(mut top) = self.heap.peek_mut() else {
            // Alone, and yet not below the limit: the limit is the barrier or the end.
            self.current = None;
            return;
        };
        let Reverse((key, place)) = std::mem::replace(&mut *top, Reverse((self.key, current)));
        drop(top);
        if key >= self.barrier {
            self.heap.clear();
            self.current = None;
            return;
        }
        (self.key, self.current) = (key, Some(place));
        self.set_limit();
    }

    #[inline(always)]
    fn set_limit(&mut self) {
        let next = self.heap.peek().map_or(Key::END, |Reverse((key, _))| *key);
        self.limit = next.min(self.barrier);
    }

    fn switch_from_empty(&mut self) {
        self.current = None;
        if let Some(Reverse((key, place))) = self.heap.pop() {
            if key >= self.barrier {
                self.heap.clear();
                return;
            }
            (self.key, self.current) = (key, Some(place));
            self.set_limit();
        }
    }

    /// Moves a cursor to the first record of its next part or block and puts
    /// its key into `self.key`. `false` if the thread has no more in this group.
    fn advance(&mut self, place: usize) -> Result<bool, TraceError> {
        loop {
            let Some(cursor) = self.cursors.get_mut(place) else { return Ok(false) };
            if cursor.left > 0 || !cursor.reader.is_even() {
                // Fewer events than the part was said to have, or more bytes.
                self.bad_part(place);
                return Ok(true);
            }
            if cursor.next_part() {
                if cursor.reader.is_empty() {
                    continue;
                }
                if !cursor.decode() {
                    self.bad_part(place);
                } else {
                    self.key = cursor.key();
                }
                return Ok(true);
            }
            let Some((offset, block)) = cursor.blocks.pop_front() else { return Ok(false) };
            let mut raw = std::mem::take(&mut cursor.raw);
            let mut parts = std::mem::take(&mut cursor.parts);
            let loaded = self.load(offset, &block, &mut raw, &mut parts)?;
            let Some(cursor) = self.cursors.get_mut(place) else { return Ok(false) };
            (cursor.raw, cursor.parts, cursor.part) = (raw, parts, 0);
            match loaded {
                Ok(starts) => {
                    (cursor.starts, cursor.reader, cursor.left) = (starts, ColumnReader::default(), 0);
                }
                Err(what) => {
                    cursor.parts.clear();
                    (cursor.reader, cursor.left) = (ColumnReader::default(), 0);
                    if cursor.epoch != block.last_epoch {
                        (cursor.epoch, cursor.floor) = (block.last_epoch, 0);
                    }
                    cursor.floor = cursor.floor.max(block.last);
                    cursor.head = Head::Lost(block.events);
                    self.key = cursor.key();
                    self.warn(offset, BlockKind::Events, u64::from(block.events), what);
                    return Ok(true);
                }
            }
        }
    }

    /// Reads a block; the inner value is where its columns begin.
    fn load(
        &mut self,
        offset: u64,
        block: &BlockInfo,
        raw: &mut Vec<u8>,
        parts: &mut Vec<Part>,
    ) -> Result<Result<[usize; COLUMNS], &'static str>, TraceError> {
        let Some(header) = self.trace.source.header(offset)? else {
            return Ok(Err("its header is damaged"));
        };
        if !header.is(BlockKind::Events) || info(&header) != *block {
            return Ok(Err("its header is not the one that the group's table names"));
        }
        if let Err(what) = self.trace.source.payload(offset, &header, &mut self.buffers, raw)? {
            return Ok(Err(what));
        }
        Ok(match read_parts(raw, parts) {
            Some(starts)
                if parts.iter().map(|p| u64::from(p.events)).sum::<u64>() == u64::from(block.events) =>
            {
                // The reader takes eight bytes at a time.
                raw.extend_from_slice(&[0; SLACK]);
                Ok(starts)
            }
            _ => Err("its table of parts makes no sense"),
        })
    }

    /// Gives up the rest of a part: its events count as lost, here.
    #[cold]
    fn bad_part(&mut self, place: usize) {
        let Some(cursor) = self.cursors.get_mut(place) else { return };
        let lost = cursor.left;
        cursor.left = 0;
        cursor.reader = ColumnReader::default();
        cursor.head = Head::Lost(lost);
        self.key = cursor.key();
        let group = self.trace.index.groups.get(self.group.saturating_sub(1)).map_or(0, |g| g.offset);
        self.warn(group, BlockKind::Events, u64::from(lost), "records that make no sense in this group");
    }

    fn warn(&mut self, offset: u64, kind: BlockKind, events: u64, what: &'static str) {
        let known = self.trace.warnings.iter().any(|warning| {
            matches!(warning, Warning::Damaged { offset: at, events: n, .. } if *at == offset && *n == events)
        });
        if !known {
            self.warnings.push(Warning::Damaged { offset, kind: Some(kind), events, what });
        }
    }
}

impl Cursor {
    fn new(thread: ThreadNo, spare: Option<Cursor>) -> Cursor {
        let (raw, parts) = spare.map_or_else(Default::default, |spare| (spare.raw, spare.parts));
        let mut cursor = Cursor {
            thread,
            blocks: VecDeque::new(),
            raw,
            parts,
            part: 0,
            starts: [0; COLUMNS],
            reader: ColumnReader::default(),
            left: 0,
            epoch: 0,
            floor: 0,
            head: Head::Lost(0),
        };
        cursor.parts.clear();
        cursor
    }

    fn key(&self) -> Key {
        Key { epoch: self.epoch, stamp: self.floor, thread: self.thread }
    }

    /// Decodes the next record of the part into `head`; `false` if there is
    /// none or one event more than the part was said to have.
    fn decode(&mut self) -> bool {
        let Ok(Some(record)) = self.reader.next(&self.raw) else { return false };
        if record.is_event() {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
        }
        self.floor = self.floor.max(record.stamp());
        self.head = Head::Record(record);
        true
    }

    fn next_part(&mut self) -> bool {
        let Some(part) = self.parts.get(self.part) else { return false };
        self.part += 1;
        if part.epoch != self.epoch {
            (self.epoch, self.floor) = (part.epoch, 0);
        }
        let starts = self.starts;
        for (start, len) in self.starts.iter_mut().zip(part.lens) {
            *start += len as usize;
        }
        (self.left, self.reader) = (part.events, ColumnReader::new(starts, self.starts, part.start));
        true
    }
}

/// A plain record as any other.
fn record(plain: Plain) -> Record {
    let Plain { stamp, ptr, size, node, api } = plain;
    if api.is_free() {
        Record::Free { stamp, ptr, node, api }
    } else {
        Record::Alloc { stamp, ptr, size, usable: None, node, api, pair: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_the_greatest_stamp_below_a_key() {
        let keys: Vec<Key> = (0..27u32)
            .map(|i| Key { epoch: i % 3, stamp: u64::from(i / 3 % 3), thread: i / 9 })
            .chain([Key::END, Key { stamp: u64::MAX, ..Key::END }])
            .collect();
        for &limit in &keys {
            for &like in &keys {
                let bound = limit.bound(like);
                for stamp in (0..5).chain([u64::MAX - 1, u64::MAX]) {
                    let key = Key { stamp, ..like };
                    assert_eq!(Some(stamp) <= bound, key < limit, "{key:?} {limit:?}");
                }
            }
        }
    }
}
