//! Which frame of a stack matters to the user.
//!
//! The site is the innermost frame that is neither an allocator's entry point
//! nor inside a language's standard library nor a libc function that allocates
//! for its caller. All lists stand here. JSON carries the full stack anyway.

use std::borrow::Borrow;

use crate::stack::{Frame, base_name, function, is_pseudo};

/// Functions that only hand memory on, by their bare names (no parameters, no
/// template arguments).
const FORWARDERS: &[&str] = &[
    // C and POSIX
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "free",
    "cfree",
    "free_sized",
    "free_aligned_sized",
    "strdup",
    "strndup",
    "__strdup",
    "__strndup",
    "wcsdup",
    "asprintf",
    "vasprintf",
    "__asprintf",
    "__vasprintf",
    "__asprintf_chk",
    "__vasprintf_chk",
    "getline",
    "getdelim",
    "_IO_getdelim",
    "open_memstream",
    "realpath",
    "getcwd",
    "scandir",
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "xstrdup",
    "xstrndup",
    "safe_malloc",
    "safe_calloc",
    "safe_realloc",
    // Interpreters and databases: their own names for malloc
    "Perl_safesysmalloc",
    "Perl_safesyscalloc",
    "Perl_safesysrealloc",
    "_PyMem_RawMalloc",
    "_PyMem_RawCalloc",
    "_PyMem_RawRealloc",
    "PyMem_RawMalloc",
    "PyMem_RawCalloc",
    "PyMem_RawRealloc",
    "PyMem_Malloc",
    "PyMem_Calloc",
    "PyMem_Realloc",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "_PyObject_Malloc",
    "_PyObject_Calloc",
    "_PyObject_Realloc",
    "_PyObject_GC_New",
    "_PyObject_GC_NewVar",
    "_PyObject_GC_Malloc",
    "gc_alloc",
    "sqlite3MemMalloc",
    "sqlite3MemRealloc",
    "sqlite3Malloc",
    "sqlite3Realloc",
    "sqlite3_malloc",
    "sqlite3_malloc64",
    "sqlite3_realloc",
    "sqlite3_realloc64",
    "sqlite3MallocZero",
    "sqlite3DbMallocRaw",
    "sqlite3DbMallocRawNN",
    "sqlite3DbMallocZero",
    "sqlite3DbRealloc",
    // GLib
    "g_malloc",
    "g_malloc0",
    "g_malloc_n",
    "g_malloc0_n",
    "g_try_malloc",
    "g_realloc",
    "g_realloc_n",
    "g_free",
    "g_strdup",
    "g_strndup",
    "g_memdup",
    "g_memdup2",
    "g_slice_alloc",
    "g_slice_alloc0",
    "g_slice_free1",
    // Rust's shims
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
    "__rust_dealloc",
    "__rustc::__rust_alloc",
    "__rustc::__rust_alloc_zeroed",
    "__rustc::__rust_realloc",
    "__rustc::__rust_dealloc",
    "__rdl_alloc",
    "__rdl_alloc_zeroed",
    "__rdl_realloc",
    "__rdl_dealloc",
    "__rustc::__rdl_alloc",
    "__rg_alloc",
    "__rustc::__rdl_alloc_zeroed",
    "__rustc::__rdl_realloc",
    "__rustc::__rdl_dealloc",
    "__rg_realloc",
];

/// Beginnings of bare names: standard libraries.
const LIBRARY_PREFIXES: &[&str] = &[
    "operator new",
    "operator delete",
    "std::",
    "__gnu_cxx::",
    "__cxxabiv1::",
    "alloc::",
    "core::",
    "hashbrown::",
    "<alloc::",
    "<std::",
    "<core::",
    "<hashbrown::",
    "__rustc::",
    // Names that no demangler of ours can read.
    "_ZSt",
    "_ZNSt",
    "_ZNKSt",
    "_ZN9__gnu_cxx",
];

/// Beginnings and parts of source files that are a standard library's: inlined
/// functions often come without their scope.
const LIBRARY_FILES: &[&str] =
    &["/usr/include/c++/", "/include/c++/v1/", "/rustc/", "/rustlib/src/rust/library/"];

/// Beginnings of module names whose every frame is the library's.
const LIBRARY_MODULES: &[&str] = &[
    "libc.so",
    "libc-",
    "libc.musl",
    "ld-linux",
    "ld-musl",
    "libstdc++.so",
    "libc++.so",
    "libc++abi.so",
    "libhighwater_agent",
    "libpthread.so",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
];

/// The name without template arguments, parameters and return type:
/// `void std::vector<int>::push_back(int&&)` is `std::vector<>::push_back`.
fn bare_name(function: &str) -> String {
    let mut bare = String::with_capacity(function.len());
    let mut depth = 0usize;
    let rust_impl = function.starts_with('<');
    for (at, c) in function.char_indices() {
        match c {
            '<' if !((rust_impl && at == 0) || bare.ends_with("operator")) => {
                if depth == 0 {
                    bare.push('<');
                }
                depth += 1;
            }
            '>' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    bare.push('>');
                }
            }
            '(' if depth == 0 && !function[at..].starts_with("(anonymous") => break,
            _ if depth == 0 => bare.push(c),
            _ => {}
        }
    }
    if rust_impl {
        return bare;
    }
    if let Some(at) = bare.find("operator") {
        // Its own name may hold a space; a return type stands before the scope (Sun's
        // compiler writes `void*operator new(unsigned)`).
        let start = bare[..at].rfind([' ', '*', '&']).map_or(0, |end| end + 1);
        return bare.split_off(start);
    }
    match bare.trim_end().rsplit_once(' ') {
        Some((_, last)) => last.to_string(),
        None => bare,
    }
}

fn is_forwarder(bare: &str) -> bool {
    FORWARDERS.contains(&bare)
}

/// Is this frame inside what the user did not write?
fn is_library(frame: &Frame) -> bool {
    let module = base_name(&frame.module);
    if LIBRARY_MODULES.iter().any(|prefix| module.starts_with(prefix)) {
        return true;
    }
    if frame.file.as_deref().is_some_and(|file| LIBRARY_FILES.iter().any(|part| file.contains(part))) {
        return true;
    }
    let Some(function) = function(frame) else { return false };
    let bare = bare_name(function);
    is_forwarder(&bare) || LIBRARY_PREFIXES.iter().any(|prefix| bare.starts_with(prefix))
}

/// The number of the first frame that the user wrote.
pub fn first_of_user<F: Borrow<Frame>>(frames: &[F]) -> Option<usize> {
    frames.iter().map(F::borrow).position(|frame| !is_pseudo(frame) && !is_library(frame))
}

/// The number of the frame that matters, of frames innermost first; 0 for an
/// empty stack.
pub fn choose<F: Borrow<Frame>>(frames: &[F]) -> usize {
    if let Some(at) = first_of_user(frames) {
        return at;
    }
    // All of it is library code (a runtime's own start-up): the innermost frame
    // that does more than hand memory on.
    let named = |frame: &Frame| {
        !is_pseudo(frame)
            && function(frame).is_none_or(|function| {
                let bare = bare_name(function);
                !is_forwarder(&bare) && !bare.starts_with("operator ")
            })
    };
    frames.iter().map(F::borrow).position(named).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::pseudo;
    use std::sync::Arc;

    fn frame(function: &str, module: &str) -> Frame {
        Frame { address: 1, function: Some(Arc::from(function)), module: Arc::from(module), ..pseudo("") }
    }

    fn site(functions: &[(&str, &str)]) -> usize {
        let frames: Vec<Frame> = functions.iter().map(|(f, m)| frame(f, m)).collect();
        choose(&frames)
    }

    #[test]
    fn bare_names_have_no_arguments_and_no_return_type() {
        assert_eq!(
            bare_name("void std::vector<int, std::allocator<int> >::push_back(int&&)"),
            "std::vector<>::push_back"
        );
        assert_eq!(bare_name("operator new[](unsigned long)"), "operator new[]");
        assert_eq!(bare_name("<alloc::vec::Vec<u8> as Clone>::clone"), "<alloc::vec::Vec<> as Clone>::clone");
        assert_eq!(bare_name("load_file"), "load_file");
        assert_eq!(bare_name("void*operator new(unsigned)"), "operator new");
        assert_eq!(bare_name("std::ostream& operator<<(std::ostream&, X)"), "operator<<");
    }

    #[test]
    fn the_users_frame_is_found_behind_libraries() {
        let app = "/home/u/app";
        assert_eq!(site(&[("main", app)]), 0);
        assert_eq!(
            site(&[
                ("operator new(unsigned long)", "/usr/lib/libstdc++.so.6"),
                ("void std::vector<int>::_M_realloc_append<int>(int&&)", app),
                ("Parser::add(int)", app),
                ("main", app),
            ]),
            2
        );
        assert_eq!(
            site(&[
                ("__rustc::__rdl_alloc", app),
                ("alloc::raw_vec::RawVecInner<A>::try_allocate_in", app),
                ("<alloc::string::String as core::fmt::Write>::write_str", app),
                ("server::handle", app),
                ("std::rt::lang_start", app),
            ]),
            3
        );
        assert_eq!(site(&[("strdup", "/usr/lib/libc.so.6"), ("intern", app)]), 1);
        assert_eq!(site(&[("_IO_file_doallocate", "/usr/lib/libc.so.6"), ("main", app)]), 1);
    }

    #[test]
    fn a_stack_of_library_code_names_what_is_closest() {
        let app = "/home/u/app";
        assert_eq!(site(&[("malloc", app), ("std::rt::init", app), ("std::rt::lang_start", app)]), 1);
        assert_eq!(choose(&[pseudo("truncated: x")]), 0);
        assert_eq!(choose::<Frame>(&[]), 0);
    }
}
