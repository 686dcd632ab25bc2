//! How much memory the target may have: the limits of its control groups and of
//! `ulimit`, as they are when it starts.

use std::fs;
use std::path::{Path, PathBuf};

use highwater_trace::model::MemoryLimit;

/// Limits of control groups from here on mean that there is none.
const NONE: u64 = 1 << 60;

/// The limits of a process, the tightest first. What cannot be read is no limit.
pub fn of(pid: u32) -> Vec<MemoryLimit> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let mut limits = of_process(&read("limits"));
    if let Some(bytes) = of_groups(&read("cgroup"), Path::new("/sys/fs/cgroup")) {
        limits.push(MemoryLimit { of: "cgroup".to_owned(), bytes });
    }
    limits.sort_by_key(|limit| limit.bytes);
    limits
}

/// The soft limits in the text of `/proc/PID/limits`.
fn of_process(text: &str) -> Vec<MemoryLimit> {
    let named = [("Max data size", "RLIMIT_DATA"), ("Max address space", "RLIMIT_AS")];
    named
        .into_iter()
        .filter_map(|(title, name)| {
            let rest = text.lines().find_map(|line| line.strip_prefix(title))?;
            let bytes = rest.split_whitespace().next()?.parse().ok()?;
            Some(MemoryLimit { of: name.to_owned(), bytes })
        })
        .collect()
}

/// The tightest limit of the groups in the text of `/proc/PID/cgroup`, and of the
/// groups above them: of version 2 and of version 1, mounted where systemd does.
fn of_groups(text: &str, root: &Path) -> Option<u64> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let (mount, file) = match controllers {
                "" if number == "0" => (root.to_path_buf(), "memory.max"),
                list if list.split(',').any(|one| one == "memory") => {
                    (root.join("memory"), "memory.limit_in_bytes")
                }
                _ => return None,
            };
            let path = PathBuf::from(path.trim_start_matches('/'));
            path.ancestors()
                .filter_map(|group| fs::read_to_string(mount.join(group).join(file)).ok())
                .filter_map(|limit| limit.trim().parse::<u64>().ok())
                .min()
        })
        .filter(|&limit| limit < NONE)
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limits_are_read_and_unlimited_is_none() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max cpu time              unlimited            unlimited            seconds   \n\
                    Max data size             1048576              unlimited            bytes     \n\
                    Max address space         unlimited            unlimited            bytes     \n";
        assert_eq!(of_process(text), [MemoryLimit { of: "RLIMIT_DATA".to_owned(), bytes: 1_048_576 }]);
        assert!(of_process("").is_empty());
    }

    #[test]
    fn the_tightest_of_the_groups_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("a/memory.max", "5000\n");
        put("a/b/memory.max", "max\n");
        assert_eq!(of_groups("0::/a/b\n", root.path()), Some(5000));
        put("a/b/memory.max", "4000\n");
        assert_eq!(of_groups("0::/a/b\n", root.path()), Some(4000));
        assert_eq!(of_groups("0::/c\n", root.path()), None);
        // Version 1 says a number near 2^63 where there is none.
        put("memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(of_groups("4:memory:/x\n", root.path()), None);
        put("memory/memory.limit_in_bytes", "7000\n");
        assert_eq!(of_groups("9:cpu:/\n4:memory:/x\n0::/\n", root.path()), Some(7000));
        assert_eq!(of_groups("nonsense\n4:memory\n", root.path()), None);
    }
}
