//! Blocks put together: by site, stack, function, file, module, thread, entry
//! point or size.

use std::sync::Arc;

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_replay::{LiveBlock, Replay, SiteTotals};
use highwater_trace::model::ThreadNo;
use rustc_hash::FxHashMap;

use crate::session::Session;
use crate::stack::{Stack, base_name, function_name};

/// What to put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// Function and line of the site.
    #[default]
    Site,
    /// The whole stack.
    Stack,
    /// The site's function.
    Function,
    /// The site's source file.
    File,
    /// The site's module.
    Module,
    /// The allocating thread.
    Thread,
    /// The entry point.
    Api,
    /// The size, by powers of two.
    Size,
}

impl By {
    /// Is the stack all that this needs? Else the blocks themselves are needed.
    pub const fn needs_only_stacks(self) -> bool {
        matches!(self, By::Site | By::Stack | By::Function | By::File | By::Module)
    }

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            By::Site => "site",
            By::Stack => "stack",
            By::Function => "function",
            By::File => "file",
            By::Module => "module",
            By::Thread => "thread",
            By::Api => "api",
            By::Size => "size",
        }
    }
}

impl std::str::FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<By, String> {
        let all = [By::Site, By::Stack, By::Function, By::File, By::Module, By::Thread, By::Api, By::Size];
        all.into_iter().find(|by| by.name() == text).ok_or_else(|| {
            format!(
                "`{text}` is no grouping: there are site, stack, function, file, module, thread, api and size"
            )
        })
    }
}

/// Something with bytes and a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// From where.
    pub node: NodeId,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Allocations ever made there; equal to `blocks` for a single block.
    pub allocations: u64,
    /// Variance of `bytes`, where they are an estimate from a sample.
    pub variance: u64,
    /// Who, of single blocks.
    pub thread: Option<ThreadNo>,
    /// Entry point, of single blocks.
    pub api: Option<ApiKind>,
}

impl Item {
    /// What a site had at the global peak.
    pub fn at_peak(site: &SiteTotals) -> Item {
        Item {
            bytes: site.peak_bytes,
            blocks: site.peak_blocks,
            variance: site.peak_variance,
            ..Item::of(site)
        }
    }

    /// What a site has now.
    pub fn live(site: &SiteTotals) -> Item {
        Item {
            bytes: site.live_bytes,
            blocks: site.live_blocks,
            variance: site.live_variance,
            ..Item::of(site)
        }
    }

    fn of(site: &SiteTotals) -> Item {
        Item {
            node: site.node,
            bytes: 0,
            blocks: 0,
            allocations: site.allocations,
            variance: 0,
            thread: None,
            api: None,
        }
    }

    /// A block of `replay`, as what it stands for: itself, or all those that a
    /// sampled one represents.
    pub fn of_block(block: &LiveBlock, replay: &Replay) -> Item {
        let weight = replay.weight(block.size, block.seqno);
        Item {
            bytes: weight.bytes,
            blocks: weight.blocks,
            allocations: weight.blocks,
            variance: weight.variance,
            ..Item::from(block)
        }
    }
}

impl From<&LiveBlock> for Item {
    fn from(block: &LiveBlock) -> Item {
        Item {
            node: block.node,
            bytes: block.size,
            blocks: 1,
            allocations: 1,
            variance: 0,
            thread: Some(block.thread),
            api: Some(block.api),
        }
    }
}

/// Items that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they have in common, in words.
    pub label: String,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Allocations ever made there.
    pub allocations: u64,
    /// Variance of `bytes`, where they are an estimate from a sample.
    pub variance: u64,
    /// The stack that has most of the bytes.
    pub node: NodeId,
    /// The same, resolved.
    pub stack: Arc<Stack>,
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Text(String),
    Number(u64),
}

/// Puts items together, most bytes first (then most blocks, then by label).
/// Items without blocks do not count.
pub fn group(session: &mut Session, items: impl IntoIterator<Item = Item>, by: By) -> Vec<Group> {
    struct Sum {
        group: Group,
        most: u64,
    }
    let mut sums: FxHashMap<Key, Sum> = FxHashMap::default();
    for item in items {
        if item.blocks == 0 {
            continue;
        }
        let stack = session.stack(item.node);
        let site = stack.site();
        let text = |text: Option<&str>| Key::Text(text.unwrap_or("[unknown]").to_string());
        let key = match by {
            By::Site => Key::Text(site.map_or_else(
                || "[no stack]".to_string(),
                |frame| match (&frame.file, frame.line) {
                    (Some(file), line) => format!("{} ({file}:{})", function_name(frame), line.unwrap_or(0)),
                    (None, _) => format!("{} ({})", function_name(frame), frame.module),
                },
            )),
            By::Stack => Key::Number(u64::from(item.node)),
            By::Function => Key::Text(site.map_or_else(|| "[no stack]".to_string(), function_name)),
            By::File => text(site.and_then(|frame| frame.file.as_deref())),
            By::Module => text(site.map(|frame| base_name(&frame.module)).filter(|name| !name.is_empty())),
            By::Thread => Key::Number(item.thread.map_or(u64::MAX, u64::from)),
            By::Api => text(item.api.map(ApiKind::name)),
            // The bucket: number of bits of the size.
            By::Size => Key::Number(u64::from(64 - (item.bytes / item.blocks).leading_zeros())),
        };
        let sum = sums.entry(key).or_insert_with(|| Sum {
            group: Group {
                label: String::new(),
                bytes: 0,
                blocks: 0,
                allocations: 0,
                variance: 0,
                node: item.node,
                stack: Arc::clone(&stack),
            },
            most: 0,
        });
        sum.group.bytes = sum.group.bytes.saturating_add(item.bytes);
        sum.group.blocks += item.blocks;
        sum.group.allocations += item.allocations;
        sum.group.variance = sum.group.variance.saturating_add(item.variance);
        if item.bytes > sum.most {
            sum.most = item.bytes;
            sum.group.node = item.node;
            sum.group.stack = stack;
        }
    }
    let mut groups: Vec<Group> = sums
        .into_iter()
        .map(|(key, sum)| Group { label: label(session, by, &key, &sum.group), ..sum.group })
        .collect();
    groups.sort_by(|a, b| {
        b.bytes
            .cmp(&a.bytes)
            .then(b.blocks.cmp(&a.blocks))
            .then_with(|| a.label.cmp(&b.label))
            .then(a.node.cmp(&b.node))
    });
    groups
}

fn label(session: &Session, by: By, key: &Key, group: &Group) -> String {
    match (by, key) {
        (By::Thread, Key::Number(number)) => {
            let thread = ThreadNo::try_from(*number).unwrap_or(ThreadNo::MAX);
            match session.facts().thread(thread) {
                Some(def) if !def.name.is_empty() => format!("{thread} {}", def.name),
                _ => thread.to_string(),
            }
        }
        (By::Size, Key::Number(0)) => "0".to_string(),
        (By::Size, Key::Number(bits)) => {
            let low = 1u64 << (bits - 1).min(63);
            format!("{low}-{}", low + (low - 1))
        }
        (_, Key::Text(text)) => text.clone(),
        (_, Key::Number(_)) => group.stack.site().map_or_else(|| "[no stack]".to_string(), function_name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    fn item(node: NodeId, bytes: u64, thread: ThreadNo) -> Item {
        Item {
            node,
            bytes,
            blocks: 1,
            allocations: 1,
            variance: 0,
            thread: Some(thread),
            api: Some(ApiKind::Malloc),
        }
    }

    #[test]
    fn items_come_together_largest_first() {
        let mut session = Made::default()
            .thread(0, 7, "main")
            .node(1, 0, "main", "main.c", 3)
            .node(2, 1, "parse", "parse.c", 7)
            .node(3, 0, "parse", "parse.c", 7)
            .node(4, 1, "parse", "parse.c", 9)
            .session();
        let items = [item(2, 10, 0), item(3, 30, 1), item(4, 5, 0), item(1, 44, 0)];
        let mut labels = |by| -> Vec<(String, u64)> {
            group(&mut session, items, by).into_iter().map(|g| (g.label, g.bytes)).collect()
        };
        let owned = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
            list.iter().map(|(label, bytes)| (label.to_string(), *bytes)).collect()
        };
        assert_eq!(
            labels(By::Site),
            owned(&[("main (main.c:3)", 44), ("parse (parse.c:7)", 40), ("parse (parse.c:9)", 5)])
        );
        assert_eq!(labels(By::Function), owned(&[("parse", 45), ("main", 44)]));
        assert_eq!(labels(By::Stack).len(), 4);
        assert_eq!(labels(By::Thread), owned(&[("0 main", 59), ("1", 30)]));
        assert_eq!(labels(By::Size), owned(&[("32-63", 44), ("16-31", 30), ("8-15", 10), ("4-7", 5)]));
        assert_eq!(labels(By::Module), owned(&[("app", 89)]));
        assert_eq!(labels(By::Api), owned(&[("malloc", 89)]));
        assert_eq!(labels(By::File), owned(&[("parse.c", 45), ("main.c", 44)]));
    }
}
