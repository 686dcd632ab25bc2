//! Blocks that the C and C++ runtimes never give back, in a program without a
//! leak too: buffers of the standard streams, the pool for exceptions when
//! memory is short, the loader's tables, cached locales and time zones.
//!
//! A rule looks only at the frames between the allocation and the program's
//! own innermost frame. A block that the program's constructor made is never
//! the loader's, although the loader called the constructor.

use crate::stack::{Frame, Stack, base_name, function, is_pseudo};

/// Who keeps the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Residue {
    /// The loader: made by itself, not by what it called.
    Loader,
    /// No frame of the stack is the program's: a runtime's start-up or end.
    Runtime,
    /// A cache or buffer of libc, kept until the process ends.
    Libc,
}

impl Residue {
    /// A name for lists.
    pub const fn name(self) -> &'static str {
        match self {
            Residue::Loader => "built-in: the loader's own tables",
            Residue::Runtime => "built-in: made by the C and C++ runtimes for themselves",
            Residue::Libc => "built-in: caches and buffers of libc",
        }
    }
}

const LOADER: &[&str] = &["ld-linux", "ld-musl", "ld64.so", "ld.so"];
const RUNTIME: &[&str] = &["libc.so", "libc-", "libstdc++.so", "libgcc_s.so", "libm.so", "libpthread.so"];
const AGENT: &str = "libhighwater_agent";

/// Functions of libc whose blocks belong to libc itself: what they return is
/// no block, or is one that libc keeps.
const LIBC_KEEPS: &[&str] = &[
    "_IO_file_doallocate",
    "_IO_wfile_doallocate",
    "setlocale",
    "tzset",
    "localtime",
    "localtime_r",
    "mktime",
    "strftime",
    "bindtextdomain",
    "textdomain",
    "bind_textdomain_codeset",
    "gettext",
    "dgettext",
    "dcgettext",
    "dcngettext",
    "setenv",
    "putenv",
    "clearenv",
    "__add_to_environ",
    "atexit",
    "__cxa_atexit",
    "__cxa_at_quick_exit",
    "on_exit",
    "getpwnam",
    "getpwuid",
    "getgrnam",
    "getgrgid",
    "gethostbyname",
    "getservbyname",
    "getprotobyname",
    "dlerror",
    "__libc_dlopen_mode",
    "pthread_create",
];

fn is_of(frame: &Frame, modules: &[&str]) -> bool {
    let module = base_name(&frame.module);
    modules.iter().any(|prefix| module.starts_with(prefix))
}

/// Is this the function that users know as `known`? Debug information has libc's
/// functions under their inner names, `__GI_setlocale` or `__setlocale`.
fn is_named(inner: &str, known: &str) -> bool {
    let inner = inner.strip_prefix("__GI_").unwrap_or(inner);
    inner.trim_start_matches('_') == known.trim_start_matches('_')
}

/// The residue that this stack's blocks are, if they are one.
pub fn of(stack: &Stack) -> Option<Residue> {
    let mut frames = stack
        .frames
        .iter()
        .filter(|frame| !is_pseudo(frame) && !base_name(&frame.module).starts_with(AGENT))
        // The entry point itself says nothing of who asked.
        .skip_while(|frame| {
            function(frame).is_some_and(|name| matches!(name, "malloc" | "calloc" | "realloc" | "memalign"))
        })
        .peekable();
    if is_of(frames.peek()?, LOADER) {
        return Some(Residue::Loader);
    }
    for frame in frames {
        if !is_of(frame, LOADER) && !is_of(frame, RUNTIME) {
            return None;
        }
        let kept = |name: &str| LIBC_KEEPS.iter().any(|known| is_named(name, known));
        if is_of(frame, RUNTIME) && function(frame).is_some_and(kept) {
            return Some(Residue::Libc);
        }
    }
    // A stack that was cut may have the program's frames beyond.
    stack.truncated.is_none().then_some(Residue::Runtime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::pseudo;
    use highwater_event::node::Truncation;
    use highwater_symbols::Origin;
    use std::sync::Arc;

    const APP: &str = "/home/u/app";
    const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    const LD: &str = "/lib64/ld-linux-x86-64.so.2";
    const CXX: &str = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6";

    fn stack(frames: &[(&str, &str)]) -> Stack {
        let frames = frames
            .iter()
            .map(|(function, module)| Frame {
                address: 1,
                function: Some((*function).into()),
                module: (*module).into(),
                origin: Origin::Symbol,
                ..pseudo("")
            })
            .map(Arc::new)
            .collect();
        Stack { frames, truncated: None, site: 0 }
    }

    #[test]
    fn the_runtimes_own_blocks_are_known() {
        let stdio = stack(&[("_IO_file_doallocate", LIBC), ("puts", LIBC), ("main", APP)]);
        assert_eq!(of(&stdio), Some(Residue::Libc));
        let inner = stack(&[("__GI__IO_file_doallocate", LIBC), ("__GI__IO_puts", LIBC), ("main", APP)]);
        assert_eq!(of(&inner), Some(Residue::Libc));
        let pool = stack(&[("[unknown]", CXX), ("call_init", LD), ("_dl_init", LD)]);
        assert_eq!(of(&pool), Some(Residue::Runtime));
        let tls =
            stack(&[("calloc", LIBC), ("_dl_allocate_tls", LD), ("pthread_create", LIBC), ("main", APP)]);
        assert_eq!(of(&tls), Some(Residue::Loader));
    }

    #[test]
    fn the_programs_blocks_are_not() {
        for frames in [
            &[("main", APP)][..],
            &[("strdup", LIBC), ("main", APP)],
            &[("operator new(unsigned long)", CXX), ("main", APP), ("__libc_start_main", LIBC)],
            // A constructor that the loader runs.
            &[("plugin_init", APP), ("call_init", LD), ("_dl_init", LD)],
            // The program's own function of that name.
            &[("setlocale", APP), ("main", APP)],
            // What fopen makes is the program's to close.
            &[("fopen", LIBC), ("main", APP)],
            // Called back by libc.
            &[("compare", APP), ("qsort", LIBC), ("setlocale", LIBC)],
        ] {
            assert_eq!(of(&stack(frames)), None, "{frames:?}");
        }
    }

    #[test]
    fn a_stack_that_was_cut_proves_nothing() {
        let mut cut = stack(&[("regcomp", LIBC)]);
        assert_eq!(of(&cut), Some(Residue::Runtime));
        cut.truncated = Some(Truncation::TooDeep);
        assert_eq!(of(&cut), None);
        assert_eq!(of(&Stack::default()), None);
    }
}
