//! What a target's threads counted by themselves.

/// Operations of all threads, recorded or not. There is one only under
/// `--sample` and `--min-size`, and where nothing but counting was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Blocks made, those of reallocs too.
    pub made: u64,
    /// Requested bytes of them.
    pub made_bytes: u64,
    /// Frees, those of reallocs too.
    pub freed: u64,
    /// Reallocs of a block.
    pub remade: u64,
    /// Blocks below `--min-size`.
    pub small: u64,
    /// Requested bytes of them.
    pub small_bytes: u64,
    /// Usable bytes alive (counting only); never below 0.
    pub live: u64,
    /// The most of them at once (counting only).
    pub peak: u64,
    /// The true peak is within so many bytes of `peak`.
    pub peak_uncertainty: u64,
    /// Threads that took part.
    pub threads: u64,
}
