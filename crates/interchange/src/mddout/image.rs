//! A dump inside a memory image: an ELF core (`gcore` of GDB, a debugger's
//! snapshot), a raw RAM image, Intel hex or S-records.

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

use super::layout::{Header, MAGIC};
use super::raw::{Raw, believed, section_name};
use super::{Problem, ReadError};

/// Pieces of a target's memory.
#[derive(Debug)]
pub struct Image<'a> {
    pieces: Vec<Piece<'a>>,
    /// The addresses are known; else there is one piece, at address 0.
    addressed: bool,
}

#[derive(Debug)]
struct Piece<'a> {
    addr: u64,
    bytes: std::borrow::Cow<'a, [u8]>,
}

impl<'a> Image<'a> {
    /// Recognises ELF, Intel hex (`:`) and S-records (`S0`…); everything else is
    /// taken for a raw image.
    ///
    /// # Errors
    /// If an ELF file, or a line of a text format, is damaged beyond use.
    pub fn parse(bytes: &'a [u8]) -> Result<Image<'a>, ReadError> {
        if bytes.starts_with(&elf::ELFMAG) {
            return Image::elf(bytes)
                .ok_or(ReadError::Header("the ELF file's program headers cannot be read"));
        }
        let text = |lines: Option<Vec<(u64, Vec<u8>)>>| {
            lines.map(|lines| Image { pieces: joined(lines), addressed: true })
        };
        let image = match bytes {
            [b':', ..] => text(intel_hex(bytes)),
            [b'S', b'0'..=b'9', ..] => text(s_records(bytes)),
            _ => None,
        };
        Ok(image.unwrap_or_else(|| Image::raw(bytes, None)))
    }

    /// A raw image that begins at `base`; `None`: nobody knows where.
    pub fn raw(bytes: &'a [u8], base: Option<u64>) -> Image<'a> {
        Image {
            pieces: vec![Piece { addr: base.unwrap_or(0), bytes: bytes.into() }],
            addressed: base.is_some(),
        }
    }

    /// The loaded segments of an ELF file of either class and byte order.
    fn elf(bytes: &'a [u8]) -> Option<Image<'a>> {
        let pieces = match bytes.get(4)? {
            1 => segments::<elf::FileHeader32<Endianness>>(bytes),
            2 => segments::<elf::FileHeader64<Endianness>>(bytes),
            _ => None,
        }?;
        Some(Image { pieces, addressed: true })
    }

    /// The bytes of one piece from `addr` on, at most `len`, fewer where it ends.
    fn at(&self, addr: u64, len: u64) -> Option<&[u8]> {
        self.pieces.iter().find_map(|p| {
            let from = usize::try_from(addr.checked_sub(p.addr)?).ok()?;
            let there = p.bytes.get(from..).filter(|b| !b.is_empty())?;
            there.get(..there.len().min(usize::try_from(len).ok()?))
        })
    }

    /// Finds the dump.
    ///
    /// The magic may stand in several places: a program's initial data lie in
    /// flash, too. The header that lies where it says it lies, and among them the
    /// one with the most events, is the one.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(&self) -> Result<Raw<'_>, ReadError> {
        let mut best: Option<(bool, u32, Raw<'_>)> = None;
        let mut why = ReadError::NotADump;
        for piece in &self.pieces {
            for offset in occurrences(&piece.bytes) {
                let Some(bytes) = piece.bytes.get(offset..) else { continue };
                let header = match Header::parse(bytes) {
                    Ok(header) => header,
                    Err(error) => {
                        why = error;
                        continue;
                    }
                };
                let here = piece.addr.wrapping_add(offset as u64);
                let fits = !self.addressed || header.self_addr == here;
                // what to add to an address of the target to get one of ours
                let shift = if self.addressed { 0 } else { here.wrapping_sub(header.self_addr) };
                let seq = header.seq;
                if best.as_ref().is_none_or(|(f, s, _)| (fits, seq) > (*f, *s)) {
                    best = Some((fits, seq, self.collect(header, bytes, shift)));
                }
            }
        }
        best.filter(|(fits, ..)| *fits).map(|(.., raw)| raw).ok_or(why)
    }

    fn collect<'b>(&'b self, header: Header, bytes: &'b [u8], shift: u64) -> Raw<'b> {
        let mut problems = Vec::new();
        let mut sections = Vec::with_capacity(header.sections.len());
        for s in &header.sections {
            let want = believed(s, &mut problems);
            let found = if want == 0 { Some(&[][..]) } else { self.at(s.addr.wrapping_add(shift), want) };
            let entry = usize::from(s.entry_size).max(1);
            match found {
                None => problems.push(Problem::NotInImage { section: section_name(s.kind), addr: s.addr }),
                Some(part) if (part.len() as u64) < want => problems.push(Problem::Truncated {
                    section: section_name(s.kind),
                    have: (part.len() / entry) as u64,
                    want: u64::from(s.count),
                }),
                Some(_) => {}
            }
            let found = found.unwrap_or_default();
            sections.push(found.get(..found.len() / entry * entry).unwrap_or_default());
        }
        let header_bytes = bytes.get(..header.size).unwrap_or_default();
        Raw { header, header_bytes, sections, problems }
    }
}

/// Where the magic stands.
fn occurrences(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(from..)?;
            let at = from + rest.iter().position(|&b| b == MAGIC[0])?;
            from = at + 1;
            if bytes.get(at..)?.starts_with(&MAGIC) {
                return Some(at);
            }
        }
    })
}

fn segments<'a, E: FileHeader<Endian = Endianness>>(bytes: &'a [u8]) -> Option<Vec<Piece<'a>>> {
    let header = E::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let loads = header.program_headers(endian, bytes).ok()?;
    Some(
        loads
            .iter()
            .filter(|p| p.p_type(endian) == elf::PT_LOAD)
            .filter_map(|p| {
                let from = usize::try_from(p.p_offset(endian).into()).ok()?;
                let rest = bytes.get(from..)?;
                // a core that was cut still gives what is there
                let len = rest.len().min(usize::try_from(p.p_filesz(endian).into()).ok()?);
                Some(Piece { addr: p.p_vaddr(endian).into(), bytes: rest.get(..len)?.into() })
            })
            .collect(),
    )
}

/// Joins neighbours, so that a table that spans many lines is one piece.
fn joined(mut lines: Vec<(u64, Vec<u8>)>) -> Vec<Piece<'static>> {
    lines.sort_by_key(|(addr, _)| *addr);
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for (addr, bytes) in lines {
        match runs.last_mut() {
            Some((start, run)) if start.wrapping_add(run.len() as u64) == addr => run.extend(bytes),
            _ => runs.push((addr, bytes)),
        }
    }
    runs.into_iter().map(|(addr, bytes)| Piece { addr, bytes: bytes.into() }).collect()
}

fn hex_bytes(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |&b: &u8| char::from(b).to_digit(16).map(|d| d as u8);
    digits.chunks(2).map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}

/// The data lines of an Intel hex file; `None` if a line is damaged.
fn intel_hex(bytes: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    let mut lines = Vec::new();
    let mut upper = 0u64;
    for line in bytes.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|l| !l.is_empty()) {
        let record = hex_bytes(line.strip_prefix(b":")?)?;
        if record.iter().fold(0u8, |sum, &b| sum.wrapping_add(b)) != 0 {
            return None;
        }
        let [len, high, low, kind, rest @ ..] = record.as_slice() else { return None };
        let data = rest.get(..usize::from(*len))?;
        let offset = u64::from(*high) << 8 | u64::from(*low);
        let value = data.iter().fold(0u64, |value, &b| value << 8 | u64::from(b));
        match kind {
            0 => lines.push((upper.wrapping_add(offset), data.to_vec())),
            1 => break,
            2 => upper = (value & 0xffff) << 4,
            4 => upper = (value & 0xffff) << 16,
            _ => {}
        }
    }
    Some(lines)
}

/// The data lines of a file of S-records; `None` if a line is damaged.
fn s_records(bytes: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    let mut lines = Vec::new();
    for line in bytes.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|l| !l.is_empty()) {
        let [b'S', kind, digits @ ..] = line else { return None };
        let record = hex_bytes(digits)?;
        if record.iter().fold(0u8, |sum, &b| sum.wrapping_add(b)) != 0xff {
            return None;
        }
        let width = match kind {
            b'1' => 2,
            b'2' => 3,
            b'3' => 4,
            _ => continue,
        };
        let body = record.get(1..record.len().checked_sub(1)?)?;
        let (addr, data) = (body.get(..width)?, body.get(width..)?);
        lines.push((addr.iter().fold(0u64, |value, &b| value << 8 | u64::from(b)), data.to_vec()));
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mddout::{decode, write};

    #[test]
    fn the_header_that_lies_where_it_says_wins_over_its_copy_in_flash() {
        let dump = write::sample();
        let mut flash = dump.clone();
        flash.live.clear();
        flash.counters = Default::default();
        let base = dump.self_addr - 64;
        let memory = write::memory(&dump, base);
        let mut image = write::memory(&flash, dump.self_addr); // header first
        let ram_at = image.len();
        image.extend(&memory);
        let found = Image {
            pieces: vec![
                Piece { addr: 0, bytes: image[..ram_at].into() },
                Piece { addr: base, bytes: memory.as_slice().into() },
            ],
            addressed: true,
        };
        assert_eq!(decode::decode(&found.find().unwrap()), dump);
    }

    #[test]
    fn a_raw_image_needs_no_address() {
        let dump = write::sample();
        let memory = write::memory(&dump, dump.self_addr - 1000);
        let image = Image::parse(&memory).unwrap();
        assert_eq!(decode::decode(&image.find().unwrap()), dump);
        assert_eq!(crate::mddout::parse(&image.find().unwrap().to_file()).unwrap(), dump);
    }

    #[test]
    fn intel_hex_and_s_records_carry_a_dump() {
        let dump = write::sample();
        let base = dump.self_addr & !0xffff;
        let memory = write::memory(&dump, base);
        let (mut hex, mut srec) = (String::new(), String::new());
        for (n, line) in memory.chunks(16).enumerate() {
            let addr = base as u32 + n as u32 * 16;
            let mut upper = vec![2, 0, 0, 4];
            upper.extend(&addr.to_be_bytes()[..2]);
            let mut data = vec![line.len() as u8];
            data.extend(&addr.to_be_bytes()[2..]);
            data.push(0);
            data.extend(line);
            for mut record in [upper, data] {
                let sum = record.iter().fold(0u8, |s, &b| s.wrapping_add(b));
                record.push(sum.wrapping_neg());
                hex.push(':');
                hex.extend(record.iter().map(|b| format!("{b:02X}")));
                hex.push('\n');
            }
            let mut record = vec![line.len() as u8 + 5];
            record.extend(addr.to_be_bytes());
            record.extend(line);
            record.push(!record.iter().fold(0u8, |s, &b| s.wrapping_add(b)));
            srec.push_str("S3");
            srec.extend(record.iter().map(|b| format!("{b:02X}")));
            srec.push('\n');
        }
        assert_eq!(crate::mddout::parse(hex.as_bytes()).unwrap(), dump);
        assert_eq!(crate::mddout::parse(srec.as_bytes()).unwrap(), dump);
    }

    #[test]
    fn an_image_that_ends_early_says_which_table_is_cut() {
        let dump = write::sample();
        let base = dump.self_addr;
        let memory = write::memory(&dump, base);
        let image = Image::raw(&memory[..memory.len() - 4], Some(base));
        let cut = decode::decode(&image.find().unwrap());
        assert!(cut.problems.iter().any(|p| matches!(p, Problem::Truncated { .. })), "{:?}", cut.problems);
        let image = Image::raw(&memory[..dump.abi.section_size() * 10 + 200], Some(base));
        assert!(
            decode::decode(&image.find().unwrap())
                .problems
                .iter()
                .any(|p| matches!(p, Problem::NotInImage { .. }))
        );
    }
}
