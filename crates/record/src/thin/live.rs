//! `--live-only`: the recorder replays the events itself and keeps the live set
//! and a site's totals. The trace gets the blocks that are alive at the end, and
//! totals for the rest: its size does not grow with the length of the run.
//!
//! Bookkeeping is at most 24 bytes a live block ([`super::table`]) and 88 a site.

use highwater_event::api::ApiKind;
use highwater_event::codec::{Record, SpecialKind};
use highwater_event::node::NodeId;
use highwater_replay::peak::Peak;
use highwater_trace::left_out::LeftOut;
use highwater_trace::model::ThreadNo;
use highwater_trace::{TraceError, Writer};
use rustc_hash::FxHashMap;

use super::latest::Latest;
use super::table::{self, Block, Table};
use super::tally::Tally;
use super::{Merged, Out, Pace};

/// A block's time is kept in units of so many bits of ns: about a millisecond.
const TIME_SHIFT: u32 = 20;
/// Greatest number of sites; those beyond share the last one, without a stack.
const MAX_SITES: u32 = (1 << 24) - 1;

/// What is known of a stack.
#[derive(Clone, Copy, Debug, Default)]
struct Site {
    allocations: u64,
    bytes: u64,
    temporary: u64,
    live_bytes: u64,
    peak_bytes: u64,
    live_blocks: u32,
    peak_blocks: u32,
    node: NodeId,
    /// The peak that `peak_*` belong to, its low bits.
    peak: u32,
}

impl Site {
    /// As the replay's: if a peak came since the last change, then what lives now
    /// lived at it.
    fn settle(&mut self, peak: u32) {
        if self.peak != peak {
            self.peak = peak;
            (self.peak_bytes, self.peak_blocks) = (self.live_bytes, self.live_blocks);
        }
    }
}

/// All sites. Both parts grow by an eighth, so that they stay nearly full.
#[derive(Default)]
struct Sites {
    list: Vec<Site>,
    index: FxHashMap<NodeId, u32>,
}

impl Sites {
    fn of(&mut self, node: NodeId) -> u32 {
        if let Some(&index) = self.index.get(&node) {
            return index;
        }
        if self.list.len() as u32 >= MAX_SITES {
            return MAX_SITES - 1;
        }
        if self.list.len() == self.list.capacity() {
            self.list.reserve_exact((self.list.len() / 8).max(16));
        }
        let index = self.list.len() as u32;
        self.list.push(Site { node, ..Site::default() });
        self.index.insert(node, index);
        index
    }

    fn memory(&self) -> usize {
        // A place of the index: the pair and a byte of control, and it is at
        // most seven eighths full.
        let places = self.index.capacity() * 8 / 7;
        self.list.capacity() * size_of::<Site>() + places * (size_of::<(NodeId, u32)>() + 1)
    }
}

/// What a thread did.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// Its place among the threads: its number may be anything.
    index: u32,
    allocations: u64,
    bytes: u64,
    frees: u64,
    bytes_freed: u64,
    temporary: u64,
    /// A realloc's free half that may yet fail.
    half: Option<Half>,
}

#[derive(Clone, Copy, Debug)]
struct Half {
    block: Option<Block>,
    api: ApiKind,
    temporary: bool,
    ns: u64,
}

/// The heap as it is now, and totals.
pub struct LiveOnly {
    table: Table,
    sites: Sites,
    threads: FxHashMap<ThreadNo, Thread>,
    latest: Latest,
    peak: Peak,
    tally: Tally,
}

impl Default for LiveOnly {
    fn default() -> Self {
        LiveOnly {
            table: Table::default(),
            sites: Sites::default(),
            threads: FxHashMap::default(),
            latest: Latest::default(),
            peak: Peak::new(),
            tally: Tally::default(),
        }
    }
}

impl LiveOnly {
    /// Bytes of bookkeeping: live blocks, sites, threads.
    pub fn memory(&self) -> u64 {
        let threads = self.threads.capacity() * (size_of::<(ThreadNo, Thread)>() + 1);
        (self.table.memory() + self.sites.memory() + self.latest.memory() + threads) as u64
    }

    /// Takes in an epoch's records, in their order.
    pub fn take(&mut self, merged: &[Merged], pace: &Pace) {
        for one in merged {
            let ns = pace.at(one.stamp);
            let known = self.threads.len() as u32;
            let index =
                self.threads.entry(one.thread).or_insert(Thread { index: known, ..Thread::default() }).index;
            match one.record {
                Record::Alloc { ptr, size, node, api, pair, .. } => {
                    self.peak.tick(index, one.stamp);
                    self.alloc(one.thread, ptr, size, node, api, ns, pair);
                }
                Record::Free { ptr, api, .. } => {
                    self.peak.tick(index, one.stamp);
                    self.free(one.thread, ptr, api, ns);
                }
                Record::Special { kind: SpecialKind::ReallocUndo, .. } => self.undo(one.thread),
                Record::Special { .. } => {}
            }
        }
        self.peak.barrier();
    }

    #[allow(clippy::too_many_arguments)]
    fn alloc(
        &mut self,
        thread: ThreadNo,
        addr: u64,
        size: u64,
        node: NodeId,
        api: ApiKind,
        ns: u64,
        pair: bool,
    ) {
        let site = self.sites.of(node);
        let block = Block { addr, size, site, thread, api: api as u8, time: ns >> TIME_SHIFT };
        if let Some(before) = self.table.insert(&block) {
            // Its free was never seen.
            self.ended(&before, before.thread, false);
        }
        self.latest.made(thread, addr, node);
        let its = self.threads.entry(thread).or_default();
        let happened = its.half.take();
        its.allocations += 1;
        its.bytes = its.bytes.saturating_add(size);
        let lifetime = |half: Half| half.block.map(|block| half.ns.saturating_sub(block.time << TIME_SHIFT));
        if let Some(ns) = happened.and_then(lifetime) {
            self.tally.lifetime(ns);
        }
        self.tally.call(api);
        self.tally.size(size);
        if pair {
            self.tally.pair(api);
        }
        if let Some(site) = self.sites.list.get_mut(site as usize) {
            site.settle(self.peak.epoch as u32);
            site.allocations += 1;
            site.bytes = site.bytes.saturating_add(size);
            site.live_blocks = site.live_blocks.wrapping_add(1);
            site.live_bytes = site.live_bytes.wrapping_add(size);
        }
        let by = self.threads.get(&thread).map_or(0, |its| its.index);
        self.peak.add(size, 1, ns, 0, by);
    }

    fn free(&mut self, thread: ThreadNo, addr: u64, api: ApiKind, ns: u64) {
        let block = self.table.remove(addr);
        self.tally.call(api);
        let temporary = self.latest.freed(thread, addr).is_some() && block.is_some();
        match &block {
            Some(block) => self.ended(block, thread, temporary),
            None => self.tally.foreign += 1,
        }
        let its = self.threads.entry(thread).or_default();
        its.frees += 1;
        if matches!(api, ApiKind::ReallocFree | ApiKind::ReallocarrayFree) {
            its.half = Some(Half { block, api, temporary, ns });
        } else if let Some(block) = block {
            self.tally.lifetime(ns.saturating_sub(block.time << TIME_SHIFT));
        }
    }

    /// Accounts for a block's end.
    fn ended(&mut self, block: &Block, by: ThreadNo, temporary: bool) {
        let its = self.threads.entry(by).or_default();
        its.temporary += u64::from(temporary);
        its.bytes_freed = its.bytes_freed.saturating_add(block.size);
        if let Some(site) = self.sites.list.get_mut(block.site as usize) {
            site.settle(self.peak.epoch as u32);
            site.temporary += u64::from(temporary);
            site.live_blocks = site.live_blocks.wrapping_sub(1);
            site.live_bytes = site.live_bytes.wrapping_sub(block.size);
        }
        let by = self.threads.get(&by).map_or(0, |its| its.index);
        self.peak.sub(block.size, 1, by);
    }

    /// The thread's latest realloc failed.
    fn undo(&mut self, thread: ThreadNo) {
        let Some(its) = self.threads.get_mut(&thread) else { return };
        let Some(half) = its.half.take() else { return };
        its.frees = its.frees.saturating_sub(1);
        self.tally.uncall(half.api);
        let Some(block) = half.block else {
            self.tally.foreign = self.tally.foreign.saturating_sub(1);
            return;
        };
        its.bytes_freed = its.bytes_freed.saturating_sub(block.size);
        its.temporary -= u64::from(half.temporary).min(its.temporary);
        self.latest.undone(thread);
        self.table.insert(&block);
        if let Some(site) = self.sites.list.get_mut(block.site as usize) {
            site.settle(self.peak.epoch as u32);
            site.temporary -= u64::from(half.temporary).min(site.temporary);
            site.live_blocks = site.live_blocks.wrapping_add(1);
            site.live_bytes = site.live_bytes.wrapping_add(block.size);
        }
        let by = self.threads.get(&thread).map_or(0, |its| its.index);
        self.peak.add(block.size, 1, half.ns, 0, by);
    }

    /// Writes the live blocks as events, and all totals.
    ///
    /// # Errors
    /// As the writer.
    pub fn finish(&mut self, writer: &mut Writer, out: &mut Out, pace: &Pace) -> Result<(), TraceError> {
        let mut blocks: Vec<Block> = self.table.iter().collect();
        self.table = Table::default();
        blocks.sort_unstable_by_key(|block| (block.time, block.addr));
        for block in &blocks {
            let node = self.sites.list.get(block.site as usize).map_or(0, |site| site.node);
            let api = table::api(block);
            let stamp = pace.stamp_at(block.time << TIME_SHIFT);
            let (ptr, size) = (block.addr, block.size);
            let record = Record::Alloc { stamp, ptr, size, usable: None, node, api, pair: false };
            out.push(&Merged { stamp, thread: block.thread, record });
            // These are told by their events.
            self.tally.uncall(api);
            self.tally.unsize(size);
            let its = self.threads.entry(block.thread).or_default();
            its.allocations = its.allocations.saturating_sub(1);
            its.bytes = its.bytes.saturating_sub(size);
        }
        out.end_epoch(writer)?;
        let epoch = self.peak.epoch as u32;
        for site in &mut self.sites.list {
            site.settle(epoch);
            let node = site.node;
            let blocks = site.allocations.saturating_sub(site.live_blocks.into());
            let bytes = site.bytes.saturating_sub(site.live_bytes);
            let temporary = i64::try_from(site.temporary).unwrap_or(i64::MAX);
            writer.left_out(&LeftOut::Site { node, blocks, bytes, temporary })?;
            if site.peak_blocks > 0 {
                let (bytes, blocks) = (site.peak_bytes, u64::from(site.peak_blocks));
                writer.left_out(&LeftOut::SitePeak { node, bytes, blocks })?;
            }
        }
        for (&thread, its) in &self.threads {
            writer.left_out(&LeftOut::Thread {
                thread,
                allocations: its.allocations,
                bytes: its.bytes,
                frees: its.frees,
                bytes_freed: its.bytes_freed,
                temporary: i64::try_from(its.temporary).unwrap_or(i64::MAX),
            })?;
        }
        let uncertainty = if self.threads.len() > 1 { self.peak.uncertainty() } else { 0 };
        let (bytes, blocks, ns) = (self.peak.bytes(), self.peak.blocks, self.peak.ns);
        writer.left_out(&LeftOut::Peak { bytes, blocks, ns, uncertainty })?;
        self.tally.write(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K2.3: at most 88 bytes a site.
    #[test]
    fn a_site_takes_at_most_88_bytes() {
        assert_eq!(size_of::<Site>(), 56);
        let mut sites = Sites::default();
        for n in 1..=200_000u32 {
            sites.of(n);
            if n >= 1000 && n.is_multiple_of(997) {
                let each = sites.memory() as f64 / f64::from(n);
                assert!(each <= 88.0, "{each} bytes a site with {n}");
            }
        }
    }
}
