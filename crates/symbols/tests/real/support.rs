//! Compilers, a program that prints its own return addresses, and comparisons.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use highwater_symbols::{Frame, ModuleId, ModuleInput, Options, Symbolizer};
use tempfile::TempDir;

/// `where` prints the load bias and its return address. It stands in a file of
/// its own, so that it is never inlined.
const WHERE: &str = r#"#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
static int first(struct dl_phdr_info *info, size_t size, void *out) {
  *(unsigned long *)out = info->dlpi_addr;
  return 1;
}
void where(void) {
  unsigned long bias = 0;
  dl_iterate_phdr(first, &bias);
  printf("%lx %lx\n", bias, (unsigned long)__builtin_return_address(0));
  fflush(stdout);
}
"#;

/// Two calls of `where`: in `inner` (line 3), inlined into `middle` (line 7),
/// inlined into `outer` (line 11); then in `outer` itself (line 12).
pub const PROGRAM: &str = r#"void where(void);
static inline __attribute__((always_inline)) int inner(int x) {
  where();
  return x * 3;
}
static inline __attribute__((always_inline)) int middle(int x) {
  return inner(x + 1) +
    1;
}
__attribute__((noinline)) int outer(int x) {
  int y = middle(x);
  where();
  return y;
}
int main(int argc, char **argv) { return outer(argc) == 0; }
"#;

/// A folder with a program in it.
pub struct Program {
    pub dir: TempDir,
    pub exe: PathBuf,
    /// Load bias and return address of each call of `where`, in order.
    pub calls: Vec<(u64, u64)>,
}

/// Runs a command to its end and gives its output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a tool is installed that may be missing.
pub fn installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
}

impl Program {
    /// Compiles `text` into `source`, with `compiler` and `args`, and runs it.
    pub fn new(compiler: &str, source: &str, text: &str, args: &[&str]) -> Program {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("where.c"), WHERE).unwrap();
        fs::write(at(source), text).unwrap();
        run(Command::new("gcc").current_dir(&dir).args(["-O1", "-g0", "-c", "where.c"]));
        let exe = at("program");
        let mut command = Command::new(compiler);
        command.current_dir(&dir).args(args).arg(at(source)).args(["-o", "program"]);
        match compiler {
            // The variable lets a stable compiler still make legacy names.
            "rustc" => command.args(["-C", "link-arg=where.o"]).env("RUSTC_BOOTSTRAP", "1"),
            _ => command.args(["where.o", "-Wl,--build-id=sha1"]),
        };
        run(&mut command);
        let mut program = Program { dir, exe, calls: Vec::new() };
        program.call();
        program
    }

    /// The C program of this module.
    pub fn c(args: &[&str]) -> Program {
        Program::new("gcc", "program.c", PROGRAM, &[&["-O2"], args].concat())
    }

    fn call(&mut self) {
        self.calls = run(&mut Command::new(&self.exe))
            .lines()
            .map(|line| {
                let (bias, pc) = line.split_once(' ').unwrap();
                (u64::from_str_radix(bias, 16).unwrap(), u64::from_str_radix(pc, 16).unwrap())
            })
            .collect();
        assert!(!self.calls.is_empty());
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `objcopy ARGS program [OUT]`
    pub fn objcopy(&self, args: &[&str], out: Option<&str>) {
        run(Command::new("objcopy").current_dir(&self.dir).args(args).arg("program").args(out));
    }

    /// The build-id, by another reader than ours.
    pub fn build_id(&self) -> Vec<u8> {
        let text = run(Command::new("readelf").arg("-n").arg(&self.exe));
        let id = text.split("Build ID: ").nth(1).unwrap().lines().next().unwrap().trim();
        (0..id.len()).step_by(2).map(|i| u8::from_str_radix(&id[i..i + 2], 16).unwrap()).collect()
    }

    /// A symbolizer with the program as its only module.
    pub fn symbolizer(&self, options: Options, build_id: &[u8]) -> (Symbolizer, ModuleId) {
        let mut symbols = Symbolizer::new(options);
        let module = add(&mut symbols, &self.exe, build_id, self.calls[0].0);
        (symbols, module)
    }

    /// The frames of each call.
    pub fn frames(&self, options: Options) -> Vec<Arc<[Frame]>> {
        let (mut symbols, module) = self.symbolizer(options, &self.build_id());
        self.calls.iter().map(|&(_, pc)| symbols.frames(module, pc, true)).collect()
    }

    /// Fails unless the C program's two calls are resolved in full.
    pub fn check_c(&self, options: Options) {
        let source = self.path("program.c");
        let source = source.to_str().unwrap();
        let (mut symbols, module) = self.symbolizer(options, &self.build_id());
        let first = symbols.frames(module, self.calls[0].1, true);
        let second = symbols.frames(module, self.calls[1].1, true);
        let all = [("inner", source, 3, true), ("middle", source, 7, true), ("outer", source, 11, false)];
        assert_eq!(summary(&first), all, "{:?}", symbols.notes());
        assert_eq!(summary(&second), [("outer", source, 12, false)], "{:?}", symbols.notes());
        assert_eq!(symbols.notes(), []);
    }
}

pub fn add(symbols: &mut Symbolizer, path: &Path, build_id: &[u8], bias: u64) -> ModuleId {
    let path = path.to_str().unwrap();
    let (start, end) = (bias, bias + 0x10_0000);
    symbols.add_module(ModuleInput { path, build_id, bias, start, end, is_main: true, is_vdso: false })
}

/// Function, file, line, inlined.
pub fn summary(frames: &[Frame]) -> Vec<(&str, &str, u32, bool)> {
    frames
        .iter()
        .map(|f| {
            (
                f.function.as_deref().unwrap_or(""),
                f.file.as_deref().unwrap_or(""),
                f.line.unwrap_or(0),
                f.inlined,
            )
        })
        .collect()
}

/// Options that look nowhere but in `dirs`.
pub fn only(dirs: &[&Path]) -> Options {
    Options { debug_dirs: dirs.iter().map(PathBuf::from).collect(), ..Options::default() }
}
