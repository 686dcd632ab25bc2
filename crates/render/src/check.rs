//! `check` and the gates of `run`: which limits a recording keeps.

use std::io::{self, Write};
use std::path::Path;

use highwater_query::leaks::gates::Gate;
use highwater_query::{Group, stack};

use crate::human::{bytes, count};
use crate::json::Json;
use crate::{Look, gcc, github, junit, modes, parts, place, sarif};

/// Sites that the text names below a gate that failed.
const SHOWN: usize = 3;

fn amount(gate: &Gate, value: u64) -> String {
    if gate.bytes { bytes(value) } else { count(value) }
}

/// `max-peak of function parse_*`.
fn name(gate: &Gate) -> String {
    match &gate.of {
        Some(of) => format!("{} of {of}", gate.name),
        None => gate.name.to_string(),
    }
}

/// `300 B, limit 10 B`, or why there is no value.
fn verdict(gate: &Gate) -> String {
    match &gate.unknown {
        Some(reason) => reason.clone(),
        None if gate.error95 > 0 => {
            let (value, error) = (amount(gate, gate.value), amount(gate, gate.error95));
            format!("{value} +-{error}, limit {}", amount(gate, gate.limit))
        }
        None => format!("{}, limit {}", amount(gate, gate.value), amount(gate, gate.limit)),
    }
}

/// A line for each gate; below one that failed, who has most of it.
pub fn lines(look: &Look, gates: &[Gate]) -> Vec<String> {
    let bad = look.palette.bad;
    let mut lines = Vec::new();
    for gate in gates {
        if gate.passed() {
            lines.push(format!("passed  {}: {}", name(gate), verdict(gate)));
            continue;
        }
        lines.push(format!("{bad}FAILED{bad:#}  {}: {}", name(gate), verdict(gate)));
        for (at, group) in gate.sites.iter().take(SHOWN).enumerate() {
            let word = if at == 0 { "most by " } else { "then by " };
            let width = look.width.saturating_sub(18 + 11);
            let site = parts::site_text(look, &group.stack, width);
            let amount = if gate.bytes { bytes(group.bytes) } else { count(group.blocks) };
            lines.push(format!("        {word}{site}: {amount}"));
        }
    }
    lines
}

/// Writes the [`lines`].
///
/// # Errors
/// The output's.
pub fn text<W: Write>(out: &mut W, look: &Look, gates: &[Gate]) -> io::Result<()> {
    lines(look, gates).iter().try_for_each(|line| writeln!(out, "{line}"))
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
        if let Some(of) = &gate.of {
            json.field_str("of", of)?;
        }
        json.field_u64("limit", gate.limit)?;
        json.field_u64("value", gate.value)?;
        if gate.error95 > 0 {
            json.field_u64("error95", gate.error95)?;
        }
        json.field_str("unit", if gate.bytes { "bytes" } else { "count" })?;
        json.field_bool("passed", gate.passed())?;
        if let Some(reason) = &gate.unknown {
            json.field_str("reason", reason)?;
        }
        if let Some(worst) = gate.sites.first() {
            json.key("site")?;
            json_group(&mut json, worst)?;
            json.key("sites")?;
            json.begin_array()?;
            for group in &gate.sites {
                json_group(&mut json, group)?;
            }
            json.end_array()?;
        }
        json.end_object()?;
    }
    json.end_array()?;
    json.finish()?;
    Ok(())
}

fn json_group<W: Write>(json: &mut Json<W>, group: &Group) -> io::Result<()> {
    json.begin_object()?;
    parts::json_site(json, group.stack.site())?;
    json.field_u64("bytes", group.bytes)?;
    json.field_u64("blocks", group.blocks)?;
    modes::json_error(json, group.variance)?;
    parts::json_stack(json, &group.stack)?;
    json.end_object()
}

/// What failed, a sentence and a place each: of a gate that names leaks every
/// site, of another the one that has most.
fn failures(gates: &[Gate]) -> Vec<sarif::Failure<'_>> {
    let mut list = Vec::new();
    for gate in gates.iter().filter(|gate| !gate.passed()) {
        let text = format!("{}: {}", name(gate), verdict(gate));
        let named = if names_each(gate) { gate.sites.len() } else { gate.sites.len().min(1) };
        if named == 0 {
            list.push(sarif::Failure { rule: gate.name, text, group: None });
            continue;
        }
        for group in gate.sites.iter().take(named) {
            let by = group.stack.site().map_or_else(|| "[no stack]".to_string(), stack::function_name);
            let part =
                if gate.bytes { place::amount(group.bytes, group.blocks) } else { count(group.blocks) };
            let text = format!("{text}; {part} by {by}");
            list.push(sarif::Failure { rule: gate.name, text, group: Some(group) });
        }
    }
    list
}

/// Is each site of the gate a failure of its own?
fn names_each(gate: &Gate) -> bool {
    gate.limit == 0 && gate.unknown.is_none()
}

/// Writes what failed as SARIF 2.1.0; files are relative to `base`.
///
/// # Errors
/// The output's.
pub fn sarif<W: Write>(out: &mut W, gates: &[Gate], base: &Path) -> io::Result<()> {
    sarif::write_failures(out, &failures(gates), base)
}

/// Writes what failed as a compiler writes its errors.
///
/// # Errors
/// The output's.
pub fn gcc<W: Write>(out: &mut W, gates: &[Gate]) -> io::Result<()> {
    for gate in gates.iter().filter(|gate| !gate.passed()) {
        if gate.bytes && names_each(gate) {
            gcc::write(out, &gate.sites)?;
            continue;
        }
        let at = gate.sites.first().map_or_else(|| "[program]".to_string(), gcc::at);
        writeln!(out, "{at}: error: {}: {}", name(gate), verdict(gate))?;
    }
    Ok(())
}

/// Writes the gates as JUnit XML: a case each.
///
/// # Errors
/// The output's.
pub fn junit<W: Write>(out: &mut W, gates: &[Gate], base: &Path, program: &str) -> io::Result<()> {
    let cases: Vec<junit::Case> = gates
        .iter()
        .map(|gate| {
            let stacks: Vec<String> =
                gate.sites.iter().take(SHOWN).map(|group| place::callers(&group.stack, base)).collect();
            let failure = (!gate.passed()).then(|| (verdict(gate), stacks.join("\n\n")));
            junit::Case { class: program.to_string(), name: name(gate), failure }
        })
        .collect();
    junit::suite(out, "highwater check", &cases)
}

/// Writes an annotation for each failure.
///
/// # Errors
/// The output's.
pub fn github<W: Write>(out: &mut W, gates: &[Gate], base: &Path) -> io::Result<()> {
    for failure in failures(gates) {
        let site = failure.group.and_then(|group| group.stack.site());
        let at = site.and_then(|frame| Some((place::relative(frame.file.as_deref()?, base), frame.line)));
        let text = match failure.group {
            Some(group) => format!("{}\n{}", failure.text, place::callers(&group.stack, base)),
            None => failure.text,
        };
        github::annotation(out, "error", at, &format!("highwater {}", failure.rule), &text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates() -> [Gate; 3] {
        let gate = |name, limit, value, bytes, sites| Gate {
            name,
            of: None,
            limit,
            value,
            error95: 0,
            bytes,
            sites,
            unknown: None,
        };
        [
            gate("max-leak", 0, 330, true, crate::place::tests::groups()),
            gate("max-allocs", 3, 3, false, Vec::new()),
            Gate { unknown: Some("not scanned: no".into()), ..gate("leak=definite", 0, 0, true, Vec::new()) },
        ]
    }

    fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_document_and_the_lines_say_the_same() {
        let value: serde_json::Value = serde_json::from_str(&written(|out| json(out, &gates()))).unwrap();
        assert_eq!(value["schema"], "highwater.check/1");
        assert_eq!(value["passed"], false);
        assert_eq!(value["gates"][0]["site"]["line"], 70);
        assert_eq!(value["gates"][0]["sites"].as_array().unwrap().len(), 2);
        assert_eq!(value["gates"][1]["passed"], true);
        assert_eq!(value["gates"][2]["passed"], false);
        let text = written(|out| text(out, &Look::new(false, None), &gates()));
        assert!(text.starts_with("FAILED  max-leak: 330 B, limit 0 B\n        most by "), "{text}");
        assert!(
            text.contains("other (/usr/include/b.h:9): 30 B\npassed  max-allocs: 3, limit 3\n"),
            "{text}"
        );
        assert!(text.ends_with("FAILED  leak=definite: not scanned: no\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn every_format_has_every_failure_and_nothing_that_passed() {
        let base = Path::new("/src");
        let log: serde_json::Value =
            serde_json::from_str(&written(|out| sarif(out, &gates(), base))).unwrap();
        let results = log["runs"][0]["results"].as_array().unwrap();
        let rules: Vec<&str> = results.iter().map(|result| result["ruleId"].as_str().unwrap()).collect();
        assert_eq!(rules, ["max-leak", "max-leak", "leak=definite"]);
        assert_eq!(results[0]["locations"][0]["physicalLocation"]["region"]["startLine"], 70);
        assert_eq!(results[2]["locations"], serde_json::json!([]));

        let xml = written(|out| junit(out, &gates(), base, "app"));
        assert!(xml.contains("tests=\"3\" failures=\"2\""), "{xml}");
        assert!(xml.contains("name=\"max-allocs\"/>"), "{xml}");
        assert!(xml.contains("message=\"330 B, limit 0 B\""), "{xml}");

        let errors = written(|out| gcc(out, &gates()));
        assert_eq!(
            errors,
            "/src/a dir/50%,x.cc:70: error: 300 bytes leaked here\n\
             /usr/include/b.h:9: error: 30 bytes leaked here\n\
             [program]: error: leak=definite: not scanned: no\n"
        );

        let lines = written(|out| github(out, &gates(), base));
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].starts_with("::error file=/usr/include/b.h,line=9,title=highwater max-leak::"),
            "{}",
            lines[1]
        );
        assert!(
            lines[2].starts_with("::error title=highwater leak=definite::leak=definite: not"),
            "{}",
            lines[2]
        );
    }
}
