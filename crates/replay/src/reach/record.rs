//! The result as the trace keeps it.

use highwater_trace::reach::{Class, Place, Pointer, Reach, ReachBlock, ReachSite};
use rustc_hash::FxHashMap;

use super::blocks::Blocks;
use super::classify::Classes;
use super::graph::{Graph, RootPointer};

/// Single blocks that are kept.
const MOST_BLOCKS: usize = 1 << 20;
/// Pointers to one block that are kept.
const MOST_POINTERS: u32 = 32;
const NONE: u32 = u32::MAX;

/// Puts together what the analysis found. `retained` may be empty: then blocks
/// retain their own size. The caller fills in when and how the scan was made.
pub fn record(
    blocks: &Blocks,
    graph: &Graph,
    roots: &[RootPointer],
    classes: &Classes,
    retained: &[u64],
) -> Reach {
    record_most(blocks, graph, roots, classes, retained, MOST_BLOCKS)
}

fn record_most(
    blocks: &Blocks,
    graph: &Graph,
    roots: &[RootPointer],
    classes: &Classes,
    retained: &[u64],
    most: usize,
) -> Reach {
    let mut reach = Reach { heap_bytes: graph.bytes, ..Reach::default() };
    sums(blocks, classes, &mut reach);
    let retained = |block: usize| {
        retained.get(block).copied().or_else(|| blocks.all().get(block).map(|b| b.size)).unwrap_or(0)
    };
    let kept = keep(blocks.len(), classes, &retained, most);
    reach.left_out = (blocks.len() - kept.len()) as u64;
    // Number of a block in the record.
    let mut number = vec![NONE; blocks.len()];
    for (at, &block) in kept.iter().enumerate() {
        if let Some(number) = number.get_mut(block as usize) {
            *number = at as u32;
        }
    }
    let counts = counts(graph, roots);
    reach.blocks = kept
        .iter()
        .filter_map(|&at| {
            let block = blocks.all().get(at as usize)?;
            let owner = classes.owner.get(at as usize).and_then(|&owner| blocks.all().get(owner as usize));
            Some(ReachBlock {
                addr: block.addr,
                size: block.size,
                seqno: block.seqno,
                node: block.node,
                class: *classes.class.get(at as usize)?,
                owner: owner.map(|owner| owner.addr),
                retained: retained(at as usize),
                pointers: u64::from(counts.get(at as usize).copied().unwrap_or(0)),
            })
        })
        .collect();
    reach.pointers = pointers(graph, roots, &number, kept.len());
    if !graph.has_places() {
        reach.notes.push("there are too many pointers between blocks to keep them".to_string());
    }
    reach
}

/// The sums by class and by stack.
fn sums(blocks: &Blocks, classes: &Classes, reach: &mut Reach) {
    let mut sites: FxHashMap<u32, ReachSite> = FxHashMap::default();
    for (at, block) in blocks.all().iter().enumerate() {
        let class = classes.class.get(at).copied().unwrap_or(Class::Reachable);
        reach.classes[class as usize & 3].add(block.size);
        let site = sites.entry(block.node).or_default();
        site.classes[class as usize & 3].add(block.size);
        let owner = classes.owner.get(at).and_then(|&owner| blocks.all().get(owner as usize));
        if let Some(owner) = owner {
            sites.entry(owner.node).or_default().owned.add(block.size);
        }
    }
    reach.sites = sites.into_iter().map(|(node, site)| ReachSite { node, ..site }).collect();
    reach.sites.sort_unstable_by_key(|site| site.node);
}

/// The blocks to keep, in order: the lost ones, then those that retain most.
fn keep(blocks: usize, classes: &Classes, retained: &dyn Fn(usize) -> u64, most: usize) -> Vec<u32> {
    let mut all: Vec<u32> = (0..blocks as u32).collect();
    if blocks > most {
        let key = |&block: &u32| {
            let class = classes.class.get(block as usize).copied().unwrap_or(Class::Reachable);
            (class == Class::Reachable, std::cmp::Reverse(retained(block as usize)), block)
        };
        all.select_nth_unstable_by_key(most, key);
        all.truncate(most);
        all.sort_unstable();
    }
    all
}

/// How many pointers lead to each block.
fn counts(graph: &Graph, roots: &[RootPointer]) -> Vec<u32> {
    let mut counts = vec![0u32; graph.blocks()];
    let mut add = |to: u32| {
        if let Some(count) = counts.get_mut(to as usize) {
            *count = count.saturating_add(1);
        }
    };
    roots.iter().for_each(|root| add(root.to));
    for block in 0..graph.blocks() as u32 {
        graph.targets(block).iter().for_each(|&to| add(to));
    }
    counts
}

/// The pointers between the blocks that are kept, some of each block's.
fn pointers(graph: &Graph, roots: &[RootPointer], number: &[u32], kept: usize) -> Vec<Pointer> {
    let of = |block: u32| number.get(block as usize).copied().filter(|&number| number != NONE);
    let nearest = nearest(graph, roots);
    let mut counts = vec![0u32; kept];
    let mut list = Vec::new();
    let mut push = |to: u32, into: u64, from: Place, must: bool| {
        if let Some(count) = counts.get_mut(to as usize)
            && (must || *count < MOST_POINTERS - 1)
        {
            *count += 1;
            list.push(Pointer { to, into, from });
        }
    };
    for root in roots {
        if let Some(to) = of(root.to) {
            push(to, root.into, root.place, false);
        }
    }
    if graph.has_places() {
        for block in 0..graph.blocks() as u32 {
            let Some(index) = of(block) else { continue };
            // One pointer of the nearest block must stay, whatever came before.
            let mut last = NONE;
            for (to, into, offset) in graph.placed(block) {
                let must = nearest.get(to as usize) == Some(&block) && to != last;
                last = if must { to } else { last };
                if let Some(to) = of(to) {
                    push(to, u64::from(into), Place::Block { index, offset }, must);
                }
            }
        }
    }
    list.sort_by_key(|pointer| pointer.to);
    list
}

/// The block through which the shortest way from a root leads to each block;
/// [`NONE`] where a root points to it.
fn nearest(graph: &Graph, roots: &[RootPointer]) -> Vec<u32> {
    const UNSEEN: u32 = u32::MAX - 1;
    let mut nearest = vec![UNSEEN; graph.blocks()];
    let mut queue = Vec::new();
    for root in roots {
        if let Some(place) = nearest.get_mut(root.to as usize)
            && *place == UNSEEN
        {
            *place = NONE;
            queue.push(root.to);
        }
    }
    let mut at = 0;
    while let Some(&block) = queue.get(at) {
        at += 1;
        for &to in graph.targets(block) {
            if let Some(place) = nearest.get_mut(to as usize)
                && *place == UNSEEN
            {
                *place = block;
                queue.push(to);
            }
        }
    }
    nearest
}

#[cfg(test)]
mod tests {
    use super::super::blocks::Block;
    use super::super::classify::classify;
    use super::super::retained::retained;
    use super::*;
    use highwater_trace::reach::Amount;

    fn blocks(nodes: &[u32]) -> Blocks {
        Blocks::new(
            nodes
                .iter()
                .enumerate()
                .map(|(i, &node)| Block {
                    addr: 0x1000 + 0x100 * i as u64,
                    size: 10 * (i as u64 + 1),
                    seqno: i as u64,
                    node,
                    array: false,
                })
                .collect(),
        )
    }

    fn root(to: u32) -> RootPointer {
        RootPointer { place: Place::Data { addr: 0x77 }, to, into: 0 }
    }

    #[test]
    fn lost_blocks_are_summed_with_the_stack_that_lost_them() {
        // 0 -> 1, both lost; 2 reachable; 3 -> 1 lost too.
        let blocks = blocks(&[5, 6, 5, 7]);
        let graph = Graph::of_edges(4, &[(0, 1, 0), (3, 1, 0)]);
        let roots = [root(2)];
        let classes = classify(&graph, &roots, |_, _| false);
        let reach = record(&blocks, &graph, &roots, &classes, &retained(&blocks, &graph, &roots, &classes));
        assert_eq!(reach.class(Class::Definite), Amount { blocks: 2, bytes: 50 });
        assert_eq!(reach.class(Class::Indirect), Amount { blocks: 1, bytes: 20 });
        let site = &reach.sites[0];
        assert_eq!((site.node, site.owned), (5, Amount { blocks: 1, bytes: 20 }));
        assert_eq!(site.classes[Class::Reachable as usize], Amount { blocks: 1, bytes: 30 });
        assert_eq!(reach.blocks[1].owner, Some(0x1000));
        assert_eq!(reach.blocks[1].pointers, 2);
        let from: Vec<Place> = reach.pointers_to(1).iter().map(|pointer| pointer.from).collect();
        assert_eq!(from, [Place::Block { index: 0, offset: 0 }, Place::Block { index: 3, offset: 0 }]);
        assert_eq!(reach.pointers_to(2).len(), 1);
    }

    #[test]
    fn the_lost_and_the_largest_are_kept() {
        let blocks = blocks(&[1, 1, 1, 1, 1]);
        let graph = Graph::of_edges(5, &[(1, 2, 0), (2, 3, 0)]);
        let roots = [root(1), root(4)];
        let classes = classify(&graph, &roots, |_, _| false);
        let sizes = retained(&blocks, &graph, &roots, &classes);
        let reach = record_most(&blocks, &graph, &roots, &classes, &sizes, 3);
        // Block 0 is lost; 1 retains 90, 2 retains 70, 3 and 4 less.
        assert_eq!(reach.blocks.iter().map(|b| b.seqno).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(reach.left_out, 2);
        assert_eq!(reach.class(Class::Reachable).blocks, 4, "sums are whole");
        assert_eq!(reach.path_to(2).len(), 2);
    }

    #[test]
    fn of_very_many_pointers_the_one_from_the_root_stays() {
        // A hundred lost blocks point to the last but one, which is reachable through the last.
        let n = 102;
        let blocks = blocks(&vec![1; n]);
        let mut edges: Vec<(u32, u32, u32)> = (0..100).map(|from| (from, 100, 0)).collect();
        edges.push((101, 100, 0));
        let graph = Graph::of_edges(n, &edges);
        let roots = [root(101)];
        let classes = classify(&graph, &roots, |_, _| false);
        let reach = record(&blocks, &graph, &roots, &classes, &[]);
        assert_eq!(reach.blocks[100].pointers, 101);
        assert_eq!(reach.pointers_to(100).len(), MOST_POINTERS as usize);
        assert_eq!(reach.path_to(100).len(), 2);
    }
}
