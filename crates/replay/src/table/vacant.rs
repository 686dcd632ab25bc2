//! Places of the slab that were given back.
//!
//! The latest of them stand in a short list, for most are used again soon. Where that is
//! full, the oldest of them go into the slab: a vacant place holds the numbers of six others, and
//! of the place that does so for those before. So a list of any length takes no
//! memory of its own, and it is read once for seven places: to read each place before the
//! next is known would be to wait for memory each time.

use super::Slab;

/// Places in the short list.
const RECENT: usize = 16;
/// Places that a vacant one holds.
pub const HELD: usize = 6;
/// No place.
const NONE: u32 = u32::MAX;

/// The vacant places.
pub struct Vacant {
    /// The latest is the last of the first `count`.
    recent: [u32; RECENT],
    count: usize,
    /// The place that holds those before.
    before: u32,
}

impl Default for Vacant {
    fn default() -> Self {
        Vacant { recent: [NONE; RECENT], count: 0, before: NONE }
    }
}

impl Vacant {
    /// A place was given back. (Its block has ended.)
    #[inline(always)]
    pub fn push(&mut self, slab: &mut Slab, place: u32) {
        if self.count >= RECENT {
            self.put_away(slab);
        }
        self.recent[self.count % RECENT] = place;
        self.count += 1;
    }

    /// A place to be used, if there is one.
    #[inline(always)]
    pub fn pop(&mut self, slab: &Slab) -> Option<u32> {
        if self.count == 0 {
            self.fetch(slab);
        }
        self.count = self.count.checked_sub(1)?;
        Some(self.recent[self.count % RECENT])
    }

    /// The oldest of the short list go into the slab.
    #[inline(never)]
    fn put_away(&mut self, slab: &mut Slab) {
        let [holder, held @ ..] = self.recent;
        let held: &[u32; HELD] = held.first_chunk().unwrap_or(&[NONE; HELD]);
        slab.get_mut(holder).hold(self.before, held);
        self.before = holder;
        self.recent.copy_within(HELD + 1.., 0);
        self.count -= HELD + 1;
    }

    /// Those that went last come back.
    #[inline(never)]
    fn fetch(&mut self, slab: &Slab) {
        if self.before == NONE {
            return;
        }
        let (before, held) = slab.get(self.before).held();
        self.recent[0] = self.before;
        for (recent, place) in self.recent.iter_mut().skip(1).zip(held) {
            *recent = place;
            slab.prefetch(place);
        }
        self.count = HELD + 1;
        if before != NONE {
            slab.prefetch(before);
        }
        self.before = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;

    #[test]
    fn each_place_given_back_is_there_once() {
        let (mut slab, mut vacant) = (Slab::default(), Vacant::default());
        for place in 0..20_000 {
            assert_eq!(slab.extend(), place);
        }
        let (mut out, mut random) = ((0..20_000u32).collect::<Vec<_>>(), 1u64);
        for turn in 0..200_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            // Now most are given back, now most are used.
            let back = (random >> 60) < if turn / 30_000 % 2 == 0 { 11 } else { 5 };
            if back && !out.is_empty() {
                let place = out.swap_remove((random >> 33) as usize % out.len());
                *slab.get_mut(place) = Block::EMPTY;
                vacant.push(&mut slab, place);
            } else if let Some(place) = vacant.pop(&slab) {
                assert!(!slab.get(place).is_live());
                out.push(place);
            } else {
                assert_eq!(out.len(), 20_000, "some are lost");
            }
        }
        while let Some(place) = vacant.pop(&slab) {
            out.push(place);
        }
        out.sort_unstable();
        assert!(out.into_iter().eq(0..20_000));
    }
}
