//! The table `[budget]` of a `highwater.toml`.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use highwater_query::leaks::baseline::Tolerance;
use highwater_query::leaks::budget::{SiteBudget, Whose};
use highwater_query::leaks::gates::{FailOn, Limits};
use serde::Deserialize;

use crate::config;

/// What a budget asks for.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// Limits of the whole program.
    pub limits: Limits,
    /// Limits of single sites.
    pub sites: Vec<SiteBudget>,
    /// What must not be.
    pub fail_on: Vec<FailOn>,
    /// What is known.
    pub baseline: Option<PathBuf>,
    /// How much more than a limit passes.
    pub tolerance: Option<Tolerance>,
    /// Files of what does not count.
    pub suppressions: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Whole {
    budget: Option<Table>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Table {
    max_peak: Option<Amount>,
    max_leak: Option<Amount>,
    max_allocs: Option<Amount>,
    max_temporary: Option<Amount>,
    #[serde(default)]
    fail_on: OneOrMore,
    baseline: Option<PathBuf>,
    tolerance: Option<Amount>,
    #[serde(default)]
    suppressions: OneOrMore,
    #[serde(default)]
    site: Vec<Site>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Site {
    function: Option<String>,
    file: Option<String>,
    module: Option<String>,
    max_peak: Option<Amount>,
    max_leak: Option<Amount>,
    max_allocs: Option<Amount>,
    max_temporary: Option<Amount>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(u64),
    Text(String),
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Amount::Number(number) => number.to_string(),
            Amount::Text(text) => text.clone(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    #[default]
    None,
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn list(self) -> Vec<String> {
        match self {
            OneOrMore::None => Vec::new(),
            OneOrMore::One(one) => vec![one],
            OneOrMore::More(list) => list,
        }
    }
}

/// The budget of the nearest `highwater.toml` that has one.
///
/// # Errors
/// It cannot be read or makes no sense.
pub fn find() -> anyhow::Result<Option<Budget>> {
    for path in config::files() {
        if let Some(budget) = read(&path)? {
            return Ok(Some(budget));
        }
    }
    Ok(None)
}

/// The budget of a file; `None` if it has no such table. Paths in it are
/// relative to its folder.
///
/// # Errors
/// It cannot be read or makes no sense.
pub fn read(path: &Path) -> anyhow::Result<Option<Budget>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole: Whole = toml::from_str(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    let Some(table) = whole.budget else { return Ok(None) };
    let folder = path.parent().unwrap_or(Path::new(""));
    budget(table, folder).with_context(|| path.display().to_string()).map(Some)
}

fn budget(table: Table, folder: &Path) -> anyhow::Result<Budget> {
    let mut sites = Vec::new();
    for site in &table.site {
        let whose =
            Whose { function: site.function.clone(), file: site.file.clone(), module: site.module.clone() };
        if whose.is_empty() {
            bail!("[[budget.site]]: say whose limits these are: function, file or module");
        }
        let limits = limits([&site.max_peak, &site.max_leak, &site.max_allocs, &site.max_temporary])?;
        if limits.is_empty() {
            bail!("[[budget.site]] of {}: there is no limit in it", whose.text());
        }
        sites.push(SiteBudget { whose, limits });
    }
    let bad = |key: &'static str| move |reason: String| anyhow!("{key}: {reason}");
    let tolerance = table.tolerance.map(|text| text.text().parse()).transpose().map_err(bad("tolerance"))?;
    let fail_on = table.fail_on.list().iter().map(|word| word.parse()).collect::<Result<_, _>>();
    Ok(Budget {
        limits: limits([&table.max_peak, &table.max_leak, &table.max_allocs, &table.max_temporary])?,
        sites,
        fail_on: fail_on.map_err(bad("fail-on"))?,
        baseline: table.baseline.map(|path| folder.join(path)),
        tolerance,
        suppressions: table.suppressions.list().iter().map(|path| folder.join(path)).collect(),
    })
}

fn limits(values: [&Option<Amount>; 4]) -> anyhow::Result<Limits> {
    let [max_peak, max_leak, max_allocs, max_temporary] = values.map(|value| match value {
        None => Ok(None),
        Some(Amount::Number(number)) => Ok(Some(*number)),
        Some(Amount::Text(text)) => {
            let size = highwater_query::units::size(text);
            size.map(Some).ok_or_else(|| anyhow!("`{text}` is no size; write 4096, \"64k\" or \"1.5MiB\""))
        }
    });
    Ok(Limits {
        max_peak: max_peak?,
        max_leak: max_leak?,
        max_allocs: max_allocs?,
        max_temporary: max_temporary?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> anyhow::Result<Option<Budget>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("highwater.toml");
        std::fs::write(&path, text)?;
        read(&path)
    }

    #[test]
    fn a_budget_is_read_and_the_rest_of_the_file_is_left_alone() {
        let budget =
            of("[run]\ndepth = 3\n[budget]\nmax-peak = \"64MiB\"\nmax-leak = 0\nfail-on = \"error\"\n\
                         tolerance = \"5%\"\nsuppressions = [\"known.supp\"]\n\
                         [[budget.site]]\nfunction = \"parse_*\"\nmax-allocs = 10\n")
            .unwrap()
            .unwrap();
        assert_eq!((budget.limits.max_peak, budget.limits.max_leak), (Some(64 << 20), Some(0)));
        assert_eq!(budget.fail_on[0].0.len(), 3);
        assert_eq!(budget.tolerance, Some(Tolerance::Percent(5.0)));
        assert!(budget.suppressions[0].is_absolute() && budget.suppressions[0].ends_with("known.supp"));
        assert_eq!(budget.sites[0].whose.text(), "function parse_*");
        assert_eq!(budget.sites[0].limits.max_allocs, Some(10));
        assert!(of("[run]\ndepth = 3\n").unwrap().is_none());
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_place() {
        for (text, reason) in [
            ("[budget]\nmax-peek = 3\n", "max-peek"),
            ("[budget]\nmax-peak = \"many\"\n", "`many` is no size"),
            ("[budget]\nmax-peak = -1\n", "max-peak"),
            ("[budget]\nfail-on = [\"leeks\"]\n", "`leeks` is nothing to fail on"),
            ("[budget]\ntolerance = \"x\"\n", "`x` is no tolerance"),
            ("[[budget.site]]\nmax-peak = 1\n", "say whose"),
            ("[[budget.site]]\nfunction = \"f\"\n", "no limit"),
            ("[budget", "highwater.toml"),
        ] {
            let error = format!("{:#}", of(text).unwrap_err());
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
