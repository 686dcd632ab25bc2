//! One module: its files, opened when the first address asks for them.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::answer::{Answer, Symbol};
use crate::bytes::OpenError;
use crate::cache::Kept;
use crate::data_symbols::DataSymbols;
use crate::debug_file;
use crate::debuginfod::Debuginfod;
use crate::dwarf::DebugInfo;
use crate::elf::{Elf, hex};
use crate::note::NoteKind;
use crate::options::Options;
use crate::symbol_table::SymbolTable;

/// Files, DWARF and symbols of a module.
pub(crate) struct Module {
    /// Path as recorded, what frames show.
    pub(crate) name: Arc<str>,
    /// Where its DWARF is.
    debug_files: Option<DebugFiles>,
    /// It, read when the first address that is not kept asks for it.
    debug: OnceCell<Result<DebugInfo, String>>,
    kept: Option<Kept>,
    /// Files whose symbol tables count.
    tables: Vec<Elf>,
    symbols: OnceCell<SymbolTable>,
    data: OnceCell<DataSymbols>,
    notes: Vec<NoteKind>,
}

/// Files with a module's DWARF.
struct DebugFiles {
    debug: Elf,
    /// Where parts that it shares are.
    alt: Option<Elf>,
    /// Files beside which `.dwp` and `.dwo` may lie.
    beside: Vec<PathBuf>,
}

/// What identifies a module's files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// Path as recorded.
    pub(crate) path: Arc<str>,
    /// Build-id as recorded, or empty.
    pub(crate) build_id: Arc<[u8]>,
    /// The program itself.
    pub(crate) is_main: bool,
}

impl Module {
    /// Finds and opens the files. Never fails: what is wrong becomes a note.
    pub(crate) fn open(identity: &Identity, options: &Options, server: &mut Debuginfod) -> Module {
        let mut notes = Vec::new();
        let own = own_file(identity, options, server, &mut notes);
        let mut module = Module {
            name: Arc::clone(&identity.path),
            debug_files: None,
            debug: OnceCell::new(),
            kept: None,
            tables: Vec::new(),
            symbols: OnceCell::new(),
            data: OnceCell::new(),
            notes: Vec::new(),
        };
        if let Some(own) = own {
            module.read(own, identity, options, server, &mut notes);
        }
        notes.extend(server.take_error().map(|error| NoteKind::Debuginfod { error }));
        module.notes = notes;
        module
    }

    fn read(
        &mut self,
        own: Elf,
        identity: &Identity,
        options: &Options,
        server: &mut Debuginfod,
        notes: &mut Vec<NoteKind>,
    ) {
        let separate = match debug_file::has_debug_info(&own) {
            true => None,
            false => debug_file::for_elf(options, server, &own),
        };
        let with_debug = separate.as_ref().unwrap_or(&own);
        if debug_file::has_debug_info(with_debug) {
            let alt = debug_file::alt_file(options, server, with_debug).unwrap_or_else(|name| {
                notes.push(NoteKind::MissingAltFile { name });
                None
            });
            let recorded = PathBuf::from(&*identity.path);
            let mut beside: Vec<&Path> = vec![&own.path, &with_debug.path, &recorded];
            beside.dedup();
            let beside = beside.into_iter().map(Path::to_path_buf).collect();
            self.debug_files = Some(DebugFiles { debug: with_debug.clone(), alt, beside });
        } else {
            notes.push(NoteKind::NoDebugInfo { is_main: identity.is_main });
        }
        self.tables.push(own);
        self.tables.extend(separate);
        let alt = self.debug_files.as_ref().and_then(|files| files.alt.as_ref());
        let files: Vec<&Elf> = self.tables.iter().chain(alt).collect();
        self.kept = options.cache.as_ref().and_then(|folder| Kept::open(folder, &files));
    }

    /// What the files say about an address of the file.
    pub(crate) fn answer(&mut self, address: u64) -> Arc<Answer> {
        if let Some(known) = self.kept.as_ref().and_then(|kept| kept.get(address)) {
            return known;
        }
        let answer = Arc::new(self.look_up(address));
        if let Some(kept) = &mut self.kept {
            kept.put(address, &answer);
        }
        answer
    }

    fn look_up(&self, address: u64) -> Answer {
        let frames = self.debug().map(|debug| debug.frames(address)).unwrap_or_default();
        // The table's name serves where the DWARF knows no function, or knows it
        // only as `operator()`.
        let named = frames.last().is_some_and(|frame| frame.function.is_some() && !frame.is_short);
        let symbol = if named { None } else { self.symbol(address) };
        Answer { frames, symbol }
    }

    fn debug(&self) -> Option<&DebugInfo> {
        let files = self.debug_files.as_ref()?;
        let debug = self.debug.get_or_init(|| {
            let beside: Vec<&Path> = files.beside.iter().map(PathBuf::as_path).collect();
            DebugInfo::new(&files.debug, files.alt.as_ref(), &beside).map_err(|error| error.to_string())
        });
        debug.as_ref().ok()
    }

    /// Keeps what is known for later runs; not where there is something to say
    /// about the DWARF, which a later run must say, too, nor where it is in files
    /// that nobody keeps an eye on.
    pub(crate) fn save(&mut self) {
        let sound = match self.debug.get() {
            None => true,
            Some(Ok(debug)) => debug.error().is_none() && !debug.is_split(),
            Some(Err(_)) => false,
        };
        if let Some(kept) = self.kept.as_mut().filter(|_| sound) {
            kept.save();
        }
    }

    fn symbol(&self, address: u64) -> Option<Symbol> {
        let table = self.symbols.get_or_init(|| {
            let mut files = self.tables.clone();
            if !files.iter().any(|elf| elf.has_section(".symtab")) {
                files.extend(self.tables.first().and_then(Elf::mini_debug_info));
            }
            SymbolTable::build(&files)
        });
        let found = table.find(address)?;
        let name = String::from_utf8_lossy(found.name).into_owned();
        Some(Symbol { name, start: found.start, exact: found.exact })
    }

    /// The variable at an address of the file, and how far into it.
    pub(crate) fn data(&self, address: u64) -> Option<(&str, u64)> {
        self.data.get_or_init(|| DataSymbols::build(&self.tables)).find(address)
    }

    /// What there is to say so far.
    pub(crate) fn notes(&self) -> Vec<NoteKind> {
        let mut notes = self.notes.clone();
        if let Some(Err(error)) = self.debug.get() {
            notes.push(NoteKind::DamagedDebugInfo { error: error.clone() });
        }
        if let Some(Ok(debug)) = self.debug.get() {
            notes.extend(debug.error().map(|error| NoteKind::DamagedDebugInfo { error }));
            notes.extend(debug.missing_dwo().map(|name| NoteKind::MissingDwo { name }));
        }
        notes
    }
}

/// The module's file if it is still the recorded one, else another file with
/// the recorded build-id.
fn own_file(
    identity: &Identity,
    options: &Options,
    server: &mut Debuginfod,
    notes: &mut Vec<NoteKind>,
) -> Option<Elf> {
    let id = &*identity.build_id;
    let mut wrong = None;
    for path in debug_file::module_paths(options, &identity.path, !id.is_empty()) {
        match Elf::open(&path) {
            Ok(elf) if id.is_empty() || elf.build_id == id => return Some(elf),
            Ok(elf) => wrong = Some(Wrong::Id(elf.build_id)),
            // Of two places the one where there is something to say.
            Err(error) if wrong.is_none() || !error.is_missing() => wrong = Some(Wrong::Error(error)),
            Err(_) => {}
        }
    }
    let other = debug_file::by_build_id(options, id).or_else(|| debug_file::from_server(server, id));
    let used = other.as_ref().map(|elf| elf.path.clone());
    notes.push(match wrong {
        Some(Wrong::Id(found)) => NoteKind::BuildIdMismatch { recorded: hex(id), found: hex(&found), used },
        Some(Wrong::Error(error)) if !error.is_missing() => {
            NoteKind::Unreadable { error: error.to_string(), used }
        }
        _ => NoteKind::FileMissing { used },
    });
    other
}

enum Wrong {
    Id(Vec<u8>),
    Error(OpenError),
}
