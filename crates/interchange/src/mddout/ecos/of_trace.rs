//! The four commands on a `.hwt` trace, in eCos's layouts.
//!
//! A trace has more than a dump: 64-bit numbers, nanoseconds, whole stacks, every
//! event. Here it is shown as a dump of a target would be: with 8 levels of
//! backtrace, in ticks of a hundredth of a second (those of the target, if the trace
//! was imported), with numbers below 2^32, the heap as the range in which blocks lay.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;

use highwater_event::layout::MODULE_MAIN;
use highwater_event::node::{Node, NodeId};
use highwater_replay::{LiveBlock, Replay};
use highwater_trace::model::{self, Op, Special, Step};
use highwater_trace::{Trace, TraceError};

use super::args::Options as Line;
use super::names::Names;
use super::trace_names::TraceNames;
use super::{Failure, Named, dump};
use crate::mddout::layout::Abi;
use crate::mddout::model::{Block, Counters, Dump, Event, Heap, Options, Thread, Unwind};

/// Levels of backtrace, as many as eCos keeps at most.
const LEVELS: u8 = 8;
/// Ticks a second where the trace tells none: eCos's usual clock.
const TICKS: u64 = 100;

/// A trace, seen as a dump.
pub(super) struct OfTrace {
    trace: Trace,
    /// Ticks a second, and whether times were made of ticks once.
    hz: u64,
    of_ticks: bool,
    /// Thread numbers are those of a dump, from 1.
    numbered: bool,
}

/// Is this file a trace?
pub(super) fn is_trace(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 8];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"\x89HWT\r\n\x1a\n"
}

fn unreadable(error: &TraceError) -> Failure {
    Failure::Missing(error.to_string())
}

impl OfTrace {
    /// Opens a trace.
    pub fn open(path: &Path) -> Result<OfTrace, Failure> {
        let trace = Trace::open(path).map_err(|error| unreadable(&error))?;
        let numbers = trace.original_seqno(trace.event_count());
        if numbers > u64::from(u32::MAX) {
            let path = path.display();
            return Err(Failure::Missing(format!(
                "{path}: {numbers} events are more than 32-bit numbers can tell; use highwater dump, history, diff"
            )));
        }
        let meta = trace.meta();
        let hz = meta.option("tick_hz").and_then(|hz| hz.parse().ok()).filter(|&hz| hz > 0);
        let numbered = meta.option("from") == Some("mddout");
        Ok(OfTrace { of_ticks: hz.is_some(), hz: hz.unwrap_or(TICKS), numbered, trace })
    }

    /// Names for its addresses.
    pub fn names(&self) -> TraceNames {
        TraceNames::new(&self.trace)
    }

    /// What opening it found wrong.
    pub fn warnings(&self) -> Vec<String> {
        self.trace.warnings().iter().map(ToString::to_string).collect()
    }

    fn ticks(&self, ns: u64) -> u64 {
        let half = if self.of_ticks { 500_000_000 } else { 0 };
        let ticks = (u128::from(ns) * u128::from(self.hz) + half) / 1_000_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    fn thread(&self, thread: u32) -> Option<u32> {
        if self.numbered { Some(thread).filter(|&number| number > 0) } else { thread.checked_add(1) }
    }

    fn number(&self, seqno: u64) -> u32 {
        u32::try_from(self.trace.original_seqno(seqno)).unwrap_or(u32::MAX)
    }

    fn backtrace(&self, node: NodeId) -> Vec<u64> {
        let mut pcs = Vec::with_capacity(LEVELS.into());
        let mut id = node;
        // A marker stands for what was cut off, not for a level.
        for _ in 0..2 * usize::from(LEVELS) {
            let Some(def) = self.trace.nodes().get(id) else { break };
            if def.module != Node::MARKER_MODULE && pcs.len() < LEVELS.into() {
                pcs.push(def.pc);
            }
            id = def.parent;
        }
        pcs
    }

    fn made(&self, block: &LiveBlock) -> Block {
        Block {
            ptr: block.addr,
            size: block.size,
            actual: self.actual_sizes().then(|| block.usable.unwrap_or(block.size)),
            made: Event {
                seq: self.number(block.seqno),
                kind: block.api as u8,
                thread: self.thread(block.thread),
                flags: 0,
                time: Some(self.ticks(block.ns)).filter(|_| self.keeps("no_times")),
                backtrace: self.backtrace(block.node),
            },
        }
    }

    fn ended(&self, event: &model::Event) -> Event {
        Event {
            seq: self.number(event.seqno),
            kind: event.api as u8,
            thread: self.thread(event.thread),
            flags: 0,
            time: Some(self.ticks(event.ns)).filter(|_| self.keeps("no_times")),
            backtrace: self.backtrace(event.node),
        }
    }

    fn keeps(&self, without: &str) -> bool {
        self.trace.meta().option(without).is_none()
    }

    fn actual_sizes(&self) -> bool {
        self.trace.meta().option("actual_size").is_some()
    }

    /// The dump that a target would have made at the end; without history.
    pub fn dump(&self) -> Result<Dump, Failure> {
        let mut replay = Replay::new(highwater_replay::Options::default());
        let (mut low, mut high) = (u64::MAX, 0u64);
        let mut steps = self.trace.steps();
        while let Some(step) = steps.next().map_err(|error| unreadable(&error))? {
            if let Step::Event(model::Event { op: Op::Alloc { size, .. }, addr, .. }) = &step {
                low = low.min(*addr);
                high = high.max(addr.saturating_add(*size));
            }
            replay.feed_in(steps.epoch(), &step);
        }
        replay.finish();
        let totals = replay.totals();
        let meta = self.trace.meta();
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let live: Vec<Block> = replay.live_set().iter().map(|block| self.made(block)).collect();
        let depth = meta.option("depth").and_then(|depth| depth.parse::<u8>().ok());
        let levels = if self.keeps("no_stacks") { depth.unwrap_or(LEVELS).min(LEVELS) } else { 0 };
        let main = self.trace.modules().iter().find(|module| module.flags & MODULE_MAIN != 0);
        // Two snapshots of one run have one number.
        let run = meta.wall_ns ^ (meta.wall_ns >> 32) ^ u64::from(meta.pid).rotate_left(16);
        Ok(Dump {
            abi: Abi { big: false, word: if is_32_bit(&meta.arch) { 4 } else { 8 } },
            machine: 0,
            options: Options {
                actual: self.actual_sizes(),
                time: self.keeps("no_times"),
                thread: self.keeps("no_threads"),
                history: self.keeps("no_history"),
                backtrace: levels,
                unwind: Unwind::Tables,
                ..Options::default()
            },
            busy: false,
            counters: Counters {
                next_seq: small(self.trace.original_seqno(self.trace.event_count())),
                allocs: small(totals.allocations),
                // Of blocks: as eCos counts, what was made and not freed is live.
                frees: small(totals.allocations.saturating_sub(totals.live_blocks)),
                cur_bytes: totals.live_bytes,
                peak_bytes: totals.peak_bytes,
                ..Counters::default()
            },
            tick_hz: small(self.hz),
            run_id: run as u32,
            self_addr: 0,
            anchor: 0,
            text_base: 0,
            static_bytes: 0,
            dynamic_bytes: 0,
            build_id: main.map(|module| module.build_id.clone()).unwrap_or_default(),
            heaps: if high > low {
                vec![Heap { start: low, end: high, name: String::new() }]
            } else {
                Vec::new()
            },
            threads: self.threads(),
            stacks: Vec::new(),
            kind_names: Vec::new(),
            modules: Vec::new(),
            live,
            live_capacity: 0,
            history: Vec::new(),
            history_capacity: small(self.trace.event_count()),
            problems: Vec::new(),
        })
    }

    /// The table of threads; a thread's handle is its kernel id.
    fn threads(&self) -> Vec<Thread> {
        let mut table: Vec<Thread> = Vec::new();
        for def in self.trace.threads() {
            let Some(number) = self.thread(def.thread) else { continue };
            // Numbers come from a file: a hole must not cost more than the file has threads.
            let at = number as usize - 1;
            if at > self.trace.threads().len().saturating_mul(4).saturating_add(256) {
                continue;
            }
            if table.len() <= at {
                table.resize_with(at + 1, Thread::default);
            }
            table[at] = Thread { handle: def.tid.into(), name: def.name.clone() };
        }
        table
    }

    /// Writes the events, the earliest first: each as soon as it is read. Frees
    /// of blocks that nobody saw being made are left out, as eCos does not know of
    /// them.
    pub fn history<'a>(
        &self,
        options: &'a Line,
        of: &Named,
        names: Option<&'a mut dyn Names>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        dump::check(options, of, names.is_some())?;
        let fate = self.fates()?;
        let lost = self.trace.lost_events() > 0 || self.trace.end().is_some_and(|end| end.dropped > 0);
        if lost || fate.unknown > 0 || !of.dump.options.history {
            writeln!(out, "Caution: history is incomplete.\n")?;
        }
        let mut style = dump::style(options, names);
        // From the latest on, all of it has to be there first.
        let mut held: Vec<String> = Vec::new();
        let mut heap = Replay::new(highwater_replay::Options::default());
        let mut steps = self.trace.steps();
        while let Some(step) = steps.next().map_err(|error| unreadable(&error))? {
            let mut text = None;
            if let Step::Event(event) = &step {
                let shown = match event.op {
                    Op::Alloc { .. } => None,
                    Op::Free if fate.undone.contains(&event.seqno) => None,
                    Op::Free => {
                        heap.block_at(event.addr).map(|block| (self.made(&block), Some(self.ended(event))))
                    }
                };
                heap.feed_in(steps.epoch(), &step);
                let shown = match event.op {
                    Op::Alloc { size, usable } => Some((
                        self.made(&LiveBlock {
                            addr: event.addr,
                            size,
                            usable,
                            seqno: event.seqno,
                            ns: event.ns,
                            thread: event.thread,
                            api: event.api,
                            node: event.node,
                        }),
                        None,
                    )),
                    Op::Free => shown,
                };
                if let Some((block, ended)) = &shown {
                    let what = ended.as_ref().unwrap_or(&block.made);
                    if options.filters.iter().all(|filter| filter.passes(block, what)) {
                        let later = ended.is_none() && fate.is_freed(event.seqno);
                        text = Some(style.line(&of.dump, block, what).by_operation(&style, later));
                    }
                }
            } else {
                heap.feed_in(steps.epoch(), &step);
            }
            match text {
                Some(text) if options.reverse => held.push(text),
                Some(text) => out.write_all(text.as_bytes())?,
                None => {}
            }
        }
        held.iter().rev().try_for_each(|text| out.write_all(text.as_bytes()))?;
        Ok(())
    }

    /// Reads ahead what becomes of each block.
    fn fates(&self) -> Result<Fates, Failure> {
        let mut fates = Fates::default();
        let mut live: HashMap<u64, u64> = HashMap::new();
        // Which block a free ended, while that may still be taken back.
        let mut ended: HashMap<u64, (u64, u64)> = HashMap::new();
        let mut steps = self.trace.steps();
        while let Some(step) = steps.next().map_err(|error| unreadable(&error))? {
            match step {
                Step::Event(event) => match event.op {
                    Op::Alloc { .. } => drop(live.insert(event.addr, event.seqno)),
                    Op::Free => match live.remove(&event.addr) {
                        Some(made) => {
                            fates.set(made, true);
                            if event.api.is_realloc() {
                                ended.insert(event.seqno, (event.addr, made));
                            }
                        }
                        None => fates.unknown += 1,
                    },
                },
                Step::Special { what: Special::ReallocUndo { free_seqno: Some(free), .. }, .. } => {
                    fates.undone.insert(free);
                    if let Some((addr, made)) = ended.remove(&free) {
                        fates.set(made, false);
                        live.insert(addr, made);
                    }
                }
                Step::Special { .. } => {}
            }
        }
        Ok(fates)
    }
}

fn is_32_bit(arch: &str) -> bool {
    matches!(arch, "arm" | "riscv32" | "x86" | "mips" | "powerpc" | "xtensa")
}

/// What becomes of blocks, by the seqno that made them.
#[derive(Default)]
struct Fates {
    /// A bit for each event: its block is freed.
    freed: Vec<u64>,
    /// Frees that did not happen: their realloc failed.
    undone: HashSet<u64>,
    /// Frees of blocks that were never made.
    unknown: u64,
}

impl Fates {
    fn set(&mut self, seqno: u64, freed: bool) {
        let at = (seqno / 64) as usize;
        if self.freed.len() <= at {
            self.freed.resize(at + 1, 0);
        }
        if freed {
            self.freed[at] |= 1 << (seqno % 64);
        } else {
            self.freed[at] &= !(1 << (seqno % 64));
        }
    }

    fn is_freed(&self, seqno: u64) -> bool {
        self.freed.get((seqno / 64) as usize).is_some_and(|bits| bits >> (seqno % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests;
