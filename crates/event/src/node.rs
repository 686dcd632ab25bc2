//! Call stacks as an interned tree.
//!
//! A stack is named by the id of its innermost node; a node is (parent,
//! return address). Id 0 is the root: the stack with no frame at all. The
//! outermost frame of a thread is a child of the root.
//!
//! A stack that could not be followed to its end hangs below a *truncation
//! marker*, a child of the root whose "address" is a [`Truncation`] and whose
//! module is [`Node::MARKER_MODULE`]. So every cut stack says why it was cut,
//! and two stacks that were cut for different reasons are never mixed up.

/// The id of a node: its index in the node table. 0 is the root.
pub type NodeId = u32;

/// The root of the tree: the empty stack.
pub const ROOT: NodeId = 0;

/// One node of the stack tree, as it lies in shared memory (16 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Node {
    /// Return address (48 bits), and above it the index of its module (16 bits).
    pub pc_module: u64,
    /// The caller's node.
    pub parent: u32,
    /// 1 once the other fields are there to be read.
    pub ready: u32,
}

impl Node {
    /// Module number of a truncation marker.
    pub const MARKER_MODULE: u16 = 0xffff;
    /// Module number of an address that lies in no known module (JIT code).
    pub const NO_MODULE: u16 = 0xfffe;
    /// The bits of `pc_module` that hold the address.
    pub const PC_MASK: u64 = (1 << 48) - 1;

    /// Packs an address and a module.
    pub const fn pack(pc: u64, module: u16) -> u64 {
        (pc & Self::PC_MASK) | ((module as u64) << 48)
    }

    /// The return address: the instruction after the call.
    pub const fn pc(self) -> u64 {
        self.pc_module & Self::PC_MASK
    }

    /// The index of the module in the module table.
    pub const fn module(self) -> u16 {
        (self.pc_module >> 48) as u16
    }

    /// Why the stack ends here, if this is a truncation marker.
    pub const fn truncation(self) -> Option<Truncation> {
        if self.module() == Self::MARKER_MODULE { Truncation::from_u8(self.pc() as u8) } else { None }
    }

    /// The packed value of the marker for `reason`.
    pub const fn marker(reason: Truncation) -> u64 {
        Self::pack(reason as u64, Self::MARKER_MODULE)
    }
}

macro_rules! truncations {
    ($($(#[$doc:meta])* $variant:ident = $value:literal, $name:literal;)*) => {
        /// Why a stack does not reach the outermost frame of its thread.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Truncation { $($(#[$doc])* $variant = $value,)* }
        impl Truncation {
            /// Every reason.
            pub const ALL: &'static [Truncation] = &[$(Truncation::$variant),*];
            /// The reason with this number.
            pub const fn from_u8(value: u8) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)* _ => None }
            }
            /// What users read.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

truncations! {
    /// The return address lies in no loaded module (JIT code, a bad stack).
    NoModule = 1, "address in no loaded module";
    /// The module has no `.eh_frame` entry for the address.
    NoUnwindInfo = 2, "no unwind information for the address";
    /// The unwind rule needs something that the agent does not keep.
    UnsupportedRule = 3, "unwind rule needs an unsaved register";
    /// The next frame would lie outside the stack, or not above this one.
    BadStack = 4, "stack pointer went astray";
    /// More frames than the agent walks.
    TooDeep = 5, "too many frames";
    /// The frame limit that the user asked for (`--depth`).
    DepthLimit = 6, "cut by --depth";
    /// A heap operation inside another one (a signal handler, a new handler, an
    /// exception object).
    Nested = 7, "made inside another heap operation";
    /// The node table is full.
    TableFull = 8, "stack table full";
    /// Stacks were switched off for this event.
    NotTaken = 9, "no stack taken";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_sixteen_bytes() {
        assert_eq!(size_of::<Node>(), 16);
    }

    #[test]
    fn a_marker_says_why() {
        let node = Node { pc_module: Node::marker(Truncation::TooDeep), parent: 0, ready: 1 };
        assert_eq!(node.truncation(), Some(Truncation::TooDeep));
        let node = Node { pc_module: Node::pack(0x7fff_1234_5678, 3), parent: 0, ready: 1 };
        assert_eq!((node.pc(), node.module(), node.truncation()), (0x7fff_1234_5678, 3, None));
    }
}
