//! Dumps to a `.hwt` trace, so that every view of highwater works on them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use highwater_event::api::ApiKind;
use highwater_event::codec::{Encoder, MAX_RECORD, State};
use highwater_event::node::{Node, Truncation};
use highwater_trace::model::{End, EndedHow, EventBlock, Meta, ModuleDef, NodeDef, ThreadDef};
use highwater_trace::{TraceError, Writer, WriterOptions};

use super::merge::{self, Entry, MergeError};
use super::model::{Dump, Event, Unwind, flag};

/// Why no trace was made.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The dumps do not belong together.
    #[error("a dump {0}")]
    Merge(#[from] MergeError),
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// The target's program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its file here.
    pub path: PathBuf,
    /// What its addresses were moved by.
    pub slide: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// Events of the run that are in no dump.
    pub missing: u64,
}

/// Return addresses as stack nodes.
struct Stacks {
    ids: HashMap<(u32, u64, u16), u32>,
    defs: Vec<NodeDef>,
    module: u16,
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
            node = self.node(node, pc, self.module);
        }
        node
    }
}

/// One thread's records.
#[derive(Default)]
struct Stream {
    encoder: Encoder,
    bytes: Vec<u8>,
    events: u32,
    first: u64,
}

impl Stream {
    /// Appends what `write` writes at the place it is given; it returns the end.
    fn push(&mut self, stamp: u64, write: impl FnOnce(&mut Encoder, *mut u8) -> *mut u8) {
        if self.events == 0 {
            self.first = stamp;
        }
        let mut room = [0u8; MAX_RECORD];
        let start = room.as_mut_ptr();
        let end = write(&mut self.encoder, start);
        let len = (end as usize).saturating_sub(start as usize);
        self.bytes.extend_from_slice(room.get(..len).unwrap_or_default());
        self.events += 1;
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

/// Writes the history of the dumps of one run as a new trace. `backtrace` gives the
/// return addresses of an event that can be trusted (see [`super::unwind`]).
///
/// Times are those of the target where it kept them, events of one tick follow
/// each other by a nanosecond; without times an event's time is its number.
///
/// # Errors
/// If the dumps are of different runs, or the trace cannot be written (an
/// existing file is not replaced).
pub fn import(
    dumps: &[Dump],
    program: Option<&Program>,
    mut backtrace: impl FnMut(&Dump, &Event) -> Vec<u64>,
    to: &Path,
) -> Result<Summary, ImportError> {
    let history = merge::merge(dumps)?;
    let Some(last) = dumps.iter().max_by_key(|d| (d.counters.next_seq, d.threads.len())) else {
        return Err(MergeError::Nothing.into());
    };
    let meta = Meta {
        writer: concat!("highwater ", env!("CARGO_PKG_VERSION")).into(),
        exe: program.map(|p| p.path.clone()).unwrap_or_default(),
        arch: arch(last).into(),
        stamp_kind: "ns".into(),
        options: vec![format!("depth={}", last.options.backtrace)],
        ..Meta::default()
    };
    let mut writer = Writer::create(to, &meta, WriterOptions::default())?;
    if let Some(program) = program {
        writer.module(&ModuleDef {
            path: program.path.to_string_lossy().into_owned(),
            bias: program.slide,
            start: program.slide,
            end: u64::MAX,
            build_id: last.build_id.clone(),
            flags: highwater_event::layout::MODULE_MAIN,
            ..ModuleDef::default()
        })?;
    }
    let module = if program.is_some() { 0 } else { Node::NO_MODULE };
    let mut stacks = Stacks { ids: HashMap::new(), defs: Vec::new(), module };
    let mut streams: std::collections::BTreeMap<u8, Stream> = std::collections::BTreeMap::new();
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
        let node = stacks.of(&trusted, exact && room_left);
        let stream = streams.entry(event.thread.unwrap_or(0)).or_default();
        if ended.is_some() {
            let api = api(last, event.kind, true);
            // SAFETY: `push` hands out MAX_RECORD bytes.
            stream.push(now, |e, at| unsafe { e.free(at, now, block.ptr, node, api) });
        } else {
            let api = api(last, event.kind, false);
            let pair = event.flags & flag::PAIR != 0 && api.is_realloc();
            // SAFETY: `push` hands out MAX_RECORD bytes.
            stream.push(now, |e, at| unsafe {
                e.alloc(at, now, block.ptr, block.size, node, api, block.actual, pair)
            });
        }
    }
    writer.nodes(&stacks.defs)?;
    for (&number, stream) in &streams {
        let name = last.thread(number).map(|t| t.name.clone()).unwrap_or_default();
        let thread = u32::from(number);
        writer.thread(&ThreadDef { thread, tid: thread, name, start: stream.first })?;
        writer.events(&EventBlock {
            thread,
            events: stream.events,
            start: State::default(),
            payload: &stream.bytes,
        })?;
    }
    writer.end_epoch()?;
    writer.finish(&End {
        how: EndedHow::Detached,
        duration_ns: now,
        dropped: history.missing,
        ..End::default()
    })?;
    Ok(Summary { events: history.entries.len() as u64, missing: history.missing })
}

#[cfg(test)]
mod tests {
    use highwater_trace::Trace;
    use highwater_trace::model::{Op, Step};

    use super::*;
    use crate::mddout::unwind;
    use crate::mddout::write::sample;

    #[test]
    fn every_event_arrives_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("x.hwt");
        let dump = sample();
        let program = Program { path: "/firmware/app.elf".into(), slide: 0 };
        let done = import(std::slice::from_ref(&dump), Some(&program), unwind::unpacked, &to).unwrap();
        assert_eq!(done, Summary { events: 4, missing: 0 });
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
        assert!(import(&[dump], None, unwind::unpacked, &to).is_err());
    }
}
