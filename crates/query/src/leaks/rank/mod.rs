//! Who leaks: all the evidence, put together by the function to blame, and
//! ranked.
//!
//! | module | holds |
//! |---|---|
//! | [`site`] | the stacks of a site, and the blocks that are judged |
//! | [`signs`] | what the evidence says of a site, in numbers |
//! | [`verdict`] | what these numbers mean |
//! | [`reason`] | the same in a sentence |

pub mod reason;
pub mod signs;
pub mod site;
pub mod verdict;

use highwater_event::node::NodeId;
use highwater_trace::model::EndedHow;
use rustc_hash::FxHashMap;

use super::evidence::Evidence;
use super::growth::{Trend, forecast};
use super::holders::{self, Holder, Ways};
use super::reach::{Class, Reach};
use super::suppressions::Suppressions;
use crate::group::Group;
use crate::session::Session;
use signs::Signs;
use site::Groups;
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
    pub fn scan(&mut self, reach: Box<Reach>) {
        for site in &reach.sites {
            let found = self.stacks.entry(site.node).or_default();
            let of = |class: Class| site.classes[class as usize & 3];
            let (definite, indirect, possible) =
                (of(Class::Definite), of(Class::Indirect), of(Class::Possible));
            (found.definite_blocks, found.definite_bytes) = (definite.blocks, definite.bytes);
            (found.indirect_blocks, found.indirect_bytes) = (indirect.blocks, indirect.bytes);
            (found.possible_blocks, found.possible_bytes) = (possible.blocks, possible.bytes);
        }
        self.reach = Some(reach);
    }
}

/// Findings of methods that need more than the events.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// By stack.
    pub stacks: FxHashMap<NodeId, Found>,
    /// The scan of the memory, if there was one.
    pub reach: Option<Box<Reach>>,
    /// Windows that were compared, 0 for none.
    pub windows: u64,
}

/// A site, and what speaks against it.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// From 1; the folded ones come behind the others.
    pub rank: usize,
    /// Bytes and blocks at the end of the recording, or where nothing was left
    /// then, before the program tidied up; and the stack that has most of the
    /// blocks, whose site is the frame to blame.
    pub group: Group,
    /// Bytes and blocks before the program tidied up, where they were others.
    pub held: Option<(u64, u64)>,
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
    /// Who still points to its blocks, by a scan; most bytes first.
    pub held_by: Vec<Holder>,
}

/// How large the heap may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes.
    pub bytes: u64,
    /// Whose limit that is (`cgroup`, `RLIMIT_AS`, `RLIMIT_DATA`); `None` for the
    /// user's.
    pub of: Option<String>,
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
    /// The limit that was asked for, else the tightest that the program had.
    pub limit: Option<Limit>,
    /// When the heap alone reaches it, seconds from the end.
    pub full_in: Option<forecast::Range>,
    /// Suppressed bytes and blocks.
    pub suppressed: (u64, u64),
    /// Was the memory scanned?
    pub scanned: bool,
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
    let ways = findings.reach.as_ref().map(|reach| Ways::new(reach));
    let mut roots = ways.as_ref().map(|ways| ways.by_site(|node| groups.by_node.get(&node).copied()));
    for (number, site) in (0u32..).zip(groups.sites) {
        if site.blocks == 0 && site.exit_blocks == 0 {
            continue;
        }
        let signs = Signs::of(&run, &site);
        let judged = verdict::judge(&run, &signs);
        if options.method != Method::All && !judged.methods.contains(&options.method) {
            continue;
        }
        let series = if evidence.levels { site.dense(evidence).1 } else { Vec::new() };
        let group = site.group(&signs, options.method);
        let roots = roots.as_mut().and_then(|roots| roots.remove(&number)).filter(|_| !judged.folded);
        let held_by = match (&ways, roots) {
            (Some(ways), Some(roots)) => ways.holders(session, &roots),
            _ => Vec::new(),
        };
        let suspect = Suspect {
            rank: 0,
            reason: reason::sentence(&run, &signs, &judged, holders::sentence(&held_by, group.stack.site())),
            held_by,
            methods: judged.methods,
            verdict: judged.verdict,
            confidence: judged.confidence,
            series,
            stacks: site.stacks.len(),
            group,
            held: (site.blocks != site.exit_blocks).then_some((site.bytes, site.blocks)),
            signs,
        };
        // Asked for one method, its list is what it found.
        if judged.folded && options.method == Method::All {
            // What was given back in the end and did not grow is neither kept nor lost.
            if site.exit_blocks > 0 {
                ranking.folded.push(suspect);
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
    ranking.scanned = run.scanned;
    ranking.heap = signs::heap_growth(evidence);
    ranking.heap_bytes = evidence.found.totals().live_bytes;
    let recorded = session.facts().meta.memory_limits.first();
    ranking.limit = match (options.limit, recorded) {
        (Some(bytes), _) => Some(Limit { bytes, of: None }),
        (None, Some(limit)) => Some(Limit { bytes: limit.bytes, of: Some(limit.of.clone()) }),
        (None, None) => None,
    };
    ranking.full_in = ranking.limit.as_ref().zip(ranking.heap.as_ref()).and_then(|(limit, heap)| {
        forecast::reaches(limit.bytes as f64, ranking.heap_bytes as f64, &heap.bytes.slope)
    });
    ranking.missing = missing(session, &run, findings, options);
    ranking
}

/// What methods that were asked for could not do.
fn missing(session: &Session, run: &signs::Run<'_>, findings: &Findings, options: &Options) -> Vec<String> {
    let asked = |method| options.method == method;
    let mut missing = Vec::new();
    if asked(Method::Unreachable) && findings.reach.is_none() {
        missing.push("the memory was not scanned: record with `highwater run --leak-check`".to_string());
    }
    if asked(Method::Window) && findings.windows == 0 {
        missing.push("no window: name it with --from and --to, or set marks while it runs".to_string());
    }
    let exits = session.facts().end.as_ref().is_some_and(|end| end.how == EndedHow::Exit);
    if asked(Method::Exit) && !exits {
        missing.push("the program did not exit by itself: what is alive was in use then".to_string());
    }
    if (asked(Method::Growth) || asked(Method::Stale)) && !run.evidence.levels {
        missing.push(
            "recorded with --live-only: what was freed is not known, so nothing can be seen to grow"
                .to_string(),
        );
    } else if (asked(Method::Growth) || asked(Method::Stale)) && !run.long {
        let what = if run.sampled { "the sample is too small" } else { "too few events" };
        missing.push(format!("{what} to see anything grow"));
    }
    missing
}
