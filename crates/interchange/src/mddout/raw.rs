//! A dump cut into its sections.

use super::layout::{Header, Section, TRAILER, section};
use super::{Problem, ReadError};

/// A header and the bytes of its sections, in the order of the table.
#[derive(Clone, Debug)]
pub struct Raw<'a> {
    /// The header.
    pub header: Header,
    /// Its bytes.
    pub header_bytes: &'a [u8],
    /// The bytes of each section that are there: whole entries, perhaps fewer
    /// than its count.
    pub sections: Vec<&'a [u8]>,
    /// What was wrong so far.
    pub problems: Vec<Problem>,
}

impl Raw<'_> {
    /// The dump as a file. Sections that are incomplete are given the count that is there.
    pub fn to_file(&self) -> Vec<u8> {
        let mut out = self.header_bytes.to_vec();
        let mut header = self.header.clone();
        let mut cut = false;
        for (entry, bytes) in header.sections.iter_mut().zip(&self.sections) {
            if entry.bytes() != bytes.len() as u64 {
                entry.count = (bytes.len() / usize::from(entry.entry_size).max(1)) as u32;
                cut = true;
            }
        }
        if cut {
            // a longer header of a later minor version loses what this one does not know
            out = header.to_bytes();
        }
        for bytes in &self.sections {
            out.extend_from_slice(bytes);
        }
        out
    }
}

/// What a section is called in messages.
pub fn section_name(kind: u16) -> &'static str {
    match kind {
        section::FIELDS => "field table",
        section::HISTORY_FIELDS => "history field table",
        section::LIVE => "live records",
        section::HISTORY => "history entries",
        section::THREADS => "thread table",
        section::BUILD_ID => "build-id",
        section::HEAPS => "heap table",
        section::KIND_NAMES => "kind names",
        section::MODULES => "module table",
        section::STACKS => "stack table",
        _ => "unknown section",
    }
}

/// The count that can be true: not above the capacity.
pub(super) fn believed(s: &Section, problems: &mut Vec<Problem>) -> u64 {
    if s.count > s.capacity {
        problems.push(Problem::Overfull {
            section: section_name(s.kind),
            count: s.count,
            capacity: s.capacity,
        });
    }
    s.bytes()
}

/// Cuts a dump file.
///
/// # Errors
/// If the header cannot be read.
pub fn split(bytes: &[u8]) -> Result<Raw<'_>, ReadError> {
    let header = Header::parse(bytes)?;
    let (header_bytes, mut rest) = bytes.split_at(header.size);
    let mut problems = Vec::new();
    let mut sections = Vec::with_capacity(header.sections.len());
    for s in &header.sections {
        let want = believed(s, &mut problems);
        let have = want.min(rest.len() as u64) as usize;
        let entry = usize::from(s.entry_size).max(1);
        let whole = have / entry * entry;
        if (have as u64) < want {
            problems.push(Problem::Truncated {
                section: section_name(s.kind),
                have: (have / entry) as u64,
                want: u64::from(s.count),
            });
        }
        let (this, after) = rest.split_at(have);
        sections.push(this.get(..whole).unwrap_or_default());
        rest = after;
    }
    check_trailer(bytes, rest, &header, &mut problems);
    Ok(Raw { header, header_bytes, sections, problems })
}

/// A dump that the target wrote itself ends with its length and its CRC.
fn check_trailer(bytes: &[u8], rest: &[u8], header: &Header, problems: &mut Vec<Problem>) {
    if !rest.starts_with(&TRAILER) {
        if !rest.is_empty() {
            problems.push(Problem::Trailing(rest.len() as u64));
        }
        return;
    }
    let body = bytes.len() - rest.len();
    let length = header.abi.number(rest, 8, 4);
    let crc = header.abi.number(rest, 12, 4);
    let found = bytes.get(..body).map(crc32fast::hash);
    if length != Some(body as u64) || crc != found.map(u64::from) {
        problems.push(Problem::Trailer);
    }
    if rest.len() > 16 {
        problems.push(Problem::Trailing(rest.len() as u64 - 16));
    }
}
