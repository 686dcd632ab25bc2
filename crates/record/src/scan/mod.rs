//! A scan of the target's memory for blocks that nothing points to.
//!
//! Everything is done from here, outside of the target: its threads are stopped
//! by ptrace, the rings are drained, the live set is replayed from the trace,
//! the memory is read, and the threads go on. Only then come the parts that
//! need no memory: retained sizes and the record.
//!
//! At its exit the target waits for that; while it runs, it is stopped wherever it
//! is. Not inside of our hooks, though: in the middle of a realloc the old block is
//! no longer in the live set and the new one is not yet, so that all that they point
//! to would seem lost. Threads that are there go on until they have left.
//!
//! | module | holds |
//! |---|---|
//! | [`stop`] | threads at a stand |
//! | [`maps`], [`objects`] | what is where in the target |
//! | [`target`] | reading its memory |
//! | [`regions`] | which of it are roots |
//! | [`live`] | the live set |

pub mod live;
pub mod maps;
pub mod objects;
pub mod regions;
pub mod stop;
pub mod target;

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use highwater_event::layout::{OWN_CAP, ScanWords};
use highwater_replay::reach::{
    Blocks, Graph, Memory, Pages, RootPointer, classify, graph, heuristics, record, retained,
};
use highwater_trace::reach::{Place, Reach};

use live::Live;
use maps::Mapping;
use regions::Known;
use stop::{Stopped, Thread};
use target::Target;

/// The thread that waits to exit, as the agent says.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    stack: u64,
    exact: bool,
    exit: u64,
}

impl Parked {
    /// What the words in shared memory say; `None` while nobody waits.
    pub fn read(words: &ScanWords) -> Option<Parked> {
        (words.parked.load(std::sync::atomic::Ordering::Acquire) != 0).then(|| Parked {
            stack: words.stack.load(Relaxed),
            exact: words.exact.load(Relaxed) != 0,
            exit: words.exit.load(Relaxed),
        })
    }
}

/// What a scan needs of its caller.
pub trait Recording {
    /// Takes everything out of the rings and writes it to the trace.
    ///
    /// # Errors
    /// Why it cannot be written, as half a sentence.
    fn drain(&mut self) -> Result<(), String>;

    /// Nanoseconds since the start of the recording.
    fn now(&self) -> u64;

    /// Tells the waiting thread that work goes on.
    fn beat(&self);

    /// The target's memory has been read: nobody needs to wait any more.
    fn let_go(&mut self);
}

/// Longest time for reading memory: this, and [`PER_GIB`] for each GiB.
const LONGEST: Duration = Duration::from_secs(30);
const PER_GIB: Duration = Duration::from_secs(10);
/// Words of a stack in which a hook is looked for that called the allocator.
const HOOK_WORDS: usize = 512;
/// libc's `exit` is shorter than this.
const EXIT_BYTES: u64 = 128;

/// Scans `pid`, whose agent keeps the list of its mappings at `own` and one of whose
/// threads may wait at its exit. The live set is left in `known`, so that the next scan
/// reads only what was recorded since. Threads that did not stop in time are added to
/// `late`.
///
/// # Errors
/// Why there was no scan, as half a sentence.
pub fn run(
    pid: u32,
    trace: &Path,
    own: u64,
    parked: Option<Parked>,
    recording: &mut dyn Recording,
    known: &mut Option<Live>,
    late: &mut Vec<u32>,
) -> Result<Reach, String> {
    let unreadable = |error| format!("the trace cannot be read back: {error}");
    // As much as can be done while its other threads run is done before they stop.
    recording.drain()?;
    let mut live = match known.take() {
        Some(mut live) => live.catch_up(&mut || recording.beat()).map(|()| live),
        None => Live::open(trace, &mut || recording.beat()),
    }
    .map_err(unreadable)?;
    let from = Instant::now();
    let mut notes = Vec::new();
    let stopped = hold(pid, own, parked, recording, &mut notes, late)?;
    if stopped.as_ref().is_some_and(|stopped| stopped.threads.is_empty()) {
        return Err("the program ended before it could be stopped".to_owned());
    }
    recording.drain()?;
    live.catch_up(&mut || recording.beat()).map_err(unreadable)?;
    let seqno = live.events();
    let ns = recording.now();
    let blocks = live.blocks();
    if parked.is_some() {
        // It exits: no scan comes after this one.
        live.end();
    }
    let threads: &[Thread] = stopped.as_ref().map_or(&[], |stopped| &stopped.threads);
    let read = read(pid, own, parked, threads, &blocks, live.pages());
    let count = threads.len() as u64;
    let tids: Vec<u32> = threads.iter().map(|thread| thread.tid).collect();
    drop(stopped);
    recording.let_go();
    let stopped_ns = from.elapsed().as_nanos() as u64;
    stop::bury(pid, &tids);
    let read = read?;
    *known = parked.is_none().then_some(live);
    let retained = retained::retained(&blocks, &read.graph, &read.roots, &read.classes);
    let mut reach = record::record(&blocks, &read.graph, &read.roots, &read.classes, &retained);
    notes.append(&mut reach.notes);
    Ok(Reach { seqno, ns, stopped_ns, threads: count, root_bytes: read.root_bytes, notes, ..reach })
}

/// Stops all threads, outside of our hooks. Where that is forbidden, a process with
/// one thread is scanned all the same, if that thread waits for us.
fn hold(
    pid: u32,
    own: u64,
    parked: Option<Parked>,
    recording: &mut dyn Recording,
    notes: &mut Vec<String>,
    late: &mut Vec<u32>,
) -> Result<Option<Stopped>, String> {
    let outside = |mut stopped: Stopped| {
        let left = match maps_of(pid) {
            Ok(maps) => leave_hooks(pid, own, parked, &maps, recording, &mut stopped)?,
            // Gone, most likely; who reads its memory will say so.
            Err(_) => 0,
        };
        Ok((stopped, left))
    };
    match Stopped::all(pid).and_then(outside) {
        Ok((stopped, left)) => {
            if left > 0 {
                notes.push(format!(
                    "{left} of its threads did not leave the allocator: what only the blocks in their hands \
                     point to may be called lost"
                ));
            }
            Ok(Some(stopped))
        }
        Err(refused) => {
            late.extend(&refused.late);
            let alone = parked.is_some() && stop::threads_of(pid).len() == 1;
            if refused.forbidden && alone {
                notes.push(format!("it was not stopped: {}", refused.why));
                return Ok(None);
            }
            Err(refused.why)
        }
    }
}

fn maps_of(pid: u32) -> Result<Vec<Mapping>, String> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))
        .map_err(|error| format!("its mappings cannot be read: {error}"))?;
    Ok(maps::parse(&text))
}

/// Has the threads that are in a hook of ours leave it; how many did not in time.
fn leave_hooks(
    pid: u32,
    own: u64,
    parked: Option<Parked>,
    maps: &[Mapping],
    recording: &mut dyn Recording,
    stopped: &mut Stopped,
) -> Result<u64, stop::Refused> {
    let target = Target::new(pid, Instant::now() + LONGEST);
    // Its data may lie in pages of no file: the object knows.
    let objects = objects::find(maps, &target);
    let agent = objects.iter().find(|object| object.holds(own)).map_or(0, |object| object.inode);
    let code: Vec<&Mapping> =
        maps.iter().filter(|mapping| agent != 0 && mapping.exec && mapping.inode == agent).collect();
    let ours = |addr: u64| code.iter().any(|mapping| mapping.holds(addr));
    let waits = parked.and_then(|parked| waiting_thread(parked, &stopped.threads)).map(|thread| thread.tid);
    let inside = |thread: &Thread| {
        if Some(thread.tid) == waits {
            return false;
        }
        // Below the hook are at most the allocator's own frames.
        let mut words = [0; HOOK_WORDS];
        target.read(thread.registers.rsp & !7, &mut words);
        ours(thread.registers.rip) || words.into_iter().any(ours)
    };
    stopped.leave(pid, inside, &mut || recording.drain())
}

const KILLED: &str = "it was killed during the scan";

/// What needs the target's memory.
struct Read {
    graph: Graph,
    roots: Vec<RootPointer>,
    root_bytes: u64,
    classes: classify::Classes,
}

fn read(
    pid: u32,
    own: u64,
    parked: Option<Parked>,
    threads: &[Thread],
    blocks: &Blocks,
    pages: &Pages,
) -> Result<Read, String> {
    let maps = maps_of(pid)?;
    let bytes: u64 = blocks.all().iter().map(|block| block.size).fold(0, u64::saturating_add);
    let longest = LONGEST + PER_GIB * u32::try_from(bytes >> 30).unwrap_or(1000).min(1000);
    let mut target = Target::new(pid, Instant::now() + longest);
    let stack = match (parked, threads.first()) {
        (Some(parked), _) => parked.stack,
        (None, first) => first.map_or(0, |thread| thread.registers.rsp),
    };
    if !target.is_readable(stack) {
        // What was killed has no memory any more: that is no matter of rights.
        return Err(match stop::has_ended(pid) {
            true => KILLED.to_owned(),
            false => "the system does not let its memory be read".to_owned(),
        });
    }
    let (whole, objects) = regions::ranges(&maps);
    target.set_ranges(whole, objects);
    let target = &target;
    let mut roots = roots(own, parked, threads, blocks, pages, &maps, target);
    let over = || match target.stop.load(Relaxed) {
        true if stop::has_ended(pid) => Err(KILLED.to_owned()),
        true => Err(format!("reading its memory took longer than {} s", longest.as_secs())),
        false => Ok(()),
    };
    let found = graph::roots(blocks, target, &roots.ranges, &target.stop);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
    let graph = Graph::read(blocks, target, workers, &target.stop);
    over()?;
    let (Some((pointers, root_bytes)), Some(graph)) = (found, graph) else {
        return Err("it was interrupted".to_owned());
    };
    roots.pointers.extend(pointers);
    let classes = classify::classify(&graph, &roots.pointers, |block, into| {
        blocks.all().get(block as usize).is_some_and(|block| heuristics::accepts(target, block, into))
    });
    over()?;
    Ok(Read { graph, roots: roots.pointers, root_bytes, classes })
}

/// Roots in memory, and pointers of roots that are no plain memory.
struct Roots {
    ranges: Vec<highwater_replay::reach::RootRange>,
    pointers: Vec<RootPointer>,
}

fn roots(
    agent: u64,
    parked: Option<Parked>,
    threads: &[Thread],
    blocks: &Blocks,
    pages: &Pages,
    maps: &[Mapping],
    target: &Target,
) -> Roots {
    let objects = objects::find(maps, target);
    let own = own_mappings(agent, maps, target);
    // A process that was not stopped has one thread, and that one waits.
    let alone = parked.map(|parked| Thread::waiting(parked.stack));
    let threads = match &alone {
        Some(alone) if threads.is_empty() => std::slice::from_ref(alone),
        _ => threads,
    };
    let waits = parked.map(|parked| {
        let tid = waiting_thread(parked, threads).map_or(0, |thread| thread.tid);
        (tid, if parked.exact { parked.stack } else { above_exit(parked, maps, target) })
    });
    let known = Known { maps, objects: &objects, agent, own: &own, threads, parked: waits, pages, blocks };
    let ranges = regions::roots(&known, target);
    let mut pointers = Vec::new();
    for thread in threads {
        // The registers of the thread that waits are the agent's.
        if waits.is_none_or(|(tid, _)| tid != thread.tid) {
            for (register, word) in regions::registers(thread).into_iter().enumerate() {
                if let Some((to, into)) = blocks.find(word) {
                    let place = Place::Register { tid: thread.tid, register: register as u8 };
                    pointers.push(RootPointer { place, to, into });
                }
            }
        }
        pointers.extend(thread_vector(thread, blocks, target));
    }
    Roots { ranges, pointers }
}

/// A thread's table of thread-local storage (`dtv`): the loader points 16 bytes
/// into its block.
fn thread_vector(thread: &Thread, blocks: &Blocks, target: &Target) -> Option<RootPointer> {
    let base = thread.registers.fs_base;
    if base == 0 || target.word(base) != base {
        return None;
    }
    let (to, into) = blocks.find(target.word(base + 8).checked_sub(16)?)?;
    let place = Place::Stack { tid: thread.tid, addr: base + 8 };
    (into == 0).then_some(RootPointer { place, to, into })
}

/// The thread whose stack the agent waits on.
fn waiting_thread(parked: Parked, threads: &[Thread]) -> Option<&Thread> {
    threads
        .iter()
        .filter(|thread| thread.registers.rsp <= parked.stack)
        .min_by_key(|thread| parked.stack - thread.registers.rsp)
}

/// Where the frames of libc's `exit` end on the waiting thread's stack. They
/// lie where `main`'s frame was, and what they have not overwritten is dead.
fn above_exit(parked: Parked, maps: &[Mapping], target: &Target) -> u64 {
    let end = maps.iter().find(|mapping| mapping.holds(parked.stack)).map_or(0, |mapping| mapping.end);
    let end = end.min(parked.stack.saturating_add(64 << 10));
    let mut words = vec![0; (end.saturating_sub(parked.stack & !7) / 8) as usize];
    target.read(parked.stack & !7, &mut words);
    let returns = |&word: &u64| parked.exit != 0 && word > parked.exit && word <= parked.exit + EXIT_BYTES;
    match words.iter().position(returns) {
        Some(at) => (parked.stack & !7) + (at as u64 + 1) * 8,
        None => parked.stack,
    }
}

/// The agent's private mappings, from its own list.
fn own_mappings(list: u64, maps: &[Mapping], target: &Target) -> Vec<(u64, u64)> {
    if !list.is_multiple_of(8) || !regions::is_writable(maps, list) {
        return Vec::new();
    }
    let count = (target.word(list) as usize).min(OWN_CAP);
    let mut words = vec![0; count * 2];
    for (at, chunk) in words.chunks_mut(256).enumerate() {
        target.read(list + 8 + at as u64 * 2048, chunk);
    }
    let mut ranges: Vec<(u64, u64)> = words
        .chunks_exact(2)
        .filter_map(|pair| Some((*pair.first()?, pair.first()?.checked_add(*pair.last()?)?)))
        .filter(|range| range.0 < range.1)
        .map(|(start, end)| (start & !4095, end.next_multiple_of(4096)))
        .collect();
    ranges.sort_unstable();
    ranges
}
