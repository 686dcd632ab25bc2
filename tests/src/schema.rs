//! Does a document fit its schema in `docs/schema`?
//!
//! The part of JSON Schema (draft 2020-12) that those files use, and a panic at
//! anything else: a keyword that nobody looks at would be a promise that nobody
//! checks.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The schema of documents `highwater.NAME/1`.
#[track_caller]
pub fn schema(name: &str) -> Value {
    let path = folder().join(format!("highwater.{name}.v1.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Where the schemas are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema")
}

/// What is wrong with a document; nothing if it fits.
pub fn faults(document: &Value, schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    look(document, schema, schema, "", &mut faults);
    faults
}

/// A document that fits the schema that it names; panics if it does not.
#[track_caller]
pub fn document(text: &[u8]) -> Value {
    let document = serde_json::from_slice(text)
        .unwrap_or_else(|error| panic!("no JSON: {error}\n{}", String::from_utf8_lossy(text)));
    expect(&document);
    document
}

/// Panics unless the document fits the schema that it names.
#[track_caller]
pub fn expect(document: &Value) {
    let name = document["schema"].as_str().unwrap_or_else(|| panic!("no schema in {document}"));
    let name = name.strip_prefix("highwater.").and_then(|name| name.strip_suffix("/1"));
    let name = name.unwrap_or_else(|| panic!("the schema of {document}"));
    let faults = faults(document, &schema(name));
    assert!(faults.is_empty(), "{name}: {faults:#?}\n{document}");
}

fn look(value: &Value, schema: &Value, root: &Value, at: &str, faults: &mut Vec<String>) {
    let Some(rules) = schema.as_object() else { panic!("{at}: a schema is an object, not {schema}") };
    for (keyword, rule) in rules {
        let fault = match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" => None,
            "$ref" => {
                let pointer = rule.as_str().and_then(|text| text.strip_prefix('#'));
                let target = pointer.and_then(|pointer| root.pointer(pointer));
                let target = target.unwrap_or_else(|| panic!("{at}: no {rule}"));
                look(value, target, root, at, faults);
                None
            }
            "type" => {
                let names = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                (!names.iter().any(|name| is_a(value, name.as_str().expect("a name of a type"))))
                    .then(|| format!("is no {rule}"))
            }
            "const" => (value != rule).then(|| format!("is not {rule}")),
            "enum" => {
                let known = rule.as_array().expect("a list of values");
                (!known.contains(value)).then(|| format!("is none of {rule}"))
            }
            "minimum" => {
                let least = rule.as_f64().expect("a number");
                value.as_f64().filter(|number| *number < least).map(|_| format!("is below {rule}"))
            }
            "pattern" => {
                assert_eq!(rule, "^0x[0-9a-f]+$", "the only pattern that is known here");
                let hex = |text: &str| {
                    text.strip_prefix("0x").is_some_and(|digits| {
                        !digits.is_empty() && digits.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
                    })
                };
                value.as_str().filter(|text| !hex(text)).map(|_| format!("does not fit {rule}"))
            }
            "required" => {
                let keys = rule.as_array().expect("a list of keys");
                let missing =
                    |key: &&Value| value.is_object() && value.get(key.as_str().unwrap_or("")).is_none();
                keys.iter().find(missing).map(|key| format!("has no {key}"))
            }
            "properties" => {
                for (key, schema) in rule.as_object().expect("schemas by key") {
                    if let Some(inner) = value.get(key) {
                        look(inner, schema, root, &format!("{at}.{key}"), faults);
                    }
                }
                None
            }
            "additionalProperties" => {
                assert!(rules.get("properties").is_none(), "both together are not known here");
                for (key, inner) in value.as_object().into_iter().flatten() {
                    look(inner, rule, root, &format!("{at}.{key}"), faults);
                }
                None
            }
            "items" => {
                for (number, inner) in value.as_array().into_iter().flatten().enumerate() {
                    look(inner, rule, root, &format!("{at}[{number}]"), faults);
                }
                None
            }
            other => panic!("{at}: the keyword `{other}` is not known here"),
        };
        if let Some(fault) = fault {
            faults.push(format!("{at}: {value} {fault}"));
        }
    }
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("no type `{other}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fault_is_found_wherever_it_is() {
        let schema = json!({
            "type": "object",
            "properties": {
                "list": {"type": "array", "items": {"$ref": "#/$defs/point"}},
                "kind": {"enum": ["a", "b"]},
                "at": {"type": ["string", "null"], "pattern": "^0x[0-9a-f]+$"},
                "map": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
            },
            "required": ["list"],
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
        });
        let good = json!({"list": [{"x": 1}, {"x": 1.5, "y": 2}], "kind": "a", "at": null, "map": {"m": 4}, "more": 1});
        assert_eq!(faults(&good, &schema), [""; 0]);
        for bad in [
            json!([]),
            json!({}),
            json!({"list": [{"x": 1}, {}]}),
            json!({"list": [{"x": "1"}]}),
            json!({"list": {}}),
            json!({"list": [], "kind": "c"}),
            json!({"list": [], "at": "0xG"}),
            json!({"list": [], "at": 5}),
            json!({"list": [], "map": {"m": -1}}),
            json!({"list": [], "map": {"m": 1.5}}),
        ] {
            assert_eq!(faults(&bad, &schema).len(), 1, "{bad}");
        }
    }
}
