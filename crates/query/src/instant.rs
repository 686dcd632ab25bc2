//! Instants as people name them.

use crate::units;

/// A named instant of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instant {
    /// Before the first event.
    Start,
    /// After the last event.
    End,
    /// When the most bytes were alive.
    Peak,
    /// Nanoseconds since the start.
    Ns(u64),
    /// After the event with this number.
    Seqno(u64),
    /// At the first mark of this name.
    Mark(String),
}

impl std::str::FromStr for Instant {
    type Err = String;

    /// Reads `3m`, `120ms`, `#seqno`, `@mark`, `peak`, `start`, `end`.
    fn from_str(text: &str) -> Result<Instant, String> {
        let bad =
            || format!("`{text}` is no instant: write seconds, 120ms, 3m, #seqno, @mark, peak, start or end");
        match text.trim() {
            "start" => Ok(Instant::Start),
            "end" => Ok(Instant::End),
            "peak" => Ok(Instant::Peak),
            other => match (other.strip_prefix('#'), other.strip_prefix('@')) {
                (Some(seqno), _) => seqno.parse().map(Instant::Seqno).map_err(|_| bad()),
                (_, Some(mark)) if !mark.is_empty() => Ok(Instant::Mark(mark.to_string())),
                _ => units::time(other).map(Instant::Ns).ok_or_else(bad),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read() {
        assert_eq!("peak".parse(), Ok(Instant::Peak));
        assert_eq!("#12".parse(), Ok(Instant::Seqno(12)));
        assert_eq!("@loaded".parse(), Ok(Instant::Mark("loaded".into())));
        assert_eq!("120ms".parse(), Ok(Instant::Ns(120_000_000)));
        for text in ["", "@", "#x", "later"] {
            assert!(text.parse::<Instant>().is_err(), "{text}");
        }
    }
}
