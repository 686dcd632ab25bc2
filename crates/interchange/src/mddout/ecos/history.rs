//! `history`.

use std::io::Write;

use super::args::Options;
use super::names::Names;
use super::{Failure, Named, dump};
use crate::mddout::merge::{self, MergeError};
use crate::mddout::model::Dump;

/// Writes the events of one run out of its dumps.
pub(super) fn write<'a>(
    options: &'a Options,
    files: &[Named],
    names: Option<&'a mut dyn Names>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    for of in files {
        dump::check(options, of, names.is_some())?;
    }
    let dumps: Vec<Dump> = files.iter().map(|f| f.dump.clone()).collect();
    let history = merge::merge(&dumps).map_err(|error| {
        let name = match error {
            MergeError::Stranger { index, .. } => files.get(index).map_or("", |f| &f.name),
            MergeError::Nothing => "",
        };
        Failure::Missing(format!("{name} {error}"))
    })?;
    // thread numbers are never given out again: the latest table has them all
    let Some(tables) = dumps.iter().max_by_key(|d| (d.threads.len(), d.counters.next_seq)) else {
        return Ok(());
    };
    if !history.complete {
        writeln!(out, "Caution: history is incomplete.\n")?;
    }
    let mut style = dump::style(options, names);
    let mut show = |entry: &merge::Entry| -> Result<(), Failure> {
        let event = entry.event();
        if options.filters.iter().all(|f| f.passes(&entry.block, event)) {
            let line = style.line(tables, &entry.block, event);
            let freed_later = entry.freed && entry.ended.is_none();
            out.write_all(line.by_operation(&style, freed_later).as_bytes())?;
        }
        Ok(())
    };
    if options.reverse {
        history.entries.iter().rev().try_for_each(&mut show)
    } else {
        history.entries.iter().try_for_each(&mut show)
    }
}
