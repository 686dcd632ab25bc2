//! Stacks put together as trees: from the outermost frame inward, from the site
//! outward, or around one function.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::glob;
use crate::group::{self, By, Item, Metric};
use crate::phase::Phases;
use crate::session::Session;
use crate::sort::{SortKey, SortOrder};
use crate::stack::{Frame, function_name, pseudo};

/// What a tree of calls can be sorted by.
pub const KEYS: &[SortKey] = &[SortKey::Size, SortKey::Blocks, SortKey::Name];

/// Where a tree begins and which way it grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the outermost frame to the site.
    #[default]
    TopDown,
    /// From the site to the outermost frame.
    BottomUp,
    /// From functions that fit the pattern to their callers.
    Callers(String),
    /// From functions that fit the pattern to what they call.
    Callees(String),
}

impl Direction {
    /// The name, as in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Direction::TopDown => "top-down",
            Direction::BottomUp => "bottom-up",
            Direction::Callers(_) => "callers",
            Direction::Callees(_) => "callees",
        }
    }
}

/// How stacks are put together.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Which way.
    pub direction: Direction,
    /// What makes two frames one: the function (also where this names something
    /// else), its line (`Site`), the file, the module, the address (`Stack`).
    /// Thread, entry point, size class and phase are roots of their own.
    pub by: By,
    /// What is counted.
    pub metric: Metric,
    /// Also the frames inside of the site: allocators and standard libraries.
    pub full: bool,
}

/// A frame in its place in the tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// The frame; of several that are one, that of the stack with most, without a
    /// line where they have different ones.
    pub frame: Frame,
    /// What it is called.
    pub label: Arc<str>,
    /// Bytes of all stacks through here.
    pub bytes: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Variance of `bytes`, where they are an estimate from a sample.
    pub variance: u64,
    /// Bytes of the stacks that end here.
    pub own_bytes: u64,
    /// Their blocks.
    pub own_blocks: u64,
    /// Numbers of the children, in order.
    pub children: Vec<usize>,
}

/// A forest of calls.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// All nodes.
    pub nodes: Vec<Node>,
    /// Numbers of the roots, in order.
    pub roots: Vec<usize>,
    /// Bytes of all stacks in it.
    pub bytes: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Variance of `bytes`, where they are an estimate from a sample.
    pub variance: u64,
    /// What is counted.
    pub metric: Metric,
}

impl Tree {
    /// What a node, or everything, weighs in the metric: bytes or a number of blocks.
    pub fn weight(&self, bytes: u64, blocks: u64) -> u64 {
        if self.metric.counts_blocks() { blocks } else { bytes }
    }

    /// Puts stacks together. Children and roots are sorted largest first.
    pub fn build(session: &mut Session, items: impl IntoIterator<Item = Item>, shape: &Shape) -> Tree {
        let phases = Phases::of(session.facts());
        let mut items: Vec<Item> = items.into_iter().map(|item| item.with(shape.metric)).collect();
        items.retain(|item| item.blocks > 0);
        // The heaviest come first: the first frame of a node is that of the most.
        items.sort_by_key(|item| (std::cmp::Reverse((item.bytes, item.blocks)), item.node));
        let mut tree = Tree { metric: shape.metric, ..Tree::default() };
        let mut index: FxHashMap<(usize, Arc<str>), usize> = FxHashMap::default();
        let exact = match &shape.direction {
            Direction::Callers(pattern) | Direction::Callees(pattern) => items.iter().any(|item| {
                let stack = session.stack(item.node);
                stack.frames.iter().any(|frame| fits(pattern, frame, true))
            }),
            Direction::TopDown | Direction::BottomUp => true,
        };
        for item in &items {
            let stack = session.stack(item.node);
            let from = if shape.full { 0 } else { stack.site };
            let Some(mut path) = path(&stack.frames, from, &shape.direction, exact) else { continue };
            let root = (!matches!(shape.by, By::Site | By::Stack | By::Function | By::File | By::Module))
                .then(|| pseudo(&group::label_of(session, item, shape.by, &stack, &phases)));
            if let Some(root) = &root {
                path.insert(0, root);
            }
            tree.bytes = tree.bytes.saturating_add(item.bytes);
            tree.blocks += item.blocks;
            tree.variance = tree.variance.saturating_add(item.variance);
            tree.add(&mut index, item, &path, shape.by);
        }
        tree.sort(&[], false);
        tree
    }

    fn add(&mut self, index: &mut FxHashMap<(usize, Arc<str>), usize>, item: &Item, path: &[&Frame], by: By) {
        let mut parent = usize::MAX;
        for (at, frame) in path.iter().enumerate() {
            let (key, label) = identity(frame, by);
            let next = self.nodes.len();
            let number = *index.entry((parent, key)).or_insert(next);
            if number == next {
                self.nodes.push(Node {
                    frame: (*frame).clone(),
                    label,
                    bytes: 0,
                    blocks: 0,
                    variance: 0,
                    own_bytes: 0,
                    own_blocks: 0,
                    children: Vec::new(),
                });
                match self.nodes.get_mut(parent) {
                    Some(parent) => parent.children.push(number),
                    None => self.roots.push(number),
                }
            }
            if let Some(node) = self.nodes.get_mut(number) {
                node.bytes = node.bytes.saturating_add(item.bytes);
                node.blocks += item.blocks;
                node.variance = node.variance.saturating_add(item.variance);
                if node.frame.line != frame.line {
                    node.frame.line = None;
                }
                if at + 1 == path.len() {
                    node.own_bytes = node.own_bytes.saturating_add(item.bytes);
                    node.own_blocks += item.blocks;
                }
            }
            parent = number;
        }
    }

    /// Sorts children and roots by several keys, the first the strongest; equal
    /// ones largest first, then by name.
    pub fn sort(&mut self, keys: &[SortOrder], reverse: bool) {
        let mut lists = vec![std::mem::take(&mut self.roots)];
        lists.extend(self.nodes.iter_mut().map(|node| std::mem::take(&mut node.children)));
        for list in &mut lists {
            list.sort_by(|&a, &b| {
                let (a, b) = (&self.nodes[a], &self.nodes[b]);
                let mut order = std::cmp::Ordering::Equal;
                for sort in keys {
                    order = order.then_with(|| {
                        sort.direct(match sort.key {
                            SortKey::Blocks => a.blocks.cmp(&b.blocks),
                            SortKey::Name => a.label.cmp(&b.label),
                            _ => a.bytes.cmp(&b.bytes),
                        })
                    });
                }
                let weight = |node: &Node| self.weight(node.bytes, node.blocks);
                let order = order.then_with(|| weight(b).cmp(&weight(a))).then_with(|| a.label.cmp(&b.label));
                if reverse { order.reverse() } else { order }
            });
        }
        let mut lists = lists.into_iter();
        self.roots = lists.next().unwrap_or_default();
        for (node, children) in self.nodes.iter_mut().zip(lists) {
            node.children = children;
        }
    }
}

/// Is this the function that is asked for? `exact`: a pattern without a star is
/// the function's whole name, its parameters and scopes apart; else a part of it.
fn fits(pattern: &str, frame: &Frame, exact: bool) -> bool {
    let name = function_name(frame);
    if !exact || pattern.contains(['*', '?']) {
        return glob::matches(pattern, &name);
    }
    let bare = name.split(['(', '[']).next().unwrap_or(&name);
    name == pattern
        || bare.strip_suffix(pattern).is_some_and(|scope| scope.is_empty() || scope.ends_with("::"))
}

/// The frames of a stack (innermost first) from the root of the tree on; those
/// before `from` are left out. `None`: the stack has no part in the tree.
fn path<'f>(
    frames: &'f [Arc<Frame>],
    from: usize,
    direction: &Direction,
    exact: bool,
) -> Option<Vec<&'f Frame>> {
    let shown = |frames: &'f [Arc<Frame>]| frames.iter().map(Arc::as_ref);
    let outer = shown(frames.get(from..).unwrap_or_default());
    match direction {
        Direction::TopDown => Some(outer.rev().collect()),
        Direction::BottomUp => Some(outer.collect()),
        // A function that calls itself is there once: with all that calls it, and
        // with all that it calls.
        Direction::Callers(pattern) => {
            let at = frames.iter().position(|frame| fits(pattern, frame, exact))?;
            Some(shown(frames.get(at..)?).collect())
        }
        Direction::Callees(pattern) => {
            let at = frames.iter().rposition(|frame| fits(pattern, frame, exact))?;
            // The function itself may be one that else is left out.
            Some(shown(frames.get(from.min(at)..=at)?).rev().collect())
        }
    }
}

/// What makes a frame the same as another, and what both are called.
fn identity(frame: &Frame, by: By) -> (Arc<str>, Arc<str>) {
    let name: Arc<str> = Arc::from(function_name(frame));
    let file = || frame.file.clone().unwrap_or_else(|| Arc::clone(&frame.module));
    let key: String = match by {
        By::Site => format!("{name}\0{}\0{}", file(), frame.line.unwrap_or(0)),
        By::Stack => format!("{name}\0{:x}", frame.address),
        By::File if !file().is_empty() => return (file(), file()),
        By::Module if !frame.module.is_empty() => {
            return (Arc::clone(&frame.module), Arc::clone(&frame.module));
        }
        _ => format!("{name}\0{}", frame.module),
    };
    (Arc::from(key), name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    fn session() -> Session {
        Made::default()
            .thread(0, 9, "main")
            .thread(1, 8, "worker")
            .node(1, 0, "main", "main.c", 3)
            .node(2, 1, "load", "load.c", 7)
            .node(3, 2, "parse", "parse.c", 1)
            .node(4, 3, "parse", "parse.c", 2)
            .node(5, 1, "parse", "parse.c", 2)
            .node(6, 5, "malloc", "malloc.c", 5)
            .node(7, 0, "ns::reload(int)[abi:x]", "load.c", 70)
            .alloc(0, 0x4000, 1, 7)
            .free(0, 0x4000)
            .alloc(0, 0x1000, 100, 3)
            .alloc(0, 0x2000, 30, 4)
            .alloc(1, 0x3000, 7, 6)
            .session()
    }

    /// `depth name bytes own` of each node, in order.
    fn shown(shape: &Shape) -> Vec<(usize, String, u64, u64)> {
        let mut session = session();
        let replay = session.replay().unwrap();
        let items: Vec<Item> = replay.live().map(|block| Item::from(&block)).collect();
        let tree = Tree::build(&mut session, items, shape);
        let mut out = Vec::new();
        let mut open: Vec<(usize, usize)> = tree.roots.iter().rev().map(|&root| (0, root)).collect();
        while let Some((depth, at)) = open.pop() {
            let node = &tree.nodes[at];
            out.push((depth, node.label.to_string(), node.bytes, node.own_bytes));
            open.extend(node.children.iter().rev().map(|&child| (depth + 1, child)));
        }
        assert_eq!(tree.roots.iter().map(|&root| tree.nodes[root].bytes).sum::<u64>(), tree.bytes);
        out
    }

    fn of(direction: Direction) -> Shape {
        Shape { direction, by: By::Function, metric: Metric::Live, full: false }
    }

    fn expect(shape: &Shape, nodes: &[(usize, &str, u64, u64)]) {
        let nodes: Vec<_> =
            nodes.iter().map(|(d, name, b, own)| (*d, (*name).to_string(), *b, *own)).collect();
        assert_eq!(shown(shape), nodes);
    }

    #[test]
    fn two_lines_of_a_function_stood_there_under_the_first() {
        let mut session = session();
        let replay = session.replay().unwrap();
        let items: Vec<Item> = replay.live().map(|block| Item::from(&block)).collect();
        let lines = |session: &mut Session, by: By| -> Vec<(String, Option<u32>)> {
            let tree = Tree::build(session, items.clone(), &Shape { by, ..of(Direction::BottomUp) });
            tree.roots
                .iter()
                .map(|&root| (tree.nodes[root].label.to_string(), tree.nodes[root].frame.line))
                .collect()
        };
        assert_eq!(lines(&mut session, By::Function), [("parse".to_string(), None)]);
        let by_line = lines(&mut session, By::Site);
        assert_eq!(by_line, [("parse".to_string(), Some(1)), ("parse".to_string(), Some(2))]);
    }

    #[test]
    fn trees_grow_both_ways() {
        expect(
            &of(Direction::TopDown),
            &[
                (0, "main", 137, 0),
                (1, "load", 130, 0),
                (2, "parse", 130, 100),
                (3, "parse", 30, 30),
                (1, "parse", 7, 7),
            ],
        );
        expect(
            &of(Direction::BottomUp),
            &[
                (0, "parse", 137, 0),
                (1, "load", 100, 0),
                (2, "main", 100, 100),
                (1, "parse", 30, 0),
                (2, "load", 30, 0),
                (3, "main", 30, 30),
                (1, "main", 7, 7),
            ],
        );
        let full = Shape { full: true, ..of(Direction::TopDown) };
        assert_eq!(shown(&full).last(), Some(&(2, "malloc".to_string(), 7, 7)));
    }

    #[test]
    fn a_function_that_calls_itself_counts_once() {
        expect(&of(Direction::Callees("parse".into())), &[(0, "parse", 137, 107), (1, "parse", 30, 30)]);
        let callers = shown(&of(Direction::Callers("parse".into())));
        assert_eq!(callers[0], (0, "parse".to_string(), 137, 0));
        expect(&of(Direction::Callers("load".into())), &[(0, "load", 130, 0), (1, "main", 130, 130)]);
        // A part of a name, where no function has it whole.
        assert_eq!(shown(&of(Direction::Callers("loa".into())))[0].1, "load");
        // Also one that is left out of other trees.
        assert_eq!(shown(&of(Direction::Callers("malloc".into())))[0].2, 7);
        assert_eq!(shown(&of(Direction::Callees("malloc".into()))), [(0, "malloc".to_string(), 7, 7)]);
        assert!(shown(&of(Direction::Callers("none".into()))).is_empty());
    }

    #[test]
    fn frames_are_one_by_what_is_asked_for() {
        let by = |by| shown(&Shape { by, ..of(Direction::TopDown) });
        assert_eq!(by(By::Site).len(), 5);
        assert_eq!(by(By::Module)[0], (0, "/usr/bin/app".to_string(), 137, 0));
        assert_eq!(by(By::File)[1], (1, "load.c".to_string(), 130, 0));
        let threads = by(By::Thread);
        assert_eq!((&threads[0].1[..], threads[0].2), ("[0 main]", 130));
        let counted = Shape { metric: Metric::Allocations, ..of(Direction::TopDown) };
        assert_eq!(shown(&counted).len(), 5);
    }

    #[test]
    fn children_are_sorted_as_asked() {
        let mut session = session();
        let replay = session.replay().unwrap();
        let items: Vec<Item> = replay.live().map(|block| Item::from(&block)).collect();
        let mut tree = Tree::build(&mut session, items, &of(Direction::TopDown));
        let mut names = |keys: &str, reverse| -> Vec<String> {
            tree.sort(&SortOrder::list_of(keys, KEYS).unwrap(), reverse);
            let root = &tree.nodes[tree.roots[0]];
            root.children.iter().map(|&child| tree.nodes[child].label.to_string()).collect()
        };
        assert_eq!(names("-size", false), ["parse", "load"]);
        assert_eq!(names("name", false), ["load", "parse"]);
        assert_eq!(names("name", true), ["parse", "load"]);
    }

    #[test]
    fn a_function_is_asked_for_by_its_name() {
        let frame = |name: &str| Frame { function: Some(name.into()), ..pseudo("x") };
        for name in ["main", "ns::main", "ns::main(int)", "main[abi:cxx11](int)"] {
            assert!(fits("main", &frame(name), true), "{name}");
        }
        assert!(!fits("main", &frame("__libc_start_main_impl"), true));
        assert!(fits("main", &frame("__libc_start_main_impl"), false));
        assert!(fits("*main*", &frame("__libc_start_main_impl"), true));
    }
}
