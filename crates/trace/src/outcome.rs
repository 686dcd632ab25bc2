//! What a replay of the whole trace found, kept in the trace. Here it is bytes: what
//! they mean is the replay's business.

use crate::error::{BlockKind, TraceError};
use crate::frame::{BlockHeader, MAX_RAW, Packed, Packer};
use crate::reader::Trace;
use crate::scan::Buffers;

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// What is known of everything but single blocks.
    Outcome,
    /// What leaks are ranked by.
    Evidence,
}

impl Kept {
    /// All of them.
    pub const EACH: [Kept; 2] = [Kept::Outcome, Kept::Evidence];

    pub(crate) const fn kind(self) -> BlockKind {
        match self {
            Kept::Outcome => BlockKind::Outcome,
            Kept::Evidence => BlockKind::Evidence,
        }
    }
}

/// Something as it will stand in the file.
pub struct PackedOutcome {
    pub(crate) what: Kept,
    pub(crate) packed: Packed,
}

impl Trace {
    /// Could this by this version of its rules be appended? Only to a sound and
    /// finished trace that has none by these rules or later ones.
    pub fn wants(&self, what: Kept, rules: u32) -> bool {
        let known =
            self.index.kept[what as usize].and_then(|offset| self.kept_at(what, offset).ok().flatten());
        self.is_sound() && known.is_none_or(|(header, _)| header.count < rules)
    }

    /// Packs it for this trace. `None` where it would be longer than the trace,
    /// or, packed, more than a quarter of the file with it.
    pub fn pack(&self, what: Kept, rules: u32, bytes: &[u8]) -> Option<PackedOutcome> {
        if bytes.len() as u64 > self.size.min(u64::from(MAX_RAW)) {
            return None;
        }
        let compressor = zstd::bulk::Compressor::new(1).ok()?;
        let header = BlockHeader {
            kind: what.kind() as u8,
            count: rules,
            first: self.event_count(),
            ..BlockHeader::default()
        };
        let packed = Packer::Zstd(Box::new(compressor)).pack(header, bytes);
        (packed.header.total() <= self.size / 3).then_some(PackedOutcome { what, packed })
    }

    /// The latest one, if it is by this version of its rules and the trace is sound
    /// and finished.
    ///
    /// # Errors
    /// [`TraceError::Read`]. A damaged one counts as none.
    pub fn kept(&self, what: Kept, rules: u32) -> Result<Option<Vec<u8>>, TraceError> {
        let Some(offset) = self.index.kept[what as usize].filter(|_| self.is_sound()) else {
            return Ok(None);
        };
        let found = self.kept_at(what, offset)?;
        Ok(found.filter(|(header, _)| header.count == rules).map(|(_, bytes)| bytes))
    }

    /// What is kept at this place, if there is a sound one.
    pub(crate) fn kept_at(
        &self,
        what: Kept,
        offset: u64,
    ) -> Result<Option<(BlockHeader, Vec<u8>)>, TraceError> {
        let Some(header) = self.source.header(offset)? else { return Ok(None) };
        // It is of this trace, and none of ours unpacks to more than the file has.
        let fits = header.is(what.kind())
            && header.first == self.event_count()
            && u64::from(header.raw_len) <= self.size;
        let mut bytes = Vec::new();
        if !fits || self.source.payload(offset, &header, &mut Buffers::default(), &mut bytes)?.is_err() {
            return Ok(None);
        }
        Ok(Some((header, bytes)))
    }
}
