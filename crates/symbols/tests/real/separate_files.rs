//! Debug information in other files than the program.

use std::fs;
use std::process::Command;

use highwater_symbols::{NoteKind, Options, Origin};

use crate::support::{Program, installed, only, run};

/// Moves the debug information of a program to `program.debug`.
fn split(program: &Program) {
    program.objcopy(&["--only-keep-debug"], Some("program.debug"));
    program.objcopy(&["--strip-all"], None);
}

/// The name of the program's debug file below `.build-id`.
fn id_path(program: &Program) -> String {
    let id: String = program.build_id().iter().map(|b| format!("{b:02x}")).collect();
    format!(".build-id/{}/{}.debug", &id[..2], &id[2..])
}

#[test]
fn by_build_id() {
    let program = Program::c(&["-g"]);
    split(&program);
    let place = program.path("debug").join(id_path(&program));
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::rename(program.path("program.debug"), &place).unwrap();
    let debug = program.path("debug");
    program.check_c(only(&[&debug]));

    // The same below a root.
    fs::create_dir_all(program.path("root/usr/lib")).unwrap();
    fs::rename(&debug, program.path("root/usr/lib/debug")).unwrap();
    program.check_c(Options { sysroot: Some(program.path("root")), ..Options::default() });

    // Only the debug file is left: it has the names and the lines, too.
    let id = program.build_id();
    fs::remove_file(&program.exe).unwrap();
    let options = Options { sysroot: Some(program.path("root")), ..Options::default() };
    let (mut symbols, module) = program.symbolizer(options, &id);
    assert_eq!(symbols.frames(module, program.calls[0].1, true)[0].line, Some(3));
    assert!(matches!(&symbols.notes()[..], [n] if matches!(n.kind, NoteKind::FileMissing { used: Some(_) })));
}

#[test]
fn by_debug_link_in_each_of_its_places() {
    for id in ["--build-id=sha1", "--build-id=none"] {
        let program = Program::c(&["-g", &format!("-Wl,{id}")]);
        // The last --build-id wins, and Program asks for one.
        if id.ends_with("none") {
            program.objcopy(&["--remove-section=.note.gnu.build-id"], None);
        }
        split(&program);
        program.objcopy(&["--add-gnu-debuglink=program.debug"], None);
        let check = |options| {
            let (mut symbols, module) = program.symbolizer(options, &[]);
            let frames = symbols.frames(module, program.calls[0].1, true);
            (frames.len(), frames[0].line)
        };
        assert_eq!(check(only(&[])), (3, Some(3)), "beside the program");
        fs::create_dir(program.path(".debug")).unwrap();
        fs::rename(program.path("program.debug"), program.path(".debug/program.debug")).unwrap();
        assert_eq!(check(only(&[])), (3, Some(3)), "in .debug");
        let debug = program.path("d");
        let below = debug.join(program.dir.path().strip_prefix("/").unwrap());
        fs::create_dir_all(&below).unwrap();
        fs::rename(program.path(".debug/program.debug"), below.join("program.debug")).unwrap();
        assert_eq!(check(only(&[&debug])), (3, Some(3)), "in the debug folder");
        assert_eq!(check(only(&[])).1, None);

        // Another file under that name: its build-id or its CRC gives it away.
        let other = Program::c(&["-g", "-O0"]);
        if id.ends_with("none") {
            other.objcopy(&["--remove-section=.note.gnu.build-id"], None);
        }
        split(&other);
        fs::rename(other.path("program.debug"), program.path("program.debug")).unwrap();
        assert_eq!(check(only(&[])).1, None, "{id}");
    }
}

#[test]
fn shared_parts_moved_by_dwz() {
    if !installed("dwz") {
        eprintln!("dwz is not installed: not tested");
        return;
    }
    let program = Program::c(&["-gdwarf-4"]);
    fs::copy(&program.exe, program.path("twin")).unwrap();
    run(Command::new("dwz").current_dir(&program.dir).args(["-m", "shared.debug", "program", "twin"]));
    let sections = run(Command::new("readelf").args(["-SW", program.exe.to_str().unwrap()]));
    assert!(sections.contains(".gnu_debugaltlink"), "{sections}");
    program.check_c(only(&[]));
    fs::remove_file(program.path("shared.debug")).unwrap();
    let (mut symbols, module) = program.symbolizer(only(&[]), &[]);
    let frames = symbols.frames(module, program.calls[1].1, true);
    assert_eq!(frames.last().unwrap().function.as_deref(), Some("outer"));
    assert!(symbols.notes().iter().any(|n| matches!(n.kind, NoteKind::MissingAltFile { .. })));
}

#[test]
fn mini_debug_info_names_local_functions() {
    let program = Program::c(&["-g0"]);
    program.objcopy(&["--strip-debug"], Some("mini"));
    for xz in [&["--check=crc32"][..], &["--check=crc64", "-9"], &["--check=none"], &["--block-size=1024"]] {
        fs::copy(program.path("mini"), program.path("packed")).unwrap();
        run(Command::new("xz").current_dir(&program.dir).args(xz).args(["-f", "packed"]));
        let mut stripped = Program::c(&["-g0"]);
        stripped.objcopy(&["--strip-all"], None);
        let frames = stripped.frames(only(&[]));
        assert_ne!(frames[0][0].function.as_deref(), Some("outer"), "really stripped");
        let add = format!("--add-section=.gnu_debugdata={}", program.path("packed.xz").display());
        stripped.objcopy(&[&add], None);
        stripped.calls.truncate(1);
        let frames = stripped.frames(only(&[]));
        assert_eq!(frames[0][0].function.as_deref(), Some("outer"), "{xz:?}");
        assert_eq!(frames[0][0].origin, Origin::Symbol);
        assert_eq!(frames[0].len(), 1);
    }
}
