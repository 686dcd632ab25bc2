//! The same by brute force, to compare with, and memory made of values.

use std::collections::{BTreeMap, BTreeSet};

use highwater_trace::reach::Class;

use super::Memory;
use super::classify::NONE;
use super::graph::RootPointer;

/// Memory of which some words are not zero. What lies at 16 MiB and above, up
/// to 32 MiB, is a loaded object.
#[derive(Default)]
pub struct Words(BTreeMap<u64, u64>);

impl Words {
    pub fn set(&mut self, addr: u64, word: u64) {
        self.0.insert(addr, word);
    }
}

impl Memory for Words {
    fn read(&self, addr: u64, words: &mut [u64]) {
        assert_eq!(addr % 8, 0);
        words.fill(0);
        for (&at, &word) in self.0.range(addr..addr + words.len() as u64 * 8) {
            words[((at - addr) / 8) as usize] = word;
        }
    }

    fn in_object(&self, addr: u64) -> bool {
        addr >> 24 == 1
    }
}

/// Everything that `from` leads to, itself included.
fn closure(from: impl IntoIterator<Item = u32>, edges: &[(u32, u32)]) -> BTreeSet<u32> {
    let mut all: BTreeSet<u32> = from.into_iter().collect();
    loop {
        let more: Vec<u32> =
            edges.iter().filter(|(a, b)| all.contains(a) && !all.contains(b)).map(|edge| edge.1).collect();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

pub fn classes(blocks: usize, edges: &[(u32, u32, u32)], roots: &[RootPointer]) -> (Vec<Class>, Vec<u32>) {
    let any: Vec<(u32, u32)> = edges.iter().map(|edge| (edge.0, edge.1)).collect();
    let starts: Vec<(u32, u32)> = edges.iter().filter(|e| e.2 == 0).map(|e| (e.0, e.1)).collect();
    let reachable = closure(roots.iter().filter(|root| root.into == 0).map(|root| root.to), &starts);
    let possible = closure(roots.iter().map(|root| root.to).chain(reachable.iter().copied()), &any);
    let lost: Vec<u32> = (0..blocks as u32).filter(|b| !possible.contains(b)).collect();
    let inner: Vec<(u32, u32)> =
        any.iter().copied().filter(|(a, b)| lost.contains(a) && lost.contains(b)).collect();
    let leads = |a: u32, b: u32| closure([a], &inner).contains(&b);
    // A head: all that lead to it are led to by it, and come later.
    let heads: Vec<u32> = lost
        .iter()
        .copied()
        .filter(|&b| lost.iter().all(|&a| a == b || !leads(a, b) || (leads(b, a) && b < a)))
        .collect();
    let class = |b: u32| {
        if reachable.contains(&b) {
            Class::Reachable
        } else if possible.contains(&b) {
            Class::Possible
        } else if heads.contains(&b) {
            Class::Definite
        } else {
            Class::Indirect
        }
    };
    let owner = |b: u32| match class(b) {
        Class::Indirect => heads.iter().copied().find(|&head| leads(head, b)).unwrap_or(NONE),
        _ => NONE,
    };
    ((0..blocks as u32).map(class).collect(), (0..blocks as u32).map(owner).collect())
}

/// Own size, and the sizes of what no root leads to any more without the block.
pub fn retained(sizes: &[u64], edges: &[(u32, u32, u32)], roots: &[u32]) -> Vec<u64> {
    let edges: Vec<(u32, u32)> = edges.iter().map(|edge| (edge.0, edge.1)).collect();
    let from = |without: u32, starts: &[u32]| {
        let left: Vec<(u32, u32)> =
            edges.iter().copied().filter(|(a, b)| *a != without && *b != without).collect();
        closure(starts.iter().copied().filter(|&b| b != without), &left)
    };
    let n = sizes.len() as u32;
    let root_pointers: Vec<RootPointer> = roots
        .iter()
        .map(|&to| RootPointer { place: highwater_trace::reach::Place::Data { addr: 0 }, to, into: 0 })
        .collect();
    let with_places: Vec<(u32, u32, u32)> = edges.iter().map(|&(a, b)| (a, b, 0)).collect();
    let (class, _) = classes(sizes.len(), &with_places, &root_pointers);
    let mut starts = roots.to_vec();
    starts.extend((0..n).filter(|&b| class[b as usize] == Class::Definite));
    let all = from(n, &starts);
    (0..n)
        .map(|b| {
            let left = from(b, &starts);
            all.iter().filter(|other| !left.contains(other)).map(|&other| sizes[other as usize]).sum()
        })
        .collect()
}
