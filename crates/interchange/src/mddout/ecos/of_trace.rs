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
use highwater_symbols::{ModuleId, ModuleInput, Symbolizer};
use highwater_trace::model::{self, Op, Special, Step};
use highwater_trace::{Trace, TraceError};

use super::args::Options as Line;
use super::names::{Names, Place};
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

/// The names of a trace's addresses.
pub(super) struct TraceNames {
    symbolizer: Symbolizer,
    /// Start, end and id of each module.
    modules: Vec<(u64, u64, ModuleId)>,
    given: HashMap<u64, Vec<Place>>,
}

impl TraceNames {
    /// Those of the modules that the trace names.
    pub fn new(of: &OfTrace) -> TraceNames {
        let mut symbolizer = Symbolizer::new(highwater_symbols::Options::default());
        let add = |module: &model::ModuleDef| {
            let id = symbolizer.add_module(ModuleInput {
                path: &module.path,
                build_id: &module.build_id,
                bias: module.bias,
                start: module.start,
                end: module.end,
                is_main: module.flags & MODULE_MAIN != 0,
                is_vdso: module.flags & highwater_event::layout::MODULE_VDSO != 0,
            });
            (module.start, module.end, id)
        };
        let modules = of.trace.modules().iter().map(add).collect();
        let place = |frame: &model::NameFrame| Place {
            function: Some(frame.function.clone()).filter(|name| !name.is_empty()),
            location: Some((frame.file.clone(), frame.line)).filter(|(file, _)| !file.is_empty()),
        };
        let given = of.trace.names().iter();
        let given = given.map(|name| (name.pc, name.frames.iter().map(place).collect())).collect();
        TraceNames { symbolizer, modules, given }
    }
}

impl Names for TraceNames {
    fn places(&mut self, pc: u64) -> Vec<Place> {
        if let Some(given) = self.given.get(&pc) {
            return given.clone();
        }
        // Where libraries came and went, the latest at an address counts.
        let inside = self.modules.iter().rev().find(|(start, end, _)| (*start..*end).contains(&pc));
        let Some(&(.., module)) = inside else { return Vec::new() };
        let place = |frame: &highwater_symbols::Frame| Place {
            function: frame.function.as_ref().map(|name| name.to_string()),
            location: frame.file.as_ref().zip(frame.line).map(|(file, line)| (file.to_string(), line)),
        };
        self.symbolizer.frames(module, pc, true).iter().map(place).collect()
    }

    fn text(&mut self, file: &str, line: u32) -> Option<String> {
        self.symbolizer.source_line(file, line)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use highwater_trace::WriterOptions;

    use crate::import::{self, Format};
    use crate::mddout::model::{Block, Dump, Event, Past};
    use crate::mddout::write;

    /// What a command line prints, and its status.
    fn shown(command: &[&str], files: &[&PathBuf]) -> (i32, String, String) {
        let mut args: Vec<OsString> = command.iter().map(OsString::from).collect();
        args.extend(files.iter().map(OsString::from));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = super::super::run(&args, &mut out, &mut err);
        (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    /// A whole history of one thread: numbers from 0, without gaps.
    fn run() -> (Dump, Dump) {
        let event = |seq: u32, kind: u8, time: u64| Event {
            seq,
            kind,
            thread: Some(1 + seq % 2),
            time: Some(time),
            backtrace: vec![0x4010 + u64::from(seq) % 3],
            ..Event::default()
        };
        let block = |ptr: u64, size: u64, made: Event| Block { ptr, size, actual: Some(size + 16), made };
        let mut early = write::sample();
        early.options.backtrace = 1;
        early.options.unwind = Default::default();
        early.live = vec![block(0x2000_0100, 100, event(0, 0, 3)), block(0x2000_0300, 50, event(1, 9, 4))];
        early.history = Vec::new();
        early.counters.next_seq = 2;
        early.counters.cur_bytes = 150;
        let mut late = early.clone();
        let freed = late.live.remove(0);
        late.history = vec![Past { block: freed, ended: event(2, 32, 70) }];
        late.live.push(block(0x2000_0100, 100, event(3, 1, 71)));
        late.counters.next_seq = 4;
        (early, late)
    }

    #[test]
    fn a_trace_is_shown_to_the_letter_as_the_dumps_it_was_made_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (early, late) = run();
        let mut pairs = Vec::new();
        for (name, dump) in [("mddout.0", &early), ("mddout.1", &late)] {
            std::fs::write(path(name), write::file(dump)).unwrap();
            let read = import::read(Format::Mddout, &[path(name)], None).unwrap();
            let to = path(&format!("{name}.hwt"));
            read.recording.write(&to, WriterOptions::default()).unwrap();
            pairs.push((path(name), to));
        }
        let [(a, a_trace), (b, b_trace)] = pairs.as_slice() else { panic!() };
        let formats = "%p %n %m %o %s %a %T %t %N %b1 %%";
        for command in [
            &["dump"][..],
            &["dump", "-Sn", "-Fsize_min=60"],
            &["dump", "-Fthread=2", "-Ftime_max=71"],
            &["dump", "-f", formats],
            &["history"],
            &["history", "-r", "-f", formats],
            &["history", "-Fseqno_min=1", "-Fseqno_max=2"],
            &["dump", "-f", "%b2"],
            &["dump", "-f", "%f1"],
        ] {
            // A handle is the kernel's number of a thread; an import has none.
            let plain = |text: String| {
                let mut lines: Vec<String> = Vec::new();
                for line in text.lines() {
                    let words: Vec<&str> = line.split(' ').collect();
                    let by = line.starts_with("  By thread");
                    lines.push(if by {
                        [&words[..5], &words[6..]].concat().join(" ")
                    } else {
                        line.to_string()
                    });
                }
                lines.join("\n")
            };
            let (status, out, err) = shown(command, &[b]);
            let (trace_status, trace_out, trace_err) = shown(command, &[b_trace]);
            assert_eq!(
                (status, plain(out)),
                (trace_status, plain(trace_out)),
                "{command:?}: {err}{trace_err}"
            );
        }
        let names = |text: &str| {
            let (a_trace, b_trace) = (a_trace.to_str().unwrap(), b_trace.to_str().unwrap());
            text.replace(a_trace, a.to_str().unwrap()).replace(b_trace, b.to_str().unwrap())
        };
        let f = ["diff", "-f", formats];
        assert_eq!(names(&shown(&f, &[a_trace, b_trace]).1), shown(&f, &[a, b]).1);
        let stats = shown(&["stats"], &[b_trace]).1;
        assert!(stats.contains("\nCurrent   : 0K (150 bytes) used in 2 allocations\n"), "{stats}");
        assert!(stats.contains(
            "\nActual    : approximately 0K (182 bytes)\nOverhead  : approximately 0K (32 bytes), 17%\n"
        ));
        assert!(stats.contains("\nHistory   : 3 memory allocations, 1 frees\n"), "{stats}");
        assert!(stats.contains("\nHeap      : 0x20000100 to 0x20000331, size 0K (562 bytes)\n"), "{stats}");
    }

    #[test]
    fn traces_of_two_runs_are_strangers() {
        let folder = tempfile::tempdir().unwrap();
        let trace = |name: &str, pid| {
            let (_, late) = run();
            let mut recording =
                crate::mddout::trace::recording(&[late], None, crate::mddout::unwind::unpacked).unwrap().0;
            recording.meta.pid = pid;
            let to = folder.path().join(name);
            recording.write(&to, WriterOptions::default()).unwrap();
            to
        };
        let (one, copy, other) = (trace("a.hwt", 7), trace("b.hwt", 7), trace("c.hwt", 8));
        let (status, out, _) = shown(&["diff"], &[&one, &copy]);
        assert!(status == 0 && out.contains("\n0 new allocations in "), "{out}");
        let (status, _, err) = shown(&["diff"], &[&one, &other]);
        assert!(status == 2 && err.contains("is of another run than the first file"), "{err}");
        let (status, _, err) = shown(&["history"], &[&one, &copy]);
        assert!(status == 2 && err.contains("one trace, or the dumps of one run"), "{err}");
    }
}
