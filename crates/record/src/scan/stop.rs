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
/// How long threads have to leave a place, and how long each of their turns is.
const LEAVING: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_micros(100);

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
        stopped.rest(pid)?;
        Ok(stopped)
    }

    /// Stops those that are not stopped yet.
    fn rest(&mut self, pid: u32) -> Result<(), Refused> {
        let mut ended: Vec<u32> = Vec::new();
        loop {
            let mut fresh = false;
            for tid in threads_of(pid) {
                if ended.contains(&tid) || self.threads.iter().any(|thread| thread.tid == tid) {
                    continue;
                }
                match self.one(pid, tid)? {
                    true => fresh = true,
                    false => ended.push(tid),
                }
            }
            // A thread that was not yet stopped may have made another.
            if !fresh {
                return Ok(());
            }
        }
    }

    /// Lets the threads that are `inside` go on for a moment, and again, until none
    /// is; the others stay where they are. How many are still inside when the time is
    /// over. `help` is called in each round: they may be waiting for us.
    ///
    /// # Errors
    /// As [`Stopped::all`], and those of `help`; all threads go on then.
    pub fn leave(
        &mut self,
        pid: u32,
        inside: impl Fn(&Thread) -> bool,
        help: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<u64, Refused> {
        let from = Instant::now();
        loop {
            let there: Vec<usize> =
                (0..self.threads.len()).filter(|&at| self.threads.get(at).is_some_and(&inside)).collect();
            let free = |at: &&usize| self.threads.get(**at).is_some_and(|thread| !is_job_stopped(thread.tid));
            let going: Vec<usize> = there.iter().filter(free).copied().collect();
            if going.is_empty() || from.elapsed() > LEAVING {
                return Ok(there.len() as u64);
            }
            for &at in &going {
                let Some(thread) = self.threads.get_mut(at) else { continue };
                let signal = std::mem::replace(&mut thread.signal, 0);
                let _ = ptrace(libc::PTRACE_CONT, thread.tid, 0, signal as u64);
            }
            let helped = help();
            std::thread::sleep(MOMENT);
            // Taken out and stopped anew; from the last, so that the places hold.
            let going: Vec<u32> =
                going.into_iter().rev().map(|at| self.threads.swap_remove(at).tid).collect();
            let mut refused = helped.err().map(|why| Refused { why, forbidden: false, late: Vec::new() });
            for tid in going {
                match self.interrupt(pid, tid) {
                    Ok(_) => {}
                    Err(late) => match &mut refused {
                        None => refused = Some(late),
                        Some(first) => first.late.extend(late.late),
                    },
                }
            }
            if let Some(refused) = refused {
                return Err(refused);
            }
            self.rest(pid)?;
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
        self.interrupt(pid, tid)
    }

    /// Stops one that is seized; false if it has ended.
    fn interrupt(&mut self, pid: u32, tid: u32) -> Result<bool, Refused> {
        let refused = |why: String, forbidden, late| Refused { why, forbidden, late };
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
        let stopped = |info: &libc::siginfo_t| {
            let (event, signal) = (info.si_status() >> 8, info.si_status() & 0x7f);
            Wait::Stopped(if event == PTRACE_EVENT_STOP { 0 } else { signal })
        };
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
        if libc::waitid(libc::P_PID, tid, &mut info, flags) == 0 && info.si_pid() == tid as i32 {
            return stopped(&info);
        }
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let keep = if tid == pid { libc::WNOWAIT } else { 0 };
        let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL | keep;
        let none = libc::waitid(libc::P_PID, tid, &mut info, flags) == 0 && info.si_pid() != tid as i32;
        match info.si_code {
            _ if none => Wait::Late,
            // Of a traced thread the system tells a stop, too, whatever it was asked
            // for: one that came between the two calls.
            libc::CLD_TRAPPED | libc::CLD_STOPPED if keep == 0 => stopped(&info),
            libc::CLD_TRAPPED | libc::CLD_STOPPED => Wait::Late,
            _ => Wait::Ended,
        }
    }
}

/// The threads of a process, as far as they can be seen.
pub fn threads_of(pid: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Has the process ended, collected or not?
pub fn has_ended(pid: u32) -> bool {
    threads_of(pid).iter().all(|&tid| is_dead(pid, tid))
}

fn is_dead(pid: u32, tid: u32) -> bool {
    process::thread_state(pid, tid).is_none_or(|state| matches!(state, b'Z' | b'X'))
}

/// Was it stopped by job control, before us? The system has no signal to tell of then.
fn is_job_stopped(tid: u32) -> bool {
    // SAFETY: plain integers, and a buffer of the type that the request fills.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::ptrace(libc::PTRACE_GETSIGINFO, tid as libc::pid_t, 0, &raw mut info) < 0
    }
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
