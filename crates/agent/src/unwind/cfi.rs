//! Compiles the call-frame information of one code address into a [`Rule`].
//!
//! Sources: the DWARF 5 standard §6.4 (call frame instructions) and the Linux
//! Standard Base's chapter on `.eh_frame` and `.eh_frame_hdr`. Runs once per
//! return address, on tables that the loader has mapped; every read is bounded
//! by the mapped module.

use highwater_event::node::Truncation;

use super::rule::{BpAt, Kind, Rule};
use crate::arch::{DWARF_BP, DWARF_RA, DWARF_SP};

/// Bytes of a mapped module that may be read.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

/// Reads forward through a mapped table.
#[derive(Clone, Copy)]
struct Reader {
    at: u64,
    end: u64,
}

impl Reader {
    fn new(at: u64, end: u64, bounds: Bounds) -> Option<Reader> {
        (at >= bounds.start && end <= bounds.end && at <= end).then_some(Reader { at, end })
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.end - self.at < N as u64 {
            return None;
        }
        // SAFETY: inside the module's mapping by construction.
        let value = unsafe { (self.at as *const [u8; N]).read_unaligned() };
        self.at += N as u64;
        Some(value)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|b| b[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn skip(&mut self, n: u64) -> Option<()> {
        if self.end - self.at < n {
            return None;
        }
        self.at += n;
        Some(())
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            if shift > 70 {
                return None;
            }
        }
    }

    fn sleb(&mut self) -> Option<i64> {
        let mut value = 0i64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= i64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                if shift < 64 && byte & 0x40 != 0 {
                    value |= -1 << shift;
                }
                return Some(value);
            }
            if shift > 70 {
                return None;
            }
        }
    }

    /// A pointer in one of the DW_EH_PE encodings; `data` is the base of
    /// data-relative ones.
    fn encoded(&mut self, encoding: u8, data: u64) -> Option<u64> {
        if encoding == 0xff {
            return Some(0);
        }
        let here = self.at;
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()?,
            0x01 => self.uleb()?,
            0x02 => u64::from(self.u16()?),
            0x03 => u64::from(self.u32()?),
            0x09 => self.sleb()? as u64,
            0x0a => self.u16()? as i16 as u64,
            0x0b => self.u32()? as i32 as u64,
            _ => return None,
        };
        let base = match encoding & 0x70 {
            0x00 => 0,
            0x10 => here,
            0x30 => data,
            _ => return None,
        };
        Some(base.wrapping_add(value))
    }
}

/// The rule for the code at `pc` (for a return address: one less than it).
///
/// `eh_frame_hdr` is the address of the module's table, 0 if it has none.
pub fn compile(eh_frame_hdr: u64, bounds: Bounds, pc: u64) -> Rule {
    if eh_frame_hdr == 0 {
        return Rule::bad(Truncation::NoUnwindInfo);
    }
    let Some(fde) = find_fde(eh_frame_hdr, bounds, pc) else {
        return Rule::bad(Truncation::NoUnwindInfo);
    };
    match rule_in_fde(fde, bounds, pc) {
        Some(rule) => rule,
        None => Rule::bad(Truncation::NoUnwindInfo),
    }
}

/// Does a function with unwind information start at exactly `pc`?
pub fn starts_at(eh_frame_hdr: u64, bounds: Bounds, pc: u64) -> bool {
    let entry = |at| if eh_frame_hdr == 0 { None } else { find_fde(eh_frame_hdr, bounds, at) };
    entry(pc).is_some() && entry(pc) != entry(pc.wrapping_sub(1))
}

/// Binary search in `.eh_frame_hdr`: the entry with the greatest start <= pc.
fn find_fde(header: u64, bounds: Bounds, pc: u64) -> Option<u64> {
    let mut reader = Reader::new(header, bounds.end, bounds)?;
    let (version, frame_encoding, count_encoding, table_encoding) =
        (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
    // Every linker writes a table of (i32, i32) relative to the header.
    if version != 1 || table_encoding != 0x3b {
        return None;
    }
    reader.encoded(frame_encoding, header)?;
    let count = reader.encoded(count_encoding, header)?;
    if count == 0 || count.checked_mul(8)? > reader.end - reader.at {
        return None;
    }
    let table = reader.at;
    let entry = |i: u64| {
        // SAFETY: i < count, and the whole table is inside the module.
        let pair = unsafe { ((table + i * 8) as *const [i32; 2]).read_unaligned() };
        (header.wrapping_add(pair[0] as u64), header.wrapping_add(pair[1] as u64))
    };
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if entry(middle).0 <= pc {
            low = middle;
        } else {
            high = middle;
        }
    }
    let (start, fde) = entry(low);
    (start <= pc).then_some(fde)
}

/// How a register's old value is saved.
#[derive(Clone, Copy, PartialEq)]
enum Saved {
    Same,
    Undefined,
    /// At cfa + offset.
    Cfa(i64),
    /// At rbp + offset (an expression of that form).
    Bp(i64),
    Other,
}

/// How the cfa is computed.
#[derive(Clone, Copy)]
enum Cfa {
    Register(u64, i64),
    DerefBp(i64),
    Plt,
    Other,
}

#[derive(Clone, Copy)]
struct Row {
    cfa: Cfa,
    ra: Saved,
    bp: Saved,
}

struct Cie {
    code_align: u64,
    data_align: i64,
    fde_encoding: u8,
    signal: bool,
    augmented: bool,
    return_register: u64,
    instructions: Reader,
}

fn rule_in_fde(fde: u64, bounds: Bounds, pc: u64) -> Option<Rule> {
    let mut reader = Reader::new(fde, bounds.end, bounds)?;
    let length = reader.u32()?;
    if length == 0 || length == u32::MAX {
        return None;
    }
    reader.end = reader.at.checked_add(u64::from(length)).filter(|&end| end <= bounds.end)?;
    let cie_at = reader.at;
    let cie = parse_cie(cie_at.wrapping_sub(u64::from(reader.u32()?)), bounds)?;
    let start = reader.encoded(cie.fde_encoding, 0)?;
    let size = reader.encoded(cie.fde_encoding & 0x0f, 0)?;
    if pc < start || pc - start >= size {
        return None;
    }
    if cie.augmented {
        let skip = reader.uleb()?;
        reader.skip(skip)?;
    }
    if cie.signal {
        return Some(Rule::SIGNAL);
    }
    if cie.return_register != DWARF_RA {
        return Some(Rule::bad(Truncation::UnsupportedRule));
    }
    let mut row = Row { cfa: Cfa::Other, ra: Saved::Same, bp: Saved::Same };
    execute(cie.instructions, &cie, start, u64::MAX, &mut row, None)?;
    let initial = row;
    execute(reader, &cie, start, pc, &mut row, Some(initial))?;
    Some(pack(row))
}

fn pack(row: Row) -> Rule {
    let unsupported = Rule::bad(Truncation::UnsupportedRule);
    let ra = match row.ra {
        Saved::Undefined => return Rule::END,
        Saved::Cfa(offset) => offset,
        _ => return unsupported,
    };
    let (kind, offset) = match row.cfa {
        Cfa::Register(DWARF_SP, offset) => (Kind::CfaSp, offset),
        Cfa::Register(DWARF_BP, offset) => (Kind::CfaBp, offset),
        Cfa::DerefBp(offset) => (Kind::CfaDerefBp, offset),
        Cfa::Plt => (Kind::CfaPlt, 0),
        _ => return unsupported,
    };
    let (bp, bp_offset) = match row.bp {
        Saved::Cfa(offset) => (BpAt::Cfa, offset),
        Saved::Bp(offset) => (BpAt::Bp, offset),
        // An undefined rbp is one that no caller needs.
        Saved::Same | Saved::Undefined => (BpAt::Same, 0),
        Saved::Other => return unsupported,
    };
    Rule::new(kind, offset, ra, bp, bp_offset).unwrap_or(unsupported)
}

fn parse_cie(at: u64, bounds: Bounds) -> Option<Cie> {
    let mut reader = Reader::new(at, bounds.end, bounds)?;
    let length = reader.u32()?;
    if length == 0 || length == u32::MAX {
        return None;
    }
    reader.end = reader.at.checked_add(u64::from(length)).filter(|&end| end <= bounds.end)?;
    if reader.u32()? != 0 {
        return None;
    }
    let version = reader.u8()?;
    if version != 1 && version != 3 {
        return None;
    }
    let mut augmentation = [0u8; 8];
    let mut count = 0;
    loop {
        let byte = reader.u8()?;
        if byte == 0 {
            break;
        }
        *augmentation.get_mut(count)? = byte;
        count += 1;
    }
    let code_align = reader.uleb()?;
    let data_align = reader.sleb()?;
    let return_register = if version == 1 { u64::from(reader.u8()?) } else { reader.uleb()? };
    let mut cie = Cie {
        code_align,
        data_align,
        fde_encoding: 0,
        signal: false,
        augmented: false,
        return_register,
        instructions: reader,
    };
    if augmentation[0] == b'z' {
        cie.augmented = true;
        let size = reader.uleb()?;
        let instructions = reader.at.checked_add(size)?;
        for &letter in augmentation.get(1..count)? {
            match letter {
                b'R' => cie.fde_encoding = reader.u8()?,
                b'L' => {
                    reader.u8()?;
                }
                b'P' => {
                    let encoding = reader.u8()?;
                    reader.encoded(encoding & 0x0f, 0)?;
                }
                b'S' => cie.signal = true,
                b'B' => {}
                _ => break,
            }
        }
        if instructions > reader.end {
            return None;
        }
        reader.at = instructions;
    } else if augmentation[0] != 0 {
        return None;
    }
    cie.instructions = reader;
    Some(cie)
}

/// The only expressions that compilers write: `*(rbp + n)` for the cfa of a
/// realigned frame, `rbp + n` for a register saved in one, and the linker's
/// test of the low bits of the pc in a PLT.
fn expression_cfa(mut reader: Reader) -> Cfa {
    const BREG6: u8 = 0x70 + 6;
    const BREG7: u8 = 0x70 + 7;
    const DEREF: u8 = 0x06;
    // breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus
    const PLT: [u8; 11] = [BREG7, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    let length = reader.end - reader.at;
    if length == PLT.len() as u64 {
        return if reader.bytes::<11>() == Some(PLT) { Cfa::Plt } else { Cfa::Other };
    }
    let parsed = (|| {
        if reader.u8()? != BREG6 {
            return None;
        }
        let offset = reader.sleb()?;
        (reader.u8()? == DEREF && reader.at == reader.end).then_some(Cfa::DerefBp(offset))
    })();
    parsed.unwrap_or(Cfa::Other)
}

fn expression_saved(mut reader: Reader) -> Saved {
    let parsed = (|| {
        if reader.u8()? != 0x70 + 6 {
            return None;
        }
        let offset = reader.sleb()?;
        (reader.at == reader.end).then_some(Saved::Bp(offset))
    })();
    parsed.unwrap_or(Saved::Other)
}

/// Runs call-frame instructions until the row that covers `pc`.
fn execute(
    mut reader: Reader,
    cie: &Cie,
    start: u64,
    pc: u64,
    row: &mut Row,
    initial: Option<Row>,
) -> Option<()> {
    let mut stack = [*row; 8];
    let mut depth = 0;
    let mut location = start;
    let set = |row: &mut Row, register: u64, saved: Saved| match register {
        DWARF_BP => row.bp = saved,
        DWARF_RA => row.ra = saved,
        _ => {}
    };
    let restore = |row: &mut Row, register: u64| {
        if let Some(initial) = initial {
            match register {
                DWARF_BP => row.bp = initial.bp,
                DWARF_RA => row.ra = initial.ra,
                _ => {}
            }
        }
    };
    while reader.at < reader.end {
        let op = reader.u8()?;
        let low = u64::from(op & 0x3f);
        let advance = match op >> 6 {
            1 => Some(low),
            2 => {
                let offset = (reader.uleb()? as i64).wrapping_mul(cie.data_align);
                set(row, low, Saved::Cfa(offset));
                None
            }
            3 => {
                restore(row, low);
                None
            }
            _ => match op {
                0x00 => None,
                0x01 => {
                    // set_loc
                    location = reader.encoded(cie.fde_encoding, 0)?;
                    Some(0)
                }
                0x02 => Some(u64::from(reader.u8()?)),
                0x03 => Some(u64::from(reader.u16()?)),
                0x04 => Some(u64::from(reader.u32()?)),
                0x05 => {
                    let register = reader.uleb()?;
                    let offset = (reader.uleb()? as i64).wrapping_mul(cie.data_align);
                    set(row, register, Saved::Cfa(offset));
                    None
                }
                0x06 => {
                    let register = reader.uleb()?;
                    restore(row, register);
                    None
                }
                0x07 => {
                    let register = reader.uleb()?;
                    set(row, register, Saved::Undefined);
                    None
                }
                0x08 => {
                    let register = reader.uleb()?;
                    set(row, register, Saved::Same);
                    None
                }
                0x09 => {
                    // register: the value is in another register, which we do not keep.
                    let register = reader.uleb()?;
                    reader.uleb()?;
                    set(row, register, Saved::Other);
                    None
                }
                0x0a => {
                    *stack.get_mut(depth)? = *row;
                    depth += 1;
                    None
                }
                0x0b => {
                    depth = depth.checked_sub(1)?;
                    *row = *stack.get(depth)?;
                    None
                }
                0x0c => {
                    let register = reader.uleb()?;
                    row.cfa = Cfa::Register(register, reader.uleb()? as i64);
                    None
                }
                0x0d => {
                    let register = reader.uleb()?;
                    if let Cfa::Register(_, offset) = row.cfa {
                        row.cfa = Cfa::Register(register, offset);
                    } else {
                        row.cfa = Cfa::Other;
                    }
                    None
                }
                0x0e => {
                    let offset = reader.uleb()? as i64;
                    if let Cfa::Register(register, _) = row.cfa {
                        row.cfa = Cfa::Register(register, offset);
                    }
                    None
                }
                0x0f => {
                    let length = reader.uleb()?;
                    let from = reader.at;
                    reader.skip(length)?;
                    row.cfa = expression_cfa(Reader { at: from, end: reader.at });
                    None
                }
                0x10 | 0x16 => {
                    let register = reader.uleb()?;
                    let length = reader.uleb()?;
                    let from = reader.at;
                    reader.skip(length)?;
                    let saved = if op == 0x10 {
                        expression_saved(Reader { at: from, end: reader.at })
                    } else {
                        Saved::Other
                    };
                    set(row, register, saved);
                    None
                }
                0x11 => {
                    let register = reader.uleb()?;
                    let offset = reader.sleb()?.wrapping_mul(cie.data_align);
                    set(row, register, Saved::Cfa(offset));
                    None
                }
                0x12 => {
                    let register = reader.uleb()?;
                    let offset = reader.sleb()?.wrapping_mul(cie.data_align);
                    row.cfa = Cfa::Register(register, offset);
                    None
                }
                0x13 => {
                    let offset = reader.sleb()?.wrapping_mul(cie.data_align);
                    if let Cfa::Register(register, _) = row.cfa {
                        row.cfa = Cfa::Register(register, offset);
                    }
                    None
                }
                0x14 | 0x15 => {
                    let register = reader.uleb()?;
                    reader.uleb()?;
                    set(row, register, Saved::Other);
                    None
                }
                0x2e => {
                    // GNU_args_size: only exception handling needs it.
                    reader.uleb()?;
                    None
                }
                0x2f => {
                    let register = reader.uleb()?;
                    let offset = (reader.uleb()? as i64).wrapping_mul(cie.data_align);
                    set(row, register, Saved::Cfa(offset.wrapping_neg()));
                    None
                }
                _ => return None,
            },
        };
        if let Some(units) = advance {
            location = location.wrapping_add(units.wrapping_mul(cie.code_align));
            if location > pc {
                return Some(());
            }
        }
    }
    Some(())
}
