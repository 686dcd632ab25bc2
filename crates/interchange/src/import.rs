//! Files of other tools as recordings: what `import` writes and what views open
//! as they would a trace.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use highwater_trace::Recording;

use crate::mddout::{self, Dump, Event, matching, trace, unwind};
use crate::{dtrace, mddout::layout};

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The DTrace script's text: [`dtrace`].
    Dtrace,
    /// Dumps of an embedded target: [`mddout`].
    Mddout,
}

impl Format {
    /// All, by the names that `--from` takes.
    pub const ALL: [(&'static str, Format); 2] = [("dtrace", Format::Dtrace), ("mddout", Format::Mddout)];

    /// The format of a file that begins with these bytes (64 are enough), if it
    /// says so by itself.
    pub fn of(start: &[u8]) -> Option<Format> {
        if start.starts_with(&layout::MAGIC) || is_core(start) {
            return Some(Format::Mddout);
        }
        let empty = start.trim_ascii_start().is_empty();
        (!empty && dtrace::is_text(start)).then_some(Format::Dtrace)
    }

    /// The format of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_file(path: &Path) -> io::Result<Option<Format>> {
        let mut start = Vec::new();
        File::open(path)?.take(64).read_to_end(&mut start)?;
        Ok(Format::of(&start))
    }
}

/// An ELF core file: it may hold a dump.
fn is_core(start: &[u8]) -> bool {
    let big = start.get(5) == Some(&2);
    match start.get(16..18) {
        Some(&[a, b]) if start.starts_with(b"\x7fELF") => {
            let kind = if big { [a, b] } else { [b, a] };
            u16::from_be_bytes(kind) == object::elf::ET_CORE.0
        }
        _ => false,
    }
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds no dump that can be understood.
    #[error("{}: {source}", path.display())]
    Dump {
        /// The file.
        path: PathBuf,
        /// Why.
        source: mddout::ReadError,
    },
    /// The executable is not the dumps'.
    #[error("{} does not belong to {}: {source}", exe.display(), path.display())]
    Executable {
        /// The executable.
        exe: PathBuf,
        /// The first dump.
        path: PathBuf,
        /// Why.
        source: matching::MatchError,
    },
    /// Files that are not of one run.
    #[error("{} {source}", path.display())]
    Merge {
        /// The one that does not fit.
        path: PathBuf,
        /// Why.
        source: mddout::merge::MergeError,
    },
    /// Several files of a format of which one is a whole recording.
    #[error("{}: only dumps of one run can be read together", path.display())]
    TooMany {
        /// The second file.
        path: PathBuf,
    },
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The recording.
    pub recording: Recording,
    /// What the user should know of it, one line each.
    pub warnings: Vec<String>,
    /// Bytes of all files.
    pub file_size: u64,
}

/// Reads files of one recording. `exe` is the executable of dumps.
///
/// # Errors
/// A file cannot be read or understood, or does not belong to the others.
pub fn read(format: Format, files: &[PathBuf], exe: Option<&Path>) -> Result<Imported, ImportError> {
    match (format, files) {
        (Format::Mddout, _) => dumps(files, exe),
        (Format::Dtrace, [file]) => text(file),
        (Format::Dtrace, _) => Err(ImportError::TooMany { path: files.get(1).cloned().unwrap_or_default() }),
    }
}

/// Are these two dumps of one run, so that a number is the same event in both?
///
/// # Errors
/// One cannot be read or understood.
pub fn same_run(a: &Path, b: &Path) -> Result<bool, ImportError> {
    let dump = |path: &Path| {
        mddout::read(path).map_err(|source| ImportError::Dump { path: path.to_path_buf(), source })
    };
    Ok(mddout::merge::same_run(&[dump(a)?, dump(b)?]).is_ok())
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> ImportError {
    let path = path.to_path_buf();
    move |source| ImportError::Read { path, source }
}

fn text(path: &Path) -> Result<Imported, ImportError> {
    let file = File::open(path).map_err(unreadable(path))?;
    let file_size = file.metadata().map_err(unreadable(path))?.len();
    let text = dtrace::read(BufReader::with_capacity(1 << 16, file)).map_err(unreadable(path))?;
    let (recording, warnings) = dtrace::trace::recording(&text);
    Ok(Imported { recording, warnings, file_size })
}

fn dumps(files: &[PathBuf], exe: Option<&Path>) -> Result<Imported, ImportError> {
    let mut imported = Imported::default();
    let mut dumps = Vec::new();
    for path in files {
        let bytes = std::fs::read(path).map_err(unreadable(path))?;
        imported.file_size += bytes.len() as u64;
        let dump =
            mddout::parse(&bytes).map_err(|source| ImportError::Dump { path: path.clone(), source })?;
        let problems = dump.problems.iter();
        imported.warnings.extend(problems.map(|problem| format!("{}: {problem}", path.display())));
        dumps.push(dump);
    }
    let mut program = None;
    let mut tables = unwind::Tables::default();
    if let (Some(exe), Some(first), Some(path)) = (exe, dumps.first(), files.first()) {
        let bytes = std::fs::read(exe).map_err(unreadable(exe))?;
        let found = matching::matches(first, &bytes).map_err(|source| ImportError::Executable {
            exe: exe.to_path_buf(),
            path: path.clone(),
            source,
        })?;
        tables = unwind::Tables::parse(&bytes);
        let path = std::fs::canonicalize(exe).unwrap_or_else(|_| exe.to_path_buf());
        program = Some(trace::Program { path, slide: found.slide });
    }
    let slide = program.as_ref().map(|p| p.slide);
    let chain = |dump: &Dump, event: &Event| match slide {
        Some(slide) => unwind::verified(dump, event, &tables, slide),
        None => unwind::unpacked(dump, event),
    };
    let (recording, missing) = trace::recording(&dumps, program.as_ref(), chain).map_err(|source| {
        let index = match source {
            mddout::merge::MergeError::Stranger { index, .. } => index,
            mddout::merge::MergeError::Nothing => 0,
        };
        ImportError::Merge { path: files.get(index).cloned().unwrap_or_default(), source }
    })?;
    if missing > 0 {
        imported.warnings.push(format!("the history is incomplete: {missing} events are in no dump"));
    }
    imported.recording = recording;
    Ok(imported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mddout::write;

    #[test]
    fn a_format_is_known_by_its_first_bytes() {
        assert_eq!(Format::of(&write::file(&write::sample())), Some(Format::Mddout));
        assert_eq!(Format::of(b"\n<__0;2011 Jul"), Some(Format::Dtrace));
        let own = std::env::current_exe().unwrap();
        assert_eq!(Format::of_file(&own).unwrap(), None, "a program is no dump");
        for start in [&b""[..], b"\n \n", b"\x89HWT", b"{}", b"\x7fELF", b"\x7fEL"] {
            assert_eq!(Format::of(start), None);
        }
        let mut core = [0; 64];
        core[..6].copy_from_slice(b"\x7fELF\x02\x01");
        core[16] = 4;
        assert_eq!(Format::of(&core), Some(Format::Mddout));
    }

    #[test]
    fn dumps_of_one_run_are_one_recording_and_strangers_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("mddout.0"), folder.path().join("mddout.1"));
        let dump = write::sample();
        std::fs::write(&one, write::file(&dump)).unwrap();
        let mut stranger = dump.clone();
        stranger.run_id = 99;
        std::fs::write(&two, write::file(&stranger)).unwrap();
        let read_one = read(Format::Mddout, std::slice::from_ref(&one), None).unwrap();
        assert_eq!(read_one.recording.events.len(), 4);
        assert_eq!(read_one.warnings, [] as [String; 0]);
        assert_eq!(read_one.recording.events.iter().map(|e| e.seqno).collect::<Vec<_>>(), [0, 1, 2, 3]);
        let error = read(Format::Mddout, &[one.clone(), two.clone()], None).unwrap_err().to_string();
        assert_eq!(error, format!("{} is of another run than the first file", two.display()));
        let own = std::env::current_exe().unwrap();
        let error = read(Format::Mddout, &[one], Some(&own)).unwrap_err().to_string();
        assert!(error.contains("does not belong to"), "{error}");
    }
}
