//! The tree keeps its own rules: who may use whom, and that each dependency
//! and each hazard is accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use highwater_tests::{Child, Highwater, tools};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the work tree").to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Dependencies that a manifest names, by section (`dependencies`, `dev-dependencies`, …).
fn dependencies(manifest: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in read(manifest).lines() {
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[') {
            section = title.trim_end_matches(']').rsplit('.').next().unwrap_or_default().to_string();
        } else if section.ends_with("dependencies") && !line.is_empty() && !line.starts_with('#') {
            let name: String =
                line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_').collect();
            found.entry(section.clone()).or_default().insert(name);
        }
    }
    found
}

fn manifests() -> Vec<PathBuf> {
    let crates = fs::read_dir(root().join("crates")).expect("crates");
    let mut all: Vec<PathBuf> = crates.flatten().map(|entry| entry.path().join("Cargo.toml")).collect();
    all.extend(["tests", "xtask"].map(|name| root().join(name).join("Cargo.toml")));
    all.retain(|path| path.exists());
    assert!(all.len() > 10, "{all:?}");
    all
}

#[test]
fn a_crate_uses_only_what_the_architecture_lets_it_use() {
    // Inner crates may use what is below them, never what is beside or above.
    let law: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("event", &[][..]),
        ("agent", &["event"]),
        ("trace", &["event"]),
        ("replay", &["event", "trace"]),
        ("record", &["event", "trace", "replay"]),
        ("symbols", &[]),
        ("query", &["event", "trace", "replay", "symbols"]),
        ("render", &["event", "trace", "replay", "symbols", "query"]),
        ("interchange", &["event", "trace", "replay", "symbols"]),
    ]);
    for manifest in manifests() {
        let name =
            manifest.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let Some(allowed) = law.get(name.as_str()) else { continue };
        for used in dependencies(&manifest).remove("dependencies").unwrap_or_default() {
            if let Some(ours) = used.strip_prefix("highwater-") {
                assert!(allowed.contains(&ours), "{name} may not use {ours}");
            }
        }
    }
}

#[test]
fn every_dependency_is_explained() {
    let page = read(&root().join("docs/dependencies.md"));
    for manifest in manifests() {
        for used in
            dependencies(&manifest).into_values().flatten().filter(|name| !name.starts_with("highwater-"))
        {
            assert!(
                page.contains(&format!("`{used}`")),
                "{}: {used} is not in docs/dependencies.md",
                manifest.display()
            );
        }
    }
}

/// The sources of the modules of that name, in all crates.
fn unit_tests(module: &str) -> String {
    let path = module.replace("::", "/");
    let crates = fs::read_dir(root().join("crates")).expect("crates");
    let sources = crates.flatten().map(|entry| entry.path().join("src"));
    let files = sources.flat_map(|source| {
        [format!("{path}.rs"), format!("{path}/mod.rs"), format!("{path}/tests.rs")]
            .map(|name| source.join(name))
    });
    files.filter(|file| file.exists()).map(|file| read(&file)).collect()
}

#[test]
fn every_test_that_the_hazards_name_exists() {
    let page = read(&root().join("docs/hazards.md"));
    let mut named = 0;
    for word in page.split('`').filter(|word| word.contains("::") && !word.contains('…')) {
        // `module::tests::test` is a crate's own, `file::test` one of this folder.
        let (source, test) = match word.rsplit_once("::tests::") {
            Some((module, test)) => (unit_tests(module), test),
            None => {
                let (file, test) = word.split_once("::").expect("file::test");
                (read(&root().join("tests/tests").join(format!("{file}.rs"))), test)
            }
        };
        assert!(source.contains(&format!("fn {test}(")), "docs/hazards.md names {word}, which is not there");
        named += 1;
    }
    assert!(named > 30, "only {named}");
}

#[test]
fn the_agent_needs_no_library_and_no_dynamic_thread_storage() {
    let agent = Highwater::command(["agent-path"]).run().expect_code(0).stdout();
    let readelf = |option: &str| {
        Child::new(tools::need("readelf"))
            .args(["-W", option])
            .arg(agent.trim())
            .run()
            .expect_code(0)
            .stdout()
    };
    let dynamic = readelf("-d");
    assert!(!dynamic.contains("NEEDED"), "{dynamic}");
    let relocations = readelf("-r");
    assert!(!relocations.contains("DTPMOD") && !relocations.contains("TLSDESC"), "{relocations}");
    let size = fs::metadata(agent.trim()).expect("the agent").len();
    assert!(size < 256 * 1024, "{size} bytes");
    let symbols = readelf("--dyn-syms");
    let expected = [
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "free",
        "cfree",
        "free_sized",
        "free_aligned_sized",
        "memalign",
        "aligned_alloc",
        "posix_memalign",
        "valloc",
        "pvalloc",
        "_Znwm",
        "_Znam",
        "_ZdlPv",
        "_ZdaPv",
        "_ZnwmRKSt9nothrow_t",
        "_ZnamRKSt9nothrow_t",
        "_ZnwmSt11align_val_t",
        "_ZnamSt11align_val_t",
        "_ZnwmSt11align_val_tRKSt9nothrow_t",
        "_ZnamSt11align_val_tRKSt9nothrow_t",
        "_ZdlPvm",
        "_ZdaPvm",
        "_ZdlPvSt11align_val_t",
        "_ZdaPvSt11align_val_t",
        "_ZdlPvmSt11align_val_t",
        "_ZdaPvmSt11align_val_t",
        "_ZdlPvRKSt9nothrow_t",
        "_ZdaPvRKSt9nothrow_t",
        "_ZdlPvSt11align_val_tRKSt9nothrow_t",
        "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    ];
    let exported: BTreeSet<&str> = symbols
        .lines()
        .filter(|line| !line.contains(" UND "))
        .filter_map(|line| line.split_whitespace().nth(7))
        .map(|name| name.split('@').next().unwrap_or(name))
        .collect();
    for name in expected {
        assert!(exported.contains(name), "{name} is not exported; {exported:?}");
    }
}
