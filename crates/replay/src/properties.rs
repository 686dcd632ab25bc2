//! Random heaps: the replay against the brute-force [`Model`]. (What happens where
//! the order is not known: see `coarse`.)

use std::convert::Infallible;

use highwater_event::api::ApiKind;
use highwater_trace::left_out::LeftOut;
use highwater_trace::model::{Event, Op, Special, Step};
use proptest::prelude::*;

use crate::model::Model;
use crate::outcome::{RULES, SoFar};
use crate::{ErrorKind, Options, Outcome, Replay, Until};

fn event(seqno: u64, ns: u64, thread: u32, addr: u64, op: Op, api: ApiKind) -> Event {
    Event { seqno, ns, stamp: ns, thread, op, api, addr, node: 0, pair: None }
}

/// Every step in an epoch of its own: the order is the true one.
fn replay(options: Options, steps: &[Step]) -> Replay {
    let mut steps = (0u32..).zip(steps.iter().copied());
    Replay::run(options, || Ok::<_, Infallible>(steps.next())).unwrap()
}

/// All of it in one epoch.
fn replay_unsure(steps: &[Step]) -> Replay {
    let mut steps = steps.iter().copied();
    Replay::run(Options::default(), || Ok::<_, Infallible>(steps.next().map(|step| (0, step)))).unwrap()
}

/// One random decision: what, which address, size, thread, node, how much later.
pub(crate) type Choice = (u8, u8, u16, u8, u8, u8);

pub(crate) fn choices(len: usize) -> impl Strategy<Value = Vec<Choice>> {
    prop::collection::vec((any::<u8>(), 0u8..12, 0u16..300, 0u8..3, 1u8..6, 0u8..3), 0..len)
}

/// A stream with everything that a heap can do wrong.
pub(crate) fn wild(choices: &[Choice]) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut seqno, mut ns) = (0, 0);
    for &(what, slot, size, thread, node, later) in choices {
        ns += u64::from(later);
        let thread = u32::from(thread);
        let addr = 0x1000 + u64::from(slot) * 0x200;
        let size = u64::from(size);
        let alloc = Op::Alloc { size, usable: None };
        let mut push = |addr, op, api, pair| {
            steps.push(Step::Event(Event {
                node: u32::from(node),
                pair,
                ..event(seqno, ns, thread, addr, op, api)
            }));
            seqno += 1;
            seqno - 1
        };
        match what % 16 {
            0..=5 => _ = push(addr, alloc, ApiKind::Malloc, None),
            6..=9 => _ = push(addr, Op::Free, ApiKind::Free, None),
            10 => _ = push(addr, Op::Free, ApiKind::Delete, None),
            // Inside a block, or in none.
            11 if what & 32 == 0 => _ = push(addr + 8, Op::Free, ApiKind::Free, None),
            // Where no program has memory.
            11 => _ = push(0xdead << 48 | addr, Op::Free, ApiKind::Free, None),
            12 => _ = push(0x9000_0000 + addr, Op::Free, ApiKind::Free, None),
            13 | 14 => {
                let to = if what & 64 == 0 { addr } else { addr ^ 0x200 };
                let free = push(addr, Op::Free, ApiKind::ReallocFree, None);
                push(to, alloc, ApiKind::Realloc, Some(free));
            }
            _ => {
                // A failed realloc of a block that is live here or was made before.
                let addr = if live_now(&steps).contains(&addr) { addr } else { 0x9000_0000 + addr };
                let mut push = |addr, op, api| {
                    steps.push(Step::Event(Event {
                        node: u32::from(node),
                        ..event(seqno, ns, thread, addr, op, api)
                    }));
                    seqno += 1;
                    seqno - 1
                };
                let free = push(addr, Op::Free, ApiKind::ReallocFree);
                let what = Special::ReallocUndo { free_seqno: Some(free), addr };
                steps.push(Step::Special { ns, thread, what });
            }
        }
    }
    steps
}

fn live_now(steps: &[Step]) -> Vec<u64> {
    let mut live = Vec::new();
    let mut model = Model::default();
    for step in steps {
        model.feed(step);
    }
    let seqnos = model.live_seqnos();
    for step in steps {
        if let Step::Event(event) = step
            && seqnos.contains(&event.seqno)
        {
            live.push(event.addr);
        }
    }
    live
}

fn check_against_model(steps: &[Step], options: Options) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    for step in steps {
        model.feed(step);
    }
    let replay = replay(options, steps);
    let totals = replay.totals();
    prop_assert_eq!(totals.allocations, model.allocations);
    prop_assert_eq!(totals.frees, model.frees);
    prop_assert_eq!(totals.events, model.allocations + model.frees);
    prop_assert_eq!(totals.reallocations, model.reallocations);
    prop_assert_eq!(totals.temporary, model.temporary);
    prop_assert_eq!((totals.bytes_allocated, totals.bytes_freed), model.bytes);
    prop_assert_eq!(totals.live_bytes, model.live_bytes());
    prop_assert_eq!((totals.peak_blocks, totals.peak_bytes, totals.peak_seqno), model.peak);
    prop_assert_eq!(totals.foreign_frees, model.foreign);
    prop_assert_eq!(totals.missing_frees, model.missing);
    prop_assert_eq!(totals.order_repairs, 0);
    prop_assert_eq!(replay.live_set().iter().map(|b| b.seqno).collect::<Vec<_>>(), model.live_seqnos());
    prop_assert_eq!(
        totals.live_blocks,
        totals.allocations + totals.foreign_frees + totals.double_free + totals.invalid_free
            - totals.frees
            - totals.missing_frees
    );
    let bad: Vec<_> = replay.errors().iter().map(|error| (error.kind.name(), error.free.seqno)).collect();
    let mut expected = model.bad.clone();
    expected.sort_by_key(|bad| bad.1);
    prop_assert_eq!(bad, expected);
    for (node, site) in &model.sites {
        let Some(ours) = replay.site(*node) else {
            prop_assert_eq!(site.allocations, 0);
            continue;
        };
        prop_assert_eq!((ours.allocations, ours.bytes), (site.allocations, site.bytes));
        prop_assert_eq!((ours.frees, ours.temporary), (site.frees, site.temporary));
        prop_assert_eq!((ours.live_blocks, ours.live_bytes), site.live);
        prop_assert_eq!((ours.peak_blocks, ours.peak_bytes), site.peak);
    }
    let at_peak: u64 = replay.sites().map(|site| site.peak_bytes).sum();
    prop_assert_eq!(at_peak, totals.peak_bytes);
    for ours in replay.threads() {
        let thread = &model.threads[&ours.thread];
        prop_assert_eq!((ours.allocations, ours.frees), (thread.allocations, thread.frees));
        prop_assert_eq!((ours.live_blocks, ours.live_bytes), thread.live);
        prop_assert_eq!((ours.peak_bytes, ours.temporary), (thread.peak_bytes, thread.temporary));
    }
    let lifetimes: u64 = replay.lifetimes().buckets().map(|bucket| bucket.count).sum();
    prop_assert_eq!(lifetimes, totals.allocations - totals.live_blocks);
    let sizes: u64 = replay.sizes().buckets().map(|bucket| bucket.sum).sum();
    prop_assert_eq!(sizes, totals.bytes_allocated);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(debug_assertions) { 300 } else { 5_000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn equal_to_the_model(choices in choices(120)) {
        check_against_model(&wild(&choices), Options::default())?;
    }

    #[test]
    fn one_thread_is_exact_in_one_epoch(choices in choices(120)) {
        let single: Vec<Choice> = choices.iter().map(|c| (c.0, c.1, c.2, 0, c.4, c.5)).collect();
        let steps = wild(&single);
        let replay = replay_unsure(&steps);
        let exact = self::replay(Options::default(), &steps);
        prop_assert_eq!(replay.totals(), exact.totals());
        prop_assert_eq!(replay.totals().peak_uncertainty, 0);
        prop_assert_eq!(replay.live_set(), exact.live_set());
        prop_assert_eq!(replay.errors(), exact.errors());
    }

    #[test]
    fn sums_hold_whatever_the_order(choices in choices(120), length in 1u32..40) {
        let steps = wild(&choices);
        let mut stream = (0u32..).zip(steps.iter().copied());
        let replay = Replay::run(Options::default(), || {
            Ok::<_, Infallible>(stream.next().map(|(at, step)| (at / length, step)))
        }).unwrap();
        let totals = replay.totals();
        let live = replay.live_set();
        prop_assert_eq!(totals.live_blocks, live.len() as u64);
        prop_assert_eq!(totals.live_bytes, live.iter().map(|block| block.size).sum::<u64>());
        prop_assert_eq!(totals.live_bytes, totals.bytes_allocated - totals.bytes_freed);
        prop_assert_eq!(replay.sites().map(|site| site.live_bytes).sum::<u64>(), totals.live_bytes);
        prop_assert_eq!(replay.sites().map(|site| site.peak_bytes).sum::<u64>(), totals.peak_bytes);
        prop_assert_eq!(replay.threads().iter().map(|t| t.live_bytes).sum::<u64>(), totals.live_bytes);
        prop_assert_eq!(replay.lifetimes().buckets().map(|b| b.count).sum::<u64>(), totals.allocations - totals.live_blocks);
    }

    #[test]
    fn batches_are_the_same_as_steps(choices in choices(120), length in 1u32..40, most in 1usize..30, slow in 0u32..14) {
        let mut steps = wild(&choices);
        // Up to many points of the series for a batch.
        for step in &mut steps {
            match step {
                Step::Event(event) => event.ns <<= slow,
                Step::Special { ns, .. } => *ns <<= slow,
            }
        }
        let mut one = Replay::new(Options::default());
        let mut many = Replay::new(Options::default());
        let mut batch = highwater_trace::Batch::default();
        for (at, step) in (0u32..).zip(&steps) {
            let epoch = 1 + at / length;
            one.feed_in(epoch, step);
            if batch.epoch != epoch || batch.events.len() >= most {
                many.feed_batch(&batch);
                batch = highwater_trace::Batch { epoch, ..highwater_trace::Batch::default() };
            }
            match step {
                Step::Event(event) => {
                    let Event { seqno, ns, stamp, thread, op, api, addr, node, pair } = *event;
                    let size = if let Op::Alloc { size, .. } = op { size } else { 0 };
                    if batch.events.is_empty() {
                        batch.seqno = seqno;
                    }
                    let paired = op != Op::Free && pair.is_some();
                    batch.events.push(highwater_trace::Brief { ns, stamp, addr, size, node, thread, api, paired });
                }
                Step::Special { .. } => {
                    batch.last = Some(*step);
                    many.feed_batch(&batch);
                    batch = highwater_trace::Batch { epoch, ..highwater_trace::Batch::default() };
                }
            }
        }
        many.feed_batch(&batch);
        one.finish();
        many.finish();
        prop_assert_eq!(one.totals(), many.totals());
        prop_assert_eq!(one.live_set(), many.live_set());
        prop_assert_eq!(one.errors(), many.errors());
        prop_assert_eq!(one.threads(), many.threads());
        prop_assert!(one.sites().eq(many.sites()));
        prop_assert_eq!(one.sizes(), many.sizes());
        prop_assert_eq!(one.lifetimes(), many.lifetimes());
        prop_assert_eq!(one.series().points(), many.series().points());
    }

    #[test]
    fn stopping_early_is_the_same_as_a_shorter_stream(choices in choices(80), stop in 0u64..80) {
        let steps = wild(&choices);
        let mut stream = (0u32..).zip(steps.iter().copied());
        let mut part = Replay::run_until(Options::default(), Until::Seqno(stop), || Ok::<_, Infallible>(stream.next())).unwrap();
        part.finish();
        let end = steps.iter().position(|step| matches!(step, Step::Event(e) if e.seqno > stop));
        let short = replay(Options::default(), &steps[..end.unwrap_or(steps.len())]);
        prop_assert_eq!(part.totals(), short.totals());
        prop_assert_eq!(part.live_set(), short.live_set());
    }

    #[test]
    fn an_outcome_read_back_says_what_the_replay_says(choices in choices(120), rate in 0u64..3, epoch in 1usize..9) {
        let steps = wild(&choices);
        let options = Options { sample: rate * 100, ..Options::default() };
        // With what the order of threads leaves undecided.
        let mut given = steps.iter().enumerate().map(|(at, step)| ((at / epoch) as u32, *step));
        let mut replay = Replay::run(options.clone(), || Ok::<_, Infallible>(given.next())).unwrap();
        replay.add_left_out(&[
            LeftOut::Site { node: 900, blocks: 3, bytes: 70, temporary: -1 },
            LeftOut::Pairs { array: true, count: 2 },
            LeftOut::Unseen { bytes: 5 },
        ]);
        let bytes = replay.outcome().encode(&options);
        let found = Outcome::decode(&bytes, &options).unwrap();
        prop_assert_eq!(&found, &replay.outcome());
        prop_assert_eq!(found.totals(), &replay.totals());
        prop_assert_eq!(found.threads(), replay.threads());
        prop_assert_eq!(found.errors(), replay.errors());
        prop_assert_eq!(found.sizes(), replay.sizes());
        prop_assert_eq!(found.lifetimes(), replay.lifetimes());
        prop_assert_eq!(found.series(), replay.series());
        let numbers = |s: &crate::SiteTotals| (
            [s.allocations, s.bytes, s.frees, s.temporary, s.live_blocks, s.live_bytes, s.peak_blocks, s.peak_bytes],
            [u64::from(s.node), s.variance, s.live_variance, s.peak_variance],
        );
        let ours: Vec<_> = found.sites().iter().map(numbers).collect();
        prop_assert_eq!(ours, replay.sites().map(|site| numbers(&site)).collect::<Vec<_>>());
    }

    #[test]
    fn bytes_that_are_no_outcome_are_none(choices in choices(40), place in any::<u16>(), bits in 1u8.., noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let options = Options::default();
        let bytes = replay(options.clone(), &wild(&choices)).outcome().encode(&options);
        let place = usize::from(place) % bytes.len();
        prop_assert_eq!(Outcome::decode(&bytes[..place], &options), None);
        prop_assert_eq!(Outcome::decode(&[&bytes[..], &[0]].concat(), &options), None);
        // A wrong number may be a number; it must not be more than that.
        let mut wrong = bytes.clone();
        wrong[place] ^= bits;
        for bytes in [wrong, noise] {
            if let Some(found) = Outcome::decode(&bytes, &options) {
                prop_assert!(found.sites().len() <= bytes.len() && found.series().width_ns() > 0);
                prop_assert!(found.encode(&options).len() <= bytes.len());
            }
        }
    }

    #[test]
    fn what_was_counted_so_far_is_read_back_or_is_nothing(choices in choices(60), place in any::<u16>(), bits in 1u8.., noise in prop::collection::vec(any::<u8>(), 0..300)) {
        let options = Options::default();
        let so_far = replay(options.clone(), &wild(&choices)).so_far();
        let bytes = so_far.clone().encode(&options);
        prop_assert_eq!(SoFar::decode(&bytes, &options), Some(so_far));
        let place = usize::from(place) % bytes.len();
        prop_assert_eq!(SoFar::decode(&bytes[..place], &options), None);
        prop_assert_eq!(SoFar::decode(&[&bytes[..], &[0]].concat(), &options), None);
        prop_assert_eq!(SoFar::decode(&bytes, &Options { sample: 1, ..Options::default() }), None);
        let mut wrong = bytes.clone();
        wrong[place] ^= bits;
        for bytes in [wrong, noise] {
            if let Some(found) = SoFar::decode(&bytes, &options) {
                prop_assert!(found.encode(&options).len() <= bytes.len());
            }
        }
    }

    #[test]
    fn a_short_memory_only_turns_double_frees_into_foreign_ones(choices in choices(120)) {
        let steps = wild(&choices);
        let full = replay(Options::default(), &steps);
        let short = replay(Options { remember_freed: 2, ..Options::default() }, &steps);
        prop_assert_eq!(full.live_set(), short.live_set());
        prop_assert!(short.totals().double_free <= full.totals().double_free);
    }
}

fn at(seqno: u64, thread: u32, addr: u64, op: Op) -> Step {
    let api = if op == Op::Free { ApiKind::Free } else { ApiKind::Malloc };
    Step::Event(event(seqno, seqno * 10, thread, addr, op, api))
}

fn alloc(size: u64) -> Op {
    Op::Alloc { size, usable: None }
}

#[test]
fn a_double_free_names_both_frees_and_the_block() {
    let steps = [at(0, 0, 64, alloc(10)), at(1, 0, 64, Op::Free), at(2, 0, 64, Op::Free)];
    let replay = replay(Options::default(), &steps);
    let [error] = replay.errors() else { panic!("{:?}", replay.errors()) };
    assert_eq!(error.kind, ErrorKind::DoubleFree);
    assert_eq!((error.addr, error.free.seqno, error.free.ns), (64, 2, 20));
    assert_eq!(error.allocated.map(|record| (record.seqno, record.size)), Some((0, 10)));
    assert_eq!(error.freed.map(|record| record.seqno), Some(1));
}

#[test]
fn an_interior_pointer_names_the_block_around_it() {
    let steps = [at(0, 0, 64, alloc(100)), at(1, 0, 96, Op::Free), at(2, 0, 64, Op::Free)];
    let replay = replay(Options::default(), &steps);
    let [error] = replay.errors() else { panic!("{:?}", replay.errors()) };
    assert_eq!((error.kind, error.addr), (ErrorKind::InvalidFree, 96));
    assert_eq!(error.allocated.map(|record| record.addr), Some(64));
    assert_eq!(replay.totals().live_blocks, 0);
}

#[test]
fn a_free_before_its_alloc_is_put_right() {
    let steps = [at(0, 1, 64, Op::Free), at(1, 0, 64, alloc(100))];
    let totals = replay_unsure(&steps).totals();
    assert_eq!((totals.order_repairs, totals.live_blocks, totals.foreign_frees), (1, 0, 0));
    assert_eq!((totals.allocations, totals.frees, totals.peak_bytes), (1, 1, 100));
    // In epochs of their own they are what they seem.
    let totals = replay(Options::default(), &steps).totals();
    assert_eq!((totals.order_repairs, totals.live_blocks, totals.foreign_frees), (0, 1, 1));
}

#[test]
fn an_alloc_before_the_free_of_the_block_before_is_put_right() {
    let steps = [at(0, 0, 64, alloc(100)), at(1, 1, 64, alloc(7)), at(2, 0, 64, Op::Free)];
    let replay = replay_unsure(&steps);
    let totals = replay.totals();
    assert_eq!((totals.order_repairs, totals.live_bytes, totals.missing_frees), (1, 7, 0));
    assert_eq!(replay.live_set()[0].seqno, 1);
}

#[test]
fn a_double_free_is_found_among_other_threads_events() {
    // Thread 1's second free has no alloc to go with, whatever the order.
    let steps =
        [at(0, 0, 64, alloc(100)), at(1, 1, 64, Op::Free), at(2, 1, 64, Op::Free), at(3, 1, 64, alloc(7))];
    let replay = replay_unsure(&steps);
    let totals = replay.totals();
    assert_eq!((totals.double_free, totals.order_repairs, totals.live_bytes), (1, 0, 7));
    assert_eq!(replay.errors()[0].free.seqno, 2);
}

#[test]
fn an_epoch_without_end_is_cut() {
    let mut steps = vec![at(0, 1, 64, Op::Free)];
    let many = crate::contest::LONGEST_EPOCH as u64 + 1;
    steps.extend((1..many).map(|seqno| at(seqno, 0, 4096 + seqno * 64, alloc(1))));
    steps.push(at(many, 0, 64, alloc(100)));
    let totals = replay_unsure(&steps).totals();
    assert_eq!((totals.order_repairs, totals.live_blocks, totals.foreign_frees), (0, many, 1));
}

#[test]
fn a_mismatched_free_is_an_error_and_still_a_free() {
    let mut delete = event(1, 10, 0, 64, Op::Free, ApiKind::DeleteArray);
    delete.node = 9;
    let steps = [at(0, 0, 64, alloc(10)), Step::Event(delete)];
    let replay = replay(Options::default(), &steps);
    assert_eq!((replay.totals().mismatched, replay.totals().live_blocks), (1, 0));
    assert_eq!(replay.errors()[0].free.node, 9);
}

#[test]
fn usable_sizes_are_kept_for_live_blocks() {
    let steps = [
        at(0, 0, 64, Op::Alloc { size: 10, usable: Some(24) }),
        at(1, 0, 128, Op::Alloc { size: 10, usable: Some(40) }),
        at(2, 0, 64, Op::Free),
    ];
    let live = replay(Options::default(), &steps).live_set();
    assert_eq!(live.iter().map(|block| block.usable).collect::<Vec<_>>(), [Some(40)]);
}

#[test]
fn losses_and_stalls_add_up() {
    let special = |what| Step::Special { ns: 1, thread: 0, what };
    let steps = [
        special(Special::Dropped { count: 3 }),
        special(Special::Stalled { ns: 7 }),
        special(Special::Dropped { count: 4 }),
    ];
    let totals = replay(Options::default(), &steps).totals();
    assert_eq!((totals.dropped, totals.stalled_ns), (7, 7));
}

#[test]
fn an_outcome_with_other_options_is_not_used() {
    let options = Options::default();
    let bytes = Replay::new(options.clone()).outcome().encode(&options);
    assert!(Outcome::decode(&bytes, &options).is_some());
    assert_eq!(Outcome::decode(&bytes, &Options { sample: 1, ..options.clone() }), None);
    assert_eq!(Outcome::decode(&bytes, &Options { remember_freed: 1, ..options }), None);
}

#[test]
fn a_list_longer_than_its_bytes_takes_no_memory() {
    let options = Options::default();
    let bytes = Replay::new(options.clone()).outcome().encode(&options);
    // The numbers of threads, sites and errors: the first three behind the totals.
    let lists = bytes.len() - 2 * 130 - 2 - 3;
    for at in lists..lists + 3 {
        assert_eq!(bytes[at], 0);
        let mut wrong = bytes.clone();
        wrong.splice(at..=at, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        assert_eq!(Outcome::decode(&wrong, &options), None);
    }
}

/// Fails when a replay counts anything differently, or an outcome is stored
/// differently: then raise [`RULES`], so that traces are replayed anew, and put the
/// new sum here.
#[test]
fn the_rules_have_the_version_that_they_had() {
    let mut random = 7u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % limit
    };
    let choices: Vec<Choice> = (0..3000)
        .map(|_| {
            let (what, slot, size) = (below(256) as u8, below(12) as u8, below(300) as u16);
            (what, slot, size, below(3) as u8, 1 + below(5) as u8, below(3) as u8)
        })
        .collect();
    let steps = wild(&choices);
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    // Estimates are left out: their last digit is the mathematical library's.
    for epoch in [1, 7, 5000] {
        let options = Options::default();
        let mut given = steps.iter().enumerate().map(|(at, step)| ((at / epoch) as u32, *step));
        let replay = Replay::run(options.clone(), || Ok::<_, Infallible>(given.next())).unwrap();
        let totals = replay.totals();
        assert!(totals.errors() > 100 && totals.foreign_frees > 0 && totals.temporary > 0);
        for byte in replay.outcome().encode(&options) {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    assert_eq!((RULES, sum), (2, 9_144_423_618_263_162_351));
}

/// A realloc of a sampled block failed, and the frees that it stood for were taken back
/// from those of another entry point: fewer than none, for a moment.
#[test]
fn of_a_sample_more_frees_were_taken_back_than_there_had_been() {
    #[rustfmt::skip]
    let choices = [
        (45, 0, 0, 0, 1, 0), (0, 0, 0, 0, 1, 0), (48, 0, 0, 0, 1, 0), (16, 0, 0, 0, 1, 0),
        (0, 0, 0, 0, 1, 0), (109, 2, 0, 0, 1, 0), (79, 0, 0, 0, 1, 0), (0, 0, 0, 0, 1, 0),
        (32, 0, 0, 0, 1, 0), (48, 0, 0, 0, 1, 0), (80, 0, 0, 0, 1, 0), (112, 0, 0, 0, 1, 0),
        (48, 0, 0, 0, 1, 0), (48, 0, 0, 0, 1, 0), (0, 0, 0, 0, 1, 0), (0, 0, 0, 0, 1, 0),
        (80, 0, 0, 0, 1, 0), (0, 0, 0, 0, 1, 0), (0, 0, 0, 0, 1, 0), (0, 0, 0, 0, 1, 0),
        (0, 0, 0, 0, 1, 0), (77, 1, 0, 0, 1, 0), (0, 0, 0, 0, 1, 0), (13, 1, 0, 0, 1, 0),
        (32, 0, 0, 0, 1, 0), (173, 2, 0, 0, 1, 0), (16, 0, 0, 0, 1, 0), (16, 1, 6, 0, 1, 0),
        (77, 4, 0, 0, 1, 0), (48, 2, 0, 0, 1, 0), (48, 1, 107, 0, 1, 0), (15, 1, 0, 1, 1, 0),
        (79, 0, 0, 0, 1, 0), (32, 0, 96, 0, 1, 0), (0, 0, 0, 0, 1, 0), (15, 0, 0, 0, 1, 0),
        (0, 0, 0, 0, 1, 0), (0, 0, 0, 0, 1, 0), (0, 0, 0, 0, 1, 0), (191, 0, 0, 0, 1, 0),
        (22, 4, 0, 0, 1, 0), (32, 0, 74, 0, 1, 0), (128, 3, 40, 0, 1, 0), (0, 0, 105, 0, 1, 0),
        (0, 0, 60, 0, 1, 0), (175, 0, 0, 0, 1, 0), (77, 7, 55, 0, 1, 0), (191, 0, 0, 0, 1, 0),
        (13, 6, 0, 0, 1, 0), (6, 1, 3, 1, 2, 1), (167, 9, 31, 2, 2, 2), (174, 3, 289, 1, 1, 1),
        (46, 0, 73, 0, 2, 1), (234, 0, 165, 2, 2, 0), (205, 0, 219, 2, 1, 1), (125, 10, 111, 2, 1, 0),
    ];
    let steps = wild(&choices);
    let mut given = steps.iter().enumerate().map(|(at, step)| ((at / 3) as u32, *step));
    let options = Options { sample: 100, ..Options::default() };
    let replay = Replay::run(options, || Ok::<_, Infallible>(given.next())).unwrap();
    assert!(!replay.totals().calls().is_empty());
}
