//! By what a place of one run or build is found again in another.
//!
//! Addresses say nothing there: they differ from run to run. A frame is known by
//! its module, function and file; its line is only a position among the places
//! that have all three in common, because lines move. Where that finds nothing
//! the demands are lowered step by step: the file may lie in another folder, the
//! module may have another version, the function may have moved to another file.

use rustc_hash::FxHashSet;

use crate::session::Session;
use crate::stack::{Frame, Stack, base_name, function, is_pseudo};

/// Steps from the strictest to the most lenient.
pub const STEPS: usize = 4;

/// The builds that both sides have run.
#[derive(Clone, Debug, Default)]
pub struct SameBuilds(FxHashSet<Vec<u8>>);

impl SameBuilds {
    /// Those of two sides.
    pub fn of(a: &Session, b: &Session) -> SameBuilds {
        let ids = |session: &Session| -> FxHashSet<Vec<u8>> {
            let modules = session.facts().modules.iter().filter(|module| !module.build_id.is_empty());
            modules.map(|module| module.build_id.clone()).collect()
        };
        SameBuilds(ids(a).intersection(&ids(b)).cloned().collect())
    }
}

/// By what a place is known at each step, and where it stands among those that
/// are known by the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// One a step; `None`: not known at that step.
    pub names: [Option<String>; STEPS],
    /// Lines, innermost frame first; 0 where unknown.
    pub position: Vec<i64>,
}

impl Key {
    /// What has one name and no lines: a thread, an entry point, a size.
    pub fn plain(name: &str) -> Key {
        Key { names: [Some(name.to_string()), None, None, None], position: Vec::new() }
    }

    /// A thread: by its name, which is the same in each run where its number need not
    /// be; the first one, which has the program's name, also by its number.
    pub fn thread(label: &str) -> Key {
        let (number, name) = label.split_once(' ').unwrap_or((label, label));
        let first = (number == "0").then(|| "the first".to_string());
        Key { names: [Some(name.to_string()), first, None, None], position: Vec::new() }
    }

    /// A source file: by its path, then by its last part.
    pub fn file(path: &str) -> Key {
        let names = [Some(path.to_string()), Some(base_name(path).to_string()), None, None];
        Key { names, position: Vec::new() }
    }

    /// A function by its name alone.
    pub fn function(name: &str) -> Key {
        Key::plain(bare(name))
    }

    /// A module: by its file's name, then without its version.
    pub fn module(session: &Session, path: &str) -> Key {
        let names = [Some(base_name(path).to_string()), None, Some(class(session, path)), None];
        Key { names, position: Vec::new() }
    }

    /// One frame.
    pub fn frame(session: &Session, same: &SameBuilds, frame: &Frame) -> Key {
        Key { names: names(session, same, frame), position: vec![line(frame)] }
    }

    /// All frames.
    pub fn stack(session: &Session, same: &SameBuilds, stack: &Stack) -> Key {
        let mut all: [Option<String>; STEPS] = std::array::from_fn(|_| Some(String::new()));
        for frame in &stack.frames {
            for (whole, name) in all.iter_mut().zip(names(session, same, frame)) {
                match (&mut *whole, name) {
                    (Some(text), Some(name)) => {
                        text.push_str(&name);
                        text.push('\n');
                    }
                    _ => *whole = None,
                }
            }
        }
        Key { names: all, position: stack.frames.iter().map(|frame| line(frame)).collect() }
    }
}

fn line(frame: &Frame) -> i64 {
    frame.line.map_or(0, i64::from)
}

fn names(session: &Session, same: &SameBuilds, frame: &Frame) -> [Option<String>; STEPS] {
    if is_pseudo(frame) {
        let text = frame.function.as_deref().unwrap_or_default();
        return std::array::from_fn(|_| Some(text.to_string()));
    }
    let module = base_name(&frame.module);
    let class = class(session, &frame.module);
    let Some(function) = function(frame).map(bare) else {
        // Code without names is the same only in the same file.
        let place = match frame.module_offset {
            Some(offset) => format!("{module} {} +{offset:#x}", identity(session, &frame.module)),
            None => "[unknown]".to_string(),
        };
        return std::array::from_fn(|_| Some(place.clone()));
    };
    let file = frame.file.as_deref().unwrap_or_default();
    let build = session.facts().modules.iter().find(|def| *def.path == *frame.module);
    if build.is_some_and(|def| same.0.contains(&def.build_id)) {
        let exact = format!("{module} {function} {}:{}", base_name(file), line(frame));
        return std::array::from_fn(|_| Some(exact.clone()));
    }
    [
        Some(format!("{module} {function} {file}")),
        Some(format!("{module} {function} {}", base_name(file))),
        Some(format!("{class} {function} {}", base_name(file))),
        Some(format!("{class} {function}")),
    ]
}

/// What tells one build of a module from another.
fn identity(session: &Session, path: &str) -> String {
    let module = session.facts().modules.iter().find(|module| module.path == path);
    module.map_or_else(String::new, |module| match module.build_id.as_slice() {
        [] => format!("{:#x}", module.end.wrapping_sub(module.start)),
        id => id.iter().map(|byte| format!("{byte:02x}")).collect(),
    })
}

/// A module whatever its version: `libssl` of `/usr/lib/libssl.so.3` and of
/// `libssl-1.1.so`; the program itself whatever its name.
fn class(session: &Session, path: &str) -> String {
    let facts = session.facts();
    let main = facts.modules.iter().find(|module| module.flags & highwater_event::layout::MODULE_MAIN != 0);
    if main.is_some_and(|main| main.path == path) || facts.meta.exe.to_str() == Some(path) {
        return "<program>".to_string();
    }
    let name = base_name(path);
    let stem = name.split(".so").next().unwrap_or(name);
    match stem.rsplit_once('-') {
        Some((stem, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => stem.to_string(),
        _ => stem.to_string(),
    }
}

/// A function's name without what the compiler adds and what differs from build
/// to build: `f.constprop.0`, `f(int) [clone .isra.0]`, Rust's `f::h0123456789abcdef`.
fn bare(name: &str) -> &str {
    const ADDED: [&str; 8] =
        [".constprop.", ".isra.", ".part.", ".cold", ".lto_priv.", ".llvm.", ".localalias", " [clone "];
    let end = ADDED.iter().filter_map(|added| name.find(added)).min().unwrap_or(name.len());
    let name = name.get(..end).unwrap_or(name);
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => path,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_compiler_adds_to_names_is_taken_off() {
        for (name, plain) in [
            ("f", "f"),
            ("parse.constprop.0", "parse"),
            ("parse(int) [clone .isra.0] [clone .cold]", "parse(int)"),
            ("grow.part.3.isra.1", "grow"),
            ("app::work::h0123456789abcdef", "app::work"),
            ("app::h2", "app::h2"),
            ("operator.cold", "operator"),
        ] {
            assert_eq!(bare(name), plain, "{name}");
        }
    }

    #[test]
    fn a_module_is_known_whatever_its_version() {
        let session = crate::session::made::Made::default().session();
        for (path, stem) in [
            ("/usr/lib/libssl.so.3", "libssl"),
            ("libssl-1.1.so", "libssl"),
            ("/opt/my-app", "my-app"),
            ("libgtk-x11-2.0.so.0", "libgtk-x11"),
        ] {
            assert_eq!(class(&session, path), stem, "{path}");
        }
    }
}
