//! `-n`, `-I GLOB`: what is shown of functions that the compiler has inlined.

use crate::glob;
use crate::stack::Frame;

/// What becomes of inlined functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Inlining {
    /// Each is a frame of its own.
    #[default]
    Shown,
    /// One frame a return address: the function that the address lies in, with
    /// the line that the debug information has for the address (`-n`).
    Hidden,
    /// One frame a return address: the innermost function whose file does not
    /// fit the pattern; where all fit, the innermost (`-I GLOB`, as eCos's tool
    /// has it).
    Ignored(String),
}

impl Inlining {
    /// The frames of one return address, innermost first, as they are to be shown.
    pub fn apply(&self, frames: &[Frame]) -> Vec<Frame> {
        let (Some(inner), Some(outer)) = (frames.first(), frames.last()) else { return Vec::new() };
        let one = match self {
            Inlining::Shown => return frames.to_vec(),
            Inlining::Hidden => {
                Frame { file: inner.file.clone(), line: inner.line, column: inner.column, ..outer.clone() }
            }
            Inlining::Ignored(pattern) => {
                let fits =
                    |frame: &&Frame| !frame.file.as_deref().is_some_and(|file| glob::matches(pattern, file));
                frames.iter().find(fits).unwrap_or(inner).clone()
            }
        };
        vec![Frame { inlined: false, ..one }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{function_name, pseudo};

    fn frames() -> Vec<Frame> {
        let frame = |name: &str, file: &str, line, inlined| Frame {
            address: 0x10,
            function: Some(name.into()),
            file: Some(file.into()),
            line: Some(line),
            inlined,
            module: "app".into(),
            ..pseudo("")
        };
        vec![
            frame("allocate", "/usr/include/c++/new_allocator.h", 7, true),
            frame("push_back", "/usr/include/c++/vector.h", 8, true),
            frame("load", "/src/load.cc", 9, true),
            frame("main", "/src/main.cc", 10, false),
        ]
    }

    fn shown(inlining: &Inlining) -> Vec<(String, u32, bool)> {
        let frames = inlining.apply(&frames());
        frames.iter().map(|f| (function_name(f), f.line.unwrap(), f.inlined)).collect()
    }

    #[test]
    fn an_address_is_one_frame_where_that_is_asked_for() {
        assert_eq!(shown(&Inlining::Shown).len(), 4);
        assert_eq!(shown(&Inlining::Hidden), [("main".to_string(), 7, false)]);
        let ignored = |glob: &str| shown(&Inlining::Ignored(glob.into()));
        assert_eq!(ignored("*/include/*"), [("load".to_string(), 9, false)]);
        assert_eq!(ignored("*/src/*"), [("allocate".to_string(), 7, false)]);
        assert_eq!(ignored("*"), [("allocate".to_string(), 7, false)]);
        assert!(Inlining::Hidden.apply(&[]).is_empty());
    }
}
