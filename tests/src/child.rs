//! A child process with a time limit, whose output cannot block it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A command that is going to run.
///
/// Its output goes to files, not to pipes: a grandchild that lives on and
/// holds the descriptor open cannot make the test wait. It runs in a process
/// group of its own, which is killed when the time is up.
pub struct Child {
    command: Command,
    input: Vec<u8>,
    talks: bool,
    limit: Duration,
}

/// How it went.
#[derive(Debug)]
pub struct Ended {
    /// Exit status or signal.
    pub status: ExitStatus,
    /// Everything on stdout.
    pub out: Vec<u8>,
    /// Everything on stderr.
    pub err: Vec<u8>,
    /// Wall time.
    pub took: Duration,
}

impl Ended {
    /// stdout as text.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// stderr as text.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.err).into_owned()
    }

    /// Exit code, or 128 + the signal as a shell says it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Panics with the output unless the exit code is this.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "exit code; stdout:\n{}\nstderr:\n{}", self.stdout(), self.stderr());
        self
    }
}

impl Child {
    /// A program, by path or by name on PATH.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HIGHWATER_") {
                command.env_remove(name);
            }
        }
        // What would make output depend on the machine.
        for name in
            ["LD_PRELOAD", "LD_LIBRARY_PATH", "NO_COLOR", "COLUMNS", "DEBUGINFOD_URLS", "MALLOC_ARENA_MAX"]
        {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C");
        Child { command, input: Vec::new(), talks: false, limit: Duration::from_secs(60) }
    }

    /// One more argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// More arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Takes all variables away.
    pub fn env_clear(mut self) -> Self {
        self.command.env_clear();
        self
    }

    /// Takes a variable away.
    pub fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Working folder.
    pub fn cwd(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// What it reads on stdin (nothing by default).
    pub fn input(mut self, bytes: &[u8]) -> Self {
        self.input = bytes.to_vec();
        self
    }

    /// It reads on stdin what [`Running::say`] tells it, until [`Running::hang_up`].
    pub fn talks(mut self) -> Self {
        self.talks = true;
        self
    }

    /// Time limit, 60 seconds by default.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn run(self) -> Ended {
        self.start().wait()
    }

    /// Starts it.
    #[track_caller]
    pub fn start(mut self) -> Running {
        let file = || tempfile::tempfile().expect("a temporary file");
        let (mut input, out, err) = (file(), file(), file());
        input.write_all(&self.input).and_then(|()| input.rewind()).expect("the input is written");
        let copy = |file: &File| Stdio::from(file.try_clone().expect("a second descriptor"));
        let input = if self.talks { Stdio::piped() } else { input.into() };
        self.command.stdin(input).stdout(copy(&out)).stderr(copy(&err)).process_group(0);
        let text = format!("{:?}", self.command);
        let process = match self.command.spawn() {
            Ok(process) => process,
            Err(error) => panic!("cannot start {text}: {error}"),
        };
        Running { process, out, err, start: Instant::now(), limit: self.limit, text }
    }
}

/// A child that runs. It is killed, with its group, when this is dropped.
pub struct Running {
    process: std::process::Child,
    out: File,
    err: File,
    start: Instant,
    limit: Duration,
    text: String,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Writes to its stdin; the child was started with [`Child::talks`].
    #[track_caller]
    pub fn say(&mut self, text: &str) {
        let pipe = self.process.stdin.as_mut().expect("a child that talks");
        pipe.write_all(text.as_bytes()).and_then(|()| pipe.flush()).expect("the child listens");
    }

    /// Closes its stdin.
    pub fn hang_up(&mut self) {
        self.process.stdin = None;
    }

    /// What it wrote on stdout up to now.
    pub fn stdout_so_far(&self) -> String {
        String::from_utf8_lossy(&read_all(&self.out)).into_owned()
    }

    /// Waits for its end; panics when the time is up.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        loop {
            match self.process.try_wait().expect("a child to wait for") {
                Some(status) => {
                    let took = self.start.elapsed();
                    return Ended { status, out: read_all(&self.out), err: read_all(&self.err), took };
                }
                None if self.start.elapsed() > self.limit => {
                    self.kill_group();
                    let (out, err) = (read_all(&self.out), read_all(&self.err));
                    panic!(
                        "still running after {:?}: {}\nstdout:\n{}\nstderr:\n{}",
                        self.limit,
                        self.text,
                        String::from_utf8_lossy(&out),
                        String::from_utf8_lossy(&err)
                    );
                }
                None => std::thread::sleep(Duration::from_millis(3)),
            }
        }
    }

    /// Sends a signal to the child alone.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the child is not reaped yet, so its pid is its own.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }

    fn kill_group(&mut self) {
        // SAFETY: the group was made for this child, which is not reaped yet.
        unsafe { libc::kill(-(self.process.id() as i32), libc::SIGKILL) };
        self.process.wait().ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.kill_group();
        }
    }
}

/// Everything in a file that a child may still write to: opened anew, because
/// the child shares the offset of the descriptor that we hold.
fn read_all(file: &File) -> Vec<u8> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read(path).expect("the output is read")
}

/// Waits until `done` says so; panics with `what` when `limit` is over.
#[track_caller]
pub fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < limit, "after {limit:?} still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Does a process with this id exist (and is not a zombie)?
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|text| !text.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}
