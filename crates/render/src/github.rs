//! Workflow commands of GitHub Actions: an annotation a leak.

use std::io::{self, Write};
use std::path::Path;

use crate::finding::Finding;
use crate::place;

/// Text after `::`.
fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property.
fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

/// Writes an annotation of a level (`error`, `warning`): `::error file=F,line=L,title=T::MESSAGE`.
///
/// # Errors
/// The output's.
pub fn annotation<W: Write>(
    out: &mut W,
    level: &str,
    at: Option<(&str, Option<u32>)>,
    title: &str,
    text: &str,
) -> io::Result<()> {
    write!(out, "::{level} ")?;
    if let Some((file, line)) = at {
        write!(out, "file={},", property(file))?;
        if let Some(line) = line {
            write!(out, "line={line},")?;
        }
    }
    writeln!(out, "title={}::{}", property(title), message(text))
}

/// Writes an annotation for each site; files are relative to `base`, the
/// repository.
///
/// # Errors
/// The output's.
pub fn write<W: Write>(out: &mut W, findings: &[impl Finding], base: &Path) -> io::Result<()> {
    for finding in findings {
        let group = finding.group();
        let site = group.stack.site();
        let at = site.and_then(|frame| Some((place::relative(frame.file.as_deref()?, base), frame.line)));
        let text = format!(
            "{} leaked here{}\n{}",
            place::amount(group.bytes, group.blocks),
            finding.remark(),
            place::callers(&group.stack, base)
        );
        annotation(out, finding.level(), at, "memory leak", &text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn what_would_end_a_field_is_escaped() {
        let mut out = Vec::new();
        super::write(&mut out, &crate::place::tests::groups(), Path::new("/src")).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "::error file=a dir/50%25%2Cx.cc,line=70,title=memory leak::300 bytes in 2 blocks leaked here%0A\
             T<a&b>::\"f\" (a dir/50%25,x.cc:70)%0Amain (app/main.c:3)\n\
             ::error file=/usr/include/b.h,line=9,title=memory leak::30 bytes in 1 block leaked here%0A\
             other (/usr/include/b.h:9)\n"
        );
        let mut out = Vec::new();
        super::annotation(&mut out, "error", None, "a:b,c", "x\r\ny").unwrap();
        assert_eq!(out, b"::error title=a%3Ab%2Cc::x%0D%0Ay\n");
    }
}
