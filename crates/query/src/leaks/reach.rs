//! What a scan of the program's memory found: the classes of memcheck and
//! LeakSanitizer, by stack, without what is suppressed.

use std::sync::Arc;

use highwater_event::node::NodeId;
use highwater_trace::TraceError;
pub use highwater_trace::reach::{
    Amount, Class, LEAK_CHECK, Place, Pointer, Reach, ReachBlock, ReachSite, Scanned,
};

use rustc_hash::FxHashMap;

use super::suppressions::Suppressions;
use crate::group::{By, Item, group};
use crate::session::Session;
use crate::stack::Stack;

/// What the scan of this recording found, or why there was none.
///
/// # Errors
/// The file cannot be read.
pub fn of(session: &Session) -> Result<Scanned, TraceError> {
    session.source().reach()
}

const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// A root in words, without the exact place on a stack: `` `head` in app ``, `the
/// stack of thread 7 (worker)`, `register rax of thread 7`, …; of a block only that it
/// is one.
pub fn place_text(session: &mut Session, place: Place) -> String {
    let thread = |session: &Session, tid: u32| {
        let known = session.facts().threads.iter().find(|thread| thread.tid == tid);
        match known {
            Some(thread) if !thread.name.is_empty() => format!("thread {tid} ({})", thread.name),
            _ => format!("thread {tid}"),
        }
    };
    match place {
        Place::Block { .. } => "a block".to_string(),
        Place::Data { addr } => match session.data(addr) {
            Some((module, Some((name, 0)))) => format!("`{name}` in {module}"),
            Some((module, Some((name, offset)))) => format!("`{name}`+{offset:#x} in {module}"),
            Some((module, None)) => format!("data of {module} at {addr:#x}"),
            None => format!("data at {addr:#x}"),
        },
        Place::Stack { tid, .. } => format!("the stack of {}", thread(session, tid)),
        Place::Register { tid, register } => {
            let name = REGISTERS.get(usize::from(register)).copied().unwrap_or("?");
            format!("register {name} of {}", thread(session, tid))
        }
        Place::Mapping { .. } => "memory that the program mapped".to_string(),
    }
}

/// A scan's result with the suppressed stacks apart.
#[derive(Clone, Debug, Default)]
pub struct Lost {
    /// Stacks that count, by node id.
    pub sites: Vec<ReachSite>,
    /// All that counts, by [`Class`].
    pub classes: [Amount; 4],
    /// What is suppressed and not still reachable.
    pub suppressed: Amount,
}

impl Lost {
    /// What counts of a class.
    pub fn class(&self, class: Class) -> Amount {
        self.classes[class as usize & 3]
    }

    /// What one stack made.
    pub fn site(&self, node: NodeId) -> Option<&ReachSite> {
        let at = self.sites.binary_search_by_key(&node, |site| site.node).ok()?;
        self.sites.get(at)
    }
}

/// Takes out what `rules` suppress.
///
/// A suppressed stack's definitely lost block takes the blocks that are lost
/// with it along only in its own line: indirectly lost blocks count or do not
/// count by their own stacks.
pub fn lost(session: &mut Session, reach: &Reach, rules: &Suppressions) -> Lost {
    let mut lost = Lost::default();
    for site in &reach.sites {
        let stack = session.stack(site.node);
        if rules.rule(&stack).is_some() {
            for class in [Class::Definite, Class::Indirect, Class::Possible] {
                lost.suppressed.join(site.classes[class as usize & 3]);
            }
            continue;
        }
        for (sum, class) in lost.classes.iter_mut().zip(site.classes) {
            sum.join(class);
        }
        lost.sites.push(*site);
    }
    lost
}

/// Stacks that belong together, and what a scan found of them.
#[derive(Clone, Debug)]
pub struct LostGroup {
    /// What they have in common, in words.
    pub label: String,
    /// By [`Class`].
    pub classes: [Amount; 4],
    /// What is lost with their definitely lost blocks.
    pub owned: Amount,
    /// The stack that lost most.
    pub node: NodeId,
    /// The same, resolved.
    pub stack: Arc<Stack>,
}

impl LostGroup {
    /// The blocks of a class.
    pub fn class(&self, class: Class) -> Amount {
        self.classes[class as usize & 3]
    }

    /// Bytes that nothing points to any more because of these stacks: their own
    /// and what is lost with them.
    pub fn bytes(&self) -> u64 {
        self.class(Class::Definite).bytes.saturating_add(self.owned.bytes)
    }

    /// Is anything of it lost, for sure or perhaps?
    pub fn is_lost(&self) -> bool {
        [Class::Definite, Class::Indirect, Class::Possible].iter().any(|&class| self.class(class).blocks > 0)
    }
}

/// Puts stacks together: those that lost most first, for sure before perhaps
/// before with others.
///
/// Groupings that need single blocks (thread, entry point, size) are done by stack.
pub fn groups(session: &mut Session, lost: &Lost, by: By) -> Vec<LostGroup> {
    let by = if by.needs_only_stacks() { by } else { By::Stack };
    let mut groups: Vec<LostGroup> = Vec::new();
    let mut places: FxHashMap<(String, NodeId), usize> = FxHashMap::default();
    let mut most: Vec<u64> = Vec::new();
    for site in &lost.sites {
        let all: u64 = site.classes.iter().map(|class| class.blocks).sum();
        let item = Item { node: site.node, bytes: 0, blocks: all.max(1), ..Item::default() };
        let Some(one) = group(session, [item], by).pop() else { continue };
        let key = (one.label.clone(), if by == By::Stack { site.node } else { 0 });
        let at = *places.entry(key).or_insert_with(|| {
            groups.push(LostGroup {
                label: one.label,
                classes: Default::default(),
                owned: Amount::default(),
                node: site.node,
                stack: Arc::clone(&one.stack),
            });
            most.push(0);
            groups.len() - 1
        });
        let (Some(group), Some(most)) = (groups.get_mut(at), most.get_mut(at)) else { continue };
        for (sum, class) in group.classes.iter_mut().zip(site.classes) {
            sum.join(class);
        }
        group.owned.join(site.owned);
        let bytes = site.classes[0].bytes.saturating_add(site.owned.bytes);
        if bytes > *most {
            (*most, group.node, group.stack) = (bytes, site.node, one.stack);
        }
    }
    let rank = |group: &LostGroup| {
        let [definite, indirect, possible, reachable] = group.classes;
        (group.bytes(), definite.blocks, possible.bytes, possible.blocks, indirect.bytes, reachable.bytes)
    };
    groups.sort_by(|a, b| rank(b).cmp(&rank(a)).then_with(|| a.label.cmp(&b.label)));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    fn amount(blocks: u64, bytes: u64) -> Amount {
        Amount { blocks, bytes }
    }

    #[test]
    fn what_is_suppressed_counts_apart() {
        let mut session = Made::default()
            .node(1, 0, "main", "/src/main.c", 3)
            .node(2, 1, "fill_cache", "/src/cache.c", 70)
            .reach(Reach {
                sites: vec![
                    ReachSite {
                        node: 1,
                        classes: [amount(1, 10), amount(2, 20), amount(0, 0), amount(3, 30)],
                        owned: amount(2, 20),
                    },
                    ReachSite {
                        node: 2,
                        classes: [amount(1, 5), amount(0, 0), amount(1, 7), amount(9, 90)],
                        owned: amount(0, 0),
                    },
                ],
                ..Reach::default()
            })
            .session();
        let Scanned::Done(reach) = of(&session).unwrap() else { panic!("there is a scan") };
        let all = lost(&mut session, &reach, &Suppressions::default());
        assert_eq!(all.class(Class::Definite), amount(2, 15));
        assert_eq!(all.class(Class::Reachable), amount(12, 120));
        let mut rules = Suppressions::default();
        rules.add("leak:fill_cache").unwrap();
        let some = lost(&mut session, &reach, &rules);
        assert_eq!(some.class(Class::Definite), amount(1, 10));
        assert_eq!(some.suppressed, amount(2, 12));
        assert!(some.site(2).is_none() && some.site(1).is_some());
    }

    #[test]
    fn stacks_come_together_and_the_worst_stands_first() {
        let site = |node, definite, owned| ReachSite {
            node,
            classes: [definite, amount(0, 0), amount(0, 0), amount(1, 1000)],
            owned,
        };
        let mut session = Made::default()
            .node(1, 0, "main", "/src/main.c", 3)
            .node(2, 1, "parse", "/src/parse.c", 70)
            .node(3, 0, "parse", "/src/parse.c", 70)
            .session();
        let lost = Lost {
            sites: vec![
                site(1, amount(3, 90), amount(0, 0)),
                site(2, amount(1, 10), amount(1, 5)),
                site(3, amount(1, 20), amount(9, 70)),
            ],
            ..Lost::default()
        };
        let groups = groups(&mut session, &lost, By::Site);
        assert_eq!(groups.iter().map(LostGroup::bytes).collect::<Vec<_>>(), [105, 90]);
        assert_eq!((groups[0].node, groups[0].owned), (3, amount(10, 75)));
        assert_eq!(groups[0].class(Class::Reachable), amount(2, 2000));
        assert_eq!(super::groups(&mut session, &lost, By::Stack).len(), 3);
    }

    #[test]
    fn without_a_scan_there_is_a_reason() {
        let session = Made::default().session();
        assert_eq!(of(&session).unwrap(), Scanned::Not("recorded without --leak-check".to_string()));
    }
}
