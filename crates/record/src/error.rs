//! What can go wrong before or while recording.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Why nothing was recorded, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The command to run is not there.
    #[error("{}: no such program; check the name, or give a path", .0.to_string_lossy())]
    NotFound(OsString),
    /// The command to run cannot be executed.
    #[error("{}: cannot be executed: {reason}", .program.to_string_lossy())]
    NotExecutable {
        /// As given.
        program: OsString,
        /// The system's reason.
        reason: io::Error,
    },
    /// The program cannot be recorded this way.
    #[error("{path}: {reason}")]
    Unrecordable {
        /// The program.
        path: PathBuf,
        /// Why, and the way out.
        reason: String,
    },
    /// The program is of a kind that this machine or this tool cannot execute.
    #[error("{path}: {reason}")]
    WrongKind {
        /// The program.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The trace would overwrite a file.
    #[error("{0} exists already; remove it, choose another name with -o, or add --force")]
    Exists(PathBuf),
    /// The trace cannot be written.
    #[error("cannot write {path}: {source}; choose another place with -o")]
    Output {
        /// The trace.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The agent's shared object cannot be put anywhere.
    #[error("cannot put the agent anywhere: {0}")]
    Agent(io::Error),
    /// A system call that never fails in practice did.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The trace's writer failed.
    #[error(transparent)]
    Trace(#[from] highwater_trace::TraceError),
}

impl RecordError {
    /// The exit code of `run` for this error: 127, 126 or 125.
    pub fn exit_code(&self) -> i32 {
        match self {
            RecordError::NotFound(_) => 127,
            RecordError::NotExecutable { .. } | RecordError::WrongKind { .. } => 126,
            _ => 125,
        }
    }

    /// The last system error, for a call named `what`.
    pub(crate) fn last(what: &'static str) -> RecordError {
        RecordError::System { what, source: io::Error::last_os_error() }
    }
}
