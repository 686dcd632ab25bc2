//! Any bytes as a keyframe's part or the first part of a difference: nothing, or blocks
//! that the bytes have room for, never a panic.
#![no_main]

use highwater_trace::noise;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_at_checked(12) else { return };
    let (seqno, count) = first.split_at(8);
    let seqno = u64::from_le_bytes(seqno.try_into().unwrap_or_default());
    let count = u32::from_le_bytes(count.try_into().unwrap_or_default());
    for found in [noise::keyframe(rest, count), noise::difference(rest, seqno, count)] {
        assert!(found.is_none_or(|found| found <= rest.len()));
    }
});
