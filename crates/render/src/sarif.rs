//! Leaks as SARIF 2.1.0, the OASIS format of analysis results.

use std::io::{self, Write};
use std::path::Path;

use highwater_query::stack::{function_name, is_pseudo};
use highwater_query::{Frame, Group, Stack};
use serde_json::{Map, Value, json};

use crate::finding::Finding;
use crate::place;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
/// Frames that make a leak the same in the next recording.
const IDENTITY_FRAMES: usize = 5;

/// A path as the path of a URI (RFC 3986): what may not stand there as %XX.
fn uri_path(path: &str) -> String {
    use std::fmt::Write;
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(byte.into())
            }
            // Writing to a string cannot fail.
            _ => _ = write!(uri, "%{byte:02X}"),
        }
    }
    uri
}

fn file_uri(path: &str) -> String {
    format!("file://{}", uri_path(path))
}

/// What stays the same when lines move and addresses change: the functions and
/// files from the frame to blame outwards, as FNV-1a.
fn fingerprint(stack: &Stack, base: &Path) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let frames = stack.frames.iter().skip(stack.site).filter(|frame| !is_pseudo(frame));
    for frame in frames.take(IDENTITY_FRAMES) {
        let file =
            frame.file.as_deref().map_or_else(|| place::module(frame), |file| place::relative(file, base));
        for byte in function_name(frame).bytes().chain([0]).chain(file.bytes()).chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

fn location(frame: &Frame, base: &Path) -> Value {
    let mut location = Map::new();
    if let Some(file) = frame.file.as_deref() {
        let short = place::relative(file, base);
        let artifact = if short.starts_with('/') {
            json!({"uri": file_uri(short)})
        } else {
            json!({"uri": uri_path(short), "uriBaseId": "SRCROOT"})
        };
        let mut physical = json!({"artifactLocation": artifact});
        if let (Some(line), Some(map)) = (frame.line.filter(|&line| line > 0), physical.as_object_mut()) {
            let mut region = json!({"startLine": line});
            if let (Some(column), Some(map)) = (frame.column.filter(|&c| c > 0), region.as_object_mut()) {
                map.insert("startColumn".into(), column.into());
            }
            map.insert("region".into(), region);
        }
        location.insert("physicalLocation".into(), physical);
    }
    location.insert(
        "logicalLocations".into(),
        json!([{"fullyQualifiedName": function_name(frame), "kind": "function"}]),
    );
    location.insert("message".into(), json!({"text": function_name(frame)}));
    Value::Object(location)
}

/// A gate that a recording failed.
#[derive(Clone, Debug)]
pub struct Failure<'a> {
    /// The gate: the rule that was broken.
    pub rule: &'a str,
    /// How, as a sentence.
    pub text: String,
    /// Where.
    pub group: Option<&'a Group>,
}

fn result(rule: &str, index: usize, text: String, group: Option<&Group>, base: &Path) -> Value {
    let mut value = json!({
        "ruleId": rule,
        "ruleIndex": index,
        "level": "error",
        "message": {"text": text},
        "locations": [],
    });
    let (Some(map), Some(group)) = (value.as_object_mut(), group) else { return value };
    let stack = &*group.stack;
    let frames: Vec<Value> = stack
        .frames
        .iter()
        .map(|frame| {
            let mut value = json!({"location": location(frame, base)});
            if let Some(map) = value.as_object_mut().filter(|_| !frame.module.is_empty()) {
                map.insert("module".into(), place::module(frame).into());
            }
            value
        })
        .collect();
    let site = stack.site().map(|site| location(site, base)).into_iter().collect::<Vec<_>>();
    map.insert("locations".into(), site.into());
    map.insert("partialFingerprints".into(), json!({"highwaterStack/v1": fingerprint(stack, base)}));
    map.insert("stacks".into(), json!([{"message": {"text": "allocated by"}, "frames": frames}]));
    map.insert("occurrenceCount".into(), group.blocks.max(1).into());
    map.insert("properties".into(), json!({"bytes": group.bytes, "blocks": group.blocks}));
    value
}

/// Writes the log. Files below `base` (an absolute folder: the repository) have
/// URIs relative to `SRCROOT`, which is `base`.
///
/// # Errors
/// The output's.
pub fn write<W: Write>(out: &mut W, findings: &[impl Finding], base: &Path) -> io::Result<()> {
    let rules = json!([{
        "id": "leak",
        "name": "MemoryLeak",
        "shortDescription": {"text": "Memory that is never given back"},
        "fullDescription": {"text": "Blocks from this place were not given back, or grow in number."},
        "defaultConfiguration": {"level": "error"},
    }]);
    let results = findings
        .iter()
        .map(|finding| {
            let group = finding.group();
            let by = group.stack.site().map_or_else(|| "an unknown function".to_string(), function_name);
            let amount = place::amount(group.bytes, group.blocks);
            let text = format!("{amount} leaked by {by}: {}{}.", finding.fate(), finding.remark());
            let mut value = result("leak", 0, text, Some(group), base);
            if let Some(map) = value.as_object_mut() {
                map.insert("level".into(), finding.level().into());
            }
            if let (Some(verdict), Some(map)) =
                (finding.verdict(), value.pointer_mut("/properties").and_then(Value::as_object_mut))
            {
                map.insert("verdict".into(), verdict.name().into());
            }
            value
        })
        .collect();
    log(out, rules, results, base)
}

/// Writes gates that failed as a log: a rule a gate.
///
/// # Errors
/// The output's.
pub fn write_failures<W: Write>(out: &mut W, failures: &[Failure<'_>], base: &Path) -> io::Result<()> {
    let mut names: Vec<&str> = Vec::new();
    for failure in failures {
        if !names.contains(&failure.rule) {
            names.push(failure.rule);
        }
    }
    let rules = names
        .iter()
        .map(|name| {
            json!({
                "id": name,
                "shortDescription": {"text": format!("The gate {name}")},
                "fullDescription": {"text": format!("The recording does not keep the limit of the gate {name}.")},
                "defaultConfiguration": {"level": "error"},
            })
        })
        .collect();
    let results = failures
        .iter()
        .map(|failure| {
            let index = names.iter().position(|name| *name == failure.rule).unwrap_or(0);
            result(failure.rule, index, failure.text.clone(), failure.group, base)
        })
        .collect();
    log(out, rules, results, base)
}

fn log<W: Write>(out: &mut W, rules: Value, results: Vec<Value>, base: &Path) -> io::Result<()> {
    let mut root = file_uri(&base.to_string_lossy());
    if !root.ends_with('/') {
        root.push('/');
    }
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "highwater",
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "originalUriBaseIds": {"SRCROOT": {"uri": root}},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    serde_json::to_writer_pretty(&mut *out, &log)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(base: &str) -> Value {
        let mut out = Vec::new();
        write(&mut out, &place::tests::groups(), Path::new(base)).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn what_the_schema_asks_for_is_there() {
        let log = log("/src");
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["name"], "highwater");
        assert_eq!(run["originalUriBaseIds"]["SRCROOT"]["uri"], "file:///src/");
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        for result in results {
            let rule = &run["tool"]["driver"]["rules"][result["ruleIndex"].as_u64().unwrap() as usize];
            assert_eq!(rule["id"], result["ruleId"]);
            assert!(result["message"]["text"].is_string());
            assert!(!result["stacks"][0]["frames"].as_array().unwrap().is_empty());
        }
        let place = &results[0]["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"], json!({"uri": "a%20dir/50%25%2Cx.cc", "uriBaseId": "SRCROOT"}));
        assert_eq!(place["region"]["startLine"], 70);
        assert_eq!(results[0]["stacks"][0]["frames"][1]["location"]["message"]["text"], "main");
        let elsewhere = &results[1]["locations"][0]["physicalLocation"]["artifactLocation"];
        assert_eq!(*elsewhere, json!({"uri": "file:///usr/include/b.h"}));
    }

    #[test]
    fn fingerprints_tell_leaks_apart_and_outlive_a_moved_line() {
        let groups = place::tests::groups();
        let base = Path::new("/src");
        let of = |stack: &Stack| fingerprint(stack, base);
        let mut moved = (*groups[0].stack).clone();
        for frame in &mut moved.frames {
            let frame = std::sync::Arc::make_mut(frame);
            frame.line = frame.line.map(|line| line + 11);
            frame.address += 4096;
        }
        assert_eq!(of(&groups[0].stack), of(&moved));
        assert_ne!(of(&groups[0].stack), of(&groups[1].stack));
    }
}
