//! Damaged, foreign and empty files: one clear line, or the valid part with a
//! warning. Never a report of zeros, never a panic.

use std::fs;
use std::path::Path;

use highwater_tests::scale::times;
use highwater_tests::{Ended, Highwater, Recorded, number, record, schema};

fn recording() -> Recorded {
    let code = "x = [bytearray(i) for i in range(3000)]";
    record("/usr/bin/python3", ["-S", "-c", code]).expect_code(0)
}

fn stats(trace: &Path) -> Ended {
    Highwater::command(["stats", "--json"]).arg(trace).run()
}

/// Refused: exit 2, nothing on stdout, one line that names the file.
#[track_caller]
fn refused(trace: &Path, word: &str) {
    for view in ["stats", "dump", "history", "peak", "leaks", "errors"] {
        let ended = Highwater::command([view]).arg(trace).run();
        assert_eq!((ended.code(), ended.stdout().as_str()), (2, ""), "{view}: {}", ended.stderr());
        let words = ended.stderr();
        assert_eq!(words.lines().count(), 1, "{view}: {words}");
        let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
        assert!(words.contains(&name) && words.contains(word), "{view}: no `{word}`: {words}");
    }
}

#[test]
fn a_file_that_is_not_there_is_said_once() {
    let ended = Highwater::command(["stats", "no-such-trace.hwt"]).run().expect_code(2);
    assert_eq!(ended.stderr().matches("No such file").count(), 1, "{}", ended.stderr());
}

#[test]
fn an_empty_file_is_refused() {
    let folder = highwater_tests::folder();
    let file = folder.path().join("empty.hwt");
    fs::write(&file, "").expect("a file");
    refused(&file, "empty");
}

#[test]
fn a_foreign_file_is_refused() {
    let folder = highwater_tests::folder();
    for (name, bytes) in [
        ("text.hwt", b"int main(void) { return 0; }\n".repeat(100)),
        ("zeros.hwt", vec![0; 10_000]),
        ("elf.hwt", fs::read("/bin/true").expect("a program")),
        ("short.hwt", b"h".to_vec()),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, bytes).expect("a file");
        refused(&file, "");
    }
    refused(&folder.path().join("not-there.hwt"), "");
    let nested = folder.path().join("folder.hwt");
    fs::create_dir(&nested).expect("a folder");
    refused(&nested, "");
}

#[test]
fn a_cut_file_opens_with_its_valid_part_and_a_warning() {
    let recorded = recording();
    let bytes = fs::read(&recorded.trace).expect("the trace");
    let whole = number(&recorded.stats(), "events");
    let cut = recorded.folder().join("cut.hwt");
    let steps = times(60, 2000);
    let mut last = 0;
    let mut opened = 0;
    for step in 0..=steps {
        let length = bytes.len() * step / steps;
        fs::write(&cut, &bytes[..length]).expect("a cut file");
        let ended = stats(&cut);
        let words = ended.stderr();
        assert!(!words.contains("panicked"), "at {length}: {words}");
        match ended.code() {
            0 => {
                let seen = schema::document(&ended.out);
                let events = number(&seen, "events");
                assert!(events >= last && events <= whole, "{events} events at {length}, {last} before");
                last = events;
                opened += 1;
                let complete = seen["complete"] == true;
                assert!(
                    length == bytes.len() || !complete,
                    "a cut at {length} of {} is not complete",
                    bytes.len()
                );
                let said = seen["incomplete"].as_array().is_some_and(|list| !list.is_empty());
                assert!(complete || said, "no warning at {length}: {seen:#}");
            }
            2 => assert_eq!(words.lines().count(), 1, "at {length}: {words}"),
            other => panic!("exit {other} at {length}: {words}"),
        }
    }
    assert_eq!(last, whole);
    assert!(opened > steps / 2, "only {opened} of {steps} cuts opened");
}

#[test]
fn a_flipped_byte_is_found_and_costs_one_block() {
    let recorded = recording();
    let bytes = fs::read(&recorded.trace).expect("the trace");
    let whole = recorded.stats();
    let file = recorded.folder().join("flipped.hwt");
    let flips = times(40, 1000);
    for flip in 0..flips {
        let at = 16 + (bytes.len() - 16) * flip / flips;
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (flip % 8);
        fs::write(&file, damaged).expect("a damaged file");
        let ended = stats(&file);
        let words = ended.stderr();
        assert!(!words.contains("panicked"), "at {at}: {words}");
        match ended.code() {
            0 => {
                let seen = schema::document(&ended.out);
                // Found: it says so; or the byte was in what can be rebuilt, and every number is right.
                assert!(
                    seen["complete"] == false || seen["events"] == whole["events"],
                    "flip at {at} was not noticed: {seen:#}"
                );
                // What is missing is counted once: it was shown twice as many.
                let (there, missing) = (number(&seen, "events"), number(&seen, "dropped"));
                assert_eq!(there + missing, number(&whole, "events"), "flip at {at}: {seen:#}");
            }
            2 => assert_eq!(words.lines().count(), 1, "at {at}: {words}"),
            other => panic!("exit {other} at {at}: {words}"),
        }
    }
}

/// CRC-32 as zlib has it, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn a_cut_is_said_in_words_too() {
    let recorded = recording();
    let bytes = fs::read(&recorded.trace).expect("the trace");
    fs::write(&recorded.trace, &bytes[..bytes.len() / 2]).expect("a cut file");
    for view in ["stats", "peak", "leaks", "dump", "history"] {
        let ended = Highwater::command([view]).arg(&recorded.trace).run().expect_code(0);
        assert!(ended.stderr().contains("cut"), "{view}: {}", ended.stderr());
    }
}

#[test]
fn a_file_of_a_newer_version_is_refused_as_that() {
    let recorded = recording();
    let mut bytes = fs::read(&recorded.trace).expect("the trace");
    // The version is the number after the eight magic bytes; the header's
    // checksum is its last word.
    bytes[8] += 1;
    let checksum = crc32(&bytes[..28]).to_le_bytes();
    bytes[28..32].copy_from_slice(&checksum);
    let file = recorded.folder().join("newer.hwt");
    fs::write(&file, bytes).expect("a file");
    refused(&file, "version");
}

#[test]
fn a_very_long_command_line_is_no_problem() {
    let long = "x".repeat(100_000);
    let recorded =
        record("/usr/bin/python3", ["-S", "-c", "import sys; print(len(sys.argv[1]))", &long]).expect_code(0);
    assert_eq!(recorded.ended.stdout(), "100000\n");
    assert!(number(&recorded.stats(), "allocations") > 100);
}

#[test]
fn a_size_limit_ends_the_trace_and_not_the_target() {
    let code = "x = [bytearray(600 + i % 7000) for i in range(200000)]; print(len(x))";
    let recorded = highwater_tests::highwater::record_with(&["--max-trace-size", "200K"], |child| {
        child.args(["--", "/usr/bin/python3", "-S", "-c", code])
    })
    .expect_code(0);
    assert_eq!(recorded.ended.stdout(), "200000\n");
    let size = fs::metadata(&recorded.trace).expect("the trace").len();
    assert!(size <= 200 * 1024, "{size} bytes");
    let stats = recorded.stats();
    assert!(number(&stats, "events") > 1000 && stats["complete"] == false, "{stats:#}");
}
