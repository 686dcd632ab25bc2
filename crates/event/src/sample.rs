//! Which allocations a sampling recorder keeps.
//!
//! Poisson sampling by bytes: the allocated bytes of a thread lie on a line, and
//! marks stand on it at exponentially distributed distances with mean `rate`
//! bytes. A block is kept if a mark falls into it. So a block of `s` bytes is
//! kept with probability `1 - exp(-s / rate)`, whatever came before it (the
//! exponential distribution has no memory), and a sum over the kept blocks, each
//! weighted by the inverse of its probability, has the sum over all blocks as its
//! expectation (Horvitz and Thompson, 1952). A block of no bytes counts as one
//! byte.

/// The smallest mean distance of marks, bytes.
pub const MIN_RATE: u64 = 1;
/// The greatest mean distance of marks, bytes.
pub const MAX_RATE: u64 = 1 << 40;

/// Bytes of a block on the line: at least one.
#[inline(always)]
pub const fn extent(size: u64) -> u64 {
    size + (size == 0) as u64
}

/// One thread's marks.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Sampler {
    /// Bytes up to and including the next mark.
    left: i64,
    random: u64,
    rate: u64,
}

impl Sampler {
    /// Marks at a mean distance of `rate` bytes, the first one too.
    pub const fn new(rate: u64, seed: u64) -> Sampler {
        let rate = if rate < MIN_RATE {
            MIN_RATE
        } else if rate > MAX_RATE {
            MAX_RATE
        } else {
            rate
        };
        let mut sampler = Sampler { left: 0, random: seed, rate };
        sampler.left = sampler.distance();
        sampler
    }

    /// Offset of the bytes up to and including the next mark, an `i64` above 0.
    pub const LEFT: usize = core::mem::offset_of!(Sampler, left);

    /// Is a block of `size` bytes kept?
    #[inline(always)]
    pub const fn take(&mut self, size: u64) -> bool {
        self.left = self.left.wrapping_sub(extent(size) as i64);
        if self.left > 0 {
            return false;
        }
        self.next_mark();
        true
    }

    #[cold]
    #[inline(never)]
    const fn next_mark(&mut self) {
        self.left = self.distance();
    }

    /// The next 64 random bits (SplitMix64, Steele, Lea and Flood, 2014).
    const fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }

    /// An exponentially distributed number of bytes, rounded up: then a block
    /// of `s` whole bytes is hit with probability exactly `1 - exp(-s / rate)`.
    const fn distance(&mut self) -> i64 {
        let bits = self.random() >> 11;
        let exact = -ln_of_53_bits(bits + 1) * self.rate as f64;
        // The cast rounds down and saturates; a distance is never negative.
        let whole = exact as i64;
        let up = if (whole as f64) < exact { whole + 1 } else { whole };
        if up < 1 { 1 } else { up }
    }
}

/// Scatters the bits of a number: the output function of SplitMix64.
pub const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The natural logarithm of `n / 2^53`, for `n` from 1 to 2^53, to about ten
/// digits. (There is no `ln` without std.)
const fn ln_of_53_bits(n: u64) -> f64 {
    let exponent = 63 - n.leading_zeros();
    // n = m * 2^exponent with m in [1, 2).
    let m = n as f64 / (1u64 << exponent) as f64;
    // ln m = 2 artanh t, with t in [0, 1/3).
    let t = (m - 1.0) / (m + 1.0);
    let square = t * t;
    let mut sum = 0.0;
    let mut power = 19;
    while power > 0 {
        sum = sum * square + 1.0 / power as f64;
        power -= 2;
    }
    2.0 * t * sum + (exponent as f64 - 53.0) * core::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_right_to_ten_digits() {
        let mut bits = 1u64;
        for step in 0..100_000u64 {
            bits = mix(bits.wrapping_add(step));
            let n = (bits >> (11 + bits % 53)).max(1);
            let want = (n as f64 / (1u64 << 53) as f64).ln();
            assert!((ln_of_53_bits(n) - want).abs() <= 1e-9 * want.abs().max(1.0), "{n}");
        }
        assert_eq!(ln_of_53_bits(1 << 53), 0.0);
    }

    #[test]
    fn a_block_is_kept_as_often_as_its_size_says() {
        for (rate, size) in [(512u64, 1u64), (512, 100), (512, 512), (512, 5000), (4096, 0), (1, 1), (64, 64)]
        {
            let mut sampler = Sampler::new(rate, rate ^ size << 20);
            let tries = 400_000u64;
            let kept = (0..tries).filter(|_| sampler.take(size)).count() as f64;
            let chance = -(-(extent(size) as f64) / rate as f64).exp_m1();
            let error = (tries as f64 * chance * (1.0 - chance)).sqrt();
            let off = (kept - tries as f64 * chance).abs();
            assert!(off <= 5.0 * error + 1.0, "rate {rate} size {size}: {off} of {error}");
        }
    }

    #[test]
    fn no_size_and_no_rate_makes_it_panic() {
        for rate in [0, 1, u64::MAX] {
            let mut sampler = Sampler::new(rate, 7);
            for size in [0, 1, u64::MAX, u64::MAX - 1, 1 << 62, i64::MAX as u64] {
                for _ in 0..3 {
                    sampler.take(size);
                }
            }
        }
    }
}
