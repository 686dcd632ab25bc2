//! What `/proc` says about the target.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

/// The fields of `/proc/PID/stat` that we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Parent.
    pub ppid: u32,
    /// Process group.
    pub pgrp: u32,
    /// Session.
    pub session: u32,
    /// Start time in clock ticks since boot.
    pub start: u64,
    /// Bottom of the initial stack: another value after an exec (while address
    /// space randomisation is on).
    pub start_stack: u64,
    /// `R`, `S`, `Z`, …
    pub state: u8,
}

/// Reads `/proc/PID/stat`.
pub fn stat(pid: u32) -> Option<Stat> {
    // Longer than the line ever is: a name of 64 bytes and 51 numbers.
    let mut line = [0; 2048];
    // One system call: the file is looked at often, and has no size to go by.
    let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
    parse_stat(line.get(..length)?)
}

/// The fields of a line of `/proc/PID/stat`.
fn parse_stat(line: &[u8]) -> Option<Stat> {
    // The name in parentheses may hold anything; the fields follow the last one.
    let behind = line.get(line.iter().rposition(|&b| b == b')')? + 1..)?;
    let mut fields = str::from_utf8(behind).ok()?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // Field 4 comes next.
    let mut number = |skip: usize| fields.nth(skip).and_then(|field| field.parse::<u64>().ok());
    Some(Stat {
        state,
        ppid: number(0)? as u32,
        pgrp: number(0)? as u32,
        session: number(0)? as u32,
        start: number(22 - 7)?,
        start_stack: number(28 - 23)?,
    })
}

/// The process's name (of its first thread), also of a zombie.
pub fn name(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.get(text.find('(')? + 1..text.rfind(')')?)?.to_owned())
}

/// Resident bytes.
pub fn resident(pid: u32, page_size: u64) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    Some(text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()? * page_size)
}

/// Its working directory.
pub fn directory(pid: u32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default()
}

/// A thread's name.
pub fn thread_name(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(String::from_utf8_lossy(name).into_owned())
}

/// A thread's state: `R`, `S`, `Z`, …
pub fn thread_state(pid: u32, tid: u32) -> Option<u8> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    text.get(text.rfind(')')? + 1..)?.trim_start().bytes().next()
}

/// Does a filter decide about the thread's system calls (seccomp)? Unknown counts as yes.
pub fn is_filtered(pid: u32, tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    field(&status, "Seccomp:").is_none_or(|mode| mode != "0")
}

/// A field of a `status` file, by its name with the colon.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Does the thread exist no more?
pub fn thread_is_gone(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 sends nothing.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid as libc::c_int, tid as libc::c_int, 0) };
    result != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Processes that the target left behind: younger than it, and either of its
/// process group or still mapping the memory with this inode.
///
/// A daemon is made by a chain of forks, each parent ending at once: where a
/// young process is just ending, its child may not be there yet, so the look is
/// repeated a few times.
pub fn left_behind(target: u32, target_start: u64, group: u32, inode: u64) -> Vec<u32> {
    // No process and no thread has been made since: to look at all of them takes longer
    // than most short programs run.
    if last_number() == Some(target) {
        return Vec::new();
    }
    for _ in 0..5 {
        let (found, ending) = look_for_left_behind(target, target_start, group, inode);
        if !found.is_empty() || !ending {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Vec::new()
}

/// The number that the kernel has given out last, of those that we see.
fn last_number() -> Option<u32> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().last()?.parse().ok()
}

/// One look: what was found, and whether some young orphan is ending.
fn look_for_left_behind(target: u32, target_start: u64, group: u32, inode: u64) -> (Vec<u32>, bool) {
    let me = std::process::id();
    let Ok(entries) = fs::read_dir("/proc") else { return (Vec::new(), false) };
    // In the target's process group there may be others, the rest of a pipeline:
    // their parent is one of the shells that we descend from, while what the
    // target left behind has been given to init or a subreaper.
    let ancestors = ancestors(me);
    let near: Vec<u32> = ancestors.iter().copied().take(2).collect();
    let mut found = Vec::new();
    let mut ending = false;
    for pid in entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()) {
        if pid == me || pid == target {
            continue;
        }
        let Some(stat) = stat(pid) else {
            ending = true;
            continue;
        };
        if stat.start < target_start {
            continue;
        }
        let orphan = !ancestors.contains(&stat.ppid) || (stat.ppid == 1 && !near.contains(&1));
        if matches!(stat.state, b'Z' | b'X') {
            ending |= orphan;
            continue;
        }
        if stat.pgrp == group && stat.ppid != me && orphan || maps_inode(pid, inode) {
            found.push(pid);
        }
    }
    (found, ending)
}

/// Parent, grandparent and so on of a process.
fn ancestors(mut pid: u32) -> Vec<u32> {
    let mut list = Vec::new();
    while let Some(stat) = stat(pid) {
        if stat.ppid == 0 || list.contains(&stat.ppid) {
            break;
        }
        list.push(stat.ppid);
        pid = stat.ppid;
    }
    list
}

fn maps_inode(pid: u32, inode: u64) -> bool {
    let Ok(maps) = fs::read(format!("/proc/{pid}/maps")) else { return false };
    let wanted = format!(" {inode} ");
    maps.split(|&b| b == b'\n').any(|line| {
        line.windows(16).any(|w| w == b"/memfd:highwater")
            && line.windows(wanted.len()).any(|w| w == wanted.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_that_of_a_process_that_was_just_made() {
        // Others make some too: one of a few tries comes in between.
        let seen = (0..1000).any(|_| {
            let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
            let last = last_number();
            child.wait().unwrap();
            last == Some(child.id())
        });
        assert!(seen);
    }

    #[test]
    fn our_own_stat_is_read() {
        let me = std::process::id();
        let stat = stat(me).unwrap();
        assert!(stat.ppid > 0 && stat.start > 0 && stat.start_stack > 0x1000);
        assert!(resident(me, 4096).unwrap() > 100 << 10);
        assert!(!thread_is_gone(me, me));
    }

    #[test]
    fn a_name_may_hold_parentheses_and_spaces() {
        let line = b"42 (a) b (c) S 7 8 9 0 -1 4194304 37 0 0 0 0 0 0 0 20 0 1 0 2613691 720896 67 \
            18446744073709551615 1 2 140730793906320 0\n";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.state, stat.ppid, stat.pgrp, stat.session), (b'S', 7, 8, 9));
        assert_eq!((stat.start, stat.start_stack), (2_613_691, 140_730_793_906_320));
        for length in 0..line.len() - 20 {
            assert_eq!(parse_stat(&line[..length]), None, "{length}");
        }
    }
}
