//! Leaks as a compiler writes its errors, for editors that jump to them:
//! `FILE:LINE: error: N bytes leaked here`, a line a site, most bytes first (the
//! form that Basilisk's mtrace uses).

use std::io::{self, Write};

use highwater_query::Group;
use highwater_query::stack::function_name;

use crate::finding::Finding;
use crate::place;

/// Where a compiler would say that it is: `FILE:LINE`.
pub fn at(group: &Group) -> String {
    let Some(site) = group.stack.site() else { return "[no stack]".to_string() };
    match (&site.file, site.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        (Some(file), None) => file.to_string(),
        (None, _) if site.module.is_empty() => function_name(site),
        // There is no line to go to; the function says at least something.
        (None, _) => format!("{}({})", place::module(site), function_name(site)),
    }
}

/// Writes the lines. What is only kept is a warning.
///
/// # Errors
/// The output's.
pub fn write<W: Write>(out: &mut W, findings: &[impl Finding]) -> io::Result<()> {
    findings.iter().try_for_each(|finding| {
        let (group, level, remark) = (finding.group(), finding.level(), finding.remark());
        writeln!(out, "{}: {level}: {} bytes leaked here{remark}", at(group), group.bytes)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_is_what_a_compiler_would_write() {
        let mut out = Vec::new();
        super::write(&mut out, &crate::place::tests::groups()).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "/src/a dir/50%,x.cc:70: error: 300 bytes leaked here\n\
             /usr/include/b.h:9: error: 30 bytes leaked here\n"
        );
    }
}
