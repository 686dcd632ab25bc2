//! Pointers into the middle of a block that are as good as one to its start.
//!
//! The four of memcheck's `--leak-check-heuristics=all`, by what the C++ ABI and
//! the libraries put into memory:
//!
//! * *stdstring*: libstdc++'s old `std::string` points at its characters, behind
//!   length, capacity and a reference count;
//! * *length64*: the block's first word is the number of bytes behind it
//!   (sqlite's allocator, for one), and the pointer is to the second word;
//! * *newarray*: `new T[n]` of a class with a destructor keeps `n` in front of
//!   the elements;
//! * *multipleinheritance*: a pointer to a second base points at that base's
//!   virtual table pointer. The table says how far in front of it the object
//!   begins (Itanium C++ ABI, "offset to top").

use super::Memory;
use super::blocks::Block;

const WORD: u64 = 8;

/// Is a pointer `into` bytes into the block as good as one to its start?
pub fn accepts(memory: &dyn Memory, block: &Block, into: u64) -> bool {
    if !block.addr.is_multiple_of(WORD) || !into.is_multiple_of(WORD) || block.size < 2 * WORD {
        return false;
    }
    let mut first = [0u64; 2];
    memory.read(block.addr, &mut first);
    std_string(block, into, first)
        || length64(block, into, first[0])
        || new_array(block, into, first[0])
        || second_base(memory, block, into, first[0])
}

fn std_string(block: &Block, into: u64, [length, capacity]: [u64; 2]) -> bool {
    into == 3 * WORD && length <= capacity && capacity.checked_add(3 * WORD + 1) == Some(block.size)
}

fn length64(block: &Block, into: u64, first: u64) -> bool {
    into == WORD && first == block.size - WORD
}

fn new_array(block: &Block, into: u64, count: u64) -> bool {
    into == WORD && block.array && count > 0 && (block.size - WORD).is_multiple_of(count)
}

/// Both the block's first word and the word pointed to are virtual tables, and
/// the second's says that it belongs to an object that begins with the block.
fn second_base(memory: &dyn Memory, block: &Block, into: u64, first: u64) -> bool {
    if into == 0 || into > block.size - WORD {
        return false;
    }
    let mut second = [0u64];
    memory.read(block.addr + into, &mut second);
    offset_to_top(memory, first) == Some(0)
        && offset_to_top(memory, second[0]) == Some((into as i64).wrapping_neg())
}

/// What a virtual table says about its place in the object; `None` if the word
/// does not point to where one can be.
fn offset_to_top(memory: &dyn Memory, table: u64) -> Option<i64> {
    let before = table.checked_sub(2 * WORD)?;
    if !table.is_multiple_of(WORD) || !memory.in_object(before) || !memory.in_object(table) {
        return None;
    }
    let mut words = [0u64; 3];
    memory.read(before, &mut words);
    // A table has at least one function.
    (words[2] != 0).then_some(words[0] as i64)
}

#[cfg(test)]
mod tests {
    use super::super::model::Words;
    use super::*;

    fn block(size: u64, array: bool) -> Block {
        Block { addr: 0x1000, size, seqno: 0, node: 0, array }
    }

    fn accepted(block: &Block, words: &[(u64, u64)], into: u64) -> bool {
        let mut memory = Words::default();
        for &(at, word) in words {
            memory.set(at, word);
        }
        accepts(&memory, block, into)
    }

    #[test]
    fn an_old_string_is_known_by_its_length_and_capacity() {
        let words = [(0x1000, 5), (0x1008, 7), (0x1010, 0)];
        assert!(accepted(&block(32, false), &words, 24));
        assert!(!accepted(&block(32, false), &words, 16));
        assert!(!accepted(&block(40, false), &words, 24), "the capacity does not fit");
        assert!(!accepted(&block(32, false), &[(0x1000, 8), (0x1008, 7)], 24), "longer than its room");
    }

    #[test]
    fn a_length_or_a_count_in_front_is_known() {
        assert!(accepted(&block(48, false), &[(0x1000, 40)], 8));
        assert!(!accepted(&block(48, false), &[(0x1000, 41)], 8));
        assert!(accepted(&block(8 + 5 * 12, true), &[(0x1000, 5)], 8));
        assert!(!accepted(&block(8 + 5 * 12, false), &[(0x1000, 5)], 8), "not made by new[]");
        assert!(!accepted(&block(8 + 5 * 12, true), &[(0x1000, 7)], 8));
        assert!(!accepted(&block(8 + 5 * 12, true), &[(0x1000, 5)], 16));
    }

    #[test]
    fn a_second_base_is_known_by_its_table() {
        // Tables at 0x100_0010 and 0x100_0040 in an object; the second base is 16 bytes in.
        let table = |at: u64, offset: i64| [(at - 16, offset as u64), (at, 0xc0de)];
        let mut words = vec![(0x1000, 0x100_0010), (0x1010, 0x100_0040)];
        words.extend(table(0x100_0010, 0));
        words.extend(table(0x100_0040, -16));
        assert!(accepted(&block(32, false), &words, 16));
        assert!(!accepted(&block(32, false), &words, 8));
        words.retain(|word| word.0 != 0x100_0030);
        assert!(!accepted(&block(32, false), &words, 16), "a table of another place");
    }
}
