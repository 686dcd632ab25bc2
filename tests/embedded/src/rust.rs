//! Programs in Rust with the agent beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::compiled;
use crate::root;

/// Compiles the agent, its port for Rust and for POSIX hosts, the crate `highwater`
/// and `embedded/demo/rust/consume.rs` to `folder/consume`. `options` are the agent's:
/// `HISTORY=1`.
///
/// # Panics
/// If that fails, with what the compiler says.
pub fn link(folder: &Path, options: &[&str]) -> PathBuf {
    let embedded = root().join("embedded");
    // a program's own configuration: a host, and Rust
    let config = "#include \"highwater_mdd_posix.h\"\n#include \"highwater_mdd_rust.h\"\n";
    fs::write(folder.join("config.h"), config).unwrap();
    let sources = [
        "agent/highwater_mdd.c",
        "ports/rust/highwater_mdd_rust.c",
        "ports/posix/posix.c",
        "ports/transport/highwater_mdd_send.c",
        "demo/native/board.c",
    ];
    let mut archive = Command::new("ar");
    archive.current_dir(folder).args(["rcs", "libagent.a"]);
    for (n, source) in sources.iter().enumerate() {
        let object = format!("{n}.o");
        let mut command = Command::new("gcc");
        command.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-std=gnu99", "-fno-omit-frame-pointer"]);
        command.args(["-DHIGHWATER_MDD=1", "-DHIGHWATER_MDD_CONFIG=\"config.h\"", "-I."]);
        command.args(options.iter().map(|o| format!("-DHIGHWATER_MDD_{o}")));
        for sub in ["agent", "ports/rust", "ports/posix", "ports/transport", "demo"] {
            command.arg("-I").arg(embedded.join(sub));
        }
        command.arg("-c").arg(embedded.join(source)).args(["-o", &object]);
        compiled(command.current_dir(folder));
        archive.arg(object);
    }
    compiled(&mut archive);
    let rustc = || {
        let mut command = Command::new("rustc");
        command.current_dir(folder).args(["--edition=2024", "-O", "-g", "-Dwarnings"]);
        command.args(["-Cpanic=abort", "-Cforce-frame-pointers=yes"]);
        command
    };
    let library = root().join("crates/highwater/src/lib.rs");
    compiled(rustc().args(["--crate-type=rlib", "--crate-name=highwater"]).arg(library));
    let mut program = rustc();
    program.args(["--extern=highwater=libhighwater.rlib", "-L.", "-lstatic=agent", "-Clink-arg=-lc"]);
    program.args(["-Clink-arg=-lgcc_s", "-Clink-arg=-Wl,--build-id=sha1"]);
    compiled(program.arg(embedded.join("demo/rust/consume.rs")));
    folder.join("consume")
}
