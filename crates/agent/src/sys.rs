//! The few system calls that the agent makes, without the C library (whose
//! wrappers would touch errno).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use highwater_event::layout::{OWN_CAP, Own};

use crate::arch::{nr, syscall6};

/// `EAGAIN`
pub const EAGAIN: isize = -11;
/// `EFAULT`
pub const EFAULT: isize = -14;

const PROT_READ_WRITE: usize = 3;
const MAP_SHARED: usize = 1;
const MAP_PRIVATE_ANON_NORESERVE: usize = 0x2 | 0x20 | 0x4000;
const O_RDWR_CLOEXEC: usize = 0o2 | 0o2000000;
const O_RDONLY_CLOEXEC: usize = 0o2000000;
const AT_FDCWD: usize = -100isize as usize;

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;

/// `MADV_DONTDUMP`: keep out of core files.
pub const MADV_DONTDUMP: usize = 16;
/// `MADV_WIPEONFORK`: zeros in a child.
pub const MADV_WIPEONFORK: usize = 18;

/// Seconds and nanoseconds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds.
    pub nsec: i64,
}

macro_rules! call {
    ($nr:expr $(, $arg:expr)* $(,)?) => { call!(@ [$nr $(, $arg as usize)*] 0, 0, 0, 0, 0, 0) };
    (@ [$nr:expr] $($z:expr),*) => { syscall6($nr, 0, 0, 0, 0, 0, 0) };
    (@ [$nr:expr, $a:expr] $($z:expr),*) => { syscall6($nr, $a, 0, 0, 0, 0, 0) };
    (@ [$nr:expr, $a:expr, $b:expr] $($z:expr),*) => { syscall6($nr, $a, $b, 0, 0, 0, 0) };
    (@ [$nr:expr, $a:expr, $b:expr, $c:expr] $($z:expr),*) => { syscall6($nr, $a, $b, $c, 0, 0, 0) };
    (@ [$nr:expr, $a:expr, $b:expr, $c:expr, $d:expr] $($z:expr),*) => { syscall6($nr, $a, $b, $c, $d, 0, 0) };
    (@ [$nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr] $($z:expr),*) => { syscall6($nr, $a, $b, $c, $d, $e, 0) };
    (@ [$nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr] $($z:expr),*) => { syscall6($nr, $a, $b, $c, $d, $e, $f) };
}
pub(crate) use call;

/// Opens for reading and writing; `-errno` on failure.
pub fn open_rw(path: &[u8]) -> isize {
    debug_assert_eq!(path.last(), Some(&0));
    // SAFETY: a zero-terminated path.
    unsafe { call!(nr::OPENAT, AT_FDCWD, path.as_ptr(), O_RDWR_CLOEXEC, 0) }
}

/// Opens for reading; `-errno` on failure.
pub fn open_ro(path: &[u8]) -> isize {
    debug_assert_eq!(path.last(), Some(&0));
    // SAFETY: a zero-terminated path.
    unsafe { call!(nr::OPENAT, AT_FDCWD, path.as_ptr(), O_RDONLY_CLOEXEC, 0) }
}

/// Closes a descriptor of ours.
pub fn close(fd: isize) {
    // SAFETY: the descriptor is ours.
    unsafe { call!(nr::CLOSE, fd) };
}

/// Reads; `-errno` on failure.
pub fn read(fd: isize, buffer: &mut [u8]) -> isize {
    // SAFETY: the buffer is ours.
    unsafe { call!(nr::READ, fd, buffer.as_mut_ptr(), buffer.len()) }
}

/// Reads a link's text.
pub fn readlink(path: &[u8], buffer: &mut [u8]) -> isize {
    debug_assert_eq!(path.last(), Some(&0));
    // SAFETY: a zero-terminated path and a buffer of ours.
    unsafe { call!(nr::READLINK, path.as_ptr(), buffer.as_mut_ptr(), buffer.len()) }
}

/// Maps a file shared, from its start.
pub fn map_shared(fd: isize, len: usize) -> Option<*mut u8> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    mapped(unsafe { call!(nr::MMAP, 0, len, PROT_READ_WRITE, MAP_SHARED, fd, 0) })
}

/// A cache line for one thing alone, so that nobody who reads it waits for those
/// who write its neighbours.
#[repr(C, align(64))]
pub struct Line<T>(pub T);

/// Maps zeroed private memory, without a claim on swap.
pub fn map_private(len: usize) -> Option<*mut u8> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = mapped(unsafe {
        call!(nr::MMAP, 0, len, PROT_READ_WRITE, MAP_PRIVATE_ANON_NORESERVE, usize::MAX, 0)
    })?;
    let index = OWN.count.fetch_add(1, Relaxed) as usize;
    if let Some([start, length]) = OWN.ranges.get(index) {
        start.store(at as u64, Relaxed);
        length.store(len as u64, Release);
    }
    Some(at)
}

/// What [`map_private`] has mapped, unmapped since or not.
pub static OWN: Own =
    Own { count: AtomicU64::new(0), ranges: [const { [const { AtomicU64::new(0) }; 2] }; OWN_CAP] };

fn mapped(result: isize) -> Option<*mut u8> {
    if (-4095..0).contains(&result) { None } else { Some(result as *mut u8) }
}

/// Removes a mapping of ours.
///
/// # Safety
/// Nothing refers to it any more.
pub unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { call!(nr::MUNMAP, at, len) };
}

/// Advises about a mapping of ours; `-errno` on failure.
pub fn madvise(at: *mut u8, len: usize, advice: usize) -> isize {
    // SAFETY: the advices used here change no contents of this process.
    unsafe { call!(nr::MADVISE, at, len, advice) }
}

/// The process id.
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(nr::GETPID) as u32 }
}

/// The thread id.
pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { call!(nr::GETTID) as u32 }
}

/// The thread's name.
pub fn thread_name() -> [u64; 2] {
    const PR_GET_NAME: usize = 16;
    let mut name = [0u64; 2];
    // SAFETY: the kernel writes 16 bytes.
    unsafe { call!(nr::PRCTL, PR_GET_NAME, name.as_mut_ptr(), 0, 0, 0) };
    name
}

/// CLOCK_MONOTONIC, ns.
pub fn monotonic_ns() -> u64 {
    let mut time = Timespec { sec: 0, nsec: 0 };
    // SAFETY: the kernel writes a timespec.
    unsafe { call!(nr::CLOCK_GETTIME, 1, &raw mut time) };
    time.sec as u64 * 1_000_000_000 + time.nsec as u64
}

/// Sleeps while `*word == value`, at most `ns` nanoseconds.
pub fn futex_wait(word: &AtomicU32, value: u32, ns: u64) {
    let timeout = Timespec { sec: (ns / 1_000_000_000) as i64, nsec: (ns % 1_000_000_000) as i64 };
    // SAFETY: the word outlives the call.
    unsafe { call!(nr::FUTEX, word.as_ptr(), FUTEX_WAIT, value, &raw const timeout, 0, 0) };
}

/// Wakes everyone who sleeps on `word`.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe { call!(nr::FUTEX, word.as_ptr(), FUTEX_WAKE, i32::MAX, 0, 0, 0) };
}

/// Lets another thread run.
pub fn yield_now() {
    // SAFETY: no arguments.
    unsafe { call!(nr::SCHED_YIELD) };
}

/// Can eight bytes at `address` be read? Asked of the kernel: a call that first
/// copies the bytes and then refuses its nonsensical first argument.
pub fn readable(address: u64) -> bool {
    // SAFETY: the `how` value is invalid, so the mask is never changed.
    unsafe { call!(nr::RT_SIGPROCMASK, usize::MAX, address, 0, 8) != EFAULT }
}

/// Ends the process.
pub fn exit_group(code: i32) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { call!(nr::EXIT_GROUP, code) };
    }
}

/// Ends the process where a debugger sees it.
pub fn abort() -> ! {
    loop {
        // SAFETY: SIGABRT to ourselves.
        unsafe {
            call!(nr::KILL, getpid(), 6);
            call!(nr::EXIT_GROUP, 134);
        }
    }
}
