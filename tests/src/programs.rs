//! Programs that the tests compile: `tests/programs/NAME.{c,cpp,rs}`.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A source file and how to compile it.
#[derive(Clone, Debug)]
pub struct Program {
    file: &'static str,
    compiler: &'static str,
    flags: Vec<&'static str>,
}

impl Program {
    /// `tests/programs/FILE`, compiled by the compiler that its ending asks for.
    pub fn new(file: &'static str) -> Self {
        let (compiler, flags): (_, &[_]) = match file.rsplit('.').next() {
            Some("c") => ("cc", &["-g", "-O1", "-fno-builtin", "-pthread", "-Wall", "-D_GNU_SOURCE"]),
            Some("cpp") => ("c++", &["-g", "-O1", "-fno-builtin", "-pthread", "-Wall", "-std=c++17"]),
            _ => ("rustc", &["-g", "-O", "--edition=2021"]),
        };
        Program { file, compiler, flags: flags.to_vec() }
    }

    /// More flags, behind the usual ones.
    pub fn flags(mut self, flags: &[&'static str]) -> Self {
        self.flags.extend(flags);
        self
    }

    /// Another compiler.
    pub fn compiler(mut self, compiler: &'static str) -> Self {
        self.compiler = compiler;
        self
    }

    /// The path of the compiled program. Compiled once for each source and
    /// set of flags, also when many tests ask at the same time.
    #[track_caller]
    pub fn build(&self) -> PathBuf {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        let source = sources.join(self.file);
        let mut hasher = DefaultHasher::new();
        // Its path is in what the compiler makes of it.
        (self.compiler, &self.flags, &source).hash(&mut hasher);
        // Headers lie beside the source.
        let beside = source.parent().unwrap_or(&sources);
        let header = if beside == sources { "known.h" } else { "corpus.h" };
        for file in [&source, &beside.join(header)] {
            std::fs::read(file)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
                .hash(&mut hasher);
        }
        let folder = target_dir().join("highwater-test-programs").join(format!("{:016x}", hasher.finish()));
        let name = Path::new(self.file).file_stem().unwrap_or_default();
        let done = folder.join(name);
        if done.exists() {
            return done;
        }
        std::fs::create_dir_all(&folder).expect("a folder for compiled programs");
        let fresh =
            tempfile::Builder::new().prefix("build-").tempdir_in(&folder).expect("a folder to compile in");
        let output = fresh.path().join(name);
        let compiler = if self.compiler == "rustc" { std::env::var_os("RUSTC") } else { None }
            .unwrap_or(OsString::from(self.compiler));
        // The source first: libraries in the flags come behind what needs them.
        let result = Command::new(&compiler).arg(&source).args(&self.flags).arg("-o").arg(&output).output();
        match result {
            Ok(result) if result.status.success() => {}
            Ok(result) => panic!("{:?} {}: {}", compiler, self.file, String::from_utf8_lossy(&result.stderr)),
            Err(error) => {
                panic!("{compiler:?}: {error}; `cargo xtask packages` installs what the tests need")
            }
        }
        // The last of several compilers wins; their outputs are the same.
        std::fs::rename(&output, &done).expect("the compiled program moves to its place");
        done
    }
}

/// Cargo's target folder, seen from the test program that runs.
pub fn target_dir() -> PathBuf {
    let here = std::env::current_exe().expect("the path of the test program");
    // TARGET/PROFILE/deps/NAME-HASH
    here.ancestors().nth(3).expect("a test program lies in the target folder").to_path_buf()
}
