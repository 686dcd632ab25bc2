//! An outcome as bytes: each number a varint, in the order of the fields below. One
//! list of the fields serves both ways.

use highwater_event::api::ApiKind;
use highwater_trace::varint::{self, Reader};

use super::Outcome;
use crate::errors::{AllocRecord, ErrorKind, FreeRecord, HeapError};
use crate::replay::Options;
use crate::sampling::Sampled;
use crate::totals::{SiteTotals, ThreadTotals, Totals};

impl Outcome {
    /// As bytes; `options` are those of the replay.
    pub fn encode(mut self, options: &Options) -> Vec<u8> {
        let mut writing = Writing::default();
        outcome(&mut writing, &mut options.clone(), &mut self);
        writing.0
    }

    /// The outcome in these bytes, if it is one of a replay with these options.
    pub fn decode(bytes: &[u8], options: &Options) -> Option<Outcome> {
        let mut reading = Reading::new(bytes);
        let (mut found, mut its) = (Outcome::default(), options.clone());
        outcome(&mut reading, &mut its, &mut found);
        (reading.is_all() && its == *options).then_some(found)
    }
}

/// Goes over numbers, to write them down or to put in those that were written.
pub(crate) trait Numbers {
    /// A number.
    fn u64(&mut self, number: &mut u64);

    /// How many there are in a list, of which one takes at least `least` bytes.
    fn count(&mut self, count: usize, least: usize) -> usize;

    /// What was read makes no sense.
    fn fail(&mut self);

    /// A smaller number.
    fn u32(&mut self, number: &mut u32) {
        let mut wide = u64::from(*number);
        self.u64(&mut wide);
        match u32::try_from(wide) {
            Ok(narrow) => *number = narrow,
            Err(_) => self.fail(),
        }
    }
}

/// Writes them down.
#[derive(Default)]
pub(super) struct Writing(pub Vec<u8>);

impl Numbers for Writing {
    fn u64(&mut self, number: &mut u64) {
        varint::put(&mut self.0, *number);
    }

    fn count(&mut self, count: usize, _least: usize) -> usize {
        varint::put(&mut self.0, count as u64);
        count
    }

    fn fail(&mut self) {}
}

/// Reads them.
pub(super) struct Reading<'a> {
    reader: Reader<'a>,
    sound: bool,
}

impl<'a> Reading<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reading<'a> {
        Reading { reader: Reader::new(bytes), sound: true }
    }

    /// Did all make sense, and is nothing left?
    pub(super) fn is_all(&self) -> bool {
        self.sound && self.reader.is_empty()
    }
}

impl Numbers for Reading<'_> {
    fn u64(&mut self, number: &mut u64) {
        match self.reader.u64() {
            Some(read) => *number = read,
            None => self.sound = false,
        }
    }

    fn count(&mut self, _count: usize, least: usize) -> usize {
        // No more than the bytes have room for, so none take much memory.
        let most = self.reader.remaining() / least.max(1);
        match self.reader.u64().and_then(|count| usize::try_from(count).ok()) {
            Some(count) if self.sound && count <= most => count,
            _ => {
                self.sound = false;
                0
            }
        }
    }

    fn fail(&mut self) {
        self.sound = false;
    }
}

/// A list; an element is made by `new` and takes at least `least` bytes.
fn list<N: Numbers, T>(
    numbers: &mut N,
    list: &mut Vec<T>,
    least: usize,
    new: impl Fn() -> T,
    each: impl Fn(&mut N, &mut T),
) {
    let count = numbers.count(list.len(), least);
    list.resize_with(count, new);
    for element in list {
        each(numbers, element);
    }
}

pub(super) fn all<'a>(numbers: &mut impl Numbers, list: impl IntoIterator<Item = &'a mut u64>) {
    for number in list {
        numbers.u64(number);
    }
}

/// All numbers of an outcome and of the options that it depends on.
pub(super) fn outcome(numbers: &mut impl Numbers, options: &mut Options, outcome: &mut Outcome) {
    let Options { remember_freed, sample } = options;
    let mut remembered = *remember_freed as u64;
    all(numbers, [&mut remembered, sample]);
    *remember_freed = usize::try_from(remembered).unwrap_or(usize::MAX);
    let Outcome { totals, threads, sites, errors, sizes, lifetimes, series } = outcome;
    of_all(numbers, totals);
    list(numbers, threads, 13, || ThreadTotals::new(0, 0), of_thread);
    list(numbers, sites, 12, || SiteTotals::new(0, 0), of_site);
    list(numbers, errors, 9, nothing_wrong, error);
    sizes.numbers(numbers);
    lifetimes.numbers(numbers);
    series.numbers(numbers);
}

fn of_all(numbers: &mut impl Numbers, totals: &mut Totals) {
    let Totals {
        events,
        allocations,
        frees,
        reallocations,
        failed_reallocations,
        bytes_allocated,
        bytes_freed,
        temporary,
        live_blocks,
        live_bytes,
        peak_bytes,
        peak_blocks,
        peak_ns,
        peak_seqno,
        peak_uncertainty,
        foreign_frees,
        double_free,
        invalid_free,
        mismatched,
        order_repairs,
        missing_frees,
        dropped,
        stalled_ns,
        first_ns,
        last_ns,
        by_api,
        pairs,
        sampled,
    } = totals;
    all(numbers, [events, allocations, frees, reallocations, failed_reallocations]);
    all(numbers, [bytes_allocated, bytes_freed, temporary, live_blocks, live_bytes]);
    all(numbers, [peak_bytes, peak_blocks, peak_ns, peak_seqno, peak_uncertainty]);
    all(numbers, [foreign_frees, double_free, invalid_free, mismatched, order_repairs, missing_frees]);
    all(numbers, [dropped, stalled_ns, first_ns, last_ns]);
    all(numbers, by_api.iter_mut().chain(pairs));
    let Sampled {
        rate,
        blocks,
        live,
        bytes_variance,
        blocks_variance,
        live_variance,
        live_blocks_variance,
        peak_variance,
        peak_blocks_variance,
    } = sampled;
    all(numbers, [rate, blocks, live, bytes_variance, blocks_variance]);
    all(numbers, [live_variance, live_blocks_variance, peak_variance, peak_blocks_variance]);
}

fn of_thread(numbers: &mut impl Numbers, totals: &mut ThreadTotals) {
    let ThreadTotals {
        thread,
        allocations,
        frees,
        bytes_allocated,
        bytes_freed,
        temporary,
        live_blocks,
        live_bytes,
        peak_bytes,
        peak_ns,
        first_ns,
        last_ns,
        last_alloc,
    } = totals;
    numbers.u32(thread);
    all(numbers, [allocations, frees, bytes_allocated, bytes_freed, temporary, live_blocks, live_bytes]);
    all(numbers, [peak_bytes, peak_ns, first_ns, last_ns, last_alloc]);
}

fn of_site(numbers: &mut impl Numbers, totals: &mut SiteTotals) {
    // What is stored is settled: the number of its peak says nothing any more.
    let SiteTotals {
        node,
        allocations,
        bytes,
        frees,
        temporary,
        live_blocks,
        live_bytes,
        peak_blocks,
        peak_bytes,
        variance,
        live_variance,
        peak_variance,
        epoch: _,
    } = totals;
    numbers.u32(node);
    all(numbers, [allocations, bytes, frees, temporary, live_blocks, live_bytes, peak_blocks, peak_bytes]);
    all(numbers, [variance, live_variance, peak_variance]);
}

const NO_BLOCK: AllocRecord =
    AllocRecord { addr: 0, size: 0, seqno: 0, ns: 0, thread: 0, api: ApiKind::Malloc, node: 0 };
const NO_FREE: FreeRecord = FreeRecord { seqno: 0, ns: 0, thread: 0, api: ApiKind::Free, node: 0 };

fn nothing_wrong() -> HeapError {
    HeapError { kind: ErrorKind::DoubleFree, addr: 0, free: NO_FREE, allocated: None, freed: None }
}

fn error<N: Numbers>(numbers: &mut N, error: &mut HeapError) {
    const KINDS: [ErrorKind; 3] = [ErrorKind::DoubleFree, ErrorKind::InvalidFree, ErrorKind::Mismatched];
    let HeapError { kind, addr, free, allocated, freed } = error;
    let mut number = KINDS.iter().position(|of| of == kind).unwrap_or(0) as u64;
    all(numbers, [&mut number, addr]);
    match usize::try_from(number).ok().and_then(|number| KINDS.get(number)) {
        Some(read) => *kind = *read,
        None => numbers.fail(),
    }
    of_free(numbers, free);
    option(numbers, allocated, NO_BLOCK, of_block);
    option(numbers, freed, NO_FREE, of_free);
}

fn option<N: Numbers, T>(numbers: &mut N, option: &mut Option<T>, empty: T, each: impl Fn(&mut N, &mut T)) {
    let mut there = u64::from(option.is_some());
    numbers.u64(&mut there);
    match there {
        0 => *option = None,
        1 => each(numbers, option.get_or_insert(empty)),
        _ => numbers.fail(),
    }
}

fn of_block(numbers: &mut impl Numbers, block: &mut AllocRecord) {
    let AllocRecord { addr, size, seqno, ns, thread, api, node } = block;
    all(numbers, [addr, size, seqno, ns]);
    numbers.u32(thread);
    of_api(numbers, api);
    numbers.u32(node);
}

fn of_free(numbers: &mut impl Numbers, free: &mut FreeRecord) {
    let FreeRecord { seqno, ns, thread, api, node } = free;
    all(numbers, [seqno, ns]);
    numbers.u32(thread);
    of_api(numbers, api);
    numbers.u32(node);
}

fn of_api(numbers: &mut impl Numbers, api: &mut ApiKind) {
    let mut number = *api as u64;
    numbers.u64(&mut number);
    match u8::try_from(number).ok().and_then(ApiKind::from_u8) {
        Some(read) => *api = read,
        None => numbers.fail(),
    }
}
