//! `key=value` as text.

use highwater_event::api::ApiKind;

use crate::instant::Instant;
use crate::nearest;
use crate::units;

/// What a condition looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Thread,
    Api,
    Size,
    Class,
    Seqno,
    Time,
    Ptr,
    Age,
    Lifetime,
    Phase,
    Site,
    Function,
    File,
    Module,
    Stack,
}

/// Each key with its names; the first is the one that is shown.
const KEYS: &[(Key, &[&str])] = &[
    (Key::Thread, &["thread"]),
    (Key::Size, &["size", "bytes"]),
    (Key::Class, &["class"]),
    (Key::Seqno, &["seqno"]),
    (Key::Time, &["time"]),
    (Key::Ptr, &["ptr", "address", "addr"]),
    (Key::Api, &["api"]),
    (Key::Phase, &["phase"]),
    (Key::Age, &["age"]),
    (Key::Lifetime, &["lifetime"]),
    (Key::Site, &["site"]),
    (Key::Function, &["function"]),
    (Key::File, &["file"]),
    (Key::Module, &["module"]),
    (Key::Stack, &["stack"]),
];

/// A value that fits or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// From and to, both included; `None` is no bound.
    Range(Option<u64>, Option<u64>),
    /// Instants, until a trace makes ns of them.
    Span(Option<Instant>, Option<Instant>),
    /// A name.
    Pattern(String),
}

/// One `key=value`: any of the tests must fit, or with `!=` none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub key: Key,
    pub negated: bool,
    pub tests: Vec<Test>,
}

impl Condition {
    /// Reads `key=value`, `key!=value`, and eCos's `key_min=` and `key_max=`.
    pub fn parse(text: &str) -> Result<Condition, String> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!("`{text}` is no condition: write key=value, as in size=4k.. or thread!=0"));
        };
        let (key, negated) = match key.strip_suffix('!') {
            Some(key) => (key.trim(), true),
            None => (key.trim(), false),
        };
        let value = value.trim();
        let bound = key.strip_suffix("_min").map(|key| (key, true));
        let bound = bound.or_else(|| key.strip_suffix("_max").map(|key| (key, false)));
        if let Some((name, least)) = bound {
            let known = find(name).filter(|key| key.is_measured() && *key != Key::Class);
            let found = known.ok_or_else(|| unknown(key))?;
            let test = match (found, least) {
                (Key::Time, true) => Test::Span(Some(instant(value)?), None),
                (Key::Time, false) => Test::Span(None, Some(instant(value)?)),
                (_, true) => Test::Range(Some(found.number(value)?), None),
                (_, false) => Test::Range(None, Some(found.number(value)?)),
            };
            return Ok(Condition { key: found, negated, tests: vec![test] });
        }
        let found = find(key).ok_or_else(|| unknown(key))?;
        let tests = parts(value).into_iter().map(|part| found.test(part)).collect::<Result<_, _>>()?;
        Ok(Condition { key: found, negated, tests })
    }
}

impl Key {
    /// Its name.
    pub fn name(self) -> &'static str {
        KEYS.iter().find(|(key, _)| *key == self).and_then(|(_, names)| names.first()).copied().unwrap_or("?")
    }

    fn is_measured(self) -> bool {
        use Key::*;
        matches!(self, Size | Class | Seqno | Time | Ptr | Age | Lifetime)
    }

    fn number(self, text: &str) -> Result<u64, String> {
        match self {
            Key::Size | Key::Class => units::size(text)
                .ok_or_else(|| format!("`{text}` is no size: write 4096, 0x1000, 4k or 1MiB")),
            Key::Ptr => units::size(text).ok_or_else(|| format!("`{text}` is no address: write 0x7f00")),
            Key::Seqno => {
                let digits = text.trim_start_matches('#');
                let plain = |c: char| c.is_ascii_digit();
                let number = if digits.starts_with("0x") || digits.chars().all(plain) {
                    units::size(digits)
                } else {
                    None
                };
                number.ok_or_else(|| format!("`{text}` is no event number"))
            }
            _ => units::time(text).ok_or_else(|| format!("`{text}` is no time: write seconds, 120ms or 3m")),
        }
    }

    fn test(self, text: &str) -> Result<Test, String> {
        let range =
            text.split_once("..").map(|(low, high)| (low.trim(), high.trim().trim_start_matches('=')));
        let some = |text: &str| (!text.is_empty()).then(|| text.to_string());
        if self == Key::Thread {
            // A range of numbers; else a number or a name.
            return Ok(match range {
                Some((low, high)) => {
                    let number =
                        |text: String| text.parse().map_err(|_| format!("`{text}` is no number of a thread"));
                    let low = some(low).map(number).transpose()?;
                    ordered(text, low, some(high).map(number).transpose()?)?
                }
                None => Test::Pattern(text.to_string()),
            });
        }
        if !self.is_measured() {
            if self == Key::Api {
                known_api(text)?;
            }
            return Ok(Test::Pattern(text.to_string()));
        }
        match (self, range) {
            (Key::Time, Some((low, high))) => Ok(Test::Span(
                some(low).map(|text| instant(&text)).transpose()?,
                some(high).map(|text| instant(&text)).transpose()?,
            )),
            (_, Some((low, high))) => {
                let low = some(low).map(|text| self.number(&text)).transpose()?;
                let high = some(high).map(|text| self.number(&text)).transpose()?;
                ordered(text, low, high)
            }
            (Key::Time | Key::Age | Key::Lifetime, None) => Err(format!(
                "`{text}`: nothing takes exactly so long or happens just then; write a range, as in {}=10ms.. or ..1s",
                self.name()
            )),
            (Key::Class, None) => {
                let (low, high) = class(self.number(text)?);
                Ok(Test::Range(Some(low), Some(high)))
            }
            (_, None) => {
                let number = self.number(text)?;
                Ok(Test::Range(Some(number), Some(number)))
            }
        }
    }
}

/// The size class that a size belongs to, by powers of two: its least and its
/// greatest size, bytes.
pub fn class(size: u64) -> (u64, u64) {
    match size.checked_ilog2() {
        None => (0, 0),
        Some(bits) => {
            let low = 1u64 << bits;
            (low, low + (low - 1))
        }
    }
}

fn ordered(text: &str, low: Option<u64>, high: Option<u64>) -> Result<Test, String> {
    match (low, high) {
        (Some(low), Some(high)) if low > high => Err(format!("`{text}` is empty: it ends before it begins")),
        _ => Ok(Test::Range(low, high)),
    }
}

fn instant(text: &str) -> Result<Instant, String> {
    match text.parse::<Instant>()? {
        Instant::Seqno(_) | Instant::Peak => {
            Err(format!("`{text}` is no time; for event numbers there is the filter seqno"))
        }
        instant => Ok(instant),
    }
}

fn known_api(pattern: &str) -> Result<(), String> {
    let names: Vec<&str> = ApiKind::ALL.iter().map(|api| api.name()).collect();
    if pattern.contains(['*', '?']) || names.contains(&pattern) {
        return Ok(());
    }
    Err(format!("`{pattern}` is no entry point{}", nearest::hint(pattern, &names)))
}

fn find(name: &str) -> Option<Key> {
    KEYS.iter().find(|(_, names)| names.contains(&name)).map(|(key, _)| *key)
}

fn unknown(key: &str) -> String {
    let names: Vec<&str> = KEYS.iter().filter_map(|(_, names)| names.first()).copied().collect();
    let stem = key.strip_suffix("_min").or_else(|| key.strip_suffix("_max")).unwrap_or(key);
    format!(
        "`{key}` is no filter{}: there are {}; for what is measured also KEY_min and KEY_max",
        nearest::hint(stem, &names),
        nearest::list(&names)
    )
}

/// The parts of a list: commas within brackets belong to a name
/// (`new(align,nothrow)`, `map<int, int>`).
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0usize, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(text: &str) -> Vec<Test> {
        Condition::parse(text).unwrap().tests
    }

    #[test]
    fn values_are_lists_and_ranges() {
        let range = |low, high| Test::Range(low, high);
        assert_eq!(tests("size=4k..1MiB"), [range(Some(4096), Some(1 << 20))]);
        assert_eq!(
            tests("size=16,32, ..0x8"),
            [range(Some(16), Some(16)), range(Some(32), Some(32)), range(None, Some(8))]
        );
        assert_eq!(tests("age=10ms.."), [range(Some(10_000_000), None)]);
        assert_eq!(tests("lifetime=..1s"), [range(None, Some(1_000_000_000))]);
        assert_eq!(tests("seqno_min=#7"), [range(Some(7), None)]);
        assert_eq!(tests("class=40"), [range(Some(32), Some(63))]);
        assert_eq!(tests("class=0"), [range(Some(0), Some(0))]);
        assert_eq!(tests("thread=1..3"), [range(Some(1), Some(3))]);
        let name = |text: &str| Test::Pattern(text.to_string());
        assert_eq!(
            tests("function=a,map<int, int>,f(int, char)"),
            [name("a"), name("map<int, int>"), name("f(int, char)")]
        );
        assert_eq!(tests("api=new(align,nothrow)").len(), 1);
        assert_eq!(
            tests("time=@load..2s"),
            [Test::Span(Some(Instant::Mark("load".into())), Some(Instant::Ns(2_000_000_000)))]
        );
        assert!(Condition::parse("thread!=main").unwrap().negated);
    }

    #[test]
    fn nonsense_is_answered_in_a_sentence() {
        let error = |text: &str| Condition::parse(text).unwrap_err();
        for text in [
            "size",
            "size_min=big",
            "time_min=x",
            "seqno_max=y",
            "seqno=5k",
            "size=9..3",
            "age=1s",
            "time=#4..",
            "thread=a..b",
            "stack_min=3",
            "class_min=3",
            "api=maloc",
            "size=",
        ] {
            assert!(!error(text).is_empty(), "{text}");
        }
        assert!(error("tread=1").contains("did you mean `thread`?"), "{}", error("tread=1"));
        assert!(error("api=maloc").contains("did you mean `malloc`?"));
        assert!(error("colour=red").contains("there are thread, size, class, seqno"));
    }
}
