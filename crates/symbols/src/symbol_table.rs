//! The symbol tables of a module, merged, sorted, and asked for an address.

use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind, elf};

use crate::bytes::Bytes;
use crate::elf::Elf;

/// How many symbols below the address are tried. Functions that overlap are
/// rare and nest a few deep; the bound keeps a hostile table from costing
/// a walk over all of it at each address.
const WALK: usize = 64;

/// Function symbols by address.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    symbols: Vec<Symbol>,
    files: Vec<Bytes>,
    /// Executable sections, (first, one past the last), by address.
    code: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Symbol {
    start: u64,
    size: u64,
    /// Offset of the name in its file.
    name: u64,
    name_len: u32,
    /// Index into `files`.
    file: u8,
    /// Among aliases the higher one is shown.
    rank: u8,
}

/// What a table says about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    /// The symbol's name, raw.
    pub(crate) name: &'a [u8],
    /// Where the symbol starts.
    pub(crate) start: u64,
    /// Whether it claims to hold the address; else it is merely the nearest below.
    pub(crate) exact: bool,
}

impl SymbolTable {
    /// Merges the tables of some files that describe the same module.
    pub(crate) fn build<'a>(files: impl IntoIterator<Item = &'a Elf>) -> SymbolTable {
        let mut table = SymbolTable::default();
        for elf in files {
            table.read(elf);
        }
        table.code.sort_unstable();
        table.code.dedup();
        table.sort();
        table
    }

    fn read(&mut self, elf: &Elf) {
        let (Some(file), Ok(index)) = (elf.object(), u8::try_from(self.files.len())) else { return };
        let mut code = Vec::new();
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            if sh_flags.0 & elf::SHF_EXECINSTR.0 != 0 {
                code.push((section.address(), section.address().saturating_add(section.size())));
            }
        }
        code.sort_unstable();
        self.files.push(elf.bytes.clone());
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let typed = match symbol.kind() {
                SymbolKind::Text => true,
                // Labels of assembly; also data in tables that say no better.
                SymbolKind::Unknown => false,
                _ => continue,
            };
            if symbol.is_undefined() || within(&code, symbol.address()).is_none() {
                continue;
            }
            let Ok(name) = symbol.name_bytes() else { continue };
            // `$x` and `.L` mark spots inside functions.
            if name.is_empty() || (!typed && matches!(name.first(), Some(b'$' | b'.'))) {
                continue;
            }
            let start = (name.as_ptr() as usize).checked_sub(elf.bytes.as_ptr() as usize);
            let (Some(start), Ok(name_len)) = (start, u32::try_from(name.len())) else { continue };
            let rank = u8::from(typed) * 4
                + u8::from(symbol.is_global() && !symbol.is_weak()) * 2
                + u8::from(symbol.is_weak());
            self.symbols.push(Symbol {
                start: symbol.address(),
                size: symbol.size(),
                name: start as u64,
                name_len,
                file: index,
                rank,
            });
        }
        self.code.append(&mut code);
    }

    /// By address; of several at one address only the best stays, with the
    /// greatest extent that any of them claims.
    fn sort(&mut self) {
        let mut symbols = std::mem::take(&mut self.symbols);
        symbols.sort_by(|a, b| {
            a.start.cmp(&b.start).then(b.rank.cmp(&a.rank)).then_with(|| {
                // `malloc` rather than `__libc_malloc`; then any fixed order.
                let (a, b) = (self.name(a), self.name(b));
                let plainness = |n: &[u8]| (n.iter().take_while(|&&c| c == b'_').count(), n.len());
                plainness(a).cmp(&plainness(b)).then_with(|| a.cmp(b))
            })
        });
        symbols.dedup_by(|later, kept| {
            let same = later.start == kept.start;
            if same {
                kept.size = kept.size.max(later.size);
            }
            same
        });
        symbols.shrink_to_fit();
        self.symbols = symbols;
    }

    fn name(&self, symbol: &Symbol) -> &[u8] {
        let start = symbol.name as usize;
        let end = start.saturating_add(symbol.name_len as usize);
        self.files.get(usize::from(symbol.file)).and_then(|f| f.get(start..end)).unwrap_or_default()
    }

    /// The symbol for an address: the innermost that holds it; else one without
    /// a size, which reaches to the next symbol; else the nearest below in the
    /// same section.
    pub(crate) fn find(&self, address: u64) -> Option<Found<'_>> {
        let after = self.symbols.partition_point(|s| s.start <= address);
        let below = self.symbols.get(..after)?;
        let found = |symbol: &Symbol, exact| Found { name: self.name(symbol), start: symbol.start, exact };
        let holds = |s: &&Symbol| address - s.start < s.size;
        if let Some(symbol) = below.iter().rev().take(WALK).find(holds) {
            return Some(found(symbol, true));
        }
        let nearest = below.last()?;
        let (start, _) = within(&self.code, address)?;
        if nearest.start < start {
            return None;
        }
        Some(found(nearest, nearest.size == 0))
    }

    /// How many distinct addresses have a name.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.symbols.len()
    }
}

/// The range that holds `address`.
fn within(ranges: &[(u64, u64)], address: u64) -> Option<(u64, u64)> {
    let after = ranges.partition_point(|r| r.0 <= address);
    ranges.get(..after)?.iter().rev().take(WALK).copied().find(|r| address < r.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(symbols: &[(u64, u64, &str, u8)], code: &[(u64, u64)]) -> SymbolTable {
        let text: String = symbols.iter().map(|s| s.2).collect();
        let mut at = 0;
        let list = symbols
            .iter()
            .map(|&(start, size, name, rank)| {
                let symbol = Symbol { start, size, name: at, name_len: name.len() as u32, file: 0, rank };
                at += name.len() as u64;
                symbol
            })
            .collect();
        let mut table =
            SymbolTable { symbols: list, files: vec![Bytes::from(text.into_bytes())], code: code.to_vec() };
        table.sort();
        table
    }

    fn find(table: &SymbolTable, address: u64) -> Option<(String, bool)> {
        table.find(address).map(|f| (String::from_utf8_lossy(f.name).into_owned(), f.exact))
    }

    #[test]
    fn an_extent_beats_a_nearer_label() {
        let t = table(&[(0x100, 0x40, "outer", 6), (0x110, 0, "label", 0)], &[(0x100, 0x200)]);
        assert_eq!(find(&t, 0x118), Some(("outer".into(), true)));
        assert_eq!(find(&t, 0x150), Some(("label".into(), true)), "no size: up to the next symbol");
    }

    #[test]
    fn past_its_end_a_symbol_is_only_the_nearest() {
        let t = table(&[(0x100, 0x10, "f", 6), (0x200, 0x10, "g", 6)], &[(0x100, 0x180), (0x180, 0x300)]);
        assert_eq!(find(&t, 0x10f), Some(("f".into(), true)));
        assert_eq!(find(&t, 0x110), Some(("f".into(), false)));
        assert_eq!(find(&t, 0x190), None, "another section");
        assert_eq!(find(&t, 0xff), None);
        assert_eq!(find(&t, 0x400), None, "outside of all code");
    }

    #[test]
    fn of_aliases_the_plain_global_function_is_shown() {
        let t = table(
            &[(0x100, 8, "__libc_malloc", 6), (0x100, 0, "local", 4), (0x100, 8, "malloc", 6)],
            &[(0x100, 0x200)],
        );
        assert_eq!(t.len(), 1);
        assert_eq!(find(&t, 0x104), Some(("malloc".into(), true)));
    }

    #[test]
    fn the_innermost_of_nested_extents_wins() {
        let t = table(&[(0x100, 0x100, "outer", 6), (0x120, 0x10, "inner", 6)], &[(0, 0x1000)]);
        assert_eq!(find(&t, 0x125), Some(("inner".into(), true)));
        assert_eq!(find(&t, 0x135), Some(("outer".into(), true)));
    }
}
