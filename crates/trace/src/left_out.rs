//! Totals of blocks whose events are not in the trace: what `--cull` and
//! `--live-only` leave of them. Records of one kind and key add up, unless said
//! otherwise.

use highwater_event::node::NodeId;

use crate::model::ThreadNo;
use crate::varint::{Reader, put, put_signed};

/// One number, or a few that belong together, of what was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Blocks made at a stack and freed again.
    Site {
        /// The stack.
        node: NodeId,
        /// How many.
        blocks: u64,
        /// Their requested bytes.
        bytes: u64,
        /// Temporary ones that the trace's events do not show; below 0 where they
        /// show more than there were.
        temporary: i64,
    },
    /// What a thread did with such blocks.
    Thread {
        /// Which.
        thread: ThreadNo,
        /// Blocks that it made.
        allocations: u64,
        /// Their requested bytes.
        bytes: u64,
        /// Frees.
        frees: u64,
        /// The freed blocks' requested bytes.
        bytes_freed: u64,
        /// As in `Site`.
        temporary: i64,
    },
    /// Events through an entry point.
    Calls {
        /// Number of the `ApiKind`.
        api: u8,
        /// How many.
        count: u64,
    },
    /// Complete pairs of realloc halves that the trace does not show as such.
    Pairs {
        /// Of reallocarray, else of realloc.
        array: bool,
        /// How many.
        count: u64,
    },
    /// A bucket of a histogram by powers of two.
    Bucket {
        /// Of lifetimes (ns), else of sizes (bytes).
        lifetimes: bool,
        /// Number of bits of the values.
        bits: u8,
        /// How many.
        count: u64,
        /// Their sum (wraps).
        sum: u64,
    },
    /// At no time did more bytes live in blocks that were left out. The greatest
    /// record counts.
    Unseen {
        /// Bytes.
        bytes: u64,
    },
    /// The peak of all blocks, where the events do not show it. The last record counts.
    Peak {
        /// Requested bytes.
        bytes: u64,
        /// Blocks.
        blocks: u64,
        /// When, ns.
        ns: u64,
        /// The true one is within so many bytes.
        uncertainty: u64,
    },
    /// What a stack had at that peak. The last record counts.
    SitePeak {
        /// The stack.
        node: NodeId,
        /// Bytes.
        bytes: u64,
        /// Blocks.
        blocks: u64,
    },
    /// Frees of blocks that nobody saw made.
    Foreign {
        /// How many.
        count: u64,
    },
}

pub(crate) fn encode(out: &mut Vec<u8>, what: &LeftOut) {
    match *what {
        LeftOut::Site { node, blocks, bytes, temporary } => {
            out.push(0);
            [u64::from(node), blocks, bytes].iter().for_each(|&n| put(out, n));
            put_signed(out, temporary);
        }
        LeftOut::Thread { thread, allocations, bytes, frees, bytes_freed, temporary } => {
            out.push(1);
            [u64::from(thread), allocations, bytes, frees, bytes_freed].iter().for_each(|&n| put(out, n));
            put_signed(out, temporary);
        }
        LeftOut::Calls { api, count } => {
            out.extend([2, api]);
            put(out, count);
        }
        LeftOut::Pairs { array, count } => {
            out.extend([3, u8::from(array)]);
            put(out, count);
        }
        LeftOut::Bucket { lifetimes, bits, count, sum } => {
            out.extend([4, u8::from(lifetimes), bits]);
            put(out, count);
            put(out, sum);
        }
        LeftOut::Unseen { bytes } => {
            out.push(5);
            put(out, bytes);
        }
        LeftOut::Peak { bytes, blocks, ns, uncertainty } => {
            out.push(6);
            [bytes, blocks, ns, uncertainty].iter().for_each(|&n| put(out, n));
        }
        LeftOut::SitePeak { node, bytes, blocks } => {
            out.push(7);
            [u64::from(node), bytes, blocks].iter().for_each(|&n| put(out, n));
        }
        LeftOut::Foreign { count } => {
            out.push(8);
            put(out, count);
        }
    }
}

/// `None` for a kind of a later version, or damage.
pub(crate) fn decode(mut fields: Reader<'_>) -> Option<LeftOut> {
    Some(match fields.u8()? {
        0 => LeftOut::Site {
            node: fields.u32()?,
            blocks: fields.u64()?,
            bytes: fields.u64()?,
            temporary: fields.i64()?,
        },
        1 => LeftOut::Thread {
            thread: fields.u32()?,
            allocations: fields.u64()?,
            bytes: fields.u64()?,
            frees: fields.u64()?,
            bytes_freed: fields.u64()?,
            temporary: fields.i64()?,
        },
        2 => LeftOut::Calls { api: fields.u8()? & 63, count: fields.u64()? },
        3 => LeftOut::Pairs { array: fields.u8()? != 0, count: fields.u64()? },
        4 => LeftOut::Bucket {
            lifetimes: fields.u8()? != 0,
            bits: fields.u8()?.min(64),
            count: fields.u64()?,
            sum: fields.u64()?,
        },
        5 => LeftOut::Unseen { bytes: fields.u64()? },
        6 => LeftOut::Peak {
            bytes: fields.u64()?,
            blocks: fields.u64()?,
            ns: fields.u64()?,
            uncertainty: fields.u64()?,
        },
        7 => LeftOut::SitePeak { node: fields.u32()?, bytes: fields.u64()?, blocks: fields.u64()? },
        8 => LeftOut::Foreign { count: fields.u64()? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_round_trips_and_no_cut_is_believed() {
        let all = [
            LeftOut::Site { node: 7, blocks: u64::MAX, bytes: 0, temporary: i64::MIN },
            LeftOut::Thread {
                thread: u32::MAX,
                allocations: 1,
                bytes: 2,
                frees: 3,
                bytes_freed: 4,
                temporary: -5,
            },
            LeftOut::Calls { api: 63, count: 9 },
            LeftOut::Pairs { array: true, count: 1 },
            LeftOut::Bucket { lifetimes: true, bits: 64, count: 5, sum: u64::MAX },
            LeftOut::Unseen { bytes: 5 },
            LeftOut::Peak { bytes: 1, blocks: 2, ns: 3, uncertainty: 4 },
            LeftOut::SitePeak { node: 1, bytes: 2, blocks: 3 },
            LeftOut::Foreign { count: 300 },
        ];
        for what in all {
            let mut bytes = Vec::new();
            encode(&mut bytes, &what);
            assert_eq!(decode(Reader::new(&bytes)), Some(what));
            for cut in 0..bytes.len() {
                assert_eq!(decode(Reader::new(&bytes[..cut])), None, "{what:?} cut at {cut}");
            }
        }
        assert_eq!(decode(Reader::new(&[200, 1, 1])), None);
    }
}
