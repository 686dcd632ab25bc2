//! In which order did several threads use one address?
//!
//! Every address alternates: alloc, free, alloc, free. Each thread's own events
//! are in order. What the stamps make of the rest inside one epoch is only a
//! guess; this finds the order nearest to it that breaks no rule, or as few as
//! can be.

use rustc_hash::FxHashSet;

/// Items that are looked at, at most: the latest.
pub const MOST_ITEMS: usize = 64;
/// States that a search may visit for each number of errors.
const BUDGET: u32 = 1 << 14;
/// A family that is not known, and so fits every other.
pub const ANY_FAMILY: u8 = 15;

/// What an event did at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It made a block.
    Alloc,
    /// It gave one back.
    Free,
    /// It used one that lives on (a realloc that failed).
    Touch,
}

/// An event at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Whose.
    pub thread: u32,
    /// What it did.
    pub kind: Kind,
    /// Number of the family of functions.
    pub family: u8,
}

/// What lives at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// Nothing.
    Nothing,
    /// The block that lived there before the first item.
    Before,
    /// The block of this item.
    Item(usize),
}

/// An order: what it costs and where it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// What lives there in the end.
    pub live: Live,
    /// Frees of nothing.
    pub bad: u32,
    /// Allocs on a block that lives.
    pub missing: u32,
    /// Frees through the wrong family.
    pub mismatched: u32,
    /// What each free gave back, by the number of its item; not known for all.
    pub frees: Vec<(usize, Live)>,
}

/// The order of `items` (given in the order of their stamps) with the fewest
/// errors, if there is one with fewer than `below`. `before` is the family of
/// the block that lived there at first, if one did. `states` is how many states all
/// searches of a replay may still visit; what this one does is taken off it.
pub fn solve(items: &[Item], before: Option<u8>, below: u32, states: &mut u64) -> Option<Order> {
    let skipped = items.len().saturating_sub(MOST_ITEMS);
    let (first, latest) = items.split_at_checked(skipped)?;
    // What the skipped ones leave is what the last of them did.
    let (live, family) = match (first.last(), before) {
        (Some(item), _) if item.kind == Kind::Free => (Live::Nothing, ANY_FAMILY),
        (Some(item), _) => (Live::Before, item.family),
        (None, Some(family)) => (Live::Before, family),
        (None, None) => (Live::Nothing, ANY_FAMILY),
    };
    let mut threads: Vec<(u32, Vec<usize>)> = Vec::new();
    for (at, item) in latest.iter().enumerate() {
        match threads.iter_mut().find(|(thread, _)| *thread == item.thread) {
            Some((_, list)) => list.push(at),
            None => threads.push((item.thread, vec![at])),
        }
    }
    if threads.len() < 2 {
        return None;
    }
    let mut search = Search {
        items: latest,
        at: vec![0; threads.len()],
        threads: threads.into_iter().map(|(_, list)| list).collect(),
        seen: FxHashSet::default(),
        budget: 0,
        errors: [0; 3],
        end: None,
        frees: Vec::new(),
    };
    let absolute = |live| match live {
        Live::Item(at) => Live::Item(at + skipped),
        Live::Before if skipped > 0 => Live::Item(skipped - 1),
        live => live,
    };
    for errors in 0..below {
        search.seen.clear();
        let budget = BUDGET.min(u32::try_from(*states).unwrap_or(BUDGET));
        search.budget = budget;
        let found = search.go(live, family, errors);
        *states -= u64::from(budget - search.budget);
        if found {
            let [bad, missing, mismatched] = search.errors;
            let live = absolute(search.end?);
            let frees = search.frees.iter().map(|&(at, live)| (at + skipped, absolute(live))).collect();
            return Some(Order { live, bad, missing, mismatched, frees });
        }
        if search.budget == 0 {
            return by_number(items, before.is_some());
        }
    }
    None
}

/// Where there are too many orders to try: if as many were freed as made, it was
/// in order.
fn by_number(items: &[Item], before: bool) -> Option<Order> {
    let count = |kind| items.iter().filter(|item| item.kind == kind).count();
    let live = match (usize::from(before) + count(Kind::Alloc)).checked_sub(count(Kind::Free))? {
        0 => Live::Nothing,
        // The last event of all is also the last of its thread.
        1 => {
            let ends = |at: &usize| {
                let Some((item, rest)) = items.get(*at..).and_then(<[Item]>::split_first) else {
                    return false;
                };
                item.kind == Kind::Alloc && rest.iter().all(|other| other.thread != item.thread)
            };
            (0..items.len()).rev().find(ends).map_or(Live::Nothing, Live::Item)
        }
        _ => return None,
    };
    Some(Order { live, bad: 0, missing: 0, mismatched: 0, frees: Vec::new() })
}

struct Search<'a> {
    items: &'a [Item],
    threads: Vec<Vec<usize>>,
    /// How far each thread is.
    at: Vec<u8>,
    /// States that lead nowhere: how far each thread is, the family that lives
    /// there, the errors left.
    seen: FxHashSet<(Vec<u8>, u8, u32)>,
    budget: u32,
    /// bad, missing, mismatched.
    errors: [u32; 3],
    end: Option<Live>,
    frees: Vec<(usize, Live)>,
}

impl Search<'_> {
    /// As deep as there are items at most.
    fn go(&mut self, live: Live, family: u8, errors: u32) -> bool {
        let mut heads: Vec<(usize, usize)> = Vec::with_capacity(self.threads.len());
        for (thread, list) in self.threads.iter().enumerate() {
            let at = self.at.get(thread).copied().unwrap_or_default();
            if let Some(&item) = list.get(usize::from(at)) {
                heads.push((item, thread));
            }
        }
        if heads.is_empty() {
            self.end = Some(live);
            return true;
        }
        let here = if live == Live::Nothing { u8::MAX } else { family };
        if self.budget == 0 || !self.seen.insert((self.at.clone(), here, errors)) {
            return false;
        }
        self.budget -= 1;
        heads.sort_unstable();
        // What breaks no rule first, the earliest stamp first.
        for wrong in [false, true] {
            for &(at, thread) in &heads {
                let Some(&item) = self.items.get(at) else { continue };
                let fits = family == ANY_FAMILY || item.family == ANY_FAMILY || item.family == family;
                let error = match (item.kind, live != Live::Nothing) {
                    (Kind::Free | Kind::Touch, true) if !fits => Some(2),
                    (Kind::Free | Kind::Touch, true) | (Kind::Alloc, false) => None,
                    (Kind::Free | Kind::Touch, false) => Some(0),
                    (Kind::Alloc, true) => Some(1),
                };
                if error.is_some() != wrong || (wrong && errors == 0) {
                    continue;
                }
                let (next, next_family) = match item.kind {
                    Kind::Free => (Live::Nothing, ANY_FAMILY),
                    Kind::Alloc => (Live::Item(at), item.family),
                    Kind::Touch => (live, family),
                };
                self.step(thread, error, true);
                if self.go(next, next_family, errors - u32::from(wrong)) {
                    if item.kind == Kind::Free && live != Live::Nothing {
                        self.frees.push((at, live));
                    }
                    return true;
                }
                self.step(thread, error, false);
            }
        }
        false
    }

    fn step(&mut self, thread: usize, error: Option<usize>, forward: bool) {
        let change = |n: &mut u32| *n = if forward { *n + 1 } else { n.saturating_sub(1) };
        if let Some(at) = self.at.get_mut(thread) {
            *at = if forward { *at + 1 } else { at.saturating_sub(1) };
        }
        if let Some(count) = error.and_then(|error| self.errors.get_mut(error)) {
            change(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `A1 F2`: thread 1 allocates, thread 2 frees.
    fn items(text: &str) -> Vec<Item> {
        text.split_whitespace()
            .map(|word| Item {
                thread: u32::from(word.as_bytes()[1] - b'0'),
                kind: match word.as_bytes()[0] {
                    b'F' | b'D' => Kind::Free,
                    b'T' => Kind::Touch,
                    _ => Kind::Alloc,
                },
                family: u8::from(matches!(word.as_bytes()[0], b'N' | b'D')),
            })
            .collect()
    }

    fn live(text: &str, before: bool) -> Option<Live> {
        solve(&items(text), before.then_some(0), 3, &mut { u64::MAX })
            .filter(|order| order.bad + order.missing + order.mismatched == 0)
            .map(|order| order.live)
    }

    #[test]
    fn orders_that_break_no_rule_are_found() {
        assert_eq!(live("F2 A1", false), Some(Live::Nothing));
        assert_eq!(live("A1 A2 F1", false), Some(Live::Item(1)));
        assert_eq!(live("A1 F1 F2 A2", false), Some(Live::Nothing));
        // Thread 1 was long before it says.
        assert_eq!(live("A1 F2 A2 F2", true), Some(Live::Item(0)));
        assert_eq!(live("A1 F2", true), Some(Live::Item(0)));
        // Families: the other order would free what the other thread made.
        assert_eq!(live("A1 D2 N3 F1", false), Some(Live::Nothing));
        // Thread 3 had it between the failed realloc and the free.
        assert_eq!(live("T2 A3 F2", true), Some(Live::Item(1)));
    }

    #[test]
    fn what_no_order_explains_is_an_error() {
        assert_eq!(live("A1 F2 F2 A2", false), None);
        assert_eq!(live("A1 F1 F2", false), None);
        let order = solve(&items("A1 F2 F2 A2"), None, 3, &mut { u64::MAX }).unwrap();
        assert_eq!((order.bad, order.missing, order.live), (1, 0, Live::Item(3)));
        // One thread's own order needs no search.
        assert_eq!(solve(&items("A1 F1 F1"), None, 3, &mut { u64::MAX }), None);
    }

    #[test]
    fn long_lists_end_in_time() {
        let mut text = String::new();
        for _ in 0..400 {
            text.push_str("A1 F2 A3 F4 ");
        }
        assert_eq!(live(&text, false), Some(Live::Nothing));
        let mut mixed = String::new();
        for at in 0..64 {
            mixed.push_str(&format!("A{} ", at % 8));
        }
        for at in 0..63 {
            mixed.push_str(&format!("F{} ", at % 8));
        }
        assert!(matches!(live(&mixed, false), Some(Live::Item(_) | Live::Nothing) | None));
    }
}
