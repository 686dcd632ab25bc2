//! What a program has to say to LeakSanitizer about leaks that are meant:
//! `__lsan_default_suppressions`, and the file that `LSAN_OPTIONS` names.
//!
//! The function cannot be called: it is the target's, and calling it would run
//! code in the target that it would not have run. It need not be: it returns a
//! string literal, in every program that follows LeakSanitizer's manual, and then
//! its few instructions say where in the file the string lies. A function that
//! does anything else is left alone.

use std::path::Path;

use crate::file_bytes::FileBytes;
use highwater_trace::model::Suppressions;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

const FUNCTION: &str = "__lsan_default_suppressions";
/// Longest text that is taken over, bytes.
const MAX_TEXT: usize = 64 << 10;
/// Largest file of suppressions that is taken over, bytes.
const MAX_FILE: u64 = 256 << 10;
/// A function that returns a literal is no longer than this.
const MAX_CODE: u64 = 64;

/// All that applies to a program: its own function's text, and the file of
/// `LSAN_OPTIONS`.
pub fn suppressions(exe: &Path) -> Vec<Suppressions> {
    let own = of_program(exe).map(|text| Suppressions { from: FUNCTION.to_owned(), text });
    let options = std::env::var("LSAN_OPTIONS").unwrap_or_default();
    let file = option(&options).and_then(|path| {
        let small = std::fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.len() <= MAX_FILE);
        let text = if small { std::fs::read(path).ok()? } else { return None };
        Some(Suppressions { from: path.to_owned(), text: String::from_utf8_lossy(&text).into_owned() })
    });
    own.into_iter().chain(file).collect()
}

/// The value of `suppressions` in `LSAN_OPTIONS`: options are separated by
/// colons or blanks, and a value may be quoted.
fn option(options: &str) -> Option<&str> {
    const KEY: &str = "suppressions=";
    let at = options.rmatch_indices(KEY).map(|(at, _)| at).find(|&at| {
        at == 0 || options.get(..at).is_some_and(|front| front.ends_with([':', ' ', ',', '\t', '\n']))
    })?;
    let value = options.get(at + KEY.len()..)?;
    let value = match value.chars().next()? {
        quote @ ('"' | '\'') => value.get(1..)?.split(quote).next()?,
        _ => value.split([':', ' ', ',', '\t', '\n']).next()?,
    };
    (!value.is_empty()).then_some(value)
}

/// What the program's own function returns, where that can be read from its file.
fn of_program(exe: &Path) -> Option<String> {
    let bytes = FileBytes::open(exe).ok()?;
    let elf = object::File::parse(&*bytes).ok()?;
    if elf.architecture() != object::Architecture::X86_64 {
        return None;
    }
    let wanted = |symbol: &object::Symbol<'_, '_>| {
        symbol.kind() == SymbolKind::Text
            && symbol.is_definition()
            && symbol.size() <= MAX_CODE
            && symbol.name() == Ok(FUNCTION)
    };
    let symbol = elf.dynamic_symbols().find(wanted).or_else(|| elf.symbols().find(wanted))?;
    let code = bytes_at(&elf, symbol.address(), symbol.size().clamp(16, MAX_CODE) as usize)?;
    let at = returned(&code, symbol.address())?;
    let text = bytes_at(&elf, at, MAX_TEXT)?;
    let end = text.iter().position(|&byte| byte == 0)?;
    String::from_utf8(text.get(..end)?.to_vec()).ok()
}

/// Up to `length` bytes of a section's contents at an address.
fn bytes_at<'a>(elf: &impl Object<'a>, address: u64, length: usize) -> Option<Vec<u8>> {
    for section in elf.sections() {
        let Some(offset) = address.checked_sub(section.address()).filter(|&at| at < section.size()) else {
            continue;
        };
        let length = (length as u64).min(section.size() - offset);
        if section.address() != 0
            && let Ok(Some(bytes)) = section.data_range(address, length)
        {
            return Some(bytes.to_vec());
        }
    }
    None
}

/// The address that a function at `start` returns, if it does nothing else:
/// `lea rax, [rip+…]` or `mov`, in a frame or not, and `ret`.
fn returned(code: &[u8], start: u64) -> Option<u64> {
    let mut at = 0;
    let skip = |at: &mut usize, bytes: &[u8]| {
        let found = code.get(*at..).is_some_and(|rest| rest.starts_with(bytes));
        *at += if found { bytes.len() } else { 0 };
        found
    };
    let four = |at: usize| Some(i32::from_le_bytes(code.get(at..at + 4)?.try_into().ok()?));
    skip(&mut at, &[0xf3, 0x0f, 0x1e, 0xfa]); // endbr64
    let frame = skip(&mut at, &[0x55]); // push rbp
    if frame && !skip(&mut at, &[0x48, 0x89, 0xe5]) && !skip(&mut at, &[0x48, 0x8b, 0xec]) {
        return None; // mov rbp, rsp
    }
    let value = if skip(&mut at, &[0x48, 0x8d, 0x05]) {
        // lea rax, [rip + disp32]
        let distance = four(at)?;
        at += 4;
        start.wrapping_add(at as u64).wrapping_add_signed(i64::from(distance))
    } else if skip(&mut at, &[0xb8]) {
        // mov eax, imm32
        at += 4;
        u64::from(four(at - 4)? as u32)
    } else if skip(&mut at, &[0x48, 0xc7, 0xc0]) {
        // mov rax, imm32
        at += 4;
        i64::from(four(at - 4)?) as u64
    } else if skip(&mut at, &[0x48, 0xb8]) {
        // movabs rax, imm64
        at += 8;
        u64::from_le_bytes(code.get(at - 8..at)?.try_into().ok()?)
    } else {
        return None;
    };
    if frame && !skip(&mut at, &[0x5d]) && !skip(&mut at, &[0xc9]) {
        return None; // pop rbp, leave
    }
    let end = skip(&mut at, &[0xc3]) || skip(&mut at, &[0xf3, 0xc3]); // ret
    end.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_returns_a_literal_is_read_and_no_other() {
        const LEA: [u8; 7] = [0x48, 0x8d, 0x05, 0x10, 0, 0, 0];
        let code = |parts: &[&[u8]]| parts.concat();
        let endbr = [0xf3, 0x0f, 0x1e, 0xfa];
        for (bytes, value) in [
            (code(&[&LEA, &[0xc3]]), Some(0x1017)),
            (code(&[&endbr, &LEA, &[0xc3]]), Some(0x101b)),
            (code(&[&endbr, &[0x55, 0x48, 0x89, 0xe5], &LEA, &[0x5d, 0xc3]]), Some(0x101f)),
            (vec![0xb8, 0x78, 0x56, 0x34, 0x12, 0xc3], Some(0x1234_5678)),
            (vec![0x48, 0xc7, 0xc0, 0x04, 0, 0x40, 0, 0xc3], Some(0x40_0004)),
            (vec![0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xc3], Some(0x0807_0605_0403_0201)),
            // A call, a test, a frame that is not left, an end too soon.
            (vec![0xe8, 0, 0, 0, 0, 0xc3], None),
            (code(&[&[0x85, 0xff], &LEA, &[0xc3]]), None),
            (code(&[&[0x55, 0x48, 0x89, 0xe5], &LEA, &[0xc3]]), None),
            (code(&[&LEA, &[0x48, 0xff, 0xc0, 0xc3]]), None),
            (LEA.to_vec(), None),
            (vec![0x48, 0x8d, 0x05, 1], None),
            (vec![0xb8, 1], None),
            (Vec::new(), None),
        ] {
            assert_eq!(returned(&bytes, 0x1000), value, "{bytes:x?}");
        }
    }

    #[test]
    fn the_file_of_lsan_options_is_found() {
        for (options, path) in [
            ("suppressions=a.supp", Some("a.supp")),
            ("verbosity=1:suppressions=/x/a.supp:exitcode=3", Some("/x/a.supp")),
            ("suppressions='/x y/a:b'", Some("/x y/a:b")),
            ("print_suppressions=0", None),
            ("print_suppressions=0:suppressions=b", Some("b")),
            ("suppressions=", None),
            ("", None),
        ] {
            assert_eq!(option(options), path, "{options}");
        }
    }
}
