//! What the end-to-end tests share: the built `highwater`, programs that know
//! what they did, children with a time limit, and the numbers of other tools.
//!
//! A test here runs the real command on a real program and compares what it
//! says with something that was not made by highwater: the program's own
//! count, another tool's count, or the same program without highwater.
//! Everything panics with a sentence: that is what a test wants.

pub mod child;
pub mod corpus;
pub mod highwater;
pub mod known;
pub mod oracle;
pub mod programs;
pub mod scale;
pub mod schema;
pub mod tools;

pub use child::{Child, Ended};
pub use highwater::{Highwater, Recorded, record};
pub use known::Known;
pub use programs::Program;
pub use tempfile::TempDir;

/// A temporary folder of the test's own.
pub fn folder() -> TempDir {
    tempfile::Builder::new().prefix("highwater-test-").tempdir().expect("a temporary folder")
}

/// A number of a JSON object, with the whole object in the message if it is not there.
#[track_caller]
pub fn number(object: &serde_json::Value, key: &str) -> i64 {
    match object.get(key).and_then(serde_json::Value::as_i64) {
        Some(number) => number,
        None => panic!("no integer `{key}` in {object:#}"),
    }
}
