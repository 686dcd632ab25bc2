//! Children with a time limit.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::PACKAGES;

/// What a child wrote, both streams.
#[derive(Debug)]
pub struct Finished {
    /// It ended with status 0.
    pub success: bool,
    /// stdout, then stderr.
    pub text: String,
}

/// A child that is killed when this goes.
pub struct Guarded(pub Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program.
///
/// # Panics
/// If it cannot be started: says what to install.
pub fn start(command: &mut Command) -> Guarded {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).spawn() {
        Ok(child) => Guarded(child),
        Err(error) => panic!(
            "cannot run {name} ({error}): these tests need\n    apt-get install --no-install-recommends {PACKAGES}"
        ),
    }
}

/// Runs a program to its end.
///
/// # Panics
/// If it cannot be started, or takes longer than `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    let shown = format!("{command:?}");
    let mut child = start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let out = reader(child.0.stdout.take());
    let err = reader(child.0.stderr.take());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < limit, "more than {limit:?}: {shown}");
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = out.join().unwrap() + &err.join().unwrap();
    Finished { success: status.success(), text }
}

fn reader(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for something to become true.
///
/// # Panics
/// After ten seconds.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(10), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The length of a file, 0 if there is none.
pub fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}
