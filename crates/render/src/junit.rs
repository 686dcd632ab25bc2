//! JUnit's XML: a failed test case a leak, or one that passed.

use std::io::{self, Write};
use std::path::Path;

use highwater_query::stack::function_name;

use crate::finding::Finding;
use crate::place;

/// A test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What it belongs to.
    pub class: String,
    /// Its name.
    pub name: String,
    /// Why it failed, in a line and in full; `None` if it passed.
    pub failure: Option<(String, String)>,
}

/// Text as the content of an element or attribute. Characters that XML 1.0
/// cannot hold become U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Writes a suite of cases.
///
/// # Errors
/// The output's.
pub fn suite<W: Write>(out: &mut W, name: &str, cases: &[Case]) -> io::Result<()> {
    let (name, tests) = (escaped(name), cases.len());
    let failures = cases.iter().filter(|case| case.failure.is_some()).count();
    let counts = format!("name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\"");
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<testsuites {counts}>")?;
    writeln!(out, "  <testsuite {counts} skipped=\"0\">")?;
    for case in cases {
        let (class, name) = (escaped(&case.class), escaped(&case.name));
        write!(out, "    <testcase classname=\"{class}\" name=\"{name}\"")?;
        match &case.failure {
            None => writeln!(out, "/>")?,
            Some((message, text)) => {
                let (message, text) = (escaped(message), escaped(text));
                writeln!(out, ">")?;
                writeln!(out, "      <failure message=\"{message}\" type=\"leak\">{text}</failure>")?;
                writeln!(out, "    </testcase>")?;
            }
        }
    }
    writeln!(out, "  </testsuite>\n</testsuites>")
}

/// Writes leaks as a suite; files are relative to `base`.
///
/// # Errors
/// The output's.
pub fn write<W: Write>(out: &mut W, findings: &[impl Finding], base: &Path, program: &str) -> io::Result<()> {
    let failed = findings.iter().map(|finding| {
        let group = finding.group();
        let name = match group.stack.site() {
            Some(site) => place::line(site, base),
            None => "[no stack]".to_string(),
        };
        let function = group.stack.site().map_or_else(|| "[no stack]".to_string(), function_name);
        let message =
            format!("{} leaked by {function}{}", place::amount(group.bytes, group.blocks), finding.remark());
        let text = place::callers(&group.stack, base);
        Case { class: program.to_string(), name, failure: Some((message, text)) }
    });
    let mut cases: Vec<Case> = failed.collect();
    if cases.is_empty() {
        cases.push(Case { class: program.to_string(), name: "no leaks".to_string(), failure: None });
    }
    suite(out, "highwater leaks", &cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaks_are_failures_and_names_are_escaped() {
        let mut out = Vec::new();
        write(&mut out, &place::tests::groups(), Path::new("/src"), "app").unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("tests=\"2\" failures=\"2\""));
        assert!(text.contains("name=\"T&lt;a&amp;b&gt;::&quot;f&quot; (a dir/50%,x.cc:70)\">"), "{text}");
        assert!(text.contains("(a dir/50%,x.cc:70)&#10;main (app/main.c:3)</failure>"), "{text}");
        assert_eq!(escaped("\u{1}x"), "\u{fffd}x");
    }

    #[test]
    fn nothing_leaked_is_a_case_that_passed() {
        let mut out = Vec::new();
        write(&mut out, &[] as &[highwater_query::Group], Path::new("/"), "app").unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("tests=\"1\" failures=\"0\""));
        assert!(text.contains("<testcase classname=\"app\" name=\"no leaks\"/>"));
    }
}
