//! Signals of the recording process: it outlives the target, passes on what was
//! meant for it, and wakes up when it ends.

use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering::*};

/// The process to which signals are passed on.
static TARGET: AtomicI32 = AtomicI32::new(0);
/// A futex word that the handler bumps.
static BELL: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
static SPARE_BELL: AtomicU32 = AtomicU32::new(0);

/// What highwater inherited and a program that it starts shall inherit too.
static INHERITED_SIGPIPE: AtomicU32 = AtomicU32::new(0);
/// Bit n: descriptor n was closed when we started (std opens /dev/null there).
static CLOSED_AT_START: AtomicU32 = AtomicU32::new(0);

/// Runs before std's own start-up code, which ignores SIGPIPE and fills closed
/// standard descriptors.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = {
    extern "C" fn remember() {
        // SAFETY: queries only.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
            {
                INHERITED_SIGPIPE.store(1, Relaxed);
            }
            for fd in 0..3 {
                if libc::fcntl(fd, libc::F_GETFD) < 0 {
                    CLOSED_AT_START.fetch_or(1 << fd, Relaxed);
                }
            }
        }
    }
    remember
};

/// In the child, before exec: dispositions, mask and standard descriptors as
/// highwater found them.
///
/// # Safety
/// Only between fork and exec of a single-threaded child.
pub unsafe fn restore_in_child() {
    // SAFETY: async-signal-safe calls only.
    unsafe {
        let pipe = if INHERITED_SIGPIPE.load(Relaxed) != 0 { libc::SIG_IGN } else { libc::SIG_DFL };
        libc::signal(libc::SIGPIPE, pipe);
        for fd in 0..3 {
            if CLOSED_AT_START.load(Relaxed) & 1 << fd != 0 {
                libc::close(fd);
            }
        }
    }
}

/// The signals that are passed on.
const PASSED: [libc::c_int; 9] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
    libc::SIGWINCH,
];

/// Signals that are to be passed on wait until this is dropped: the target may have
/// started, and said so, before we know its number.
pub struct Held {
    before: libc::sigset_t,
}

impl Held {
    /// Holds them back from here on.
    pub fn hold() -> Held {
        // SAFETY: sets of the right type.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in PASSED {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Held { before }
        }
    }

    /// In the child, before exec: the mask as it was.
    ///
    /// # Safety
    /// Only between fork and exec of a single-threaded child.
    pub unsafe fn release_in_child(&self) {
        // SAFETY: async-signal-safe, a set of the right type.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: a set of the right type.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// From now on signals go to `target`.
///
/// A signal from the terminal reaches the whole group by itself and is not
/// passed on a second time; one that somebody sent to highwater alone is.
pub fn pass_on_to(target: u32) {
    TARGET.store(target as i32, Release);
    for signal in PASSED {
        install(signal, pass_on);
    }
    install(libc::SIGCHLD, child_ended);
    // A file size limit is an error of write, not our death.
    // SAFETY: sets a disposition.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The word that wakes the recorder's sleep.
pub fn ring_bell_at(word: &AtomicU32) {
    BELL.store(word.as_ptr().cast(), Release);
}

/// The word is about to go away.
pub fn no_bell() {
    BELL.store(SPARE_BELL.as_ptr().cast(), Release);
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

fn install(signal: libc::c_int, handler: Handler) {
    // SAFETY: a handler that makes async-signal-safe calls only. An ignored
    // signal stays ignored (nohup).
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut old);
        if old.sa_sigaction == libc::SIG_IGN && signal != libc::SIGCHLD {
            return;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    const SI_KERNEL: i32 = 0x80;
    let target = TARGET.load(Acquire);
    // SAFETY: the kernel's siginfo; kill is async-signal-safe; errno is kept.
    unsafe {
        let errno = *libc::__errno_location();
        if target > 0 && (*info).si_code != SI_KERNEL && (*info).si_pid() != target {
            libc::kill(target, signal);
        }
        *libc::__errno_location() = errno;
    }
    wake();
}

extern "C" fn child_ended(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    wake();
}

fn wake() {
    let bell = BELL.load(Acquire);
    if !bell.is_null() {
        // SAFETY: a word of mapped memory, or the spare one. The futex call that
        // sleeps on it is interrupted by this very signal, or sees the new value.
        unsafe { (*bell).fetch_add(1, SeqCst) };
    }
}

/// Dies of `signal`, as the target did, so that whoever waits for highwater sees
/// what it would have seen of the target. No core file of ours.
pub fn die_of(signal: i32) -> ! {
    // SAFETY: the last things that this process does.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
        libc::_exit(128 + signal)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    use super::*;

    #[test]
    fn a_signal_that_came_before_the_target_was_known_ended_highwater() {
        let held = Held::hold();
        // SAFETY: it waits: it would end this process.
        unsafe { libc::raise(libc::SIGUSR1) };
        let mut command = std::process::Command::new("/bin/sleep");
        let mask = held.before;
        // SAFETY: one async-signal-safe call.
        unsafe {
            command.arg("60").pre_exec(move || {
                std::mem::ManuallyDrop::new(Held { before: mask }).release_in_child();
                Ok(())
            });
        }
        let mut target = command.spawn().unwrap();
        pass_on_to(target.id());
        drop(held);
        let status = target.wait().unwrap();
        TARGET.store(0, Release);
        assert_eq!(status.signal(), Some(libc::SIGUSR1));
    }
}
