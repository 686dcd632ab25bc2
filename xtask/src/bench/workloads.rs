//! The loads: programs of our own from `benches/`, and programs that everybody knows.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use super::inputs::Inputs;

/// What kind of load it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From `benches/`; its last line may be `loop CPU_NS EVENTS`.
    Own,
    /// A program from a package that runs to its end.
    Program,
    /// redis-server, driven by redis-benchmark.
    Server,
}

/// One load.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What `--only` takes.
    pub name: &'static str,
    /// One line for the page.
    pub what: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Variables that it needs.
    pub env: Vec<(&'static str, &'static str)>,
    /// What it reads from standard input.
    pub stdin: Option<PathBuf>,
    /// Has it one thread, so that it is pinned to a CPU?
    pub pinned: bool,
    /// Is its analysis compared too?
    pub analysed: bool,
}

/// The programs over which the targets take their geometric mean.
pub const IN_THE_MEAN: [&str; 7] = ["python3", "perl", "sqlite3", "jq", "xmllint", "cc1plus", "redis"];

/// Every name, in the order of the page.
pub const NAMES: [&str; 21] = [
    "micro-5",
    "micro-40",
    "micro-5x2",
    "micro-5x8",
    "micro-5x64",
    "micro-5x1000",
    "short",
    "descent",
    "churn",
    "tree",
    "larson",
    "handoff",
    "python3",
    "perl",
    "sqlite3",
    "jq",
    "xmllint",
    "cc1plus",
    "redis",
    "git",
    "node",
];

/// Makes the loads.
pub struct Maker<'a> {
    /// The work tree.
    pub root: &'a Path,
    /// Where programs of our own are built.
    pub build: PathBuf,
    /// What the real programs read.
    pub inputs: Inputs,
}

impl Maker<'_> {
    /// The load of this name; `None` when its program is not here.
    pub fn make(&self, name: &'static str) -> anyhow::Result<Option<Workload>> {
        let pairs = self.inputs.scaled(700_000).to_string();
        let shared = |threads: u32| (self.inputs.scaled(1_400_000) / threads).to_string();
        let own = |source: &str, what, arguments: &[&str], pinned| -> anyhow::Result<Option<Workload>> {
            let mut argv = vec![self.compile(source)?.into_os_string()];
            argv.extend(arguments.iter().map(OsString::from));
            Ok(Some(Workload {
                name,
                what,
                kind: Kind::Own,
                argv,
                env: vec![],
                stdin: None,
                pinned,
                analysed: false,
            }))
        };
        match name {
            "micro-5" => own(
                "micro.c",
                "malloc and free in pairs, 50 call sites, under 5 frames",
                &["5", &pairs, "1"],
                true,
            ),
            "micro-40" => own("micro.c", "the same under 40 frames", &["40", &pairs, "1"], true),
            "micro-5x2" => {
                own("micro.c", "micro-5 in 2 threads, each with as many pairs", &["5", &pairs, "2"], false)
            }
            "micro-5x8" => own("micro.c", "micro-5 in 8 threads", &["5", &shared(8), "8"], false),
            "micro-5x64" => own("micro.c", "micro-5 in 64 threads", &["5", &shared(64), "64"], false),
            "micro-5x1000" => {
                own("micro.c", "micro-5 in 1,000 threads", &["5", &shared(1000), "1000"], false)
            }
            "short" => own(
                "short.c",
                "10,000 threads one after the other, two blocks each",
                &[&self.inputs.scaled(10_000).to_string()],
                false,
            ),
            "short-100k" => own(
                "short.c",
                "100,000 threads one after the other, two blocks each",
                &[&self.inputs.scaled(100_000).to_string()],
                false,
            ),
            "descent" => own(
                "descent.c",
                "recursive descent over expressions of varying depth",
                &["20", &self.inputs.scaled(18_000).to_string()],
                true,
            ),
            "churn" => own(
                "churn.cpp",
                "C++ map of vectors of strings, churned",
                &[&self.inputs.scaled(250_000).to_string()],
                true,
            ),
            "tree" => own(
                "tree.c",
                "half a million distinct stack nodes, as a compiler makes them",
                &[&self.inputs.scaled(250_000).to_string(), "2"],
                true,
            ),
            "larson" => own(
                "larson.c",
                "2 lineages of threads that take over each other's blocks",
                &["2", "20", &self.inputs.scaled(20_000).to_string()],
                false,
            ),
            "handoff" => own(
                "handoff.c",
                "one thread allocates, another frees",
                &[&self.inputs.scaled(700_000).to_string()],
                false,
            ),
            _ => self.real(name),
        }
    }

    fn real(&self, name: &'static str) -> anyhow::Result<Option<Workload>> {
        let inputs = &self.inputs;
        let Some(program) = (match name {
            "cc1plus" => compiler_proper(),
            "redis" => find("redis-benchmark").and(find("redis-server")),
            other => find(other),
        }) else {
            return Ok(None);
        };
        let mut load = Workload {
            name,
            what: "",
            kind: Kind::Program,
            argv: vec![program.into_os_string()],
            env: vec![],
            stdin: None,
            pinned: true,
            analysed: false,
        };
        let mut words = |words: &[&str]| load.argv.extend(words.iter().map(OsString::from));
        match name {
            "python3" => {
                load.argv.push(inputs.python()?.into());
                load.what = "objects, dictionaries, strings, JSON, with PYTHONMALLOC=malloc";
                load.env = vec![("PYTHONMALLOC", "malloc"), ("PYTHONHASHSEED", "0")];
                load.analysed = true;
            }
            "perl" => {
                load.argv.push(inputs.perl()?.into());
                load.what = "hashes of lists, regular expressions, sorting";
                load.env = vec![("PERL_HASH_SEED", "0")];
            }
            "sqlite3" => {
                words(&[":memory:"]);
                load.what = "inserts, indices, joins and updates in memory";
                load.stdin = Some(inputs.sqlite()?);
                load.analysed = true;
            }
            "jq" => {
                words(&[
                    "-c",
                    "[group_by(.score % 50)[] | {n: length, names: (map(.name) | sort | join(\"-\") | length), x: (map(.at.x) | add)}]",
                ]);
                load.argv.push(inputs.json()?.into());
                load.what = "group_by, sort and sums over a JSON document";
            }
            "xmllint" => {
                words(&["--noout", "--xpath", "count(//book[@shelf='7']/author)"]);
                load.argv.push(inputs.xml()?.into());
                load.what = "a tree of records, and an XPath query";
            }
            "cc1plus" => {
                // What the driver would say: C's headers are in a folder of the architecture.
                if let Some(folder) = multiarch() {
                    words(&["-imultiarch", &folder]);
                }
                words(&["-quiet", "-fsyntax-only", "-D_GNU_SOURCE", "-std=gnu++17"]);
                load.argv.push(inputs.cplusplus()?.into());
                load.what = "GCC's C++ compiler proper, -fsyntax-only, standard headers and templates";
                load.analysed = true;
            }
            "redis" => {
                load.kind = Kind::Server;
                load.argv = vec![find("redis-server").context("no redis-server")?.into_os_string()];
                load.what = "SET, GET, LPUSH, HSET, SADD by redis-benchmark over the loopback";
            }
            "git" => {
                words(&["--git-dir"]);
                load.argv.push(inputs.repository()?.into());
                load.argv.extend(["--no-pager", "log", "-p", "--stat", "--no-color"].map(OsString::from));
                load.what = "log -p --stat over a generated history";
                load.env = vec![("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")];
            }
            "node" => {
                load.argv.push(inputs.javascript()?.into());
                load.what = "objects, JSON, maps, zlib, buffers";
                load.pinned = false;
            }
            _ => anyhow::bail!("there is no load `{name}`"),
        }
        Ok(Some(load))
    }

    /// Compiles a program of `benches/` as users do: optimised, with line tables.
    pub fn compile(&self, source: &str) -> anyhow::Result<PathBuf> {
        let from = self.root.join("benches").join(source);
        let to = self.build.join(Path::new(source).file_stem().context("no name")?);
        let compiler = if source.ends_with("cpp") { "g++" } else { "gcc" };
        let status = Command::new(compiler)
            .args(["-O2", "-g", "-pthread", "-o"])
            .arg(&to)
            .arg(&from)
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("cannot start {compiler}"))?;
        anyhow::ensure!(status.success(), "{compiler} does not compile {}", from.display());
        Ok(to)
    }
}

/// A program of the system: the packaged one before any other on the path.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::iter::once(PathBuf::from("/usr/bin"))
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn compiler_proper() -> Option<PathBuf> {
    let said =
        Command::new(find("g++")?).arg("-print-prog-name=cc1plus").stdin(Stdio::null()).output().ok()?;
    let file = PathBuf::from(String::from_utf8_lossy(&said.stdout).trim());
    file.is_file().then_some(file)
}

fn multiarch() -> Option<String> {
    let said = Command::new(find("g++")?).arg("-print-multiarch").stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&said.stdout).trim().to_string()).filter(|folder| !folder.is_empty())
}
