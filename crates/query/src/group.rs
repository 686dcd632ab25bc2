//! Blocks put together: by site, stack, function, file, module, thread, entry
//! point, size class or phase.

use std::sync::Arc;

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_replay::sampling::Weight;
use highwater_replay::{LiveBlock, Replay, SiteTotals};
use highwater_trace::model::ThreadNo;
use rustc_hash::FxHashMap;

use crate::capability::Capability;
use crate::filter::class;
use crate::nearest;
use crate::phase::Phases;
use crate::session::{QueryError, Session};
use crate::sort::{self, SortKey, SortOrder};
use crate::stack::{Frame, Stack, base_name, function_name};

/// What to put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// Function and line of the site.
    #[default]
    Site,
    /// The whole stack.
    Stack,
    /// The site's function.
    Function,
    /// The site's source file.
    File,
    /// The site's module.
    Module,
    /// The allocating thread.
    Thread,
    /// The entry point.
    Api,
    /// The size class, by powers of two.
    Size,
    /// Between which marks the block was made.
    Phase,
}

impl By {
    const ALL: [By; 9] =
        [By::Site, By::Stack, By::Function, By::File, By::Module, By::Thread, By::Api, By::Size, By::Phase];

    /// Is the stack all that this needs? Else the blocks themselves are needed.
    pub const fn needs_only_stacks(self) -> bool {
        matches!(self, By::Site | By::Stack | By::Function | By::File | By::Module)
    }

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            By::Site => "site",
            By::Stack => "stack",
            By::Function => "function",
            By::File => "file",
            By::Module => "module",
            By::Thread => "thread",
            By::Api => "api",
            By::Size => "size",
            By::Phase => "phase",
        }
    }

    /// Passes where the trace has what this needs.
    ///
    /// # Errors
    /// [`QueryError::Lacks`]
    pub fn require(self, session: &Session) -> Result<(), QueryError> {
        let needs: &[Capability] = match self {
            By::Site | By::Function | By::File => &[Capability::Stacks, Capability::Names],
            By::Stack | By::Module => &[Capability::Stacks],
            By::Thread => &[Capability::Threads],
            By::Phase => &[Capability::Marks],
            By::Api | By::Size => &[],
        };
        let option = format!("--by {}", self.name());
        needs.iter().try_for_each(|need| need.require(session.facts(), &option))
    }
}

impl std::str::FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<By, String> {
        By::ALL.into_iter().find(|by| by.name() == text).ok_or_else(|| {
            let names = By::ALL.map(By::name);
            let hint = nearest::hint(text, &names);
            format!("`{text}` is no grouping{hint}: there are {}", nearest::list(&names))
        })
    }
}

/// What is counted of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks made.
    pub allocations: u64,
    /// Their requested bytes.
    pub allocated: u64,
    /// Blocks given back.
    pub frees: u64,
    /// Their requested bytes.
    pub freed: u64,
    /// Blocks that their thread freed before it made another.
    pub temporary: u64,
    /// Blocks alive.
    pub live_blocks: u64,
    /// Their requested bytes.
    pub live_bytes: u64,
    /// Blocks alive at the peak.
    pub peak_blocks: u64,
    /// Their requested bytes.
    pub peak_bytes: u64,
    /// Variance of `live_bytes`, where they are an estimate from a sample.
    pub live_variance: u64,
    /// Variance of `peak_bytes`.
    pub peak_variance: u64,
}

impl Counts {
    /// Adds those of another part.
    pub fn add(&mut self, other: &Counts) {
        self.allocations += other.allocations;
        self.allocated = self.allocated.saturating_add(other.allocated);
        self.frees += other.frees;
        self.freed = self.freed.saturating_add(other.freed);
        self.temporary += other.temporary;
        self.live_blocks += other.live_blocks;
        self.live_bytes = self.live_bytes.saturating_add(other.live_bytes);
        self.peak_blocks += other.peak_blocks;
        self.peak_bytes = self.peak_bytes.saturating_add(other.peak_bytes);
        self.live_variance = self.live_variance.saturating_add(other.live_variance);
        self.peak_variance = self.peak_variance.saturating_add(other.peak_variance);
    }
}

impl From<&SiteTotals> for Counts {
    fn from(site: &SiteTotals) -> Counts {
        Counts {
            allocations: site.allocations,
            allocated: site.bytes,
            frees: site.frees,
            freed: site.bytes.saturating_sub(site.live_bytes),
            temporary: site.temporary,
            live_blocks: site.live_blocks,
            live_bytes: site.live_bytes,
            peak_blocks: site.peak_blocks,
            peak_bytes: site.peak_bytes,
            live_variance: site.live_variance,
            peak_variance: site.peak_variance,
        }
    }
}

/// What a view ranks by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Alive at the peak.
    #[default]
    Peak,
    /// Alive at the end of what is looked at.
    Live,
    /// Bytes of all blocks made.
    Allocated,
    /// Number of all blocks made.
    Allocations,
    /// Blocks that their thread freed before it made another.
    Temporary,
    /// Alive at the end.
    Leaked,
}

impl Metric {
    const ALL: [Metric; 6] = [
        Metric::Peak,
        Metric::Live,
        Metric::Allocated,
        Metric::Allocations,
        Metric::Temporary,
        Metric::Leaked,
    ];

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Peak => "peak",
            Metric::Live => "live",
            Metric::Allocated => "allocated",
            Metric::Allocations => "allocations",
            Metric::Temporary => "temporary",
            Metric::Leaked => "leaked",
        }
    }

    /// Is it a number of blocks that counts, not of bytes?
    pub const fn counts_blocks(self) -> bool {
        matches!(self, Metric::Allocations | Metric::Temporary)
    }

    /// Bytes and blocks of this metric. Temporary blocks have no bytes of their
    /// own: only their number is kept.
    pub const fn of(self, counts: &Counts) -> (u64, u64) {
        match self {
            Metric::Peak => (counts.peak_bytes, counts.peak_blocks),
            Metric::Live | Metric::Leaked => (counts.live_bytes, counts.live_blocks),
            Metric::Allocated | Metric::Allocations => (counts.allocated, counts.allocations),
            Metric::Temporary => (0, counts.temporary),
        }
    }
}

impl std::str::FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Metric, String> {
        Metric::ALL.into_iter().find(|metric| metric.name() == text).ok_or_else(|| {
            let names = Metric::ALL.map(Metric::name);
            let hint = nearest::hint(text, &names);
            format!("`{text}` is no metric{hint}: there are {}", nearest::list(&names))
        })
    }
}

/// Something with bytes and a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// From where.
    pub node: NodeId,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Allocations ever made there; equal to `blocks` for a single block.
    pub allocations: u64,
    /// Variance of `bytes`, where they are an estimate from a sample.
    pub variance: u64,
    /// Who, of single blocks.
    pub thread: Option<ThreadNo>,
    /// Entry point, of single blocks.
    pub api: Option<ApiKind>,
    /// Size of each, of single blocks.
    pub size: Option<u64>,
    /// When it was made, ns, of single blocks.
    pub ns: Option<u64>,
    /// All that is counted.
    pub counts: Counts,
}

impl Item {
    /// What a site had at the global peak.
    pub fn at_peak(site: &SiteTotals) -> Item {
        Item::of(site, Metric::Peak)
    }

    /// What a site has now.
    pub fn live(site: &SiteTotals) -> Item {
        Item::of(site, Metric::Live)
    }

    /// What a site has of a metric.
    pub fn of(site: &SiteTotals, metric: Metric) -> Item {
        Item { node: site.node, counts: Counts::from(site), ..Item::default() }.with(metric)
    }

    /// The same with `bytes` and `blocks` of a metric.
    pub fn with(self, metric: Metric) -> Item {
        let (bytes, blocks) = metric.of(&self.counts);
        let variance = match metric {
            Metric::Peak => self.counts.peak_variance,
            Metric::Live | Metric::Leaked => self.counts.live_variance,
            Metric::Allocated | Metric::Allocations | Metric::Temporary => 0,
        };
        Item { bytes, blocks, variance, allocations: self.counts.allocations, ..self }
    }

    /// A block of `replay`, as what it stands for: itself, or all those that a
    /// sampled one represents.
    pub fn of_block(block: &LiveBlock, replay: &Replay) -> Item {
        Item::weighed(block, replay.weight(block.size, block.seqno))
    }

    /// A block as what it stands for.
    pub fn weighed(block: &LiveBlock, weight: Weight) -> Item {
        let counts = Counts {
            allocations: weight.blocks,
            allocated: weight.bytes,
            live_blocks: weight.blocks,
            live_bytes: weight.bytes,
            live_variance: weight.variance,
            ..Counts::default()
        };
        Item {
            node: block.node,
            thread: Some(block.thread),
            api: Some(block.api),
            size: Some(block.size),
            ns: Some(block.ns),
            counts,
            ..Item::default()
        }
        .with(Metric::Live)
    }
}

impl From<&LiveBlock> for Item {
    fn from(block: &LiveBlock) -> Item {
        Item::weighed(block, Weight::whole(block.size))
    }
}

/// What a block stands for: itself where `rate` (`--sample`) is 0.
pub fn weight(rate: u64, block: &LiveBlock) -> Weight {
    match rate {
        0 => Weight::whole(block.size),
        rate => Weight::sampled(rate, block.size, block.seqno),
    }
}

/// Items that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they have in common, in words.
    pub label: String,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Allocations ever made there.
    pub allocations: u64,
    /// Variance of `bytes`, where they are an estimate from a sample.
    pub variance: u64,
    /// All that is counted.
    pub counts: Counts,
    /// The stack that has most of the bytes.
    pub node: NodeId,
    /// The same, resolved.
    pub stack: Arc<Stack>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Text(String),
    Number(u64),
}

/// Items that belong together so far.
struct Sum {
    key: Key,
    total: Item,
    /// The stack that has most of the bytes, and these.
    node: NodeId,
    most: u64,
}

/// Finds out which items belong together.
struct Sums {
    by: By,
    phases: Phases,
    sums: Vec<Sum>,
    /// Where they are, by what they have in common.
    keys: FxHashMap<Key, usize>,
    /// The same by stack and by the stack's site, where these decide: to write a key
    /// down takes longer than to find it.
    nodes: FxHashMap<NodeId, usize>,
    sites: FxHashMap<Option<*const Frame>, usize>,
}

impl Sums {
    /// Where an item belongs.
    fn find(&mut self, session: &mut Session, item: &Item) -> usize {
        if !self.by.needs_only_stacks() || self.by == By::Stack {
            session.ask(item.node);
            return self.find_key(item, None);
        }
        if let Some(&at) = self.nodes.get(&item.node) {
            return at;
        }
        let site = session.site(item.node);
        let frame = site.as_ref().map(Arc::as_ptr);
        let at = match self.sites.get(&frame) {
            Some(&at) => at,
            None => self.find_key(item, site.as_deref()),
        };
        self.sites.insert(frame, at);
        self.nodes.insert(item.node, at);
        at
    }

    fn find_key(&mut self, item: &Item, site: Option<&Frame>) -> usize {
        let key = key(item, self.by, site, &self.phases);
        if let Some(&at) = self.keys.get(&key) {
            return at;
        }
        let at = self.sums.len();
        self.keys.insert(key.clone(), at);
        self.sums.push(Sum { key, total: Item::default(), node: item.node, most: 0 });
        at
    }
}

/// Puts items together, most bytes first (then most blocks, then by label).
/// Items without blocks do not count.
pub fn group(session: &mut Session, items: impl IntoIterator<Item = Item>, by: By) -> Vec<Group> {
    let mut sums = Sums {
        by,
        phases: Phases::of(session.facts()),
        sums: Vec::new(),
        keys: FxHashMap::default(),
        nodes: FxHashMap::default(),
        sites: FxHashMap::default(),
    };
    for item in items.into_iter().filter(|item| item.blocks > 0) {
        let at = sums.find(session, &item);
        let Some(sum) = sums.sums.get_mut(at) else { continue };
        let total = &mut sum.total;
        total.bytes = total.bytes.saturating_add(item.bytes);
        total.blocks += item.blocks;
        total.allocations += item.allocations;
        total.variance = total.variance.saturating_add(item.variance);
        total.counts.add(&item.counts);
        if item.bytes > sum.most {
            (sum.most, sum.node) = (item.bytes, item.node);
        }
    }
    let mut groups: Vec<Group> = sums
        .sums
        .into_iter()
        .map(|Sum { key, total, node, .. }| {
            let stack = session.stack(node);
            Group {
                label: label(session, by, &key, &stack),
                bytes: total.bytes,
                blocks: total.blocks,
                allocations: total.allocations,
                variance: total.variance,
                counts: total.counts,
                node,
                stack,
            }
        })
        .collect();
    groups.sort_by(largest_first);
    groups
}

fn largest_first(a: &Group, b: &Group) -> std::cmp::Ordering {
    b.bytes
        .cmp(&a.bytes)
        .then(b.blocks.cmp(&a.blocks))
        .then_with(|| a.label.cmp(&b.label))
        .then(a.node.cmp(&b.node))
}

/// What an item has in common with others; `site` is that of its stack.
fn key(item: &Item, by: By, site: Option<&Frame>, phases: &Phases) -> Key {
    let text = |text: Option<&str>| Key::Text(text.unwrap_or("[unknown]").to_string());
    match by {
        By::Site => Key::Text(site.map_or_else(
            || "[no stack]".to_string(),
            |frame| match (&frame.file, frame.line) {
                (Some(file), line) => format!("{} ({file}:{})", function_name(frame), line.unwrap_or(0)),
                (None, _) => format!("{} ({})", function_name(frame), frame.module),
            },
        )),
        By::Stack => Key::Number(u64::from(item.node)),
        By::Function => Key::Text(site.map_or_else(|| "[no stack]".to_string(), function_name)),
        By::File => text(site.and_then(|frame| frame.file.as_deref())),
        By::Module => text(site.map(|frame| base_name(&frame.module)).filter(|name| !name.is_empty())),
        By::Thread => Key::Number(item.thread.map_or(u64::MAX, u64::from)),
        By::Api => text(item.api.map(ApiKind::name)),
        By::Size => Key::Number(item.size.map_or(u64::MAX, |size| class(size).0)),
        By::Phase => text(item.ns.map(|ns| phases.name(phases.at(ns)))),
    }
}

/// What the group of an item is called.
pub(crate) fn label_of(session: &Session, item: &Item, by: By, stack: &Stack, phases: &Phases) -> String {
    label(session, by, &key(item, by, stack.site(), phases), stack)
}

fn label(session: &Session, by: By, key: &Key, stack: &Stack) -> String {
    match (by, key) {
        (By::Thread, Key::Number(number)) => {
            let thread = ThreadNo::try_from(*number).unwrap_or(ThreadNo::MAX);
            match session.facts().thread(thread) {
                Some(def) if !def.name.is_empty() => format!("{thread} {}", def.name),
                _ => thread.to_string(),
            }
        }
        (By::Size, Key::Number(low)) => match class(*low) {
            (0, _) => "0".to_string(),
            (low, high) => format!("{low}-{high}"),
        },
        (_, Key::Text(text)) => text.clone(),
        (_, Key::Number(_)) => stack.site().map_or_else(|| "[no stack]".to_string(), function_name),
    }
}

/// Sorts groups by several keys, the first the strongest; equal ones as
/// [`group`] leaves them.
pub fn sort(session: &mut Session, groups: &mut [Group], keys: &[SortOrder], reverse: bool) {
    let ranks: Vec<_> =
        keys.iter().map(|order| sort::ranks(session, groups.iter().map(|g| g.node), order.key)).collect();
    groups.sort_by(|a, b| {
        let mut order = std::cmp::Ordering::Equal;
        for (sort, rank) in keys.iter().zip(&ranks) {
            let (x, y) = (&a.counts, &b.counts);
            order = order.then_with(|| {
                sort.direct(match sort.key {
                    SortKey::Blocks => a.blocks.cmp(&b.blocks),
                    SortKey::Allocations => x.allocations.cmp(&y.allocations),
                    SortKey::Temporary => x.temporary.cmp(&y.temporary),
                    SortKey::Live => x.live_bytes.cmp(&y.live_bytes),
                    SortKey::Peak => x.peak_bytes.cmp(&y.peak_bytes),
                    SortKey::Name => a.label.cmp(&b.label),
                    SortKey::Site | SortKey::Function | SortKey::File | SortKey::Module => {
                        rank.get(&a.node).cmp(&rank.get(&b.node))
                    }
                    _ => a.bytes.cmp(&b.bytes),
                })
            });
        }
        let order = order.then_with(|| largest_first(a, b));
        if reverse { order.reverse() } else { order }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    fn item(node: NodeId, bytes: u64, thread: ThreadNo) -> Item {
        Item {
            node,
            bytes,
            blocks: 1,
            thread: Some(thread),
            api: Some(ApiKind::Malloc),
            size: Some(bytes),
            ns: Some(bytes),
            ..Item::default()
        }
    }

    #[test]
    fn items_come_together_largest_first() {
        let mut session = Made::default()
            .thread(0, 7, "main")
            .node(1, 0, "main", "main.c", 3)
            .node(2, 1, "parse", "parse.c", 7)
            .node(3, 0, "parse", "parse.c", 7)
            .node(4, 1, "parse", "parse.c", 9)
            .mark("half", 20)
            .session();
        let items = [item(2, 10, 0), item(3, 30, 1), item(4, 5, 0), item(1, 44, 0)];
        let mut labels = |by| -> Vec<(String, u64)> {
            group(&mut session, items, by).into_iter().map(|g| (g.label, g.bytes)).collect()
        };
        let owned = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
            list.iter().map(|(label, bytes)| (label.to_string(), *bytes)).collect()
        };
        assert_eq!(
            labels(By::Site),
            owned(&[("main (main.c:3)", 44), ("parse (parse.c:7)", 40), ("parse (parse.c:9)", 5)])
        );
        assert_eq!(labels(By::Function), owned(&[("parse", 45), ("main", 44)]));
        assert_eq!(labels(By::Stack).len(), 4);
        assert_eq!(labels(By::Thread), owned(&[("0 main", 59), ("1", 30)]));
        assert_eq!(labels(By::Size), owned(&[("32-63", 44), ("16-31", 30), ("8-15", 10), ("4-7", 5)]));
        assert_eq!(labels(By::Module), owned(&[("app", 89)]));
        assert_eq!(labels(By::Api), owned(&[("malloc", 89)]));
        assert_eq!(labels(By::File), owned(&[("parse.c", 45), ("main.c", 44)]));
        assert_eq!(labels(By::Phase), owned(&[("half", 74), ("start", 15)]));
    }

    #[test]
    fn groups_are_sorted_by_what_they_have() {
        let mut session = Made::default()
            .node(1, 0, "main", "main.c", 3)
            .node(2, 0, "parse", "parse.c", 7)
            .node(3, 0, "load", "load.c", 7)
            .session();
        let items = [item(1, 10, 0), item(2, 30, 0), item(3, 10, 0), item(3, 10, 0)];
        let mut groups = group(&mut session, items, By::Function);
        let mut labels = |keys: &str, reverse| {
            let keys = SortOrder::list_of(keys, sort::OF_GROUPS).unwrap();
            sort(&mut session, &mut groups, &keys, reverse);
            groups.iter().map(|group| group.label.clone()).collect::<Vec<_>>()
        };
        assert_eq!(labels("size", false), ["parse", "load", "main"]);
        assert_eq!(labels("blocks", false), ["load", "parse", "main"]);
        assert_eq!(labels("function", false), ["load", "main", "parse"]);
        assert_eq!(labels("-function", true), ["load", "main", "parse"]);
        assert_eq!(labels("-file", false), ["parse", "main", "load"]);
    }
}
