//! The built command, and a recording made with it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;

use crate::child::{Child, Ended};
use crate::programs::target_dir;
use crate::schema;

/// The command under test.
pub struct Highwater;

impl Highwater {
    /// Its path: `HIGHWATER_BIN`, else a release build made on the spot.
    pub fn path() -> &'static Path {
        static PATH: OnceLock<PathBuf> = OnceLock::new();
        PATH.get_or_init(|| {
            if let Some(path) = std::env::var_os("HIGHWATER_BIN") {
                return PathBuf::from(path);
            }
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let good = Command::new(cargo)
                .args(["build", "--release", "--quiet", "--package", "highwater-cli"])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .env("CARGO_TARGET_DIR", target_dir())
                .stdin(Stdio::null())
                .status();
            assert!(good.is_ok_and(|status| status.success()), "cargo build of highwater-cli failed");
            target_dir().join("release/highwater")
        })
    }

    /// `highwater ARGS`, ready to run. Its cache folder is the tests' own.
    pub fn command<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Child {
        // No configuration but a test's own.
        Child::new(Self::path())
            .env("XDG_CACHE_HOME", cache_folder())
            .env("XDG_CONFIG_HOME", cache_folder().join("none"))
            .args(args)
    }

    /// A program without highwater, in the same environment.
    pub fn plain(program: impl AsRef<OsStr>) -> Child {
        Child::new(program)
            .env("XDG_CACHE_HOME", cache_folder())
            .env("XDG_CONFIG_HOME", cache_folder().join("none"))
    }

    /// A view of a trace as JSON; panics unless the command succeeds and the
    /// document fits its schema.
    #[track_caller]
    pub fn json(view: &[&str], trace: &Path) -> Value {
        let ended =
            Self::command(view).arg("--json").arg(trace).limit(Duration::from_secs(240)).run().expect_code(0);
        schema::document(&ended.out)
    }
}

/// Where the tests' highwater keeps its agent.
fn cache_folder() -> PathBuf {
    target_dir().join("highwater-test-cache")
}

/// A finished recording.
pub struct Recorded {
    /// What the target, and `highwater run`, wrote and returned.
    pub ended: Ended,
    /// The trace.
    pub trace: PathBuf,
    folder: tempfile::TempDir,
}

impl Recorded {
    /// A folder that lives as long as this, with the trace in it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `stats --json`
    #[track_caller]
    pub fn stats(&self) -> Value {
        Highwater::json(&["stats"], &self.trace)
    }

    /// `history --json`, the events.
    #[track_caller]
    pub fn history(&self) -> Vec<Value> {
        list(Highwater::json(&["history"], &self.trace), "events")
    }

    /// `leaks --blocks --json`: the blocks alive at the end.
    #[track_caller]
    pub fn survivors(&self) -> Vec<Value> {
        list(Highwater::json(&["leaks", "--blocks"], &self.trace), "blocks")
    }

    /// Panics unless the exit code of the run is this.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(
            self.ended.code(),
            code,
            "exit code; stdout:\n{}\nstderr:\n{}",
            self.ended.stdout(),
            self.ended.stderr()
        );
        self
    }
}

#[track_caller]
fn list(mut document: Value, key: &str) -> Vec<Value> {
    match document.get_mut(key).map(Value::take) {
        Some(Value::Array(list)) => list,
        _ => panic!("no list `{key}` in {document:#}"),
    }
}

/// Runs `PROGRAM ARGS` under `highwater run` into a trace of its own.
pub fn record<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = A>) -> Recorded {
    record_with(&[], |child| child.arg("--").arg(program).args(args))
}

/// Like [`record`], with options of `run`, and a say in how it is started:
/// `finish` appends `--`, the program and its arguments.
#[track_caller]
pub fn record_with(options: &[&str], finish: impl FnOnce(Child) -> Child) -> Recorded {
    let folder = crate::folder();
    let trace = folder.path().join("trace.hwt");
    let child = Highwater::command(["run", "-o"]).arg(&trace).args(options).limit(Duration::from_secs(120));
    let ended = finish(child).run();
    Recorded { ended, trace, folder }
}
