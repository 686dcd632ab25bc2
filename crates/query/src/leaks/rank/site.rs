//! The sites of a run: stacks put together by the function to blame.

use std::sync::Arc;

use highwater_event::node::NodeId;
use highwater_replay::evidence::Aged;
use rustc_hash::FxHashMap;

use super::signs::{Signs, Spread};
use super::{Findings, Found, Method, Options, Ranking};
use crate::group::{Counts, Group};
use crate::leaks::evidence::{Evidence, StackEvidence};
use crate::leaks::lifetimes::Lifetimes;
use crate::leaks::suppressions::Suppressions;
use crate::leaks::wrappers::{Sample, Wrappers};
use crate::session::Session;
use crate::stack::{Stack, function_name};

/// A site: stacks with the same frame to blame.
pub struct Site<'a> {
    /// Its stacks.
    pub stacks: Vec<StackEvidence<'a>>,
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
    /// Of each stack the first and the last slice with a survivor, and how many there are.
    pub spans: FxHashMap<NodeId, (u32, u32, u64)>,
    /// Older than [`Lifetimes::stale_age`]: blocks, bytes.
    pub old: (u64, u64),
    old_variance: u64,
    /// How many blocks of the record `blocks` stands for: fewer, of a sample.
    pub seen: u64,
    /// Allocations and frees of stacks of which only totals are known.
    totals_only: (u64, u64),
    /// Time of the earliest birth among the judged blocks, ns.
    pub oldest_ns: u64,
}

impl Site<'_> {
    /// Low blocks, live bytes and low bytes by slice, up to the last that counts;
    /// blocks made by slice.
    pub fn dense(&self, evidence: &Evidence) -> (Spread, Vec<u64>) {
        let slices = evidence.last_slice() as usize + 1;
        let mut spread = Spread::new(slices);
        let mut bytes = vec![0u64; slices];
        for stack in &self.stacks {
            stack.each_slice(slices, |at, point| {
                spread.born[at] += u64::from(point.born);
                spread.low_blocks[at] = spread.low_blocks[at].saturating_add(point.low_blocks);
                spread.low_bytes[at] = spread.low_bytes[at].saturating_add(point.low_bytes);
                bytes[at] = bytes[at].saturating_add(point.bytes);
            });
        }
        (spread, bytes)
    }

    /// Blocks made.
    pub fn allocations(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.allocations).fold(self.totals_only.0, u64::saturating_add)
    }

    /// What the methods count of it.
    pub fn group(&self, signs: &Signs, method: Method) -> Group {
        let found = &self.found;
        let (bytes, blocks, variance) = match method {
            Method::Exit => (self.exit_bytes, self.exit_blocks, self.exit_variance),
            // Nothing is scanned where only a sample is known.
            Method::Unreachable => (found.lost_bytes(), found.lost_blocks(), 0),
            Method::Window => (found.window_bytes, found.window_blocks, found.window_variance),
            Method::Stale => signs.stale.map_or((0, 0, 0), |s| (s.bytes, s.blocks, self.old_variance)),
            // What is alive at the end is what every other view counts.
            Method::Growth | Method::All if self.exit_blocks > 0 => {
                (self.exit_bytes, self.exit_blocks, self.exit_variance)
            }
            Method::Growth | Method::All => (self.bytes, self.blocks, self.variance),
        };
        let allocations = self.allocations();
        let frees = self.stacks.iter().map(|stack| stack.frees).fold(self.totals_only.1, u64::saturating_add);
        let counts = Counts {
            allocations,
            frees,
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

/// All sites of a run.
pub struct Groups<'a> {
    /// They.
    pub sites: Vec<Site<'a>>,
    /// The number of a stack's site.
    pub by_node: FxHashMap<NodeId, u32>,
}

impl<'a> Groups<'a> {
    /// Puts the stacks of `evidence` together; what `rules` suppress is only counted, in
    /// `ranking`.
    pub fn new(
        session: &mut Session,
        evidence: &'a Evidence,
        findings: &Findings,
        rules: &Suppressions,
        options: &Options,
        ranking: &mut Ranking,
    ) -> Groups<'a> {
        let resolved: Vec<Arc<Stack>> = evidence.stacks().map(|stack| session.stack(stack.node)).collect();
        let mut wrappers = Wrappers::given(options.wrappers.clone());
        if !options.no_wrappers {
            let samples: Vec<Sample<'_>> = resolved
                .iter()
                .zip(evidence.stacks())
                .map(|(stack, evidence)| Sample { stack, sizes: evidence.sizes })
                .collect();
            wrappers.learn(&samples);
        }
        ranking.wrappers = wrappers.learned().into_iter().map(str::to_string).collect();
        let mut groups = Groups { sites: Vec::new(), by_node: FxHashMap::default() };
        let mut keys: FxHashMap<String, u32> = FxHashMap::default();
        for (stack, evidence) in resolved.iter().zip(evidence.stacks()) {
            let (blocks, bytes) = evidence.judged();
            if rules.rule(stack).is_some() {
                ranking.suppressed.0 = ranking.suppressed.0.saturating_add(bytes);
                ranking.suppressed.1 = ranking.suppressed.1.saturating_add(blocks);
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
            group.lifetimes.merge(&evidence.lived);
            if let Some(found) = findings.stacks.get(&evidence.node) {
                group.found.add(found);
            }
            if blocks > group.node_blocks {
                group.node_blocks = blocks;
                group.node = evidence.node;
                group.stack = blamed(stack, site);
            }
        }
        // Stacks whose blocks were all left out of the record have their part in
        // what their sites made.
        for totals in evidence.found.sites() {
            if totals.allocations == 0 || groups.by_node.contains_key(&totals.node) {
                continue;
            }
            let stack = session.stack(totals.node);
            let label = label(&stack, wrappers.blame(&stack));
            if rules.rule(&stack).is_none()
                && let Some(site) = keys.get(&label).and_then(|&at| groups.sites.get_mut(at as usize))
            {
                site.totals_only.0 = site.totals_only.0.saturating_add(totals.allocations);
                site.totals_only.1 = site.totals_only.1.saturating_add(totals.frees);
            }
        }
        groups
    }

    /// Counts the blocks, once their sites and lifetimes are known.
    pub fn count_blocks(&mut self, evidence: &Evidence) {
        for site in &mut self.sites {
            let stale = site.lifetimes.stale_bucket();
            for (node, held) in site.stacks.iter().filter_map(|stack| Some((stack.node, stack.held?))) {
                site.seen = site.seen.saturating_add(held.seen);
                site.blocks = site.blocks.saturating_add(held.blocks);
                site.bytes = site.bytes.saturating_add(held.bytes);
                site.variance = site.variance.saturating_add(held.variance);
                site.oldest_ns = site.oldest_ns.min(held.oldest_ns);
                for &(slice, blocks) in &held.births {
                    let survivors = site.survivors.entry(slice).or_default();
                    *survivors = survivors.saturating_add(blocks);
                }
                if let (Some(first), Some(last)) = (held.births.first(), held.births.last()) {
                    site.spans.insert(node, (first.0, last.0, held.blocks));
                }
                let old = |aged: &&Aged| stale.is_some_and(|bucket| usize::from(aged.class) > bucket);
                for aged in held.ages.iter().filter(old) {
                    site.old.0 = site.old.0.saturating_add(aged.blocks);
                    site.old.1 = site.old.1.saturating_add(aged.bytes);
                    site.old_variance = site.old_variance.saturating_add(aged.variance);
                }
            }
        }
        for totals in evidence.found.sites() {
            if let Some(site) = self.by_node.get(&totals.node).and_then(|&at| self.sites.get_mut(at as usize))
            {
                site.exit_blocks = site.exit_blocks.saturating_add(totals.live_blocks);
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
            spans: FxHashMap::default(),
            old: (0, 0),
            old_variance: 0,
            seen: 0,
            totals_only: (0, 0),
            oldest_ns: u64::MAX,
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
