//! One module: its files, opened when the first address asks for them.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::OpenError;
use crate::data_symbols::DataSymbols;
use crate::debug_file;
use crate::debuginfod::Debuginfod;
use crate::dwarf::{DebugInfo, RawFrame};
use crate::elf::{Elf, hex};
use crate::note::NoteKind;
use crate::options::Options;
use crate::symbol_table::{Found, SymbolTable};

/// Files, DWARF and symbols of a module.
pub(crate) struct Module {
    /// Path as recorded, what frames show.
    pub(crate) name: Arc<str>,
    debug: Option<DebugInfo>,
    /// Files whose symbol tables count.
    tables: Vec<Elf>,
    symbols: OnceCell<SymbolTable>,
    data: OnceCell<DataSymbols>,
    notes: Vec<NoteKind>,
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
            debug: None,
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
            match DebugInfo::new(with_debug, alt.as_ref(), &beside) {
                Ok(debug) => self.debug = Some(debug),
                Err(error) => notes.push(NoteKind::DamagedDebugInfo { error: error.to_string() }),
            }
        } else {
            notes.push(NoteKind::NoDebugInfo { is_main: identity.is_main });
        }
        self.tables.push(own);
        self.tables.extend(separate);
    }

    /// The functions at an address of the file, from the DWARF; may be empty.
    pub(crate) fn debug_frames(&self, address: u64) -> Vec<RawFrame> {
        self.debug.as_ref().map(|debug| debug.frames(address)).unwrap_or_default()
    }

    /// The symbol for an address of the file.
    pub(crate) fn symbol(&self, address: u64) -> Option<Found<'_>> {
        let table = self.symbols.get_or_init(|| {
            let mut files = self.tables.clone();
            if !files.iter().any(|elf| elf.has_section(".symtab")) {
                files.extend(self.tables.first().and_then(Elf::mini_debug_info));
            }
            SymbolTable::build(&files)
        });
        table.find(address)
    }

    /// The variable at an address of the file, and how far into it.
    pub(crate) fn data(&self, address: u64) -> Option<(&str, u64)> {
        self.data.get_or_init(|| DataSymbols::build(&self.tables)).find(address)
    }

    /// What there is to say so far.
    pub(crate) fn notes(&self) -> Vec<NoteKind> {
        let mut notes = self.notes.clone();
        if let Some(debug) = &self.debug {
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
