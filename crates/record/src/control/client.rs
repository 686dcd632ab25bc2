//! The command's side of the control socket: which recordings there are, and
//! asking one.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::place::Folder;
use super::protocol::{self, Reply, Request, Status};
use super::server;

/// How long a recorder may take for an answer: it may be writing to a slow disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a recording could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is none.
    #[error("nothing is being recorded; start with: highwater run -- PROG")]
    None,
    /// There is none of this process.
    #[error("no recording of process {pid}{}", others(known))]
    NoPid {
        /// Asked for.
        pid: u32,
        /// What there is.
        known: Vec<Status>,
    },
    /// There is none into this file.
    #[error("no recording into {}{}", trace.display(), others(known))]
    NoTrace {
        /// Asked for.
        trace: PathBuf,
        /// What there is.
        known: Vec<Status>,
    },
    /// There are several.
    #[error("several recordings: choose one with --pid{}", others(known))]
    Several {
        /// They.
        known: Vec<Status>,
    },
    /// It said no.
    #[error("the recorder of process {pid}: {reason}")]
    Refused {
        /// Whose recorder.
        pid: u32,
        /// Its words.
        reason: String,
    },
    /// The connection broke.
    #[error("the recorder of process {pid} does not answer: {source}")]
    Broken {
        /// Whose recorder.
        pid: u32,
        /// How.
        source: io::Error,
    },
}

fn others(known: &[Status]) -> String {
    let list: Vec<String> =
        known.iter().map(|status| format!("\n  --pid {}  {}", status.pid, status.trace.display())).collect();
    if list.is_empty() { String::new() } else { format!("; there are:{}", list.concat()) }
}

/// Which recording is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The only one.
    Only,
    /// That of this process.
    Pid(u32),
    /// That into this file.
    Trace(PathBuf),
}

/// A recording that answers.
pub struct Recording {
    stream: UnixStream,
    /// What it said of itself.
    pub status: Status,
}

impl Recording {
    /// All recordings of this user, by process id. Sockets of recorders that
    /// were killed are removed.
    pub fn all() -> Vec<Recording> {
        let mut list: Vec<Recording> = Folder::existing().iter().flat_map(Recording::below).collect();
        list.sort_by_key(|recording| recording.status.pid);
        list
    }

    /// The recordings whose sockets are in this folder.
    fn below(folder: &Folder) -> Vec<Recording> {
        server::sweep(folder);
        let open = |name| UnixStream::connect(folder.path_of(&name)).ok();
        folder.names().into_iter().filter_map(|name| open(name).and_then(Recording::greet)).collect()
    }

    /// The recordings of the first folder that has any: those of this session
    /// where it has a folder of its own.
    fn nearest() -> Vec<Recording> {
        let mut lists = Folder::existing().into_iter().map(|folder| Recording::below(&folder));
        lists.find(|list| !list.is_empty()).unwrap_or_default()
    }

    /// The recording that is meant.
    ///
    /// # Errors
    /// There is none, or more than one and nothing to choose by.
    pub fn find(which: &Which) -> Result<Recording, ControlError> {
        let mut all = if *which == Which::Only { Recording::nearest() } else { Recording::all() };
        let known = |all: &[Recording]| all.iter().map(|recording| recording.status.clone()).collect();
        if all.is_empty() {
            return Err(ControlError::None);
        }
        let at = match which {
            Which::Only if all.len() == 1 => Some(0),
            Which::Only => return Err(ControlError::Several { known: known(&all) }),
            Which::Pid(pid) => all.iter().position(|recording| recording.status.pid == *pid),
            Which::Trace(path) => all.iter().position(|recording| same(&recording.status.trace, path)),
        };
        match (at, which) {
            (Some(at), _) => Ok(all.swap_remove(at)),
            (None, Which::Trace(trace)) => {
                Err(ControlError::NoTrace { trace: trace.clone(), known: known(&all) })
            }
            (None, Which::Pid(pid)) => Err(ControlError::NoPid { pid: *pid, known: known(&all) }),
            (None, Which::Only) => Err(ControlError::None),
        }
    }

    fn greet(stream: UnixStream) -> Option<Recording> {
        // A recorder that has just ended its work answers nothing any more.
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.set_write_timeout(Some(Duration::from_secs(5))).ok()?;
        let mut recording = Recording { stream, status: Status::default() };
        match recording.say(&Request::Status) {
            Ok(Reply::Status(status)) => {
                recording.stream.set_read_timeout(Some(PATIENCE)).ok()?;
                Some(Recording { status, ..recording })
            }
            _ => None,
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// It says no, or nothing.
    pub fn ask(&mut self, request: &Request) -> Result<Reply, ControlError> {
        let pid = self.status.pid;
        if *request == Request::Scan {
            // As long as the recorder lives: it has a limit of its own.
            let _ = self.stream.set_read_timeout(None);
        }
        match self.say(request) {
            Ok(Reply::Refused { reason }) => Err(ControlError::Refused { pid, reason }),
            Ok(reply) => Ok(reply),
            Err(source) => Err(ControlError::Broken { pid, source }),
        }
    }

    fn say(&mut self, request: &Request) -> io::Result<Reply> {
        self.stream.write_all(protocol::to_line(request).as_bytes())?;
        let mut line = Vec::new();
        let mut buffer = [0; 4096];
        while !line.ends_with(b"\n") {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => line.extend_from_slice(buffer.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if line.len() > protocol::MAX_LINE {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        protocol::from_line(&line).map_err(io::Error::other)
    }
}

/// Do both paths lead to one file?
fn same(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.dev() == b.dev() && a.ino() == b.ino(),
        _ => a == b,
    }
}
