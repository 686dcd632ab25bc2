//! The memory of the target, read from outside.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use highwater_replay::reach::Memory;

const PAGE: u64 = 4096;
/// Entries of the page map that are read at a time.
const ENTRIES: usize = 64 << 10;

/// A process whose threads stand still.
pub struct Target {
    pid: u32,
    /// `/proc/PID/pagemap`: which pages are there at all. Pages that were never
    /// touched are not read: that would make the kernel provide them.
    pages: Option<File>,
    /// `/proc/PID/mem`, for where the system call is forbidden.
    mem: Option<File>,
    /// Ranges of which every page is read: a shared page may be in the file
    /// while it is in no page table of the target.
    whole: Vec<(u64, u64)>,
    /// Ranges of loaded objects outside of their code.
    objects: Vec<(u64, u64)>,
    deadline: Instant,
    /// Set when the target is gone or the time is up: what is read from then on
    /// means nothing.
    pub stop: AtomicBool,
}

impl Target {
    /// Opens what there is to open.
    pub fn new(pid: u32, deadline: Instant) -> Target {
        Target {
            pid,
            pages: File::open(format!("/proc/{pid}/pagemap")).ok(),
            mem: File::open(format!("/proc/{pid}/mem")).ok(),
            whole: Vec::new(),
            objects: Vec::new(),
            deadline,
            stop: AtomicBool::new(false),
        }
    }

    /// Says what is where; sorted by address.
    pub fn set_ranges(&mut self, whole: Vec<(u64, u64)>, objects: Vec<(u64, u64)>) {
        (self.whole, self.objects) = (whole, objects);
    }

    /// One word.
    pub fn word(&self, addr: u64) -> u64 {
        let mut word = [0];
        self.read(addr & !7, &mut word);
        word[0]
    }

    /// Can memory of the target be read at all? Asked once, before a scan: what
    /// cannot be read later is zeros.
    pub fn is_readable(&self, addr: u64) -> bool {
        let mut byte = [0u64; 1];
        self.copy(addr & !7, &mut byte) > 0
    }

    /// The parts of `start..end` that are there, in order.
    pub fn present(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut at = start & !(PAGE - 1);
        let mut entries = vec![0u8; ENTRIES * 8];
        while at < end {
            let want = ((end - at).div_ceil(PAGE) as usize).min(ENTRIES);
            let known = self.entries(at, entries.get_mut(..want * 8).unwrap_or_default());
            for i in 0..want {
                let page = at + i as u64 * PAGE;
                if !known || is_present(&entries, i) {
                    let (from, to) = (page.max(start), (page + PAGE).min(end));
                    match runs.last_mut() {
                        Some(last) if last.1 == from => last.1 = to,
                        _ => runs.push((from, to)),
                    }
                }
            }
            at += want as u64 * PAGE;
        }
        runs
    }

    /// Reads entries of the page map; false if it is not to be had.
    fn entries(&self, addr: u64, entries: &mut [u8]) -> bool {
        self.pages.as_ref().is_some_and(|file| file.read_exact_at(entries, addr / PAGE * 8).is_ok())
    }

    /// Copies as much as can be read without a gap; the bytes copied.
    fn copy(&self, addr: u64, words: &mut [u64]) -> usize {
        let len = size_of_val(words);
        let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: len };
        let remote = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: len };
        // SAFETY: the local buffer is ours and as long as said; the kernel checks the other.
        let done = unsafe { libc::process_vm_readv(self.pid as i32, &local, 1, &remote, 1, 0) };
        if done > 0 {
            return done as usize;
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ESRCH) => self.stop.store(true, Relaxed),
            Some(libc::EPERM | libc::ENOSYS) => return self.copy_from_file(addr, words),
            _ => {}
        }
        0
    }

    #[cold]
    fn copy_from_file(&self, addr: u64, words: &mut [u64]) -> usize {
        let mut bytes = vec![0u8; size_of_val(words)];
        let done = self.mem.as_ref().and_then(|file| file.read_at(&mut bytes, addr).ok()).unwrap_or(0);
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.try_into().map_or(0, u64::from_le_bytes);
        }
        done
    }

    /// Copies a run of pages; pages that cannot be read stay zeros.
    fn run(&self, mut addr: u64, mut words: &mut [u64]) {
        while !words.is_empty() && !self.stop.load(Relaxed) {
            let done = self.copy(addr, words);
            // Behind what was read there is a page that cannot be.
            let bytes = size_of_val(words) as u64;
            let skip = ((addr + done as u64) / PAGE + 1) * PAGE - addr;
            let next = if done as u64 >= bytes { bytes } else { skip.min(bytes) };
            words = words.get_mut((next / 8) as usize..).unwrap_or_default();
            addr += next;
        }
    }
}

fn is_present(entries: &[u8], index: usize) -> bool {
    // Bit 63: in memory; bit 62: swapped out.
    entries.get(index * 8 + 7).is_some_and(|top| top & 0xc0 != 0)
}

/// Is the address in one of these ranges, which are sorted and do not overlap?
pub fn within(ranges: &[(u64, u64)], addr: u64) -> bool {
    let after = ranges.partition_point(|range| range.0 <= addr);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|range| addr < range.1)
}

impl Memory for Target {
    fn read(&self, addr: u64, words: &mut [u64]) {
        words.fill(0);
        if words.is_empty() {
            return;
        }
        if Instant::now() > self.deadline {
            self.stop.store(true, Relaxed);
            return;
        }
        let end = addr + size_of_val(words) as u64;
        if within(&self.whole, addr) && within(&self.whole, end - 1) {
            return self.run(addr, words);
        }
        let first = addr / PAGE * PAGE;
        let count = ((end - first).div_ceil(PAGE)) as usize;
        let mut entries = [0u8; 512 * 8];
        let Some(entries) = entries.get_mut(..count * 8).filter(|_| count <= 512) else {
            // Longer than anybody reads at a time.
            return self.run(addr, words);
        };
        if !self.entries(first, entries) {
            return self.run(addr, words);
        }
        let mut at = 0;
        while at < count {
            if !is_present(entries, at) {
                at += 1;
                continue;
            }
            let from = at;
            while at < count && is_present(entries, at) {
                at += 1;
            }
            let start = (first + from as u64 * PAGE).max(addr);
            let stop = (first + at as u64 * PAGE).min(end);
            let range = ((start - addr) / 8) as usize..((stop - addr) / 8) as usize;
            self.run(start, words.get_mut(range).unwrap_or_default());
        }
    }

    fn in_object(&self, addr: u64) -> bool {
        within(&self.objects, addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn own() -> Target {
        Target::new(std::process::id(), Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn memory_is_read_and_holes_are_zeros() {
        // SAFETY: a new mapping of 64 pages, of which one in the middle goes.
        let base = unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                64 * 4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
            .cast::<u64>();
            for page in [0usize, 1, 9, 10] {
                base.add(page * 512 + 7).write(page as u64 + 100);
            }
            libc::munmap(base.add(5 * 512).cast(), 4096);
            base
        };
        let target = own();
        let mut words = vec![1u64; 64 * 512];
        target.read(base as u64, &mut words);
        for (i, &word) in words.iter().enumerate() {
            let want = match i {
                7 | 519 | 4615 | 5127 => i as u64 / 512 + 100,
                _ => 0,
            };
            assert_eq!(word, want, "word {i}");
        }
        let base = base as u64;
        assert_eq!(
            target.present(base + 8, base + 64 * 4096),
            [(base + 8, base + 2 * 4096), (base + 9 * 4096, base + 11 * 4096)],
            "and reading has made no page"
        );
        assert_eq!(target.word(base + 9 * 4096 + 56), 109);
        assert!(target.is_readable(base) && !target.is_readable(base + 5 * 4096));
        // SAFETY: the mapping of above.
        unsafe { libc::munmap(base as *mut libc::c_void, 64 * 4096) };
    }

    #[test]
    fn a_process_that_is_gone_or_a_time_that_is_up_stops_the_scan() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let target = Target::new(pid, Instant::now() + Duration::from_secs(60));
        target.read(4096, &mut [0]);
        assert!(target.stop.load(Relaxed));
        let late = Target::new(std::process::id(), Instant::now() - Duration::from_millis(1));
        let word = 5u64;
        assert_eq!(late.word(&raw const word as u64), 0);
        assert!(late.stop.load(Relaxed));
    }
}
