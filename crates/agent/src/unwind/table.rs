//! Rules by return address: process-wide, read without a lock.
//!
//! Open addressing in levels: a level that is three quarters full is left as it
//! is and a greater one opened behind it. An entry is two words; the key is set
//! first (compare and swap), the rule after it (release), so a reader that sees
//! the key but no rule yet compiles the rule for itself. Entries are never
//! moved; unloading a module turns its entries into tombstones.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

use highwater_event::node::Node;

use super::rule::Rule;
use crate::sys;

const LEVELS: usize = 4;
const SIZES: [usize; LEVELS] = [1 << 13, 1 << 16, 1 << 19, 1 << 21];
const PROBES: usize = 16;
/// A key that matches no address: where an unloaded module's rule stood.
const TOMBSTONE: u64 = Node::PC_MASK;

/// One entry.
#[repr(C, align(16))]
struct Entry {
    /// Address and module ([`Node::pack`]), 0 while free.
    key: AtomicU64,
    /// [`Rule`], 0 while it is being made.
    rule: AtomicU64,
}

struct Level {
    entries: AtomicPtr<Entry>,
    used: AtomicUsize,
}

static TABLE: [Level; LEVELS] =
    [const { Level { entries: AtomicPtr::new(core::ptr::null_mut()), used: AtomicUsize::new(0) } }; LEVELS];

#[inline(always)]
fn slot(pc: u64, level: usize) -> usize {
    // Fibonacci hashing: the top bits of the product are well mixed.
    (pc.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (SIZES[level] - 1)
}

/// What is known of `pc`: its packed key (with the module) and its rule.
#[inline(always)]
pub fn find(pc: u64) -> Option<(u64, Rule)> {
    for (level, place) in TABLE.iter().enumerate() {
        let entries = place.entries.load(Acquire);
        if entries.is_null() {
            return None;
        }
        let mut at = slot(pc, level);
        for _ in 0..PROBES {
            // SAFETY: at < SIZES[level], the length of the level's mapping.
            let entry = unsafe { &*entries.add(at) };
            let key = entry.key.load(Acquire);
            if key & Node::PC_MASK == pc {
                let rule = entry.rule.load(Acquire);
                return if rule == 0 { None } else { Some((key, Rule(rule))) };
            }
            if key == 0 {
                break;
            }
            at = (at + 1) & (SIZES[level] - 1);
        }
    }
    None
}

/// Stores a rule. False if there was no room.
#[cold]
pub fn insert(key: u64, rule: Rule) -> bool {
    let pc = key & Node::PC_MASK;
    for (level, place) in TABLE.iter().enumerate() {
        let mut entries = place.entries.load(Acquire);
        if entries.is_null() {
            let Some(fresh) = sys::map_private(SIZES[level] * size_of::<Entry>()) else { return false };
            sys::madvise(fresh, SIZES[level] * size_of::<Entry>(), sys::MADV_DONTDUMP);
            match place.entries.compare_exchange(core::ptr::null_mut(), fresh.cast(), AcqRel, Acquire) {
                Ok(_) => entries = fresh.cast(),
                Err(theirs) => {
                    // SAFETY: nobody has seen our mapping.
                    unsafe { sys::unmap(fresh, SIZES[level] * size_of::<Entry>()) };
                    entries = theirs;
                }
            }
        }
        let full = place.used.load(Relaxed) > SIZES[level] / 4 * 3;
        let mut at = slot(pc, level);
        for _ in 0..PROBES {
            // SAFETY: at < SIZES[level], the length of the level's mapping.
            let entry = unsafe { &*entries.add(at) };
            let seen = entry.key.load(Acquire);
            if seen & Node::PC_MASK == pc {
                return true;
            }
            if seen == 0 {
                if full {
                    break;
                }
                if entry.key.compare_exchange(0, key, AcqRel, Acquire).is_ok() {
                    place.used.fetch_add(1, Relaxed);
                    entry.rule.store(rule.0, Release);
                    return true;
                }
                continue;
            }
            at = (at + 1) & (SIZES[level] - 1);
        }
    }
    false
}

/// Forgets every rule of a module.
#[cold]
pub fn forget(module: u16) {
    for (level, place) in TABLE.iter().enumerate() {
        let entries = place.entries.load(Acquire);
        if entries.is_null() {
            return;
        }
        for at in 0..SIZES[level] {
            // SAFETY: at < SIZES[level], the length of the level's mapping.
            let entry = unsafe { &*entries.add(at) };
            let key = entry.key.load(Relaxed);
            if key != 0 && (key >> 48) as u16 == module && key & Node::PC_MASK != TOMBSTONE {
                // The key first: whoever has read the old key may still use the
                // rule, which stays as it was.
                entry.key.store(TOMBSTONE | u64::from(module) << 48, Release);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_found_until_their_module_goes() {
        let base = 0x1000_0000u64;
        for i in 0..100_000u64 {
            let key = Node::pack(base + i * 7, (i % 3) as u16);
            assert!(insert(key, Rule(i + 1)));
        }
        for i in 0..100_000u64 {
            assert!(find(base + i * 7) == Some((Node::pack(base + i * 7, (i % 3) as u16), Rule(i + 1))));
        }
        assert!(find(base + 1).is_none());
        forget(1);
        assert!(find(base + 7).is_none());
        assert!(find(base + 14).is_some());
        assert!(insert(Node::pack(base + 7, 9), Rule(77)));
        assert!(find(base + 7) == Some((Node::pack(base + 7, 9), Rule(77))));
    }
}
