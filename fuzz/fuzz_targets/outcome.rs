//! Any bytes as what a replay has found: nothing or an outcome that the bytes have
//! room for, never a panic.
#![no_main]

use highwater_replay::outcome::SoFar;
use highwater_replay::{Options, Outcome};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let options = Options::default();
    // The two options stand first; noise would hardly ever guess them.
    let mut bytes = Outcome::default().encode(&options);
    let _ = Outcome::decode(data, &options);
    bytes.truncate(4);
    bytes.extend_from_slice(data);
    if let Some(found) = Outcome::decode(&bytes, &options) {
        assert!(found.sites().len() <= bytes.len() && found.series().width_ns() > 0);
        assert!(found.encode(&options).len() <= bytes.len());
    }
    if let Some(found) = SoFar::decode(&bytes, &options) {
        assert!(found.encode(&options).len() <= bytes.len());
    }
});
