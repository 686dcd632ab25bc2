//! Sums of what was left out, on their way into the trace.

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_trace::left_out::LeftOut;
use highwater_trace::model::ThreadNo;
use highwater_trace::{TraceError, Writer};
use rustc_hash::FxHashMap;

/// What was left out at a stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Site {
    pub blocks: u64,
    pub bytes: u64,
    pub temporary: i64,
}

/// What a thread did that was left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thread {
    pub allocations: u64,
    pub bytes: u64,
    pub frees: u64,
    pub bytes_freed: u64,
    pub temporary: i64,
}

/// Since it was last written.
pub struct Tally {
    pub sites: FxHashMap<NodeId, Site>,
    pub threads: FxHashMap<ThreadNo, Thread>,
    calls: [u64; 64],
    pairs: [u64; 2],
    /// Sizes, lifetimes: count and sum of each number of bits.
    buckets: [[(u64, u64); 65]; 2],
    /// Bytes alive in blocks that are left out: now, and at most.
    unseen: (u64, u64),
    pub foreign: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            sites: FxHashMap::default(),
            threads: FxHashMap::default(),
            calls: [0; 64],
            pairs: [0; 2],
            buckets: [[(0, 0); 65]; 2],
            unseen: (0, 0),
            foreign: 0,
        }
    }
}

impl Tally {
    fn bucket(&mut self, lifetimes: bool, value: u64) {
        let bits = (64 - value.leading_zeros()) as usize;
        let [sizes, lives] = &mut self.buckets;
        if let Some((count, sum)) = (if lifetimes { lives } else { sizes }).get_mut(bits) {
            *count += 1;
            *sum = sum.wrapping_add(value);
        }
    }

    /// One event through an entry point.
    pub fn call(&mut self, api: ApiKind) {
        self.calls[api as usize & 63] += 1;
    }

    /// Takes a [`Tally::call`] back.
    pub fn uncall(&mut self, api: ApiKind) {
        let calls = &mut self.calls[api as usize & 63];
        *calls = calls.saturating_sub(1);
    }

    /// Takes a [`Tally::size`] back.
    pub fn unsize(&mut self, size: u64) {
        let bits = (64 - size.leading_zeros()) as usize;
        if let Some((count, sum)) = self.buckets[0].get_mut(bits) {
            *count = count.saturating_sub(1);
            *sum = sum.wrapping_sub(size);
        }
    }

    /// The halves of a realloc that the events do not show as a pair.
    pub fn pair(&mut self, api: ApiKind) {
        self.pairs[usize::from(api == ApiKind::Reallocarray)] += 1;
    }

    /// The size of a block that was made.
    pub fn size(&mut self, size: u64) {
        self.bucket(false, size);
    }

    /// How long a block lived, ns.
    pub fn lifetime(&mut self, ns: u64) {
        self.bucket(true, ns);
    }

    /// A block that is left out came.
    pub fn unseen(&mut self, size: u64) {
        self.unseen.0 = self.unseen.0.saturating_add(size);
        self.unseen.1 = self.unseen.1.max(self.unseen.0);
    }

    /// It went.
    pub fn gone(&mut self, size: u64) {
        self.unseen.0 = self.unseen.0.saturating_sub(size);
    }

    /// Writes all sums and begins anew.
    pub fn write(&mut self, writer: &mut Writer) -> Result<(), TraceError> {
        for (&node, site) in &self.sites {
            let Site { blocks, bytes, temporary } = *site;
            writer.left_out(&LeftOut::Site { node, blocks, bytes, temporary })?;
        }
        for (&thread, totals) in &self.threads {
            let Thread { allocations, bytes, frees, bytes_freed, temporary } = *totals;
            let what = LeftOut::Thread { thread, allocations, bytes, frees, bytes_freed, temporary };
            writer.left_out(&what)?;
        }
        for (api, &count) in (0u8..).zip(&self.calls).filter(|(_, count)| **count > 0) {
            writer.left_out(&LeftOut::Calls { api, count })?;
        }
        for (array, count) in [(false, self.pairs[0]), (true, self.pairs[1])] {
            if count > 0 {
                writer.left_out(&LeftOut::Pairs { array, count })?;
            }
        }
        for (lifetimes, buckets) in [(false, &self.buckets[0]), (true, &self.buckets[1])] {
            for (bits, &(count, sum)) in (0u8..).zip(buckets).filter(|(_, bucket)| bucket.0 > 0) {
                writer.left_out(&LeftOut::Bucket { lifetimes, bits, count, sum })?;
            }
        }
        if self.unseen.1 > 0 {
            writer.left_out(&LeftOut::Unseen { bytes: self.unseen.1 })?;
        }
        if self.foreign > 0 {
            writer.left_out(&LeftOut::Foreign { count: self.foreign })?;
        }
        *self = Tally { unseen: self.unseen, ..Tally::default() };
        Ok(())
    }
}
