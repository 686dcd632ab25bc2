//! `tree`: who called whom, and what that holds.

use std::io::{self, Write};
use std::sync::Arc;

use highwater_query::tree::{Direction, Node, Tree};
use highwater_query::{Metric, Row, Session, Stack, Value};

use crate::human::{bytes, count, counted, percent};
use crate::json::Json;
use crate::look::Look;
use crate::{modes, parts};

/// What is shown of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Show {
    /// Nodes with a smaller share, in tenths of a percent, are left out.
    pub least: u64,
    /// Lines at most.
    pub lines: usize,
    /// Levels at most.
    pub depth: usize,
    /// Are branches drawn with lines that are not ASCII?
    pub unicode: bool,
}

impl Show {
    /// Everything.
    pub const ALL: Show = Show { least: 0, lines: usize::MAX, depth: usize::MAX, unicode: true };

    fn shows(&self, tree: &Tree, node: &Node) -> bool {
        let (part, whole) = (tree.weight(node.bytes, node.blocks), tree.weight(tree.bytes, tree.blocks));
        u128::from(part) * 1000 >= u128::from(self.least) * u128::from(whole)
    }

    /// Those of `all` that are large enough.
    fn shown(&self, tree: &Tree, all: &[usize]) -> Vec<usize> {
        all.iter()
            .copied()
            .filter(|&at| tree.nodes.get(at).is_some_and(|node| self.shows(tree, node)))
            .collect()
    }
}

/// Columns of the rows: one for each node, parents first.
pub const COLUMNS: &[&str] = &[
    "depth",
    "bytes",
    "blocks",
    "self_bytes",
    "self_blocks",
    "address",
    "function",
    "file",
    "line",
    "module",
    "path",
];

/// Calls `each` with every node that is shown, parents before children: its
/// depth and the numbers of the nodes from its root to it.
///
/// # Errors
/// Those of `each`.
pub fn walk<E>(
    tree: &Tree,
    show: &Show,
    mut each: impl FnMut(&Node, &[usize]) -> Result<(), E>,
) -> Result<(), E> {
    let mut path: Vec<usize> = Vec::new();
    let mut open: Vec<(usize, usize)> =
        show.shown(tree, &tree.roots).into_iter().rev().map(|root| (0, root)).collect();
    let mut lines = 0;
    while let Some((depth, at)) = open.pop() {
        let Some(node) = tree.nodes.get(at) else { continue };
        if lines == show.lines {
            break;
        }
        lines += 1;
        path.truncate(depth);
        path.push(at);
        each(node, &path)?;
        if depth + 1 < show.depth {
            let children = show.shown(tree, &node.children);
            open.extend(children.into_iter().rev().map(|child| (depth + 1, child)));
        }
    }
    Ok(())
}

/// A node as a row.
pub fn row(tree: &Tree, node: &Node, path: &[usize]) -> Row {
    let names: Vec<&str> =
        path.iter().filter_map(|&at| tree.nodes.get(at)).map(|node| &*node.label).collect();
    let frame = &node.frame;
    let values = vec![
        Value::Number(path.len() as u64 - 1),
        Value::Number(node.bytes),
        Value::Number(node.blocks),
        Value::Number(node.own_bytes),
        Value::Number(node.own_blocks),
        Value::Address(frame.address),
        Value::opt_text(highwater_query::stack::function(frame)),
        Value::opt_text(frame.file.as_deref()),
        Value::opt_number(frame.line.map(u64::from)),
        Value::opt_text(Some(&*frame.module).filter(|module| !module.is_empty())),
        Value::text(&names.join(";")),
    ];
    let stack = Stack { frames: vec![Arc::new(frame.clone())], truncated: None, site: 0 };
    Row { columns: COLUMNS, values, stack: Some(stack.into()) }
}

/// Writes a tree as JSON. A node whose children lie below the limit of depth has
/// `"cut": true`.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(
    out: W,
    session: &Session,
    tree: &Tree,
    direction: &Direction,
    show: &Show,
) -> io::Result<()> {
    let mut json = Json::document(out, "tree")?;
    json.field_str("metric", tree.metric.name())?;
    json.field_str("direction", direction.name())?;
    json.field_u64("bytes", tree.bytes)?;
    json.field_u64("blocks", tree.blocks)?;
    modes::json_error(&mut json, tree.variance)?;
    modes::json(&mut json, &session.modes(), None)?;
    json.key("roots")?;
    json.begin_array()?;
    // Levels that are open in the document; no recursion, for stacks may be deep.
    let mut open = 0;
    walk(tree, show, |node, path| {
        while open >= path.len() {
            json.end_array()?;
            json.end_object()?;
            open -= 1;
        }
        json.begin_object()?;
        json.field_addr("address", node.frame.address)?;
        parts::json_site(&mut json, Some(&node.frame))?;
        json.field_bool("inlined", node.frame.inlined)?;
        json.field_u64("bytes", node.bytes)?;
        json.field_u64("blocks", node.blocks)?;
        json.field_u64("self_bytes", node.own_bytes)?;
        json.field_u64("self_blocks", node.own_blocks)?;
        modes::json_error(&mut json, node.variance)?;
        if path.len() >= show.depth && !node.children.is_empty() {
            json.field_bool("cut", true)?;
        }
        json.key("children")?;
        json.begin_array()?;
        open += 1;
        Ok::<(), io::Error>(())
    })?;
    for _ in 0..open {
        json.end_array()?;
        json.end_object()?;
    }
    json.end_array()?;
    json.finish()?;
    Ok(())
}

/// Columns in front of the tree.
const COLUMNS_BEFORE: usize = 32;
/// Columns that a name has at least.
const LEAST_NAME: usize = 14;

/// What is counted, in words.
fn metric_words(metric: Metric) -> &'static str {
    match metric {
        Metric::Peak => "alive at the peak",
        Metric::Live => "alive",
        Metric::Leaked => "alive at the end",
        Metric::Allocated | Metric::Allocations => "allocated",
        Metric::Temporary => "temporary",
    }
}

/// Writes a tree as text. A frame that has one caller (or callee) only stands
/// right below it; branches are drawn.
///
/// # Errors
/// The output's.
pub fn text<W: Write>(
    out: &mut W,
    look: &Look,
    session: &Session,
    tree: &Tree,
    direction: &Direction,
    show: &Show,
) -> io::Result<()> {
    let way = match direction {
        Direction::TopDown => "callers above".to_string(),
        Direction::BottomUp => "callers below".to_string(),
        Direction::Callers(of) => format!("who calls {of}"),
        Direction::Callees(of) => format!("what {of} calls"),
    };
    if tree.roots.is_empty() {
        return writeln!(out, "nothing of that is {}", metric_words(tree.metric));
    }
    let strong = look.palette.strong;
    let what =
        if tree.metric == Metric::Temporary { String::new() } else { format!("{} in ", bytes(tree.bytes)) };
    let blocks = counted(tree.blocks, "block", "blocks");
    let sure = modes::give_or_take(tree.variance, 0);
    writeln!(out, "{strong}{what}{blocks}{strong:#} {}{sure}; {way}\n", metric_words(tree.metric))?;
    writeln!(out, "{strong}{:>10} {:>8} {:>10}  calls{strong:#}", "bytes", "share", "blocks")?;
    let mut drawing = Drawing { out, look, tree, show, lines: 0, left_out: 0 };
    drawing.level(&tree.roots)?;
    let left_out = drawing.left_out;
    if left_out > 0 {
        let dim = look.palette.dim;
        let hint = "not shown: --limit 0 --min-percent 0 show all";
        writeln!(out, "\n{dim}{} {hint}{dim:#}", counted(left_out as u64, "branch", "branches"))?;
    }
    match direction {
        Direction::TopDown => parts::hint(out, look, session, "tree --bottom-up", "the same from the sites"),
        _ => parts::hint(out, look, session, "tree", "the same from the top"),
    }
}

struct Drawing<'a, W: Write> {
    out: &'a mut W,
    look: &'a Look,
    tree: &'a Tree,
    show: &'a Show,
    lines: usize,
    left_out: usize,
}

/// A node that waits to be drawn: what stands in front of it and of its
/// children, and how deep it is.
struct Waiting {
    at: usize,
    before: String,
    below: String,
    depth: usize,
}

impl<W: Write> Drawing<'_, W> {
    fn level(&mut self, roots: &[usize]) -> io::Result<()> {
        let mut open: Vec<Waiting> = Vec::new();
        self.branches(roots, "", 0, &mut open);
        while let Some(waiting) = open.pop() {
            let Some(node) = self.tree.nodes.get(waiting.at) else { continue };
            if self.lines == self.show.lines {
                self.left_out += 1;
                continue;
            }
            self.lines += 1;
            self.line(node, &waiting.before)?;
            if waiting.depth + 1 < self.show.depth {
                self.branches(&node.children, &waiting.below, waiting.depth + 1, &mut open);
            } else {
                self.left_out += node.children.len();
            }
        }
        Ok(())
    }

    /// Puts the nodes of a level behind each other; a single one needs no branch.
    fn branches(&mut self, all: &[usize], below: &str, depth: usize, open: &mut Vec<Waiting>) {
        let shown = self.show.shown(self.tree, all);
        self.left_out += all.len() - shown.len();
        let room = self.look.width.saturating_sub(COLUMNS_BEFORE + LEAST_NAME);
        let flat = (shown.len() == 1 && all.len() == 1) || below.chars().count() + 3 > room;
        let last = shown.len().saturating_sub(1);
        for (number, &at) in shown.iter().enumerate().rev() {
            let (branch, rest) = match (flat, number == last, self.show.unicode) {
                (true, ..) => ("", ""),
                (false, true, true) => ("└─ ", "   "),
                (false, false, true) => ("├─ ", "│  "),
                (false, true, false) => ("`- ", "   "),
                (false, false, false) => ("|- ", "|  "),
            };
            let (before, below) = (format!("{below}{branch}"), format!("{below}{rest}"));
            open.push(Waiting { at, before, below, depth });
        }
    }

    fn line(&mut self, node: &Node, before: &str) -> io::Result<()> {
        let tree = self.tree;
        let share = percent(tree.weight(node.bytes, node.blocks), tree.weight(tree.bytes, tree.blocks));
        let size = if tree.metric == Metric::Temporary { "-".to_string() } else { bytes(node.bytes) };
        let width = self.look.width.saturating_sub(COLUMNS_BEFORE + before.chars().count());
        let name = match *node.label == *highwater_query::stack::function_name(&node.frame) {
            true => parts::frame_text(self.look, &node.frame, width),
            false => crate::human::middle(&node.label, width),
        };
        writeln!(self.out, "{size:>10} {share:>8} {:>10}  {before}{name}", count(node.blocks))
    }
}
