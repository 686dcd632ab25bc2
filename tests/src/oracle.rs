//! Stacks compared with those of another unwinder (`programs/oracle.c`).

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::path::Path;

use serde::Deserialize;

use crate::child::Child;
use crate::highwater::{Highwater, record_with};
use crate::programs::Program;

/// The part of `history --json` that is compared: streamed, because stacks are long.
#[derive(Deserialize)]
struct History {
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    op: String,
    address: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    stack: Vec<Frame>,
}

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    address: Option<String>,
    #[serde(default)]
    function: Option<String>,
    #[serde(default)]
    module: Option<String>,
    #[serde(default)]
    inlined: bool,
}

/// What came out of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Stacks that both saw.
    pub compared: usize,
    /// Frames of them.
    pub frames: usize,
    /// The deepest of them, in frames.
    pub deepest: usize,
    /// Stacks of which highwater says that they are cut.
    pub cut: usize,
    /// Those of them of which the other unwinder saw more.
    pub short: usize,
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16)
        .unwrap_or_else(|_| panic!("`{text}` is no address"))
}

/// The oracle's records by block, in the order in which they were made.
fn oracle_stacks(file: &Path) -> Vec<(u64, u64, Vec<u64>)> {
    use std::io::Read;
    let mut input =
        std::fs::File::open(file).unwrap_or_else(|error| panic!("the oracle wrote nothing: {error}"));
    let mut word = [0u8; 8];
    input.read_exact(&mut word).expect("the oracle's count");
    let used = u64::from_le_bytes(word);
    let mut bytes = Vec::new();
    input.take(used.saturating_sub(1) * 8).read_to_end(&mut bytes).expect("the oracle's records");
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().expect("eight"))).collect();
    let mut stacks = Vec::new();
    let mut rest = &words[..];
    while let [pointer, size, _thread, count, more @ ..] = rest {
        let count = *count as usize;
        stacks.push((*pointer, *size, more[..count].to_vec()));
        rest = &more[count..];
    }
    stacks
}

/// highwater's frames from the first outside of the oracle, and whether they are cut.
fn outside_of_the_oracle(stack: &[Frame]) -> (Vec<u64>, bool) {
    let real: Vec<&Frame> = stack.iter().filter(|frame| !frame.inlined).collect();
    let is_oracle =
        |frame: &&Frame| frame.module.as_deref().is_some_and(|module| module.ends_with("/oracle"));
    let first = real.iter().take(8).rposition(is_oracle).map_or(0, |index| index + 1);
    // The marker that says why a stack ends early is no frame.
    let is_marker =
        |frame: &&&Frame| frame.function.as_deref().is_some_and(|name| name.starts_with("[truncated"));
    let frames = real[first..].iter().filter(|frame| !is_marker(frame));
    let addresses: Vec<u64> = frames.filter_map(|frame| frame.address.as_deref()).map(number).collect();
    let cut = addresses.len() != real.len() - first;
    (addresses, cut)
}

/// Records the program with the oracle beside the agent and compares up to
/// `most` stacks frame by frame; panics at the first difference.
///
/// A block is found again by its address and size; the n-th stack for such a
/// pair is the n-th in both, because an address cannot be given out twice
/// without a free between.
#[track_caller]
pub fn compare<A: AsRef<OsStr>>(
    program: &Path,
    args: impl IntoIterator<Item = A>,
    most: usize,
    prepare: impl FnOnce(Child) -> Child,
) -> Agreement {
    let oracle = Program::new("oracle.c").flags(&["-shared", "-fPIC"]).build();
    let folder = crate::folder();
    let file = folder.path().join("oracle");
    let exe = program.canonicalize().expect("the program is there");
    let recorded = record_with(&[], |child| {
        prepare(child)
            .env("LD_PRELOAD", &oracle)
            .env("ORACLE_FILE", &file)
            .env("ORACLE_EXE", &exe)
            .env("ORACLE_MAX", most.to_string())
            .arg("--")
            .arg(program)
            .args(args)
    })
    .expect_code(0);
    let wanted = oracle_stacks(&file);
    let view = Highwater::command(["history", "--json", "--limit"])
        // Frees count too, and what the oracle did not see (operator new's own).
        .arg((most * 4).to_string())
        .arg(&recorded.trace)
        .limit(std::time::Duration::from_secs(120))
        .run()
        .expect_code(0);
    let history: History = serde_json::from_slice(&view.out).expect("history --json");
    let mut ours: HashMap<(u64, u64), VecDeque<Vec<Frame>>> = HashMap::new();
    for event in history.events.into_iter().filter(|event| event.op == "alloc") {
        ours.entry((number(&event.address), event.size)).or_default().push_back(event.stack);
    }
    let mut result = Agreement::default();
    let comparable = wanted.iter().filter(|(_, _, stack)| !stack.is_empty()).count();
    for (pointer, size, expected) in &wanted {
        let Some(stack) = ours.get_mut(&(*pointer, *size)).and_then(VecDeque::pop_front) else {
            continue;
        };
        if expected.is_empty() {
            continue; // nothing to compare with
        }
        let (seen, cut) = outside_of_the_oracle(&stack);
        if cut {
            result.cut += 1;
            result.short += usize::from(seen.len() < expected.len());
            assert!(expected.starts_with(&seen), "{}", difference(&seen, expected));
        } else {
            assert!(&seen == expected, "block {pointer:#x} of {size} bytes: {}", difference(&seen, expected));
        }
        result.compared += 1;
        result.frames += seen.len();
        result.deepest = result.deepest.max(seen.len());
    }
    assert!(
        result.compared * 10 >= comparable * 9,
        "only {} of the {} blocks that the oracle saw are in the trace",
        result.compared,
        comparable
    );
    result
}

/// The first frame that differs, with its neighbours.
fn difference(seen: &[u64], expected: &[u64]) -> String {
    let at = seen.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(seen.len().min(expected.len()));
    let around = |list: &[u64]| {
        let from = at.saturating_sub(2);
        list.iter().skip(from).take(6).map(|pc| format!("{pc:#x} ")).collect::<String>()
    };
    format!(
        "frame {at} differs ({} frames instead of {}): …{}instead of …{}",
        seen.len(),
        expected.len(),
        around(seen),
        around(expected)
    )
}
