//! What the tests need from the system, and how it gets there.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

const LIST: &str = include_str!("../packages.txt");

/// One line of `packages.txt`.
struct Need<'a> {
    package: &'a str,
    shown_by: &'a str,
}

fn needs() -> impl Iterator<Item = Need<'static>> {
    LIST.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(Need { package: words.next()?, shown_by: words.next()? })
    })
}

fn is_there(what: &str) -> bool {
    if what.starts_with('/') {
        return Path::new(what).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(what).is_file())
}

fn missing() -> Vec<&'static str> {
    needs().filter(|need| !is_there(need.shown_by)).map(|need| need.package).collect()
}

fn is_root() -> bool {
    // The owner of our own process folder: no libc call, no subprocess.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
}

/// Installs what is missing with apt-get where that is possible, else prints
/// the command that would. `true` when everything is there.
pub fn install_missing() -> anyhow::Result<bool> {
    let wanted = missing();
    if wanted.is_empty() {
        return Ok(true);
    }
    let list = wanted.join(" ");
    if !is_root() || !is_there("apt-get") {
        eprintln!("xtask: the tests need programs that are not here: {list}");
        eprintln!("xtask: as root: apt-get install --no-install-recommends {list}");
        return Ok(false);
    }
    eprintln!("xtask: apt-get install {list}");
    // A stale or absent package index is the usual reason for a first failure.
    if !apt_get(&["update"])? {
        eprintln!("xtask: apt-get update failed; trying to install all the same");
    }
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&wanted);
    apt_get(&install)?;
    let left = missing();
    if !left.is_empty() {
        eprintln!("xtask: still not here: {}; the tests that need them will fail", left.join(" "));
    }
    Ok(left.is_empty())
}

fn apt_get(args: &[&str]) -> anyhow::Result<bool> {
    let status = Command::new("apt-get")
        .arg("-qq")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Servers that come with a package must not be started.
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot start apt-get")?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_says_what_shows_it() {
        let lines = LIST.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).count();
        assert_eq!(needs().count(), lines);
        assert!(needs().any(|need| need.package == "valgrind" && need.shown_by == "valgrind"));
    }

    #[test]
    fn what_is_there_is_found_by_name_and_by_path() {
        assert!(is_there("sh") && is_there("/proc/self"));
        assert!(!is_there("no-such-command-here") && !is_there("/no/such/path"));
    }
}
