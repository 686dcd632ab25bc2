//! One program image, from the moment its agent attaches to its end.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::{SystemTime, UNIX_EPOCH};

use highwater_event::counted::Counted;
use highwater_event::layout::*;
use highwater_trace::model::{ClockPoint, End, EndedHow, Mark, Meta, RssSample};
use highwater_trace::reach::{Reach, ScanRef};
use highwater_trace::{TraceError, Writer, WriterOptions};

use crate::control::Status;
use crate::counted;
use crate::drain::Drain;
use crate::limits;
use crate::live::{Answer, Live, Sliced, Whose};
use crate::lsan;
use crate::memory::{Memory, futex_wake};
use crate::names::{self, Fields};
use crate::process;
use crate::run::Options;
use crate::scan::{self, Parked, Recording};
use crate::thin::Pace;

/// A program image that is being recorded.
pub struct Image {
    /// Shared with it.
    pub memory: Memory,
    /// Its trace.
    pub path: PathBuf,
    /// The target, as we see it.
    pub pid: u32,
    /// The file that it runs.
    pub exe: PathBuf,
    writer: Option<Writer>,
    drain: Drain,
    /// CLOCK_MONOTONIC when the agent came, ns: time 0 of the trace.
    start_ns: u64,
    cpu_at_start: u64,
    last_clock: u64,
    page_size: u64,
    /// Why the trace ends before the target, if it does.
    cut: Option<String>,
    /// Process ids mean the same to the target and to us.
    same_pids: bool,
    /// The trace has a greatest size.
    limited: bool,
    marks: u64,
    /// What became of slices, where there are none any more.
    sliced: Option<Sliced>,
    /// A scan was asked for.
    leak_check: bool,
    /// The option that leaves blocks out, if one does.
    partial: Option<String>,
    /// What became of it.
    scanned: Option<ScanRef>,
    /// The live set of the latest scan while the program ran.
    known: Option<scan::live::Live>,
    /// Threads that a scan did not get to stand still in time.
    late: Vec<u32>,
}

/// What an image left behind.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its trace.
    pub path: PathBuf,
    /// The program.
    pub exe: PathBuf,
    /// Events seen.
    pub events: u64,
    /// Bytes of the trace.
    pub bytes: u64,
    /// Why the trace ends before the target, if it does.
    pub cut: Option<String>,
    /// Bytes that it shared with us.
    pub shared: u64,
    /// What its threads counted, where they did.
    pub counted: Option<Counted>,
    /// What came of slices, where they were wanted.
    pub sliced: Option<Sliced>,
}

impl Image {
    /// Opens the trace of an image whose agent has attached.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn open(memory: Memory, pid: u32, number: u32, options: &Options) -> Result<Image, TraceError> {
        let agent = &memory.header().agent;
        let start_ns = agent.start_ns.load(Relaxed);
        let (exe, args) = memory.introduction();
        let exe = PathBuf::from(OsString::from_vec(exe));
        let path = trace_path(&exe, pid, number, options);
        let (now_ns, _) = now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        // SAFETY: a query without arguments of ours.
        let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
        let meta = Meta {
            writer: env!("CARGO_PKG_VERSION").to_owned(),
            exe: exe.clone(),
            args: split_arguments(&args),
            cwd: process::directory(pid),
            pid,
            image: number,
            arch: std::env::consts::ARCH.to_owned(),
            page_size,
            stamp_kind: "tsc".to_owned(),
            wall_ns: wall.saturating_sub(now_ns.saturating_sub(start_ns)),
            host: names::host(),
            options: options.remarks(),
            suppressions: lsan::suppressions(&exe),
            memory_limits: limits::of(pid),
        };
        let how = WriterOptions {
            overwrite: options.force,
            compression: options.compression,
            max_size: options.max_trace_size,
        };
        let writer = if options.count { None } else { Some(Writer::create(&path, &meta, how)?) };
        let same_pids = agent.pid.load(Relaxed) == pid;
        let mut image = Image {
            memory,
            path,
            pid,
            exe,
            writer,
            drain: Drain::thinned(options.thin()),
            start_ns,
            cpu_at_start: cpu_ns(),
            last_clock: 0,
            page_size,
            cut: None,
            same_pids,
            limited: options.max_trace_size.is_some(),
            marks: 0,
            sliced: None,
            leak_check: options.leak_check,
            partial: options.remarks().into_iter().find(|remark| is_partial(remark)),
            scanned: None,
            known: None,
            late: Vec::new(),
        };
        if let Some(slicing) = options.slices.as_ref().filter(|_| !options.count) {
            let whose = Whose { exe: image.exe.clone(), pid, image: number };
            // Without a thread for it there are no slices; the end says so.
            image.sliced =
                Live::start(slicing, whose).map(|live| image.drain.live = Some(live)).err().map(|error| {
                    Sliced { slices: 0, error: Some(format!("no thread could be started: {error}")) }
                });
        }
        let start_stamp = image.memory.header().agent.start_stamp.load(Relaxed);
        image.write(|writer| writer.clock(ClockPoint { stamp: start_stamp, ns: 0 }));
        image.sample();
        Ok(image)
    }

    /// Runs `f` on the writer; after the first failure there is none any more.
    fn write(&mut self, f: impl FnOnce(&mut Writer) -> Result<(), TraceError>) {
        if let Some(writer) = self.writer.as_mut()
            && self.cut.is_none()
            && let Err(error) = f(writer)
        {
            self.stop_writing(&error);
        }
    }

    fn stop_writing(&mut self, error: &TraceError) {
        // The rings are emptied all the same: the target must not wait for a disk.
        self.cut = Some(error.to_string());
        self.memory.header().recorder.state.store(RECORDER_FULL, Release);
    }

    /// Takes one epoch out of the rings; the bytes taken. The last one takes
    /// everything, however late its stamp.
    pub fn epoch(&mut self, last: bool) -> u64 {
        let (ns, stamp) = now();
        // Before the rings are looked at: see the agent's stamps.
        self.memory.header().recorder.tick.fetch_add(1, SeqCst);
        let pace = self.pace(ns, stamp);
        let point = ClockPoint { stamp, ns: ns.saturating_sub(self.start_ns) };
        if let Some(writer) = &mut self.writer {
            writer.reading(point);
        }
        let exe = self.exe.to_string_lossy();
        let writer = if self.cut.is_none() { self.writer.as_mut() } else { None };
        let bound = if last { None } else { Some(stamp) };
        let taken = match self.drain.epoch(&self.memory, writer, bound, &pace, &exe) {
            Ok(taken) => taken,
            Err(error) => {
                self.stop_writing(&error);
                0
            }
        };
        if let Some(live) = &mut self.drain.live {
            live.end_epoch(ns.saturating_sub(self.start_ns));
        }
        if self.limited && taken > 0 {
            // What is written in small pieces comes closer to a size limit.
            self.flush();
        }
        // Both clocks, often enough for a straight line between.
        if last || ns.saturating_sub(self.last_clock) > 50_000_000 {
            self.last_clock = ns;
            self.write(|writer| writer.clock(point));
        }
        taken
    }

    /// How stamps have run so far.
    fn pace(&self, ns: u64, stamp: u64) -> Pace {
        let ns = ns.saturating_sub(self.start_ns);
        let stamps = stamp.saturating_sub(self.memory.header().agent.start_stamp.load(Relaxed));
        let rate = if stamps > 0 { ns as f64 / stamps as f64 } else { 1.0 };
        Pace { stamp, ns, rate }
    }

    /// How full the fullest ring of the last epoch was, in 1/256.
    pub fn fullest(&self) -> u64 {
        self.drain.fullest
    }

    /// Gives rings of ended threads back.
    pub fn reclaim(&mut self) {
        if self.same_pids {
            self.drain.reclaim(&self.memory, self.pid);
        }
    }

    /// Are most rings taken?
    pub fn crowded(&self) -> bool {
        self.memory.header().counters[Counter::NoSlot as usize].load(Relaxed) != 0 || self.memory.slots() > 64
    }

    /// The rarer chores: resident memory, names, ended threads, data to disk.
    pub fn chores(&mut self) {
        self.sample();
        if self.same_pids {
            let writer = if self.cut.is_none() { self.writer.as_mut() } else { None };
            if let Err(error) = self.drain.threads(&self.memory, self.pid, writer) {
                self.stop_writing(&error);
            }
        }
    }

    /// Puts what waits in memory into the file.
    pub fn flush(&mut self) {
        if let (Some(writer), None) = (self.writer.as_mut(), &self.cut)
            && let Err(error) = self.drain.flush(writer)
        {
            self.stop_writing(&error);
        }
        self.write(Writer::flush);
    }

    fn sample(&mut self) {
        let Some(rss) = process::resident(self.pid, self.page_size) else { return };
        let own = self.memory.touched();
        let ns = now().0.saturating_sub(self.start_ns);
        self.write(|writer| writer.rss(RssSample { ns, rss: rss.saturating_sub(own), own }));
    }

    /// Has the process, which has ended and is not collected yet, become another
    /// program by a system call of its own? It has if it ended under another
    /// name and the recorded program had not begun to leave.
    pub fn was_replaced(&self) -> bool {
        let agent = &self.memory.header().agent;
        agent.leaving.load(Acquire) == 0
            && process::name(self.pid).is_some_and(|name| name != crate::drain::name_of(&agent.name))
            && !self.drain.has_named(self.pid)
    }

    /// Names this instant; its time, ns since the start. All events that were
    /// published before the call have earlier stamps, all that the target begins
    /// after the return have later ones.
    ///
    /// # Errors
    /// Why it cannot be written, as a sentence.
    pub fn mark(&mut self, name: &str) -> Result<u64, String> {
        if self.writer.is_none() {
            return Err("there is no trace to keep it in".to_owned());
        }
        let (now_ns, stamp) = now();
        let ns = now_ns.saturating_sub(self.start_ns);
        // With a clock point at the mark itself, what lies before it in one
        // clock lies before it in the other.
        self.last_clock = now_ns;
        self.write(|writer| writer.clock(ClockPoint { stamp, ns }));
        self.write(|writer| writer.mark(&Mark { ns, name: name.to_owned() }));
        // Threads that share a reading of the clock among several events must
        // not go on sharing one from before the mark.
        self.memory.header().recorder.tick.fetch_add(1, SeqCst);
        match &self.cut {
            None => {
                self.marks += 1;
                Ok(ns)
            }
            Some(cut) => Err(format!("nothing is written any more: {cut}")),
        }
    }

    /// Does the program wait at its exit for a scan?
    pub fn wants_scan(&mut self) -> bool {
        if !self.late.is_empty() {
            scan::stop::let_go(self.pid, &mut self.late);
        }
        let words = &self.memory.header().scan;
        self.leak_check && words.parked.load(Acquire) != 0 && words.answer.load(Relaxed) == SCAN_NOT_SEEN
    }

    /// Looks for unreachable blocks while the program waits; lets it go on.
    pub fn scan(&mut self) {
        let words = &self.memory.header().scan;
        let Some(parked) = Parked::read(words) else { return };
        let filtered = process::is_filtered(self.pid, words.parked.load(Relaxed));
        words.answer.store(if filtered { SCAN_BEGUN_FILTERED } else { SCAN_BEGUN }, SeqCst);
        let (pid, path) = (self.pid, self.path.clone());
        let own = words.own.load(Acquire);
        let (mut late, mut known) = (std::mem::take(&mut self.late), self.known.take());
        let result = match self.unscannable() {
            Some(why) => Err(why),
            None => scan::run(pid, &path, own, Some(parked), self, &mut known, &mut late),
        };
        self.late = late;
        self.let_go();
        match result.and_then(|reach| self.keep(&reach)) {
            Ok(place) => self.scanned = Some(place),
            // An earlier one, made while it ran, still says something.
            Err(why) => self.scanned = self.scanned.take().or(Some(ScanRef::NotScanned(why))),
        }
    }

    /// Looks for unreachable blocks now, while the program runs; it stands still
    /// meanwhile.
    ///
    /// # Errors
    /// Why there was no scan, as half a sentence.
    pub fn scan_now(&mut self) -> Result<Reach, String> {
        if let Some(why) = self.unscannable() {
            return Err(why);
        }
        if !self.late.is_empty() {
            scan::stop::let_go(self.pid, &mut self.late);
        }
        let own = self.memory.header().scan.own.load(Acquire);
        if own == 0 {
            return Err("the program has only begun to start".to_owned());
        }
        let (pid, path) = (self.pid, self.path.clone());
        let (mut late, mut known) = (std::mem::take(&mut self.late), self.known.take());
        let result = scan::run(pid, &path, own, None, &mut Running(self), &mut known, &mut late);
        self.known = known;
        self.late.extend(late);
        let reach = result?;
        self.scanned = Some(self.keep(&reach)?);
        self.flush();
        Ok(reach)
    }

    /// Writes what a scan found; where.
    fn keep(&mut self, reach: &Reach) -> Result<ScanRef, String> {
        let mut place = None;
        self.write(|writer| writer.reach(reach).map(|at| place = Some(at)));
        place.ok_or_else(|| "its result could not be written".to_owned())
    }

    /// Why a scan would mean nothing, if it would.
    fn unscannable(&self) -> Option<String> {
        let (dropped, _) = self.drain.losses(&self.memory);
        let header = self.memory.header();
        let lost = dropped
            + self.drain.lost
            + self.drain.damaged
            + header.counters[Counter::NoSlotEvents as usize].load(Relaxed)
            + header.counters[Counter::NestedLost as usize].load(Relaxed);
        match (&self.cut, &self.partial) {
            (Some(cut), _) => Some(format!("the trace was cut before: {cut}")),
            (None, Some(partial)) => Some(format!("not all blocks are recorded ({partial})")),
            (None, None) if lost > 0 => {
                Some(format!("{lost} events were lost, so it is not known which blocks are live"))
            }
            (None, None) => None,
        }
    }

    /// What the end record says of the scan.
    fn scan_ref(&mut self, how: EndedHow) -> Option<ScanRef> {
        if !self.leak_check {
            return self.scanned.take();
        }
        let not = |why: &str| Some(ScanRef::NotScanned(why.to_owned()));
        match (self.scanned.take(), how) {
            (Some(scanned), _) => Some(scanned),
            (None, EndedHow::Signal) => not("a signal ended the program, so it did not exit"),
            (None, EndedHow::Exec) => not("the program became another one (exec)"),
            (None, EndedHow::Detached) => not("the recording was stopped before the program's exit"),
            (None, _) => not("the program ended by _exit, or its exit was not seen"),
        }
    }

    /// Asks for a slice of now; the answer comes when it is written. `None` where
    /// none are wanted.
    pub fn slice(&mut self) -> Option<Answer> {
        // What was published before the request belongs to it.
        self.epoch(false);
        let ns = now().0.saturating_sub(self.start_ns);
        self.drain.live.as_mut().map(|live| live.slice(ns))
    }

    /// What there is to say of the recording now.
    pub fn status(&self) -> Status {
        Status {
            pid: self.pid,
            recorder: std::process::id(),
            program: self.exe.clone(),
            trace: std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()),
            events: self.drain.events,
            trace_bytes: self.writer.as_ref().map_or(0, Writer::bytes_written),
            ns: now().0.saturating_sub(self.start_ns),
            marks: self.marks,
            cut: self.cut.clone(),
        }
    }

    /// Lets go of the target, which runs on: the last epoch and the end record.
    pub fn detach(self) -> Recorded {
        // From here on a thread that finds its ring full gives up recording.
        self.memory.header().recorder.state.store(RECORDER_GONE, SeqCst);
        self.finish(EndedHow::Detached, 0, 0)
    }

    /// The last epoch and the end record.
    pub fn finish(mut self, how: EndedHow, code: i32, children: u64) -> Recorded {
        self.epoch(true);
        let (ns, stamp) = now();
        let pace = self.pace(ns, stamp);
        let mut held = 0;
        if let (Some(writer), None) = (self.writer.as_mut(), &self.cut) {
            match self.drain.finish(writer, &pace) {
                Ok(bytes) => held = bytes,
                Err(error) => self.stop_writing(&error),
            }
        }
        let header = self.memory.header();
        let counted = (header.options & OPT_SELECT != 0).then(|| counted::of(&self.memory));
        let (dropped, stalled_ns) = self.drain.losses(&self.memory);
        let counters = Counter::NAMES
            .iter()
            .zip(&header.counters)
            .map(|(name, value)| ((*name).to_owned(), value.load(Relaxed)))
            // Before what is left out should they not all fit.
            .chain(counted.iter().flat_map(counted::counters))
            .chain(self.drain.walking(&self.memory).map(|(name, value)| (name.to_owned(), value)))
            .chain([
                ("agent_nodes".to_owned(), u64::from(self.memory.node_count())),
                ("shared_bytes".to_owned(), self.memory.touched()),
                ("damaged_rings".to_owned(), self.drain.damaged),
                ("thinning_bytes".to_owned(), held),
            ])
            .collect();
        let lost_inside = header.counters[Counter::NoSlotEvents as usize].load(Relaxed)
            + header.counters[Counter::NestedLost as usize].load(Relaxed);
        let end = End {
            how,
            code,
            duration_ns: now().0.saturating_sub(self.start_ns),
            dropped: dropped + lost_inside + self.drain.lost,
            stalled_ns,
            recorder_cpu_ns: cpu_ns().saturating_sub(self.cpu_at_start),
            cut: self.cut.clone(),
            children,
            scan: self.scan_ref(how),
            counters,
        };
        let mut bytes = 0;
        if let Some(writer) = self.writer.take() {
            bytes = writer.bytes_written();
            match writer.finish(&end) {
                Ok(total) => bytes = total,
                Err(error) => self.cut = self.cut.take().or(Some(error.to_string())),
            }
        }
        Recorded {
            path: self.path.clone(),
            exe: self.exe.clone(),
            events: self.drain.events,
            bytes,
            cut: self.cut.clone(),
            shared: self.memory.touched(),
            counted,
            sliced: self.drain.live.take().map(Live::finish).or(self.sliced.take()),
        }
    }

    /// Another trace takes this one's name.
    pub fn rename(recorded: &mut Recorded, to: &Path) {
        if std::fs::rename(&recorded.path, to).is_ok() {
            recorded.path = to.to_path_buf();
        }
    }
}

/// Does this option leave blocks out of the recording?
fn is_partial(remark: &str) -> bool {
    remark.starts_with("sample=") || remark.starts_with("min_size=")
}

impl Recording for Image {
    fn drain(&mut self) -> Result<(), String> {
        self.epoch(true);
        self.flush();
        match self.unscannable() {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    fn now(&self) -> u64 {
        now().0.saturating_sub(self.start_ns)
    }

    fn beat(&self) {
        self.memory.header().scan.beat.fetch_add(1, Relaxed);
    }

    fn let_go(&mut self) {
        let answer = &self.memory.header().scan.answer;
        answer.store(SCAN_OVER, SeqCst);
        futex_wake(answer);
    }
}

/// A recording whose program does not wait for anybody.
struct Running<'a>(&'a mut Image);

impl Recording for Running<'_> {
    fn drain(&mut self) -> Result<(), String> {
        // What is published now is no younger than the clock that bounds the epoch.
        self.0.epoch(false);
        self.0.flush();
        self.0.unscannable().map_or(Ok(()), Err)
    }

    fn now(&self) -> u64 {
        Recording::now(self.0)
    }

    fn beat(&self) {}

    fn let_go(&mut self) {}
}

/// Where the trace of an image goes.
pub fn trace_path(exe: &Path, pid: u32, number: u32, options: &Options) -> PathBuf {
    let fields = Fields {
        pid,
        name: exe.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        image: number,
    };
    names::expand(options.output.as_deref().unwrap_or(names::DEFAULT), &fields)
}

fn split_arguments(bytes: &[u8]) -> Vec<String> {
    let mut list: Vec<String> =
        bytes.split(|&b| b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect();
    list.pop();
    list
}

/// CLOCK_MONOTONIC in ns and the stamp at (nearly) the same instant.
pub fn now() -> (u64, u64) {
    // SAFETY: rdtsc is unprivileged on Linux; the clock writes a timespec.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        let before = core::arch::x86_64::_rdtsc();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        let after = core::arch::x86_64::_rdtsc();
        let ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        (ns, before + (after - before) / 2)
    }
}

/// CPU time of this process, ns.
fn cpu_ns() -> u64 {
    // SAFETY: the clock writes a timespec.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}
