//! Sections to values. What cannot be is left out and named.

use std::collections::HashMap;

use super::layout::{Abi, Header, option, section};
use super::model::{
    Block, Counters, Dump, Event, Heap, Module, Options, Past, Problem, Stack, Thread, Unwind, flag,
};
use super::raw::{Raw, section_name};

/// Ids of fields; the free side of a history entry has [`FREE`] added.
pub(super) mod field {
    /// Address.
    pub const PTR: u8 = 1;
    /// Requested size.
    pub const SIZE: u8 = 2;
    /// Event number.
    pub const SEQ: u8 = 3;
    /// Entry point.
    pub const KIND: u8 = 4;
    /// Thread number.
    pub const THREAD: u8 = 5;
    /// Flags.
    pub const FLAGS: u8 = 6;
    /// Actual size.
    pub const ACTUAL: u8 = 7;
    /// Time.
    pub const TIME: u8 = 8;
    /// Return addresses.
    pub const BACKTRACE: u8 = 9;
    /// Added for the free side.
    pub const FREE: u8 = 0x40;
}

/// Where a field lies in an entry.
#[derive(Clone, Copy, Debug)]
struct Field {
    offset: usize,
    width: usize,
}

/// The fields of a record, by id. Unknown ids stay unused.
#[derive(Debug)]
struct Fields {
    abi: Abi,
    by_id: HashMap<u8, Field>,
}

impl Fields {
    fn parse(abi: Abi, tables: &[&[u8]], entry_size: usize) -> Fields {
        let mut by_id = HashMap::new();
        for entry in tables.iter().flat_map(|t| t.chunks_exact(4)) {
            let (Some(id), Some(width), Some(offset)) =
                (abi.number(entry, 0, 1), abi.number(entry, 1, 1), abi.number(entry, 2, 2))
            else {
                continue;
            };
            let field = Field { offset: offset as usize, width: width as usize };
            if field.offset + field.width <= entry_size {
                by_id.insert(id as u8, field);
            }
        }
        Fields { abi, by_id }
    }

    fn number(&self, entry: &[u8], id: u8) -> Option<u64> {
        let f = self.by_id.get(&id)?;
        self.abi.number(entry, f.offset, f.width)
    }

    fn event(&self, entry: &[u8], side: u8) -> Option<Event> {
        let backtrace = self.by_id.get(&(field::BACKTRACE + side)).map(|f| {
            let word = usize::from(self.abi.word);
            (0..f.width / word).filter_map(|n| self.abi.word(entry, f.offset + n * word)).collect()
        });
        Some(Event {
            seq: self.number(entry, field::SEQ + side)? as u32,
            kind: self.number(entry, field::KIND + side).unwrap_or(0) as u8,
            thread: self.number(entry, field::THREAD + side).map(|t| t as u32 & 0xff).filter(|&t| t != 0),
            flags: self.number(entry, field::FLAGS + side).unwrap_or(0) as u16,
            time: self.number(entry, field::TIME + side),
            backtrace: backtrace.unwrap_or_default(),
        })
    }

    fn block(&self, entry: &[u8]) -> Option<Block> {
        Some(Block {
            ptr: self.number(entry, field::PTR)?,
            size: self.number(entry, field::SIZE)?,
            actual: self.number(entry, field::ACTUAL),
            made: self.event(entry, 0)?,
        })
    }
}

/// The target's checksum of one entry: its 32-bit words, each rotated further.
fn entry_sum(abi: Abi, entry: &[u8]) -> u32 {
    entry
        .chunks_exact(4)
        .filter_map(|w| abi.number(w, 0, 4))
        .fold(0u32, |sum, w| sum.rotate_left(5).wrapping_add(w as u32))
}

/// The sum over the entries of a table: their order does not matter.
pub(super) fn table_sum(abi: Abi, bytes: &[u8], entry_size: usize) -> u32 {
    bytes.chunks_exact(entry_size.max(1)).fold(0, |sum: u32, e| sum.wrapping_add(entry_sum(abi, e)))
}

/// Text up to the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// Reads the sections, and checks them against each other.
pub fn decode(raw: &Raw<'_>) -> Dump {
    let h = &raw.header;
    let abi = h.abi;
    let word = usize::from(abi.word);
    let of = |kind: u16| {
        let at = h.sections.iter().position(|s| s.kind == kind);
        at.and_then(|n| Some((h.sections.get(n)?, *raw.sections.get(n)?)))
    };
    let entries = |kind: u16, least: usize| {
        let (size, bytes) = of(kind).map_or((0, &[][..]), |(s, b)| (usize::from(s.entry_size), b));
        // entries too short to hold what they must are not looked at
        bytes.chunks_exact(if size < least { usize::MAX } else { size.max(1) })
    };
    let table = |kind: u16| of(kind).map_or(&[][..], |(_, b)| b);
    let mut dump = empty(h);
    dump.problems = raw.problems.clone();
    if dump.busy {
        dump.problems.insert(0, Problem::Busy);
    }
    dump.threads = entries(section::THREADS, word)
        .map(|e| Thread {
            handle: abi.word(e, 0).unwrap_or(0),
            name: text(e.get(word..).unwrap_or_default()),
        })
        .collect();
    dump.heaps = entries(section::HEAPS, 2 * word)
        .map(|e| Heap {
            start: abi.word(e, 0).unwrap_or(0),
            end: abi.word(e, word).unwrap_or(0),
            name: text(e.get(2 * word..).unwrap_or_default()),
        })
        .collect();
    dump.stacks = entries(section::STACKS, 4 * word)
        .map(|e| Stack {
            handle: abi.word(e, 0).unwrap_or(0),
            low: abi.word(e, word).unwrap_or(0),
            high: abi.word(e, 2 * word).unwrap_or(0),
            untouched: abi.word(e, 3 * word).unwrap_or(0),
        })
        .collect();
    dump.kind_names = entries(section::KIND_NAMES, 1).map(text).collect();
    dump.modules = entries(section::MODULES, word)
        .map(|e| Module { base: abi.word(e, 0).unwrap_or(0), path: text(e.get(word..).unwrap_or_default()) })
        .collect();
    dump.build_id = build_id(abi, table(section::BUILD_ID));

    if let Some((s, bytes)) = of(section::LIVE) {
        dump.live_capacity = s.capacity;
        let size = usize::from(s.entry_size);
        let fields = Fields::parse(abi, &[table(section::FIELDS)], size);
        let whole = bytes.len() as u64 == s.bytes();
        if dump.options.checksum && whole && !dump.busy && table_sum(abi, bytes, size) != h.live_sum {
            dump.problems.push(Problem::Checksum(section_name(s.kind)));
        }
        dump.live = read_all(s.kind, bytes, size, &mut dump.problems, |e| fields.block(e));
    }
    if let Some((s, bytes)) = of(section::HISTORY) {
        dump.history_capacity = s.capacity;
        let size = usize::from(s.entry_size);
        let fields = Fields::parse(abi, &[table(section::FIELDS), table(section::HISTORY_FIELDS)], size);
        let whole = bytes.len() as u64 == s.bytes();
        if dump.options.checksum && whole && !dump.busy && table_sum(abi, bytes, size) != h.hist_sum {
            dump.problems.push(Problem::Checksum(section_name(s.kind)));
        }
        dump.history = read_all(s.kind, bytes, size, &mut dump.problems, |e| {
            Some(Past { block: fields.block(e)?, ended: fields.event(e, field::FREE)? })
        });
    }
    check(&mut dump);
    dump
}

/// What the header alone says.
fn empty(h: &Header) -> Dump {
    let has = |bit: u32| h.options & bit != 0;
    Dump {
        abi: h.abi,
        machine: h.machine,
        options: Options {
            actual: has(option::ACTUAL),
            time: has(option::TIME),
            thread: has(option::THREAD),
            history: has(option::HISTORY),
            backtrace: (h.options >> 4 & 15) as u8,
            unwind: Unwind::from_u8((h.options >> 8 & 15) as u8),
            guards: has(option::GUARDS),
            checksum: has(option::CHECKSUM),
        },
        busy: h.busy != 0,
        counters: Counters {
            next_seq: h.seq,
            allocs: h.allocs,
            frees: h.frees,
            failed: h.failed,
            lost: h.lost,
            foreign: h.foreign,
            history_lost: h.hist_lost,
            history_total: h.hist_total,
            voided: h.voided,
            damaged: h.damaged,
            cur_bytes: h.cur_bytes,
            peak_bytes: h.peak_bytes,
            peak_seq: h.peak_seq,
        },
        tick_hz: h.tick_hz,
        run_id: h.run_id,
        self_addr: h.self_addr,
        anchor: h.anchor,
        text_base: h.text_base,
        static_bytes: h.static_bytes,
        dynamic_bytes: h.dynamic_bytes,
        build_id: Vec::new(),
        heaps: Vec::new(),
        threads: Vec::new(),
        stacks: Vec::new(),
        kind_names: Vec::new(),
        modules: Vec::new(),
        live: Vec::new(),
        live_capacity: 0,
        history: Vec::new(),
        history_capacity: 0,
        problems: Vec::new(),
    }
}

/// Reads each entry; if even the first cannot be, the field table is wrong.
fn read_all<T>(
    kind: u16,
    bytes: &[u8],
    size: usize,
    problems: &mut Vec<Problem>,
    read: impl Fn(&[u8]) -> Option<T>,
) -> Vec<T> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let all: Vec<T> =
        if size == 0 { Vec::new() } else { bytes.chunks_exact(size).filter_map(read).collect() };
    if all.is_empty() {
        let why = "its field table does not name address, size and number";
        problems.push(Problem::Unreadable { section: section_name(kind), why });
    }
    all
}

/// The id in an ELF note of type NT_GNU_BUILD_ID.
fn build_id(abi: Abi, note: &[u8]) -> Vec<u8> {
    const NT_GNU_BUILD_ID: u64 = 3;
    let (Some(name), Some(len), Some(kind)) =
        (abi.number(note, 0, 4), abi.number(note, 4, 4), abi.number(note, 8, 4))
    else {
        return Vec::new();
    };
    let from = 12 + (name as usize).min(64).next_multiple_of(4);
    if kind != NT_GNU_BUILD_ID || len > 64 || note.get(12..16) != Some(b"GNU\0") {
        return Vec::new();
    }
    note.get(from..from + len as usize).map(<[u8]>::to_vec).unwrap_or_default()
}

/// Leaves out what cannot be, and compares the rest with the target's counts.
fn check(dump: &mut Dump) {
    let doubtful = dump.busy || !dump.problems.is_empty();
    let next = dump.counters.next_seq;
    drop_if(&mut dump.live, section::LIVE, "their address is 0", &mut dump.problems, |b| b.ptr == 0);
    // A number may only be beyond the next one if the counter has wrapped; a record
    // of an update that was cut short looks the same.
    if doubtful {
        let why = "their number is one that was not given out yet";
        drop_if(&mut dump.live, section::LIVE, why, &mut dump.problems, |b| b.made.seq >= next);
        drop_if(&mut dump.history, section::HISTORY, why, &mut dump.problems, |p| {
            p.block.made.seq >= next || p.ended.seq >= next
        });
    }
    let mut newest: HashMap<u64, u32> = HashMap::new();
    for b in &dump.live {
        let age = next.wrapping_sub(b.made.seq);
        newest.entry(b.ptr).and_modify(|a| *a = age.min(*a)).or_insert(age);
    }
    let mut seen = std::collections::HashSet::new();
    let why = "a newer one has the same address";
    drop_if(&mut dump.live, section::LIVE, why, &mut dump.problems, |b| {
        newest.get(&b.ptr) != Some(&next.wrapping_sub(b.made.seq)) || !seen.insert(b.ptr)
    });
    let mut ended = std::collections::HashSet::new();
    let why = "another one has the same number";
    drop_if(&mut dump.history, section::HISTORY, why, &mut dump.problems, |p| !ended.insert(p.ended.seq));

    let threads = dump.threads.len();
    let mut unknown = 0;
    let ends = dump.history.iter_mut().flat_map(|p| [&mut p.block.made, &mut p.ended]);
    for event in dump.live.iter_mut().map(|b| &mut b.made).chain(ends) {
        if event.thread.is_some_and(|t| t as usize > threads) {
            event.thread = None;
            unknown += 1;
        }
    }
    if unknown > 0 {
        dump.problems.push(Problem::Threads(unknown));
    }

    let c = dump.counters;
    if !dump.busy {
        let counted = c.allocs.wrapping_sub(c.frees);
        if u64::from(counted) != dump.live.len() as u64 {
            dump.problems.push(Problem::Count { counted, found: dump.live.len() as u64 });
        } else if c.cur_bytes != dump.live_bytes() {
            dump.problems.push(Problem::Bytes { counted: c.cur_bytes, found: dump.live_bytes() });
        }
    }
    for (count, problem) in [
        (c.lost, Problem::Lost(c.lost)),
        (c.failed, Problem::Failed(c.failed)),
        (c.foreign, Problem::Foreign(c.foreign)),
        (c.damaged, Problem::Overruns(c.damaged)),
    ] {
        if count > 0 {
            dump.problems.push(problem);
        }
    }
}

fn drop_if<T>(
    list: &mut Vec<T>,
    kind: u16,
    why: &'static str,
    problems: &mut Vec<Problem>,
    mut bad: impl FnMut(&T) -> bool,
) {
    let before = list.len();
    list.retain(|item| !bad(item));
    if list.len() < before {
        problems.push(Problem::Dropped {
            section: section_name(kind),
            count: (before - list.len()) as u64,
            why,
        });
    }
}

/// Is this history entry only there to account for a number?
pub(super) fn is_void(past: &Past) -> bool {
    past.ended.flags & flag::VOID != 0
}

#[cfg(test)]
mod tests;
