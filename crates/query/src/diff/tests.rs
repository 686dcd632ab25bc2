//! Comparisons of made-up runs.

use highwater_replay::Until;
use highwater_trace::model::ModuleDef;
use proptest::prelude::*;

use super::measure::{items, live};
use super::*;
use crate::Filter;
use crate::group::Metric;
use crate::leaks::suppressions::Suppressions;
use crate::session::made::Made;

fn side_by(session: &mut Session, measure: Metric, by: By) -> Side {
    let (items, _) =
        items(session, measure, Until::End, &Filter::default(), &Suppressions::default(), by).unwrap();
    Side::new(session, items, by, &SameBuilds::default())
}

fn side(session: &mut Session) -> Side {
    side_by(session, Metric::Live, By::Site)
}

fn short(diff: &Diff) -> Vec<(Kind, &str, i128, i128)> {
    let one = |change: &'_ Change| (change.kind, change.by());
    diff.changes.iter().map(|c| (one(c).0, c.label.as_str(), one(c).1.0, one(c).1.1)).collect()
}

#[test]
fn an_old_and_a_new_build() {
    let mut before = Made::default()
        .node(1, 0, "main", "/home/a/src/main.c", 10)
        .node(2, 1, "parse", "/home/a/src/parse.c", 40)
        .node(3, 1, "cache.constprop.0", "/home/a/src/cache.c", 7)
        .node(4, 1, "drop", "/home/a/src/drop.c", 7)
        .alloc(0, 0x10, 100, 1)
        .alloc(0, 0x200, 100, 2)
        .alloc(0, 0x300, 50, 3)
        .alloc(0, 0x400, 7, 4)
        .session();
    let mut after = Made::default()
        .node(1, 0, "main", "/build/2/src/main.c", 13)
        .node(2, 1, "parse", "/build/2/src/parse.c", 55)
        .node(3, 1, "cache", "/build/2/src/store.c", 3)
        .node(5, 1, "extra", "/build/2/src/extra.c", 3)
        .alloc(0, 0x10, 100, 1)
        .alloc(0, 0x200, 100, 2)
        .alloc(0, 0x280, 300, 2)
        .alloc(0, 0x300, 20, 3)
        .alloc(0, 0x500, 9, 5)
        .session();
    let (a, b) = (side(&mut before), side(&mut after));
    let diff = groups(&a, &b, Rank::Bytes);
    assert_eq!(
        short(&diff),
        [
            (Kind::Grown, "parse (/build/2/src/parse.c:55)", 300, 1),
            (Kind::Shrunk, "cache (/build/2/src/store.c:3)", -30, 0),
            (Kind::New, "extra (/build/2/src/extra.c:3)", 9, 1),
            (Kind::Gone, "drop (/home/a/src/drop.c:7)", -7, -1),
        ]
    );
    assert_eq!(diff.unchanged, 1);
    assert_eq!((diff.before.bytes, diff.after.bytes), (257, 529));
}

#[test]
fn lines_count_where_both_sides_ran_the_same_build() {
    let run = |line| {
        let mut made = Made::default().node(1, 0, "main", "a.c", line).alloc(0, 0x10, 100, 1);
        made.facts.modules =
            vec![ModuleDef { path: "/usr/bin/app".into(), build_id: vec![7; 20], ..ModuleDef::default() }];
        made.session()
    };
    let (mut a, mut b) = (run(10), run(30));
    let mut kinds = |same: &SameBuilds| {
        let of = |session: &mut Session| {
            let (filter, rules) = (Filter::default(), Suppressions::default());
            let (found, _) = items(session, Metric::Live, Until::End, &filter, &rules, By::Site).unwrap();
            Side::new(session, found, By::Site, same)
        };
        groups(&of(&mut a), &of(&mut b), Rank::Bytes).changes.iter().map(|c| c.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&SameBuilds::default()), []);
    let same = SameBuilds::of(&run(1), &run(1));
    assert_eq!(kinds(&same), [Kind::Gone, Kind::New]);
}

#[test]
fn a_block_that_was_freed_and_made_again_at_its_address_is_gone_and_new() {
    let mut session = Made::default()
        .node(1, 0, "keep", "a.c", 1)
        .node(2, 0, "churn", "a.c", 2)
        .alloc(0, 0x10, 5, 1)
        .alloc(0, 0x100, 40, 2)
        .free(0, 0x100)
        .alloc(0, 0x100, 40, 2)
        .session();
    let (early, _) = live(&mut session, Until::Seqno(1), &Filter::default()).unwrap();
    let (late, _) = live(&mut session, Until::End, &Filter::default()).unwrap();
    let found = highwater_replay::diff(&early, &late);
    let gone = group(&mut session, found.gone.iter().map(Item::from), By::Site);
    let new = group(&mut session, found.new.iter().map(Item::from), By::Site);
    let amount = Amount { bytes: 45, blocks: 2, variance: 0 };
    let diff = blocks(amount, amount, gone, new, found.kept.len());
    assert_eq!(short(&diff), [(Kind::New, "churn (a.c:2)", 40, 1), (Kind::Gone, "churn (a.c:2)", -40, -1)]);
    assert_eq!(diff.unchanged, 1);
}

#[test]
fn each_measure_counts_its_own() {
    let mut session = Made::default()
        .node(1, 0, "f", "a.c", 1)
        .node(2, 0, "g", "a.c", 2)
        .alloc(0, 0x10, 100, 1)
        .alloc(0, 0x100, 60, 2)
        .free(0, 0x100)
        .alloc(0, 0x100, 6, 2)
        .session();
    let mut of = |measure| {
        let side = side_by(&mut session, measure, By::Function);
        let mut all: Vec<_> = side
            .groups
            .iter()
            .map(|(label, _, amount)| (label.clone(), amount.bytes, amount.blocks))
            .collect();
        all.sort();
        all
    };
    let row = |name: &str, bytes, blocks| (name.to_string(), bytes, blocks);
    assert_eq!(of(Metric::Live), [row("f", 100, 1), row("g", 6, 1)]);
    assert_eq!(of(Metric::Leaked), [row("f", 100, 1), row("g", 6, 1)]);
    assert_eq!(of(Metric::Peak), [row("f", 100, 1), row("g", 60, 1)]);
    assert_eq!(of(Metric::Allocated), [row("f", 100, 1), row("g", 66, 2)]);
    assert_eq!(of(Metric::Allocations), [row("f", 100, 1), row("g", 66, 2)]);
    assert_eq!(of(Metric::Temporary), [row("g", 0, 1)]);
}

#[test]
fn totals_of_sites_are_what_their_blocks_add_up_to() {
    let mut session = Made::default()
        .node(1, 0, "f", "a.c", 1)
        .node(2, 0, "g", "a.c", 2)
        .alloc(0, 0x10, 100, 1)
        .alloc(1, 0x100, 60, 2)
        .alloc(1, 0x200, 61, 2)
        .free(0, 0x100)
        .alloc(0, 0x100, 6, 2)
        .session();
    // A filter that everything passes asks for the blocks themselves.
    let mut every = Filter::default();
    every.add("size_min=0").unwrap();
    for metric in [Metric::Live, Metric::Peak, Metric::Allocated, Metric::Allocations, Metric::Leaked] {
        let mut of = |filter: &Filter| {
            let rules = Suppressions::default();
            let (items, _) = items(&mut session, metric, Until::End, filter, &rules, By::Site).unwrap();
            let side = Side::new(&mut session, items, By::Site, &SameBuilds::default());
            let mut rows: Vec<_> = side
                .groups
                .iter()
                .map(|(label, _, amount)| (label.clone(), amount.bytes, amount.blocks))
                .collect();
            rows.sort();
            rows
        };
        let (by_site, by_block) = (of(&Filter::default()), of(&every));
        assert_eq!(by_site, by_block, "{metric:?}");
        assert_eq!(by_site.len(), 2);
    }
}

/// Blocks of a made-up run: function, line, size.
type Run = Vec<(u8, u32, u64)>;

fn made(run: &Run, by: u32) -> Session {
    let mut made = Made::default();
    let mut node = 0;
    for (at, &(function, line, size)) in run.iter().enumerate() {
        node += 1;
        let (name, file) = [("f", "a.c"), ("g", "a.c"), ("f", "b.c"), ("h", "b.c")][usize::from(function)];
        let thread = at as u32 % 3;
        made = made.node(node, 0, name, file, line + by).alloc(thread, 0x1000 * u64::from(node), size, node);
    }
    made.session()
}

fn run() -> impl Strategy<Value = Run> {
    proptest::collection::vec((0u8..4, 1u32..9, 1u64..100), 0..12)
}

fn any_by() -> impl Strategy<Value = By> {
    prop_oneof![
        Just(By::Site),
        Just(By::Stack),
        Just(By::Function),
        Just(By::File),
        Just(By::Module),
        Just(By::Thread),
        Just(By::Api),
        Just(By::Size)
    ]
}

fn compare(before: &mut Session, after: &mut Session, by: By) -> Diff {
    let (a, b) = (side_by(before, Metric::Live, by), side_by(after, Metric::Live, by));
    groups(&a, &b, Rank::Bytes)
}

proptest! {
    #[test]
    fn nothing_has_changed_between_a_run_and_itself(run in run(), by in any_by()) {
        let diff = compare(&mut made(&run, 0), &mut made(&run, 0), by);
        prop_assert_eq!(diff.changes, []);
        prop_assert_eq!(diff.before, diff.after);
    }

    #[test]
    fn the_changes_add_up_to_the_difference(a in run(), b in run(), by in any_by()) {
        let diff = compare(&mut made(&a, 0), &mut made(&b, 0), by);
        let bytes = |run: &Run| run.iter().map(|block| block.2).sum::<u64>();
        prop_assert_eq!((diff.before.bytes, diff.before.blocks), (bytes(&a), a.len() as u64));
        prop_assert_eq!((diff.after.bytes, diff.after.blocks), (bytes(&b), b.len() as u64));
        let sum = diff.changes.iter().map(Change::by).fold((0, 0), |sum, by| (sum.0 + by.0, sum.1 + by.1));
        prop_assert_eq!(sum.0, i128::from(bytes(&b)) - i128::from(bytes(&a)));
        prop_assert_eq!(sum.1, b.len() as i128 - a.len() as i128);
        for change in &diff.changes {
            let fits = match change.kind {
                Kind::New => change.before.blocks == 0 && change.after.blocks > 0,
                Kind::Gone => change.after.blocks == 0 && change.before.blocks > 0,
                Kind::Grown => change.by() > (0, 0),
                Kind::Shrunk => change.by() < (0, 0),
            };
            prop_assert!(fits, "{:?}", change);
        }
        let size = |change: &Change| change.by().0.unsigned_abs();
        prop_assert!(diff.changes.windows(2).all(|pair| size(&pair[0]) >= size(&pair[1])));
    }

    #[test]
    fn the_other_way_round_all_is_mirrored(a in run(), b in run(), by in any_by()) {
        let there = compare(&mut made(&a, 0), &mut made(&b, 0), by);
        let back = compare(&mut made(&b, 0), &mut made(&a, 0), by);
        let turned = |kind| match kind {
            Kind::New => Kind::Gone,
            Kind::Gone => Kind::New,
            Kind::Grown => Kind::Shrunk,
            Kind::Shrunk => Kind::Grown,
        };
        let mut one: Vec<_> = there.changes.iter().map(|c| (c.kind as u8, c.by())).collect();
        let mut other: Vec<_> = back.changes.iter().map(|c| {
            let (bytes, blocks) = c.by();
            (turned(c.kind) as u8, (-bytes, -blocks))
        }).collect();
        one.sort();
        other.sort();
        prop_assert_eq!(one, other);
    }

    #[test]
    fn lines_put_in_above_make_no_difference(run in run(), by in 1u32..40, stacks in any::<bool>()) {
        let by_what = if stacks { By::Stack } else { By::Site };
        let diff = compare(&mut made(&run, 0), &mut made(&run, by), by_what);
        prop_assert_eq!(diff.changes, []);
    }
}
