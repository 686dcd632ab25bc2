//! Files that no compiler wrote: nothing may panic, hang or take all memory.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use highwater_symbols::{NoteKind, Options, Origin};

use crate::support::{Program, add, only, run};

/// A small repeatable source of numbers (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

/// Asks a damaged file for the program's calls and for some addresses around.
fn ask(program: &Program, bytes: &[u8]) {
    let path = program.path("damaged");
    fs::write(&path, bytes).unwrap();
    let mut symbols = highwater_symbols::Symbolizer::new(only(&[]));
    let bias = program.calls[0].0;
    let module = add(&mut symbols, &path, &[], bias);
    for &(_, pc) in &program.calls {
        for pc in [pc, pc - 1, pc + 40, pc - 40, bias, 0, u64::MAX] {
            assert!(!symbols.frames(module, pc, true).is_empty());
            assert!(!symbols.frames(module, pc, false).is_empty());
        }
    }
    symbols.notes();
}

/// File offset and size of each section.
fn sections(program: &Program) -> Vec<(String, usize, usize)> {
    run(Command::new("readelf").args(["-SW", program.exe.to_str().unwrap()]))
        .lines()
        .filter_map(|line| {
            let rest = line.trim_start().strip_prefix('[')?.split_once(']')?.1;
            let mut parts = rest.split_whitespace();
            let name = parts.next()?.to_owned();
            let mut parts = parts.skip(2);
            let number = |text: Option<&str>| usize::from_str_radix(text?, 16).ok();
            Some((name, number(parts.next())?, number(parts.next())?))
        })
        .collect()
}

#[test]
fn flipped_bytes() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for args in [&["-gdwarf-4"][..], &["-gdwarf-5"], &["-gdwarf-5", "-gz=zlib"]] {
        let program = Program::c(args);
        let good = fs::read(&program.exe).unwrap();
        let sections = sections(&program);
        let targets: Vec<_> = sections
            .iter()
            .filter(|s| s.0.starts_with(".debug") || s.0.contains("sym") || s.0.contains("str"))
            .filter(|s| s.2 > 0)
            .collect();
        assert!(targets.len() > 5, "{sections:?}");
        for round in 0..250 {
            let mut bytes = good.clone();
            for _ in 0..1 + random.below(8) {
                // Half of the damage goes to the sections that are read, a quarter
                // to the headers, a quarter anywhere.
                let at = match round % 4 {
                    0 | 1 => {
                        let section = targets[random.below(targets.len())];
                        section.1 + random.below(section.2)
                    }
                    2 if random.below(2) == 0 => random.below(0x400),
                    2 => good.len() - 1 - random.below(64 * 40),
                    _ => random.below(good.len()),
                };
                bytes[at] = match random.below(3) {
                    0 => 0xff,
                    1 => bytes[at] ^ (1 << random.below(8)),
                    _ => random.below(256) as u8,
                };
            }
            ask(&program, &bytes);
        }
    }
}

#[test]
fn cut_files() {
    let program = Program::c(&["-g"]);
    let good = fs::read(&program.exe).unwrap();
    let mut random = Random(77);
    for _ in 0..120 {
        ask(&program, &good[..random.below(good.len())]);
    }
    for end in 0..80 {
        ask(&program, &good[..end]);
    }
}

/// A program whose DWARF is written by hand: a unit, a subprogram that covers
/// `outer`, and `inside`, the bytes of what is in it. Abbreviation 3 is an
/// inlined subroutine with children, 4 a subprogram whose origin (4 bytes) is
/// another entry.
fn by_hand(inside: &str) -> Program {
    let text = format!(
        r#"
        .globl outer, main
        .type outer, @function
        .type main, @function
outer:  sub $8, %rsp
        call where@PLT
        add $8, %rsp
        ret
.Lend:
        .size outer, .-outer
main:   sub $8, %rsp
        call outer
        add $8, %rsp
        xor %eax, %eax
        ret
        .size main, .-main
        .section .note.GNU-stack,"",@progbits
        .section .debug_abbrev,"",@progbits
        .uleb128 1, 0x11
        .byte 1
        .uleb128 0x11, 1, 0x12, 7, 0, 0
        .uleb128 2, 0x2e
        .byte 1
        .uleb128 0x03, 8, 0x11, 1, 0x12, 7, 0, 0
        .uleb128 3, 0x1d
        .byte 1
        .uleb128 0, 0
        .uleb128 4, 0x2e
        .byte 1
        .uleb128 0x31, 0x13, 0x11, 1, 0x12, 7, 0, 0
        .byte 0
        .section .debug_info,"",@progbits
.Lunit: .long .Lstop - .Lstart
.Lstart: .short 4
        .long .debug_abbrev
        .byte 8
        .uleb128 1
        .quad outer, .Lend - outer
{inside}
        .byte 0
.Lstop:
"#
    );
    Program::new("gcc", "program.s", &text, &[])
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let entry = "        .uleb128 2\n        .asciz \"by_hand\"\n        .quad outer, .Lend - outer\n";
    let sane = by_hand(&format!("{entry}        .fill 20, 1, 3\n        .fill 21, 1, 0\n"));
    assert_eq!(sane.frames(only(&[]))[0][0].function.as_deref(), Some("by_hand"));

    let deep = by_hand(&format!("{entry}        .fill 3000000, 1, 3\n        .fill 3000001, 1, 0\n"));
    let (mut symbols, module) = deep.symbolizer(only(&[]), &[]);
    let frames = symbols.frames(module, deep.calls[0].1, true);
    assert_eq!(frames[0].function.as_deref(), Some("outer"), "from the symbol table");
    assert_eq!(frames[0].origin, Origin::Symbol);
    let notes = symbols.notes();
    assert!(matches!(&notes[..], [n] if matches!(n.kind, NoteKind::DamagedDebugInfo { .. })), "{notes:?}");
}

#[test]
fn origins_that_go_round_in_a_circle() {
    let circle = "
.La:    .uleb128 4
        .long .Lb - .Lunit
        .quad outer, .Lend - outer
        .byte 0
.Lb:    .uleb128 4
        .long .La - .Lunit
        .quad 0, 0
        .byte 0
";
    let program = by_hand(circle);
    let frames = program.frames(only(&[]));
    assert_eq!(frames[0][0].function.as_deref(), Some("outer"), "from the symbol table");
}

#[test]
fn a_section_that_claims_to_unpack_to_a_terabyte() {
    let program = Program::c(&["-g", "-gz=zlib"]);
    let mut bytes = fs::read(&program.exe).unwrap();
    for (name, offset, _) in sections(&program) {
        if name.starts_with(".debug") {
            // Elf64_Chdr.ch_size; only where the section is compressed.
            if bytes[offset..offset + 8] == [1, 0, 0, 0, 0, 0, 0, 0] {
                bytes[offset + 8..offset + 16].copy_from_slice(&(1u64 << 40).to_le_bytes());
            }
        }
    }
    fs::write(&program.exe, bytes).unwrap();
    let start = Instant::now();
    let frames = program.frames(only(&[]));
    assert_eq!(frames[0][0].function.as_deref(), Some("outer"));
    assert_eq!(frames[0][0].line, None);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_fifo_does_not_block() {
    let program = Program::c(&["-g"]);
    fs::remove_file(&program.exe).unwrap();
    run(Command::new("mkfifo").arg(&program.exe));
    let (mut symbols, module) = program.symbolizer(Options::default(), &[]);
    assert_eq!(symbols.frames(module, program.calls[0].1, true)[0].function, None);
}
