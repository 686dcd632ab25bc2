//! Which block each thread made last: one that its thread frees before it makes
//! another is *temporary*. The same rule as the replay's.

use highwater_event::node::NodeId;
use highwater_trace::model::ThreadNo;
use rustc_hash::FxHashMap;

#[derive(Clone, Copy)]
struct Made {
    number: u64,
    addr: u64,
    node: NodeId,
    lives: bool,
}

/// The latest block of each thread.
#[derive(Default)]
pub struct Latest {
    of_thread: FxHashMap<ThreadNo, Made>,
    /// Who made the block at an address, if it is its thread's latest and lives.
    at: FxHashMap<u64, ThreadNo>,
    /// What each thread's realloc gave back, while that may yet fail.
    half: FxHashMap<ThreadNo, (ThreadNo, u64)>,
    number: u64,
}

impl Latest {
    /// A thread made a block.
    pub fn made(&mut self, thread: ThreadNo, addr: u64, node: NodeId) {
        self.half.remove(&thread);
        // Whoever had it last, it is gone.
        self.end(addr);
        self.number += 1;
        let made = Made { number: self.number, addr, node, lives: true };
        if let Some(before) = self.of_thread.insert(thread, made)
            && before.lives
        {
            self.at.remove(&before.addr);
        }
        self.at.insert(addr, thread);
    }

    fn end(&mut self, addr: u64) -> Option<(ThreadNo, Made)> {
        let maker = self.at.remove(&addr)?;
        let made = self.of_thread.get_mut(&maker)?;
        made.lives = false;
        Some((maker, *made))
    }

    /// A thread frees a block; if that is the latest that it made: its stack.
    pub fn freed(&mut self, thread: ThreadNo, addr: u64) -> Option<NodeId> {
        self.half.remove(&thread);
        let (maker, made) = self.end(addr)?;
        self.half.insert(thread, (maker, made.number));
        (maker == thread).then_some(made.node)
    }

    /// What the thread's realloc has just given back lives on.
    pub fn undone(&mut self, thread: ThreadNo) {
        let Some((maker, number)) = self.half.remove(&thread) else { return };
        if let Some(made) = self.of_thread.get_mut(&maker)
            && made.number == number
        {
            made.lives = true;
            self.at.insert(made.addr, maker);
        }
    }

    /// Bytes of memory, about.
    pub fn memory(&self) -> usize {
        self.of_thread.capacity() * 48 + self.at.capacity() * 24 + self.half.capacity() * 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_block_is_temporary_and_no_other() {
        let mut latest = Latest::default();
        latest.made(0, 16, 7);
        latest.made(0, 32, 8);
        assert_eq!(latest.freed(0, 16), None, "another was made since");
        assert_eq!(latest.freed(0, 32), Some(8));
        latest.made(0, 48, 9);
        assert_eq!(latest.freed(1, 48), None, "another thread frees it");
        latest.undone(1);
        assert_eq!(latest.freed(0, 48), Some(9), "but that failed");
        latest.made(0, 64, 1);
        latest.made(1, 64, 2);
        assert_eq!(latest.freed(0, 64), None, "the address is another thread's");
    }
}
