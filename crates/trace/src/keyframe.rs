//! Keyframes: the full live set at the start of a group.

use highwater_event::api::ApiKind;

use crate::model::{LiveBlock, ThreadNo};
use crate::varint::{Few, Reader, put, put_signed};

/// Live blocks in one keyframe block of the file; a larger live set takes more
/// than one.
pub(crate) const BLOCKS_A_PART: usize = 16 << 10;

/// What a replay has to know of a thread beside its live blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Which.
    pub thread: ThreadNo,
    /// Seqno of its latest allocation, if it has made any.
    pub last_alloc: Option<u64>,
    /// Times of its first and its latest event, ns since the start.
    pub first_ns: u64,
    /// See `first_ns`.
    pub last_ns: u64,
}

/// The heap at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyframe {
    /// The instant: all events below this seqno have happened.
    pub seqno: u64,
    /// When that is, nanoseconds since the start (time of the last event before it).
    pub ns: u64,
    /// The live blocks, in the order in which the writer gave them.
    pub blocks: Vec<LiveBlock>,
    /// The threads that have acted, in the order of their first events; `None`
    /// where the writer did not say.
    pub threads: Option<Vec<ThreadState>>,
}

pub(crate) fn put_threads(out: &mut Vec<u8>, threads: Option<&[ThreadState]>) {
    let Some(threads) = threads else { return put(out, 0) };
    put(out, threads.len() as u64 + 1);
    for thread in threads {
        put(out, u64::from(thread.thread));
        put(out, thread.last_alloc.map_or(0, |seqno| seqno.wrapping_add(1)));
        put(out, thread.first_ns);
        put_signed(out, thread.last_ns.wrapping_sub(thread.first_ns) as i64);
    }
}

fn read_threads(reader: &mut Reader<'_>) -> Option<Option<Vec<ThreadState>>> {
    let Some(count) = reader.u64()?.checked_sub(1) else { return Some(None) };
    let mut threads = Vec::new();
    for _ in 0..count {
        let (thread, last_alloc, first_ns) = (reader.u32()?, reader.u64()?.checked_sub(1), reader.u64()?);
        let last_ns = first_ns.wrapping_add(reader.i64()? as u64);
        threads.push(ThreadState { thread, last_alloc, first_ns, last_ns });
    }
    Some(Some(threads))
}

/// What a difference says besides what a keyframe says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// Seqno of the keyframe that it differs from.
    pub base: u64,
    /// The blocks of that one that live no longer: their places in it, rising.
    pub places: Vec<u32>,
}

/// `seqno` is that of the difference.
pub(crate) fn put_gone(out: &mut Vec<u8>, seqno: u64, base: u64, places: &[u32]) {
    put(out, seqno.wrapping_sub(base));
    put(out, places.len() as u64);
    let mut next = 0u32;
    for &place in places {
        put(out, u64::from(place.wrapping_sub(next)));
        next = place.wrapping_add(1);
    }
}

fn read_gone(reader: &mut Reader<'_>, seqno: u64) -> Option<Gone> {
    let base = seqno.checked_sub(reader.u64()?)?;
    let count = usize::try_from(reader.u64()?).ok().filter(|&count| count <= reader.remaining())?;
    let mut places = Vec::with_capacity(count);
    let mut next = 0u32;
    for _ in 0..count {
        let place = next.checked_add(reader.u32()?)?;
        places.push(place);
        next = place.checked_add(1)?;
    }
    Some(Gone { base, places })
}

pub(crate) fn put_live(out: &mut Vec<u8>, blocks: &[LiveBlock]) {
    let mut before = (0u64, 0u64, 0u64, 0u32);
    for block in blocks {
        let mut few = Few::new();
        few.put_signed(block.addr.wrapping_sub(before.0) as i64);
        few.put(block.size);
        let who = u64::from(block.thread) << 6 | (block.api as u64 & 31) << 1;
        few.put(who | u64::from(block.usable.is_some()));
        if let Some(usable) = block.usable {
            few.put(usable);
        }
        few.put_signed(i64::from(block.node) - i64::from(before.3));
        few.put_signed(block.seqno.wrapping_sub(before.1) as i64);
        few.put_signed(block.ns.wrapping_sub(before.2) as i64);
        out.extend_from_slice(few.bytes());
        before = (block.addr, block.seqno, block.ns, block.node);
    }
}

/// The live blocks of a part, behind those of `out`, and what it says of threads.
pub(crate) fn read_live(
    bytes: &[u8],
    count: u32,
    out: &mut Vec<LiveBlock>,
) -> Option<Option<Vec<ThreadState>>> {
    let mut reader = Reader::new(bytes);
    let threads = read_threads(&mut reader)?;
    read_blocks(&mut reader, count, out)?;
    Some(threads)
}

/// The same of the first part of a difference at `seqno`, and what is gone. (Its other
/// parts are as those of a keyframe.)
pub(crate) fn read_difference(
    bytes: &[u8],
    seqno: u64,
    count: u32,
    out: &mut Vec<LiveBlock>,
) -> Option<(Option<Vec<ThreadState>>, Gone)> {
    let mut reader = Reader::new(bytes);
    let threads = read_threads(&mut reader)?;
    let gone = read_gone(&mut reader, seqno)?;
    read_blocks(&mut reader, count, out)?;
    Some((threads, gone))
}

fn read_blocks(reader: &mut Reader<'_>, count: u32, out: &mut Vec<LiveBlock>) -> Option<()> {
    let mut before = (0u64, 0u64, 0u64, 0u32);
    for _ in 0..count {
        let addr = before.0.wrapping_add(reader.i64()? as u64);
        let size = reader.u64()?;
        let packed = reader.u64()?;
        let api = ApiKind::from_u8((packed >> 1 & 31) as u8)?;
        let usable = if packed & 1 == 1 { Some(reader.u64()?) } else { None };
        let node = u32::try_from(i64::from(before.3).checked_add(reader.i64()?)?).ok()?;
        let seqno = before.1.wrapping_add(reader.i64()? as u64);
        let ns = before.2.wrapping_add(reader.i64()? as u64);
        let thread = u32::try_from(packed >> 6).ok()?;
        out.push(LiveBlock { addr, size, usable, node, thread, api, seqno, ns });
        before = (addr, seqno, ns, node);
    }
    reader.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_round_trips_and_is_no_more_than_its_bytes() {
        for places in [vec![], vec![0], vec![7], vec![0, 1, 2, 900, 70_000], vec![u32::MAX - 1]] {
            let gone = Gone { base: 40, places };
            let mut bytes = Vec::new();
            put_threads(&mut bytes, None);
            put_gone(&mut bytes, 100, gone.base, &gone.places);
            let read = |bytes: &[u8], seqno| read_difference(bytes, seqno, 0, &mut Vec::new());
            assert_eq!(read(&bytes, 100), Some((None, gone)));
            assert_eq!(read(&bytes, 59), None, "a base before the start");
            for cut in 0..bytes.len() {
                assert_eq!(read(&bytes[..cut], 100), None);
            }
        }
        // As many as a hostile file likes to say, and a place behind the last number.
        for (count, places) in [(u64::MAX, &[1][..]), (3, &[1, 1]), (2, &[u64::from(u32::MAX), 0])] {
            let mut bytes = vec![0, 1];
            put(&mut bytes, count);
            places.iter().for_each(|&place| put(&mut bytes, place));
            assert_eq!(read_difference(&bytes, 9, 0, &mut Vec::new()), None);
        }
    }

    #[test]
    fn live_blocks_round_trip() {
        let block = LiveBlock {
            addr: 0x7fff_0010,
            size: 48,
            usable: Some(56),
            node: 7,
            thread: u32::MAX,
            api: ApiKind::UserAlloc,
            seqno: 5,
            ns: 9,
        };
        let blocks =
            [block, LiveBlock { addr: 16, usable: None, node: u32::MAX, ns: u64::MAX, ..block }, block];
        let threads = [
            ThreadState { thread: 0, last_alloc: Some(7), first_ns: 3, last_ns: 9 },
            ThreadState { thread: 9, last_alloc: None, first_ns: 5, last_ns: 5 },
        ];
        let mut bytes = Vec::new();
        put_threads(&mut bytes, Some(&threads));
        put_live(&mut bytes, &blocks);
        let mut got = Vec::new();
        assert_eq!(read_live(&bytes, 3, &mut got), Some(Some(threads.to_vec())));
        assert_eq!(got, blocks);
        assert_eq!(read_live(&bytes, 2, &mut Vec::new()), None);
        assert_eq!(read_live(&bytes[..bytes.len() - 1], 3, &mut Vec::new()), None);
    }
}
