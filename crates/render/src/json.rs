//! JSON, written as it comes: no document is ever held in memory, integers stay
//! integers, and times keep their last nanosecond.

use std::io::{self, Write};

/// Writes one JSON document.
///
/// Commas are its business; that objects and arrays are closed and that every
/// key gets one value is the caller's.
pub struct Json<W: Write> {
    out: W,
    /// Is the next value the first of its object or array, for each that is open?
    first: Vec<bool>,
    after_key: bool,
}

impl<W: Write> Json<W> {
    /// Begins the document of a view: an object with its `schema`.
    ///
    /// # Errors
    /// The output's.
    pub fn document(out: W, name: &str) -> io::Result<Json<W>> {
        let mut json = Json { out, first: vec![true], after_key: false };
        json.begin_object()?;
        json.field_str("schema", &format!("highwater.{name}/1"))?;
        Ok(json)
    }

    /// Ends the document and gives the output back.
    ///
    /// # Errors
    /// The output's.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_object()?;
        self.out.write_all(b"\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn before_value(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.after_key) {
            return Ok(());
        }
        match self.first.last_mut() {
            Some(first) if *first => *first = false,
            Some(_) => self.out.write_all(b",")?,
            None => {}
        }
        Ok(())
    }

    /// Opens an object.
    ///
    /// # Errors
    /// The output's.
    pub fn begin_object(&mut self) -> io::Result<()> {
        self.before_value()?;
        self.first.push(true);
        self.out.write_all(b"{")
    }

    /// Closes it.
    ///
    /// # Errors
    /// The output's.
    pub fn end_object(&mut self) -> io::Result<()> {
        self.first.pop();
        self.out.write_all(b"}")
    }

    /// Opens an array.
    ///
    /// # Errors
    /// The output's.
    pub fn begin_array(&mut self) -> io::Result<()> {
        self.before_value()?;
        self.first.push(true);
        self.out.write_all(b"[")
    }

    /// Closes it.
    ///
    /// # Errors
    /// The output's.
    pub fn end_array(&mut self) -> io::Result<()> {
        self.first.pop();
        self.out.write_all(b"]")
    }

    /// Writes a key; its value must follow.
    ///
    /// # Errors
    /// The output's.
    pub fn key(&mut self, key: &str) -> io::Result<()> {
        self.before_value()?;
        serde_json::to_writer(&mut self.out, key)?;
        self.after_key = true;
        self.out.write_all(b":")
    }

    /// A string.
    ///
    /// # Errors
    /// The output's.
    pub fn str(&mut self, value: &str) -> io::Result<()> {
        self.before_value()?;
        serde_json::to_writer(&mut self.out, value)?;
        Ok(())
    }

    /// An integer.
    ///
    /// # Errors
    /// The output's.
    pub fn u64(&mut self, value: u64) -> io::Result<()> {
        self.raw(format_args!("{value}"))
    }

    fn raw(&mut self, value: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.before_value()?;
        self.out.write_fmt(value)
    }

    /// A key and an integer.
    ///
    /// # Errors
    /// The output's.
    pub fn field_u64(&mut self, key: &str, value: u64) -> io::Result<()> {
        self.key(key)?;
        self.raw(format_args!("{value}"))
    }

    /// A key and an integer that may be negative.
    ///
    /// # Errors
    /// The output's.
    pub fn field_i64(&mut self, key: &str, value: i64) -> io::Result<()> {
        self.key(key)?;
        self.raw(format_args!("{value}"))
    }

    /// A key and a number with six decimals; `null` if it is none.
    ///
    /// # Errors
    /// The output's.
    pub fn field_f64(&mut self, key: &str, value: f64) -> io::Result<()> {
        if !value.is_finite() {
            return self.field_null(key);
        }
        self.key(key)?;
        self.raw(format_args!("{value:.6}"))
    }

    /// A key and a truth value.
    ///
    /// # Errors
    /// The output's.
    pub fn field_bool(&mut self, key: &str, value: bool) -> io::Result<()> {
        self.key(key)?;
        self.raw(format_args!("{value}"))
    }

    /// A key and a string.
    ///
    /// # Errors
    /// The output's.
    pub fn field_str(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.key(key)?;
        self.str(value)
    }

    /// A key and a string, or `null`.
    ///
    /// # Errors
    /// The output's.
    pub fn field_opt_str(&mut self, key: &str, value: Option<&str>) -> io::Result<()> {
        match value {
            Some(value) => self.field_str(key, value),
            None => self.field_null(key),
        }
    }

    /// A key and `null`.
    ///
    /// # Errors
    /// The output's.
    pub fn field_null(&mut self, key: &str) -> io::Result<()> {
        self.key(key)?;
        self.raw(format_args!("null"))
    }

    /// A key and a time in ns, written as seconds with nine decimals.
    ///
    /// # Errors
    /// The output's.
    pub fn field_time(&mut self, key: &str, ns: u64) -> io::Result<()> {
        self.key(key)?;
        self.raw(format_args!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000))
    }

    /// A key and an address, written as `"0x…"`.
    ///
    /// # Errors
    /// The output's.
    pub fn field_addr(&mut self, key: &str, addr: u64) -> io::Result<()> {
        self.key(key)?;
        self.raw(format_args!("\"{addr:#x}\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_json_and_keeps_every_digit() {
        let mut json = Json::document(Vec::new(), "test").unwrap();
        json.field_u64("max", u64::MAX).unwrap();
        json.field_time("time", 12_000_000_034).unwrap();
        json.field_addr("address", 0x7fff_0010).unwrap();
        json.key("list").unwrap();
        json.begin_array().unwrap();
        json.str("a\"\n").unwrap();
        json.begin_object().unwrap();
        json.field_null("none").unwrap();
        json.field_bool("yes", true).unwrap();
        json.end_object().unwrap();
        json.end_array().unwrap();
        let text = String::from_utf8(json.finish().unwrap()).unwrap();
        assert_eq!(
            text,
            "{\"schema\":\"highwater.test/1\",\"max\":18446744073709551615,\"time\":12.000000034,\
             \"address\":\"0x7fff0010\",\"list\":[\"a\\\"\\n\",{\"none\":null,\"yes\":true}]}\n"
        );
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["max"], u64::MAX);
    }
}
