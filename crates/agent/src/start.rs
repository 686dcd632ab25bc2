//! The agent's beginning: find the recorder's memory, map it, clean the
//! environment. Runs once, at the first call of any hook or at the latest in
//! the constructor, whichever comes first.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};

use highwater_event::layout::*;
use highwater_event::node::{Node, NodeId};

use crate::hooks::light;
use crate::real::REAL;
use crate::set::Set;
use crate::{arch, intern, loader, sys, thread};

/// The mapped shared memory.
#[repr(transparent)]
pub struct Shared {
    header: Header,
}

/// 0 nothing done, 1 in the middle, 2 records, 3 only forwards.
static STATE: AtomicU32 = AtomicU32::new(0);
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(core::ptr::null_mut());
static SHARED_LEN: AtomicUsize = AtomicUsize::new(0);
/// The process that records: another one that shares this memory does not.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The shared memory, once it is mapped.
#[inline(always)]
pub fn shared() -> Option<&'static Shared> {
    // SAFETY: set once to a mapping that stays.
    unsafe { SHARED.load(Acquire).as_ref() }
}

/// The process id that was recorded from the start.
pub fn owner() -> u32 {
    OWNER.load(Relaxed)
}

/// Counts a rare thing.
pub fn count(what: Counter, n: u64) {
    if let Some(shared) = shared() {
        shared.header.counters[what as usize].fetch_add(n, Relaxed);
    }
}

impl Shared {
    /// The first page.
    #[inline(always)]
    pub fn header(&self) -> &Header {
        &self.header
    }

    #[inline(always)]
    fn at(&self, offset: u64) -> *mut u8 {
        // SAFETY: offsets come from the header that the recorder wrote for this size.
        unsafe { (&raw const *self).cast_mut().cast::<u8>().add(offset as usize) }
    }

    /// Slot `index`.
    pub fn slot(&self, index: u32) -> &'static Slot {
        // SAFETY: index < slots_cap; slots are atomics all through but start_state.
        unsafe { &*self.at(self.header.slots_off).cast::<Slot>().add(index as usize) }
    }

    /// First byte and size of slot `index`'s ring.
    pub fn ring(&self, index: u32) -> (*mut u8, u64) {
        let (offset, size) = ring_range(self.header.rings_off, self.header.big_rings, index);
        (self.at(offset), size)
    }

    /// The set of addresses, where the recorder has laid one out.
    pub fn set(&self) -> Set {
        match self.header.set_bits {
            0 => Set::NONE,
            // SAFETY: the recorder has laid it out for this many buckets.
            bits => unsafe { Set::new(self.at(self.header.set_off), bits) },
        }
    }

    /// Where node `id` lies.
    #[inline(always)]
    pub fn node_ptr(&self, id: NodeId) -> *mut Node {
        // SAFETY: ids are below nodes_cap.
        unsafe { self.at(self.header.nodes_off).cast::<Node>().add(id as usize) }
    }

    /// A node that an index entry names: it has been written before.
    #[inline(always)]
    pub fn node(&self, id: NodeId) -> Node {
        // SAFETY: as node_ptr; written before its id was published.
        unsafe { self.node_ptr(id).read() }
    }

    /// Where module `index` lies.
    pub fn module_ptr(&self, index: u32) -> *mut Module {
        // SAFETY: index < modules_cap.
        unsafe { self.at(self.header.modules_off).cast::<Module>().add(index as usize) }
    }

    /// A published module.
    pub fn module(&self, index: u32) -> &'static Module {
        // SAFETY: index < module_count; all but `unloaded` never changes again.
        unsafe { &*self.module_ptr(index) }
    }

    /// Appends to the strings (the caller holds the modules' lock).
    pub fn store_string(&self, text: &[u8]) -> Option<u32> {
        let used = self.header.agent.strings_used.load(Relaxed);
        if text.len() > (self.header.strings_cap - used) as usize {
            return None;
        }
        // SAFETY: the bytes used..used+len are inside the strings and unpublished.
        unsafe {
            let at = self.at(self.header.strings_off + u64::from(used));
            core::ptr::copy_nonoverlapping(text.as_ptr(), at, text.len());
        }
        self.header.agent.strings_used.store(used + text.len() as u32, Release);
        Some(used)
    }

    /// Is there somebody who reads the rings?
    pub fn recorder_lives(&self) -> bool {
        const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
        let words = &self.header.recorder;
        let robust = words.robust.load(Acquire);
        robust != 0 && robust & FUTEX_OWNER_DIED == 0 && words.state.load(Acquire) != RECORDER_GONE
    }
}

/// Does the agent record? Starts it if nobody has yet.
#[inline(always)]
pub fn recording() -> bool {
    match STATE.load(Acquire) {
        2 => true,
        0 => start(),
        _ => false,
    }
}

/// Stops recording in this process for good: the recorder is gone.
#[cold]
pub fn give_up() {
    STATE.store(3, Release);
}

/// Makes the real functions known, recording or not.
#[cold]
pub fn resolve() {
    REAL.resolve();
}

#[cold]
#[inline(never)]
fn start() -> bool {
    if STATE.compare_exchange(0, 1, AcqRel, Acquire).is_err() {
        return STATE.load(Acquire) == 2;
    }
    REAL.resolve();
    let records = attach();
    STATE.store(if records { 2 } else { 3 }, Release);
    records
}

fn attach() -> bool {
    let Some(environment) = loader::environment() else { return false };
    let mut address = [0u8; 96];
    let mut recorder = [0u8; 4096];
    // SAFETY: the process's own environment, before anyone else edits it.
    let (has_address, recorder_len) = unsafe {
        let has = copy_value(environment, ENV_SHARED.as_bytes(), &mut address).is_some();
        let recorder_len = copy_value(environment, ENV_RECORDER.as_bytes(), &mut recorder);
        clean(environment);
        (has, recorder_len)
    };
    if has_address {
        return parse_address(&address).is_some_and(|(pid, fd, token)| open(pid, fd, token));
    }
    crate::hooks::by_hand::start(&mut recorder, recorder_len)
}

/// `pid:fd:token` in decimal.
fn parse_address(text: &[u8]) -> Option<(u64, u64, u64)> {
    let mut numbers = [0u64; 3];
    let mut at = 0;
    for number in &mut numbers {
        let from = at;
        while let Some(digit) = text.get(at).filter(|b| b.is_ascii_digit()) {
            *number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            at += 1;
        }
        if at == from {
            return None;
        }
        at += 1;
    }
    Some((numbers[0], numbers[1], numbers[2]))
}

/// Opens the recorder's descriptor through /proc and maps it.
fn open(pid: u64, fd: u64, token: u64) -> bool {
    let mut path = Text::<64>::new();
    path.push(b"/proc/").number(pid).push(b"/fd/").number(fd).push(b"\0");
    let file = sys::open_rw(path.bytes());
    if file < 0 {
        return false;
    }
    let attached = map(file, token);
    sys::close(file);
    attached
}

/// Maps the memory behind `file`, checks that it is ours and announces us.
pub fn map(file: isize, token: u64) -> bool {
    let Some(first) = sys::map_shared(file, size_of::<Header>()) else { return false };
    // SAFETY: a fresh mapping of a page; if the file is shorter, the first read
    // faults, but nobody else knows the token's descriptor.
    let (magic, size, theirs) = unsafe {
        let header = &*first.cast::<Header>();
        (header.magic.load(Acquire), header.size, header.token)
    };
    // SAFETY: nothing refers to it any more.
    unsafe { sys::unmap(first, size_of::<Header>()) };
    if magic != MAGIC || theirs != token {
        return false;
    }
    let Some(memory) = sys::map_shared(file, size as usize) else { return false };
    sys::madvise(memory, size as usize, sys::MADV_DONTDUMP);
    // SAFETY: a mapping of `size` bytes that the recorder has laid out.
    let shared = unsafe { &*memory.cast::<Shared>() };
    let header = shared.header();
    let ready = intern::prepare(header.nodes_cap) && thread::prepare(header.slots_cap);
    if !ready || header.agent.state.load(Acquire) != AGENT_ABSENT {
        // SAFETY: nothing refers to it.
        unsafe { sys::unmap(memory, size as usize) };
        return false;
    }
    let pid = sys::getpid();
    OWNER.store(pid, Relaxed);
    introduce(shared);
    header.agent.pid.store(pid, Relaxed);
    header.agent.start_ns.store(sys::monotonic_ns(), Relaxed);
    header.agent.start_stamp.store(arch::stamp(), Relaxed);
    if header.agent.state.compare_exchange(AGENT_ABSENT, AGENT_ATTACHED, AcqRel, Acquire).is_err() {
        // SAFETY: nothing refers to it.
        unsafe { sys::unmap(memory, size as usize) };
        return false;
    }
    SHARED_LEN.store(size as usize, Relaxed);
    SHARED.store(memory.cast(), Release);
    light::MODE.store(light::mode(header.options), Release);
    sys::futex_wake(&header.agent.state);
    true
}

/// Who we are, for a recorder that may look only after the next exec.
fn introduce(shared: &Shared) {
    let header = shared.header();
    let room = (header.strings_cap / 4) as usize;
    // SAFETY: the first quarter of the strings, which nobody has used yet.
    let text = unsafe { core::slice::from_raw_parts_mut(shared.at(header.strings_off), room) };
    let (exe, rest) = text.split_at_mut(room / 2);
    let exe_len = sys::readlink(b"/proc/self/exe\0", exe).max(0) as usize;
    let mut args_len = 0;
    let file = sys::open_ro(b"/proc/self/cmdline\0");
    if file >= 0 {
        while let Some(free) = rest.get_mut(args_len..).filter(|free| !free.is_empty()) {
            match sys::read(file, free) {
                n if n > 0 => args_len += n as usize,
                _ => break,
            }
        }
        sys::close(file);
    }
    text.copy_within(room / 2..room / 2 + args_len, exe_len);
    for (place, part) in header.agent.name.iter().zip(sys::thread_name()) {
        place.store(part, Relaxed);
    }
    header.agent.exe_len.store(exe_len as u32, Relaxed);
    header.agent.args_len.store(args_len as u32, Relaxed);
    header.agent.strings_used.store((exe_len + args_len) as u32, Relaxed);
}

/// Copies the value of variable `name` out of an environment.
///
/// # Safety
/// `environment` is a zero-terminated list of zero-terminated strings.
unsafe fn copy_value(environment: *mut *mut u8, name: &[u8], into: &mut [u8]) -> Option<usize> {
    // SAFETY: the caller's promise.
    unsafe {
        let entry = find(environment, name)?;
        let value = (*entry).add(name.len() + 1);
        let length = length(value);
        if length >= into.len() {
            return None;
        }
        core::ptr::copy_nonoverlapping(value, into.as_mut_ptr(), length);
        Some(length)
    }
}

/// The entry of variable `name`.
///
/// # Safety
/// As [`copy_value`].
pub unsafe fn find(environment: *mut *mut u8, name: &[u8]) -> Option<*mut *mut u8> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = environment;
        while !(*at).is_null() {
            if is_variable(*at, name) {
                return Some(at);
            }
            at = at.add(1);
        }
        None
    }
}

/// Is `entry` "name=..."?
///
/// # Safety
/// `entry` is zero-terminated.
pub unsafe fn is_variable(entry: *const u8, name: &[u8]) -> bool {
    for (i, &byte) in name.iter().enumerate() {
        // SAFETY: the entry ends with a zero, which no name holds.
        if unsafe { *entry.add(i) } != byte {
            return false;
        }
    }
    // SAFETY: all of `name` was there, so this byte is too.
    unsafe { *entry.add(name.len()) == b'=' }
}

/// Bytes before the zero.
///
/// # Safety
/// `text` is zero-terminated.
pub unsafe fn length(text: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: the caller's promise.
    while unsafe { *text.add(n) } != 0 {
        n += 1;
    }
    n
}

/// Takes our variables, and our entry in LD_PRELOAD, out of the environment:
/// children are not recorded and do not see us. Other entries of LD_PRELOAD stay.
///
/// # Safety
/// As [`copy_value`]; the strings may be written to (they lie on the initial stack).
unsafe fn clean(environment: *mut *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut from = environment;
        let mut to = environment;
        while !(*from).is_null() {
            let entry = *from;
            from = from.add(1);
            if is_variable(entry, ENV_SHARED.as_bytes()) || is_variable(entry, ENV_RECORDER.as_bytes()) {
                continue;
            }
            if is_variable(entry, b"LD_PRELOAD") && !without_us(entry.add(b"LD_PRELOAD=".len())) {
                continue;
            }
            *to = entry;
            to = to.add(1);
        }
        *to = core::ptr::null_mut();
    }
}

/// Removes our path from a list separated by colons or blanks. False if the
/// list is empty then.
unsafe fn without_us(list: *mut u8) -> bool {
    let Some(own) = loader::own() else { return true };
    let path = own.path();
    // SAFETY: a writable, zero-terminated string that only shrinks.
    unsafe {
        let total = length(list);
        let (mut read, mut write) = (0, 0);
        let mut removed = false;
        while read < total {
            let mut end = read;
            while end < total && *list.add(end) != b':' && *list.add(end) != b' ' {
                end += 1;
            }
            let ours = end - read == path.len()
                && (0..path.len()).all(|i| *list.add(read + i) == path[i])
                && !path.is_empty();
            let next = (end + 1).min(total);
            if ours {
                removed = true;
            } else {
                core::ptr::copy(list.add(read), list.add(write), next - read);
                write += next - read;
            }
            read = next;
        }
        if !removed {
            return true;
        }
        // A separator that stood before us is the last byte now.
        while write > 0 && matches!(*list.add(write - 1), b':' | b' ') {
            write -= 1;
        }
        *list.add(write) = 0;
        write > 0
    }
}

/// A small text on the stack.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// Empty.
    pub const fn new() -> Self {
        Text { bytes: [0; N], len: 0 }
    }

    /// Appends; what does not fit is left out.
    pub fn push(&mut self, text: &[u8]) -> &mut Self {
        for &byte in text {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
        self
    }

    /// Appends a decimal number.
    pub fn number(&mut self, mut value: u64) -> &mut Self {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        let tail = digits;
        self.push(&tail[at..])
    }

    /// What was appended.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// The constructor: at the latest now.
#[cfg(highwater_preload)]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        if recording() {
            crate::park::prepare();
        }
    }
    construct
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_three_numbers() {
        assert_eq!(parse_address(b"12:3:18446744073709551615\0"), Some((12, 3, u64::MAX)));
        assert_eq!(parse_address(b"12:3"), None);
        assert_eq!(parse_address(b""), None);
    }

    #[test]
    fn texts_never_overflow() {
        let mut text = Text::<8>::new();
        text.push(b"ab").number(0).push(b"/").number(1_234_567);
        assert_eq!(text.bytes(), b"ab0/1234");
    }
}
