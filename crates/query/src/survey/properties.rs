//! Every count, for random streams, windows, filters and groupings, against a
//! model that keeps every block for ever and looks at all of them each time.

use std::collections::BTreeMap;

use highwater_event::api::ApiKind;
use highwater_replay::Until;
use highwater_trace::model::{Op, Special};
use proptest::prelude::*;

use super::{Ask, Survey};
use crate::filter::{Filter, Subject};
use crate::group::{By, Metric, group};
use crate::session::Session;
use crate::session::made::Made;
use crate::sort::{self, SortOrder};
use crate::walk::{Met, Walk};

#[derive(Clone, Copy, Debug)]
enum Act {
    /// Also where a block is alive: then its free was not seen.
    Alloc {
        slot: u8,
        size: u16,
        thread: u8,
        node: u8,
        new: bool,
    },
    /// Also where none is.
    Free {
        slot: u8,
        thread: u8,
        node: u8,
    },
    Realloc {
        from: u8,
        to: u8,
        size: u16,
        thread: u8,
        fails: bool,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let (slot, size, thread, node) = (0..8u8, 0..300u16, 0..3u8, 1..4u8);
    prop_oneof![
        4 => (slot.clone(), size.clone(), thread.clone(), node.clone(), any::<bool>())
            .prop_map(|(slot, size, thread, node, new)| Act::Alloc { slot, size, thread, node, new }),
        4 => (slot.clone(), thread.clone(), node).prop_map(|(slot, thread, node)| Act::Free { slot, thread, node }),
        2 => (slot.clone(), slot, size, thread, any::<bool>())
            .prop_map(|(from, to, size, thread, fails)| Act::Realloc { from, to, size, thread, fails }),
    ]
}

/// A condition of `-F`, told to the model in its own words.
#[derive(Clone, Copy, Debug)]
enum Cond {
    Size(u16, u16),
    NotSize(u16, u16),
    Thread(u8, bool),
    Seqno(u8, u8),
    Time(u8, u8),
    New(bool),
    Function(bool),
    Site(bool),
    Phase(bool),
    Lifetime(u8, u8),
    Class(u16),
}

fn cond() -> impl Strategy<Value = Cond> {
    let pair = |most: u8| (0..most, 0..most).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let sizes = (0..300u16, 0..300u16).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        sizes.clone().prop_map(|(a, b)| Cond::Size(a, b)),
        sizes.prop_map(|(a, b)| Cond::NotSize(a, b)),
        (0..3u8, any::<bool>()).prop_map(|(thread, not)| Cond::Thread(thread, not)),
        pair(90).prop_map(|(a, b)| Cond::Seqno(a, b)),
        pair(90).prop_map(|(a, b)| Cond::Time(a, b)),
        any::<bool>().prop_map(Cond::New),
        any::<bool>().prop_map(Cond::Function),
        any::<bool>().prop_map(Cond::Site),
        any::<bool>().prop_map(Cond::Phase),
        pair(40).prop_map(|(a, b)| Cond::Lifetime(a, b)),
        (0..300u16).prop_map(Cond::Class),
    ]
}

const TICK: u64 = 10_000_000;
const PHASE_A: u64 = 15 * TICK;
const PHASE_B: u64 = 40 * TICK + 5;

impl Cond {
    fn text(self) -> String {
        let not = |not: bool| if not { "!" } else { "" };
        match self {
            Cond::Size(a, b) => format!("size={a}..{b}"),
            Cond::NotSize(a, b) => format!("size!={a}..{b}"),
            Cond::Thread(thread, no) => format!("thread{}={thread}", not(no)),
            Cond::Seqno(a, b) => format!("seqno={a}..{b}"),
            Cond::Time(a, b) => format!("time={}ms..{}ms", u64::from(a) * 10, u64::from(b) * 10),
            Cond::New(no) => format!("api{}=new,delete", not(no)),
            Cond::Function(no) => format!("function{}=parse", not(no)),
            Cond::Site(no) => format!("site{}=load", not(no)),
            Cond::Phase(no) => format!("phase{}=B", not(no)),
            Cond::Lifetime(a, b) => format!("lifetime={}ms..{}ms", u64::from(a) * 10, u64::from(b) * 10),
            Cond::Class(size) => format!("class={size}"),
        }
    }

    fn holds(self, of: &Thing, model: &Model) -> bool {
        let bits = |size: u64| 64 - size.leading_zeros();
        let within = |value: u64, a: u16, b: u16| (u64::from(a)..=u64::from(b)).contains(&value);
        match self {
            Cond::Size(a, b) => of.size.is_some_and(|size| within(size, a, b)),
            Cond::NotSize(a, b) => of.size.is_some_and(|size| !within(size, a, b)),
            Cond::Thread(thread, no) => (of.thread == u32::from(thread)) != no,
            Cond::Seqno(a, b) => within(of.seqno, a.into(), b.into()),
            Cond::Time(a, b) => (u64::from(a) * TICK..=u64::from(b) * TICK).contains(&of.ns),
            Cond::New(no) => matches!(of.api, ApiKind::New | ApiKind::Delete) != no,
            Cond::Function(no) => (of.node == 2) != no,
            Cond::Site(no) => (of.node == 3) != no,
            Cond::Phase(no) => (of.ns > PHASE_B) != no,
            Cond::Lifetime(a, b) => of.block.is_some_and(|at| {
                let block = &model.blocks[at];
                let end = block.ended.map_or(model.last_ns, |(_, ns)| ns);
                (u64::from(a) * TICK..=u64::from(b) * TICK).contains(&(end - block.thing.ns))
            }),
            Cond::Class(size) => of.size.is_some_and(|other| bits(other) == bits(size.into())),
        }
    }
}

/// An event or a block, as a filter sees it.
#[derive(Clone, Copy, Debug)]
struct Thing {
    seqno: u64,
    ns: u64,
    size: Option<u64>,
    thread: u32,
    api: ApiKind,
    node: u32,
    block: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    thing: Thing,
    addr: u64,
    /// Seqno and time of what ended it.
    ended: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    thing: Thing,
    alloc: bool,
    pair: bool,
    /// Of an alloc: the block that it displaced.
    lost: Option<usize>,
    temporary: bool,
}

#[derive(Clone, Debug, Default)]
struct Model {
    blocks: Vec<Block>,
    events: Vec<Event>,
    last_ns: u64,
    seqno: u64,
}

impl Model {
    fn at(&self, addr: u64) -> Option<usize> {
        self.blocks.iter().position(|block| block.addr == addr && block.ended.is_none())
    }

    fn thing(&mut self, thread: u8, api: ApiKind, node: u8) -> Thing {
        self.seqno += 1;
        let seqno = self.seqno - 1;
        self.last_ns = self.seqno * TICK;
        let (thread, node) = (thread.into(), node.into());
        Thing { seqno, ns: self.last_ns, size: None, thread, api, node, block: None }
    }

    fn alloc(&mut self, thing: Thing, addr: u64, size: u16, pair: bool) {
        let lost = self.at(addr);
        if let Some(lost) = lost {
            self.blocks[lost].ended = Some((thing.seqno, thing.ns));
        }
        let thing = Thing { size: Some(size.into()), block: Some(self.blocks.len()), ..thing };
        self.blocks.push(Block { thing, addr, ended: None });
        self.events.push(Event { thing, alloc: true, pair, lost, temporary: false });
    }

    fn free(&mut self, thing: Thing, addr: u64) {
        let block = self.at(addr);
        let mut temporary = false;
        if let Some(at) = block {
            self.blocks[at].ended = Some((thing.seqno, thing.ns));
            let mine = self.events.iter().filter(|event| event.alloc && event.thing.thread == thing.thread);
            let last = mine.map(|event| event.thing.seqno).max();
            temporary =
                self.blocks[at].thing.thread == thing.thread && last == Some(self.blocks[at].thing.seqno);
        }
        let size = block.and_then(|at| self.blocks[at].thing.size);
        let thing = Thing { size, block, ..thing };
        self.events.push(Event { thing, alloc: false, pair: false, lost: None, temporary });
    }

    /// Is a block alive when the first `until` events have happened?
    fn alive(&self, block: &Block, until: u64) -> bool {
        block.thing.seqno < until && block.ended.is_none_or(|(seqno, _)| seqno >= until)
    }
}

fn play(acts: &[Act]) -> (Session, Model) {
    let mut made = Made::default()
        .thread(0, 10, "main")
        .thread(1, 11, "one")
        .thread(2, 12, "two")
        .node(1, 0, "main", "a.c", 1)
        .node(2, 1, "parse", "b.c", 2)
        .node(3, 1, "load", "b.c", 9)
        .mark("B", PHASE_B)
        .mark("A", PHASE_A);
    let mut model = Model::default();
    let addr = |slot: u8| 64 * (1 + u64::from(slot));
    let op = |size: u16| Op::Alloc { size: size.into(), usable: None };
    for act in acts {
        match *act {
            Act::Alloc { slot, size, thread, node, new } => {
                let api = if new { ApiKind::New } else { ApiKind::Malloc };
                made = made.event(thread.into(), addr(slot), op(size), api, node.into(), None);
                let thing = model.thing(thread, api, node);
                model.alloc(thing, addr(slot), size, false);
            }
            Act::Free { slot, thread, node } => {
                // Of the right family where there is a block.
                let new = model.at(addr(slot)).is_some_and(|at| model.blocks[at].thing.api == ApiKind::New);
                let api = if new { ApiKind::Delete } else { ApiKind::Free };
                made = made.event(thread.into(), addr(slot), Op::Free, api, node.into(), None);
                let thing = model.thing(thread, api, node);
                model.free(thing, addr(slot));
            }
            Act::Realloc { from, to, size, thread, fails } => {
                let alive = model.at(addr(from));
                if alive.is_none_or(|at| model.blocks[at].thing.api == ApiKind::New) {
                    continue;
                }
                let pair = model.seqno;
                let half = ApiKind::ReallocFree;
                made = made.event(thread.into(), addr(from), Op::Free, half, 1, Some(pair));
                let thing = model.thing(thread, half, 1);
                if fails {
                    let what = Special::ReallocUndo { free_seqno: Some(pair), addr: addr(from) };
                    made = made.special(thread.into(), what);
                    continue;
                }
                model.free(thing, addr(from));
                made = made.event(thread.into(), addr(to), op(size), ApiKind::Realloc, 1, Some(pair));
                let thing = model.thing(thread, ApiKind::Realloc, 1);
                model.alloc(thing, addr(to), size, true);
            }
        }
    }
    (made.session(), model)
}

fn label(by: By, thing: &Thing) -> String {
    let (function, file, line) =
        [("main", "a.c", 1), ("parse", "b.c", 2), ("load", "b.c", 9)][thing.node as usize - 1];
    match by {
        By::Site => format!("{function} ({file}:{line})"),
        By::Stack | By::Function => function.to_string(),
        By::File => file.to_string(),
        By::Module => "app".to_string(),
        By::Thread => ["0 main", "1 one", "2 two"][thing.thread as usize].to_string(),
        By::Api => thing.api.name().to_string(),
        By::Size => match thing.size.unwrap_or(0) {
            0 => "0".to_string(),
            size => {
                let mut low = 1;
                while low * 2 <= size {
                    low *= 2;
                }
                format!("{low}-{}", 2 * low - 1)
            }
        },
        By::Phase => {
            if thing.ns > PHASE_B {
                "B".to_string()
            } else if thing.ns > PHASE_A {
                "A".to_string()
            } else {
                "start".to_string()
            }
        }
    }
}

const EVERY: [By; 9] =
    [By::Site, By::Stack, By::Function, By::File, By::Module, By::Thread, By::Api, By::Size, By::Phase];

/// Label to bytes, blocks.
type Sums = BTreeMap<String, (u64, u64)>;

fn sums<'b>(by: By, blocks: impl Iterator<Item = &'b Block>) -> Sums {
    let mut sums = Sums::new();
    for block in blocks {
        let sum = sums.entry(label(by, &block.thing)).or_default();
        *sum = (sum.0 + block.thing.size.unwrap_or(0), sum.1 + 1);
    }
    sums
}

fn instant(events: u64, end: u64) -> Until {
    match events {
        0 => Until::Start,
        n if n > end => Until::End,
        n if n % 2 == 0 => Until::Ns(n * TICK + 3),
        n => Until::Seqno(n - 1),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_count_is_the_models(
        acts in proptest::collection::vec(act(), 0..70),
        conds in proptest::collection::vec(cond(), 0..3),
        window in (0..90u64, 0..90u64),
        by in 0..EVERY.len(),
    ) {
        let (mut session, model) = play(&acts);
        let by = EVERY[by];
        let mut filter = Filter::default();
        for cond in &conds {
            filter.add(&cond.text()).unwrap();
        }
        let passes = |thing: &Thing| conds.iter().all(|cond| cond.holds(thing, &model));
        let (from, to) = (window.0.min(window.1), window.0.max(window.1));
        let (first, last) = (instant(from, model.seqno), instant(to, model.seqno));
        let (from, to) = (from.min(model.seqno), to.min(model.seqno));
        let ask = Ask { filter: filter.clone(), from: first, to: last, by, metric: None };
        let survey = Survey::of(&mut session, &ask).unwrap();
        let totals = &survey.stats.totals;

        // The events of the window, by the block that they are about.
        let inside: Vec<&Event> =
            model.events.iter().filter(|event| (from..to).contains(&event.thing.seqno)).collect();
        let about = |event: &Event| event.thing.block.map_or(event.thing, |at| model.blocks[at].thing);
        let chosen: Vec<&&Event> = inside.iter().filter(|event| passes(&about(event))).collect();
        let made: Vec<&Block> =
            chosen.iter().filter(|event| event.alloc).map(|event| &model.blocks[event.thing.block.unwrap()]).collect();
        let freed: Vec<&&&Event> = chosen.iter().filter(|event| !event.alloc).collect();
        let lost: Vec<&Block> =
            inside.iter().filter_map(|event| event.lost).map(|at| &model.blocks[at]).filter(|b| passes(&b.thing)).collect();
        let size = |block: &Block| block.thing.size.unwrap_or(0);
        prop_assert_eq!(totals.allocations, made.len() as u64);
        prop_assert_eq!(totals.bytes_allocated, made.iter().map(|block| size(block)).sum::<u64>());
        prop_assert_eq!(totals.frees, freed.len() as u64);
        let ended: u64 = lost.iter().map(|block| size(block)).sum();
        prop_assert_eq!(
            totals.bytes_freed,
            ended + freed.iter().map(|event| event.thing.size.unwrap_or(0)).sum::<u64>()
        );
        prop_assert_eq!(totals.missing_frees, lost.len() as u64);
        prop_assert_eq!(totals.temporary, freed.iter().filter(|event| event.temporary).count() as u64);
        prop_assert_eq!(totals.reallocations, chosen.iter().filter(|event| event.pair).count() as u64);
        let unknown = freed.iter().filter(|event| event.thing.block.is_none()).count() as u64;
        prop_assert_eq!(totals.foreign_frees + totals.double_free + totals.invalid_free, unknown);

        // What is alive at the end, and when most was.
        let alive = |until: u64| -> std::vec::IntoIter<&Block> {
            let found = model.blocks.iter().filter(|b| model.alive(b, until) && passes(&b.thing));
            found.collect::<Vec<&Block>>().into_iter()
        };
        let held = |until: u64| alive(until).map(size).sum::<u64>();
        prop_assert_eq!((totals.live_bytes, totals.live_blocks), (held(to), alive(to).count() as u64));
        let peak = (from..=to).fold(from, |best, until| if held(until) > held(best) { until } else { best });
        prop_assert_eq!((totals.peak_bytes, totals.peak_blocks), (held(peak), alive(peak).count() as u64));

        // The same by group.
        let mut of = |metric: Metric| -> Sums {
            let items: Vec<_> = survey.items.iter().map(|item| item.with(metric)).collect();
            let groups = group(&mut session, items, by);
            groups.into_iter().map(|group| (group.label, (group.bytes, group.blocks))).collect()
        };
        prop_assert_eq!(of(Metric::Live), sums(by, alive(to)));
        prop_assert_eq!(of(Metric::Peak), sums(by, alive(peak)));
        prop_assert_eq!(of(Metric::Allocated), sums(by, made.iter().copied()));
        let temporary = freed.iter().filter(|event| event.temporary);
        let temporary = sums(by, temporary.map(|event| &model.blocks[event.thing.block.unwrap()]));
        let counts = |sums: Sums| sums.into_iter().map(|(label, sum)| (label, sum.1)).collect::<BTreeMap<_, _>>();
        prop_assert_eq!(counts(of(Metric::Temporary)), counts(temporary));

        // Threads: what they made and freed, and what lives of theirs.
        for thread in &survey.threads {
            let mine = made.iter().filter(|block| block.thing.thread == thread.thread);
            prop_assert_eq!(thread.bytes_allocated, mine.clone().map(|block| size(block)).sum::<u64>());
            prop_assert_eq!(thread.allocations, mine.count() as u64);
            let frees = freed.iter().filter(|event| event.thing.thread == thread.thread).count();
            prop_assert_eq!(thread.frees, frees as u64);
            let live = alive(to).filter(|block| block.thing.thread == thread.thread).map(size).sum::<u64>();
            prop_assert_eq!(thread.live_bytes, live);
        }
        prop_assert_eq!(survey.threads.iter().map(|thread| thread.frees).sum::<u64>(), totals.frees);
    }

    #[test]
    fn lists_are_the_models(
        acts in proptest::collection::vec(act(), 0..70),
        conds in proptest::collection::vec(cond(), 0..3),
        window in (0..90u64, 0..90u64),
        keys in prop_oneof![
            Just("size,thread"), Just("ptr"), Just("-size"), Just("thread,-seqno"), Just("function,size"),
            Just("tN"), Just("lifetime"),
        ],
        reverse in any::<bool>(),
    ) {
        let (mut session, model) = play(&acts);
        let mut filter = Filter::default();
        for cond in &conds {
            filter.add(&cond.text()).unwrap();
        }
        let (from, to) = (window.0.min(window.1), window.0.max(window.1));
        let (first, last) = (instant(from, model.seqno), instant(to, model.seqno));
        let (from, to) = (from.min(model.seqno), to.min(model.seqno));
        let passes = |thing: &Thing| conds.iter().all(|cond| cond.holds(thing, &model));
        let mut selection = filter.select(&mut session).unwrap();

        // history: the events themselves pass.
        let source = session.source();
        let mut walk = Walk::new(&source, session.replay_options(), first, last).unwrap();
        let mut seen = Vec::new();
        while let Some(met) = walk.advance().unwrap() {
            if let Met::Event(event) = met
                && selection.passes(&Subject::event(&event.event, event.block()), &mut session)
            {
                seen.push((event.event.seqno, event.block().map(|block| block.size)));
            }
        }
        let inside = model.events.iter().filter(|event| (from..to).contains(&event.thing.seqno));
        let expected: Vec<_> =
            inside.filter(|event| passes(&event.thing)).map(|event| (event.thing.seqno, event.thing.size)).collect();
        prop_assert_eq!(seen, expected);

        // dump: the blocks pass, sorted.
        let mut live = session.live_at(last).unwrap();
        live.retain(|block| selection.passes(&Subject::from(block), &mut session));
        sort::blocks(&mut session, &mut live, &SortOrder::list(keys).unwrap(), reverse).unwrap();
        let mut expected: Vec<&Block> =
            model.blocks.iter().filter(|block| model.alive(block, to) && passes(&block.thing)).collect();
        expected.sort_by_key(|block| {
            let thing = &block.thing;
            let down = |value: u64| u64::MAX - value;
            let size = thing.size.unwrap_or(0);
            // main, parse, load in the order of the alphabet.
            let name = [1, 2, 0][thing.node as usize - 1];
            let life = block.ended.map_or(model.last_ns, |ended| ended.1) - thing.ns;
            let (a, b) = match keys {
                "size,thread" => (down(size), thing.thread.into()),
                "ptr" => (block.addr, 0),
                "-size" => (size, 0),
                "thread,-seqno" => (thing.thread.into(), down(thing.seqno)),
                "function,size" => (name, down(size)),
                "tN" => (thing.thread.into(), down(size)),
                _ => (life, 0),
            };
            (a, b, thing.seqno)
        });
        if reverse {
            expected.reverse();
        }
        let found: Vec<u64> = live.iter().map(|block| block.seqno).collect();
        prop_assert_eq!(found, expected.iter().map(|block| block.thing.seqno).collect::<Vec<_>>());
    }
}
