//! Does an ELF file belong to a dump?
//!
//! By build-id where both have one; else by the addresses of two symbols of the
//! agent, after the slide that a position-independent program was loaded with.

use object::{Object, ObjectSymbol};

use super::model::Dump;

/// How an ELF file fits a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// What to subtract from an address of the dump to get one of the file.
    pub slide: u64,
    /// By build-id, else by symbols.
    pub by_build_id: bool,
}

/// Why an ELF file does not fit.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MatchError {
    /// Not readable as ELF.
    #[error("not an ELF file that can be read: {0}")]
    Elf(String),
    /// Another build.
    #[error("its build-id is {file}, the dump is of {dump}")]
    BuildId {
        /// The file's, in hex.
        file: String,
        /// The dump's.
        dump: String,
    },
    /// The agent's symbols lie elsewhere.
    #[error("the agent lies elsewhere in it: it is of another build than the dump")]
    Symbols,
    /// Nothing to tell by.
    #[error("it has neither the dump's build-id nor the agent's symbols")]
    Unknown,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Checks whether `elf`, the bytes of an ELF file, is the program of the dump.
///
/// # Errors
/// If it is not, or nobody can tell.
pub fn matches(dump: &Dump, elf: &[u8]) -> Result<Match, MatchError> {
    let file = object::File::parse(elf).map_err(|e| MatchError::Elf(e.to_string()))?;
    let address = |name: &str| {
        let symbol = file.symbols().find(|s| s.name() == Ok(name) && s.is_definition())?;
        // bit 0 of a function's address says Thumb
        Some(if dump.machine == object::elf::EM_ARM.0 { symbol.address() & !1 } else { symbol.address() })
    };
    let anchor = if dump.machine == object::elf::EM_ARM.0 { dump.anchor & !1 } else { dump.anchor };
    let slides = (
        address("highwater_mdd").map(|a| dump.self_addr.wrapping_sub(a)),
        address("highwater_mdd_done").map(|a| anchor.wrapping_sub(a)),
    );
    let slide = match slides {
        (Some(a), Some(b)) if a == b => Some(a),
        // a program of many parts may be loaded in pieces; its code is what counts
        (None, Some(b)) => Some(b),
        _ => None,
    };
    let id = file.build_id().ok().flatten().unwrap_or_default();
    if !id.is_empty() && !dump.build_id.is_empty() {
        if id != dump.build_id.as_slice() {
            return Err(MatchError::BuildId { file: hex(id), dump: hex(&dump.build_id) });
        }
        return Ok(Match { slide: slide.unwrap_or(0), by_build_id: true });
    }
    match (slides, slide) {
        (_, Some(slide)) => {
            // without a relocation the slide of a fixed program is 0
            let movable = file.kind() == object::ObjectKind::Dynamic;
            if slide != 0 && !movable {
                return Err(MatchError::Symbols);
            }
            Ok(Match { slide, by_build_id: false })
        }
        ((Some(_), Some(_)), None) => Err(MatchError::Symbols),
        _ => Err(MatchError::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mddout::write::sample;

    #[test]
    fn what_is_no_elf_is_refused() {
        assert!(matches!(matches(&sample(), b"MZ"), Err(MatchError::Elf(_))));
    }

    #[test]
    fn a_program_without_the_agent_cannot_be_told() {
        // this test program itself: an ELF file that has no agent and another build-id, or none
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let error = matches(&sample(), &own).unwrap_err();
        assert!(matches!(error, MatchError::BuildId { .. } | MatchError::Unknown), "{error}");
        let mut dump = sample();
        dump.build_id.clear();
        assert_eq!(matches(&dump, &own), Err(MatchError::Unknown));
    }
}
