//! The fixed part of a dump: header and section table, version 1.
//!
//! ```text
//!   0  u8[8] magic "HWMDD\r\n\x1a"        8  u32 byte order mark 0x01020304
//!  12  u8 major, u8 minor                14  u8 word size (4, 8)   15  u8 number of sections
//!  16  u16 header_size                   18  u16 section_size
//!  20  u32 options: 0 actual, 1 time, 2 thread, 3 history, 4-7 backtrace slots,
//!          8-11 unwind kind, 13 guards, 14 checksums
//!  24  u32 busy      28  u32 seq         32  u32 allocs     36  u32 frees
//!  40  u32 failed    44  u32 lost        48  u32 foreign    52  u32 hist_lost
//!  56  u32 tick_hz   60  u32 run_id      64  u32 hist_total 68  u32 peak_seq
//!  72  u32 hist_next 76  u16 machine, u16 reserved
//!  80  u32 live_sum  84  u32 hist_sum    88  u32 voided     92  u32 damaged
//!  96  words: self, anchor, cur_bytes, peak_bytes, text_base, static_bytes, dynamic_bytes, mark_bytes
//! end  section table: u16 kind, u16 entry_size, u32 count, u32 capacity, word addr (aligned)
//! ```

use super::ReadError;

/// The first eight bytes.
pub const MAGIC: [u8; 8] = *b"HWMDD\r\n\x1a";
/// What the four bytes after the magic are, in the target's byte order.
pub const BYTE_ORDER: u32 = 0x0102_0304;
/// The magic of the trailer that a target writes behind its own dumps.
pub const TRAILER: [u8; 8] = *b"HWMDDEND";

/// The fixed fields before the words.
pub const FIXED: usize = 96;
/// How many words follow.
pub const WORDS: usize = 8;
/// No header is longer: 64 sections and some room.
const MAX_HEADER: usize = 8192;

/// The kinds of section.
pub mod section {
    /// Fields of a record.
    pub const FIELDS: u16 = 1;
    /// Fields of a history entry behind the record's.
    pub const HISTORY_FIELDS: u16 = 2;
    /// Live records.
    pub const LIVE: u16 = 3;
    /// The history ring.
    pub const HISTORY: u16 = 4;
    /// Threads: word handle, the rest is the name.
    pub const THREADS: u16 = 5;
    /// The ELF note `.note.gnu.build-id`.
    pub const BUILD_ID: u16 = 6;
    /// Heaps: word start, word end, `char[8]` name.
    pub const HEAPS: u16 = 7;
    /// Names of kinds from 64 on.
    pub const KIND_NAMES: u16 = 8;
    /// Modules of hosted programs: word base, the rest is the path.
    pub const MODULES: u16 = 9;
    /// Task stacks: word handle, low, high, bytes never touched.
    pub const STACKS: u16 = 10;
}

/// Option bits.
pub mod option {
    /// Records hold the actual size.
    pub const ACTUAL: u32 = 1;
    /// Records hold the time.
    pub const TIME: u32 = 2;
    /// Records hold the thread.
    pub const THREAD: u32 = 4;
    /// There is a history ring.
    pub const HISTORY: u32 = 8;
    /// Blocks have canaries.
    pub const GUARDS: u32 = 0x2000;
    /// The checksums of the header are kept.
    pub const CHECKSUM: u32 = 0x4000;
}

/// How the target writes numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Abi {
    /// Most significant byte first.
    pub big: bool,
    /// Bytes in a pointer: 4 or 8.
    pub word: u8,
}

impl Abi {
    /// The unsigned number of `width` bytes (at most 8) at `at`, `None` outside of `bytes`.
    pub fn number(self, bytes: &[u8], at: usize, width: usize) -> Option<u64> {
        let field = bytes.get(at..at.checked_add(width)?)?;
        if width > 8 {
            return None;
        }
        let fold = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
        Some(if self.big { field.iter().fold(0, fold) } else { field.iter().rev().fold(0, fold) })
    }

    /// A pointer-sized number.
    pub fn word(self, bytes: &[u8], at: usize) -> Option<u64> {
        self.number(bytes, at, usize::from(self.word))
    }

    /// Appends `value` in `width` bytes.
    pub fn put(self, out: &mut Vec<u8>, value: u64, width: usize) {
        let bytes = value.to_be_bytes();
        let low = bytes.iter().skip(8usize.saturating_sub(width));
        if self.big { out.extend(low) } else { out.extend(low.rev()) }
    }

    /// Bytes of an entry of the section table.
    pub fn section_size(self) -> usize {
        if self.word == 8 { 24 } else { 16 }
    }
}

/// One line of the section table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// [`section`]
    pub kind: u16,
    /// Bytes of an entry.
    pub entry_size: u16,
    /// Entries in use.
    pub count: u32,
    /// Entries there is room for.
    pub capacity: u32,
    /// Where in the target's memory; 0: nowhere, nothing in the file either.
    pub addr: u64,
}

impl Section {
    /// Bytes in use.
    pub fn bytes(&self) -> u64 {
        if self.addr == 0 { 0 } else { u64::from(self.entry_size) * u64::from(self.count) }
    }
}

/// The header as numbers. The names are those of the C header file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// How numbers are written.
    pub abi: Abi,
    /// Format version.
    pub version: (u8, u8),
    /// Bytes of header and section table.
    pub size: usize,
    /// Option bits.
    pub options: u32,
    /// An update was under way.
    pub busy: u32,
    /// Number of the next event.
    pub seq: u32,
    /// Allocations recorded.
    pub allocs: u32,
    /// Releases recorded.
    pub frees: u32,
    /// Allocations that failed.
    pub failed: u32,
    /// Allocations without a record.
    pub lost: u32,
    /// Releases of blocks without a record.
    pub foreign: u32,
    /// History entries overwritten.
    pub hist_lost: u32,
    /// Ticks a second, 0 unknown.
    pub tick_hz: u32,
    /// Differs per boot, 0 unknown.
    pub run_id: u32,
    /// History entries ever made.
    pub hist_total: u32,
    /// The event that made the peak.
    pub peak_seq: u32,
    /// Place of the next history entry.
    pub hist_next: u32,
    /// ELF's number of the processor, 0 unknown.
    pub machine: u16,
    /// Sum of the checksums of the live records.
    pub live_sum: u32,
    /// And of the history entries.
    pub hist_sum: u32,
    /// Event numbers of reallocs that failed.
    pub voided: u32,
    /// Canaries found overwritten.
    pub damaged: u32,
    /// Address of the header.
    pub self_addr: u64,
    /// Address of `highwater_mdd_done`.
    pub anchor: u64,
    /// Live bytes.
    pub cur_bytes: u64,
    /// Most live bytes.
    pub peak_bytes: u64,
    /// What packed return addresses count from.
    pub text_base: u64,
    /// Memory of the agent itself.
    pub static_bytes: u64,
    /// Memory given to the agent.
    pub dynamic_bytes: u64,
    /// Where the next mark is set, 0 nowhere.
    pub mark_bytes: u64,
    /// The section table.
    pub sections: Vec<Section>,
}

impl Header {
    /// Reads a header at the start of `bytes`.
    ///
    /// # Errors
    /// If there is none, or one that contradicts itself.
    pub fn parse(bytes: &[u8]) -> Result<Header, ReadError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(ReadError::NotADump);
        }
        let short = |want| ReadError::ShortHeader { have: bytes.len(), want };
        let mark = bytes.get(8..12).ok_or(short(FIXED))?;
        let big = if mark == BYTE_ORDER.to_be_bytes() {
            true
        } else if mark == BYTE_ORDER.to_le_bytes() {
            false
        } else {
            return Err(ReadError::Header("no byte order mark"));
        };
        let &[major, minor, word, sections] = bytes.get(12..16).ok_or(short(FIXED))? else {
            return Err(short(FIXED));
        };
        if major != 1 {
            return Err(ReadError::Version { major, minor });
        }
        if word != 4 && word != 8 {
            return Err(ReadError::Header("the word size is neither 4 nor 8"));
        }
        let abi = Abi { big, word };
        let u16_at = |at| abi.number(bytes, at, 2).map(|v| v as u16).ok_or(short(FIXED));
        let u32_at = |at| abi.number(bytes, at, 4).map(|v| v as u32).ok_or(short(FIXED));
        let (size, section_size) = (usize::from(u16_at(16)?), usize::from(u16_at(18)?));
        let words_end = FIXED + WORDS * usize::from(word);
        let table = usize::from(sections) * section_size;
        if section_size < abi.section_size() || size < words_end + table || size > MAX_HEADER {
            return Err(ReadError::Header("header and section sizes do not fit together"));
        }
        if bytes.len() < size {
            return Err(short(size));
        }
        let word_at = |n: usize| abi.word(bytes, FIXED + n * usize::from(word)).ok_or(short(size));
        let mut list = Vec::with_capacity(usize::from(sections));
        for n in 0..usize::from(sections) {
            let at = size - table + n * section_size;
            list.push(Section {
                kind: u16_at(at)?,
                entry_size: u16_at(at + 2)?,
                count: u32_at(at + 4)?,
                capacity: u32_at(at + 8)?,
                addr: abi.word(bytes, at + if word == 8 { 16 } else { 12 }).ok_or(short(size))?,
            });
        }
        Ok(Header {
            abi,
            version: (major, minor),
            size,
            options: u32_at(20)?,
            busy: u32_at(24)?,
            seq: u32_at(28)?,
            allocs: u32_at(32)?,
            frees: u32_at(36)?,
            failed: u32_at(40)?,
            lost: u32_at(44)?,
            foreign: u32_at(48)?,
            hist_lost: u32_at(52)?,
            tick_hz: u32_at(56)?,
            run_id: u32_at(60)?,
            hist_total: u32_at(64)?,
            peak_seq: u32_at(68)?,
            hist_next: u32_at(72)?,
            machine: u16_at(76)?,
            live_sum: u32_at(80)?,
            hist_sum: u32_at(84)?,
            voided: u32_at(88)?,
            damaged: u32_at(92)?,
            self_addr: word_at(0)?,
            anchor: word_at(1)?,
            cur_bytes: word_at(2)?,
            peak_bytes: word_at(3)?,
            text_base: word_at(4)?,
            static_bytes: word_at(5)?,
            dynamic_bytes: word_at(6)?,
            mark_bytes: word_at(7)?,
            sections: list,
        })
    }

    /// The bytes of this header; `size` is worked out anew.
    pub fn to_bytes(&self) -> Vec<u8> {
        let abi = self.abi;
        let word = usize::from(abi.word);
        let size = FIXED + WORDS * word + self.sections.len() * abi.section_size();
        let mut out = MAGIC.to_vec();
        abi.put(&mut out, u64::from(BYTE_ORDER), 4);
        out.extend([self.version.0, self.version.1, abi.word, self.sections.len() as u8]);
        abi.put(&mut out, size as u64, 2);
        abi.put(&mut out, abi.section_size() as u64, 2);
        for value in [
            self.options,
            self.busy,
            self.seq,
            self.allocs,
            self.frees,
            self.failed,
            self.lost,
            self.foreign,
            self.hist_lost,
            self.tick_hz,
            self.run_id,
            self.hist_total,
            self.peak_seq,
            self.hist_next,
        ] {
            abi.put(&mut out, u64::from(value), 4);
        }
        abi.put(&mut out, u64::from(self.machine), 2);
        abi.put(&mut out, 0, 2);
        for value in [self.live_sum, self.hist_sum, self.voided, self.damaged] {
            abi.put(&mut out, u64::from(value), 4);
        }
        for value in [
            self.self_addr,
            self.anchor,
            self.cur_bytes,
            self.peak_bytes,
            self.text_base,
            self.static_bytes,
            self.dynamic_bytes,
            self.mark_bytes,
        ] {
            abi.put(&mut out, value, word);
        }
        for s in &self.sections {
            abi.put(&mut out, u64::from(s.kind), 2);
            abi.put(&mut out, u64::from(s.entry_size), 2);
            abi.put(&mut out, u64::from(s.count), 4);
            abi.put(&mut out, u64::from(s.capacity), 4);
            if abi.word == 8 {
                abi.put(&mut out, 0, 4);
            }
            abi.put(&mut out, s.addr, word);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_both_byte_orders() {
        let bytes = [1, 2, 3, 4];
        assert_eq!(Abi { big: true, word: 4 }.number(&bytes, 0, 4), Some(0x0102_0304));
        assert_eq!(Abi { big: false, word: 4 }.number(&bytes, 1, 2), Some(0x0302));
        assert_eq!(Abi { big: false, word: 4 }.number(&bytes, 2, 4), None);
        assert_eq!(Abi { big: false, word: 4 }.number(&bytes, usize::MAX, 4), None);
        let mut out = Vec::new();
        Abi { big: true, word: 4 }.put(&mut out, 0x0a0b, 2);
        Abi { big: false, word: 4 }.put(&mut out, 0x0a0b, 2);
        assert_eq!(out, [0x0a, 0x0b, 0x0b, 0x0a]);
    }

    #[test]
    fn a_newer_major_version_is_refused_by_name() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(BYTE_ORDER.to_le_bytes());
        bytes.extend([2, 7, 4, 0]);
        bytes.resize(200, 0);
        assert!(matches!(Header::parse(&bytes), Err(ReadError::Version { major: 2, minor: 7 })));
    }
}
