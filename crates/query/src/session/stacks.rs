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

/// Nodes of which [`Truncations`] remembers something: more than programs make, and not
/// more memory (32 MiB) than a file should cost that says it has others.
const REMEMBERED: usize = 1 << 22;

/// Why stacks are not complete, of many: what they have in common is looked at once.
pub(crate) struct Truncations<'a> {
    session: &'a Session,
    /// By node; without frames where it is not known.
    known: Vec<Known>,
    path: Vec<NodeId>,
}

/// How the stack of a node ends.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Its frames, the node of a truncation and one that is lost included.
    frames: u32,
    truncation: Option<Truncation>,
}

impl<'a> Truncations<'a> {
    /// Nothing is known yet.
    pub fn new(session: &'a Session) -> Truncations<'a> {
        Truncations { session, known: Vec::new(), path: Vec::new() }
    }

    /// [`Session::truncation`]
    pub fn of(&mut self, node: NodeId) -> Option<Truncation> {
        if node == ROOT {
            return Some(Truncation::NotTaken);
        }
        self.path.clear();
        let (mut id, complete) = (node, Known::default());
        let end = loop {
            if let Some(known) = self.known.get(id as usize).filter(|known| known.frames > 0) {
                break *known;
            }
            if self.path.len() >= MAX_FRAMES {
                return Some(Truncation::TooDeep);
            }
            self.path.push(id);
            let Some(def) = self.session.source.node(id) else {
                break Known { truncation: Some(Truncation::BadStack), ..complete };
            };
            if def.module == Node::MARKER_MODULE {
                let reason = Truncation::from_u8(def.pc as u8).unwrap_or(Truncation::BadStack);
                break Known { truncation: Some(reason), ..complete };
            }
            if def.parent == ROOT {
                break complete;
            }
            id = def.parent;
        };
        let frames = end.frames as usize + self.path.len();
        if frames > MAX_FRAMES {
            return Some(Truncation::TooDeep);
        }
        self.remember(Known { frames: frames as u32, ..end });
        end.truncation
    }

    /// All nodes on the path end so; `first` is what is known of the first of them.
    fn remember(&mut self, first: Known) {
        for (above, &id) in (0u32..).zip(&self.path) {
            let at = id as usize;
            if at >= REMEMBERED {
                continue;
            }
            if at >= self.known.len() {
                self.known.resize((at + 1).next_power_of_two(), Known::default());
            }
            if let Some(known) = self.known.get_mut(at) {
                *known = Known { frames: first.frames.saturating_sub(above), ..first };
            }
        }
    }
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
        Truncations::new(self).of(node)
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
    fn what_is_remembered_of_truncations_is_what_each_stack_says() {
        let mut made =
            Made::default().truncated(1, Truncation::NoUnwindInfo).truncated(2, Truncation::TooDeep);
        let mut random = 1u64;
        for node in 3..400u32 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            // Of some the parent is lost.
            let parent = if node % 40 == 0 { 9_999 } else { (random >> 40) as u32 % node };
            made = made.node(node, parent, "f", "a.c", 1);
        }
        let session = made.session();
        let mut all = Truncations::new(&session);
        let mut seen = std::collections::BTreeSet::new();
        for node in (0..402).chain(0..402) {
            assert_eq!(all.of(node), session.truncation(node), "{node}");
            seen.insert(session.truncation(node).map(|reason| reason as u8));
        }
        assert_eq!(seen.len(), 5, "{seen:?}");
    }

    #[test]
    fn a_long_stack_is_too_deep_whatever_is_remembered_of_its_parts() {
        let mut made = Made::default();
        let frames = MAX_FRAMES as u32 + 10;
        for node in 1..=frames {
            made = made.node(node, node - 1, "f", "a.c", 1);
        }
        let session = made.session();
        let mut all = Truncations::new(&session);
        for node in (1..=frames).step_by(MAX_FRAMES / 8).chain([frames - 11, frames - 10, frames - 9, frames])
        {
            let wanted = (node > MAX_FRAMES as u32).then_some(Truncation::TooDeep);
            assert_eq!(all.of(node), wanted, "{node}");
        }
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
