//! `dump`.

use std::io::Write;

use super::args::Options;
use super::names::Names;
use super::record::Style;
use super::{Failure, Named, format, select};

/// Can the dump serve the options?
pub(super) fn check(options: &Options, of: &Named, exe: bool) -> Result<(), Failure> {
    options.filters.iter().try_for_each(|f| f.check(of))?;
    options.sort.iter().try_for_each(|k| k.check(of))?;
    options.format.iter().try_for_each(|pieces| format::check(pieces, of, exe))
}

/// How records are shown.
pub(super) fn style<'a>(options: &'a Options, names: Option<&'a mut dyn Names>) -> Style<'a> {
    Style { format: options.format.as_deref(), ignore: options.ignore.as_deref(), names }
}

/// Writes the live blocks of one dump.
pub(super) fn write<'a>(
    options: &'a Options,
    of: &Named,
    names: Option<&'a mut dyn Names>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    check(options, of, names.is_some())?;
    let mut style = style(options, names);
    for block in select::chosen(of.dump.live.iter(), &options.filters, &options.sort) {
        let line = style.line(&of.dump, block, &block.made);
        out.write_all(line.by_address(&style).as_bytes())?;
    }
    Ok(())
}
