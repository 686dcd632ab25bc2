//! What survives equal actions: the survivors of several windows by site, and
//! which sites have some in every window.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::growth::forecast::Range;
use super::per_action;
use super::report::Hidden;
use super::suppressions::Suppressions;
use super::window::{Survivor, Window, survivors};
use crate::group::{By, Group, Item, group, weight};
use crate::session::{QueryError, Session};

/// What one site kept of each action.
#[derive(Clone, Debug)]
pub struct Kept {
    /// All of it together.
    pub group: Group,
    /// Blocks of each action, in the order of the actions.
    pub blocks: Vec<u64>,
    /// Bytes of each action.
    pub bytes: Vec<u64>,
}

impl Kept {
    /// Actions of which something is left.
    pub fn survived(&self) -> usize {
        self.blocks.iter().filter(|&&blocks| blocks > 0).count()
    }

    /// Is something left of every action?
    pub fn survived_all(&self) -> bool {
        self.survived() == self.blocks.len()
    }

    /// Bytes that an action adds, with 95 % confidence; `None` of one action, and of
    /// what does not survive them all.
    pub fn per_action(&self) -> Option<Range> {
        per_action::mean(&self.bytes).filter(|_| self.survived_all())
    }

    /// How sure it is that this is a leak: one window may have met what is kept
    /// for the first time, several equal ones hardly all.
    pub fn confidence(&self) -> &'static str {
        match (self.survived_all(), self.blocks.len()) {
            (false, _) => "low",
            (true, 0..=2) => "medium",
            (true, _) => "high",
        }
    }

    /// The evidence as a sentence's end: `2 of 2 actions, 10 blocks each`.
    pub fn reason(&self) -> String {
        let word = |n: u64| if n == 1 { "block" } else { "blocks" };
        let survived = || self.blocks.iter().copied().filter(|&blocks| blocks > 0);
        let (least, most) = (survived().min().unwrap_or(0), survived().max().unwrap_or(0));
        let each = if least == most {
            format!("{most} {}", word(most))
        } else {
            format!("{least} to {most} blocks")
        };
        match self.blocks.len() {
            1 => format!("made in the window and not given back after it: {each}"),
            of => format!("{} of {of} actions, {each} each", self.survived()),
        }
    }
}

/// What is left of the actions.
#[derive(Clone, Debug, Default)]
pub struct Actions {
    /// The windows.
    pub windows: Vec<Window>,
    /// Sites that survive in every window, most bytes first: leaks.
    pub all: Vec<Kept>,
    /// Sites that survive in some windows only: what fills once.
    pub some: Vec<Kept>,
    /// What is suppressed.
    pub suppressed: Vec<Kept>,
    /// The rules that hid something, by their text.
    pub rules: BTreeMap<String, Hidden>,
    /// The blocks, of each window, suppressed ones too.
    pub survivors: Vec<Vec<Survivor>>,
}

impl Actions {
    /// Bytes of the sites that survive in every window.
    pub fn bytes(&self) -> u64 {
        self.all.iter().map(|kept| kept.group.bytes).sum()
    }

    /// Blocks of the sites that survive in every window.
    pub fn blocks(&self) -> u64 {
        self.all.iter().map(|kept| kept.group.blocks).sum()
    }

    /// The groups that count, largest first.
    pub fn groups(&self) -> Vec<Group> {
        self.all.iter().map(|kept| kept.group.clone()).collect()
    }
}

/// What the windows left behind, put together `by` something.
///
/// # Errors
/// The file cannot be read.
pub fn find(
    session: &mut Session,
    windows: Vec<Window>,
    by: By,
    rules: &Suppressions,
) -> Result<Actions, QueryError> {
    let found = survivors(session, &windows)?;
    let rate = session.modes().sample;
    let mut actions = Actions { windows, ..Actions::default() };
    let (mut kept, mut hidden) = (Vec::new(), Vec::new());
    for list in &found {
        let (mut counts, mut hides) = (Vec::new(), Vec::new());
        for item in items(list, by, rate) {
            let stack = session.stack(item.node);
            match rules.rule(&stack) {
                None => counts.push(item),
                Some(rule) => {
                    let sum = actions.rules.entry(rule.to_string()).or_default();
                    sum.bytes = sum.bytes.saturating_add(item.bytes);
                    sum.blocks += item.blocks;
                    hides.push(item);
                }
            }
        }
        kept.push(counts);
        hidden.push(hides);
    }
    let (all, some) = join(session, &kept, by).into_iter().partition(Kept::survived_all);
    (actions.all, actions.some) = (all, some);
    actions.suppressed = join(session, &hidden, by);
    actions.survivors = found;
    Ok(actions)
}

/// Survivors as what can be grouped: one item a stack where that is enough.
/// `rate` is that of the sample they are of, 0 for none.
fn items(list: &[Survivor], by: By, rate: u64) -> Vec<Item> {
    let single = list.iter().map(|survivor| Item::weighed(&survivor.block, weight(rate, &survivor.block)));
    if !by.needs_only_stacks() {
        return single.collect();
    }
    let mut of_node: FxHashMap<u32, Item> = FxHashMap::default();
    for item in single {
        let sum = of_node.entry(item.node).or_insert(Item {
            bytes: 0,
            blocks: 0,
            allocations: 0,
            variance: 0,
            ..item
        });
        sum.bytes = sum.bytes.saturating_add(item.bytes);
        sum.blocks += item.blocks;
        sum.allocations += item.allocations;
        sum.variance = sum.variance.saturating_add(item.variance);
    }
    let mut items: Vec<Item> = of_node.into_values().collect();
    items.sort_unstable_by_key(|item| item.node);
    items
}

/// What makes groups of two windows the same.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Node(u32),
    Label(String),
}

fn key(by: By, group: &Group) -> Key {
    // A stack's label is its innermost function: not enough.
    if by == By::Stack { Key::Node(group.node) } else { Key::Label(group.label.clone()) }
}

fn join(session: &mut Session, windows: &[Vec<Item>], by: By) -> Vec<Kept> {
    let whole = group(session, windows.iter().flatten().copied(), by);
    let mut place: FxHashMap<Key, usize> = FxHashMap::default();
    let mut list: Vec<Kept> = Vec::with_capacity(whole.len());
    for group in whole {
        place.insert(key(by, &group), list.len());
        list.push(Kept { group, blocks: vec![0; windows.len()], bytes: vec![0; windows.len()] });
    }
    for (at, items) in windows.iter().enumerate() {
        for part in group(session, items.iter().copied(), by) {
            let Some(kept) = place.get(&key(by, &part)).and_then(|&place| list.get_mut(place)) else {
                continue;
            };
            if let (Some(blocks), Some(bytes)) = (kept.blocks.get_mut(at), kept.bytes.get_mut(at)) {
                (*blocks, *bytes) = (part.blocks, part.bytes);
            }
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::super::window::of_series;
    use super::*;
    use crate::session::made::Made;

    fn session() -> Session {
        let mut made = Made::default()
            .node(1, 0, "main", "main.c", 3)
            .node(2, 1, "leak", "leak.c", 7)
            .node(3, 1, "cache", "cache.c", 9)
            .node(4, 2, "deep", "leak.c", 8);
        // Four events an action, 10 ms each; a mark before each and one behind the last.
        for action in 0..4u64 {
            made = made.mark("act", action * 40_000_000 + 5_000_000);
        }
        for action in 0..3u64 {
            made = made.alloc(0, 0x1000 + action * 64, 10 + action, 2);
            made = if action == 0 {
                made.alloc(0, 0x9000, 500, 3)
            } else {
                made.alloc(0, 0x5000 + action * 64, 1, 2)
            };
            made = made.alloc(0, 0x8000, 7, 4).free(0, 0x8000);
        }
        made.session()
    }

    #[test]
    fn what_survives_in_each_action_is_told_from_what_fills_once() {
        let mut session = session();
        let marks = session.facts().marks.clone();
        let windows = of_series(&marks, "act");
        assert_eq!(windows.len(), 3);
        for by in [By::Site, By::Stack, By::Function, By::Thread] {
            let found = find(&mut session, windows.clone(), by, &Suppressions::default()).unwrap();
            if by == By::Thread {
                assert_eq!(found.all.len(), 1, "{by:?}");
                continue;
            }
            assert_eq!(found.all.len(), 1, "{by:?}");
            let leak = &found.all[0];
            assert_eq!(leak.group.node, 2);
            assert_eq!(leak.blocks, [1, 2, 2]);
            assert_eq!(leak.bytes, [10, 12, 13]);
            assert_eq!(leak.reason(), "3 of 3 actions, 1 to 2 blocks each");
            let each = leak.per_action().unwrap();
            assert!(
                each.low < 10.0 && each.high > 13.0 && (each.value * 3.0 - 35.0).abs() < 1e-9,
                "{each:?}"
            );
            assert_eq!(found.some[0].per_action(), None);
            assert_eq!(found.bytes(), 35);
            assert_eq!(found.some.len(), 1);
            assert_eq!(found.some[0].blocks, [1, 0, 0]);
            assert_eq!(found.some[0].reason(), "1 of 3 actions, 1 block each");
        }
    }

    #[test]
    fn what_is_suppressed_is_no_leak() {
        let mut session = session();
        let marks = session.facts().marks.clone();
        let mut rules = Suppressions::default();
        rules.add("leak:leak.c").unwrap();
        let found = find(&mut session, of_series(&marks, "act"), By::Site, &rules).unwrap();
        assert!(found.all.is_empty());
        assert_eq!(found.suppressed.len(), 1);
        assert_eq!(found.rules["leak:leak.c"], Hidden { bytes: 35, blocks: 5 });
    }
}
