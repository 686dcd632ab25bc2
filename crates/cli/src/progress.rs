//! How far long work is: a line on the terminal, which goes away again.
//!
//! Only on stderr, only where that is a terminal, and only until data comes: whoever
//! writes a line of words takes this one away first ([`clear`]), and nothing is shown
//! any more from the moment that a view begins its output ([`end`]).

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Work that takes less is not spoken of.
const PATIENCE: Duration = Duration::from_millis(600);
/// Between two lines.
const APART: Duration = Duration::from_millis(200);

static SHOWN: Mutex<Progress> = Mutex::new(Progress::NEW);

/// What there is to say, and what was said.
struct Progress {
    /// When this work began, and how many events had been read by then.
    began: Option<(Instant, u64)>,
    /// How many were read last time.
    done: u64,
    /// When the line was written, and its width; nothing is on the terminal if 0.
    told: Option<Instant>,
    width: usize,
    over: bool,
}

impl Progress {
    const NEW: Progress = Progress { began: None, done: 0, told: None, width: 0, over: false };

    /// The line, if it is time for one.
    fn line(&mut self, now: Instant, done: u64, all: u64) -> Option<String> {
        let (began, from) = match self.began {
            Some(began) if self.done <= done => began,
            // Another pass begins.
            _ => *self.began.insert((now, done)),
        };
        self.done = done;
        let soon = self.told.is_some_and(|told| now.duration_since(told) < APART);
        let spent = now.duration_since(began);
        if self.over || soon || spent < PATIENCE || all == 0 {
            return None;
        }
        self.told = Some(now);
        let share = u128::from(done) * 100 / u128::from(all);
        let mut line = format!("highwater: {share} % of {} events", events(all));
        let read = done.saturating_sub(from);
        if read > 0 {
            let left = spent.as_secs_f64() * all.saturating_sub(done) as f64 / read as f64;
            line += &format!(", about {:.0} s left", left.ceil());
        }
        Some(line)
    }
}

/// A number of events in few signs.
fn events(count: u64) -> String {
    match count {
        0..1_000_000 => count.to_string(),
        _ => format!("{:.1} million", count as f64 / 1e6),
    }
}

fn shown() -> MutexGuard<'static, Progress> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of `all` events, those below number `done` have been read.
pub fn tell(done: u64, all: u64) {
    let mut shown = shown();
    if shown.over || !io::stderr().is_terminal() {
        return;
    }
    if let Some(line) = shown.line(Instant::now(), done, all) {
        // Nobody may be listening.
        let _ = write!(io::stderr(), "\r{line:<width$}", width = shown.width);
        shown.width = line.len();
    }
}

/// Takes the line away; another may come.
pub fn clear() {
    let width = std::mem::take(&mut shown().width);
    if width > 0 {
        let _ = write!(io::stderr(), "\r{:width$}\r", "");
    }
}

/// Takes the line away for good.
pub fn end() {
    clear();
    shown().over = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_is_told_of_now_and_then() {
        let mut progress = Progress::NEW;
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut line = |ms, done| progress.line(at(ms), done, 20_000_000);
        assert_eq!(line(0, 0), None);
        assert_eq!(line(500, 1_000_000), None);
        let told = "highwater: 10 % of 20.0 million events, about 9 s left";
        assert_eq!(line(1000, 2_000_000).as_deref(), Some(told));
        assert_eq!(line(1100, 2_300_000), None);
        let told = "highwater: 50 % of 20.0 million events, about 4 s left";
        assert_eq!(line(4000, 10_000_000).as_deref(), Some(told));
        // A second pass over the same events takes its own time.
        assert_eq!(line(8000, 0), None);
        assert_eq!(line(8400, 5_000_000), None);
        let told = "highwater: 50 % of 20.0 million events, about 1 s left";
        assert_eq!(line(9000, 10_000_000).as_deref(), Some(told));
        progress.over = true;
        assert_eq!(progress.line(at(20_000), 12_000_000, 20_000_000), None);
    }

    #[test]
    fn a_line_fits_the_terminal() {
        let mut progress = Progress::NEW;
        let began = Instant::now();
        // As many events as a damaged file may say.
        progress.line(began, 0, u64::MAX);
        let line = progress.line(began + Duration::from_secs(9), u64::MAX / 2, u64::MAX).unwrap();
        assert!(line.starts_with("highwater: 49 % of ") && line.len() < 80, "{line}");
        assert_eq!((events(999_999).as_str(), events(1_500_000).as_str()), ("999999", "1.5 million"));
    }
}
