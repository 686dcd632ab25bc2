//! `leaks --who ADDR`: a block, who points to it, and the way there from a root.

use std::io::{self, Write};

use highwater_query::Session;
use highwater_query::leaks::reach::{Class, Place, Pointer, Reach, ReachBlock};

use crate::human::{bytes, counted};
use crate::json::Json;
use crate::look::Look;
use crate::parts;

const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// A place in words: `head in app`, `stack of thread 7`, …
fn place(session: &mut Session, reach: &Reach, place: Place) -> String {
    let thread = |session: &Session, tid: u32| {
        let known = session.facts().threads.iter().find(|thread| thread.tid == tid);
        match known {
            Some(thread) if !thread.name.is_empty() => format!("thread {tid} ({})", thread.name),
            _ => format!("thread {tid}"),
        }
    };
    match place {
        Place::Block { index, offset } => match reach.blocks.get(index as usize) {
            Some(block) => {
                let site = site(session, block);
                format!("{:#x}+{offset}, {} made by {site}", block.addr, bytes(block.size))
            }
            None => "a block".to_string(),
        },
        Place::Data { addr } => match session.data(addr) {
            Some((module, Some((name, 0)))) => format!("`{name}` in {module}"),
            Some((module, Some((name, offset)))) => format!("`{name}`+{offset:#x} in {module}"),
            Some((module, None)) => format!("data of {module} at {addr:#x}"),
            None => format!("data at {addr:#x}"),
        },
        Place::Stack { tid, addr } => format!("stack of {} at {addr:#x}", thread(session, tid)),
        Place::Register { tid, register } => {
            let name = REGISTERS.get(usize::from(register)).copied().unwrap_or("?");
            format!("register {name} of {}", thread(session, tid))
        }
        Place::Mapping { addr } => format!("memory that the program mapped, at {addr:#x}"),
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

/// One sentence about who still points to the blocks of a stack: the nearest
/// root of the block that retains most. `None` if it has no block in the record,
/// or none that is reachable.
pub fn holder(session: &mut Session, reach: &Reach, node: u32) -> Option<String> {
    let of_node = |block: &&ReachBlock| block.node == node && block.class == Class::Reachable;
    let block = reach.blocks.iter().filter(of_node).max_by_key(|block| block.retained)?;
    let at = reach.block_at(block.addr)?;
    let path = reach.path_to(at);
    let first = place(session, reach, path.first()?.from);
    Some(match path.len() {
        1 => format!("{first} points to it"),
        n => format!("{first} leads to it through {}", counted(n as u64 - 1, "block", "blocks")),
    })
}
