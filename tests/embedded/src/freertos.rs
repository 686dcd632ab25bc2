//! FreeRTOS's kernel, fetched from crates.io when a test wants it.
//!
//! The crate `freertos-next` carries the kernel's own sources (V11.2.0, MIT). It is only
//! unpacked here, by cargo as always: into a folder of the test's, never built as a crate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::build::{Firmware, Target};
use crate::child;

const MANIFEST: &str = "\
[package]
name = \"kernel\"
version = \"0.0.0\"
edition = \"2024\"
[lib]
path = \"lib.rs\"
[workspace]
[dependencies]
freertos-next = \"=0.12.0\"
";
/// Of that version's package.
const SHA256: &str = "b7824fb42660c16e1b3b573eef99c2fe5c5cba6294a631c309084635f6bfcbb0";

/// Unpacks the kernel somewhere in `folder`; returns where. From cargo's cache if it
/// is there, else from the registry. `None`, and a message, if that cannot be reached:
/// then the tasks of `demo/tasks.c` must do (`tests/consume.rs`).
///
/// # Panics
/// If it is another one than we know.
pub fn kernel(folder: &Path) -> Option<PathBuf> {
    fs::write(folder.join("Cargo.toml"), MANIFEST).unwrap();
    fs::write(folder.join("lib.rs"), "").unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let vendor = |more: &[&str]| {
        let mut command = Command::new(&cargo);
        // the outer cargo's settings are for the workspace, not for this
        command.env_remove("CARGO_TARGET_DIR").current_dir(folder);
        command.env("CARGO_NET_RETRY", "1").env("CARGO_HTTP_TIMEOUT", "20");
        child::run(command.args(["vendor", "--quiet"]).args(more).arg("vendor"), Duration::from_secs(120))
    };
    if !vendor(&["--offline"]).success {
        let done = vendor(&[]);
        if !done.success {
            eprintln!("FreeRTOS's kernel cannot be fetched, its port is NOT TESTED:\n{}", done.text);
            return None;
        }
    }
    let package = folder.join("vendor/freertos-next");
    let sums = fs::read_to_string(package.join(".cargo-checksum.json")).unwrap();
    assert!(sums.contains(&format!("\"package\":\"{SHA256}\"")), "another package than we know: {sums}");
    Some(package.join("FreeRTOS-Kernel"))
}

/// `demo/freertos/kernel.c` on that kernel, with its port for the Cortex-M3 and one of its heaps.
pub fn firmware(kernel: &Path, heap: u8) -> Firmware {
    let heap = format!("portable/MemMang/heap_{heap}.c");
    let sources = ["tasks.c", "list.c", "queue.c", "portable/GCC/ARM_CM3/port.c", &heap];
    let demo = crate::root().join("embedded/demo/freertos");
    Firmware::new(Target::Nano, &["freertos/kernel.c"])
        .set("CONFIG=\"highwater_mdd_freertos.h\"")
        .port("freertos/highwater_mdd_freertos.c")
        .include(&demo)
        .include(&kernel.join("include"))
        .include(&kernel.join("portable/GCC/ARM_CM3"))
        .foreign(&sources.map(|s| kernel.join(s)))
}
