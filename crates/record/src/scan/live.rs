//! The live set at the moment of the scan, from the trace itself.
//!
//! It is kept from one scan to the next, which then reads what was recorded since.

use std::path::Path;

use highwater_replay::reach::{Block, Blocks, Pages};
use highwater_replay::{Options, Replay};
use highwater_trace::{Batch, Trace, TraceError};

/// Events read at a time, and batches between two signs of life.
const BATCH: usize = 2048;
const BEAT: u64 = 32;

/// A replay that follows a trace which is being written.
pub struct Live {
    trace: Trace,
    replay: Replay,
    pages: Pages,
    groups: usize,
}

impl Live {
    /// Replays what is in the file; calls `beat` again and again meanwhile.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(path: &Path, beat: &mut dyn FnMut()) -> Result<Live, TraceError> {
        let trace = Trace::open(path)?;
        let mut live = Live { trace, replay: empty(), pages: Pages::default(), groups: 0 };
        live.go_on(beat)?;
        Ok(live)
    }

    /// Replays what has been written since.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn catch_up(&mut self, beat: &mut dyn FnMut()) -> Result<(), TraceError> {
        self.trace.refresh()?;
        self.go_on(beat)
    }

    fn go_on(&mut self, beat: &mut dyn FnMut()) -> Result<(), TraceError> {
        // What comes now came after all that came before: groups hold whole epochs.
        self.replay.barrier();
        let mut count = 0u64;
        let mut batch = Batch::default();
        let mut steps = self.trace.steps_from_group(self.groups);
        while steps.next_batch(&mut batch, BATCH)? {
            self.replay.feed_batch(&batch);
            for event in batch.events.iter().filter(|event| !event.api.is_free()) {
                self.pages.add(event.addr, event.size);
            }
            if let Some(step) = &batch.last {
                self.pages.see(step);
            }
            count += 1;
            if count.is_multiple_of(BEAT) {
                beat();
            }
        }
        self.groups = self.trace.group_count();
        Ok(())
    }

    /// How many events were replayed.
    pub fn events(&self) -> u64 {
        self.trace.event_count()
    }

    /// The blocks alive now. Going on is possible afterwards.
    pub fn blocks(&mut self) -> Blocks {
        self.replay.finish();
        Blocks::new(self.replay.live().map(|block| Block::from(&block)).collect())
    }

    /// The allocator's pages.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Gives the memory of the live set back; all that is left are the pages.
    pub fn end(&mut self) {
        self.replay = empty();
    }
}

/// A replay before the first event. Freed blocks do not matter here.
fn empty() -> Replay {
    Replay::new(Options { remember_freed: 1 << 10, ..Options::default() })
}
