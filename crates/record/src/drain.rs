//! Rings to trace, one epoch at a time.
//!
//! An epoch is everything that was published before an instant. The instant is
//! a stamp taken *before* the rings are looked at; what carries a later stamp
//! stays in its ring for the next epoch. So an event that depends on another
//! (the free of a block that some thread made) never lands in an earlier epoch
//! than the one it depends on, however the threads were scheduled.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::*;

use highwater_event::codec::{Record, SpecialKind, State};
use highwater_event::columns::{Stop, Taken};
use highwater_event::layout::*;
use highwater_event::ring::{Decoder, UNIT};
use highwater_trace::TraceError;
use highwater_trace::Writer;
use highwater_trace::model::{ModuleDef, NodeDef, ThreadDef};

use crate::live::Live;
use crate::memory::Memory;
use crate::process;
use crate::thin::{Pace, Thin};

/// Stamps may be taken a little early by a processor that executes ahead; an
/// event this close to the instant waits for the next epoch. (About 1 µs.)
const SLACK: u64 = 4096;
/// The first node that is not a truncation marker.
const FIRST_NODE: u32 = 16;

/// What is known of a slot's present owner.
#[derive(Clone, Debug, Default)]
struct Owner {
    generation: u32,
    thread: u32,
    tid: u32,
    state: State,
    tail: u64,
    name: String,
    start: u64,
    /// The bytes in the ring made no sense; nothing more is read from it.
    damaged: bool,
}

/// Where in the shared memory the recorder stands.
#[derive(Default)]
pub struct Drain {
    owners: Vec<Owner>,
    nodes: u32,
    /// Ids that were given out but not complete when they were looked at.
    unready: Vec<u32>,
    modules: Vec<bool>,
    words: Vec<u64>,
    defs: Vec<NodeDef>,
    /// A replay that goes along, where slices are wanted.
    pub live: Option<Live>,
    /// Keeps fewer events than there are.
    thin: Option<Thin>,
    /// Events taken from the rings, written or not.
    pub events: u64,
    /// Events that could not be written.
    pub lost: u64,
    /// Rings whose bytes made no sense.
    pub damaged: u64,
    /// How full the fullest ring of the last epoch was, in 1/256.
    pub fullest: u64,
}

impl Drain {
    /// Takes one epoch out of the rings. Returns the bytes taken.
    ///
    /// Without a writer (the disk is full) everything is taken and counted.
    ///
    /// # Errors
    /// As the writer; the rings are emptied all the same.
    pub fn epoch(
        &mut self,
        memory: &Memory,
        mut writer: Option<&mut Writer>,
        bound: Option<u64>,
        pace: &Pace,
        exe: &str,
    ) -> Result<u64, TraceError> {
        let bound = bound.map_or(u64::MAX, |stamp| stamp.saturating_sub(SLACK));
        let mut taken = 0;
        let mut result = Ok(());
        self.fullest = 0;
        let slots = memory.slots();
        if self.owners.len() < slots as usize {
            self.owners.resize(slots as usize, Owner::default());
        }
        for index in 0..slots {
            match self.slot(memory, index, writer.as_deref_mut(), bound) {
                Ok(bytes) => taken += bytes,
                Err(error) => result = Err(error),
            }
        }
        if let Some(writer) = writer {
            result = result.and(self.modules(memory, writer, exe));
            result = result.and(self.nodes(memory, writer));
            match &mut self.thin {
                Some(thin) => result = result.and(thin.end_epoch(writer, pace, bound)),
                None if taken > 0 => result = result.and(writer.end_epoch()),
                None => {}
            }
        }
        result.map(|()| taken)
    }

    /// Of a recording that keeps fewer events than there are.
    pub fn thinned(thin: Option<Thin>) -> Drain {
        Drain { thin, ..Drain::default() }
    }

    /// Writes the totals of what was left out so far.
    ///
    /// # Errors
    /// As the writer.
    pub fn flush(&mut self, writer: &mut Writer) -> Result<(), TraceError> {
        self.thin.as_mut().map_or(Ok(()), |thin| thin.flush(writer))
    }

    /// Writes what was held back. Returns the bytes that holding it took.
    ///
    /// # Errors
    /// As the writer.
    pub fn finish(&mut self, writer: &mut Writer, pace: &Pace) -> Result<u64, TraceError> {
        let Some(thin) = &mut self.thin else { return Ok(0) };
        let memory = thin.memory();
        thin.finish(writer, pace).map(|()| memory)
    }

    fn slot(
        &mut self,
        memory: &Memory,
        index: u32,
        mut writer: Option<&mut Writer>,
        bound: u64,
    ) -> Result<u64, TraceError> {
        let slot = memory.slot(index);
        let Some(owner) = self.owners.get_mut(index as usize) else { return Ok(0) };
        // The head first. An owner announces its generation before its first event, so
        // whoever wrote what lies before this head is no later one than the generation
        // read after it; and the last owner's events were all taken before it lost the
        // slot. The other way round a new owner's first events could be read as its
        // predecessor's.
        let head = slot.head.load(Acquire);
        let generation = slot.generation.load(Acquire);
        if generation == owner.generation && head == owner.tail {
            return Ok(0);
        }
        if generation != owner.generation {
            *owner = new_owner(slot, generation, owner.tail);
            if let Some(writer) = writer.as_deref_mut() {
                writer.thread(&thread_def(owner))?;
            }
        }
        let length = head.wrapping_sub(owner.tail);
        if length == 0 {
            return Ok(0);
        }
        if length > memory.ring_size(index) || !head.is_multiple_of(UNIT as u64) || owner.damaged {
            owner.damaged = true;
            owner.tail = head;
            slot.tail.store(head, Release);
            memory.wake(slot);
            self.damaged += 1;
            return Ok(0);
        }
        self.fullest = self.fullest.max(length * 256 / memory.ring_size(index).max(1));
        let mut result = Ok(());
        let start = owner.tail;
        let mut at_end = false;
        while owner.tail != head && !at_end {
            // One run up to the ring's end or the head.
            self.words.clear();
            memory.ring_words(index, owner.tail, head - owner.tail, &mut self.words);
            let run = 8 * self.words.len() as u64;
            let (taken, stop) = match writer.as_deref_mut() {
                Some(_) if let Some(thin) = &mut self.thin => {
                    thin.ring(owner.thread, owner.state, &self.words, bound)
                }
                Some(writer) if result.is_ok() => {
                    match writer.ring(owner.thread, owner.state, &self.words, bound) {
                        Ok(taken) => taken,
                        Err(error) => {
                            result = Err(error);
                            Self::count(&self.words, owner.state, bound)
                        }
                    }
                }
                _ => Self::count(&self.words, owner.state, bound),
            };
            if let Some(live) = &mut self.live {
                let words = self.words.get(..taken.bytes / 8).unwrap_or_default();
                live.take(owner.thread, owner.state.stamp, words);
            }
            owner.state = taken.state;
            self.events += u64::from(taken.events);
            if writer.is_none() || result.is_err() {
                self.lost += u64::from(taken.events);
            }
            owner.tail += if stop == Stop::Pad { run } else { taken.bytes as u64 };
            // Damage: the target has written over our memory.
            owner.damaged = matches!(stop, Stop::Damage(_));
            at_end = stop == Stop::Bound || owner.damaged;
            if owner.damaged {
                self.damaged += 1;
                owner.tail = head;
            }
        }
        let taken = owner.tail - start;
        if taken > 0 {
            slot.tail.store(owner.tail, SeqCst);
            memory.wake(slot);
        }
        result.map(|()| taken)
    }

    /// What a writer would take of `bytes`, where there is none.
    fn count(words: &[u64], state: State, bound: u64) -> (Taken, Stop) {
        let mut taken = Taken { state, ..Taken::default() };
        let mut decoder = Decoder::new(words, state.stamp);
        loop {
            match decoder.next() {
                Ok(None) => return (taken, Stop::End),
                Ok(Some(Record::Special { kind: SpecialKind::Pad, .. })) => return (taken, Stop::Pad),
                Ok(Some(record)) if record.stamp() > bound => return (taken, Stop::Bound),
                Ok(Some(record)) => {
                    taken.events += u32::from(record.is_event());
                    (taken.bytes, taken.state.stamp) = (8 * decoder.offset(), decoder.stamp);
                }
                Err(error) => return (taken, Stop::Damage(error)),
            }
        }
    }

    /// Nodes that are new since the last epoch. Called after the rings were
    /// read: what they refer to was complete before it was published.
    fn nodes(&mut self, memory: &Memory, writer: &mut Writer) -> Result<(), TraceError> {
        let count = memory.node_count();
        self.defs.clear();
        let fresh = self.nodes.max(1)..count;
        let waiting = std::mem::take(&mut self.unready);
        for id in waiting.into_iter().chain(fresh) {
            match memory.node(id) {
                Some(node) => {
                    self.defs.push(NodeDef { id, parent: node.parent, pc: node.pc(), module: node.module() });
                }
                None if id >= FIRST_NODE => self.unready.push(id),
                None => {}
            }
        }
        self.nodes = count;
        if let Some(live) = &mut self.live {
            live.nodes(&self.defs);
        }
        if self.defs.is_empty() { Ok(()) } else { writer.nodes(&self.defs) }
    }

    /// Modules that are new or gone since the last epoch.
    fn modules(&mut self, memory: &Memory, writer: &mut Writer, exe: &str) -> Result<(), TraceError> {
        for index in 0u16..u16::MAX {
            let Some(module) = memory.module(u32::from(index)) else { break };
            let unloaded = module.unloaded.load(Acquire);
            let known = self.modules.get(usize::from(index)).copied();
            if known == Some(unloaded != 0) {
                continue;
            }
            if known.is_none() {
                self.modules.push(unloaded != 0);
            } else if let Some(place) = self.modules.get_mut(usize::from(index)) {
                *place = unloaded != 0;
            }
            let length = (module.build_id_len as usize).min(module.build_id.len());
            let module = ModuleDef {
                index,
                path: if module.flags & MODULE_MAIN != 0 {
                    exe.to_owned()
                } else {
                    memory.module_path(module)
                },
                bias: module.bias,
                start: module.start,
                end: module.end,
                build_id: module.build_id.get(..length).unwrap_or_default().to_vec(),
                loaded: module.loaded,
                unloaded,
                flags: module.flags,
            };
            if let Some(live) = &mut self.live {
                live.module(&module);
            }
            writer.module(&module)?;
        }
        Ok(())
    }

    /// Gives the rings of ended threads back, and notices new names. `pid` is
    /// the target as this process sees it.
    ///
    /// # Errors
    /// As the writer.
    pub fn threads(
        &mut self,
        memory: &Memory,
        pid: u32,
        writer: Option<&mut Writer>,
    ) -> Result<(), TraceError> {
        let mut renamed = Vec::new();
        for (index, owner) in self.owners.iter_mut().enumerate() {
            let slot = memory.slot(index as u32);
            if owner.generation == 0
                || slot.state.load(Acquire) != SLOT_OWNED
                || slot.generation.load(Acquire) != owner.generation
            {
                continue;
            }
            if process::thread_is_gone(pid, owner.tid) {
                // It is gone, so the head no longer moves.
                if slot.head.load(Acquire) == owner.tail {
                    slot.state.store(SLOT_FREE, Release);
                }
            } else if let Some(name) = process::thread_name(pid, owner.tid)
                && name != owner.name
            {
                owner.name = name;
                renamed.push(thread_def(owner));
            }
        }
        if let Some(writer) = writer {
            for thread in &renamed {
                writer.thread(thread)?;
            }
        }
        Ok(())
    }

    /// Only gives rings back: cheap enough for every epoch.
    pub fn reclaim(&mut self, memory: &Memory, pid: u32) {
        for (index, owner) in self.owners.iter().enumerate() {
            let slot = memory.slot(index as u32);
            if owner.generation != 0
                && slot.state.load(Acquire) == SLOT_OWNED
                && slot.generation.load(Acquire) == owner.generation
                && slot.head.load(Acquire) == owner.tail
                && process::thread_is_gone(pid, owner.tid)
                && slot.head.load(Acquire) == owner.tail
            {
                slot.state.store(SLOT_FREE, Release);
            }
        }
    }

    /// Has a thread of the process a name that chores have seen change, equal to
    /// the name it ended with? (It renamed itself.)
    pub fn has_named(&self, pid: u32) -> bool {
        process::name(pid).is_some_and(|name| self.owners.iter().any(|o| o.tid == pid && o.name == name))
    }

    /// How many threads own a ring.
    pub fn owned(&self, memory: &Memory) -> usize {
        (0..memory.slots()).filter(|&i| memory.slot(i).state.load(Relaxed) == SLOT_OWNED).count()
    }

    /// What walking cost, over all slots: walks, frames, walks without any use of the cache, stale hits.
    pub fn walking(&self, memory: &Memory) -> [(&'static str, u64); 4] {
        let sum = |field: fn(&Slot) -> u64| (0..memory.slots()).map(|i| field(memory.slot(i))).sum();
        [
            ("walks", sum(|s| s.walks.load(Relaxed))),
            ("frames_walked", sum(|s| s.fresh.load(Relaxed))),
            ("walks_full", sum(|s| s.full.load(Relaxed))),
            ("cache_stale", sum(|s| s.stale.load(Relaxed))),
        ]
    }

    /// Events dropped and nanoseconds waited, over all slots.
    pub fn losses(&self, memory: &Memory) -> (u64, u64) {
        (0..memory.slots()).fold((0, 0), |(dropped, stalled), i| {
            let slot = memory.slot(i);
            (dropped + slot.dropped.load(Relaxed), stalled + slot.stalled_ns.load(Relaxed))
        })
    }
}

/// A thread's name as the agent stores it.
pub fn name_of(words: &[AtomicU64; 2]) -> String {
    let mut name = Vec::new();
    for word in words {
        name.extend_from_slice(&word.load(Relaxed).to_le_bytes());
    }
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    name.truncate(end);
    String::from_utf8_lossy(&name).into_owned()
}

fn new_owner(slot: &Slot, generation: u32, tail: u64) -> Owner {
    let start = slot.start_stamp.load(Relaxed);
    Owner {
        generation,
        thread: slot.thread.load(Relaxed),
        tid: slot.tid.load(Relaxed),
        // Zeros and the stamp: what the owner's encoder started with.
        state: State { stamp: start, ..State::default() },
        tail,
        name: name_of(&slot.name),
        start,
        damaged: false,
    }
}

fn thread_def(owner: &Owner) -> ThreadDef {
    ThreadDef { thread: owner.thread, tid: owner.tid, name: owner.name.clone(), start: owner.start }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use highwater_event::api::ApiKind;
    use highwater_event::ring::{Encoder, MAX_RECORD};
    use highwater_trace::model::{End, Meta, Op, Step};
    use highwater_trace::{Trace, WriterOptions};

    use super::*;
    use crate::memory::Settings;

    /// The memory as the thread sees it that plays the agent.
    struct Shared<'a>(&'a Memory);
    // SAFETY: that thread touches the memory as an agent in another process does.
    unsafe impl Send for Shared<'_> {}

    /// What the agent does for a thread that lives for one event: see `set_up` there.
    fn live_and_die(memory: &Memory, thread: u32) {
        let slot = memory.slot(0);
        while slot.state.compare_exchange(SLOT_FREE, SLOT_CLAIMED, AcqRel, Relaxed).is_err() {
            std::hint::spin_loop();
        }
        memory.header().agent.slots_used.fetch_max(1, AcqRel);
        let stamp = u64::from(thread) + 1;
        slot.start_stamp.store(stamp, Relaxed);
        slot.thread.store(thread, Relaxed);
        slot.generation.fetch_add(1, Release);
        slot.state.store(SLOT_OWNED, Release);
        let mut encoder = Encoder { stamp };
        let ptr = 0x1000 + 16 * u64::from(thread);
        let record =
            Record::Alloc { stamp, ptr, size: 8, usable: None, node: 16, api: ApiKind::Malloc, pair: false };
        let head = slot.head.load(Relaxed);
        let mut room = [0; MAX_RECORD / 8];
        let words = encoder.record(&record, &mut room);
        let place = memory.ring_place(0, head);
        // SAFETY: far from the ring's end (the test writes less than a ring), and the
        // recorder does not look before the head has moved.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), place, words.len()) };
        slot.head.store(head + 8 * words.len() as u64, Release);
    }

    #[test]
    fn the_first_events_of_a_threads_successor_were_read_as_its_own() {
        const THREADS: u32 = 10_000;
        let memory = Memory::create(&Settings::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owners.hwt");
        let mut writer = Writer::create(&path, &Meta::default(), WriterOptions::default()).unwrap();
        let mut drain = Drain::default();
        let gone = AtomicBool::new(false);
        let pace = Pace { stamp: 0, ns: 0, rate: 1.0 };
        assert!(memory.ring_size(0) > 50 * u64::from(THREADS));
        std::thread::scope(|scope| {
            let (shared, gone) = (Shared(&memory), &gone);
            scope.spawn(move || {
                let Shared(memory) = { shared };
                for thread in 0..THREADS {
                    live_and_die(memory, thread);
                    gone.store(true, Release);
                }
            });
            while drain.events < u64::from(THREADS) {
                drain.epoch(&memory, Some(&mut writer), None, &pace, "").unwrap();
                let slot = memory.slot(0);
                // As in reclaim(): gone first, so the head no longer moves.
                let all = || drain.owners.first().is_some_and(|o| o.tail == slot.head.load(Acquire));
                if gone.load(Acquire) && all() {
                    gone.store(false, Relaxed);
                    slot.state.store(SLOT_FREE, Release);
                }
            }
        });
        writer.finish(&End::default()).unwrap();
        let mut seen = 0;
        let trace = Trace::open(&path).unwrap();
        let mut steps = trace.steps();
        while let Some(step) = steps.next().unwrap() {
            let Step::Event(event) = step else { continue };
            assert_eq!(event.op, Op::Alloc { size: 8, usable: None });
            assert_eq!(event.addr, 0x1000 + 16 * u64::from(event.thread), "thread {}", event.thread);
            seen += 1;
        }
        assert_eq!(seen, THREADS);
    }
}
