//! Backtraces that the target found by scanning its stack.
//!
//! A scan takes every word that looks like a return address; some are left over
//! from calls that are long done. With [`Unwind::ScanOffset`] the target keeps
//! with each word where on the stack it lay (8 bits, in words from the end of
//! the wrapper's frame) and 24 bits of address from the start of the code. The
//! host then walks the real stack with the executable's unwind tables, which need
//! only sizes of frames: a word is believed if the walk says that a return
//! address lies just there. The chain may be cut short, it is never wrong.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, Register, RegisterRule,
    RunTimeEndian, UnwindContext, UnwindSection,
};
use object::{Object, ObjectSection};

use super::model::{Dump, Event, Unwind};

/// Takes packed return addresses apart: (offset on the stack in bytes, address).
fn packed(dump: &Dump, value: u64) -> (i64, u64) {
    let word = i64::from(dump.abi.word);
    ((value >> 24) as i64 * word, dump.text_base.wrapping_add(value & 0xff_ffff))
}

/// The return addresses of an event, all candidates among them; 0 where there was none.
pub fn unpacked(dump: &Dump, event: &Event) -> Vec<u64> {
    let one = |(n, &value): (usize, &u64)| {
        if dump.options.unwind == Unwind::ScanOffset && n > 0 && value != 0 {
            packed(dump, value).1
        } else {
            value
        }
    };
    event.backtrace.iter().enumerate().map(one).collect()
}

/// How to get from one frame to the next, for a range of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    start: u64,
    end: u64,
    /// Bytes from the stack pointer to the end of the frame.
    frame: i64,
    /// Where the return address is, from the end of the frame.
    return_at: i64,
}

/// The unwind tables of an executable, as far as a walk without registers can use them.
#[derive(Debug, Default)]
pub struct Tables {
    rows: Vec<Row>,
}

type Reader<'a> = EndianSlice<'a, RunTimeEndian>;

impl Tables {
    /// Reads `.debug_frame` and `.eh_frame` of an ELF file. What cannot be read
    /// is left out.
    pub fn parse(elf: &[u8]) -> Tables {
        let mut tables = Tables::default();
        let Ok(file) = object::File::parse(elf) else { return tables };
        let Some(stack_pointer) = stack_pointer(file.architecture()) else { return tables };
        let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let width = file.architecture().address_size().map_or(4, |s| s.bytes());
        let data = |name: &str| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.uncompressed_data().ok()?))
        };
        if let Some((_, bytes)) = data(".debug_frame") {
            let mut section = DebugFrame::new(&bytes, endian);
            section.set_address_size(width);
            tables.add(&section, &BaseAddresses::default(), stack_pointer);
        }
        if let Some((address, bytes)) = data(".eh_frame") {
            let mut section = EhFrame::new(&bytes, endian);
            section.set_address_size(width);
            let text = file.section_by_name(".text").map_or(0, |s| s.address());
            let bases = BaseAddresses::default().set_eh_frame(address).set_text(text);
            tables.add(&section, &bases, stack_pointer);
        }
        tables.rows.sort_by_key(|r| (r.start, r.end));
        tables
    }

    fn add<'a, S>(&mut self, section: &S, bases: &BaseAddresses, stack_pointer: Register)
    where
        S: UnwindSection<Reader<'a>>,
        S::Offset: Copy,
    {
        let mut context = UnwindContext::new();
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(S::cie_from_offset) else { continue };
            // A function that the linker dropped keeps its entry, at address 0, and
            // flash begins there on many chips: it would cover real code.
            if fde.initial_address() == 0 {
                continue;
            }
            let link = fde.cie().return_address_register();
            let Ok(mut rows) = fde.rows(section, bases, &mut context) else { continue };
            while let Ok(Some(row)) = rows.next_row() {
                let frame = match row.cfa() {
                    CfaRule::RegisterAndOffset { register, offset } if *register == stack_pointer => *offset,
                    _ => continue,
                };
                if let Some(RegisterRule::Offset(return_at)) = row.register(link) {
                    self.rows.push(Row {
                        start: row.start_address(),
                        end: row.end_address(),
                        frame,
                        return_at,
                    });
                }
            }
        }
    }

    fn row(&self, pc: u64) -> Option<&Row> {
        let after = self.rows.partition_point(|r| r.start <= pc);
        self.rows.get(after.checked_sub(1)?).filter(|r| pc < r.end)
    }
}

/// The stack pointer's number in DWARF.
fn stack_pointer(machine: object::Architecture) -> Option<Register> {
    use object::Architecture as A;
    Some(Register(match machine {
        A::Arm => 13,
        A::Riscv32 | A::Riscv64 => 2,
        A::X86_64 => 7,
        A::I386 => 4,
        A::Aarch64 => 31,
        A::Mips | A::Mips64 => 29,
        A::PowerPc | A::PowerPc64 | A::Xtensa => 1,
        _ => return None,
    }))
}

/// The return addresses of an event that can be trusted, innermost first. Only
/// scans with offsets are checked; other ways are taken as they are. `slide` is
/// what the program was moved by.
pub fn verified(dump: &Dump, event: &Event, tables: &Tables, slide: u64) -> Vec<u64> {
    if dump.options.unwind != Unwind::ScanOffset {
        return unpacked(dump, event);
    }
    let Some((&first, rest)) = event.backtrace.split_first() else { return Vec::new() };
    let candidates: Vec<_> = rest.iter().filter(|&&v| v != 0).map(|&v| packed(dump, v)).collect();
    let mut out = vec![first];
    let (mut pc, mut stack) = (first, 0i64);
    while out.len() < event.backtrace.len() {
        // the call is before the address that it returns to
        let Some(row) = tables.row(pc.wrapping_sub(1).wrapping_sub(slide)) else { break };
        let Some(end) = stack.checked_add(row.frame) else { break };
        let Some(&(_, next)) = candidates.iter().find(|(at, _)| Some(*at) == end.checked_add(row.return_at))
        else {
            break;
        };
        // a frame of no size would go on for ever
        if end <= stack && out.contains(&next) {
            break;
        }
        out.push(next);
        (pc, stack) = (next, end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mddout::write::sample;

    fn scanned(backtrace: Vec<u64>) -> (Dump, Event) {
        let mut dump = sample();
        dump.options.unwind = Unwind::ScanOffset;
        let event = Event { backtrace, ..Event::default() };
        (dump, event)
    }

    #[test]
    fn only_words_at_the_right_place_are_believed() {
        // two functions with frames of 16 and 8 bytes, the return address last in each
        let rows = vec![
            Row { start: 0x200, end: 0x240, frame: 16, return_at: -4 },
            Row { start: 0x300, end: 0x340, frame: 8, return_at: -4 },
        ];
        let tables = Tables { rows };
        let pack = |bytes: u64, pc: u64| (bytes / 4) << 24 | (pc - 0x100);
        let (dump, event) = scanned(vec![0x210, pack(4, 0x320), pack(12, 0x310), pack(20, 0x220), 0]);
        assert_eq!(verified(&dump, &event, &tables, 0), [0x210, 0x310, 0x220]);
        assert_eq!(unpacked(&dump, &event), [0x210, 0x320, 0x310, 0x220, 0]);
        let (dump, event) = scanned(vec![0x210, pack(8, 0x310)]);
        assert_eq!(verified(&dump, &event, &tables, 0), [0x210]);
        let (dump, event) = scanned(vec![]);
        assert!(verified(&dump, &event, &tables, 0).is_empty());
    }

    #[test]
    fn other_ways_are_taken_as_they_are() {
        let (mut dump, event) = scanned(vec![1, 2, 3]);
        dump.options.unwind = Unwind::FramePointer;
        assert_eq!(verified(&dump, &event, &Tables::default(), 0), [1, 2, 3]);
    }

    #[test]
    fn the_tables_of_a_real_program() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let tables = Tables::parse(&own);
        assert!(tables.rows.len() > 100);
        assert!(tables.rows.iter().all(|r| r.start != 0));
        assert!(Tables::parse(b"no elf").rows.is_empty());
    }
}
