//! The front: modules in, frames out, everything remembered.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::debuginfod::Debuginfod;
use crate::demangle::demangle;
use crate::dwarf::{RawFrame, is_mangled};
use crate::frame::{Frame, Origin};
use crate::module::{Identity, Module};
use crate::note::Note;
use crate::options::{ModuleInput, Options};
use crate::perf_map::PerfMap;
use crate::source::{Sources, remap, tidy};

/// A module that was added; only meaningful to the [`Symbolizer`] that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(u32);

/// Turns addresses into frames. Files are opened when the first address of a
/// module is asked for, units of DWARF when an address lies in them, and each
/// answer is kept.
pub struct Symbolizer {
    options: Options,
    server: Debuginfod,
    modules: Vec<Placed>,
    /// One entry a file, however often and wherever it was loaded.
    files: Vec<(Identity, Option<Module>)>,
    file_by_identity: FxHashMap<Identity, usize>,
    cache: FxHashMap<Key, Arc<[Frame]>>,
    perf_map: Option<PerfMap>,
    texts: Texts,
    sources: Sources,
}

/// (module, address, whether it is a return address).
type Key = (Option<ModuleId>, u64, bool);

/// A module at its address.
#[derive(Clone, Debug)]
struct Placed {
    name: Arc<str>,
    bias: u64,
    /// `None` for the vDSO, which has no file.
    file: Option<usize>,
}

impl Symbolizer {
    /// Opens nothing yet. With [`Options::debuginfod`] the environment is read:
    /// `DEBUGINFOD_URLS`, `DEBUGINFOD_CACHE_PATH`, `XDG_CACHE_HOME`, `HOME`.
    pub fn new(options: Options) -> Symbolizer {
        Symbolizer {
            server: Debuginfod::from_env(options.debuginfod),
            modules: Vec::new(),
            files: Vec::new(),
            file_by_identity: FxHashMap::default(),
            cache: FxHashMap::default(),
            perf_map: options.perf_map.clone().map(PerfMap::new),
            texts: Texts::default(),
            sources: Sources::default(),
            options,
        }
    }

    /// Makes a module known. The same file at another address is opened once.
    pub fn add_module(&mut self, input: ModuleInput<'_>) -> ModuleId {
        let id = ModuleId(u32::try_from(self.modules.len()).unwrap_or(u32::MAX));
        let name = match input.is_vdso {
            true => Arc::from("[vdso]"),
            false => Arc::from(input.path),
        };
        // Names like `[anon]` are not files; nor is a path with a zero byte.
        let no_file = input.is_vdso || input.path.is_empty() || input.path.starts_with('[');
        let file = (!no_file).then(|| {
            let identity = Identity {
                path: Arc::clone(&name),
                build_id: Arc::from(input.build_id),
                is_main: input.is_main,
            };
            *self.file_by_identity.entry(identity.clone()).or_insert_with(|| {
                self.files.push((identity, None));
                self.files.len() - 1
            })
        });
        self.modules.push(Placed { name, bias: input.bias, file });
        id
    }

    /// The functions at `pc`, innermost first; at least one frame, the last of
    /// them the physical function's. `call` says that `pc` is a return address:
    /// then the call before it is meant, which may lie in another line, or even
    /// in another function.
    ///
    /// Kept for each module and `pc`. Never fails: [`Self::notes`] says why a
    /// name is missing. An id of another `Symbolizer` gives an unknown frame.
    pub fn frames(&mut self, module: ModuleId, pc: u64, call: bool) -> Arc<[Frame]> {
        let key = (Some(module), pc, call);
        if let Some(known) = self.cache.get(&key) {
            return Arc::clone(known);
        }
        let frames: Arc<[Frame]> = match self.modules.get(module.0 as usize).cloned() {
            Some(placed) => self.resolve(&placed, pc, call).into(),
            None => Arc::new([self.unknown("[unknown]", pc, None)]),
        };
        self.cache.insert(key, Arc::clone(&frames));
        frames
    }

    /// The variable that holds an address of a module's data, and how far into it.
    pub fn data(&mut self, module: ModuleId, address: u64) -> Option<(String, u64)> {
        let placed = self.modules.get(module.0 as usize)?;
        let in_file = address.wrapping_sub(placed.bias);
        let (identity, slot) = self.files.get_mut(placed.file?)?;
        let module = slot.get_or_insert_with(|| Module::open(identity, &self.options, &mut self.server));
        let (name, offset) = module.data(in_file)?;
        Some((if self.options.demangle { demangle(name).into_owned() } else { name.to_owned() }, offset))
    }

    /// The function at an address that is in no module: a JIT's, if the perf map
    /// knows it (module `[jit]`), else a frame without a name (module
    /// `[unknown]`). One frame, always.
    pub fn frames_no_module(&mut self, pc: u64, call: bool) -> Arc<[Frame]> {
        let key = (None, pc, call);
        if let Some(known) = self.cache.get(&key) {
            return Arc::clone(known);
        }
        let found = self.perf_map.as_mut().and_then(|map| {
            let address = lookup_address(pc, call);
            map.find(address).or_else(|| {
                // The map grows as the program runs.
                map.refresh();
                map.find(address)
            })
        });
        let Some((start, raw)) = found else {
            // Not kept: the map may know it later.
            return Arc::new([self.unknown("[unknown]", pc, None)]);
        };
        let mut frame = self.unknown("[jit]", pc, None);
        self.name(&mut frame, &raw);
        frame.offset = Some(pc.wrapping_sub(start));
        frame.origin = Origin::PerfMap;
        let frames: Arc<[Frame]> = Arc::new([frame]);
        self.cache.insert(key, Arc::clone(&frames));
        frames
    }

    /// What there is to say about the modules that were asked for so far, in the
    /// order in which they were added.
    pub fn notes(&self) -> Vec<Note> {
        let opened = self.files.iter().filter_map(|(_, module)| module.as_ref());
        opened
            .flat_map(|m| m.notes().into_iter().map(|kind| Note { module: Arc::clone(&m.name), kind }))
            .collect()
    }

    /// What the user can do about the notes, each advice once.
    pub fn hints(&self) -> Vec<&'static str> {
        let mut hints = Vec::new();
        for hint in self.notes().iter().filter_map(|note| note.kind.hint()) {
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
        hints
    }

    /// The text of a line (from 1) of a source file, as [`Frame::file`] names
    /// it, without its end; `None` if the file is not here or is shorter. A file
    /// that frames do not name gets its prefix rewritten, too.
    pub fn source_line(&mut self, file: &str, line: u32) -> Option<String> {
        if let Some(text) = self.sources.line(file, line) {
            return Some(text);
        }
        let elsewhere = remap(file, &self.options.source_maps);
        if elsewhere != file
            && let Some(text) = self.sources.line(&elsewhere, line)
        {
            return Some(text);
        }
        let inside = self.options.sysroot.as_ref()?.join(file.trim_start_matches('/'));
        self.sources.line(inside.to_str()?, line)
    }

    fn resolve(&mut self, placed: &Placed, pc: u64, call: bool) -> Vec<Frame> {
        let in_file = pc.wrapping_sub(placed.bias);
        let mut physical = self.unknown(&placed.name, pc, Some(in_file));
        let Some(index) = placed.file else { return vec![physical] };
        let Some((identity, slot)) = self.files.get_mut(index) else { return vec![physical] };
        let module = slot.get_or_insert_with(|| Module::open(identity, &self.options, &mut self.server));
        let address = lookup_address(in_file, call);
        let answer = module.answer(address);
        let raw = answer.frames.as_slice();
        let is_short = raw.last().is_some_and(|frame| frame.is_short);
        let symbol = answer.symbol.as_ref();
        let full_name = match symbol {
            // Without GCC's suffix (`.constprop.0`): DWARF has none, either.
            Some(symbol) if is_short && symbol.exact && is_mangled(&symbol.name) => {
                symbol.name.split('.').next().map(str::to_owned)
            }
            _ => None,
        };
        if let Some(symbol) = symbol
            && !is_short
        {
            physical.offset = Some(in_file.wrapping_sub(symbol.start));
            physical.origin = if symbol.exact { Origin::Symbol } else { Origin::Nearest };
            self.name(&mut physical, &symbol.name);
        }
        let Some((outermost, inlined)) = raw.split_last() else { return vec![physical] };
        let mut frames = Vec::with_capacity(raw.len());
        for frame in inlined {
            let mut out = self.unknown(&placed.name, pc, Some(in_file));
            out.inlined = true;
            self.fill(&mut out, frame);
            frames.push(out);
        }
        self.fill(&mut physical, outermost);
        if let Some(name) = full_name {
            self.name(&mut physical, &name);
        }
        frames.push(physical);
        frames
    }

    /// Adds what the DWARF says.
    fn fill(&mut self, frame: &mut Frame, raw: &RawFrame) {
        if let Some(function) = &raw.function {
            self.name(frame, function);
            frame.origin = Origin::Debug;
        }
        let maps = &self.options.source_maps;
        frame.file = raw.file.as_ref().map(|file| self.texts.intern(&remap(&tidy(file), maps)));
        frame.line = raw.line;
        frame.column = raw.column;
    }

    fn name(&mut self, frame: &mut Frame, raw: &str) {
        let raw_text = self.texts.intern(raw);
        frame.function = Some(match self.options.demangle {
            true => self.texts.intern(&demangle(raw)),
            false => Arc::clone(&raw_text),
        });
        frame.raw_name = Some(raw_text);
    }

    fn unknown(&mut self, module: &str, address: u64, module_offset: Option<u64>) -> Frame {
        Frame {
            address,
            function: None,
            raw_name: None,
            offset: None,
            file: None,
            line: None,
            column: None,
            module: self.texts.intern(module),
            module_offset,
            inlined: false,
            origin: Origin::Unknown,
        }
    }
}

impl Drop for Symbolizer {
    /// Keeps what was found out for later runs, with [`Options::cache`].
    fn drop(&mut self) {
        for module in self.files.iter_mut().filter_map(|(_, module)| module.as_mut()) {
            module.save();
        }
    }
}

/// The call lies before the address that it returns to.
fn lookup_address(address: u64, call: bool) -> u64 {
    if call { address.saturating_sub(1) } else { address }
}

/// Names and paths, each kept once.
#[derive(Debug, Default)]
struct Texts(FxHashSet<Arc<str>>);

impl Texts {
    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = Arc::from(text);
        self.0.insert(Arc::clone(&new));
        new
    }
}
