//! fork and exec, leaving no trace of us in the child but two variables.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use highwater_event::layout::{ENV_RECORDER, ENV_SHARED};

use crate::signals::Held;
use crate::{RecordError, signals};

/// A started target.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// Its process id.
    pub pid: u32,
}

/// Starts `command` with the agent at `agent` preloaded and `address` to find us by.
/// Signals are held until the caller knows where to pass them on to.
///
/// # Errors
/// [`RecordError::NotFound`] or [`RecordError::NotExecutable`] as exec says.
pub fn start(command: &[OsString], agent: &Path, address: &str, held: &Held) -> Result<Started, RecordError> {
    let program = command.first().cloned().unwrap_or_default();
    let not_executable = |reason: io::Error| match reason.kind() {
        io::ErrorKind::NotFound => RecordError::NotFound(program.clone()),
        _ => RecordError::NotExecutable { program: program.clone(), reason },
    };
    let terminated = |text: &OsStr| {
        CString::new(text.as_bytes())
            .map_err(|_| not_executable(io::Error::from(io::ErrorKind::InvalidInput)))
    };
    let file = terminated(&program)?;
    let arguments = command.iter().map(|a| terminated(a)).collect::<Result<Vec<_>, _>>()?;
    let environment =
        environment(agent, address).iter().map(|e| terminated(e)).collect::<Result<Vec<_>, _>>()?;
    let list = |strings: &[CString]| {
        let mut list: Vec<*const libc::c_char> = strings.iter().map(|s| s.as_ptr()).collect();
        list.push(std::ptr::null());
        list
    };
    let (arguments_list, environment_list) = (list(&arguments), list(&environment));
    let (reader, writer) = pipe()?;
    // SAFETY: this process has one thread; the child makes only
    // async-signal-safe calls on memory prepared before.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(RecordError::last("fork"));
    }
    if pid == 0 {
        // SAFETY: between fork and exec.
        unsafe {
            signals::restore_in_child();
            held.release_in_child();
            libc::execvpe(file.as_ptr(), arguments_list.as_ptr(), environment_list.as_ptr());
            let errno = *libc::__errno_location();
            libc::write(writer.as_raw_fd(), (&raw const errno).cast(), 4);
            libc::_exit(127)
        }
    }
    drop(writer);
    let mut errno = [0u8; 4];
    let n = loop {
        // SAFETY: a buffer of four bytes; end of file (exec closed the pipe) is success.
        let n = unsafe { libc::read(reader.as_raw_fd(), errno.as_mut_ptr().cast(), 4) };
        if n >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break n;
        }
    };
    if n == 4 {
        // SAFETY: our own child, which is ending.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        return Err(not_executable(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))));
    }
    Ok(Started { pid: pid as u32 })
}

/// Our environment, with LD_PRELOAD led by the agent and the address added.
fn environment(agent: &Path, address: &str) -> Vec<OsString> {
    let mut list = Vec::new();
    let mut preloaded = false;
    for (name, value) in std::env::vars_os() {
        if name == "LD_PRELOAD" {
            // In its place: what is left of it is seen there.
            let mut preload = agent.as_os_str().to_owned();
            preload.push(":");
            preload.push(&value);
            list.push(variable(&name, &preload));
            preloaded = true;
        } else if name != ENV_SHARED && name != ENV_RECORDER {
            list.push(variable(&name, &value));
        }
    }
    if !preloaded {
        list.push(variable(OsStr::new("LD_PRELOAD"), agent.as_os_str()));
    }
    list.push(variable(OsStr::new(ENV_SHARED), OsStr::new(address)));
    list
}

fn variable(name: &OsStr, value: &OsStr) -> OsString {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(b'=');
    bytes.extend_from_slice(value.as_bytes());
    OsString::from_vec(bytes)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), RecordError> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are ours from here on.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(RecordError::last("pipe"));
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}
