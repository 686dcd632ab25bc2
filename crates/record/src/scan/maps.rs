//! `/proc/PID/maps`.

/// A mapping of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub exec: bool,
    /// Writes are seen by others.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// The file's inode, 0 without a file.
    pub inode: u64,
    /// The file, or a name of the kernel's like `[heap]`; may be empty.
    pub path: String,
}

impl Mapping {
    /// Holds this address.
    pub fn holds(&self, addr: u64) -> bool {
        (self.start..self.end).contains(&addr)
    }

    /// Belongs to no file and has no special name.
    pub fn is_anonymous(&self) -> bool {
        self.inode == 0 && (self.path.is_empty() || self.path.starts_with("[anon"))
    }
}

/// The mappings in the text of a maps file; lines that make no sense are passed over.
pub fn parse(text: &[u8]) -> Vec<Mapping> {
    text.split(|&byte| byte == b'\n').filter_map(|line| parse_line(&String::from_utf8_lossy(line))).collect()
}

fn parse_line(line: &str) -> Option<Mapping> {
    // start-end perms offset dev inode          path
    let mut rest = line;
    let mut field = || {
        rest = rest.trim_start_matches(' ');
        let (field, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
        rest = after;
        field
    };
    let (start, end) = field().split_once('-')?;
    let permissions = field().as_bytes();
    let offset = field();
    let _device = field();
    let inode = field().parse().ok()?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        read: permissions.first() == Some(&b'r'),
        write: permissions.get(1) == Some(&b'w'),
        exec: permissions.get(2) == Some(&b'x'),
        shared: permissions.get(3) == Some(&b's'),
        offset: hex(offset)?,
        inode,
        path: rest.trim_start_matches(' ').to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_blanks_in_the_path_and_without_a_path_are_read() {
        let text = b"55d0-55d8 r-xp 00001000 fe:01 123                /a b/c d\n7f00-7f10 rw-p 00000000 00:00 0 \n\
            7ff0-7ff8 rw-s 00000000 00:05 9 /memfd:x (deleted)\nnonsense\n8000-9000 ---p 00000000 00:00 0 [x]\n";
        let maps = parse(text);
        assert_eq!(maps.len(), 4);
        assert_eq!(
            (maps[0].start, maps[0].end, maps[0].offset, maps[0].inode),
            (0x55d0, 0x55d8, 0x1000, 123)
        );
        assert!(maps[0].read && !maps[0].write && maps[0].exec && !maps[0].shared);
        assert_eq!(maps[0].path, "/a b/c d");
        assert!(maps[1].is_anonymous() && maps[1].write && maps[1].holds(0x7f0f) && !maps[1].holds(0x7f10));
        assert!(maps[2].shared && maps[2].path == "/memfd:x (deleted)");
        assert!(!maps[3].read && !maps[3].is_anonymous());
    }

    #[test]
    fn our_own_mappings_hold_our_own_things() {
        let maps = parse(&std::fs::read("/proc/self/maps").unwrap());
        let local = 0u64;
        let at = |addr: u64| maps.iter().find(|mapping| mapping.holds(addr)).unwrap();
        assert!(at(&raw const local as u64).write);
        assert!(at(parse as *const () as u64).exec);
    }
}
