//! `diff`: blocks are the same if their numbers are, so that a block that was
//! released and made again at its old address is another one.

use std::collections::HashSet;
use std::io::Write;

use super::args::Options;
use super::names::Names;
use super::stats::kilobytes;
use super::{Failure, Named, dump, select};
use crate::mddout::merge;
use crate::mddout::model::Block;

/// Writes what is new in the second dump and what is gone from the first.
pub(super) fn write<'a>(
    options: &'a Options,
    before: &Named,
    after: &Named,
    names: Option<&'a mut dyn Names>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    for of in [before, after] {
        dump::check(options, of, names.is_some())?;
    }
    merge::same_run(&[before.dump.clone(), after.dump.clone()])
        .map_err(|error| Failure::Missing(format!("{} {error}", after.name)))?;
    let numbers = |of: &Named| of.dump.live.iter().map(|b| b.made.seq).collect::<HashSet<_>>();
    let (old, now) = (numbers(before), numbers(after));
    let only = |of: &'_ Named, other: &HashSet<u32>| -> Vec<Block> {
        of.dump.live.iter().filter(|b| !other.contains(&b.made.seq)).cloned().collect()
    };
    let (new, freed) = (only(after, &old), only(before, &now));
    for of in [before, after] {
        let (used, count) = (kilobytes(of.dump.live_bytes()), of.dump.live.len());
        writeln!(out, "File {} : {used} used in {count} allocations.", of.name)?;
    }
    let (a, b) = (&before.name, &after.name);
    writeln!(out, "{} new allocations in {b} but not in {a}", new.len())?;
    writeln!(out, "{} allocations in {a} but freed in {b}", freed.len())?;
    let mut style = dump::style(options, names);
    for (title, of, blocks) in [
        (format!("New allocations in {b} but not in {a}"), after, &new),
        (format!("Allocations in {a} but freed in {b}"), before, &freed),
    ] {
        writeln!(out, "\n{title}")?;
        for block in select::chosen(blocks.iter(), &options.filters, &options.sort) {
            let line = style.line(&of.dump, block, &block.made);
            out.write_all(line.by_address(&style).as_bytes())?;
        }
    }
    Ok(())
}
