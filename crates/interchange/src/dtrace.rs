//! The text of the DTrace script `watch-memory-usage.d` ("Investigating memory
//! leaks with DTrace").
//!
//! ```text
//! <__SEQ;DATE;TID;new;0xADDRESS;SIZE;
//! STACK, one frame a line
//! __>
//!
//! <__SEQ;DATE;TID;delete;0xADDRESS__>
//! == REPORT ==
//!
//! 0xADDRESS => COUNT
//! ```
//!
//! The article's script knows `new` and `delete`. Any other name is read too
//! (`new[]`, `malloc`, `realloc`, `delete[]`, `free`): an event with a size makes
//! a block, one without gives it back. The report is missing when the recorder
//! was killed; its counts say nothing that the events do not.

pub mod trace;

use std::collections::HashMap;
use std::io::{self, BufRead};

/// Number of a stack's text in [`Text::stacks`].
pub type StackNo = u32;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub seq: u64,
    /// Calendar time, as the script printed it.
    pub time: String,
    /// Thread id.
    pub tid: u64,
    /// `new`, `delete`, or another entry point.
    pub name: String,
    /// The block.
    pub address: u64,
    /// Its size and stack, of an event that makes a block.
    pub made: Option<(u64, StackNo)>,
}

/// A whole text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// The events in the order of the file.
    pub events: Vec<Event>,
    /// Different stacks. A text is what stands between an event's first line
    /// and its end mark, with that line's own line break.
    pub stacks: Vec<String>,
    /// The addresses of the report in its order, with their counts. The script
    /// printed negative ones as if they had no sign; here they have.
    pub report: Vec<(u64, i64)>,
    /// Was there a report?
    pub has_report: bool,
    /// Lines that make no sense, by their number from 1; they are left out.
    pub bad_lines: Vec<u64>,
}

/// Reads a text. Bytes that are no UTF-8 become replacement characters.
///
/// # Errors
/// The reader's.
pub fn read(mut input: impl BufRead) -> io::Result<Text> {
    let mut text = Text::default();
    let mut interned: HashMap<String, StackNo> = HashMap::new();
    // The event whose stack is being read, and the number of its line.
    let mut open: Option<(Event, u64, String)> = None;
    let mut bytes = Vec::new();
    let mut number = 0u64;
    loop {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        number += 1;
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end_matches(['\n', '\r']);
        if let Some(header) = line.strip_prefix("<__") {
            if let Some((_, at, _)) = open.take() {
                // Cut off by the next event.
                text.bad_lines.push(at);
            }
            let (header, ended) = match header.strip_suffix("__>") {
                Some(header) => (header, true),
                None => (header, false),
            };
            match (event(header), ended) {
                (Some((event, None)), true) => text.events.push(event),
                (Some((event, Some(size))), true) => close(&mut text, &mut interned, event, size, "\n"),
                (Some((mut event, Some(size))), false) => {
                    event.made = Some((size, 0));
                    open = Some((event, number, String::new()));
                }
                _ => text.bad_lines.push(number),
            }
        } else if let Some((_, _, stack)) = &mut open {
            match line.strip_suffix("__>") {
                None => {
                    stack.push_str(line);
                    stack.push('\n');
                }
                Some(last) => {
                    stack.push_str(last);
                    stack.push('\n');
                    if let Some((event, _, stack)) = open.take() {
                        let size = event.made.map_or(0, |(size, _)| size);
                        close(&mut text, &mut interned, event, size, &stack);
                    }
                }
            }
        } else if line == "== REPORT ==" {
            text.has_report = true;
        } else if text.has_report {
            match line.split_once(" => ") {
                Some((address, count)) => match (hex(address), signed(count)) {
                    (Some(address), Some(count)) => text.report.push((address, count)),
                    _ => text.bad_lines.push(number),
                },
                None if line.trim().is_empty() => {}
                None => text.bad_lines.push(number),
            }
        } else if !line.trim().is_empty() {
            text.bad_lines.push(number);
        }
    }
    if let Some((_, at, _)) = open {
        text.bad_lines.push(at);
    }
    Ok(text)
}

/// Does this look like such a text? `start` are the first bytes of the file.
pub fn is_text(start: &[u8]) -> bool {
    let start = start.trim_ascii_start();
    start.is_empty() || start.starts_with(b"<__") || start.starts_with(b"== REPORT ==")
}

fn close(text: &mut Text, interned: &mut HashMap<String, StackNo>, event: Event, size: u64, stack: &str) {
    let next = StackNo::try_from(text.stacks.len()).unwrap_or(StackNo::MAX);
    let stack = match interned.get(stack) {
        Some(&known) => known,
        None => {
            interned.insert(stack.to_string(), next);
            text.stacks.push(stack.to_string());
            next
        }
    };
    text.events.push(Event { made: Some((size, stack)), ..event });
}

/// The fields of an event's first line, and its size if it has one.
fn event(header: &str) -> Option<(Event, Option<u64>)> {
    let mut fields = header.split(';');
    let seq = fields.next()?.trim().parse().ok()?;
    let time = fields.next()?.to_string();
    let tid = fields.next()?.trim().parse().ok()?;
    let name = fields.next()?.to_string();
    let address = hex(fields.next()?)?;
    let size = match fields.next().map(str::trim) {
        None | Some("") => None,
        Some(size) => Some(size.parse().ok()?),
    };
    Some((Event { seq, time, tid, name, address, made: None }, size))
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// A count that was printed without its sign.
fn signed(text: &str) -> Option<i64> {
    let text = text.trim();
    text.parse().ok().or_else(|| text.parse::<u64>().ok().map(u64::cast_signed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: &str = "\
<__0;2024 Jul 19 12:34:56;7;new;0x10;64;

              liba.so`f+0x4
              app`main+0x10
__>

<__1;2024 Jul 19 12:34:56;7;delete;0x10__>
<__2;2024 Jul 19 12:34:57;8;malloc;0x20;8;

              liba.so`f+0x4
              app`main+0x10
__>

<__3;2024 Jul 19 12:34:57;8;free;0x99__>
== REPORT ==

0x10 => 0
0x20 => 1
0x99 => 18446744073709549605
";

    #[test]
    fn events_stacks_and_the_report_are_read() {
        let text = read(SMALL.as_bytes()).unwrap();
        assert_eq!(text.bad_lines, [] as [u64; 0]);
        assert_eq!(text.stacks, ["\n              liba.so`f+0x4\n              app`main+0x10\n\n"]);
        let short: Vec<_> =
            text.events.iter().map(|e| (e.seq, e.tid, e.name.as_str(), e.address, e.made)).collect();
        assert_eq!(
            short,
            [
                (0, 7, "new", 16, Some((64, 0))),
                (1, 7, "delete", 16, None),
                (2, 8, "malloc", 32, Some((8, 0))),
                (3, 8, "free", 0x99, None)
            ]
        );
        assert_eq!(text.events[0].time, "2024 Jul 19 12:34:56");
        assert!(text.has_report);
        assert_eq!(text.report, [(16, 0), (32, 1), (0x99, -2011)]);
    }

    #[test]
    fn a_text_that_was_cut_keeps_what_is_whole() {
        let text = read(SMALL.split("app`main").next().unwrap().as_bytes()).unwrap();
        assert_eq!((text.events.len(), text.has_report), (0, false));
        assert_eq!(text.bad_lines, [1]);
        let lost_end = "<__0;t;1;new;0x10;8;\n f\n<__1;t;1;delete;0x10__>\nnoise\n<__x;t;1;delete;0x10__>\n";
        let text = read(lost_end.as_bytes()).unwrap();
        assert_eq!(text.events.len(), 1);
        assert_eq!(text.bad_lines, [1, 4, 5]);
    }

    #[test]
    fn the_kind_of_file_is_known_by_its_start() {
        assert!(is_text(b"\n<__0;2011") && is_text(b"== REPORT ==\n") && is_text(b""));
        assert!(!is_text(b"\x89HWT") && !is_text(b"hello"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            read(bytes.as_slice()).unwrap();
        }

        #[test]
        fn no_shuffled_lines_make_it_fail(lines in proptest::collection::vec(0usize..20, 0..40)) {
            let all: Vec<&str> = SMALL.lines().collect();
            let text: String = lines.iter().map(|&at| format!("{}\n", all[at % all.len()])).collect();
            let read = read(text.as_bytes()).unwrap();
            for event in &read.events {
                if let Some((_, stack)) = event.made {
                    prop_assert!((stack as usize) < read.stacks.len());
                }
            }
        }
    }
}
