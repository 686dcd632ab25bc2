//! `status`: recordings that are going on.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::Look;
use crate::human::{bytes, counted, time};
use crate::json::Json;

/// One recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The recorded process.
    pub pid: u32,
    /// The file that it runs.
    pub program: PathBuf,
    /// Its trace.
    pub trace: PathBuf,
    /// Events so far.
    pub events: u64,
    /// Bytes of the trace so far.
    pub trace_bytes: u64,
    /// Nanoseconds since the start.
    pub ns: u64,
    /// Marks so far.
    pub marks: u64,
    /// Why nothing is written any more, if it is not.
    pub cut: Option<String>,
}

/// Writes two lines a recording.
///
/// # Errors
/// The output's.
pub fn text<W: Write>(out: &mut W, look: &Look, list: &[Line]) -> io::Result<()> {
    let (strong, bad) = (look.palette.strong, look.palette.bad);
    if list.is_empty() {
        return writeln!(out, "nothing is being recorded");
    }
    for line in list {
        let program = line.program.file_name().unwrap_or(line.program.as_os_str()).to_string_lossy();
        let marks = if line.marks > 0 {
            format!(", {}", counted(line.marks, "mark", "marks"))
        } else {
            String::new()
        };
        writeln!(
            out,
            "{strong}{} {program}{strong:#} for {}: {}{marks}, {} on disk",
            line.pid,
            time(line.ns),
            counted(line.events, "event", "events"),
            bytes(line.trace_bytes)
        )?;
        writeln!(out, "    {}", line.trace.display())?;
        if let Some(cut) = &line.cut {
            writeln!(out, "    {bad}nothing is written any more: {cut}{bad:#}")?;
        }
    }
    Ok(())
}

/// Writes the document `highwater.status/1`.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(out: W, list: &[Line]) -> io::Result<()> {
    let mut json = Json::document(out, "status")?;
    json.key("recordings")?;
    json.begin_array()?;
    for line in list {
        json.begin_object()?;
        fields(&mut json, line)?;
        json.end_object()?;
    }
    json.end_array()?;
    json.finish()?;
    Ok(())
}

/// Writes the document `highwater.stop/1`: a recording that was ended.
///
/// # Errors
/// The output's.
pub fn stopped_json<W: Write>(out: W, line: &Line) -> io::Result<()> {
    let mut json = Json::document(out, "stop")?;
    fields(&mut json, line)?;
    json.finish()?;
    Ok(())
}

fn fields<W: Write>(json: &mut Json<W>, line: &Line) -> io::Result<()> {
    json.field_u64("pid", line.pid.into())?;
    json.field_str("program", &line.program.to_string_lossy())?;
    json.field_str("trace", &line.trace.to_string_lossy())?;
    json.field_u64("events", line.events)?;
    json.field_u64("trace_bytes", line.trace_bytes)?;
    json.field_time("duration", line.ns)?;
    json.field_u64("marks", line.marks)?;
    json.field_opt_str("cut", line.cut.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_and_the_lines_say_the_same() {
        let line = Line {
            pid: 47,
            program: "/usr/bin/app".into(),
            trace: "/tmp/a.hwt".into(),
            events: 12,
            trace_bytes: 2048,
            ns: 1_500_000_000,
            marks: 1,
            cut: Some("no space".into()),
        };
        let mut out = Vec::new();
        text(&mut out, &Look::new(false, None), std::slice::from_ref(&line)).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "47 app for 1.500 s: 12 events, 1 mark, 2.0 KiB on disk\n    /tmp/a.hwt\n    \
             nothing is written any more: no space\n"
        );
        let mut out = Vec::new();
        json(&mut out, &[line]).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["schema"], "highwater.status/1");
        assert_eq!(value["recordings"][0]["duration"], 1.5);
        assert_eq!(value["recordings"][0]["events"], 12);
    }
}
