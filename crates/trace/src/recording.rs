//! A whole recording as values: what importers make of other tools' data. It
//! can be looked at as it is, or written as a trace.

use std::collections::BTreeMap;
use std::path::Path;

use highwater_event::api::ApiKind;
use highwater_event::codec::{Encoder, MAX_RECORD, Record, State};

use crate::error::TraceError;
use crate::model::{
    End, Event, EventBlock, Mark, Meta, ModuleDef, NameDef, NodeDef, Note, Op, Renumbered, ThreadDef,
    ThreadNo,
};
use crate::writer::{Writer, WriterOptions};

/// Events of one epoch of the file; bounds the memory of writing.
const CHUNK: usize = 1 << 16;

/// Addresses from here on (2^54) cannot be written; no processor that there is
/// has them in programs.
pub const MAX_ADDR: u64 = 1 << 54;

/// A recording in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Facts. Times are ns: `stamp_kind` is to be `ns`.
    pub meta: Meta,
    /// Its end.
    pub end: End,
    /// Loaded objects.
    pub modules: Vec<ModuleDef>,
    /// Threads.
    pub threads: Vec<ThreadDef>,
    /// The stack tree; parents before their children.
    pub nodes: Vec<NodeDef>,
    /// Names that no file tells.
    pub names: Vec<NameDef>,
    /// Marks.
    pub marks: Vec<Mark>,
    /// What else there is.
    pub notes: Vec<Note>,
    /// The events in their order. Their seqnos are those of the data they come
    /// from: they rise, and need not begin at 0 or be without gaps. Addresses are
    /// below [`MAX_ADDR`].
    pub events: Vec<Event>,
}

/// One thread's records.
#[derive(Default)]
struct Stream {
    encoder: Encoder,
    bytes: Vec<u8>,
    events: u32,
}

impl Stream {
    fn push(&mut self, stamp: u64, event: &Event) {
        let Event { addr: ptr, node, api, .. } = *event;
        let record = match event.op {
            Op::Alloc { size, usable } => {
                let pair = event.pair.is_some() && api.is_realloc();
                let api = if api.is_free() { ApiKind::UserAlloc } else { api };
                Record::Alloc { stamp, ptr, size, usable, node, api, pair }
            }
            Op::Free => {
                let api = if api.is_free() { api } else { ApiKind::UserFree };
                Record::Free { stamp, ptr, node, api }
            }
        };
        self.bytes.extend_from_slice(self.encoder.record(&record, &mut [0; MAX_RECORD]));
        self.events += 1;
    }
}

impl Recording {
    /// Writes it as a trace. Events of the same time follow each other by a
    /// nanosecond, so that their order stays; where their numbers are not 0, 1,
    /// 2, … the trace tells what they were ([`crate::Trace::original_seqno`]).
    /// Returns the bytes written.
    ///
    /// # Errors
    /// As [`Writer`]'s.
    pub fn write(&self, to: &Path, options: WriterOptions) -> Result<u64, TraceError> {
        let mut writer = Writer::create(to, &self.meta, options)?;
        self.modules.iter().try_for_each(|module| writer.module(module))?;
        self.threads.iter().try_for_each(|thread| writer.thread(thread))?;
        writer.nodes(&self.nodes)?;
        writer.names(&self.names)?;
        self.marks.iter().try_for_each(|mark| writer.mark(mark))?;
        self.notes.iter().try_for_each(|note| writer.note(note))?;
        let mut expected = 0;
        for (seqno, event) in (0u64..).zip(&self.events) {
            if event.seqno != expected {
                writer.renumbered(Renumbered { seqno, original: event.seqno })?;
            }
            expected = event.seqno.wrapping_add(1);
        }
        let mut now = 0;
        for chunk in self.events.chunks(CHUNK) {
            let mut streams: BTreeMap<ThreadNo, Stream> = BTreeMap::new();
            for event in chunk {
                now = event.ns.max(now + 1);
                streams.entry(event.thread).or_default().push(now, event);
            }
            for (&thread, stream) in &streams {
                writer.events(&EventBlock {
                    thread,
                    events: stream.events,
                    start: State::default(),
                    payload: &stream.bytes,
                })?;
            }
            writer.end_epoch()?;
        }
        let duration_ns = self.end.duration_ns.max(now);
        writer.finish(&End { duration_ns, ..self.end.clone() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Trace;
    use crate::model::{NameFrame, Step};

    fn read_back(recording: &Recording) -> (Trace, Vec<Event>) {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("x.hwt");
        recording.write(&to, WriterOptions::default()).unwrap();
        let trace = Trace::open(&to).unwrap();
        let mut events = Vec::new();
        let mut steps = trace.steps();
        while let Some(step) = steps.next().unwrap() {
            if let Step::Event(event) = step {
                events.push(event);
            }
        }
        drop(steps);
        (trace, events)
    }

    #[test]
    fn names_notes_and_numbers_arrive() {
        let event = |seqno, thread| Event {
            seqno,
            ns: 7,
            stamp: 0,
            thread,
            op: Op::Alloc { size: 8, usable: None },
            api: ApiKind::New,
            addr: 0x10 * (seqno + 1),
            node: 1,
            pair: None,
        };
        let frame = NameFrame { function: "f".into(), offset: Some(4), ..NameFrame::default() };
        let recording = Recording {
            nodes: vec![NodeDef { id: 1, parent: 0, pc: 9, module: 0xfffe }],
            names: vec![NameDef { module: 0xfffe, pc: 9, frames: vec![frame] }],
            notes: vec![Note { name: "a.b".into(), value: vec![1] }],
            events: vec![event(0, 3), event(4, 2), event(5, 1), event(9, 0)],
            ..Recording::default()
        };
        let (trace, events) = read_back(&recording);
        assert_eq!(trace.names(), recording.names);
        assert_eq!((trace.note("a.b"), trace.note("a.c")), (Some([1].as_slice()), None));
        let numbers: Vec<u64> = events.iter().map(|e| trace.original_seqno(e.seqno)).collect();
        assert_eq!(numbers, [0, 4, 5, 9]);
        assert_eq!(trace.original_seqno(4), 10);
        assert_eq!(
            events.iter().map(|e| (e.thread, e.ns)).collect::<Vec<_>>(),
            [(3, 7), (2, 8), (1, 9), (0, 10)]
        );
    }

    proptest! {
        #[test]
        fn any_events_come_back_in_their_order(
            given in proptest::collection::vec(
                (0u64..4, 0u64..3, 0u32..4, any::<bool>(), 0u64..1 << 40, 0..MAX_ADDR), 0..200)
        ) {
            let (mut seqno, mut ns) = (0, 0);
            let events: Vec<Event> = given.iter().map(|&(gap, later, thread, free, size, addr)| {
                seqno += 1 + gap;
                ns += later;
                Event {
                    seqno, ns, stamp: 0, thread, addr, node: 0, pair: None,
                    op: if free { Op::Free } else { Op::Alloc { size, usable: None } },
                    api: if free { ApiKind::Delete } else { ApiKind::Calloc },
                }
            }).collect();
            let recording = Recording { events: events.clone(), ..Recording::default() };
            let (trace, read) = read_back(&recording);
            let core = |e: &Event, seqno| (seqno, e.thread, e.op, e.api, e.addr);
            let want: Vec<_> = events.iter().map(|e| core(e, e.seqno)).collect();
            let got: Vec<_> = read.iter().map(|e| core(e, trace.original_seqno(e.seqno))).collect();
            prop_assert_eq!(got, want);
        }
    }
}
