//! What is not reported.
//!
//! A file has a rule a line, in LeakSanitizer's syntax: `leak:pattern` hides
//! every block whose stack has a frame with a function, file or module that fits.
//! Of our own is `site:pattern`: only the frame to blame is compared, by its
//! function, file, `file:line` or module. `#` begins a comment line. Patterns
//! are those of [`crate::leaks::pattern`].

use std::path::PathBuf;

use highwater_trace::model::Meta;
use rustc_hash::FxHashSet;

use super::pattern::Pattern;
use super::{fingerprint, residues};
use crate::stack::{Frame, Stack, function};

/// Why a file of suppressions cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SuppressionError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is no rule.
    #[error("{}:{line}: `{text}` is no suppression: write leak:PATTERN, site:PATTERN or a # comment", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
}

#[derive(Clone, Debug)]
struct Rule {
    /// As it was written.
    text: String,
    pattern: Pattern,
    /// Is only the frame to blame compared?
    site: bool,
}

/// A set of rules.
#[derive(Clone, Debug, Default)]
pub struct Suppressions {
    rules: Vec<Rule>,
    residues: bool,
    /// Fingerprints of what a baseline has.
    known: FxHashSet<String>,
}

/// The rule of what a baseline has.
const KNOWN: &str = "the baseline";

impl Suppressions {
    /// The residues of libc, libstdc++ and the loader (see [`residues`]).
    pub fn built_in() -> Suppressions {
        Suppressions { residues: true, ..Suppressions::default() }
    }

    /// Adds the rules of a file.
    ///
    /// # Errors
    /// It cannot be read, or a line is no rule.
    pub fn add_file(&mut self, path: &std::path::Path) -> Result<(), SuppressionError> {
        let bytes = std::fs::read(path)
            .map_err(|source| SuppressionError::Read { path: path.to_path_buf(), source })?;
        self.add(&String::from_utf8_lossy(&bytes)).map_err(|(line, text)| SuppressionError::Syntax {
            path: path.to_path_buf(),
            line,
            text,
        })
    }

    /// Adds the rules of a text.
    ///
    /// # Errors
    /// The number of a line that is no rule, from 1, and the line.
    pub fn add(&mut self, text: &str) -> Result<(), (usize, String)> {
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (site, pattern) = match line.split_once(':') {
                Some(("leak", pattern)) => (false, pattern),
                Some(("site", pattern)) => (true, pattern),
                _ => return Err((at + 1, line.to_string())),
            };
            if pattern.is_empty() {
                return Err((at + 1, line.to_string()));
            }
            self.rules.push(Rule { text: line.to_string(), pattern: Pattern::new(pattern), site });
        }
        Ok(())
    }

    /// Adds what the recorded program itself tells LeakSanitizer. Its lines that
    /// are no rules of ours are passed over: they are not the user's.
    pub fn add_recorded(&mut self, meta: &Meta) {
        for line in meta.suppressions.iter().flat_map(|part| part.text.lines()) {
            let _ = self.add(line);
        }
    }

    /// Hides what has one of these [fingerprints](fingerprint) too.
    pub fn add_known(&mut self, fingerprints: FxHashSet<String>) {
        self.known.extend(fingerprints);
    }

    /// The rule that hides blocks of this stack: the first of the files' in
    /// their order, else a built-in one, else the baseline.
    pub fn rule(&self, stack: &Stack) -> Option<&str> {
        let hides = |rule: &&Rule| match stack.site() {
            Some(site) if rule.site => fits(rule, site),
            _ => stack.frames.iter().any(|frame| fits(rule, frame)),
        };
        if let Some(rule) = self.rules.iter().find(hides) {
            return Some(&rule.text);
        }
        if self.residues
            && let Some(residue) = residues::of(stack)
        {
            return Some(residue.name());
        }
        let known = !self.known.is_empty() && self.known.contains(&fingerprint::of(stack));
        known.then_some(KNOWN)
    }
}

fn fits(rule: &Rule, frame: &Frame) -> bool {
    let fits = |text: &str| !text.is_empty() && rule.pattern.matches(text);
    let file = frame.file.as_deref();
    function(frame).is_some_and(fits)
        || file.is_some_and(fits)
        || fits(&frame.module)
        || (rule.site && file.zip(frame.line).is_some_and(|(file, line)| fits(&format!("{file}:{line}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;
    use crate::stack::pseudo;
    use std::sync::Arc;

    fn stack() -> Arc<Stack> {
        Made::default()
            .node(1, 0, "main", "/src/main.c", 3)
            .node(2, 1, "fill_cache", "/src/cache.c", 70)
            .session()
            .stack(2)
    }

    fn rules(text: &str) -> Suppressions {
        let mut rules = Suppressions::default();
        rules.add(text).unwrap();
        rules
    }

    #[test]
    fn any_frames_function_file_or_module_fits() {
        for (text, hidden) in [
            ("leak:fill_*", true),
            ("leak:^main$", true),
            ("leak:/src/main.c", true),
            ("leak:bin/app", true),
            ("leak:other", false),
            ("site:main", false),
            ("site:^fill_cache$", true),
            ("site:^/src/cache.c:70$", true),
            ("site:^/src/cache.c:71$", false),
            ("# leak:main", false),
        ] {
            let rules = rules(text);
            assert_eq!(rules.rule(&stack()), hidden.then_some(text), "{text}");
        }
    }

    #[test]
    fn comments_and_blank_lines_are_no_rules_and_nonsense_is_told() {
        let mut all = Suppressions::default();
        assert_eq!(all.add("# a comment\n\n  leak:a::b \n"), Ok(()));
        assert_eq!(all.rules.len(), 1);
        assert_eq!(all.add("leak:x\nrace:y\n"), Err((2, "race:y".to_string())));
        assert_eq!(all.add("leak:\n"), Err((1, "leak:".to_string())));
        assert_eq!(all.add("nothing\n"), Err((1, "nothing".to_string())));
    }

    #[test]
    fn the_nearest_symbol_hides_nothing() {
        let frame = Frame {
            address: 1,
            function: Some("main".into()),
            module: "/app".into(),
            origin: highwater_symbols::Origin::Nearest,
            ..pseudo("")
        };
        let stack = Stack { frames: vec![Arc::new(frame)], truncated: None, site: 0 };
        assert_eq!(rules("leak:main").rule(&stack), None);
    }
}
