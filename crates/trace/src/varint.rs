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
    pub fn u64(&mut self) -> Option<u64> {
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
