//! The memory shared with one program image: made, laid out and mapped here.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicU32, AtomicU64};

use highwater_event::layout::*;
use highwater_event::node::{Node, NodeId, Truncation};

use crate::RecordError;

/// The first ids are truncation markers; nodes follow.
const FIRST_NODE: u32 = 16;

/// What the agent is told.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `OPT_*`
    pub options: u32,
    /// Greatest number of frames, 0 for all.
    pub depth: u32,
    /// Record the next image after an exec too.
    pub follow_exec: bool,
    /// Mean distance of a sample's marks, bytes; 0 for no sample.
    pub sample: u64,
    /// Smaller blocks are only counted, bytes.
    pub min_size: u64,
}

impl Settings {
    /// Logarithm of the number of buckets of the set of addresses: room for the
    /// sampled blocks of 256 GiB, for four million blocks at most; 0 for no set.
    fn set_bits(&self, sizes: &Sizes) -> u32 {
        if self.options & (OPT_SAMPLE | OPT_MIN_SIZE) == 0 {
            return 0;
        }
        let wanted = if self.options & OPT_SAMPLE == 0 { u64::MAX } else { (1 << 38) / self.sample.max(1) };
        let addresses = wanted.clamp(1 << 12, 1 << 22).next_power_of_two();
        (addresses.ilog2() - SET_BUCKET.ilog2()).min(sizes.set_bits)
    }
}

/// How many of each thing fit.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    slots: u32,
    big_rings: u32,
    nodes: u32,
    strings: u32,
    modules: u32,
    /// Greatest logarithm of the number of buckets of the set of addresses.
    set_bits: u32,
}

impl Sizes {
    /// Address space is free where it is unlimited; a target with RLIMIT_AS
    /// gets a sixteenth of its limit at most.
    fn choose() -> Sizes {
        // SAFETY: a buffer of the right type.
        let limit = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(libc::RLIMIT_AS, &mut limit) == 0 {
                limit.rlim_cur
            } else {
                libc::RLIM_INFINITY
            }
        };
        if limit == libc::RLIM_INFINITY || limit > 64 << 30 {
            Sizes {
                slots: 4096,
                big_rings: 16,
                nodes: 1 << 24,
                strings: 8 << 20,
                modules: 8192,
                set_bits: 19,
            }
        } else if limit > 4 << 30 {
            Sizes { slots: 256, big_rings: 4, nodes: 1 << 21, strings: 1 << 20, modules: 1024, set_bits: 16 }
        } else {
            Sizes { slots: 16, big_rings: 1, nodes: 1 << 17, strings: 256 << 10, modules: 512, set_bits: 13 }
        }
    }
}

/// Where things are. Our own copy: the one in the header can be overwritten by
/// a target gone wild, and must not lead us out of the mapping.
#[derive(Clone, Copy, Debug)]
struct Places {
    modules: u64,
    strings: u64,
    slots: u64,
    nodes: u64,
    rings: u64,
}

/// The shared memory of one image, from the recorder's side.
pub struct Memory {
    fd: OwnedFd,
    base: *mut u8,
    size: usize,
    inode: u64,
    token: u64,
    sizes: Sizes,
    places: Places,
}

// SAFETY: all access goes through atomics or through data that its writer has
// published before.
unsafe impl Send for Memory {}

impl Memory {
    /// A new memory, ready for an agent.
    ///
    /// # Errors
    /// [`RecordError::System`] where the system has no memory or descriptors left.
    pub fn create(settings: &Settings) -> Result<Memory, RecordError> {
        // SAFETY: a valid name; the descriptor is ours from here on.
        let fd = unsafe {
            let fd = libc::memfd_create(c"highwater".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(RecordError::last("memfd_create"));
            }
            OwnedFd::from_raw_fd(fd)
        };
        Self::lay_out(fd, settings, random())
    }

    /// Lays out a memory in a file that an agent has made.
    ///
    /// # Errors
    /// As [`Memory::create`].
    pub fn lay_out(fd: OwnedFd, settings: &Settings, token: u64) -> Result<Memory, RecordError> {
        let sizes = Sizes::choose();
        let page = |n: u64| n.next_multiple_of(4096);
        let modules_off = page(size_of::<Header>() as u64);
        let strings_off = page(modules_off + u64::from(sizes.modules) * size_of::<Module>() as u64);
        let slots_off = page(strings_off + u64::from(sizes.strings));
        let nodes_off = page(slots_off + u64::from(sizes.slots) * size_of::<Slot>() as u64);
        let set_off = page(nodes_off + u64::from(sizes.nodes) * size_of::<Node>() as u64);
        let set_bits = settings.set_bits(&sizes);
        let set_size = match set_bits {
            0 => 0,
            bits => SET_FILTER as u64 + ((8 * SET_BUCKET as u64) << bits),
        };
        let rings_off = page(set_off + set_size);
        let (last, last_size) = ring_range(rings_off, sizes.big_rings, sizes.slots - 1);
        let size = page(last + last_size);
        // SAFETY: our own descriptor; a new mapping of it.
        let (base, inode) = unsafe {
            if libc::ftruncate(fd.as_raw_fd(), size as libc::off_t) != 0 {
                return Err(RecordError::last("ftruncate of the shared memory"));
            }
            let base = libc::mmap(
                std::ptr::null_mut(),
                size as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            );
            if base == libc::MAP_FAILED {
                return Err(RecordError::last("mmap of the shared memory"));
            }
            let mut stat: libc::stat = std::mem::zeroed();
            libc::fstat(fd.as_raw_fd(), &mut stat);
            (base.cast::<u8>(), stat.st_ino)
        };
        let places = Places {
            modules: modules_off,
            strings: strings_off,
            slots: slots_off,
            nodes: nodes_off,
            rings: rings_off,
        };
        let memory = Memory { fd, base, size: size as usize, inode, token, sizes, places };
        // SAFETY: the file is all zeros and nobody else has a reason to look at
        // it before the magic number is there.
        unsafe {
            let header = memory.base.cast::<Header>();
            (&raw mut (*header).token).write(token);
            (&raw mut (*header).size).write(size);
            (&raw mut (*header).modules_off).write(modules_off);
            (&raw mut (*header).strings_off).write(strings_off);
            (&raw mut (*header).slots_off).write(slots_off);
            (&raw mut (*header).nodes_off).write(nodes_off);
            (&raw mut (*header).rings_off).write(rings_off);
            (&raw mut (*header).modules_cap).write(sizes.modules);
            (&raw mut (*header).strings_cap).write(sizes.strings);
            (&raw mut (*header).slots_cap).write(sizes.slots);
            (&raw mut (*header).big_rings).write(sizes.big_rings);
            (&raw mut (*header).nodes_cap).write(sizes.nodes);
            (&raw mut (*header).options).write(settings.options);
            (&raw mut (*header).depth).write(settings.depth);
            (&raw mut (*header).sample).write(settings.sample);
            (&raw mut (*header).min_size).write(settings.min_size);
            (&raw mut (*header).set_off).write(set_off);
            (&raw mut (*header).set_bits).write(set_bits);
            (&raw mut (*header).recorder_pid).write(std::process::id());
            (&raw mut (*header).follow_exec).write(u32::from(settings.follow_exec));
            let nodes = memory.base.add(nodes_off as usize).cast::<Node>();
            for &reason in Truncation::ALL {
                nodes.add(reason as usize).write(Node {
                    pc_module: Node::marker(reason),
                    parent: 0,
                    ready: 1,
                });
            }
        }
        let header = memory.header();
        header.next_fd.store(-1, Relaxed);
        header.agent.node_count.store(FIRST_NODE, Relaxed);
        header.recorder.state.store(RECORDER_ALIVE, Relaxed);
        header.recorder.robust.store(thread_id(), Relaxed);
        header.magic.store(MAGIC, Release);
        Ok(memory)
    }

    /// The secret that leads an agent to this memory.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The first page.
    pub fn header(&self) -> &Header {
        // SAFETY: mapped as long as self; atomics, or fields that only we write.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// The descriptor that an agent opens through /proc.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The memory's inode, as it shows in `/proc/PID/maps`.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// What goes into the agent's environment.
    pub fn address(&self) -> String {
        format!("{}:{}:{}", std::process::id(), self.raw_fd(), self.token)
    }

    /// How many slots to look at.
    pub fn slots(&self) -> u32 {
        self.header().agent.slots_used.load(Acquire).min(self.sizes.slots)
    }

    /// Slot `index`, below [`Memory::slots`].
    pub fn slot(&self, index: u32) -> &Slot {
        let index = index.min(self.sizes.slots - 1);
        let offset = self.places.slots as usize + index as usize * size_of::<Slot>();
        // SAFETY: index < slots_cap; atomics but for start_state.
        unsafe { &*self.base.add(offset).cast::<Slot>() }
    }

    /// Copies `length` bytes of a ring from stream position `from`, both whole words:
    /// no more than up to the ring's end.
    pub fn ring_words(&self, index: u32, from: u64, length: u64, into: &mut Vec<u64>) {
        let index = index.min(self.sizes.slots - 1);
        let (offset, size) = ring_range(self.places.rings, self.sizes.big_rings, index);
        let at = from & (size - 1) & !7;
        let run = (length.min(size - at) / 8) as usize;
        let old = into.len();
        into.reserve(run);
        // SAFETY: inside the ring, at an eighth byte; the producer has published these
        // words and does not touch them before `tail` passes.
        unsafe {
            let source = self.base.add((offset + at) as usize).cast::<u64>();
            std::ptr::copy_nonoverlapping(source, into.as_mut_ptr().add(old), run);
            into.set_len(old + run);
        }
    }

    /// Where a test that plays the agent writes.
    #[cfg(test)]
    pub fn ring_place(&self, index: u32, at: u64) -> *mut u64 {
        let (offset, size) =
            ring_range(self.places.rings, self.sizes.big_rings, index.min(self.sizes.slots - 1));
        // SAFETY: inside the ring.
        unsafe { self.base.add((offset + (at & (size - 1))) as usize).cast() }
    }

    /// Bytes of slot `index`'s ring.
    pub fn ring_size(&self, index: u32) -> u64 {
        ring_range(self.places.rings, self.sizes.big_rings, index).1
    }

    /// Node `id` if it is complete.
    pub fn node(&self, id: NodeId) -> Option<Node> {
        if id >= self.sizes.nodes {
            return None;
        }
        let offset = self.places.nodes as usize + id as usize * size_of::<Node>();
        // SAFETY: id < nodes_cap; `ready` is atomic and stored last.
        unsafe {
            let node = self.base.add(offset).cast::<Node>();
            let ready = AtomicU32::from_ptr(&raw mut (*node).ready).load(Acquire);
            (ready != 0).then(|| node.read())
        }
    }

    /// How many node ids have been given out.
    pub fn node_count(&self) -> u32 {
        self.header().agent.node_count.load(Acquire).min(self.sizes.nodes)
    }

    /// A published module.
    pub fn module(&self, index: u32) -> Option<&Module> {
        let header = self.header();
        if index >= header.agent.module_count.load(Acquire).min(self.sizes.modules) {
            return None;
        }
        let offset = self.places.modules as usize + index as usize * size_of::<Module>();
        // SAFETY: index < modules_cap; all but `unloaded` is constant once published.
        Some(unsafe { &*self.base.add(offset).cast::<Module>() })
    }

    /// The path of a module.
    pub fn module_path(&self, module: &Module) -> String {
        let (from, length) = (u64::from(module.path_off), u64::from(module.path_len));
        let mut path = Vec::new();
        if from + length <= u64::from(self.sizes.strings) {
            // SAFETY: inside the strings.
            unsafe {
                let at = self.base.add((self.places.strings + from) as usize);
                path.extend_from_slice(std::slice::from_raw_parts(at, length as usize));
            }
        }
        String::from_utf8_lossy(&path).into_owned()
    }

    /// The program's path and arguments, as the agent found them.
    pub fn introduction(&self) -> (Vec<u8>, Vec<u8>) {
        let header = self.header();
        let cap = self.sizes.strings as usize;
        let exe_len = (header.agent.exe_len.load(Relaxed) as usize).min(cap);
        let args_len = (header.agent.args_len.load(Relaxed) as usize).min(cap - exe_len);
        // SAFETY: inside the strings; the agent wrote them before it attached.
        let text = unsafe {
            std::slice::from_raw_parts(self.base.add(self.places.strings as usize), exe_len + args_len)
        };
        let (exe, args) = text.split_at(exe_len);
        (exe.to_vec(), args.to_vec())
    }

    /// Bytes of the memory that are in use: what it adds to the target's RSS.
    pub fn touched(&self) -> u64 {
        // SAFETY: our own descriptor and a buffer of the right type.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(self.raw_fd(), &mut stat) == 0 { stat.st_blocks as u64 * 512 } else { 0 }
        }
    }

    /// Wakes the agent where it waits for room behind `tail`.
    pub fn wake(&self, slot: &Slot) {
        if slot.waiting.load(SeqCst) != 0 {
            futex_wake(low_half(&slot.tail));
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from the mapping any more.
        unsafe { libc::munmap(self.base.cast(), self.size) };
    }
}

/// The low half of a little-endian word: what a futex can wait on.
fn low_half(word: &AtomicU64) -> &AtomicU32 {
    // SAFETY: aligned, inside the word, and atomics may overlap.
    unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
}

/// Wakes everybody who sleeps on `word`.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
}

/// Sleeps while `*word == value`, at most `duration`, or until a signal comes.
pub fn futex_wait(word: &AtomicU32, value: u32, duration: std::time::Duration) {
    let timeout = libc::timespec {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(duration.subsec_nanos()),
    };
    // SAFETY: the word and the timeout outlive the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &timeout, 0, 0) };
}

/// This thread's id, as the kernel writes it into robust futexes.
fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: a buffer of eight bytes.
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), 8, 0) };
    if n == 8 { u64::from_ne_bytes(bytes) } else { std::process::id().into() }
}

/// `struct robust_list_head` of the kernel's ABI, with room for the entries.
///
/// The kernel walks the list when this thread dies, however it dies, and marks
/// each futex word that holds its id: that is how a waiting agent learns that
/// nobody will ever make room.
#[repr(C)]
pub struct RobustList {
    first: *mut RobustEntry,
    offset: i64,
    pending: *mut RobustEntry,
}

#[repr(C)]
struct RobustEntry {
    next: *mut RobustEntry,
}

impl RobustList {
    /// Registers the words of these memories for the calling thread, instead of
    /// the list that the C library registered (which holds only locks that this
    /// program does not use). The first registration is kept for ever: one
    /// entry a memory, each leaked, a few bytes an exec.
    pub fn register(memories: &[&Memory]) {
        // An entry must lie at a fixed distance from its word: it lies in the
        // shared memory itself, in the recorder's own cache line.
        const ENTRY: usize = std::mem::offset_of!(Header, recorder) + 16;
        const WORD: usize =
            std::mem::offset_of!(Header, recorder) + std::mem::offset_of!(RecorderWords, robust);
        let head = Box::leak(Box::new(RobustList {
            first: std::ptr::null_mut(),
            offset: WORD as i64 - ENTRY as i64,
            pending: std::ptr::null_mut(),
        }));
        let end = (&raw mut *head).cast::<RobustEntry>();
        let mut next = end;
        for memory in memories {
            // SAFETY: inside the header; the bytes behind the four words are unused.
            unsafe {
                let entry = memory.base.add(ENTRY).cast::<RobustEntry>();
                (*entry).next = next;
                next = entry;
            }
        }
        head.first = next;
        // SAFETY: the head is leaked, so it outlives the thread; the entries lie
        // in memories that the caller keeps until the next registration.
        unsafe { libc::syscall(libc::SYS_set_robust_list, &raw mut *head, size_of::<RobustList>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_memory_has_its_markers() {
        let memory = Memory::create(&Settings::default()).unwrap();
        assert_eq!(memory.header().magic.load(Acquire), MAGIC);
        let node = memory.node(Truncation::TooDeep as u32).unwrap();
        assert_eq!(node.truncation(), Some(Truncation::TooDeep));
        assert!(memory.node(FIRST_NODE).is_none());
        assert_eq!(memory.slots(), 0);
        assert!(memory.touched() < 1 << 20, "only what is written takes memory");
    }

    #[test]
    fn a_target_gone_wild_does_not_lead_the_recorder_astray() {
        let memory = Memory::create(&Settings::default()).unwrap();
        // SAFETY: the whole header, a page of the mapping; nobody else looks.
        unsafe { std::ptr::write_bytes(memory.base, 0xff, size_of::<Header>()) };
        assert!(memory.slots() <= memory.sizes.slots);
        let slot = memory.slot(u32::MAX);
        assert_eq!(slot.generation.load(Relaxed), 0);
        let mut words = Vec::new();
        memory.ring_words(u32::MAX, u64::MAX, u64::MAX, &mut words);
        assert!(memory.node(u32::MAX).is_none());
        assert!(memory.module(u32::MAX).is_none());
        assert!(memory.introduction().0.len() <= memory.sizes.strings as usize);
        assert!(memory.node_count() <= memory.sizes.nodes);
    }

    #[test]
    fn the_kernel_marks_the_word_of_a_dead_thread() {
        let memory = Memory::create(&Settings::default()).unwrap();
        let memory = std::thread::spawn(move || {
            memory.header().recorder.robust.store(thread_id(), Release);
            RobustList::register(&[&memory]);
            memory
        })
        .join()
        .unwrap();
        // join() may return a moment before the kernel has walked the list.
        for _ in 0..1000 {
            if memory.header().recorder.robust.load(Acquire) & 0x4000_0000 != 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the word was not marked");
    }
}
