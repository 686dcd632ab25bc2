//! Dumps to a `.hwt` trace, so that every view of highwater works on them.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use highwater_event::api::ApiKind;
use highwater_event::layout::MODULE_MAIN;
use highwater_event::node::{Node, Truncation};
use highwater_trace::Recording;
use highwater_trace::model::{self, End, EndedHow, Meta, ModuleDef, NodeDef, Op, ThreadDef};

use super::merge::{self, Entry, MergeError};
use super::model::{Dump, Event, Unwind, flag};

/// The target's program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its file here.
    pub path: PathBuf,
    /// What its addresses were moved by.
    pub slide: u64,
}

/// Return addresses as stack nodes.
struct Stacks {
    ids: HashMap<(u32, u64, u16), u32>,
    defs: Vec<NodeDef>,
    /// Start and index of each module, by start.
    modules: Vec<(u64, u16)>,
}

impl Stacks {
    fn node(&mut self, parent: u32, pc: u64, module: u16) -> u32 {
        let next = self.defs.len() as u32 + 1;
        let id = *self.ids.entry((parent, pc, module)).or_insert(next);
        if id == next {
            self.defs.push(NodeDef { id, parent, pc, module });
        }
        id
    }

    fn module(&self, pc: u64) -> u16 {
        let behind = self.modules.partition_point(|&(start, _)| start <= pc);
        behind.checked_sub(1).and_then(|at| self.modules.get(at)).map_or(Node::NO_MODULE, |&(_, index)| index)
    }

    /// The node of a backtrace, innermost address first. One that may go on says
    /// that it was cut.
    fn of(&mut self, backtrace: &[u64], whole: bool) -> u32 {
        let frames: Vec<u64> = backtrace.iter().copied().filter(|&pc| pc != 0).collect();
        if frames.is_empty() {
            return 0;
        }
        let mut node =
            if whole { 0 } else { self.node(0, Truncation::DepthLimit as u64, Node::MARKER_MODULE) };
        for &pc in frames.iter().rev() {
            node = self.node(node, pc, self.module(pc));
        }
        node
    }
}

/// The entry point; allocators of the program's own are `user_alloc` and `user_free`.
/// Rust's are of malloc's family: their blocks go through realloc.
fn api(dump: &Dump, kind: u8, free: bool) -> ApiKind {
    let name = kind.checked_sub(64).and_then(|own| dump.kind_names.get(usize::from(own)));
    let own = match (name.map(String::as_str), free) {
        (Some("alloc()"), false) => ApiKind::Malloc,
        (Some("alloc_zeroed()"), false) => ApiKind::Calloc,
        (Some("dealloc()"), true) => ApiKind::Free,
        (_, false) => ApiKind::UserAlloc,
        (_, true) => ApiKind::UserFree,
    };
    ApiKind::from_u8(kind).filter(|api| api.is_free() == free).unwrap_or(own)
}

/// ELF's numbers of processors, as traces name them.
fn arch(dump: &Dump) -> &'static str {
    match (dump.machine, dump.abi.word) {
        (40, _) => "arm",
        (183, _) => "aarch64",
        (243, 8) => "riscv64",
        (243, _) => "riscv32",
        (62, _) => "x86_64",
        (3, _) => "x86",
        (8, _) => "mips",
        (20 | 21, _) => "powerpc",
        (94, _) => "xtensa",
        _ => "unknown",
    }
}

/// What the target's configuration leaves out, as traces name it.
fn options(dump: &Dump) -> Vec<String> {
    let o = &dump.options;
    let mut list = vec!["from=mddout".to_string(), format!("depth={}", o.backtrace)];
    let named = [
        (o.actual, "actual_size"),
        (!o.thread, "no_threads"),
        (!o.time, "no_times"),
        (!o.history, "no_history"),
        (o.backtrace == 0, "no_stacks"),
    ];
    list.extend(named.iter().filter(|(on, _)| *on).map(|(_, name)| name.to_string()));
    if o.time && dump.tick_hz > 0 {
        list.push(format!("tick_hz={}", dump.tick_hz));
    }
    list
}

/// The objects that return addresses lie in.
fn modules(dump: &Dump, program: Option<&Program>) -> Vec<ModuleDef> {
    if let Some(program) = program {
        return vec![ModuleDef {
            path: program.path.to_string_lossy().into_owned(),
            bias: program.slide,
            start: program.slide,
            end: u64::MAX,
            build_id: dump.build_id.clone(),
            flags: MODULE_MAIN,
            ..ModuleDef::default()
        }];
    }
    let mut found: Vec<_> = dump.modules.iter().filter(|module| !module.path.is_empty()).collect();
    found.sort_by_key(|module| module.base);
    let ends = found.iter().skip(1).map(|module| module.base).chain([u64::MAX]);
    (0u16..)
        .zip(found.iter().zip(ends))
        .map(|(index, (module, end))| ModuleDef {
            index,
            path: module.path.clone(),
            bias: module.base,
            start: module.base,
            end,
            ..ModuleDef::default()
        })
        .collect()
}

/// The dumps of one run as a recording. `backtrace` gives the return addresses of
/// an event that can be trusted (see [`super::unwind`]). Also says how many events
/// of the run are in no dump.
///
/// Times are those of the target where it kept them, events of one tick follow
/// each other by a nanosecond; without times an event's time is its number. Events
/// keep the numbers that the target gave them.
///
/// # Errors
/// If the dumps are of different runs, or there are none.
pub fn recording(
    dumps: &[Dump],
    program: Option<&Program>,
    mut backtrace: impl FnMut(&Dump, &Event) -> Vec<u64>,
) -> Result<(Recording, u64), MergeError> {
    let history = merge::merge(dumps)?;
    let Some(last) = dumps.iter().max_by_key(|d| (d.counters.next_seq, d.threads.len())) else {
        return Err(MergeError::Nothing);
    };
    let modules = modules(last, program);
    let mut stacks = Stacks {
        ids: HashMap::new(),
        defs: Vec::new(),
        modules: modules.iter().map(|module| (module.start, module.index)).collect(),
    };
    let next = last.counters.next_seq;
    // A counter that has wrapped goes on behind 2^32.
    let wrapped = history.entries.iter().any(|entry| entry.event().seq >= next);
    let next_seqno = u64::from(next) + (u64::from(wrapped) << 32);
    let mut threads = BTreeMap::new();
    // The latest freeing half of a realloc of each thread.
    let mut halves: HashMap<u32, u64> = HashMap::new();
    let mut events = Vec::new();
    let mut now = 0;
    for Entry { block, ended, .. } in &history.entries {
        let event = ended.as_ref().unwrap_or(&block.made);
        let time = match (event.time, last.tick_hz) {
            (Some(ticks), hz) if hz > 0 => u128::from(ticks) * 1_000_000_000 / u128::from(hz),
            (Some(ticks), _) => u128::from(ticks),
            (None, _) => 0,
        };
        now = u64::try_from(time).unwrap_or(u64::MAX).max(now + 1);
        let trusted = backtrace(last, event);
        let room_left = trusted.iter().filter(|&&pc| pc != 0).count() < usize::from(last.options.backtrace);
        let exact = matches!(last.options.unwind, Unwind::Tables | Unwind::FramePointer);
        let api = api(last, event.kind, ended.is_some());
        let thread = event.thread.unwrap_or(0);
        threads.entry(thread).or_insert(now);
        let seqno = next_seqno - u64::from(next.wrapping_sub(event.seq));
        let pair = match ended {
            None if event.flags & flag::PAIR != 0 && api.is_realloc() => halves.get(&thread).copied(),
            _ => None,
        };
        if ended.is_some() && api.is_realloc() {
            halves.insert(thread, seqno);
        }
        events.push(model::Event {
            seqno,
            ns: now,
            stamp: now,
            thread,
            op: match ended {
                Some(_) => Op::Free,
                None => Op::Alloc { size: block.size, usable: block.actual },
            },
            api,
            addr: block.ptr,
            node: stacks.of(&trusted, exact && room_left),
            pair,
        });
    }
    let threads = threads.into_iter().map(|(thread, start)| ThreadDef {
        thread,
        tid: thread,
        name: last.thread(thread).map(|thread| thread.name.clone()).unwrap_or_default(),
        start,
    });
    let recording = Recording {
        meta: Meta {
            writer: concat!("highwater ", env!("CARGO_PKG_VERSION")).into(),
            exe: program.map(|p| p.path.clone()).unwrap_or_default(),
            arch: arch(last).into(),
            stamp_kind: "ns".into(),
            options: options(last),
            ..Meta::default()
        },
        end: End { how: EndedHow::Detached, duration_ns: now, dropped: history.missing, ..End::default() },
        modules,
        threads: threads.collect(),
        nodes: stacks.defs,
        events,
        ..Recording::default()
    };
    Ok((recording, history.missing))
}

#[cfg(test)]
mod tests {
    use highwater_trace::model::{Op, Step};
    use highwater_trace::{Trace, WriterOptions};

    use super::*;
    use crate::mddout::unwind;
    use crate::mddout::write::sample;

    #[test]
    fn every_event_arrives_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("x.hwt");
        let dump = sample();
        let program = Program { path: "/firmware/app.elf".into(), slide: 0 };
        let (made, missing) =
            recording(std::slice::from_ref(&dump), Some(&program), unwind::unpacked).unwrap();
        assert_eq!((made.events.len(), missing), (4, 0));
        made.write(&to, WriterOptions::default()).unwrap();
        let trace = Trace::open(&to).unwrap();
        let mut steps = trace.steps();
        let mut found = Vec::new();
        while let Some(step) = steps.next().unwrap() {
            if let Step::Event(e) = step {
                let size = match e.op {
                    Op::Alloc { size, usable } => Some((size, usable)),
                    Op::Free => None,
                };
                found.push((e.seqno, e.addr, size, e.api, e.thread, e.ns));
            }
        }
        let ns = |tick: u64| tick * 10_000_000;
        assert_eq!(
            found,
            [
                (0, 0x2000_8010, Some((10, Some(16))), ApiKind::Malloc, 1, 1),
                (1, 0x2000_8040, Some((30, Some(40))), ApiKind::NewNothrow, 2, ns(3)),
                (2, 0x2000_8100, Some((20, Some(32))), ApiKind::UserAlloc, 2, ns(6)),
                (3, 0x2000_8040, None, ApiKind::Delete, 2, ns(9)),
            ]
        );
        assert_eq!(trace.thread(2).unwrap().name, "main");
        assert_eq!(trace.meta().arch, "arm");
        assert_eq!(trace.modules()[0].build_id, dump.build_id);
        assert_eq!(trace.end().unwrap().dropped, 0);
        // a second import does not replace it
        assert!(made.write(&to, WriterOptions::default()).is_err());
    }

    #[test]
    fn a_counter_that_wrapped_goes_on() {
        let mut dump = sample();
        let shift = |event: &mut Event| event.seq = event.seq.wrapping_sub(2);
        dump.live.iter_mut().for_each(|block| shift(&mut block.made));
        for past in &mut dump.history {
            shift(&mut past.block.made);
            shift(&mut past.ended);
        }
        dump.counters.next_seq = dump.counters.next_seq.wrapping_sub(2);
        let (made, _) = recording(&[dump], None, unwind::unpacked).unwrap();
        let seqnos: Vec<u64> = made.events.iter().map(|event| event.seqno).collect();
        assert_eq!(seqnos, [0xffff_fffe, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_0001]);
    }

    #[test]
    fn what_the_target_did_not_keep_is_an_option_of_the_trace() {
        let mut dump = sample();
        dump.options = Default::default();
        let (made, _) = recording(&[dump], None, unwind::unpacked).unwrap();
        let left_out = ["from=mddout", "depth=0", "no_threads", "no_times", "no_history", "no_stacks"];
        assert_eq!(made.meta.options, left_out);
    }
}
