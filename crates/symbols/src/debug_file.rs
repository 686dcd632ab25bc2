//! Finding the files that belong to a module.

use std::path::{Path, PathBuf};

use crate::debuginfod::Debuginfod;
use crate::elf::{Elf, hex};
use crate::options::Options;

/// A build-id is 20 bytes as a rule; shorter or longer ones than these are not
/// turned into file names.
const ID_LEN: std::ops::RangeInclusive<usize> = 2..=64;

/// The places where the file of a module may be, the target's root first.
/// Without a build-id to check it by, a file outside of a given root is not taken.
pub(crate) fn module_paths(options: &Options, path: &str, has_id: bool) -> Vec<PathBuf> {
    // The kernel marks files whose name was removed so.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let mut places = Vec::new();
    if let Some(root) = &options.sysroot {
        places.push(root.join(path.trim_start_matches('/')));
    }
    if places.is_empty() || has_id {
        places.push(PathBuf::from(path));
    }
    places
}

/// A file with this build-id in the debug folders: debug information, or a copy
/// of the whole file.
pub(crate) fn by_build_id(options: &Options, id: &[u8]) -> Option<Elf> {
    let (first, rest) = id.split_first().filter(|_| ID_LEN.contains(&id.len()))?;
    let name = format!(".build-id/{:02x}/{}", first, hex(rest));
    debug_dirs(options)
        .flat_map(|dir| [dir.join(format!("{name}.debug")), dir.join(&name)])
        .find_map(|path| Elf::open(&path).ok().filter(|elf| elf.build_id == id))
}

/// The separate debug file of a module's own file: by build-id, by
/// `.gnu_debuglink`, by debuginfod.
pub(crate) fn for_elf(options: &Options, server: &mut Debuginfod, elf: &Elf) -> Option<Elf> {
    by_build_id(options, &elf.build_id)
        .filter(has_debug_info)
        .or_else(|| by_debug_link(options, elf))
        .or_else(|| from_server(server, &elf.build_id))
}

/// What debuginfod has for a build-id.
pub(crate) fn from_server(server: &mut Debuginfod, id: &[u8]) -> Option<Elf> {
    if !ID_LEN.contains(&id.len()) {
        return None;
    }
    let path = server.find(id)?;
    Elf::open(&path).ok().filter(|elf| elf.build_id == id)
}

/// Whether a file has DWARF.
pub(crate) fn has_debug_info(elf: &Elf) -> bool {
    elf.has_section(".debug_info") || elf.has_section(".zdebug_info")
}

/// GDB's search: beside the file, in `.debug` beside it, and in each debug
/// folder under the file's own folder.
fn by_debug_link(options: &Options, elf: &Elf) -> Option<Elf> {
    let (name, crc) = elf.debug_link()?;
    let folder = elf.path.parent()?;
    let mut places = vec![folder.join(&name), folder.join(".debug").join(&name)];
    let inside_root =
        options.sysroot.as_deref().and_then(|root| folder.strip_prefix(root).ok()).unwrap_or(folder);
    let below = inside_root.strip_prefix("/").unwrap_or(inside_root);
    places.extend(debug_dirs(options).map(|dir| dir.join(below).join(&name)));
    places.into_iter().filter(|place| *place != elf.path).find_map(|place| {
        let found = Elf::open(&place).ok()?;
        // Equal build-ids are proof, and spare reading the whole file.
        let same = match (elf.build_id.is_empty(), found.build_id.is_empty()) {
            (false, false) => found.build_id == elf.build_id,
            _ => crc32fast::hash(&found.bytes) == crc,
        };
        same.then_some(found)
    })
}

/// The file that dwz moved shared parts to, named by `.gnu_debugaltlink`.
/// `Err` holds its name if it is not found.
pub(crate) fn alt_file(options: &Options, server: &mut Debuginfod, elf: &Elf) -> Result<Option<Elf>, String> {
    let Some((name, id)) = elf.alt_link() else { return Ok(None) };
    let mut places = Vec::new();
    if let Some(root) = &options.sysroot {
        places.extend(name.strip_prefix("/").map(|inside| root.join(inside)));
    }
    // Joining an absolute name gives that name.
    places.extend(elf.path.parent().map(|folder| folder.join(&name)));
    // The Debian tree may have been unpacked somewhere else.
    if let Ok(inside) = name.strip_prefix("/usr/lib/debug") {
        places.extend(debug_dirs(options).map(|dir| dir.join(inside)));
    }
    places
        .iter()
        .find_map(|place| Elf::open(place).ok().filter(|found| found.build_id == id))
        .or_else(|| by_build_id(options, &id))
        .or_else(|| from_server(server, &id))
        .map(Some)
        .ok_or_else(|| name.display().to_string())
}

fn debug_dirs(options: &Options) -> impl Iterator<Item = PathBuf> {
    let inside = |dir: &Path| {
        let root = options.sysroot.as_deref()?;
        Some(root.join(dir.strip_prefix("/").ok()?))
    };
    options.debug_dirs.iter().flat_map(move |dir| inside(dir).into_iter().chain([dir.clone()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_searched_first_and_alone_without_a_build_id() {
        let mut options = Options::default();
        assert_eq!(module_paths(&options, "/lib/x.so (deleted)", false), [PathBuf::from("/lib/x.so")]);
        options.sysroot = Some("/root".into());
        assert_eq!(module_paths(&options, "/lib/x.so", false), [PathBuf::from("/root/lib/x.so")]);
        assert_eq!(
            module_paths(&options, "/lib/x.so", true),
            [PathBuf::from("/root/lib/x.so"), PathBuf::from("/lib/x.so")]
        );
        assert_eq!(
            debug_dirs(&options).collect::<Vec<_>>(),
            [PathBuf::from("/root/usr/lib/debug"), PathBuf::from("/usr/lib/debug")]
        );
    }

    #[test]
    fn odd_build_ids_find_nothing() {
        let options = Options::default();
        assert!(by_build_id(&options, &[]).is_none());
        assert!(by_build_id(&options, &[1]).is_none());
        assert!(by_build_id(&options, &[7; 4000]).is_none());
    }
}
