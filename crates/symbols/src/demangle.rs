//! Names as the programmer wrote them: C++ (Itanium), Rust legacy and v0.

use std::borrow::Cow;
use std::fmt;

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// Longer raw names are shown raw.
const RAW_LIMIT: usize = 256 << 10;
/// A name that grows beyond this is a bomb (substitutions can double it at
/// each step) and is shown raw.
const OUTPUT_LIMIT: usize = 1 << 20;
/// What any thread's stack bears.
const SHALLOW: u32 = 96;
/// For deeply nested templates, on a stack of its own.
const DEEP: u32 = 2048;
/// That stack. Only the touched part of it becomes real memory. A level takes
/// several calls, each about a kilobyte in a debug build.
const DEEP_STACK: usize = 256 << 20;

/// The readable form of a symbol's name, or the name itself if it is not
/// mangled or cannot be demangled. Never hangs and never overflows the stack,
/// whatever the name.
///
/// Rust's hashes are left out. A glibc version (`memcpy@@GLIBC_2.14`) is cut off.
pub fn demangle(raw: &str) -> Cow<'_, str> {
    let raw = match raw.split_once('@') {
        Some((name, _)) if !name.is_empty() => name,
        _ => raw,
    };
    if raw.len() > RAW_LIMIT {
        return Cow::Borrowed(raw);
    }
    if let Ok(name) = rustc_demangle::try_demangle(raw) {
        // rustc-demangle bounds its recursion and its output by itself; the
        // limit here only keeps both languages alike.
        let mut out = Limited::default();
        if fmt::write(&mut out, format_args!("{name:#}")).is_ok() && !out.text.is_empty() {
            return Cow::Owned(out.text);
        }
        return Cow::Borrowed(raw);
    }
    if raw.starts_with("_Z") || raw.starts_with("__Z") || raw.starts_with("_GLOBAL_") {
        return cpp(raw).map_or(Cow::Borrowed(raw), Cow::Owned);
    }
    Cow::Borrowed(raw)
}

fn cpp(raw: &str) -> Option<String> {
    match cpp_within(raw, SHALLOW) {
        Outcome::Name(name) => return Some(name),
        Outcome::Never => return None,
        Outcome::Deeper => {}
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("demangle".into())
            .stack_size(DEEP_STACK)
            .spawn_scoped(scope, || cpp_within(raw, DEEP))
            .ok()?;
        match thread.join() {
            Ok(Outcome::Name(name)) => Some(name),
            _ => None,
        }
    })
}

enum Outcome {
    Name(String),
    /// More recursion may help.
    Deeper,
    /// Not a mangled name, or one whose readable form is too long.
    Never,
}

fn cpp_within(raw: &str, depth: u32) -> Outcome {
    let parse = ParseOptions::default().recursion_limit(depth);
    let symbol = match BorrowedSymbol::with_tail_and_options(raw.as_bytes(), &parse) {
        Ok((symbol, [])) => symbol,
        Ok(_) => return Outcome::Never,
        Err(cpp_demangle::error::Error::TooMuchRecursion) => return Outcome::Deeper,
        Err(_) => return Outcome::Never,
    };
    let options = DemangleOptions::default().recursion_limit(depth * 2);
    let mut out = Limited::default();
    match symbol.structured_demangle(&mut out, &options) {
        Ok(()) => Outcome::Name(out.text),
        Err(_) if out.full => Outcome::Never,
        Err(_) => Outcome::Deeper,
    }
}

/// Text that refuses to grow beyond [`OUTPUT_LIMIT`], which stops the demangler.
#[derive(Default)]
struct Limited {
    text: String,
    full: bool,
}

impl fmt::Write for Limited {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.text.len() + part.len() > OUTPUT_LIMIT {
            self.full = true;
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_three_schemes() {
        assert_eq!(demangle("_ZN5space6WidgetIiE4growEm"), "space::Widget<int>::grow(unsigned long)");
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(demangle("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(demangle("_ZL6parserv.part.0"), "parser() [clone .part.0]");
    }

    #[test]
    fn other_names_stay() {
        for name in ["main", "", "_Z", "_ZN", "_R", "_ZNSt", "caf\u{e9}", "__libc_start_main", "@plt"] {
            assert_eq!(demangle(name), name);
        }
        assert_eq!(demangle("memcpy@@GLIBC_2.14"), "memcpy");
    }

    #[test]
    fn long_and_deep_templates_work() {
        // f<int, int, ...>
        let wide = format!("_Z1fIJ{}EEvv", "i".repeat(20_000));
        let name = demangle(&wide);
        assert!(name.starts_with("void f<int, int,") && name.len() > 90_000, "{}", &name[..50]);
        // S<S<S<...>>>, without substitutions so that each level costs recursion.
        let mut inner = "i".to_owned();
        for level in 0..150 {
            let tag = format!("S{level}");
            inner = format!("{}{tag}I{inner}E", tag.len());
        }
        let name = demangle(&format!("_Z1fI{inner}Evv")).into_owned();
        assert!(name.starts_with("void f<S149<S148<"), "{}", &name[..60]);
    }

    #[test]
    fn bombs_end_soon_and_stay_raw() {
        let start = Instant::now();
        // Each argument pair doubles the one before it: pair<S, S> of pair<S, S> ...
        let mut bomb = String::from("_Z1fI4pairIiiE");
        for step in 0..60 {
            let sub = ["S0_", "S1_", "S2_", "S3_", "S4_", "S5_", "S6_", "S7_", "S8_", "S9_"][step % 10];
            bomb.push_str(&format!("4pairI{sub}{sub}E"));
        }
        bomb.push_str("Evv");
        let _ = demangle(&bomb);
        for hostile in [
            format!("_Z{}", "N".repeat(100_000)),
            format!("_Z1f{}", "P".repeat(100_000)),
            format!("_Z1fI{}", "1aI".repeat(50_000)),
            format!("_R{}", "NvNt".repeat(50_000)),
            format!("_RINvC1a1f{}E", "TB0_B0_".repeat(500)),
            "_Z".repeat(100_000),
        ] {
            let _ = demangle(&hostile);
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
}
