//! Limits of single sites: what the blocks of a function, a file or a module
//! may take.

use highwater_replay::SiteTotals;

use super::gates::Limits;
use crate::glob;
use crate::stack::{Stack, base_name, function, function_name};

/// Whose limits: globs that the frame to blame has to fit, all that are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    /// Its function.
    pub function: Option<String>,
    /// Its file, or `file:line`.
    pub file: Option<String>,
    /// Its module.
    pub module: Option<String>,
}

impl Whose {
    /// Is nothing asked?
    pub fn is_empty(&self) -> bool {
        *self == Whose::default()
    }

    /// Does the site of this stack fit?
    pub fn fits(&self, stack: &Stack) -> bool {
        let Some(frame) = stack.site() else { return false };
        let by = |pattern: &Option<String>, texts: &[&str]| {
            pattern.as_deref().is_none_or(|pattern| texts.iter().any(|text| glob::matches(pattern, text)))
        };
        let name = function(frame).map_or_else(|| function_name(frame), str::to_string);
        let file = frame.file.as_deref().unwrap_or("");
        let line = format!("{file}:{}", frame.line.unwrap_or(0));
        by(&self.function, &[&name])
            && by(&self.file, &[file, base_name(file), &line, base_name(&line)])
            && by(&self.module, &[&frame.module, base_name(&frame.module)])
    }

    /// As words: `function parse_*`.
    pub fn text(&self) -> String {
        let part = |what: &str, pattern: &Option<String>| {
            pattern.as_ref().map(|pattern| format!("{what} {pattern}"))
        };
        [part("function", &self.function), part("file", &self.file), part("module", &self.module)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Limits of the sites that fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteBudget {
    /// Which.
    pub whose: Whose,
    /// What they may take together.
    pub limits: Limits,
}

/// What sites took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes at the program's peak.
    pub peak: u64,
    /// Variance of that, where it is an estimate from a sample.
    pub peak_variance: u64,
    /// Bytes alive at the end and not suppressed.
    pub leak: u64,
    /// Variance of that.
    pub leak_variance: u64,
    /// Allocations.
    pub allocs: u64,
    /// Temporary allocations.
    pub temporary: u64,
}

impl Taken {
    /// One more site. What it leaves counts unless it is suppressed.
    pub fn add(&mut self, site: &SiteTotals, suppressed: bool) {
        self.peak = self.peak.saturating_add(site.peak_bytes);
        self.peak_variance = self.peak_variance.saturating_add(site.peak_variance);
        if !suppressed {
            self.leak = self.leak.saturating_add(site.live_bytes);
            self.leak_variance = self.leak_variance.saturating_add(site.live_variance);
        }
        self.allocs += site.allocations;
        self.temporary += site.temporary;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    #[test]
    fn every_glob_that_is_given_has_to_fit() {
        let stack = Made::default().node(1, 0, "parse_header", "/src/net/parse.c", 7).session().stack(1);
        let whose = |function: &str, file: &str, module: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_string());
            Whose { function: some(function), file: some(file), module: some(module) }
        };
        for (function, file, module, fits) in [
            ("parse_*", "", "", true),
            ("parse_?", "", "", false),
            ("header", "", "", true),
            ("", "parse.*", "", true),
            ("", "*/net/*.c", "", true),
            ("", "parse.c:7", "", true),
            ("", "*parse.c:8", "", false),
            ("parse_*", "scan.*", "", false),
            ("parse_*", "", "app", true),
            ("", "", "lib*", false),
        ] {
            assert_eq!(whose(function, file, module).fits(&stack), fits, "{function} {file} {module}");
        }
        assert_eq!(whose("a*", "", "app").text(), "function a*, module app");
    }
}
