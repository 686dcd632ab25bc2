//! DWARF of each kind, in the program itself or split from it.

use std::fs;
use std::process::Command;

use highwater_symbols::{NoteKind, Options, Origin};

use crate::support::{Program, installed, only, run, summary};

#[test]
fn dwarf_4_and_5() {
    Program::c(&["-gdwarf-4"]).check_c(Options::default());
    Program::c(&["-gdwarf-5"]).check_c(Options::default());
    Program::c(&["-gdwarf-5", "-no-pie"]).check_c(Options::default());
    Program::c(&["-gdwarf-5", "-fdebug-types-section"]).check_c(Options::default());
    Program::c(&["-gdwarf-5", "-flto"]).check_c(Options::default());
}

#[test]
fn compressed_sections() {
    for kind in ["zlib", "zlib-gnu", "zstd"] {
        let program = Program::c(&["-g"]);
        program.objcopy(&[&format!("--compress-debug-sections={kind}")], None);
        let sections = run(Command::new("readelf").args(["-SW", program.exe.to_str().unwrap()]));
        assert!(
            sections.contains(".zdebug_info")
                || sections.lines().any(|l| l.contains(".debug_info") && l.contains(" C ")),
            "objcopy did not compress: {sections}"
        );
        program.check_c(Options::default());
    }
}

#[test]
fn split_dwarf_in_dwo_files() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = Program::c(&[version, "-gsplit-dwarf"]);
        program.check_c(Options::default());

        // Elsewhere than where it was compiled: found beside the program.
        let dwo = fs::read_dir(&program.dir)
            .unwrap()
            .map(|e| e.unwrap().path())
            .find(|p| p.extension().is_some_and(|e| e == "dwo"))
            .unwrap();
        fs::remove_file(program.path("program.c")).unwrap();
        fs::create_dir(program.path("moved")).unwrap();
        let name = dwo.file_name().unwrap().to_str().unwrap();
        fs::rename(&dwo, program.path("moved").join(name)).unwrap();
        fs::copy(&program.exe, program.path("moved/program")).unwrap();
        let mut moved = program;
        moved.exe = moved.path("moved/program");
        moved.check_c(Options::default());

        // Nowhere: lines are still there, and a note.
        fs::remove_file(moved.path("moved").join(name)).unwrap();
        let (mut symbols, module) = moved.symbolizer(Options::default(), &[]);
        let frames = symbols.frames(module, moved.calls[1].1, true);
        assert_eq!(frames.len(), 1);
        assert_eq!((frames[0].function.as_deref(), frames[0].line), (Some("outer"), Some(12)));
        assert_eq!(frames[0].origin, Origin::Symbol);
        let notes = symbols.notes();
        assert!(
            matches!(&notes[..], [n] if matches!(&n.kind, NoteKind::MissingDwo { name: n } if n.ends_with(name))),
            "{notes:?}"
        );
    }
}

#[test]
fn a_dwo_of_another_build_is_not_used() {
    let program = Program::c(&["-gdwarf-5", "-gsplit-dwarf"]);
    let other = Program::c(&["-gdwarf-5", "-gsplit-dwarf", "-DOTHER"]);
    let dwo = |p: &Program| {
        let mut all = fs::read_dir(&p.dir).unwrap().map(|e| e.unwrap().path());
        all.find(|p| p.extension().is_some_and(|e| e == "dwo")).unwrap()
    };
    fs::copy(dwo(&other), dwo(&program)).unwrap();
    let frames = program.frames(Options::default());
    assert_eq!(frames[0].len(), 1, "no inlined functions without the .dwo");
    assert_eq!(frames[0][0].function.as_deref(), Some("outer"));
}

#[test]
fn split_dwarf_in_a_package() {
    // DWARF 4 only: the dwp of binutils 2.40 crashes on 5, llvm-dwp 14 never ends.
    // Rust's packages (in the tests of names) are of version 5.
    if !installed("dwp") {
        eprintln!("dwp is not installed: not tested");
        return;
    }
    let program = Program::c(&["-gdwarf-4", "-gsplit-dwarf"]);
    run(Command::new("dwp").current_dir(&program.dir).args(["-e", "program", "-o", "program.dwp"]));
    assert!(program.path("program.dwp").exists());
    for entry in fs::read_dir(&program.dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "dwo") {
            fs::remove_file(path).unwrap();
        }
    }
    program.check_c(Options::default());
}

#[test]
fn the_line_of_the_call_not_the_one_after() {
    let program = Program::c(&["-g"]);
    let (mut symbols, module) = program.symbolizer(Options::default(), &[]);
    let pc = program.calls[1].1;
    assert_eq!(symbols.frames(module, pc, true)[0].line, Some(12));
    assert_ne!(symbols.frames(module, pc, false)[0].line, Some(12), "what comes after the call");
    assert_eq!(symbols.frames(module, pc - 1, false)[0].line, Some(12));
}

#[test]
fn paths_are_rewritten_and_lines_read() {
    let program = Program::c(&["-g"]);
    let here = program.dir.path().to_str().unwrap().to_owned();
    let options = Options { source_maps: vec![(here.clone(), "/elsewhere".into())], ..only(&[]) };
    let frames = program.frames(options);
    assert_eq!(summary(&frames[1]), [("outer", "/elsewhere/program.c", 12, false)]);

    // The other way round: compiled elsewhere, its source is here.
    let flag = format!("-ffile-prefix-map={here}=/build");
    let program = Program::new("gcc", "program.c", crate::support::PROGRAM, &["-g", "-O2", &flag]);
    let here = program.dir.path().to_str().unwrap().to_owned();
    let (mut symbols, _) =
        program.symbolizer(Options { source_maps: vec![("/build".into(), here.clone())], ..only(&[]) }, &[]);
    let line = symbols.source_line("/build/program.c", 12);
    assert_eq!(line.as_deref(), Some("  where();"));
    assert_eq!(
        symbols.source_line(&format!("{here}/program.c"), 10).as_deref().map(|l| &l[..9]),
        Some("__attribu")
    );
    assert_eq!(symbols.source_line("/build/program.c", 1000), None);
}

#[test]
fn answers_are_kept() {
    let program = Program::c(&["-g"]);
    let (mut symbols, module) = program.symbolizer(Options::default(), &[]);
    let first = symbols.frames(module, program.calls[0].1, true);
    let again = symbols.frames(module, program.calls[0].1, true);
    assert!(std::sync::Arc::ptr_eq(&first, &again));
}
