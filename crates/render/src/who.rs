//! `leaks --who ADDR`: a block, who points to it, and the way there from a root.

use std::io::{self, Write};

use highwater_query::Session;
use highwater_query::leaks::reach::{Place, Pointer, Reach, ReachBlock, place_text};

use crate::human::{bytes, counted};
use crate::json::Json;
use crate::look::Look;
use crate::parts;

/// A place in words: `` `head` in app ``, `the stack of thread 7 at 0x…`, …
fn place(session: &mut Session, reach: &Reach, place: Place) -> String {
    let text = match place {
        Place::Block { index, offset } => {
            if let Some(block) = reach.blocks.get(index as usize) {
                let site = site(session, block);
                return format!("{:#x}+{offset}, {} made by {site}", block.addr, bytes(block.size));
            }
            place_text(session, place)
        }
        _ => place_text(session, place),
    };
    match place {
        Place::Stack { addr, .. } => format!("{text} at {addr:#x}"),
        Place::Mapping { addr } => format!("{text}, at {addr:#x}"),
        _ => text,
    }
}

fn site(session: &mut Session, block: &ReachBlock) -> String {
    let look = Look::default();
    let stack = session.stack(block.node);
    parts::site_text(&look, &stack, 60)
}

/// Writes the block at number `at` of the scan's blocks.
///
/// # Errors
/// The output's.
pub fn text<W: Write + ?Sized>(
    out: &mut W,
    look: &Look,
    session: &mut Session,
    reach: &Reach,
    at: u32,
) -> io::Result<()> {
    let Some(block) = reach.blocks.get(at as usize) else { return Ok(()) };
    let (strong, dim) = (look.palette.strong, look.palette.dim);
    writeln!(
        out,
        "{strong}{:#x}: {}, {}{strong:#}, event {}",
        block.addr,
        bytes(block.size),
        block.class.name(),
        block.seqno
    )?;
    writeln!(out, "  made by {}", site(session, block))?;
    if block.retained > block.size {
        writeln!(out, "  {} would go with it", bytes(block.retained))?;
    }
    if let Some(owner) = block.owner {
        writeln!(out, "  lost with {owner:#x}")?;
    }
    let pointers = reach.pointers_to(at);
    writeln!(out, "\n{} to it", counted(block.pointers, "pointer", "pointers"))?;
    for pointer in pointers {
        let text = place(session, reach, pointer.from);
        writeln!(out, "  {text}{}", into(pointer))?;
    }
    let missing = block.pointers.saturating_sub(pointers.len() as u64);
    if missing > 0 && !pointers.is_empty() {
        writeln!(out, "{dim}  and {}{dim:#}", counted(missing, "more", "more"))?;
    }
    let path = reach.path_to(at);
    if path.len() > 1 {
        writeln!(out, "\nshortest way from a root")?;
        for (depth, pointer) in path.iter().enumerate() {
            let arrow = if depth == 0 { "" } else { "-> " };
            writeln!(out, "  {arrow}{}{}", place(session, reach, pointer.from), into(pointer))?;
        }
        writeln!(out, "  -> {:#x}", block.addr)?;
    }
    Ok(())
}

fn into(pointer: &Pointer) -> String {
    if pointer.into == 0 { String::new() } else { format!(", {} bytes into it", pointer.into) }
}

/// Writes the same as the document `highwater.who/1`.
///
/// # Errors
/// The output's.
pub fn json<W: Write>(out: W, session: &mut Session, reach: &Reach, at: u32) -> io::Result<()> {
    let mut json = Json::document(out, "who")?;
    if let Some(block) = reach.blocks.get(at as usize) {
        json.field_addr("address", block.addr)?;
        json.field_u64("size", block.size)?;
        json.field_u64("seqno", block.seqno)?;
        json.field_str("class", block.class.key())?;
        json.field_u64("retained", block.retained)?;
        json.field_u64("pointers", block.pointers)?;
        if let Some(owner) = block.owner {
            json.field_addr("lost_with", owner)?;
        }
        let stack = session.stack(block.node);
        parts::json_stack(&mut json, &stack)?;
        json.key("from")?;
        json_pointers(&mut json, session, reach, reach.pointers_to(at))?;
        json.key("path")?;
        json_pointers(&mut json, session, reach, &reach.path_to(at))?;
    }
    json.finish()?;
    Ok(())
}

fn json_pointers<W: Write>(
    json: &mut Json<W>,
    session: &mut Session,
    reach: &Reach,
    pointers: &[Pointer],
) -> io::Result<()> {
    json.begin_array()?;
    for pointer in pointers {
        json.begin_object()?;
        json.field_str("place", &place(session, reach, pointer.from))?;
        match pointer.from {
            Place::Block { index, offset } => {
                json.field_str("kind", "block")?;
                if let Some(block) = reach.blocks.get(index as usize) {
                    json.field_addr("block", block.addr)?;
                    json.field_str("class", block.class.key())?;
                }
                json.field_u64("offset", offset)?;
            }
            Place::Data { addr } => {
                json.field_str("kind", "data")?;
                json.field_addr("at", addr)?;
            }
            Place::Mapping { addr } => {
                json.field_str("kind", "mapping")?;
                json.field_addr("at", addr)?;
            }
            Place::Stack { tid, addr } => {
                json.field_str("kind", "stack")?;
                json.field_addr("at", addr)?;
                json.field_u64("tid", tid.into())?;
            }
            Place::Register { tid, .. } => {
                json.field_str("kind", "register")?;
                json.field_u64("tid", tid.into())?;
            }
        }
        json.field_u64("into", pointer.into)?;
        json.end_object()?;
    }
    json.end_array()
}
