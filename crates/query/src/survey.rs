//! What is counted of a trace, or of a part of it: between two instants, and of
//! the blocks that pass a filter.
//!
//! A filter chooses blocks, by how they were made: their frees belong to them,
//! whoever frees them. (A free of an unknown block is judged by itself.) So the
//! numbers add up as if the program had only these blocks.

mod counter;
#[cfg(test)]
mod properties;

use std::sync::Arc;

use highwater_replay::histogram::Histogram;
use highwater_replay::{ErrorKind, HeapError, Outcome, ThreadTotals, Totals, Until};

use crate::filter::{Filter, Selection, Subject};
use crate::group::{By, Counts, Item, Metric};
use crate::session::{QueryError, Session};
use crate::summary::Stats;
use crate::walk::{Met, Walk};
use counter::Counter;

/// What is asked of a trace.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Which blocks.
    pub filter: Filter,
    /// What happened up to here does not count, though what it left is alive.
    pub from: Until,
    /// The last instant.
    pub to: Until,
    /// How the items will be grouped.
    pub by: By,
    /// What they will be ranked by, if by one thing: where that is of an instant
    /// (the peak, the end), a filter may ask for ages.
    pub metric: Option<Metric>,
}

impl Default for Ask {
    fn default() -> Ask {
        Ask { filter: Filter::default(), from: Until::Start, to: Until::End, by: By::Site, metric: None }
    }
}

impl Ask {
    fn is_whole(&self) -> bool {
        (self.from, self.to) == (Until::Start, Until::End)
    }

    /// The option for which the events themselves are needed.
    fn needs(&self) -> &'static str {
        if !self.is_whole() {
            "--from, --to, --at"
        } else if !self.filter.is_empty() {
            "-F"
        } else {
            "--by thread, api, size or phase"
        }
    }
}

/// Is this about what is alive at the end alone?
fn of_the_end(metric: Metric) -> bool {
    matches!(metric, Metric::Live | Metric::Leaked)
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Totals and facts.
    pub stats: Stats,
    /// By stack, and by what else the grouping needs.
    pub items: Vec<Item>,
    /// Requested sizes of the blocks made.
    pub sizes: Histogram,
    /// Lifetimes of the blocks given back, ns.
    pub lifetimes: Histogram,
    /// The threads that acted, or whose blocks live, in the order of their first events.
    pub threads: Vec<ThreadTotals>,
    /// The bad frees.
    pub errors: Vec<HeapError>,
}

impl Survey {
    /// Counts: reads the trace as far as it is needed. Where all blocks of the whole
    /// trace count, by their stacks alone, its [outcome](Session::outcome) will do.
    ///
    /// # Errors
    /// The trace cannot serve the filter or the grouping; the file cannot be read.
    pub fn of(session: &mut Session, ask: &Ask) -> Result<Survey, QueryError> {
        if ask.filter.has_age() {
            return Survey::of_age(session, ask);
        }
        if ask.filter.is_empty() && ask.by.needs_only_stacks() {
            let found = if ask.is_whole() {
                session.outcome()?
            } else {
                session.knows_each_event(ask.needs())?;
                Arc::new(session.window(ask.from, ask.to)?.outcome())
            };
            let items = found.sites().iter().map(|site| Item::of(site, Metric::Live)).collect();
            return Ok(Survey::of_outcome(session, ask, &found, items));
        }
        // Of what is alive at the end, nothing was left out.
        if !(ask.from == Until::Start && ask.to == Until::End && ask.metric.is_some_and(of_the_end)) {
            session.knows_each_event(ask.needs())?;
        }
        let mut selection = ask.filter.select(session)?;
        let source = session.source();
        let mut walk = Walk::new(&source, session.replay_options(), ask.from, ask.to)?;
        let mut counter = Counter::new(ask.by, session, &walk);
        for block in walk.heap().live() {
            if selection.passes(&Subject::from(&block), session) {
                counter.alive(&block, walk.heap().weight(block.size, block.seqno));
            }
        }
        counter.begin();
        while let Some(met) = walk.advance()? {
            match met {
                Met::Event(seen) => {
                    let subject = match (&seen.made, &seen.ended) {
                        (Some(block), _) | (None, Some(block)) => Subject::from(block),
                        (None, None) => Subject::event(&seen.event, None),
                    };
                    if let (Some(_), Some(lost)) = (&seen.made, &seen.ended)
                        && selection.passes(&Subject::from(lost), session)
                    {
                        counter.lost(lost, walk.heap().weight(lost.size, lost.seqno));
                    }
                    let passes = selection.passes(&subject, session);
                    let size =
                        |block: &highwater_replay::LiveBlock| walk.heap().weight(block.size, block.seqno);
                    let weight = seen.block().map(size);
                    counter.event(&seen, passes, weight);
                }
                Met::Revived(block) => {
                    if selection.passes(&Subject::from(&block), session) {
                        counter.alive(&block, walk.heap().weight(block.size, block.seqno));
                    }
                }
            }
        }
        session.learn(walk.steps());
        let found = walk.finish().outcome();
        let items = counter.items();
        if ask.filter.is_empty() {
            return Ok(Survey::of_outcome(session, ask, &found, items));
        }
        Ok(Survey::of_counter(session, ask, &found, counter, items, &mut selection))
    }

    fn of_outcome(session: &Session, ask: &Ask, found: &Outcome, items: Vec<Item>) -> Survey {
        let acted = |thread: &&ThreadTotals| thread.allocations + thread.frees + thread.live_blocks > 0;
        let threads: Vec<ThreadTotals> = found.threads().iter().filter(acted).cloned().collect();
        let stats = if ask.is_whole() {
            Stats::collect(session, found)
        } else {
            let sites = found.sites().iter().map(|site| (site.node, site.allocations));
            Stats::of_part(session, found.totals().clone(), threads.len(), sites, (ask.from, ask.to))
        };
        Survey {
            stats,
            items,
            sizes: found.sizes().clone(),
            lifetimes: found.lifetimes().clone(),
            threads,
            errors: found.errors().to_vec(),
        }
    }

    fn of_counter(
        session: &mut Session,
        ask: &Ask,
        found: &Outcome,
        counter: Counter,
        items: Vec<Item>,
        selection: &mut Selection,
    ) -> Survey {
        let errors: Vec<HeapError> = found
            .errors()
            .iter()
            .filter(|error| selection.passes(&subject(error), session))
            .copied()
            .collect();
        // The totals count a bad free where they count the free itself.
        let mut counts = |error: &HeapError| selection.passes(&counted_as(error), session);
        let bad: Vec<HeapError> = found.errors().iter().filter(|error| counts(error)).copied().collect();
        let mut counted = counter.finish(found.totals(), &bad);
        let sites = items.iter().map(|item| (item.node, item.counts.allocations));
        let threads = std::mem::take(&mut counted.threads);
        let stats = Stats::of_part(session, counted.totals, threads.len(), sites, (ask.from, ask.to));
        Survey { stats, items, sizes: counted.sizes, lifetimes: counted.lifetimes, threads, errors }
    }

    /// Ages are counted at one instant, so what lives then is all that can be
    /// told of blocks of some age.
    fn of_age(session: &mut Session, ask: &Ask) -> Result<Survey, QueryError> {
        let Some(metric) = ask.metric.filter(|m| matches!(m, Metric::Peak | Metric::Live | Metric::Leaked))
        else {
            let text = "-F age: ages are counted at an instant, so only what is alive at one has an age; \
                        -F lifetime is about all blocks";
            return Err(QueryError::Usage(text.to_string()));
        };
        let others = Ask { filter: ask.filter.without_age(), ..ask.clone() };
        let mut survey = Survey::of(session, &others)?;
        let mut selection = ask.filter.select(session)?;
        let totals = &survey.stats.totals;
        let (instant, now) = match metric {
            Metric::Peak => (Until::Seqno(totals.peak_seqno), totals.peak_ns),
            _ => (ask.to, if let Until::Ns(ns) = ask.to { ns } else { totals.last_ns }),
        };
        session.knows(instant)?;
        let blocks = if totals.peak_blocks == 0 { Vec::new() } else { session.live_at(instant)? };
        let rate = session.modes().sample;
        let (mut sum, mut of_count) = (Counts::default(), 0u64);
        survey.items.clear();
        for block in &blocks {
            if !selection.passes(&Subject::alive(block, now), session) {
                continue;
            }
            let weight = crate::group::weight(rate, block);
            of_count = of_count.saturating_add(weight.blocks_variance);
            let mut item = Item::weighed(block, weight);
            let counts = &mut item.counts;
            (counts.peak_blocks, counts.peak_bytes) = (counts.live_blocks, counts.live_bytes);
            counts.peak_variance = counts.live_variance;
            sum.add(counts);
            survey.items.push(item);
        }
        survey.stats.part = true;
        let totals: &mut Totals = &mut survey.stats.totals;
        (totals.peak_blocks, totals.peak_bytes) = (sum.peak_blocks, sum.peak_bytes);
        (totals.live_blocks, totals.live_bytes) = (sum.live_blocks, sum.live_bytes);
        let sampled = &mut totals.sampled;
        (sampled.live, sampled.live_variance, sampled.live_blocks_variance) =
            (survey.items.len() as u64, sum.live_variance, of_count);
        (sampled.peak_variance, sampled.peak_blocks_variance) = (sum.peak_variance, of_count);
        Ok(survey)
    }
}

/// A bad free as a filter sees it; where no stack was taken of it, the block's.
pub fn subject(error: &HeapError) -> Subject {
    let free = &error.free;
    let block = error.allocated.as_ref();
    Subject {
        seqno: free.seqno,
        ns: free.ns,
        addr: error.addr,
        size: block.map(|block| block.size),
        thread: free.thread,
        api: free.api,
        node: if free.node == 0 { block.map_or(0, |block| block.node) } else { free.node },
        block: block.map(|block| block.seqno),
        age: block.map(|block| free.ns.saturating_sub(block.ns)),
    }
}

/// A bad free as the totals see it: the block, where it was one that was alive.
fn counted_as(error: &HeapError) -> Subject {
    match error.allocated.filter(|_| error.kind == ErrorKind::Mismatched) {
        Some(block) => Subject {
            seqno: block.seqno,
            ns: block.ns,
            addr: block.addr,
            size: Some(block.size),
            thread: block.thread,
            api: block.api,
            node: block.node,
            block: Some(block.seqno),
            age: None,
        },
        None => Subject { node: error.free.node, size: None, block: None, age: None, ..subject(error) },
    }
}
