//! Files that are gone, replaced, or without debug information.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;

use highwater_symbols::{Frame, ModuleInput, NoteKind, Options, Origin, Symbolizer};

use crate::support::{PROGRAM, Program, add, only, run};

fn is_bare(frames: &Arc<[Frame]>, bias: u64, pc: u64) {
    assert_eq!(frames.len(), 1);
    let f = &frames[0];
    assert_eq!((f.address, f.module_offset, f.inlined), (pc, Some(pc - bias), false));
    assert_eq!((&f.function, &f.file, f.line, f.offset), (&None, &None, None, None));
    assert_eq!(f.origin, Origin::Unknown);
}

#[test]
fn without_debug_information_the_symbol_its_offset_and_one_hint() {
    let program = Program::c(&["-g0"]);
    let (mut symbols, module) = program.symbolizer(only(&[]), &[]);
    let listing = run(Command::new("nm").arg(&program.exe));
    let outer = listing.lines().find(|l| l.ends_with(" outer")).unwrap();
    let outer = u64::from_str_radix(outer.split(' ').next().unwrap(), 16).unwrap();
    for &(bias, pc) in &program.calls {
        let frames = symbols.frames(module, pc, true);
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].function.as_deref(), Some("outer"));
        assert_eq!(frames[0].offset, Some(pc - bias - outer));
        assert_eq!((frames[0].file.as_deref(), frames[0].line), (None, None));
        assert_eq!(frames[0].origin, Origin::Symbol);
    }
    let second = add(&mut symbols, &program.exe, &[], 0x1000);
    symbols.frames(second, 0x1000, true);
    let notes = symbols.notes();
    assert_eq!(notes.len(), 1, "one file, one note: {notes:?}");
    assert_eq!(notes[0].kind, NoteKind::NoDebugInfo { is_main: true });
    assert_eq!(symbols.hints().len(), 1);
}

#[test]
fn a_replaced_file_gives_no_wrong_names() {
    let program = Program::c(&["-g"]);
    let recorded = program.build_id();
    let kept = program.path("kept");
    fs::copy(&program.exe, &kept).unwrap();
    let other = Program::new("gcc", "program.c", &PROGRAM.replace("outer", "another"), &["-g", "-O2"]);
    fs::copy(&other.exe, &program.exe).unwrap();
    let (bias, pc) = program.calls[0];

    let (mut symbols, module) = program.symbolizer(only(&[]), &recorded);
    is_bare(&symbols.frames(module, pc, true), bias, pc);
    let notes = symbols.notes();
    assert!(matches!(&notes[..], [n] if matches!(&n.kind, NoteKind::BuildIdMismatch { used: None, .. })));
    assert!(notes[0].to_string().contains("no longer matches"), "{}", notes[0]);

    // Without a recorded build-id nothing speaks against the file.
    let (mut symbols, module) = program.symbolizer(only(&[]), &[]);
    assert!(symbols.frames(module, pc, true)[0].function.is_some());
    assert_eq!(symbols.notes(), []);

    // A file with the recorded build-id in a debug folder helps.
    let id: String = recorded.iter().map(|b| format!("{b:02x}")).collect();
    let place = program.path(&format!("debug/.build-id/{}", &id[..2]));
    fs::create_dir_all(&place).unwrap();
    let debug = program.path("debug");
    fs::copy(&kept, place.join(&id[2..])).unwrap();
    let (mut symbols, module) = program.symbolizer(only(&[&debug]), &recorded);
    let frames = symbols.frames(module, pc, true);
    let names: Vec<_> = frames.iter().map(|f| f.function.as_deref().unwrap()).collect();
    assert_eq!(names, ["inner", "middle", "outer"]);
    assert!(
        matches!(&symbols.notes()[..], [n] if matches!(&n.kind, NoteKind::BuildIdMismatch { used: Some(_), .. }))
    );

    // A file that lost its build-id is as wrong.
    run(Command::new("objcopy").arg("--remove-section=.note.gnu.build-id").arg(&program.exe));
    let (mut symbols, module) = program.symbolizer(only(&[]), &recorded);
    is_bare(&symbols.frames(module, pc, true), bias, pc);
}

#[test]
fn a_missing_or_unreadable_file() {
    let program = Program::c(&["-g"]);
    let (bias, pc) = program.calls[0];
    fs::write(&program.exe, "not a program").unwrap();
    let (mut symbols, module) = program.symbolizer(only(&[]), &[]);
    is_bare(&symbols.frames(module, pc, true), bias, pc);
    assert!(matches!(&symbols.notes()[..], [n] if matches!(&n.kind, NoteKind::Unreadable { .. })));

    fs::remove_file(&program.exe).unwrap();
    let (mut symbols, module) = program.symbolizer(only(&[]), &[1, 2, 3]);
    is_bare(&symbols.frames(module, pc, true), bias, pc);
    assert!(matches!(&symbols.notes()[..], [n] if n.kind == NoteKind::FileMissing { used: None }));

    fs::create_dir(&program.exe).unwrap();
    let (mut symbols, module) = program.symbolizer(only(&[]), &[]);
    is_bare(&symbols.frames(module, pc, true), bias, pc);
    assert!(matches!(&symbols.notes()[..], [n] if matches!(&n.kind, NoteKind::Unreadable { .. })));
}

#[test]
fn nothing_is_opened_before_it_is_asked_for() {
    let mut symbols = Symbolizer::new(only(&[]));
    add(&mut symbols, "/no/such/file".as_ref(), &[], 0);
    assert_eq!(symbols.notes(), []);
}

#[test]
fn the_vdso_and_pseudo_files_have_a_name_and_no_note() {
    let mut symbols = Symbolizer::new(Options::default());
    let (start, end) = (0x7fff_0000, 0x7fff_2000);
    let input = ModuleInput {
        path: "linux-vdso.so.1",
        build_id: &[],
        bias: start,
        start,
        end,
        is_main: false,
        is_vdso: true,
    };
    let vdso = symbols.add_module(input);
    let heap = symbols.add_module(ModuleInput { path: "[heap]", is_vdso: false, ..input });
    assert_eq!(&*symbols.frames(vdso, start + 0x123, true)[0].module, "[vdso]");
    assert_eq!(symbols.frames(vdso, start + 0x123, true)[0].to_string(), "[vdso]+0x123");
    assert_eq!(&*symbols.frames(heap, start, true)[0].module, "[heap]");
    assert_eq!(symbols.notes(), []);
}

#[test]
fn code_of_a_jit() {
    let dir = tempfile::tempdir().unwrap();
    let map = dir.path().join("perf-1.map");
    fs::write(&map, "1000 40 py::main:/a b.py\n1040 10 _ZN1a1bEv\n").unwrap();
    let mut symbols = Symbolizer::new(Options { perf_map: Some(map.clone()), ..Options::default() });
    let frame = |s: &mut Symbolizer, pc, call| {
        let f = s.frames_no_module(pc, call)[0].clone();
        (f.function.map(|n| n.to_string()), f.offset, f.module.to_string(), f.origin)
    };
    let jit = |name: &str, offset| (Some(name.to_owned()), Some(offset), "[jit]".to_owned(), Origin::PerfMap);
    assert_eq!(frame(&mut symbols, 0x1010, true), jit("py::main:/a b.py", 0x10));
    assert_eq!(frame(&mut symbols, 0x1040, true), jit("py::main:/a b.py", 0x40), "the call is before");
    assert_eq!(frame(&mut symbols, 0x1040, false), jit("a::b()", 0));
    let unknown = (None, None, "[unknown]".to_owned(), Origin::Unknown);
    assert_eq!(frame(&mut symbols, 0x2000, false), unknown);
    fs::write(&map, "1000 40 x\n2000 10 late\n").unwrap();
    assert_eq!(frame(&mut symbols, 0x2000, false), jit("late", 0), "the map has grown");
}

/// In a process of its own, because it is about the environment: see below.
#[test]
fn debuginfod_fetches_what_is_not_here() {
    let program = Program::c(&["-g"]);
    program.objcopy(&["--only-keep-debug"], Some("program.debug"));
    program.objcopy(&["--strip-all"], None);
    let id: String = program.build_id().iter().map(|b| format!("{b:02x}")).collect();
    let tool = program.path("debuginfod-find");
    fs::write(
        &tool,
        format!(
            "#!/bin/sh\nset -e\n[ \"$1 $2\" = 'debuginfo {id}' ]\nd=\"$DEBUGINFOD_CACHE_PATH/$2\"\n\
             mkdir -p \"$d\"\ncp {} \"$d/debuginfo\"\necho \"$d/debuginfo\"\n",
            program.path("program.debug").display()
        ),
    )
    .unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let child = |urls: &str| {
        run(Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "missing::asks_debuginfod", "--nocapture"])
            .env("PATH", format!("{}:{path}", program.dir.path().display()))
            .env("DEBUGINFOD_URLS", urls)
            .env("XDG_CACHE_HOME", program.path("cache"))
            .env_remove("DEBUGINFOD_CACHE_PATH")
            .env("HIGHWATER_TEST_PROGRAM", &program.exe)
            .env("HIGHWATER_TEST_CALL", format!("{} {}", program.calls[0].0, program.calls[0].1)))
    };
    assert!(child("").contains("lines: None"), "not without DEBUGINFOD_URLS");
    assert!(child("http://localhost:1/").contains("lines: Some(3)"));
    assert!(program.path(&format!("cache/highwater/debuginfod/{id}/debuginfo")).exists());
    fs::remove_file(&tool).unwrap();
    assert!(child("http://localhost:1/").contains("lines: Some(3)"), "from the cache");
}

/// The other half of the test above; alone it has nothing to do.
#[test]
fn asks_debuginfod() {
    let (Ok(path), Ok(call)) =
        (std::env::var("HIGHWATER_TEST_PROGRAM"), std::env::var("HIGHWATER_TEST_CALL"))
    else {
        return;
    };
    let (bias, pc) = call.split_once(' ').unwrap();
    let mut symbols = Symbolizer::new(Options { debuginfod: true, ..only(&[]) });
    let module = add(&mut symbols, path.as_ref(), &[], bias.parse().unwrap());
    println!("lines: {:?}", symbols.frames(module, pc.parse().unwrap(), true)[0].line);
}
