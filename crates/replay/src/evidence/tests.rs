use std::collections::BTreeMap;
use std::convert::Infallible;

use highwater_event::api::ApiKind;
use highwater_trace::model::{Event, Op, Step};
use proptest::prelude::*;

use super::lifetimes::{bucket, class, stale_age};
use super::*;
use crate::properties::{Choice, choices, wild};
use crate::replay::{Options, Until};

/// Replays with epochs of so many steps while evidence is collected.
fn collect(steps: &[Step], epoch: usize, options: &Options, slicing: Slicing) -> (Replay, Evidence) {
    let mut collector = Collector::new(slicing);
    let mut heap = Replay::new(options.clone());
    for (at, step) in steps.iter().enumerate() {
        heap.feed_watched((at / epoch) as u32, step, &mut collector);
    }
    heap.finish();
    let mut evidence = collector.finish(&heap, true).unwrap();
    if let Some(seqno) = evidence.needs() {
        evidence.hold(&until(steps, options, seqno));
    }
    (heap, evidence)
}

fn until(steps: &[Step], options: &Options, seqno: u64) -> Replay {
    let mut steps = (0u32..).zip(steps.iter().copied());
    Replay::run_until(options.clone(), Until::Seqno(seqno), || Ok::<_, Infallible>(steps.next())).unwrap()
}

/// A program that works, and gives back `end` of its blocks in the end: stacks make, free
/// and resize. With one thread there is no doubt about anything.
fn program(events: u64, end: usize, seed: u64) -> Vec<Step> {
    let mut random = seed;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % limit
    };
    let mut steps: Vec<Step> = Vec::new();
    let mut live: Vec<(u64, u32)> = Vec::new();
    let mut push = |addr, node, op, api, pair| {
        let seqno = steps.len() as u64;
        let ns = seqno * 1000 + 7;
        let event = Event { seqno, ns, stamp: ns, thread: 0, op, api, addr, node, pair };
        steps.push(Step::Event(event));
        seqno
    };
    for at in 0..events {
        let place = below(live.len().max(1) as u64) as usize;
        let (addr, node) = (0x1000 + at * 0x100, 1 + (below(5) * below(5)) as u32);
        let alloc = Op::Alloc { size: below(90), usable: None };
        match (below(9), live.get(place).copied()) {
            (0..5, _) | (_, None) => {
                push(addr, node, alloc, ApiKind::Malloc, None);
                live.push((addr, node));
            }
            // The stack that resizes a block has made it.
            (5, Some((old, node))) => {
                let half = push(old, node, Op::Free, ApiKind::ReallocFree, None);
                push(addr, node, alloc, ApiKind::Realloc, Some(half));
                live[place].0 = addr;
            }
            (_, Some((old, _))) => {
                push(old, node, Op::Free, ApiKind::Free, None);
                live.swap_remove(place);
            }
        }
    }
    for (addr, _) in live.into_iter().take(end) {
        push(addr, 0, Op::Free, ApiKind::Free, None);
    }
    steps
}

/// Blocks and bytes of each stack after each event.
fn levels(steps: &[Step], options: &Options) -> Vec<BTreeMap<u32, (u64, u64)>> {
    let mut heap = Replay::new(options.clone());
    let after = (0u32..).zip(steps).map(|(at, step)| {
        heap.feed_in(at, step);
        heap.sites().map(|site| (site.node, (site.live_blocks, site.live_bytes))).collect()
    });
    after.collect()
}

#[track_caller]
fn check(steps: &[Step], options: &Options, slicing: Slicing) -> Evidence {
    let (heap, evidence) = collect(steps, 1, options, slicing);
    let levels = levels(steps, options);
    let event = |at: usize| match &steps[at] {
        Step::Event(event) => *event,
        step @ Step::Special { .. } => panic!("{step:?}"),
    };
    let totals: Vec<_> = heap.sites().collect();
    assert_eq!(totals.len(), evidence.sites.len());
    for (number, (site, totals)) in evidence.sites.iter().zip(&totals).enumerate() {
        let points = evidence.points(number as u32);
        let sum = |of: fn(&Point) -> u32| points.iter().map(|point| u64::from(of(point))).sum::<u64>();
        assert_eq!((sum(|p| p.born), sum(|p| p.freed)), (totals.allocations, totals.frees));
        let level = |at: usize| levels[at].get(&totals.node).copied().unwrap_or_default();
        let (mut from, mut given) = (0usize, points.iter().peekable());
        for (slice, end) in evidence.slices.iter().enumerate() {
            let to = end.seqno as usize + 1;
            let before = from.checked_sub(1).map_or((0, 0), level);
            let Some(point) = given.next_if(|point| point.slice as usize == slice) else {
                assert!((from..to).all(|at| level(at) == before), "{slice}");
                from = to;
                continue;
            };
            assert_eq!((point.blocks, point.bytes), level(to - 1), "{slice}");
            // Between the halves of a realloc nothing is given back.
            let whole = (from..to).filter(|&at| event(at).api != ApiKind::ReallocFree).map(level);
            let low = whole.fold(before, |low, at| (low.0.min(at.0), low.1.min(at.1)));
            assert_eq!((point.low_blocks, point.low_bytes), low, "{slice}");
            from = to;
        }
        assert!(given.next().is_none());
        let sizes = steps.iter().filter_map(|step| match step {
            Step::Event(Event { op: Op::Alloc { size, .. }, node, .. }) if *node == totals.node => {
                Some(*size)
            }
            _ => None,
        });
        assert_eq!(site.sizes, (sizes.clone().min().unwrap(), sizes.max().unwrap()));
    }
    // The judged blocks.
    let judged = until(steps, options, evidence.now_seqno);
    let mut wanted: BTreeMap<u32, Held> = BTreeMap::new();
    for block in judged.live_set() {
        let weight = heap.weight(block.size, block.seqno);
        let slice = evidence.slices.iter().position(|slice| block.seqno <= slice.seqno).unwrap();
        let new = Held { oldest_ns: u64::MAX, ..Held::default() };
        let class = class(evidence.now_ns - block.ns);
        wanted.entry(block.node).or_insert(new).add(slice as u32, class, block.ns, &weight);
    }
    for (site, totals) in evidence.sites.iter().zip(&totals) {
        assert_eq!(site.held.as_deref(), wanted.get(&totals.node), "{}", totals.node);
        if let Some(held) = &site.held {
            assert!(held.births.windows(2).all(|pair| pair[0].0 < pair[1].0));
            assert_eq!(held.births.iter().map(|birth| birth.1).sum::<u64>(), held.blocks);
            assert_eq!(held.ages.iter().map(|aged| aged.bytes).sum::<u64>(), held.bytes);
        }
    }
    assert_eq!(evidence.now_ns, judged.totals().last_ns);
    assert!(evidence.last_slice as usize <= evidence.slices.len());
    evidence
}

#[test]
fn evidence_is_what_a_heap_went_through() {
    for seed in 0..6 {
        // Slices join at 2,048 events, and at twice that.
        let events = [300, 2100, 4200][seed as usize % 3];
        let steps = program(events, [0, 40, usize::MAX][seed as usize / 2], seed);
        for slicing in [Slicing::Events, Slicing::Period(70_000)] {
            for sample in [0, 300] {
                let options = Options { sample, ..Options::default() };
                let evidence = check(&steps, &options, slicing);
                assert_eq!(evidence.tidied, seed >= 2);
                if slicing == Slicing::Events && events > 300 {
                    assert!((64..=128).contains(&evidence.slices.len()), "{}", evidence.slices.len());
                }
            }
        }
    }
}

#[test]
fn an_end_that_frees_more_than_is_remembered_is_looked_at_again() {
    let steps = program(5000, usize::MAX, 3);
    let (_, whole) = collect(&steps, 1, &Options::default(), Slicing::Events);
    let few = Options { remember_freed: 50, ..Options::default() };
    let mut collector = Collector::in_passing();
    let mut heap = Replay::new(few.clone());
    for (at, step) in (0u32..).zip(&steps) {
        heap.feed_watched(at, step, &mut collector);
    }
    heap.finish();
    let mut again = collector.finish(&heap, true).unwrap();
    assert_eq!((again.needs(), again.encode(&few)), (Some(whole.now_seqno), None));
    assert!(whole.tidied && whole.sites.iter().any(|site| site.held.is_some()));
    assert!(again.sites.iter().all(|site| site.held.is_none()));
    again.hold(&until(&steps, &few, whole.now_seqno));
    assert_eq!(again, whole);
}

#[test]
fn who_comes_by_gives_up_where_stacks_are_many() {
    let event = |seqno, node| {
        let (op, api) = (Op::Alloc { size: 8, usable: None }, ApiKind::Malloc);
        let addr = 16 + seqno * 16;
        Step::Event(Event { seqno, ns: seqno, stamp: seqno, thread: 0, op, api, addr, node, pair: None })
    };
    for (stacks, gives_up) in [(1 << 14, false), ((1 << 14) + 1, true)] {
        let (mut passing, mut asked) = (Collector::in_passing(), Collector::new(Slicing::Events));
        let mut heap = Replay::new(Options::default());
        for at in 0..stacks {
            let mut both = crate::watch::Both(&mut passing, &mut asked);
            heap.feed_watched(at, &event(u64::from(at), at + 1), &mut both);
        }
        heap.finish();
        assert_eq!(passing.finish(&heap, true).is_none(), gives_up);
        assert_eq!(asked.finish(&heap, true).unwrap().sites.len(), stacks as usize);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever goes wrong in a heap.
    #[test]
    fn evidence_is_read_as_it_was_stored(
        choices in choices(900), epoch in 1usize..60, sample in prop::sample::select(vec![0u64, 100]),
    ) {
        let options = Options { sample, ..Options::default() };
        let (heap, evidence) = collect(&wild(&choices), epoch, &options, Slicing::Events);
        let bytes = evidence.encode(&options).unwrap();
        let sites = heap.sites().count();
        prop_assert_eq!(Evidence::decode(&bytes, &options, sites), Some(evidence.clone()));
        // Not of this trace, not by these options, not whole.
        if !evidence.sites.is_empty() {
            prop_assert_eq!(Evidence::decode(&bytes, &options, evidence.sites.len() - 1), None);
        }
        let other = Options { remember_freed: 7, ..options.clone() };
        prop_assert_eq!(Evidence::decode(&bytes, &other, sites), None);
        for cut in 0..bytes.len() {
            prop_assert_eq!(Evidence::decode(&bytes[..cut], &options, sites), None);
        }
    }

    #[test]
    fn damaged_evidence_is_none_or_some_that_makes_sense(
        choices in choices(300), at in any::<prop::sample::Index>(), flip in 1u8..,
    ) {
        let options = Options::default();
        let (_, evidence) = collect(&wild(&choices), 5, &options, Slicing::Events);
        let mut bytes = evidence.encode(&options).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Some(other) = Evidence::decode(&bytes, &options, 50) {
            let slices = other.slices.len() as u32;
            prop_assert!(other.last_slice < slices.max(1) && other.sites.len() <= 50);
            for (number, site) in (0u32..).zip(&other.sites) {
                prop_assert!(other.points(number).iter().all(|point| point.slice < slices && point.site == number));
                prop_assert!(other.lived(number).buckets.iter().all(|bucket| bucket.0 < 64));
                let held = site.held.iter();
                prop_assert!(held.flat_map(|held| &held.births).all(|birth| birth.0 <= slices));
            }
            prop_assert!(other.encode(&options).is_some());
        }
    }
}

#[test]
fn a_list_that_claims_to_be_long_takes_no_memory() {
    let options = Options::default();
    let bytes = Evidence::default().encode(&options).unwrap();
    // The number of stacks stands last.
    for sites in [usize::MAX, 1 << 40] {
        let mut wrong = bytes[..bytes.len() - 1].to_vec();
        wrong.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        assert_eq!(Evidence::decode(&wrong, &options, sites), None);
    }
}

/// Fails when evidence counts anything differently, or is stored differently: then raise
/// [`RULES`], so that it is collected anew, and put the new sum here.
#[test]
fn the_rules_of_evidence_have_the_version_that_they_had() {
    let mut random = 9u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % limit
    };
    let choices: Vec<Choice> = (0..6000)
        .map(|_| {
            let (what, slot, size) = (below(256) as u8, below(12) as u8, below(300) as u16);
            (what, slot, size, below(3) as u8, 1 + below(5) as u8, below(3) as u8)
        })
        .collect();
    let options = Options::default();
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for (steps, epoch) in [(wild(&choices), 1), (wild(&choices), 70), (program(6000, usize::MAX, 1), 1)] {
        for byte in collect(&steps, epoch, &options, Slicing::Events).1.encode(&options).unwrap() {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    assert_eq!((RULES, bucket(99), stale_age(7), sum), (1, 7, 508, 4_687_093_882_979_330_054));
}
