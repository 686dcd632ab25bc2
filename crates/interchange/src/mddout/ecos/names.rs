//! From return addresses to functions, lines and their text.

use std::path::Path;
use std::sync::Arc;

use highwater_symbols::{ModuleId, ModuleInput, Symbolizer};

use super::glob;
use crate::mddout::model::{Dump, Event};
use crate::mddout::unwind;

/// Where an address lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Function.
    pub function: Option<String>,
    /// Source file and line.
    pub location: Option<(String, u32)>,
}

/// What an executable tells about addresses.
pub trait Names {
    /// The functions at a return address, inlined ones first; `None` of them may be known.
    fn places(&mut self, pc: u64) -> Vec<Place>;
    /// The text of a source line, if the file is here.
    fn text(&mut self, file: &str, line: u32) -> Option<String>;
    /// The return addresses of an event as far as they can be trusted.
    fn backtrace(&mut self, dump: &Dump, event: &Event) -> Vec<u64> {
        unwind::unpacked(dump, event)
    }
}

/// Where Rust's own library lies: built with the compiler, or installed as `rust-src`.
const RUST_LIBRARY: [&str; 3] = ["*/library/alloc/src/*", "*/library/core/src/*", "*/library/std/src/*"];

/// Is this on Rust's way from the program to its allocator, or inlined from its library?
fn of_rust(place: &Place) -> bool {
    let function = place.function.as_deref().unwrap_or_default();
    function.starts_with("__rustc::")
        || function.starts_with("<highwater::mdd::Recorded")
        || place.location.as_ref().is_some_and(|(file, _)| RUST_LIBRARY.iter().any(|g| glob::fits(g, file)))
}

/// The function that matters at an address: the innermost one whose file is not
/// ignored; where all are, the innermost. With anything ignored, what Rust's library
/// inlines is, too (`Box::new` is nobody's answer); where all is the library's, its
/// function that was called.
pub(super) fn place(names: &mut dyn Names, pc: u64, ignore: Option<&str>) -> Place {
    let places = names.places(pc);
    let Some(glob) = ignore else { return places.first().cloned().unwrap_or_default() };
    let ignored =
        |p: &Place| of_rust(p) || p.location.as_ref().is_some_and(|(file, _)| glob::fits(glob, file));
    let innermost = if places.first().is_some_and(of_rust) { places.last() } else { places.first() };
    places.iter().find(|p| !ignored(p)).or(innermost).cloned().unwrap_or_default()
}

/// An executable on disk.
pub(super) struct Exe {
    symbolizer: Symbolizer,
    module: ModuleId,
    slide: u64,
    bytes: Vec<u8>,
    frames: Option<Arc<unwind::Tables>>,
}

impl Exe {
    /// `slide` is what its addresses were moved by.
    pub fn new(path: &Path, bytes: Vec<u8>, slide: u64) -> Exe {
        let mut symbolizer = Symbolizer::new(highwater_symbols::Options::default());
        let module = symbolizer.add_module(ModuleInput {
            path: &path.to_string_lossy(),
            // whether it fits was decided by us
            build_id: &[],
            bias: slide,
            start: slide,
            end: u64::MAX,
            is_main: true,
            is_vdso: false,
        });
        Exe { symbolizer, module, slide, bytes, frames: None }
    }
}

impl Names for Exe {
    fn places(&mut self, pc: u64) -> Vec<Place> {
        let frames = self.symbolizer.frames(self.module, pc, true);
        let place = |f: &highwater_symbols::Frame| Place {
            function: f.function.as_ref().map(|n| n.to_string()),
            location: f.file.as_ref().zip(f.line).map(|(file, line)| (file.to_string(), line)),
        };
        frames.iter().map(place).collect()
    }

    fn text(&mut self, file: &str, line: u32) -> Option<String> {
        self.symbolizer.source_line(file, line)
    }

    fn backtrace(&mut self, dump: &Dump, event: &Event) -> Vec<u64> {
        let bytes = &self.bytes;
        let tables = self.frames.get_or_insert_with(|| Arc::new(unwind::Tables::parse(bytes))).clone();
        unwind::verified(dump, event, &tables, self.slide)
    }
}
