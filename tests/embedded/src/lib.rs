//! What the tests of the embedded agent share: building firmware, running it in
//! QEMU under a real GDB, and comparing dumps with what the firmware says that it
//! did.
//!
//! Every child has a time limit and a folder of its own, and is killed when its
//! handle goes.

pub mod build;
pub mod child;
pub mod freertos;
pub mod rust;
pub mod session;
pub mod told;

/// What `apt-get install --no-install-recommends` must have installed.
pub const PACKAGES: &str = "gcc g++ gdb gdb-multiarch qemu-system-arm gcc-arm-none-eabi \
     libnewlib-arm-none-eabi binutils-arm-none-eabi qemu-system-misc gcc-riscv64-unknown-elf \
     gcc-powerpc-linux-gnu libc6-dev-powerpc-cross qemu-user";

/// The repository.
pub fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
