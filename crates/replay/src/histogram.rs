//! Counts by powers of two.

use crate::outcome::Numbers;

/// Counts of values by their number of bits: bucket 0 holds the value 0,
/// bucket `b` the values from 2^(b-1) to 2^b - 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Count and sum side by side: a value touches one cache line.
    buckets: [(u64, u64); 65],
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: [(0, 0); 65] }
    }
}

/// One bucket of a [`Histogram`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest value of the bucket.
    pub low: u64,
    /// Greatest value of the bucket.
    pub high: u64,
    /// How many values.
    pub count: u64,
    /// Their sum (wraps beyond 2^64).
    pub sum: u64,
}

impl Histogram {
    #[inline]
    fn bucket(value: u64) -> usize {
        (64 - value.leading_zeros()) as usize
    }

    /// Counts `value`.
    #[inline]
    pub fn add(&mut self, value: u64) {
        let (count, sum) = &mut self.buckets[Self::bucket(value)];
        *count += 1;
        *sum = sum.wrapping_add(value);
    }

    /// Counts `value` so many times.
    #[inline]
    pub fn add_many(&mut self, value: u64, times: u64) {
        let (count, sum) = &mut self.buckets[Self::bucket(value)];
        *count = count.wrapping_add(times);
        *sum = sum.wrapping_add(value.wrapping_mul(times));
    }

    /// Adds `count` values of so many bits, with this sum.
    pub fn add_bucket(&mut self, bits: u8, count: u64, sum: u64) {
        if let Some((all, total)) = self.buckets.get_mut(usize::from(bits)) {
            *all = all.wrapping_add(count);
            *total = total.wrapping_add(sum);
        }
    }

    /// Takes back an earlier [`Histogram::add_many`].
    pub fn remove_many(&mut self, value: u64, times: u64) {
        let (count, sum) = &mut self.buckets[Self::bucket(value)];
        *count = count.saturating_sub(times);
        *sum = sum.wrapping_sub(value.wrapping_mul(times));
    }

    /// Goes over its numbers.
    pub(crate) fn numbers(&mut self, numbers: &mut impl Numbers) {
        for (count, sum) in &mut self.buckets {
            numbers.u64(count);
            numbers.u64(sum);
        }
    }

    /// The buckets that hold anything, smallest values first.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.buckets.iter().enumerate().filter(|(_, (count, _))| *count != 0).map(|(at, &(count, sum))| {
            Bucket {
                low: if at == 0 { 0 } else { 1 << (at - 1) },
                high: if at == 0 { 0 } else { u64::MAX >> (64 - at) },
                count,
                sum,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_between_their_powers() {
        let mut histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, u64::MAX] {
            histogram.add(value);
        }
        histogram.remove_many(4, 1);
        let ranges: Vec<_> = histogram.buckets().map(|b| (b.low, b.high, b.count)).collect();
        assert_eq!(ranges, [(0, 0, 1), (1, 1, 1), (2, 3, 2), (1 << 63, u64::MAX, 1)]);
    }
}
