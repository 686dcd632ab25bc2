//! x86-64: thread-local storage, the stamp, system calls, and the layout of
//! the frame that the kernel pushes for a signal handler.

use core::arch::{asm, global_asm};

// One pointer of initial-exec TLS. Declared here since stable Rust has no TLS
// without std, and std's would be general-dynamic: its first use may allocate.
global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".balign 8",
    ".type highwater_thread,@object",
    ".size highwater_thread,8",
    ".hidden highwater_thread",
    "highwater_thread:",
    ".zero 8",
    ".text",
);

/// The calling thread's own word, zero in a new thread.
#[inline(always)]
pub fn thread_word() -> usize {
    let value: usize;
    // SAFETY: reads eight bytes of this thread's static TLS block.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + highwater_thread@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) value,
            options(nostack, preserves_flags, readonly),
        );
    }
    value
}

/// Sets the calling thread's own word.
#[inline(always)]
pub fn set_thread_word(value: usize) {
    // SAFETY: writes eight bytes of this thread's static TLS block, which
    // nothing else refers to.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + highwater_thread@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// The stack pointer.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let value: u64;
    // SAFETY: copies a register.
    unsafe { asm!("mov {}, rsp", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The stamp: the time-stamp counter, unfenced.
#[inline(always)]
pub fn stamp() -> u64 {
    // SAFETY: rdtsc is there on every x86-64 and needs no privilege on Linux.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The stamp, read after everything before it is done. The processor may
/// otherwise read the counter hundreds of nanoseconds early: even before it
/// knows which block another thread has handed over, so that the free of that
/// block would seem to come before its allocation.
///
/// `rdtscp`, which this processor [has](has_rdtscp) if it is said so, waits for
/// that by itself, and lets what follows begin meanwhile.
#[inline(always)]
pub fn ordered_stamp(rdtscp: bool) -> u64 {
    // SAFETY: as stamp(); lfence is part of SSE2, rdtscp is there by the caller's word.
    unsafe {
        if rdtscp {
            return core::arch::x86_64::__rdtscp(&mut 0);
        }
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

/// Has this processor `rdtscp`?
#[cold]
pub fn has_rdtscp() -> bool {
    use core::arch::x86_64::__cpuid;
    const EXTENDED: u32 = 0x8000_0001;
    __cpuid(0x8000_0000).eax >= EXTENDED && __cpuid(EXTENDED).edx & 1 << 27 != 0
}

/// A raw system call. Returns the kernel's value: `-errno` on failure.
///
/// # Safety
/// As the system call's own contract.
#[inline(always)]
pub unsafe fn syscall6(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let result: isize;
    // SAFETY: the kernel keeps all registers but rax, rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Offset of the saved rbp, rsp and rip behind the stack pointer that
/// `__restore_rt` runs with: `struct ucontext` lies there, and `uc_mcontext`
/// starts at its byte 40 (r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip).
pub const SIGNAL_RBP: u64 = 40 + 10 * 8;
/// See [`SIGNAL_RBP`].
pub const SIGNAL_RSP: u64 = 40 + 15 * 8;
/// See [`SIGNAL_RBP`].
pub const SIGNAL_RIP: u64 = 40 + 16 * 8;

/// DWARF number of rbp.
pub const DWARF_BP: u64 = 6;
/// DWARF number of rsp.
pub const DWARF_SP: u64 = 7;
/// DWARF number of the return address.
pub const DWARF_RA: u64 = 16;

/// Numbers of system calls.
pub mod nr {
    #![allow(missing_docs)]
    pub const READ: usize = 0;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const SCHED_YIELD: usize = 24;
    pub const MADVISE: usize = 28;
    pub const GETPID: usize = 39;
    pub const CLONE: usize = 56;
    pub const VFORK: usize = 58;
    pub const EXECVE: usize = 59;
    pub const EXIT: usize = 60;
    pub const WAIT4: usize = 61;
    pub const KILL: usize = 62;
    pub const FTRUNCATE: usize = 77;
    pub const READLINK: usize = 89;
    pub const PRCTL: usize = 157;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const CLOCK_GETTIME: usize = 228;
    pub const EXIT_GROUP: usize = 231;
    pub const OPENAT: usize = 257;
    pub const MEMFD_CREATE: usize = 319;
}
