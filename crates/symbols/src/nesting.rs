//! A guard in front of the DWARF reader's recursion.
//!
//! addr2line follows inlined functions by recursion, one level a nested entry,
//! and an entry takes as little as a byte of a file, so a crafted file of a
//! megabyte could overflow the stack. No compiler nests more than some tens. So
//! before a unit is looked into, its entries are counted through once, without
//! recursion.

use std::cell::RefCell;

use gimli::{Dwarf, UnitHeader};

use crate::dwarf::Reader;

/// Deeper units are not looked into. A level takes a kilobyte or so of stack in
/// a debug build.
const LIMIT: isize = 400;

/// The units of a file and which addresses lie in them.
#[derive(Debug)]
pub(crate) struct NestingGuard {
    units: Vec<Unit>,
    /// (first, one past the last, index into `units`), by the last.
    ranges: Vec<(u64, u64, u32)>,
    /// Smallest first address from here to the end of `ranges`, to end a search.
    lowest: Vec<u64>,
    /// Units that do not say where they are: may be anywhere.
    unplaced: Vec<u32>,
}

#[derive(Debug)]
struct Unit {
    header: UnitHeader<Reader>,
    sane: RefCell<Option<bool>>,
}

impl NestingGuard {
    /// Lists the units and their ranges.
    pub(crate) fn new(dwarf: &Dwarf<Reader>) -> Result<NestingGuard, gimli::Error> {
        let mut guard =
            NestingGuard { units: Vec::new(), ranges: Vec::new(), lowest: Vec::new(), unplaced: Vec::new() };
        let mut by_offset = Vec::new();
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let index = guard.units.len() as u32;
            if let Some(offset) = header.debug_info_offset() {
                by_offset.push((offset.0, index));
            }
            let mut placed = false;
            if let Ok(unit) = dwarf.unit(header.clone())
                && let Ok(mut ranges) = dwarf.unit_ranges(&unit)
            {
                while let Ok(Some(range)) = ranges.next() {
                    if range.begin < range.end {
                        guard.ranges.push((range.begin, range.end, index));
                        placed = true;
                    }
                }
            }
            if !placed {
                guard.unplaced.push(index);
            }
            guard.units.push(Unit { header, sane: RefCell::new(None) });
        }
        guard.add_aranges(dwarf, &by_offset);
        guard.ranges.sort_unstable_by_key(|r| (r.1, r.2));
        let mut lowest = u64::MAX;
        guard.lowest = guard
            .ranges
            .iter()
            .rev()
            .map(|r| {
                lowest = lowest.min(r.0);
                lowest
            })
            .collect();
        guard.lowest.reverse();
        Ok(guard)
    }

    /// addr2line also believes `.debug_aranges`.
    fn add_aranges(&mut self, dwarf: &Dwarf<Reader>, by_offset: &[(usize, u32)]) {
        let mut headers = dwarf.debug_aranges.headers();
        while let Ok(Some(header)) = headers.next() {
            let offset = header.debug_info_offset().0;
            let Ok(at) = by_offset.binary_search_by_key(&offset, |u| u.0) else { continue };
            let Some(&(_, index)) = by_offset.get(at) else { continue };
            let mut entries = header.entries();
            while let Some(entry) = entries.next().transpose() {
                let Ok(entry) = entry else { continue };
                let range = entry.range();
                self.ranges.push((range.begin, range.end, index));
            }
        }
    }

    /// Whether every unit that may describe `address` can be looked into.
    pub(crate) fn allows(&self, dwarf: &Dwarf<Reader>, address: u64) -> bool {
        let first = self.ranges.partition_point(|r| r.1 <= address);
        let placed = (first..self.ranges.len())
            .take_while(|&i| self.lowest.get(i).is_some_and(|&low| low <= address))
            .filter_map(|i| self.ranges.get(i).filter(|r| r.0 <= address).map(|r| r.2));
        placed.chain(self.unplaced.iter().copied()).all(|index| {
            let Some(unit) = self.units.get(index as usize) else { return false };
            *unit.sane.borrow_mut().get_or_insert_with(|| is_flat_enough(dwarf, &unit.header))
        })
    }
}

/// Whether all units of a file (a `.dwo`) can be looked into.
pub(crate) fn all_flat_enough(dwarf: &Dwarf<Reader>) -> bool {
    let mut headers = dwarf.units();
    loop {
        match headers.next() {
            Ok(Some(header)) if is_flat_enough(dwarf, &header) => {}
            Ok(None) => return true,
            _ => return false,
        }
    }
}

/// Whether no entry of a unit lies deeper than [`LIMIT`]. An error ends the walk
/// and is not held against the unit: the real reader stops at it, too.
fn is_flat_enough(dwarf: &Dwarf<Reader>, header: &UnitHeader<Reader>) -> bool {
    let Ok(abbreviations) = dwarf.abbreviations(header) else { return true };
    let Ok(mut entries) = header.entries_raw(&abbreviations, None) else { return true };
    while !entries.is_empty() {
        if entries.next_depth() > LIMIT {
            return false;
        }
        match entries.read_abbreviation() {
            Ok(Some(abbreviation)) => {
                if entries.skip_attributes(abbreviation.attributes()).is_err() {
                    return true;
                }
            }
            Ok(None) => {}
            Err(_) => return true,
        }
    }
    true
}
