//! DWARF of one module: from an address in the file to functions and lines.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, Location, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{Dwarf, DwarfPackage, RunTimeEndian};
use object::Object;

use crate::bytes::Bytes;
use crate::elf::Elf;
use crate::nesting::NestingGuard;
use crate::split_dwarf::{self, DwoSearch};

/// How DWARF bytes are read: shared, so that a `.dwo` can join at any time.
pub(crate) type Reader = gimli::EndianReader<RunTimeEndian, Bytes>;

/// DWARF of one module, parsed unit by unit as addresses ask for it.
pub(crate) struct DebugInfo {
    context: Context<Reader>,
    dwarf: Arc<Dwarf<Reader>>,
    guard: NestingGuard,
    package: Option<DwarfPackage<Reader>>,
    search: DwoSearch,
    /// Another file was asked for.
    is_split: Cell<bool>,
    /// Name of the first `.dwo` that was not found.
    missing_dwo: RefCell<Option<String>>,
    /// The first error.
    error: RefCell<Option<String>>,
}

/// One function at an address, names raw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) function: Option<String>,
    /// The language mangles its names, but this one is plain: a lambda, or a
    /// compiler that is sparing. The symbol table may know it in full.
    pub(crate) is_short: bool,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
}

impl DebugInfo {
    /// Reads the unit headers of `elf`. `alt` is what its `.gnu_debugaltlink`
    /// names; `beside` are the files beside which `.dwp` and `.dwo` may lie.
    pub(crate) fn new(elf: &Elf, alt: Option<&Elf>, beside: &[&Path]) -> Result<DebugInfo, gimli::Error> {
        let mut dwarf = load(elf);
        if let Some(alt) = alt {
            dwarf.set_sup(load(alt));
        }
        let dwarf = Arc::new(dwarf);
        let guard = NestingGuard::new(&dwarf)?;
        let context = Context::from_arc_dwarf(Arc::clone(&dwarf))?;
        let package = beside.iter().find_map(|path| split_dwarf::open_package(path));
        let folders = beside.iter().filter_map(|p| p.parent().map(PathBuf::from)).collect();
        Ok(DebugInfo {
            context,
            dwarf,
            guard,
            package,
            search: DwoSearch { folders },
            is_split: Cell::new(false),
            missing_dwo: RefCell::new(None),
            error: RefCell::new(None),
        })
    }

    /// The functions at an address of the file, innermost first; empty if the
    /// DWARF does not know it. Damage is noted in [`Self::error`].
    pub(crate) fn frames(&self, address: u64) -> Vec<RawFrame> {
        // The reader adds 1 to the address.
        if address == u64::MAX {
            return Vec::new();
        }
        let mut frames = Vec::new();
        let result = if self.guard.allows(&self.dwarf, address) {
            self.collect(address, &mut frames)
        } else {
            self.note_error("entries nested beyond reason");
            Ok(())
        };
        if let Err(error) = result {
            self.note_error(&error.to_string());
        }
        if frames.is_empty()
            && let Ok(Some(location)) = self.context.find_location(address)
        {
            frames.push(raw_frame(None, Some(location)));
        }
        frames
    }

    fn collect(&self, address: u64, out: &mut Vec<RawFrame>) -> Result<(), gimli::Error> {
        let mut lookup = self.context.find_frames(address);
        let mut frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames?,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.load_dwo(&load));
                }
            }
        };
        while let Some(frame) = frames.next()? {
            let name = frame.function.as_ref().and_then(|f| f.raw_name().ok()).map(Cow::into_owned);
            let mangles = frame.function.as_ref().and_then(|f| f.language).is_some_and(|l| !is_c(l));
            let mut raw = raw_frame(name, frame.location);
            raw.is_short = mangles && raw.function.as_deref().is_some_and(|name| !is_mangled(name));
            out.push(raw);
        }
        Ok(())
    }

    fn load_dwo(&self, load: &SplitDwarfLoad<Reader>) -> Option<Arc<Dwarf<Reader>>> {
        self.is_split.set(true);
        let found = self.search.load(load, self.package.as_ref());
        if found.is_none() {
            let name = load.path.as_ref().map(split_dwarf::text).unwrap_or_default();
            self.missing_dwo.borrow_mut().get_or_insert(name);
        }
        found
    }

    fn note_error(&self, error: &str) {
        self.error.borrow_mut().get_or_insert_with(|| error.to_owned());
    }

    /// Name of the first `.dwo` that was asked for and not found.
    pub(crate) fn missing_dwo(&self) -> Option<String> {
        self.missing_dwo.borrow().clone()
    }

    /// Whether answers came, or may come, from `.dwo` files or a `.dwp` as well.
    pub(crate) fn is_split(&self) -> bool {
        self.package.is_some() || self.is_split.get()
    }

    /// The first damage met.
    pub(crate) fn error(&self) -> Option<String> {
        self.error.borrow().clone()
    }
}

fn raw_frame(function: Option<String>, location: Option<Location<'_>>) -> RawFrame {
    let location = location.as_ref();
    RawFrame {
        function: function.filter(|name| !name.is_empty()),
        is_short: false,
        file: location.and_then(|l| l.file).map(str::to_owned),
        // Line 0 means: compiler-made code, no line.
        line: location.and_then(|l| l.line).filter(|&line| line != 0),
        column: location.and_then(|l| l.column).filter(|&column| column != 0),
    }
}

fn is_c(language: gimli::DwLang) -> bool {
    use gimli::constants::{DW_LANG_C, DW_LANG_C11, DW_LANG_C17, DW_LANG_C89, DW_LANG_C99};
    [DW_LANG_C89, DW_LANG_C, DW_LANG_C99, DW_LANG_C11, DW_LANG_C17].contains(&language)
}

/// Whether a name is a C++ or Rust symbol's.
pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// The DWARF sections of a file; what is missing or damaged is empty.
fn load(elf: &Elf) -> Dwarf<Reader> {
    load_named(elf, |id| Some(id.name()))
}

/// The sections of a split (`.dwo`) file.
pub(crate) fn load_split(elf: &Elf) -> Dwarf<Reader> {
    load_named(elf, |id| id.dwo_name())
}

fn load_named(elf: &Elf, name: impl Fn(gimli::SectionId) -> Option<&'static str>) -> Dwarf<Reader> {
    let endian = endian(elf);
    let section = |id| Ok::<_, Infallible>(reader(name(id).and_then(|name| elf.section(name)), endian));
    match Dwarf::load(section) {
        Ok(dwarf) => dwarf,
        Err(never) => match never {},
    }
}

/// Bytes as the DWARF reader wants them; none are an empty section.
pub(crate) fn reader(bytes: Option<Bytes>, endian: RunTimeEndian) -> Reader {
    Reader::new(bytes.unwrap_or_else(|| Bytes::from(Vec::new())), endian)
}

/// The byte order of a file.
pub(crate) fn endian(elf: &Elf) -> RunTimeEndian {
    match elf.object() {
        Some(file) if !file.is_little_endian() => RunTimeEndian::Big,
        _ => RunTimeEndian::Little,
    }
}
