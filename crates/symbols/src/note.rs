//! What the user should know about names that are missing.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Something about one module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// Path of the module.
    pub module: Arc<str>,
    /// What it is.
    pub kind: NoteKind,
}

/// What there is to say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoteKind {
    /// The file has no DWARF and no separate debug file was found.
    NoDebugInfo {
        /// It is the program itself, so the user can compile it anew.
        is_main: bool,
    },
    /// There is no such file any more.
    FileMissing {
        /// A file with the recorded build-id that was used in its stead.
        used: Option<PathBuf>,
    },
    /// The file is there but cannot be read.
    Unreadable {
        /// Why.
        error: String,
        /// A file with the recorded build-id that was used in its stead.
        used: Option<PathBuf>,
    },
    /// The file is not the one that was running: it was replaced since.
    BuildIdMismatch {
        /// Build-id in the trace, in hex.
        recorded: String,
        /// Build-id of the file, in hex; empty if it has none.
        found: String,
        /// A file with the recorded build-id that was used in its stead.
        used: Option<PathBuf>,
    },
    /// The DWARF is damaged; the symbol table was used where it failed.
    DamagedDebugInfo {
        /// The first error.
        error: String,
    },
    /// The program was compiled with `-gsplit-dwarf` and one of its `.dwo`
    /// files was not found; more of them may be missing.
    MissingDwo {
        /// Its name, as the compiler wrote it.
        name: String,
    },
    /// The debug file shares parts with another file (dwz) that was not found.
    MissingAltFile {
        /// Its name, as it was written.
        name: String,
    },
    /// Asking debuginfod failed, or took too long; it is not asked again.
    Debuginfod {
        /// What went wrong.
        error: String,
    },
}

impl NoteKind {
    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            NoteKind::NoDebugInfo { is_main: true } => {
                Some("compile with -g (Rust: debug = \"line-tables-only\") for files and lines")
            }
            NoteKind::NoDebugInfo { is_main: false } => Some(
                "install the libraries' debug packages, or set DEBUGINFOD_URLS, for files and lines in them",
            ),
            NoteKind::BuildIdMismatch { used: None, .. } | NoteKind::FileMissing { used: None } => {
                Some("give the folder that holds the recorded files with --debug-dir")
            }
            NoteKind::MissingDwo { .. } => {
                Some("keep the .dwo files, or pack them with dwp beside the program")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Note {
    /// One sentence, without a full stop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.module)?;
        let used = match &self.kind {
            NoteKind::NoDebugInfo { .. } => return f.write_str("no debug information"),
            NoteKind::FileMissing { used } => {
                f.write_str("the file is gone")?;
                used
            }
            NoteKind::Unreadable { error, used } => {
                write!(f, "cannot be read: {error}")?;
                used
            }
            NoteKind::BuildIdMismatch { recorded, found, used } => {
                write!(f, "the file's build-id no longer matches: recorded {recorded}, ")?;
                match found.as_str() {
                    "" => f.write_str("the file has none")?,
                    found => write!(f, "found {found}")?,
                }
                used
            }
            NoteKind::DamagedDebugInfo { error } => return write!(f, "damaged debug information: {error}"),
            NoteKind::MissingDwo { name } => return write!(f, "split debug information not found: {name}"),
            NoteKind::MissingAltFile { name } => {
                return write!(f, "shared debug information not found: {name}");
            }
            NoteKind::Debuginfod { error } => return write!(f, "debuginfod: {error}"),
        };
        match used {
            Some(path) => write!(f, "; used {} instead", path.display()),
            None => f.write_str("; only offsets are shown"),
        }
    }
}
