//! The order of blocks in a list.

use highwater_replay::LiveBlock;

/// What blocks are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// Address.
    Ptr,
    /// Size, largest first.
    Size,
    /// Seqno, first made first.
    Seqno,
    /// Time, first made first.
    Time,
    /// Thread number.
    Thread,
    /// Entry point's name.
    Api,
    /// Stack.
    Stack,
}

impl SortKey {
    /// Reads a list: `size,thread`.
    ///
    /// # Errors
    /// A sentence that names the keys there are.
    pub fn list(text: &str) -> Result<Vec<SortKey>, String> {
        text.split(',').map(|key| key.trim().parse()).collect()
    }
}

impl std::str::FromStr for SortKey {
    type Err = String;

    fn from_str(text: &str) -> Result<SortKey, String> {
        Ok(match text {
            "ptr" | "address" => SortKey::Ptr,
            "size" | "bytes" => SortKey::Size,
            "seqno" => SortKey::Seqno,
            "time" => SortKey::Time,
            "thread" => SortKey::Thread,
            "api" => SortKey::Api,
            "stack" => SortKey::Stack,
            _ => {
                return Err(format!(
                    "`{text}` is no sort key: there are ptr, size, seqno, time, thread, api and stack"
                ));
            }
        })
    }
}

/// Sorts blocks by several keys, the first the strongest; equal ones by seqno.
pub fn blocks(blocks: &mut [LiveBlock], keys: &[SortKey], reverse: bool) {
    blocks.sort_by(|a, b| {
        let mut order = std::cmp::Ordering::Equal;
        for key in keys {
            order = order.then_with(|| match key {
                SortKey::Ptr => a.addr.cmp(&b.addr),
                SortKey::Size => b.size.cmp(&a.size),
                SortKey::Seqno | SortKey::Time => a.seqno.cmp(&b.seqno),
                SortKey::Thread => a.thread.cmp(&b.thread),
                SortKey::Api => a.api.name().cmp(b.api.name()),
                SortKey::Stack => a.node.cmp(&b.node),
            });
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
        blocks(&mut list, &SortKey::list("size,thread").unwrap(), false);
        assert_eq!(list.map(|b| b.seqno), [1, 2, 0]);
        blocks(&mut list, &[], true);
        assert_eq!(list.map(|b| b.seqno), [2, 1, 0]);
        assert!(SortKey::list("size,colour").is_err());
    }
}
