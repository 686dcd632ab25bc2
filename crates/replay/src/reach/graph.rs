//! The pointers: from blocks to blocks, and from roots to blocks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use highwater_trace::reach::Place;

use super::Memory;
use super::blocks::{Block, Blocks};

/// Words read at a time.
const CHUNK: usize = 128 << 10;
/// Blocks with less than this many bytes between them are read in one go.
const GAP: u64 = 4096;
/// Bytes of blocks that one worker takes at a time.
const TASK: u64 = 16 << 20;
/// Above so many pointers their places in blocks are not kept.
const MOST_PLACES: usize = 1 << 25;

/// A pointer from a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootPointer {
    /// Where it stands.
    pub place: Place,
    /// The block.
    pub to: u32,
    /// How far into it.
    pub into: u64,
}

/// Memory whose words are roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootRange {
    /// First byte, a multiple of 8.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// What it is; the address in it does not count.
    pub place: Place,
    /// Only pointers to the start of a block count: memory of the allocator's
    /// own library, which keeps pointers to the headers of free chunks. Those
    /// lie in the last bytes of the block before.
    pub starts_only: bool,
}

/// Which block points where, by block and in the order of their words.
#[derive(Debug, Default)]
pub struct Graph {
    /// First pointer of each block, and the end.
    firsts: Vec<u64>,
    to: Vec<u32>,
    /// How far into the target; more than 32 bits are cut to all ones.
    into: Vec<u32>,
    /// Which word of its block; empty where there are too many pointers.
    word: Vec<u32>,
    /// Bytes read.
    pub bytes: u64,
}

/// Pointers of the blocks of one task.
#[derive(Default)]
struct Segment {
    counts: Vec<u32>,
    to: Vec<u32>,
    into: Vec<u32>,
    word: Vec<u32>,
    bytes: u64,
}

impl Graph {
    /// Reads all blocks; `None` if `stop` says so before the end.
    pub fn read(blocks: &Blocks, memory: &dyn Memory, workers: usize, stop: &AtomicBool) -> Option<Graph> {
        let tasks = tasks(blocks.all());
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some(&(from, to)) = tasks.get(next.fetch_add(1, Relaxed))
                && !stop.load(Relaxed)
            {
                done.push((from, segment(blocks, memory, from, to)));
            }
            done
        };
        let mut segments: Vec<(usize, Segment)> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..workers.min(tasks.len())).map(|_| scope.spawn(work)).collect();
            let mut all = work();
            for other in others {
                all.extend(other.join().unwrap_or_default());
            }
            all
        });
        if stop.load(Relaxed) || segments.len() != tasks.len() {
            return None;
        }
        segments.sort_unstable_by_key(|segment| segment.0);
        Some(Graph::join(segments.into_iter().map(|(_, segment)| segment).collect(), blocks.len()))
    }

    fn join(segments: Vec<Segment>, blocks: usize) -> Graph {
        let total: usize = segments.iter().map(|segment| segment.to.len()).sum();
        let mut graph = Graph { firsts: Vec::with_capacity(blocks + 1), ..Graph::default() };
        graph.to.reserve_exact(total);
        graph.into.reserve_exact(total);
        graph.firsts.push(0);
        let mut end = 0u64;
        for mut segment in segments {
            for count in &segment.counts {
                end += u64::from(*count);
                graph.firsts.push(end);
            }
            graph.to.append(&mut segment.to);
            graph.into.append(&mut segment.into);
            if total <= MOST_PLACES {
                graph.word.append(&mut segment.word);
            }
            graph.bytes += segment.bytes;
        }
        graph
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.firsts.len().saturating_sub(1)
    }

    /// How many pointers there are.
    pub fn pointers(&self) -> usize {
        self.to.len()
    }

    /// Are the pointers' places in their blocks known?
    pub fn has_places(&self) -> bool {
        self.word.len() == self.to.len()
    }

    fn range(&self, block: u32) -> std::ops::Range<usize> {
        let at = |i: usize| self.firsts.get(i).copied().unwrap_or(0) as usize;
        at(block as usize)..at(block as usize + 1)
    }

    /// The blocks that a block points to, with how far into them.
    #[inline]
    pub fn of(&self, block: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let range = self.range(block);
        let to = self.to.get(range.clone()).unwrap_or_default();
        let into = self.into.get(range).unwrap_or_default();
        to.iter().copied().zip(into.iter().copied())
    }

    /// The targets alone.
    #[inline]
    pub fn targets(&self, block: u32) -> &[u32] {
        self.to.get(self.range(block)).unwrap_or_default()
    }

    /// The same as [`Graph::of`] with the offset of each pointer in the block;
    /// nothing where places are not known.
    pub fn placed(&self, block: u32) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        let words = self.word.get(self.range(block)).unwrap_or_default();
        self.of(block).zip(words).map(|((to, into), &word)| (to, into, u64::from(word) * 8))
    }

    /// A graph of given pointers (from, to, into), for tests.
    #[cfg(test)]
    pub(crate) fn of_edges(blocks: usize, edges: &[(u32, u32, u32)]) -> Graph {
        let mut segment = Segment { counts: vec![0; blocks], ..Segment::default() };
        let mut edges = edges.to_vec();
        edges.sort_by_key(|edge| edge.0);
        for (from, to, into) in edges {
            segment.word.push(segment.counts[from as usize]);
            segment.counts[from as usize] += 1;
            segment.to.push(to);
            segment.into.push(into);
        }
        Graph::join(vec![segment], blocks)
    }
}

/// Runs of blocks with about as many bytes each.
fn tasks(blocks: &[Block]) -> Vec<(usize, usize)> {
    let mut tasks = Vec::new();
    let (mut from, mut bytes) = (0, 0u64);
    for (at, block) in blocks.iter().enumerate() {
        bytes = bytes.saturating_add(block.size).saturating_add(16);
        if bytes >= TASK || at + 1 == blocks.len() {
            tasks.push((from, at + 1));
            (from, bytes) = (at + 1, 0);
        }
    }
    tasks
}

/// Reads the blocks `from..to`.
fn segment(blocks: &Blocks, memory: &dyn Memory, from: usize, to: usize) -> Segment {
    let all = blocks.all().get(from..to).unwrap_or_default();
    let mut out = Segment::default();
    let mut buffer: Vec<u64> = vec![0; CHUNK];
    let mut at = 0;
    while let Some(first) = all.get(at) {
        // As many blocks as lie close together and fit the buffer.
        let base = first.addr & !7;
        let mut end = base;
        let mut count = 0;
        for block in all.get(at..).unwrap_or_default() {
            let stop = block.addr.saturating_add(block.size) & !7;
            if stop.saturating_sub(base) > (CHUNK * 8) as u64 || block.addr.saturating_sub(end) > GAP {
                break;
            }
            end = end.max(stop);
            count += 1;
        }
        if count == 0 {
            large(blocks, memory, first, &mut buffer, &mut out);
            at += 1;
            continue;
        }
        let words = buffer.get_mut(..((end - base) / 8) as usize).unwrap_or_default();
        memory.read(base, words);
        for block in all.get(at..at + count).unwrap_or_default() {
            let start = block.addr.next_multiple_of(8);
            let stop = (block.addr + block.size) & !7;
            let (first, after) = ((start - base) as usize / 8, stop.saturating_sub(base) as usize / 8);
            let before = out.to.len();
            words_of(blocks, words.get(first..after).unwrap_or_default(), 0, &mut out);
            out.counts.push((out.to.len() - before) as u32);
            out.bytes += block.size;
        }
        at += count;
    }
    out
}

/// A block that is larger than the buffer.
#[cold]
fn large(blocks: &Blocks, memory: &dyn Memory, block: &Block, buffer: &mut [u64], out: &mut Segment) {
    let before = out.to.len();
    let start = block.addr.next_multiple_of(8);
    let stop = block.addr.saturating_add(block.size) & !7;
    let mut at = start;
    while at < stop {
        let count = (((stop - at) / 8) as usize).min(buffer.len());
        let words = buffer.get_mut(..count).unwrap_or_default();
        memory.read(at, words);
        words_of(blocks, words, (at - start) / 8, out);
        at += count as u64 * 8;
    }
    out.counts.push((out.to.len() - before) as u32);
    out.bytes += block.size;
}

#[inline]
fn words_of(blocks: &Blocks, words: &[u64], first: u64, out: &mut Segment) {
    for (i, &word) in words.iter().enumerate() {
        if let Some((to, into)) = blocks.find(word) {
            out.to.push(to);
            out.into.push(u32::try_from(into).unwrap_or(u32::MAX));
            out.word.push(u32::try_from(first + i as u64).unwrap_or(u32::MAX));
        }
    }
}

/// The pointers in ranges of roots, and the bytes read; `None` if `stop` says
/// so before the end.
pub fn roots(
    blocks: &Blocks,
    memory: &dyn Memory,
    ranges: &[RootRange],
    stop: &AtomicBool,
) -> Option<(Vec<RootPointer>, u64)> {
    let mut pointers = Vec::new();
    let mut bytes = 0;
    let mut buffer: Vec<u64> = vec![0; CHUNK];
    for range in ranges {
        let mut at = range.start.next_multiple_of(8);
        let end = range.end & !7;
        while at < end {
            if stop.load(Relaxed) {
                return None;
            }
            let count = (((end - at) / 8) as usize).min(buffer.len());
            let words = buffer.get_mut(..count).unwrap_or_default();
            memory.read(at, words);
            for (i, &word) in words.iter().enumerate() {
                if let Some((to, into)) = blocks.find(word)
                    && (into == 0 || !range.starts_only)
                {
                    let place = placed(range.place, at + i as u64 * 8);
                    pointers.push(RootPointer { place, to, into });
                }
            }
            at += count as u64 * 8;
            bytes += count as u64 * 8;
        }
    }
    Some((pointers, bytes))
}

fn placed(place: Place, at: u64) -> Place {
    match place {
        Place::Data { .. } => Place::Data { addr: at },
        Place::Stack { tid, .. } => Place::Stack { tid, addr: at },
        Place::Mapping { .. } => Place::Mapping { addr: at },
        other @ (Place::Block { .. } | Place::Register { .. }) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Words;
    use super::*;

    fn block(addr: u64, size: u64) -> Block {
        Block { addr, size, seqno: 0, node: 0, array: false }
    }

    fn read(list: Vec<Block>, memory: &Words) -> (Blocks, Graph) {
        let blocks = Blocks::new(list);
        let graph = Graph::read(&blocks, memory, 2, &AtomicBool::new(false)).unwrap();
        (blocks, graph)
    }

    #[test]
    fn only_whole_aligned_words_inside_a_block_count() {
        let mut memory = Words::default();
        for at in [0x1000u64, 0x1008, 0x1010, 0x1018, 0x2000] {
            memory.set(at, 0x9000);
        }
        // The third word of the first block is not all there.
        let (_, graph) = read(vec![block(0x1000, 20), block(0x2004, 16), block(0x9000, 8)], &memory);
        let of = |block| graph.placed(block).collect::<Vec<_>>();
        assert_eq!(of(0), [(2, 0, 0), (2, 0, 8)]);
        assert_eq!(of(1), [], "0x2000 lies before the block");
        assert_eq!(graph.pointers(), 2);
    }

    #[test]
    fn a_large_block_is_read_in_pieces_and_many_tasks_keep_their_order() {
        let mut memory = Words::default();
        let size = (CHUNK * 8 * 3) as u64;
        memory.set(0x10_0000 + size - 8, 0x5000_0010);
        memory.set(0x10_0000, 0x5000_0000);
        let mut list = vec![block(0x10_0000, size)];
        for i in 0..40 {
            let at = 0x5000_0000 + i * 0x100_0000;
            list.push(block(at, 1 << 20));
            memory.set(at + 8 * i, at + 0x100_0000);
        }
        let (_, graph) = read(list, &memory);
        assert_eq!(graph.placed(0).collect::<Vec<_>>(), [(1, 0, 0), (1, 16, size - 8)]);
        for i in 1..40u32 {
            assert_eq!(graph.placed(i).collect::<Vec<_>>(), [(i + 1, 0, 8 * u64::from(i - 1))]);
        }
        assert_eq!(graph.bytes, size + (40 << 20));
    }

    #[test]
    fn from_the_allocators_own_library_only_pointers_to_a_start_count() {
        let mut memory = Words::default();
        memory.set(0x100, 0x1000);
        memory.set(0x108, 0x1010);
        let blocks = Blocks::new(vec![block(0x1000, 24)]);
        let range =
            |starts_only| RootRange { start: 0x100, end: 0x110, place: Place::Data { addr: 0 }, starts_only };
        let stop = AtomicBool::new(false);
        let count = |starts_only| roots(&blocks, &memory, &[range(starts_only)], &stop).unwrap().0.len();
        assert_eq!((count(true), count(false)), (1, 2));
        stop.store(true, Relaxed);
        assert!(roots(&blocks, &memory, &[range(true)], &stop).is_none());
        assert!(Graph::read(&blocks, &memory, 2, &stop).is_none());
    }
}
