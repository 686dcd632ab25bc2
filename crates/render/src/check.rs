//! `check`: which limits a recording keeps.

use std::io::{self, Write};

use highwater_query::leaks::gates::Gate;

use crate::human::{bytes, count};
use crate::json::Json;
use crate::{Look, parts};

fn amount(gate: &Gate, value: u64) -> String {
    if gate.bytes { bytes(value) } else { count(value) }
}

/// Writes a line for each gate; below one that failed, who has most of it.
///
/// # Errors
/// The output's.
pub fn text<W: Write>(out: &mut W, look: &Look, gates: &[Gate]) -> io::Result<()> {
    for gate in gates {
        let (word, value, limit) = (
            if gate.passed() { "passed" } else { "FAILED" },
            amount(gate, gate.value),
            amount(gate, gate.limit),
        );
        writeln!(out, "{word}  {}: {value}, limit {limit}", gate.name)?;
        if let Some(stack) = gate.worst.as_ref().filter(|_| !gate.passed()) {
            writeln!(
                out,
                "        most by {}",
                parts::site_text(look, stack, look.width.saturating_sub(16))
            )?;
        }
    }
    Ok(())
}

/// Writes the document `highwater.check/1`.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(out: W, gates: &[Gate]) -> io::Result<()> {
    let mut json = Json::document(out, "check")?;
    json.field_bool("passed", gates.iter().all(Gate::passed))?;
    json.key("gates")?;
    json.begin_array()?;
    for gate in gates {
        json.begin_object()?;
        json.field_str("gate", gate.name)?;
        json.field_u64("limit", gate.limit)?;
        json.field_u64("value", gate.value)?;
        json.field_bool("passed", gate.passed())?;
        if let Some(stack) = &gate.worst {
            json.key("site")?;
            json.begin_object()?;
            parts::json_site(&mut json, stack.site())?;
            parts::json_stack(&mut json, stack)?;
            json.end_object()?;
        }
        json.end_object()?;
    }
    json.end_array()?;
    json.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_document_and_the_lines_say_the_same() {
        let groups = crate::place::tests::groups();
        let worst = Some(Arc::clone(&groups[0].stack));
        let gates = [
            Gate { name: "max-leak", limit: 10, value: 300, bytes: true, worst },
            Gate { name: "max-allocs", limit: 3, value: 3, bytes: false, worst: None },
        ];
        let mut out = Vec::new();
        json(&mut out, &gates).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["schema"], "highwater.check/1");
        assert_eq!(value["passed"], false);
        assert_eq!(value["gates"][0]["site"]["line"], 70);
        assert_eq!(value["gates"][1]["passed"], true);
        let mut out = Vec::new();
        text(&mut out, &Look::new(false, None), &gates).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("FAILED  max-leak: 300 B, limit 10 B\n        most by "), "{text}");
        assert!(text.ends_with("passed  max-allocs: 3, limit 3\n"), "{text}");
    }
}
