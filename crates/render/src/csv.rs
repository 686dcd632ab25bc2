//! CSV as RFC 4180 has it: a header row, CRLF, quotes where they are needed.

use std::io::{self, Write};

use highwater_query::{Row, Value};

/// The header row.
///
/// # Errors
/// The output's.
pub fn header<W: Write>(out: &mut W, columns: &[&str]) -> io::Result<()> {
    for (at, column) in columns.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(out, "{comma}{column}")?;
    }
    out.write_all(b"\r\n")
}

/// One row. What is not known is empty.
///
/// # Errors
/// The output's.
pub fn record<W: Write>(out: &mut W, row: &Row) -> io::Result<()> {
    for (at, value) in row.values.iter().enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        match value {
            Value::Text(text) if text.contains(['"', ',', '\r', '\n']) => {
                write!(out, "\"{}\"", text.replace('"', "\"\""))?;
            }
            value => write!(out, "{value}")?,
        }
    }
    out.write_all(b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_commas_and_quotes_are_quoted() {
        let columns: &[&str] = &["function", "bytes", "time", "address", "none"];
        let values = vec![
            Value::text("f(int, \"x\")\n"),
            Value::Number(u64::MAX),
            Value::Time(1),
            Value::Address(16),
            Value::Null,
        ];
        let mut out = Vec::new();
        header(&mut out, columns).unwrap();
        record(&mut out, &Row { columns, values, stack: None }).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "function,bytes,time,address,none\r\n\"f(int, \"\"x\"\")\n\",18446744073709551615,0.000000001,0x10,\r\n"
        );
    }
}
