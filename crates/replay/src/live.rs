//! The live set at an instant.

use std::ops::RangeInclusive;

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_trace::model::ThreadNo;

/// A block that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Its address.
    pub addr: u64,
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes, where recorded.
    pub usable: Option<u64>,
    /// Seqno of its allocation: names the block in the whole trace.
    pub seqno: u64,
    /// When it was made, ns.
    pub ns: u64,
    /// Who made it.
    pub thread: ThreadNo,
    /// Through which entry point.
    pub api: ApiKind,
    /// From where; 0 where no stack was taken.
    pub node: NodeId,
}

/// The difference of two live sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveDiff {
    /// Alive only in the later one.
    pub new: Vec<LiveBlock>,
    /// Alive only in the earlier one.
    pub gone: Vec<LiveBlock>,
    /// Alive in both.
    pub kept: Vec<LiveBlock>,
}

/// Compares two live sets of one trace; both sorted by seqno, as
/// [`crate::Replay::live_set`] gives them. A block is the same if its seqno is.
pub fn diff(before: &[LiveBlock], after: &[LiveBlock]) -> LiveDiff {
    let mut result = LiveDiff::default();
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    loop {
        match (old.peek(), new.peek()) {
            (Some(a), Some(b)) if a.seqno == b.seqno => {
                result.kept.push(**b);
                old.next();
                new.next();
            }
            (Some(a), b) if b.is_none_or(|b| a.seqno < b.seqno) => {
                result.gone.push(**a);
                old.next();
            }
            (_, Some(b)) => {
                result.new.push(**b);
                new.next();
            }
            (_, None) => break,
        }
    }
    result
}

/// The blocks of a live set that were made in a window of seqnos: what
/// survived it.
pub fn survivors(live: &[LiveBlock], window: RangeInclusive<u64>) -> impl Iterator<Item = &LiveBlock> {
    live.iter().filter(move |block| window.contains(&block.seqno))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(seqno: u64) -> LiveBlock {
        LiveBlock { addr: 16, size: 1, usable: None, seqno, ns: 0, thread: 0, api: ApiKind::Malloc, node: 0 }
    }

    fn seqnos(blocks: &[LiveBlock]) -> Vec<u64> {
        blocks.iter().map(|block| block.seqno).collect()
    }

    #[test]
    fn blocks_are_new_gone_or_kept() {
        let before = [block(1), block(3), block(4)];
        let after = [block(2), block(3), block(9)];
        let result = diff(&before, &after);
        assert_eq!(seqnos(&result.new), [2, 9]);
        assert_eq!(seqnos(&result.gone), [1, 4]);
        assert_eq!(seqnos(&result.kept), [3]);
        assert_eq!(diff(&[], &[]), LiveDiff::default());
    }

    #[test]
    fn survivors_were_made_in_the_window() {
        let live = [block(1), block(5), block(9)];
        assert_eq!(survivors(&live, 2..=9).map(|b| b.seqno).collect::<Vec<_>>(), [5, 9]);
    }
}
