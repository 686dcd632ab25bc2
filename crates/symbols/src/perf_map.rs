//! `/tmp/perf-PID.map`: the names of code that a JIT made.
//!
//! One line a function, `START SIZE NAME`, numbers in hex, appended as code is
//! made; a later line takes the place of what it overlaps, because a JIT uses
//! its memory again. The format is the Linux kernel's
//! (`tools/perf/Documentation/jit-interface.txt`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

/// No more than this is read of a map.
const SIZE_LIMIT: u64 = 256 << 20;

/// A map that is read when it is first asked, and again when it has grown.
#[derive(Debug)]
pub(crate) struct PerfMap {
    path: PathBuf,
    /// Length of the file when it was read; `None` before the first time.
    read: Option<u64>,
    ranges: Ranges,
}

impl PerfMap {
    /// Reads nothing yet.
    pub(crate) fn new(path: PathBuf) -> PerfMap {
        PerfMap { path, read: None, ranges: Ranges::default() }
    }

    /// Reads the file if it changed its length; says whether it did.
    pub(crate) fn refresh(&mut self) -> bool {
        let Ok(meta) = fs::metadata(&self.path) else { return false };
        // A FIFO in /tmp would block us.
        if !meta.is_file() || self.read == Some(meta.len()) {
            return false;
        }
        self.read = Some(meta.len());
        let mut text = Vec::new();
        let Ok(file) = fs::File::open(&self.path) else { return false };
        if file.take(SIZE_LIMIT).read_to_end(&mut text).is_err() {
            return false;
        }
        self.ranges = Ranges::parse(&text);
        true
    }

    /// Start and name of the function at an address.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, Arc<str>)> {
        self.ranges.find(address)
    }
}

/// Disjoint ranges by their start. What is left of a range that a later one cut
/// in two keeps the function's own start.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, Range>);

#[derive(Clone, Debug)]
struct Range {
    end: u64,
    function: u64,
    name: Arc<str>,
}

impl Ranges {
    fn parse(text: &[u8]) -> Ranges {
        let mut ranges = Ranges::default();
        for line in text.split(|&b| b == b'\n') {
            let line = String::from_utf8_lossy(line);
            let mut parts = line.trim_end().splitn(3, ' ');
            let (Some(start), Some(size), Some(name)) =
                (parts.next().and_then(number), parts.next().and_then(number), parts.next())
            else {
                continue;
            };
            let end = start.saturating_add(size);
            if start < end && !name.is_empty() {
                ranges.insert(start, Range { end, function: start, name: Arc::from(name) });
            }
        }
        ranges
    }

    fn insert(&mut self, start: u64, range: Range) {
        if let Some((&before, old)) = self.0.range_mut(..start).next_back()
            && old.end > start
        {
            let rest = Range { end: old.end, ..old.clone() };
            old.end = start;
            debug_assert!(before < start);
            if rest.end > range.end {
                self.0.insert(range.end, rest);
            }
        }
        while let Some((&at, old)) = self.0.range(start..range.end).next() {
            let old = old.clone();
            self.0.remove(&at);
            if old.end > range.end {
                self.0.insert(range.end, old);
            }
        }
        self.0.insert(start, range);
    }

    fn find(&self, address: u64) -> Option<(u64, Arc<str>)> {
        let (_, range) = self.0.range(..=address).next_back()?;
        (address < range.end).then(|| (range.function, Arc::clone(&range.name)))
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // `from_str_radix` would take a sign.
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(ranges: &Ranges, address: u64) -> Option<(u64, String)> {
        ranges.find(address).map(|(start, name)| (start, name.to_string()))
    }

    #[test]
    fn names_may_hold_spaces_and_bad_lines_are_skipped() {
        let r = Ranges::parse(
            b"1000 20 LazyCompile:~f x.js:1\nbad\n\n2000 zz g\n+3 1 h\n0x3000 0x10 k\n4000 0 z\n5000 1",
        );
        assert_eq!(name(&r, 0x101f), Some((0x1000, "LazyCompile:~f x.js:1".into())));
        assert_eq!(name(&r, 0x1020), None);
        assert_eq!(name(&r, 0x3000), Some((0x3000, "k".into())));
        assert_eq!(r.0.len(), 2);
    }

    #[test]
    fn later_lines_replace_what_they_overlap() {
        let r = Ranges::parse(b"1000 100 old\n1040 20 new\n2000 10 a\n2020 10 b\n1ff0 38 all\n");
        assert_eq!(name(&r, 0x103f), Some((0x1000, "old".into())));
        assert_eq!(name(&r, 0x1040), Some((0x1040, "new".into())));
        assert_eq!(name(&r, 0x1060), Some((0x1000, "old".into())), "what is left behind the hole");
        assert_eq!(name(&r, 0x2005), Some((0x1ff0, "all".into())));
        assert_eq!(name(&r, 0x2029), Some((0x2020, "b".into())));
        let end = Ranges::parse(b"ffffffffffffffff 10 z\nfffffffffffffff0 ff y\n");
        assert_eq!(name(&end, u64::MAX - 1), Some((0xffff_ffff_ffff_fff0, "y".into())));
    }

    #[test]
    fn a_map_that_grew_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perf-1.map");
        let mut map = PerfMap::new(path.clone());
        assert!(!map.refresh(), "not there");
        fs::write(&path, "10 10 a\n").unwrap();
        assert!(map.refresh());
        assert!(!map.refresh());
        assert_eq!(map.find(0x20), None);
        fs::write(&path, "10 10 a\n20 10 b\n").unwrap();
        assert!(map.refresh());
        assert_eq!(map.find(0x20).unwrap().1, "b".into());
    }
}
