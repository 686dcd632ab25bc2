//! Which blocks lived how long: known only once the trace was read.

use rustc_hash::FxHashMap;

use crate::session::{QueryError, Session};
use crate::walk;

/// A set of seqnos; one bit each, in pages that are there only where needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Seqnos {
    pages: FxHashMap<u64, Box<[u64; 64]>>,
}

impl Seqnos {
    pub fn insert(&mut self, seqno: u64) {
        let page = self.pages.entry(seqno >> 12).or_insert_with(|| Box::new([0; 64]));
        page[(seqno >> 6 & 63) as usize] |= 1 << (seqno & 63);
    }

    pub fn contains(&self, seqno: u64) -> bool {
        self.pages
            .get(&(seqno >> 12))
            .is_some_and(|page| page[(seqno >> 6 & 63) as usize] >> (seqno & 63) & 1 == 1)
    }
}

/// The blocks whose lifetimes, ns, fit. One that is never given back lives until
/// the last event.
pub(super) fn fitting(session: &mut Session, fits: impl Fn(u64) -> bool) -> Result<Seqnos, QueryError> {
    let mut found = Seqnos::default();
    let end = walk::whole(session, |seen| {
        if let Some(block) = &seen.ended
            && fits(seen.event.ns.saturating_sub(block.ns))
        {
            found.insert(block.seqno);
        }
    })?;
    for block in end.live() {
        if fits(end.totals().last_ns.saturating_sub(block.ns)) {
            found.insert(block.seqno);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut set = Seqnos::default();
        let inside = [0, 1, 63, 64, 4095, 4096, 1 << 40, u64::MAX];
        inside.into_iter().for_each(|seqno| set.insert(seqno));
        assert!(inside.into_iter().all(|seqno| set.contains(seqno)));
        assert!(
            [2, 62, 65, 4094, 4097, (1 << 40) + 1, u64::MAX - 1]
                .into_iter()
                .all(|seqno| !set.contains(seqno))
        );
    }
}
