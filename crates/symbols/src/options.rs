//! What the caller gives: modules and where to look for their files.

use std::path::PathBuf;

/// A loaded object, as the trace recorded it.
#[derive(Clone, Copy, Debug)]
pub struct ModuleInput<'a> {
    /// File, as the loader named it.
    pub path: &'a str,
    /// GNU build-id; empty if it had none or it was not recorded.
    pub build_id: &'a [u8],
    /// Address in memory minus address in the file.
    pub bias: u64,
    /// First mapped address.
    pub start: u64,
    /// One past the last mapped address.
    pub end: u64,
    /// The program itself, not a library.
    pub is_main: bool,
    /// The kernel's vDSO, which has no file.
    pub is_vdso: bool,
}

/// Where to look, and what to do with what is found.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folders laid out as `/usr/lib/debug` is, searched in this order.
    pub debug_dirs: Vec<PathBuf>,
    /// Path prefixes of source files and what to put in their place. The first
    /// that fits wins; a prefix ends at a `/`, so `/a` does not fit `/ab/c`.
    pub source_maps: Vec<(String, String)>,
    /// Ask debuginfod. Only where `DEBUGINFOD_URLS` is set, and by means of an
    /// installed `debuginfod-find`.
    pub debuginfod: bool,
    /// Folder under which the target's files lie (a container's root).
    pub sysroot: Option<PathBuf>,
    /// A JIT's `/tmp/perf-PID.map`.
    pub perf_map: Option<PathBuf>,
    /// Folder in which answers are kept from one run to the next, one file a
    /// build-id; see [`crate::default_cache_folder`]. It is made where it is not there.
    pub cache: Option<PathBuf>,
    /// Demangle C++ and Rust names.
    pub demangle: bool,
}

impl Default for Options {
    /// `/usr/lib/debug`, demangled, no network, no cache.
    fn default() -> Self {
        Options {
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            source_maps: Vec::new(),
            debuginfod: false,
            sysroot: None,
            perf_map: None,
            cache: None,
            demangle: true,
        }
    }
}
