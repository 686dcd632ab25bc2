//! A group: one or more whole epochs, written together. Its first block lists
//! the event blocks that follow, so that a missing or damaged one is known with
//! all that the order needs. An event block holds *parts*: runs of records of
//! one thread inside one epoch, each with its own codec state. The records lie
//! in columns, each column with the bytes of all parts of the block.

use highwater_event::codec::State;
use highwater_event::columns::COLUMNS;

use crate::model::ThreadNo;
use crate::varint::{Reader, put, put_signed};

/// What is known of an event block without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockInfo {
    pub thread: ThreadNo,
    /// Allocs and frees in it.
    pub events: u32,
    /// Effective stamps of its first and last record.
    pub first: u64,
    pub last: u64,
    /// Epochs of its first and last record, from 0 in the group.
    pub first_epoch: u32,
    pub last_epoch: u32,
    /// Bytes of the block in the file, header included.
    pub total: u64,
}

pub(crate) fn put_table(out: &mut Vec<u8>, blocks: &[BlockInfo]) {
    put(out, blocks.len() as u64);
    let mut stamp = 0u64;
    for block in blocks {
        put(out, u64::from(block.thread));
        put(out, u64::from(block.events));
        put_signed(out, block.first.wrapping_sub(stamp) as i64);
        put_signed(out, block.last.wrapping_sub(block.first) as i64);
        put(out, u64::from(block.first_epoch));
        put(out, u64::from(block.last_epoch));
        put(out, block.total);
        stamp = block.first;
    }
}

pub(crate) fn read_table(bytes: &[u8]) -> Option<Vec<BlockInfo>> {
    let mut reader = Reader::new(bytes);
    let count = usize::try_from(reader.u64()?).ok()?;
    // An entry has seven bytes at least: no more room than the bytes can fill.
    if count > reader.remaining() / 7 {
        return None;
    }
    let mut blocks = Vec::with_capacity(count);
    let mut stamp = 0u64;
    for _ in 0..count {
        let (thread, events) = (reader.u32()?, reader.u32()?);
        let first = stamp.wrapping_add(reader.i64()? as u64);
        let last = first.wrapping_add(reader.i64()? as u64);
        let (first_epoch, last_epoch, total) = (reader.u32()?, reader.u32()?, reader.u64()?);
        blocks.push(BlockInfo { thread, events, first, last, first_epoch, last_epoch, total });
        stamp = first;
    }
    reader.is_empty().then_some(blocks)
}

/// A run of records of one thread inside one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Epoch, from 0 in the group.
    pub epoch: u32,
    /// Bytes of records in each column.
    pub lens: [u32; COLUMNS],
    /// Allocs and frees in it.
    pub events: u32,
    /// The codec's state before its first record.
    pub start: State,
}

impl Part {
    /// Bytes of records.
    pub(crate) fn bytes(&self) -> usize {
        self.lens.iter().map(|&len| len as usize).sum()
    }
}

/// Writes the table of parts that stands before the records of a block.
pub(crate) fn put_parts(out: &mut Vec<u8>, parts: &[Part]) {
    put(out, parts.len() as u64);
    let (mut epoch, mut before) = (0, State::default());
    for part in parts {
        put(out, u64::from(part.epoch - epoch));
        put(out, u64::from(part.events));
        for len in part.lens {
            put(out, u64::from(len));
        }
        put_signed(out, part.start.stamp.wrapping_sub(before.stamp) as i64);
        put_signed(out, part.start.ptr.wrapping_sub(before.ptr) as i64);
        put_signed(out, i64::from(part.start.alloc_node) - i64::from(before.alloc_node));
        put_signed(out, i64::from(part.start.free_node) - i64::from(before.free_node));
        (epoch, before) = (part.epoch, part.start);
    }
}

/// Reads the table into `parts` and returns where each column begins. `None`
/// if it is not a table, or the records are not as long as it says.
pub(crate) fn read_parts(bytes: &[u8], parts: &mut Vec<Part>) -> Option<[usize; COLUMNS]> {
    parts.clear();
    let mut reader = Reader::new(bytes);
    let count = reader.u64()?;
    let (mut epoch, mut before) = (0u32, State::default());
    let mut sums = [0u64; COLUMNS];
    for _ in 0..count {
        epoch = epoch.checked_add(reader.u32()?)?;
        let events = reader.u32()?;
        let mut lens = [0; COLUMNS];
        for (len, sum) in lens.iter_mut().zip(&mut sums) {
            *len = reader.u32()?;
            *sum += u64::from(*len);
        }
        let start = State {
            stamp: before.stamp.wrapping_add(reader.i64()? as u64),
            ptr: before.ptr.wrapping_add(reader.i64()? as u64),
            alloc_node: u32::try_from(i64::from(before.alloc_node).checked_add(reader.i64()?)?).ok()?,
            free_node: u32::try_from(i64::from(before.free_node).checked_add(reader.i64()?)?).ok()?,
        };
        parts.push(Part { epoch, lens, events, start });
        before = start;
    }
    if reader.remaining() as u64 != sums.iter().sum::<u64>() {
        return None;
    }
    let mut at = bytes.len() - reader.remaining();
    Some(sums.map(|sum| {
        let start = at;
        at += sum as usize;
        start
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_round_trip_and_nothing_else_is_one() {
        let block = BlockInfo {
            thread: 1,
            events: 2,
            first: u64::MAX,
            last: 5,
            first_epoch: 0,
            last_epoch: 3,
            total: 99,
        };
        let blocks = [block, BlockInfo { thread: u32::MAX, first: 7, ..block }];
        let mut bytes = Vec::new();
        put_table(&mut bytes, &blocks);
        assert_eq!(read_table(&bytes).as_deref(), Some(&blocks[..]));
        for cut in 0..bytes.len() {
            assert_eq!(read_table(&bytes[..cut]), None);
        }

        let start = State { stamp: 1 << 60, ptr: u64::MAX, alloc_node: u32::MAX, free_node: 1 };
        let parts = [
            Part { epoch: 0, lens: [1, 0, 1, 0, 0, 0], events: 1, start },
            Part { epoch: 2, lens: [0, 0, 0, 0, 1, 0], events: 0, start: State::default() },
        ];
        let mut bytes = Vec::new();
        put_parts(&mut bytes, &parts);
        let records = bytes.len();
        bytes.extend_from_slice(b"abc");
        let mut got = Vec::new();
        let starts = [0, 1, 1, 2, 2, 3].map(|at| records + at);
        assert_eq!(read_parts(&bytes, &mut got), Some(starts));
        assert_eq!(got, parts);
        for cut in 0..bytes.len() {
            assert_eq!(read_parts(&bytes[..cut], &mut got), None);
        }
    }
}
