//! Source files: where they are here, and what a line of them says.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::sync::Arc;

/// A longer "source file" is not read.
const SIZE_LIMIT: u64 = 64 << 20;
/// Texts are kept up to this many bytes in all; then all are dropped.
const CACHE_LIMIT: usize = 128 << 20;

/// The path a source file has here: the first prefix that fits is replaced.
pub(crate) fn remap(path: &str, maps: &[(String, String)]) -> String {
    for (from, to) in maps {
        let Some(rest) = path.strip_prefix(from.as_str()) else { continue };
        if rest.is_empty() || rest.starts_with('/') || from.ends_with('/') || from.is_empty() {
            return format!("{to}{rest}");
        }
    }
    path.to_owned()
}

/// Drops `.` components and doubled slashes, so that one file has one name.
/// `..` stays: with a symbolic link before it, it cannot be worked out here.
pub(crate) fn tidy(path: &str) -> String {
    if !path.contains("/./") && !path.contains("//") && !path.starts_with("./") {
        return path.to_owned();
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// Texts of source files.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// By path; `None` if there is no such text.
    texts: HashMap<Arc<str>, Option<Text>>,
    size: usize,
}

#[derive(Debug)]
struct Text {
    bytes: Vec<u8>,
    /// Where each line starts.
    starts: Vec<usize>,
}

impl Sources {
    /// Line `line`, counted from 1, without its end.
    pub(crate) fn line(&mut self, path: &str, line: u32) -> Option<String> {
        if !self.texts.contains_key(path) {
            let text = Text::read(path);
            self.size += text.as_ref().map_or(0, |t| t.bytes.len());
            if self.size > CACHE_LIMIT {
                self.texts.clear();
                self.size = text.as_ref().map_or(0, |t| t.bytes.len());
            }
            self.texts.insert(Arc::from(path), text);
        }
        self.texts.get(path)?.as_ref()?.line(line)
    }
}

impl Text {
    fn read(path: &str) -> Option<Text> {
        // A path out of a stranger's DWARF may name a device.
        let meta = fs::metadata(path).ok()?;
        if !meta.is_file() || meta.len() > SIZE_LIMIT {
            return None;
        }
        let mut bytes = Vec::new();
        fs::File::open(path).ok()?.take(SIZE_LIMIT).read_to_end(&mut bytes).ok()?;
        let ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(ends).collect();
        Some(Text { bytes, starts })
    }

    fn line(&self, line: u32) -> Option<String> {
        let index = (line as usize).checked_sub(1)?;
        let start = *self.starts.get(index)?;
        let end = self.starts.get(index + 1).copied().unwrap_or(self.bytes.len());
        if start == self.bytes.len() {
            return None;
        }
        let text = String::from_utf8_lossy(self.bytes.get(start..end)?);
        Some(text.trim_end_matches(['\n', '\r']).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_a_slash_and_the_first_wins() {
        let maps = [("/build".into(), "/home/me".into()), ("/build/x".into(), "/never".into())];
        assert_eq!(remap("/build/x/a.c", &maps), "/home/me/x/a.c");
        assert_eq!(remap("/builder/a.c", &maps), "/builder/a.c");
        assert_eq!(remap("/build", &maps), "/home/me");
        assert_eq!(remap("/rustc/1/library/a.rs", &[("/rustc/1/".into(), "/r/".into())]), "/r/library/a.rs");
    }

    #[test]
    fn one_file_has_one_name() {
        assert_eq!(tidy("/a/./b//c.c"), "/a/b/c.c");
        assert_eq!(tidy("./b.c"), "b.c");
        assert_eq!(tidy("/a/../b.c"), "/a/../b.c");
    }

    #[test]
    fn lines_count_from_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.c");
        fs::write(&path, b"one\r\n\nthr\xffee\n").unwrap();
        let path = path.to_str().unwrap();
        let mut sources = Sources::default();
        assert_eq!(sources.line(path, 1).as_deref(), Some("one"));
        assert_eq!(sources.line(path, 2).as_deref(), Some(""));
        assert_eq!(sources.line(path, 3).as_deref(), Some("thr\u{fffd}ee"));
        assert_eq!(sources.line(path, 4), None);
        assert_eq!(sources.line(path, 0), None);
        assert_eq!(sources.line("/dev/zero", 1), None);
        assert_eq!(sources.line("/no/such/file", 1), None);
    }
}
