//! What a replay of the whole trace found, kept in the trace. Here it is bytes: what
//! they mean is the replay's business.

use crate::error::{BlockKind, TraceError};
use crate::frame::{BlockHeader, MAX_RAW, Packed, Packer};
use crate::reader::Trace;
use crate::scan::Buffers;

/// An outcome as it will stand in the file.
pub struct PackedOutcome(pub(crate) Packed);

impl Trace {
    /// Could an outcome by this version of the replay's rules be appended? Only to a
    /// sound and finished trace that has none by these rules or later ones.
    pub fn wants_outcome(&self, rules: u32) -> bool {
        let known = self.index.outcome.and_then(|offset| self.outcome_at(offset).ok().flatten());
        self.is_sound() && known.is_none_or(|(header, _)| header.count < rules)
    }

    /// Packs an outcome for this trace. `None` where it would be longer than the trace,
    /// or, packed, more than a quarter of the file with it.
    pub fn pack_outcome(&self, rules: u32, outcome: &[u8]) -> Option<PackedOutcome> {
        if outcome.len() as u64 > self.size.min(u64::from(MAX_RAW)) {
            return None;
        }
        let compressor = zstd::bulk::Compressor::new(1).ok()?;
        let header = BlockHeader {
            kind: BlockKind::Outcome as u8,
            count: rules,
            first: self.event_count(),
            ..BlockHeader::default()
        };
        let packed = Packer::Zstd(Box::new(compressor)).pack(header, outcome);
        (packed.header.total() <= self.size / 3).then_some(PackedOutcome(packed))
    }

    /// The latest outcome, if it is by this version of the replay's rules and the
    /// trace is sound and finished.
    ///
    /// # Errors
    /// [`TraceError::Read`]. A damaged outcome counts as none.
    pub fn outcome(&self, rules: u32) -> Result<Option<Vec<u8>>, TraceError> {
        let Some(offset) = self.index.outcome.filter(|_| self.is_sound()) else { return Ok(None) };
        let found = self.outcome_at(offset)?;
        Ok(found.filter(|(header, _)| header.count == rules).map(|(_, outcome)| outcome))
    }

    /// The outcome at this place, if there is a sound one.
    pub(crate) fn outcome_at(&self, offset: u64) -> Result<Option<(BlockHeader, Vec<u8>)>, TraceError> {
        let Some(header) = self.source.header(offset)? else { return Ok(None) };
        // It is of this trace, and none of ours unpacks to more than the file has.
        let fits = header.is(BlockKind::Outcome)
            && header.first == self.event_count()
            && u64::from(header.raw_len) <= self.size;
        let mut outcome = Vec::new();
        if !fits || self.source.payload(offset, &header, &mut Buffers::default(), &mut outcome)?.is_err() {
            return Ok(None);
        }
        Ok(Some((header, outcome)))
    }
}
