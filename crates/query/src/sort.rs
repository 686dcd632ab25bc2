//! The order of blocks in a list.

use highwater_replay::LiveBlock;

/// What blocks are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// Address.
    Ptr,
    /// Size.
    Size,
    /// Seqno.
    Seqno,
    /// Time.
    Time,
    /// Thread number.
    Thread,
    /// Entry point's name.
    Api,
    /// Stack.
    Stack,
}

/// A key and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SortOrder {
    /// What is compared.
    pub key: SortKey,
    /// Greatest first.
    pub descending: bool,
}

impl SortOrder {
    /// Reads a list of keys, the strongest first: words (`size,thread`), or the
    /// letters of eCos's tool (`tN`): `p` address, `n` size, `s` seqno,
    /// `a` entry point, `t` thread; a capital letter is the descending order.
    ///
    /// # Errors
    /// A sentence that names the keys there are, or says which key can have no
    /// effect.
    pub fn list(text: &str) -> Result<Vec<SortOrder>, String> {
        let words: Result<Vec<SortOrder>, String> = text.split(',').map(|key| key.trim().parse()).collect();
        match words {
            Err(_) if !text.is_empty() && text.chars().all(|c| LETTERS.contains(c)) => letters(text),
            words => words,
        }
    }
}

/// The letters of eCos's tool.
const LETTERS: &str = "pPnNsSatT";

fn letters(text: &str) -> Result<Vec<SortOrder>, String> {
    let mut list: Vec<SortOrder> = Vec::new();
    for letter in text.chars() {
        let key = match letter.to_ascii_lowercase() {
            'p' => SortKey::Ptr,
            'n' => SortKey::Size,
            's' => SortKey::Seqno,
            'a' => SortKey::Api,
            _ => SortKey::Thread,
        };
        if list.iter().any(|before| before.key == key) {
            return Err(format!("`{letter}` repeats a key: it makes no difference"));
        }
        if list.iter().any(|before| before.key == SortKey::Seqno) {
            return Err(format!("`{letter}` stands behind the seqno, which no two have in common"));
        }
        list.push(SortOrder { key, descending: letter.is_ascii_uppercase() });
    }
    Ok(list)
}

impl std::str::FromStr for SortOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<SortOrder, String> {
        let key = match text {
            "ptr" | "address" => SortKey::Ptr,
            "size" | "bytes" => SortKey::Size,
            "seqno" => SortKey::Seqno,
            "time" => SortKey::Time,
            "thread" => SortKey::Thread,
            "api" => SortKey::Api,
            "stack" => SortKey::Stack,
            _ => {
                return Err(format!(
                    "`{text}` is no sort key: there are ptr, size, seqno, time, thread, api and stack, \
                     or the letters {LETTERS}"
                ));
            }
        };
        // By its word, the largest size is what one looks for.
        Ok(SortOrder { key, descending: key == SortKey::Size })
    }
}

/// Sorts blocks by several keys, the first the strongest; equal ones by seqno.
pub fn blocks(blocks: &mut [LiveBlock], keys: &[SortOrder], reverse: bool) {
    blocks.sort_by(|a, b| {
        let mut order = std::cmp::Ordering::Equal;
        for SortOrder { key, descending } in keys {
            let ascending = || match key {
                SortKey::Ptr => a.addr.cmp(&b.addr),
                SortKey::Size => a.size.cmp(&b.size),
                SortKey::Seqno | SortKey::Time => a.seqno.cmp(&b.seqno),
                SortKey::Thread => a.thread.cmp(&b.thread),
                SortKey::Api => a.api.name().cmp(b.api.name()),
                SortKey::Stack => a.node.cmp(&b.node),
            };
            order = order.then_with(|| if *descending { ascending().reverse() } else { ascending() });
        }
        let order = order.then_with(|| a.seqno.cmp(&b.seqno));
        if reverse { order.reverse() } else { order }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_event::api::ApiKind;

    #[test]
    fn the_first_key_decides_first() {
        let block = |seqno, size, thread| LiveBlock {
            addr: 8,
            size,
            usable: None,
            seqno,
            ns: 0,
            thread,
            api: ApiKind::Malloc,
            node: 0,
        };
        let mut list = [block(0, 5, 1), block(1, 9, 0), block(2, 5, 0)];
        blocks(&mut list, &SortOrder::list("size,thread").unwrap(), false);
        assert_eq!(list.map(|b| b.seqno), [1, 2, 0]);
        blocks(&mut list, &[], true);
        assert_eq!(list.map(|b| b.seqno), [2, 1, 0]);
        assert!(SortOrder::list("size,colour").is_err());
    }

    #[test]
    fn letters_are_those_of_ecos() {
        let order = |key, descending| SortOrder { key, descending };
        assert_eq!(SortOrder::list("n"), Ok(vec![order(SortKey::Size, false)]));
        assert_eq!(
            SortOrder::list("aTNP"),
            Ok(vec![
                order(SortKey::Api, false),
                order(SortKey::Thread, true),
                order(SortKey::Size, true),
                order(SortKey::Ptr, true)
            ])
        );
        assert_eq!(SortOrder::list("size"), Ok(vec![order(SortKey::Size, true)]));
        for text in ["nN", "pp", "sn", "Sp", "A", "x", "", "n,q"] {
            assert!(SortOrder::list(text).is_err(), "{text}");
        }
    }
}
