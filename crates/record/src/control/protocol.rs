//! What goes over the socket: a request a line, a reply a line, both JSON
//! objects that carry the protocol's version.

use std::path::PathBuf;

use highwater_trace::reach::{Class, Reach};
use serde::{Deserialize, Serialize};

/// The version that this program speaks. A recorder refuses others.
pub const VERSION: u32 = 1;
/// Longest line, bytes: more is no request.
pub const MAX_LINE: usize = 64 << 10;
/// Longest name of a mark, bytes.
pub const MAX_NAME: usize = 1024;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum Request {
    /// Name this instant.
    Mark {
        /// Its name.
        name: String,
    },
    /// Say what is being recorded.
    Status,
    /// End the recording; the target runs on.
    Stop,
    /// Write a slice now.
    Slice,
    /// Look for unreachable blocks now.
    Scan,
}

/// What a scan found, in short; the whole is in the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scanned {
    /// When, nanoseconds since the start of the recording.
    pub ns: u64,
    /// How long the program stood still, nanoseconds.
    pub stopped_ns: u64,
    /// Bytes and blocks that nothing points to, directly or through lost blocks.
    pub lost: (u64, u64),
    /// Bytes and blocks that only pointers into their middle lead to.
    pub possible: (u64, u64),
    /// Bytes and blocks that something points to.
    pub reachable: (u64, u64),
}

impl Scanned {
    /// In short.
    pub fn of(reach: &Reach) -> Scanned {
        let of = |class: Class| -> (u64, u64) {
            reach.sites.iter().fold((0, 0), |(bytes, blocks), site| {
                let amount = site.classes[class as usize & 3];
                (u64::saturating_add(bytes, amount.bytes), u64::saturating_add(blocks, amount.blocks))
            })
        };
        let (definite, indirect) = (of(Class::Definite), of(Class::Indirect));
        Scanned {
            ns: reach.ns,
            stopped_ns: reach.stopped_ns,
            lost: (definite.0.saturating_add(indirect.0), definite.1.saturating_add(indirect.1)),
            possible: of(Class::Possible),
            reachable: of(Class::Reachable),
        }
    }
}

/// What is being recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The target.
    pub pid: u32,
    /// The recorder.
    pub recorder: u32,
    /// The file that the target runs.
    pub program: PathBuf,
    /// Its trace, absolute.
    pub trace: PathBuf,
    /// Events so far.
    pub events: u64,
    /// Bytes of the trace so far.
    pub trace_bytes: u64,
    /// Nanoseconds since the start.
    pub ns: u64,
    /// Marks so far.
    pub marks: u64,
    /// Why nothing is written any more, if it is not.
    pub cut: Option<String>,
}

/// What the recorder answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "lowercase")]
pub enum Reply {
    /// The mark is made.
    Marked {
        /// Nanoseconds since the start of the recording.
        ns: u64,
    },
    /// The answer to [`Request::Status`].
    Status(Status),
    /// The trace is complete; the target runs on.
    Stopped(Status),
    /// A slice is written.
    Sliced {
        /// Nanoseconds since the start of the recording.
        ns: u64,
    },
    /// The memory was scanned.
    Scanned(Scanned),
    /// It was not done.
    Refused {
        /// Why, as a sentence's end.
        reason: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    highwater: u32,
    #[serde(flatten)]
    what: T,
}

#[derive(Deserialize)]
struct OnlyVersion {
    highwater: u32,
}

/// A request or a reply as a line.
pub fn to_line<T: Serialize>(what: T) -> String {
    // Strings and numbers only: there is nothing that could fail.
    let mut line = serde_json::to_string(&Versioned { highwater: VERSION, what }).unwrap_or_default();
    line.push('\n');
    line
}

/// Reads a line.
///
/// # Errors
/// Why it is none, as a sentence's end.
pub fn from_line<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Result<T, String> {
    let version: OnlyVersion = serde_json::from_slice(line)
        .map_err(|_| "not understood: this is no line of highwater's control protocol".to_owned())?;
    if version.highwater != VERSION {
        return Err(format!(
            "version {} of the control protocol; version {VERSION} is spoken here",
            version.highwater
        ));
    }
    serde_json::from_slice::<Versioned<T>>(line)
        .map(|versioned| versioned.what)
        .map_err(|error| format!("not understood: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for request in [
            Request::Mark { name: "A1 \"x\"\n".into() },
            Request::Status,
            Request::Stop,
            Request::Slice,
            Request::Scan,
        ] {
            let line = to_line(&request);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(from_line::<Request>(line.trim_end().as_bytes()), Ok(request));
        }
        let reply = Reply::Stopped(Status { pid: 7, ..Status::default() });
        assert_eq!(from_line::<Reply>(to_line(&reply).as_bytes()), Ok(reply));
        assert_eq!(
            to_line(Request::Mark { name: "A1".into() }),
            "{\"highwater\":1,\"command\":\"mark\",\"name\":\"A1\"}\n"
        );
    }

    #[test]
    fn another_version_and_nonsense_are_refused_with_a_reason() {
        for (line, reason) in [
            ("{\"highwater\":2,\"command\":\"status\"}", "version 2 of"),
            ("{\"highwater\":1,\"command\":\"explode\"}", "unknown variant"),
            ("{\"highwater\":1,\"command\":\"mark\"}", "missing field"),
            ("hello", "no line of highwater's"),
            ("{}", "no line of highwater's"),
            ("", "no line of highwater's"),
        ] {
            let error = from_line::<Request>(line.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
