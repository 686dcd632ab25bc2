//! One line of a call stack, with names.

use std::fmt;
use std::sync::Arc;

/// Where a frame's function name comes from; the further down, the less sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// DWARF.
    Debug,
    /// A symbol whose extent holds the address.
    Symbol,
    /// The nearest symbol below the address, which does not claim to reach it.
    Nearest,
    /// A JIT's perf map.
    PerfMap,
    /// No name.
    Unknown,
}

/// A function that was active at an address: the physical function, or one
/// that was inlined into it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The address that was asked for, as it was in memory.
    pub address: u64,
    /// Its name, demangled.
    pub function: Option<Arc<str>>,
    /// Its name as the compiler wrote it; the same text as `function` where
    /// there was nothing to demangle.
    pub raw_name: Option<Arc<str>>,
    /// Bytes from the symbol's start to `address`; only where the name comes
    /// from a symbol table or a perf map.
    pub offset: Option<u64>,
    /// Source file, prefixes rewritten as the options ask.
    pub file: Option<Arc<str>>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// Path of the module; `[vdso]`, `[jit]` or `[unknown]` where there is no file.
    pub module: Arc<str>,
    /// `address` as an address in the module's file; `None` without a module.
    pub module_offset: Option<u64>,
    /// Whether this function was inlined into the next frame's.
    pub inlined: bool,
    /// Where the name comes from.
    pub origin: Origin,
}

impl fmt::Display for Frame {
    /// `function (file:line)`, `function+0x12 (module)` or `module+0x1234`;
    /// a guess is marked `near function+0x12 (module)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.function, &self.file) {
            (Some(function), Some(file)) => {
                write!(f, "{function} ({file}")?;
                if let Some(line) = self.line {
                    write!(f, ":{line}")?;
                }
                f.write_str(")")
            }
            (None, Some(file)) => {
                write!(f, "{}+{:#x} ({file}", self.module, self.module_offset.unwrap_or(self.address))?;
                if let Some(line) = self.line {
                    write!(f, ":{line}")?;
                }
                f.write_str(")")
            }
            (Some(function), None) => {
                if self.origin == Origin::Nearest {
                    f.write_str("near ")?;
                }
                f.write_str(function)?;
                if let Some(offset) = self.offset {
                    write!(f, "+{offset:#x}")?;
                }
                write!(f, " ({})", self.module)
            }
            (None, None) => match self.module_offset {
                Some(offset) => write!(f, "{}+{offset:#x}", self.module),
                None => write!(f, "{} {:#x}", self.module, self.address),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare() -> Frame {
        Frame {
            address: 0x1010,
            function: None,
            raw_name: None,
            offset: None,
            file: None,
            line: None,
            column: None,
            module: Arc::from("/lib/x.so"),
            module_offset: Some(0x10),
            inlined: false,
            origin: Origin::Unknown,
        }
    }

    #[test]
    fn says_as_much_as_it_knows() {
        assert_eq!(bare().to_string(), "/lib/x.so+0x10");
        let symbol = Frame { function: Some("f".into()), offset: Some(4), origin: Origin::Symbol, ..bare() };
        assert_eq!(symbol.to_string(), "f+0x4 (/lib/x.so)");
        let near = Frame { origin: Origin::Nearest, ..symbol.clone() };
        assert_eq!(near.to_string(), "near f+0x4 (/lib/x.so)");
        let full = Frame { file: Some("a.c".into()), line: Some(3), ..symbol };
        assert_eq!(full.to_string(), "f (a.c:3)");
        assert_eq!(Frame { function: None, ..full }.to_string(), "/lib/x.so+0x10 (a.c:3)");
        let lost = Frame { module_offset: None, module: "[unknown]".into(), ..bare() };
        assert_eq!(lost.to_string(), "[unknown] 0x1010");
    }
}
