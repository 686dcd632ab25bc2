//! A thread's private state, its slot in shared memory and its ring.
//!
//! Slot `i` of the shared memory has state `i` here; a thread that records owns
//! both. The states are private memory that the kernel wipes in a forked child
//! (`MADV_WIPEONFORK`), so a child finds [`Thread::busy`] zero and leaves its
//! parent's ring alone: no lock, no pid compare, no fork handler.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*, compiler_fence};

use highwater_event::api::ApiKind;
use highwater_event::codec::{SpecialKind, State};
use highwater_event::layout::*;
use highwater_event::ring::{Encoder, MAX_RECORD, UNIT};
use highwater_event::sample::{Sampler, mix};

use crate::hooks::light;
use crate::select::NO_PASS;
use crate::set::Set;
use crate::start::{self, Shared};
use crate::sys::Line;
use crate::unwind::cache::{Cache, Edges, Scratch, Tally};
use crate::unwind::memo::Memo;
use crate::unwind::walk::{MAX_FRAMES, Span};
use crate::{arch, sys};

/// [`Thread::busy`]: not inside the agent.
pub const IDLE: u64 = 1;

/// [`Thread::making`]: no block is expected.
pub const NOTHING: u64 = u64::MAX;

/// Operations that came while the thread was inside the agent or inside a real
/// function on behalf of a hook: a signal handler's, or those of operator new.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Nested {
    /// The block.
    pub ptr: u64,
    /// Requested bytes of an alloc.
    pub size: u64,
    /// When.
    pub stamp: u64,
    /// Through what; 255: taken back.
    pub api: u8,
}

/// How many nested operations are kept until the outer one ends.
pub const NESTED_MAX: usize = 64;

/// A thread's state.
#[repr(C, align(4096))]
pub struct Thread {
    /// 0: this is not our thread (a forked child), [`IDLE`], or the stack
    /// pointer of the hook that is at work.
    pub busy: u64,
    /// Where the next record goes.
    pub cursor: *mut u64,
    /// A record may start here at the latest.
    pub limit: *mut u64,
    /// `cursor + bias` is the number of bytes ever written: the slot's head.
    pub bias: u64,
    /// What the next record's time counts from.
    pub encoder: Encoder,
    /// Our slot.
    pub slot: *const Slot,
    /// The block that operator delete is releasing: the free inside is the same.
    pub deleting: u64,
    /// The block of so many bytes that operator new is about to get from malloc, which
    /// is the same block; [`NOTHING`] where none is expected.
    pub making: AtomicU64,
    /// The block of an inner hook that was taken for it, else 0, and its [`ApiKind`].
    pub made: AtomicU64,
    /// See `made`.
    pub made_by: AtomicU32,
    /// Its size.
    pub made_size: u64,
    /// How many `nested` are filled.
    pub nested_count: AtomicU32,
    /// Kernel thread id of the owner.
    pub tid: u32,
    /// First byte of the ring.
    pub ring: *mut u8,
    /// Bytes of the ring.
    pub ring_size: u64,
    /// Stack memory known to be there.
    pub span: Span,
    /// Events that did not fit, not yet told.
    pub dropped: u64,
    /// Recording options, copied from the header.
    pub options: u32,
    /// A sample, or counting, is all that is asked for, and no hook is at work
    /// around another one (see [`crate::hooks::light`]).
    pub light: bool,
    /// A free inside a free has its bytes to count.
    pub inner_counts: bool,
    /// The next block of at least so many bytes that a hook sees is an outer
    /// hook's (see [`crate::select`]); [`NO_PASS`] where none waits.
    pub pass: u64,
    /// The block that an inner hook has seen last, and the bytes that it was asked for.
    pub passed: (u64, u64),
    /// Smaller blocks are only counted, bytes.
    pub min_size: u64,
    /// Which blocks a sample keeps.
    pub sampler: Sampler,
    /// Addresses whose frees are told by it.
    pub set: Set,
    /// Greatest number of frames that are kept, the outermost ones.
    pub depth: usize,
    /// Events until the stamp is read again, at the latest.
    pub stamp_credit: u32,
    /// The recorder's tick when the stamp was read.
    pub stamp_tick: u32,
    /// The stamp of the events since then.
    pub stamp: u64,
    /// The recorder's tick.
    pub tick: *const AtomicU32,
    /// See [`Nested`].
    pub nested: [Nested; NESTED_MAX],
}

/// What lies behind a thread's state: touched only as deep as stacks are.
#[repr(C)]
struct Room {
    thread: Thread,
    edges: Edges,
    memo: Memo,
    cache: Cache,
    scratch: Scratch,
    plain: [u64; MAX_FRAMES],
}

/// A pointer to each slot's state, mapped when the slot gets its first owner.
static STATES: AtomicPtr<AtomicPtr<Room>> = AtomicPtr::new(core::ptr::null_mut());

/// Maps the table of states. False if there is no memory, or if this kernel
/// (before 4.14) cannot wipe them in a child.
pub fn prepare(slots: u32) -> bool {
    let Some(states) = sys::map_private(slots as usize * 8) else { return false };
    STATES.store(states.cast(), Release);
    match sys::map_private(4096) {
        Some(probe) => {
            let wipes = sys::madvise(probe, 4096, sys::MADV_WIPEONFORK) == 0;
            // SAFETY: nobody has seen it.
            unsafe { sys::unmap(probe, 4096) };
            wipes
        }
        None => false,
    }
}

/// The state of slot `index`, mapped if it is the first time.
fn state(index: u32) -> Option<*mut Thread> {
    // SAFETY: the table has an entry for each slot, and the slot is ours.
    let place = unsafe { &*STATES.load(Acquire).add(index as usize) };
    let known = place.load(Acquire);
    if !known.is_null() {
        return Some(known.cast());
    }
    let room = sys::map_private(size_of::<Room>())?;
    sys::madvise(room, size_of::<Room>(), sys::MADV_DONTDUMP);
    sys::madvise(room, size_of::<Room>(), sys::MADV_WIPEONFORK);
    place.store(room.cast(), Release);
    Some(room.cast())
}

/// The calling thread's state, null if it has none yet.
#[inline(always)]
pub fn current() -> *mut Thread {
    arch::thread_word() as *mut Thread
}

/// Gives the calling thread a slot. Null if none is to be had or this process
/// is not the recorded one.
#[cold]
#[inline(never)]
pub fn enter() -> *mut Thread {
    let Some(shared) = start::shared() else { return core::ptr::null_mut() };
    if sys::getpid() != start::owner() {
        return core::ptr::null_mut();
    }
    for attempt in 0..20 {
        if let Some(index) = claim(shared) {
            return match state(index) {
                Some(thread) => set_up(shared, index, thread),
                None => {
                    shared.slot(index).state.store(SLOT_FREE, Release);
                    core::ptr::null_mut()
                }
            };
        }
        if attempt == 0 {
            start::count(Counter::NoSlot, 1);
        }
        if !shared.recorder_lives() {
            break;
        }
        // Perhaps threads have ended and the recorder has not looked yet.
        let bell = &shared.header().recorder.doorbell;
        bell.fetch_add(1, Release);
        sys::futex_wake(bell);
        sys::futex_wait(
            &shared.header().recorder.tick,
            shared.header().recorder.tick.load(Relaxed),
            10_000_000,
        );
    }
    start::count(Counter::NoSlotEvents, 1);
    core::ptr::null_mut()
}

fn claim(shared: &Shared) -> Option<u32> {
    let header = shared.header();
    for index in 0..header.slots_cap {
        let slot = shared.slot(index);
        if slot.state.load(Relaxed) == SLOT_FREE
            && slot.state.compare_exchange(SLOT_FREE, SLOT_CLAIMED, AcqRel, Relaxed).is_ok()
        {
            header.agent.slots_used.fetch_max(index + 1, AcqRel);
            return Some(index);
        }
    }
    None
}

fn set_up(shared: &Shared, index: u32, thread: *mut Thread) -> *mut Thread {
    let slot = shared.slot(index);
    let (ring, size) = shared.ring(index);
    let now = arch::stamp();
    let tid = sys::gettid();
    let head = slot.head.load(Relaxed);
    let at = head & (size - 1);
    // SAFETY: the state of the slot that we have just claimed; its last owner is gone.
    unsafe {
        (*thread).cursor = ring.add(at as usize).cast();
        // No room is known yet: the first write asks.
        (*thread).limit = core::ptr::null_mut();
        (*thread).bias = head.wrapping_sub((*thread).cursor as u64);
        (*thread).encoder = Encoder { stamp: now };
        (*thread).slot = slot;
        (*thread).deleting = 0;
        (*thread).nested_count.store(0, Relaxed);
        (*thread).making.store(NOTHING, Relaxed);
        (*thread).made.store(0, Relaxed);
        (*thread).tid = tid;
        (*thread).ring = ring;
        (*thread).ring_size = size;
        (*thread).span = Span::default();
        (*thread).dropped = 0;
        (*thread).options = shared.header().options;
        (*thread).light = light::mode(shared.header().options) != 0;
        (*thread).pass = NO_PASS;
        (*thread).passed = (0, 0);
        (*thread).inner_counts = false;
        (*thread).min_size = shared.header().min_size;
        (*thread).sampler = Sampler::new(shared.header().sample, mix(now ^ u64::from(tid) << 40));
        (*thread).set = shared.set();
        (*thread).depth = match shared.header().depth {
            0 => usize::MAX,
            depth => depth as usize,
        };
        (*thread).stamp_credit = 0;
        (*thread).stamp = now;
        (*thread).tick = &raw const shared.header().recorder.tick;
        (*thread).cache().clear();
        (*thread).memo().clear();
        let start_state = (&raw const slot.start_state).cast_mut();
        start_state.write(State { stamp: now, ..State::default() });
        let name = sys::thread_name();
        slot.name[0].store(name[0], Relaxed);
        slot.name[1].store(name[1], Relaxed);
        slot.tid.store(tid, Relaxed);
        slot.start_stamp.store(now, Relaxed);
        let number = shared.header().agent.thread_count.fetch_add(1, Relaxed);
        if number > 0 && SEVERAL.0.load(Relaxed) == ONE {
            SEVERAL.0.store(if arch::has_rdtscp() { SEVERAL_BY_RDTSCP } else { SEVERAL_BY_FENCE }, SeqCst);
        }
        slot.thread.store(number, Relaxed);
        slot.generation.fetch_add(1, Release);
        slot.state.store(SLOT_OWNED, Release);
        compiler_fence(Release);
        (*thread).busy = IDLE;
        arch::set_thread_word(thread as usize);
        thread
    }
}

/// Events that may share one reading of the clock, while one thread is all
/// there is.
const STAMP_CREDIT: u32 = 16;
// A ring has room for whole units only, wherever a record ends.
const _: () = assert!(BIG_RING.is_multiple_of(UNIT as u64) && SMALL_RING.is_multiple_of(UNIT as u64));
/// Not [`ONE`] once a second thread has recorded: the order of its events and others'
/// is then told by their stamps alone.
static SEVERAL: Line<AtomicU32> = Line(AtomicU32::new(ONE));
const ONE: u32 = 0;
/// How the clock is read then: see [`arch::ordered_stamp`].
const SEVERAL_BY_FENCE: u32 = 1;
const SEVERAL_BY_RDTSCP: u32 = 2;

impl Thread {
    fn backing(&mut self) -> *mut Room {
        (&raw mut *self).cast()
    }

    /// The last walk.
    #[inline(always)]
    pub fn cache(&mut self) -> &'static mut Cache {
        // SAFETY: the state is the first part of a Room that stays mapped; the
        // cache is this thread's own and no reference outlives a hook.
        unsafe { &mut (*self.backing()).cache }
    }

    /// The stacks met before.
    #[inline(always)]
    pub fn memo(&mut self) -> &'static mut Memo {
        // SAFETY: as cache().
        unsafe { &mut (*self.backing()).memo }
    }

    /// Recently met edges of the stack tree.
    pub fn edges(&mut self) -> *mut Edges {
        // SAFETY: as cache().
        unsafe { &raw mut (*self.backing()).edges }
    }

    /// Memory for a walk.
    pub fn scratch(&mut self) -> *mut Scratch {
        // SAFETY: as cache().
        unsafe { &raw mut (*self.backing()).scratch }
    }

    /// Memory for a walk without the cache.
    pub fn plain_frames(&mut self) -> *mut [u64; MAX_FRAMES] {
        // SAFETY: as cache().
        unsafe { &raw mut (*self.backing()).plain }
    }

    /// The stamp of an event that happens now.
    ///
    /// With several threads the clock is read for each event: a free is stamped
    /// before the real free and an alloc after the real alloc, so the stamps of
    /// one address are in order across threads. A single thread needs no such
    /// order, and reading the clock is half of what an event costs: it is read
    /// when the recorder has ticked since the last reading, and every sixteenth
    /// event.
    #[inline(always)]
    pub fn stamp(&mut self) -> u64 {
        // SAFETY: the header stays mapped.
        let tick = unsafe { (*self.tick).load(Relaxed) };
        let several = SEVERAL.0.load(Relaxed);
        if self.stamp_credit == 0 || tick != self.stamp_tick || several != ONE {
            self.stamp_tick = tick;
            self.stamp_credit = STAMP_CREDIT;
            self.stamp = match several {
                ONE => arch::stamp(),
                how => arch::ordered_stamp(how == SEVERAL_BY_RDTSCP),
            };
        }
        self.stamp_credit = self.stamp_credit.saturating_sub(1);
        self.stamp
    }

    /// Counts what a walk cost, in our own cache line.
    pub fn tally(&mut self, tally: Tally) {
        // SAFETY: the slot is ours.
        let slot = unsafe { &*self.slot };
        let add = |counter: &core::sync::atomic::AtomicU64, n: u64| {
            counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
        };
        add(&slot.walks, 1);
        add(&slot.fresh, u64::from(tally.fresh));
        if tally.full || tally.stale {
            add(&slot.full, u64::from(tally.full));
            add(&slot.stale, u64::from(tally.stale));
        }
    }

    /// Tells the recorder about everything up to the cursor.
    #[inline(always)]
    pub fn publish(&mut self) {
        // SAFETY: the slot is ours.
        unsafe { (*self.slot).head.store((self.cursor as u64).wrapping_add(self.bias), Release) };
    }

    /// Makes room for one record. False: the event is to be dropped.
    #[cold]
    #[inline(never)]
    pub fn make_room(&mut self) -> bool {
        // SAFETY: the slot is ours.
        let slot = unsafe { &*self.slot };
        let mut waited_from = 0;
        loop {
            // SAFETY: within the ring.
            let last: *mut u64 = unsafe { self.ring.add(self.ring_size as usize - MAX_RECORD) }.cast();
            if self.cursor > last {
                self.wrap();
            }
            let head = (self.cursor as u64).wrapping_add(self.bias);
            let free = self.ring_size - (head - slot.tail.load(Acquire));
            if free >= 2 * MAX_RECORD as u64 {
                let run = (free as usize - MAX_RECORD).min(last as usize - self.cursor as usize);
                // SAFETY: at most `last`.
                self.limit = unsafe { self.cursor.byte_add(run) };
                self.after_waiting(waited_from);
                return true;
            }
            let Some(shared) = start::shared() else { return false };
            if !shared.recorder_lives() {
                start::give_up();
                return false;
            }
            // A vfork child runs on our state but must not wait: its parent would.
            if self.options & OPT_DROP != 0 || sys::gettid() != self.tid {
                self.dropped += 1;
                slot.dropped.fetch_add(1, Relaxed);
                start::count(Counter::Dropped, 1);
                return false;
            }
            if waited_from == 0 {
                waited_from = sys::monotonic_ns();
                start::count(Counter::Stalls, 1);
            }
            let tail = slot.tail.load(Acquire) as u32;
            slot.waiting.store(1, SeqCst);
            let bell = &shared.header().recorder.doorbell;
            bell.fetch_add(1, SeqCst);
            sys::futex_wake(bell);
            // SAFETY: the low half of a little-endian u64 is an aligned u32.
            let word = unsafe { AtomicU32::from_ptr(slot.tail.as_ptr().cast()) };
            sys::futex_wait(word, tail, 50_000_000);
            slot.waiting.store(0, Relaxed);
        }
    }

    /// Goes back to the ring's first byte; the rest is a pad.
    fn wrap(&mut self) {
        let start = self.ring as u64;
        // SAFETY: the cursor stands at least a unit before the end: the longest
        // record is that much shorter than MAX_RECORD, and all are whole units.
        unsafe { self.encoder.special(self.cursor, SpecialKind::Pad, &[]) };
        self.bias = self.bias.wrapping_add(self.ring_size);
        self.cursor = start as *mut u64;
        self.publish();
    }

    fn after_waiting(&mut self, from: u64) {
        if from != 0 {
            let ns = sys::monotonic_ns() - from;
            // SAFETY: the slot is ours.
            unsafe { (*self.slot).stalled_ns.fetch_add(ns, Relaxed) };
        }
    }

    /// From here on a nested block of `size` bytes is the one that the hook at work
    /// makes, and no event of its own.
    #[inline(always)]
    pub fn expect(&mut self, size: u64) {
        self.made_size = size;
        self.making.store(size, Relaxed);
        compiler_fence(SeqCst);
    }

    /// A nested block: is it the expected one? If not, it is put aside.
    #[inline(always)]
    pub fn nested_alloc(&mut self, ptr: u64, size: u64, api: ApiKind) {
        if self.making.load(Relaxed) == size {
            self.making.store(NOTHING, Relaxed);
            self.made_by.store(api as u32, Relaxed);
            self.made.store(ptr, Relaxed);
        } else {
            self.push_nested(ptr, size, api);
        }
    }

    /// The hook has its block: the nested alloc that returned it was the same one.
    #[inline(always)]
    pub fn got(&mut self, ptr: u64) {
        compiler_fence(SeqCst);
        self.making.store(NOTHING, Relaxed);
        let made = self.made.load(Relaxed);
        if made != 0 {
            if made == ptr {
                // What is put aside stays: a handler may have had this very address before.
                self.made.store(0, Relaxed);
                return;
            }
            self.push_made();
        }
        if ptr != 0 && self.nested_count.load(Relaxed) != 0 {
            self.take_back(ptr);
        }
    }

    /// What was taken for the expected block is put aside like any other: a signal
    /// handler has made one of the same size, or did so before the expected one came.
    #[cold]
    #[inline(never)]
    fn push_made(&mut self) {
        let ptr = self.made.swap(0, Relaxed);
        let api = ApiKind::from_u8(self.made_by.load(Relaxed) as u8).unwrap_or(ApiKind::Malloc);
        if ptr != 0 {
            self.put_aside(ptr, self.made_size, api);
        }
    }

    /// One more nested operation.
    #[cold]
    pub fn push_nested(&mut self, ptr: u64, size: u64, api: ApiKind) {
        // In the order in which they came.
        if self.made.load(Relaxed) != 0 {
            self.push_made();
        }
        self.put_aside(ptr, size, api);
    }

    /// The counter is atomic since a handler may interrupt a handler.
    #[cold]
    fn put_aside(&mut self, ptr: u64, size: u64, api: ApiKind) {
        start::count(Counter::Nested, 1);
        let index = self.nested_count.fetch_add(1, Relaxed) as usize;
        let Some(place) = self.nested.get_mut(index) else {
            self.nested_count.fetch_sub(1, Relaxed);
            start::count(Counter::NestedLost, 1);
            start::count(Counter::Dropped, 1);
            return;
        };
        *place = Nested { ptr, size, stamp: arch::stamp(), api: api as u8 };
    }

    /// Is the flag that says "inside a hook" a lie? A signal handler that left
    /// with longjmp took the hook's frame with it: the present stack pointer is
    /// above it, on the same stack.
    pub fn is_stale(&self, sp: u64) -> bool {
        sp > self.busy && sp - self.busy < 8 << 20 && self.busy > 4096
    }

    /// After such a jump: continue at the published end, with a fresh state.
    #[cold]
    pub fn recover(&mut self) {
        start::count(Counter::StaleBusy, 1);
        // SAFETY: the slot is ours.
        let head = unsafe { (*self.slot).head.load(Relaxed) };
        self.cursor = head.wrapping_sub(self.bias) as *mut u64;
        if self.cursor < self.ring.cast() || self.cursor as u64 >= self.ring as u64 + self.ring_size {
            // Between the two stores of a wrap.
            self.cursor = self.ring.cast();
            self.bias = head.wrapping_sub(self.ring as u64);
        }
        self.limit = core::ptr::null_mut();
        self.deleting = 0;
        self.making.store(NOTHING, Relaxed);
        self.made.store(0, Relaxed);
        self.pass = NO_PASS;
        self.light = light::mode(self.options) != 0;
        self.cache().clear();
        self.memo().clear();
        let stamp = arch::stamp();
        if self.make_room() {
            // SAFETY: room was made.
            unsafe {
                self.cursor = self.encoder.special(self.cursor, SpecialKind::Resync, &[stamp, 0, 0, 0]);
            }
            self.publish();
        }
        self.busy = IDLE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a thread writes for an event lies in its state, in its slot's first
    /// and last lines ([`highwater_event::layout`]) and in its ring. States are
    /// mappings of their own; what is read beside them is written by others rarely.
    #[test]
    fn no_thread_writes_into_a_cache_line_of_another_ones_state() {
        assert_eq!((align_of::<Thread>(), size_of::<Room>() % 4096), (4096, 0));
        assert!(prepare(8));
        let states: Vec<u64> = (0..8).filter_map(state).map(|at| at as u64).collect();
        assert_eq!(states.len(), 8);
        for (i, &one) in states.iter().enumerate() {
            assert_eq!(one % 4096, 0);
            for &other in &states[i + 1..] {
                assert!(one.abs_diff(other) >= size_of::<Room>() as u64);
            }
        }
    }

    /// What waits to be written: (address, size, kind), a block that was taken back as 255.
    fn aside(thread: &Thread) -> Vec<(u64, u64, u8)> {
        let count = thread.nested_count.load(Relaxed) as usize;
        thread.nested[..count].iter().map(|one| (one.ptr, one.size, one.api)).collect()
    }

    #[test]
    fn the_malloc_inside_of_new_is_no_event_and_a_handlers_is_one() {
        assert!(prepare(8));
        let thread = state(0).unwrap();
        // SAFETY: a fresh state of this test's own.
        let thread = unsafe { &mut *thread };
        let (malloc, free) = (ApiKind::Malloc as u8, ApiKind::Free as u8);
        let fresh = |thread: &mut Thread| {
            thread.nested_count.store(0, Relaxed);
            thread.made.store(0, Relaxed);
            thread.expect(24);
        };
        // As libstdc++ does it.
        fresh(thread);
        thread.nested_alloc(0x1000, 24, ApiKind::Malloc);
        thread.got(0x1000);
        assert_eq!(aside(thread), []);
        // Another size first (a handler), then the block.
        fresh(thread);
        thread.nested_alloc(0x2000, 25, ApiKind::Malloc);
        thread.nested_alloc(0x1000, 24, ApiKind::Malloc);
        thread.got(0x1000);
        assert_eq!(aside(thread), [(0x2000, 25, malloc)]);
        // The same size first, and given back before the block comes.
        fresh(thread);
        thread.nested_alloc(0x2000, 24, ApiKind::Malloc);
        thread.push_nested(0x2000, 0, ApiKind::Free);
        thread.nested_alloc(0x1000, 24, ApiKind::Malloc);
        thread.got(0x1000);
        assert_eq!(aside(thread), [(0x2000, 24, malloc), (0x2000, 0, free)]);
        // The same size first, and kept: whichever was taken for the block.
        fresh(thread);
        thread.nested_alloc(0x2000, 24, ApiKind::Malloc);
        thread.nested_alloc(0x1000, 24, ApiKind::Malloc);
        thread.got(0x1000);
        assert_eq!(aside(thread), [(0x2000, 24, malloc)]);
        // Another size first, given back, and its address is the block's.
        fresh(thread);
        thread.nested_alloc(0x1000, 25, ApiKind::Malloc);
        thread.push_nested(0x1000, 0, ApiKind::Free);
        thread.nested_alloc(0x1000, 24, ApiKind::Malloc);
        thread.got(0x1000);
        assert_eq!(aside(thread), [(0x1000, 25, malloc), (0x1000, 0, free)]);
        // Nothing came of it.
        fresh(thread);
        thread.nested_alloc(0x2000, 24, ApiKind::Malloc);
        thread.got(0);
        assert_eq!(aside(thread), [(0x2000, 24, malloc)]);
        // Where nothing is expected, everything is put aside.
        thread.nested_count.store(0, Relaxed);
        thread.nested_alloc(0x3000, 24, ApiKind::Malloc);
        assert_eq!(aside(thread), [(0x3000, 24, malloc)]);
    }

    /// Read at every event, by every thread: nobody's counters may lie beside it.
    #[test]
    fn what_all_threads_read_is_alone_in_its_cache_line() {
        let several = (&raw const SEVERAL as usize, size_of_val(&SEVERAL));
        for (at, size) in [several, crate::modules::epoch_place()] {
            assert_eq!((at % 64, size), (0, 64));
        }
    }
}
