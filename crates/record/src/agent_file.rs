//! Where the agent's shared object lies for the loader.
//!
//! Content-addressed in the cache folder, so that concurrent versions never
//! meet; with a link to this very program beside it, so that an agent that is
//! preloaded by hand finds its recorder. Where no folder can be written, or
//! none may hold code (noexec), it is a memfd of ours that the loader opens
//! through /proc.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::RecordError;

/// The agent in a place that the loader can open.
#[derive(Debug)]
pub struct AgentFile {
    /// Path for LD_PRELOAD.
    pub path: PathBuf,
    /// Keeps a memfd open.
    _memfd: Option<OwnedFd>,
}

/// Puts `bytes` into place.
///
/// # Errors
/// [`RecordError::Agent`] if neither a folder nor a memfd is to be had.
pub fn provide(bytes: &[u8]) -> Result<AgentFile, RecordError> {
    let mut reason = None;
    for folder in folders() {
        match in_folder(&folder, bytes) {
            Ok(path) => return Ok(AgentFile { path, _memfd: None }),
            Err(error) => reason = Some(error),
        }
    }
    in_memory(bytes).map_err(|error| RecordError::Agent(reason.unwrap_or(error)))
}

/// Cache folders to try, in order. LD_PRELOAD splits at blanks and colons, so a
/// path with one of them is of no use.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(cache) = std::env::var_os("XDG_CACHE_HOME").filter(|v| v.as_bytes().starts_with(b"/")) {
        folders.push(PathBuf::from(cache));
    }
    if let Some(home) = std::env::var_os("HOME").filter(|v| v.as_bytes().starts_with(b"/")) {
        folders.push(PathBuf::from(home).join(".cache"));
    }
    folders.retain(|f| !f.as_os_str().as_bytes().iter().any(|b| matches!(b, b' ' | b':' | b'\n' | b'\t')));
    folders.into_iter().map(|f| f.join("highwater")).collect()
}

fn in_folder(folder: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let folder = folder.join(format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), fingerprint(bytes)));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let meta = fs::metadata(&folder)?;
    // SAFETY: no arguments.
    let me = unsafe { libc::geteuid() };
    if meta.uid() != me || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} can be written by others", folder.display())));
    }
    if noexec(&folder) {
        return Err(io::Error::other(format!("{} is on a noexec file system", folder.display())));
    }
    let path = folder.join("libhighwater_agent.so");
    if fs::read(&path).ok().as_deref() != Some(bytes) {
        replace(&path, |temporary| {
            let mut options = fs::OpenOptions::new();
            options.write(true).create_new(true).mode(0o755);
            options.open(temporary)?.write_all(bytes)
        })?;
    }
    link_recorder(&folder)?;
    Ok(path)
}

/// `highwater` beside the agent: who preloads the agent by hand gets it.
fn link_recorder(folder: &Path) -> io::Result<()> {
    let link = folder.join("highwater");
    let me = std::env::current_exe()?;
    if fs::read_link(&link).ok().as_deref() != Some(&me) {
        replace(&link, |temporary| std::os::unix::fs::symlink(&me, temporary))?;
    }
    Ok(())
}

/// Makes a file under another name and renames it: nobody sees half of it.
fn replace(path: &Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let _ = fs::remove_file(&temporary);
    let done = make(&temporary).and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

fn noexec(folder: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return true };
    // SAFETY: a zero-terminated path and a buffer of the right type.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &mut stat) == 0 && stat.f_flag & libc::ST_NOEXEC != 0
    }
}

/// Names a build, nothing more: what lies there is compared anyway. Eight bytes at a
/// time: a byte at a time took 5 % of the start's CPU.
fn fingerprint(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    };
    let hash = bytes.chunks(8).fold(0, |hash, chunk| {
        let mut word = [0; 8];
        word.iter_mut().zip(chunk).for_each(|(to, &from)| *to = from);
        mix(hash, u64::from_le_bytes(word))
    });
    mix(hash, bytes.len() as u64)
}

fn in_memory(bytes: &[u8]) -> Result<AgentFile, io::Error> {
    // SAFETY: a valid name; the descriptor is ours from here on.
    let fd = unsafe {
        let fd = libc::memfd_create(c"libhighwater_agent.so".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let mut file = fs::File::from(fd);
    file.write_all(bytes)?;
    let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
    Ok(AgentFile { path, _memfd: Some(OwnedFd::from(file)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_folder_the_agent_is_in_memory() {
        let agent = in_memory(b"not really a library").unwrap();
        assert_eq!(fs::read(&agent.path).unwrap(), b"not really a library");
    }

    #[test]
    fn builds_that_differ_anywhere_have_names_of_their_own() {
        let build: Vec<u8> = (0..100u8).collect();
        let mut names = std::collections::BTreeSet::from([fingerprint(&build), fingerprint(&build[..99])]);
        for bit in 0..800 {
            let mut other = build.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            names.insert(fingerprint(&other));
        }
        names.insert(fingerprint(&[&build[..], &[0]].concat()));
        assert_eq!(names.len(), 803);
    }
}
