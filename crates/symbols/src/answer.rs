//! What a module's files say about one address, and its form in the cache.
//!
//! All numbers are little-endian. A table of texts (`u32` count, then `u32`
//! length and bytes each), then the answers (`u32` count): address `u64`, count
//! of frames `u32`, frames, symbol. A frame: function, file, line, column (`u32`
//! each, 0 for none, texts as their place from 1) and `is_short` (`u8`). A
//! symbol: name (as above), start `u64`, `exact` `u8`.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::dwarf::RawFrame;

/// The functions at an address of the file, and the symbol where it is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// From the DWARF, innermost first; may be empty.
    pub(crate) frames: Vec<RawFrame>,
    /// Asked for only where the DWARF has not the physical function's full name.
    pub(crate) symbol: Option<Symbol>,
}

/// A symbol below an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// Its name, raw.
    pub(crate) name: String,
    /// Where it starts.
    pub(crate) start: u64,
    /// Whether it claims to hold the address.
    pub(crate) exact: bool,
}

/// Appends the answers, by address.
pub(crate) fn encode(answers: &FxHashMap<u64, Arc<Answer>>, out: &mut Vec<u8>) {
    let mut sorted: Vec<(&u64, &Arc<Answer>)> = answers.iter().collect();
    sorted.sort_unstable_by_key(|(address, _)| **address);
    let (mut texts, mut body) = (Texts::default(), Vec::new());
    for (address, answer) in &sorted {
        body.extend_from_slice(&address.to_le_bytes());
        put(&mut body, answer.frames.len() as u32);
        for frame in &answer.frames {
            put(&mut body, texts.place(frame.function.as_deref()));
            put(&mut body, texts.place(frame.file.as_deref()));
            put(&mut body, frame.line.unwrap_or(0));
            put(&mut body, frame.column.unwrap_or(0));
            body.push(u8::from(frame.is_short));
        }
        put(&mut body, texts.place(answer.symbol.as_ref().map(|symbol| symbol.name.as_str())));
        body.extend_from_slice(&answer.symbol.as_ref().map_or(0, |symbol| symbol.start).to_le_bytes());
        body.push(u8::from(answer.symbol.as_ref().is_some_and(|symbol| symbol.exact)));
    }
    put(out, texts.list.len() as u32);
    for text in &texts.list {
        put(out, text.len() as u32);
        out.extend_from_slice(text.as_bytes());
    }
    put(out, sorted.len() as u32);
    out.append(&mut body);
}

fn put(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Each text once, in the order of its first use.
#[derive(Default)]
struct Texts<'a> {
    list: Vec<&'a str>,
    places: FxHashMap<&'a str, u32>,
}

impl<'a> Texts<'a> {
    /// Its place, from 1; 0 for none.
    fn place(&mut self, text: Option<&'a str>) -> u32 {
        let Some(text) = text else { return 0 };
        *self.places.entry(text).or_insert_with(|| {
            self.list.push(text);
            self.list.len() as u32
        })
    }
}

/// The answers, if these bytes are all of them and nothing else.
pub(crate) fn decode(bytes: &[u8]) -> Option<FxHashMap<u64, Arc<Answer>>> {
    let mut from = From(bytes);
    // Counts are not believed: nothing is reserved for them.
    let mut texts = Vec::new();
    for _ in 0..from.u32()? {
        let len = from.u32()? as usize;
        texts.push(std::str::from_utf8(from.bytes(len)?).ok()?);
    }
    let text = |place: u32| match (place as usize).checked_sub(1) {
        None => Some(None),
        Some(at) => texts.get(at).map(|text| Some((*text).to_owned())),
    };
    let some = |number: u32| Some(number).filter(|&number| number != 0);
    let mut answers = FxHashMap::default();
    for _ in 0..from.u32()? {
        let address = from.u64()?;
        let mut frames = Vec::new();
        for _ in 0..from.u32()? {
            frames.push(RawFrame {
                function: text(from.u32()?)?,
                file: text(from.u32()?)?,
                line: some(from.u32()?),
                column: some(from.u32()?),
                is_short: from.u8()? != 0,
            });
        }
        let (name, start, exact) = (text(from.u32()?)?, from.u64()?, from.u8()? != 0);
        let symbol = name.map(|name| Symbol { name, start, exact });
        answers.insert(address, Arc::new(Answer { frames, symbol }));
    }
    from.0.is_empty().then_some(answers)
}

/// Bytes from the front.
struct From<'a>(&'a [u8]);

impl<'a> From<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> FxHashMap<u64, Arc<Answer>> {
        let frame = |function: Option<&str>, line| RawFrame {
            function: function.map(str::to_owned),
            is_short: line == Some(3),
            file: Some("a.c".into()),
            line,
            column: line,
        };
        let symbol = Some(Symbol { name: "f".into(), start: 7, exact: true });
        let list = [
            (1, Answer { frames: vec![frame(Some("f"), Some(3)), frame(None, None)], symbol: None }),
            (u64::MAX, Answer { frames: Vec::new(), symbol }),
            (5, Answer::default()),
        ];
        list.into_iter().map(|(address, answer)| (address, Arc::new(answer))).collect()
    }

    #[test]
    fn answers_come_back_as_they_were() {
        let mut bytes = Vec::new();
        encode(&some(), &mut bytes);
        assert_eq!(decode(&bytes), Some(some()));
    }

    #[test]
    fn cut_or_changed_bytes_are_no_answers_or_others_but_never_a_panic() {
        let mut bytes = Vec::new();
        encode(&some(), &mut bytes);
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None, "cut at {len}");
        }
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            // The checksum is the cache's; here only that it returns.
            let _ = decode(&changed);
        }
    }
}
