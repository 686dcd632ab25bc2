//! `-S keys`: the order of what a list shows.

mod lists;

use std::cmp::Ordering;

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_replay::LiveBlock;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::capability::Capability;
use crate::nearest;
use crate::session::{QueryError, Session};
use crate::stack::{base_name, function_name};
use crate::walk;

/// What lists are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// Address.
    Ptr,
    /// Size; of groups, bytes.
    Size,
    /// Seqno.
    Seqno,
    /// Time.
    Time,
    /// Time between a block's beginning and its end.
    Lifetime,
    /// Thread number.
    Thread,
    /// Entry point's name.
    Api,
    /// Stack.
    Stack,
    /// Function, file and line of the site.
    Site,
    /// The site's function.
    Function,
    /// The site's file.
    File,
    /// The site's module.
    Module,
    /// Number of blocks.
    Blocks,
    /// Allocations ever made.
    Allocations,
    /// Temporary allocations.
    Temporary,
    /// Live bytes.
    Live,
    /// Bytes at the peak.
    Peak,
    /// The name: of a group, of a thread.
    Name,
}

pub use lists::{errors, threads};

use SortKey::*;

/// Each key with its names; the first is the one that is shown.
const KEYS: &[(SortKey, &[&str])] = &[
    (Ptr, &["ptr", "address", "addr"]),
    (Size, &["size", "bytes"]),
    (Seqno, &["seqno"]),
    (Time, &["time"]),
    (Lifetime, &["lifetime"]),
    (Thread, &["thread", "id"]),
    (Api, &["api"]),
    (Stack, &["stack"]),
    (Site, &["site"]),
    (Function, &["function"]),
    (File, &["file"]),
    (Module, &["module"]),
    (Blocks, &["blocks"]),
    (Allocations, &["allocations"]),
    (Temporary, &["temporary"]),
    (Live, &["live"]),
    (Peak, &["peak"]),
    (Name, &["name", "label"]),
];

/// What a list of blocks can be sorted by.
pub const OF_BLOCKS: &[SortKey] =
    &[Ptr, Size, Seqno, Time, Lifetime, Thread, Api, Stack, Site, Function, File, Module];
/// What a list of groups can be sorted by.
pub const OF_GROUPS: &[SortKey] =
    &[Size, Blocks, Allocations, Temporary, Live, Peak, Name, Site, Function, File, Module];
/// What a list of threads can be sorted by.
pub const OF_THREADS: &[SortKey] = &[Thread, Name, Size, Allocations, Temporary, Live, Peak, Time];
/// What a list of bad frees can be sorted by.
pub const OF_ERRORS: &[SortKey] = &[Ptr, Seqno, Time, Thread, Api, Name, Stack, Site, Function, File, Module];

impl SortKey {
    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        KEYS.iter().find(|(key, _)| *key == self).and_then(|(_, names)| names.first()).copied().unwrap_or("?")
    }

    /// By their words, amounts are wanted largest first.
    fn descends(self) -> bool {
        matches!(self, Size | Blocks | Allocations | Temporary | Live | Peak)
    }
}

/// A key and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SortOrder {
    /// What is compared.
    pub key: SortKey,
    /// Greatest first.
    pub descending: bool,
}

impl SortOrder {
    /// Reads a list of keys for blocks; see [`SortOrder::list_of`].
    ///
    /// # Errors
    /// As there.
    pub fn list(text: &str) -> Result<Vec<SortOrder>, String> {
        Self::list_of(text, OF_BLOCKS)
    }

    /// Reads a list of keys, the strongest first: words (`size,thread`; `-size`
    /// turns the direction round), or the letters of eCos's tool (`tN`): `p`
    /// address, `n` size, `s` seqno, `a` entry point, `t` thread; a capital
    /// letter is the descending order. `known` are those that the list has.
    ///
    /// # Errors
    /// A sentence that names the keys there are, or says which key can have no
    /// effect.
    pub fn list_of(text: &str, known: &[SortKey]) -> Result<Vec<SortOrder>, String> {
        let words: Result<Vec<SortOrder>, String> =
            text.split(',').map(|word| SortOrder::word(word.trim(), known)).collect();
        match words {
            Err(_) if !text.is_empty() && text.chars().all(|c| LETTERS.contains(c)) => letters(text, known),
            words => words,
        }
    }

    fn word(text: &str, known: &[SortKey]) -> Result<SortOrder, String> {
        let (turned, word) = match text.strip_prefix('-') {
            Some(word) => (true, word),
            None => (false, text),
        };
        let found = KEYS.iter().find(|(key, names)| known.contains(key) && names.contains(&word));
        match found {
            Some((key, _)) => Ok(SortOrder { key: *key, descending: key.descends() != turned }),
            None => {
                let names: Vec<&str> = known.iter().map(|key| key.name()).collect();
                let letters =
                    if known == OF_BLOCKS { format!(", or the letters {LETTERS}") } else { String::new() };
                Err(format!(
                    "`{text}` is no sort key here{}: there are {}{letters}",
                    nearest::hint(word, &names),
                    nearest::list(&names)
                ))
            }
        }
    }

    /// `ordering`, turned round where this order descends.
    pub fn direct(self, ordering: Ordering) -> Ordering {
        if self.descending { ordering.reverse() } else { ordering }
    }
}

/// The letters of eCos's tool.
const LETTERS: &str = "pPnNsSatT";

fn letters(text: &str, known: &[SortKey]) -> Result<Vec<SortOrder>, String> {
    let mut list: Vec<SortOrder> = Vec::new();
    for letter in text.chars() {
        let key = match letter.to_ascii_lowercase() {
            'p' => Ptr,
            'n' => Size,
            's' => Seqno,
            'a' => Api,
            _ => Thread,
        };
        if !known.contains(&key) {
            return Err(format!("`{letter}` is the {}, which this list does not have", key.name()));
        }
        if list.iter().any(|before| before.key == key) {
            return Err(format!("`{letter}` repeats a key: it makes no difference"));
        }
        if list.iter().any(|before| before.key == Seqno) {
            return Err(format!("`{letter}` stands behind the seqno, which no two have in common"));
        }
        list.push(SortOrder { key, descending: letter.is_ascii_uppercase() });
    }
    Ok(list)
}

/// Sorts blocks by several keys, the first the strongest; equal ones by seqno.
/// Lifetimes are looked for in the rest of the trace.
///
/// # Errors
/// The trace lacks what a key compares; the file cannot be read.
pub fn blocks(
    session: &mut Session,
    blocks: &mut [LiveBlock],
    keys: &[SortOrder],
    reverse: bool,
) -> Result<(), QueryError> {
    let count = blocks.len();
    first_blocks(session, blocks, keys, reverse, count)
}

/// The same where only so many of the first are looked at: behind them stand the
/// others, in no order.
///
/// # Errors
/// As [`blocks`].
pub fn first_blocks(
    session: &mut Session,
    blocks: &mut [LiveBlock],
    keys: &[SortOrder],
    reverse: bool,
    first: usize,
) -> Result<(), QueryError> {
    for order in keys {
        let need = match order.key {
            Thread => Capability::Threads,
            Time => Capability::Times,
            Lifetime => Capability::History,
            Stack => Capability::Stacks,
            Site | Function | File => Capability::Names,
            _ => continue,
        };
        need.require(session.facts(), "-S")?;
    }
    let lives = if keys.iter().any(|order| order.key == Lifetime) {
        lifetimes(session, blocks)?
    } else {
        FxHashMap::default()
    };
    let names: Vec<FxHashMap<NodeId, u32>> =
        keys.iter().map(|order| ranks(session, blocks.iter().map(|block| block.node), order.key)).collect();
    let apis = api_ranks();
    let number = |sort: &SortOrder, rank: &FxHashMap<NodeId, u32>, block: &LiveBlock| {
        let number = match sort.key {
            Ptr => block.addr,
            Size => block.size,
            Thread => u64::from(block.thread),
            Api => apis.get(block.api as usize & 63).map_or(0, |&rank| u64::from(rank)),
            Stack => u64::from(block.node),
            Lifetime => lives.get(&block.seqno).copied().unwrap_or(0),
            Site | Function | File | Module => u64::from(rank.get(&block.node).copied().unwrap_or(0)),
            // Times and seqnos are in one order.
            _ => block.seqno,
        };
        // The smallest comes first.
        if sort.descending != reverse { !number } else { number }
    };
    let strongest = |block: &LiveBlock| match (keys.first(), names.first()) {
        (Some(sort), Some(rank)) => number(sort, rank, block),
        _ if reverse => !block.seqno,
        _ => block.seqno,
    };
    let weaker = |a: &LiveBlock, b: &LiveBlock| {
        let rest = keys.iter().zip(&names).skip(1);
        let differ = rest.map(|(sort, rank)| number(sort, rank, a).cmp(&number(sort, rank, b)));
        let order = differ.fold(Ordering::Equal, Ordering::then);
        order.then_with(|| if reverse { b.seqno.cmp(&a.seqno) } else { a.seqno.cmp(&b.seqno) })
    };
    arrange(blocks, first, strongest, weaker);
    Ok(())
}

/// The place of each entry point in the alphabetical order of their names.
fn api_ranks() -> [u8; 64] {
    let mut sorted = ApiKind::ALL.to_vec();
    sorted.sort_by_key(|api| api.name());
    let mut ranks = [0; 64];
    for api in ApiKind::ALL {
        let before = sorted.partition_point(|other| other.name() < api.name());
        ranks[*api as usize & 63] = before as u8;
    }
    ranks
}

/// So many more than twice those that are wanted are kept before some are left out.
const SPARE: usize = 256;

/// Brings the `first` least of a list to its front, in order. What is sorted is each
/// one's `strongest` number beside its place; the elements, many times as long, are
/// looked at where two have the same, and moved once.
fn arrange<T: Copy>(
    list: &mut [T],
    first: usize,
    strongest: impl Fn(&T) -> u64,
    weaker: impl Fn(&T, &T) -> Ordering,
) {
    let compare = |a: &(u64, usize), b: &(u64, usize)| {
        a.0.cmp(&b.0).then_with(|| match (list.get(a.1), list.get(b.1)) {
            (Some(one), Some(other)) => weaker(one, other),
            _ => Ordering::Equal,
        })
    };
    let all = list.iter().enumerate().map(|(at, element)| (strongest(element), at));
    let mut order: Vec<(u64, usize)> = Vec::new();
    if first < list.len() / 2 {
        // The best so far, some of them too many: what is above `bound` is behind all of them.
        let mut bound = u64::MAX;
        for one in all.filter(|_| first > 0) {
            if one.0 > bound {
                continue;
            }
            order.push(one);
            if order.len() >= 2 * first + SPARE {
                bound = order.select_nth_unstable_by(first - 1, compare).1.0;
                order.truncate(first);
            }
        }
    } else {
        order.extend(all);
    }
    order.sort_unstable_by(compare);
    order.truncate(first);
    if order.len() == list.len() {
        let sorted: Vec<T> = order.iter().filter_map(|(_, at)| list.get(*at).copied()).collect();
        list.copy_from_slice(&sorted);
        return;
    }
    for to in 0..order.len() {
        // What stood at a place that is filled by now was put where that one came from.
        let mut from = order.get(to).map_or(to, |(_, at)| *at);
        while from < to {
            from = order.get(from).map_or(to, |(_, at)| *at);
        }
        list.swap(to, from);
    }
}

/// How long each of these blocks lives, ns, by seqno; until the last event where
/// it is never given back.
///
/// # Errors
/// The file cannot be read.
pub fn lifetimes(session: &mut Session, blocks: &[LiveBlock]) -> Result<FxHashMap<u64, u64>, QueryError> {
    let mut lives: FxHashMap<u64, u64> = FxHashMap::default();
    let asked: FxHashSet<u64> = blocks.iter().map(|block| block.seqno).collect();
    let end = walk::whole(session, |seen| {
        if let Some(block) = &seen.ended
            && asked.contains(&block.seqno)
        {
            lives.insert(block.seqno, seen.event.ns.saturating_sub(block.ns));
        }
    })?;
    let last = end.totals().last_ns;
    for block in blocks {
        lives.entry(block.seqno).or_insert(last.saturating_sub(block.ns));
    }
    Ok(lives)
}

/// The place of each stack in the alphabetical order of what `key` names;
/// nothing for keys that are no names.
pub(crate) fn ranks(
    session: &mut Session,
    nodes: impl Iterator<Item = NodeId>,
    key: SortKey,
) -> FxHashMap<NodeId, u32> {
    let mut texts: FxHashMap<NodeId, (String, u32)> = FxHashMap::default();
    if !matches!(key, Site | Function | File | Module) {
        return FxHashMap::default();
    }
    for node in nodes {
        texts.entry(node).or_insert_with(|| {
            let stack = session.stack(node);
            let Some(frame) = stack.site() else { return (String::new(), 0) };
            let file = || frame.file.as_deref().unwrap_or_default().to_string();
            match key {
                Site => (format!("{}\0{}", function_name(frame), file()), frame.line.unwrap_or(0)),
                Function => (function_name(frame), 0),
                File => (file(), frame.line.unwrap_or(0)),
                _ => (base_name(&frame.module).to_string(), 0),
            }
        });
    }
    let mut order: Vec<&(String, u32)> = texts.values().collect();
    order.sort_unstable();
    order.dedup();
    texts.iter().map(|(node, text)| (*node, order.partition_point(|other| *other < text) as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    fn block(seqno: u64, size: u64, thread: u32, node: NodeId) -> LiveBlock {
        LiveBlock { addr: 8, size, usable: None, seqno, ns: 0, thread, api: ApiKind::Malloc, node }
    }

    fn sorted(list: &mut [LiveBlock], keys: &str, reverse: bool) -> Vec<u64> {
        let mut session = Made::default()
            .node(1, 0, "zeta", "a.c", 9)
            .node(2, 0, "alpha", "b.c", 20)
            .node(3, 0, "alpha", "b.c", 3)
            .alloc(0, 8, 1, 0)
            .alloc(0, 16, 1, 0)
            .alloc(0, 24, 1, 0)
            .free(0, 16)
            .session();
        blocks(&mut session, list, &SortOrder::list(keys).unwrap(), reverse).unwrap();
        list.iter().map(|block| block.seqno).collect()
    }

    #[test]
    fn the_first_key_decides_first_and_seqno_last() {
        let mut list = [block(0, 5, 1, 1), block(1, 9, 0, 2), block(2, 5, 0, 3)];
        assert_eq!(sorted(&mut list, "size,thread", false), [1, 2, 0]);
        assert_eq!(sorted(&mut list, "-size", false), [0, 2, 1]);
        assert_eq!(sorted(&mut list, "-size", true), [1, 2, 0]);
        assert_eq!(sorted(&mut list, "function", false), [1, 2, 0]);
        assert_eq!(sorted(&mut list, "site", false), [2, 1, 0]);
        assert_eq!(sorted(&mut list, "file", false), [0, 2, 1]);
        // Block 1 was freed after 20 ms, the others live on.
        assert_eq!(sorted(&mut list, "lifetime", false), [1, 0, 2]);
        assert!(SortOrder::list("size,colour").is_err());
        assert!(SortOrder::list("sizee").unwrap_err().contains("did you mean `size`?"));
        assert!(SortOrder::list_of("ptr", OF_GROUPS).unwrap_err().contains("there are size, blocks"));
    }

    #[test]
    fn the_first_of_a_list_are_those_of_the_whole_list_in_order() {
        let mut random = 5u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) % limit
        };
        for round in 0..2_000 {
            // Of some so many that those behind the first are left out on the way.
            let (most, few) = if round % 10 == 0 { (3_000, 1 + round % 700) } else { (60, 70) };
            let list: Vec<(u64, u64, u64)> =
                (0..below(most)).map(|at| (below(1 + round % 9 * most / 60), below(4), at)).collect();
            let mut sorted = list.clone();
            sorted.sort_unstable();
            let first = below(few) as usize;
            let mut ours = list.clone();
            arrange(&mut ours, first, |one| one.0, |a, b| a.cmp(b));
            let shown = first.min(list.len());
            assert_eq!(ours[..shown], sorted[..shown], "{first} of {list:?}");
            // Nothing is lost, nothing comes twice.
            ours.sort_unstable();
            assert_eq!(ours, sorted);
        }
    }

    #[test]
    fn the_names_of_entry_points_are_in_their_order() {
        let ranks = api_ranks();
        for a in ApiKind::ALL {
            for b in ApiKind::ALL {
                assert_eq!(
                    ranks[*a as usize].cmp(&ranks[*b as usize]),
                    a.name().cmp(b.name()),
                    "{a:?} {b:?}"
                );
            }
        }
    }

    #[test]
    fn letters_are_those_of_ecos() {
        let order = |key, descending| SortOrder { key, descending };
        assert_eq!(SortOrder::list("n"), Ok(vec![order(Size, false)]));
        assert_eq!(
            SortOrder::list("aTNP"),
            Ok(vec![order(Api, false), order(Thread, true), order(Size, true), order(Ptr, true)])
        );
        assert_eq!(SortOrder::list("size"), Ok(vec![order(Size, true)]));
        for text in ["nN", "pp", "sn", "Sp", "A", "x", "", "n,q"] {
            assert!(SortOrder::list(text).is_err(), "{text}");
        }
        assert_eq!(SortOrder::list_of("N", OF_GROUPS), Ok(vec![order(Size, true)]));
        assert!(SortOrder::list_of("p", OF_GROUPS).is_err());
    }
}
