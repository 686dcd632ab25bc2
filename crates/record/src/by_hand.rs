//! The recorder that an agent started by itself: `highwater __record PID FD
//! TOKEN`, for a plain `LD_PRELOAD=$(highwater agent-path) ./app`.
//!
//! The target is not our child, so its exit status is known only where the
//! kernel tells it through a pidfd.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use highwater_event::layout::AGENT_ABSENT;
use highwater_trace::model::EndedHow;

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
    run::follow_to_end(&mut image, || match process::stat(pid) {
        None => true,
        Some(stat) if Some(stat.start) != born || stat.state == b'Z' => true,
        Some(stat) if Some(stat.start_stack) != stack => {
            how = EndedHow::Exec;
            true
        }
        Some(_) => false,
    });
    image.finish(how, 0, 0);
    Ok(())
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
