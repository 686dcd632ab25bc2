//! What the data of a trace can serve.

use crate::session::{Facts, QueryError};

/// Something that a recording may hold or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capability {
    /// Who did it.
    Threads,
    /// When it happened.
    Times,
    /// What the allocator really gave (`run --actual-size`).
    ActualSizes,
    /// Call stacks.
    Stacks,
    /// The events, not only the live set at one instant.
    History,
    /// Functions and lines, for which an executable is needed.
    Names,
    /// Marks, and so phases.
    Marks,
}

impl Capability {
    /// In words, as in `no WORDS in FILE`.
    pub const fn words(self) -> &'static str {
        match self {
            Capability::Threads => "thread information",
            Capability::Times => "time stamps",
            Capability::ActualSizes => "actual sizes",
            Capability::Stacks => "call stacks",
            Capability::History => "history of events",
            Capability::Names => "names of functions (--exe names the executable)",
            Capability::Marks => "marks",
        }
    }

    /// Passes where the recording has it.
    ///
    /// # Errors
    /// [`QueryError::Lacks`] where not; `option` is what asked for it.
    pub fn require(self, facts: &Facts, option: &str) -> Result<(), QueryError> {
        let option_of = |name: &str| facts.meta.option(name);
        let there = match self {
            Capability::Threads => option_of("no_threads").is_none(),
            Capability::Times => option_of("no_times").is_none(),
            Capability::ActualSizes => option_of("actual_size").is_some(),
            Capability::Stacks => option_of("no_stacks").is_none(),
            Capability::History => option_of("no_history").is_none(),
            // A dump knows addresses only.
            Capability::Names => option_of("from") != Some("mddout") || !facts.modules.is_empty(),
            Capability::Marks => !facts.marks.is_empty(),
        };
        if there {
            return Ok(());
        }
        let (option, what) = (option.to_string(), self.words());
        Err(QueryError::Lacks { option, what, path: facts.path.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_file() {
        let mut facts = Facts { path: "mddout.0".into(), ..Facts::default() };
        facts.meta.options = ["from=mddout", "no_threads"].map(str::to_string).to_vec();
        let error = |of: Capability| of.require(&facts, "-F thread").map_err(|error| error.to_string());
        assert_eq!(error(Capability::Threads), Err("-F thread: no thread information in mddout.0".into()));
        assert_eq!(error(Capability::Marks), Err("-F thread: no marks in mddout.0".into()));
        assert_eq!(error(Capability::ActualSizes), Err("-F thread: no actual sizes in mddout.0".into()));
        assert!(error(Capability::Names).is_err());
        assert_eq!(error(Capability::Times), Ok(()));
        assert_eq!(error(Capability::History), Ok(()));
    }
}
