//! Where the order inside an epoch was wrong: noting it as it is seen, and
//! deciding anew when the epoch is over.

use highwater_event::api::ApiKind;
use highwater_trace::model::Event;
use rustc_hash::FxHashMap;

use super::{Half, Replay};
use crate::block::{Fields, family};
use crate::contest::{Bad, Contest, End, LONGEST_EPOCH, Made, low48};
use crate::freed::Free;
use crate::order::{self, ANY_FAMILY, Item, Kind, Live};

/// States that the searches for an order may visit, together: so many, and so many
/// more for each event. A trace in which nothing fits (it is no recording, or not in
/// the order in which it was recorded) takes time in proportion to its length, too.
pub(super) const FIRST_ORDER_STATES: u64 = 1 << 18;
const ORDER_STATES: u64 = 2;

/// A block's place among those of a contested address.
enum Last {
    Nothing,
    Known(Made),
    /// The trace does not say which.
    Unknown,
}

impl Replay {
    /// The notes on an address at which something is wrong, begun by event `at`.
    #[cold]
    pub(super) fn contest(&mut self, addr: u64, at: u32) -> &mut Contest {
        if !self.contests.contains_key(&addr) {
            let made = self.present(addr).into_iter().collect();
            let seqno = self.seqno;
            let contest = Contest {
                addr,
                from: at,
                seqno,
                made,
                bad: Vec::new(),
                missing: Vec::new(),
                mismatched: Vec::new(),
            };
            self.contests.insert(addr, contest);
        }
        self.contests.entry(addr).or_insert_with(|| Contest { addr, from: at, ..Contest::default() })
    }

    /// The latest block at an address and its end, if that is remembered.
    fn present(&mut self, addr: u64) -> Option<Made> {
        let (fields, end) = match self.table.find(addr) {
            Some(block) => (block.fields(), None),
            None => {
                let freed = self.freed.latest_at(addr)?;
                (freed.block.fields(), Some(End::of(&freed)))
            }
        };
        Some(Made { at: None, fields, usable: self.usable.get(&fields.seqno).copied(), end })
    }

    /// A free of an address at which nothing lives.
    #[cold]
    pub(super) fn unknown(&mut self, event: &Event, thread: u32, at: u32) {
        let mut bad = Bad { event: *event, at, undone: false, inside: None, before: None, freed: None };
        // What is there is noted now: at the epoch's end it may have gone.
        bad.freed = self.freed.latest_at(event.addr);
        bad.before = bad.freed.map(|freed| freed.block.fields());
        if let Some(freed) = &bad.freed
            && freed.free.seqno < self.epoch_seqno
        {
            self.doubts.add(freed.free.seqno, event.seqno);
        }
        if bad.before.is_none() {
            bad.inside = self.around(event.addr);
        }
        self.contest(event.addr, at).bad.push(bad);
        if matches!(event.api, ApiKind::ReallocFree | ApiKind::ReallocarrayFree) {
            self.half(event, thread, at, None);
        }
    }

    /// The block at an address that is allocated again: its free is late, or
    /// was never recorded.
    #[cold]
    pub(super) fn displaced(&mut self, block: &Fields, at: u32) {
        self.contest(block.addr, at);
        // It ends without a free event of its own, so never as a temporary one.
        let maker = block.thread;
        let last = self.threads.get(maker as usize).map(|totals| totals.last_alloc);
        if let Some(totals) = self.threads.get_mut(maker as usize) {
            totals.last_alloc = u64::MAX;
        }
        self.released(block, maker);
        if let (Some(totals), Some(last)) = (self.threads.get_mut(maker as usize), last) {
            totals.last_alloc = last;
        }
        let end = End { thread: maker, ns: self.now, temporary: false, free: None };
        let contest = self.contest(block.addr, at);
        contest.missing.push(at);
        contest.ended(block.seqno, Some(end));
    }

    /// The epoch is over: decides on every address at which something was wrong.
    #[cold]
    pub(super) fn settle_contests(&mut self) {
        let mut contests: Vec<(Contest, Vec<(u32, Item)>)> =
            std::mem::take(&mut self.contests).into_values().map(|contest| (contest, Vec::new())).collect();
        contests.sort_unstable_by_key(|(contest, _)| (contest.from, contest.addr));
        // One pass over the epoch for all of them.
        let places: FxHashMap<u64, usize> =
            contests.iter().enumerate().map(|(place, (contest, _))| (low48(contest.addr), place)).collect();
        for (at, addr, item) in self.log.entries() {
            if let Some(&place) = places.get(&addr)
                && let Some((_, items)) = contests.get_mut(place)
            {
                items.push((at, item));
            }
        }
        for (contest, items) in contests {
            self.settle(contest, &items);
        }
    }

    fn settle(&mut self, mut contest: Contest, items: &[(u32, Item)]) {
        // What was there when the epoch began follows from its first event.
        let before = items.first().and_then(|&(at, item)| {
            let first = contest.made.first().filter(|made| made.at.is_none());
            let its = if at < contest.from {
                // Nothing was wrong yet: it was of the family of what freed it.
                item.family
            } else {
                first.map_or(ANY_FAMILY, |made| family(made.fields.api))
            };
            contest.lived(at, item).then_some(its)
        });
        let list: Vec<Item> = items.iter().map(|&(_, item)| item).collect();
        let all = self.fed.saturating_mul(ORDER_STATES).saturating_add(FIRST_ORDER_STATES);
        let mut left = all.saturating_sub(self.order_states);
        let order = order::solve(&list, before, contest.errors(), &mut left);
        self.order_states = all.saturating_sub(left).max(self.order_states);
        let Some(order) = order else {
            // Nothing explains it: the errors are real.
            self.totals.missing_frees += contest.missing.len() as u64;
            for bad in contest.bad.iter().filter(|bad| !bad.undone) {
                self.unmatched(bad);
            }
            return;
        };
        let left = order.bad + order.missing + order.mismatched;
        self.totals.order_repairs += u64::from(contest.errors() - left);
        self.totals.missing_frees += u64::from(order.missing);
        // What did not happen can be no error.
        contest.bad.sort_by_key(|bad| !bad.undone);
        let keep = contest.bad.len().min(order.bad as usize);
        let real = contest.bad.split_off(contest.bad.len() - keep);
        let keep = contest.mismatched.len().min(order.mismatched as usize);
        contest.mismatched.truncate(contest.mismatched.len() - keep);
        for &seqno in &contest.mismatched {
            self.take_back_mismatch(seqno);
        }
        let bytes = contest.made.iter().map(|made| self.weight(made.fields.size, made.fields.seqno).bytes);
        let bytes = bytes.sum();
        self.peak.widen(bytes);
        let last = self.last_of(&contest, items, order.live);
        self.leave(&mut contest, last);
        self.mend_halves(&contest, items, &order);
        for bad in real.iter().filter(|bad| !bad.undone) {
            self.unmatched(bad);
        }
    }

    /// The block that lives at a contested address in the end.
    fn last_of(&self, contest: &Contest, items: &[(u32, Item)], live: Live) -> Last {
        let at_first = || contest.made.first().filter(|made| made.at.is_none());
        let earlier = |item: &(u32, Item)| item.0 < contest.from && item.1.kind == Kind::Alloc;
        let made = match live {
            Live::Nothing => return Last::Nothing,
            // Unless it was freed before the contest began, it was there then.
            Live::Before => at_first().filter(|_| !items.iter().any(earlier)).copied(),
            Live::Item(place) => match items.get(place) {
                Some(&(at, _)) if at >= contest.from => {
                    contest.made.iter().find(|made| made.at == Some(at)).copied()
                }
                Some(&(at, _)) => {
                    let mut before = items.iter().filter(|item| earlier(item));
                    let behind = before.clone().count();
                    let number = before.position(|item| item.0 == at).unwrap_or(behind);
                    if number + 1 == behind { at_first().copied() } else { None }
                        .or_else(|| self.made_before(contest, number, behind))
                }
                None => None,
            },
        };
        made.map_or(Last::Unknown, Last::Known)
    }

    /// One of the `count` blocks that were made and freed at an address in this
    /// epoch, before the contest began.
    fn made_before(&self, contest: &Contest, number: usize, count: usize) -> Option<Made> {
        let seqnos = self.epoch_seqno..contest.seqno;
        let freed = self.freed.at_addr(contest.addr, seqnos, LONGEST_EPOCH);
        // The latest of them may live, or have ended otherwise.
        if freed.len() != count && freed.len() + 1 != count {
            return None;
        }
        let freed = freed.get(number)?;
        Some(Made { at: None, fields: freed.block.fields(), usable: None, end: Some(End::of(freed)) })
    }

    /// Makes the table hold the block that lives at a contested address.
    fn leave(&mut self, contest: &mut Contest, last: Last) {
        let present = self.table.find(contest.addr).copied();
        let wanted = match last {
            Last::Nothing => None,
            Last::Known(made) => Some(made),
            // As good a guess as any: what is there, or the latest that was.
            Last::Unknown if present.is_some() => return,
            Last::Unknown => contest.made.iter().rev().find(|made| made.end.is_some()).copied(),
        };
        if present.map(|block| block.seqno()) == wanted.map(|made| made.fields.seqno) {
            return;
        }
        if let Some(block) = present {
            // The latest of the frees that found nothing was its own.
            let by = contest.bad.last().map(|bad| bad.event);
            let fields = block.fields();
            let thread = by.map_or(fields.thread, |event| self.thread(event.thread));
            self.table.take(contest.addr, |_| ());
            let temporary = self.released(&fields, thread);
            let free = by.map(|event| event.seqno);
            contest.ended(fields.seqno, Some(End { thread, ns: self.now, temporary, free }));
            if let Some(event) = by {
                let (node, api) = (event.node, event.api);
                let (seqno, ns) = (event.seqno, self.now);
                self.freed.push(&block, &Free { seqno, ns, node, thread, api, temporary });
            }
        }
        let Some(made) = wanted else { return };
        if let Some(end) = made.end {
            if let Some(seqno) = end.free {
                self.freed.cancel(seqno);
            }
            self.unreleased(&made.fields, end.thread, end.ns, end.temporary);
        }
        if let Some(usable) = made.usable {
            self.usable.insert(made.fields.seqno, usable);
        }
        self.put_back(&made.fields);
        let weight = self.weight(made.fields.size, made.fields.seqno);
        self.peak.add(weight.bytes, weight.blocks, self.now, made.fields.seqno, made.fields.thread);
        self.series.note(self.now, self.peak.level.live_bytes);
    }

    /// Puts a block that lives after all into the table.
    pub(super) fn put_back(&mut self, fields: &Fields) {
        self.table.put(fields);
    }

    /// Remembers the block of a realloc that may fail.
    pub(super) fn half(&mut self, event: &Event, thread: u32, at: u32, block: Option<(Fields, End)>) {
        let place = thread as usize;
        if place >= self.halves.len() {
            self.halves.resize(place + 1, None);
        }
        if let Some(latest) = self.halves.get_mut(place) {
            let barriers = self.barriers;
            *latest =
                Some(Half { seqno: event.seqno, at, barriers, addr: event.addr, api: event.api, block });
        }
    }

    /// Corrects which blocks the latest halves of reallocs gave back.
    fn mend_halves(&mut self, contest: &Contest, items: &[(u32, Item)], order: &order::Order) {
        for place in 0..self.halves.len() {
            let Some(mut half) = self.halves.get(place).copied().flatten() else { continue };
            if half.addr != contest.addr || half.barriers != self.barriers {
                continue;
            }
            let its = |(at, _): &&(usize, Live)| items.get(*at).is_some_and(|item| item.0 == half.at);
            let freed = order.frees.iter().find(its).map(|(_, live)| self.last_of(contest, items, *live));
            let latest = || contest.made.iter().rev().find(|made| made.end.is_some()).copied();
            let made = match freed {
                Some(Last::Known(made)) => Some(made),
                _ if half.block.is_some() => None,
                _ => latest(),
            };
            if let Some(made) = made
                && let Some(end) = made.end
            {
                half.block = Some((made.fields, end));
            }
            if let Some(latest) = self.halves.get_mut(place) {
                *latest = Some(half);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_trace::model::{Op, Step};

    use super::*;
    use crate::replay::Options;

    #[test]
    fn a_stream_in_which_nothing_fits_took_hours() {
        let mut replay = Replay::new(Options::default());
        let mut random = 7_u64;
        for seqno in 0..60_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let (thread, addr) = ((random >> 33) as u32 % 8, 64 + 64 * ((random >> 40) % 1000));
            let (op, api) = match random >> 63 {
                0 => (Op::Alloc { size: 8, usable: None }, ApiKind::Malloc),
                _ => (Op::Free, ApiKind::Free),
            };
            let (ns, stamp) = (seqno, seqno);
            replay.feed(&Step::Event(Event { seqno, ns, stamp, thread, op, api, addr, node: 1, pair: None }));
        }
        replay.finish();
        // As many as it may visit and no more: this stream would take all it can get.
        let all = FIRST_ORDER_STATES + 60_000 * ORDER_STATES;
        assert_eq!(replay.order_states, all);
        assert_eq!(replay.totals().events, 60_000);
    }
}
