//! What would go with a block: retained sizes by the dominator tree.
//!
//! A block *dominates* another if every way from a root to the other passes
//! through it. What a block retains is its own size and those of all blocks
//! that it dominates. Dominators are found by the Semi-NCA algorithm (L.
//! Georgiadis, "Linear-Time Algorithms for Dominators and Related Problems",
//! 2005), without recursion. Lost structures count from their heads.

use highwater_trace::reach::Class;

use super::blocks::Blocks;
use super::classify::Classes;
use super::graph::{Graph, RootPointer};

const NONE: u32 = u32::MAX;

/// The retained bytes of each block.
pub fn retained(blocks: &Blocks, graph: &Graph, roots: &[RootPointer], classes: &Classes) -> Vec<u64> {
    let mut starts: Vec<u32> = roots.iter().map(|root| root.to).collect();
    let heads = classes.class.iter().enumerate().filter(|(_, class)| **class == Class::Definite);
    starts.extend(heads.map(|(block, _)| block as u32));
    starts.sort_unstable();
    starts.dedup();
    let tree = Search::run(graph, &starts);
    let dominator = tree.dominators(graph, &starts);
    let mut sum: Vec<u64> = vec![0; tree.vertex.len()];
    for number in (1..tree.vertex.len()).rev() {
        let own = blocks.all().get(tree.vertex[number] as usize).map_or(0, |block| block.size);
        sum[number] = sum[number].saturating_add(own);
        let above = dominator[number] as usize;
        sum[above] = sum[above].saturating_add(sum[number]);
    }
    let number_of = |block: usize| tree.number.get(block).copied().filter(|&number| number != NONE);
    (0..graph.blocks())
        .map(|block| match number_of(block) {
            Some(number) => sum[number as usize],
            // Nothing leads to it: it cannot be, but its own size is never wrong.
            None => blocks.all().get(block).map_or(0, |block| block.size),
        })
        .collect()
}

/// A depth-first search from all roots; number 0 stands before them all.
struct Search {
    /// Block of each number; that of 0 is [`NONE`].
    vertex: Vec<u32>,
    /// Number of each block.
    number: Vec<u32>,
    /// Number of each number's parent.
    parent: Vec<u32>,
}

impl Search {
    fn run(graph: &Graph, starts: &[u32]) -> Search {
        let mut search = Search { vertex: vec![NONE], number: vec![NONE; graph.blocks()], parent: vec![0] };
        // Blocks that are open, with how many of their pointers were followed.
        let mut open: Vec<(u32, u32, usize)> = Vec::new();
        for &start in starts {
            search.enter(start, 0, &mut open);
            while let Some((block, number, done)) = open.last_mut() {
                let Some(&to) = graph.targets(*block).get(*done) else {
                    open.pop();
                    continue;
                };
                *done += 1;
                let number = *number;
                search.enter(to, number, &mut open);
            }
        }
        search
    }

    #[inline]
    fn enter(&mut self, block: u32, parent: u32, open: &mut Vec<(u32, u32, usize)>) {
        if let Some(number) = self.number.get_mut(block as usize)
            && *number == NONE
        {
            *number = self.vertex.len() as u32;
            open.push((block, *number, 0));
            self.vertex.push(block);
            self.parent.push(parent);
        }
    }

    /// The immediate dominator of each number, as a number.
    fn dominators(&self, graph: &Graph, starts: &[u32]) -> Vec<u32> {
        let count = self.vertex.len();
        let before = Before::new(self, graph, starts);
        let mut semi: Vec<u32> = (0..count as u32).collect();
        let mut label = semi.clone();
        let mut ancestor = self.parent.clone();
        let mut path = Vec::new();
        for number in (1..count).rev() {
            let mut least = self.parent[number];
            for &from in before.of(number) {
                let best = eval(from, number as u32 + 1, &mut ancestor, &mut label, &semi, &mut path);
                least = least.min(semi[best as usize]);
            }
            semi[number] = least;
        }
        let mut dominator = self.parent.clone();
        for number in 1..count {
            let mut above = dominator[number];
            while above > semi[number] {
                above = dominator[above as usize];
            }
            dominator[number] = above;
        }
        dominator
    }
}

/// The number with the least semidominator on the way up from `from` through
/// numbers that are linked already (`linked` and greater), compressing the way.
fn eval(
    from: u32,
    linked: u32,
    ancestor: &mut [u32],
    label: &mut [u32],
    semi: &[u32],
    path: &mut Vec<u32>,
) -> u32 {
    let mut at = from;
    while ancestor[at as usize] >= linked {
        path.push(at);
        at = ancestor[at as usize];
    }
    let mut above = at;
    let mut best = label[at as usize];
    while let Some(at) = path.pop() {
        ancestor[at as usize] = ancestor[above as usize];
        if semi[best as usize] < semi[label[at as usize] as usize] {
            label[at as usize] = best;
        } else {
            best = label[at as usize];
        }
        above = at;
    }
    label[from as usize]
}

/// Who points to each number, as numbers.
struct Before {
    firsts: Vec<u64>,
    from: Vec<u32>,
}

impl Before {
    fn new(search: &Search, graph: &Graph, starts: &[u32]) -> Before {
        let mut firsts = vec![0u64; search.vertex.len() + 1];
        let each = |f: &mut dyn FnMut(usize, u32)| {
            for &start in starts {
                if let Some(&number) = search.number.get(start as usize) {
                    f(number as usize, 0);
                }
            }
            for (number, &block) in search.vertex.iter().enumerate().skip(1) {
                for &to in graph.targets(block) {
                    // Everything that is pointed to from here has been entered.
                    f(search.number[to as usize] as usize, number as u32);
                }
            }
        };
        each(&mut |to, _| firsts[to + 1] += 1);
        for i in 1..firsts.len() {
            firsts[i] += firsts[i - 1];
        }
        let mut next = firsts.clone();
        let mut from = vec![0; *firsts.last().unwrap_or(&0) as usize];
        each(&mut |to, number| {
            from[next[to] as usize] = number;
            next[to] += 1;
        });
        Before { firsts, from }
    }

    fn of(&self, number: usize) -> &[u32] {
        &self.from[self.firsts[number] as usize..self.firsts[number + 1] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::Block;
    use super::super::{classify, model};
    use super::*;
    use highwater_trace::reach::Place;
    use proptest::prelude::*;

    fn run(sizes: &[u64], roots: &[u32], edges: &[(u32, u32, u32)]) -> Vec<u64> {
        let blocks = Blocks::new(
            sizes
                .iter()
                .enumerate()
                .map(|(i, &size)| Block { addr: (i as u64 + 1) << 20, size, seqno: 0, node: 0, array: false })
                .collect(),
        );
        let graph = Graph::of_edges(sizes.len(), edges);
        let roots: Vec<RootPointer> =
            roots.iter().map(|&to| RootPointer { place: Place::Data { addr: 0 }, to, into: 0 }).collect();
        let classes = classify::classify(&graph, &roots, |_, _| false);
        retained(&blocks, &graph, &roots, &classes)
    }

    #[test]
    fn what_two_ways_lead_to_is_retained_by_neither() {
        assert_eq!(run(&[1, 2, 4, 8], &[0], &[(0, 1, 0), (0, 2, 0), (1, 3, 0), (2, 3, 0)]), [15, 2, 4, 8]);
        assert_eq!(run(&[1, 2, 4], &[0, 2], &[(0, 1, 0), (1, 2, 0)]), [3, 2, 4], "a second root");
        assert_eq!(run(&[1, 2, 4], &[], &[(0, 1, 0), (1, 2, 0), (2, 0, 0)]), [7, 6, 4], "a lost ring");
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let n = 200_000u32;
        let edges: Vec<_> = (1..n).map(|i| (i - 1, i, 0)).chain((2..n).map(|i| (i, i - 2, 0))).collect();
        let got = run(&vec![1; n as usize], &[0], &edges);
        assert!((0..n).all(|i| got[i as usize] == u64::from(n - i)));
    }

    proptest! {
        #[test]
        fn it_is_what_becomes_unreachable_without_the_block(
            blocks in 1usize..14,
            edges in proptest::collection::vec((0u32..14, 0u32..14), 0..34),
            roots in proptest::collection::vec(0u32..14, 0..4),
        ) {
            let n = blocks as u32;
            let sizes: Vec<u64> = (0..blocks).map(|i| 1 << i).collect();
            let edges: Vec<_> = edges.into_iter().map(|(a, b)| (a % n, b % n, 0)).collect();
            let roots: Vec<u32> = roots.into_iter().map(|to| to % n).collect();
            prop_assert_eq!(run(&sizes, &roots, &edges), model::retained(&sizes, &edges, &roots));
        }
    }
}
