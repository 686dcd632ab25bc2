//! A call stack with names.

use std::sync::Arc;

use highwater_event::node::Truncation;
use highwater_symbols::Origin;

/// One line of a stack; the fields of `frame` in JSON.
pub type Frame = highwater_symbols::Frame;

/// A call stack, innermost frame first, inlined functions as frames of their
/// own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// The frames; those of an address are shared by all stacks that pass it. The last
    /// one of a truncated stack is the pseudo frame `[truncated: reason]` (see
    /// [`is_pseudo`]).
    pub frames: Vec<Arc<Frame>>,
    /// Why the stack does not reach the outermost frame of its thread.
    pub truncated: Option<Truncation>,
    /// Number of `frames` that matters to the user (see [`crate::site`]).
    pub site: usize,
}

impl Stack {
    /// The frame that matters to the user; `None` for an empty stack.
    pub fn site(&self) -> Option<&Frame> {
        self.frames.get(self.site).map(Arc::as_ref)
    }
}

/// A frame that is no code: its function is `name` in brackets, its address 0.
pub fn pseudo(name: &str) -> Frame {
    let name: Arc<str> = Arc::from(format!("[{name}]"));
    Frame {
        address: 0,
        function: Some(Arc::clone(&name)),
        raw_name: Some(name),
        offset: None,
        file: None,
        line: None,
        column: None,
        module: Arc::from(""),
        module_offset: None,
        inlined: false,
        origin: Origin::Unknown,
    }
}

/// Is this frame no code (made by [`pseudo`])?
pub fn is_pseudo(frame: &Frame) -> bool {
    frame.address == 0 && frame.module.is_empty()
}

/// The function that the frame lies in, where that is known. The nearest symbol
/// of a stripped module is no knowledge: see [`near`].
pub fn function(frame: &Frame) -> Option<&str> {
    if frame.origin == Origin::Nearest { None } else { frame.function.as_deref() }
}

/// The nearest symbol before a frame of a module whose own names are gone. The
/// frame need not lie in that function: most often it does not.
pub fn near(frame: &Frame) -> Option<&str> {
    if frame.origin == Origin::Nearest { frame.function.as_deref() } else { None }
}

/// The function as users read it: its name, or module and offset.
pub fn function_name(frame: &Frame) -> String {
    match (function(frame), frame.module_offset) {
        (Some(function), _) => function.to_string(),
        (None, Some(offset)) => format!("{}+{offset:#x}", base_name(&frame.module)),
        (None, None) => format!("{:#x}", frame.address),
    }
}

/// The last part of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_symbol_is_not_the_function() {
        let frame = Frame {
            address: 0x7f00_1234,
            function: Some("std::__throw_ios_failure".into()),
            module: "/usr/lib/libstdc++.so.6".into(),
            module_offset: Some(0xa_1234),
            origin: Origin::Nearest,
            ..pseudo("")
        };
        assert_eq!(function(&frame), None);
        assert_eq!(near(&frame), Some("std::__throw_ios_failure"));
        assert_eq!(function_name(&frame), "libstdc++.so.6+0xa1234");
        let known = Frame { origin: Origin::Symbol, ..frame };
        assert_eq!((function(&known), near(&known)), (Some("std::__throw_ios_failure"), None));
    }
}
