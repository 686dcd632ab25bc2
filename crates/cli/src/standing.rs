//! `completions` and `man`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

/// Options of `completions`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  highwater completions bash > ~/.local/share/bash-completion/completions/highwater"
)]
pub struct Completions {
    /// bash, zsh, fish, elvish or powershell
    shell: clap_complete::Shell,
}

/// Options of `man`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  highwater man ~/.local/share/man/man1")]
pub struct Man {
    /// Where the pages go
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints a completion script.
pub fn completions(args: &Completions) -> ExitCode {
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "highwater", &mut std::io::stdout());
    ExitCode::SUCCESS
}

/// Writes a manual page a command.
pub fn man(args: &Man) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.folder)
        .with_context(|| format!("cannot make {}", args.folder.display()))?;
    clap_mangen::generate_to(crate::Cli::command(), &args.folder)
        .with_context(|| format!("cannot write manual pages into {}", args.folder.display()))
}
