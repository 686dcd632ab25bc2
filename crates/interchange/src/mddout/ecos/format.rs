//! `-f`: a record in the user's own words.

use super::record::{Line, address};
use super::{Failure, Named};

/// A piece of a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// As it stands.
    Text(String),
    /// `%p %n %m %o %s %a %T %t %h %N`
    Field(char),
    /// `%b %f %w %l` with the level from 1 to 8.
    Level(char, usize),
}

/// Reads a format string. `\n`, `\t`, `\"`, `\\` stand for what they do in C.
pub(super) fn parse(text: &str) -> Result<Vec<Piece>, String> {
    let mut out = Vec::new();
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            match chars.next() {
                Some('n') => plain.push('\n'),
                Some('t') => plain.push('\t'),
                Some(c @ ('"' | '\\' | '\'')) => plain.push(c),
                Some(other) => plain.extend(['\\', other]),
                None => plain.push('\\'),
            }
            continue;
        }
        if c != '%' {
            plain.push(c);
            continue;
        }
        let piece = match chars.next() {
            Some('%') => {
                plain.push('%');
                continue;
            }
            Some(field @ ('p' | 'n' | 'm' | 'o' | 's' | 'a' | 'T' | 't' | 'h' | 'N')) => Piece::Field(field),
            Some(what @ ('b' | 'f' | 'w' | 'l')) => match chars.next().and_then(|d| d.to_digit(10)) {
                Some(level @ 1..=8) => Piece::Level(what, level as usize),
                _ => return Err(format!("%{what} wants a level from 1 to 8")),
            },
            Some(other) => return Err(format!("unknown conversion %{other}")),
            None => return Err("a % at the end".into()),
        };
        if !plain.is_empty() {
            out.push(Piece::Text(std::mem::take(&mut plain)));
        }
        out.push(piece);
    }
    if !plain.is_empty() {
        out.push(Piece::Text(plain));
    }
    Ok(out)
}

/// Can the dump serve every conversion?
pub(super) fn check(pieces: &[Piece], of: &Named, exe: bool) -> Result<(), Failure> {
    let o = &of.dump.options;
    let missing = |text: String| Err(Failure::Missing(text));
    for piece in pieces {
        match piece {
            Piece::Field(c @ ('m' | 'o')) if !o.actual => {
                return missing(format!("%{c}: no actual sizes in {}", of.name));
            }
            Piece::Field('T') if !o.time => return missing(format!("%T: no time stamps in {}", of.name)),
            Piece::Field(c @ ('t' | 'h' | 'N')) if !o.thread => {
                return missing(format!("%{c}: no thread information in {}", of.name));
            }
            Piece::Level(c, level) if *level > usize::from(o.backtrace) => {
                let levels = o.backtrace;
                return missing(format!("%{c}{level}: only {levels} levels of backtrace in {}", of.name));
            }
            Piece::Level(c @ ('f' | 'w' | 'l'), level) if !exe => {
                return missing(format!("%{c}{level} needs the executable"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What stands for something that is not known.
const UNKNOWN: &str = "??";

/// The record as the pieces say.
pub(super) fn fill(pieces: &[Piece], line: &Line<'_>) -> String {
    let abi = line.dump.abi;
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Field(c) => {
                let (block, event) = (line.block, line.event);
                let actual = block.actual.unwrap_or(0);
                let thread = event.thread.and_then(|t| line.dump.thread(t));
                out.push_str(&match c {
                    'p' => address(abi, block.ptr),
                    'n' => block.size.to_string(),
                    'm' => actual.to_string(),
                    'o' => actual.saturating_sub(block.size).to_string(),
                    's' => event.seq.to_string(),
                    'a' => line.kind(),
                    'T' => event.time.unwrap_or(0).to_string(),
                    't' => event.thread.unwrap_or(0).to_string(),
                    'h' => address(abi, thread.map_or(0, |t| t.handle)),
                    _ => thread.map_or(UNKNOWN.into(), |t| t.name.clone()),
                });
            }
            Piece::Level(c, level) => {
                let frame = line.frames.get(level - 1);
                let place = frame.map(|f| &f.place);
                out.push_str(&match c {
                    'b' => address(abi, frame.map_or(0, |f| f.pc)),
                    'f' => place.and_then(|p| p.function.clone()).unwrap_or(UNKNOWN.into()),
                    'w' => match place.and_then(|p| p.location.as_ref()) {
                        Some((file, line)) => format!("{file}:{line}"),
                        None => UNKNOWN.into(),
                    },
                    _ => frame.and_then(|f| f.text.clone()).unwrap_or_default(),
                });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mddout::write::sample;

    #[test]
    fn the_documented_default_is_understood() {
        let default = r#"%p : %a %n bytes, %m (+%o), seqno %s, time %T\n By thread %t, %h %N\n 1) backtrace %b1 function %f1\n %w1\n \"%l1\""#;
        let pieces = parse(default).unwrap();
        assert_eq!(pieces.iter().filter(|p| !matches!(p, Piece::Text(_))).count(), 14);
        assert_eq!(pieces.last(), Some(&Piece::Text("\"".into())));
        assert_eq!(parse("100%%").unwrap(), [Piece::Text("100%".into())]);
    }

    #[test]
    fn each_conversion_names_what_it_lacks() {
        let mut dump = sample();
        dump.options.actual = false;
        dump.options.time = false;
        dump.options.thread = false;
        let of = Named { name: "F".into(), dump };
        let error = |f: &str, exe| check(&parse(f).unwrap(), &of, exe).unwrap_err().to_string();
        assert_eq!(error("%m", false), "%m: no actual sizes in F");
        assert_eq!(error("%o", false), "%o: no actual sizes in F");
        assert_eq!(error("%T", false), "%T: no time stamps in F");
        assert_eq!(error("%h", false), "%h: no thread information in F");
        assert_eq!(error("%b2", true), "%b2: only 1 levels of backtrace in F");
        assert_eq!(error("%f1", false), "%f1 needs the executable");
        assert!(check(&parse("%f1 %w1 %l1 %b1 %p %n %s %a").unwrap(), &of, true).is_ok());
    }

    #[test]
    fn wrong_conversions() {
        for wrong in ["%", "%q", "%b", "%b0", "%b9", "%fx"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
