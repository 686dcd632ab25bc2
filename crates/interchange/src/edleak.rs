//! edleak's slices: what each site holds, at one instant after the other.
//!
//! Three layouts are read; which one it is, the file says by itself.
//!
//! ```text
//! [ [ {"eip": "0x4005d0:parse", "memory": 384}, … ], … ]                    2011
//! { "slice": [ [ {"mem": 384, "alc": 0}, … ], … ],
//!   "allocer": [ {"id": 0, "stack": ["0x4005d0:parse", …],
//!                 "soname": ["0x400000:/usr/bin/app", …]}, … ],
//!   "annotations": [ {"id": 0, "class": "leak"} ] }                           2012
//! { "status": 0, "data": { …2012… } }                            the control channel
//! ```
//!
//! edleak gives no times. `times` (a list of seconds, one a slice) is read where it
//! is there, else `period` (seconds; the first slice comes after one), and `blocks`
//! beside `mem`. Other keys are passed over.
//!
//! edleak's own files are not always JSON: it writes symbol names as they are, so that
//! `operator"" _s` breaks its string. Such names are mended. A file that ends early
//! gives the slices that are whole.

pub mod write;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Why no slices can be read.
#[derive(Debug, thiserror::Error)]
pub enum EdleakError {
    /// The input cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// No JSON, or not edleak's.
    #[error("these are no slices of edleak: {0}")]
    Syntax(#[from] serde_json::Error),
}

/// What a site held at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Number of the slice, from 0.
    pub slice: u32,
    /// Bytes; negative where more was freed there than was made.
    pub size: i64,
    /// Blocks, where the file tells.
    pub blocks: Option<u64>,
}

/// A frame of a site's stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceFrame {
    /// Return address.
    pub address: u64,
    /// Function, where known; edleak cuts it at 63 characters.
    pub function: Option<String>,
    /// Path of the object, where known.
    pub module: Option<String>,
    /// Where that object is loaded.
    pub base: u64,
}

/// A site (edleak's execution context, its allocer) and what it held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SliceSite {
    /// Its number: edleak's `alc`, or in the layout of 2011 the order of first sight.
    pub id: u64,
    /// The innermost frame as people read it.
    pub name: String,
    /// Frames, innermost first; empty where the table of sites is lost.
    pub stack: Vec<SliceFrame>,
    /// One for each slice in which it occurs, in their order.
    pub points: Vec<Point>,
    /// What a person has called it (`leak`).
    pub class: Option<String>,
}

impl SliceSite {
    /// Its bytes in each slice where it occurs (edleak's "coring").
    pub fn sizes(&self) -> Vec<i64> {
        self.points.iter().map(|point| point.size).collect()
    }

    /// The time and bytes of each slice where it occurs.
    pub fn series<'a>(&'a self, slices: &'a Slices) -> impl Iterator<Item = (f64, i64)> + 'a {
        let at = |point: &Point| Some((*slices.times.get(point.slice as usize)?, point.size));
        self.points.iter().filter_map(at)
    }
}

/// A whole file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slices {
    /// When each slice was taken: seconds since the start, or its number from 1
    /// where the file does not tell.
    pub times: Vec<f64>,
    /// Are those seconds?
    pub timed: bool,
    /// The sites, by number.
    pub sites: Vec<SliceSite>,
    /// The file ended early: what came before is here.
    pub cut: bool,
    /// Names had to be mended: the file is no JSON.
    pub mended: bool,
}

/// Does this look like slices? `start` are the first bytes of the file.
pub fn is_slices(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let dense: String = text.chars().filter(|c| !c.is_whitespace()).take(64).collect();
    ["[[]", "[[{\"eip\"", "[[{\"memory\"", "{\"slice\"", "{\"allocer\"", "{\"status\"", "{\"annotations\""]
        .iter()
        .any(|begin| dense.starts_with(begin))
        || dense == "[]"
}

/// Reads slices.
///
/// # Errors
/// The input cannot be read, or is no JSON of edleak's.
pub fn read(mut input: impl Read) -> Result<Slices, EdleakError> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let damaged = matches!(text, Cow::Owned(_));
    match parse(&text) {
        Ok(slices) => Ok(Slices { mended: damaged, ..slices }),
        Err(error) if error.is_syntax() => {
            // The first complaint is about the file as it is.
            parse(&mend(&text))
                .map(|slices| Slices { mended: true, ..slices })
                .map_err(|_| EdleakError::Syntax(error))
        }
        Err(error) => Err(error.into()),
    }
}

fn parse(text: &str) -> Result<Slices, serde_json::Error> {
    let mut file = File::default();
    let mut json = serde_json::Deserializer::from_str(text);
    let cut = match Document(&mut file).deserialize(&mut json).and_then(|()| json.end()) {
        Ok(()) => false,
        // What has been read so far is whole; of a file without a slice nothing is.
        Err(error) if error.is_eof() && file.slices > 0 => true,
        Err(error) => return Err(error),
    };
    Ok(Slices { cut, ..file.finish() })
}

/// What has been read so far.
#[derive(Default)]
struct File {
    slices: u32,
    points: HashMap<u64, Vec<Point>>,
    /// Numbers of the layout of 2011, which has only names.
    by_name: HashMap<String, u64>,
    stacks: HashMap<u64, Vec<SliceFrame>>,
    classes: HashMap<u64, String>,
    times: Vec<f64>,
    period: Option<f64>,
}

impl File {
    fn slice(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            let id = match (entry.alc, entry.eip) {
                (Some(id), _) => id,
                (None, Some(name)) => {
                    let next = self.by_name.len() as u64;
                    *self.by_name.entry(name).or_insert_with_key(|name| {
                        self.stacks.insert(next, vec![frame(name, None)]);
                        next
                    })
                }
                (None, None) => continue,
            };
            let points = self.points.entry(id).or_default();
            match points.last_mut() {
                // A site that comes twice (a name of 2011 is no key) holds the sum.
                Some(last) if last.slice == self.slices => {
                    last.size = last.size.saturating_add(entry.mem);
                    last.blocks = last.blocks.zip(entry.blocks).map(|(a, b)| a.saturating_add(b));
                }
                _ => points.push(Point { slice: self.slices, size: entry.mem, blocks: entry.blocks }),
            }
        }
        self.slices += 1;
    }

    fn finish(mut self) -> Slices {
        let count = self.slices as usize;
        let timed = self.times.len() == count && self.times.windows(2).all(|pair| pair[0] <= pair[1]);
        let (times, timed) = match self.period.filter(|period| period.is_finite() && *period > 0.0) {
            _ if timed && count > 0 => (self.times, true),
            period => {
                let step = period.unwrap_or(1.0);
                ((1..=count).map(|number| number as f64 * step).collect(), period.is_some())
            }
        };
        let mut ids: Vec<u64> = self.points.keys().copied().collect();
        ids.sort_unstable();
        let sites = ids.into_iter().map(|id| {
            let stack = self.stacks.remove(&id).unwrap_or_default();
            SliceSite {
                id,
                name: stack.first().map_or_else(|| format!("context {id}"), shown),
                stack,
                points: self.points.remove(&id).unwrap_or_default(),
                class: self.classes.remove(&id),
            }
        });
        Slices { sites: sites.collect(), times, timed, ..Slices::default() }
    }
}

fn shown(frame: &SliceFrame) -> String {
    frame.function.clone().unwrap_or_else(|| format!("{:#x}", frame.address))
}

/// `0x4005d0:parse`, or only the address.
fn split(text: &str) -> (u64, Option<&str>) {
    let (address, rest) = match text.split_once(':') {
        Some((address, rest)) => (address, Some(rest).filter(|rest| !rest.is_empty())),
        None => (text, None),
    };
    match u64::from_str_radix(address.trim_start_matches("0x"), 16) {
        Ok(address) => (address, rest),
        Err(_) => (0, Some(text)),
    }
}

fn frame(text: &str, soname: Option<&str>) -> SliceFrame {
    let (address, function) = split(text);
    let (base, module) = soname.map_or((0, None), split);
    SliceFrame {
        address,
        function: function.map(str::to_string),
        module: module.filter(|module| *module != "unknown").map(str::to_string),
        base,
    }
}

#[derive(Deserialize)]
struct Entry {
    #[serde(alias = "memory", default)]
    mem: i64,
    alc: Option<u64>,
    eip: Option<String>,
    blocks: Option<u64>,
}

#[derive(Deserialize)]
struct Allocer {
    id: u64,
    #[serde(default)]
    stack: Vec<String>,
    #[serde(default)]
    soname: Vec<String>,
}

/// The client keys them by `alc` and stores them as `id`; a click on one that had a
/// class made `true` of it.
#[derive(Deserialize)]
struct Annotation {
    id: Option<u64>,
    alc: Option<u64>,
    #[serde(default)]
    class: serde_json::Value,
}

/// The file: an object, or an array of slices.
struct Document<'a>(&'a mut File);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of slices, or an object with `slice`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(entries) = list.next_element::<Vec<Entry>>()? {
            self.0.slice(entries);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut known = false;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match &*key {
                "slice" => map.next_value_seed(Document(self.0))?,
                "data" => map.next_value_seed(Document(self.0))?,
                "allocer" => {
                    for allocer in map.next_value::<Vec<Allocer>>()? {
                        let sonames = allocer.soname.iter().map(|name| Some(name.as_str()));
                        let sonames = sonames.chain(std::iter::repeat(None));
                        let frames = allocer.stack.iter().zip(sonames);
                        let frames = frames.map(|(text, soname)| frame(text, soname)).collect();
                        self.0.stacks.insert(allocer.id, frames);
                    }
                }
                "annotations" => {
                    for note in map.next_value::<Vec<Annotation>>()? {
                        let class = match note.class {
                            serde_json::Value::String(class) => Some(class),
                            serde_json::Value::Bool(true) => Some("leak".to_string()),
                            _ => None,
                        };
                        if let (Some(id), Some(class)) = (note.id.or(note.alc), class) {
                            self.0.classes.insert(id, class);
                        }
                    }
                }
                "times" => self.0.times = map.next_value()?,
                "period" => self.0.period = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            }
            known = true;
        }
        if known { Ok(()) } else { Err(A::Error::custom("there is no `slice` in it")) }
    }
}

/// Makes JSON of what edleak writes for names with quotes, backslashes and control
/// characters: a quote ends a string only where JSON goes on behind it.
fn mend(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text.chars();
    let mut inside = false;
    while let Some(c) = rest.next() {
        match c {
            '"' if !inside => {
                inside = true;
                out.push(c);
            }
            '"' => match rest.as_str().trim_start().chars().next() {
                None | Some(',' | ':' | ']' | '}') => {
                    inside = false;
                    out.push(c);
                }
                Some(_) => out.push_str("\\\""),
            },
            '\\' if inside => {
                let escape = rest.as_str().chars().next();
                if escape.is_some_and(|c| "\"\\/bfnrt".contains(c)) {
                    out.push(c);
                    out.extend(rest.next());
                } else {
                    out.push_str("\\\\");
                }
            }
            c if inside && c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
