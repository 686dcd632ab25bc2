//! Stacks with names, and their sites.

use std::sync::Arc;

use highwater_event::node::{Node, NodeId, ROOT, Truncation};

use super::{Names, Session};
use crate::inlining::Inlining;
use crate::site;
use crate::stack::{Frame, Stack, pseudo};

/// Frames of a stack that are resolved; no agent walks as many.
const MAX_FRAMES: usize = 1 << 17;

/// An address in a module.
pub(super) struct Place {
    /// The frames that are shown of it.
    frames: Arc<[Arc<Frame>]>,
    /// The first of them that the user wrote.
    of_user: Option<usize>,
}

impl Session {
    /// The stack that a node stands for, with names. Kept, so asking again is
    /// cheap.
    pub fn stack(&mut self, node: NodeId) -> Arc<Stack> {
        if let Some(stack) = self.stacks.get(&node) {
            return Arc::clone(stack);
        }
        let stack = Arc::new(self.resolve(node));
        self.stacks.insert(node, Arc::clone(&stack));
        stack
    }

    /// Why the stack of `node` is not complete, if it is not; needs no names.
    pub fn truncation(&self, node: NodeId) -> Option<Truncation> {
        let mut id = node;
        if id == ROOT {
            return Some(Truncation::NotTaken);
        }
        for _ in 0..MAX_FRAMES {
            let Some(def) = self.source.node(id) else { return Some(Truncation::BadStack) };
            if def.module == Node::MARKER_MODULE {
                return Some(Truncation::from_u8(def.pc as u8).unwrap_or(Truncation::BadStack));
            }
            if def.parent == ROOT {
                return None;
            }
            id = def.parent;
        }
        Some(Truncation::TooDeep)
    }

    fn resolve(&mut self, node: NodeId) -> Stack {
        let mut frames = Vec::new();
        let (mut site, mut truncated) = (None, None);
        let mut id = node;
        for _ in 0..MAX_FRAMES {
            if id == ROOT {
                break;
            }
            let Some(def) = self.source.node(id) else {
                // Its definition was damaged.
                truncated = Some(Truncation::BadStack);
                frames.push(Arc::new(pseudo("truncated: the trace lost the rest")));
                break;
            };
            if def.module == Node::MARKER_MODULE {
                let reason = Truncation::from_u8(def.pc as u8);
                truncated = Some(reason.unwrap_or(Truncation::BadStack));
                let reason = reason.map_or("unknown reason", Truncation::name);
                frames.push(Arc::new(pseudo(&format!("truncated: {reason}"))));
                // The outer frames of a stack that --depth has cut are there.
                id = def.parent;
                continue;
            }
            let place = self.place(def.module, def.pc);
            site = site.or_else(|| Some(frames.len() + place.of_user?));
            frames.extend_from_slice(&place.frames);
            id = def.parent;
        }
        if node == ROOT {
            truncated = Some(Truncation::NotTaken);
            frames.push(Arc::new(pseudo(Truncation::NotTaken.name())));
        }
        frames.shrink_to_fit();
        Stack { site: site.unwrap_or_else(|| site::choose(&frames)), frames, truncated }
    }

    /// An address in a module; kept.
    fn place(&mut self, module: u16, pc: u64) -> &Place {
        if !self.places.contains_key(&(module, pc)) {
            let all = self.frames(module, pc);
            let frames: Arc<[Arc<Frame>]> = match self.inlining {
                Inlining::Shown => all.iter().cloned().map(Arc::new).collect(),
                _ => self.inlining.apply(&all).into_iter().map(Arc::new).collect(),
            };
            let of_user = site::first_of_user(&frames);
            self.places.insert((module, pc), Place { frames, of_user });
        }
        &self.places[&(module, pc)]
    }

    /// Asks for all names of a stack, so that [`Session::notes`] knows what is missing.
    pub(crate) fn ask(&mut self, node: NodeId) {
        let mut id = node;
        for _ in 0..MAX_FRAMES {
            if id == ROOT || !self.asked.insert(id) {
                break;
            }
            let Some(def) = self.source.node(id) else { break };
            if def.module != Node::MARKER_MODULE {
                self.place(def.module, def.pc);
            }
            id = def.parent;
        }
    }

    /// The frame of a stack that matters to the user: [`Stack::site`], without putting
    /// the stack together where that is not needed. A frame of one place is always the same one.
    pub(crate) fn site(&mut self, node: NodeId) -> Option<Arc<Frame>> {
        self.ask(node);
        let mut id = node;
        for _ in 0..MAX_FRAMES {
            if id == ROOT {
                break;
            }
            let Some(def) = self.source.node(id) else { break };
            if def.module != Node::MARKER_MODULE {
                let place = self.place(def.module, def.pc);
                if let Some(frame) = place.of_user.and_then(|at| place.frames.get(at)) {
                    return Some(Arc::clone(frame));
                }
            }
            id = def.parent;
        }
        let stack = self.stack(node);
        stack.frames.get(stack.site).cloned()
    }

    fn frames(&mut self, module: u16, pc: u64) -> Arc<[Frame]> {
        match &mut self.names {
            // Every address of a stack is a return address.
            Names::Symbols { symbolizer, modules, given } => {
                match (given.get(&(module, pc)), modules.get(&module)) {
                    (Some(frames), _) => Arc::clone(frames),
                    (None, Some(&id)) => symbolizer.frames(id, pc, true),
                    (None, None) => symbolizer.frames_no_module(pc, true),
                }
            }
            Names::Made(names) => match names.get(&pc) {
                Some(frames) => Arc::clone(frames),
                None => Arc::new([Frame {
                    address: pc,
                    function: None,
                    module: "[unknown]".into(),
                    ..pseudo("")
                }]),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;
    use crate::stack::is_pseudo;

    #[test]
    fn a_truncated_stack_says_why_in_its_last_frame() {
        let mut session = Made::default()
            .truncated(1, Truncation::NoUnwindInfo)
            .node(2, 1, "outer", "a.c", 1)
            .node(3, 2, "inner", "a.c", 2)
            .node(4, 0, "main", "a.c", 3)
            .session();
        let stack = session.stack(3);
        let names: Vec<_> = stack.frames.iter().map(|frame| frame.function.as_deref().unwrap()).collect();
        assert_eq!(names, ["inner", "outer", "[truncated: no unwind information for the address]"]);
        assert_eq!(stack.site, 0);
        assert_eq!(session.truncation(3), Some(Truncation::NoUnwindInfo));
        assert_eq!(session.truncation(4), None);
        assert_eq!(session.truncation(99), Some(Truncation::BadStack));
        assert!(is_pseudo(&session.stack(0).frames[0]));
    }

    #[test]
    fn a_site_is_that_of_the_stack_and_asks_for_all_names() {
        let made = || {
            Made::default()
                .truncated(1, Truncation::NoUnwindInfo)
                .node(2, 1, "std::thread::run", "a.c", 1)
                .node(3, 2, "work", "a.c", 2)
                .node(4, 3, "std::vector<int>::push_back(int)", "a.c", 3)
                .node(5, 4, "operator new(unsigned long)", "a.c", 4)
                // Nothing but a library.
                .node(6, 2, "malloc", "a.c", 5)
                .node(7, 99, "malloc", "a.c", 6)
                .session()
        };
        let names = |frame: &Frame| frame.function.as_deref().unwrap().to_string();
        let (mut whole, mut sites) = (made(), made());
        for node in [5, 4, 3, 2, 1, 6, 7, 0, 98, 5] {
            let (stack, site) = (whole.stack(node), sites.site(node));
            assert_eq!(site.as_deref(), stack.site(), "{node}");
        }
        assert_eq!(sites.site(5).as_deref().map(names).as_deref(), Some("work"));
        assert_eq!(sites.site(6).as_deref().map(names).as_deref(), Some("std::thread::run"));
        let mut asked = made();
        asked.ask(5);
        let places = |session: &Session| {
            let mut places: Vec<_> = session.places.keys().copied().collect();
            places.sort_unstable();
            places
        };
        whole = made();
        whole.stack(5);
        assert_eq!(places(&asked), places(&whole));
        assert_eq!(places(&asked).len(), 4);
    }
}
