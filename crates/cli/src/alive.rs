//! The options of all views on what `leaks` lists: blocks alive at an instant
//! that pass a filter, in groups, sorted, for programs.

use std::collections::HashSet;

use anyhow::bail;
use highwater_query::leaks::rank::Ranking;
use highwater_query::leaks::report::{self, Leaks};
use highwater_query::leaks::suppressions::Suppressions;
use highwater_query::sort::OF_GROUPS;
use highwater_query::{By, Item, Session, group};

use crate::output;
use crate::view::{self, Output, SelectArgs, ShowArgs};

/// Options that `leaks` has in common with the other views.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AliveArgs {
    /// Only what fits, as in other views: thread=2, size=4k..1MiB, age=10s.., function=parse*; may be
    /// repeated
    #[arg(short = 'F', value_name = "KEY=VALUE")]
    filter: Vec<String>,
    /// List what is alive at this instant: 1.5s, #seqno, @mark, peak, end
    #[arg(long, value_name = "T", conflicts_with_all = ["from", "to", "until", "windows"])]
    at: Option<String>,
    /// The groups as CSV (RFC 4180) with a header row
    #[arg(long, conflicts_with_all = ["json", "format_string"])]
    csv: bool,
    /// A line for each group in these words: %n bytes, %f1 %w1 the stack, {blocks}, {label}, …
    #[arg(short = 'f', value_name = "FORMAT", id = "format_string", conflicts_with = "json")]
    format: Option<String>,
    /// Sort keys of the groups: size, blocks, allocations, name, site, …; -KEY turns a key round
    #[arg(short = 'S', value_name = "KEYS", allow_hyphen_values = true)]
    sort: Option<String>,
    /// Reverse the order
    #[arg(short = 'r')]
    reverse: bool,
}

impl AliveArgs {
    /// Is a list asked for, rather than a ranking?
    pub fn lists(&self) -> bool {
        self.at.is_some() || self.sort.is_some() || self.reverse || self.rows()
    }

    /// Are rows for programs asked for?
    pub fn rows(&self) -> bool {
        self.csv || self.format.is_some()
    }

    /// Is anything of this asked for?
    pub fn is_given(&self) -> bool {
        self.lists() || !self.filter.is_empty()
    }

    /// Refuses these options where a method cannot serve them.
    ///
    /// # Errors
    /// One of them is given.
    pub fn refuse(&self, method: &str) -> anyhow::Result<()> {
        if self.is_given() {
            bail!(
                "-F, --at, -S, -r, -f and --csv are about what is alive at the end; {method} has none of them"
            );
        }
        Ok(())
    }

    fn show(&self) -> ShowArgs {
        ShowArgs {
            csv: self.csv,
            format: self.format.clone(),
            sort: self.sort.clone(),
            reverse: self.reverse,
            ..ShowArgs::default()
        }
    }

    /// What is alive and passes, without what is suppressed.
    ///
    /// # Errors
    /// An option makes no sense; the trace cannot serve it or cannot be read.
    pub fn find(&self, session: &mut Session, by: By, rules: &Suppressions) -> anyhow::Result<Leaks> {
        by.require(session)?;
        let keys = self.show().sort(OF_GROUPS, "")?;
        let items = self.items(session)?;
        let mut leaks = report::of_items(session, items, by, rules);
        if !keys.is_empty() || self.reverse {
            group::sort(session, &mut leaks.groups, &keys, self.reverse);
        }
        Ok(leaks)
    }

    fn items(&self, session: &mut Session) -> anyhow::Result<Vec<Item>> {
        let select = SelectArgs { filter: self.filter.clone(), at: self.at.clone(), ..SelectArgs::default() };
        let filter = select.filter()?;
        let window = select.window(session)?;
        let mut selection = filter.select(session)?;
        let now = view::instant_ns(session, window.to, filter.has_age())?;
        let blocks = view::live(session, window, &mut selection, now)?;
        let rate = session.modes().sample;
        Ok(blocks.iter().map(|block| Item::weighed(block, group::weight(rate, block))).collect())
    }

    /// Leaves only those suspects of whose site a block passes.
    ///
    /// # Errors
    /// As [`AliveArgs::find`].
    pub fn restrict(&self, session: &mut Session, ranking: &mut Ranking) -> anyhow::Result<()> {
        if self.filter.is_empty() {
            return Ok(());
        }
        let items = self.items(session)?;
        let nodes: HashSet<_> = items.iter().map(|item| item.node).collect();
        let sites = nodes.into_iter().flat_map(|node| session.stack(node).frames.clone());
        let sites: HashSet<_> =
            sites.map(|frame| (frame.function.clone(), frame.file.clone(), frame.line)).collect();
        let passes = |group: &highwater_query::Group| {
            let site = group.stack.site();
            site.is_some_and(|site| sites.contains(&(site.function.clone(), site.file.clone(), site.line)))
        };
        ranking.suspects.retain(|suspect| passes(&suspect.group));
        ranking.folded.retain(|suspect| passes(&suspect.group));
        Ok(())
    }

    /// Writes the groups as rows.
    ///
    /// # Errors
    /// The format asks for what there is not; the output's.
    pub fn write(&self, session: &mut Session, leaks: &Leaks, limit: Option<usize>) -> anyhow::Result<()> {
        let output: Output = self.show().output()?;
        let shown = limit.filter(|&limit| limit > 0).unwrap_or(usize::MAX).min(leaks.groups.len());
        view::group_rows(output::stdout(), &output, session, leaks.groups.get(..shown).unwrap_or_default())
    }
}
