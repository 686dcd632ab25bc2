//! The agent and its ports compile without a warning in every configuration,
//! and how large they are.

use std::path::Path;
use std::process::Command;

use highwater_tests_embedded::build::{compiled, sizes};
use highwater_tests_embedded::root;
use tempfile::tempdir;

const COMPILERS: &[(&str, &[&str])] = &[
    ("Cortex-M3", &["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb"]),
    ("Cortex-M0", &["arm-none-eabi-gcc", "-mcpu=cortex-m0", "-mthumb"]),
    ("RV32", &["riscv64-unknown-elf-gcc", "-march=rv32imac", "-mabi=ilp32"]),
    ("RV64", &["riscv64-unknown-elf-gcc", "-march=rv64imac", "-mabi=lp64"]),
    ("x86-64", &["gcc"]),
];

/// Every third of these is a sensible configuration, the others are corners.
const OPTION_SETS: &[&str] = &[
    "BACKTRACE=0 ACTUAL_SIZE=0 CHECKSUM=0",
    "BACKTRACE=0 ACTUAL_SIZE=0",
    "BACKTRACE=0",
    "CHECKSUM=0",
    "",
    "HISTORY=1",
    "HISTORY=1 CHECKSUM=0",
    "HISTORY=1 BACKTRACE=0 ACTUAL_SIZE=0",
    "GUARDS=1",
    "GUARDS=1 HISTORY=1",
    "TIMESTAMP=1 NOW()=7u",
    "TIMESTAMP=1 NOW()=7u TIME_BITS=32",
    "TIMESTAMP=1 NOW()=7u HISTORY=1 TICK_HZ=100",
    "THREAD=1 THREAD_HANDLE()=1u THREAD_NAME(h)=((void)(h),\"x\")",
    "THREAD=1 THREAD_HANDLE()=1u THREAD_NAME(h)=((void)(h),\"x\") HISTORY=1",
    "KERNEL=1 NOW()=7u THREAD_HANDLE()=1u THREAD_NAME(h)=((void)(h),\"x\") HISTORY=1 GUARDS=1 STACKS=4",
    "STATIC_POOL=0",
    "STATIC_POOL=0 HISTORY=1 BACKTRACE=0",
    "BACKTRACE=8",
    "BACKTRACE=8 UNWIND=1",
    "BACKTRACE=8 UNWIND=2 STACKS=4",
    "BACKTRACE=8 UNWIND=3 STACKS=4",
    "BACKTRACE=8 UNWIND=4 STACKS=4 HISTORY=1",
    "KIND_NAMES=\"my_alloc()\",\"my_free()\"",
    "RECORDS=70000",
    "RECORDS=1 HISTORY=1 HISTORY_RECORDS=1",
];

fn compile(compiler: &[&str], options: &[String], source: &Path, object: &Path) {
    let embedded = root().join("embedded");
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(options);
    for folder in ["agent", "ports", "ports/transport"] {
        command.arg("-I").arg(embedded.join(folder));
    }
    compiled(command.arg("-c").arg(source).arg("-o").arg(object));
}

fn strict(level: &str) -> Vec<String> {
    let flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-ffreestanding", level];
    flags.map(String::from).to_vec()
}

#[test]
fn every_option_set_on_every_machine_without_a_warning() {
    let folder = tempdir().unwrap();
    let object = folder.path().join("agent.o");
    let agent = root().join("embedded/agent/highwater_mdd.c");
    println!("| options | {} |", COMPILERS.iter().map(|c| c.0).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(COMPILERS.len()));
    for set in OPTION_SETS {
        let mut row = Vec::new();
        for (_, compiler) in COMPILERS {
            let mut options = strict("-Os");
            options.push("-DHIGHWATER_MDD=1".into());
            options.extend(set.split_whitespace().map(|o| format!("-DHIGHWATER_MDD_{o}")));
            compile(compiler, &options, &agent, &object);
            let (text, data, bss) = sizes(&object);
            row.push(format!("{text}+{data}+{bss}"));
        }
        println!("| `{set}` | {} |", row.join(" | "));
    }
}

#[test]
fn off_means_no_code_and_no_data() {
    let folder = tempdir().unwrap();
    let object = folder.path().join("off.o");
    for (_, compiler) in COMPILERS {
        for source in [
            "agent/highwater_mdd.c",
            "ports/gcc_wrap.c",
            "ports/cxx_new.c",
            "ports/transport/highwater_mdd_send.c",
        ] {
            compile(compiler, &strict("-O2"), &root().join("embedded").join(source), &object);
            assert_eq!(sizes(&object), (0, 0, 0), "{source}");
        }
    }
}

#[test]
fn the_agent_needs_nothing_from_a_library() {
    let folder = tempdir().unwrap();
    let object = folder.path().join("agent.o");
    for level in ["-Os", "-O2", "-O3"] {
        for (name, compiler) in COMPILERS {
            let mut options = strict(level);
            options.extend(
                ["-DHIGHWATER_MDD=1", "-DHIGHWATER_MDD_HISTORY=1", "-DHIGHWATER_MDD_BACKTRACE=8"]
                    .map(String::from),
            );
            options.push("-DHIGHWATER_MDD_GUARDS=1".into());
            compile(compiler, &options, &root().join("embedded/agent/highwater_mdd.c"), &object);
            let nm = Command::new("nm").arg("-u").arg(&object).output().unwrap();
            let text = String::from_utf8_lossy(&nm.stdout).into_owned();
            let wanted: Vec<_> = text.split_whitespace().filter(|w| w.len() > 1).collect();
            assert_eq!(wanted, ["highwater_mdd_build_id"], "{name} {level}: only the weak symbol");
        }
    }
}

#[test]
fn the_ports_compile_against_the_documented_interfaces_of_their_kernels() {
    let folder = tempdir().unwrap();
    let object = folder.path().join("port.o");
    let ports = root().join("embedded/ports");
    for (_, compiler) in [&COMPILERS[0], &COMPILERS[4]] {
        for (system, extra) in [
            ("freertos", ""),
            ("freertos", "-DHIGHWATER_MDD_FREERTOS_TRACE"),
            ("freertos", "-DHIGHWATER_MDD_FREERTOS_HEAP_3"),
            ("ecos", ""),
            ("zephyr", ""),
            ("zephyr", "-DHIGHWATER_MDD_ZEPHYR_WRAP"),
        ] {
            let mut options: Vec<String> =
                ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Os", "-DHIGHWATER_MDD=1"]
                    .map(String::from)
                    .to_vec();
            options.push(format!("-DHIGHWATER_MDD_CONFIG=\"highwater_mdd_{system}.h\""));
            for sub in [system.to_string(), format!("{system}/stub")] {
                options.push(format!("-I{}", ports.join(sub).display()));
            }
            options.extend((!extra.is_empty()).then(|| extra.to_string()));
            compile(compiler, &options, &ports.join(format!("{system}/highwater_mdd_{system}.c")), &object);
            // and the agent with that port's configuration
            compile(compiler, &options, &root().join("embedded/agent/highwater_mdd.c"), &object);
        }
    }
}

#[test]
fn the_port_for_rust_compiles_for_every_machine() {
    let folder = tempdir().unwrap();
    let object = folder.path().join("port.o");
    let ports = root().join("embedded/ports/rust");
    let config = "-DHIGHWATER_MDD_CONFIG=\"highwater_mdd_rust.h\"";
    for (_, compiler) in COMPILERS {
        for set in ["", "GUARDS=1 HISTORY=1", "BACKTRACE=8 UNWIND=4 STACKS=1", "BACKTRACE=0 ACTUAL_SIZE=0"] {
            let mut options = strict("-Os");
            options.extend(["-DHIGHWATER_MDD=1", config].map(String::from));
            options.push(format!("-I{}", ports.display()));
            options.extend(set.split_whitespace().map(|o| format!("-DHIGHWATER_MDD_{o}")));
            compile(compiler, &options, &ports.join("highwater_mdd_rust.c"), &object);
            compile(compiler, &options, &root().join("embedded/agent/highwater_mdd.c"), &object);
        }
    }
}
