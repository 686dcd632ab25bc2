//! A replay of what is being recorded, for slices: what each stack holds, at one
//! instant after the other.
//!
//! The loop that drains the rings hands copies of what it took to a thread, which
//! decodes them, puts each epoch in order and replays it. The order inside an
//! epoch is that of the trace: by stamp, then by thread. Only a recorder that was
//! asked for slices has this thread.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use highwater_event::api::ApiKind;
use highwater_event::codec::{Record, SpecialKind};
use highwater_event::node::NodeId;
use highwater_event::ring::Decoder;
use highwater_replay::{Options, Replay};
use highwater_trace::model::{Event, ModuleDef, NodeDef, Op, Special, Step, ThreadNo};

/// Bytes of records that may wait for the thread; then the drain waits.
const MOST_WAITING: u64 = 256 << 20;

/// What one stack holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The stack.
    pub node: NodeId,
    /// Bytes alive.
    pub bytes: u64,
    /// Blocks alive.
    pub blocks: u64,
}

/// What all stacks hold at an instant.
pub struct Slice<'a> {
    /// Nanoseconds since the start of the recording.
    pub ns: u64,
    /// Every stack that ever held something, in the order of their first blocks:
    /// later slices only add some at the end.
    pub held: &'a [Held],
    /// The stack tree so far.
    pub nodes: &'a HashMap<NodeId, NodeDef>,
    /// Loaded objects so far, by index.
    pub modules: &'a HashMap<u16, ModuleDef>,
}

/// Who takes slices.
pub trait Sink {
    /// Takes a slice.
    ///
    /// # Errors
    /// Why it cannot be kept, as a sentence; no more slices come then.
    fn slice(&mut self, slice: &Slice<'_>) -> Result<(), String>;
}

/// The image whose slices are wanted.
#[derive(Clone, Debug)]
pub struct Whose {
    /// The file that it runs.
    pub exe: PathBuf,
    /// The target.
    pub pid: u32,
    /// Its number in a chain of execs.
    pub image: u32,
}

/// Makes the one who takes slices of an image, in the thread that makes them.
pub type MakeSink = dyn Fn(&Whose) -> Box<dyn Sink> + Send + Sync;

/// How to slice.
#[derive(Clone)]
pub struct Slicing {
    /// Time between two slices; `None`: only when they are asked for.
    pub period: Option<Duration>,
    /// Who takes them.
    pub sink: Arc<MakeSink>,
}

impl std::fmt::Debug for Slicing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slicing").field("period", &self.period).finish_non_exhaustive()
    }
}

/// What became of a slice that was asked for; comes when it is written.
pub type Answer = Receiver<Result<(), String>>;

/// What came of slicing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sliced {
    /// Slices taken.
    pub slices: u64,
    /// Why there are no more, if so.
    pub error: Option<String>,
}

/// A run of records of one thread.
struct Run {
    thread: ThreadNo,
    /// Stamp of what the thread did before.
    stamp: u64,
    words: Vec<u64>,
}

/// What one epoch brought.
#[derive(Default)]
struct Batch {
    runs: Vec<Run>,
    nodes: Vec<NodeDef>,
    modules: Vec<ModuleDef>,
    bytes: u64,
}

enum Message {
    Epoch(Batch),
    Slice { ns: u64, done: Option<Sender<Result<(), String>>> },
}

/// The recorder's end of the live replay.
pub struct Live {
    sender: Option<Sender<Message>>,
    waiting: Arc<AtomicU64>,
    thread: Option<JoinHandle<Sliced>>,
    batch: Batch,
    period: Option<u64>,
    due: u64,
}

impl Live {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has none left.
    pub fn start(slicing: &Slicing, whose: Whose) -> std::io::Result<Live> {
        let (sender, receiver) = channel();
        let waiting = Arc::new(AtomicU64::new(0));
        let (sink, theirs) = (Arc::clone(&slicing.sink), Arc::clone(&waiting));
        let thread = without_signals(|| {
            std::thread::Builder::new()
                .name("slices".to_owned())
                .spawn(move || Worker::new(sink(&whose)).run(&receiver, &theirs))
        })?;
        let period = slicing.period.map(|period| (period.as_nanos() as u64).max(1));
        Ok(Live {
            sender: Some(sender),
            waiting,
            thread: Some(thread),
            batch: Batch::default(),
            period,
            due: period.unwrap_or(u64::MAX),
        })
    }

    /// Records that were taken from a ring.
    pub(crate) fn take(&mut self, thread: ThreadNo, stamp: u64, words: &[u64]) {
        if !words.is_empty() {
            self.batch.bytes += 8 * words.len() as u64;
            self.batch.runs.push(Run { thread, stamp, words: words.to_vec() });
        }
    }

    /// New nodes of the stack tree.
    pub(crate) fn nodes(&mut self, nodes: &[NodeDef]) {
        self.batch.nodes.extend_from_slice(nodes);
    }

    /// A module that is new or has changed.
    pub(crate) fn module(&mut self, module: &ModuleDef) {
        self.batch.modules.push(module.clone());
    }

    /// All that was taken so far happened before all that will be. Asks for a
    /// slice where one is due at `ns` since the start.
    pub(crate) fn end_epoch(&mut self, ns: u64) {
        let batch = std::mem::take(&mut self.batch);
        if !(batch.runs.is_empty() && batch.nodes.is_empty() && batch.modules.is_empty()) {
            let bytes = batch.bytes;
            let waiting = self.waiting.fetch_add(bytes, AcqRel) + bytes;
            self.send(Message::Epoch(batch));
            let running = |live: &Live| live.thread.as_ref().is_some_and(|thread| !thread.is_finished());
            let mut full = waiting > MOST_WAITING;
            while full && running(self) {
                std::thread::sleep(Duration::from_millis(1));
                full = self.waiting.load(Acquire) > MOST_WAITING;
            }
        }
        if let Some(period) = self.period
            && ns >= self.due
        {
            self.send(Message::Slice { ns, done: None });
            // Late ones are not made up for.
            self.due += period * (1 + (ns - self.due) / period);
        }
    }

    /// Asks for a slice of now; the answer comes when it is written.
    pub fn slice(&mut self, ns: u64) -> Answer {
        let (done, answer) = channel();
        self.send(Message::Slice { ns, done: Some(done) });
        answer
    }

    fn send(&self, message: Message) {
        // A thread that has ended has said why.
        if let Some(sender) = &self.sender {
            let _ = sender.send(message);
        }
    }

    /// Waits for the slices that were asked for.
    pub fn finish(mut self) -> Sliced {
        self.sender = None;
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_else(|| Sliced {
            slices: 0,
            error: Some("the thread that makes slices has failed".to_owned()),
        })
    }
}

/// Runs `f` with all signals blocked: a thread that it starts gets none, so that
/// they go on interrupting the recorder's own sleep.
fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: sets of the right type; the old mask is put back on this thread.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}

/// The thread's state.
struct Worker {
    sink: Box<dyn Sink>,
    replay: Replay,
    nodes: HashMap<NodeId, NodeDef>,
    modules: HashMap<u16, ModuleDef>,
    /// The seqno of each thread's latest realloc free.
    latest: HashMap<ThreadNo, u64>,
    epoch: u32,
    seqno: u64,
    /// An epoch's records with what orders them.
    records: Vec<(u64, ThreadNo, Record)>,
    sliced: Sliced,
}

impl Worker {
    fn new(sink: Box<dyn Sink>) -> Worker {
        Worker {
            sink,
            replay: Replay::new(Options::default()),
            nodes: HashMap::new(),
            modules: HashMap::new(),
            latest: HashMap::new(),
            epoch: 0,
            seqno: 0,
            records: Vec::new(),
            sliced: Sliced::default(),
        }
    }

    fn run(mut self, messages: &Receiver<Message>, waiting: &AtomicU64) -> Sliced {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Epoch(batch) => {
                    self.replay_epoch(&batch);
                    waiting.fetch_sub(batch.bytes, AcqRel);
                }
                Message::Slice { ns, done } => {
                    let result = self.slice(ns);
                    if let Some(done) = done {
                        // Who asked may have gone.
                        let _ = done.send(result);
                    }
                }
            }
        }
        self.sliced
    }

    fn replay_epoch(&mut self, batch: &Batch) {
        self.nodes.extend(batch.nodes.iter().map(|node| (node.id, *node)));
        self.modules.extend(batch.modules.iter().map(|module| (module.index, module.clone())));
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        let mut floors: HashMap<ThreadNo, u64> = HashMap::new();
        for run in &batch.runs {
            let floor = floors.entry(run.thread).or_default();
            let mut decoder = Decoder::new(&run.words, run.stamp);
            // What the drain has taken decodes.
            while let Ok(Some(record)) = decoder.next() {
                *floor = (*floor).max(record.stamp());
                records.push((*floor, run.thread, record));
            }
        }
        // Stable: a thread's own records stay in order.
        records.sort_by_key(|&(stamp, thread, _)| (stamp, thread));
        self.epoch = self.epoch.wrapping_add(1);
        for &(stamp, thread, record) in &records {
            if let Some(step) = self.step(stamp, thread, record) {
                self.replay.feed_in(self.epoch, &step);
            }
        }
        self.records = records;
    }

    fn step(&mut self, ns: u64, thread: ThreadNo, record: Record) -> Option<Step> {
        let (op, api, addr, node, stamp, pair) = match record {
            Record::Alloc { stamp, ptr, size, usable, node, api, pair } => {
                let pair = if pair { self.latest.get(&thread).copied() } else { None };
                (Op::Alloc { size, usable }, api, ptr, node, stamp, pair)
            }
            Record::Free { stamp, ptr, node, api } => {
                let first = matches!(api, ApiKind::ReallocFree | ApiKind::ReallocarrayFree);
                if first {
                    self.latest.insert(thread, self.seqno);
                }
                (Op::Free, api, ptr, node, stamp, first.then_some(self.seqno))
            }
            Record::Special { kind: SpecialKind::ReallocUndo, words, .. } => {
                let free_seqno = self.latest.get(&thread).copied();
                let what = Special::ReallocUndo { free_seqno, addr: words[1] };
                return Some(Step::Special { ns, thread, what });
            }
            Record::Special { .. } => return None,
        };
        let seqno = self.seqno;
        self.seqno += 1;
        Some(Step::Event(Event { seqno, ns, stamp, thread, op, api, addr, node, pair }))
    }

    fn slice(&mut self, ns: u64) -> Result<(), String> {
        if let Some(error) = &self.sliced.error {
            return Err(error.clone());
        }
        self.replay.barrier();
        let held: Vec<Held> = self
            .replay
            .sites()
            .map(|site| Held { node: site.node, bytes: site.live_bytes, blocks: site.live_blocks })
            .collect();
        let slice = Slice { ns, held: &held, nodes: &self.nodes, modules: &self.modules };
        let result = self.sink.slice(&slice);
        match &result {
            Ok(()) => self.sliced.slices += 1,
            Err(error) => self.sliced.error = Some(error.clone()),
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use highwater_event::ring::{Encoder, MAX_RECORD};

    use super::*;

    type Seen = Arc<Mutex<Vec<(u64, Vec<Held>)>>>;

    struct Keep(Seen, u64);

    impl Sink for Keep {
        fn slice(&mut self, slice: &Slice<'_>) -> Result<(), String> {
            let mut seen = self.0.lock().unwrap();
            if seen.len() as u64 == self.1 {
                return Err("the disk is full".to_owned());
            }
            seen.push((slice.ns, slice.held.to_vec()));
            Ok(())
        }
    }

    fn live(period: Option<u64>, most: u64) -> (Live, Seen) {
        let seen = Seen::default();
        let ours = Arc::clone(&seen);
        let sink: Arc<MakeSink> = Arc::new(move |_| Box::new(Keep(Arc::clone(&ours), most)));
        let slicing = Slicing { period: period.map(Duration::from_nanos), sink };
        let whose = Whose { exe: PathBuf::new(), pid: 1, image: 0 };
        (Live::start(&slicing, whose).unwrap(), seen)
    }

    fn written(encoder: &mut Encoder, records: &[Record]) -> (u64, Vec<u64>) {
        let start = encoder.stamp;
        let mut out = Vec::new();
        for record in records {
            out.extend_from_slice(encoder.record(record, &mut [0; MAX_RECORD / 8]));
        }
        (start, out)
    }

    fn alloc(stamp: u64, ptr: u64, size: u64, node: u32) -> Record {
        Record::Alloc { stamp, ptr, size, usable: None, node, api: ApiKind::Malloc, pair: false }
    }

    fn free(stamp: u64, ptr: u64) -> Record {
        Record::Free { stamp, ptr, node: 0, api: ApiKind::Free }
    }

    fn held(node: u32, bytes: u64, blocks: u64) -> Held {
        Held { node, bytes, blocks }
    }

    #[test]
    fn slices_hold_what_is_alive_and_a_site_stays_when_it_holds_nothing_any_more() {
        let (mut live, seen) = live(Some(100), 99);
        let (mut one, mut two) = (Encoder::default(), Encoder::default());
        let (start, run) = written(&mut one, &[alloc(10, 64, 8, 20), alloc(12, 128, 5, 21)]);
        live.take(0, start, &run);
        live.end_epoch(50);
        // Another thread gives the first block back and makes one at its place,
        // which the first gives back: three runs of one epoch, out of order.
        let (start, run) = written(&mut one, &[free(40, 64)]);
        live.take(0, start, &run);
        let (start, run) = written(&mut two, &[free(20, 64), alloc(30, 64, 100, 21)]);
        live.take(1, start, &run);
        live.end_epoch(120);
        live.end_epoch(150);
        let (start, run) = written(&mut two, &[free(400, 128)]);
        live.take(1, start, &run);
        live.end_epoch(450);
        assert_eq!(live.finish(), Sliced { slices: 2, error: None });
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0], (120, vec![held(20, 0, 0), held(21, 5, 1)]));
        // Three periods have passed since; that is one slice.
        assert_eq!(seen[1], (450, vec![held(20, 0, 0), held(21, 0, 0)]));
    }

    #[test]
    fn a_failed_realloc_leaves_the_block_and_a_good_one_moves_it() {
        let (mut live, seen) = live(None, 99);
        let mut encoder = Encoder::default();
        let first = |stamp| Record::Free { stamp, ptr: 64, node: 0, api: ApiKind::ReallocFree };
        let mut words = [0; highwater_event::codec::MAX_WORDS];
        (words[0], words[1]) = (21, 64);
        let (start, run) = written(
            &mut encoder,
            &[
                alloc(10, 64, 8, 20),
                first(20),
                Record::Special { kind: SpecialKind::ReallocUndo, len: 2, words },
            ],
        );
        live.take(0, start, &run);
        live.end_epoch(1);
        live.slice(1).recv().unwrap().unwrap();
        let (ptr, node) = (192, 22);
        let moved =
            Record::Alloc { stamp: 31, ptr, size: 90, usable: None, node, api: ApiKind::Realloc, pair: true };
        let (start, run) = written(&mut encoder, &[first(30), moved]);
        live.take(0, start, &run);
        live.end_epoch(2);
        live.slice(2).recv().unwrap().unwrap();
        live.finish();
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].1, [held(20, 8, 1)]);
        assert_eq!(seen[1].1, [held(20, 0, 0), held(22, 90, 1)]);
    }

    #[test]
    fn a_sink_that_fails_is_asked_no_more() {
        let (mut live, seen) = live(None, 1);
        assert_eq!(live.slice(1).recv().unwrap(), Ok(()));
        for _ in 0..2 {
            assert_eq!(live.slice(2).recv().unwrap(), Err("the disk is full".to_owned()));
        }
        assert_eq!(live.finish(), Sliced { slices: 1, error: Some("the disk is full".to_owned()) });
        assert_eq!(seen.lock().unwrap().len(), 1);
    }
}
