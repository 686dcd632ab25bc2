//! What a reader must know before the numbers: damage and losses.

use highwater_query::Stats;

/// One line for each thing that makes the recording less than whole; the
/// caller prints them to stderr above a text view. Empty for a whole one.
pub fn lines(stats: &Stats) -> Vec<String> {
    stats.incomplete.iter().map(|reason| format!("note: {reason}")).collect()
}
