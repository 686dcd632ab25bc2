//! A simulated board with a debugger at it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use highwater_interchange::mddout::{self, Dump};

use crate::build::Target;
use crate::child::{self, Guarded};
use crate::root;

/// No session takes longer.
const LIMIT: Duration = Duration::from_secs(120);

/// Starts QEMU with `elf`, stopped, its GDB socket `g.sock` and the console's
/// log `console` in `folder`.
///
/// # Panics
/// If it does not come up.
pub fn board(target: Target, folder: &Path, elf: &Path) -> Guarded {
    let _ = fs::remove_file(folder.join("g.sock"));
    let mut command = match target {
        Target::Riscv => Command::new("qemu-system-riscv32"),
        _ => Command::new("qemu-system-arm"),
    };
    match target {
        Target::Riscv => command.args(["-M", "virt", "-bios", "none"]),
        _ => command.args(["-M", "mps2-an385"]),
    };
    command.args(["-display", "none", "-serial", "file:console", "-monitor", "none", "-S"]);
    command.args(["-semihosting-config", "enable=on,target=native"]);
    command.args(["-chardev", "socket,path=g.sock,server=on,wait=off,id=g0", "-gdb", "chardev:g0"]);
    command.arg("-kernel").arg(elf).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    let board = child::start(&mut command);
    child::wait_for("QEMU's socket", || folder.join("g.sock").exists());
    board
}

/// A GDB command that runs `commands` from a file. The macros are loaded.
///
/// # Panics
/// If the file cannot be written.
pub fn debugger(name: &str, folder: &Path, commands: &str) -> Command {
    let macros = root().join("embedded/gdb/mdd.gdb");
    let script =
        format!("set pagination off\nset confirm off\nsource {}\n{commands}\n", macros.to_str().unwrap());
    fs::write(folder.join("script.gdb"), script).unwrap();
    let mut command = Command::new(name);
    // without the tool on PATH: the macros must do without
    command.args(["-nx", "-q", "-batch", "-x", "script.gdb"]).current_dir(folder);
    command
}

/// Runs GDB's `commands` on a board; returns what GDB printed.
///
/// # Panics
/// If it takes too long.
pub fn session(target: Target, folder: &Path, elf: &Path, commands: &str) -> String {
    let _board = board(target, folder, elf);
    let commands = format!("file {}\ntarget remote g.sock\n{commands}\nkill", elf.to_str().unwrap());
    child::run(&mut debugger("gdb-multiarch", folder, &commands), LIMIT).text
}

/// The dumps `mddout.0`, `mddout.1`, … in a folder.
pub fn dump_files(folder: &Path) -> Vec<PathBuf> {
    (0..).map(|n| folder.join(format!("mddout.{n}"))).take_while(|f| f.exists()).collect()
}

/// Reads dumps, all of which must be without a flaw.
///
/// # Panics
/// If one is not.
pub fn flawless(files: &[PathBuf]) -> Vec<Dump> {
    let dumps: Vec<Dump> = files.iter().map(|f| mddout::read(f).unwrap()).collect();
    for (dump, file) in dumps.iter().zip(files) {
        assert!(!dump.is_damaged(), "{}: {:?}", file.display(), dump.problems);
    }
    dumps
}

/// `highwater mdd ARGS`: status, stdout, stderr.
pub fn mdd(args: &[&str], files: &[&Path]) -> (i32, String, String) {
    let mut all: Vec<std::ffi::OsString> = args.iter().map(Into::into).collect();
    all.extend(files.iter().map(Into::into));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = mddout::run(&all, &mut out, &mut err);
    (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}
