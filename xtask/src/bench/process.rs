//! One measured run: wall time, and the CPU and memory of everything it starts.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// From the start to the end of the process that was started, s.
    pub wall: f64,
    /// User and system time of that process and of all its descendants, s.
    pub cpu: f64,
    /// The largest resident set of any single process among them, bytes.
    pub rss: u64,
    /// It ended by itself with status 0.
    pub good: bool,
}

/// Who runs where. Programs with one thread are pinned to the last CPU, and the
/// tool's other processes to the first, so that they do not share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// The scheduler decides.
    Free,
    /// The program here, helpers there.
    Split {
        /// CPU of the program.
        program: usize,
        /// CPU of the helpers.
        helpers: usize,
        /// Is the process that is started itself a helper (the parent of the program)?
        starter_helps: bool,
    },
}

/// Names (as in `/proc/PID/comm`) of the processes that tools start beside the program.
const HELPERS: [&str; 3] = ["heaptrack_inter", "zstd", "gzip"];

/// Makes orphans of the runs our own children, so that their use is counted too.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: PR_SET_CHILD_SUBREAPER takes one integer and no pointer.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A process that runs and is being measured.
pub struct Running {
    pid: libc::pid_t,
    start: Instant,
    watchdog: Option<mpsc::Sender<()>>,
}

impl Running {
    /// Starts `command` in its own process group; everything in it is killed after `limit`.
    pub fn start(command: &mut Command, placing: Placing, limit: Duration) -> io::Result<Self> {
        command.process_group(0);
        if let Placing::Split { program, .. } = placing {
            let set = cpu_set(program);
            // SAFETY: between fork and exec only one system call is made, on a
            // set that was filled before the fork.
            unsafe {
                command.pre_exec(move || set_affinity(0, &set));
            }
        }
        let start = Instant::now();
        let child = command.spawn()?;
        let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
        // `wait4` below reaps it: dropping a `Child` does not.
        drop(child);
        let (stop, stopped) = mpsc::channel();
        std::thread::spawn(move || {
            if stopped.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                // SAFETY: a plain system call; the group is the one made above.
                unsafe { libc::kill(-pid, libc::SIGKILL) };
            }
        });
        if let Placing::Split { helpers, starter_helps, .. } = placing {
            std::thread::spawn(move || move_helpers(pid, helpers, starter_helps));
        }
        Ok(Self { pid, start, watchdog: Some(stop) })
    }

    /// Waits for its end and for that of everything that it left behind.
    pub fn finish(mut self) -> io::Result<Took> {
        let (_, status, usage) = wait4(self.pid, 0)?;
        let wall = self.start.elapsed().as_secs_f64();
        if let Some(stop) = self.watchdog.take() {
            // An error only says that the watchdog has ended before us.
            let _ = stop.send(());
        }
        let mut took = Took {
            wall,
            cpu: cpu_of(&usage),
            rss: rss_of(&usage),
            good: libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            match wait4(-1, libc::WNOHANG) {
                Ok((0, ..)) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                Ok((pid, _, usage)) if pid > 0 => {
                    took.cpu += cpu_of(&usage);
                    took.rss = took.rss.max(rss_of(&usage));
                }
                // None left, or one that does not want to end.
                _ => return Ok(took),
            }
        }
    }
}

fn wait4(pid: libc::pid_t, options: libc::c_int) -> io::Result<(libc::pid_t, libc::c_int, libc::rusage)> {
    let mut status = 0;
    // SAFETY: `rusage` is plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live locals of the right types.
        let got = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
        if got >= 0 {
            return Ok((got, status, usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn cpu_of(usage: &libc::rusage) -> f64 {
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn rss_of(usage: &libc::rusage) -> u64 {
    u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024
}

fn cpu_set(cpu: usize) -> libc::cpu_set_t {
    // SAFETY: a CPU set is plain bits; CPU_SET checks its index against the size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        set
    }
}

fn set_affinity(id: libc::pid_t, set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: the pointer and size are those of a live set.
    match unsafe { libc::sched_setaffinity(id, size_of::<libc::cpu_set_t>(), set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Children of a process, by any of its threads.
fn children(pid: libc::pid_t) -> Vec<libc::pid_t> {
    tasks(pid)
        .iter()
        .filter_map(|task| fs::read_to_string(format!("/proc/{pid}/task/{task}/children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn tasks(pid: libc::pid_t) -> Vec<libc::pid_t> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Moves the helpers to their CPU as they appear in the first tenths of a second.
///
/// The program inherits the starter's CPU, so the starter may only be moved
/// once the program is there.
fn move_helpers(starter: libc::pid_t, cpu: usize, starter_helps: bool) {
    let set = cpu_set(cpu);
    let start = Instant::now();
    let mut moved = BTreeSet::new();
    let mut pause = Duration::from_micros(300);
    while start.elapsed() < Duration::from_millis(500) {
        let mut waiting = children(starter);
        if starter_helps && !waiting.is_empty() {
            for task in tasks(starter) {
                if moved.insert(task) {
                    // A thread that has ended by now needs no place.
                    let _ = set_affinity(task, &set);
                }
            }
        }
        while let Some(pid) = waiting.pop() {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if HELPERS.contains(&name.trim_end()) {
                for task in tasks(pid) {
                    if moved.insert(task) {
                        let _ = set_affinity(task, &set);
                    }
                }
            } else {
                waiting.extend(children(pid));
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(60));
    }
}

/// Held by tests that wait for children: waiting for any must not see another test's.
#[cfg(test)]
pub static CHILDREN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_counted_and_killed_runs_are_not_good() {
        let _alone = CHILDREN.lock().unwrap();
        adopt_orphans().unwrap();
        let limit = Duration::from_secs(20);
        let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        // The orphan outlives the process that was started, and still counts.
        let mut command = Command::new("sh");
        command.args(["-c", &format!("(sleep 0.1; {busy}) & exit 0")]);
        let took = Running::start(&mut command, Placing::Free, limit).unwrap().finish().unwrap();
        assert!(took.good && took.cpu > 0.005, "{took:?}");
        let mut command = Command::new("sleep");
        command.arg("20");
        let took =
            Running::start(&mut command, Placing::Free, Duration::from_millis(50)).unwrap().finish().unwrap();
        assert!(!took.good && took.wall < 10.0, "{took:?}");
    }
}
