//! What users read: text and JSON of every view, and the lines that end a run.
//!
//! Every view is a module with a `text` and a `json` function that write to any
//! [`std::io::Write`]; none reads a file's bytes itself, decides about colours
//! or knows a command line. JSON keys are a promise to scripts; text is not.
//!
//! | module | document |
//! |---|---|
//! | [`stats`] | `highwater.stats/1` |
//! | [`dump`] | `highwater.dump/1` |
//! | [`history`] | `highwater.history/1` |
//! | [`sites`] | `highwater.peak/1`, `highwater.leaks/1` |
//! | [`suspects`] | the ranked part of `highwater.leaks/1` |
//! | [`spark`] | a curve in one line |
//! | [`errors`] | `highwater.errors/1` |
//! | [`threads`] | `highwater.threads/1` |
//! | [`tree`] | `highwater.tree/1` |
//! | [`own`] | `highwater.self/1`: the recorder's and the agent's own counters |
//! | [`reach`] | `highwater.leaks/1` of a scan |
//! | [`who`] | `highwater.who/1`: who points to a block |
//! | [`run_summary`] | the lines at the end of `highwater run` |
//! | [`notices`] | what a reader must know first: damage, losses |
//! | [`modes`] | what was left out on purpose, how sure estimates are |
//! | [`count`] | `highwater.count/1` |
//! | [`diff`] | `highwater.diff/1` |
//! | [`check`] | `highwater.check/1` |
//! | [`finding`] | what the formats for editors and CI list |
//! | [`gcc`], [`github`], [`junit`], [`sarif`] | leaks for editors and for CI |
//! | [`place`] | where a site is, as those want it |
//! | [`findleaks`] | the report of the article's `findleaks` script |
//! | [`status`] | `highwater.status/1`: recordings that are going on |
//! | [`windows`] | `highwater.leaks/1` of `--method window` |
//! | [`rows`], [`csv`] | every view as rows, for `--csv` and `-f` |
//! | [`look`] | colours and width |
//! | [`human`] | sizes, counts, times, long names |
//! | [`json`] | the streaming JSON writer |

pub mod check;
pub mod count;
pub mod csv;
pub mod diff;
pub mod dump;
pub mod errors;
pub mod finding;
pub mod findleaks;
pub mod gcc;
pub mod github;
pub mod history;
pub mod human;
pub mod json;
pub mod junit;
pub mod look;
pub mod modes;
pub mod notices;
pub mod own;
pub mod place;
pub mod reach;
pub mod rows;
pub mod run_summary;
pub mod sarif;
pub mod sites;
pub mod spark;
pub mod stats;
pub mod status;
pub mod suspects;
pub mod threads;
pub mod tree;
pub mod who;
pub mod windows;

mod parts;

#[cfg(test)]
mod golden;

pub use look::{Look, Palette};

/// Why a view cannot be shown.
#[derive(Debug)]
pub enum RenderError {
    /// The output takes no more (a closed pipe, a full disk).
    Write(std::io::Error),
    /// The trace cannot be read.
    Query(highwater_query::QueryError),
}

impl std::fmt::Display for RenderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RenderError::Write(error) => write!(f, "cannot write the output: {error}"),
            RenderError::Query(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RenderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RenderError::Write(error) => Some(error),
            RenderError::Query(error) => Some(error),
        }
    }
}

impl From<std::io::Error> for RenderError {
    fn from(error: std::io::Error) -> Self {
        RenderError::Write(error)
    }
}

impl From<highwater_query::QueryError> for RenderError {
    fn from(error: highwater_query::QueryError) -> Self {
        RenderError::Query(error)
    }
}

impl From<highwater_trace::TraceError> for RenderError {
    fn from(error: highwater_trace::TraceError) -> Self {
        RenderError::Query(error.into())
    }
}
