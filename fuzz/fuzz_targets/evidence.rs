//! Any bytes as what leaks are ranked by: nothing or evidence that the bytes have room
//! for, never a panic.
#![no_main]

use highwater_replay::{Evidence, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let options = Options::default();
    let Some(mut bytes) = Evidence::default().encode(&options) else { return };
    let _ = Evidence::decode(data, &options, 1000);
    // The two options stand first; noise would hardly ever guess them.
    bytes.truncate(4);
    bytes.extend_from_slice(data);
    if let Some(found) = Evidence::decode(&bytes, &options, 1000) {
        assert!(found.sites.len() <= bytes.len().min(1000));
        for (number, _) in (0u32..).zip(&found.sites) {
            assert!(found.points(number).iter().all(|point| (point.slice as usize) < found.slices.len()));
        }
        assert!(found.encode(&options).is_some());
    }
});
