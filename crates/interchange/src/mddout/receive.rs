//! Dumps out of frames, as a target sends them over a line that may lose or
//! spoil bytes.
//!
//! ```text
//! "HWf" u8 kind, u32 dump, u32 offset, u32 length, length bytes, u32 CRC-32 from kind on
//! ```
//! all little-endian. Kind 1 is data, kind 2 the end (`offset` is then the
//! length of the file). The line needs no way back: a damaged frame is dropped,
//! and the next sending of the same dump fills the hole.

use std::collections::BTreeMap;

const MARK: &[u8; 3] = b"HWf";
const HEAD: usize = 16;
const DATA: u8 = 1;
const END: u8 = 2;
/// No agent sends longer frames.
const LONGEST: usize = 4096;
/// No dump is longer.
const LONGEST_DUMP: u32 = 256 << 20;

/// What came out of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A dump is whole: the bytes of an `mddout.N` file.
    Dump(Vec<u8>),
    /// A dump ended with holes: send it again.
    Holes {
        /// Which dump: the number of its last event.
        dump: u32,
        /// Bytes missing.
        missing: u64,
        /// Bytes in all.
        length: u64,
    },
}

/// A dump that is not whole yet.
#[derive(Debug, Default)]
struct Partial {
    /// Pieces by offset; they may overlap.
    pieces: BTreeMap<u32, Vec<u8>>,
    length: Option<u32>,
}

impl Partial {
    /// The file, or how many bytes are missing.
    fn assemble(&self, length: u32) -> Result<Vec<u8>, u64> {
        let mut out = Vec::new();
        let mut missing = 0u64;
        for (&offset, piece) in &self.pieces {
            let at = u64::from(offset);
            let have = out.len() as u64 + missing;
            if at > have {
                missing += at - have;
            }
            let skip = have.saturating_sub(at).min(piece.len() as u64) as usize;
            out.extend_from_slice(piece.get(skip..).unwrap_or_default());
        }
        let have = out.len() as u64 + missing;
        missing += u64::from(length).saturating_sub(have);
        out.truncate(length as usize);
        if missing > 0 { Err(missing) } else { Ok(out) }
    }
}

/// Puts frames together. Feed it bytes as they come, in any cut.
#[derive(Debug, Default)]
pub struct Receiver {
    buffer: Vec<u8>,
    partial: BTreeMap<u32, Partial>,
    finished: Vec<u32>,
    /// Bytes that were in no good frame: noise, console output, damage.
    pub skipped: u64,
}

impl Receiver {
    /// An empty one.
    pub fn new() -> Receiver {
        Receiver::default()
    }

    /// Takes bytes from the line, gives what became of them.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Received> {
        self.buffer.extend_from_slice(bytes);
        let mut out = Vec::new();
        let mut at = 0;
        loop {
            let rest = self.buffer.get(at..).unwrap_or_default();
            match parse(rest) {
                Parsed::Need => break,
                Parsed::Skip(n) => {
                    self.skipped += n as u64;
                    at += n;
                }
                Parsed::Frame { size, kind, dump, offset, data } => {
                    let data = data.to_vec();
                    at += size;
                    out.extend(self.frame(kind, dump, offset, data));
                }
            }
        }
        self.buffer.drain(..at);
        out
    }

    /// Dumps of which something came, and that are not whole: number, bytes there.
    pub fn unfinished(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.partial.iter().map(|(&dump, p)| (dump, p.pieces.values().map(|v| v.len() as u64).sum()))
    }

    /// What came of the dumps that are not whole, as frames: pushed into another
    /// receiver they take it on from there.
    pub fn keep(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (&dump, partial) in &self.partial {
            for (&offset, piece) in &partial.pieces {
                out.extend(frame(DATA, dump, offset, piece));
            }
            // the end only matters once there is something before it
            if let Some(length) = partial.length {
                out.extend(frame(END, dump, length, &[]));
            }
        }
        out
    }

    fn frame(&mut self, kind: u8, dump: u32, offset: u32, data: Vec<u8>) -> Option<Received> {
        // a repetition of what is whole already
        if self.finished.contains(&dump) {
            return None;
        }
        let partial = self.partial.entry(dump).or_default();
        match kind {
            DATA if offset <= LONGEST_DUMP => {
                let longer = partial.pieces.get(&offset).is_none_or(|old| old.len() < data.len());
                if longer {
                    partial.pieces.insert(offset, data);
                }
            }
            END if offset <= LONGEST_DUMP => partial.length = Some(offset),
            _ => return None,
        }
        // The end may have come in the first sending, and the hole be filled in the middle of the second.
        let length = partial.length?;
        match partial.assemble(length) {
            Ok(bytes) => {
                self.partial.remove(&dump);
                self.finished.push(dump);
                Some(Received::Dump(bytes))
            }
            Err(missing) if kind == END => Some(Received::Holes { dump, missing, length: length.into() }),
            Err(_) => None,
        }
    }
}

enum Parsed<'a> {
    Need,
    Skip(usize),
    Frame { size: usize, kind: u8, dump: u32, offset: u32, data: &'a [u8] },
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some(start) = bytes.iter().position(|&b| b == MARK[0]) else {
        return if bytes.is_empty() { Parsed::Need } else { Parsed::Skip(bytes.len()) };
    };
    if start > 0 {
        return Parsed::Skip(start);
    }
    let (Some(&kind), Some(dump), Some(offset), Some(length)) =
        (bytes.get(3), le32(bytes, 4), le32(bytes, 8), le32(bytes, 12))
    else {
        return if MARK.starts_with(bytes.get(..bytes.len().min(3)).unwrap_or_default()) {
            Parsed::Need
        } else {
            Parsed::Skip(1)
        };
    };
    let length = length as usize;
    if !bytes.starts_with(MARK) || !(kind == DATA || kind == END) || length > LONGEST {
        return Parsed::Skip(1);
    }
    let (Some(checked), Some(crc)) = (bytes.get(3..HEAD + length), le32(bytes, HEAD + length)) else {
        return Parsed::Need;
    };
    if crc32fast::hash(checked) != crc {
        return Parsed::Skip(1);
    }
    let data = bytes.get(HEAD..HEAD + length).unwrap_or_default();
    Parsed::Frame { size: HEAD + length + 4, kind, dump, offset, data }
}

fn frame(kind: u8, dump: u32, offset: u32, data: &[u8]) -> Vec<u8> {
    let mut out = MARK.to_vec();
    out.push(kind);
    for value in [dump, offset, data.len() as u32] {
        out.extend(value.to_le_bytes());
    }
    out.extend(data);
    let crc = crc32fast::hash(out.get(3..).unwrap_or_default());
    out.extend(crc.to_le_bytes());
    out
}

/// The frames of a dump, as `highwater_mdd_send_frames` makes them.
pub fn frames(dump: u32, file: &[u8], size: usize) -> Vec<Vec<u8>> {
    let size = size.clamp(1, LONGEST);
    let mut out: Vec<_> =
        file.chunks(size).enumerate().map(|(n, data)| frame(DATA, dump, (n * size) as u32, data)).collect();
    out.push(frame(END, dump, file.len() as u32, &[]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hole_is_named_and_filled_by_the_second_sending() {
        let file: Vec<u8> = (0..1000u32).map(|n| n as u8).collect();
        let frames = frames(9, &file, 128);
        let mut line = Receiver::new();
        let mut out = Vec::new();
        for (n, f) in frames.iter().enumerate() {
            let mut f = f.clone();
            if n == 2 {
                f[30] ^= 1;
            }
            out.extend(line.push(&f));
        }
        assert_eq!(out, [Received::Holes { dump: 9, missing: 128, length: 1000 }]);
        let again: Vec<_> = frames.iter().flat_map(|f| line.push(f)).collect();
        assert_eq!(again, [Received::Dump(file)]);
        assert_eq!(line.unfinished().count(), 0);
    }

    #[test]
    fn another_receiver_takes_on_what_was_kept() {
        let file: Vec<u8> = (0..1000u32).map(|n| (n * 7) as u8).collect();
        let frames = frames(3, &file, 100);
        let (early, late) = frames.split_at(4);
        let mut first = Receiver::new();
        early.iter().for_each(|f| assert!(first.push(f).is_empty()));
        let mut second = Receiver::new();
        assert!(second.push(&first.keep()).is_empty());
        let out: Vec<_> = late.iter().flat_map(|f| second.push(f)).collect();
        assert_eq!(out, [Received::Dump(file)]);
        assert!(second.keep().is_empty());
    }

    proptest! {
        #[test]
        fn any_cut_and_any_noise_between_frames(
            file in prop::collection::vec(any::<u8>(), 0..700),
            noise in prop::collection::vec(any::<u8>(), 0..40),
            cut in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            for f in frames(1, &file, 64) {
                bytes.extend(&noise);
                bytes.extend(f);
            }
            // a receiver waits for the length that noise claims: enough must follow
            bytes.extend(vec![0; LONGEST + 32]);
            let mut line = Receiver::new();
            let out: Vec<_> = bytes.chunks(cut).flat_map(|c| line.push(c)).collect();
            prop_assert_eq!(out, [Received::Dump(file)]);
        }

        #[test]
        fn nothing_that_comes_out_was_not_sent(garbage in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(Receiver::new().push(&garbage).is_empty());
        }
    }
}
