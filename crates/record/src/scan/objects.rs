//! The loaded objects of the target, from their own program headers: which of
//! their memory is data.

use highwater_replay::reach::Memory;

use super::maps::Mapping;
use super::target::Target;

/// Names of libraries that hold an allocator; what they keep in their data
/// points at chunks, not at blocks.
const ALLOCATORS: &[&str] =
    &["libc.so", "libc-2", "ld-musl", "libjemalloc", "libtcmalloc", "libmimalloc", "libhoard", "libsnmalloc"];

/// A loaded object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Its file.
    pub inode: u64,
    /// First byte and end of each segment that is, or was while it was being
    /// loaded, writable.
    pub data: Vec<(u64, u64)>,
    /// It holds an allocator.
    pub allocator: bool,
}

impl Object {
    /// Is this address in its data?
    pub fn holds(&self, addr: u64) -> bool {
        self.data.iter().any(|segment| (segment.0..segment.1).contains(&addr))
    }
}

/// May this mapping be the first of an object?
pub fn may_begin(mapping: &Mapping) -> bool {
    mapping.inode != 0 && mapping.offset == 0 && mapping.read && !mapping.shared
}

/// The objects among the mappings.
pub fn find(maps: &[Mapping], target: &Target) -> Vec<Object> {
    maps.iter().filter(|mapping| may_begin(mapping)).filter_map(|mapping| object(mapping, target)).collect()
}

fn object(mapping: &Mapping, target: &Target) -> Option<Object> {
    let mut words = [0u64; 512];
    let room = ((mapping.end - mapping.start) / 8).min(512) as usize;
    target.read(mapping.start, words.get_mut(..room)?);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let data = data_segments(&bytes, mapping.start)?;
    let name = mapping.path.rsplit('/').next().unwrap_or_default();
    Some(Object {
        inode: mapping.inode,
        data,
        allocator: ALLOCATORS.iter().any(|known| name.starts_with(known)),
    })
}

/// The writable segments of the 64-bit ELF file that begins with `bytes` and is
/// loaded at `start`.
fn data_segments(bytes: &[u8], start: u64) -> Option<Vec<(u64, u64)>> {
    const PT_LOAD: u32 = 1;
    const PF_W: u32 = 2;
    let u16_at = |at: usize| bytes.get(at..)?.get(..2)?.try_into().ok().map(u16::from_le_bytes);
    let u32_at = |at: usize| bytes.get(at..)?.get(..4)?.try_into().ok().map(u32::from_le_bytes);
    let u64_at = |at: usize| bytes.get(at..)?.get(..8)?.try_into().ok().map(u64::from_le_bytes);
    if bytes.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let table = usize::try_from(u64_at(32)?).ok()?;
    let (size, count) = (usize::from(u16_at(54)?), usize::from(u16_at(56)?));
    let mut bias = None;
    let mut data = Vec::new();
    for i in 0..count.min(64) {
        let at = table.checked_add(i * size)?;
        let (Some(kind), Some(flags)) = (u32_at(at), u32_at(at.checked_add(4)?)) else { break };
        if kind != PT_LOAD {
            continue;
        }
        let (addr, len) = (u64_at(at.checked_add(16)?)?, u64_at(at.checked_add(40)?)?);
        let bias = *bias.get_or_insert(start.wrapping_sub(addr & !4095));
        if flags & PF_W != 0 {
            let first = bias.wrapping_add(addr) & !7;
            data.push((first, bias.wrapping_add(addr).checked_add(len)?.checked_next_multiple_of(4096)?));
        }
    }
    Some(data)
}

#[cfg(test)]
mod tests {
    use super::super::maps;
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    #[test]
    fn our_own_data_lies_in_the_data_of_an_object_and_our_stack_does_not() {
        static MINE: AtomicU64 = AtomicU64::new(7);
        MINE.store(8, Relaxed);
        let maps = maps::parse(&std::fs::read("/proc/self/maps").unwrap());
        let target = Target::new(std::process::id(), Instant::now() + Duration::from_secs(60));
        let objects = find(&maps, &target);
        let holds = |addr: u64| objects.iter().filter(|object| object.holds(addr)).count();
        assert_eq!(holds(&raw const MINE as u64), 1);
        let local = 0u64;
        assert_eq!(holds(&raw const local as u64), 0);
        assert_eq!(holds(find as *const () as u64), 0, "code is no data");
        assert_eq!(objects.iter().filter(|object| object.allocator).count(), 1, "libc");
    }

    #[test]
    fn what_is_no_elf_file_has_no_segments() {
        assert_eq!(data_segments(b"#!/bin/sh", 0), None);
        assert_eq!(data_segments(b"\x7fELF\x01", 0), None);
        let mut cut = b"\x7fELF\x02".to_vec();
        cut.resize(64, 0xff);
        assert_eq!(data_segments(&cut, 4096), None);
    }
}
