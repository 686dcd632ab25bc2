//! Records with a column for each field.
//!
//! A run of records as [`crate::codec`] writes it is cut into [`COLUMNS`]
//! pieces: all first bytes, all pointers, all sizes, and so on, each in the
//! order of the records, without a byte changed. What is alike then lies side
//! by side: it compresses to about two thirds, in two thirds of the time, and is
//! read back faster, because where a record's first bytes are no longer depends
//! on the lengths of the record before.
//!
//! | column | of an alloc | of a free | of a special record |
//! |---|---|---|---|
//! | [`HEAD`] | the two header bytes | the one or two header bytes | the first byte |
//! | [`PTR`] | ptr | ptr | |
//! | [`SIZE`] | size | | |
//! | [`NODE`] | node | node, where it has one | |
//! | [`TIME`] | stamp | stamp | |
//! | [`REST`] | ext and usable, where it has them | | the second byte and the words |

use crate::api::ApiKind;
use crate::codec::{
    DecodeError, Decoder, EXT_API, EXT_PAIR, EXT_USABLE, MAX_WORDS, Record, SHORT, SpecialKind, State,
    TAG_ALLOC, TAG_FREE, TAG_FREE_FULL, TAG_SPECIAL, apply_pointer_delta, unzigzag, wide,
};
use crate::node::NodeId;

/// How many columns there are.
pub const COLUMNS: usize = 6;
/// Column of the first bytes.
pub const HEAD: usize = 0;
/// Column of pointer differences.
pub const PTR: usize = 1;
/// Column of sizes.
pub const SIZE: usize = 2;
/// Column of node differences.
pub const NODE: usize = 3;
/// Column of stamp differences.
pub const TIME: usize = 4;
/// Column of all that is rare.
pub const REST: usize = 5;

/// Bytes that [`split`] may touch behind what it writes to a column, and that
/// [`ColumnReader`] likes to find behind the last column.
pub const SLACK: usize = 8;

/// The longest record that [`split`] takes the short way, with the slack of its loads.
const FAST: usize = 2 + 4 * 7 + 8;

/// What is known of the records taken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of them.
    pub bytes: usize,
    /// How many they are.
    pub records: u32,
    /// Allocs and frees among them.
    pub events: u32,
    /// The codec's state behind them.
    pub state: State,
    /// Greatest stamp so far (also of what was before).
    pub greatest: u64,
    /// What `greatest` was behind the first record.
    pub first: u64,
}

/// Why [`split`] stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At the end of the bytes.
    End,
    /// The next record's stamp lies behind the bound.
    Bound,
    /// A pad: the rest of the bytes is unused.
    Pad,
    /// These are no records.
    Damage(DecodeError),
}

/// The low bytes of a word, by their number.
const MASKS: [u64; 8] = {
    let mut masks = [0; 8];
    let mut len = 0;
    while len < 8 {
        masks[len] = (1 << (len * 8)) - 1;
        len += 1;
    }
    masks
};

#[inline(always)]
const fn mask(len: usize) -> u64 {
    MASKS[len & 7]
}

/// Bytes of the record with these first two bytes, 0 where it is no plain one.
///
/// Where the next record begins is the one thing that a reader of records has
/// to wait for: one look at this table is the shortest way there.
static LENGTHS: [u8; 1 << 16] = {
    let mut lengths = [0; 1 << 16];
    let mut header = 0usize;
    while header < 1 << 16 {
        let (a, b, c, d) = (header >> 2 & 7, header >> 5 & 7, header >> 8 & 7, header >> 11 & 7);
        lengths[header] = match (header & 3) as u8 {
            TAG_ALLOC if header >> 14 != 3 => 2 + a + b + c + d,
            TAG_FREE => 1 + a + b,
            TAG_FREE_FULL if FREES[header >> 11].is_some() => 2 + a + b + c,
            _ => 0,
        } as u8;
        header += 1;
    }
    lengths
};

/// Freeing entry points by their number in a record's head.
const FREES: [Option<ApiKind>; 32] = {
    let mut frees = [None; 32];
    let mut code = 0;
    while code < 32 {
        frees[code] = ApiKind::from_u8(code as u8 + ApiKind::FREE_BASE);
        code += 1;
    }
    frees
};

/// Cuts the records of `bytes` into columns up to the first whose stamp is
/// above `bound`. Goes on from `taken.state` and `taken.greatest`; the counts
/// of `taken` are set anew. `out[c]` moves behind what was written to column c.
///
/// # Safety
/// At each place of `out`, `bytes.len() + SLACK` bytes can be written, and
/// these do not overlap each other or `bytes`.
pub unsafe fn split(bytes: &[u8], taken: &mut Taken, bound: u64, out: &mut [*mut u8; COLUMNS]) -> Stop {
    *taken = Taken { state: taken.state, greatest: taken.greatest, ..Taken::default() };
    loop {
        // SAFETY: the caller's promise; what was written so far is as long as
        // what was taken.
        unsafe { split_plain(bytes, taken, bound, out) };
        let rest = bytes.get(taken.bytes..).unwrap_or_default();
        let mut decoder = Decoder::new(rest, taken.state);
        let record = match decoder.next() {
            Ok(None) => return Stop::End,
            Ok(Some(Record::Special { kind: SpecialKind::Pad, .. })) => return Stop::Pad,
            Ok(Some(record)) => record,
            Err(error) => return Stop::Damage(error),
        };
        if record.stamp() > bound {
            return Stop::Bound;
        }
        let record_bytes = rest.get(..decoder.offset()).unwrap_or_default();
        // SAFETY: as above; no column gets more than the record has bytes.
        unsafe { split_one(record_bytes, out) };
        taken.bytes += record_bytes.len();
        taken.records += 1;
        taken.events += u32::from(record.is_event());
        taken.state = decoder.state;
        taken.greatest = taken.greatest.max(record.stamp());
        if taken.records == 1 {
            taken.first = taken.greatest;
        }
    }
}

/// The common kinds of record, as far as they go; stops short of the end.
///
/// # Safety
/// As [`split`].
#[inline(always)]
unsafe fn split_plain(bytes: &[u8], taken: &mut Taken, bound: u64, out: &mut [*mut u8; COLUMNS]) {
    // How far the lengths of size, node and stamp are moved for each tag, so
    // that they lie where an alloc has them.
    const SHIFT: [u32; 4] = [0, 0, 6, 3];
    let Some(limit) = bytes.len().checked_sub(FAST) else { return };
    let [mut head, mut ptrs, mut sizes, mut nodes, mut times, _] = *out;
    let State { mut stamp, mut ptr, alloc_node, free_node } = taken.state;
    let (mut alloc_node, mut free_node) = (u64::from(alloc_node), u64::from(free_node));
    let (mut at, mut count, mut greatest, mut first) = (taken.bytes, 0u32, taken.greatest, taken.first);
    while at <= limit {
        // SAFETY: FAST bytes from `at` on lie in `bytes`: no record of these
        // kinds is longer than FAST less the slack. Each store has the slack
        // behind the bytes that it keeps.
        unsafe {
            let from = bytes.as_ptr().add(at);
            let header = u32::from(u16::from_le(from.cast::<u16>().read_unaligned()));
            let len = LENGTHS[header as usize & 0xffff] as usize;
            if len == 0 {
                break;
            }
            let tag = (header & 3) as u8;
            let lengths = (header >> 5) << SHIFT[tag as usize];
            let ptr_len = (header >> 2 & 7) as usize;
            let (size_len, node_len, time_len) =
                ((lengths & 7) as usize, (lengths >> 3 & 7) as usize, (lengths >> 6 & 7) as usize);
            let head_len = 2 - usize::from(tag == TAG_FREE);
            let load = |at: *const u8| u64::from_le(at.cast::<u64>().read_unaligned());
            let ptr_at = from.add(head_len);
            let size_at = ptr_at.add(ptr_len);
            let node_at = size_at.add(size_len);
            let time_at = node_at.add(node_len);
            let (delta, size, node, time) = (load(ptr_at), load(size_at), load(node_at), load(time_at));
            let now = stamp.wrapping_add(time & mask(time_len));
            if now > bound {
                break;
            }
            stamp = now;
            ptr = apply_pointer_delta(ptr, delta & mask(ptr_len));
            let step = unzigzag(node & mask(node_len)) as u64;
            // No branch: whether an alloc or a free comes next is hard to foresee.
            // A free without a node has no step.
            let alloc = u64::from(tag == TAG_ALLOC).wrapping_neg();
            alloc_node = alloc_node.wrapping_add(step & alloc);
            free_node = free_node.wrapping_add(step & !alloc);
            greatest = greatest.max(stamp);
            if count == 0 && taken.records == 0 {
                first = greatest;
            }
            let store = |at: *mut u8, value: u64| at.cast::<u64>().write_unaligned(value.to_le());
            head.cast::<u16>().write_unaligned((header as u16).to_le());
            store(ptrs, delta);
            store(sizes, size);
            store(nodes, node);
            store(times, time);
            head = head.add(head_len);
            ptrs = ptrs.add(ptr_len);
            sizes = sizes.add(size_len);
            nodes = nodes.add(node_len);
            times = times.add(time_len);
            at += len;
            count += 1;
        }
    }
    taken.bytes = at;
    taken.records += count;
    taken.events += count;
    (taken.greatest, taken.first) = (greatest, first);
    taken.state = State { stamp, ptr, alloc_node: alloc_node as u32, free_node: free_node as u32 };
    *out = [head, ptrs, sizes, nodes, times, out[REST]];
}

/// Cuts one sound record.
///
/// # Safety
/// As [`split`].
pub(crate) unsafe fn split_one(record: &[u8], out: &mut [*mut u8; COLUMNS]) {
    let mut rest = record;
    let mut give = |column: usize, len: u32| {
        let (piece, behind) = rest.split_at_checked(len as usize).unwrap_or((rest, &[]));
        rest = behind;
        if let Some(at) = out.get_mut(column) {
            // SAFETY: the caller's promise.
            unsafe {
                core::ptr::copy_nonoverlapping(piece.as_ptr(), *at, piece.len());
                *at = at.add(piece.len());
            }
        }
    };
    let low = record.first().copied().unwrap_or(0);
    let high = record.get(1).copied().unwrap_or(0);
    let header = u32::from(low) | u32::from(high) << 8;
    match low & 3 {
        TAG_ALLOC => {
            give(HEAD, 2);
            let mut usable = 0;
            if header >> 14 == 3 {
                usable = u32::from(record.get(2).copied().unwrap_or(0) & EXT_USABLE != 0) * 8;
                give(REST, 1);
            }
            give(PTR, header >> 2 & 7);
            give(SIZE, header >> 5 & 7);
            give(NODE, header >> 8 & 7);
            give(TIME, header >> 11 & 7);
            give(REST, usable);
        }
        TAG_FREE => {
            give(HEAD, 1);
            give(PTR, header >> 2 & 7);
            give(TIME, u32::from(low >> 5));
        }
        TAG_FREE_FULL => {
            give(HEAD, 2);
            give(PTR, header >> 2 & 7);
            give(NODE, header >> 5 & 7);
            give(TIME, header >> 8 & 7);
        }
        _ => {
            give(HEAD, 1);
            give(REST, record.len() as u32 - 1);
        }
    }
}

/// An alloc or free without anything rare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// When, in stamps.
    pub stamp: u64,
    /// The block's address.
    pub ptr: u64,
    /// Requested size, bytes; 0 of a free.
    pub size: u64,
    /// The stack, 0 where none was taken.
    pub node: NodeId,
    /// The entry point; it says whether this is a free.
    pub api: ApiKind,
}

/// How far the lengths of a header are moved for each tag, so that those of size,
/// node and stamp lie where an alloc has them, from bit 0 on, and what a free has
/// not is 0.
const LENGTH_SHIFT: [u32; 4] = [0, 0, 6, 3];

/// The entry point of a plain record, by its tag and the upper five bits of its
/// header; those of a free without a stack are another record's.
const PLAIN: [Option<ApiKind>; 128] = {
    let mut kinds = [None; 128];
    let mut code = 0;
    while code < 32 {
        if code >> 3 != 3 {
            kinds[(TAG_ALLOC as usize) << 5 | code] = Some(SHORT[code >> 3]);
        }
        kinds[(TAG_FREE as usize) << 5 | code] = Some(ApiKind::Free);
        kinds[(TAG_FREE_FULL as usize) << 5 | code] = FREES[code];
        code += 1;
    }
    kinds
};

/// Reads records back from their columns.
///
/// It holds places, not bytes: the same bytes must be given each time. Wrong
/// places or bytes make an error or wrong records, nothing worse.
#[derive(Clone, Copy, Debug, Default)]
pub struct ColumnReader {
    at: [usize; COLUMNS],
    end: [usize; COLUMNS],
    /// What the next record's differences refer to.
    pub state: State,
}

impl ColumnReader {
    /// Reads column c from `at[c]` to `end[c]`.
    pub const fn new(at: [usize; COLUMNS], end: [usize; COLUMNS], state: State) -> Self {
        ColumnReader { at, end, state }
    }

    /// Is there no further record?
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.at[HEAD] >= self.end[HEAD]
    }

    /// Do all columns end where the records do?
    pub fn is_even(&self) -> bool {
        self.at == self.end
    }

    /// The next record if it is a plain one, with its place and [`SLACK`] bytes
    /// behind it in `bytes`. Otherwise nothing is taken: see [`ColumnReader::next`].
    #[inline(always)]
    pub fn plain(&mut self, bytes: &[u8]) -> Option<Plain> {
        let [head_at, ptr_at, size_at, node_at, time_at, rest_at] = self.at;
        if head_at >= self.end[HEAD] {
            return None;
        }
        // One look for all columns; no column begins or ends behind the slack.
        let room = bytes.len().checked_sub(SLACK)?;
        let outside = [head_at, ptr_at, size_at, node_at, time_at].map(|at| at > room);
        if outside.iter().fold(false, |any, &outside| any | outside) {
            return None;
        }
        // SAFETY: eight bytes from each of the five places on lie in `bytes`.
        let word = |at: usize| u64::from_le(unsafe { bytes.as_ptr().add(at).cast::<u64>().read_unaligned() });
        let header = word(head_at) as u32 & 0xffff;
        let load = |at: usize, len: u32| word(at) & mask(len as usize);
        // Without a branch: whether an alloc or a free comes is hard to foresee.
        let tag = header & 3;
        let api = PLAIN[(tag << 5 | header >> 11) as usize]?;
        let ptr_len = header >> 2 & 7;
        let lengths = (header >> 5) << LENGTH_SHIFT[tag as usize];
        let (size_len, node_len, time_len) = (lengths & 7, lengths >> 3 & 7, lengths >> 6 & 7);
        let ptr = apply_pointer_delta(self.state.ptr, load(ptr_at, ptr_len));
        let (size, node, time) = (load(size_at, size_len), load(node_at, node_len), load(time_at, time_len));
        let alloc = u64::from(tag == u32::from(TAG_ALLOC)).wrapping_neg();
        let step = unzigzag(node) as u64;
        let State { alloc_node, free_node, .. } = self.state;
        let alloc_node = u64::from(alloc_node).wrapping_add(step & alloc) as u32;
        let free_node = u64::from(free_node).wrapping_add(step & !alloc) as u32;
        let stamp = self.state.stamp.wrapping_add(time);
        let full = u32::from(tag == u32::from(TAG_FREE_FULL)).wrapping_neg();
        let node = alloc_node & alloc as u32 | free_node & full;
        let head_len = 2 - usize::from(tag == u32::from(TAG_FREE));
        self.at = [
            head_at + head_len,
            ptr_at + ptr_len as usize,
            size_at + size_len as usize,
            node_at + node_len as usize,
            time_at + time_len as usize,
            rest_at,
        ];
        self.state = State { stamp, ptr, alloc_node, free_node };
        Some(Plain { stamp, ptr, size, node, api })
    }

    /// The next record, or `None` at the end of the first column.
    ///
    /// # Errors
    /// [`DecodeError`] if the columns do not hold one; nothing is taken then.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self, bytes: &[u8]) -> Result<Option<Record>, DecodeError> {
        if self.is_empty() {
            return Ok(None);
        }
        let saved = *self;
        let result = self.read(bytes);
        if result.is_err() {
            *self = saved;
        }
        result.map(Some)
    }

    /// `len` bytes of a column as a number.
    fn take(&mut self, bytes: &[u8], column: usize, len: u32) -> Result<u64, DecodeError> {
        let (Some(at), Some(&end)) = (self.at.get_mut(column), self.end.get(column)) else {
            return Err(DecodeError::Cut);
        };
        let next = *at + len as usize;
        let slice = bytes.get(*at..next).filter(|_| next <= end).ok_or(DecodeError::Cut)?;
        *at = next;
        Ok(slice.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn read(&mut self, bytes: &[u8]) -> Result<Record, DecodeError> {
        let low = self.take(bytes, HEAD, 1)? as u32;
        match low as u8 & 3 {
            TAG_SPECIAL => {
                let kind = low as u8 >> 2;
                let kind = SpecialKind::from_u8(kind).ok_or(DecodeError::UnknownSpecial(kind))?;
                let len = self.take(bytes, REST, 1)? as u8;
                if len as usize > MAX_WORDS {
                    return Err(DecodeError::UnknownSpecial(kind as u8));
                }
                let mut words = [0; MAX_WORDS];
                for word in words.iter_mut().take(len as usize) {
                    *word = self.take(bytes, REST, 8)?;
                }
                if kind == SpecialKind::Pad {
                    words[0] = self.state.stamp;
                }
                if kind == SpecialKind::Resync {
                    let [stamp, ptr, alloc_node, free_node, ..] = words;
                    let (alloc_node, free_node) = (alloc_node as u32, free_node as u32);
                    self.state = State { stamp, ptr, alloc_node, free_node };
                }
                if kind == SpecialKind::Wide {
                    return wide(&words, &mut self.state);
                }
                Ok(Record::Special { kind, len, words })
            }
            TAG_FREE => self.free(bytes, low >> 2 & 7, None, low >> 5, ApiKind::Free),
            TAG_FREE_FULL => {
                let header = low | (self.take(bytes, HEAD, 1)? as u32) << 8;
                let code = (header >> 11) as u8 + ApiKind::FREE_BASE;
                let api = ApiKind::from_u8(code).ok_or(DecodeError::UnknownApi(code))?;
                self.free(bytes, header >> 2 & 7, Some(header >> 5 & 7), header >> 8 & 7, api)
            }
            _ => {
                let header = low | (self.take(bytes, HEAD, 1)? as u32) << 8;
                let (mut api, mut has_usable, mut pair) = (SHORT[(header >> 14 & 3) as usize], false, false);
                if header >> 14 == 3 {
                    let ext = self.take(bytes, REST, 1)? as u8;
                    api = ApiKind::from_u8(ext & EXT_API).ok_or(DecodeError::UnknownApi(ext & EXT_API))?;
                    (has_usable, pair) = (ext & EXT_USABLE != 0, ext & EXT_PAIR != 0);
                }
                let delta = self.take(bytes, PTR, header >> 2 & 7)?;
                let size = self.take(bytes, SIZE, header >> 5 & 7)?;
                let node = self.take(bytes, NODE, header >> 8 & 7)?;
                let time = self.take(bytes, TIME, header >> 11 & 7)?;
                let usable = if has_usable { Some(self.take(bytes, REST, 8)?) } else { None };
                let ptr = apply_pointer_delta(self.state.ptr, delta);
                let node = u64::from(self.state.alloc_node).wrapping_add(unzigzag(node) as u64) as u32;
                let stamp = self.state.stamp.wrapping_add(time);
                self.state = State { stamp, ptr, alloc_node: node, ..self.state };
                Ok(Record::Alloc { stamp, ptr, size, usable, node, api, pair })
            }
        }
    }

    fn free(
        &mut self,
        bytes: &[u8],
        ptr_len: u32,
        node_len: Option<u32>,
        time_len: u32,
        api: ApiKind,
    ) -> Result<Record, DecodeError> {
        let delta = self.take(bytes, PTR, ptr_len)?;
        let step = node_len.map(|len| self.take(bytes, NODE, len)).transpose()?;
        let time = self.take(bytes, TIME, time_len)?;
        let ptr = apply_pointer_delta(self.state.ptr, delta);
        let stamp = self.state.stamp.wrapping_add(time);
        let mut node = 0;
        if let Some(step) = step {
            node = u64::from(self.state.free_node).wrapping_add(unzigzag(step) as u64) as u32;
            self.state.free_node = node;
        }
        (self.state.stamp, self.state.ptr) = (stamp, ptr);
        Ok(Record::Free { stamp, ptr, node, api })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Encoder, MAX_RECORD};

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    /// Records of all kinds, encoded.
    fn stream(seed: &mut u64, count: usize) -> (Vec<u8>, Vec<Record>) {
        let mut bytes = vec![0u8; (count + 1) * MAX_RECORD];
        let mut encoder = Encoder::default();
        let mut at = bytes.as_mut_ptr();
        let mut records = Vec::new();
        let mut stamp = 0;
        for _ in 0..count {
            stamp += random(seed) >> (20 + random(seed) % 44);
            let ptr = random(seed) >> (16 + random(seed) % 48);
            let node = (random(seed) >> (32 + random(seed) % 32)) as u32;
            let api = ApiKind::ALL[random(seed) as usize % ApiKind::ALL.len()];
            // SAFETY: the vector holds MAX_RECORD bytes a record and one spare.
            at = unsafe {
                match random(seed) % 16 {
                    0 => {
                        let kind = [SpecialKind::Mmap, SpecialKind::Resync, SpecialKind::ReallocUndo]
                            [random(seed) as usize % 3];
                        let mut words = [0; MAX_WORDS];
                        for word in words.iter_mut().take(4) {
                            *word = random(seed) >> (random(seed) % 64);
                        }
                        words[0] = stamp;
                        if kind == SpecialKind::Resync {
                            (words[1], words[2], words[3]) = (words[1] >> 16, words[2] >> 32, words[3] >> 32);
                        }
                        records.push(Record::Special { kind, len: 4, words });
                        encoder.special(at, kind, &words[..4])
                    }
                    1..=7 if api.is_free() => {
                        records.push(Record::Free { stamp, ptr, node, api });
                        encoder.free(at, stamp, ptr, node, api)
                    }
                    1..=4 => {
                        let usable = (random(seed) & 1 == 0).then_some(random(seed));
                        let (size, pair) = (random(seed) >> 20, random(seed) & 1 == 0);
                        records.push(Record::Alloc { stamp, ptr, size, usable, node, api, pair });
                        encoder.alloc(at, stamp, ptr, size, node, api, usable, pair)
                    }
                    5..=9 => {
                        records.push(Record::Free { stamp, ptr, node: 0, api: ApiKind::Free });
                        encoder.free(at, stamp, ptr, 0, ApiKind::Free)
                    }
                    _ => {
                        let (size, api) = (random(seed) >> (20 + random(seed) % 44), ApiKind::Malloc);
                        records.push(Record::Alloc {
                            stamp,
                            ptr,
                            size,
                            usable: None,
                            node,
                            api,
                            pair: false,
                        });
                        encoder.alloc(at, stamp, ptr, size, node, api, None, false)
                    }
                }
            };
        }
        bytes.truncate(at as usize - bytes.as_ptr() as usize);
        (bytes, records)
    }

    /// Splits and puts the columns one behind the other.
    fn columns(bytes: &[u8], taken: &mut Taken, bound: u64) -> (Vec<u8>, ColumnReader, Stop) {
        let start = taken.state;
        let mut spaces = vec![vec![0u8; bytes.len() + SLACK]; COLUMNS];
        let mut out: [*mut u8; COLUMNS] = core::array::from_fn(|c| spaces[c].as_mut_ptr());
        // SAFETY: each space has that many bytes.
        let stop = unsafe { split(bytes, taken, bound, &mut out) };
        let mut whole = Vec::new();
        let (mut at, mut end) = ([0; COLUMNS], [0; COLUMNS]);
        for c in 0..COLUMNS {
            let len = out[c] as usize - spaces[c].as_ptr() as usize;
            at[c] = whole.len();
            whole.extend_from_slice(&spaces[c][..len]);
            end[c] = whole.len();
        }
        assert_eq!(whole.len(), taken.bytes, "no byte more or less");
        whole.extend_from_slice(&[0; SLACK]);
        (whole, ColumnReader::new(at, end, start), stop)
    }

    fn read(bytes: &[u8], mut reader: ColumnReader) -> Vec<Record> {
        let mut got = Vec::new();
        loop {
            if let Some(Plain { stamp, ptr, size, node, api }) = reader.plain(bytes) {
                got.push(if api.is_free() {
                    Record::Free { stamp, ptr, node, api }
                } else {
                    Record::Alloc { stamp, ptr, size, usable: None, node, api, pair: false }
                });
                continue;
            }
            match reader.next(bytes) {
                Ok(Some(record)) => got.push(record),
                Ok(None) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(reader.is_even());
        got
    }

    #[test]
    fn columns_hold_what_the_records_held() {
        let mut seed = 0x5eed_0001;
        for round in 0..200 {
            let (bytes, records) = stream(&mut seed, round);
            let mut taken = Taken::default();
            let (whole, reader, stop) = columns(&bytes, &mut taken, u64::MAX);
            assert_eq!(stop, Stop::End);
            assert_eq!(read(&whole, reader), records);
            // The counts are those of the plain decoder.
            let mut decoder = Decoder::new(&bytes, State::default());
            let (mut greatest, mut first) = (0, None);
            while let Ok(Some(record)) = decoder.next() {
                greatest = greatest.max(record.stamp());
                first.get_or_insert(greatest);
            }
            assert_eq!(
                taken,
                Taken {
                    bytes: bytes.len(),
                    records: records.len() as u32,
                    events: records.iter().filter(|r| r.is_event()).count() as u32,
                    state: decoder.state,
                    greatest,
                    first: first.unwrap_or(0),
                }
            );
        }
    }

    #[test]
    fn a_bound_stops_before_the_first_record_behind_it() {
        let mut seed = 77;
        for _ in 0..100 {
            let (bytes, records) = stream(&mut seed, 60);
            let bound = records[random(&mut seed) as usize % 60].stamp();
            let keep = records.iter().position(|r| r.stamp() > bound).unwrap_or(60);
            let mut taken = Taken::default();
            let (whole, reader, stop) = columns(&bytes, &mut taken, bound);
            assert_eq!(stop, if keep == 60 { Stop::End } else { Stop::Bound });
            assert_eq!(read(&whole, reader), records[..keep]);
            // The rest goes on from there.
            let rest = bytes[taken.bytes..].to_vec();
            let (whole, reader, stop) = columns(&rest, &mut taken, u64::MAX);
            assert_eq!(stop, Stop::End);
            assert_eq!(read(&whole, reader), records[keep..]);
        }
    }

    #[test]
    fn noise_is_no_panic_in_either_direction() {
        let mut seed = 4242;
        for _ in 0..3000 {
            let len = random(&mut seed) % 200;
            let bytes: Vec<u8> = (0..len).map(|_| random(&mut seed) as u8).collect();
            let mut taken = Taken::default();
            let (whole, reader, _) = columns(&bytes, &mut taken, u64::MAX);
            read(&whole, reader);
            let at = core::array::from_fn(|_| random(&mut seed) as usize % 220);
            let end = core::array::from_fn(|c| at[c] + random(&mut seed) as usize % 220);
            let mut reader = ColumnReader::new(at, end, State::default());
            while reader.plain(&bytes).is_some() || matches!(reader.next(&bytes), Ok(Some(_))) {}
        }
    }
}
