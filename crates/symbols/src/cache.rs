//! Answers kept from one run to the next: what a module's files say about
//! addresses, one file a build-id.
//!
//! **Never another answer than without it.** What is kept is what the files
//! themselves say, before any option changes it (demangling, rewritten paths),
//! and it counts only as long as all files that it was read from, and highwater
//! itself, are the same to the last change. A file that is damaged, of another
//! version or not this user's is as good as none. Nothing here fails: without a
//! cache names are looked up anew.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustc_hash::FxHashMap;

use crate::answer::{self, Answer};
use crate::elf::{Elf, hex};

/// A longer file is neither written nor read, bytes.
const FILE_LIMIT: u64 = 64 << 20;
/// All files together: above it the oldest go, bytes.
const TOTAL_LIMIT: u64 = 256 << 20;
/// What a writer that was killed has left is removed when it is older.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// How the files' names end.
const ENDING: &str = ".symbols";
const MAGIC: &[u8; 8] = b"HWSYMB\x00\x01";
/// Magic and the CRC-32 of all behind it.
const HEAD: usize = 12;

/// The folder that the environment names: none with
/// `HIGHWATER_SYMBOL_CACHE=off`, else `$XDG_CACHE_HOME/highwater/symbols`, else
/// `~/.cache/highwater/symbols`.
pub fn default_folder() -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if std::env::var_os("HIGHWATER_SYMBOL_CACHE").is_some_and(|value| value == "off") {
        return None;
    }
    let base = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("highwater/symbols"))
}

/// What is known of one module's addresses.
pub(crate) struct Kept {
    folder: PathBuf,
    path: PathBuf,
    key: Vec<u8>,
    answers: FxHashMap<u64, Arc<Answer>>,
    /// Answers that the file has not.
    fresh: bool,
}

impl Kept {
    /// What earlier runs found out. `files` are all files that answers are read
    /// from, the module's own first; `None` where it has no build-id or a file is
    /// none that could be known again.
    pub(crate) fn open(folder: &Path, files: &[&Elf]) -> Option<Kept> {
        let id = &files.first()?.build_id;
        if !(2..=64).contains(&id.len()) {
            return None;
        }
        let path = folder.join(format!("{}{ENDING}", hex(id)));
        let mut kept = Kept {
            folder: folder.to_path_buf(),
            key: key(files)?,
            answers: FxHashMap::default(),
            path,
            fresh: false,
        };
        kept.answers = kept.read().unwrap_or_default();
        Some(kept)
    }

    /// The answer for an address of the file.
    pub(crate) fn get(&self, address: u64) -> Option<Arc<Answer>> {
        self.answers.get(&address).cloned()
    }

    /// Keeps one.
    pub(crate) fn put(&mut self, address: u64, answer: &Arc<Answer>) {
        self.fresh = true;
        self.answers.insert(address, Arc::clone(answer));
    }

    /// Writes what is new, together with what others have written meanwhile.
    pub(crate) fn save(&mut self) {
        if !std::mem::take(&mut self.fresh) || !provide(&self.folder) {
            return;
        }
        for (address, answer) in self.read().unwrap_or_default() {
            self.answers.entry(address).or_insert(answer);
        }
        let bytes = self.encode();
        if bytes.len() as u64 <= FILE_LIMIT && replace(&self.folder, &self.path, &bytes).is_ok() {
            sweep(&self.folder, TOTAL_LIMIT);
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.extend_from_slice(&(self.key.len() as u32).to_le_bytes());
        rest.extend_from_slice(&self.key);
        answer::encode(&self.answers, &mut rest);
        let mut all = MAGIC.to_vec();
        all.extend_from_slice(&crc32fast::hash(&rest).to_le_bytes());
        all.append(&mut rest);
        all
    }

    fn read(&self) -> Option<FxHashMap<u64, Arc<Answer>>> {
        if !is_ours(&self.folder) || !is_ours(&self.path) {
            return None;
        }
        let mut bytes = Vec::new();
        File::open(&self.path).ok()?.take(FILE_LIMIT + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > FILE_LIMIT {
            return None;
        }
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let (magic, crc) = head.split_at_checked(MAGIC.len())?;
        if magic != MAGIC || crc != crc32fast::hash(rest).to_le_bytes() {
            return None;
        }
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        if key != self.key { None } else { answer::decode(rest) }
    }
}

/// Names these very files and this very highwater.
fn key(files: &[&Elf]) -> Option<Vec<u8>> {
    let own = fs::metadata("/proc/self/exe").ok()?;
    let mut key = Vec::new();
    put_stamp(&mut key, OsStr::new(env!("CARGO_PKG_VERSION")), &stamp(&own));
    for file in files {
        put_stamp(&mut key, file.path.as_os_str(), file.stamp.as_ref()?);
    }
    Some(key)
}

fn put_stamp(key: &mut Vec<u8>, name: &OsStr, stamp: &Stamp) {
    key.extend_from_slice(&(name.len() as u64).to_le_bytes());
    key.extend_from_slice(name.as_bytes());
    for number in stamp {
        key.extend_from_slice(&number.to_le_bytes());
    }
}

/// What changes when a file does: inode, size, times of the last change of
/// contents and of facts, each in s and ns.
pub(crate) type Stamp = [i64; 6];

/// The stamp in a file's facts.
pub(crate) fn stamp(facts: &fs::Metadata) -> Stamp {
    [
        facts.ino() as i64,
        facts.size() as i64,
        facts.mtime(),
        facts.mtime_nsec(),
        facts.ctime(),
        facts.ctime_nsec(),
    ]
}

/// Whether only this user can have written it. No link counts.
fn is_ours(path: &Path) -> bool {
    let Ok(facts) = fs::symlink_metadata(path) else { return false };
    let kind = facts.is_file() || facts.is_dir();
    kind && Some(facts.uid()) == user() && facts.mode() & 0o022 == 0
}

/// This user's id: the owner of this process.
fn user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|facts| facts.uid())
}

/// Makes the folder where it is not there; not in another user's, as with sudo.
fn provide(folder: &Path) -> bool {
    if !folder.exists() {
        let near = folder.ancestors().skip(1).find_map(|above| fs::metadata(above).ok());
        if near.map(|facts| facts.uid()) != user()
            || DirBuilder::new().recursive(true).mode(0o700).create(folder).is_err()
        {
            return false;
        }
    }
    is_ours(folder)
}

/// Puts a whole file in the place of another: a reader sees the one or the other.
fn replace(folder: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let part = folder.join(format!(".{}.{number}.part", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
        file.write_all(bytes)?;
        fs::rename(&part, path)
    };
    let done = write();
    if done.is_err() {
        // It may not even be there; then there is nothing to remove.
        let _ = fs::remove_file(&part);
    }
    done
}

/// Removes the oldest files above a total, and what killed writers left.
fn sweep(folder: &Path, limit: u64) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let (Ok(facts), path) = (entry.metadata(), entry.path()) else { continue };
        let Ok(changed) = facts.modified() else { continue };
        let ends = |ending: &str| path.as_os_str().as_bytes().ends_with(ending.as_bytes());
        if ends(ENDING) {
            files.push((changed, facts.len(), path));
        } else if ends(".part")
            && SystemTime::now().duration_since(changed).is_ok_and(|age| age > LEFT_BEHIND)
        {
            // Another process may have been faster.
            let _ = fs::remove_file(path);
        }
    }
    files.sort();
    let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in files {
        if total <= limit {
            break;
        }
        let _ = fs::remove_file(path);
        total -= size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_limit_the_oldest_go_and_leftovers_when_they_are_old() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let old = SystemTime::now() - Duration::from_secs(10_000);
        for (n, name) in ["c.symbols", "a.symbols", "b.symbols", ".1.0.part"].iter().enumerate() {
            fs::write(at(name), [0; 100]).unwrap();
            File::options()
                .write(true)
                .open(at(name))
                .unwrap()
                .set_modified(old + Duration::from_secs(n as u64))
                .unwrap();
        }
        fs::write(at(".2.0.part"), "being written").unwrap();
        fs::write(at("other"), [0; 1000]).unwrap();
        sweep(dir.path(), 300);
        assert!(at("c.symbols").exists(), "the limit is not passed");
        assert!(!at(".1.0.part").exists() && at(".2.0.part").exists());
        sweep(dir.path(), 250);
        assert!(!at("c.symbols").exists() && at("a.symbols").exists() && at("b.symbols").exists());
        assert!(at("other").exists(), "not ours to remove");
    }

    #[test]
    fn a_folder_that_others_may_write_or_a_link_is_not_ours() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        assert!(provide(&folder));
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        let link = dir.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(!provide(&link));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!provide(&folder));
    }
}
