//! Who still points to what is not lost: for each site the roots that lead to its
//! blocks, with names, and the blocks of others on the way.
//!
//! A block counts for the root that is the fewest pointers away. Roots that outlive
//! every call are asked first: what a global leads to is held by it, also where a
//! thread's stack or a register happens to point there too.

use std::collections::VecDeque;

use highwater_event::node::NodeId;
use highwater_trace::reach::{Amount, Class, Place, Reach};
use rustc_hash::FxHashMap;

use super::reach;
use crate::session::Session;
use crate::stack::{Frame, function_name};

/// Places that are named for a site; what the others lead to is not counted.
const MOST_PLACES: usize = 4096;
/// Roots that are told of a site.
const MOST_ROOTS: usize = 5;
/// Sites on the way that a sentence names.
const MOST_STEPS: usize = 3;

/// A root, and what it leads to of a site.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// Where the root is; of several (the fields of a table) the one that leads to most.
    pub place: Place,
    /// The same in words: `` `cache` in app ``, `the stack of thread 7`, …
    pub name: String,
    /// The variable's name, where it has one.
    pub symbol: Option<String>,
    /// Blocks of the site that it leads to.
    pub amount: Amount,
    /// Who made the other blocks on the way to the nearest of them, the root's first.
    pub through: Vec<Frame>,
}

/// The ways from roots to all blocks of a scan.
pub struct Ways<'a> {
    reach: &'a Reach,
    /// By number of the block.
    steps: Vec<Option<Step>>,
}

#[derive(Clone, Copy)]
struct Step {
    root: Place,
    /// The block before it on the way.
    from: Option<u32>,
    depth: u32,
}

impl<'a> Ways<'a> {
    /// Finds the shortest way to each block: breadth first, in time and memory that
    /// grow with the number of blocks and pointers.
    pub fn new(reach: &'a Reach) -> Ways<'a> {
        let blocks = reach.blocks.len();
        // Pointers by the block that they stand in.
        let from = |place: Place| match place {
            Place::Block { index, .. } if (index as usize) < blocks => Some(index as usize),
            _ => None,
        };
        let mut first = vec![0u32; blocks + 1];
        for index in reach.pointers.iter().filter_map(|pointer| from(pointer.from)) {
            first[index + 1] += 1;
        }
        for at in 0..blocks {
            first[at + 1] += first[at];
        }
        let mut next = first.clone();
        let mut to = vec![0u32; first[blocks] as usize];
        for pointer in &reach.pointers {
            if let Some(index) = from(pointer.from) {
                to[next[index] as usize] = pointer.to;
                next[index] += 1;
            }
        }
        let mut ways = Ways { reach, steps: vec![None; blocks] };
        let mut queue = VecDeque::new();
        for rank in 0..4 {
            for pointer in reach.pointers.iter().filter(|pointer| self::rank(pointer.from) == Some(rank)) {
                ways.enter(pointer.to, Step { root: pointer.from, from: None, depth: 1 }, &mut queue);
            }
            while let Some(at) = queue.pop_front() {
                let Some(step) = ways.step(at) else { continue };
                let onward = Step { from: Some(at), depth: step.depth + 1, ..step };
                let (from, until) = (first[at as usize] as usize, first[at as usize + 1] as usize);
                for &block in to.get(from..until).unwrap_or_default() {
                    ways.enter(block, onward, &mut queue);
                }
            }
        }
        ways
    }

    fn enter(&mut self, block: u32, step: Step, queue: &mut VecDeque<u32>) {
        if let Some(place @ None) = self.steps.get_mut(block as usize) {
            *place = Some(step);
            queue.push_back(block);
        }
    }

    fn step(&self, block: u32) -> Option<Step> {
        self.steps.get(block as usize).copied().flatten()
    }

    /// What each root leads to of the still reachable blocks that `site` puts under a
    /// number, by that number.
    pub fn by_site(&self, site: impl Fn(NodeId) -> Option<u32>) -> FxHashMap<u32, Roots> {
        let mut sites: FxHashMap<u32, Roots> = FxHashMap::default();
        for (at, block) in (0u32..).zip(&self.reach.blocks) {
            if block.class == Class::Reachable
                && let Some(step) = self.step(at)
                && let Some(site) = site(block.node)
            {
                let found = sites.entry(site).or_default().0.entry(step.root).or_insert((
                    Amount::default(),
                    at,
                    step.depth,
                ));
                found.0.add(block.size);
                if step.depth < found.2 {
                    (found.1, found.2) = (at, step.depth);
                }
            }
        }
        sites
    }

    /// The roots of a site, those that lead to most first.
    pub fn holders(&self, session: &mut Session, roots: &Roots) -> Vec<Holder> {
        let mut places: Vec<(Place, Amount, u32)> =
            roots.0.iter().map(|(&place, &(amount, nearest, _))| (place, amount, nearest)).collect();
        let worst = |a: &Amount, b: &Amount| (b.bytes, b.blocks).cmp(&(a.bytes, a.blocks));
        places.sort_by(|a, b| worst(&a.1, &b.1).then(a.2.cmp(&b.2)));
        places.truncate(MOST_PLACES);
        let mut holders: Vec<(Holder, u32)> = Vec::new();
        let mut by_name: FxHashMap<String, usize> = FxHashMap::default();
        for (place, amount, nearest) in places {
            let (name, symbol) = name(session, place);
            if let Some((holder, _)) = by_name.get(&name).and_then(|&at| holders.get_mut(at)) {
                holder.amount.join(amount);
                continue;
            }
            by_name.insert(name.clone(), holders.len());
            holders.push((Holder { place, name, symbol, amount, through: Vec::new() }, nearest));
        }
        holders.sort_by(|a, b| worst(&a.0.amount, &b.0.amount).then(a.1.cmp(&b.1)));
        holders.truncate(MOST_ROOTS);
        holders
            .into_iter()
            .map(|(holder, nearest)| Holder { through: self.through(session, nearest), ..holder })
            .collect()
    }

    /// The sites of the blocks before this one on the way from its root, the root's
    /// first; one after another of the same site count once.
    fn through(&self, session: &mut Session, block: u32) -> Vec<Frame> {
        let mut frames: Vec<Frame> = Vec::new();
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut at = self.step(block).and_then(|step| step.from);
        // Each step is one nearer to the root: this ends.
        while let Some(index) = at {
            if let Some(block) = self.reach.blocks.get(index as usize)
                && nodes.last() != Some(&block.node)
            {
                nodes.push(block.node);
            }
            at = self.step(index).and_then(|step| step.from);
        }
        for node in nodes.into_iter().rev() {
            let stack = session.stack(node);
            if let Some(frame) = stack.site()
                && frames.last().is_none_or(|last| !same_place(last, frame))
            {
                frames.push(frame.clone());
            }
        }
        frames
    }
}

/// What each root leads to of a site: how much, the nearest block, and how many
/// pointers that is away.
#[derive(Clone, Debug, Default)]
pub struct Roots(FxHashMap<Place, (Amount, u32, u32)>);

/// In which order roots are asked; `None` for what is no root.
fn rank(place: Place) -> Option<u8> {
    match place {
        Place::Data { .. } => Some(0),
        Place::Mapping { .. } => Some(1),
        Place::Stack { .. } => Some(2),
        Place::Register { .. } => Some(3),
        Place::Block { .. } => None,
    }
}

/// Where the root is: a variable as a whole, not its single fields.
fn name(session: &mut Session, place: Place) -> (String, Option<String>) {
    let Place::Data { addr } = place else { return (reach::place_text(session, place), None) };
    match session.data(addr) {
        Some((module, Some((symbol, _)))) => (format!("`{symbol}` in {module}"), Some(symbol)),
        Some((module, None)) => (format!("data of {module}"), None),
        None => (reach::place_text(session, place), None),
    }
}

fn same_place(a: &Frame, b: &Frame) -> bool {
    (&a.function, &a.file, a.line) == (&b.function, &b.file, b.line)
}

/// Half a sentence: ``held by `cache` in app -> fill (app.c:7), and by 2 others``. The
/// last of `through` is left out where it is the site itself. `None` without holders.
pub fn sentence(holders: &[Holder], site: Option<&Frame>) -> Option<String> {
    let first = holders.first()?;
    let own = |frame: &&Frame| site.is_some_and(|site| same_place(site, frame));
    let ways: Vec<&Frame> = first.through.iter().filter(|frame| !own(frame)).collect();
    let mut text = format!("held by {}", first.name);
    for frame in ways.iter().take(MOST_STEPS) {
        text += &format!(" -> {}", step(frame));
    }
    if ways.len() > MOST_STEPS {
        text += " -> …";
    }
    match holders.len() {
        1 => {}
        2 => text += &format!(", and by {}", holders[1].name),
        n => text += &format!(", and by {} others", n - 1),
    }
    Some(text)
}

/// A block on the way: who made it.
fn step(frame: &Frame) -> String {
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("{} ({file}:{line})", function_name(frame))
        }
        _ => function_name(frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;
    use highwater_trace::reach::{Pointer, ReachBlock};

    fn block(addr: u64, node: NodeId) -> ReachBlock {
        ReachBlock {
            addr,
            size: 10,
            seqno: 0,
            node,
            class: Class::Reachable,
            owner: None,
            retained: 10,
            pointers: 1,
        }
    }

    fn session() -> Session {
        Made::default()
            .node(1, 0, "fill", "/src/app.c", 7)
            .node(2, 0, "remember", "/src/app.c", 20)
            .thread(1, 70, "worker")
            .session()
    }

    fn inside(index: u32) -> Place {
        Place::Block { index, offset: 0 }
    }

    fn pointers(list: &[(u32, Place)]) -> Vec<Pointer> {
        let mut list: Vec<Pointer> = list.iter().map(|&(to, from)| Pointer { to, into: 0, from }).collect();
        list.sort_by_key(|pointer| pointer.to);
        list
    }

    fn holders(reach: &Reach) -> Vec<Holder> {
        let ways = Ways::new(reach);
        let roots = ways.by_site(|node| (node == 2).then_some(5));
        ways.holders(&mut session(), roots.get(&5).unwrap_or(&Roots::default()))
    }

    #[test]
    fn a_table_that_holds_a_list_is_named_with_the_blocks_between() {
        // data -> 0 (fill) -> 1 (remember) -> 2 (remember) -> 3 (remember)
        let data = Place::Data { addr: 0x9000 };
        let reach = Reach {
            blocks: [(0x10, 1), (0x20, 2), (0x30, 2), (0x40, 2)].map(|(at, node)| block(at, node)).to_vec(),
            pointers: pointers(&[
                (0, data),
                (1, inside(0)),
                (2, inside(1)),
                (3, inside(2)),
                // A ring, and one back to the beginning.
                (1, inside(3)),
                (0, inside(3)),
            ]),
            ..Reach::default()
        };
        let found = holders(&reach);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].place, found[0].amount), (data, Amount { blocks: 3, bytes: 30 }));
        let site = session().stack(2).site().cloned();
        let text = sentence(&found, site.as_ref()).unwrap();
        assert_eq!(text, "held by data at 0x9000 -> fill (app.c:7)");
    }

    #[test]
    fn a_stale_register_was_said_to_hold_what_a_global_leads_to() {
        let data = Place::Data { addr: 0x9000 };
        let register = Place::Register { tid: 70, register: 3 };
        let reach = Reach {
            blocks: [(0x20, 2), (0x30, 2), (0x40, 2)].map(|(at, node)| block(at, node)).to_vec(),
            // The register points to the last of the list, and alone to none.
            pointers: pointers(&[(0, data), (1, inside(0)), (2, inside(1)), (2, register)]),
            ..Reach::default()
        };
        let found = holders(&reach);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].place, found[0].amount.blocks), (data, 3));
        assert!(found[0].through.is_empty());
    }

    #[test]
    fn what_leads_to_most_stands_first() {
        let stack = |addr| Place::Stack { tid: 70, addr };
        let data = Place::Data { addr: 0x9000 };
        let reach = Reach {
            blocks: [(0x20, 2), (0x30, 2), (0x40, 2)].map(|(at, node)| block(at, node)).to_vec(),
            pointers: pointers(&[(0, data), (1, stack(0x100)), (2, stack(0x108))]),
            ..Reach::default()
        };
        let found = holders(&reach);
        let names: Vec<&str> = found.iter().map(|holder| &*holder.name).collect();
        // Both words are on the same stack.
        assert_eq!(names, ["the stack of thread 70 (worker)", "data at 0x9000"]);
        assert_eq!(found[0].amount.blocks, 2);
        let text = sentence(&found, None).unwrap();
        assert_eq!(text, "held by the stack of thread 70 (worker), and by data at 0x9000");
    }

    #[test]
    fn numbers_that_lead_nowhere_are_passed_over() {
        let reach = Reach {
            blocks: vec![block(0x20, 2)],
            pointers: pointers(&[(7, Place::Data { addr: 1 }), (0, inside(9)), (9, inside(0))]),
            ..Reach::default()
        };
        assert!(holders(&reach).is_empty());
        assert_eq!(sentence(&[], None), None);
    }
}
