//! Names of data: which variable an address belongs to.

use object::{Object, ObjectSymbol, SymbolKind};

use crate::elf::Elf;

/// Variables by address.
#[derive(Debug, Default)]
pub(crate) struct DataSymbols {
    /// Start, size, name.
    symbols: Vec<(u64, u64, String)>,
}

impl DataSymbols {
    /// Merges the tables of some files that describe the same module.
    pub(crate) fn build<'a>(files: impl IntoIterator<Item = &'a Elf>) -> DataSymbols {
        let mut symbols = Vec::new();
        for elf in files {
            let Some(file) = elf.object() else { continue };
            for symbol in file.symbols().chain(file.dynamic_symbols()) {
                if symbol.kind() != SymbolKind::Data || symbol.is_undefined() || symbol.size() == 0 {
                    continue;
                }
                if let Ok(name) = symbol.name_bytes() {
                    let name = String::from_utf8_lossy(name).into_owned();
                    symbols.push((symbol.address(), symbol.size(), name));
                }
            }
        }
        DataSymbols::of(symbols)
    }

    fn of(mut symbols: Vec<(u64, u64, String)>) -> DataSymbols {
        // Of aliases the longest; then the plainest name.
        symbols.sort_by(|a, b| {
            (a.0, std::cmp::Reverse(a.1), a.2.len(), &a.2).cmp(&(
                b.0,
                std::cmp::Reverse(b.1),
                b.2.len(),
                &b.2,
            ))
        });
        symbols.dedup_by_key(|symbol| symbol.0);
        DataSymbols { symbols }
    }

    /// The variable that holds an address of the file, and how far into it.
    pub(crate) fn find(&self, address: u64) -> Option<(&str, u64)> {
        let after = self.symbols.partition_point(|symbol| symbol.0 <= address);
        let (start, size, name) = self.symbols.get(after.checked_sub(1)?)?;
        (address - start < *size).then_some((name.as_str(), address - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_variable_that_holds_it() {
        let symbol = |start, size, name: &str| (start, size, name.to_string());
        let table = DataSymbols::of(vec![
            symbol(0x100, 8, "head"),
            symbol(0x200, 0x40, "table"),
            symbol(0x100, 8, "__alias_of_head"),
        ]);
        assert_eq!(table.find(0x107), Some(("head", 7)));
        assert_eq!(table.find(0x108), None);
        assert_eq!(table.find(0x210), Some(("table", 0x10)));
        assert_eq!(table.find(0xff), None);
    }
}
