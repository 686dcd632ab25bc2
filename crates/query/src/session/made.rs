//! Sessions out of values: for tests of views, and for data that is in no file.

use std::path::PathBuf;
use std::sync::Arc;

use highwater_event::api::ApiKind;
use highwater_event::node::{Node, NodeId, Truncation};
use highwater_replay::Options;
use highwater_symbols::Origin;
use highwater_trace::model::{Event, Mark, NodeDef, Op, Special, Step, ThreadDef, ThreadNo};
use highwater_trace::reach::{Reach, Scanned};
use rustc_hash::FxHashMap;

use super::{Facts, Names, Session, Source};
use crate::inlining::Inlining;
use crate::modes::Modes;
use crate::stack::{Frame, pseudo};

/// Builds a [`Session`] value by value. Each event comes 10 ms after the one
/// before.
#[derive(Default)]
pub struct Made {
    /// The facts, to be changed at will.
    pub facts: Facts,
    steps: Vec<Step>,
    reach: Option<Reach>,
    nodes: FxHashMap<NodeId, NodeDef>,
    names: FxHashMap<u64, Arc<[Frame]>>,
    ns: u64,
    seqno: u64,
}

impl Made {
    /// A thread.
    #[must_use]
    pub fn thread(mut self, thread: ThreadNo, tid: u32, name: &str) -> Made {
        self.facts.threads.push(ThreadDef { thread, tid, name: name.to_string(), start: 0 });
        self
    }

    /// A node with one frame; its address is 0x1000 + its id.
    #[must_use]
    pub fn node(mut self, id: NodeId, parent: NodeId, function: &str, file: &str, line: u32) -> Made {
        let address = 0x1000 + u64::from(id);
        let frame = Frame {
            address,
            function: Some(function.into()),
            raw_name: Some(function.into()),
            file: Some(file.into()),
            line: Some(line),
            module: "/usr/bin/app".into(),
            module_offset: Some(u64::from(id)),
            origin: Origin::Debug,
            ..pseudo("")
        };
        self.nodes.insert(id, NodeDef { id, parent, pc: address, module: 0 });
        self.names.insert(address, Arc::new([frame]));
        self
    }

    /// A truncation marker.
    #[must_use]
    pub fn truncated(mut self, id: NodeId, reason: Truncation) -> Made {
        let pc = reason as u64;
        self.nodes.insert(id, NodeDef { id, parent: 0, pc, module: Node::MARKER_MODULE });
        self
    }

    /// A mark.
    #[must_use]
    pub fn mark(mut self, name: &str, ns: u64) -> Made {
        self.facts.marks.push(Mark { ns, name: name.to_string() });
        self
    }

    /// A `malloc`.
    #[must_use]
    pub fn alloc(self, thread: ThreadNo, addr: u64, size: u64, node: NodeId) -> Made {
        self.event(thread, addr, Op::Alloc { size, usable: None }, ApiKind::Malloc, node, None)
    }

    /// A `free` without a stack.
    #[must_use]
    pub fn free(self, thread: ThreadNo, addr: u64) -> Made {
        self.event(thread, addr, Op::Free, ApiKind::Free, 0, None)
    }

    /// Any event.
    #[must_use]
    pub fn event(
        mut self,
        thread: ThreadNo,
        addr: u64,
        op: Op,
        api: ApiKind,
        node: NodeId,
        pair: Option<u64>,
    ) -> Made {
        self.ns += 10_000_000;
        let (seqno, ns) = (self.seqno, self.ns);
        self.seqno += 1;
        self.facts.events += 1;
        self.steps.push(Step::Event(Event { seqno, ns, stamp: ns, thread, op, api, addr, node, pair }));
        self
    }

    /// What a scan found at the end.
    #[must_use]
    pub fn reach(mut self, reach: Reach) -> Made {
        self.reach = Some(reach);
        self
    }

    /// A special record.
    #[must_use]
    pub fn special(mut self, thread: ThreadNo, what: Special) -> Made {
        self.steps.push(Step::Special { ns: self.ns, thread, what });
        self
    }

    /// The session.
    pub fn session(mut self) -> Session {
        if self.facts.path.as_os_str().is_empty() {
            self.facts.path = PathBuf::from("highwater.app.1.hwt");
        }
        let reach = match self.reach {
            Some(reach) => Scanned::Done(Box::new(reach)),
            None => Scanned::Not("recorded without --leak-check".to_string()),
        };
        let sample = Modes::of(&self.facts.meta, None).sample;
        Session {
            facts: self.facts,
            source: Arc::new(Source::Made { steps: self.steps, nodes: self.nodes, reach }),
            names: Names::Made(self.names),
            stacks: FxHashMap::default(),
            places: FxHashMap::default(),
            asked: Default::default(),
            replay: Options { sample, ..Options::default() },
            inlining: Inlining::Shown,
            outcome: None,
            evidence: None,
            leave_alone: false,
        }
    }
}
