use super::*;
use crate::codec;
use crate::columns::{COLUMNS, SLACK, Stop, Taken};
use crate::node::NodeId;

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// Records of all kinds and sizes, those at the edges of a plain record among them.
fn records(seed: &mut u64, count: usize) -> Vec<Record> {
    let mut stamp = 1 << 40;
    (0..count)
        .map(|_| {
            let edge = |seed: &mut u64, bits: u32| match random(seed) % 8 {
                0 => (1 << bits) - 1,
                1 => 1 << bits,
                2 => 0,
                _ => random(seed) >> (64 - bits + random(seed) as u32 % bits),
            };
            stamp += edge(seed, TIME_BITS);
            let ptr = match random(seed) % 16 {
                0 => random(seed),
                1 => edge(seed, 52),
                2 => edge(seed, 56),
                _ => random(seed) >> 16 & !7,
            };
            let (node, size) = (edge(seed, NODE_BITS) as NodeId, edge(seed, SIZE_BITS));
            let api = ApiKind::ALL[random(seed) as usize % ApiKind::ALL.len()];
            match random(seed) % 16 {
                0 => {
                    let kind = [SpecialKind::Mmap, SpecialKind::Resync, SpecialKind::ReallocUndo]
                        [random(seed) as usize % 3];
                    let len = 4 + random(seed) as usize % 5;
                    let mut words = [0; MAX_WORDS];
                    words[..len].fill_with(|| random(seed) >> (12 + random(seed) % 52));
                    words[0] = stamp;
                    (words[2], words[3]) = (words[2] >> 32, words[3] >> 32);
                    Record::Special { kind, len: len as u8, words }
                }
                1 => Record::Free { stamp, ptr, node: 0, api: ApiKind::Free },
                2..=8 if api.is_free() => Record::Free { stamp, ptr, node, api },
                2..=3 if !api.is_free() => {
                    let usable = (random(seed) & 1 == 0).then_some(random(seed));
                    Record::Alloc { stamp, ptr, size, usable, node, api, pair: random(seed) & 1 == 0 }
                }
                4..=6 => {
                    let (api, pair) = (ApiKind::Realloc, true);
                    Record::Alloc { stamp, ptr, size, usable: None, node, api, pair }
                }
                7..=8 => Record::Free { stamp, ptr, node, api: ApiKind::Free },
                _ => {
                    let api = [ApiKind::Malloc, ApiKind::New, ApiKind::Calloc, ApiKind::NewArray]
                        [random(seed) as usize % 4];
                    Record::Alloc { stamp, ptr, size, usable: None, node, api, pair: false }
                }
            }
        })
        .collect()
}

fn encoded(records: &[Record]) -> Vec<u64> {
    let mut encoder = Encoder::default();
    let mut words = Vec::new();
    for record in records {
        words.extend_from_slice(encoder.record(record, &mut [0; MAX_RECORD / 8]));
        assert!(words.len().is_multiple_of(UNIT / 8));
    }
    words
}

fn decoded(words: &[u64]) -> Vec<Record> {
    let mut decoder = Decoder::new(words, 0);
    let mut records = Vec::new();
    while let Some(record) = decoder.next().unwrap() {
        records.push(record);
    }
    assert_eq!(decoder.offset(), words.len());
    records
}

#[test]
fn a_ring_holds_what_was_written() {
    let mut seed = 0x5eed_0002;
    for round in 0..200 {
        let wanted = records(&mut seed, round);
        assert_eq!(decoded(&encoded(&wanted)), wanted);
    }
}

#[test]
fn the_frequent_event_takes_two_words() {
    let (stamp, ptr, node) = (100, 0x7fff_ffff_fff0, (1 << NODE_BITS) - 1);
    let free = Record::Free { stamp, ptr, node, api: ApiKind::Free };
    let size = (1 << SIZE_BITS) - 1;
    let alloc = Record::Alloc { stamp, ptr, size, usable: None, node, api: ApiKind::Realloc, pair: true };
    for record in [free, alloc] {
        assert_eq!(encoded(&[record]).len(), 2, "{record:?}");
    }
}

#[test]
fn a_stamp_that_goes_backwards_counts_as_no_time() {
    let free = |stamp| Record::Free { stamp, ptr: 64, node: 0, api: ApiKind::Free };
    let got = decoded(&encoded(&[free(1000), free(900), free(1001)]));
    assert_eq!(got, [free(1000), free(1000), free(1001)]);
}

/// The columns of a split, and why it stopped.
fn columns(words: &[u64], taken: &mut Taken, bound: u64) -> (Vec<Vec<u8>>, Stop) {
    collect(8 * words.len(), |out| {
        // SAFETY: each place has that many bytes and the slack.
        unsafe { split(words, taken, bound, out) }
    })
}

fn collect(len: usize, split: impl FnOnce(&mut [*mut u8; COLUMNS]) -> Stop) -> (Vec<Vec<u8>>, Stop) {
    let mut spaces = vec![vec![0u8; len + SLACK]; COLUMNS];
    let mut out: [*mut u8; COLUMNS] = core::array::from_fn(|c| spaces[c].as_mut_ptr());
    let stop = split(&mut out);
    for (space, end) in spaces.iter_mut().zip(out) {
        let used = end as usize - space.as_ptr() as usize;
        assert!(used <= len, "{used} of {len}");
        space.truncate(used);
    }
    (spaces, stop)
}

/// What the trace would keep of the same records, were they encoded for it at once.
fn columns_of_codec(records: &[Record]) -> (Vec<Vec<u8>>, Taken) {
    let mut encoder = codec::Encoder::default();
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend_from_slice(encoder.record(record, &mut [0; codec::MAX_RECORD]));
    }
    let mut taken = Taken::default();
    let (columns, stop) = collect(bytes.len(), |out| {
        // SAFETY: as above.
        unsafe { crate::columns::split(&bytes, &mut taken, u64::MAX, out) }
    });
    assert_eq!(stop, Stop::End);
    (columns, taken)
}

#[test]
fn the_trace_gets_the_bytes_that_its_own_encoder_makes() {
    let mut seed = 0x5eed_0003;
    for round in 0..400 {
        let records = records(&mut seed, round);
        let words = encoded(&records);
        let mut taken = Taken::default();
        let (got, stop) = columns(&words, &mut taken, u64::MAX);
        assert_eq!(stop, Stop::End);
        let (wanted, counts) = columns_of_codec(&records);
        assert_eq!(got, wanted);
        assert_eq!(taken, Taken { bytes: 8 * words.len(), ..counts });
        let events = records.iter().filter(|record| record.is_event()).count();
        assert_eq!((taken.events as usize, taken.records as usize), (events, records.len()));
    }
}

#[test]
fn a_bound_stops_before_the_first_record_behind_it() {
    let mut seed = 78;
    for _ in 0..100 {
        let mut records = records(&mut seed, 60);
        // A resync may turn the clock back; here it may not.
        records.retain(|r| !matches!(r, Record::Special { kind: SpecialKind::Resync, .. }));
        let bound = records[random(&mut seed) as usize % records.len()].stamp();
        let keep = records.iter().position(|r| r.stamp() > bound).unwrap_or(records.len());
        let words = encoded(&records);
        let mut taken = Taken::default();
        let (mut got, stop) = columns(&words, &mut taken, bound);
        assert_eq!(stop, if keep == records.len() { Stop::End } else { Stop::Bound });
        assert_eq!(taken.records as usize, keep);
        assert_eq!(got, columns_of_codec(&records[..keep]).0);
        // The rest goes on from there.
        let rest = words.get(taken.bytes / 8..).unwrap();
        let (more, stop) = columns(rest, &mut taken, u64::MAX);
        assert_eq!(stop, Stop::End);
        got.iter_mut().zip(more).for_each(|(column, more)| column.extend(more));
        assert_eq!(got, columns_of_codec(&records).0);
    }
}

#[test]
fn a_free_with_a_size_is_a_free_and_what_follows_is_read() {
    let free = |node| Record::Free { stamp: 9, ptr: 64, node, api: ApiKind::Free };
    let records = [free(7), free(0), free(8)];
    let mut words = encoded(&records);
    words[1] |= 0x1234;
    words[3] |= 0x12;
    let mut taken = Taken::default();
    let (got, stop) = columns(&words, &mut taken, u64::MAX);
    assert_eq!((got, stop), (columns_of_codec(&records).0, Stop::End));
}

#[test]
fn noise_is_no_panic() {
    let mut seed = 4243;
    let mut stops = 0;
    for _ in 0..20_000 {
        let len = random(&mut seed) % 40;
        let mut words: Vec<u64> = (0..len).map(|_| random(&mut seed)).collect();
        // Often a kind that there is, so that its words are looked at.
        for word in words.iter_mut().step_by(2) {
            if random(&mut seed) & 1 == 0 {
                *word &= !0xe0;
            }
        }
        let mut taken = Taken::default();
        let (_, stop) = columns(&words, &mut taken, random(&mut seed));
        stops += usize::from(matches!(stop, Stop::Damage(_)));
        let mut decoder = Decoder::new(&words, 0);
        while let Ok(Some(_)) = decoder.next() {}
    }
    assert!(stops > 5000);
}

#[test]
fn a_cut_record_is_left_where_it_begins() {
    let mut seed = 9;
    let records = records(&mut seed, 50);
    let words = encoded(&records);
    for len in 0..words.len() {
        let mut decoder = Decoder::new(&words[..len], 0);
        let mut count = 0;
        let error = loop {
            match decoder.next() {
                Ok(Some(record)) => assert_eq!(record, records[count]),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            count += 1;
        };
        let whole: usize = records[..count].iter().fold((Encoder::default(), 0), add).1;
        assert_eq!((decoder.offset(), error.is_some()), (whole, whole != len));
    }
}

fn add((mut encoder, len): (Encoder, usize), record: &Record) -> (Encoder, usize) {
    let words = encoder.record(record, &mut [0; MAX_RECORD / 8]).len();
    (encoder, len + words)
}
