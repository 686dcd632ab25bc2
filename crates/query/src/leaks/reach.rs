//! What a scan of the program's memory found: the classes of memcheck and
//! LeakSanitizer, by stack, without what is suppressed.

use highwater_event::node::NodeId;
use highwater_trace::TraceError;
pub use highwater_trace::reach::{Amount, Class, Place, Pointer, Reach, ReachBlock, ReachSite, Scanned};

use super::suppressions::Suppressions;
use crate::session::Session;

/// What the scan of this recording found, or why there was none.
///
/// # Errors
/// The file cannot be read.
pub fn of(session: &Session) -> Result<Scanned, TraceError> {
    session.source().reach()
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
    fn without_a_scan_there_is_a_reason() {
        let session = Made::default().session();
        assert_eq!(of(&session).unwrap(), Scanned::Not("recorded without --leak-check".to_string()));
    }
}
