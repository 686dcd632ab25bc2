//! What is alive at the end, without what is suppressed.

use std::collections::BTreeMap;

use highwater_replay::{Outcome, Replay};
use rustc_hash::{FxHashMap, FxHashSet};

use super::suppressions::Suppressions;
use crate::group::{By, Group, Item, group};
use crate::session::{QueryError, Session};
use crate::stack::function;

/// What a rule has hidden.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// What is alive at the end.
#[derive(Clone, Debug, Default)]
pub struct Leaks {
    /// What counts, largest first.
    pub groups: Vec<Group>,
    /// What is suppressed, largest first.
    pub suppressed: Vec<Group>,
    /// The rules that hid something, by their text.
    pub rules: BTreeMap<String, Hidden>,
}

impl Leaks {
    /// Bytes that count.
    pub fn bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.bytes).sum()
    }

    /// Bytes and blocks that are suppressed.
    pub fn hidden(&self) -> Hidden {
        Hidden {
            bytes: self.rules.values().map(|hidden| hidden.bytes).sum(),
            blocks: self.rules.values().map(|hidden| hidden.blocks).sum(),
        }
    }
}

/// Puts together what is alive at the end of the trace.
///
/// # Errors
/// The trace cannot be read.
pub fn live(session: &mut Session, by: By, rules: &Suppressions) -> Result<Leaks, QueryError> {
    if by.needs_only_stacks() {
        let found = session.outcome()?;
        return Ok(of_items(session, found.sites().iter().map(Item::live).collect(), by, rules));
    }
    let replay = session.replay()?;
    Ok(of_replay(session, &replay, by, rules))
}

/// The same of what a replay has found, by site.
pub fn by_site(session: &mut Session, found: &Outcome, rules: &Suppressions) -> Leaks {
    of_items(session, found.sites().iter().map(Item::live).collect(), By::Site, rules)
}

/// Puts together what is alive at the end of `replay`.
pub fn of_replay(session: &mut Session, replay: &Replay, by: By, rules: &Suppressions) -> Leaks {
    let items: Vec<Item> = if by.needs_only_stacks() {
        replay.sites().map(|site| Item::live(&site)).collect()
    } else {
        replay.live().map(|block| Item::of_block(&block, replay)).collect()
    };
    of_items(session, items, by, rules)
}

/// Puts together what is alive, without what is suppressed.
pub fn of_items(session: &mut Session, items: Vec<Item>, by: By, rules: &Suppressions) -> Leaks {
    let mut leaks = Leaks::default();
    let (mut kept, mut hidden) = (Vec::new(), Vec::new());
    for item in items {
        if item.blocks == 0 {
            continue;
        }
        let stack = session.stack(item.node);
        match rules.rule(&stack) {
            None => kept.push(item),
            Some(rule) => {
                let sum = leaks.rules.entry(rule.to_string()).or_default();
                sum.bytes = sum.bytes.saturating_add(item.bytes);
                sum.blocks += item.blocks;
                hidden.push(item);
            }
        }
    }
    leaks.groups = group(session, kept, by);
    leaks.suppressed = group(session, hidden, by);
    leaks
}

/// A file of suppressions that hides these groups: a comment and a rule for
/// each. A function that stands in other groups' stacks too (`main`) would hide
/// those as well; there only the frame to blame is named.
pub fn generate(groups: &[Group]) -> String {
    let mut in_stacks: FxHashMap<&str, usize> = FxHashMap::default();
    for group in groups {
        let names: FxHashSet<&str> = group.stack.frames.iter().filter_map(|frame| function(frame)).collect();
        for name in names {
            *in_stacks.entry(name).or_default() += 1;
        }
    }
    let mut text = String::new();
    for group in groups {
        let Some(site) = group.stack.site() else { continue };
        let place = match (site.file.as_deref(), site.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.to_string(),
            (None, _) => site.module.to_string(),
        };
        let rule = match function(site) {
            Some(name) if in_stacks.get(name) == Some(&1) => format!("leak:^{name}$"),
            Some(_) if site.file.is_some() => format!("site:^{place}$"),
            Some(name) => format!("site:^{name}$"),
            None => format!("site:^{place}$"),
        };
        text += &format!("# {} bytes in {} blocks at {place}\n{rule}\n", group.bytes, group.blocks);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    fn session() -> Session {
        Made::default()
            .node(1, 0, "main", "/src/main.c", 3)
            .node(2, 1, "fill_cache", "/src/cache.c", 70)
            .node(3, 0, "main", "/src/main.c", 9)
            .alloc(0, 0x10, 100, 2)
            .alloc(0, 0x200, 30, 1)
            .alloc(0, 0x300, 7, 3)
            .alloc(0, 0x400, 5, 2)
            .free(0, 0x400)
            .session()
    }

    #[test]
    fn what_is_hidden_is_counted_by_rule() {
        let mut session = session();
        let mut rules = Suppressions::default();
        rules.add("leak:fill_cache").unwrap();
        for by in [By::Site, By::Thread] {
            let leaks = live(&mut session, by, &rules).unwrap();
            assert_eq!(leaks.bytes(), 37, "{by:?}");
            assert_eq!(leaks.hidden(), Hidden { bytes: 100, blocks: 1 });
            assert_eq!(leaks.rules["leak:fill_cache"].bytes, 100);
            assert_eq!(leaks.suppressed.len(), 1);
        }
    }

    #[test]
    fn generated_rules_hide_their_own_group_and_no_other() {
        let mut session = session();
        let found = session.outcome().unwrap();
        let all = by_site(&mut session, &found, &Suppressions::default());
        let text = generate(&all.groups);
        let rules: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(rules, ["leak:^fill_cache$", "site:^/src/main.c:3$", "site:^/src/main.c:9$"]);
        for (rule, group) in rules.iter().zip(&all.groups) {
            let mut one = Suppressions::default();
            one.add(rule).unwrap();
            let left = by_site(&mut session, &found, &one);
            assert_eq!(left.hidden().bytes, group.bytes, "{rule}");
        }
        let mut every = Suppressions::default();
        every.add(&text).unwrap();
        assert!(by_site(&mut session, &found, &every).groups.is_empty());
    }
}
