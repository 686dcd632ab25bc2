//! A whole run: launch, the chain of images that one process becomes by exec,
//! and how it ended.

use std::ffi::OsString;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use highwater_event::layout::*;
use highwater_trace::Compression;
use highwater_trace::model::EndedHow;

use crate::control::{self, Server};
use crate::image::{self, Image, Recorded};
use crate::live::Slicing;
use crate::memory::{Memory, RobustList, Settings, futex_wait};
use crate::names::{self, Fields};
use crate::thin::Thin;
use crate::{RecordError, agent_file, launch, process, program, signals};

/// How to record.
#[derive(Clone, Debug)]
pub struct Options {
    /// Template of the trace's name ([`names::expand`]); `None` for the default.
    pub output: Option<String>,
    /// Replace a trace of that name.
    pub force: bool,
    /// Record usable sizes too.
    pub actual_size: bool,
    /// On a full ring drop and count instead of waiting.
    pub drop_when_full: bool,
    /// Take no stacks for frees.
    pub no_free_stacks: bool,
    /// Greatest number of frames to keep, the outermost ones; 0 for all.
    pub depth: u32,
    /// Walk every stack a second time without the cache, and abort the target on
    /// a difference (for tests).
    pub validate: bool,
    /// Record a sample of the blocks: marks at this mean distance, bytes; 0 for all.
    pub sample: u64,
    /// Only count blocks below this size, bytes.
    pub min_size: u64,
    /// Leave out blocks that are freed before this age, ns; 0 for none.
    pub cull: u64,
    /// Leave out all blocks that are freed.
    pub live_only: bool,
    /// Count, and record nothing: there is no trace.
    pub count: bool,
    /// Record later images of an exec chain.
    pub follow_exec: bool,
    /// Look for unreachable blocks when the program exits.
    pub leak_check: bool,
    /// Greatest size of the trace, bytes.
    pub max_trace_size: Option<u64>,
    /// Compression of the trace.
    pub compression: Compression,
    /// Slices to be made on the way.
    pub slices: Option<Slicing>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            output: None,
            force: false,
            actual_size: false,
            drop_when_full: false,
            no_free_stacks: false,
            depth: 0,
            validate: false,
            sample: 0,
            min_size: 0,
            cull: 0,
            live_only: false,
            count: false,
            follow_exec: true,
            leak_check: false,
            max_trace_size: None,
            compression: Compression::Zstd(1),
            slices: None,
        }
    }
}

impl Options {
    pub(crate) fn settings(&self) -> Settings {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        Settings {
            options: bit(self.actual_size, OPT_USABLE)
                | bit(self.drop_when_full, OPT_DROP)
                | bit(self.validate, OPT_VALIDATE)
                | bit(self.leak_check, OPT_LEAK_CHECK)
                | bit(!self.no_free_stacks, OPT_FREE_STACKS)
                | bit(self.sample > 0, OPT_SAMPLE)
                | bit(self.min_size > 0, OPT_MIN_SIZE)
                | bit(self.count, OPT_COUNT),
            depth: self.depth,
            follow_exec: self.follow_exec,
            sample: self.sample,
            min_size: self.min_size,
        }
    }

    pub(crate) fn thin(&self) -> Option<Thin> {
        match (self.live_only, self.cull) {
            (true, _) => Some(Thin::live_only()),
            (false, 0) => None,
            (false, age) => Some(Thin::cull(age)),
        }
    }

    /// Why these options cannot be had together, as a sentence.
    ///
    /// # Errors
    /// The sentence.
    pub fn check(&self) -> Result<(), String> {
        let thinned = if self.live_only { "--live-only" } else { "--cull" };
        if self.sample > 0 && self.thin().is_some() {
            return Err(format!("--sample with {thinned}: totals of what is left out would need weights"));
        }
        let less = self.sample > 0 || self.min_size > 0 || self.thin().is_some();
        if self.leak_check && less {
            let why = "a block that is not recorded may hold the only pointer to one that is";
            return Err(format!("--leak-check needs every block: {why}"));
        }
        if self.sample > 0 && self.slices.is_some() {
            return Err("--sample with --slices: a slice has no room for how sure its numbers are".to_owned());
        }
        if self.live_only && self.actual_size {
            return Err("--live-only with --actual-size: there is no room for usable sizes".to_owned());
        }
        Ok(())
    }

    /// What the trace says about how it was made.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut list = Vec::new();
        if self.actual_size {
            list.push("actual_size".to_owned());
        }
        if self.depth != 0 {
            list.push(format!("depth={}", self.depth));
        }
        if self.drop_when_full {
            list.push("on_full=drop".to_owned());
        }
        if self.no_free_stacks {
            list.push("no_free_stacks".to_owned());
        }
        if self.sample > 0 {
            list.push(format!("sample={}", self.sample));
        }
        if self.min_size > 0 {
            list.push(format!("min_size={}", self.min_size));
        }
        if self.leak_check {
            list.push(highwater_trace::reach::LEAK_CHECK.to_owned());
        }
        if self.cull > 0 {
            list.push(format!("cull={}", age(self.cull)));
        }
        if self.live_only {
            list.push("live_only".to_owned());
        }
        list
    }
}

/// A time in the largest unit that has it whole.
fn age(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match units.into_iter().find(|(unit, _)| ns.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ns / unit),
        None => format!("{ns}ns"),
    }
}

/// How the target ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

/// What a run left behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the target ended.
    pub status: Status,
    /// The images that were recorded, in order; the last is the one that counts.
    pub images: Vec<Recorded>,
    /// Processes that the target left running.
    pub left_running: Vec<u32>,
    /// Sentences that help: why nothing or little was seen.
    pub hints: Vec<String>,
    /// The last program of the chain, if no agent came up in it.
    pub unrecorded: Option<PathBuf>,
    /// Largest resident set of the target, bytes, without what it shared with us.
    pub max_rss: u64,
    /// The program has an allocator of its own linked in.
    pub own_allocator: bool,
}

/// How often the rarer chores are done.
const CHORES: Duration = Duration::from_millis(100);
/// How often finished epochs are put into the file at the latest.
const FLUSH: Duration = Duration::from_millis(500);
/// The shortest and the longest sleep between two looks at the rings.
const SLEEPS: (Duration, Duration) = (Duration::from_micros(75), Duration::from_millis(10));
/// The longest one where no event's time depends on it: what is left is how soon a
/// mark or a `stop` is heard.
const SLOW: Duration = Duration::from_millis(40);
/// The first sleep, and the one while another image is about to come.
const SHORT: Duration = Duration::from_micros(300);
/// The longest sleep while events come: a ring of two mebibytes takes longer to fill
/// than that, however fast its thread is.
const BUSY: Duration = Duration::from_millis(2);

/// How long to sleep after an epoch that took `taken` bytes, the fullest ring being
/// `fullest` 256ths full, and that a sleep of `last` went before. Each look costs
/// system calls and cold caches, so it should be worth it: a sixteenth of a ring.
///
/// `own_times`: every event reads the clock for itself, so that no time depends on how
/// often we look. Then a trickle needs no more looks than nothing at all. (Should a
/// flood begin, the first full ring wakes us.)
fn nap(last: Duration, taken: u64, fullest: u64, own_times: bool) -> Duration {
    let longest = if own_times { SLOW } else { SLEEPS.1 };
    match (taken, fullest) {
        (0, _) => (last * 2).min(longest),
        (_, 0) if own_times => (last * 2).min(longest),
        (_, 65..) => (last / 2).clamp(SLEEPS.0, BUSY),
        (_, 16..) => last.min(BUSY),
        _ => (last * 2).min(BUSY),
    }
}

/// Does every event read the clock for itself?
fn own_times(image: &Image) -> bool {
    image.memory.header().options & OPT_SAMPLE != 0
}

/// Runs `command` and records it.
///
/// # Errors
/// Before the target runs: everything in [`RecordError`]. Afterwards nothing is
/// an error: the target runs to its end, and the outcome says what was lost.
pub fn run(command: &[OsString], agent: &[u8], options: &Options) -> Result<Outcome, RecordError> {
    let name = command.first().cloned().unwrap_or_default();
    let path = program::find(&name)?;
    let program = program::inspect(&path)?;
    let own_allocator = program.own_allocator;
    let mut outcome = record(command, path, program.hints, agent, options)?;
    outcome.own_allocator = own_allocator;
    // A launcher (rustup, a shell) may have become a program of another kind.
    if outcome.images.len() > 1
        && let Some(last) = outcome.images.last()
        && let Ok(program) = program::inspect(&last.exe)
    {
        outcome.own_allocator = program.own_allocator;
        outcome.hints.extend(program.hints);
    }
    Ok(outcome)
}

fn record(
    command: &[OsString],
    path: PathBuf,
    mut hints: Vec<String>,
    agent: &[u8],
    options: &Options,
) -> Result<Outcome, RecordError> {
    check_output(&path, options)?;
    let agent = agent_file::provide(agent)?;
    let mut memory = Memory::create(&options.settings())?;
    let mut next = successor(&memory, options)?;
    register(&memory, next.as_ref());
    let held = signals::Held::hold();
    let started = launch::start(command, &agent.path, &memory.address(), &held)?;
    let pid = started.pid;
    signals::ring_bell_at(&memory.header().recorder.doorbell);
    signals::pass_on_to(pid);
    drop(held);
    let born = process::stat(pid);
    let mut images: Vec<Recorded> = Vec::new();
    let mut number = 0;
    let mut control: Option<Server> = None;
    loop {
        // Until an agent attaches, or the process ends without one.
        if let Some((status, usage)) = wait_for_agent(&memory, pid) {
            signals::no_bell();
            let unrecorded = Some(images.last().map_or(path, |i| i.exe.clone()));
            return Ok(outcome(status, usage, images, hints, unrecorded, born, pid, memory.inode()));
        }
        make_way(&mut images, &memory, pid, number, options);
        let inode = memory.inode();
        // Should the trace not open, the memory with the bell is gone.
        signals::no_bell();
        let mut image = match Image::open(memory, pid, number, options) {
            Ok(image) => image,
            Err(error) => {
                // The target runs on, unobserved.
                hints.push(error.to_string());
                let (status, usage) = wait_only(pid);
                return Ok(outcome(status, usage, images, hints, None, born, pid, inode));
            }
        };
        signals::ring_bell_at(&image.memory.header().recorder.doorbell);
        if number == 0 {
            // Without a socket the recording is the same; it cannot be talked to.
            control = Server::start(pid)
                .map_err(|error| hints.push(format!("this recording had no control socket: {error}")))
                .ok();
        }
        let step = follow(&mut image, next.as_ref(), pid, control.as_mut());
        // The word that the handlers ring goes away with the image.
        signals::no_bell();
        match step {
            Step::Ended(status, usage) => {
                let header_state = image.memory.header().agent.state.load(Acquire);
                let left = left_running(born, pid, inode);
                // An exec after which no agent came up.
                let lost_image = header_state == AGENT_EXEC;
                let (how, code) = if lost_image { (EndedHow::Exec, 0) } else { ended_how(status) };
                let exe = image.exe.clone();
                images.push(image.finish(how, code, left.len() as u64));
                hints.extend(program::python_hint(&exe));
                let mut result =
                    outcome(status, usage, images, hints, lost_image.then_some(exe), born, pid, inode);
                result.left_running = left;
                return Ok(result);
            }
            Step::Stopped(caller) => {
                let inode = image.memory.inode();
                let status = image.status();
                images.push(image.detach());
                RobustList::register(&[]);
                if let Some(next) = next {
                    // An exec may be under way: nobody waits there for its agent.
                    next.header().recorder.state.store(RECORDER_GONE, SeqCst);
                }
                if let Some(control) = control.as_mut() {
                    control.reply(caller, &control::Reply::Stopped(status));
                }
                drop(control.take());
                let (status, usage) = wait_only(pid);
                return Ok(outcome(status, usage, images, hints, None, born, pid, inode));
            }
            Step::Exec(exe) => {
                images.push(image.finish(EndedHow::Exec, 0, 0));
                number += 1;
                match next.take() {
                    Some(fresh) => memory = fresh,
                    None => {
                        let (status, usage) = wait_only(pid);
                        return Ok(outcome(status, usage, images, hints, Some(exe), born, pid, inode));
                    }
                }
                // The target runs, so this is no error of the run's any more.
                next = successor(&memory, options).unwrap_or_else(|error| {
                    hints.push(format!("the next image cannot be recorded: {error}"));
                    None
                });
                register(&memory, next.as_ref());
            }
        }
    }
}

/// The memory for the image after the next exec, known to the present one.
fn successor(memory: &Memory, options: &Options) -> Result<Option<Memory>, RecordError> {
    if !options.follow_exec {
        return Ok(None);
    }
    let next = Memory::create(&options.settings())?;
    memory.header().next_token.store(next.token(), Relaxed);
    memory.header().next_fd.store(next.raw_fd(), Release);
    Ok(Some(next))
}

fn register(memory: &Memory, next: Option<&Memory>) {
    match next {
        Some(next) => RobustList::register(&[memory, next]),
        None => RobustList::register(&[memory]),
    }
}

/// Fails before the target starts if the trace cannot be written.
fn check_output(program: &Path, options: &Options) -> Result<(), RecordError> {
    if options.count {
        return Ok(());
    }
    let template = options.output.as_deref().unwrap_or(names::DEFAULT);
    let fields = Fields {
        pid: 0,
        name: program.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        image: 0,
    };
    let path = names::expand(template, &fields);
    if !template.contains('%') && !options.force && path.exists() {
        return Err(RecordError::Exists(path));
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let name =
        std::ffi::CString::new(std::os::unix::ffi::OsStrExt::as_bytes(folder.as_os_str())).map_err(|_| {
            RecordError::Output { path: path.clone(), source: std::io::ErrorKind::InvalidInput.into() }
        })?;
    // A device (`-o /dev/full`) needs no writable folder.
    // SAFETY: a zero-terminated path.
    if !path.exists() && unsafe { libc::access(name.as_ptr(), libc::W_OK | libc::X_OK) } != 0 {
        return Err(RecordError::Output { path, source: std::io::Error::last_os_error() });
    }
    Ok(())
}

/// Earlier images give their name up to the coming one, if it will want it.
fn make_way(images: &mut [Recorded], memory: &Memory, pid: u32, number: u32, options: &Options) {
    let exe = PathBuf::from(OsString::from_vec(memory.introduction().0));
    let path = image::trace_path(&exe, pid, number, options);
    for (earlier, recorded) in images.iter_mut().enumerate() {
        if recorded.path == path {
            let other = names::of_image(&path, earlier as u32);
            Image::rename(recorded, &other);
        }
    }
}

enum Step {
    Ended(Status, libc::rusage),
    /// The process became another program; the executable that it was.
    Exec(PathBuf),
    /// Somebody asked for the end of the recording.
    Stopped(control::Caller),
}

/// Sleeps until the agent attaches; the status if the process ends without one.
fn wait_for_agent(memory: &Memory, pid: u32) -> Option<(Status, libc::rusage)> {
    let state = &memory.header().agent.state;
    loop {
        if state.load(Acquire) != AGENT_ABSENT {
            return None;
        }
        // An agent may have come and its process have ended since the first look.
        if is_zombie(pid)
            && state.load(Acquire) == AGENT_ABSENT
            && let Some(ended) = try_wait(pid)
        {
            return Some(ended);
        }
        // The agent wakes `state`; the end of the process rings the bell. One
        // futex can be slept on: short sleeps cover the other.
        futex_wait(state, AGENT_ABSENT, Duration::from_millis(2));
    }
}

/// Drains until the process ends or becomes another program, or until somebody
/// has seen enough.
fn follow(image: &mut Image, next: Option<&Memory>, pid: u32, mut control: Option<&mut Server>) -> Step {
    let mut sleep = SHORT;
    let mut chores = Instant::now();
    let mut flushed = Instant::now();
    let start_stack = process::stat(pid).map(|s| s.start_stack);
    let mut quiet = false;
    loop {
        let bell = image.memory.header().recorder.doorbell.load(Acquire);
        let taken = image.epoch(false);
        let first_quiet = taken == 0 && !quiet;
        quiet = taken == 0;
        let attached = || next.is_some_and(|n| n.header().agent.state.load(Acquire) != AGENT_ABSENT);
        if is_zombie(pid) {
            // The next image may have come and gone while we looked away.
            if attached() {
                return Step::Exec(image.exe.clone());
            }
            if image.was_replaced() {
                image.memory.header().agent.state.store(AGENT_EXEC, Release);
            }
            if let Some((status, usage)) = try_wait(pid) {
                return Step::Ended(status, usage);
            }
        }
        if attached() {
            return Step::Exec(image.exe.clone());
        }
        if let Some(caller) = control.as_deref_mut().and_then(|control| control::serve(control, image)) {
            return Step::Stopped(caller);
        }
        if image.wants_scan() {
            image.scan();
            continue;
        }
        if image.crowded() {
            image.reclaim();
        }
        // Nothing came any more, or it is time for chores.
        if first_quiet || chores.elapsed() >= CHORES {
            // An exec that went around our wrappers leaves no agent behind.
            let stack =
                process::stat(pid).filter(|s| s.state != b'Z').map(|s| s.start_stack).filter(|&at| at != 0);
            if let (Some(before), Some(now)) = (start_stack, stack)
                && before != now
            {
                return unobserved(image, next, pid);
            }
        }
        if chores.elapsed() >= CHORES {
            chores = Instant::now();
            image.chores();
        }
        if flushed.elapsed() >= FLUSH {
            flushed = Instant::now();
            image.flush();
        }
        sleep = if image.memory.header().agent.state.load(Acquire) == AGENT_EXEC {
            // The next image is about to come, and may not stay long either.
            SHORT
        } else {
            nap(sleep, taken, image.fullest(), own_times(image))
        };
        futex_wait(&image.memory.header().recorder.doorbell, bell, sleep);
    }
}

/// The process runs a program without an agent. It gets a moment for one to
/// come up; then only its end is of interest.
fn unobserved(image: &mut Image, next: Option<&Memory>, pid: u32) -> Step {
    let patience = Instant::now();
    loop {
        let ended = is_zombie(pid);
        if next.is_some_and(|n| n.header().agent.state.load(Acquire) != AGENT_ABSENT) {
            return Step::Exec(image.exe.clone());
        }
        if ended && let Some((status, usage)) = try_wait(pid) {
            image.memory.header().agent.state.store(AGENT_EXEC, Release);
            return Step::Ended(status, usage);
        }
        let pause = if patience.elapsed() < Duration::from_secs(1) { 2 } else { 50 };
        let bell = image.memory.header().recorder.doorbell.load(Acquire);
        futex_wait(&image.memory.header().recorder.doorbell, bell, Duration::from_millis(pause));
    }
}

fn left_running(born: Option<process::Stat>, pid: u32, inode: u64) -> Vec<u32> {
    born.map_or(Vec::new(), |born| process::left_behind(pid, born.start, born.pgrp, inode))
}

#[allow(clippy::too_many_arguments)]
fn outcome(
    status: Status,
    usage: libc::rusage,
    images: Vec<Recorded>,
    hints: Vec<String>,
    unrecorded: Option<PathBuf>,
    born: Option<process::Stat>,
    pid: u32,
    inode: u64,
) -> Outcome {
    let left_running = if images.is_empty() { left_running(born, pid, inode) } else { Vec::new() };
    let shared = images.last().map_or(0, |i| i.shared);
    let max_rss = (usage.ru_maxrss as u64 * 1024).saturating_sub(shared);
    Outcome { status, images, left_running, hints, unrecorded, max_rss, own_allocator: false }
}

fn ended_how(status: Status) -> (EndedHow, i32) {
    match status {
        Status::Exited(code) => (EndedHow::Exit, code),
        Status::Signaled(signal) => (EndedHow::Signal, signal),
    }
}

/// Has the target ended? It is left to be collected, so that `/proc` still
/// knows it.
fn is_zombie(pid: u32) -> bool {
    // SAFETY: a buffer of the right type.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // An error (nobody to wait for) is for the real wait to report.
        libc::waitid(libc::P_PID, pid, &mut info, flags) != 0 || info.si_pid() != 0
    }
}

/// The end of the target, if it has come.
fn try_wait(pid: u32) -> Option<(Status, libc::rusage)> {
    wait(pid, libc::WNOHANG)
}

/// Waits for the end of a target that is not recorded (any more).
fn wait_only(pid: u32) -> (Status, libc::rusage) {
    signals::no_bell();
    loop {
        if let Some(ended) = wait(pid, 0) {
            return ended;
        }
    }
}

fn wait(pid: u32, flags: i32) -> Option<(Status, libc::rusage)> {
    let mut status = 0;
    // SAFETY: our own child; buffers of the right types.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let result = libc::wait4(pid as i32, &mut status, flags, &mut usage);
        if result < 0 && *libc::__errno_location() == libc::ECHILD {
            // Somebody else has collected it (SIGCHLD was ignored when we came).
            return Some((Status::Exited(0), usage));
        }
        if result != pid as i32 {
            return None;
        }
        if libc::WIFEXITED(status) {
            Some((Status::Exited(libc::WEXITSTATUS(status)), usage))
        } else if libc::WIFSIGNALED(status) {
            Some((Status::Signaled(libc::WTERMSIG(status)), usage))
        } else {
            None
        }
    }
}

/// A descriptor that this process was started with, as ours.
///
/// # Safety
/// Nobody else in this process uses it.
pub(crate) unsafe fn adopt(fd: i32) -> std::os::fd::OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }
}

pub(crate) use follow_by_hand::follow_to_end;

mod follow_by_hand {
    use super::*;

    /// Drains a target that is not our child until `gone` says so, or until
    /// somebody has seen enough: who.
    pub(crate) fn follow_to_end(
        image: &mut Image,
        mut control: Option<&mut Server>,
        mut gone: impl FnMut() -> bool,
    ) -> Option<control::Caller> {
        let mut sleep = SHORT;
        let mut chores = Instant::now();
        loop {
            let bell = image.memory.header().recorder.doorbell.load(Acquire);
            let taken = image.epoch(false);
            if gone() {
                return None;
            }
            if let Some(caller) = control.as_deref_mut().and_then(|control| control::serve(control, image)) {
                return Some(caller);
            }
            if image.crowded() {
                image.reclaim();
            }
            if chores.elapsed() >= CHORES {
                chores = Instant::now();
                image.chores();
                image.flush();
            }
            sleep = nap(sleep, taken, image.fullest(), own_times(image));
            futex_wait(&image.memory.header().recorder.doorbell, bell, sleep);
        }
    }
}

impl Outcome {
    /// What a user should know besides the summary, one sentence a line.
    pub fn sentences(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for image in &self.images {
            if let Some(cut) = &image.cut
                && !image.path.as_os_str().is_empty()
            {
                lines.push(format!(
                    "{}: the recording stopped before the program did: {cut}",
                    image.path.display()
                ));
            }
        }
        for sliced in self.images.iter().filter_map(|image| image.sliced.as_ref()) {
            match &sliced.error {
                Some(error) => lines.push(format!("slices: {error}")),
                None if sliced.slices == 0 => {
                    lines.push("no slice was made: the program ended within the first period".to_owned());
                }
                None => {}
            }
        }
        if let Some(program) = &self.unrecorded {
            lines.push(if self.images.is_empty() {
                format!(
                    "nothing was recorded: no agent came up in {}. It is static, or dropped LD_PRELOAD (setuid, a \
                     wrapper that clears the environment), or ended at once",
                    program.display()
                )
            } else {
                format!(
                    "the program that {} became by exec was not recorded: it is static, or was started with an \
                     environment of its own",
                    program.display()
                )
            });
        }
        let left = self.left_running.len();
        if left > 0 {
            let (what, is) = if left == 1 {
                ("process that it started still runs", "is")
            } else {
                ("processes that it started still run", "are")
            };
            lines.push(format!(
                "{left} {what} and {is} not recorded; record children with --follow fork,exec"
            ));
        }
        lines.extend(self.hints.iter().cloned());
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorder_sleeps_longer_when_little_comes_and_never_until_a_ring_is_full() {
        let sleeps = |mut sleep, taken, fullest, own_times| {
            for _ in 0..20 {
                sleep = nap(sleep, taken, fullest, own_times);
            }
            sleep
        };
        let after = |sleep, taken, fullest| sleeps(sleep, taken, fullest, false);
        assert_eq!(after(SHORT, 0, 0), SLEEPS.1);
        assert_eq!(after(SLEEPS.1, 100, 0), BUSY, "events come again");
        assert_eq!(sleeps(BUSY, 100, 0, true), SLOW, "a trickle of events that know their times");
        assert_eq!(sleeps(SHORT, 0, 0, true), SLOW, "nothing, and no time depends on it");
        assert_eq!(sleeps(SLEEPS.1, 1 << 17, 32, true), BUSY, "a flood");
        assert_eq!(after(SHORT, 1 << 19, 128), SLEEPS.0);
        assert_eq!(after(SHORT, 1 << 17, 32), SHORT, "well as it is");
    }
}
