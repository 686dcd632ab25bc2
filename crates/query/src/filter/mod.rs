//! `-F key=value`: which events and blocks a view shows.
//!
//! A [`Filter`] is what was asked for; with a trace it becomes a [`Selection`],
//! which knows the trace's marks and, where lifetimes are asked for, has read
//! when each block ended.

mod lifetimes;
mod parse;

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_replay::LiveBlock;
use highwater_trace::model::{Event, ThreadNo};
use rustc_hash::FxHashMap;

use crate::capability::Capability;
use crate::glob;
use crate::instant::Instant;
use crate::phase::Phases;
use crate::session::{QueryError, Session};
use crate::stack::{Frame, function, function_name};
use lifetimes::Seqnos;
pub use parse::class;
use parse::{Condition, Key, Test};

/// Conditions that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<Condition>,
}

impl Filter {
    /// Adds a condition: `key=value`, `key!=value`, a list of values, a range.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        self.conditions.push(Condition::parse(text)?);
        Ok(())
    }

    /// Does everything pass?
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Is there a condition on ages? They are counted at an instant, so only
    /// views of an instant can serve it.
    pub fn has_age(&self) -> bool {
        self.has(Key::Age)
    }

    /// The same without its conditions on ages.
    pub fn without_age(&self) -> Filter {
        let others = self.conditions.iter().filter(|condition| condition.key != Key::Age);
        Filter { conditions: others.cloned().collect() }
    }

    fn has(&self, key: Key) -> bool {
        self.conditions.iter().any(|condition| condition.key == key)
    }

    /// Makes the filter ready for one trace.
    ///
    /// # Errors
    /// The trace lacks what a condition looks at; there is no such mark; the
    /// file cannot be read.
    pub fn select(&self, session: &mut Session) -> Result<Selection, QueryError> {
        let mut conditions = self.conditions.clone();
        for condition in &mut conditions {
            for need in needs(condition.key) {
                need.require(session.facts(), &format!("-F {}", condition.key.name()))?;
            }
            for test in &mut condition.tests {
                if let Test::Span(from, to) = test {
                    *test = Test::Range(ns(session, from.as_ref())?, ns(session, to.as_ref())?);
                }
            }
        }
        let lifetimes = if self.has(Key::Lifetime) {
            let of: Vec<Condition> =
                conditions.iter().filter(|condition| condition.key == Key::Lifetime).cloned().collect();
            Some(lifetimes::fitting(session, |ns| of.iter().all(|condition| condition.number(Some(ns))))?)
        } else {
            None
        };
        conditions.retain(|condition| condition.key != Key::Lifetime);
        // What needs names comes last, and is asked once a stack.
        let (stacks, plain) = conditions.into_iter().partition(|condition| condition.of_stack());
        let phases = Phases::of(session.facts());
        Ok(Selection { plain, stacks, phases, lifetimes, by_node: FxHashMap::default() })
    }
}

fn needs(key: Key) -> &'static [Capability] {
    match key {
        Key::Thread => &[Capability::Threads],
        Key::Time | Key::Age => &[Capability::Times],
        Key::Lifetime => &[Capability::Times, Capability::History],
        Key::Phase => &[Capability::Marks],
        Key::Site | Key::Function | Key::File | Key::Stack => &[Capability::Stacks, Capability::Names],
        Key::Module => &[Capability::Stacks],
        Key::Api | Key::Size | Key::Class | Key::Seqno | Key::Ptr => &[],
    }
}

/// The time of an instant that a filter may name.
fn ns(session: &Session, instant: Option<&Instant>) -> Result<Option<u64>, QueryError> {
    Ok(match instant {
        None => None,
        Some(Instant::Ns(ns)) => Some(*ns),
        Some(Instant::Start) => Some(0),
        Some(Instant::Mark(name)) => Some(session.mark(name)?.ns),
        // Not after the end, not bounded by an event's number (the parser sees to it).
        Some(Instant::End | Instant::Peak | Instant::Seqno(_)) => None,
    })
}

impl Condition {
    fn of_stack(&self) -> bool {
        matches!(self.key, Key::Site | Key::Function | Key::File | Key::Module | Key::Stack)
    }

    /// Does a number fit? An unknown one fits no condition, negated or not.
    fn number(&self, value: Option<u64>) -> bool {
        let Some(value) = value else { return false };
        let within = |test: &Test| match test {
            Test::Range(low, high) => {
                low.is_none_or(|low| value >= low) && high.is_none_or(|high| value <= high)
            }
            Test::Span(..) | Test::Pattern(_) => false,
        };
        self.tests.iter().any(within) != self.negated
    }

    /// Does anything fit that `fits` compares with a pattern?
    fn pattern(&self, mut fits: impl FnMut(&str) -> bool) -> bool {
        let any = self.tests.iter().any(|test| match test {
            Test::Pattern(pattern) => fits(pattern),
            Test::Range(..) | Test::Span(..) => false,
        });
        any != self.negated
    }

    fn thread(&self, thread: ThreadNo, session: &Session) -> bool {
        let def = session.facts().thread(thread);
        let fits = |test: &Test| match test {
            Test::Range(low, high) => {
                let number = u64::from(thread);
                low.is_none_or(|low| number >= low) && high.is_none_or(|high| number <= high)
            }
            Test::Pattern(pattern) => match pattern.parse::<u32>() {
                Ok(number) => number == thread || def.is_some_and(|def| def.tid == number),
                Err(_) => def.is_some_and(|def| glob::matches(pattern, &def.name)),
            },
            Test::Span(..) => false,
        };
        self.tests.iter().any(fits) != self.negated
    }
}

/// What is selected from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its seqno.
    pub seqno: u64,
    /// Its time, ns.
    pub ns: u64,
    /// The block's address.
    pub addr: u64,
    /// The block's size; `None` where it is not known (a foreign free), which
    /// fits no condition on sizes.
    pub size: Option<u64>,
    /// Who.
    pub thread: ThreadNo,
    /// Through which entry point.
    pub api: ApiKind,
    /// From where.
    pub node: NodeId,
    /// Seqno of the event that made the block, where that is known.
    pub block: Option<u64>,
    /// How old the block is at the instant that is shown, ns.
    pub age: Option<u64>,
}

impl From<&LiveBlock> for Subject {
    fn from(block: &LiveBlock) -> Subject {
        Subject {
            seqno: block.seqno,
            ns: block.ns,
            addr: block.addr,
            size: Some(block.size),
            thread: block.thread,
            api: block.api,
            node: block.node,
            block: Some(block.seqno),
            age: None,
        }
    }
}

impl Subject {
    /// A block that is alive at `now`, ns.
    pub fn alive(block: &LiveBlock, now: u64) -> Subject {
        Subject { age: Some(now.saturating_sub(block.ns)), ..Subject::from(block) }
    }

    /// An event; `block` is the one that it makes or gives back.
    pub fn event(event: &Event, block: Option<&LiveBlock>) -> Subject {
        Subject {
            seqno: event.seqno,
            ns: event.ns,
            addr: event.addr,
            size: block.map(|block| block.size),
            thread: event.thread,
            api: event.api,
            node: event.node,
            block: block.map(|block| block.seqno),
            age: block.map(|block| event.ns.saturating_sub(block.ns)),
        }
    }
}

/// A filter that is ready for one trace.
#[derive(Debug, Default)]
pub struct Selection {
    plain: Vec<Condition>,
    stacks: Vec<Condition>,
    phases: Phases,
    lifetimes: Option<Seqnos>,
    by_node: FxHashMap<NodeId, bool>,
}

impl Selection {
    /// Does everything pass?
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.stacks.is_empty() && self.lifetimes.is_none()
    }

    /// Does `subject` pass? The cheap conditions are tried first; names are
    /// looked up only where they are asked for, once a stack.
    pub fn passes(&mut self, subject: &Subject, session: &mut Session) -> bool {
        self.plain.iter().all(|condition| self.plainly(condition, subject, session))
            && self.lifetimes.as_ref().is_none_or(|fit| subject.block.is_some_and(|made| fit.contains(made)))
            && (self.stacks.is_empty() || self.passes_stack(subject.node, session))
    }

    fn plainly(&self, condition: &Condition, subject: &Subject, session: &Session) -> bool {
        match condition.key {
            Key::Size | Key::Class => condition.number(subject.size),
            Key::Seqno => condition.number(Some(subject.seqno)),
            Key::Time => condition.number(Some(subject.ns)),
            Key::Ptr => condition.number(Some(subject.addr)),
            Key::Age => condition.number(subject.age),
            Key::Api => condition.pattern(|pattern| fits_api(pattern, subject.api)),
            Key::Thread => condition.thread(subject.thread, session),
            Key::Phase => {
                let phase = self.phases.name(self.phases.at(subject.ns));
                condition.pattern(|pattern| whole_or_glob(pattern, phase))
            }
            // Decided beforehand, or with the stack.
            Key::Lifetime | Key::Site | Key::Function | Key::File | Key::Module | Key::Stack => true,
        }
    }

    fn passes_stack(&mut self, node: NodeId, session: &mut Session) -> bool {
        if let Some(&known) = self.by_node.get(&node) {
            return known;
        }
        let stack = session.stack(node);
        let passes = self.stacks.iter().all(|condition| {
            condition.pattern(|pattern| match condition.key {
                Key::Site => stack.site().is_some_and(|frame| somewhere(pattern, frame)),
                Key::Stack => stack.frames.iter().any(|frame| somewhere(pattern, frame)),
                Key::File => {
                    stack.frames.iter().any(|f| f.file.as_deref().is_some_and(|f| glob::matches(pattern, f)))
                }
                Key::Module => stack.frames.iter().any(|f| glob::matches(pattern, &f.module)),
                _ => stack.frames.iter().any(|f| function(f).is_some_and(|f| glob::matches(pattern, f))),
            })
        });
        self.by_node.insert(node, passes);
        passes
    }
}

/// The function or the file; the module's path would fit far too often, and has
/// a filter of its own.
fn somewhere(pattern: &str, frame: &Frame) -> bool {
    glob::matches(pattern, &function_name(frame))
        || frame.file.as_deref().is_some_and(|file| glob::matches(pattern, file))
}

/// A name without a star is the whole name.
fn whole_or_glob(pattern: &str, name: &str) -> bool {
    if pattern.contains(['*', '?']) { glob::matches(pattern, name) } else { pattern == name }
}

fn fits_api(pattern: &str, api: ApiKind) -> bool {
    // `new` is not `new[]`.
    whole_or_glob(pattern, api.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    fn passes(text: &str, subject: &Subject, session: &mut Session) -> bool {
        let mut filter = Filter::default();
        filter.add(text).unwrap();
        filter.select(session).unwrap().passes(subject, session)
    }

    fn session() -> Session {
        Made::default()
            .thread(0, 4711, "main")
            .node(1, 0, "main", "main.c", 3)
            .node(2, 1, "parse", "parse.c", 7)
            .mark("load", 1_000_000_000)
            .session()
    }

    const SUBJECT: Subject = Subject {
        seqno: 10,
        ns: 1_500_000_000,
        addr: 0x1000,
        size: Some(100),
        thread: 0,
        api: ApiKind::NewArray,
        node: 2,
        block: Some(10),
        age: Some(2_000_000),
    };

    #[test]
    fn conditions_hold_or_not() {
        let mut session = session();
        for yes in [
            "size_min=100",
            "size_max=0x64",
            "seqno_min=#10",
            "time_max=1.5",
            "ptr_min=0x1000",
            "api=new*",
            "thread=0",
            "thread=4711",
            "thread=ma*",
            "function=main",
            "file=*.c",
            "module=app",
            "site=parse",
            "site=parse.c",
            "stack=main",
            "size=100",
            "size=1..99,100",
            "size!=99",
            "class=64",
            "phase=load",
            "phase!=start",
            "time=@load..",
            "age=1ms..3ms",
            "thread!=1,2",
            "api!=malloc",
            "stack!=load",
            "thread=..5",
            "address=0xfff..0x1001",
        ] {
            assert!(passes(yes, &SUBJECT, &mut session), "{yes}");
        }
        for no in [
            "size_min=101",
            "api=new",
            "thread=1",
            "function=load",
            "time_min=2",
            "file=*.cc",
            "site=main",
            "site=app",
            "stack=load",
            "size!=100",
            "class=128",
            "phase=start",
            "time=..@load",
            "age=..1ms",
            "thread!=main",
            "stack!=main",
            "site!=parse",
            "seqno!=1..20",
        ] {
            assert!(!passes(no, &SUBJECT, &mut session), "{no}");
        }
    }

    #[test]
    fn what_is_unknown_fits_no_condition() {
        let mut session = session();
        let unknown = Subject { size: None, age: None, ..SUBJECT };
        for no in ["size_max=9999", "size!=4", "age=..1s"] {
            assert!(!passes(no, &unknown, &mut session), "{no}");
        }
        assert!(Filter::default().select(&mut session).unwrap().passes(&unknown, &mut session));
    }

    #[test]
    fn lifetimes_are_known_from_the_whole_trace() {
        // Events are 10 ms apart: the first block lives 30 ms, the second until the end.
        let mut session = Made::default()
            .alloc(0, 0x10, 1, 0)
            .alloc(0, 0x20, 2, 0)
            .alloc(0, 0x30, 3, 0)
            .free(0, 0x10)
            .free(0, 0x30)
            .session();
        let replay = session.replay_until(highwater_replay::Until::Seqno(2)).unwrap();
        let mut lived = |range: &str| -> Vec<u64> {
            let mut filter = Filter::default();
            filter.add(&format!("lifetime={range}")).unwrap();
            let mut selection = filter.select(&mut session).unwrap();
            let live = replay.live_set();
            live.iter()
                .filter(|b| selection.passes(&Subject::from(*b), &mut session))
                .map(|b| b.seqno)
                .collect()
        };
        assert_eq!(lived("..29ms"), [2]);
        assert_eq!(lived("20ms..30ms"), [0, 1, 2]);
        assert_eq!(lived("30ms.."), [0, 1]);
    }

    #[test]
    fn a_mark_that_is_not_there_is_named() {
        let mut filter = Filter::default();
        filter.add("time=@lod..").unwrap();
        let error = filter.select(&mut session()).unwrap_err().to_string();
        assert!(error.contains("no mark `lod`") && error.contains("load"), "{error}");
        let mut filter = Filter::default();
        filter.add("phase=load").unwrap();
        let error = filter.select(&mut Made::default().session()).unwrap_err().to_string();
        assert_eq!(error, "-F phase: no marks in highwater.app.1.hwt");
    }
}
