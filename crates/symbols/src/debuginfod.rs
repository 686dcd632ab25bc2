//! Debug files from a debuginfod server, by means of elfutils' `debuginfod-find`.
//!
//! The tool knows the protocol, TLS, proxies and the cache's layout
//! (`BUILDID/debuginfo`), and a distribution that sets `DEBUGINFOD_URLS` ships
//! it. What is ours is the guard: one try a build-id, a time-out, and silence
//! after the first time-out.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::elf::hex;

/// A file that takes longer than this is given up, and all further ones with it.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The client, and what it was asked already.
#[derive(Debug)]
pub(crate) struct Debuginfod {
    program: PathBuf,
    /// Where earlier downloads may lie; new ones go to the first.
    caches: Vec<PathBuf>,
    timeout: Duration,
    asked: HashMap<Vec<u8>, Option<PathBuf>>,
    state: State,
    error: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Caches and server.
    On,
    /// Nothing more from the server, only what is cached.
    Offline,
    /// Not even that.
    Off,
}

impl Debuginfod {
    /// As the environment says: `DEBUGINFOD_URLS` switches it on.
    pub(crate) fn from_env(wanted: bool) -> Debuginfod {
        let urls = std::env::var_os("DEBUGINFOD_URLS").unwrap_or_default();
        let on = wanted && urls.to_string_lossy().split_whitespace().next().is_some();
        let home = std::env::var_os("HOME").filter(|h| !h.is_empty()).map(PathBuf::from);
        let base = std::env::var_os("XDG_CACHE_HOME")
            .filter(|p| Path::new(p).is_absolute())
            .map(PathBuf::from)
            .or_else(|| home.as_ref().map(|h| h.join(".cache")));
        let given = std::env::var_os("DEBUGINFOD_CACHE_PATH").filter(|p| !p.is_empty()).map(PathBuf::from);
        let mut caches: Vec<PathBuf> = given.into_iter().collect();
        if let Some(base) = base {
            caches.push(base.join("highwater/debuginfod"));
            caches.push(base.join("debuginfod_client"));
        }
        // elfutils' older default.
        caches.extend(home.map(|h| h.join(".debuginfod_client_cache")));
        let mut client = Debuginfod::new("debuginfod-find".into(), caches, TIMEOUT);
        if !on {
            client.state = State::Off;
        }
        client
    }

    fn new(program: PathBuf, caches: Vec<PathBuf>, timeout: Duration) -> Debuginfod {
        Debuginfod { program, caches, timeout, asked: HashMap::new(), state: State::On, error: None }
    }

    /// Path of the debug file with this build-id, downloaded if need be.
    pub(crate) fn find(&mut self, id: &[u8]) -> Option<PathBuf> {
        if self.state == State::Off {
            return None;
        }
        if let Some(known) = self.asked.get(id) {
            return known.clone();
        }
        let name = hex(id);
        let mut found = self.cached(&name);
        if found.is_none() && self.state == State::On {
            match self.download(&name) {
                Ok(path) => found = path,
                Err(error) => {
                    self.error.get_or_insert(error);
                    self.state = State::Offline;
                }
            }
        }
        self.asked.insert(id.to_vec(), found.clone());
        found
    }

    /// What went wrong with the tool or the server as a whole, told once. That
    /// it does not have a file is no error.
    pub(crate) fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    fn cached(&self, name: &str) -> Option<PathBuf> {
        // The tool marks "not there" by an empty file.
        self.caches
            .iter()
            .map(|cache| cache.join(name).join("debuginfo"))
            .find(|path| fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() > 0))
    }

    /// Runs the tool. `Ok(None)` if the server does not have the file.
    fn download(&self, name: &str) -> Result<Option<PathBuf>, String> {
        let cache = self.caches.first().ok_or("no cache folder: neither XDG_CACHE_HOME nor HOME is set")?;
        fs::create_dir_all(cache).map_err(|e| format!("{}: {e}", cache.display()))?;
        // Its answer goes to a file, not to a pipe: a pipe that a left-over
        // grandchild holds open would make us wait for ever.
        let answer_path = cache.join(format!(".highwater-{}-{name}", std::process::id()));
        let answer = answer_file(&answer_path).map_err(|e| format!("{}: {e}", answer_path.display()))?;
        let result = self.run(name, cache, answer).map(|ok| ok.then(|| read_answer(&answer_path)).flatten());
        // Left behind it would be litter, no more.
        let _ = fs::remove_file(&answer_path);
        Ok(result?.or_else(|| self.cached(name)))
    }

    /// Whether the tool found the file.
    fn run(&self, name: &str, cache: &Path, answer: File) -> Result<bool, String> {
        let program = self.program.display();
        let mut child = Command::new(&self.program)
            .args(["debuginfo", name])
            .env("DEBUGINFOD_CACHE_PATH", cache)
            // A recorder's environment is no business of this child.
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(answer)
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("DEBUGINFOD_URLS is set but {program} cannot be run: {e}"))?;
        let end = Instant::now() + self.timeout;
        let mut pause = Duration::from_millis(2);
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status.success()),
                Ok(None) if Instant::now() >= end => {
                    stop(&mut child);
                    return Err(format!("no answer in {} s, not asked again", self.timeout.as_secs_f32()));
                }
                Ok(None) => std::thread::sleep(pause),
                Err(e) => {
                    stop(&mut child);
                    return Err(format!("{program}: {e}"));
                }
            }
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// A new file of our own: never one that lies there already, nor through a link.
fn answer_file(path: &Path) -> std::io::Result<File> {
    let _ = fs::remove_file(path);
    OpenOptions::new().write(true).create_new(true).open(path)
}

fn read_answer(path: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let mut text = Vec::new();
    File::open(path).ok()?.take(8192).read_to_end(&mut text).ok()?;
    text.truncate(text.iter().position(|&b| b == b'\n').unwrap_or(text.len()));
    (!text.is_empty()).then(|| PathBuf::from(OsString::from_vec(text)))
}

fn stop(child: &mut Child) {
    // It may have ended in between; either way it is reaped.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn tool(dir: &Path, script: &str) -> PathBuf {
        let path = dir.join("debuginfod-find");
        fs::write(&path, format!("#!/bin/sh\necho \"$@\" >> {}/log\n{script}\n", dir.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn calls(dir: &Path) -> usize {
        fs::read_to_string(dir.join("log")).map_or(0, |log| log.lines().count())
    }

    #[test]
    fn one_try_a_build_id_and_the_cache_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        let program = tool(
            dir.path(),
            r#"[ "$2" = 00ff ] || exit 1
               mkdir -p "$DEBUGINFOD_CACHE_PATH/$2" && echo ELF > "$DEBUGINFOD_CACHE_PATH/$2/debuginfo"
               echo "$DEBUGINFOD_CACHE_PATH/$2/debuginfo""#,
        );
        let mut client = Debuginfod::new(program.clone(), vec![cache.clone()], Duration::from_secs(20));
        let expected = cache.join("00ff/debuginfo");
        assert_eq!(client.find(&[0, 0xff]), Some(expected.clone()));
        assert_eq!(client.find(&[0, 0xff]), Some(expected.clone()));
        assert_eq!(client.find(&[1, 2]), None);
        assert_eq!(client.find(&[1, 2]), None);
        assert_eq!(calls(dir.path()), 2);
        assert_eq!(client.take_error(), None, "not there is no error");
        let mut again = Debuginfod::new(program, vec![cache.clone()], Duration::from_secs(20));
        assert_eq!(again.find(&[0, 0xff]), Some(expected));
        assert_eq!(calls(dir.path()), 2, "from the cache");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1, "nothing left behind");
    }

    #[test]
    fn a_hanging_tool_is_stopped_and_not_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        // The grandchild would hold a pipe open.
        let program = tool(dir.path(), "sleep 30 & sleep 30");
        let start = Instant::now();
        let mut client = Debuginfod::new(program, vec![dir.path().join("cache")], Duration::from_millis(300));
        assert_eq!(client.find(&[1, 2]), None);
        assert_eq!(client.find(&[3, 4]), None);
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(calls(dir.path()), 1);
        assert!(client.take_error().unwrap().contains("no answer"));
    }

    #[test]
    fn a_missing_tool_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut client =
            Debuginfod::new("/no/such/tool".into(), vec![dir.path().into()], Duration::from_secs(1));
        assert_eq!(client.find(&[1, 2]), None);
        assert!(client.take_error().unwrap().contains("cannot be run"));
        assert_eq!(client.find(&[3, 4]), None);
        assert_eq!(client.take_error(), None);
    }

    #[test]
    fn off_unless_wanted() {
        let mut client = Debuginfod::from_env(false);
        assert_eq!(client.find(&[1, 2]), None);
        assert_eq!(client.take_error(), None);
    }
}
