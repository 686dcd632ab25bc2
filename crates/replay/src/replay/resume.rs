//! Going on from a keyframe, and what a keyframe has to hold for that.

use highwater_trace::model::LiveBlock as Stored;
use highwater_trace::{KeyframeReader, ThreadState, TraceError};

use super::{Options, Replay, SEARCH_BUDGET};
use crate::ahead::{has_processor, read_ahead};
use crate::block::{Block, Fields, MAX_NS, MAX_SEQNO, MAX_SIZE};
use crate::live::LiveBlock;
use crate::outcome::{Outcome, SoFar};
use crate::sampling::Sampled;
use crate::table::{Roll, Since};
use crate::totals::{SiteTotals, ThreadTotals};

/// Notes of [`Doubts`] that are kept; with more no keyframe is sound.
const MOST: usize = 4096;

/// Where a replay needed what no keyframe holds: the memory of freed blocks, or
/// a realloc that had begun. Going on from a keyframe in between would not give
/// the same result.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// A keyframe behind the first of these events and not behind the second is
    /// not sound.
    between: Vec<(u64, u64)>,
    many: bool,
}

impl Doubts {
    #[cold]
    pub(super) fn add(&mut self, earlier: u64, later: u64) {
        match self.between.len() {
            MOST => self.many = true,
            _ => self.between.push((earlier, later)),
        }
    }
}

/// Blocks of a keyframe from which on a second thread pays.
const MANY: usize = 20_000;
/// Parts that may wait between the two threads.
const WAITING: usize = 4;

/// Blocks that are taken in at once: they stay in the nearest caches meanwhile.
const AT_ONCE: usize = 512;

/// What was restored of a keyframe so far.
#[derive(Default)]
struct Restoring {
    /// The present blocks.
    fields: Vec<Fields>,
    /// The greatest address.
    highest: Option<u64>,
}

impl Replay {
    /// The heap as a keyframe has it, to go on with [`Replay::feed_in`] from the
    /// event with the keyframe's seqno. Nothing is counted yet but what lives:
    /// begin a [window](Replay::begin_window) where counts matter. `None` for a
    /// keyframe that is damaged, or does not say enough of the threads.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn resume(options: Options, keyframe: &mut KeyframeReader<'_>) -> Result<Option<Replay>, TraceError> {
        Self::restored(options, keyframe, &[])
    }

    /// The same with all that was counted up to there, as if it had come from the start.
    /// `None` also where that does not belong to the keyframe.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn resume_counted(
        options: Options,
        keyframe: &mut KeyframeReader<'_>,
        so_far: SoFar,
    ) -> Result<Option<Replay>, TraceError> {
        let replay = Self::restored(options, keyframe, so_far.found.sites())?;
        Ok(replay.and_then(|replay| replay.counted(so_far)))
    }

    /// `sites` are those that come first, in their order.
    fn restored(
        options: Options,
        keyframe: &mut KeyframeReader<'_>,
        sites: &[SiteTotals],
    ) -> Result<Option<Replay>, TraceError> {
        let Some(threads) = keyframe.threads() else { return Ok(None) };
        let mut replay = Replay::new(options);
        let entry = keyframe.entry();
        replay.now = entry.ns;
        replay.seqno = entry.seqno.saturating_sub(1);
        for state in threads {
            let index = replay.thread(state.thread);
            let Some(totals) = replay.threads.get_mut(index as usize) else { return Ok(None) };
            totals.last_alloc = state.last_alloc.unwrap_or(u64::MAX);
            (totals.first_ns, totals.last_ns) = (state.first_ns, state.last_ns);
        }
        for site in sites {
            replay.site_at(site.node);
        }
        replay.table.reserve(keyframe.about());
        replay.load(keyframe)?;
        if !keyframe.is_sound() {
            return Ok(None);
        }
        replay.peak.restart(entry.ns, replay.seqno);
        Ok(Some(replay))
    }

    /// Takes in all blocks of a keyframe. Where they are many, a thread of its own reads them.
    fn load(&mut self, keyframe: &mut KeyframeReader<'_>) -> Result<(), TraceError> {
        let mut restoring = Restoring::default();
        if keyframe.about() < MANY || !has_processor() {
            while let Some(blocks) = keyframe.next_part()? {
                self.restore(blocks, &mut restoring);
            }
            return Ok(());
        }
        let next = |blocks: &mut Vec<Stored>| keyframe.next_part_into(blocks);
        read_ahead(WAITING, next, |blocks| {
            self.restore(&blocks, &mut restoring);
            blocks
        })
    }

    /// Takes over what was counted, if what lives is what is said to.
    fn counted(mut self, so_far: SoFar) -> Option<Replay> {
        let SoFar { found, fed, now, upper, lower } = so_far;
        let Outcome { totals, threads, sites, errors, sizes, lifetimes, series } = found;
        let lives = |site: &SiteTotals| (site.node, site.live_blocks, site.live_bytes, site.live_variance);
        let holds = |thread: &ThreadTotals| (thread.thread, thread.live_blocks, thread.live_bytes);
        let sample = |sampled: &Sampled| {
            (sampled.rate, sampled.live, sampled.live_variance, sampled.live_blocks_variance)
        };
        let same = self.sites.iter().map(lives).eq(sites.iter().map(lives))
            && self.threads.iter().map(holds).eq(threads.iter().map(holds))
            && (self.peak.level.live_blocks, self.peak.level.live_bytes)
                == (totals.live_blocks, totals.live_bytes)
            && sample(&self.totals.sampled) == sample(&totals.sampled);
        if !same {
            return None;
        }
        let epoch = self.peak.epoch;
        self.sites = sites.into_iter().map(|site| SiteTotals { epoch, ..site }).collect();
        self.peak.go_on_with(&totals, upper, lower);
        (self.threads, self.totals, self.errors) = (threads, totals, errors);
        (self.sizes, self.lifetimes, self.series) = (sizes, lifetimes, series);
        (self.fed, self.now) = (fed, now);
        Some(self)
    }

    /// All that was counted so far; between two epochs.
    pub fn so_far(&self) -> SoFar {
        let (upper, lower) = self.peak.bounds_so_far();
        SoFar { found: self.outcome(), fed: self.fed, now: self.now, upper, lower }
    }

    /// About as many numbers as it takes to say that.
    pub(crate) fn size_of_so_far(&self) -> usize {
        self.sites.len() + self.threads.len() + self.errors.len()
    }

    /// Some of the blocks that lived at a keyframe.
    fn restore(&mut self, blocks: &[Stored], restoring: &mut Restoring) {
        for blocks in blocks.chunks(AT_ONCE) {
            self.restore_some(blocks, restoring);
        }
    }

    fn restore_some(&mut self, blocks: &[Stored], restoring: &mut Restoring) {
        let Restoring { fields, highest } = restoring;
        fields.clear();
        fields.extend(blocks.iter().map(|block| Fields {
            addr: block.addr,
            size: block.size.min(MAX_SIZE),
            ns: block.ns.min(MAX_NS),
            seqno: block.seqno.min(MAX_SEQNO),
            thread: self.thread(block.thread),
            api: block.api as u8,
            site: self.site_at(block.node),
        }));
        // Keyframes have blocks by address; behind all that are there nothing is in the way.
        let rising = fields.is_sorted_by(|a, b| a.addr < b.addr);
        if rising && fields.first().is_some_and(|first| highest.is_none_or(|last| last < first.addr)) {
            self.table.put_new(fields);
        } else {
            // Two blocks at one address are no heap of ours: the later one counts.
            fields.retain(|fields| self.table.put(fields).is_none());
        }
        let last = fields.iter().map(|fields| fields.addr).max();
        *highest = last.max(*highest);
        for block in blocks.iter().filter(|block| block.usable.is_some()) {
            self.usable.extend(block.usable.map(|usable| (block.seqno.min(MAX_SEQNO), usable)));
        }
        for fields in fields {
            self.count_restored(fields);
        }
    }

    /// A block that lived at the keyframe counts.
    fn count_restored(&mut self, fields: &Fields) {
        let weight = self.weight(fields.size, fields.seqno);
        self.peak.level.live_bytes = self.peak.level.live_bytes.wrapping_add(weight.bytes);
        self.peak.level.live_blocks = self.peak.level.live_blocks.wrapping_add(weight.blocks);
        if self.totals.sampled.rate != 0 {
            self.totals.sampled.came(&weight);
        }
        if let Some(totals) = self.threads.get_mut(fields.thread as usize) {
            totals.live_blocks = totals.live_blocks.wrapping_add(weight.blocks);
            totals.live_bytes = totals.live_bytes.wrapping_add(weight.bytes);
            totals.peak_bytes = totals.live_bytes;
        }
        if let Some(totals) = self.sites.get_mut(fields.site as usize) {
            totals.live_blocks = totals.live_blocks.wrapping_add(weight.blocks);
            totals.live_bytes = totals.live_bytes.wrapping_add(weight.bytes);
            totals.live_variance = totals.live_variance.wrapping_add(weight.variance);
        }
    }

    /// What a keyframe here has to say of the threads.
    pub fn thread_states(&self) -> Vec<ThreadState> {
        let states = self.threads.iter().map(|totals| ThreadState {
            thread: totals.thread,
            last_alloc: (totals.last_alloc != u64::MAX).then_some(totals.last_alloc),
            first_ns: totals.first_ns,
            last_ns: totals.last_ns,
        });
        states.collect()
    }

    /// How many blocks are alive.
    pub fn live_count(&self) -> usize {
        self.table.count()
    }

    /// The live blocks as a keyframe holds them, by address; they are put on a roll.
    pub fn stored_blocks<'a>(&'a self, roll: &'a mut Roll) -> impl Iterator<Item = Stored> + 'a {
        self.table.enrol(roll).map(|block| self.stored(block))
    }

    /// What has changed since those on a roll were all that lived; `None` where more than
    /// `most` blocks are new.
    pub fn since(&self, roll: &Roll, most: usize) -> Option<Since> {
        self.table.since(roll, most)
    }

    /// The new blocks of [`Replay::since`], at the same instant, by address.
    pub fn stored_since<'a>(&'a self, since: &'a Since) -> impl Iterator<Item = Stored> + 'a {
        self.table.new_since(since).map(|block| self.stored(block))
    }

    fn stored(&self, block: &Block) -> Stored {
        let LiveBlock { addr, size, usable, seqno, ns, thread, api, node } = self.live_block(block);
        Stored { addr, size, usable, node, thread, api, seqno, ns }
    }

    /// Would a replay from a keyframe at `seqno` have come to the same as this
    /// one has?
    pub fn is_sound_from(&self, seqno: u64) -> bool {
        let Doubts { between, many } = &self.doubts;
        // A search that was given up may succeed with a fresh budget.
        !many
            && self.search_budget > SEARCH_BUDGET / 2
            && self.order_states < super::settle::FIRST_ORDER_STATES / 2
            && between.iter().all(|&(earlier, later)| seqno <= earlier || later < seqno)
    }
}

#[cfg(test)]
mod tests {
    use highwater_event::api::ApiKind;
    use highwater_event::codec::{Encoder, MAX_RECORD, Record};
    use highwater_trace::model::{End, EndedHow, EventBlock, Meta};
    use highwater_trace::{Trace, Writer, WriterOptions};

    use super::*;
    use crate::{Additions, Feed, Until};

    #[test]
    fn a_large_heap_comes_back_from_whole_keyframes_and_differences() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.hwt");
        let mut writer = Writer::create(&path, &Meta::default(), WriterOptions::default()).unwrap();
        let mut encoder = Encoder::default();
        let (mut stamp, mut live, mut random) = (0u64, Vec::new(), 1u64);
        for epoch in 0..34 {
            let (start, mut payload) = (encoder.state, Vec::new());
            for _ in 0..6_000 {
                stamp += 1;
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let record = if epoch > 3 && random >> 63 != 0 && !live.is_empty() {
                    let ptr = live.swap_remove((random >> 33) as usize % live.len());
                    Record::Free { stamp, ptr, node: 0, api: ApiKind::Free }
                } else {
                    let ptr = (stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) & !15;
                    let (size, node) = (random >> 50, stamp as u32 % 99);
                    live.push(ptr);
                    let api = ApiKind::Malloc;
                    Record::Alloc { stamp, ptr, size, usable: None, node, api, pair: false }
                };
                payload.extend_from_slice(encoder.record(&record, &mut [0; MAX_RECORD]));
            }
            writer.events(&EventBlock { thread: 0, events: 6_000, start, payload: &payload }).unwrap();
            writer.end_epoch().unwrap();
            writer.flush().unwrap();
        }
        writer.finish(&End { how: EndedHow::Exit, ..End::default() }).unwrap();
        let trace = Trace::open(&path).unwrap();
        let mut additions = Additions::at_least_apart(&trace, &Options::default(), 30_000).unwrap();
        let mut whole = Replay::new(Options::default());
        Feed::new(trace.steps()).go_on_watched(&mut whole, Until::End, 0, &mut additions).unwrap();
        whole.finish();
        additions.append(&trace, &whole, &whole.outcome(), None);
        let trace = Trace::open(&path).unwrap();
        let (mut large, mut differ) = (0, 0);
        for entry in trace.entries_before(u64::MAX) {
            let mut keyframe = trace.enter(&entry).unwrap().unwrap();
            large += usize::from(keyframe.about() >= MANY);
            differ += usize::from(entry.differs && keyframe.about() >= MANY);
            let mut heap = Replay::resume(Options::default(), &mut keyframe).unwrap().unwrap();
            Feed::new(trace.steps_from(entry.seqno)).go_on(&mut heap, Until::End, 0).unwrap();
            heap.finish();
            assert_eq!(heap.live_set(), whole.live_set(), "from {entry:?}");
        }
        assert!(large > differ && differ > 0, "{large} {differ}");
    }
}
