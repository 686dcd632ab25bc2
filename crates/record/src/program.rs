//! What kind of program is about to run, and what that means for recording.
//!
//! The agent is loaded by the dynamic loader. Where that cannot work, it is
//! better said before the program starts than with an empty report after it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSymbol};

use crate::RecordError;
use crate::file_bytes::FileBytes;

/// What was found out about a program.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The file that the kernel will run (for a script: the script itself).
    pub path: PathBuf,
    /// Sentences for the summary, should nothing or little be recorded.
    pub hints: Vec<String>,
    /// It has an allocator of its own linked in.
    pub own_allocator: bool,
}

/// Finds the command like execvp does.
///
/// # Errors
/// [`RecordError::NotFound`] or [`RecordError::NotExecutable`].
pub fn find(command: &OsStr) -> Result<PathBuf, RecordError> {
    if command.as_bytes().contains(&b'/') {
        return executable(Path::new(command)).map_err(|reason| match reason.kind() {
            std::io::ErrorKind::NotFound => RecordError::NotFound(command.to_owned()),
            _ => RecordError::NotExecutable { program: command.to_owned(), reason },
        });
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let mut denied = None;
    for folder in std::env::split_paths(&path) {
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        match executable(&folder.join(command)) {
            Ok(found) => return Ok(found),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => denied = Some(error),
            Err(_) => {}
        }
    }
    match denied {
        Some(reason) => Err(RecordError::NotExecutable { program: command.to_owned(), reason }),
        None => Err(RecordError::NotFound(command.to_owned())),
    }
}

fn executable(path: &Path) -> std::io::Result<PathBuf> {
    let meta = std::fs::metadata(path)?;
    if meta.is_dir() || meta.permissions().mode() & 0o111 == 0 {
        return Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied));
    }
    Ok(path.to_path_buf())
}

/// Looks at the file that is going to run.
///
/// # Errors
/// [`RecordError::Unrecordable`] with the way out, where nothing could be recorded.
pub fn inspect(path: &Path) -> Result<Program, RecordError> {
    inspect_at(path, 0)
}

fn inspect_at(path: &Path, depth: u32) -> Result<Program, RecordError> {
    let mut program = Program { path: path.to_path_buf(), hints: Vec::new(), own_allocator: false };
    let mut head = [0u8; 256];
    let Ok(n) = File::open(path).and_then(|mut f| f.read(&mut head)) else { return Ok(program) };
    let head = head.get(..n).unwrap_or_default();
    if let Some(line) = head.strip_prefix(b"#!") {
        // A script: its interpreter is what runs. (env finds the next one.)
        let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
        let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
        if let (Some(first), true) = (words.next(), depth < 4) {
            let mut interpreter = PathBuf::from(OsStr::from_bytes(first));
            if interpreter.file_name() == Some(OsStr::new("env"))
                && let Some(Ok(found)) =
                    words.find(|w| !w.starts_with(b"-")).map(|name| find(OsStr::from_bytes(name)))
            {
                interpreter = found;
            }
            if !interpreter.exists() {
                return Err(RecordError::WrongKind {
                    path: path.to_path_buf(),
                    reason: format!(
                        "its first line names an interpreter that is not there: {}",
                        interpreter.display()
                    ),
                });
            }
            let inner = inspect_at(&interpreter, depth + 1)?;
            program.hints = inner.hints;
            program.own_allocator = inner.own_allocator;
        }
        return Ok(program);
    }
    if !head.starts_with(b"\x7fELF") {
        return Ok(program);
    }
    let unrecordable =
        |reason: &str| RecordError::Unrecordable { path: path.to_path_buf(), reason: reason.into() };
    if head.get(4) != Some(&2) {
        return Err(unrecordable("is a 32-bit program; highwater records 64-bit x86 programs"));
    }
    // EM_X86_64
    let machine = u16::from_le_bytes([*head.get(18).unwrap_or(&0), *head.get(19).unwrap_or(&0)]);
    if machine != 62 {
        return Err(RecordError::WrongKind {
            path: path.to_path_buf(),
            reason: format!(
                "is built for another processor ({}); highwater records programs of this machine's (x86-64)",
                machine_name(machine)
            ),
        });
    }
    if is_privileged(path) {
        return Err(unrecordable(
            "runs with other rights than yours (setuid, setgid or file capabilities), and the loader ignores \
             LD_PRELOAD for such programs; record it as the user whose rights it takes, or record a copy \
             without the bit",
        ));
    }
    let Ok(bytes) = FileBytes::open(path) else { return Ok(program) };
    let Ok(elf) = object::elf::FileHeader64::<object::Endianness>::parse(&*bytes) else { return Ok(program) };
    let Ok(endian) = elf.endian() else { return Ok(program) };
    let headers = elf.program_headers(endian, &*bytes).unwrap_or_default();
    let dynamic = headers.iter().any(|h| h.p_type(endian) == object::elf::PT_INTERP);
    let Ok(file) = object::File::parse(&*bytes) else { return Ok(program) };
    let go = file.section_by_name(".go.buildinfo").is_some();
    if !dynamic {
        return Err(unrecordable(if go {
            "is a static Go program: its heap is the Go runtime's own and passes no malloc; use Go's own \
             pprof heap profile"
        } else {
            "is statically linked, so no agent can be loaded into it; link it dynamically (without -static), \
             or link the agent's library into it"
        }));
    }
    if go {
        program.hints.push(
            "a Go program: the Go heap is the runtime's own and is not seen, only what cgo asks of malloc"
                .into(),
        );
    }
    let mut asan = false;
    let mut own = None;
    let mut scan = |name: &str| {
        asan |= matches!(name, "__asan_init" | "__hwasan_init" | "__msan_init" | "__tsan_init");
        let allocator = match name {
            "malloc" => Some("malloc itself"),
            "je_malloc" | "_rjem_malloc" | "rallocx" | "_rjem_rallocx" => Some("jemalloc"),
            "mi_malloc" => Some("mimalloc"),
            "tc_malloc" => Some("tcmalloc"),
            _ => None,
        };
        own = own.or(allocator);
    };
    for symbol in file.dynamic_symbols() {
        if symbol.is_definition() {
            scan(symbol.name().unwrap_or_default());
        } else if let Ok(name @ ("__asan_init" | "__hwasan_init" | "__msan_init" | "__tsan_init")) =
            symbol.name()
        {
            scan(name);
        }
    }
    for symbol in file.symbols() {
        if symbol.is_definition() {
            scan(symbol.name().unwrap_or_default());
        }
    }
    if asan {
        return Err(unrecordable(
            "is built with a sanitizer (-fsanitize=...), which brings an allocator of its own; build it without, \
             or use the sanitizer's own leak report",
        ));
    }
    program.own_allocator = own.is_some();
    if let Some(own) = own {
        program.hints.push(format!(
            "the program brings its own allocator ({own}) linked in: what it hands out is not seen; build with \
             the C library's malloc to see it"
        ));
    }
    Ok(program)
}

/// Will the loader run this file in secure mode?
fn is_privileged(path: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(path) else { return false };
    // SAFETY: no arguments.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let setuid = meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid;
    let setgid = meta.mode() & libc::S_ISGID != 0 && meta.mode() & libc::S_IXGRP != 0 && meta.gid() != gid;
    setuid || setgid || (uid != 0 && has_capabilities(path))
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: zero-terminated strings, no buffer: only the size is asked for.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// `e_machine` of the ELF header.
fn machine_name(machine: u16) -> String {
    match machine {
        183 => "aarch64".into(),
        40 => "arm".into(),
        243 => "riscv".into(),
        21 => "ppc64".into(),
        22 => "s390".into(),
        other => format!("ELF machine {other}"),
    }
}

/// A sentence for a Python that hides its objects from malloc.
pub fn python_hint(exe: &Path) -> Option<String> {
    let name = exe.file_name()?.to_string_lossy();
    (name.starts_with("python") && std::env::var_os("PYTHONMALLOC").is_none()).then(|| {
        "python keeps small objects in pools of its own (pymalloc); PYTHONMALLOC=malloc shows each of them".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_like_execvp_does() {
        assert!(find(OsStr::new("sh")).is_ok());
        assert!(matches!(find(OsStr::new("no-such-program-here")), Err(RecordError::NotFound(_))));
        assert!(matches!(find(OsStr::new("/")), Err(RecordError::NotExecutable { .. })));
        assert!(matches!(find(OsStr::new("/etc/passwd")), Err(RecordError::NotExecutable { .. })));
    }

    #[test]
    fn an_ordinary_program_can_be_recorded() {
        let program = inspect(&std::env::current_exe().unwrap()).unwrap();
        assert!(program.hints.is_empty(), "{:?}", program.hints);
    }
}
