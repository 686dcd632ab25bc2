//! One record: the usual layout, and what it is made of.

use std::fmt::Write as _;

use highwater_event::api::ApiKind;

use super::format::{self, Piece};
use super::names::{self, Names, Place};
use crate::mddout::layout::Abi;
use crate::mddout::model::{Block, Dump, Event};
use crate::mddout::unwind;

/// An address in as many digits as the target's have.
pub(super) fn address(abi: Abi, value: u64) -> String {
    if abi.word == 8 { format!("{value:#018x}") } else { format!("{value:#010x}") }
}

/// The name of an entry point in eCos's way: `malloc()`, `new(nothrow)[]`, `delete`.
pub(super) fn kind_name(dump: &Dump, kind: u8) -> String {
    use ApiKind::*;
    if let Some(own) = kind.checked_sub(64) {
        let name = dump.kind_names.get(usize::from(own)).filter(|n| !n.is_empty());
        return name.cloned().unwrap_or_else(|| format!("kind {kind}"));
    }
    match ApiKind::from_u8(kind) {
        Some(NewArrayNothrow) => "new(nothrow)[]".into(),
        Some(NewArrayAligned) => "new(align)[]".into(),
        Some(NewArrayAlignedNothrow) => "new(align,nothrow)[]".into(),
        Some(api @ (New | NewArray | NewNothrow | NewAligned | NewAlignedNothrow)) => api.name().into(),
        // eCos knows but two
        Some(
            Delete | DeleteSized | DeleteAligned | DeleteSizedAligned | DeleteNothrow | DeleteAlignedNothrow,
        ) => "delete".into(),
        Some(
            DeleteArray
            | DeleteArraySized
            | DeleteArrayAligned
            | DeleteArraySizedAligned
            | DeleteArrayNothrow
            | DeleteArrayAlignedNothrow,
        ) => "delete[]".into(),
        // a realloc is a release and an allocation: the two must not read alike
        Some(ReallocFree) => "free by realloc()".into(),
        Some(ReallocarrayFree) => "free by reallocarray()".into(),
        Some(api) => format!("{}()", api.name()),
        None => format!("kind {kind}"),
    }
}

/// A level of the backtrace.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    /// Return address.
    pub pc: u64,
    /// Where it lies; nothing without an executable.
    pub place: Place,
    /// The text of that line.
    pub text: Option<String>,
}

/// A record with everything that can be said about it.
pub(super) struct Line<'a> {
    /// Whose tables its numbers refer to.
    pub dump: &'a Dump,
    /// The block.
    pub block: &'a Block,
    /// The event: its making or its end.
    pub event: &'a Event,
    /// Its backtrace.
    pub frames: Vec<Level>,
}

/// How records are shown.
pub(super) struct Style<'a> {
    /// A format of the user's own.
    pub format: Option<&'a [Piece]>,
    /// Files whose inline functions are skipped.
    pub ignore: Option<&'a str>,
    /// The executable.
    pub names: Option<&'a mut dyn Names>,
}

impl Style<'_> {
    /// Looks up what the layout wants to know.
    pub fn line<'a>(&mut self, dump: &'a Dump, block: &'a Block, event: &'a Event) -> Line<'a> {
        let wants = |letters: &[char]| {
            self.format.is_none_or(|pieces| {
                pieces.iter().any(|p| matches!(p, Piece::Level(c, _) if letters.contains(c)))
            })
        };
        let (any, place, text) = (wants(&['b', 'f', 'w', 'l']), wants(&['f', 'w', 'l']), wants(&['l']));
        let mut frames = Vec::new();
        if any {
            let pcs = match &mut self.names {
                Some(names) => names.backtrace(dump, event),
                None => unwind::unpacked(dump, event),
            };
            for pc in pcs {
                let mut level = Level { pc, ..Level::default() };
                if let Some(names) = self.names.as_deref_mut().filter(|_| place && pc != 0) {
                    level.place = names::place(names, pc, self.ignore);
                    if let Some((file, line)) = level.place.location.as_ref().filter(|_| text) {
                        level.text = names.text(file, *line);
                    }
                }
                frames.push(level);
            }
        }
        Line { dump, block, event, frames }
    }
}

impl Line<'_> {
    /// The entry point's name.
    pub fn kind(&self) -> String {
        kind_name(self.dump, self.event.kind)
    }

    /// `, actual size 272 (+16), seqno 0, time 0` as far as it is known.
    fn facts(&self) -> String {
        let mut out = String::new();
        if let Some(actual) = self.block.actual {
            let overhead = actual.saturating_sub(self.block.size);
            let _ = write!(out, ", actual size {actual} (+{overhead})");
        }
        let _ = write!(out, ", seqno {}", self.event.seq);
        if let Some(time) = self.event.time {
            let _ = write!(out, ", time {time}");
        }
        out
    }

    /// The lines below the first: thread and backtrace. Each ends with a newline.
    fn below(&self, exe: bool) -> String {
        let abi = self.dump.abi;
        let mut out = String::new();
        if let Some((number, thread)) = self.event.thread.and_then(|t| Some((t, self.dump.thread(t)?))) {
            let _ = writeln!(out, "  By thread {number}, {} {}", address(abi, thread.handle), thread.name);
        }
        for (n, level) in self.frames.iter().enumerate().filter(|(_, l)| l.pc != 0) {
            let pc = address(abi, level.pc);
            let n = n + 1;
            match level.place.function.as_ref().filter(|_| exe) {
                Some(function) => {
                    let _ = writeln!(out, "  {n}) backtrace {pc} function {function}");
                }
                None => {
                    let _ = writeln!(out, "  {n}) backtrace return address {pc}");
                }
            }
            if let Some((file, line)) = &level.place.location {
                let _ = writeln!(out, "     {file}:{line}");
            }
            if let Some(text) = &level.text {
                let _ = writeln!(out, "     \"{text}\"");
            }
        }
        out
    }

    /// The address first, as `dump` and `diff` have it. Ends with a newline.
    pub fn by_address(&self, style: &Style<'_>) -> String {
        if let Some(pieces) = style.format {
            return format::fill(pieces, self) + "\n";
        }
        let (ptr, kind, size) = (address(self.dump.abi, self.block.ptr), self.kind(), self.block.size);
        format!("{ptr} : {kind} {size} bytes{}\n{}", self.facts(), self.below(style.names.is_some()))
    }

    /// The operation first, as `history` has it. Ends with a newline.
    pub fn by_operation(&self, style: &Style<'_>, freed_later: bool) -> String {
        if let Some(pieces) = style.format {
            return format::fill(pieces, self) + "\n";
        }
        let (ptr, kind, size) = (address(self.dump.abi, self.block.ptr), self.kind(), self.block.size);
        let freed = if freed_later { " (freed)" } else { "" };
        format!("{kind} {size} bytes: {ptr}{freed} {}\n{}", self.facts(), self.below(style.names.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mddout::write::sample;

    #[test]
    fn names_of_entry_points() {
        let dump = sample();
        let name = |kind: ApiKind| kind_name(&dump, kind as u8);
        assert_eq!(name(ApiKind::Malloc), "malloc()");
        assert_eq!(name(ApiKind::NewNothrow), "new(nothrow)");
        assert_eq!(name(ApiKind::NewArrayNothrow), "new(nothrow)[]");
        assert_eq!(name(ApiKind::NewArray), "new[]");
        assert_eq!(name(ApiKind::DeleteSized), "delete");
        assert_eq!(name(ApiKind::DeleteArraySized), "delete[]");
        assert_ne!(name(ApiKind::Realloc), name(ApiKind::ReallocFree));
        assert_eq!([kind_name(&dump, 64), kind_name(&dump, 65)], ["pvPortMalloc()", "kind 65"]);
    }

    #[test]
    fn parts_that_were_not_kept_are_not_shown() {
        let mut dump = sample();
        dump.live[0].actual = None;
        dump.live[0].made.time = None;
        dump.live[0].made.thread = None;
        dump.live[0].made.backtrace.clear();
        let mut style = Style { format: None, ignore: None, names: None };
        let line = style.line(&dump, &dump.live[0], &dump.live[0].made);
        assert_eq!(line.by_address(&style), "0x20008010 : malloc() 10 bytes, seqno 0\n");
        assert_eq!(line.by_operation(&style, true), "malloc() 10 bytes: 0x20008010 (freed) , seqno 0\n");
    }

    #[test]
    fn a_64_bit_address_has_16_digits() {
        assert_eq!(address(Abi { big: false, word: 8 }, 0x1234), "0x0000000000001234");
    }
}
