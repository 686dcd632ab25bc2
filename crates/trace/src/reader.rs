//! Opening a trace: recovery, definitions, the way to an instant.

use std::collections::HashMap;
use std::path::Path;

use crate::clock::Clock;
use crate::defs::{self, Definition};
use crate::error::{BlockKind, TraceError, Warning};
use crate::frame::{
    END_BLOCK, FILE_HEADER, FILE_MAGIC, FORMAT_VERSION, TRAILER, parse_file_header, parse_trailer,
};
use crate::group::{BlockInfo, read_table};
use crate::index::{FrameKind, GroupRef, Index, KeyframeRef};
use crate::keyframe::{read_difference, read_live};
use crate::left_out::LeftOut;
use crate::model::{End, Mark, Meta, ModuleDef, NameDef, Note, Renumbered, RssSample, ThreadDef, ThreadNo};
use crate::nodes::Nodes;
use crate::outcome::Kept;
use crate::reach::{self, LEAK_CHECK, Reach, ScanRef, Scanned};
use crate::scan::{Buffers, GroupBlocks, Source, info};
use crate::steps::Steps;

/// The longest record of a scan that is believed, bytes.
const MAX_REACH: usize = 1 << 30;

/// An opened trace: all definitions are in memory, the events are streamed.
pub struct Trace {
    pub(crate) source: Source,
    pub(crate) size: u64,
    pub(crate) index: Index,
    pub(crate) clock: Clock,
    pub(crate) warnings: Vec<Warning>,
    meta: Meta,
    end: Option<End>,
    modules: Vec<ModuleDef>,
    threads: Vec<ThreadDef>,
    /// Where each thread stands among them: there may be a hundred thousand.
    thread_places: HashMap<ThreadNo, usize>,
    nodes: Nodes,
    rss: Vec<RssSample>,
    marks: Vec<Mark>,
    /// The latest scan's record met while reading without an index.
    scanned_at: Option<u64>,
    names: Vec<NameDef>,
    renumbered: Vec<Renumbered>,
    notes: Vec<Note>,
    left_out: Vec<LeftOut>,
    /// What was read without an index: all before this offset.
    scanned: u64,
    /// There is a trailer: nothing more will come.
    complete: bool,
    /// The last group is not all there.
    ragged: bool,
    /// Told how far the events were read.
    pub(crate) progress: Option<Progress>,
    buffers: Buffers,
}

/// Who is told how far the events of a trace were read: all below the first number, of as
/// many as the second. May be called from any thread, some times for each million events.
pub type Progress = fn(u64, u64);

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("path", &self.source.path)
            .field("events", &self.event_count())
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

impl Trace {
    /// Opens a trace, also one that is cut, damaged or still being written.
    ///
    /// # Errors
    /// One line that names the file and what to do: empty, not a trace, of a
    /// newer version, damaged in its first 32 bytes, unreadable.
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
        let mut source = Source::open(path.as_ref())?;
        let size = source.size()?;
        source.file_id = check_file_header(&source)?;
        let mut trace = Trace {
            source,
            size,
            index: Index::default(),
            clock: Clock::default(),
            warnings: Vec::new(),
            meta: Meta::default(),
            end: None,
            modules: Vec::new(),
            threads: Vec::new(),
            thread_places: HashMap::new(),
            nodes: Nodes::default(),
            rss: Vec::new(),
            marks: Vec::new(),
            scanned_at: None,
            names: Vec::new(),
            renumbered: Vec::new(),
            notes: Vec::new(),
            left_out: Vec::new(),
            scanned: (FILE_HEADER + END_BLOCK) as u64,
            complete: false,
            ragged: false,
            progress: None,
            buffers: Buffers::default(),
        };
        trace.read_end()?;
        let trailer = trace.trailer()?;
        if let Some(offset) = trailer
            && let Some(index) = trace.read_index(offset)?
        {
            trace.use_index(index)?;
        } else {
            trace.scan(trailer)?;
        }
        Ok(trace)
    }

    /// Reads what was appended since; `true` if there was anything.
    ///
    /// # Errors
    /// [`TraceError::Read`].
    pub fn refresh(&mut self) -> Result<bool, TraceError> {
        if self.complete {
            return Ok(false);
        }
        let size = self.source.size()?;
        let before = (self.scanned, self.end.is_some(), self.event_count());
        self.size = size;
        self.warnings.retain(|warning| {
            !matches!(warning, Warning::CutTail { .. } | Warning::MissingIndex)
                && !matches!(warning, Warning::Damaged { kind: Some(BlockKind::End), .. })
        });
        if std::mem::take(&mut self.ragged) {
            self.index.groups.pop();
        }
        self.read_end()?;
        let trailer = self.trailer()?;
        self.scan(trailer)?;
        Ok(before != (self.scanned, self.end.is_some(), self.event_count()))
    }

    /// Facts about the recording; defaults where that block is damaged.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// How the recording ended. `None`: it is still being written, or its
    /// recorder was killed.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Everything wrong that opening (and [`Trace::verify`]) found. Damage
    /// inside event blocks is found while they are read: [`Steps::warnings`].
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The modules, in the order of their first definition; each as defined last.
    pub fn modules(&self) -> &[ModuleDef] {
        &self.modules
    }

    /// The module with this index.
    pub fn module(&self, index: u16) -> Option<&ModuleDef> {
        match self.modules.get(usize::from(index)) {
            Some(module) if module.index == index => Some(module),
            _ => self.modules.iter().find(|module| module.index == index),
        }
    }

    /// The threads, in the order of their first definition; each as defined last.
    pub fn threads(&self) -> &[ThreadDef] {
        &self.threads
    }

    /// The thread with this number.
    pub fn thread(&self, thread: u32) -> Option<&ThreadDef> {
        self.threads.get(*self.thread_places.get(&thread)?)
    }

    /// The stack nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Samples of resident memory, in the order of the file.
    pub fn rss(&self) -> &[RssSample] {
        &self.rss
    }

    /// Marks, in the order of the file.
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Names that came with the trace.
    pub fn names(&self) -> &[NameDef] {
        &self.names
    }

    /// Totals of what the recording left out.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The bytes under a name.
    pub fn note(&self, name: &str) -> Option<&[u8]> {
        self.notes.iter().rev().find(|note| note.name == name).map(|note| note.value.as_slice())
    }

    /// The number that an event had in the data that this trace was imported
    /// from; its own number where that is not told.
    pub fn original_seqno(&self, seqno: u64) -> u64 {
        let behind = self.renumbered.partition_point(|run| run.seqno <= seqno);
        match behind.checked_sub(1).and_then(|at| self.renumbered.get(at)) {
            Some(run) => run.original.saturating_add(seqno - run.seqno),
            None => seqno,
        }
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A stamp as nanoseconds since the start of the recording.
    pub fn to_ns(&self, stamp: u64) -> u64 {
        self.clock.to_ns(stamp)
    }

    /// Number of seqnos in use: those of all events, lost ones included.
    pub fn event_count(&self) -> u64 {
        self.index.groups.last().map_or(0, |group| group.first_seqno + group.events)
    }

    /// Bytes in the file.
    pub fn file_size(&self) -> u64 {
        self.size
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Events that the damage in [`Trace::warnings`] took.
    pub fn lost_events(&self) -> u64 {
        let lost = |warning: &Warning| match warning {
            Warning::Damaged { events, .. } => *events,
            _ => 0,
        };
        self.warnings.iter().map(lost).sum()
    }

    /// All events and special records in the merged order.
    pub fn steps(&self) -> Steps<'_> {
        Steps::new(self, 0, self.index.groups.len())
    }

    /// The merged order from the group that holds the event `seqno` on:
    /// begins at or before it. Seqnos are those of the whole trace.
    pub fn steps_from(&self, seqno: u64) -> Steps<'_> {
        let after = self.index.groups.partition_point(|group| group.first_seqno <= seqno);
        // Groups without an event have the seqno of the next one: begin with the first.
        let mut start = after.saturating_sub(1);
        while let Some(before) = start.checked_sub(1)
            && self.index.groups.get(before).is_some_and(|group| group.first_seqno == seqno)
        {
            start = before;
        }
        Steps::new(self, start, self.index.groups.len())
    }

    /// Leaves out a last group that is not all there: of a trace that is still being
    /// written what has been given out once then stays as it was, whatever comes.
    pub fn leave_out_ragged(&mut self) {
        if std::mem::take(&mut self.ragged) {
            self.index.groups.pop();
        }
    }

    /// How many groups of events have been read or found so far: a place that
    /// [`Trace::steps_from_group`] goes on from after [`Trace::refresh`], where
    /// the last group was whole.
    pub fn group_count(&self) -> usize {
        self.index.groups.len()
    }

    /// The merged order from a group on, counted from 0.
    pub fn steps_from_group(&self, group: usize) -> Steps<'_> {
        Steps::new(self, group.min(self.index.groups.len()), self.index.groups.len())
    }

    /// The merged order from the first group that reaches `ns`.
    pub fn steps_from_ns(&self, ns: u64) -> Steps<'_> {
        let start = self.index.groups.iter().position(|group| self.to_ns(group.last) >= ns);
        Steps::new(self, start.unwrap_or(self.index.groups.len()), self.index.groups.len())
    }

    /// The seqno with which [`Trace::steps_from_ns`] begins: all events before
    /// it have happened before `ns`.
    pub fn seqno_before_ns(&self, ns: u64) -> u64 {
        let group = self.index.groups.iter().find(|group| self.to_ns(group.last) >= ns);
        group.map_or(self.event_count(), |group| group.first_seqno)
    }

    /// What a scan for unreachable blocks found, or why there was none.
    ///
    /// # Errors
    /// [`TraceError::Read`]. A damaged record counts as none.
    pub fn reach(&self) -> Result<Scanned, TraceError> {
        let not = |why: &str| Ok(Scanned::Not(why.to_string()));
        let asked = self.meta.options.iter().any(|option| option == LEAK_CHECK);
        let named = self.end.as_ref().and_then(|end| end.scan.clone());
        let offset = match (named, self.scanned_at) {
            (Some(ScanRef::NotScanned(why)), _) => return not(&why),
            (Some(ScanRef::At(offset)), _) | (None, Some(offset)) => offset,
            (None, None) if asked && self.end.is_none() => {
                return not("the recording has no end: the recorder was killed, or still records");
            }
            (None, None) if asked => return not("the recording ended before the program did"),
            (None, None) => return not("recorded without --leak-check"),
        };
        match self.read_reach(offset)? {
            Some(reach) => Ok(Scanned::Done(Box::new(reach))),
            None => not("the record of the scan is damaged"),
        }
    }

    fn read_reach(&self, mut offset: u64) -> Result<Option<Reach>, TraceError> {
        let mut buffers = Buffers::default();
        let (mut all, mut raw) = (Vec::new(), Vec::new());
        let mut part = 0;
        loop {
            let Some(header) = self.source.header(offset)? else { return Ok(None) };
            if !header.is(BlockKind::Reach) || header.first_epoch != part || all.len() > MAX_REACH {
                return Ok(None);
            }
            if self.source.payload(offset, &header, &mut buffers, &mut raw)?.is_err() {
                return Ok(None);
            }
            all.extend_from_slice(&raw);
            part += 1;
            if part >= header.last_epoch {
                return Ok(reach::decode(&all));
            }
            offset = offset.saturating_add(header.total());
        }
    }

    /// Whoever reads its events from now on tells how far it is.
    pub fn tell_progress(&mut self, progress: Option<Progress>) {
        self.progress = progress;
    }

    /// Seqnos at which there are keyframes, also those that are differences to one.
    pub fn keyframes(&self) -> impl Iterator<Item = u64> + '_ {
        self.index.keyframes.iter().filter(|keyframe| keyframe.begins()).map(|keyframe| keyframe.seqno)
    }

    /// Reads and checks every block; what is damaged goes to [`Trace::warnings`].
    ///
    /// # Errors
    /// [`TraceError::Read`].
    pub fn verify(&mut self) -> Result<(), TraceError> {
        let mut found = Vec::new();
        let mut steps = self.steps();
        while steps.next()?.is_some() {}
        found.extend_from_slice(steps.warnings());
        let mut buffers = Buffers::default();
        for keyframe in &self.index.keyframes {
            if !self.is_keyframe(keyframe, &mut buffers)? {
                found.push(Warning::Damaged {
                    offset: keyframe.offset,
                    kind: keyframe.kind.block(),
                    events: 0,
                    what: "it cannot be read",
                });
            }
        }
        if let Some(ScanRef::At(offset)) = self.end.as_ref().and_then(|end| end.scan.clone())
            && self.read_reach(offset)?.is_none()
        {
            let kind = Some(BlockKind::Reach);
            found.push(Warning::Damaged { offset, kind, events: 0, what: "it cannot be read" });
        }
        for what in Kept::EACH {
            if let Some(offset) = self.index.kept[what as usize]
                && self.kept_at(what, offset)?.is_none()
            {
                let kind = Some(what.kind());
                found.push(Warning::Damaged { offset, kind, events: 0, what: "it cannot be read" });
            }
        }
        for warning in found {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        Ok(())
    }

    /// Can a part of a keyframe, of a difference or of totals be read?
    fn is_keyframe(&self, place: &KeyframeRef, buffers: &mut Buffers) -> Result<bool, TraceError> {
        if let FrameKind::Other(_) = place.kind {
            return Ok(true);
        }
        let Some(header) = self.keyframe_header(place)? else { return Ok(false) };
        let (mut raw, mut blocks) = (Vec::new(), Vec::new());
        if self.source.payload(place.offset, &header, buffers, &mut raw)?.is_err() {
            return Ok(false);
        }
        Ok(match place.kind {
            FrameKind::Difference if place.part == 0 => {
                read_difference(&raw, place.seqno, header.count, &mut blocks).is_some()
            }
            FrameKind::Whole | FrameKind::Difference | FrameKind::Base => {
                read_live(&raw, header.count, &mut blocks).is_some()
            }
            FrameKind::Totals | FrameKind::Other(_) => true,
        })
    }

    fn damaged(&mut self, offset: u64, kind: Option<BlockKind>, events: u64, what: &'static str) {
        self.warnings.push(Warning::Damaged { offset, kind, events, what });
    }

    /// The payload of the block at `offset` if it is a sound one of this kind;
    /// a warning otherwise.
    fn block(&mut self, offset: u64, kind: BlockKind) -> Result<Option<(Vec<u8>, u32)>, TraceError> {
        let mut raw = Vec::new();
        let what = match self.source.header(offset)? {
            Some(header) if header.is(kind) => {
                match self.source.payload(offset, &header, &mut self.buffers, &mut raw)? {
                    Ok(()) => return Ok(Some((raw, header.count))),
                    Err(what) => what,
                }
            }
            Some(_) => "another block stands in its place",
            None => "its header is damaged",
        };
        self.damaged(offset, Some(kind), 0, what);
        Ok(None)
    }

    fn read_end(&mut self) -> Result<(), TraceError> {
        let offset = FILE_HEADER as u64;
        if self.size < (FILE_HEADER + END_BLOCK) as u64 {
            return Ok(());
        }
        self.end = match self.block(offset, BlockKind::End)? {
            Some((_, 0)) | None => None,
            Some((raw, _)) => match serde_json::from_slice(&raw) {
                Ok(end) => Some(end),
                Err(_) => {
                    self.damaged(offset, Some(BlockKind::End), 0, "it is not in the right form");
                    None
                }
            },
        };
        Ok(())
    }

    /// Is there a trailer at this place?
    fn is_trailer(&self, at: u64) -> Result<bool, TraceError> {
        let mut bytes = [0; TRAILER];
        let got = self.source.read(at, &mut bytes)?;
        Ok(got == TRAILER && parse_trailer(&bytes, self.source.file_id).is_some_and(|index| index < at))
    }

    /// Is the file whole: will nothing more come?
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    fn trailer(&self) -> Result<Option<u64>, TraceError> {
        let mut bytes = [0; TRAILER];
        let Some(at) = self.size.checked_sub(TRAILER as u64) else { return Ok(None) };
        self.source.read(at, &mut bytes)?;
        Ok(parse_trailer(&bytes, self.source.file_id))
    }

    fn read_index(&mut self, offset: u64) -> Result<Option<Index>, TraceError> {
        // A warning about it comes from the scan that follows.
        let Some(header) = self.source.header(offset)? else { return Ok(None) };
        if !header.is(BlockKind::Index) || offset.saturating_add(header.total() + TRAILER as u64) != self.size
        {
            return Ok(None);
        }
        let mut raw = Vec::new();
        let sound = self.source.payload(offset, &header, &mut self.buffers, &mut raw)?.is_ok();
        // What it names lies before it, and no number of events is beyond belief.
        let fits = |index: &Index| {
            index.definitions.iter().all(|&at| at < offset)
                && index.groups.iter().all(|group| group.end <= offset)
                && index.keyframes.iter().all(|keyframe| keyframe.offset < offset)
        };
        let mut index = if sound { Index::decode(&raw).filter(fits) } else { None };
        if let Some(index) = &mut index {
            index.kept = [header.last, header.serial].map(|at| Some(at).filter(|&at| at > 0 && at < offset));
        }
        Ok(index)
    }

    fn use_index(&mut self, index: Index) -> Result<(), TraceError> {
        self.read_meta(self.scanned)?;
        for &offset in &index.definitions {
            self.read_definitions(offset)?;
        }
        self.index = index;
        self.scanned = self.size;
        self.complete = true;
        Ok(())
    }

    fn read_meta(&mut self, offset: u64) -> Result<(), TraceError> {
        if let Some((raw, _)) = self.block(offset, BlockKind::Meta)? {
            match serde_json::from_slice(&raw) {
                Ok(meta) => self.meta = meta,
                Err(_) => self.damaged(offset, Some(BlockKind::Meta), 0, "it is not in the right form"),
            }
        }
        Ok(())
    }

    fn read_definitions(&mut self, offset: u64) -> Result<(), TraceError> {
        let Some((raw, _)) = self.block(offset, BlockKind::Definitions)? else { return Ok(()) };
        let sound = defs::read(&raw, |definition| match definition {
            Definition::Clock(point) => self.clock.add(point),
            Definition::Module(module) => {
                let known = self.modules.iter().position(|old| old.index == module.index);
                replace(&mut self.modules, known.unwrap_or(usize::MAX), module);
            }
            Definition::Thread(thread) => {
                let behind = self.threads.len();
                let at = *self.thread_places.entry(thread.thread).or_insert(behind);
                replace(&mut self.threads, at, thread);
            }
            Definition::Node(node) => self.nodes.define(node),
            Definition::Rss(sample) => self.rss.push(sample),
            Definition::Mark(mark) => self.marks.push(mark),
            Definition::Name(name) => self.names.push(name),
            Definition::Renumbered(run) => {
                // In the order of this trace's numbers; what comes again later counts for nothing.
                if self.renumbered.last().is_none_or(|last| last.seqno < run.seqno) {
                    self.renumbered.push(run);
                }
            }
            Definition::Note(note) => self.notes.push(note),
            Definition::LeftOut(what) => self.left_out.push(what),
        });
        if sound.is_none() {
            self.damaged(offset, Some(BlockKind::Definitions), 0, "a definition makes no sense");
        }
        Ok(())
    }

    /// Reads block after block from `self.scanned`. `trailer` is where the
    /// file's trailer says that its index is.
    fn scan(&mut self, trailer: Option<u64>) -> Result<(), TraceError> {
        let mut at = self.scanned;
        let mut cut = None;
        let mut appended = false;
        if self.size < at {
            cut = Some(FILE_HEADER as u64);
        }
        while at < self.size && cut.is_none() {
            self.scanned = at;
            let Some(header) = self.source.header(at)? else {
                if self.size - at == TRAILER as u64 && trailer.is_some() {
                    self.complete = true;
                    break;
                }
                if self.is_trailer(at)? {
                    // What stands behind it was appended when all was there.
                    appended = true;
                    at += TRAILER as u64;
                    continue;
                }
                let index = trailer == Some(at);
                match self.source.resync(at + 1, self.size)? {
                    Some((next, _)) => {
                        let kind = (at == (FILE_HEADER + END_BLOCK) as u64).then_some(BlockKind::Meta);
                        self.damaged(at, kind, 0, "its header is damaged");
                        at = next;
                    }
                    None if index => {
                        self.damaged(at, Some(BlockKind::Index), 0, "its header is damaged");
                        self.complete = true;
                        break;
                    }
                    None => cut = Some(at),
                }
                continue;
            };
            let end = at + header.total();
            if end > self.size {
                cut = Some(at);
                continue;
            }
            match BlockKind::from_u8(header.kind) {
                Some(BlockKind::Meta) => self.read_meta(at)?,
                Some(BlockKind::Definitions) => {
                    self.index.definitions.push(at);
                    self.read_definitions(at)?;
                }
                Some(BlockKind::Group | BlockKind::Events) => {
                    let (next, hole) = self.scan_group(at)?;
                    at = next;
                    cut = hole;
                    continue;
                }
                Some(
                    kind
                    @ (BlockKind::Keyframe | BlockKind::Difference | BlockKind::Totals | BlockKind::Base),
                ) => {
                    if let Some(kind) = FrameKind::of(kind) {
                        self.index.keyframes.push(KeyframeRef {
                            offset: at,
                            seqno: header.first,
                            stamp: header.last,
                            part: header.first_epoch,
                            parts: header.last_epoch,
                            kind,
                        });
                    }
                }
                Some(BlockKind::Index) => {
                    let sound = self.block(at, BlockKind::Index)?.is_some();
                    if sound && trailer == Some(at) {
                        self.damaged(at, Some(BlockKind::Index), 0, "it makes no sense");
                    }
                    if self.size - end == TRAILER as u64 && trailer.is_none() {
                        self.damaged(end, Some(BlockKind::Index), 0, "the trailer behind it is damaged");
                        self.complete = true;
                        at = self.size;
                        continue;
                    }
                }
                Some(BlockKind::Reach) => {
                    if header.first_epoch == 0 {
                        self.scanned_at = Some(at);
                    }
                }
                Some(BlockKind::Outcome) => self.index.kept[Kept::Outcome as usize] = Some(at),
                Some(BlockKind::Evidence) => self.index.kept[Kept::Evidence as usize] = Some(at),
                Some(BlockKind::End) => {}
                None => self.damaged(at, None, 0, "a kind that this version does not know"),
            }
            at = end;
        }
        if appended && trailer.is_none() {
            // Whoever appended was interrupted; nothing of the recording is missing.
            self.complete = true;
            return Ok(());
        }
        if let Some(offset) = cut {
            self.warnings.push(Warning::CutTail { offset, bytes: self.size - offset });
        } else {
            self.scanned = at.min(self.size).max(self.scanned);
        }
        self.warnings.push(Warning::MissingIndex);
        Ok(())
    }

    /// Takes in the group at `at`; returns where the next block is, and where
    /// the file is cut if it is cut in this group.
    fn scan_group(&mut self, at: u64) -> Result<(u64, Option<u64>), TraceError> {
        let Some(header) = self.source.header(at)? else { return Ok((at + 1, None)) };
        let mut raw = Vec::new();
        let mut table = None;
        let mut next = at;
        if header.is(BlockKind::Group) {
            next = at + header.total();
            let what = match self.source.payload(at, &header, &mut self.buffers, &mut raw)? {
                Ok(()) => {
                    table = read_table(&raw);
                    "its table makes no sense"
                }
                Err(what) => what,
            };
            if table.is_none() {
                self.damaged(at, Some(BlockKind::Group), 0, what);
            }
        }
        let mut group = GroupRef {
            offset: at,
            end: next,
            serial: header.serial,
            first_seqno: self.event_count(),
            events: 0,
            first: u64::MAX,
            last: 0,
        };
        let mut take = |block: &BlockInfo| {
            group.events += u64::from(block.events);
            group.first = group.first.min(block.first);
            group.last = group.last.max(block.last);
        };
        let mut hole = None;
        if let Some(table) = table {
            let blocks = GroupBlocks::from_table(next, table).blocks;
            for (offset, block) in &blocks {
                take(block);
                next = offset.saturating_add(block.total);
                if next > self.size && hole.is_none() {
                    hole = Some(*offset);
                }
            }
        } else {
            while let Some(header) = self.source.header(next)? {
                let end = next + header.total();
                if !header.is(BlockKind::Events) || header.serial != group.serial || end > self.size {
                    break;
                }
                take(&info(&header));
                next = end;
            }
        }
        group.end = next.min(self.size);
        self.index.groups.push(group);
        if hole.is_some() {
            self.ragged = true;
            self.count_ragged()?;
        }
        Ok((group.end, hole))
    }

    /// How many events of the last group can be given out although it is cut.
    fn count_ragged(&mut self) -> Result<(), TraceError> {
        let last = self.index.groups.len().saturating_sub(1);
        let mut steps = Steps::new(self, last, last + 1);
        // Pairs do not matter here: do not look back for them.
        steps.without_lookback();
        let first = steps.seqno();
        while steps.next()?.is_some() {}
        let events = steps.seqno() - first;
        if let Some(group) = self.index.groups.last_mut() {
            group.events = events;
        }
        Ok(())
    }
}

/// Puts a definition in the place of an older one, or at the end if there is none.
fn replace<T>(all: &mut Vec<T>, at: usize, new: T) {
    match all.get_mut(at) {
        Some(old) => *old = new,
        None => all.push(new),
    }
}

/// Checks the first bytes; the file's id.
fn check_file_header(source: &Source) -> Result<u64, TraceError> {
    let mut bytes = [0; FILE_HEADER];
    let got = source.read(0, &mut bytes)?;
    let path = source.path.clone();
    let head = bytes.get(..got).unwrap_or_default();
    if head.is_empty() {
        return Err(TraceError::Empty { path });
    }
    let magic = head.len().min(FILE_MAGIC.len());
    if head.get(..magic) != FILE_MAGIC.get(..magic) {
        // One wrong byte in a file that goes on like ours is damage.
        let wrong = head.iter().zip(FILE_MAGIC).filter(|(a, b)| *a != b).count();
        if wrong <= 2 && got == FILE_HEADER {
            return Err(TraceError::Header { path, what: "its first eight bytes are not a trace's" });
        }
        let (looks_like, advice) = looks_like(head);
        return Err(TraceError::Foreign { path, looks_like, advice });
    }
    if got < FILE_HEADER {
        return Err(TraceError::Header { path, what: "the file ends inside it" });
    }
    match parse_file_header(&bytes) {
        None => Err(TraceError::Header { path, what: "its checksum does not match" }),
        Some((version, _)) if version > FORMAT_VERSION => {
            Err(TraceError::Newer { path, version, supported: FORMAT_VERSION })
        }
        Some((version, _)) if version < FORMAT_VERSION => {
            Err(TraceError::Header { path, what: "its version is one from before the first release" })
        }
        Some((_, id)) => Ok(id),
    }
}

/// What a file that is no trace seems to be, and what to do about it.
fn looks_like(head: &[u8]) -> (&'static str, &'static str) {
    const RECORD: &str = "give a .hwt file made by `highwater run`";
    const IMPORT: &str = "unpack it first, or `highwater import` it";
    if head.starts_with(b"\x7fELF") {
        return ("an ELF program", "record it with `highwater run -- PROGRAM`");
    }
    if head.starts_with(&[0x1f, 0x8b]) {
        return ("gzip data", IMPORT);
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return ("zstd data", IMPORT);
    }
    // heaptrack's text begins with its version: `v 10500 3`.
    if head.starts_with(b"v ") && head.get(2).is_some_and(u8::is_ascii_digit) {
        return ("a heaptrack file", "`highwater import` it");
    }
    if head.starts_with(b"PAR1") {
        return ("a Parquet file", RECORD);
    }
    if head.first() == Some(&b'{') || head.first() == Some(&b'[') {
        return ("JSON", RECORD);
    }
    if head.iter().all(|&byte| byte == 0) {
        return ("nothing but zero bytes", RECORD);
    }
    if head.iter().all(|&byte| byte >= 32 && byte != 127 || matches!(byte, b'\n' | b'\r' | b'\t')) {
        return ("text", IMPORT);
    }
    ("unknown data", RECORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{BLOCK_HEADER, BlockHeader, trailer};
    use crate::model::{ClockPoint, EventBlock, LiveBlock, NodeDef, Step};
    use crate::{Compression, Writer, WriterOptions};
    use highwater_event::api::ApiKind;

    /// A file with every kind of block, not compressed.
    fn sample(path: &Path) -> Vec<u8> {
        let options = WriterOptions { compression: Compression::None, ..WriterOptions::default() };
        let mut writer = Writer::create(path, &Meta::default(), options).expect("create");
        writer.clock(ClockPoint { stamp: 5, ns: 6 }).expect("clock");
        writer.nodes(&[NodeDef { id: 1, parent: 0, pc: 9, module: 0 }]).expect("nodes");
        for epoch in 0..6u32 {
            for thread in 0..3 {
                // A free of one byte pointer and one byte stamp.
                let payload = [0x26u8, 0x20, 3 + thread as u8].repeat(5 + epoch as usize);
                let start =
                    highwater_event::codec::State { stamp: u64::from(epoch) * 50, ..Default::default() };
                writer
                    .events(&EventBlock { thread, events: 5 + epoch, start, payload: &payload })
                    .expect("events");
            }
            writer.end_epoch().expect("epoch");
            if epoch % 2 == 1 {
                writer.flush().expect("flush");
            }
        }
        let live = LiveBlock {
            addr: 1,
            size: 2,
            usable: None,
            node: 1,
            thread: 1,
            api: ApiKind::New,
            seqno: 1,
            ns: 2,
        };
        writer.keyframe(&[live]).expect("keyframe");
        writer.finish(&End::default()).expect("finish");
        std::fs::read(path).expect("read")
    }

    /// Changes that carry right checksums: nothing that a hostile file says
    /// may lead to a panic, an endless loop, or numbers out of order.
    #[test]
    fn hostile_files_with_right_checksums_are_survived() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("t.hwt");
        let bytes = sample(&path);
        let trace = Trace::open(&path).expect("open");
        assert_eq!((trace.warnings(), trace.event_count()), (&[][..], 3 * (5 + 6 + 7 + 8 + 9 + 10)));
        let id = trace.source.file_id;
        let mut places = Vec::new();
        let mut at = (FILE_HEADER + END_BLOCK) as u64;
        while let Some(header) = trace.source.header(at).expect("read") {
            places.push((at as usize, header));
            at += header.total();
        }
        assert!(places.len() > 12);
        let mut seed = 0xabcd_ef01_2345u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed as usize
        };
        for _ in 0..6_000 {
            let mut evil = bytes.clone();
            for _ in 0..1 + random() % 2 {
                let (at, header) = places[random() % places.len()];
                let total = header.total() as usize;
                let mut values = [0, 1, 0x7f, 0x80, 0xff, random() as u8];
                values[5] ^= 0x55;
                let mut place = random() % total;
                if (60..64).contains(&place) || place < 4 {
                    place = 8;
                }
                evil[at + place] = values[random() % 6];
                let crc = crc32fast::hash(&evil[at + BLOCK_HEADER..at + total]);
                evil[at + 56..at + 60].copy_from_slice(&crc.to_le_bytes());
                // Sealed anew: the header's own fields as they are now.
                let mut hasher = crc32fast::Hasher::new();
                hasher.update(&id.to_le_bytes());
                hasher.update(&(at as u64).to_le_bytes());
                hasher.update(&evil[at..at + 60]);
                evil[at + 60..at + 64].copy_from_slice(&hasher.finalize().to_le_bytes());
                let sealed: [u8; BLOCK_HEADER] = evil[at..at + BLOCK_HEADER].try_into().expect("header");
                let _ = BlockHeader::decode(&sealed, id, at as u64);
            }
            if random() % 4 == 0 {
                let len = evil.len();
                evil[len - TRAILER..].copy_from_slice(&trailer(id, random() as u64));
            }
            std::fs::write(&path, &evil).expect("write");
            let mut trace = Trace::open(&path).expect("open");
            let (mut steps, mut next) = (trace.steps(), 0);
            while let Some(step) = steps.next().expect("read") {
                if let Step::Event(event) = step {
                    assert!(event.seqno >= next && event.seqno < trace.event_count());
                    next = event.seqno + 1;
                }
            }
            let _ = trace.keyframe_before(u64::MAX).expect("read");
            let _ = trace.steps_from(trace.event_count() / 2).next().expect("read");
            let _ = trace.steps_from_ns(40).next().expect("read");
            trace.verify().expect("verify");
        }
    }
}
