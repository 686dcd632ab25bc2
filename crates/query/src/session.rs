//! A trace and its names.

mod at;
pub mod made;
mod node_set;
mod recorded;
mod stacks;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_event::node::NodeId;
use highwater_replay::{Evidence, Options, Outcome, Until};
use highwater_symbols::{ModuleId, Symbolizer};
use highwater_trace::model::{End, Mark, Meta, ModuleDef, NodeDef, RssSample, Step, ThreadDef, ThreadNo};
use highwater_trace::reach::Scanned;
use highwater_trace::{Progress, Steps, Trace, TraceError, Warning};
use rustc_hash::FxHashMap;

use crate::inlining::Inlining;
use crate::instant::Instant;
use crate::modes::Modes;
use crate::stack::{Frame, Stack};
use node_set::NodeSet;
use stacks::Place;
pub(crate) use stacks::Truncations;

/// Why a question cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// There is no such mark.
    #[error("there is no mark `{name}` in {}; {known}", path.display())]
    NoMark {
        /// The trace.
        path: PathBuf,
        /// What was asked for.
        name: String,
        /// The marks that there are, as a sentence.
        known: String,
    },
    /// The question makes no sense; a sentence says why.
    #[error("{0}")]
    Usage(String),
    /// The trace has not what an option needs.
    #[error("{option}: no {what} in {}", path.display())]
    Lacks {
        /// The option.
        option: String,
        /// What is missing.
        what: &'static str,
        /// The trace.
        path: PathBuf,
    },
}

/// How to open a trace.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// Where names come from.
    pub symbols: highwater_symbols::Options,
    /// How to replay.
    pub replay: Options,
    /// What is shown of inlined functions.
    pub inlining: Inlining,
    /// A recorder is at work on the trace. Unless it has its end by now, only what
    /// is complete is shown, and nothing is said to be missing.
    pub being_written: bool,
    /// Write nothing to the trace (see [`Session::replay`]).
    pub leave_alone: bool,
    /// Is told how far a trace's events were read.
    pub progress: Option<Progress>,
}

/// What is known of a recording before any event is read.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The file.
    pub path: PathBuf,
    /// Its size, bytes.
    pub file_size: u64,
    /// The recording.
    pub meta: Meta,
    /// Its end, if it has one.
    pub end: Option<End>,
    /// Loaded objects.
    pub modules: Vec<ModuleDef>,
    /// Threads.
    pub threads: Vec<ThreadDef>,
    /// Marks.
    pub marks: Vec<Mark>,
    /// RSS samples.
    pub rss: Vec<RssSample>,
    /// It is still being written: there is more to come.
    pub being_written: bool,
    /// What is wrong with the file, one line each. A whole replay adds what it found.
    pub warnings: Vec<String>,
    /// Events in the file.
    pub events: u64,
    /// Events in damaged parts of it.
    pub lost_events: u64,
}

impl Facts {
    /// The thread with this number.
    pub fn thread(&self, thread: ThreadNo) -> Option<&ThreadDef> {
        match self.threads.get(thread as usize) {
            Some(def) if def.thread == thread => Some(def),
            _ => self.threads.iter().find(|def| def.thread == thread),
        }
    }

    /// The program's name: the last part of its path, or that of the first argument.
    pub fn program(&self) -> String {
        let name = self.meta.exe.file_name().map(|name| name.to_string_lossy().into_owned());
        let named = name.or_else(|| self.meta.args.first().cloned());
        named.unwrap_or_else(|| "the program".to_string())
    }
}

/// Where steps and nodes come from.
pub enum Source {
    /// A trace file.
    Trace(Box<Trace>),
    /// Values in memory.
    Made {
        /// The stream.
        steps: Vec<Step>,
        /// The stack tree.
        nodes: FxHashMap<NodeId, NodeDef>,
        /// What a scan found.
        reach: Scanned,
    },
}

/// A stream of steps.
pub enum StepStream<'a> {
    /// Of a file.
    Trace(Box<Steps<'a>>),
    /// Of memory: the steps and how many were given out.
    Made(std::slice::Iter<'a, Step>, u32),
}

impl StepStream<'_> {
    /// The next step, `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read. (A damaged part is skipped and makes a warning.)
    #[inline]
    pub fn next_step(&mut self) -> Result<Option<Step>, TraceError> {
        match self {
            StepStream::Trace(steps) => steps.next(),
            StepStream::Made(steps, given) => {
                *given = given.wrapping_add(1);
                Ok(steps.next().copied())
            }
        }
    }

    /// The epoch of the latest step (see [`Replay::barrier`]). What is not of a
    /// file has its true order.
    #[inline]
    pub fn epoch(&self) -> u32 {
        match self {
            StepStream::Trace(steps) => steps.epoch(),
            StepStream::Made(_, given) => *given,
        }
    }

    /// The next step with its epoch, as a replay wants it.
    ///
    /// # Errors
    /// As [`StepStream::next_step`].
    #[inline]
    pub fn next_in_epoch(&mut self) -> Result<Option<(u32, Step)>, TraceError> {
        let step = self.next_step()?;
        Ok(step.map(|step| (self.epoch(), step)))
    }

    /// Events that this stream had to skip so far.
    pub fn lost_events(&self) -> u64 {
        match self {
            StepStream::Trace(steps) => steps.lost_events(),
            StepStream::Made(..) => 0,
        }
    }

    /// What was wrong with the file in the parts read so far.
    pub fn warnings(&self) -> Vec<String> {
        match self {
            StepStream::Trace(steps) => steps.warnings().iter().map(ToString::to_string).collect(),
            StepStream::Made(..) => Vec::new(),
        }
    }
}

impl Source {
    /// All steps, from the first.
    pub fn steps(&self) -> StepStream<'_> {
        match self {
            Source::Trace(trace) => StepStream::Trace(Box::new(trace.steps())),
            Source::Made { steps, .. } => StepStream::Made(steps.iter(), 0),
        }
    }

    /// What a scan for unreachable blocks found, or why there was none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn reach(&self) -> Result<Scanned, TraceError> {
        match self {
            Source::Trace(trace) => trace.reach(),
            Source::Made { reach, .. } => Ok(reach.clone()),
        }
    }

    /// The node with this id.
    pub fn node(&self, id: NodeId) -> Option<NodeDef> {
        match self {
            Source::Trace(trace) => trace.nodes().get(id),
            Source::Made { nodes, .. } => nodes.get(&id).copied(),
        }
    }
}

enum Names {
    Symbols {
        symbolizer: Box<Symbolizer>,
        modules: FxHashMap<u16, ModuleId>,
        /// Names that came with the trace, by module and address.
        given: FxHashMap<(u16, u64), Arc<[Frame]>>,
    },
    Made(FxHashMap<u64, Arc<[Frame]>>),
}

/// A trace and its names.
pub struct Session {
    facts: Facts,
    source: Arc<Source>,
    names: Names,
    stacks: FxHashMap<NodeId, Arc<Stack>>,
    /// The frames that are shown of an address in a module.
    places: FxHashMap<(u16, u64), Place>,
    asked: NodeSet,
    replay: Options,
    inlining: Inlining,
    /// Found or read once.
    outcome: Option<Arc<Outcome>>,
    evidence: Option<Arc<Evidence>>,
    leave_alone: bool,
}

impl Session {
    /// Opens a trace.
    ///
    /// # Errors
    /// The file is no trace or cannot be read.
    pub fn open(path: &Path, options: SessionOptions) -> Result<Session, QueryError> {
        Ok(Session::of_trace(Trace::open(path)?, options))
    }

    /// Takes over an opened trace.
    pub fn of_trace(mut trace: Trace, options: SessionOptions) -> Session {
        trace.tell_progress(options.progress);
        let being_written = options.being_written && trace.end().is_none();
        if being_written {
            trace.leave_out_ragged();
        }
        // That it is not whole is no damage then.
        let counts = |warning: &&Warning| !being_written || matches!(warning, Warning::Damaged { .. });
        let names = recorded::names(options.symbols, trace.modules(), trace.names());
        let facts = Facts {
            path: trace.path().to_path_buf(),
            file_size: trace.file_size(),
            meta: trace.meta().clone(),
            end: trace.end().cloned(),
            modules: trace.modules().to_vec(),
            threads: trace.threads().to_vec(),
            marks: trace.marks().to_vec(),
            rss: trace.rss().to_vec(),
            warnings: trace.warnings().iter().filter(counts).map(ToString::to_string).collect(),
            being_written,
            events: trace.event_count(),
            lost_events: trace.lost_events(),
        };
        let sample = Modes::of(&facts.meta, None).sample;
        Session {
            facts,
            source: Arc::new(Source::Trace(Box::new(trace))),
            names,
            stacks: FxHashMap::default(),
            places: FxHashMap::default(),
            asked: NodeSet::default(),
            replay: Options { sample, ..options.replay },
            inlining: options.inlining,
            outcome: None,
            evidence: None,
            leave_alone: options.leave_alone,
        }
    }

    /// What is known of the recording.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Where steps come from; shared, so that names can be looked up while a
    /// stream of it is read.
    pub fn source(&self) -> Arc<Source> {
        Arc::clone(&self.source)
    }

    /// What the recording left out on purpose.
    pub fn modes(&self) -> Modes {
        Modes::of(&self.facts.meta, self.facts.end.as_ref())
    }

    /// How this session replays.
    pub fn replay_options(&self) -> Options {
        self.replay.clone()
    }

    /// What there is to say about missing names, so far; one line each.
    pub fn notes(&self) -> Vec<String> {
        match &self.names {
            Names::Symbols { symbolizer, .. } => symbolizer.notes().iter().map(ToString::to_string).collect(),
            Names::Made(_) => Vec::new(),
        }
    }

    /// What the user can do about missing names.
    pub fn hints(&self) -> Vec<&'static str> {
        match &self.names {
            Names::Symbols { symbolizer, .. } => symbolizer.hints(),
            Names::Made(_) => Vec::new(),
        }
    }

    /// Turns a named instant into one that a replay can stop at.
    ///
    /// # Errors
    /// There is no such mark; the peak has to be found and the file cannot be read.
    pub fn instant(&mut self, instant: &Instant) -> Result<Until, QueryError> {
        Ok(match instant {
            Instant::Start => Until::Start,
            Instant::End => Until::End,
            Instant::Ns(ns) => Until::Ns(*ns),
            Instant::Seqno(seqno) => Until::Seqno(*seqno),
            Instant::Peak => {
                self.knows(Until::Seqno(0))?;
                Until::Seqno(self.outcome()?.totals().peak_seqno)
            }
            Instant::Mark(name) => Until::Ns(self.mark(name)?.ns),
        })
    }

    /// The first mark of this name.
    ///
    /// # Errors
    /// There is none; the error names those that there are.
    pub fn mark(&self, name: &str) -> Result<&Mark, QueryError> {
        self.facts.marks.iter().find(|mark| mark.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.facts.marks.iter().map(|mark| mark.name.as_str()).collect();
            let known = match names.as_slice() {
                [] => "it has none".to_string(),
                names => format!("its marks are {}", names.join(", ")),
            };
            QueryError::NoMark { path: self.facts.path.clone(), name: name.to_string(), known }
        })
    }

    /// Does the trace show which blocks lived at this instant?
    ///
    /// # Errors
    /// A sentence that it does not.
    pub fn knows(&self, instant: Until) -> Result<(), QueryError> {
        if !self.modes().live_only || matches!(instant, Until::Start | Until::End) {
            return Ok(());
        }
        let what = "recorded with --live-only: only the blocks alive at the end are known one by one";
        Err(QueryError::Usage(what.to_string()))
    }

    /// Does the trace show every event? `what` is what needs them.
    ///
    /// # Errors
    /// A sentence that blocks which were freed left totals alone.
    pub fn knows_each_event(&self, what: &str) -> Result<(), QueryError> {
        let modes = self.modes();
        let how = match (modes.live_only, modes.cull_ns) {
            (true, _) => "--live-only",
            (_, 1..) => "--cull",
            _ => return Ok(()),
        };
        let text = format!(
            "{what}: recorded with {how}, so what was freed is in the totals of the run, its sites and \
             its threads alone"
        );
        Err(QueryError::Usage(text))
    }

    /// Which module's data an address lies in, and the variable that holds it
    /// with the offset in it, where its symbol table says so.
    pub fn data(&mut self, addr: u64) -> Option<(String, Option<(String, u64)>)> {
        let holds = |module: &&ModuleDef| (module.start..module.end).contains(&addr);
        let module = self.facts.modules.iter().rev().find(holds)?;
        let name = crate::stack::base_name(&module.path).to_string();
        let variable = match &mut self.names {
            Names::Symbols { symbolizer, modules, .. } => {
                modules.get(&module.index).and_then(|&id| symbolizer.data(id, addr))
            }
            Names::Made(_) => None,
        };
        Some((name, variable))
    }

    /// The text of a source line, where the file is there.
    pub fn source_line(&mut self, file: &str, line: u32) -> Option<String> {
        match &mut self.names {
            Names::Symbols { symbolizer, .. } => symbolizer.source_line(file, line),
            Names::Made(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::made::Made;
    use super::*;

    #[test]
    fn marks_and_the_peak_are_instants() {
        let mut session = Made::default()
            .node(1, 0, "main", "a.c", 1)
            .mark("ready", 25)
            .alloc(0, 64, 100, 1)
            .alloc(0, 128, 100, 1)
            .free(0, 64)
            .session();
        assert_eq!(session.instant(&Instant::Mark("ready".into())).unwrap(), Until::Ns(25));
        assert_eq!(session.instant(&Instant::Peak).unwrap(), Until::Seqno(1));
        let error = session.instant(&Instant::Mark("gone".into())).unwrap_err().to_string();
        assert!(error.contains("its marks are ready"), "{error}");
        let until = session.instant(&Instant::Seqno(0)).unwrap();
        assert_eq!(session.replay_until(until).unwrap().totals().live_bytes, 100);
    }
}
