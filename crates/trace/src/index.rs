//! The index: where everything is. It stands in the footer, or is rebuilt.

use crate::error::BlockKind;
use crate::varint::{Reader, put, put_signed};

/// Where a group is and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRef {
    /// Offset of its table.
    pub offset: u64,
    /// One past its last byte (of those that are in the file).
    pub end: u64,
    /// Its number.
    pub serial: u64,
    /// Seqno of its first event.
    pub first_seqno: u64,
    /// Seqnos in it.
    pub events: u64,
    /// Least and greatest effective stamp.
    pub first: u64,
    pub last: u64,
}

/// Where a block of a keyframe is, of a difference, or totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyframeRef {
    pub offset: u64,
    pub seqno: u64,
    /// Effective stamp of the last record before it.
    pub stamp: u64,
    /// Which part of it, of how many.
    pub part: u32,
    pub parts: u32,
    /// What it is.
    pub kind: FrameKind,
}

/// What stands in the list of keyframes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// A whole keyframe.
    Whole,
    /// Differences to a whole one, or to a base.
    Difference,
    /// What was counted up to there.
    Totals,
    /// A whole one that is not to be entered, but to be differed from.
    Base,
    /// Something of a later version.
    Other(u8),
}

/// The number of the part has this many bits. Above it stands the kind: a reader that
/// knows keyframes alone takes the others for parts behind the first, with which it
/// never begins.
const PART_BITS: u32 = 29;

impl FrameKind {
    const KNOWN: [FrameKind; 4] =
        [FrameKind::Whole, FrameKind::Difference, FrameKind::Totals, FrameKind::Base];

    /// What lies in blocks of this kind.
    pub(crate) fn of(kind: BlockKind) -> Option<FrameKind> {
        Self::KNOWN.into_iter().find(|frame| frame.block() == Some(kind))
    }

    /// What blocks it lies in.
    pub(crate) fn block(self) -> Option<BlockKind> {
        match self {
            FrameKind::Whole => Some(BlockKind::Keyframe),
            FrameKind::Difference => Some(BlockKind::Difference),
            FrameKind::Totals => Some(BlockKind::Totals),
            FrameKind::Base => Some(BlockKind::Base),
            FrameKind::Other(_) => None,
        }
    }

    fn number(self) -> u8 {
        match self {
            FrameKind::Whole => 0,
            FrameKind::Difference => 1,
            FrameKind::Totals => 2,
            FrameKind::Base => 3,
            FrameKind::Other(number) => number,
        }
    }

    fn numbered(number: u8) -> FrameKind {
        Self::KNOWN.get(usize::from(number)).copied().unwrap_or(FrameKind::Other(number))
    }
}

impl KeyframeRef {
    /// Does a live set begin here?
    pub(crate) fn begins(&self) -> bool {
        self.part == 0 && matches!(self.kind, FrameKind::Whole | FrameKind::Difference)
    }

    /// Number and kind as the file has them.
    fn packed(&self) -> u64 {
        u64::from(self.part) | u64::from(self.kind.number()) << PART_BITS
    }

    fn unpack(packed: u32) -> (u32, FrameKind) {
        (packed & ((1 << PART_BITS) - 1), FrameKind::numbered((packed >> PART_BITS) as u8))
    }
}

/// Offsets of all blocks but the event blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    pub definitions: Vec<u64>,
    pub groups: Vec<GroupRef>,
    pub keyframes: Vec<KeyframeRef>,
    /// The latest of each thing [kept](crate::Kept); these stand in the header of the
    /// index's block.
    pub kept: [Option<u64>; 2],
}

impl Index {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, self.definitions.len() as u64);
        let mut at = 0;
        for &offset in &self.definitions {
            put(&mut out, offset - at);
            at = offset;
        }
        put(&mut out, self.groups.len() as u64);
        let (mut at, mut stamp) = (0, 0u64);
        for group in &self.groups {
            put(&mut out, group.offset - at);
            put(&mut out, group.end - group.offset);
            put(&mut out, group.serial);
            put(&mut out, group.events);
            put_signed(&mut out, group.first.wrapping_sub(stamp) as i64);
            put_signed(&mut out, group.last.wrapping_sub(group.first) as i64);
            (at, stamp) = (group.offset, group.first);
        }
        put(&mut out, self.keyframes.len() as u64);
        let mut at = 0;
        for keyframe in &self.keyframes {
            put(&mut out, keyframe.offset - at);
            put(&mut out, keyframe.seqno);
            put(&mut out, keyframe.stamp);
            put(&mut out, keyframe.packed());
            put(&mut out, u64::from(keyframe.parts));
            at = keyframe.offset;
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Index> {
        let mut reader = Reader::new(bytes);
        let mut index = Index::default();
        let mut at = 0u64;
        for _ in 0..reader.u64()? {
            at = at.checked_add(reader.u64()?)?;
            index.definitions.push(at);
        }
        let (mut at, mut stamp, mut seqno) = (0u64, 0u64, 0u64);
        for _ in 0..reader.u64()? {
            let offset = at.checked_add(reader.u64()?)?;
            let end = offset.checked_add(reader.u64()?)?;
            let (serial, events) = (reader.u64()?, reader.u64()?);
            let first = stamp.wrapping_add(reader.i64()? as u64);
            let last = first.wrapping_add(reader.i64()? as u64);
            index.groups.push(GroupRef { offset, end, serial, first_seqno: seqno, events, first, last });
            seqno = seqno.checked_add(events)?;
            (at, stamp) = (offset, first);
        }
        let mut at = 0u64;
        for _ in 0..reader.u64()? {
            at = at.checked_add(reader.u64()?)?;
            let (seqno, stamp, packed, parts) = (reader.u64()?, reader.u64()?, reader.u32()?, reader.u32()?);
            let (part, kind) = KeyframeRef::unpack(packed);
            index.keyframes.push(KeyframeRef { offset: at, seqno, stamp, part, parts, kind });
        }
        reader.is_empty().then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_round_trips() {
        let group = GroupRef {
            offset: 10,
            end: 50,
            serial: 0,
            first_seqno: 0,
            events: 5,
            first: 100,
            last: u64::MAX,
        };
        let index = Index {
            definitions: vec![4, 60],
            groups: vec![
                group,
                GroupRef { offset: 70, end: 71, serial: 1, first_seqno: 5, first: 3, ..group },
            ],
            keyframes: [0, 1, 2, 3, 7]
                .map(FrameKind::numbered)
                .map(|kind| KeyframeRef { offset: 60, seqno: 5, stamp: 9, part: 3, parts: 7, kind })
                .to_vec(),
            kept: [None; 2],
        };
        let bytes = index.encode();
        assert_eq!(Index::decode(&bytes), Some(index));
        for cut in 0..bytes.len() {
            assert_eq!(Index::decode(&bytes[..cut]), None);
        }
    }
}
