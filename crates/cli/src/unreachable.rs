//! `leaks --method unreachable` and `leaks --who`: what a scan found.

use std::io::Write;

use anyhow::{anyhow, bail};
use highwater_query::By;
use highwater_query::Session;
use highwater_query::leaks::reach::{self, Lost, Reach, Scanned};
use highwater_query::leaks::suppressions::Suppressions;
use highwater_render::{reach as view, who};

use crate::output::{self, Colour};

/// An address of the command line: `0x55d0…` or decimal.
///
/// # Errors
/// It is no number.
pub fn address(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    parsed.ok_or_else(|| format!("`{text}` is no address; write 0x55d0c0de1230"))
}

/// The classes, by site.
pub fn classes(
    session: &mut Session,
    colour: Colour,
    rules: &Suppressions,
    by: By,
    limit: usize,
    json: bool,
) -> anyhow::Result<()> {
    let scanned = reach::of(session)?;
    let lost = match &scanned {
        Scanned::Done(reach) => reach::lost(session, reach, rules),
        Scanned::Not(_) => Lost::default(),
    };
    let groups = reach::groups(session, &lost, by);
    let mut out = output::stdout();
    match &scanned {
        _ if json => view::json(&mut out, &scanned, &lost, &groups, by)?,
        Scanned::Done(reach) => {
            let show = view::Show { by, limit };
            view::text(&mut out, &colour.stdout(), session, reach, &lost, &groups, show)?;
        }
        Scanned::Not(why) => bail!("not scanned: {why}"),
    }
    Ok(out.flush()?)
}

/// The sums by class, where there was a scan.
pub fn sums(out: &mut impl Write, session: &mut Session, rules: &Suppressions) -> anyhow::Result<()> {
    if let Scanned::Done(reach) = reach::of(session)? {
        let lost = reach::lost(session, &reach, rules);
        writeln!(out)?;
        for line in view::class_lines(&lost) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Who points to the block at, or around, an address.
pub fn who(session: &mut Session, colour: Colour, addr: u64, json: bool) -> anyhow::Result<()> {
    let reach = scan(session)?;
    let at = reach.block_at(addr).ok_or_else(|| {
        let more = match reach.left_out {
            0 => String::new(),
            n => format!(" ({n} reachable blocks are left out of the record)"),
        };
        anyhow!("no block of the scan holds {addr:#x}{more}")
    })?;
    let mut out = output::stdout();
    if json {
        who::json(&mut out, session, &reach, at)?;
    } else {
        who::text(&mut out, &colour.stdout(), session, &reach, at)?;
    }
    Ok(out.flush()?)
}

fn scan(session: &Session) -> anyhow::Result<Box<Reach>> {
    match reach::of(session)? {
        Scanned::Done(reach) => Ok(reach),
        Scanned::Not(why) => bail!("not scanned: {why}"),
    }
}
