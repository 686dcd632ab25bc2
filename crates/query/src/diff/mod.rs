//! What has changed: between two instants of one run, two runs, or two builds.
//!
//! Blocks of one run are the same if their seqnos are: an address that was freed
//! and given out again is one block gone and one new ([`blocks`]). Of two runs
//! only groups of blocks can be compared; which group of the one is which of the
//! other, [`key`] and [`pairing`] say ([`groups`]).

pub mod key;
pub mod measure;
pub mod pairing;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::group::{By, Group, Item, group};
use crate::session::Session;
use crate::stack::{Stack, function_name};
pub use key::SameBuilds;

use key::Key;

/// Bytes and blocks; of a sample, of what its blocks stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Variance of `bytes`, where they are an estimate from a sample.
    pub variance: u64,
}

impl From<&Item> for Amount {
    fn from(item: &Item) -> Amount {
        Amount { bytes: item.bytes, blocks: item.blocks, variance: item.variance }
    }
}

impl From<&Group> for Amount {
    fn from(group: &Group) -> Amount {
        Amount { bytes: group.bytes, blocks: group.blocks, variance: group.variance }
    }
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.variance = self.variance.saturating_add(other.variance);
    }

    /// The sum of several.
    pub fn sum(all: impl IntoIterator<Item = Amount>) -> Amount {
        let mut sum = Amount::default();
        all.into_iter().for_each(|amount| sum.add(amount));
        sum
    }
}

/// What counts first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rank {
    /// Bytes, then blocks.
    #[default]
    Bytes,
    /// Blocks, then bytes.
    Blocks,
}

/// In what way something has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// There was nothing before.
    New,
    /// There is nothing any more.
    Gone,
    /// There is more than before.
    Grown,
    /// There is less than before.
    Shrunk,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::New, Kind::Gone, Kind::Grown, Kind::Shrunk];

    /// The word for it; the key in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::New => "new",
            Kind::Gone => "gone",
            Kind::Grown => "grown",
            Kind::Shrunk => "shrunk",
        }
    }
}

/// A group of blocks that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// In what way.
    pub kind: Kind,
    /// What the blocks have in common, in the words of the later side if it has it.
    pub label: String,
    /// A stack of them, from the same side.
    pub stack: Arc<Stack>,
    /// What there was.
    pub before: Amount,
    /// What there is.
    pub after: Amount,
}

impl Change {
    /// After minus before: bytes and blocks.
    pub fn by(&self) -> (i128, i128) {
        let by = |before: u64, after: u64| i128::from(after) - i128::from(before);
        (by(self.before.bytes, self.after.bytes), by(self.before.blocks, self.after.blocks))
    }
}

/// All that has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The changes, the greatest first.
    pub changes: Vec<Change>,
    /// Groups that have not changed.
    pub unchanged: usize,
    /// All of the earlier side.
    pub before: Amount,
    /// All of the later side.
    pub after: Amount,
}

impl Diff {
    /// The changes of one kind, the greatest first.
    pub fn of(&self, kind: Kind) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.kind == kind)
    }

    fn sort(&mut self, rank: Rank) {
        let order = |change: &Change| {
            let (bytes, blocks) = change.by();
            let (bytes, blocks) = (bytes.unsigned_abs(), blocks.unsigned_abs());
            std::cmp::Reverse(if rank == Rank::Bytes { (bytes, blocks) } else { (blocks, bytes) })
        };
        self.changes.sort_by(|a, b| {
            let kind = |change: &Change| Kind::ALL.iter().position(|kind| *kind == change.kind);
            order(a).cmp(&order(b)).then_with(|| a.label.cmp(&b.label)).then_with(|| kind(a).cmp(&kind(b)))
        });
    }
}

/// One side of a comparison of groups.
#[derive(Clone, Debug, Default)]
pub struct Side {
    keys: Vec<Key>,
    groups: Vec<(String, Arc<Stack>, Amount)>,
}

impl Side {
    /// Puts items together as the comparison wants them: what cannot be told from
    /// each other there is one.
    pub fn new(
        session: &mut Session,
        items: impl IntoIterator<Item = Item>,
        by: By,
        same: &SameBuilds,
    ) -> Side {
        let mut side = Side::default();
        let mut known: FxHashMap<(Option<String>, Vec<i64>), usize> = FxHashMap::default();
        for group in group(session, items, by) {
            let key = key(session, same, by, &group);
            let amount = Amount::from(&group);
            let next = side.keys.len();
            let at = *known.entry((key.names[0].clone(), key.position.clone())).or_insert(next);
            match side.groups.get_mut(at) {
                // Groups come largest first, so the label is that of the largest.
                Some((_, _, sum)) => sum.add(amount),
                None => {
                    side.keys.push(key);
                    side.groups.push((group.label, group.stack, amount));
                }
            }
        }
        side
    }

    fn total(&self) -> Amount {
        Amount::sum(self.groups.iter().map(|(_, _, amount)| *amount))
    }
}

fn key(session: &Session, same: &SameBuilds, by: By, group: &Group) -> Key {
    let site = group.stack.site();
    match (by, site) {
        (By::Site, Some(frame)) => Key::frame(session, same, frame),
        (By::Stack, _) => Key::stack(session, same, &group.stack),
        (By::Function, Some(frame)) => Key::function(&function_name(frame)),
        (By::File, _) => Key::file(&group.label),
        (By::Module, Some(frame)) => Key::module(session, &frame.module),
        (By::Thread, _) => Key::thread(&group.label),
        _ => Key::plain(&group.label),
    }
}

/// Compares groups of two runs.
pub fn groups(before: &Side, after: &Side, rank: Rank) -> Diff {
    let mut diff = Diff { before: before.total(), after: after.total(), ..Diff::default() };
    let pairs = pairing::pairs(&before.keys, &after.keys);
    let (mut gone, mut came) = (vec![true; before.groups.len()], vec![true; after.groups.len()]);
    for (a, b) in pairs {
        gone[a] = false;
        came[b] = false;
        let (was, is) = (before.groups[a].2, after.groups[b].2);
        let first = |amount: Amount| match rank {
            Rank::Bytes => (amount.bytes, amount.blocks),
            Rank::Blocks => (amount.blocks, amount.bytes),
        };
        let kind = match first(is).cmp(&first(was)) {
            std::cmp::Ordering::Equal => {
                diff.unchanged += 1;
                continue;
            }
            std::cmp::Ordering::Greater => Kind::Grown,
            std::cmp::Ordering::Less => Kind::Shrunk,
        };
        let (label, stack, _) = &after.groups[b];
        let (label, stack) = (label.clone(), Arc::clone(stack));
        diff.changes.push(Change { kind, label, stack, before: was, after: is });
    }
    let none = Amount::default();
    for ((label, stack, amount), _) in before.groups.iter().zip(gone).filter(|(_, gone)| *gone) {
        let (label, stack) = (label.clone(), Arc::clone(stack));
        diff.changes.push(Change { kind: Kind::Gone, label, stack, before: *amount, after: none });
    }
    for ((label, stack, amount), _) in after.groups.iter().zip(came).filter(|(_, came)| *came) {
        let (label, stack) = (label.clone(), Arc::clone(stack));
        diff.changes.push(Change { kind: Kind::New, label, stack, before: none, after: *amount });
    }
    diff.sort(rank);
    diff
}

/// Puts together what was alive at two instants of one run, block by block: the
/// blocks that are gone and those that are new, each grouped, and how many are the
/// same. A group may be in it twice: with blocks that are gone and with others that
/// are new.
pub fn blocks(before: Amount, after: Amount, gone: Vec<Group>, new: Vec<Group>, kept: usize) -> Diff {
    let mut diff = Diff { changes: Vec::new(), unchanged: kept, before, after };
    let none = Amount::default();
    diff.changes.extend(gone.into_iter().map(|group| Change {
        kind: Kind::Gone,
        before: Amount::from(&group),
        after: none,
        label: group.label,
        stack: group.stack,
    }));
    diff.changes.extend(new.into_iter().map(|group| Change {
        kind: Kind::New,
        before: none,
        after: Amount::from(&group),
        label: group.label,
        stack: group.stack,
    }));
    diff.sort(Rank::Bytes);
    diff
}

#[cfg(test)]
mod tests;
