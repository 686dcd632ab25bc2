//! The recorder that an agent started by itself: `highwater __record PID FD
//! TOKEN`, for a plain `LD_PRELOAD=$(highwater agent-path) ./app`.
//!
//! The target is not our child, so its exit status is known only where the
//! kernel tells it through a pidfd.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use highwater_event::layout::AGENT_ABSENT;
use highwater_trace::model::EndedHow;

use crate::control::{Reply, Server};
use crate::image::Image;
use crate::memory::{Memory, RobustList, Settings, futex_wait};
use crate::run::{self, Options};
use crate::{RecordError, process};

/// Lays out the memory behind `fd`, records process `pid` and writes its trace
/// into the current folder. Prints nothing: the terminal is the target's.
///
/// # Errors
/// As a run's; nobody reads them, but the exit code tells.
pub fn record(pid: u32, fd: i32, token: u64, options: &Options) -> Result<(), RecordError> {
    detach(fd);
    let born = process::stat(pid).map(|s| s.start);
    // Now: the target waits for us. Once it runs it may be gone in a moment.
    let handle = PidFd::open(pid);
    // SAFETY: the agent left the descriptor to us.
    let fd = unsafe { run::adopt(fd) };
    let settings = Settings { follow_exec: false, ..settings(options) };
    let memory = Memory::lay_out(fd, &settings, token)?;
    RobustList::register(&[&memory]);
    let patience = Instant::now();
    while memory.header().agent.state.load(Acquire) == AGENT_ABSENT {
        if patience.elapsed() > Duration::from_secs(10) || process::stat(pid).is_none() {
            return Ok(());
        }
        futex_wait(&memory.header().agent.state, AGENT_ABSENT, Duration::from_millis(10));
    }
    let mut image = Image::open(memory, pid, 0, options)?;
    let stack = process::stat(pid).map(|s| s.start_stack);
    let mut how = EndedHow::Lost;
    let mut control = Server::start(pid).ok();
    let stopped = run::follow_to_end(&mut image, control.as_mut(), || match process::stat(pid) {
        None => true,
        Some(stat) if Some(stat.start) != born || stat.state == b'Z' => true,
        Some(stat) if stat.start_stack != 0 && Some(stat.start_stack) != stack => {
            how = EndedHow::Exec;
            true
        }
        Some(_) => false,
    });
    if let (Some(caller), Some(control)) = (stopped, control.as_mut()) {
        let status = image.status();
        image.detach();
        RobustList::register(&[]);
        control.reply(caller, &Reply::Stopped(status));
        return Ok(());
    }
    let (how, code) = match (how, handle.and_then(|h| h.exit_status())) {
        (EndedHow::Lost, Some(status)) if libc::WIFSIGNALED(status) => {
            (EndedHow::Signal, libc::WTERMSIG(status))
        }
        (EndedHow::Lost, Some(status)) => (EndedHow::Exit, libc::WEXITSTATUS(status)),
        (how, _) => (how, 0),
    };
    image.finish(how, code, 0);
    Ok(())
}

/// A handle on a process that is not our child.
struct PidFd(std::os::fd::OwnedFd);

/// `struct pidfd_info` of `linux/pidfd.h`, as of Linux 6.15.
#[repr(C)]
#[derive(Default)]
struct PidFdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
    coredump: u32,
    spare: [u32; 2],
}

impl PidFd {
    fn open(pid: u32) -> Option<PidFd> {
        // SAFETY: a new descriptor, ours from here on.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            (fd >= 0).then(|| PidFd(run::adopt(fd as i32)))
        }
    }

    /// The wait status, where the kernel keeps it for others than the parent
    /// (Linux 6.15). The parent has to collect the process first: it is given a
    /// moment.
    fn exit_status(&self) -> Option<i32> {
        const PIDFD_INFO_EXIT: u64 = 1 << 3;
        // _IOWR(0xFF, 11, struct pidfd_info) with the first published size, 64.
        const PIDFD_GET_INFO: libc::c_ulong = 3 << 30 | 64 << 16 | 0xff << 8 | 11;
        use std::os::fd::AsRawFd;
        for _ in 0..50 {
            let mut info = PidFdInfo { mask: PIDFD_INFO_EXIT, ..PidFdInfo::default() };
            // SAFETY: a buffer at least as large as the size in the request.
            let result = unsafe { libc::ioctl(self.0.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
            if result == 0 && info.mask & PIDFD_INFO_EXIT != 0 {
                return Some(info.exit_code);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

fn settings(options: &Options) -> Settings {
    options.settings()
}

/// No terminal, no descriptor of the target's: a pipe that it writes to must
/// close when it ends, not when we do.
fn detach(keep: i32) {
    // SAFETY: descriptors that the target left to us; nothing of ours is open yet.
    unsafe {
        libc::setsid();
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for fd in 0..3 {
            if fd != keep {
                libc::dup2(null, fd);
            }
        }
        for fd in 3..1024 {
            if fd != keep {
                libc::close(fd);
            }
        }
    }
}
