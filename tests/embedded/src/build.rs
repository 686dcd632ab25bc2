//! Firmware from sources.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::child;
use crate::root;

/// What to build for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Cortex-M3 on QEMU's mps2-an385, with newlib-nano.
    Nano,
    /// The same with full newlib.
    Newlib,
    /// RISC-V 32 on QEMU's virt, with no library.
    Riscv,
    /// This machine.
    Native,
    /// Linux on PowerPC, 32 bits, big-endian: for QEMU's user mode.
    PowerPc,
}

/// The linker options that catch newlib's heap.
pub const WRAP_NEWLIB: &str = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=memalign,\
--wrap=_malloc_r,--wrap=_calloc_r,--wrap=_realloc_r,--wrap=_free_r,--wrap=_memalign_r";
/// And a plain one.
pub const WRAP_PLAIN: &str = "-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=memalign";

/// A program to be built.
#[derive(Clone, Debug)]
pub struct Firmware {
    target: Target,
    options: Vec<String>,
    app: Vec<String>,
    app_options: Vec<String>,
    ports: Vec<String>,
    foreign: Vec<PathBuf>,
    includes: Vec<PathBuf>,
}

impl Target {
    fn compiler(self, cxx: bool) -> &'static str {
        match (self, cxx) {
            (Target::Nano | Target::Newlib, false) => "arm-none-eabi-gcc",
            (Target::Nano | Target::Newlib, true) => "arm-none-eabi-g++",
            (Target::Riscv, false) => "riscv64-unknown-elf-gcc",
            (Target::Riscv, true) => "riscv64-unknown-elf-g++",
            (Target::Native, false) => "gcc",
            (Target::Native, true) => "g++",
            (Target::PowerPc, _) => "powerpc-linux-gnu-gcc",
        }
    }

    /// With an operating system below.
    fn hosted(self) -> bool {
        matches!(self, Target::Native | Target::PowerPc)
    }

    fn machine(self) -> &'static [&'static str] {
        match self {
            Target::Nano | Target::Newlib => &["-mcpu=cortex-m3", "-mthumb"],
            Target::Riscv => &["-march=rv32imac", "-mabi=ilp32", "-ffreestanding"],
            Target::Native | Target::PowerPc => &["-pthread"],
        }
    }
}

impl Firmware {
    /// `app` are files of `embedded/demo`.
    pub fn new(target: Target, app: &[&str]) -> Firmware {
        let app = app.iter().map(|a| format!("demo/{a}")).collect();
        Firmware {
            target,
            options: Vec::new(),
            app,
            app_options: Vec::new(),
            ports: Vec::new(),
            foreign: Vec::new(),
            includes: Vec::new(),
        }
    }

    /// Adds a file of `embedded/ports`, and its folder to the include path.
    pub fn port(mut self, file: &str) -> Firmware {
        let source = Path::new("ports").join(file);
        self.includes.extend(source.parent().map(|p| root().join("embedded").join(p)));
        self.ports.push(source.to_string_lossy().into_owned());
        self
    }

    /// Adds somebody else's sources, whose warnings are not ours.
    pub fn foreign(mut self, sources: &[PathBuf]) -> Firmware {
        self.foreign.extend_from_slice(sources);
        self
    }

    /// Adds a folder to the include path.
    pub fn include(mut self, folder: &Path) -> Firmware {
        self.includes.push(folder.into());
        self
    }

    /// Sets an option of the agent: `HISTORY=1`.
    pub fn set(mut self, option: &str) -> Firmware {
        self.options.push(format!("-DHIGHWATER_MDD_{option}"));
        self
    }

    /// Adds a compiler option for everything.
    pub fn with(mut self, option: &str) -> Firmware {
        self.options.push(option.into());
        self
    }

    /// Adds a compiler option for the application and the link only.
    pub fn app_with(mut self, option: &str) -> Firmware {
        self.app_options.push(option.into());
        self
    }

    /// Compiles and links to `folder/NAME`.
    ///
    /// # Panics
    /// If that fails, with what the compiler says.
    pub fn link(&self, folder: &Path, name: &str) -> PathBuf {
        let embedded = root().join("embedded");
        let mut sources = vec!["agent/highwater_mdd.c".to_string(), "ports/gcc_wrap.c".into()];
        match self.target {
            Target::Nano | Target::Newlib => sources.push("demo/mps2/board.c".into()),
            Target::Riscv => {
                sources.extend(["demo/virt/board.c".into(), "demo/virt/heap.c".into()]);
            }
            Target::Native | Target::PowerPc => {
                sources.extend(["demo/native/board.c", "ports/posix/posix.c"].map(String::from))
            }
        }
        if self.options.iter().any(|o| o == "-DSEND") || self.target.hosted() {
            let names: &[&str] = match self.target {
                Target::Native | Target::PowerPc => &["highwater_mdd_send.c"],
                _ => &["highwater_mdd_send.c", "semihosting.c"],
            };
            sources.extend(names.iter().map(|n| format!("ports/transport/{n}")));
        }
        if self.app.iter().any(|a| a.ends_with(".cxx")) {
            sources.push("ports/cxx_new.c".into());
        }
        sources.extend(self.ports.iter().cloned());
        let ours = sources.len();
        sources.extend(self.app.iter().cloned());
        let foreign = sources.len();
        sources.extend(self.foreign.iter().map(|f| f.to_string_lossy().into_owned()));
        let mut objects = Vec::new();
        for (n, source) in sources.iter().enumerate() {
            let cxx = source.ends_with(".cxx");
            let object = folder.join(format!("{name}.{n}.o"));
            let mut command = Command::new(self.target.compiler(cxx));
            command.args(self.target.machine()).args(["-O2", "-g"]);
            command.args(if n < foreign { &["-Wall", "-Wextra", "-Werror"][..] } else { &["-w"] });
            command.args(["-ffunction-sections", "-fdata-sections", "-DHIGHWATER_MDD=1"]);
            if self.target.hosted() {
                command.arg("-DHIGHWATER_MDD_CONFIG=\"highwater_mdd_posix.h\"");
            }
            command.args(if cxx {
                &["-std=c++17", "-fno-exceptions", "-fno-rtti"][..]
            } else {
                &["-std=gnu99"]
            });
            for folder in ["agent", "ports", "ports/transport", "ports/posix", "demo"] {
                command.arg("-I").arg(embedded.join(folder));
            }
            for folder in &self.includes {
                command.arg("-I").arg(folder);
            }
            command.args(&self.options);
            if n >= ours {
                // else a compiler makes malloc of realloc(NULL, n), and drops what is only written
                command.arg("-fno-builtin");
                command.args(&self.app_options);
            }
            command.arg("-c").arg(embedded.join(source)).arg("-o").arg(&object);
            compiled(&mut command);
            objects.push(object);
        }
        let elf = folder.join(name);
        let mut command = Command::new(self.target.compiler(false));
        command.args(self.target.machine()).args(["-g", "-O2", "-Wl,--gc-sections", "-Wl,--build-id=sha1"]);
        match self.target {
            Target::Nano | Target::Newlib => {
                command.args(["-nostartfiles", WRAP_NEWLIB, "-T"]).arg(embedded.join("demo/mps2/mps2.ld"));
                if self.target == Target::Nano {
                    command.arg("--specs=nano.specs");
                }
            }
            Target::Riscv => {
                command.args(["-nostdlib", "-nostartfiles", WRAP_PLAIN, "-T"]);
                command.arg(embedded.join("demo/virt/virt.ld"));
            }
            Target::Native | Target::PowerPc => {
                command.args([WRAP_PLAIN]);
            }
        }
        command.args(&self.app_options).args(&objects);
        if self.target == Target::Riscv {
            command.arg("-lgcc");
        }
        compiled(command.arg("-o").arg(&elf));
        elf
    }
}

/// Runs a compiler.
///
/// # Panics
/// If it fails.
pub fn compiled(command: &mut Command) {
    let done = child::run(command, Duration::from_secs(60));
    assert!(done.success, "{command:?}\n{}", done.text);
}

/// text, data and bss of an object or program.
///
/// # Panics
/// If `size` cannot read it.
pub fn sizes(file: &Path) -> (u64, u64, u64) {
    let done = child::run(Command::new("size").arg(file), Duration::from_secs(10));
    let line = done.text.lines().nth(1).unwrap_or_else(|| panic!("size: {}", done.text));
    let mut numbers = line.split_whitespace().map(|n| n.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap(), numbers.next().unwrap())
}
