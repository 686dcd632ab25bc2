//! What a reader must know before the numbers: damage, losses, and what was left
//! out on purpose.

use highwater_query::Stats;

/// One line for each thing that makes the recording less than all that happened; the
/// caller prints them to stderr above a text view. Empty for a whole one.
pub fn lines(stats: &Stats) -> Vec<String> {
    let on_purpose = crate::modes::sentences(stats);
    stats.incomplete.iter().chain(&on_purpose).map(|reason| format!("note: {reason}")).collect()
}
