//! memcheck's classes.

use highwater_trace::reach::Class;

use super::graph::{Graph, RootPointer};

/// No block.
pub const NONE: u32 = u32::MAX;

/// The class of each block, and with which definitely lost block it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// By block.
    pub class: Vec<Class>,
    /// The definitely lost block that leads to an indirectly lost one, else [`NONE`].
    pub owner: Vec<u32>,
}

/// Sorts blocks into classes. `accept` says whether a pointer into the middle
/// of a block counts as one to its start (C++ keeps such pointers on purpose).
///
/// A block is still reachable if a chain of pointers to starts leads to it from
/// a root, possibly lost if only chains with a pointer into the middle do. Of
/// the rest, the blocks that no other lost block leads to are definitely lost,
/// the others indirectly, with the first definitely lost block by address that
/// leads to them; of blocks that lead to each other and that nothing else leads
/// to, the one with the lowest address is definitely lost. (memcheck comes to
/// the same but where its one pass meets a block of a lost ring before a block
/// that leads into the ring; LeakSanitizer calls all blocks of a ring indirect.)
pub fn classify(graph: &Graph, roots: &[RootPointer], mut accept: impl FnMut(u32, u64) -> bool) -> Classes {
    let blocks = graph.blocks();
    let mut state = vec![UNSEEN; blocks];
    let mut stack: Vec<u32> = Vec::new();
    let mut inside: Vec<(u32, u64)> = Vec::new();
    // What chains of pointers to starts lead to.
    for root in roots {
        if root.into == 0 {
            visit(&mut state, &mut stack, root.to, REACHABLE);
        } else {
            inside.push((root.to, root.into));
        }
    }
    loop {
        while let Some(block) = stack.pop() {
            for (to, into) in graph.of(block) {
                if into == 0 {
                    visit(&mut state, &mut stack, to, REACHABLE);
                } else if state.get(to as usize) == Some(&UNSEEN) {
                    inside.push((to, u64::from(into)));
                }
            }
        }
        // Pointers into the middle, of blocks that nothing better leads to.
        inside.retain(|&(to, _)| state.get(to as usize) == Some(&UNSEEN));
        inside.sort_unstable();
        inside.dedup();
        let mut left = Vec::new();
        for (to, into) in std::mem::take(&mut inside) {
            if state.get(to as usize) == Some(&UNSEEN) && accept(to, into) {
                visit(&mut state, &mut stack, to, REACHABLE);
            } else {
                left.push((to, into));
            }
        }
        inside = left;
        if stack.is_empty() {
            break;
        }
    }
    for (to, _) in inside {
        visit(&mut state, &mut stack, to, POSSIBLE);
    }
    flood(graph, &mut state, &mut stack, POSSIBLE);
    let owner = lost(graph, &mut state);
    let class = state.iter().map(|&state| class_of(state)).collect();
    Classes { class, owner }
}

const UNSEEN: u8 = 0;
const REACHABLE: u8 = 1;
const POSSIBLE: u8 = 2;
/// Lost; met by the pass that looks for heads.
const LOST: u8 = 3;
/// Met by the pass that confirms heads.
const CONFIRMED: u8 = 4;
const DEFINITE: u8 = 5;
const INDIRECT: u8 = 6;

fn class_of(state: u8) -> Class {
    match state {
        REACHABLE => Class::Reachable,
        POSSIBLE => Class::Possible,
        INDIRECT => Class::Indirect,
        _ => Class::Definite,
    }
}

#[inline]
fn visit(state: &mut [u8], stack: &mut Vec<u32>, block: u32, to: u8) {
    if let Some(state) = state.get_mut(block as usize)
        && *state == UNSEEN
    {
        *state = to;
        stack.push(block);
    }
}

/// Everything that the blocks on the stack lead to.
fn flood(graph: &Graph, state: &mut [u8], stack: &mut Vec<u32>, to: u8) {
    while let Some(block) = stack.pop() {
        for &target in graph.targets(block) {
            visit(state, stack, target, to);
        }
    }
}

/// Confirms all lost blocks that `block` leads to.
fn spread(graph: &Graph, state: &mut [u8], stack: &mut Vec<u32>, block: u32) {
    stack.push(block);
    while let Some(block) = stack.pop() {
        for &target in graph.targets(block) {
            if let Some(own) = state.get_mut(target as usize).filter(|own| **own == LOST) {
                *own = CONFIRMED;
                stack.push(target);
            }
        }
    }
}

/// Tells heads of lost structures from what they lead to; returns the owners.
fn lost(graph: &Graph, state: &mut [u8]) -> Vec<u32> {
    let mut stack = Vec::new();
    let mut owner = vec![NONE; state.len()];
    // Blocks in order of address, each with all that it leads to and that no
    // earlier one did: a head is among those that begin.
    let mut begins: Vec<u32> = Vec::new();
    for block in 0..state.len() as u32 {
        if state.get(block as usize) == Some(&UNSEEN) {
            begins.push(block);
            visit(state, &mut stack, block, LOST);
            flood(graph, state, &mut stack, LOST);
        }
    }
    // An earlier one that a later one leads to is no head; no later one is led
    // to by an earlier one.
    let mut heads: Vec<u32> = Vec::new();
    for &block in begins.iter().rev() {
        if let Some(own) = state.get_mut(block as usize).filter(|own| **own == LOST) {
            *own = CONFIRMED;
            heads.push(block);
            spread(graph, state, &mut stack, block);
        }
    }
    heads.sort_unstable();
    for &head in &heads {
        if let Some(state) = state.get_mut(head as usize) {
            *state = DEFINITE;
        }
    }
    // All heads are marked, so nothing owns a head.
    for &head in &heads {
        stack.push(head);
        while let Some(block) = stack.pop() {
            for &target in graph.targets(block) {
                if let (Some(own), Some(owner)) =
                    (state.get_mut(target as usize), owner.get_mut(target as usize))
                    && *own == CONFIRMED
                {
                    *own = INDIRECT;
                    *owner = head;
                    stack.push(target);
                }
            }
        }
    }
    owner
}

#[cfg(test)]
mod tests {
    use super::super::model;
    use super::*;
    use highwater_trace::reach::Place;
    use proptest::prelude::*;

    fn root(to: u32, into: u64) -> RootPointer {
        RootPointer { place: Place::Data { addr: 0 }, to, into }
    }

    fn classes(blocks: usize, roots: &[RootPointer], edges: &[(u32, u32, u32)]) -> String {
        let classes = classify(&Graph::of_edges(blocks, edges), roots, |_, _| false);
        let letter = |class: &Class| match class {
            Class::Definite => 'D',
            Class::Indirect => 'I',
            Class::Possible => 'P',
            Class::Reachable => 'R',
        };
        classes.class.iter().map(letter).collect()
    }

    #[test]
    fn the_nine_chains_of_memchecks_manual() {
        let (a, b) = (0, 1);
        assert_eq!(classes(1, &[root(0, 0)], &[]), "R", "1");
        assert_eq!(classes(2, &[root(a, 0)], &[(a, b, 0)]), "RR", "2");
        assert_eq!(classes(1, &[], &[]), "D", "3");
        assert_eq!(classes(2, &[], &[(a, b, 0)]), "DI", "4");
        assert_eq!(classes(1, &[root(0, 8)], &[]), "P", "5");
        assert_eq!(classes(2, &[root(a, 0)], &[(a, b, 8)]), "RP", "6");
        assert_eq!(classes(2, &[root(a, 8)], &[(a, b, 0)]), "PP", "7");
        assert_eq!(classes(2, &[root(a, 8)], &[(a, b, 8)]), "PP", "8");
        assert_eq!(classes(2, &[], &[(a, b, 8)]), "DI", "9");
    }

    #[test]
    fn a_ring_has_one_head_and_none_where_something_leads_into_it() {
        assert_eq!(classes(3, &[], &[(0, 1, 0), (1, 2, 0), (2, 0, 0)]), "DII");
        assert_eq!(classes(3, &[], &[(0, 1, 0), (1, 0, 0), (2, 1, 0)]), "IID");
        assert_eq!(classes(1, &[], &[(0, 0, 0)]), "D", "a pointer to itself");
        assert_eq!(classes(4, &[], &[(3, 1, 0), (1, 3, 0), (0, 1, 0), (2, 3, 0)]), "DIDI");
    }

    #[test]
    fn what_two_lost_blocks_lead_to_goes_with_the_first() {
        let graph = Graph::of_edges(4, &[(0, 2, 0), (1, 2, 0), (2, 3, 0)]);
        assert_eq!(classify(&graph, &[], |_, _| false).owner, [NONE, NONE, 0, 0]);
    }

    #[test]
    fn an_accepted_pointer_makes_reachable_and_what_it_leads_to_too() {
        let graph = Graph::of_edges(3, &[(0, 1, 0), (1, 2, 16)]);
        let only = |block: u32| move |to: u32, _: u64| to == block;
        let class = |accept: &mut dyn FnMut(u32, u64) -> bool| classify(&graph, &[root(0, 8)], accept).class;
        assert_eq!(class(&mut only(0)), [Class::Reachable, Class::Reachable, Class::Possible]);
        assert_eq!(class(&mut |_, _| true), [Class::Reachable; 3]);
        assert_eq!(class(&mut only(2)), [Class::Possible; 3], "its way is no better");
    }

    proptest! {
        #[test]
        fn classes_are_those_of_a_plain_search(
            blocks in 1usize..14,
            edges in proptest::collection::vec((0u32..14, 0u32..14, prop_oneof![3 => Just(0u32), 1 => Just(8)]), 0..30),
            roots in proptest::collection::vec((0u32..14, prop_oneof![2 => Just(0u64), 1 => Just(8)]), 0..3),
        ) {
            let n = blocks as u32;
            let edges: Vec<_> = edges.into_iter().map(|(a, b, i)| (a % n, b % n, i)).collect();
            let roots: Vec<_> = roots.into_iter().map(|(to, into)| root(to % n, into)).collect();
            let got = classify(&Graph::of_edges(blocks, &edges), &roots, |_, _| false);
            let want = model::classes(blocks, &edges, &roots);
            prop_assert_eq!(got.class, want.0);
            prop_assert_eq!(got.owner, want.1);
        }
    }
}
