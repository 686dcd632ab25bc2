//! Keyframes: the full live set at the start of a group.

use highwater_event::api::ApiKind;

use crate::model::LiveBlock;
use crate::varint::{Reader, put, put_signed};

/// Live blocks in one keyframe block of the file; a larger live set takes more
/// than one.
pub(crate) const BLOCKS_A_PART: usize = 16 << 10;

/// The live set at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyframe {
    /// The instant: all events below this seqno have happened.
    pub seqno: u64,
    /// When that is, nanoseconds since the start (time of the last event before it).
    pub ns: u64,
    /// The live blocks, in the order in which the writer gave them.
    pub blocks: Vec<LiveBlock>,
}

pub(crate) fn put_live(out: &mut Vec<u8>, blocks: &[LiveBlock]) {
    let mut before = (0u64, 0u64, 0u64, 0u32);
    for block in blocks {
        put_signed(out, block.addr.wrapping_sub(before.0) as i64);
        put(out, block.size);
        put(
            out,
            (u64::from(block.thread) << 6 | (block.api as u64 & 31) << 1) | u64::from(block.usable.is_some()),
        );
        if let Some(usable) = block.usable {
            put(out, usable);
        }
        put_signed(out, i64::from(block.node) - i64::from(before.3));
        put_signed(out, block.seqno.wrapping_sub(before.1) as i64);
        put_signed(out, block.ns.wrapping_sub(before.2) as i64);
        before = (block.addr, block.seqno, block.ns, block.node);
    }
}

pub(crate) fn read_live(bytes: &[u8], count: u32, out: &mut Vec<LiveBlock>) -> Option<()> {
    let mut reader = Reader::new(bytes);
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
        let mut bytes = Vec::new();
        put_live(&mut bytes, &blocks);
        let mut got = Vec::new();
        assert_eq!(read_live(&bytes, 3, &mut got), Some(()));
        assert_eq!(got, blocks);
        assert_eq!(read_live(&bytes, 2, &mut Vec::new()), None);
        assert_eq!(read_live(&bytes[..bytes.len() - 1], 3, &mut Vec::new()), None);
    }
}
