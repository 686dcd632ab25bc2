//! The tools that are compared, and how each is put around a program.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::workloads::{Workload, find};

/// What of our own is put around programs.
pub struct Own {
    /// The command.
    pub highwater: PathBuf,
    /// `benches/forward.c`, compiled.
    pub forwarder: PathBuf,
}

/// A way to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// By itself.
    Native,
    /// `highwater run`.
    Highwater,
    /// `highwater run --no-free-stacks`.
    NoFreeStacks,
    /// A preloaded library that only calls the real functions ([`super::modes`]).
    Forwarder,
    /// `highwater count`.
    Count,
    /// `highwater run --sample 512KiB`.
    Sample,
    /// `highwater run --min-size 64`.
    MinSize,
    /// `highwater run --live-only`.
    LiveOnly,
    /// `heaptrack`: interpreted while the program runs.
    Heaptrack,
    /// `heaptrack --raw`.
    HeaptrackRaw,
    /// LeakSanitizer, preloaded: leaks only, no events.
    Lsan,
    /// jemalloc's sampling profiler, preloaded.
    Jemalloc,
    /// memray with native stacks, for Python.
    Memray,
    /// gperftools' full heap profiler, preloaded.
    Tcmalloc,
    /// Valgrind's massif.
    Massif,
    /// Valgrind's dhat.
    Dhat,
    /// Valgrind's memcheck.
    Memcheck,
}

/// Everything that records all or competes with it, ours first.
pub const ALL: [Tool; 12] = [
    Tool::Native,
    Tool::Highwater,
    Tool::NoFreeStacks,
    Tool::Heaptrack,
    Tool::HeaptrackRaw,
    Tool::Lsan,
    Tool::Jemalloc,
    Tool::Memray,
    Tool::Tcmalloc,
    Tool::Massif,
    Tool::Dhat,
    Tool::Memcheck,
];

const LSAN: &str = "/usr/lib/x86_64-linux-gnu/liblsan.so.0";
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
const TCMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4";

impl Tool {
    /// Its name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Highwater => "highwater",
            Self::NoFreeStacks => "--no-free-stacks",
            Self::Forwarder => "forwarder",
            Self::Count => "count",
            Self::Sample => "--sample 512KiB",
            Self::MinSize => "--min-size 64",
            Self::LiveOnly => "--live-only",
            Self::Heaptrack => "heaptrack",
            Self::HeaptrackRaw => "heaptrack -r",
            Self::Lsan => "LeakSanitizer",
            Self::Jemalloc => "jemalloc prof",
            Self::Memray => "memray",
            Self::Tcmalloc => "tcmalloc prof",
            Self::Massif => "massif",
            Self::Dhat => "dhat",
            Self::Memcheck => "memcheck",
        }
    }

    /// So slow that it only runs with `--slow`.
    pub fn is_slow(self) -> bool {
        matches!(self, Self::Tcmalloc | Self::Massif | Self::Dhat | Self::Memcheck)
    }

    /// Our options beside `run`, where it writes a trace of ours.
    fn options(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Highwater => Some(&[]),
            Self::NoFreeStacks => Some(&["--no-free-stacks"]),
            Self::Sample => Some(&["--sample", "512KiB"]),
            Self::MinSize => Some(&["--min-size", "64"]),
            Self::LiveOnly => Some(&["--live-only"]),
            _ => None,
        }
    }

    /// Does it write a trace of ours?
    pub fn is_ours(self) -> bool {
        self.options().is_some()
    }

    /// Is it installed?
    pub fn is_here(self) -> bool {
        match self {
            Self::Native
            | Self::Highwater
            | Self::NoFreeStacks
            | Self::Forwarder
            | Self::Count
            | Self::Sample
            | Self::MinSize
            | Self::LiveOnly => true,
            Self::Heaptrack | Self::HeaptrackRaw => find("heaptrack").is_some(),
            Self::Massif | Self::Dhat | Self::Memcheck => find("valgrind").is_some(),
            Self::Lsan => Path::new(LSAN).exists(),
            Self::Jemalloc => Path::new(JEMALLOC).exists(),
            Self::Tcmalloc => Path::new(TCMALLOC).exists(),
            Self::Memray => find("python3").is_some_and(|python| {
                Command::new(python)
                    .args(["-m", "memray", "--version"])
                    .stdin(Stdio::null())
                    .output()
                    .is_ok_and(|output| output.status.success())
            }),
        }
    }

    /// Can it run this load at all? The reasons are on the page.
    pub fn takes(self, load: &Workload) -> bool {
        match self {
            Self::Memray => load.name == "python3",
            // The preloaded library dies at the start of these.
            Self::Lsan => !matches!(load.name, "perl" | "sqlite3" | "git"),
            // heaptrack 1.4.0's interpreter dies of std::bad_alloc on what several threads of `micro` write.
            Self::Heaptrack => !load.name.starts_with("micro-5x"),
            _ => true,
        }
    }

    /// What it writes, in a folder of the run.
    pub fn output(self, dir: &Path) -> Option<PathBuf> {
        match self {
            ours if ours.is_ours() => Some(dir.join("trace.hwt")),
            Self::Heaptrack => Some(dir.join("ht.zst")),
            Self::HeaptrackRaw => Some(dir.join("htraw.raw.zst")),
            Self::Memray => Some(dir.join("memray.bin")),
            _ => None,
        }
    }

    /// The command that runs `load` under this tool, with what it writes in `dir`.
    pub fn command(self, load: &Workload, own: &Own, dir: &Path) -> Command {
        let mut argv: Vec<OsString> = Vec::new();
        let mut preload = None;
        let push = |argv: &mut Vec<OsString>, words: &[&OsStr]| argv.extend(words.iter().map(OsString::from));
        let at = |name: &str| dir.join(name).into_os_string();
        match self {
            Self::Native => {}
            Self::Highwater | Self::NoFreeStacks | Self::Sample | Self::MinSize | Self::LiveOnly => {
                argv.push(own.highwater.clone().into());
                push(&mut argv, &["run", "-q", "--force", "-o"].map(OsStr::new));
                argv.push(at("trace.hwt"));
                argv.extend(self.options().unwrap_or_default().iter().map(OsString::from));
                argv.push("--".into());
            }
            Self::Count => {
                argv.push(own.highwater.clone().into());
                push(&mut argv, &["count", "-q", "--"].map(OsStr::new));
            }
            Self::Forwarder => preload = Some(own.forwarder.as_path()),
            Self::Heaptrack => argv.extend(["heaptrack".into(), "-o".into(), at("ht")]),
            Self::HeaptrackRaw => argv.extend(["heaptrack".into(), "--raw".into(), "-o".into(), at("htraw")]),
            Self::Memray => {
                if let Some(python) = load.argv.first() {
                    argv.push(python.clone());
                }
                push(&mut argv, &["-m", "memray", "run", "--native", "-q", "-f", "-o"].map(OsStr::new));
                argv.push(at("memray.bin"));
            }
            Self::Massif | Self::Dhat | Self::Memcheck => {
                argv.push("valgrind".into());
                argv.push(format!("--tool={}", self.name()).into());
                argv.push("-q".into());
                let file = at("valgrind.out").into_string().unwrap_or_default();
                match self {
                    Self::Massif => argv.push(format!("--massif-out-file={file}").into()),
                    Self::Dhat => argv.push(format!("--dhat-out-file={file}").into()),
                    _ => argv.push(format!("--log-file={file}").into()),
                }
            }
            Self::Lsan => preload = Some(Path::new(LSAN)),
            Self::Jemalloc => preload = Some(Path::new(JEMALLOC)),
            Self::Tcmalloc => preload = Some(Path::new(TCMALLOC)),
        }
        let rest = if self == Self::Memray { load.argv.get(1..).unwrap_or_default() } else { &load.argv };
        argv.extend(rest.iter().cloned());
        let mut words = argv.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).envs(load.env.iter().copied()).current_dir(dir);
        if let Some(library) = preload {
            command.env("LD_PRELOAD", library);
        }
        match self {
            // A leak is no failure of the run.
            Self::Lsan => command.env("LSAN_OPTIONS", "exitcode=0"),
            Self::Jemalloc => command.env(
                "MALLOC_CONF",
                format!(
                    "prof:true,lg_prof_sample:19,prof_final:true,prof_prefix:{}",
                    dir.join("je").display()
                ),
            ),
            Self::Tcmalloc => command.env("HEAPPROFILE", dir.join("tc")),
            _ => &mut command,
        };
        command
    }

    /// Is the process that is started another than the program's own?
    pub fn starter_helps(self) -> bool {
        self.is_ours() || self == Self::Count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::workloads::Kind;

    #[test]
    fn commands_name_the_way_and_the_program() {
        let own = Own { highwater: "/hw".into(), forwarder: "/forward.so".into() };
        let load = Workload {
            name: "true",
            what: "",
            kind: Kind::Program,
            argv: vec!["/bin/true".into()],
            env: vec![],
            stdin: None,
            pinned: true,
            analysed: false,
        };
        let words = |tool: Tool| {
            let command = tool.command(&load, &own, Path::new("/d"));
            std::iter::once(command.get_program())
                .chain(command.get_args())
                .map(|word| word.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(words(Tool::Count), "/hw count -q -- /bin/true");
        let sample = "/hw run -q --force -o /d/trace.hwt --sample 512KiB -- /bin/true";
        assert_eq!(words(Tool::Sample), sample);
        assert_eq!(words(Tool::Forwarder), "/bin/true");
        let forwarder = Tool::Forwarder.command(&load, &own, Path::new("/d"));
        let preload = forwarder.get_envs().find(|(name, _)| *name == "LD_PRELOAD").and_then(|(_, file)| file);
        assert_eq!(preload, Some(OsStr::new("/forward.so")));
        // What writes no trace must not be asked for one.
        assert!(Tool::Sample.is_ours() && !Tool::Count.is_ours() && !Tool::Forwarder.is_ours());
        assert!(Tool::Count.starter_helps() && !Tool::Forwarder.starter_helps());
    }
}
