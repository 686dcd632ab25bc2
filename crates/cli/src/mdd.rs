//! `highwater mdd …`, and the names that links give to this binary.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use crate::output;

/// Arguments of `mdd`: its own grammar, eCos's.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// stats, dump, history, diff, stacks, check, next, receive, extract, import; then their own arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    arguments: Vec<OsString>,
}

/// Runs `highwater mdd`.
pub fn run(args: &Args) -> ExitCode {
    let mut out = output::stdout();
    let code = highwater_interchange::mddout::run(&args.arguments, &mut out, &mut std::io::stderr());
    ended(code, out)
}

/// Runs as `ecosmdd`, if that is the name we were called by.
pub fn by_name() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = PathBuf::from(arguments.next()?);
    if name.file_name()? != "ecosmdd" {
        return None;
    }
    let arguments: Vec<OsString> = arguments.collect();
    let mut out = output::stdout();
    let code = highwater_interchange::mddout::ecos::run(&arguments, &mut out, &mut std::io::stderr());
    Some(ended(code, out))
}

fn ended(code: i32, mut out: impl std::io::Write) -> ExitCode {
    match out.flush() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::from(2),
        _ => ExitCode::from(code as u8),
    }
}

/// Options of `install-links`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  highwater install-links ~/.local/bin")]
pub struct Links {
    /// Where the links go
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Makes the links.
pub fn install_links(args: &Links) -> anyhow::Result<()> {
    let me = std::env::current_exe().context("where is this program?")?;
    std::fs::create_dir_all(&args.folder)
        .with_context(|| format!("cannot make {}", args.folder.display()))?;
    for name in ["ecosmdd", "findleaks"] {
        let link = args.folder.join(name);
        if std::fs::read_link(&link).ok().as_ref() != Some(&me) {
            symlink(&me, &link).with_context(|| format!("cannot make {}", link.display()))?;
        }
        println!("{}", link.display());
    }
    Ok(())
}
