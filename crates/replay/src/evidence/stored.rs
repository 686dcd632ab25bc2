//! Evidence as bytes. Most points say that a stack gave back what it made and came to
//! the level that it had: a byte of marks says what is as one would expect, and only
//! what is not follows it.

use highwater_trace::varint::{Reader, put, put_signed};

use super::collect::MAX_SLICES;
use super::lifetimes::BUCKETS;
use super::{Aged, Evidence, Held, Lived, Point, SiteEvidence, SliceEnd};
use crate::replay::Options;

/// Marks of a point: the slice follows that of the point before.
const NEXT: u8 = 1;
/// One block was made.
const ONE: u8 = 2;
/// As many were given back as made.
const EVEN: u8 = 4;
/// The blocks are those before, and made, less given back.
const BLOCKS: u8 = 8;
/// The bytes are those before.
const BYTES: u8 = 16;
/// The fewest blocks are those before or at the end.
const LOW_BLOCKS: u8 = 32;
/// The fewest bytes are.
const LOW_BYTES: u8 = 64;

/// What one would expect of a point behind `before`, but for `slice`, `born` and `freed`.
fn expected(before: &Point, point: &Point) -> Point {
    let blocks = before.blocks.wrapping_add(point.born.into()).wrapping_sub(point.freed.into());
    Point { blocks, bytes: before.bytes, ..*point }
}

impl Evidence {
    /// As bytes; `options` are those of the replay. `None` where blocks are not counted
    /// yet.
    pub fn encode(&self, options: &Options) -> Option<Vec<u8>> {
        if self.unheld {
            return None;
        }
        let mut out = Vec::new();
        for number in [
            options.remember_freed as u64,
            options.sample,
            self.now_ns,
            self.now_seqno,
            u64::from(self.tidied),
            u64::from(self.last_slice),
            self.slices.len() as u64,
        ] {
            put(&mut out, number);
        }
        let mut before = SliceEnd::default();
        for slice in &self.slices {
            put_signed(&mut out, slice.ns.wrapping_sub(before.ns).cast_signed());
            put_signed(&mut out, slice.seqno.wrapping_sub(before.seqno).cast_signed());
            before = *slice;
        }
        put(&mut out, self.sites.len() as u64);
        for (number, site) in (0u32..).zip(&self.sites) {
            put(&mut out, site.sizes.0);
            put(&mut out, site.sizes.1.wrapping_sub(site.sizes.0));
            put_points(&mut out, self.points(number));
            put_lived(&mut out, &self.lived(number));
            put_held(&mut out, site.held.as_deref(), options.sample != 0);
        }
        Some(out)
    }

    /// The evidence in these bytes, if it is some of a replay with these options that
    /// found so many stacks or more.
    pub fn decode(bytes: &[u8], options: &Options, sites: usize) -> Option<Evidence> {
        let mut reader = Reader::new(bytes);
        let of = (reader.u64()?, reader.u64()?);
        if of != (options.remember_freed as u64, options.sample) {
            return None;
        }
        let (now_ns, now_seqno) = (reader.u64()?, reader.u64()?);
        let tidied = reader.u64()?;
        let last_slice = reader.u32()?;
        let slices = reader.u64().filter(|&count| count <= MAX_SLICES)?;
        let fits = tidied <= 1 && u64::from(last_slice) < slices.max(1);
        let mut evidence =
            Evidence { now_ns, now_seqno, tidied: tidied == 1, last_slice, ..Evidence::default() };
        let mut before = SliceEnd::default();
        for _ in 0..slices {
            before.ns = before.ns.wrapping_add_signed(reader.i64()?);
            before.seqno = before.seqno.wrapping_add_signed(reader.i64()?);
            evidence.slices.push(before);
        }
        // A stack takes five bytes at least.
        let found = list(&mut reader, 5)?;
        if !fits || found > sites {
            return None;
        }
        evidence.sites.reserve_exact(found);
        for number in 0..found {
            let smallest = reader.u64()?;
            let largest = smallest.wrapping_add(reader.u64()?);
            points(&mut reader, number as u32, slices, &mut evidence.points)?;
            let (count, seen) = lived(&mut reader, &mut evidence.buckets)?;
            evidence.sites.push(SiteEvidence {
                sizes: (smallest, largest),
                points: evidence.points.len(),
                buckets: evidence.buckets.len(),
                count,
                seen,
                held: held(&mut reader, slices, options.sample != 0)?,
            });
        }
        reader.is_empty().then_some(evidence)
    }
}

/// How many there are in a list of which one takes so many bytes or more.
fn list(reader: &mut Reader<'_>, least: usize) -> Option<usize> {
    let count = usize::try_from(reader.u64()?).ok()?;
    (count <= reader.remaining() / least).then_some(count)
}

fn put_points(out: &mut Vec<u8>, points: &[Point]) {
    put(out, points.len() as u64);
    let (mut before, mut next) = (Point::default(), 0);
    for point in points {
        let wanted = expected(&before, point);
        let low = (before.blocks.min(point.blocks), before.bytes.min(point.bytes));
        let marks = [
            (NEXT, point.slice == next),
            (ONE, point.born == 1),
            (EVEN, point.freed == point.born),
            (BLOCKS, point.blocks == wanted.blocks),
            (BYTES, point.bytes == wanted.bytes),
            (LOW_BLOCKS, point.low_blocks == low.0),
            (LOW_BYTES, point.low_bytes == low.1),
        ];
        let marks = marks.iter().filter(|mark| mark.1).fold(0, |all, mark| all | mark.0);
        out.push(marks);
        let mut unless = |mark: u8, number: u64| {
            if marks & mark == 0 {
                put(out, number);
            }
        };
        unless(NEXT, u64::from(point.slice.wrapping_sub(next)));
        unless(ONE, point.born.into());
        unless(EVEN, point.freed.into());
        unless(BLOCKS, zigzag(point.blocks.wrapping_sub(wanted.blocks)));
        unless(BYTES, zigzag(point.bytes.wrapping_sub(wanted.bytes)));
        unless(LOW_BLOCKS, low.0.wrapping_sub(point.low_blocks));
        unless(LOW_BYTES, low.1.wrapping_sub(point.low_bytes));
        (before, next) = (*point, point.slice + 1);
    }
}

fn zigzag(difference: u64) -> u64 {
    let difference = difference.cast_signed();
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

fn points(reader: &mut Reader<'_>, site: u32, slices: u64, points: &mut Vec<Point>) -> Option<()> {
    let count = list(reader, 1)?;
    let (mut before, mut next) = (Point::default(), 0u32);
    for _ in 0..count {
        let marks = reader.u8()?;
        let has = |mark: u8| marks & mark != 0;
        let slice = if has(NEXT) { next } else { next.checked_add(reader.u32()?)? };
        if u64::from(slice) >= slices {
            return None;
        }
        let born = if has(ONE) { 1 } else { reader.u32()? };
        let freed = if has(EVEN) { born } else { reader.u32()? };
        let mut point = expected(&before, &Point { site, slice, born, freed, ..Point::default() });
        if !has(BLOCKS) {
            point.blocks = point.blocks.wrapping_add_signed(reader.i64()?);
        }
        if !has(BYTES) {
            point.bytes = point.bytes.wrapping_add_signed(reader.i64()?);
        }
        (point.low_blocks, point.low_bytes) =
            (before.blocks.min(point.blocks), before.bytes.min(point.bytes));
        if !has(LOW_BLOCKS) {
            point.low_blocks = point.low_blocks.wrapping_sub(reader.u64()?);
        }
        if !has(LOW_BYTES) {
            point.low_bytes = point.low_bytes.wrapping_sub(reader.u64()?);
        }
        points.push(point);
        (before, next) = (point, slice + 1);
    }
    Some(())
}

fn put_lived(out: &mut Vec<u8>, lived: &Lived<'_>) {
    let sum = sum(lived.buckets);
    let plain = (sum, sum) == (lived.count, lived.seen);
    put(out, (lived.buckets.len() as u64) << 1 | u64::from(plain));
    if !plain {
        put(out, lived.count);
        put(out, lived.seen);
    }
    let mut next = 0;
    for &(bucket, blocks) in lived.buckets {
        put(out, u64::from(bucket - next));
        put(out, blocks.into());
        next = bucket + 1;
    }
}

fn sum(buckets: &[(u8, u32)]) -> u64 {
    buckets.iter().map(|bucket| u64::from(bucket.1)).sum()
}

/// Appends buckets; gives the counts of blocks and of frees.
fn lived(reader: &mut Reader<'_>, buckets: &mut Vec<(u8, u32)>) -> Option<(u64, u64)> {
    let head = reader.u64()?;
    let counts = if head & 1 == 0 { Some((reader.u64()?, reader.u64()?)) } else { None };
    let (mut next, from) = (0u8, buckets.len());
    for _ in 0..head >> 1 {
        let least = u8::try_from(reader.u64()?).ok()?;
        let bucket = next.checked_add(least).filter(|&at| usize::from(at) < BUCKETS)?;
        buckets.push((bucket, reader.u32()?));
        next = bucket + 1;
    }
    let sum = sum(buckets.get(from..)?);
    Some(counts.unwrap_or((sum, sum)))
}

fn put_held(out: &mut Vec<u8>, held: Option<&Held>, sampled: bool) {
    let Some(held) = held else { return put(out, 0) };
    put(out, held.births.len() as u64);
    put(out, held.ages.len() as u64);
    for number in [held.blocks, held.bytes, held.oldest_ns] {
        put(out, number);
    }
    if sampled {
        put(out, held.variance);
        put(out, held.seen);
    }
    let mut next = 0;
    for &(slice, blocks) in &held.births {
        put(out, u64::from(slice - next));
        put(out, blocks);
        next = slice + 1;
    }
    let mut next = 0;
    for aged in &held.ages {
        for number in [u64::from(aged.class - next), aged.blocks, aged.bytes] {
            put(out, number);
        }
        if sampled {
            put(out, aged.variance);
        }
        next = aged.class + 1;
    }
}

fn held(reader: &mut Reader<'_>, slices: u64, sampled: bool) -> Option<Option<Box<Held>>> {
    let births = reader.u64()?;
    if births == 0 {
        return Some(None);
    }
    let ages = reader.u64()?;
    let (blocks, bytes, oldest_ns) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (variance, seen) = if sampled { (reader.u64()?, reader.u64()?) } else { (0, blocks) };
    let mut held = Held { blocks, bytes, variance, seen, oldest_ns, ..Held::default() };
    let mut next = 0u32;
    for _ in 0..births {
        let slice = next.checked_add(reader.u32()?).filter(|&slice| u64::from(slice) <= slices)?;
        held.births.push((slice, reader.u64()?));
        next = slice + 1;
    }
    let mut next = 0u8;
    for _ in 0..ages {
        let class = next.checked_add(u8::try_from(reader.u64()?).ok()?).filter(|&class| class <= 64)?;
        let (blocks, bytes) = (reader.u64()?, reader.u64()?);
        let variance = if sampled { reader.u64()? } else { 0 };
        held.ages.push(Aged { class, blocks, bytes, variance });
        next = class + 1;
    }
    Some(Some(Box::new(held)))
}
