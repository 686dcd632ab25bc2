//! What the formats for editors and CI list: a site, and how sure it is that it
//! leaks.

use highwater_query::Group;
use highwater_query::leaks::actions::{Actions, Kept};
use highwater_query::leaks::rank::{Ranking, Suspect, Verdict};

/// Something that those formats list.
pub trait Finding {
    /// The site and its amounts.
    fn group(&self) -> &Group;

    /// What it was judged to be, where it was judged.
    fn verdict(&self) -> Option<Verdict> {
        None
    }

    /// What became of the blocks, or why they count: half a sentence.
    fn fate(&self) -> String {
        "alive at the end, never given back".to_string()
    }

    /// Is it suspected? Else it is listed only because it is alive at the end.
    fn is_suspected(&self) -> bool {
        true
    }

    /// The severity, as compilers, SARIF and GitHub call it.
    fn level(&self) -> &'static str {
        if self.is_suspected() { "error" } else { "warning" }
    }

    /// ` (VERDICT)` where that says more than "leaked" does.
    fn remark(&self) -> String {
        match self.verdict() {
            Some(verdict) if !self.is_suspected() => format!(" ({})", verdict.name()),
            _ => String::new(),
        }
    }
}

impl Finding for Group {
    fn group(&self) -> &Group {
        self
    }
}

/// What windows left behind, by [`Actions::all`].
#[derive(Clone, Copy, Debug)]
pub struct Left<'a>(&'a Kept);

impl<'a> Left<'a> {
    /// The sites that survive in every window.
    pub fn of(actions: &'a Actions) -> Vec<Left<'a>> {
        actions.all.iter().map(Left).collect()
    }
}

impl Finding for Left<'_> {
    fn group(&self) -> &Group {
        &self.0.group
    }

    fn fate(&self) -> String {
        self.0.reason()
    }
}

/// A judged site.
#[derive(Clone, Debug)]
pub struct Judged {
    group: Group,
    verdict: Verdict,
    reason: String,
    suspected: bool,
}

impl Finding for Judged {
    fn group(&self) -> &Group {
        &self.group
    }

    fn verdict(&self) -> Option<Verdict> {
        Some(self.verdict)
    }

    fn fate(&self) -> String {
        self.reason.clone()
    }

    fn is_suspected(&self) -> bool {
        self.suspected
    }
}

impl Judged {
    /// The suspects; behind them the other sites that have something alive at the
    /// very end, with what that is. Where a scan found that it is still reachable,
    /// it is listed only if `all` are wanted.
    pub fn of(ranking: &Ranking, scanned: bool, all: bool) -> Vec<Judged> {
        let of = |suspect: &Suspect, suspected| Judged {
            group: suspect.group.clone(),
            verdict: suspect.verdict,
            reason: suspect.reason.clone(),
            suspected,
        };
        let suspects = ranking.suspects.iter().map(|suspect| of(suspect, true));
        let kept = ranking.folded.iter().filter(|suspect| {
            let signs = &suspect.signs;
            let reachable = scanned && signs.found.lost_blocks() + signs.found.possible_blocks == 0;
            signs.exit_blocks > 0 && (all || !reachable)
        });
        let kept = kept.map(|suspect| of(suspect, false));
        suspects.chain(kept).collect()
    }
}
