//! The table of stack nodes: dense where ids are, sparse where a damaged or
//! hostile file makes them so.

use rustc_hash::FxHashMap;

use crate::model::{NodeDef, NodeId};

#[derive(Clone, Copy, Debug)]
struct Entry {
    pc: u64,
    parent: NodeId,
    module: u16,
    known: bool,
}

const UNKNOWN: Entry = Entry { pc: 0, parent: 0, module: 0, known: false };

/// How far ahead of the number of nodes an id may be and still be kept in the
/// dense table; ids beyond go into a map, so that a small file cannot ask for
/// gigabytes.
const SLACK: usize = 1 << 16;

/// The stack tree of a trace.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    dense: Vec<Entry>,
    sparse: FxHashMap<NodeId, Entry>,
    count: usize,
}

impl Nodes {
    /// Parent of a node whose parent is not in the trace (its definition was
    /// damaged). It has no definition itself, so a walk ends there.
    pub const LOST_PARENT: NodeId = NodeId::MAX;

    /// Takes a definition in. The first one of an id counts. A parent that is
    /// not known yet becomes [`Nodes::LOST_PARENT`], so that no walk ever runs
    /// in a circle.
    pub(crate) fn define(&mut self, node: NodeDef) {
        if node.id == 0 || node.id == Self::LOST_PARENT || self.get(node.id).is_some() {
            return;
        }
        let parent =
            if node.parent == 0 || self.get(node.parent).is_some() { node.parent } else { Self::LOST_PARENT };
        let entry = Entry { pc: node.pc, parent, module: node.module, known: true };
        let index = node.id as usize;
        if index < self.count.saturating_mul(4).saturating_add(SLACK) {
            if index >= self.dense.len() {
                self.dense.resize(index + 1, UNKNOWN);
            }
            if let Some(place) = self.dense.get_mut(index) {
                *place = entry;
            }
        } else {
            self.sparse.insert(node.id, entry);
        }
        self.count += 1;
    }

    /// The node with this id; `None` for the root and for ids that are not
    /// in the trace.
    #[inline]
    pub fn get(&self, id: NodeId) -> Option<NodeDef> {
        let entry = match self.dense.get(id as usize) {
            Some(entry) if entry.known => entry,
            _ => self.sparse.get(&id)?,
        };
        Some(NodeDef { id, parent: entry.parent, pc: entry.pc, module: entry.module })
    }

    /// Number of nodes, without the root.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Is there no node?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One more than the greatest id: the length of a table indexed by id.
    /// In a sound trace this is close to [`Nodes::len`].
    pub fn id_bound(&self) -> usize {
        let sparse = self.sparse.keys().max().map_or(0, |&id| id as usize + 1);
        sparse.max(self.dense.len()).max(1)
    }

    /// All nodes, those of the dense table by id first.
    pub fn iter(&self) -> impl Iterator<Item = NodeDef> + '_ {
        let dense = (0..self.dense.len() as u32).filter(|&id| self.dense[id as usize].known);
        dense.chain(self.sparse.keys().copied()).filter_map(|id| self.get(id))
    }

    /// The frames of a stack, innermost first. Ends at the root, at a
    /// truncation marker (which is given out), or at a lost parent.
    pub fn stack(&self, node: NodeId) -> impl Iterator<Item = NodeDef> + '_ {
        std::iter::successors(self.get(node), |node| self.get(node.parent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_far_ids_and_circles() {
        let mut nodes = Nodes::default();
        let def = |id, parent| NodeDef { id, parent, pc: u64::from(id) * 16, module: 1 };
        nodes.define(def(1, 0));
        nodes.define(def(5, 1));
        nodes.define(def(4_000_000_000, 5));
        nodes.define(def(7, 8));
        nodes.define(def(8, 7));
        nodes.define(def(5, 8));
        assert_eq!(nodes.len(), 5);
        assert_eq!(nodes.get(4), None);
        assert_eq!(nodes.get(5), Some(def(5, 1)));
        let ids = |id| nodes.stack(id).map(|n| n.id).collect::<Vec<_>>();
        assert_eq!(ids(4_000_000_000), [4_000_000_000, 5, 1]);
        assert_eq!(ids(8), [8, 7], "7's parent came after it, so it is lost and the walk ends");
        assert_eq!(nodes.iter().count(), 5);
        assert_eq!(nodes.id_bound(), 4_000_000_001);
    }
}
