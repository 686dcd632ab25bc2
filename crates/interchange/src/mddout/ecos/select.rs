//! `-F` and `-S`.

use std::cmp::Ordering;

use super::{Failure, Named};
use crate::mddout::model::{Block, Event};

/// What a filter looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Thread,
    Size,
    Seq,
    Time,
    Ptr,
}

/// One `-F`. The bounds are inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    what: What,
    min: u64,
    max: u64,
}

/// `4096`, `0x1000`, `4k`, `1M`.
fn number(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    value.ok()?.checked_mul(unit)
}

impl Filter {
    /// Reads `KEY=VALUE`; the error says what is wrong.
    pub fn parse(text: &str) -> Result<Filter, String> {
        let (key, value) = text.split_once('=').ok_or(format!("-F wants KEY=VALUE, not {text}"))?;
        let value = number(value).ok_or(format!("{value} is no number"))?;
        let filter = |what, min, max| Ok(Filter { what, min, max });
        match key {
            "thread" => filter(What::Thread, value, value),
            "size_min" => filter(What::Size, value, u64::MAX),
            "size_max" => filter(What::Size, 0, value),
            "seqno_min" => filter(What::Seq, value, u64::MAX),
            "seqno_max" => filter(What::Seq, 0, value),
            "time_min" => filter(What::Time, value, u64::MAX),
            "time_max" => filter(What::Time, 0, value),
            "ptr_min" => filter(What::Ptr, value, u64::MAX),
            "ptr_max" => filter(What::Ptr, 0, value),
            _ => Err(format!("unknown filter {key}")),
        }
    }

    /// Can the dump serve it?
    pub fn check(&self, of: &Named) -> Result<(), Failure> {
        needs(of, self.what == What::Thread, self.what == What::Time)
    }

    /// Does the event of the block pass?
    pub fn passes(&self, block: &Block, event: &Event) -> bool {
        let value = match self.what {
            What::Thread => Some(u64::from(event.thread.unwrap_or(0))),
            What::Size => Some(block.size),
            What::Seq => Some(u64::from(event.seq)),
            What::Time => event.time,
            What::Ptr => Some(block.ptr),
        };
        value.is_some_and(|v| (self.min..=self.max).contains(&v))
    }
}

/// Says which capability is missing.
fn needs(of: &Named, thread: bool, time: bool) -> Result<(), Failure> {
    let options = &of.dump.options;
    if thread && !options.thread {
        return Err(Failure::Missing(format!("no thread information in {}", of.name)));
    }
    if time && !options.time {
        return Err(Failure::Missing(format!("no time stamps in {}", of.name)));
    }
    Ok(())
}

/// One letter of `-S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    letter: char,
    down: bool,
}

impl Key {
    /// `p P n N s S a t T`.
    pub fn parse(letter: char) -> Option<Key> {
        match letter {
            'p' | 'n' | 's' | 'a' | 't' => Some(Key { letter, down: false }),
            'P' | 'N' | 'S' | 'T' => Some(Key { letter: letter.to_ascii_lowercase(), down: true }),
            _ => None,
        }
    }

    /// Can the dump serve it?
    pub fn check(&self, of: &Named) -> Result<(), Failure> {
        needs(of, self.letter == 't', false)
    }

    fn compare(&self, a: &Block, b: &Block) -> Ordering {
        let order = match self.letter {
            'p' => a.ptr.cmp(&b.ptr),
            'n' => a.size.cmp(&b.size),
            's' => a.made.seq.cmp(&b.made.seq),
            'a' => a.made.kind.cmp(&b.made.kind),
            _ => a.made.thread.unwrap_or(0).cmp(&b.made.thread.unwrap_or(0)),
        };
        if self.down { order.reverse() } else { order }
    }
}

/// Sorts by the keys, without any by address; what is equal, by number.
pub(super) fn sort(blocks: &mut [&Block], keys: &[Key]) {
    let by_address = [Key { letter: 'p', down: false }];
    let keys = if keys.is_empty() { &by_address } else { keys };
    blocks.sort_by(|a, b| {
        let unequal = keys.iter().map(|k| k.compare(a, b)).find(|o| o.is_ne());
        unequal.unwrap_or_else(|| a.made.seq.cmp(&b.made.seq))
    });
}

/// The blocks that pass all filters, sorted.
pub(super) fn chosen<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    filters: &[Filter],
    keys: &[Key],
) -> Vec<&'a Block> {
    let mut out: Vec<_> = blocks.filter(|b| filters.iter().all(|f| f.passes(b, &b.made))).collect();
    sort(&mut out, keys);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mddout::write::sample;

    #[test]
    fn bounds_are_inclusive_and_numbers_may_be_human() {
        assert_eq!(
            [number("10"), number("0x10"), number("4k"), number("1M")],
            [10, 16, 4096, 1 << 20].map(Some)
        );
        assert_eq!([number(""), number("x"), number("99999999999999999999"), number("-1")], [None; 4]);
        let dump = sample();
        let passing = |f: &str| {
            let f = Filter::parse(f).unwrap();
            dump.live.iter().filter(|b| f.passes(b, &b.made)).map(|b| b.made.seq).collect::<Vec<_>>()
        };
        assert_eq!(passing("size_min=20"), [2]);
        assert_eq!(passing("size_max=10"), [0]);
        assert_eq!(passing("seqno_max=2"), [0, 2]);
        assert_eq!(passing("thread=2"), [2]);
        assert_eq!(passing("time_min=6"), [2]);
        assert_eq!(passing("ptr_max=0x20008010"), [0]);
    }

    #[test]
    fn equal_keys_fall_back_to_the_number() {
        let mut dump = sample();
        dump.live[0].size = 20;
        let keys: Vec<_> = "N".chars().filter_map(Key::parse).collect();
        let order: Vec<_> = chosen(dump.live.iter().rev(), &[], &keys).iter().map(|b| b.made.seq).collect();
        assert_eq!(order, [0, 2]);
        let keys: Vec<_> = "NS".chars().filter_map(Key::parse).collect();
        let order: Vec<_> = chosen(dump.live.iter(), &[], &keys).iter().map(|b| b.made.seq).collect();
        assert_eq!(order, [2, 0]);
    }

    #[test]
    fn a_missing_capability_is_named() {
        let mut dump = sample();
        dump.options.thread = false;
        let of = Named { name: "mddout.3".into(), dump };
        let error = Filter::parse("thread=1").unwrap().check(&of).unwrap_err();
        assert_eq!(error.to_string(), "no thread information in mddout.3");
        assert!(Key::parse('T').unwrap().check(&of).is_err());
        assert!(Filter::parse("time_min=1").unwrap().check(&of).is_ok());
    }
}
