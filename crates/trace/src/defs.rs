//! Definition blocks: small records of many kinds, each a tag byte and fields.

use crate::left_out::{self, LeftOut};
use crate::model::{
    ClockPoint, Mark, ModuleDef, NameDef, NameFrame, NodeDef, Note, Renumbered, RssSample, ThreadDef,
};
use crate::varint::{Reader, put, put_bytes, put_signed};

const CLOCK: u8 = 1;
const MODULE: u8 = 2;
const THREAD: u8 = 3;
const NODES: u8 = 4;
const RSS: u8 = 5;
const MARK: u8 = 6;
/// From here on a tag is followed by the length of its fields, so that a reader
/// passes over what it does not know.
const WITH_LENGTH: u8 = 64;
const NAME: u8 = 64;
const RENUMBERED: u8 = 65;
const NOTE: u8 = 66;
const LEFT_OUT: u8 = 67;

pub(crate) fn put_clock(out: &mut Vec<u8>, point: ClockPoint) {
    out.push(CLOCK);
    put(out, point.stamp);
    put(out, point.ns);
}

pub(crate) fn put_module(out: &mut Vec<u8>, module: &ModuleDef) {
    out.push(MODULE);
    put(out, u64::from(module.index));
    put_bytes(out, module.path.as_bytes());
    put(out, module.bias);
    put(out, module.start);
    put(out, module.end);
    put_bytes(out, &module.build_id);
    put(out, module.loaded);
    put(out, module.unloaded);
    put(out, u64::from(module.flags));
}

pub(crate) fn put_thread(out: &mut Vec<u8>, thread: &ThreadDef) {
    out.push(THREAD);
    put(out, u64::from(thread.thread));
    put(out, u64::from(thread.tid));
    put_bytes(out, thread.name.as_bytes());
    put(out, thread.start);
}

/// Nodes as differences: ids mostly rise by one, a child mostly follows its
/// parent closely, and addresses of neighbours lie close together.
pub(crate) fn put_nodes(out: &mut Vec<u8>, nodes: &[NodeDef]) {
    out.push(NODES);
    put(out, nodes.len() as u64);
    let (mut id, mut pc) = (0u32, 0u64);
    for node in nodes {
        put_signed(out, i64::from(node.id) - i64::from(id));
        put_signed(out, i64::from(node.id) - i64::from(node.parent));
        put_signed(out, node.pc.wrapping_sub(pc) as i64);
        put(out, u64::from(node.module));
        (id, pc) = (node.id, node.pc);
    }
}

pub(crate) fn put_rss(out: &mut Vec<u8>, sample: RssSample) {
    out.push(RSS);
    put(out, sample.ns);
    put(out, sample.rss);
    put(out, sample.own);
}

pub(crate) fn put_mark(out: &mut Vec<u8>, mark: &Mark) {
    out.push(MARK);
    put(out, mark.ns);
    put_bytes(out, mark.name.as_bytes());
}

/// Tag, length, fields.
fn put_with_length(out: &mut Vec<u8>, tag: u8, fields: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    fields(&mut bytes);
    out.push(tag);
    put_bytes(out, &bytes);
}

pub(crate) fn put_name(out: &mut Vec<u8>, name: &NameDef) {
    put_with_length(out, NAME, |out| {
        put(out, u64::from(name.module));
        put(out, name.pc);
        for frame in &name.frames {
            put_bytes(out, frame.function.as_bytes());
            // 0 is no offset.
            put(out, frame.offset.map_or(0, |offset| offset.saturating_add(1)));
            put_bytes(out, frame.module.as_bytes());
            put_bytes(out, frame.file.as_bytes());
            put(out, u64::from(frame.line));
        }
    });
}

pub(crate) fn put_renumbered(out: &mut Vec<u8>, run: Renumbered) {
    put_with_length(out, RENUMBERED, |out| {
        put(out, run.seqno);
        put(out, run.original);
    });
}

pub(crate) fn put_note(out: &mut Vec<u8>, note: &Note) {
    put_with_length(out, NOTE, |out| {
        put_bytes(out, note.name.as_bytes());
        out.extend_from_slice(&note.value);
    });
}

pub(crate) fn put_left_out(out: &mut Vec<u8>, what: &LeftOut) {
    put_with_length(out, LEFT_OUT, |out| left_out::encode(out, what));
}

fn read_with_length(tag: u8, mut fields: Reader<'_>) -> Option<Option<Definition>> {
    Some(Some(match tag {
        NAME => {
            let mut name = NameDef { module: fields.u16()?, pc: fields.u64()?, frames: Vec::new() };
            while !fields.is_empty() {
                name.frames.push(NameFrame {
                    function: fields.text()?,
                    offset: fields.u64()?.checked_sub(1),
                    module: fields.text()?,
                    file: fields.text()?,
                    line: fields.u32()?,
                });
            }
            Definition::Name(name)
        }
        RENUMBERED => Definition::Renumbered(Renumbered { seqno: fields.u64()?, original: fields.u64()? }),
        NOTE => {
            let name = fields.text()?;
            Definition::Note(Note { name, value: fields.rest().to_vec() })
        }
        LEFT_OUT => return Some(left_out::decode(fields).map(Definition::LeftOut)),
        _ => return Some(None),
    }))
}

/// One definition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Definition {
    Clock(ClockPoint),
    Module(ModuleDef),
    Thread(ThreadDef),
    Node(NodeDef),
    Rss(RssSample),
    Mark(Mark),
    Name(NameDef),
    Renumbered(Renumbered),
    Note(Note),
    LeftOut(LeftOut),
}

/// Hands every definition in `bytes` to `each`. `None` if the bytes are not
/// definitions from some place on; what stands before is handed out.
pub(crate) fn read(bytes: &[u8], mut each: impl FnMut(Definition)) -> Option<()> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        match reader.u8()? {
            CLOCK => each(Definition::Clock(ClockPoint { stamp: reader.u64()?, ns: reader.u64()? })),
            MODULE => each(Definition::Module(ModuleDef {
                index: reader.u16()?,
                path: reader.text()?,
                bias: reader.u64()?,
                start: reader.u64()?,
                end: reader.u64()?,
                build_id: reader.bytes()?.to_vec(),
                loaded: reader.u64()?,
                unloaded: reader.u64()?,
                flags: reader.u32()?,
            })),
            THREAD => each(Definition::Thread(ThreadDef {
                thread: reader.u32()?,
                tid: reader.u32()?,
                name: reader.text()?,
                start: reader.u64()?,
            })),
            NODES => {
                let count = reader.u64()?;
                let (mut id, mut pc) = (0u32, 0u64);
                for _ in 0..count {
                    id = u32::try_from(i64::from(id).checked_add(reader.i64()?)?).ok()?;
                    let parent = u32::try_from(i64::from(id).checked_sub(reader.i64()?)?).ok()?;
                    pc = pc.wrapping_add(reader.i64()? as u64);
                    each(Definition::Node(NodeDef { id, parent, pc, module: reader.u16()? }));
                }
            }
            RSS => {
                each(Definition::Rss(RssSample { ns: reader.u64()?, rss: reader.u64()?, own: reader.u64()? }))
            }
            MARK => each(Definition::Mark(Mark { ns: reader.u64()?, name: reader.text()? })),
            tag @ WITH_LENGTH.. => {
                let fields = Reader::new(reader.bytes()?);
                if let Some(definition) = read_with_length(tag, fields)? {
                    each(definition);
                }
            }
            _ => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_round_trips() {
        let module = ModuleDef {
            index: 65_533,
            path: "/usr/lib/libc.so.6".into(),
            bias: 1 << 47,
            start: 7,
            end: u64::MAX,
            build_id: vec![1; 20],
            loaded: 5,
            unloaded: 9,
            flags: 4,
        };
        let thread = ThreadDef { thread: 3, tid: 99, name: "worker".into(), start: 77 };
        let nodes = [
            NodeDef { id: 1, parent: 0, pc: 0x7fff_0000_0000, module: 2 },
            NodeDef { id: 2, parent: 1, pc: 0x10, module: 0xffff },
            NodeDef { id: u32::MAX, parent: 2, pc: u64::MAX, module: 0 },
        ];
        let mut bytes = Vec::new();
        put_clock(&mut bytes, ClockPoint { stamp: 1, ns: 2 });
        put_module(&mut bytes, &module);
        put_thread(&mut bytes, &thread);
        put_nodes(&mut bytes, &nodes);
        put_rss(&mut bytes, RssSample { ns: 1, rss: 2, own: 3 });
        put_mark(&mut bytes, &Mark { ns: 5, name: "ready".into() });
        let frame = NameFrame {
            function: "parse(int)".into(),
            offset: Some(0),
            module: "liba.so".into(),
            file: "a.c".into(),
            line: 7,
        };
        let names = [
            NameDef { module: 3, pc: 77, frames: vec![frame, NameFrame::default()] },
            NameDef { module: 0xfffe, pc: u64::MAX, frames: Vec::new() },
        ];
        names.iter().for_each(|name| put_name(&mut bytes, name));
        let run = Renumbered { seqno: 5, original: u64::MAX };
        put_renumbered(&mut bytes, run);
        let note = Note { name: "dtrace.report".into(), value: vec![0, 255] };
        put_note(&mut bytes, &note);
        let left_out = LeftOut::Unseen { bytes: 4096 };
        put_left_out(&mut bytes, &left_out);
        let mut got = Vec::new();
        assert_eq!(read(&bytes, |d| got.push(d)), Some(()));
        let mut want = vec![Definition::Clock(ClockPoint { stamp: 1, ns: 2 })];
        want.extend([Definition::Module(module), Definition::Thread(thread)]);
        want.extend(nodes.map(Definition::Node));
        want.push(Definition::Rss(RssSample { ns: 1, rss: 2, own: 3 }));
        want.push(Definition::Mark(Mark { ns: 5, name: "ready".into() }));
        want.extend(names.map(Definition::Name));
        want.extend([Definition::Renumbered(run), Definition::Note(note)]);
        want.push(Definition::LeftOut(left_out));
        assert_eq!(got, want);
        for cut in 1..bytes.len() {
            let mut fewer = Vec::new();
            let _ = read(&bytes[..cut], |d| fewer.push(d));
            assert_eq!(fewer, want[..fewer.len()]);
        }
    }
    #[test]
    fn a_definition_of_a_later_version_is_passed_over() {
        let mut bytes = Vec::new();
        put_rss(&mut bytes, RssSample { ns: 1, rss: 2, own: 3 });
        put_with_length(&mut bytes, 200, |out| out.extend([1, 2, 3]));
        put_mark(&mut bytes, &Mark { ns: 5, name: "ready".into() });
        let mut got = 0;
        assert_eq!(read(&bytes, |_| got += 1), Some(()));
        assert_eq!(got, 2);
        assert_eq!(read(&[9, 0], |_| ()), None, "below 64 nobody knows how long it is");
    }
}
