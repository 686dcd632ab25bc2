//! `-gsplit-dwarf`: debug information in `.dwo` files or a `.dwp` package.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::SplitDwarfLoad;
use gimli::{Dwarf, DwarfPackage, Reader as _};

use crate::dwarf::{Reader, endian, load_split, reader};
use crate::elf::Elf;
use crate::nesting::all_flat_enough;

/// Where `.dwo` files are sought besides the place that the compiler wrote.
pub(crate) struct DwoSearch {
    /// Folders of the program and of its debug file.
    pub(crate) folders: Vec<PathBuf>,
}

impl DwoSearch {
    /// The split part of a unit: from the package, from where it was compiled,
    /// from beside the program. Only one with the right id counts.
    pub(crate) fn load(
        &self,
        load: &SplitDwarfLoad<Reader>,
        package: Option<&DwarfPackage<Reader>>,
    ) -> Option<Arc<Dwarf<Reader>>> {
        if let Some(package) = package
            && let Ok(Some(dwarf)) = package.find_cu(load.dwo_id, &load.parent)
        {
            return all_flat_enough(&dwarf).then(|| Arc::new(dwarf));
        }
        let name = PathBuf::from(load.path.as_ref().map(text)?);
        let compiled_in = PathBuf::from(load.comp_dir.as_ref().map(text).unwrap_or_default());
        // Joining an absolute name gives that name.
        let mut places = vec![compiled_in.join(&name)];
        for folder in &self.folders {
            places.push(folder.join(&name));
            places.extend(name.file_name().map(|file| folder.join(file)));
        }
        places.iter().find_map(|place| open(place, load))
    }
}

fn open(path: &Path, load: &SplitDwarfLoad<Reader>) -> Option<Arc<Dwarf<Reader>>> {
    let elf = Elf::open(path).ok()?;
    let mut dwarf = load_split(&elf);
    let header = dwarf.units().next().ok()??;
    if dwarf.unit(header).ok()?.dwo_id != Some(load.dwo_id) {
        return None;
    }
    dwarf.make_dwo(&load.parent);
    all_flat_enough(&dwarf).then(|| Arc::new(dwarf))
}

/// The package beside a file: its name with `.dwp` appended.
pub(crate) fn open_package(program: &Path) -> Option<DwarfPackage<Reader>> {
    let mut path = OsString::from(program);
    path.push(".dwp");
    let elf = Elf::open(Path::new(&path)).ok()?;
    let endian = endian(&elf);
    let section = |id: gimli::SectionId| {
        Ok::<_, gimli::Error>(reader(id.dwo_name().and_then(|n| elf.section(n)), endian))
    };
    DwarfPackage::load(section, reader(None, endian)).ok()
}

/// A string of the DWARF.
pub(crate) fn text(reader: &Reader) -> String {
    reader.to_string_lossy().map(|text| text.into_owned()).unwrap_or_default()
}
