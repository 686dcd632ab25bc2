//! Where control sockets are: a folder that only its owner can enter.
//!
//! `$XDG_RUNTIME_DIR/highwater`, or `/tmp/highwater-UID` where there is no such
//! folder. In `/tmp` anybody may have made it first, so nothing is used that is
//! a link, belongs to somebody else or lets others in.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How a socket's name ends.
pub const ENDING: &str = ".sock";

/// A folder of sockets, held open: a path below it cannot be redirected, and
/// may be longer than a socket address is.
#[derive(Debug)]
pub struct Folder {
    file: File,
    path: PathBuf,
}

/// This user's id.
pub fn user() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

impl Folder {
    /// The folder for a new socket, made where it is not there.
    ///
    /// # Errors
    /// The last candidate's: it cannot be made or is not ours alone.
    pub fn provide() -> io::Result<Folder> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for path in candidates() {
            match make(&path) {
                Ok(folder) => return Ok(folder),
                Err(error) => last = io::Error::new(error.kind(), format!("{}: {error}", path.display())),
            }
        }
        Err(last)
    }

    /// The folders in which sockets may be.
    pub fn existing() -> Vec<Folder> {
        candidates().iter().filter_map(|path| Folder::open(path).ok()).collect()
    }

    /// Opens a folder that is ours alone.
    ///
    /// # Errors
    /// It is not there, is no folder, is a link, belongs to somebody else, or
    /// others may enter.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)?;
        let facts = file.metadata()?;
        if facts.uid() != user() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to somebody else"));
        }
        if facts.mode() & 0o077 != 0 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others may enter it"));
        }
        Ok(Folder { file, path: path.to_path_buf() })
    }

    /// A path that leads to `name` in this folder and no other.
    pub fn path_of(&self, name: &OsString) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd())).join(name)
    }

    /// Where it is, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the sockets in it, sorted.
    pub fn names(&self) -> Vec<OsString> {
        let Ok(entries) = fs::read_dir(self.path_of(&OsString::from("."))) else { return Vec::new() };
        let mut names: Vec<OsString> = entries
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().ends_with(ENDING))
            .collect();
        names.sort();
        names
    }
}

fn make(path: &Path) -> io::Result<Folder> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    Folder::open(path)
}

/// The folders, the best first.
fn candidates() -> Vec<PathBuf> {
    let user = user();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let ours = |path: &PathBuf| path.is_absolute() && fs::metadata(path).is_ok_and(|m| m.uid() == user);
    let mut list: Vec<PathBuf> =
        runtime.into_iter().filter(ours).map(|path| path.join("highwater")).collect();
    list.push(PathBuf::from(format!("/tmp/highwater-{user}")));
    list
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_that_others_could_have_made_is_not_used() {
        let base = tempfile::tempdir().unwrap();
        let good = base.path().join("good");
        let folder = make(&good).unwrap();
        assert_eq!(fs::metadata(&good).unwrap().mode() & 0o777, 0o700);
        fs::write(folder.path_of(&"1.sock".into()), "").unwrap();
        fs::write(good.join("other"), "").unwrap();
        assert_eq!(folder.names(), ["1.sock"]);

        let link = base.path().join("link");
        symlink(&good, &link).unwrap();
        assert!(make(&link).is_err(), "a link");
        let open = base.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(make(&open).unwrap_err().to_string().contains("others may enter"));
        let file = base.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(make(&file).is_err(), "a file");
    }
}
