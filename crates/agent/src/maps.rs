//! `/proc/self/maps`, read without a C library: the way to learn where an
//! object lies when the C library has no `_dl_find_object` (musl, old glibc).

use crate::sys;

/// A file mapped around an address.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// Where byte 0 of the file is mapped.
    pub start: u64,
    /// One past the end of its last adjacent mapping.
    pub end: u64,
    /// Bytes of the path.
    pub path_len: usize,
    /// The path.
    pub path: [u8; 512],
}

#[derive(Clone, Copy, Default)]
struct Line {
    start: u64,
    end: u64,
    offset: u64,
    inode: u64,
}

/// The file mapping that holds `address`, if any.
///
/// The mappings of one object follow each other; the run that shares the inode
/// and holds the address is it.
#[cold]
pub fn find(address: u64) -> Option<Mapped> {
    let fd = sys::open_ro(b"/proc/self/maps\0");
    if fd < 0 {
        return None;
    }
    let found = scan(fd, address);
    sys::close(fd);
    found
}

fn scan(fd: isize, address: u64) -> Option<Mapped> {
    let mut buffer = [0u8; 4096];
    let (mut filled, mut at) = (0usize, 0usize);
    let mut run = Mapped { start: 0, end: 0, path_len: 0, path: [0; 512] };
    let mut inode = 0;
    let mut hit = false;
    loop {
        let line_end = loop {
            if let Some(i) = buffer.get(at..filled)?.iter().position(|&b| b == b'\n') {
                break Some(at + i);
            }
            // Move the rest to the front and read on.
            buffer.copy_within(at..filled, 0);
            filled -= at;
            at = 0;
            if filled == buffer.len() {
                // A path longer than the buffer: drop its head, keep its end.
                filled = 0;
            }
            let n = sys::read(fd, &mut buffer[filled..]);
            if n <= 0 {
                break None;
            }
            filled += n as usize;
        };
        let Some(line_end) = line_end else { break };
        let text = &buffer[at..line_end];
        at = line_end + 1;
        let Some((line, path)) = parse(text) else { continue };
        if line.inode != 0 && line.inode == inode && line.start >= run.end && line.start - run.end < 1 << 32 {
            run.end = line.end;
        } else {
            if hit {
                break;
            }
            inode = line.inode;
            if inode == 0 {
                continue;
            }
            if line.offset != 0 {
                inode = 0;
                continue;
            }
            run.start = line.start;
            run.end = line.end;
            run.path_len = path.len().min(run.path.len());
            run.path[..run.path_len].copy_from_slice(&path[..run.path_len]);
        }
        hit |= address >= line.start && address < line.end;
    }
    hit.then_some(run)
}

/// `start-end perms offset dev inode path`
fn parse(text: &[u8]) -> Option<(Line, &[u8])> {
    let mut at = 0;
    let start = number(text, &mut at, 16)?;
    at += 1;
    let end = number(text, &mut at, 16)?;
    at += 1 + 4 + 1;
    let offset = number(text, &mut at, 16)?;
    at += 1;
    while *text.get(at)? != b' ' {
        at += 1;
    }
    at += 1;
    let inode = number(text, &mut at, 10)?;
    while text.get(at) == Some(&b' ') {
        at += 1;
    }
    Some((Line { start, end, offset, inode }, text.get(at..).unwrap_or(&[])))
}

fn number(text: &[u8], at: &mut usize, base: u64) -> Option<u64> {
    let from = *at;
    let mut value = 0u64;
    while let Some(&byte) = text.get(*at) {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' if base == 16 => byte - b'a' + 10,
            _ => break,
        };
        value = value.wrapping_mul(base).wrapping_add(u64::from(digit));
        *at += 1;
    }
    (*at > from).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_program_finds_itself() {
        let here = find(the_test_program_finds_itself as *const () as u64).unwrap();
        // SAFETY: byte 0 of a mapped ELF file.
        assert_eq!(unsafe { *(here.start as *const [u8; 4]) }, *b"\x7fELF");
        let path = &here.path[..here.path_len];
        assert!(std::str::from_utf8(path).unwrap().contains("highwater_agent"));
        let local = 0u64;
        assert!(find(&raw const local as u64).is_none());
    }

    #[test]
    fn a_line_of_maps_is_read() {
        let (line, path) =
            parse(b"7f00-7fff r-xp 00001000 fe:00 1234                       /lib/a b.so").unwrap();
        assert_eq!((line.start, line.end, line.offset, line.inode), (0x7f00, 0x7fff, 0x1000, 1234));
        assert_eq!(path, b"/lib/a b.so");
        assert!(parse(b"nonsense").is_none());
    }
}
