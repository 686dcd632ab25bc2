//! Loaded objects. One becomes known when an address in it is met for the first
//! time; it is forgotten when dlclose has unmapped it. The table lies in shared
//! memory, so the recorder needs no message.

use core::sync::atomic::{AtomicU32, Ordering::*};

use highwater_event::layout::{Counter, MODULE_AGENT, MODULE_MAIN, MODULE_VDSO, Module};

use crate::loader::LinkMap;
use crate::real::REAL;
use crate::sys::Line;
use crate::{arch, loader, maps, start, sys};

/// What unwinding needs to know of a module.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its index.
    pub index: u16,
    /// First mapped address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Its table of unwind entries, 0 if it has none.
    pub eh_frame_hdr: u64,
}

/// Guards the table's growth. Held for a few microseconds, never across a call
/// out of the agent; a signal handler that comes in between takes no stack.
static LOCK: AtomicU32 = AtomicU32::new(0);
/// Threads inside dlclose: while there are any, no rule is stored.
static UNLOADING: AtomicU32 = AtomicU32::new(0);

/// Changes whenever what is known of an address may have changed.
static EPOCH: Line<AtomicU32> = Line(AtomicU32::new(1));

/// The number of the present set of modules; cached walks of another are void.
#[inline(always)]
pub fn epoch() -> u32 {
    EPOCH.0.load(Relaxed)
}

/// Where the epoch lies, and how large its place is.
#[cfg(test)]
pub fn epoch_place() -> (usize, usize) {
    (&raw const EPOCH as usize, size_of_val(&EPOCH))
}

struct Guard;

impl Guard {
    fn take() -> Guard {
        while LOCK.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
            sys::yield_now();
        }
        Guard
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        LOCK.store(0, Release);
    }
}

/// Is some thread inside dlclose?
pub fn unloading() -> bool {
    UNLOADING.load(Acquire) != 0
}

/// The module that holds `pc`.
#[cold]
pub fn find(pc: u64) -> Option<Found> {
    let shared = start::shared()?;
    if let Some(known) = known(shared, pc) {
        return Some(known);
    }
    let _guard = Guard::take();
    known(shared, pc).or_else(|| discover(shared, pc))
}

fn known(shared: &start::Shared, pc: u64) -> Option<Found> {
    let count = shared.header().agent.module_count.load(Acquire);
    for index in (0..count).rev() {
        let module = shared.module(index);
        if pc >= module.start && pc < module.end && module.unloaded.load(Acquire) == 0 {
            return Some(Found {
                index: index as u16,
                start: module.start,
                end: module.end,
                eh_frame_hdr: module.eh_frame_hdr,
            });
        }
    }
    None
}

/// glibc 2.35: `struct dl_find_object`.
#[repr(C)]
#[derive(Default)]
struct DlFindObject {
    flags: u64,
    map_start: u64,
    map_end: u64,
    link_map: u64,
    eh_frame: u64,
    reserved: [u64; 7],
}

/// The lock-free look-up of glibc 2.35 and later.
fn dl_find_object(pc: u64) -> Option<Option<DlFindObject>> {
    let function = REAL.dl_find_object.load(Relaxed);
    if function == 0 {
        return None;
    }
    let mut result = DlFindObject::default();
    // SAFETY: the function's documented type; it neither locks nor allocates.
    let status = unsafe {
        let function: extern "C" fn(u64, *mut DlFindObject) -> i32 = core::mem::transmute(function);
        function(pc, &raw mut result)
    };
    Some((status == 0).then_some(result))
}

fn discover(shared: &start::Shared, pc: u64) -> Option<Found> {
    let mut path_buffer = [0u8; 512];
    let (mut start_at, mut end, map): (u64, u64, Option<&LinkMap>);
    let mut unwind_table = 0;
    let mut path: &[u8] = &[];
    match dl_find_object(pc) {
        Some(Some(found)) => {
            // SAFETY: the loader's entry of an object that holds running code.
            map = unsafe { (found.link_map as *const LinkMap).as_ref() };
            (start_at, end) = (found.map_start, found.map_end);
            unwind_table = found.eh_frame;
            // An object with holes between its segments is reported segment by
            // segment: the one that was found need not be the first.
            if !is_elf(start_at, end)
                && let Some(whole) = maps::find(pc)
            {
                (start_at, end) = (whole.start.min(start_at), whole.end.max(end));
            }
            if let Some(map) = map {
                path = map.path();
            }
        }
        Some(None) => return None,
        None => {
            let found = maps::find(pc)?;
            (start_at, end) = (found.start, found.end);
            path_buffer[..found.path_len].copy_from_slice(&found.path[..found.path_len]);
            path = path_buffer.get(..found.path_len)?;
            map = None;
        }
    }
    let index = shared.header().agent.module_count.load(Relaxed);
    // The last numbers mean "no module" and "marker".
    if index >= shared.header().modules_cap || index >= 0xfff0 {
        return None;
    }
    let mut elf = read_elf(start_at, end);
    if elf.eh_frame_hdr == 0 && unwind_table >= start_at && unwind_table < elf.end {
        elf.eh_frame_hdr = unwind_table;
    }
    let bias = map.map_or(elf.bias, |map| map.bias);
    let mut flags = 0;
    if loader::first().is_some_and(|first| map.is_some_and(|map| core::ptr::eq(first, map)))
        || (map.is_none() && loader::first().is_some_and(|first| first.bias == bias))
    {
        flags |= MODULE_MAIN;
        path = &[];
    }
    if path.starts_with(b"linux-vdso") {
        flags |= MODULE_VDSO;
    }
    if loader::own().is_some_and(|own| own.bias == bias) {
        flags |= MODULE_AGENT;
    }
    let path_off = shared.store_string(path);
    // SAFETY: the guard is held, and readers look only below module_count.
    unsafe {
        shared.module_ptr(index).write(Module {
            bias,
            start: start_at,
            end: elf.end,
            eh_frame_hdr: elf.eh_frame_hdr,
            loaded: arch::stamp(),
            unloaded: 0.into(),
            code: pc.into(),
            path_off: path_off.unwrap_or(0),
            path_len: if path_off.is_some() { path.len() as u32 } else { 0 },
            build_id: elf.build_id,
            build_id_len: elf.build_id_len,
            flags,
        });
    }
    shared.header().agent.module_count.store(index + 1, Release);
    EPOCH.0.fetch_add(1, AcqRel);
    start::count(Counter::Modules, 1);
    Some(Found { index: index as u16, start: start_at, end: elf.end, eh_frame_hdr: elf.eh_frame_hdr })
}

struct Elf {
    bias: u64,
    /// One past the last address of the last segment.
    end: u64,
    eh_frame_hdr: u64,
    build_id: [u8; 32],
    build_id_len: u32,
}

/// Does an ELF file begin here?
fn is_elf(start: u64, end: u64) -> bool {
    // SAFETY: the first word of a mapped segment.
    end - start >= 64 && unsafe { (start as *const u32).read_unaligned() } == u32::from_le_bytes(*b"\x7fELF")
}

/// Program headers of the object whose first byte is mapped at `start`.
fn read_elf(start: u64, end: u64) -> Elf {
    const PT_LOAD: u32 = 1;
    const PT_NOTE: u32 = 4;
    const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
    let mut elf = Elf { bias: start, end, eh_frame_hdr: 0, build_id: [0; 32], build_id_len: 0 };
    if !is_elf(start, end) {
        return elf;
    }
    // SAFETY: the mapping's first page is readable and holds the ELF header and,
    // in every linked object, the program headers; both are checked to lie inside.
    unsafe {
        let base = start as *const u8;
        let headers = base.add(32).cast::<u64>().read_unaligned();
        let size = u64::from(base.add(54).cast::<u16>().read_unaligned());
        let count = u64::from(base.add(56).cast::<u16>().read_unaligned());
        if size < 56 || headers + size * count > 4096.min(end - start) {
            return elf;
        }
        let field =
            |i: u64, at: u64| base.add((headers + i * size + at) as usize).cast::<u64>().read_unaligned();
        let kind = |i: u64| base.add((headers + i * size) as usize).cast::<u32>().read_unaligned();
        let mut first = true;
        for i in (0..count).filter(|&i| kind(i) == PT_LOAD) {
            if first {
                elf.bias = start.wrapping_sub(field(i, 16) & !4095);
                first = false;
            }
            // What the loader calls an object's end may be the end of its code.
            let last = elf.bias.wrapping_add(field(i, 16)).wrapping_add(field(i, 40));
            if last > elf.end && last - start < 1 << 36 {
                elf.end = last;
            }
        }
        for i in 0..count {
            let at = elf.bias.wrapping_add(field(i, 16));
            let length = field(i, 40);
            if at < start || at >= elf.end || length > elf.end - at {
                continue;
            }
            match kind(i) {
                PT_GNU_EH_FRAME => elf.eh_frame_hdr = at,
                PT_NOTE if elf.build_id_len == 0 => read_build_id(at, length, field(i, 48), &mut elf),
                _ => {}
            }
        }
    }
    elf
}

/// Looks for the GNU build-id among the notes at `at`.
unsafe fn read_build_id(mut at: u64, length: u64, align: u64, elf: &mut Elf) {
    const NT_GNU_BUILD_ID: u32 = 3;
    let align = if align == 8 { 8 } else { 4 };
    let end = at + length;
    while end - at >= 12 {
        // SAFETY: inside the segment, which the caller has checked.
        unsafe {
            let word = |i: u64| ((at + i * 4) as *const u32).read_unaligned();
            let (name, desc, kind) = (u64::from(word(0)), u64::from(word(1)), word(2));
            let desc_at = at + 12 + name.next_multiple_of(4);
            let next = (desc_at + desc).next_multiple_of(align);
            if name > end - at || desc > end - at || desc_at + desc > end {
                return;
            }
            if kind == NT_GNU_BUILD_ID && name == 4 && word(3) == u32::from_le_bytes(*b"GNU\0") && desc <= 32
            {
                elf.build_id_len = desc as u32;
                for i in 0..desc as usize {
                    elf.build_id[i] = *(desc_at as *const u8).add(i);
                }
                return;
            }
            if next >= end {
                return;
            }
            at = next;
        }
    }
}

/// Before the real dlclose: nothing that is learnt from here on is kept.
#[cold]
pub fn before_unload() {
    UNLOADING.fetch_add(1, AcqRel);
    EPOCH.0.fetch_add(1, AcqRel);
}

/// After the real dlclose: objects that are gone get their end stamp, and their
/// rules are forgotten before any rule is stored again.
#[cold]
pub fn after_unload() {
    if let Some(shared) = start::shared() {
        let _guard = Guard::take();
        let count = shared.header().agent.module_count.load(Acquire);
        for index in 0..count {
            let module = shared.module(index);
            if module.unloaded.load(Relaxed) != 0 || module.flags != 0 {
                continue;
            }
            let gone = match dl_find_object(module.code.load(Relaxed)) {
                // Any address of its code will do; the unwind table is one of its own.
                Some(found) => found.is_none_or(|f| f.eh_frame != module.eh_frame_hdr),
                None => maps::find(module.start).is_none_or(|m| m.start != module.start),
            };
            if gone {
                module.unloaded.store(arch::stamp(), Release);
                crate::unwind::table::forget(index as u16);
                start::count(Counter::Unloads, 1);
            }
        }
    }
    EPOCH.0.fetch_add(1, AcqRel);
    UNLOADING.fetch_sub(1, AcqRel);
}
