//! Small indexes for ids that are mostly small themselves.

use rustc_hash::FxHashMap;

/// Ids below this have a place in a plain vector (16 MiB at most); a damaged or
/// hostile trace cannot make it longer.
const DIRECT: u32 = 1 << 22;

/// Gives every id an index, counted from 0 in the order of first sight.
#[derive(Default)]
pub struct Dense {
    /// Index + 1, 0 for none.
    direct: Vec<u32>,
    rest: FxHashMap<u32, u32>,
    count: u32,
}

impl Dense {
    /// The index of `id`, and whether it is new.
    #[inline]
    pub fn index(&mut self, id: u32) -> (u32, bool) {
        if let Some(&slot) = self.direct.get(id as usize)
            && slot != 0
        {
            return (slot - 1, false);
        }
        self.index_slow(id)
    }

    /// The index of `id`, if it has one.
    pub fn get(&self, id: u32) -> Option<u32> {
        match self.direct.get(id as usize) {
            Some(&slot) => slot.checked_sub(1),
            None => self.rest.get(&id).copied(),
        }
    }

    #[cold]
    fn index_slow(&mut self, id: u32) -> (u32, bool) {
        let next = self.count;
        if id < DIRECT {
            let at = id as usize;
            if at >= self.direct.len() {
                self.direct.resize((at + 1).next_power_of_two(), 0);
            }
            self.direct[at] = next + 1;
        } else {
            match self.rest.entry(id) {
                std::collections::hash_map::Entry::Occupied(entry) => return (*entry.get(), false),
                std::collections::hash_map::Entry::Vacant(entry) => entry.insert(next),
            };
        }
        self.count += 1;
        (next, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_get_indexes_in_the_order_of_first_sight() {
        let mut dense = Dense::default();
        assert_eq!(dense.index(7), (0, true));
        assert_eq!(dense.index(u32::MAX), (1, true));
        assert_eq!(dense.index(0), (2, true));
        assert_eq!(dense.index(7), (0, false));
        assert_eq!(dense.index(u32::MAX), (1, false));
        assert_eq!((dense.get(0), dense.get(1), dense.get(u32::MAX)), (Some(2), None, Some(1)));
    }
}
