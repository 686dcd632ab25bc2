//! A heap operation as bytes: what the trace keeps.
//!
//! Every record starts with a tag in the two lowest bits of its first byte.
//! All numbers are little-endian; `len` fields count bytes, 0 to 7.
//!
//! ```text
//! alloc   u16: tag=1 | len(ptr)<<2 | len(size)<<5 | len(node)<<8 | len(stamp)<<11 | api<<14
//!         [ext u8  if api = 3]  ptr  size  node  stamp  [usable u64]
//! free    u8:  tag=2 | len(ptr)<<2 | len(stamp)<<5
//!         ptr  stamp                                       (plain free, no stack)
//! free    u16: tag=3 | len(ptr)<<2 | len(node)<<5 | len(stamp)<<8 | (api-32)<<11
//!         ptr  node  stamp
//! special u8:  tag=0 | kind<<2,   u8: number of u64 words that follow
//! ```
//!
//! * `ptr` is the difference to the thread's previous pointer: the zigzag number of
//!   eights between them, shifted left by 1; where the new pointer is not a multiple
//!   of 8, shifted left by 4 with its three low bits and a 1 below.
//! * `size` is the requested size in bytes.
//! * `node` is the zigzag difference to the previous node of the same direction
//!   (allocs and frees each have their own).
//! * `stamp` is the difference to the thread's previous stamp.
//! * `api` is 0 malloc, 1 new, 2 calloc, 3 see `ext`: the kind in bits 0-4,
//!   bit 5 this is the second half of the thread's latest `ReallocFree`, bit 6 `usable` follows.
//!
//! An address of more than 52 bits (a wild pointer) has a special record of its own.
//!
//! The differences run over a whole thread; a block that is cut out of the
//! stream carries the [`State`] at its start.
//!
//! The writer stores eight bytes and advances by the length: no branch a field.

use crate::api::ApiKind;
use crate::node::NodeId;

/// The longest record in bytes, with the slack that the writer's eight-byte
/// stores may touch behind it.
pub const MAX_RECORD: usize = 96;

/// The greatest number of words a special record carries.
pub const MAX_WORDS: usize = 8;

pub(crate) const TAG_SPECIAL: u8 = 0;
pub(crate) const TAG_ALLOC: u8 = 1;
pub(crate) const TAG_FREE: u8 = 2;
pub(crate) const TAG_FREE_FULL: u8 = 3;

/// Bits of an address that the differences can tell.
pub(crate) const PTR_BITS: u32 = 52;

/// Entry points of the short codes of an alloc's header; the last stands for `ext`.
pub(crate) const SHORT: [ApiKind; 4] = [ApiKind::Malloc, ApiKind::New, ApiKind::Calloc, ApiKind::Malloc];

/// The short code of an alloc's entry point.
pub(crate) const fn short_of(api: ApiKind) -> u32 {
    match api {
        ApiKind::Malloc => 0,
        ApiKind::New => 1,
        ApiKind::Calloc => 2,
        _ => 3,
    }
}

pub(crate) const EXT_API: u8 = 0x1f;
pub(crate) const EXT_PAIR: u8 = 0x20;
pub(crate) const EXT_USABLE: u8 = 0x40;

/// What the differences refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// Stamp of the previous record of this thread.
    pub stamp: u64,
    /// Pointer of the previous alloc or free of this thread.
    pub ptr: u64,
    /// Node of the previous alloc.
    pub alloc_node: u32,
    /// Node of the previous free that had one.
    pub free_node: u32,
}

macro_rules! specials {
    ($($(#[$doc:meta])* $variant:ident = $value:literal, $name:literal;)*) => {
        /// The kinds of special record. The first word is always the stamp.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum SpecialKind { $($(#[$doc])* $variant = $value,)* }
        impl SpecialKind {
            /// Every kind.
            pub const ALL: &'static [SpecialKind] = &[$(SpecialKind::$variant),*];
            /// The kind with this number.
            pub const fn from_u8(value: u8) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)* _ => None }
            }
            /// What users read.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

specials! {
    /// No event: the rest of the ring up to its end is unused. Never in a trace.
    Pad = 0, "pad";
    /// `[stamp, ptr]` The realloc whose free half named `ptr` failed: the block lives on.
    ReallocUndo = 1, "realloc-failed";
    /// `[stamp, addr, len, node]` mmap made a mapping.
    Mmap = 2, "mmap";
    /// `[stamp, addr, len, node]` munmap removed one.
    Munmap = 3, "munmap";
    /// `[stamp, old, old_len, new, new_len, node]`
    Mremap = 4, "mremap";
    /// `[stamp, old_break, new_break, node]` brk or sbrk.
    Brk = 5, "brk";
    /// `[stamp, count]` Events that this thread could not record.
    Dropped = 6, "dropped";
    /// `[stamp, ns]` The thread waited for room in its ring.
    Stalled = 7, "stalled";
    /// `[stamp, ptr, alloc_node, free_node]` The state is now exactly this (after
    /// a signal handler left the recorder with longjmp).
    Resync = 8, "resync";
    /// `[stamp, ptr, node, kind, size, usable]` An alloc or a free whose address has
    /// bits that no difference can tell (a wild pointer). Decoders give it as what it
    /// is. `kind`: the entry point in bits 0-7, bit 8 the second half of a realloc,
    /// bit 9 `usable` counts.
    Wide = 9, "wide";
}

/// One decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A block was made.
    Alloc {
        /// When, in stamps.
        stamp: u64,
        /// The block's address.
        ptr: u64,
        /// Requested size, bytes.
        size: u64,
        /// Usable size, bytes, where it was asked for.
        usable: Option<u64>,
        /// The stack.
        node: NodeId,
        /// The entry point.
        api: ApiKind,
        /// Second half of a realloc whose first half was this thread's latest
        /// free of kind `ReallocFree` or `ReallocarrayFree`.
        pair: bool,
    },
    /// A block was given back.
    Free {
        /// When, in stamps.
        stamp: u64,
        /// The block's address.
        ptr: u64,
        /// The stack, 0 where none was taken.
        node: NodeId,
        /// The entry point.
        api: ApiKind,
    },
    /// Anything else.
    Special {
        /// What.
        kind: SpecialKind,
        /// Number of `words` that count.
        len: u8,
        /// The stamp and the fields of the kind.
        words: [u64; MAX_WORDS],
    },
}

impl Record {
    /// When it happened, in stamps.
    pub fn stamp(&self) -> u64 {
        match self {
            Record::Alloc { stamp, .. } | Record::Free { stamp, .. } => *stamp,
            Record::Special { words, .. } => words[0],
        }
    }

    /// The same at another time.
    pub fn at(mut self, when: u64) -> Record {
        match &mut self {
            Record::Alloc { stamp, .. } | Record::Free { stamp, .. } => *stamp = when,
            Record::Special { words, .. } => words[0] = when,
        }
        self
    }

    /// Is it an alloc or a free (and so has a seqno)?
    pub fn is_event(&self) -> bool {
        !matches!(self, Record::Special { .. })
    }
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end inside a record.
    Cut,
    /// A special record of a kind or length that this version does not know.
    UnknownSpecial(u8),
    /// An API number that this version does not know.
    UnknownApi(u8),
    /// More bits than an address has where such a one may not be.
    NoAddress(u64),
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            DecodeError::Cut => f.write_str("the bytes end inside a record"),
            DecodeError::UnknownSpecial(kind) => write!(f, "unknown special record {kind}"),
            DecodeError::UnknownApi(api) => write!(f, "unknown API number {api}"),
            DecodeError::NoAddress(ptr) => write!(f, "{ptr:#x} is no address"),
        }
    }
}

impl core::error::Error for DecodeError {}

pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

pub(crate) const fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// The difference of two addresses, as at most seven bytes.
#[inline(always)]
pub(crate) const fn pointer_delta(from: u64, to: u64) -> u64 {
    let low = to & 7;
    // The shared high part moves by a signed number of eights; the low bits of
    // the new address are kept as they are.
    let step = ((to >> 3) as i64).wrapping_sub((from >> 3) as i64);
    fold_low(zigzag(step), low)
}

#[inline(always)]
const fn fold_low(step: u64, low: u64) -> u64 {
    // Bit 0 says that three low bits follow: the aligned case stays short.
    if low == 0 { step << 1 } else { (step << 4) | (low << 1) | 1 }
}

#[inline(always)]
pub(crate) const fn apply_pointer_delta(from: u64, delta: u64) -> u64 {
    let (step, low) = if delta & 1 == 0 { (delta >> 1, 0) } else { (delta >> 4, (delta >> 1) & 7) };
    (((from >> 3) as i64).wrapping_add(unzigzag(step)) as u64) << 3 | low
}

/// How many bytes a number of at most seven takes; none for 0.
#[inline(always)]
pub(crate) const fn byte_len(value: u64) -> u32 {
    // Never the logarithm of 0: the processor's instruction has no answer to that,
    // and four questions an event would each be asked twice.
    ((value << 1 | 1).ilog2() + 7) >> 3
}

/// Writes records behind a raw cursor.
///
/// The encoder never checks for room: its owner guarantees [`MAX_RECORD`] bytes
/// before each call.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Encoder {
    /// What the next record's differences refer to.
    pub state: State,
}

/// Stores `value` at `at` and returns the place `len` bytes on.
///
/// # Safety
/// Eight bytes at `at` can be written.
#[inline(always)]
unsafe fn put(at: *mut u8, value: u64, len: u32) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        at.cast::<u64>().write_unaligned(value.to_le());
        at.add(len as usize)
    }
}

impl Encoder {
    /// The bytes of a record, which are put into `room`. For those whose time
    /// does not count as the agent's does.
    pub fn record<'a>(&mut self, record: &Record, room: &'a mut [u8; MAX_RECORD]) -> &'a [u8] {
        let at = room.as_mut_ptr();
        // SAFETY: MAX_RECORD bytes at `at` can be written, and of the words no
        // more than MAX_WORDS are.
        let end = unsafe {
            match *record {
                Record::Alloc { stamp, ptr, size, usable, node, api, pair } => {
                    self.alloc(at, stamp, ptr, size, node, api, usable, pair)
                }
                Record::Free { stamp, ptr, node, api } => self.free(at, stamp, ptr, node, api),
                Record::Special { kind, len, ref words } => {
                    self.special(at, kind, words.get(..len as usize).unwrap_or(words))
                }
            }
        };
        let len = (end as usize).wrapping_sub(at as usize);
        room.get(..len).unwrap_or_default()
    }

    /// Writes an alloc and returns the place behind it.
    ///
    /// # Safety
    /// [`MAX_RECORD`] bytes at `at` can be written.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn alloc(
        &mut self,
        at: *mut u8,
        stamp: u64,
        ptr: u64,
        size: u64,
        node: NodeId,
        api: ApiKind,
        usable: Option<u64>,
        pair: bool,
    ) -> *mut u8 {
        if ptr >> PTR_BITS != 0 {
            let kind = api as u64 | u64::from(pair) << 8 | u64::from(usable.is_some()) << 9;
            // SAFETY: the caller's promise.
            return unsafe { self.wide(at, stamp, ptr, node, kind, size, usable.unwrap_or(0)) };
        }
        let delta = pointer_delta(self.state.ptr, ptr);
        let node_delta = zigzag(i64::from(node) - i64::from(self.state.alloc_node));
        let time = stamp.wrapping_sub(self.state.stamp);
        // A stamp that went backwards (a thread moved to a processor whose
        // counter lags) counts as no time at all.
        let time = if time >> 56 == 0 { time } else { 0 };
        self.state.stamp = self.state.stamp.wrapping_add(time);
        self.state.ptr = ptr;
        self.state.alloc_node = node;
        let size = size & ((1 << 56) - 1);
        let (lp, ls, ln, lt) = (byte_len(delta), byte_len(size), byte_len(node_delta), byte_len(time));
        let short = if usable.is_some() || pair { 3 } else { short_of(api) };
        let header = u32::from(TAG_ALLOC) | lp << 2 | ls << 5 | ln << 8 | lt << 11 | short << 14;
        // SAFETY: at most 2 + 1 + 4*7 + 8 bytes and seven of slack, within MAX_RECORD.
        unsafe {
            at.cast::<u16>().write_unaligned((header as u16).to_le());
            let mut at = at.add(2);
            if short == 3 {
                *at = api as u8 | (pair as u8 * EXT_PAIR) | (usable.is_some() as u8 * EXT_USABLE);
                at = at.add(1);
            }
            at = put(at, delta, lp);
            at = put(at, size, ls);
            at = put(at, node_delta, ln);
            at = put(at, time, lt);
            if let Some(usable) = usable {
                at = put(at, usable, 8);
            }
            at
        }
    }

    /// Writes a free and returns the place behind it.
    ///
    /// # Safety
    /// [`MAX_RECORD`] bytes at `at` can be written.
    #[inline(always)]
    pub unsafe fn free(&mut self, at: *mut u8, stamp: u64, ptr: u64, node: NodeId, api: ApiKind) -> *mut u8 {
        if ptr >> PTR_BITS != 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.wide(at, stamp, ptr, node, api as u64, 0, 0) };
        }
        let delta = pointer_delta(self.state.ptr, ptr);
        let time = stamp.wrapping_sub(self.state.stamp);
        let time = if time >> 56 == 0 { time } else { 0 };
        self.state.stamp = self.state.stamp.wrapping_add(time);
        self.state.ptr = ptr;
        let (lp, lt) = (byte_len(delta), byte_len(time));
        // SAFETY: at most 2 + 3*7 bytes and seven of slack, within MAX_RECORD.
        unsafe {
            if node == 0 && api as u8 == ApiKind::Free as u8 {
                *at = TAG_FREE | (lp << 2) as u8 | (lt << 5) as u8;
                let at = put(at.add(1), delta, lp);
                return put(at, time, lt);
            }
            let node_delta = zigzag(i64::from(node) - i64::from(self.state.free_node));
            self.state.free_node = node;
            let ln = byte_len(node_delta);
            let code = u32::from(api as u8 - ApiKind::FREE_BASE);
            let header = u32::from(TAG_FREE_FULL) | lp << 2 | ln << 5 | lt << 8 | code << 11;
            at.cast::<u16>().write_unaligned((header as u16).to_le());
            let at = put(at.add(2), delta, lp);
            let at = put(at, node_delta, ln);
            put(at, time, lt)
        }
    }

    #[cold]
    #[allow(clippy::too_many_arguments)]
    unsafe fn wide(
        &mut self,
        at: *mut u8,
        stamp: u64,
        ptr: u64,
        node: NodeId,
        kind: u64,
        size: u64,
        usable: u64,
    ) -> *mut u8 {
        let time = stamp.wrapping_sub(self.state.stamp);
        if time >> 56 == 0 {
            self.state.stamp = stamp;
        }
        let words = [self.state.stamp, ptr, u64::from(node), kind, size, usable];
        // SAFETY: the caller's promise.
        unsafe { self.special(at, SpecialKind::Wide, &words) }
    }

    /// Writes a special record: `words[0]` must be the stamp.
    ///
    /// # Safety
    /// [`MAX_RECORD`] bytes at `at` can be written; at most [`MAX_WORDS`] words.
    #[inline]
    pub unsafe fn special(&mut self, at: *mut u8, kind: SpecialKind, words: &[u64]) -> *mut u8 {
        // SAFETY: 2 + 8*8 bytes, within MAX_RECORD.
        unsafe {
            *at = TAG_SPECIAL | (kind as u8) << 2;
            let count = if words.len() > MAX_WORDS { MAX_WORDS } else { words.len() };
            *at.add(1) = count as u8;
            if let (SpecialKind::Resync, [stamp, ptr, alloc_node, free_node, ..]) = (kind, words) {
                self.state = State {
                    stamp: *stamp,
                    ptr: *ptr,
                    alloc_node: *alloc_node as u32,
                    free_node: *free_node as u32,
                };
            }
            let mut at = at.add(2);
            let mut i = 0;
            while i < count {
                at = put(at, *words.get_unchecked(i), 8);
                i += 1;
            }
            at
        }
    }
}

/// Reads records from bytes.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    /// What the next record's differences refer to.
    pub state: State,
}

impl<'a> Decoder<'a> {
    /// Starts at the first byte of `bytes` with the state there.
    pub const fn new(bytes: &'a [u8], state: State) -> Self {
        Decoder { bytes, at: 0, state }
    }

    /// Bytes read so far: the offset of the next record.
    pub const fn offset(&self) -> usize {
        self.at
    }

    #[inline(always)]
    fn take(&mut self, len: usize) -> Result<u64, DecodeError> {
        let end = self.at + len;
        if let Some(eight) = self.bytes.get(self.at..self.at + 8) {
            // The common case: one load and a mask. The mask of eight bytes is all ones.
            let value = u64::from_le_bytes([
                eight[0], eight[1], eight[2], eight[3], eight[4], eight[5], eight[6], eight[7],
            ]);
            self.at = end;
            return Ok(if len == 8 { value } else { value & ((1 << (len * 8)) - 1) });
        }
        let slice = self.bytes.get(self.at..end).ok_or(DecodeError::Cut)?;
        let mut value = 0u64;
        for (i, &byte) in slice.iter().enumerate() {
            value |= u64::from(byte) << (8 * i);
        }
        self.at = end;
        Ok(value)
    }

    /// The next record, or `None` at the end.
    ///
    /// After an error the decoder stands at the start of the bad record and its
    /// state is unchanged.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record>, DecodeError> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let saved = *self;
        match self.read() {
            Ok(record) => Ok(Some(record)),
            Err(error) => {
                *self = saved;
                Err(error)
            }
        }
    }

    #[inline(always)]
    fn read(&mut self) -> Result<Record, DecodeError> {
        let first = self.bytes[self.at];
        match first & 3 {
            TAG_ALLOC => {
                let header = self.take(2)? as u32;
                let short = header >> 14;
                let (api, has_usable, pair) = match short {
                    0 => (ApiKind::Malloc, false, false),
                    1 => (ApiKind::New, false, false),
                    2 => (ApiKind::Calloc, false, false),
                    _ => {
                        let ext = self.take(1)? as u8;
                        let api =
                            ApiKind::from_u8(ext & EXT_API).ok_or(DecodeError::UnknownApi(ext & EXT_API))?;
                        (api, ext & EXT_USABLE != 0, ext & EXT_PAIR != 0)
                    }
                };
                let delta = self.take((header >> 2 & 7) as usize)?;
                let size = self.take((header >> 5 & 7) as usize)?;
                let node_delta = self.take((header >> 8 & 7) as usize)?;
                let time = self.take((header >> 11 & 7) as usize)?;
                let usable = if has_usable { Some(self.take(8)?) } else { None };
                let ptr = apply_pointer_delta(self.state.ptr, delta);
                let node = i64::from(self.state.alloc_node).wrapping_add(unzigzag(node_delta)) as u32;
                let stamp = self.state.stamp.wrapping_add(time);
                self.state.stamp = stamp;
                self.state.ptr = ptr;
                self.state.alloc_node = node;
                Ok(Record::Alloc { stamp, ptr, size, usable, node, api, pair })
            }
            TAG_FREE => {
                self.at += 1;
                let delta = self.take((first >> 2 & 7) as usize)?;
                let time = self.take((first >> 5) as usize)?;
                let ptr = apply_pointer_delta(self.state.ptr, delta);
                let stamp = self.state.stamp.wrapping_add(time);
                self.state.stamp = stamp;
                self.state.ptr = ptr;
                Ok(Record::Free { stamp, ptr, node: 0, api: ApiKind::Free })
            }
            TAG_FREE_FULL => {
                let header = self.take(2)? as u32;
                let code = (header >> 11) as u8 + ApiKind::FREE_BASE;
                let api = ApiKind::from_u8(code).ok_or(DecodeError::UnknownApi(code))?;
                let delta = self.take((header >> 2 & 7) as usize)?;
                let node_delta = self.take((header >> 5 & 7) as usize)?;
                let time = self.take((header >> 8 & 7) as usize)?;
                let ptr = apply_pointer_delta(self.state.ptr, delta);
                let node = i64::from(self.state.free_node).wrapping_add(unzigzag(node_delta)) as u32;
                let stamp = self.state.stamp.wrapping_add(time);
                self.state.stamp = stamp;
                self.state.ptr = ptr;
                self.state.free_node = node;
                Ok(Record::Free { stamp, ptr, node, api })
            }
            _ => {
                self.at += 1;
                let kind = first >> 2;
                let kind = SpecialKind::from_u8(kind).ok_or(DecodeError::UnknownSpecial(kind))?;
                let len = self.take(1)? as u8;
                if len as usize > MAX_WORDS {
                    return Err(DecodeError::UnknownSpecial(kind as u8));
                }
                let mut words = [0; MAX_WORDS];
                for word in words.iter_mut().take(len as usize) {
                    *word = self.take(8)?;
                }
                if kind == SpecialKind::Pad {
                    // A pad has no stamp of its own; it must not disturb the order.
                    words[0] = self.state.stamp;
                }
                if kind == SpecialKind::Resync {
                    self.state = State {
                        stamp: words[0],
                        ptr: words[1],
                        alloc_node: words[2] as u32,
                        free_node: words[3] as u32,
                    };
                }
                if kind == SpecialKind::Wide {
                    return wide(&words, &mut self.state);
                }
                Ok(Record::Special { kind, len, words })
            }
        }
    }
}

/// The event that a [`SpecialKind::Wide`] record tells.
#[cold]
pub(crate) fn wide(words: &[u64; MAX_WORDS], state: &mut State) -> Result<Record, DecodeError> {
    let &[stamp, ptr, node, kind, size, usable, ..] = words;
    let (node, number) = (node as NodeId, kind as u8);
    let api = ApiKind::from_u8(number).ok_or(DecodeError::UnknownApi(number))?;
    state.stamp = stamp;
    Ok(if api.is_free() {
        Record::Free { stamp, ptr, node, api }
    } else {
        let usable = (kind >> 9 & 1 != 0).then_some(usable);
        Record::Alloc { stamp, ptr, size, usable, node, api, pair: kind >> 8 & 1 != 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_takes_the_bytes_that_hold_it() {
        for bits in 0..=56 {
            for value in [1u64 << bits >> 1, (1u64 << bits).wrapping_sub(1)] {
                let wanted = (0..).find(|&len| value >> (8 * len) == 0).unwrap();
                assert_eq!(byte_len(value), wanted, "{value:#x}");
            }
        }
    }

    #[test]
    fn a_wild_pointer_is_told_as_it_is() {
        let near = Record::Free { stamp: 5, ptr: 0x5555_5555_0010, node: 7, api: ApiKind::Free };
        let free = |ptr| Record::Free { stamp: 9, ptr, node: 77, api: ApiKind::Delete };
        let alloc = Record::Alloc {
            stamp: 10,
            ptr: !0,
            size: 3,
            usable: Some(8),
            node: 78,
            api: ApiKind::Realloc,
            pair: true,
        };
        round_trip(&[near, free(0xdead_beef_dead_beef), alloc, near.at(11), free(1 << 52).at(12)]);
    }

    fn round_trip(records: &[Record]) {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::default();
        for record in records {
            bytes.extend_from_slice(encoder.record(record, &mut [0; MAX_RECORD]));
        }
        let used = bytes.len();
        let mut decoder = Decoder::new(&bytes, State::default());
        for record in records {
            assert_eq!(decoder.next(), Ok(Some(*record)));
        }
        assert_eq!(decoder.next(), Ok(None));
        assert_eq!(decoder.offset(), used);
        // Every cut is seen as a cut or as fewer records, never as another record.
        for cut in 0..used {
            let mut decoder = Decoder::new(&bytes[..cut], State::default());
            for record in records {
                match decoder.next() {
                    Ok(Some(read)) => assert_eq!(read, *record),
                    Ok(None) | Err(DecodeError::Cut) => break,
                    Err(other) => panic!("cut at {cut}: {other:?}"),
                }
            }
        }
    }

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    #[test]
    fn every_kind_and_extreme_round_trips() {
        let mut records = Vec::new();
        let mut stamp = 0;
        for (i, &api) in ApiKind::ALL.iter().enumerate() {
            stamp += 1 << (i % 50);
            let ptr = [0, 16, 0x7fff_ffff_fff8, 0x5555_0000_0001, (1 << 48) - 7, 1 << 47][i % 6];
            let node = [0, 1, u32::MAX, 77, 1 << 24][i % 5];
            if api.is_free() {
                records.push(Record::Free { stamp, ptr, node, api });
            } else {
                let usable = (i % 2 == 0).then_some(u64::MAX);
                let size = [0, 1, 255, 256, (1 << 56) - 1][i % 5];
                let pair = i % 3 == 0;
                records.push(Record::Alloc { stamp, ptr, size, usable, node, api, pair });
            }
        }
        for &kind in SpecialKind::ALL {
            // A wide one is read as the event that it is.
            if matches!(kind, SpecialKind::Pad | SpecialKind::Wide) {
                continue;
            }
            let mut words = [0; MAX_WORDS];
            words[0] = stamp;
            words[1] = u64::MAX;
            records.push(Record::Special { kind, len: 2, words });
        }
        round_trip(&records);
    }

    #[test]
    fn random_streams_round_trip() {
        let mut seed = 0x1234_5678_9abc_def1;
        for _ in 0..50 {
            let mut stamp = random(&mut seed) >> 20;
            let records: Vec<Record> = (0..100)
                .map(|_| {
                    stamp += random(&mut seed) >> (8 + random(&mut seed) % 56);
                    let ptr = random(&mut seed) >> (16 + random(&mut seed) % 40);
                    let node = (random(&mut seed) >> (32 + random(&mut seed) % 32)) as u32;
                    if random(&mut seed) & 1 == 0 {
                        let size = random(&mut seed) >> (8 + random(&mut seed) % 56);
                        Record::Alloc {
                            stamp,
                            ptr,
                            size,
                            usable: None,
                            node,
                            api: ApiKind::Malloc,
                            pair: false,
                        }
                    } else {
                        Record::Free { stamp, ptr, node, api: ApiKind::Free }
                    }
                })
                .collect();
            round_trip(&records);
        }
    }

    #[test]
    fn noise_is_an_error_or_records_never_a_panic() {
        let mut seed = 99;
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..random(&mut seed) % 64).map(|_| random(&mut seed) as u8).collect();
            let mut decoder = Decoder::new(&bytes, State::default());
            while let Ok(Some(_)) = decoder.next() {}
        }
    }
}
