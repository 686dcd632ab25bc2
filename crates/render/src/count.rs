//! `count`: the numbers of a run without a trace.

use std::io::{self, Write};

use highwater_event::counted::Counted;

use crate::human::{bytes, count, counted};
use crate::json::Json;

/// The table, a line each.
pub fn lines(counts: &Counted) -> Vec<String> {
    let row = |label: &str, number: u64, size: Option<u64>, note: &str| {
        let size = size.map(bytes).unwrap_or_default();
        format!("  {label:<13} {:>15} {size:>11}  {note}", count(number)).trim_end().to_owned()
    };
    let sized = |label: &str, size: u64, note: &str| {
        format!("  {label:<13} {:>15} {:>11}  {note}", "", bytes(size)).trim_end().to_owned()
    };
    let sure = match counts.peak_uncertainty {
        0 => String::new(),
        off => format!(", +-{}", bytes(off)),
    };
    vec![
        row("allocations", counts.made, Some(counts.made_bytes), "requested"),
        row("frees", counts.freed, None, ""),
        row("reallocations", counts.remade, None, "counted above too"),
        sized("peak", counts.peak, &format!("usable{sure}")),
        row("live at end", counts.made.saturating_sub(counts.freed), Some(counts.live), "usable"),
        format!("  {:<13} {:>15}", "threads", counted(counts.threads, "", "").trim()),
    ]
}

/// The document `highwater.count/1`.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(out: W, counts: &Counted) -> io::Result<()> {
    let mut json = Json::document(out, "count")?;
    json.field_u64("allocations", counts.made)?;
    json.field_u64("frees", counts.freed)?;
    json.field_u64("reallocations", counts.remade)?;
    json.field_u64("bytes_allocated", counts.made_bytes)?;
    json.field_u64("live_blocks", counts.made.saturating_sub(counts.freed))?;
    json.field_u64("live_usable_bytes", counts.live)?;
    json.field_u64("peak_usable_bytes", counts.peak)?;
    json.field_u64("peak_uncertainty", counts.peak_uncertainty)?;
    json.field_u64("threads", counts.threads)?;
    json.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_and_the_document_is_json() {
        let counts = Counted {
            made: 123_456_789_012,
            made_bytes: 1 << 50,
            freed: 123_456_789_000,
            remade: 5,
            live: 1 << 30,
            peak: 1 << 40,
            peak_uncertainty: 196_608,
            threads: 2,
            ..Counted::default()
        };
        let lines = lines(&counts);
        assert!(lines.iter().all(|line| line.len() <= 69), "{lines:#?}");
        assert_eq!(lines[3].trim(), "peak                              1.0 TiB  usable, +-192.0 KiB");
        let mut out = Vec::new();
        json(&mut out, &counts).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&value["live_blocks"], &value["schema"]), (&12.into(), &"highwater.count/1".into()));
    }
}
