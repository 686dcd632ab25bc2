//! The outer layer: file header, framed blocks, checksums, compression.

use crate::error::BlockKind;

/// First bytes of every trace. Like PNG's, they show a transfer in text mode.
pub(crate) const FILE_MAGIC: [u8; 8] = *b"\x89HWT\r\n\x1a\n";
/// The version of the format that this crate writes, and the greatest it reads.
pub const FORMAT_VERSION: u32 = 2;
/// Bytes in the file header, in every version.
pub(crate) const FILE_HEADER: usize = 32;
/// Bytes in a block header.
pub(crate) const BLOCK_HEADER: usize = 64;
/// First bytes of every block.
pub(crate) const SYNC: [u8; 4] = *b"\xb7HWB";
/// Bytes of the end record's block, header included. It stands right behind
/// the file header from the start, so that a full disk cannot keep the reason
/// for the end from being written.
pub(crate) const END_BLOCK: usize = 4096;
/// The greatest raw length that is believed.
pub(crate) const MAX_RAW: u32 = 1 << 28;
/// Bytes in the trailer.
pub(crate) const TRAILER: usize = 16;
const TRAILER_MAGIC: [u8; 4] = *b"THWE";

/// Is a checksum as it should be? Always, where noise is to get past it.
fn matches(computed: u32, stored: u32) -> bool {
    cfg!(feature = "fuzzing") || computed == stored
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Builds the file header.
pub(crate) fn file_header(version: u32, file_id: u64) -> [u8; FILE_HEADER] {
    let mut out = [0; FILE_HEADER];
    out[..8].copy_from_slice(&FILE_MAGIC);
    out[8..12].copy_from_slice(&version.to_le_bytes());
    out[12..16].copy_from_slice(&(FILE_HEADER as u32).to_le_bytes());
    out[16..24].copy_from_slice(&file_id.to_le_bytes());
    let crc = crc32fast::hash(&out[..28]);
    out[28..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Version and file id of a header whose magic is right, or `None` if its
/// checksum is wrong.
pub(crate) fn parse_file_header(bytes: &[u8; FILE_HEADER]) -> Option<(u32, u64)> {
    matches(crc32fast::hash(&bytes[..28]), le32(bytes, 28)).then(|| (le32(bytes, 8), le64(bytes, 16)))
}

/// The fields of a block header; what `serial` to `last_epoch` mean depends on
/// the kind (`docs/format.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// `BlockKind` as a number; it may be one that this version does not know.
    pub kind: u8,
    pub codec: u8,
    pub raw_len: u32,
    pub stored_len: u32,
    pub serial: u64,
    pub thread: u32,
    pub count: u32,
    pub first: u64,
    pub last: u64,
    pub first_epoch: u32,
    pub last_epoch: u32,
    pub payload_crc: u32,
}

impl BlockHeader {
    /// Bytes of the whole block.
    pub(crate) fn total(&self) -> u64 {
        BLOCK_HEADER as u64 + u64::from(self.stored_len)
    }

    pub(crate) fn is(&self, kind: BlockKind) -> bool {
        self.kind == kind as u8
    }

    /// The header's bytes for a block at `offset` of the file `file_id`. Both
    /// go into the checksum, so that no copy of a block elsewhere is believed.
    pub(crate) fn encode(&self, file_id: u64, offset: u64) -> [u8; BLOCK_HEADER] {
        let mut out = [0; BLOCK_HEADER];
        out[..4].copy_from_slice(&SYNC);
        out[4] = self.kind;
        out[5] = self.codec;
        out[8..12].copy_from_slice(&self.raw_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.stored_len.to_le_bytes());
        out[16..24].copy_from_slice(&self.serial.to_le_bytes());
        out[24..28].copy_from_slice(&self.thread.to_le_bytes());
        out[28..32].copy_from_slice(&self.count.to_le_bytes());
        out[32..40].copy_from_slice(&self.first.to_le_bytes());
        out[40..48].copy_from_slice(&self.last.to_le_bytes());
        out[48..52].copy_from_slice(&self.first_epoch.to_le_bytes());
        out[52..56].copy_from_slice(&self.last_epoch.to_le_bytes());
        out[56..60].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = header_crc(&out[..60], file_id, offset);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header in `bytes` if they are one that stands at `offset`.
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEADER], file_id: u64, offset: u64) -> Option<BlockHeader> {
        if bytes[..4] != SYNC || !matches(header_crc(&bytes[..60], file_id, offset), le32(bytes, 60)) {
            return None;
        }
        let header = BlockHeader {
            kind: bytes[4],
            codec: bytes[5],
            raw_len: le32(bytes, 8),
            stored_len: le32(bytes, 12),
            serial: le64(bytes, 16),
            thread: le32(bytes, 24),
            count: le32(bytes, 28),
            first: le64(bytes, 32),
            last: le64(bytes, 40),
            first_epoch: le32(bytes, 48),
            last_epoch: le32(bytes, 52),
            payload_crc: le32(bytes, 56),
        };
        (header.raw_len <= MAX_RAW && header.stored_len <= MAX_RAW).then_some(header)
    }
}

fn header_crc(bytes: &[u8], file_id: u64, offset: u64) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&file_id.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// The last bytes of a complete file: where the index is.
pub(crate) fn trailer(file_id: u64, index_offset: u64) -> [u8; TRAILER] {
    let mut out = [0; TRAILER];
    out[..8].copy_from_slice(&index_offset.to_le_bytes());
    out[12..].copy_from_slice(&TRAILER_MAGIC);
    let crc = header_crc(&TRAILER_MAGIC, file_id, index_offset);
    out[8..12].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The index's offset, if `bytes` are a trailer.
pub(crate) fn parse_trailer(bytes: &[u8; TRAILER], file_id: u64) -> Option<u64> {
    let offset = le64(bytes, 0);
    let same = if cfg!(feature = "fuzzing") {
        bytes[12..] == TRAILER_MAGIC
    } else {
        *bytes == trailer(file_id, offset)
    };
    same.then_some(offset)
}

/// [`BlockHeader::codec`]: the payload as it is.
pub(crate) const CODEC_NONE: u8 = 0;
/// [`BlockHeader::codec`]: one LZ4 block, without a frame.
pub(crate) const CODEC_LZ4: u8 = 1;
/// [`BlockHeader::codec`]: one zstd frame.
pub(crate) const CODEC_ZSTD: u8 = 2;

/// Payloads below this many bytes are stored as they are.
const WORTH_COMPRESSING: usize = 96;

/// Compresses payloads; holds the working memory.
pub(crate) enum Packer {
    None,
    Lz4,
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl Packer {
    /// Appends the block for `raw` to `out`, of which the first byte will stand
    /// at `base` in the file. Returns the block's length.
    pub(crate) fn block(
        &mut self,
        out: &mut Vec<u8>,
        base: u64,
        file_id: u64,
        header: BlockHeader,
        raw: &[u8],
    ) -> u64 {
        let packed = self.pack(header, raw);
        let start = out.len();
        packed.place(out, base, file_id);
        (out.len() - start) as u64
    }

    /// Compresses `raw`; where that gains nothing it is kept as it is.
    pub(crate) fn pack(&mut self, mut header: BlockHeader, raw: &[u8]) -> Packed {
        let mut stored = Vec::new();
        header.codec = CODEC_NONE;
        if raw.len() >= WORTH_COMPRESSING {
            match self {
                Packer::None => {}
                Packer::Lz4 => {
                    stored.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
                    if let Ok(len) = lz4_flex::block::compress_into(raw, &mut stored) {
                        stored.truncate(len);
                        header.codec = CODEC_LZ4;
                    }
                }
                Packer::Zstd(compressor) => {
                    stored.reserve(zstd::zstd_safe::compress_bound(raw.len()));
                    if compressor.compress_to_buffer(raw, &mut stored).is_ok() {
                        header.codec = CODEC_ZSTD;
                    }
                }
            }
        }
        if header.codec == CODEC_NONE || stored.len() >= raw.len() {
            header.codec = CODEC_NONE;
            stored.clear();
            stored.extend_from_slice(raw);
        }
        stored.shrink_to_fit();
        header.raw_len = raw.len() as u32;
        header.stored_len = stored.len() as u32;
        header.payload_crc = crc32fast::hash(&stored);
        Packed { header, stored }
    }
}

/// A block that needs only its place in the file.
pub(crate) struct Packed {
    pub header: BlockHeader,
    pub stored: Vec<u8>,
}

impl Packed {
    /// Appends the block to `out`, of which the first byte will stand at `base`.
    pub(crate) fn place(&self, out: &mut Vec<u8>, base: u64, file_id: u64) {
        let offset = base + out.len() as u64;
        out.extend_from_slice(&self.header.encode(file_id, offset));
        out.extend_from_slice(&self.stored);
    }
}

/// Undoes [`Packer`]; holds the working memory.
#[derive(Default)]
pub(crate) struct Unpacker {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Unpacker {
    /// Checks and decompresses `stored` into `raw` (replacing what is in it).
    pub(crate) fn unpack(
        &mut self,
        header: &BlockHeader,
        stored: &[u8],
        raw: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        raw.clear();
        if !matches(crc32fast::hash(stored), header.payload_crc) {
            return Err("its checksum does not match");
        }
        let want = header.raw_len as usize;
        match header.codec {
            CODEC_NONE => raw.extend_from_slice(stored),
            CODEC_LZ4 => {
                raw.resize(want, 0);
                match lz4_flex::block::decompress_into(stored, raw) {
                    Ok(len) => raw.truncate(len),
                    Err(_) => return Err("its LZ4 data is wrong"),
                }
            }
            CODEC_ZSTD => {
                let decompressor = match &mut self.zstd {
                    Some(decompressor) => decompressor,
                    none => {
                        let made =
                            zstd::bulk::Decompressor::new().map_err(|_| "no memory for decompression")?;
                        none.insert(made)
                    }
                };
                raw.reserve(want);
                decompressor.decompress_to_buffer(stored, raw).map_err(|_| "its zstd data is wrong")?;
            }
            _ => return Err("its compression is unknown to this version"),
        }
        if raw.len() == want { Ok(()) } else { Err("its length is wrong") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_believed_only_in_its_own_place() {
        let header = BlockHeader { kind: 5, serial: 7, count: 3, ..BlockHeader::default() };
        let bytes = header.encode(11, 4096);
        assert_eq!(BlockHeader::decode(&bytes, 11, 4096), Some(header));
        assert_eq!(BlockHeader::decode(&bytes, 11, 4097), None);
        assert_eq!(BlockHeader::decode(&bytes, 12, 4096), None);
        for bit in 0..BLOCK_HEADER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHeader::decode(&flipped, 11, 4096), None, "bit {bit}");
        }
    }

    #[test]
    fn every_codec_round_trips() {
        let raw: Vec<u8> = (0..50_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let zstd = zstd::bulk::Compressor::new(1).map(|c| Packer::Zstd(Box::new(c)));
        for mut packer in [Packer::None, Packer::Lz4, zstd.expect("zstd")] {
            let packed = packer.pack(BlockHeader::default(), &raw);
            let mut out = Vec::new();
            Unpacker::default().unpack(&packed.header, &packed.stored, &mut out).expect("unpack");
            assert!(out == raw);
        }
    }

    #[test]
    fn the_trailer_checks_itself() {
        let bytes = trailer(5, 1234);
        assert_eq!(parse_trailer(&bytes, 5), Some(1234));
        for bit in 0..TRAILER * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse_trailer(&flipped, 5), None);
        }
    }
}
