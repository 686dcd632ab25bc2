//! What is compared: blocks and their bytes, by one of several metrics.

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_replay::{LiveBlock, Replay, Totals, Until};
use highwater_trace::model::{Op, Step, ThreadNo};
use rustc_hash::FxHashMap;

use super::Rank;
use crate::filter::{Filter, Subject};
use crate::group::{By, Item, Metric};
use crate::leaks::suppressions::Suppressions;
use crate::session::{QueryError, Session};

/// What a metric counts, in words that follow a file's name.
pub const fn words(metric: Metric) -> &'static str {
    match metric {
        Metric::Live => "live",
        Metric::Peak => "live at the peak",
        Metric::Allocated | Metric::Allocations => "allocated",
        Metric::Temporary => "temporary",
        Metric::Leaked => "leaked",
    }
}

/// What of a metric counts first.
pub const fn rank(metric: Metric) -> Rank {
    if metric.counts_blocks() { Rank::Blocks } else { Rank::Bytes }
}

/// The live set after an instant that passes the filter, by seqno, and the replay
/// that it comes from.
///
/// # Errors
/// The trace cannot be read.
pub fn live(
    session: &mut Session,
    at: Until,
    filter: &Filter,
) -> Result<(Vec<LiveBlock>, Replay), QueryError> {
    let mut replay = session.replay_until(at)?;
    replay.finish();
    let mut blocks = replay.live_set();
    blocks.sort_by_key(|block| block.seqno);
    if !filter.is_empty() {
        let mut selection = filter.select(session)?;
        let now = replay.totals().last_ns;
        blocks.retain(|block| selection.passes(&Subject::alive(block, now), session));
    }
    Ok((blocks, replay))
}

/// All blocks of a metric, as items to be grouped, and the totals of the whole run
/// where they came by the way. `at` is the instant of [`Metric::Live`]; `rules` hide
/// what [`Metric::Leaked`] does not count.
///
/// # Errors
/// The trace cannot be read.
pub fn items(
    session: &mut Session,
    metric: Metric,
    at: Until,
    filter: &Filter,
    rules: &Suppressions,
    by: By,
) -> Result<(Vec<Item>, Option<Totals>), QueryError> {
    let whole = metric != Metric::Live || at == Until::End;
    // Temporary blocks are counted by site alone.
    if metric == Metric::Temporary || whole && filter.is_empty() && by.needs_only_stacks() {
        let found = session.outcome()?;
        let mut items: Vec<Item> = found.sites().iter().map(|site| Item::of(site, metric)).collect();
        if metric == Metric::Leaked {
            items.retain(|item| item.blocks > 0 && rules.rule(&session.stack(item.node)).is_none());
        }
        return Ok((items, Some(found.totals().clone())));
    }
    let at = match metric {
        Metric::Live => at,
        Metric::Peak => session.instant(&crate::Instant::Peak)?,
        Metric::Leaked => Until::End,
        Metric::Allocated | Metric::Allocations | Metric::Temporary => {
            session.knows_each_event("-F and --by thread, api, size or phase of what was allocated")?;
            return Ok((made(session, filter)?, None));
        }
    };
    let (mut blocks, replay) = live(session, at, filter)?;
    if metric == Metric::Leaked {
        blocks.retain(|block| rules.rule(&session.stack(block.node)).is_none());
    }
    let items = blocks.iter().map(|block| Item::of_block(block, &replay)).collect();
    Ok((items, (at == Until::End).then(|| replay.totals())))
}

/// All blocks that were made, those that are alike in one item.
fn made(session: &mut Session, filter: &Filter) -> Result<Vec<Item>, QueryError> {
    /// Stack, thread, entry point, and the number of bits of the size.
    type Alike = (NodeId, ThreadNo, ApiKind, u32);
    let mut selection = filter.select(session)?;
    let scale = Replay::new(session.replay_options());
    let source = session.source();
    let mut steps = source.steps();
    let mut sums: FxHashMap<Alike, Item> = FxHashMap::default();
    while let Some(step) = steps.next_step()? {
        let Step::Event(event) = step else { continue };
        let Op::Alloc { size, usable } = event.op else { continue };
        let block = LiveBlock {
            addr: event.addr,
            size,
            usable,
            seqno: event.seqno,
            ns: event.ns,
            thread: event.thread,
            api: event.api,
            node: event.node,
        };
        if !selection.passes(&Subject::from(&block), session) {
            continue;
        }
        let one = Item::of_block(&block, &scale);
        let alike = (event.node, event.thread, event.api, u64::BITS - size.leading_zeros());
        let sum =
            sums.entry(alike).or_insert(Item { bytes: 0, blocks: 0, allocations: 0, variance: 0, ..one });
        sum.bytes = sum.bytes.saturating_add(one.bytes);
        sum.blocks += one.blocks;
        sum.allocations += one.allocations;
        sum.variance = sum.variance.saturating_add(one.variance);
    }
    Ok(sums.into_values().collect())
}
