//! `leaks --method window`: what actions left behind.

use std::io::Write;

use anyhow::{anyhow, bail};
use highwater_query::leaks::actions::{self, Actions};
use highwater_query::leaks::suppressions::Suppressions;
use highwater_query::leaks::window::{self, Window};
use highwater_query::{By, Instant, Session};
use highwater_replay::Until;

use crate::output;
use crate::trace;

/// The windows of `leaks`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct WindowArgs {
    /// Only blocks made after this instant (seconds, 120ms, #seqno, @mark)
    #[arg(long, value_name = "T")]
    from: Option<String>,
    /// … and up to this one
    #[arg(long, value_name = "T")]
    to: Option<String>,
    /// … that are still alive at this one [default: the next mark after --to, else the end]
    #[arg(long, value_name = "T")]
    until: Option<String>,
    /// Equal actions: the marks between them (A1,A2,A3), the one name that they have, or what stands before their numbers (A); a site that survives in each is a leak
    #[arg(long, value_name = "MARKS", conflicts_with_all = ["from", "to", "until"])]
    windows: Option<String>,
}

impl WindowArgs {
    /// Is a window asked for by itself?
    pub fn is_given(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.until.is_some() || self.windows.is_some()
    }

    /// What the windows left behind.
    ///
    /// # Errors
    /// There are no such marks, or the trace cannot be read.
    pub fn find(&self, session: &mut Session, by: By, rules: &Suppressions) -> anyhow::Result<Actions> {
        let windows = self.resolve(session)?;
        Ok(actions::find(session, windows, by, rules)?)
    }

    fn resolve(&self, session: &mut Session) -> anyhow::Result<Vec<Window>> {
        let marks = session.facts().marks.clone();
        if let Some(list) = &self.windows {
            return of_list(session, list);
        }
        if !self.is_given() {
            let series = window::series(&marks).ok_or_else(|| {
                anyhow!(
                    "no marks that name equal actions in {}: give --from and --to, or set marks with \
                     `highwater mark` while it is recorded",
                    session.facts().path.display()
                )
            })?;
            return Ok(window::of_series(&marks, &series));
        }
        let mut instant = |text: &Option<String>, default: Until| match text {
            Some(text) => trace::instant(session, text),
            None => Ok(default),
        };
        let from = instant(&self.from, Until::Start)?;
        let to = instant(&self.to, Until::End)?;
        let until = instant(&self.until, window::next_mark(to, &marks))?;
        let text = |text: &Option<String>, default: &str| text.clone().unwrap_or_else(|| default.to_owned());
        let name = format!("{}..{}", text(&self.from, "start"), text(&self.to, "end"));
        Ok(vec![Window { name, from, to, until }])
    }
}

/// The windows of `--windows`: instants between commas, or a series of marks.
fn of_list(session: &mut Session, list: &str) -> anyhow::Result<Vec<Window>> {
    let marks = session.facts().marks.clone();
    let words: Vec<&str> = list.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if let [one] = words.as_slice() {
        let series = one.trim_start_matches('@');
        let windows = window::of_series(&marks, series);
        if windows.is_empty() {
            let known: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
            bail!("--windows {list}: two marks of one name are needed; the marks are: {}", known.join(", "));
        }
        return Ok(windows);
    }
    let mut points = Vec::new();
    for word in words {
        let bare = marks.iter().any(|mark| mark.name == word);
        let instant = if bare {
            Instant::Mark(word.to_owned())
        } else {
            word.parse().map_err(|reason: String| anyhow!("--windows: {reason}"))?
        };
        points.push((word.trim_start_matches('@').to_owned(), session.instant(&instant)?));
    }
    let windows = window::between(&points, &marks);
    if windows.is_empty() {
        bail!("--windows {list}: name two instants or more, with commas between them");
    }
    Ok(windows)
}

/// One line about what the table leaves out.
pub fn tell(found: &Actions) {
    let hidden: u64 = found.rules.values().map(|hidden| hidden.blocks).sum();
    if hidden > 0 {
        let bytes = found.rules.values().map(|hidden| hidden.bytes).sum();
        output::say(&format!("{} suppressed", highwater_render::place::amount(bytes, hidden)));
    }
}

/// Writes the table.
///
/// # Errors
/// The output's.
pub fn text(
    out: &mut impl Write,
    colour: output::Colour,
    session: &Session,
    found: &Actions,
    by: By,
    limit: usize,
) -> anyhow::Result<()> {
    Ok(highwater_render::windows::text(out, &colour.stdout(), session, found, by, limit)?)
}
