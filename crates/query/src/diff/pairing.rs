//! Which place of one side is which of the other.
//!
//! Among places that are known by the same name the lines decide. Text that was
//! put in above moves all of them by the same number of lines, so the pairs with
//! the most common distance come first; among equally common ones those with the
//! smallest. Whatever side is called the first, the pairs are the same.

use rustc_hash::FxHashMap;

use super::key::{Key, STEPS};

/// Above so many pairs to think about, places go together in their order.
const MANY: usize = 1 << 21;

/// Pairs of places, as indices into `before` and `after`. Each is in one pair at
/// most.
pub fn pairs(before: &[Key], after: &[Key]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let (mut left, mut right): (Vec<usize>, Vec<usize>) =
        ((0..before.len()).collect(), (0..after.len()).collect());
    for step in 0..STEPS {
        let mut groups: FxHashMap<&str, (Vec<usize>, Vec<usize>)> = FxHashMap::default();
        for &at in &left {
            if let Some(name) = before.get(at).and_then(|key| key.names[step].as_deref()) {
                groups.entry(name).or_default().0.push(at);
            }
        }
        for &at in &right {
            if let Some(name) = after.get(at).and_then(|key| key.names[step].as_deref())
                && let Some(group) = groups.get_mut(name)
            {
                group.1.push(at);
            }
        }
        let known = found.len();
        for (ours, theirs) in groups.values().filter(|(_, theirs)| !theirs.is_empty()) {
            within(before, after, ours, theirs, &mut found);
        }
        let taken = found.get(known..).unwrap_or_default();
        let mut gone: Vec<usize> = taken.iter().map(|pair| pair.0).collect();
        let mut came: Vec<usize> = taken.iter().map(|pair| pair.1).collect();
        gone.sort_unstable();
        came.sort_unstable();
        left.retain(|at| gone.binary_search(at).is_err());
        right.retain(|at| came.binary_search(at).is_err());
    }
    found
}

/// Pairs places that are known by the same name: as many as the shorter list has.
fn within(before: &[Key], after: &[Key], ours: &[usize], theirs: &[usize], found: &mut Vec<(usize, usize)>) {
    let position = |keys: &[Key], at: usize| keys.get(at).map(|key| key.position.clone()).unwrap_or_default();
    if let ([ours], [theirs]) = (ours, theirs) {
        found.push((*ours, *theirs));
        return;
    }
    let ours: Vec<(usize, Vec<i64>)> = ours.iter().map(|&at| (at, position(before, at))).collect();
    let theirs: Vec<(usize, Vec<i64>)> = theirs.iter().map(|&at| (at, position(after, at))).collect();
    if ours.len().saturating_mul(theirs.len()) > MANY {
        let sorted = |mut list: Vec<(usize, Vec<i64>)>| {
            list.sort_by(|a, b| a.1.cmp(&b.1));
            list.into_iter().map(|(at, _)| at)
        };
        found.extend(sorted(ours).zip(sorted(theirs)));
        return;
    }
    let distance =
        |a: &[i64], b: &[i64]| -> Vec<i64> { a.iter().zip(b).map(|(a, b)| b.saturating_sub(*a)).collect() };
    let mut votes: FxHashMap<Vec<i64>, usize> = FxHashMap::default();
    for (_, a) in &ours {
        for (_, b) in &theirs {
            *votes.entry(distance(a, b)).or_default() += 1;
        }
    }
    let mut candidates = Vec::with_capacity(ours.len() * theirs.len());
    for (i, (_, a)) in ours.iter().enumerate() {
        for (k, (_, b)) in theirs.iter().enumerate() {
            let distance = distance(a, b);
            let count = votes.get(&distance).copied().unwrap_or(0);
            let far = distance.iter().fold(0u64, |sum, by| sum.saturating_add(by.unsigned_abs()));
            let sum: Vec<i64> = a.iter().zip(b).map(|(a, b)| a.saturating_add(*b)).collect();
            candidates.push((std::cmp::Reverse(count), far, sum, i, k));
        }
    }
    candidates.sort();
    let (mut ours_used, mut theirs_used) = (vec![false; ours.len()], vec![false; theirs.len()]);
    for (.., i, k) in candidates {
        if !ours_used[i] && !theirs_used[k] {
            ours_used[i] = true;
            theirs_used[k] = true;
            found.push((ours[i].0, theirs[k].0));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(name: &str, line: i64) -> Key {
        Key { names: [Some(name.to_string()), None, None, Some("all".to_string())], position: vec![line] }
    }

    fn sorted(mut pairs: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn lines_that_moved_together_stay_together() {
        let before = [key("f", 10), key("f", 20), key("f", 30)];
        // One line more above, and a new place where an old one was.
        let after = [key("f", 11), key("f", 20), key("f", 21), key("f", 31)];
        assert_eq!(sorted(pairs(&before, &after)), [(0, 0), (1, 2), (2, 3)]);
    }

    #[test]
    fn what_the_strict_step_leaves_the_lenient_one_takes() {
        let before = [key("f", 1), key("g", 2)];
        let after = [key("h", 9), key("f", 5)];
        assert_eq!(sorted(pairs(&before, &after)), [(0, 1), (1, 0)]);
    }

    fn keys() -> impl Strategy<Value = Vec<Key>> {
        let one = (0u8..3, 0i64..12).prop_map(|(name, line)| key(["f", "g", "h"][usize::from(name)], line));
        proptest::collection::vec(one, 0..14).prop_map(|mut keys| {
            // A side has each place once.
            let mut seen = std::collections::HashSet::new();
            keys.retain(|key| seen.insert(key.clone()));
            keys
        })
    }

    proptest! {
        #[test]
        fn pairs_are_the_same_from_both_sides(before in keys(), after in keys()) {
            let there = sorted(pairs(&before, &after));
            let back: Vec<_> = pairs(&after, &before).into_iter().map(|(a, b)| (b, a)).collect();
            prop_assert_eq!(&there, &sorted(back));
            let mut ours: Vec<_> = there.iter().map(|pair| pair.0).collect();
            let mut theirs: Vec<_> = there.iter().map(|pair| pair.1).collect();
            ours.dedup();
            theirs.sort_unstable();
            theirs.dedup();
            prop_assert_eq!((ours.len(), theirs.len()), (there.len(), there.len()));
            prop_assert_eq!(there.len(), before.len().min(after.len()), "`all` takes what is left");
        }

        #[test]
        fn text_that_is_put_in_above_changes_nothing(before in keys(), by in -50i64..50) {
            let moved: Vec<Key> = before.iter().map(|key| {
                let position = key.position.iter().map(|line| line + by).collect();
                Key { position, ..key.clone() }
            }).collect();
            let same: Vec<_> = (0..before.len()).map(|at| (at, at)).collect();
            prop_assert_eq!(sorted(pairs(&before, &moved)), same);
        }
    }
}
