//! Who leaks: all the evidence, put together by the function to blame, and
//! ranked.
//!
//! | module | holds |
//! |---|---|
//! | [`signs`] | what the evidence says of a site, in numbers |
//! | [`verdict`] | what these numbers mean |
//! | [`reason`] | the same in a sentence |

pub mod reason;
pub mod signs;
pub mod verdict;

use std::sync::Arc;

use highwater_event::node::NodeId;
use highwater_trace::model::EndedHow;
use rustc_hash::FxHashMap;

use super::evidence::{Evidence, StackEvidence};
use super::growth::{Trend, forecast};
use super::lifetimes::Lifetimes;
use super::reach::{Class, Reach};
use super::suppressions::Suppressions;
use super::wrappers::{Sample, Wrappers};
use crate::group::{Counts, Group};
use crate::session::Session;
use crate::stack::{Stack, function_name};
use signs::{Signs, Spread};
pub use verdict::Verdict;

/// What counts as evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Alive when the program exited.
    Exit,
    /// Nothing points to it any more.
    Unreachable,
    /// Made in a window, and not given back by its end.
    Window,
    /// Grows.
    Growth,
    /// Lives much longer than others from the same place.
    Stale,
    /// All of them.
    #[default]
    All,
}

impl Method {
    /// Every method, in the order of the documentation.
    pub const EACH: [Method; 5] =
        [Method::Exit, Method::Unreachable, Method::Window, Method::Growth, Method::Stale];

    /// The name, as on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Method::Exit => "exit",
            Method::Unreachable => "unreachable",
            Method::Window => "window",
            Method::Growth => "growth",
            Method::Stale => "stale",
            Method::All => "all",
        }
    }
}

impl std::str::FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Method, String> {
        Method::EACH.into_iter().chain([Method::All]).find(|method| method.name() == text).ok_or_else(|| {
            format!("`{text}` is no method: there are exit, unreachable, window, growth, stale and all")
        })
    }
}

/// How to rank.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What counts.
    pub method: Method,
    /// What growth is.
    pub trend: Trend,
    /// Functions that only hand memory on, as the user names them.
    pub wrappers: Vec<String>,
    /// Are wrappers not learned?
    pub no_wrappers: bool,
    /// Bytes at which the heap is full.
    pub limit: Option<u64>,
}

/// What other methods found out about the blocks of one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Blocks that nothing points to.
    pub definite_blocks: u64,
    /// Their bytes.
    pub definite_bytes: u64,
    /// Blocks that only such blocks point to.
    pub indirect_blocks: u64,
    /// Their bytes.
    pub indirect_bytes: u64,
    /// Blocks that only pointers into their middle point to.
    pub possible_blocks: u64,
    /// Their bytes.
    pub possible_bytes: u64,
    /// Blocks made in the windows and not given back.
    pub window_blocks: u64,
    /// Their bytes.
    pub window_bytes: u64,
    /// Variance of these bytes, where they are an estimate from a sample.
    pub window_variance: u64,
    /// Windows with such blocks.
    pub windows: u64,
}

impl Found {
    fn add(&mut self, other: &Found) {
        self.definite_blocks += other.definite_blocks;
        self.definite_bytes += other.definite_bytes;
        self.indirect_blocks += other.indirect_blocks;
        self.indirect_bytes += other.indirect_bytes;
        self.possible_blocks += other.possible_blocks;
        self.possible_bytes += other.possible_bytes;
        self.window_blocks += other.window_blocks;
        self.window_bytes += other.window_bytes;
        self.window_variance = self.window_variance.saturating_add(other.window_variance);
        self.windows = self.windows.max(other.windows);
    }

    /// Blocks that are lost, themselves or through another.
    pub fn lost_blocks(&self) -> u64 {
        self.definite_blocks + self.indirect_blocks
    }

    /// Their bytes.
    pub fn lost_bytes(&self) -> u64 {
        self.definite_bytes + self.indirect_bytes
    }
}

impl Findings {
    /// Takes over what a scan found.
    pub fn scan(&mut self, reach: &Reach) {
        self.scanned = true;
        for site in &reach.sites {
            let found = self.stacks.entry(site.node).or_default();
            let of = |class: Class| site.classes[class as usize & 3];
            let (definite, indirect, possible) =
                (of(Class::Definite), of(Class::Indirect), of(Class::Possible));
            (found.definite_blocks, found.definite_bytes) = (definite.blocks, definite.bytes);
            (found.indirect_blocks, found.indirect_bytes) = (indirect.blocks, indirect.bytes);
            (found.possible_blocks, found.possible_bytes) = (possible.blocks, possible.bytes);
        }
    }
}

/// Findings of methods that need more than the events.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// By stack.
    pub stacks: FxHashMap<NodeId, Found>,
    /// Was the memory scanned?
    pub scanned: bool,
    /// Windows that were compared, 0 for none.
    pub windows: u64,
}

/// A site, and what speaks against it.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// From 1; the folded ones come behind the others.
    pub rank: usize,
    /// Bytes, blocks, and the stack that has most of the blocks; its site is the
    /// frame to blame.
    pub group: Group,
    /// The methods that it stands out by.
    pub methods: Vec<Method>,
    /// What it is.
    pub verdict: Verdict,
    /// How sure that is, 0 to 1.
    pub confidence: f64,
    /// Why, in a sentence.
    pub reason: String,
    /// The numbers.
    pub signs: Signs,
    /// How many stacks lead there.
    pub stacks: usize,
    /// Live bytes by slice, for a curve.
    pub series: Vec<u64>,
}

/// What came of ranking.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    /// To be looked at, worst first.
    pub suspects: Vec<Suspect>,
    /// What is alive but no suspect: start-up and what is kept; most bytes first.
    pub folded: Vec<Suspect>,
    /// Functions that were taken for wrappers.
    pub wrappers: Vec<String>,
    /// How the whole heap grows, if it does.
    pub heap: Option<signs::Growth>,
    /// Bytes alive at the end.
    pub heap_bytes: u64,
    /// When it reaches the limit, seconds from the end.
    pub full_in: Option<forecast::Range>,
    /// Suppressed bytes and blocks.
    pub suppressed: (u64, u64),
    /// What each method could not do, one sentence each.
    pub missing: Vec<String>,
}

/// Ranks the sites of a run.
pub fn rank(
    session: &mut Session,
    evidence: &Evidence,
    findings: &Findings,
    rules: &Suppressions,
    options: &Options,
) -> Ranking {
    let mut ranking = Ranking::default();
    let mut groups = Groups::new(session, evidence, findings, rules, options, &mut ranking);
    groups.count_blocks(evidence);
    let run = signs::Run::new(session.facts().end.as_ref().map(|end| end.how), evidence, findings, options);
    for site in groups.sites {
        if site.blocks == 0 && site.exit_blocks == 0 {
            continue;
        }
        let signs = Signs::of(&run, &site);
        let judged = verdict::judge(&run, &signs);
        if options.method != Method::All && !judged.methods.contains(&options.method) {
            continue;
        }
        let series = if evidence.levels { site.dense(evidence).1 } else { Vec::new() };
        let suspect = Suspect {
            rank: 0,
            reason: reason::sentence(&run, &signs, &judged),
            methods: judged.methods,
            verdict: judged.verdict,
            confidence: judged.confidence,
            series,
            stacks: site.stacks.len(),
            group: site.group(&signs, options.method),
            signs,
        };
        // Asked for one method, its list is what it found.
        if judged.folded && options.method == Method::All {
            // What was given back in the end and did not grow is neither kept nor lost.
            if site.exit_blocks > 0 {
                let group = site.group(&suspect.signs, Method::Exit);
                ranking.folded.push(Suspect { group, ..suspect });
            }
        } else {
            ranking.suspects.push(suspect);
        }
    }
    verdict::order(&mut ranking.suspects, options.method);
    if options.method == Method::All {
        verdict::fold_the_faint(&mut ranking);
    }
    ranking.folded.sort_by(|a, b| b.group.bytes.cmp(&a.group.bytes).then(a.group.node.cmp(&b.group.node)));
    let all = ranking.suspects.iter_mut().chain(&mut ranking.folded);
    for (at, suspect) in all.enumerate() {
        suspect.rank = at + 1;
    }
    ranking.heap = signs::heap_growth(evidence);
    ranking.heap_bytes = evidence.replay.totals().live_bytes;
    ranking.full_in = options.limit.zip(ranking.heap.as_ref()).and_then(|(limit, heap)| {
        forecast::reaches(limit as f64, ranking.heap_bytes as f64, &heap.bytes.slope)
    });
    ranking.missing = missing(session, evidence, findings, options);
    ranking
}

/// What methods that were asked for could not do.
fn missing(session: &Session, evidence: &Evidence, findings: &Findings, options: &Options) -> Vec<String> {
    let asked = |method| options.method == method;
    let mut missing = Vec::new();
    if asked(Method::Unreachable) && !findings.scanned {
        missing.push("the memory was not scanned: record with `highwater run --leak-check`".to_string());
    }
    if asked(Method::Window) && findings.windows == 0 {
        missing.push("no window: name it with --from and --to, or set marks while it runs".to_string());
    }
    let exits = session.facts().end.as_ref().is_some_and(|end| end.how == EndedHow::Exit);
    if asked(Method::Exit) && !exits {
        missing.push("the program did not exit by itself: what is alive was in use then".to_string());
    }
    if (asked(Method::Growth) || asked(Method::Stale)) && !evidence.levels {
        missing.push(
            "recorded with --live-only: what was freed is not known, so nothing can be seen to grow"
                .to_string(),
        );
    } else if (asked(Method::Growth) || asked(Method::Stale)) && evidence.slices.len() < signs::MIN_SLICES {
        missing.push("too few events to see anything grow".to_string());
    }
    missing
}

/// A site: stacks with the same frame to blame.
pub struct Site<'a> {
    /// Its stacks.
    pub stacks: Vec<&'a StackEvidence>,
    /// The stack that has most of the blocks, with the frame to blame as its site.
    stack: Arc<Stack>,
    node: NodeId,
    node_blocks: u64,
    label: String,
    /// Of all stacks.
    pub lifetimes: Lifetimes,
    /// What other methods found.
    pub found: Found,
    /// Blocks that are judged: alive when the program began to tidy up, or at the end.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Variance of `bytes`, where they are an estimate from a sample.
    variance: u64,
    /// Blocks alive at the very end.
    pub exit_blocks: u64,
    /// Their bytes.
    pub exit_bytes: u64,
    exit_variance: u64,
    /// Survivors by slice of birth.
    pub survivors: FxHashMap<u32, u64>,
    /// Older than [`Lifetimes::stale_age`]: blocks, bytes.
    pub old: (u64, u64),
    old_variance: u64,
    /// Time of the earliest birth among the judged blocks, ns.
    pub oldest_ns: u64,
    stale_age: Option<u64>,
}

impl Site<'_> {
    /// Low blocks, live bytes and low bytes by slice, up to the last that counts;
    /// blocks made by slice.
    pub fn dense(&self, evidence: &Evidence) -> (Spread, Vec<u64>) {
        let slices = evidence.last_slice as usize + 1;
        let mut spread = Spread::new(slices);
        let mut bytes = vec![0u64; slices];
        for stack in &self.stacks {
            let mut level = (0u64, 0u64);
            let mut points = stack.points.iter().peekable();
            for (at, held) in bytes.iter_mut().enumerate() {
                let (mut low_blocks, mut low_bytes) = level;
                if let Some(point) = points.next_if(|point| point.slice as usize == at) {
                    (low_blocks, low_bytes) = (point.low_blocks, point.low_bytes);
                    level = (point.blocks, point.bytes);
                    spread.born[at] += u64::from(point.born);
                }
                spread.low_blocks[at] += low_blocks;
                spread.low_bytes[at] = spread.low_bytes[at].saturating_add(low_bytes);
                *held = held.saturating_add(level.1);
            }
        }
        (spread, bytes)
    }

    fn group(&self, signs: &Signs, method: Method) -> Group {
        let found = &self.found;
        let (bytes, blocks, variance) = match method {
            Method::Exit => (self.exit_bytes, self.exit_blocks, self.exit_variance),
            // Nothing is scanned where only a sample is known.
            Method::Unreachable => (found.lost_bytes(), found.lost_blocks(), 0),
            Method::Window => (found.window_bytes, found.window_blocks, found.window_variance),
            Method::Stale => signs.stale.map_or((0, 0, 0), |s| (s.bytes, s.blocks, self.old_variance)),
            Method::Growth | Method::All => (self.bytes, self.blocks, self.variance),
        };
        let allocations = self.stacks.iter().map(|stack| stack.allocations).sum();
        let counts = Counts {
            allocations,
            frees: self.stacks.iter().map(|stack| stack.frees).sum(),
            live_blocks: self.exit_blocks,
            live_bytes: self.exit_bytes,
            live_variance: self.exit_variance,
            ..Counts::default()
        };
        Group {
            label: self.label.clone(),
            bytes,
            blocks,
            allocations,
            counts,
            variance,
            node: self.node,
            stack: Arc::clone(&self.stack),
        }
    }
}

struct Groups<'a> {
    sites: Vec<Site<'a>>,
    by_node: FxHashMap<NodeId, u32>,
}

impl<'a> Groups<'a> {
    fn new(
        session: &mut Session,
        evidence: &'a Evidence,
        findings: &Findings,
        rules: &Suppressions,
        options: &Options,
        ranking: &mut Ranking,
    ) -> Groups<'a> {
        let mut live: FxHashMap<NodeId, (u64, u64)> = FxHashMap::default();
        for block in evidence.live() {
            let sum = live.entry(block.node).or_default();
            let weight = evidence.replay.weight(block.size, block.seqno);
            sum.0 = sum.0.saturating_add(weight.blocks);
            sum.1 = sum.1.saturating_add(weight.bytes);
        }
        let resolved: Vec<Arc<Stack>> =
            evidence.stacks.iter().map(|stack| session.stack(stack.node)).collect();
        let mut wrappers = Wrappers::given(options.wrappers.clone());
        if !options.no_wrappers {
            let samples: Vec<Sample<'_>> = resolved
                .iter()
                .zip(&evidence.stacks)
                .map(|(stack, evidence)| Sample { stack, sizes: evidence.sizes })
                .collect();
            wrappers.learn(&samples);
        }
        ranking.wrappers = wrappers.learned().into_iter().map(str::to_string).collect();
        let mut groups = Groups { sites: Vec::new(), by_node: FxHashMap::default() };
        let mut keys: FxHashMap<String, u32> = FxHashMap::default();
        for (stack, evidence) in resolved.iter().zip(&evidence.stacks) {
            if rules.rule(stack).is_some() {
                let (blocks, bytes) = live.get(&evidence.node).copied().unwrap_or_default();
                ranking.suppressed.0 += bytes;
                ranking.suppressed.1 += blocks;
                continue;
            }
            let site = wrappers.blame(stack);
            let label = label(stack, site);
            let at = *keys.entry(label.clone()).or_insert_with(|| {
                groups.sites.push(Site::new(label, stack, site, evidence.node));
                (groups.sites.len() - 1) as u32
            });
            groups.by_node.insert(evidence.node, at);
            let Some(group) = groups.sites.get_mut(at as usize) else { continue };
            group.stacks.push(evidence);
            if let Some(lifetimes) = &evidence.lifetimes {
                group.lifetimes.merge(lifetimes);
            }
            if let Some(found) = findings.stacks.get(&evidence.node) {
                group.found.add(found);
            }
            let blocks = live.get(&evidence.node).map_or(0, |live| live.0);
            if blocks > group.node_blocks {
                group.node_blocks = blocks;
                group.node = evidence.node;
                group.stack = blamed(stack, site);
            }
        }
        groups
    }

    /// Goes through the blocks, once their sites and lifetimes are known.
    fn count_blocks(&mut self, evidence: &Evidence) {
        for site in &mut self.sites {
            site.stale_age = site.lifetimes.stale_age();
        }
        for block in evidence.live() {
            let Some(site) = self.by_node.get(&block.node).and_then(|&at| self.sites.get_mut(at as usize))
            else {
                continue;
            };
            let weight = evidence.replay.weight(block.size, block.seqno);
            site.blocks = site.blocks.saturating_add(weight.blocks);
            site.bytes = site.bytes.saturating_add(weight.bytes);
            site.variance = site.variance.saturating_add(weight.variance);
            let survivors = site.survivors.entry(evidence.slice_of(block.seqno)).or_default();
            *survivors = survivors.saturating_add(weight.blocks);
            site.oldest_ns = site.oldest_ns.min(block.ns);
            let age = evidence.now_ns.saturating_sub(block.ns);
            if site.stale_age.is_some_and(|stale| age > stale) {
                site.old.0 = site.old.0.saturating_add(weight.blocks);
                site.old.1 = site.old.1.saturating_add(weight.bytes);
                site.old_variance = site.old_variance.saturating_add(weight.variance);
            }
        }
        for totals in evidence.replay.sites() {
            if let Some(site) = self.by_node.get(&totals.node).and_then(|&at| self.sites.get_mut(at as usize))
            {
                site.exit_blocks += totals.live_blocks;
                site.exit_bytes = site.exit_bytes.saturating_add(totals.live_bytes);
                site.exit_variance = site.exit_variance.saturating_add(totals.live_variance);
            }
        }
    }
}

impl Site<'_> {
    fn new(label: String, stack: &Arc<Stack>, site: usize, node: NodeId) -> Site<'static> {
        Site {
            stacks: Vec::new(),
            stack: blamed(stack, site),
            node,
            node_blocks: 0,
            label,
            lifetimes: Lifetimes::default(),
            found: Found::default(),
            blocks: 0,
            bytes: 0,
            variance: 0,
            exit_blocks: 0,
            exit_bytes: 0,
            exit_variance: 0,
            survivors: FxHashMap::default(),
            old: (0, 0),
            old_variance: 0,
            oldest_ns: u64::MAX,
            stale_age: None,
        }
    }
}

/// The stack with another frame to blame.
fn blamed(stack: &Arc<Stack>, site: usize) -> Arc<Stack> {
    if stack.site == site { Arc::clone(stack) } else { Arc::new(Stack { site, ..Stack::clone(stack) }) }
}

/// What stacks of a site have in common, in words; as [`crate::group`] has it.
fn label(stack: &Stack, site: usize) -> String {
    stack.frames.get(site).map_or_else(
        || "[no stack]".to_string(),
        |frame| match (&frame.file, frame.line) {
            (Some(file), line) => format!("{} ({file}:{})", function_name(frame), line.unwrap_or(0)),
            (None, _) => format!("{} ({})", function_name(frame), frame.module),
        },
    )
}
