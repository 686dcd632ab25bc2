//! The search of `findleaks`: blocks that were made between two events and are
//! alive when the record ends, by stack.
//!
//! The method is that of the article "Investigating memory leaks with DTrace":
//! a program does the same thing three times; what the second time made and the
//! third did not give back is a leak. Its script counted `new` and `delete` per
//! address; a free of a block whose birth nobody saw drove the count below
//! zero, and every such address was suspected. Here each address has a state
//! and each birth is a generation of its own: a free without a block is counted
//! apart and makes nothing suspicious.

use rustc_hash::FxHashMap;

/// One event of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number in the record; the order of events.
    pub seq: u64,
    /// The block's address.
    pub address: u64,
    /// Thread id.
    pub tid: u64,
    /// What happened.
    pub what: What,
}

/// What happened to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A block begins here.
    Alloc {
        /// Its bytes.
        size: u64,
        /// Number of the stack it was made from; what it stands for is the caller's.
        stack: u32,
    },
    /// The block that is here ends.
    Free,
}

/// A block that is alive at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Number of the event that made it.
    pub seq: u64,
    /// Its address.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// Who made it.
    pub tid: u64,
    /// From where.
    pub stack: u32,
}

/// What a pass over all events found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survivors {
    /// Blocks alive at the end, by the number of the event that made them.
    pub blocks: Vec<Survivor>,
    /// Frees of an address where no block was known: its birth was not seen, or
    /// it was given back twice. Never a leak.
    pub unmatched_frees: u64,
    /// Births at an address whose earlier block had not been given back: that
    /// free was not seen. The earlier block counts as given back.
    pub unseen_frees: u64,
}

/// Survivors that have the same stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackGroup {
    /// The stack.
    pub stack: u32,
    /// Their bytes.
    pub bytes: u64,
    /// The blocks, by the number of the event that made them.
    pub blocks: Vec<Survivor>,
}

/// Follows every address through its generations. `events` are put into the
/// order of their numbers first, since a recorder of several processors may
/// write them out of order. Time: that of the sort; linear when they are sorted.
pub fn survivors(events: &mut [Event]) -> Survivors {
    // Stable: events with one number stay in the order of the file.
    events.sort_by_key(|event| event.seq);
    let mut alive: FxHashMap<u64, Survivor> = FxHashMap::default();
    let mut found = Survivors::default();
    for event in events.iter() {
        match event.what {
            What::Alloc { size, stack } => {
                let block = Survivor { seq: event.seq, address: event.address, size, tid: event.tid, stack };
                if alive.insert(event.address, block).is_some() {
                    found.unseen_frees += 1;
                }
            }
            What::Free => {
                if alive.remove(&event.address).is_none() {
                    found.unmatched_frees += 1;
                }
            }
        }
    }
    found.blocks = alive.into_values().collect();
    found.blocks.sort_by_key(|block| (block.seq, block.address));
    found
}

/// The survivors that were made by the events `begin..=end`, by stack: most
/// bytes first, then the earliest.
pub fn by_stack(blocks: &[Survivor], begin: u64, end: u64) -> Vec<StackGroup> {
    let mut place: FxHashMap<u32, usize> = FxHashMap::default();
    let mut groups: Vec<StackGroup> = Vec::new();
    for block in blocks.iter().filter(|block| (begin..=end).contains(&block.seq)) {
        let at = *place.entry(block.stack).or_insert_with(|| {
            groups.push(StackGroup { stack: block.stack, bytes: 0, blocks: Vec::new() });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(at) {
            group.bytes = group.bytes.saturating_add(block.size);
            group.blocks.push(*block);
        }
    }
    // Stable: groups were made in the order of their first block.
    groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(seq: u64, address: u64, size: u64, stack: u32) -> Event {
        Event { seq, address, tid: 1, what: What::Alloc { size, stack } }
    }

    fn free(seq: u64, address: u64) -> Event {
        Event { seq, address, tid: 1, what: What::Free }
    }

    #[test]
    fn a_free_without_a_block_is_counted_and_suspects_nothing() {
        let mut events = [free(0, 64), free(1, 64), new(2, 64, 8, 0), free(3, 64), free(4, 64)];
        let found = survivors(&mut events);
        assert_eq!(found.blocks, []);
        assert_eq!((found.unmatched_frees, found.unseen_frees), (3, 0));
    }

    #[test]
    fn a_block_after_unmatched_frees_is_alive_although_the_sum_is_not_positive() {
        let mut events = [new(0, 64, 8, 0), free(1, 64), free(2, 64), new(3, 64, 24, 1)];
        let found = survivors(&mut events);
        assert_eq!(found.blocks.len(), 1);
        assert_eq!((found.blocks[0].seq, found.blocks[0].size), (3, 24));
    }

    #[test]
    fn each_birth_is_a_generation_of_its_own() {
        // The free of the first was not seen: only the second is alive.
        let mut events = [new(10, 64, 8, 0), new(20, 64, 16, 1)];
        let found = survivors(&mut events);
        assert_eq!(found.unseen_frees, 1);
        assert_eq!(by_stack(&found.blocks, 0, 15), []);
        assert_eq!(by_stack(&found.blocks, 15, 20)[0].bytes, 16);
    }

    #[test]
    fn events_out_of_order_are_put_in_order() {
        let mut events = [free(2, 64), new(1, 64, 8, 0), new(0, 128, 8, 0)];
        let found = survivors(&mut events);
        assert_eq!(found.blocks.iter().map(|block| block.address).collect::<Vec<_>>(), [128]);
        assert_eq!(found.unmatched_frees, 0);
    }

    #[test]
    fn groups_are_sorted_by_bytes_and_both_bounds_count() {
        let mut events =
            [new(1, 16, 1, 7), new(2, 32, 10, 0), new(3, 48, 30, 1), new(4, 64, 30, 0), new(5, 80, 99, 2)];
        let found = survivors(&mut events);
        let groups = by_stack(&found.blocks, 2, 4);
        assert_eq!(
            groups.iter().map(|g| (g.stack, g.bytes, g.blocks.len())).collect::<Vec<_>>(),
            [(0, 40, 2), (1, 30, 1)]
        );
    }

    #[test]
    fn many_events_take_linear_time() {
        // Quadratic work over these would take minutes.
        let mut events: Vec<Event> = (0..400_000).map(|i| new(i, 16 * i, 16, (i % 50) as u32)).collect();
        let found = survivors(&mut events);
        assert_eq!(found.blocks.len(), 400_000);
        assert_eq!(by_stack(&found.blocks, 0, u64::MAX).len(), 50);
    }
}
