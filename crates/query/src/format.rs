//! `-f FORMAT`: rows in the user's own words, and the rows themselves.

use std::sync::Arc;

use crate::capability::Capability;
use crate::nearest;
use crate::session::{QueryError, Session};
use crate::stack::{Stack, function};

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Not known.
    Null,
    /// A count or a size.
    Number(u64),
    /// A time, ns; shown as seconds with nine decimals.
    Time(u64),
    /// An address; shown as `0x…`.
    Address(u64),
    /// A name.
    Text(Arc<str>),
}

impl Value {
    /// A name.
    pub fn text(text: &str) -> Value {
        Value::Text(Arc::from(text))
    }

    /// A name, where there is one.
    pub fn opt_text(text: Option<&str>) -> Value {
        text.map_or(Value::Null, Value::text)
    }

    /// A number, where there is one.
    pub fn opt_number(number: Option<u64>) -> Value {
        number.map_or(Value::Null, Value::Number)
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Null => Ok(()),
            Value::Number(number) => number.fmt(f),
            Value::Time(ns) => write!(f, "{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
            Value::Address(address) => write!(f, "{address:#x}"),
            Value::Text(text) => text.fmt(f),
        }
    }
}

/// A row of a view.
#[derive(Clone, Debug)]
pub struct Row {
    /// The names of the values.
    pub columns: &'static [&'static str],
    /// One for each column.
    pub values: Vec<Value>,
    /// The call stack.
    pub stack: Option<Arc<Stack>>,
}

impl Row {
    /// The value of a column.
    pub fn get(&self, column: &str) -> Option<&Value> {
        self.values.get(self.columns.iter().position(|name| *name == column)?)
    }
}

/// What stands for something that is not known.
const UNKNOWN: &str = "??";
/// Deepest level of a stack that a conversion names.
const LEVELS: u32 = 8;

/// eCos's conversions and the columns that they show, the first that a view has.
const CONVERSIONS: &[(char, &[&str])] = &[
    ('p', &["address"]),
    ('n', &["size", "bytes"]),
    ('m', &["actual_size"]),
    ('o', &["actual_size"]),
    ('s', &["seqno"]),
    ('a', &["api", "kind"]),
    ('T', &["time"]),
    ('t', &["thread", "id"]),
    ('h', &["tid"]),
    ('N', &["thread_name", "name"]),
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// As it stands.
    Text(String),
    /// `%p %n %m %o %s %a %T %t %h %N`
    Field(char),
    /// `%b %f %w %l` with the level from 1.
    Level(char, usize),
    /// `{column}`
    Column(String),
}

/// A format string: eCos's conversions, and `{column}` for any column of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    pieces: Vec<Piece>,
}

impl Format {
    /// Reads a format string. `\n`, `\t`, `\"`, `\\` stand for what they do in C;
    /// what is no conversion and no `{column}` stands for itself.
    ///
    /// # Errors
    /// A sentence about the first conversion that there is not.
    pub fn parse(text: &str) -> Result<Format, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            let piece = match c {
                '\\' => {
                    match chars.next() {
                        Some((_, 'n')) => plain.push('\n'),
                        Some((_, 't')) => plain.push('\t'),
                        Some((_, c @ ('"' | '\\' | '\''))) => plain.push(c),
                        Some((_, other)) => plain.extend(['\\', other]),
                        None => plain.push('\\'),
                    }
                    continue;
                }
                '%' => match chars.next().map(|(_, c)| c) {
                    Some('%') => {
                        plain.push('%');
                        continue;
                    }
                    Some(c) if CONVERSIONS.iter().any(|(known, _)| *known == c) => Piece::Field(c),
                    Some(c @ ('b' | 'f' | 'w' | 'l')) => {
                        match chars.next().and_then(|(_, digit)| digit.to_digit(10)) {
                            Some(level @ 1..=LEVELS) => Piece::Level(c, level as usize),
                            _ => return Err(format!("%{c} wants a level from 1 to {LEVELS}, as in %{c}1")),
                        }
                    }
                    Some(other) => {
                        return Err(format!(
                            "there is no conversion %{other}: there are %p %n %m %o %s %a %T %t %h %N, \
                             and %b %f %w %l with a level"
                        ));
                    }
                    None => return Err("a % at the end: write %% for one".to_string()),
                },
                '{' => match text[at + 1..].split_once('}') {
                    Some((name, _)) if is_name(name) => {
                        chars.nth(name.len());
                        Piece::Column(name.to_string())
                    }
                    _ => {
                        plain.push('{');
                        continue;
                    }
                },
                c => {
                    plain.push(c);
                    continue;
                }
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(piece);
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Format { pieces })
    }

    /// Can a view with these columns serve every conversion, and can the trace?
    ///
    /// # Errors
    /// What cannot be served: the view has no such column, the trace lacks it.
    pub fn check(&self, columns: &[&str], session: &Session) -> Result<(), QueryError> {
        let facts = session.facts();
        for piece in &self.pieces {
            let (option, column, need) = match piece {
                Piece::Text(_) => continue,
                Piece::Field(c) => {
                    let need = match c {
                        'm' | 'o' => Some(Capability::ActualSizes),
                        'T' => Some(Capability::Times),
                        't' | 'h' | 'N' => Some(Capability::Threads),
                        _ => None,
                    };
                    (format!("-f %{c}"), column_of(*c, columns), need)
                }
                Piece::Level(c, level) => {
                    let option = format!("-f %{c}{level}");
                    Capability::Stacks.require(facts, &option)?;
                    if let Some(depth) = facts
                        .meta
                        .option("depth")
                        .and_then(|depth| depth.parse().ok())
                        .filter(|depth: &usize| *level > *depth)
                    {
                        return Err(QueryError::Usage(format!(
                            "{option}: only {depth} levels of backtrace in {}",
                            facts.path.display()
                        )));
                    }
                    let need = if *c == 'b' { Capability::Stacks } else { Capability::Names };
                    (option, columns.iter().find(|column| **column == "function").copied(), Some(need))
                }
                Piece::Column(name) => {
                    let found = columns.iter().find(|column| **column == name.as_str()).copied();
                    let need = (name == "actual_size").then_some(Capability::ActualSizes);
                    (format!("-f {{{name}}}"), found, need)
                }
            };
            if column.is_none() {
                let hint = match piece {
                    Piece::Column(name) => nearest::hint(name, columns),
                    _ => String::new(),
                };
                return Err(QueryError::Usage(format!(
                    "{option}: this view has no such column{hint}; it has {}",
                    nearest::list(columns)
                )));
            }
            if let Some(need) = need {
                need.require(facts, &option)?;
            }
        }
        Ok(())
    }

    /// The row in these words. The text of source lines is looked up in `session`.
    pub fn fill(&self, row: &Row, session: &mut Session) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Field(c) => out.push_str(&field(*c, row)),
                Piece::Column(name) => out.push_str(&row.get(name).map(Value::to_string).unwrap_or_default()),
                Piece::Level(c, level) => out.push_str(&level_text(*c, *level, row, session)),
            }
        }
        out
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

fn column_of<'c>(conversion: char, columns: &[&'c str]) -> Option<&'c str> {
    let (_, names) = CONVERSIONS.iter().find(|(c, _)| *c == conversion)?;
    names.iter().find_map(|name| columns.iter().find(|column| *column == name).copied())
}

fn field(c: char, row: &Row) -> String {
    let Some(value) = column_of(c, row.columns).and_then(|column| row.get(column)) else {
        return String::new();
    };
    match (c, value) {
        ('o', Value::Number(actual)) => match row.get("size") {
            Some(Value::Number(size)) => actual.saturating_sub(*size).to_string(),
            _ => UNKNOWN.to_string(),
        },
        ('a', Value::Text(name)) => call(name),
        (_, Value::Null) => UNKNOWN.to_string(),
        (_, value) => value.to_string(),
    }
}

/// An entry point as eCos writes it: `malloc()`, but `new`, `delete[]`.
pub fn call(name: &str) -> String {
    let operator = name.starts_with("new") || name.starts_with("delete");
    if operator { name.to_string() } else { format!("{name}()") }
}

fn level_text(c: char, level: usize, row: &Row, session: &mut Session) -> String {
    let frame = row.stack.as_ref().and_then(|stack| stack.frames.get(level - 1));
    let Some(frame) = frame else { return UNKNOWN.to_string() };
    let place = frame.file.as_deref().zip(frame.line);
    match (c, place) {
        ('b', _) => format!("{:#x}", frame.address),
        ('f', _) => function(frame).unwrap_or(UNKNOWN).to_string(),
        ('w', Some((file, line))) => format!("{file}:{line}"),
        ('l', Some((file, line))) => session.source_line(file, line).unwrap_or_default(),
        ('l', None) => String::new(),
        _ => UNKNOWN.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    const COLUMNS: &[&str] = &[
        "seqno",
        "time",
        "thread",
        "tid",
        "thread_name",
        "api",
        "address",
        "size",
        "actual_size",
        "function",
    ];

    fn session() -> Session {
        let mut made = Made::default().node(1, 0, "main", "main.c", 3).node(2, 1, "load", "load.c", 7);
        made.facts.meta.options = vec!["actual_size".to_string()];
        made.session()
    }

    fn row(session: &mut Session) -> Row {
        let values = vec![
            Value::Number(7),
            Value::Time(1_000_000_020),
            Value::Number(1),
            Value::Number(4711),
            Value::text("worker"),
            Value::text("malloc"),
            Value::Address(0x2a43e8),
            Value::Number(1553),
            Value::Number(1568),
            Value::text("load"),
        ];
        Row { columns: COLUMNS, values, stack: Some(session.stack(2)) }
    }

    #[test]
    fn every_conversion_is_filled() {
        let mut session = session();
        let row = row(&mut session);
        let mut fill = |text: &str| {
            let format = Format::parse(text).unwrap();
            format.check(COLUMNS, &session).unwrap();
            format.fill(&row, &mut session)
        };
        assert_eq!(fill("%p %a %n @ %T"), "0x2a43e8 malloc() 1553 @ 1.000000020");
        assert_eq!(fill("%m (+%o) #%s"), "1568 (+15) #7");
        assert_eq!(fill(r"%t\t%h %N"), "1\t4711 worker");
        assert_eq!(fill("%b1 %f1 %w1|%f2 %w2|%f3 %w3 %b3"), "0x1002 load load.c:7|main main.c:3|?? ?? ??");
        assert_eq!(fill("%l1"), "");
        assert_eq!(fill("100%% {size} {function}"), "100% 1553 load");
        assert_eq!(fill(r#"{"at":"%p"} {} {A} {"#), r#"{"at":"0x2a43e8"} {} {A} {"#);
        assert_eq!(call("new[](nothrow)"), "new[](nothrow)");
    }

    #[test]
    fn what_cannot_be_served_is_named() {
        let error = |text: &str, columns: &[&str], session: &Session| {
            Format::parse(text).unwrap().check(columns, session).unwrap_err().to_string()
        };
        let mut lacking = Made::default();
        lacking.facts.path = "F".into();
        lacking.facts.meta.options =
            ["from=mddout", "no_times", "no_threads", "depth=2"].map(str::to_string).to_vec();
        let lacking = lacking.session();
        assert_eq!(error("%m", COLUMNS, &lacking), "-f %m: no actual sizes in F");
        assert_eq!(error("%o", COLUMNS, &lacking), "-f %o: no actual sizes in F");
        assert_eq!(error("%T", COLUMNS, &lacking), "-f %T: no time stamps in F");
        assert_eq!(error("%N", COLUMNS, &lacking), "-f %N: no thread information in F");
        assert_eq!(error("%b3", COLUMNS, &lacking), "-f %b3: only 2 levels of backtrace in F");
        assert_eq!(
            error("%w2", COLUMNS, &lacking),
            "-f %w2: no names of functions (--exe names the executable) in F"
        );
        let session = session();
        assert!(error("%p", &["bytes"], &session).contains("-f %p: this view has no such column"));
        assert!(error("{sise}", COLUMNS, &session).contains("did you mean `size`?"));
    }

    #[test]
    fn what_is_no_conversion_is_refused() {
        for wrong in ["%", "%q", "%b", "%b0", "%b9", "%fx"] {
            assert!(Format::parse(wrong).is_err(), "{wrong}");
        }
    }
}
