//! The cache gives the answers that there are without it, and only those.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use highwater_symbols::{Frame, NoteKind, Options};

use crate::support::{PROGRAM, Program, run, summary};

fn with_cache(folder: &Path) -> Options {
    Options { cache: Some(folder.to_path_buf()), ..Options::default() }
}

/// The program's file in the cache.
fn file_of(program: &Program, folder: &Path) -> PathBuf {
    let id: String = program.build_id().iter().map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("{id}.symbols"))
}

/// Function and line of all frames of all calls.
fn lines(frames: &[Arc<[Frame]>]) -> Vec<(String, u32)> {
    let all = frames.iter().flat_map(|frames| summary(frames));
    all.map(|(function, _, line, _)| (function.to_owned(), line)).collect()
}

#[test]
fn a_second_run_is_answered_from_the_cache_alone_and_options_still_count() {
    let program = Program::c(&["-g"]);
    let folder = program.path("cache/symbols");
    let plain = program.frames(Options::default());
    assert_eq!(program.frames(with_cache(&folder)), plain);
    let file = file_of(&program, &folder);
    let written = fs::read(&file).unwrap();

    // A name that only the cache can know shows who answers.
    let text = |bytes: &[u8]| bytes.windows(6).position(|at| at == b"middle").unwrap();
    let mut forged = written.clone();
    let at = text(&forged);
    forged[at..at + 6].copy_from_slice(b"muddle");
    let crc = crc32(&forged[12..]);
    forged[8..12].copy_from_slice(&crc.to_le_bytes());
    fs::write(&file, &forged).unwrap();
    assert!(lines(&program.frames(with_cache(&folder))).contains(&("muddle".into(), 7)));
    assert_eq!(fs::read(&file).unwrap(), forged, "nothing new, nothing written");

    // What is kept is not what an option made of it.
    fs::write(&file, &written).unwrap();
    let mapped = |cache| Options {
        source_maps: vec![(program.dir.path().to_str().unwrap().into(), "/elsewhere".into())],
        cache,
        ..Options::default()
    };
    let moved = program.frames(mapped(Some(folder.clone())));
    assert_eq!(moved, program.frames(mapped(None)));
    assert_eq!(moved[0][0].file.as_deref(), Some("/elsewhere/program.c"));
}

/// CRC-32 (IEEE), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn a_damaged_cache_file_is_as_good_as_none_and_is_mended() {
    let program = Program::c(&["-g"]);
    let folder = program.path("cache");
    let plain = program.frames(with_cache(&folder));
    let file = file_of(&program, &folder);
    let good = fs::read(&file).unwrap();
    let step = (good.len() / 40).max(1);
    for at in (0..good.len()).step_by(step) {
        let mut bad = good.clone();
        bad[at] ^= 0x11;
        for bad in [bad, good[..at].to_vec()] {
            fs::write(&file, bad).unwrap();
            assert_eq!(program.frames(with_cache(&folder)), plain, "damaged at {at}");
            assert_eq!(fs::read(&file).unwrap(), good, "mended");
        }
    }
}

#[test]
fn a_rebuilt_program_or_other_debug_information_is_looked_up_anew() {
    let program = Program::c(&["-g"]);
    let folder = program.path("cache");
    let before = lines(&program.frames(with_cache(&folder)));
    assert_eq!(before[0], ("inner".to_owned(), 3));

    // Another build: another build-id and another file.
    fs::write(program.path("program.c"), format!("\n\n{PROGRAM}")).unwrap();
    let build = |id: &str| {
        let wl = format!("-Wl,--build-id={id}");
        let args = ["-O2", "-g", "program.c", "where.o", &wl, "-o", "program"];
        run(Command::new("gcc").current_dir(&program.dir).args(args));
    };
    build("sha1");
    assert_eq!(lines(&program.frames(with_cache(&folder)))[0], ("inner".to_owned(), 5));

    // The same build-id, and even the same time, with other lines.
    build("0x1234567890abcdef1234567890abcdef12345678");
    assert_eq!(lines(&program.frames(with_cache(&folder)))[0], ("inner".to_owned(), 5));
    let time = fs::metadata(&program.exe).unwrap().modified().unwrap();
    fs::write(program.path("program.c"), format!("\n\n\n\n{PROGRAM}")).unwrap();
    build("0x1234567890abcdef1234567890abcdef12345678");
    File::options().append(true).open(&program.exe).unwrap().set_modified(time).unwrap();
    assert_eq!(lines(&program.frames(with_cache(&folder)))[0], ("inner".to_owned(), 7));

    // Its lines are moved to another file, and that file goes.
    program.objcopy(&["--only-keep-debug"], Some("program.debug"));
    program.objcopy(&["--strip-all", "--add-gnu-debuglink=program.debug"], None);
    assert_eq!(lines(&program.frames(with_cache(&folder)))[0], ("inner".to_owned(), 7));
    fs::remove_file(program.path("program.debug")).unwrap();
    let (mut symbols, module) = program.symbolizer(with_cache(&folder), &program.build_id());
    assert_eq!(symbols.frames(module, program.calls[0].1, true)[0].line, None);
    assert!(symbols.notes().iter().any(|n| matches!(n.kind, NoteKind::NoDebugInfo { .. })));
}

#[test]
fn where_nothing_can_be_known_again_nothing_is_kept() {
    let none = Program::c(&["-g", "-Wl,--build-id=none"]);
    let folder = none.path("cache");
    // The last --build-id wins, and `Program` asks for one.
    none.objcopy(&["--remove-section=.note.gnu.build-id"], None);
    let (mut symbols, module) = none.symbolizer(with_cache(&folder), &[]);
    symbols.frames(module, none.calls[0].1, true);
    drop(symbols);
    assert!(!folder.exists(), "no build-id");

    // Lines in a file of their own, which may change alone.
    let split = Program::c(&["-g", "-gsplit-dwarf"]);
    let folder = split.path("cache");
    assert_eq!(lines(&split.frames(with_cache(&folder)))[0], ("inner".to_owned(), 3));
    assert!(!folder.exists(), "split");
}

#[test]
fn a_folder_that_cannot_be_made_or_written_costs_only_the_cache() {
    let program = Program::c(&["-g"]);
    let plain = program.frames(Options::default());
    // In the way: a file where the folder would be. (Permissions do not stop root.)
    fs::write(program.path("file"), "").unwrap();
    for folder in [program.path("file"), program.path("file/symbols"), PathBuf::from("/proc/none/symbols")] {
        assert_eq!(program.frames(with_cache(&folder)), plain);
    }
    let folder = program.path("closed");
    fs::create_dir(&folder).unwrap();
    let mut modes = fs::metadata(&folder).unwrap().permissions();
    modes.set_readonly(true);
    fs::set_permissions(&folder, modes).unwrap();
    assert_eq!(program.frames(with_cache(&folder)), plain);
}

#[test]
fn two_at_once_lose_nothing_that_is_wrong() {
    let program = Program::c(&["-g"]);
    let folder = program.path("cache");
    let plain = program.frames(Options::default());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(program.frames(with_cache(&folder)), plain);
                    // One of them begins anew.
                    let _ = fs::remove_file(file_of(&program, &folder));
                }
            });
        }
    });
    assert_eq!(program.frames(with_cache(&folder)), plain);
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "no part files are left: {names:?}");
}

#[test]
fn answers_of_two_runs_are_put_together() {
    let program = Program::c(&["-g"]);
    let folder = program.path("cache");
    let id = program.build_id();
    let (mut one, of_one) = program.symbolizer(with_cache(&folder), &id);
    let (mut two, of_two) = program.symbolizer(with_cache(&folder), &id);
    one.frames(of_one, program.calls[0].1, true);
    two.frames(of_two, program.calls[1].1, true);
    drop(one);
    let first = fs::metadata(file_of(&program, &folder)).unwrap().len();
    drop(two);
    let both = fs::read(file_of(&program, &folder)).unwrap();
    assert!(both.len() as u64 > first);
    program.frames(with_cache(&folder));
    assert_eq!(fs::read(file_of(&program, &folder)).unwrap(), both, "both are known");
}
