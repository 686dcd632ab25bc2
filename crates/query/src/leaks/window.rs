//! Survivors of a window: what an action made and the next one did not give
//! back.
//!
//! The method is that of the article "Investigating memory leaks with DTrace":
//! the program does the same thing three times, A1, A2, A3. What A2 made and A3
//! has not given back is a leak, also where something still points to it. Seen
//! after each of several equal actions, a site that survives in all of them is
//! no accident: tables that fill once survive in one action only.
//!
//! A block that was resized keeps its origin: a buffer made before the window
//! and grown inside it is not of the window, and one made inside and resized
//! later still is.

use highwater_event::node::NodeId;
use highwater_replay::{LiveBlock, Replay, Until};
use highwater_trace::model::{Event, Mark, Op, Special, Step};
use rustc_hash::FxHashMap;

use super::rank::Findings;
use crate::group::weight;
use crate::session::{QueryError, Session};

/// A window and the instant at which its blocks are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// What it is called: `A1..A2`.
    pub name: String,
    /// Blocks made after this instant …
    pub from: Until,
    /// … and not after this one …
    pub to: Until,
    /// … that are still alive at this one.
    pub until: Until,
}

impl Window {
    /// Was a block of this birth made in the window?
    pub fn has(&self, seqno: u64, ns: u64) -> bool {
        !self.from.includes(seqno, ns) && self.to.includes(seqno, ns)
    }
}

/// The first of the blocks that a chain of reallocs made of one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Number of the event that made it.
    pub seqno: u64,
    /// When, ns.
    pub ns: u64,
    /// From where.
    pub node: NodeId,
}

/// A block that was made in a window and is alive after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// As it is now.
    pub block: LiveBlock,
    /// As it began, where it was resized since.
    pub origin: Option<Origin>,
}

impl Survivor {
    /// Number and time of the event that made it first.
    pub fn born(&self) -> (u64, u64) {
        self.origin.map_or((self.block.seqno, self.block.ns), |origin| (origin.seqno, origin.ns))
    }
}

/// The survivors of each window, in the order of the windows, each by the number
/// of the event that made the block. One pass over the trace.
///
/// # Errors
/// The file cannot be read.
pub fn survivors(session: &mut Session, windows: &[Window]) -> Result<Vec<Vec<Survivor>>, QueryError> {
    for window in windows {
        session.knows(window.until)?;
    }
    let source = session.source();
    let (mut steps, mut heap) = source.enter(earliest(windows), session.replay_options())?;
    let mut origins = Origins::default();
    let mut found = vec![Vec::new(); windows.len()];
    let mut open: Vec<usize> = (0..windows.len()).collect();
    let mut next = Bounds::of(windows, &open);
    while let Some((epoch, step)) = steps.next_in_epoch()? {
        if open.is_empty() {
            break;
        }
        if let Step::Event(event) = &step
            && next.passed(event)
        {
            // All that came so far happened before this instant.
            heap.barrier();
            open.retain(|&at| {
                let Some((window, list)) = windows.get(at).zip(found.get_mut(at)) else { return false };
                if window.until.includes(event.seqno, event.ns) {
                    return true;
                }
                *list = collect(&heap, &origins, window);
                false
            });
            next = Bounds::of(windows, &open);
        }
        origins.note(&step, &heap);
        heap.feed_in(epoch, &step);
    }
    heap.finish();
    for at in open {
        if let Some((window, list)) = windows.get(at).zip(found.get_mut(at)) {
            *list = collect(&heap, &origins, window);
        }
    }
    session.learn(&steps);
    Ok(found)
}

/// An instant before all windows from which the heap can be followed.
fn earliest(windows: &[Window]) -> Until {
    let mut earliest: Option<Until> = None;
    for window in windows {
        earliest = Some(match (earliest, window.from) {
            (None, from) => from,
            (Some(Until::Ns(a)), Until::Ns(b)) => Until::Ns(a.min(b)),
            (Some(Until::Seqno(a)), Until::Seqno(b)) => Until::Seqno(a.min(b)),
            // Different clocks, or the start.
            _ => return Until::Start,
        });
    }
    match earliest {
        Some(from @ (Until::Ns(_) | Until::Seqno(_))) => from,
        _ => Until::Start,
    }
}

fn collect(heap: &Replay, origins: &Origins, window: &Window) -> Vec<Survivor> {
    let mut list: Vec<Survivor> = heap
        .live()
        .map(|block| Survivor { block, origin: origins.of(&block) })
        .filter(|survivor| {
            let (seqno, ns) = survivor.born();
            window.has(seqno, ns)
        })
        .collect();
    list.sort_unstable_by_key(|survivor| survivor.block.seqno);
    list
}

/// The earliest instants at which a window is closed: two compares an event.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    seqno: u64,
    ns: u64,
    start: bool,
}

impl Bounds {
    fn of(windows: &[Window], open: &[usize]) -> Bounds {
        let mut bounds = Bounds { seqno: u64::MAX, ns: u64::MAX, start: false };
        for window in open.iter().filter_map(|&at| windows.get(at)) {
            match window.until {
                Until::Start => bounds.start = true,
                Until::End => {}
                Until::Seqno(seqno) => bounds.seqno = bounds.seqno.min(seqno),
                Until::Ns(ns) => bounds.ns = bounds.ns.min(ns),
            }
        }
        bounds
    }

    fn passed(self, event: &Event) -> bool {
        event.seqno > self.seqno || event.ns > self.ns || self.start
    }
}

/// What resized blocks were before.
#[derive(Default)]
struct Origins {
    /// By address: the number of the event that made the present block there,
    /// and where it comes from.
    blocks: FxHashMap<u64, (u64, Origin)>,
    /// Between the halves of a realloc, by the number of the free half.
    moving: FxHashMap<u64, (Origin, u64)>,
}

impl Origins {
    /// Takes in a step that `heap` has not seen yet.
    fn note(&mut self, step: &Step, heap: &Replay) {
        match step {
            Step::Event(event) => match (event.op, event.pair) {
                (Op::Free, Some(_)) if event.api.is_realloc() => {
                    let known = self.blocks.remove(&event.addr);
                    let Some(block) = heap.block_at(event.addr) else { return };
                    let origin = match known {
                        Some((seqno, origin)) if seqno == block.seqno => origin,
                        _ => Origin { seqno: block.seqno, ns: block.ns, node: block.node },
                    };
                    self.moving.insert(event.seqno, (origin, block.seqno));
                }
                (Op::Free, _) => {
                    if !self.blocks.is_empty() {
                        self.blocks.remove(&event.addr);
                    }
                }
                (Op::Alloc { .. }, Some(pair)) => {
                    if let Some((origin, _)) = self.moving.remove(&pair) {
                        self.blocks.insert(event.addr, (event.seqno, origin));
                    }
                }
                (Op::Alloc { .. }, None) => {}
            },
            Step::Special { what: Special::ReallocUndo { free_seqno: Some(free), addr }, .. } => {
                // It failed: the block is what it was.
                if let Some((origin, seqno)) = self.moving.remove(free)
                    && origin.seqno != seqno
                {
                    self.blocks.insert(*addr, (seqno, origin));
                }
            }
            Step::Special { .. } => {}
        }
    }

    fn of(&self, block: &LiveBlock) -> Option<Origin> {
        let (seqno, origin) = self.blocks.get(&block.addr)?;
        (*seqno == block.seqno).then_some(*origin)
    }
}

/// What the actions that the marks name left behind, as evidence for a ranking;
/// nothing if they name none. Reads the trace once more.
///
/// # Errors
/// The file cannot be read.
pub fn evidence(session: &mut Session, findings: &mut Findings) -> Result<(), QueryError> {
    let marks = session.facts().marks.clone();
    let Some(series) = series(&marks) else { return Ok(()) };
    let mut windows = of_series(&marks, &series);
    if session.modes().live_only {
        // What is left of each action at the end is all that is known.
        windows.iter_mut().for_each(|window| window.until = Until::End);
    }
    let found = survivors(session, &windows)?;
    findings.windows = windows.len() as u64;
    let rate = session.modes().sample;
    for list in found {
        let mut of_stack: FxHashMap<NodeId, (u64, u64, u64)> = FxHashMap::default();
        for survivor in list {
            let sum = of_stack.entry(survivor.block.node).or_default();
            let weight = weight(rate, &survivor.block);
            sum.0 = sum.0.saturating_add(weight.blocks);
            sum.1 = sum.1.saturating_add(weight.bytes);
            sum.2 = sum.2.saturating_add(weight.variance);
        }
        for (node, (blocks, bytes, variance)) in of_stack {
            let found = findings.stacks.entry(node).or_default();
            found.windows += 1;
            found.window_blocks += blocks;
            found.window_bytes = found.window_bytes.saturating_add(bytes);
            found.window_variance = found.window_variance.saturating_add(variance);
        }
    }
    Ok(())
}

/// The windows between marks of one name, or of names that count (`A1`, `A2`,
/// `A3`): each from one mark to the next, looked at one mark later (the last
/// one at the next mark of any name, or at the end). `series` is the name, or
/// what stands before the numbers.
pub fn of_series(marks: &[Mark], series: &str) -> Vec<Window> {
    let mut named: Vec<&Mark> = marks.iter().filter(|mark| mark.name == series).collect();
    if named.len() < 2 {
        named = marks.iter().filter(|mark| number_behind(&mark.name, series).is_some()).collect();
        named.sort_by_key(|mark| number_behind(&mark.name, series));
    }
    // Marks that were set twice, or not in the order of their numbers, begin no action.
    named.sort_by_key(|mark| mark.ns);
    let points: Vec<(String, Until)> =
        named.iter().map(|mark| (mark.name.clone(), Until::Ns(mark.ns))).collect();
    between(&points, marks)
}

/// The windows from each instant to the next, looked at one instant later; the
/// last one at the next mark behind it, or at the end.
pub fn between(points: &[(String, Until)], marks: &[Mark]) -> Vec<Window> {
    let mut windows = Vec::new();
    for (at, pair) in points.windows(2).enumerate() {
        let [(first, from), (second, to)] = pair else { continue };
        let until = points.get(at + 2).map_or_else(|| next_mark(*to, marks), |(_, until)| *until);
        let name = if first == second { format!("{first} {}", at + 1) } else { format!("{first}..{second}") };
        windows.push(Window { name, from: *from, to: *to, until });
    }
    windows
}

/// The first mark behind an instant, else the end.
pub fn next_mark(after: Until, marks: &[Mark]) -> Until {
    let Until::Ns(ns) = after else { return Until::End };
    marks.iter().map(|mark| mark.ns).filter(|&mark| mark > ns).min().map_or(Until::End, Until::Ns)
}

/// The series that the marks make by themselves: the name that was given most
/// often, or most marks with one name before their numbers; the first of equals.
pub fn series(marks: &[Mark]) -> Option<String> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    let mut count = |name| match counts.iter_mut().find(|(known, _)| *known == name) {
        Some((_, count)) => *count += 1,
        None => counts.push((name, 1)),
    };
    for mark in marks {
        count(mark.name.as_str());
        let stem = mark.name.trim_end_matches(|c: char| c.is_ascii_digit());
        if stem.len() < mark.name.len() && !stem.is_empty() {
            count(stem);
        }
    }
    let most = counts.iter().map(|(_, count)| *count).max().filter(|&most| most >= 2)?;
    counts.iter().find(|(_, count)| *count == most).map(|(name, _)| (*name).to_string())
}

/// 12 of `A12` behind `A`.
fn number_behind(name: &str, stem: &str) -> Option<u64> {
    let digits = name.strip_prefix(stem).filter(|rest| rest.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok()
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use highwater_event::api::ApiKind;

    use super::*;
    use crate::session::made::Made;

    fn marks(list: &[(&str, u64)]) -> Vec<Mark> {
        list.iter().map(|(name, ns)| Mark { ns: *ns, name: (*name).to_string() }).collect()
    }

    fn shape(windows: &[Window]) -> Vec<(&str, Until, Until, Until)> {
        windows.iter().map(|w| (w.name.as_str(), w.from, w.to, w.until)).collect()
    }

    #[test]
    fn three_actions_make_two_windows() {
        let list = marks(&[("A1", 10), ("other", 15), ("A2", 20), ("A3", 30)]);
        use Until::{End, Ns};
        assert_eq!(
            shape(&of_series(&list, "A")),
            [("A1..A2", Ns(10), Ns(20), Ns(30)), ("A2..A3", Ns(20), Ns(30), End)]
        );
        assert_eq!(series(&list).as_deref(), Some("A"));
        let list = marks(&[("go", 1), ("go", 2), ("go", 3), ("stop", 9)]);
        assert_eq!(
            shape(&of_series(&list, "go")),
            [("go 1", Ns(1), Ns(2), Ns(3)), ("go 2", Ns(2), Ns(3), Ns(9))]
        );
        assert_eq!(series(&list).as_deref(), Some("go"));
        assert_eq!(series(&marks(&[("x", 1), ("y", 2)])), None);
        assert_eq!(of_series(&list, "none"), []);
    }

    #[test]
    fn made_in_the_second_action_and_not_given_back_by_the_end_of_the_third() {
        // Ten ms an event: A1 at 5, A2 at 25, A3 at 55 ms.
        let mut session = Made::default()
            .node(1, 0, "main", "a.c", 1)
            .mark("A1", 5_000_000)
            .mark("A2", 25_000_000)
            .mark("A3", 55_000_000)
            .alloc(0, 0x10, 1, 1) // 10 ms, in A1
            .alloc(0, 0x20, 2, 1) // 20 ms, in A1
            .alloc(0, 0x30, 3, 1) // 30 ms, in A2: leaks
            .alloc(0, 0x40, 4, 1) // 40 ms, in A2, given back in A3
            .free(0, 0x10)
            .alloc(0, 0x50, 5, 1) // 60 ms, in A3
            .free(0, 0x40)
            .session();
        let marks = session.facts().marks.clone();
        let windows = of_series(&marks, "A");
        let sizes: Vec<Vec<u64>> = survivors(&mut session, &windows)
            .unwrap()
            .iter()
            .map(|list| list.iter().map(|s| s.block.size).collect())
            .collect();
        // What A1 made and A2 kept is looked for when A3 begins.
        assert_eq!(sizes, [vec![2], vec![3]]);
    }

    #[test]
    fn a_ranking_gets_what_each_stack_left_in_how_many_windows() {
        let mut made = Made::default().node(1, 0, "main", "a.c", 1).node(2, 0, "fill", "a.c", 2);
        for action in 0..4u64 {
            made = made.mark("act", action * 20_000_000 + 5_000_000);
        }
        for action in 0..3u64 {
            let node = if action == 1 { 2 } else { 1 };
            made = made.alloc(0, 0x100 + action * 64, 10, 1).alloc(0, 0x1000 + action * 64, 5, node);
        }
        let mut session = made.session();
        let mut findings = Findings::default();
        evidence(&mut session, &mut findings).unwrap();
        let of = |node| {
            let found = &findings.stacks[&node];
            (found.windows, found.window_blocks, found.window_bytes)
        };
        assert_eq!((findings.windows, of(1), of(2)), (3, (3, 5, 40), (1, 1, 5)));
        let mut none = Findings::default();
        evidence(&mut Made::default().session(), &mut none).unwrap();
        assert_eq!(none.windows, 0);
    }

    #[test]
    fn a_block_that_is_resized_is_of_the_window_in_which_it_was_made() {
        let window = |from, to| Window { name: String::new(), from, to, until: Until::End };
        let mut session = Made::default()
            .node(1, 0, "main", "a.c", 1)
            .node(2, 0, "grow", "a.c", 2)
            .alloc(0, 0x10, 1, 1)
            .alloc(0, 0x20, 2, 1)
            .event(0, 0x10, Op::Free, ApiKind::ReallocFree, 0, Some(2))
            .event(0, 0x30, Op::Alloc { size: 9, usable: None }, ApiKind::Realloc, 2, Some(2))
            .event(0, 0x20, Op::Free, ApiKind::ReallocFree, 0, Some(4))
            .special(0, Special::ReallocUndo { free_seqno: Some(4), addr: 0x20 })
            .session();
        let windows = [window(Until::Start, Until::Seqno(1)), window(Until::Seqno(1), Until::End)];
        let found = survivors(&mut session, &windows).unwrap();
        let first: Vec<_> = found[0].iter().map(|s| (s.block.size, s.born().0)).collect();
        assert_eq!(first, [(2, 1), (9, 0)]);
        assert_eq!(found[0][1].origin.unwrap().node, 1);
        assert_eq!(found[0][1].block.node, 2, "its site is that of the realloc");
        assert_eq!(found[1], []);
    }
}
