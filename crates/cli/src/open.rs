//! Opening what views look at: a trace, or another tool's file that can be seen
//! as one.

use std::path::{Path, PathBuf};

use anyhow::bail;
use highwater_interchange::import::{self, Format};
use highwater_query::{Session, SessionOptions};
use highwater_record::control::{Recording, Which};

use crate::output;

/// Opens the files of one recording: one trace, one text of the DTrace script, or
/// the dumps (`mddout.N`) of one run. `exe` is the executable of dumps.
///
/// # Errors
/// A file cannot be read, or they do not belong together.
pub fn session(files: &[PathBuf], exe: Option<&Path>, options: SessionOptions) -> anyhow::Result<Session> {
    let [first, others @ ..] = files else { bail!("name a trace") };
    // What cannot be read here cannot be read as a trace, either; that says why.
    let Some(format) = Format::of_file(first).ok().flatten() else {
        if let Some(other) = others.first() {
            bail!("{}: only dumps of one run can be read together", other.display());
        }
        if let Some(exe) = exe {
            bail!("--exe {}: a trace knows its executable; dumps do not", exe.display());
        }
        return trace(first, options);
    };
    let imported = import::read(format, files, exe)?;
    Ok(Session::of_recording(first, imported.file_size, imported.recording, imported.warnings, options))
}

/// Opens a trace. Of one that is still being written only what is complete is
/// taken, and that is told on stderr.
fn trace(path: &Path, mut options: SessionOptions) -> anyhow::Result<Session> {
    let session = Session::open(path, options.clone())?;
    if session.facts().end.is_some() || Recording::find(&Which::Trace(path.to_path_buf())).is_err() {
        return Ok(session);
    }
    options.being_written = true;
    let session = Session::open(path, options)?;
    if session.facts().being_written {
        output::say(&format!(
            "note: {} is still being written; this is what was complete when it was opened",
            path.display()
        ));
    }
    Ok(session)
}
