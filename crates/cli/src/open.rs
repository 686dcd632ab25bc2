//! Opening what views look at: a trace, or another tool's file that can be seen
//! as one.

use std::path::{Path, PathBuf};

use anyhow::bail;
use highwater_interchange::import::{self, Format};
use highwater_query::{Session, SessionOptions};

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
        return Ok(Session::open(first, options)?);
    };
    let imported = import::read(format, files, exe)?;
    Ok(Session::of_recording(first, imported.file_size, imported.recording, imported.warnings, options))
}
