//! Numbers of variable length: seven bits a byte, the low ones first, the top
//! bit set on all bytes but the last (LEB128).

/// Appends `value`.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a number that may be negative, as zigzag.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The low seven bits of each byte, side by side.
#[inline]
const fn sevens(word: u64) -> u64 {
    let pairs = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    (fours & 0x0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4
}

/// Several numbers that go to the end of a list of bytes all at once.
pub(crate) struct Few {
    bytes: [u8; Self::ROOM],
    len: usize,
}

impl Few {
    /// Bytes that eight numbers take at most.
    const ROOM: usize = 80;

    pub(crate) fn new() -> Few {
        Few { bytes: [0; Self::ROOM], len: 0 }
    }

    #[inline]
    pub(crate) fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    #[inline]
    pub(crate) fn put_signed(&mut self, value: i64) {
        self.put(((value << 1) ^ (value >> 63)) as u64);
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    /// The bytes so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Reads from the front of a slice. `None` means that the bytes end too early
/// or hold a number that does not fit.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads these.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    /// Is all read?
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    /// The next number.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        // Most are of at most eight bytes, which are put together all at once.
        if let Some(bytes) = self.bytes.first_chunk::<8>() {
            let word = u64::from_le_bytes(*bytes);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let len = ends.trailing_zeros() as usize / 8 + 1;
                self.bytes = self.bytes.get(len..).unwrap_or_default();
                return Some(sevens(word & (u64::MAX >> (64 - 8 * len))));
            }
        }
        self.long()
    }

    /// The next number, byte by byte.
    fn long(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The next number of those that may be negative.
    pub fn i64(&mut self) -> Option<i64> {
        let value = self.u64()?;
        Some(((value >> 1) as i64) ^ -((value & 1) as i64))
    }

    /// The next number, if it fits.
    pub fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.u64()?).ok()
    }

    /// The next number, if it fits.
    pub fn u16(&mut self) -> Option<u16> {
        u16::try_from(self.u64()?).ok()
    }

    /// A length and so many bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u64()?).ok()?;
        let (taken, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(taken)
    }

    /// A text; bytes that are not UTF-8 are replaced.
    pub fn text(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_same_at_once_and_byte_by_byte() {
        let mut random = 9u64;
        for round in 0..200_000u32 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let bytes = [random, random.rotate_left(29) ^ u64::from(round)].map(u64::to_le_bytes).concat();
            // Any bytes, also those that are no number, and with few behind them.
            let bytes = &bytes[..1 + round as usize % 16];
            let (mut once, mut long) = (Reader::new(bytes), Reader::new(bytes));
            let (a, b) = (once.u64(), long.long());
            assert_eq!(a, b, "{bytes:x?}");
            if a.is_some() {
                assert_eq!(once.remaining(), long.remaining(), "{bytes:x?}");
            }
            let value = random >> (round % 64);
            let (mut few, mut plain) = (Few::new(), Vec::new());
            for value in [value, 5, u64::MAX, value] {
                few.put(value);
                few.put_signed(value as i64);
                put(&mut plain, value);
                put_signed(&mut plain, value as i64);
            }
            assert_eq!(few.bytes(), plain);
            let mut reader = Reader::new(&plain);
            assert_eq!((reader.u64(), reader.i64()), (Some(value), Some(value as i64)));
        }
    }

    #[test]
    fn numbers_round_trip_and_cuts_are_seen() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(Reader::new(&out).u64(), Some(value));
            assert_eq!(Reader::new(&out[..out.len() - 1]).u64(), None);
            let mut out = Vec::new();
            put_signed(&mut out, value as i64);
            assert_eq!(Reader::new(&out).i64(), Some(value as i64));
        }
        assert_eq!(Reader::new(&[0xff; 10]).u64(), None, "does not fit 64 bits");
        assert_eq!(Reader::new(&[5, 1, 2]).bytes(), None, "shorter than its length says");
    }
}
