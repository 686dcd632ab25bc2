//! `highwater import`

use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use highwater_interchange::import::{self, Format};
use highwater_trace::WriterOptions;

use crate::output;

/// Options of `import`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  highwater import leaks.txt                       the DTrace script's text\n  \
                  highwater import mddout.0 mddout.1 -o run.hwt    dumps of one run of a target\n  \
                  highwater import --exe app.elf mddout.0          with names"
)]
pub struct Args {
    /// The file; several dumps of one run
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The trace to write [default: FILE.hwt]
    #[arg(short = 'o', long, value_name = "F.hwt")]
    output: Option<PathBuf>,
    /// What the file is, where it does not say so: dtrace, mddout
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// The executable of dumps, for names and checked backtraces
    #[arg(long, value_name = "FILE")]
    exe: Option<PathBuf>,
    /// Overwrite the trace if it exists
    #[arg(long)]
    force: bool,
}

/// Makes a trace of another tool's file.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let Some(first) = args.files.first() else { bail!("a file is missing") };
    let names = || Format::ALL.map(|(name, _)| name).join(", ");
    let format = match &args.from {
        Some(name) => Format::ALL
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, format)| *format)
            .ok_or_else(|| anyhow!("--from {name}: there are {}", names()))?,
        None => {
            Format::of_file(first).with_context(|| format!("cannot read {}", first.display()))?.ok_or_else(
                || anyhow!("{}: of no format that says its name; use --from ({})", first.display(), names()),
            )?
        }
    };
    let imported = import::read(format, &args.files, args.exe.as_deref())?;
    let output = args.output.clone().unwrap_or_else(|| {
        let mut name = first.as_os_str().to_owned();
        name.push(".hwt");
        PathBuf::from(name)
    });
    let options = WriterOptions { overwrite: args.force, ..WriterOptions::default() };
    imported.recording.write(&output, options)?;
    for warning in &imported.warnings {
        output::say(&format!("note: {warning}"));
    }
    output::say(&format!("wrote {}: {} events", output.display(), imported.recording.events.len()));
    Ok(())
}
