//! Values to a dump, for a target of any word size and byte order.
//!
//! Used to make dumps by hand (tests, converters). The fields of a record lie
//! as the C agent has them.

use super::decode::{field, table_sum};
use super::layout::{Abi, Header, Section, option, section};
use super::model::{Block, Dump, Event, Past};

/// Bytes of a thread's name, a heap's, a kind's.
const THREAD_NAME: usize = 16;
const HEAP_NAME: usize = 8;
const KIND_NAME: usize = 16;

struct Table {
    kind: u16,
    entry_size: usize,
    capacity: u32,
    bytes: Vec<u8>,
}

/// A growing entry whose fields are noted on the way.
struct Entry<'a> {
    abi: Abi,
    out: &'a mut Vec<u8>,
    start: usize,
    fields: Vec<(u8, usize, usize)>,
}

impl Entry<'_> {
    fn put(&mut self, id: u8, value: u64, width: usize) {
        self.fields.push((id, width, self.out.len() - self.start));
        self.abi.put(self.out, value, width);
    }

    fn event(&mut self, dump: &Dump, e: &Event, side: u8) {
        self.put(field::SEQ + side, e.seq.into(), 4);
        self.put(field::KIND + side, e.kind.into(), 1);
        let thread = if dump.options.thread { e.thread.unwrap_or(0) } else { 0 };
        if dump.options.thread {
            self.put(field::THREAD + side, thread.into(), 1);
        } else {
            self.abi.put(self.out, 0, 1);
        }
        self.put(field::FLAGS + side, e.flags.into(), 2);
    }

    fn rest(&mut self, dump: &Dump, e: &Event, side: u8) {
        let word = usize::from(self.abi.word);
        if dump.options.time {
            self.put(field::TIME + side, e.time.unwrap_or(0), 8);
        }
        let slots = usize::from(dump.options.backtrace);
        if slots > 0 {
            self.fields.push((field::BACKTRACE + side, slots * word, self.out.len() - self.start));
            for n in 0..slots {
                self.abi.put(self.out, e.backtrace.get(n).copied().unwrap_or(0), word);
            }
        }
    }

    fn block(&mut self, dump: &Dump, b: &Block) {
        let word = usize::from(self.abi.word);
        self.put(field::PTR, b.ptr, word);
        self.put(field::SIZE, b.size, word);
        self.event(dump, &b.made, 0);
        if dump.options.actual {
            self.put(field::ACTUAL, b.actual.unwrap_or(0), word);
        }
        self.rest(dump, &b.made, 0);
        self.align();
    }

    fn past(&mut self, dump: &Dump, p: &Past) {
        self.block(dump, &p.block);
        self.event(dump, &p.ended, field::FREE);
        self.rest(dump, &p.ended, field::FREE);
        self.align();
    }

    fn align(&mut self) {
        let word = usize::from(self.abi.word);
        self.out.resize(self.start + (self.out.len() - self.start).next_multiple_of(word), 0);
    }
}

fn padded(out: &mut Vec<u8>, text: &str, width: usize) {
    let bytes = text.as_bytes();
    let len = bytes.len().min(width.saturating_sub(1));
    out.extend_from_slice(bytes.get(..len).unwrap_or_default());
    out.resize(out.len() + width - len, 0);
}

fn field_table(abi: Abi, kind: u16, fields: &[(u8, usize, usize)]) -> Table {
    let mut bytes = Vec::new();
    for &(id, width, offset) in fields {
        bytes.push(id);
        bytes.push(width as u8);
        abi.put(&mut bytes, offset as u64, 2);
    }
    Table { kind, entry_size: 4, capacity: fields.len() as u32, bytes }
}

fn tables(dump: &Dump) -> Vec<Table> {
    let abi = dump.abi;
    let word = usize::from(abi.word);
    let mut out = Vec::new();
    let mut live = Vec::new();
    let entry = |out: &mut Vec<u8>, write: &dyn Fn(&mut Entry<'_>)| {
        let start = out.len();
        let mut e = Entry { abi, out, start, fields: Vec::new() };
        write(&mut e);
        let fields = e.fields;
        (fields, out.len() - start)
    };
    // an entry that is never stored tells fields and size even of an empty table
    let (fields, live_size) = entry(&mut Vec::new(), &|e| e.block(dump, &Block::default()));
    let (past_fields, past_size) = entry(&mut Vec::new(), &|e| e.past(dump, &Past::default()));
    let free_fields: Vec<_> = past_fields.into_iter().filter(|f| f.0 >= field::FREE).collect();
    for b in &dump.live {
        entry(&mut live, &|e| e.block(dump, b));
    }
    out.push(field_table(abi, section::FIELDS, &fields));
    if dump.options.history {
        out.push(field_table(abi, section::HISTORY_FIELDS, &free_fields));
    }
    let capacity = dump.live_capacity;
    out.push(Table { kind: section::LIVE, entry_size: live_size, capacity, bytes: live });
    if dump.options.history {
        let mut bytes = Vec::new();
        for p in &dump.history {
            entry(&mut bytes, &|e| e.past(dump, p));
        }
        let capacity = dump.history_capacity;
        out.push(Table { kind: section::HISTORY, entry_size: past_size, capacity, bytes });
    }
    let mut simple = |kind, entry_size, count: usize, bytes: Vec<u8>| {
        if count > 0 {
            out.push(Table { kind, entry_size, capacity: count as u32, bytes });
        }
    };
    let mut bytes = Vec::new();
    for t in &dump.threads {
        abi.put(&mut bytes, t.handle, word);
        padded(&mut bytes, &t.name, THREAD_NAME);
    }
    simple(section::THREADS, word + THREAD_NAME, dump.threads.len(), bytes);
    let mut bytes = Vec::new();
    for heap in &dump.heaps {
        abi.put(&mut bytes, heap.start, word);
        abi.put(&mut bytes, heap.end, word);
        padded(&mut bytes, &heap.name, HEAP_NAME);
    }
    simple(section::HEAPS, 2 * word + HEAP_NAME, dump.heaps.len(), bytes);
    let mut bytes = Vec::new();
    for s in &dump.stacks {
        for value in [s.handle, s.low, s.high, s.untouched] {
            abi.put(&mut bytes, value, word);
        }
    }
    simple(section::STACKS, 4 * word, dump.stacks.len(), bytes);
    let mut bytes = Vec::new();
    dump.kind_names.iter().for_each(|name| padded(&mut bytes, name, KIND_NAME));
    simple(section::KIND_NAMES, KIND_NAME, dump.kind_names.len(), bytes);
    if let Some(longest) = dump.modules.iter().map(|m| m.path.len() + 1).max() {
        let width = longest.next_multiple_of(word);
        let mut bytes = Vec::new();
        for m in &dump.modules {
            abi.put(&mut bytes, m.base, word);
            padded(&mut bytes, &m.path, width);
        }
        simple(section::MODULES, word + width, dump.modules.len(), bytes);
    }
    if !dump.build_id.is_empty() {
        let mut bytes = Vec::new();
        for value in [4, dump.build_id.len() as u64, 3] {
            abi.put(&mut bytes, value, 4);
        }
        bytes.extend(b"GNU\0");
        bytes.extend(&dump.build_id);
        simple(section::BUILD_ID, 1, bytes.len(), bytes);
    }
    out
}

/// Header bytes, and the tables with their addresses. The tables follow the header.
fn build(dump: &Dump) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
    let abi = dump.abi;
    let tables = tables(dump);
    let size = super::layout::FIXED
        + super::layout::WORDS * usize::from(abi.word)
        + tables.len() * abi.section_size();
    let mut addr = dump.self_addr + (size as u64).next_multiple_of(8);
    let o = &dump.options;
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    let c = &dump.counters;
    let mut header = Header {
        abi,
        version: (1, 0),
        size,
        options: bit(o.actual, option::ACTUAL)
            | bit(o.time, option::TIME)
            | bit(o.thread, option::THREAD)
            | bit(o.history, option::HISTORY)
            | bit(o.guards, option::GUARDS)
            | bit(o.checksum, option::CHECKSUM)
            | u32::from(o.backtrace & 15) << 4
            | u32::from(o.unwind.to_u8() & 15) << 8,
        busy: dump.busy.into(),
        seq: c.next_seq,
        allocs: c.allocs,
        frees: c.frees,
        failed: c.failed,
        lost: c.lost,
        foreign: c.foreign,
        hist_lost: c.history_lost,
        tick_hz: dump.tick_hz,
        run_id: dump.run_id,
        hist_total: c.history_total,
        peak_seq: c.peak_seq,
        hist_next: dump.history.len() as u32,
        machine: dump.machine,
        live_sum: 0,
        hist_sum: 0,
        voided: c.voided,
        damaged: c.damaged,
        self_addr: dump.self_addr,
        anchor: dump.anchor,
        cur_bytes: c.cur_bytes,
        peak_bytes: c.peak_bytes,
        text_base: dump.text_base,
        static_bytes: dump.static_bytes,
        dynamic_bytes: dump.dynamic_bytes,
        mark_bytes: 0,
        sections: Vec::new(),
    };
    let mut placed = Vec::new();
    for t in tables {
        match t.kind {
            section::LIVE => header.live_sum = table_sum(abi, &t.bytes, t.entry_size),
            section::HISTORY => header.hist_sum = table_sum(abi, &t.bytes, t.entry_size),
            _ => {}
        }
        header.sections.push(Section {
            kind: t.kind,
            entry_size: t.entry_size as u16,
            count: (t.bytes.len() / t.entry_size.max(1)) as u32,
            capacity: t.capacity,
            addr,
        });
        let len = t.bytes.len() as u64;
        placed.push((addr, t.bytes));
        addr += len.next_multiple_of(8);
    }
    (header.to_bytes(), placed)
}

/// The dump as a file. Counters are written as they are; problems are not.
pub fn file(dump: &Dump) -> Vec<u8> {
    let (mut out, tables) = build(dump);
    for (_, bytes) in tables {
        out.extend(bytes);
    }
    out
}

/// A piece of the target's memory that holds the dump: begins at `base`, which is at
/// most the header's address.
pub fn memory(dump: &Dump, base: u64) -> Vec<u8> {
    let (header, tables) = build(dump);
    let mut out = vec![0; dump.self_addr.saturating_sub(base) as usize];
    out.extend(header);
    for (addr, bytes) in tables {
        out.resize(addr.saturating_sub(base) as usize, 0);
        out.extend(bytes);
    }
    out
}

/// A small dump with everything in it, for tests.
#[cfg(test)]
pub(crate) fn sample() -> Dump {
    use super::model::*;
    let event = |seq: u32, kind: u8, thread: u32| Event {
        seq,
        kind,
        thread: Some(thread),
        flags: 0,
        time: Some(u64::from(seq) * 3),
        backtrace: vec![0x1000 + u64::from(seq) * 16],
    };
    Dump {
        abi: Abi { big: false, word: 4 },
        machine: 40,
        options: Options {
            actual: true,
            time: true,
            thread: true,
            history: true,
            backtrace: 1,
            unwind: Unwind::ReturnAddress,
            guards: false,
            checksum: true,
        },
        busy: false,
        counters: Counters {
            next_seq: 4,
            allocs: 3,
            frees: 1,
            history_total: 1,
            cur_bytes: 30,
            peak_bytes: 60,
            peak_seq: 2,
            ..Counters::default()
        },
        tick_hz: 100,
        run_id: 7,
        self_addr: 0x2000_1000,
        anchor: 0x400,
        text_base: 0x100,
        static_bytes: 1000,
        dynamic_bytes: 0,
        build_id: vec![9; 20],
        heaps: vec![Heap { start: 0x2000_8000, end: 0x2001_0000, name: "newlib".into() }],
        threads: vec![
            Thread { handle: 0x2000_0100, name: "Idle Thread".into() },
            Thread { handle: 0x2000_0200, name: "main".into() },
        ],
        stacks: vec![Stack { handle: 0x2000_0200, low: 0x2000_4000, high: 0x2000_4400, untouched: 600 }],
        kind_names: vec!["pvPortMalloc()".into()],
        modules: Vec::new(),
        live: vec![
            Block { ptr: 0x2000_8010, size: 10, actual: Some(16), made: event(0, 0, 1) },
            Block { ptr: 0x2000_8100, size: 20, actual: Some(32), made: event(2, 64, 2) },
        ],
        live_capacity: 8,
        history: vec![Past {
            block: Block { ptr: 0x2000_8040, size: 30, actual: Some(40), made: event(1, 11, 2) },
            ended: event(3, 38, 2),
        }],
        history_capacity: 4,
        problems: Vec::new(),
    }
}
