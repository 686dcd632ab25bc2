//! What makes a leak the same one in the next recording.
//!
//! The functions and the names of the files of the frames from the one to blame
//! outwards, up to `main`, five at most. Lines, addresses and folders do not
//! count: code moves, builds differ, and two checkouts lie in two places. The
//! suffixes that compilers add to clones of a function do not count either.

use crate::stack::{Frame, Stack, base_name, function, is_pseudo, near};

/// Frames that count.
const FRAMES: usize = 5;

/// The fingerprint of a stack: 16 hexadecimal digits (FNV-1a, 64 bits).
pub fn of(stack: &Stack) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    let frames = stack.frames.iter().skip(stack.site).filter(|frame| !is_pseudo(frame));
    for frame in frames.take(FRAMES) {
        add(&name(frame));
        add(frame.file.as_deref().map_or_else(|| base_name(&frame.module), base_name));
        if function(frame) == Some("main") {
            break;
        }
    }
    format!("{hash:016x}")
}

fn name(frame: &Frame) -> String {
    match function(frame).or_else(|| near(frame)) {
        Some(name) => without_clone(name).to_string(),
        None => format!("+{:#x}", frame.module_offset.unwrap_or(frame.address)),
    }
}

/// `parse` of `parse.part.0`.
fn without_clone(name: &str) -> &str {
    const SUFFIXES: [&str; 5] = [".part.", ".isra.", ".constprop.", ".cold", ".llvm."];
    let end = SUFFIXES.iter().filter_map(|suffix| name.find(suffix)).filter(|&at| at > 0).min();
    end.and_then(|end| name.get(..end)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::session::made::Made;

    fn stack(function: &str, file: &str, line: u32, outer: &str) -> Arc<Stack> {
        Made::default()
            .node(1, 0, outer, "/src/main.c", 3)
            .node(2, 1, "main", "/src/main.c", 30 + line)
            .node(3, 2, function, file, line)
            .session()
            .stack(3)
    }

    #[test]
    fn lines_folders_clones_and_what_called_main_do_not_count() {
        let known = of(&stack("parse", "/home/a/parse.c", 7, "_start"));
        assert_eq!(known.len(), 16);
        assert_eq!(known, of(&stack("parse.part.0", "/ci/parse.c", 9, "other_start")));
        assert_ne!(known, of(&stack("parse", "/home/a/scan.c", 7, "_start")));
        assert_ne!(known, of(&stack("scan", "/home/a/parse.c", 7, "_start")));
    }
}
