//! All threads of the target at a stand, by ptrace, and on their way again.
//!
//! Seized, not attached: no signal is sent, and a stop by a shell's job control
//! stays what it is. What the kernel was about to deliver is delivered when the
//! thread goes on.

use std::io;
use std::time::{Duration, Instant};

use crate::process;

/// How long a thread may take to come to a stand. A parent of a vfork child does
/// not before the child is gone.
const PATIENCE: Duration = Duration::from_secs(5);
const PTRACE_EVENT_STOP: i32 = 128;

/// A thread at a stand.
#[derive(Clone, Copy)]
pub struct Thread {
    /// Kernel id.
    pub tid: u32,
    /// Its registers.
    pub registers: libc::user_regs_struct,
    signal: i32,
}

impl Thread {
    /// A thread that waits at this stack pointer and was not stopped: nothing
    /// else is known of it.
    pub fn waiting(stack: u64) -> Thread {
        Thread { tid: 0, registers: libc::user_regs_struct { rsp: stack, ..zeroed() }, signal: 0 }
    }
}

/// The threads of a process at a stand. They go on when this is dropped.
pub struct Stopped {
    /// All but those that have ended.
    pub threads: Vec<Thread>,
}

/// Why a process could not be brought to a stand.
#[derive(Debug)]
pub struct Refused {
    /// Half a sentence.
    pub why: String,
    /// The system forbids it; nothing was done.
    pub forbidden: bool,
    /// Threads that may yet come to a stand and must be let go then ([`let_go`]).
    pub late: Vec<u32>,
}

enum Wait {
    Stopped(i32),
    Ended,
    Late,
}

impl Stopped {
    /// Stops every thread of `pid`.
    ///
    /// # Errors
    /// [`Refused`]; then no thread is held, but for the late ones.
    pub fn all(pid: u32) -> Result<Stopped, Refused> {
        let mut stopped = Stopped { threads: Vec::new() };
        let mut ended: Vec<u32> = Vec::new();
        loop {
            let mut fresh = false;
            for tid in threads_of(pid) {
                if ended.contains(&tid) || stopped.threads.iter().any(|thread| thread.tid == tid) {
                    continue;
                }
                match stopped.one(pid, tid)? {
                    true => fresh = true,
                    false => ended.push(tid),
                }
            }
            // A thread that was not yet stopped may have made another.
            if !fresh {
                return Ok(stopped);
            }
        }
    }

    /// Stops one; false if it has ended.
    fn one(&mut self, pid: u32, tid: u32) -> Result<bool, Refused> {
        let refused = |why: String, forbidden, late| Refused { why, forbidden, late };
        if let Err(error) = ptrace(libc::PTRACE_SEIZE, tid, 0, 0) {
            return match error.raw_os_error() {
                Some(libc::ESRCH) => Ok(false),
                // The first thread ends before the others, and stays as a zombie.
                _ if is_dead(pid, tid) => Ok(false),
                Some(libc::EPERM) => {
                    let why = match tracer_of(pid, tid) {
                        Some(tracer) => format!("another tracer has it (process {tracer})"),
                        None => "the system does not let it be traced".to_owned(),
                    };
                    Err(refused(why, true, Vec::new()))
                }
                _ => Err(refused(format!("a thread cannot be seized: {error}"), false, Vec::new())),
            };
        }
        let asked = ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0);
        match wait_for_stop(pid, tid) {
            Wait::Stopped(signal) => {
                let mut thread = Thread { tid, registers: zeroed(), signal };
                let at = (&raw mut thread.registers) as u64;
                let read = ptrace(libc::PTRACE_GETREGS, tid, 0, at);
                self.threads.push(thread);
                match read {
                    Ok(()) => Ok(true),
                    // Killed where it stood.
                    Err(_) => Ok(true),
                }
            }
            Wait::Ended => Ok(false),
            Wait::Late => {
                let why = match asked {
                    Ok(()) => "a thread did not come to a stand".to_owned(),
                    Err(error) => format!("a thread cannot be interrupted: {error}"),
                };
                Err(refused(why, false, vec![tid]))
            }
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for thread in &self.threads {
            detach(thread.tid, thread.signal);
        }
    }
}

/// Lets threads go that came to a stand too late; keeps those that have not yet.
pub fn let_go(pid: u32, late: &mut Vec<u32>) {
    late.retain(|&tid| match look(pid, tid) {
        Wait::Stopped(signal) => {
            detach(tid, signal);
            false
        }
        Wait::Ended => false,
        Wait::Late => true,
    });
}

/// Takes in the ends of threads that died while they were held. Their process
/// would not end before.
pub fn bury(pid: u32, threads: &[u32]) {
    for &tid in threads {
        look(pid, tid);
    }
}

fn detach(tid: u32, signal: i32) {
    // One that was killed meanwhile is gone.
    let _ = ptrace(libc::PTRACE_DETACH, tid, 0, signal as u64);
}

fn wait_for_stop(pid: u32, tid: u32) -> Wait {
    let from = Instant::now();
    loop {
        match look(pid, tid) {
            Wait::Late if from.elapsed() < PATIENCE => std::thread::sleep(Duration::from_micros(50)),
            other => return other,
        }
    }
}

/// Has the thread stopped, or ended? The end of the process itself is left for
/// the one who waits for that.
fn look(pid: u32, tid: u32) -> Wait {
    // SAFETY: buffers of the right types.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
        if libc::waitid(libc::P_PID, tid, &mut info, flags) == 0 && info.si_pid() == tid as i32 {
            let (event, signal) = (info.si_status() >> 8, info.si_status() & 0x7f);
            return Wait::Stopped(if event == PTRACE_EVENT_STOP { 0 } else { signal });
        }
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let keep = if tid == pid { libc::WNOWAIT } else { 0 };
        let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL | keep;
        let ended = libc::waitid(libc::P_PID, tid, &mut info, flags);
        if ended != 0 || info.si_pid() == tid as i32 { Wait::Ended } else { Wait::Late }
    }
}

/// The threads of a process, as far as they can be seen.
pub fn threads_of(pid: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Lets go of threads that came to their stop when nobody waited for it any more.
/// Those that do not stand still for us are not touched.
pub fn release_late(pid: u32) {
    for tid in threads_of(pid) {
        let _ = ptrace(libc::PTRACE_DETACH, tid, 0, 0);
    }
}

/// Has the process ended, collected or not?
pub fn has_ended(pid: u32) -> bool {
    threads_of(pid).iter().all(|&tid| is_dead(pid, tid))
}

fn is_dead(pid: u32, tid: u32) -> bool {
    process::thread_state(pid, tid).is_none_or(|state| matches!(state, b'Z' | b'X'))
}

fn tracer_of(pid: u32, tid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    process::field(&status, "TracerPid:")?.parse().ok().filter(|&tracer| tracer != 0)
}

fn zeroed() -> libc::user_regs_struct {
    // SAFETY: plain integers.
    unsafe { std::mem::zeroed() }
}

fn ptrace(request: libc::c_uint, tid: u32, addr: u64, data: u64) -> io::Result<()> {
    // SAFETY: the requests used here write at most a user_regs_struct, to where
    // the caller says there is one.
    let result = unsafe { libc::ptrace(request, tid as libc::pid_t, addr, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
