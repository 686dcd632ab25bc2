//! From addresses to functions, files and lines.
//!
//! A trace holds return addresses and, for each module, its path, its GNU
//! build-id and where it was loaded. [`Symbolizer`] turns a pair of module and
//! address into [`Frame`]s, the inlined functions among them, innermost first:
//!
//! ```no_run
//! use highwater_symbols::{ModuleInput, Options, Symbolizer};
//!
//! let mut symbols = Symbolizer::new(Options::default());
//! let module = symbols.add_module(ModuleInput {
//!     path: "/usr/bin/true",
//!     build_id: &[],
//!     bias: 0x5555_5555_4000,
//!     start: 0x5555_5555_4000,
//!     end: 0x5555_5556_0000,
//!     is_main: true,
//!     is_vdso: false,
//! });
//! for frame in symbols.frames(module, 0x5555_5555_6123, true).iter() {
//!     println!("{frame}");
//! }
//! for note in symbols.notes() {
//!     eprintln!("{note}");
//! }
//! ```
//!
//! Where the names come from, in order: the file's own DWARF (4 and 5, split
//! or not, compressed or not), a separate debug file (found by build-id, by
//! `.gnu_debuglink`, or by debuginfod), the symbol tables (`.symtab`,
//! `.dynsym`, `.gnu_debugdata`), a JIT's `/tmp/perf-PID.map`.
//!
//! **A wrong name is worse than none.** A file whose build-id is not the
//! recorded one is never used; its frames are module and offset, and a
//! [`Note`] says why.
//!
//! The files are input from strangers: nothing here panics on a damaged one,
//! sizes that a file claims are bounded before memory is taken for them, and
//! an error in the DWARF falls back to the symbol table.
//!
//! Answers may be kept for later runs ([`Options::cache`]): they are the same as
//! without.
//!
//! Nothing is read before the first address of a module is asked for.

mod answer;
mod bytes;
mod cache;
mod data_symbols;
mod debug_file;
mod debuginfod;
mod demangle;
mod dwarf;
mod elf;
mod frame;
mod module;
mod nesting;
mod note;
mod options;
mod perf_map;
mod source;
mod split_dwarf;
mod symbol_table;
mod symbolizer;
mod xz;

pub use cache::default_folder as default_cache_folder;
pub use demangle::demangle;
pub use frame::{Frame, Origin};
pub use note::{Note, NoteKind};
pub use options::{ModuleInput, Options};
pub use symbolizer::{ModuleId, Symbolizer};
