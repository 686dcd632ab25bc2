//! A plain `LD_PRELOAD=$(highwater agent-path)`: nobody has made shared memory
//! for us, so a recorder is started, if one is named.
//!
//! The recorder must not be a child that the target could meet in wait(): it is
//! a grandchild, and the child in between ends without a signal.

use core::sync::atomic::Ordering::*;

use highwater_event::layout::{AGENT_ATTACHED, Header};

use crate::arch::nr;
use crate::start::{self, Text};
use crate::sys::{self, call};
use crate::{arch::syscall6, loader};

/// Starts the recorder whose path is the first `length` bytes of `path`, or the
/// one that lies beside the agent, and attaches to it.
pub fn start(path: &mut [u8; 4096], length: Option<usize>) -> bool {
    let length = match length {
        Some(length) => length,
        None => match beside(path) {
            Some(length) => length,
            None => return false,
        },
    };
    let Some(terminator) = path.get_mut(length) else { return false };
    *terminator = 0;
    let executable = sys::open_ro(&path[..=length]);
    if executable < 0 {
        return false;
    }
    sys::close(executable);
    // The recorder lays the memory out; we only make the file.
    // SAFETY: a name; a new descriptor without close-on-exec, for the recorder.
    let file = unsafe { call!(nr::MEMFD_CREATE, c"highwater".as_ptr(), 0) };
    if file < 0 {
        return false;
    }
    // One page, so that the first look at the header has something to see.
    // SAFETY: our own file.
    unsafe { call!(nr::FTRUNCATE, file, size_of::<Header>()) };
    let token = crate::arch::stamp() ^ sys::monotonic_ns().rotate_left(32);
    let spawned = spawn(&path[..=length], file, token);
    let attached = spawned && wait_and_map(file, token);
    sys::close(file);
    attached
}

/// `highwater` in the folder of the agent.
fn beside(path: &mut [u8; 4096]) -> Option<usize> {
    let own = loader::own()?.path();
    let slash = own.iter().rposition(|&b| b == b'/')?;
    let name = b"highwater";
    if slash + 1 + name.len() >= path.len() {
        return None;
    }
    path[..=slash].copy_from_slice(&own[..=slash]);
    path[slash + 1..slash + 1 + name.len()].copy_from_slice(name);
    Some(slash + 1 + name.len())
}

/// Double fork and exec: `recorder __record PID FD TOKEN`.
fn spawn(path: &[u8], file: isize, token: u64) -> bool {
    const WCLONE: usize = 0x8000_0000;
    let mut pid = Text::<24>::new();
    pid.number(u64::from(sys::getpid())).push(b"\0");
    let mut fd = Text::<24>::new();
    fd.number(file as u64).push(b"\0");
    let mut secret = Text::<24>::new();
    secret.number(token).push(b"\0");
    let arguments = [
        path.as_ptr(),
        c"__record".as_ptr().cast(),
        pid.bytes().as_ptr(),
        fd.bytes().as_ptr(),
        secret.bytes().as_ptr(),
        core::ptr::null(),
    ];
    let environment = loader::environment();
    // SAFETY: plain forks (no shared memory) with no exit signal; the children
    // only make system calls on copies of our stack.
    unsafe {
        let child = call!(nr::CLONE, 0, 0, 0, 0, 0);
        if child < 0 {
            return false;
        }
        if child == 0 {
            let grandchild = call!(nr::CLONE, 17, 0, 0, 0, 0);
            if grandchild == 0 {
                let environment = environment.map_or(core::ptr::null(), |e| e.cast_const());
                call!(nr::EXECVE, path.as_ptr(), arguments.as_ptr(), environment);
                call!(nr::EXIT_GROUP, 127);
            }
            call!(nr::EXIT_GROUP, if grandchild < 0 { 1 } else { 0 });
        }
        let mut status = 0i32;
        call!(nr::WAIT4, child, &raw mut status, WCLONE, 0);
        status == 0
    }
}

/// Waits until the recorder has laid the memory out, at most three seconds.
fn wait_and_map(file: isize, token: u64) -> bool {
    for _ in 0..300 {
        if start::map(file, token) {
            return start::shared().is_some_and(|s| s.header().agent.state.load(Acquire) == AGENT_ATTACHED);
        }
        let never = core::sync::atomic::AtomicU32::new(0);
        sys::futex_wait(&never, 0, 10_000_000);
    }
    false
}
