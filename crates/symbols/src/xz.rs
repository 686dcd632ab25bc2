//! The xz container: blocks of LZMA2.
//!
//! `.gnu_debugdata` is a plain `xz` file: one filter, LZMA2. This reads that
//! and refuses the rest (other filters), which saves the crates that SHA-256
//! checks would bring. Layout: "The .xz File Format", version 1.2.1,
//! <https://tukaani.org/xz/xz-file-format.txt>.

use std::io::Read;

use lzma_rust2::Lzma2Reader;

const MAGIC: &[u8] = b"\xfd7zXZ\0";
const LZMA2: u64 = 0x21;
/// A header of a block says so.
const HAS_PACKED_SIZE: u8 = 0x40;
const HAS_UNPACKED_SIZE: u8 = 0x80;
/// All other bits: further filters, and bits without a meaning yet.
const UNSUPPORTED: u8 = 0x3f;
/// Greatest dictionary; `xz -9` takes 64 MiB.
const DICTIONARY_LIMIT: u32 = 192 << 20;

/// Unpacks the first stream of a file, to at most `limit` bytes; `None` if it is
/// damaged, longer, or uses what is not supported.
pub(crate) fn unpack(file: &[u8], limit: usize) -> Option<Vec<u8>> {
    let header = file.get(..12)?;
    let flags = header.get(6..8)?;
    let crc = header.get(8..12)?.try_into().ok()?;
    if !header.starts_with(MAGIC) || crc32fast::hash(flags) != u32::from_le_bytes(crc) {
        return None;
    }
    let &[0, check @ 0..16] = flags else { return None };
    let check_len = [0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64];
    let check_len: usize = *check_len.get(usize::from(check))?;
    let mut out = Vec::new();
    let mut rest = file.get(12..)?;
    // A zero in the place of a block's size begins the index.
    while *rest.first()? != 0 {
        let (dictionary, data) = block_header(rest)?;
        let mut left = data;
        let start = out.len();
        let room = (limit - start) as u64;
        let mut reader = Lzma2Reader::new(&mut left, dictionary, None);
        reader.by_ref().take(room).read_to_end(&mut out).ok()?;
        // Is there more than there is room for?
        if reader.read(&mut [0]).ok()? != 0 {
            return None;
        }
        let packed = data.len() - left.len();
        // Blocks are padded to four bytes, counted from their header, which is.
        let padded = packed.checked_next_multiple_of(4)?;
        let sum = data.get(padded..padded + check_len)?;
        if check == 1 && crc32fast::hash(out.get(start..)?).to_le_bytes() != sum {
            return None;
        }
        rest = data.get(padded + check_len..)?;
    }
    Some(out)
}

/// Size of the dictionary, and what follows the header.
fn block_header(block: &[u8]) -> Option<(u32, &[u8])> {
    let size = (usize::from(*block.first()?) + 1) * 4;
    let (header, data) = block.split_at_checked(size)?;
    let (header, crc) = header.split_at_checked(size.checked_sub(4)?)?;
    if crc32fast::hash(header).to_le_bytes() != crc {
        return None;
    }
    let (&flags, mut fields) = header.get(1..)?.split_first()?;
    if flags & UNSUPPORTED != 0 {
        return None;
    }
    for bit in [HAS_PACKED_SIZE, HAS_UNPACKED_SIZE] {
        if flags & bit != 0 {
            number(&mut fields)?;
        }
    }
    if number(&mut fields)? != LZMA2 || number(&mut fields)? != 1 {
        return None;
    }
    let bits = u32::from(*fields.first()?);
    if bits >= 40 {
        return None;
    }
    let dictionary = (2 | (bits & 1)).checked_shl(bits / 2 + 11)?;
    (dictionary <= DICTIONARY_LIMIT).then_some((dictionary, data))
}

/// A number in groups of seven bits, the lowest first.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'hello\n' | xz --check=crc32`
    const HELLO: &[u8] = &[
        253, 55, 122, 88, 90, 0, 0, 1, 105, 34, 222, 54, 2, 0, 33, 1, 22, 0, 0, 0, 116, 47, 229, 163, 1, 0,
        5, 104, 101, 108, 108, 111, 10, 0, 0, 0, 32, 48, 58, 54, 0, 1, 26, 6, 197, 234, 200, 121, 144, 66,
        153, 13, 1, 0, 0, 0, 0, 1, 89, 90,
    ];

    #[test]
    fn a_small_file_and_each_cut_of_it() {
        assert_eq!(unpack(HELLO, 6).as_deref(), Some(&b"hello\n"[..]));
        assert_eq!(unpack(HELLO, 5), None, "the limit");
        for end in 0..HELLO.len() {
            // The index after the last block is not needed.
            if let Some(out) = unpack(&HELLO[..end], 100) {
                assert_eq!(out, b"hello\n");
            }
        }
    }

    #[test]
    fn damage_is_seen_or_harmless() {
        for at in 0..HELLO.len() {
            for bit in 0..8 {
                let mut bad = HELLO.to_vec();
                bad[at] ^= 1 << bit;
                if let Some(out) = unpack(&bad, 100) {
                    // A block's size that became zero makes an empty file.
                    assert!(out == b"hello\n" || at == 12, "byte {at} bit {bit}: {out:?}");
                }
            }
        }
    }
}
