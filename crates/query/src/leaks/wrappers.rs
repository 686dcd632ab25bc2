//! Functions that only hand memory on: `zmalloc`, `js_malloc`, `xstrdup`. The
//! blame for a block falls on who called them.
//!
//! Known ones are in [`crate::site`]. Others are learned from the recording: a
//! function is a wrapper if blocks of different sizes come from it for different
//! callers. A constructor has many callers too, but one size. The rule is looser
//! for a function that says in its name what it does.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::glob;
use crate::stack::{Stack, base_name, function, is_pseudo};

/// Rounds of learning: wrappers around wrappers.
const ROUNDS: usize = 4;
/// Parts of names that promise an allocator.
const NAMES: &[&str] = &["alloc", "strdup", "strndup", "memdup"];

/// Callers and sizes that a function must have to be a wrapper.
#[derive(Clone, Copy)]
struct Needs {
    callers: usize,
    sizes: usize,
    /// Share of all stacks that pass through it, in percent.
    share: usize,
}

/// Of a function whose name promises it.
const NAMED: Needs = Needs { callers: 2, sizes: 2, share: 0 };
/// Of any other.
const OTHER: Needs = Needs { callers: 8, sizes: 8, share: 5 };

/// Which functions are wrappers.
#[derive(Clone, Debug, Default)]
pub struct Wrappers {
    given: Vec<String>,
    learned: FxHashSet<String>,
}

/// A stack to learn from.
#[derive(Clone, Copy)]
pub struct Sample<'a> {
    /// It.
    pub stack: &'a Stack,
    /// Smallest and largest block that it made.
    pub sizes: (u64, u64),
}

impl Wrappers {
    /// Those that the user names: whole names, or patterns with `*` and `?`.
    pub fn given(globs: Vec<String>) -> Wrappers {
        Wrappers { given: globs, learned: FxHashSet::default() }
    }

    /// Learns from stacks.
    pub fn learn(&mut self, samples: &[Sample<'_>]) {
        for _ in 0..ROUNDS {
            let found = self.round(samples);
            if found.is_empty() {
                break;
            }
            self.learned.extend(found);
        }
    }

    /// The learned ones, by name.
    pub fn learned(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.learned.iter().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Number of the frame to blame.
    pub fn blame(&self, stack: &Stack) -> usize {
        let mut at = stack.site;
        while let Some(frame) = stack.frames.get(at)
            && let Some(name) = function(frame)
            && self.is_wrapper(name)
            && stack.frames.get(at + 1).is_some_and(|caller| !is_pseudo(caller) && is_own(&caller.module))
        {
            at += 1;
        }
        at
    }

    fn is_wrapper(&self, name: &str) -> bool {
        let bare = name.split('(').next().unwrap_or(name);
        let fits = |given: &String| {
            if given.contains(['*', '?']) {
                glob::matches(given, name)
            } else {
                given == name || given == bare
            }
        };
        self.learned.contains(name) || self.given.iter().any(fits)
    }

    fn round(&self, samples: &[Sample<'_>]) -> Vec<String> {
        struct Seen<'a> {
            callers: FxHashSet<&'a str>,
            sizes: FxHashSet<(u64, u64)>,
            stacks: usize,
            /// Places in it that allocate.
            lines: FxHashSet<Option<u32>>,
        }
        let mut seen: FxHashMap<&str, Seen<'_>> = FxHashMap::default();
        // Who calls the callers.
        let mut beyond: FxHashMap<&str, FxHashSet<&str>> = FxHashMap::default();
        for sample in samples {
            let frames = &sample.stack.frames;
            let at = self.blame(sample.stack);
            let (Some(frame), Some(caller)) = (frames.get(at), frames.get(at + 1)) else { continue };
            let (Some(name), Some(by)) = (function(frame), function(caller)) else { continue };
            // Recursion is no caller.
            if name == by || name == "main" {
                continue;
            }
            if let Some(far) = frames.get(at + 2).and_then(|frame| function(frame)) {
                beyond.entry(by).or_default().insert(far);
            }
            let seen = seen.entry(name).or_insert_with(|| Seen {
                callers: FxHashSet::default(),
                sizes: FxHashSet::default(),
                stacks: 0,
                lines: FxHashSet::default(),
            });
            seen.callers.insert(by);
            seen.sizes.insert(sample.sizes);
            seen.stacks += 1;
            seen.lines.insert(frame.line);
        }
        let named = |name: &str| {
            let name = name.to_ascii_lowercase();
            NAMES.iter().any(|part| name.contains(part))
        };
        seen.into_iter()
            .filter(|(name, seen)| {
                let needs = if named(name) { NAMED } else { OTHER };
                // What only allocators call is a part of them.
                let serves =
                    |caller: &&&str| beyond.get(**caller).is_some_and(|far| far.len() >= NAMED.callers);
                if seen.callers.iter().filter(|caller| named(caller)).filter(serves).count()
                    == seen.callers.len()
                {
                    return true;
                }
                seen.callers.len() >= needs.callers
                    && seen.sizes.len() >= needs.sizes
                    && seen.stacks * 100 >= needs.share * samples.len()
                    // Who allocates here and there does more than hand on.
                    && (named(name) || seen.lines.len() <= 2)
            })
            .map(|(name, _)| name.to_string())
            .collect()
    }
}

/// May the blame fall on a frame of this module?
fn is_own(module: &str) -> bool {
    let name = base_name(module);
    !["libc.so", "libc-", "ld-linux", "ld-musl"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{Frame, pseudo};
    use std::sync::Arc;

    fn stack(functions: &[&str]) -> Stack {
        let frame = |name: &&str| Frame {
            address: 1,
            function: Some((*name).into()),
            module: "/app".into(),
            line: Some(7),
            origin: highwater_symbols::Origin::Debug,
            ..pseudo("")
        };
        Stack { frames: functions.iter().map(frame).map(Arc::new).collect(), truncated: None, site: 0 }
    }

    fn learned(stacks: &[(&[&str], u64)]) -> (Wrappers, Vec<Stack>) {
        let all: Vec<Stack> = stacks.iter().map(|(functions, _)| stack(functions)).collect();
        let samples: Vec<Sample<'_>> = all
            .iter()
            .zip(stacks)
            .map(|(stack, (_, size))| Sample { stack, sizes: (*size, *size) })
            .collect();
        let mut wrappers = Wrappers::default();
        wrappers.learn(&samples);
        (wrappers, all)
    }

    #[test]
    fn a_named_wrapper_and_one_around_it_are_learned() {
        let (wrappers, stacks) = learned(&[
            (&["zmalloc", "pool_calloc", "load", "main"], 10),
            (&["zmalloc", "pool_calloc", "parse", "main"], 20),
            (&["zmalloc", "index", "main"], 30),
        ]);
        assert_eq!(wrappers.learned(), ["pool_calloc", "zmalloc"]);
        let blamed: Vec<&str> =
            stacks.iter().map(|s| function(&s.frames[wrappers.blame(s)]).unwrap()).collect();
        assert_eq!(blamed, ["load", "parse", "index"]);
    }

    #[test]
    fn what_only_allocators_call_is_one() {
        let (wrappers, _) =
            learned(&[(&["grab", "my_alloc", "load"], 10), (&["grab", "my_alloc", "parse"], 20)]);
        assert_eq!(wrappers.learned(), ["grab", "my_alloc"]);
        // That a name promises it is not enough.
        let (wrappers, _) = learned(&[(&["join", "test_realloc", "main"], 10)]);
        assert!(wrappers.learned().is_empty());
    }

    #[test]
    fn a_constructor_is_blamed_itself() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let stacks: Vec<[&str; 3]> = names.iter().map(|name| ["new_session", *name, "main"]).collect();
        let same: Vec<(&[&str], u64)> = stacks.iter().map(|stack| (&stack[..], 64)).collect();
        assert!(learned(&same).0.learned().is_empty());
        // With a size for each caller it only hands on.
        let different: Vec<(&[&str], u64)> =
            stacks.iter().enumerate().map(|(at, stack)| (&stack[..], at as u64)).collect();
        assert_eq!(learned(&different).0.learned(), ["new_session"]);
    }

    #[test]
    fn one_caller_or_one_size_is_no_wrapper_and_main_never() {
        let (wrappers, _) = learned(&[(&["my_alloc", "load"], 10), (&["my_alloc", "load"], 20)]);
        assert!(wrappers.learned().is_empty());
        let (wrappers, _) = learned(&[(&["my_alloc", "load"], 10), (&["my_alloc", "parse"], 10)]);
        assert!(wrappers.learned().is_empty());
        let (wrappers, _) =
            learned(&[(&["walk_alloc", "walk_alloc"], 1), (&["walk_alloc", "walk_alloc"], 2)]);
        assert!(wrappers.learned().is_empty());
    }

    #[test]
    fn the_users_word_counts_and_the_outermost_frame_stays() {
        let wrappers = Wrappers::given(vec!["pool_*".to_string(), "main".to_string()]);
        assert_eq!(wrappers.blame(&stack(&["pool_get", "work", "main"])), 1);
        assert_eq!(wrappers.blame(&stack(&["pool_get"])), 0);
        assert_eq!(wrappers.blame(&stack(&["main"])), 0);
    }
}
