//! The layout of `findleaks`, to the letter: what the article's script prints.
//! (That printed the groups' addresses in the order of a hash; here the order
//! is that of the groups, most bytes first.)

use std::io::{self, Write};

use highwater_query::leaks::findleaks::StackGroup;

/// Writes the report. `suspicious` are all addresses alive at the end, in the
/// order to show; `stack` tells the text of a stack, whole lines.
///
/// # Errors
/// The output's.
pub fn write<'a, W: Write>(
    out: &mut W,
    suspicious: &[u64],
    groups: &[StackGroup],
    stack: impl Fn(u32) -> &'a str,
) -> io::Result<()> {
    writeln!(out, "Suspicious addresses are:")?;
    for address in suspicious {
        writeln!(out, "\t- {address:#x}")?;
    }
    write!(out, "\n\n")?;
    if groups.is_empty() {
        return writeln!(out, "No leaks found in specified range");
    }
    writeln!(out, "Addresses in specified range are:")?;
    for block in groups.iter().flat_map(|group| &group.blocks) {
        writeln!(out, "\t - {:#x}", block.address)?;
    }
    writeln!(out)?;
    write!(out, "Found {} stacks\n\n", groups.len())?;
    for group in groups {
        writeln!(out, "Saw {} times:", group.blocks.len())?;
        writeln!(out, "It consumed {} bytes", group.bytes)?;
        write!(out, "Addresses with this stack: ")?;
        for block in &group.blocks {
            write!(out, "{:#x},", block.address)?;
        }
        writeln!(out, "\nStack:")?;
        writeln!(out, "{}", stack(group.stack))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_query::leaks::findleaks::Survivor;

    #[test]
    fn the_layout_is_the_scripts() {
        let block = |address, size| Survivor { seq: 1, address, size, tid: 1, stack: 0 };
        let groups = [StackGroup { stack: 0, bytes: 24, blocks: vec![block(0x10, 8), block(0x20, 16)] }];
        let mut out = Vec::new();
        write(&mut out, &[0x10, 0x20, 0x30], &groups, |_| "\nf+0x1\n\n").unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Suspicious addresses are:\n\t- 0x10\n\t- 0x20\n\t- 0x30\n\n\n\
             Addresses in specified range are:\n\t - 0x10\n\t - 0x20\n\nFound 1 stacks\n\n\
             Saw 2 times:\nIt consumed 24 bytes\nAddresses with this stack: 0x10,0x20,\nStack:\n\nf+0x1\n\n\n"
        );
        let mut out = Vec::new();
        write(&mut out, &[], &[], |_| "").unwrap();
        assert_eq!(out, b"Suspicious addresses are:\n\n\nNo leaks found in specified range\n");
    }
}
