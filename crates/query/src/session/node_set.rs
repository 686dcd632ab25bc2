//! A set of nodes, small where their ids are.

use highwater_event::node::NodeId;
use rustc_hash::FxHashSet;

/// Ids below this have a bit each (8 MiB at most).
const BITS: usize = 1 << 26;

/// A set of nodes.
#[derive(Default)]
pub struct NodeSet {
    bits: Vec<u64>,
    rest: FxHashSet<NodeId>,
}

impl NodeSet {
    /// Puts a node in; says whether it was not there.
    pub fn insert(&mut self, node: NodeId) -> bool {
        let at = node as usize;
        if at >= BITS {
            return self.rest.insert(node);
        }
        if at / 64 >= self.bits.len() {
            self.bits.resize((at / 64 + 1).next_power_of_two(), 0);
        }
        let Some(word) = self.bits.get_mut(at / 64) else { return false };
        let new = *word >> (at % 64) & 1 == 0;
        *word |= 1 << (at % 64);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_new_once() {
        let mut set = NodeSet::default();
        let nodes = [0, 1, 63, 64, 65, 1000, BITS as u32 - 1, BITS as u32, u32::MAX];
        for node in nodes {
            assert!(set.insert(node), "{node}");
        }
        assert!(nodes.into_iter().all(|node| !set.insert(node)));
        assert!(set.bits.len() * 64 <= BITS);
    }
}
