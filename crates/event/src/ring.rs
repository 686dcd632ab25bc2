//! A heap operation as two words: what a thread's ring holds.
//!
//! The program writes these, the recorder turns them into the bytes of
//! [`crate::codec`], cut into columns, for the trace ([`split`]). All that can be
//! left to the recorder is: no difference but that of time, no length. A record
//! is 16 bytes or a multiple, and begins at one.
//!
//! ```text
//! plain    word 0: kind (8 bits), ptr (52 bits), 0
//!          word 1: size (20 bits), node (24 bits), time (20 bits)
//! wide     kind = 128 + ApiKind
//!          word 0: kind, flags << 8    word 1: ptr    word 2: stamp
//!          word 3: size                word 4: node   word 5: usable
//!          words 6 and 7: nothing (no record is shorter here than in the trace)
//! special  kind = 192 + SpecialKind
//!          word 0: kind, words << 8    then so many words, and one to make them even
//! ```
//!
//! * `kind` of a plain record is the [`ApiKind`], with 64 added to the second half
//!   of a realloc.
//! * `time` is the difference to the stamp of the thread's previous alloc or free,
//!   in stamps. A stamp that goes backwards counts as no time.
//! * `flags`: bit 0 the second half of a realloc, bit 1 `usable` counts.
//! * What does not fit a plain record is written as a wide one.

use crate::api::ApiKind;
use crate::codec::{DecodeError, MAX_WORDS, PTR_BITS, Record, SpecialKind};
use crate::node::NodeId;

mod split;
pub use split::split;

/// Bytes that every record's length and place are multiples of.
pub const UNIT: usize = 16;
/// Bytes of the longest record, and no less than what a [`crate::codec`] record takes.
pub const MAX_RECORD: usize = 96;

const SIZE_BITS: u32 = 20;
const NODE_BITS: u32 = 24;
const TIME_BITS: u32 = 20;
const _: () = assert!(SIZE_BITS + NODE_BITS + TIME_BITS == 64);

const PAIR: u64 = 64;
const WIDE: u64 = 128;
const SPECIAL: u64 = 192;
const WIDE_WORDS: usize = 8;
const FLAG_PAIR: u64 = 1;
const FLAG_USABLE: u64 = 2;

/// Writes records. It never checks for room: its owner guarantees [`MAX_RECORD`]
/// bytes before each call.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Encoder {
    /// Stamp of the thread's previous alloc or free.
    pub stamp: u64,
}

impl Encoder {
    /// Writes an alloc and returns the place behind it.
    ///
    /// # Safety
    /// [`MAX_RECORD`] bytes at `at` can be written; `at` is a multiple of 8.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn alloc(
        &mut self,
        at: *mut u64,
        stamp: u64,
        ptr: u64,
        size: u64,
        node: NodeId,
        api: ApiKind,
        usable: Option<u64>,
        pair: bool,
    ) -> *mut u64 {
        let kind = api as u64 | if pair { PAIR } else { 0 };
        if usable.is_none() {
            // SAFETY: the caller's promise.
            if let Some(end) = unsafe { self.plain(at, stamp, ptr, size, node, kind) } {
                return end;
            }
        }
        let flags = if pair { FLAG_PAIR } else { 0 } | if usable.is_some() { FLAG_USABLE } else { 0 };
        // SAFETY: the caller's promise.
        unsafe { self.wide(at, stamp, ptr, size, node, WIDE | api as u64 | flags << 8, usable.unwrap_or(0)) }
    }

    /// Writes a free and returns the place behind it.
    ///
    /// # Safety
    /// As [`Encoder::alloc`].
    #[inline(always)]
    pub unsafe fn free(
        &mut self,
        at: *mut u64,
        stamp: u64,
        ptr: u64,
        node: NodeId,
        api: ApiKind,
    ) -> *mut u64 {
        // SAFETY: the caller's promise.
        match unsafe { self.plain(at, stamp, ptr, 0, node, api as u64) } {
            Some(end) => end,
            // SAFETY: the caller's promise.
            None => unsafe { self.wide(at, stamp, ptr, 0, node, WIDE | api as u64, 0) },
        }
    }

    #[inline(always)]
    unsafe fn plain(
        &mut self,
        at: *mut u64,
        stamp: u64,
        ptr: u64,
        size: u64,
        node: NodeId,
        kind: u64,
    ) -> Option<*mut u64> {
        let time = stamp.wrapping_sub(self.stamp);
        let node = u64::from(node);
        if ptr >> PTR_BITS | size >> SIZE_BITS | node >> NODE_BITS | time >> TIME_BITS != 0 {
            return None;
        }
        self.stamp = stamp;
        // SAFETY: the caller's promise.
        unsafe {
            at.write(ptr << 8 | kind);
            at.add(1).write(size | node << SIZE_BITS | time << (SIZE_BITS + NODE_BITS));
            Some(at.add(2))
        }
    }

    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    unsafe fn wide(
        &mut self,
        at: *mut u64,
        stamp: u64,
        ptr: u64,
        size: u64,
        node: NodeId,
        head: u64,
        usable: u64,
    ) -> *mut u64 {
        // A stamp that went backwards (a thread moved to a processor whose counter
        // lags) counts as no time at all.
        if stamp.wrapping_sub(self.stamp) >> 56 == 0 {
            self.stamp = stamp;
        }
        // SAFETY: the caller's promise: MAX_RECORD is more than eight words.
        unsafe {
            for (i, word) in [head, ptr, self.stamp, size, u64::from(node), usable].into_iter().enumerate() {
                at.add(i).write(word);
            }
            at.add(WIDE_WORDS)
        }
    }

    /// Writes a special record: `words[0]` must be the stamp. No more than
    /// [`MAX_WORDS`] words count.
    ///
    /// # Safety
    /// As [`Encoder::alloc`].
    #[inline]
    pub unsafe fn special(&mut self, at: *mut u64, kind: SpecialKind, words: &[u64]) -> *mut u64 {
        let count = if words.len() > MAX_WORDS { MAX_WORDS } else { words.len() };
        if let (SpecialKind::Resync, Some(&stamp)) = (kind, words.first()) {
            self.stamp = stamp;
        }
        // SAFETY: ten words at the most.
        unsafe {
            at.write(SPECIAL | kind as u64 | (count as u64) << 8);
            let mut i = 0;
            while i < count {
                at.add(1 + i).write(*words.get_unchecked(i));
                i += 1;
            }
            at.add(special_words(count))
        }
    }

    /// The words of a record, which are put into `room`. For those whose time does
    /// not count as the agent's does.
    pub fn record<'a>(&mut self, record: &Record, room: &'a mut [u64; MAX_RECORD / 8]) -> &'a [u64] {
        let at = room.as_mut_ptr();
        // SAFETY: MAX_RECORD bytes at `at` can be written.
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
        let len = (end as usize).wrapping_sub(at as usize) / 8;
        room.get(..len).unwrap_or_default()
    }
}

/// Words of a special record that carries `count` of them: an even number.
const fn special_words(count: usize) -> usize {
    (count + 2) & !1
}

/// Reads records from words.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    words: &'a [u64],
    at: usize,
    /// Stamp of the previous alloc or free.
    pub stamp: u64,
}

impl<'a> Decoder<'a> {
    /// Starts at the first of `words`, with the stamp of what was before.
    pub const fn new(words: &'a [u64], stamp: u64) -> Self {
        Decoder { words, at: 0, stamp }
    }

    /// Words read so far.
    pub const fn offset(&self) -> usize {
        self.at
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// [`DecodeError`] if the words hold none. The decoder stands at the start of
    /// the bad record then, its stamp unchanged.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record>, DecodeError> {
        let rest = self.words.get(self.at..).unwrap_or_default();
        let (&head, behind) = match rest.split_first() {
            Some(split) => split,
            None => return Ok(None),
        };
        let kind = head & 0xff;
        let (record, len) = if kind >= SPECIAL {
            self.special(head, behind)?
        } else if kind >= WIDE {
            let &[ptr, stamp, size, node, usable, _, _] = behind.first_chunk().ok_or(DecodeError::Cut)?;
            let api = api_of(kind - WIDE)?;
            let usable = (head >> 8 & FLAG_USABLE != 0).then_some(usable);
            let pair = head >> 8 & FLAG_PAIR != 0;
            self.stamp = stamp;
            (event(api, stamp, ptr, size, usable, node as NodeId, pair), WIDE_WORDS)
        } else {
            let &second = behind.first().ok_or(DecodeError::Cut)?;
            let api = api_of(kind % PAIR)?;
            // A longer address is a wide record's: the trace has more bytes for it, too.
            check_address(head >> 8)?;
            let fields = Fields::of(second);
            let stamp = self.stamp.wrapping_add(fields.time);
            self.stamp = stamp;
            let node = fields.node as NodeId;
            (event(api, stamp, head >> 8, fields.size, None, node, kind >= PAIR), 2)
        };
        self.at += len;
        Ok(Some(record))
    }

    fn special(&mut self, head: u64, behind: &[u64]) -> Result<(Record, usize), DecodeError> {
        let number = (head & 0xff) - SPECIAL;
        let unknown = DecodeError::UnknownSpecial(number as u8);
        let kind = SpecialKind::from_u8(number as u8).ok_or(unknown)?;
        let count = (head >> 8 & 0xff) as usize;
        let mut words = [0; MAX_WORDS];
        let to = words.get_mut(..count).ok_or(unknown)?;
        to.copy_from_slice(behind.get(..count).ok_or(DecodeError::Cut)?);
        // The word that makes them even belongs to the record.
        behind.get(..special_words(count) - 1).ok_or(DecodeError::Cut)?;
        if kind == SpecialKind::Wide {
            return Err(unknown);
        }
        match kind {
            // A pad has no stamp of its own; it must not disturb the order.
            SpecialKind::Pad => words[0] = self.stamp,
            SpecialKind::Resync => {
                check_address(words[1])?;
                self.stamp = words[0];
            }
            _ => {}
        }
        Ok((Record::Special { kind, len: count as u8, words }, special_words(count)))
    }
}

fn check_address(ptr: u64) -> Result<(), DecodeError> {
    if ptr >> PTR_BITS == 0 { Ok(()) } else { Err(DecodeError::NoAddress(ptr)) }
}

fn api_of(number: u64) -> Result<ApiKind, DecodeError> {
    ApiKind::from_u8(number as u8).ok_or(DecodeError::UnknownApi(number as u8))
}

fn event(
    api: ApiKind,
    stamp: u64,
    ptr: u64,
    size: u64,
    usable: Option<u64>,
    node: NodeId,
    pair: bool,
) -> Record {
    if api.is_free() {
        Record::Free { stamp, ptr, node, api }
    } else {
        Record::Alloc { stamp, ptr, size, usable, node, api, pair }
    }
}

/// The second word of a plain record.
struct Fields {
    size: u64,
    node: u64,
    time: u64,
}

impl Fields {
    #[inline(always)]
    const fn of(word: u64) -> Fields {
        Fields {
            size: word & ((1 << SIZE_BITS) - 1),
            node: word >> SIZE_BITS & ((1 << NODE_BITS) - 1),
            time: word >> (SIZE_BITS + NODE_BITS),
        }
    }
}

#[cfg(test)]
mod tests;
