//! From a ring's words to the columns of the trace.

use super::{Decoder, Fields, PAIR};
use crate::api::ApiKind;
use crate::codec::{
    self, DecodeError, EXT_PAIR, MAX_RECORD, PTR_BITS, Record, SHORT, SpecialKind, State, TAG_ALLOC,
    TAG_FREE, TAG_FREE_FULL, byte_len, pointer_delta, short_of, zigzag,
};
use crate::columns::{COLUMNS, Stop, Taken, split_one};

/// What the first byte of a plain record, and whether it has a node, say of its
/// columns. 0: it is none.
///
/// | bits | what |
/// |---|---|
/// | 0-15 | the header but for the lengths |
/// | 16-19 | how far to the right the lengths lie of where an alloc has them |
/// | 20 | the header has two bytes |
/// | 21 | an alloc |
/// | 22 | it has a node |
/// | 23 | it has a byte in the column of the rest |
/// | 24-31 | that byte |
type Shape = u32;

const TWO_BYTES: u32 = 20;
const ALLOC: u32 = 21;
const NODE: u32 = 22;
const EXT: u32 = 23;

/// By the first byte, with 128 added where there is no node.
static SHAPES: [Shape; 256] = {
    let mut shapes = [0; 256];
    let mut kind = 0;
    while kind < 128 {
        if let Some(api) = ApiKind::from_u8(kind as u8 % PAIR as u8) {
            let pair = kind >= PAIR as usize;
            let number = api as u32;
            let (with, without) = if api.is_free() {
                let code = number - ApiKind::FREE_BASE as u32;
                let full = TAG_FREE_FULL as u32 | code << 11 | 3 << 16 | 1 << TWO_BYTES | 1 << NODE;
                let plain = TAG_FREE as u32 | 6 << 16;
                if pair { (0, 0) } else { (full, if number == ApiKind::Free as u32 { plain } else { full }) }
            } else {
                let short = if pair { SHORT.len() as u32 - 1 } else { short_of(api) };
                let mut shape = TAG_ALLOC as u32 | short << 14 | 1 << TWO_BYTES | 1 << ALLOC | 1 << NODE;
                if short as usize == SHORT.len() - 1 {
                    let ext = number | if pair { EXT_PAIR as u32 } else { 0 };
                    shape |= 1 << EXT | ext << 24;
                }
                (shape, shape)
            };
            shapes[kind] = with;
            shapes[kind + 128] = without;
        }
        kind += 1;
    }
    shapes
};

/// Turns the records of `words` into columns up to the first whose stamp is above
/// `bound`. Goes on from `taken.state` and `taken.greatest`; the counts of `taken`
/// are set anew, its bytes are those of `words`. `out[c]` moves behind what was
/// written to column c.
///
/// # Safety
/// At each place of `out`, `8 * words.len() + SLACK` bytes can be written
/// ([`crate::columns::SLACK`]), and these do not overlap each other or `words`.
pub unsafe fn split(words: &[u64], taken: &mut Taken, bound: u64, out: &mut [*mut u8; COLUMNS]) -> Stop {
    *taken = Taken { state: taken.state, greatest: taken.greatest, ..Taken::default() };
    // From there no difference would fit its column.
    if taken.state.ptr >> PTR_BITS != 0 {
        return Stop::Damage(DecodeError::NoAddress(taken.state.ptr));
    }
    loop {
        // SAFETY: the caller's promise; no column gets more than a record has bytes.
        unsafe { split_plain(words, taken, bound, out) };
        let rest = words.get(taken.bytes / 8..).unwrap_or_default();
        let mut decoder = Decoder::new(rest, taken.state.stamp);
        let record = match decoder.next() {
            Ok(None) => return Stop::End,
            Ok(Some(Record::Special { kind: SpecialKind::Pad, .. })) => return Stop::Pad,
            Ok(Some(record)) => record,
            Err(error) => return Stop::Damage(error),
        };
        if record.stamp() > bound {
            return Stop::Bound;
        }
        let mut encoder = codec::Encoder { state: taken.state };
        // SAFETY: as above: a record that split_plain() does not take has as many
        // bytes in the ring as in the trace, or more.
        unsafe { split_one(encoder.record(&record, &mut [0; MAX_RECORD]), out) };
        taken.bytes += 8 * decoder.offset();
        taken.records += 1;
        taken.events += u32::from(record.is_event());
        taken.state = encoder.state;
        taken.greatest = taken.greatest.max(record.stamp());
        if taken.records == 1 {
            taken.first = taken.greatest;
        }
    }
}

/// Plain records, as far as they go.
///
/// # Safety
/// As [`split`].
#[inline(always)]
unsafe fn split_plain(words: &[u64], taken: &mut Taken, bound: u64, out: &mut [*mut u8; COLUMNS]) {
    // No plain record has these bits: those of a kind that is not plain, and of an
    // address that the differences of the trace cannot tell.
    const NOT_PLAIN: u64 = 0x80 | !0 << (8 + PTR_BITS);
    let [mut head, mut ptrs, mut sizes, mut nodes, mut times, mut rest] = *out;
    let State { mut stamp, mut ptr, alloc_node, free_node } = taken.state;
    let (mut alloc_node, mut free_node) = (u64::from(alloc_node), u64::from(free_node));
    let (mut count, mut greatest, mut first) = (0u32, taken.greatest, taken.first);
    for &[one, two] in words.get(taken.bytes / 8..).unwrap_or_default().as_chunks().0 {
        let Fields { size, node, time } = Fields::of(two);
        let shape = SHAPES[(one & 0x7f | u64::from(node == 0) << 7) as usize];
        let now = stamp.wrapping_add(time);
        if one & NOT_PLAIN != 0 || shape == 0 || now > bound {
            break;
        }
        stamp = now;
        greatest = greatest.max(now);
        if count == 0 && taken.records == 0 {
            first = greatest;
        }
        let to = one >> 8;
        let delta = pointer_delta(ptr, to);
        ptr = to;
        // No branch: whether an alloc or a free comes next is hard to foresee.
        let alloc = u64::from(shape >> ALLOC & 1).wrapping_neg();
        let has_node = u64::from(shape >> NODE & 1).wrapping_neg();
        let step = node.wrapping_sub(alloc_node & alloc | free_node & !alloc) & has_node;
        alloc_node = alloc_node.wrapping_add(step & alloc);
        free_node = free_node.wrapping_add(step & !alloc);
        let step = zigzag(step as i64);
        // A free has none. Should the program have written over its ring, the trace must
        // still hold records.
        let size = size & alloc;
        let (lp, ls, ln, lt) = (byte_len(delta), byte_len(size), byte_len(step), byte_len(time));
        let lengths = (ls << 5 | ln << 8 | lt << 11) >> (shape >> 16 & 15);
        let header = shape | lp << 2 | lengths;
        // SAFETY: no field has more than seven bytes, and none more than the caller
        // and the slack behind the columns give.
        unsafe {
            let store = |at: *mut u8, value: u64| at.cast::<u64>().write_unaligned(value.to_le());
            head.cast::<u16>().write_unaligned((header as u16).to_le());
            store(ptrs, delta);
            store(sizes, size);
            store(nodes, step);
            store(times, time);
            *rest = (shape >> 24) as u8;
            head = head.add(1 + (shape >> TWO_BYTES & 1) as usize);
            ptrs = ptrs.add(lp as usize);
            sizes = sizes.add(ls as usize);
            nodes = nodes.add(ln as usize);
            times = times.add(lt as usize);
            rest = rest.add((shape >> EXT & 1) as usize);
        }
        count += 1;
    }
    taken.bytes += 16 * count as usize;
    taken.records += count;
    taken.events += count;
    (taken.greatest, taken.first) = (greatest, first);
    taken.state = State { stamp, ptr, alloc_node: alloc_node as u32, free_node: free_node as u32 };
    *out = [head, ptrs, sizes, nodes, times, rest];
}
