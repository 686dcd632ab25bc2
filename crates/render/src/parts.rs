//! What several views share: a stack in JSON, a site in text, the closing hint.

use std::io::{self, Write};

use highwater_query::stack::{function, near};
use highwater_query::{Facts, Frame, Session, Stack};
use highwater_trace::model::ThreadNo;

use crate::human;
use crate::json::Json;
use crate::look::Look;

/// `function`, `file`, `line`, `module` of a site, as fields of the open object.
/// Where only the nearest symbol is known, `function` is null and `near` names it.
pub fn json_site<W: Write>(json: &mut Json<W>, site: Option<&Frame>) -> io::Result<()> {
    json.field_opt_str("function", site.and_then(function))?;
    if let Some(near) = site.and_then(near) {
        json.field_str("near", near)?;
    }
    json.field_opt_str("file", site.and_then(|frame| frame.file.as_deref()))?;
    match site.and_then(|frame| frame.line) {
        Some(line) => json.field_u64("line", line.into())?,
        None => json.field_null("line")?,
    }
    json.field_opt_str("module", site.map(|frame| &*frame.module).filter(|module| !module.is_empty()))
}

/// `stack`: the frames, innermost first.
pub fn json_stack<W: Write>(json: &mut Json<W>, stack: &Stack) -> io::Result<()> {
    json.key("stack")?;
    json.begin_array()?;
    for frame in &stack.frames {
        json.begin_object()?;
        json.field_addr("address", frame.address)?;
        json_site(json, Some(frame))?;
        json.field_bool("inlined", frame.inlined)?;
        json.end_object()?;
    }
    json.end_array()
}

/// A frame in at most `width` columns, coloured.
pub fn frame_text(look: &Look, frame: &Frame, width: usize) -> String {
    let (function, place) = human::frame(frame, width);
    if place.is_empty() {
        return function;
    }
    let style = look.palette.place;
    format!("{function} ({style}{place}{style:#})")
}

/// The site of a stack in at most `width` columns, coloured.
pub fn site_text(look: &Look, stack: &Stack, width: usize) -> String {
    match stack.site() {
        Some(frame) => frame_text(look, frame, width),
        None => "[no stack]".to_string(),
    }
}

/// `2 worker`, or the number alone where the thread has no name.
pub fn thread_text(facts: &Facts, thread: ThreadNo) -> String {
    match facts.thread(thread) {
        Some(def) if !def.name.is_empty() => format!("{thread} {}", def.name),
        _ => thread.to_string(),
    }
}

/// The trace as a word of a command line.
pub fn trace_word(facts: &Facts) -> String {
    let path = facts.path.display().to_string();
    let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+:,@%=".contains(c));
    if plain { path } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// The closing line: what to type next, and what for.
pub fn hint<W: Write + ?Sized>(
    out: &mut W,
    look: &Look,
    session: &Session,
    command: &str,
    what: &str,
) -> io::Result<()> {
    let (dim, trace) = (look.palette.dim, trace_word(session.facts()));
    let line = format!("next: highwater {command} {trace}");
    let what = if line.chars().count() + what.chars().count() + 4 > look.width {
        String::new()
    } else {
        format!("  # {what}")
    };
    writeln!(out, "\n{dim}{line}{what}{dim:#}")
}
