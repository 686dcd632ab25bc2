//! Compiles the agent's shared object with plain `rustc`, so that it travels
//! inside the one binary. No nested cargo: it works from a fresh clone, from
//! `cargo install --path`, with any target folder, offline.
//!
//! `HIGHWATER_AGENT_PREBUILT=/path/to/libhighwater_agent.so` at build time makes
//! the binary carry that file instead (for distributions).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../event/src");
    println!("cargo::rerun-if-changed=../agent/src");
    println!("cargo::rerun-if-env-changed=HIGHWATER_AGENT_PREBUILT");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let agent = out.join("libhighwater_agent.so");
    if let Some(prebuilt) = env::var_os("HIGHWATER_AGENT_PREBUILT") {
        std::fs::copy(&prebuilt, &agent)
            .unwrap_or_else(|e| panic!("HIGHWATER_AGENT_PREBUILT={}: {e}", Path::new(&prebuilt).display()));
        return;
    }
    let event = out.join("libhighwater_event.rlib");
    run(rustc()
        .args(["--crate-name", "highwater_event", "--crate-type", "rlib", "../event/src/lib.rs"])
        .arg("-o")
        .arg(&event));
    run(rustc()
        .args(["--crate-name", "highwater_agent", "--crate-type", "cdylib", "../agent/src/lib.rs"])
        .args(["--cfg", "highwater_preload", "--check-cfg", "cfg(highwater_preload)"])
        .arg("--extern")
        .arg(format!("highwater_event={}", event.display()))
        // The loader must find nothing to load for us: no C library, no libgcc.
        .args(["-C", "link-arg=-nostdlib", "-C", "link-arg=-nostartfiles"])
        .args([
            "-C",
            "link-arg=-Wl,-z,now",
            "-C",
            "link-arg=-Wl,-z,nodelete",
            "-C",
            "link-arg=-Wl,-z,noexecstack",
        ])
        .args(["-C", "link-arg=-Wl,-soname,libhighwater_agent.so", "-C", "link-arg=-Wl,--build-id=sha1"])
        .arg("-o")
        .arg(&agent));
}

/// `rustc` with what both crates share. Optimised in every profile: the agent
/// of a debug build records at the same speed.
fn rustc() -> Command {
    let mut command = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.args(["--edition", "2024", "--cap-lints", "allow"]);
    command.args([
        "-C",
        "opt-level=3",
        "-C",
        "panic=abort",
        "-C",
        "codegen-units=1",
        "-C",
        "strip=debuginfo",
    ]);
    command.args(["-C", "relocation-model=pic", "-C", "overflow-checks=off", "-C", "debug-assertions=off"]);
    if let Ok(target) = env::var("TARGET") {
        command.args(["--target", &target]);
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = std::ffi::OsString::from("linker=");
        option.push(linker);
        command.arg("-C").arg(option);
    }
    command
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    assert!(status.success(), "the agent does not build: {command:?}");
}
