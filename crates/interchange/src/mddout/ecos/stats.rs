//! `stats`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::Named;
use super::record::{address, kind_name};

/// `1268K (1298850 bytes)`, truncated.
pub(super) fn kilobytes(bytes: u64) -> String {
    format!("{}K ({bytes} bytes)", bytes / 1024)
}

/// Writes the statistics of one dump.
pub(super) fn write(of: &Named, out: &mut dyn Write) -> io::Result<()> {
    let dump = &of.dump;
    let (c, o) = (&dump.counters, &dump.options);
    writeln!(out, "{}: statistics", of.name)?;
    for (n, heap) in dump.heaps.iter().enumerate() {
        let label = if n == 0 { "Heap      " } else { "          " };
        let last = heap.end.saturating_sub(1); // inclusive
        let size = kilobytes(heap.end.saturating_sub(heap.start));
        writeln!(
            out,
            "{label}: {} to {}, size {size}",
            address(dump.abi, heap.start),
            address(dump.abi, last)
        )?;
    }
    writeln!(out, "History   : {} memory allocations, {} frees", c.allocs, c.frees)?;
    let current = dump.live_bytes();
    writeln!(out, "Current   : {} used in {} allocations", kilobytes(current), dump.live.len())?;
    if o.actual {
        let actual = dump.live.iter().fold(0u64, |sum, b| sum.saturating_add(b.actual.unwrap_or(0)));
        let overhead = actual.saturating_sub(current);
        let percent = u128::from(overhead) * 100 / u128::from(actual.max(1));
        writeln!(out, "Actual    : approximately {}", kilobytes(actual))?;
        writeln!(out, "Overhead  : approximately {}, {percent}%", kilobytes(overhead))?;
    }
    let (fixed, given) = (kilobytes(dump.static_bytes), kilobytes(dump.dynamic_bytes));
    writeln!(out, "Debugdata : approximately {fixed} static, {given} dynamic")?;
    writeln!(out, "          : (debug data is in addition to other overheads)")?;
    writeln!(out, "Allocators:")?;
    let mut kinds: BTreeMap<u8, u64> = BTreeMap::new();
    for block in &dump.live {
        *kinds.entry(block.made.kind).or_default() += 1;
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|&(kind, count)| (std::cmp::Reverse(count), kind));
    for (kind, count) in kinds {
        writeln!(out, "            {} {count}", kind_name(dump, kind))?;
    }
    if o.thread {
        writeln!(out, "Threads   :")?;
        for (n, t) in dump.threads.iter().enumerate() {
            writeln!(out, "{:9} : handle {}, {}", n + 1, address(dump.abi, t.handle), t.name)?;
        }
    }
    let is = |on: bool| if on { "enabled" } else { "disabled" };
    writeln!(
        out,
        "Options   : actual_size {}, time stamps {}, thread info {}",
        is(o.actual),
        is(o.time),
        is(o.thread)
    )?;
    match o.backtrace {
        0 => writeln!(out, "          : backtrace disabled")?,
        levels => writeln!(out, "          : backtrace enabled, {levels} levels")?,
    }
    match o.history {
        false => writeln!(out, "          : history disabled"),
        true => writeln!(out, "          : history enabled, {} records max", dump.history_capacity),
    }
}
