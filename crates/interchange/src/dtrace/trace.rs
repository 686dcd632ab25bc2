//! The text as a recording, so that every view of highwater works on it.
//!
//! The text has names and no addresses of code: each different line of a stack
//! becomes an address of its own (1, 2, 3, …) in no module, and its name travels
//! with the trace. Event numbers are kept. Times have a resolution of a second;
//! what happens in one second follows each other by a nanosecond. They are taken
//! as UTC: the text does not tell its time zone.

use std::collections::{HashMap, HashSet};

use highwater_event::api::ApiKind;
use highwater_event::node::Node;
use highwater_trace::Recording;
use highwater_trace::model::{
    self, End, EndedHow, Meta, NameDef, NameFrame, NodeDef, Note, Op, ThreadDef, ThreadNo,
};
use highwater_trace::recording::MAX_ADDR;

use super::Text;

/// Name of the note that holds the report: for each address of it two numbers
/// (LEB128), the address and whether the trace has events of it.
pub const REPORT: &str = "dtrace.report";
/// Name of the note that says how stacks were set, see [`Setting`].
pub const FRAMES: &str = "dtrace.frames";

/// How the text sets a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Blanks before a frame.
    pub indent: u8,
    /// Empty lines before the first frame.
    pub before: u8,
    /// Empty lines behind the last one.
    pub after: u8,
}

impl Setting {
    fn of(stack: &str) -> Setting {
        let count = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
        let blank = |line: &&str| line.trim().is_empty();
        let first = stack.lines().find(|line| !blank(line)).unwrap_or_default();
        Setting {
            indent: count(first.len() - first.trim_start().len()),
            before: count(stack.lines().take_while(blank).count()),
            after: count(stack.lines().rev().take_while(blank).count()),
        }
    }

    /// From the note's bytes.
    pub fn from_note(bytes: &[u8]) -> Option<Setting> {
        let &[indent, before, after] = bytes else { return None };
        Some(Setting { indent, before, after })
    }
}

/// Reads the note of the report.
pub fn report_from_note(bytes: &[u8]) -> Vec<(u64, bool)> {
    let mut rest = bytes.iter();
    let mut number = || {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let &byte = rest.next()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    };
    let mut list = Vec::new();
    while let (Some(address), Some(known)) = (number(), number()) {
        list.push((address, known != 0));
    }
    list
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Stack lines as nodes with names.
#[derive(Default)]
struct Stacks {
    lines: HashMap<String, u64>,
    ids: HashMap<(u32, u64), u32>,
    nodes: Vec<NodeDef>,
    names: Vec<NameDef>,
}

impl Stacks {
    fn of(&mut self, stack: &str) -> u32 {
        let frames: Vec<&str> = stack.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let mut node = 0;
        for line in frames.into_iter().rev() {
            let pc = self.pc(line);
            let next = self.nodes.len() as u32 + 1;
            let parent = node;
            node = *self.ids.entry((parent, pc)).or_insert(next);
            if node == next {
                self.nodes.push(NodeDef { id: node, parent, pc, module: Node::NO_MODULE });
            }
        }
        node
    }

    /// The address that stands for a line.
    fn pc(&mut self, line: &str) -> u64 {
        if let Some(&pc) = self.lines.get(line) {
            return pc;
        }
        let pc = self.lines.len() as u64 + 1;
        self.lines.insert(line.to_string(), pc);
        self.names.push(NameDef { module: Node::NO_MODULE, pc, frames: vec![frame(line)] });
        pc
    }
}

/// ``library`function+0x12``; what has no library is a function as it stands.
fn frame(line: &str) -> NameFrame {
    let (module, rest) = line.split_once('`').unwrap_or(("", line));
    let offset = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let (function, offset) = match rest.rsplit_once('+') {
        Some((function, text)) if !function.is_empty() && offset(text).is_some() => (function, offset(text)),
        _ => (rest, None),
    };
    NameFrame { function: function.into(), offset, module: module.into(), ..NameFrame::default() }
}

/// The entry point of an event. What is not known is of malloc's family.
fn api(name: &str, makes: bool) -> ApiKind {
    let name = match name {
        "new[](nothrow)" | "new(nothrow)[]" => "new[](nothrow)",
        "strdup" | "strndup" => "malloc",
        other => other,
    };
    let fitting = |kind: &&ApiKind| kind.is_free() != makes && kind.name() == name;
    let known = ApiKind::ALL.iter().find(fitting).copied();
    known.unwrap_or(if makes { ApiKind::Malloc } else { ApiKind::Free })
}

/// `2011 Jul 19 12:34:56` in seconds since 1970.
fn seconds(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_ascii_whitespace();
    let year: i64 = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    let day: i64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':');
    let mut part = |limit: i64| {
        let value: i64 = clock.next()?.parse().ok()?;
        (0..limit).contains(&value).then_some(value)
    };
    let (hour, minute, second) = (part(24)?, part(60)?, part(61)?);
    if !(1970..10_000).contains(&year) || !(1..32).contains(&day) || words.next().is_some() {
        return None;
    }
    // Howard Hinnant's days_from_civil: years begin in March, so that the leap day is the last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let year_of_era = year - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second).ok()
}

/// A text as a recording, its events in the order of their numbers. Also says
/// what was left out, one line each.
pub fn recording(text: &Text) -> (Recording, Vec<String>) {
    let mut warnings = Vec::new();
    if let Some(line) = text.bad_lines.first() {
        let more = text.bad_lines.len();
        warnings.push(format!("line {line} is not understood ({more} such in all)"));
    }
    let mut order: Vec<&super::Event> = text.events.iter().filter(|e| e.address < MAX_ADDR).collect();
    order.sort_by_key(|event| event.seq);
    if order.len() < text.events.len() {
        warnings
            .push(format!("{} events at impossible addresses are left out", text.events.len() - order.len()));
    }
    let times: Option<Vec<u64>> = order.iter().map(|event| seconds(&event.time)).collect();
    let start = times.as_ref().and_then(|times| times.iter().min().copied()).unwrap_or(0);
    let mut stacks = Stacks::default();
    let nodes: Vec<u32> = text.stacks.iter().map(|stack| stacks.of(stack)).collect();
    let mut numbers: HashMap<u64, ThreadNo> = HashMap::new();
    let mut threads = Vec::new();
    let mut events: Vec<model::Event> = Vec::with_capacity(order.len());
    let (mut now, mut next_seqno) = (0u64, 0u64);
    let mut doubled = 0u64;
    for (at, event) in order.iter().enumerate() {
        let second = times.as_ref().and_then(|times| times.get(at)).map_or(0, |time| time - start);
        now = second.saturating_mul(1_000_000_000).max(now + 1);
        let thread = *numbers.entry(event.tid).or_insert_with(|| {
            let thread = threads.len() as ThreadNo;
            let tid = u32::try_from(event.tid).unwrap_or(u32::MAX);
            threads.push(ThreadDef { thread, tid, name: String::new(), start: now });
            thread
        });
        // Two processors may have given out one number.
        doubled += u64::from(event.seq < next_seqno);
        let seqno = event.seq.max(next_seqno);
        next_seqno = seqno.saturating_add(1);
        let (op, node) = match event.made {
            Some((size, stack)) => {
                (Op::Alloc { size, usable: None }, nodes.get(stack as usize).copied().unwrap_or(0))
            }
            None => (Op::Free, 0),
        };
        events.push(model::Event {
            seqno,
            ns: now,
            stamp: now,
            thread,
            op,
            api: api(&event.name, event.made.is_some()),
            addr: event.address,
            node,
            pair: None,
        });
    }
    if doubled > 0 {
        warnings.push(format!("{doubled} events have the number of another one: they follow it"));
    }
    let known: HashSet<u64> = events.iter().map(|event| event.addr).collect();
    let mut report = Vec::new();
    for &(address, count) in &text.report {
        if known.contains(&address) || count > 0 {
            put(&mut report, address);
            put(&mut report, u64::from(known.contains(&address)));
        }
    }
    let setting = text.stacks.first().map(|stack| Setting::of(stack)).unwrap_or_default();
    let mut options = vec!["from=dtrace".to_string(), "no_free_stacks".to_string()];
    if times.is_none() {
        options.push("no_times".to_string());
    }
    let note = |name: &str, value| Note { name: name.into(), value };
    let recording = Recording {
        meta: Meta {
            writer: concat!("highwater ", env!("CARGO_PKG_VERSION")).into(),
            stamp_kind: "ns".into(),
            wall_ns: start.saturating_mul(1_000_000_000),
            options,
            ..Meta::default()
        },
        end: End { how: EndedHow::Detached, duration_ns: now, ..End::default() },
        threads,
        nodes: stacks.nodes,
        names: stacks.names,
        notes: vec![note(REPORT, report), note(FRAMES, vec![setting.indent, setting.before, setting.after])],
        events,
        ..Recording::default()
    };
    (recording, warnings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtrace::read;

    #[test]
    fn calendar_times_are_read() {
        assert_eq!(seconds("1970 Jan  1 00:00:00"), Some(0));
        assert_eq!(seconds("2011 Jul 19 12:34:56"), Some(1_311_078_896));
        assert_eq!(seconds("2000 Feb 29 23:59:59"), Some(951_868_799));
        assert_eq!(seconds("2000 Mar  1 00:00:00"), Some(951_868_800));
        for text in [
            "",
            "2011",
            "2011 Foo 1 00:00:00",
            "1950 Jan 1 0:0:0",
            "2011 Jul 19 25:00:00",
            "2011 Jul 40 1:1:1",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_line_of_a_stack_is_taken_apart() {
        let part = |line: &str| {
            let frame = frame(line);
            (frame.module, frame.function, frame.offset)
        };
        let owned = |m: &str, f: &str, o| (m.to_string(), f.to_string(), o);
        assert_eq!(part("libc.so.1`_lwp_start"), owned("libc.so.1", "_lwp_start", None));
        assert_eq!(part("a`X operator+(int)+0x1c"), owned("a", "X operator+(int)", Some(28)));
        assert_eq!(part("a`operator+"), owned("a", "operator+", None));
        assert_eq!(part("0xff34"), owned("", "0xff34", None));
    }

    #[test]
    fn numbers_with_gaps_names_and_the_report_are_kept() {
        let text = "\
<__4;2024 Jul 19 12:00:00;7;new;0x10;64;

   liba.so`f+0x4
   app`main+0x10
__>
<__9;2024 Jul 19 12:00:02;8;malloc;0x20;8;

   liba.so`g
   app`main+0x10
__>
<__9;2024 Jul 19 12:00:02;7;delete;0x10__>
== REPORT ==

0x10 => 0
0x20 => 1
0x30 => 2
0x40 => 18446744073709549605
";
        let (recording, warnings) = recording(&read(text.as_bytes()).unwrap());
        let short: Vec<_> =
            recording.events.iter().map(|e| (e.seqno, e.ns, e.thread, e.api, e.node)).collect();
        assert_eq!(
            short,
            [
                (4, 1, 0, ApiKind::New, 2),
                (9, 2_000_000_000, 1, ApiKind::Malloc, 3),
                (10, 2_000_000_001, 0, ApiKind::Delete, 0)
            ]
        );
        assert_eq!(warnings, ["1 events have the number of another one: they follow it"]);
        // `main` is one node for both.
        assert_eq!(recording.nodes.iter().map(|n| n.parent).collect::<Vec<_>>(), [0, 1, 1]);
        assert_eq!(recording.names.len(), 3);
        assert_eq!(recording.meta.wall_ns, 1_721_390_400_000_000_000);
        assert_eq!(report_from_note(&recording.notes[0].value), [(0x10, true), (0x20, true), (0x30, false)]);
        let setting = Setting { indent: 3, before: 1, after: 1 };
        assert_eq!(Setting::from_note(&recording.notes[1].value), Some(setting));
        assert_eq!(report_from_note(&[0xff; 12]), []);
    }

    #[test]
    fn a_text_without_usable_times_says_so() {
        let (recording, _) = recording(&read("<__0;later;1;delete;0x10__>\n".as_bytes()).unwrap());
        assert!(recording.meta.options.iter().any(|option| option == "no_times"));
        assert_eq!(recording.events[0].ns, 1);
    }
}
