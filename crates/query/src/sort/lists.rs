//! Threads and bad frees in the order of `-S`.

use std::cmp::{Ordering, Reverse};

use highwater_replay::{HeapError, ThreadTotals};

use super::{SortKey, SortOrder, ranks};
use crate::session::Session;

/// Sorts by `compare` of each key, the first the strongest, then by `last`.
fn by_keys<T>(
    list: &mut [T],
    keys: &[SortOrder],
    reverse: bool,
    compare: impl Fn(usize, SortKey, &T, &T) -> Ordering,
    last: impl Fn(&T, &T) -> Ordering,
) {
    list.sort_by(|a, b| {
        let order = keys.iter().enumerate().fold(Ordering::Equal, |order, (at, sort)| {
            order.then_with(|| sort.direct(compare(at, sort.key, a, b)))
        });
        let order = order.then_with(|| last(a, b));
        if reverse { order.reverse() } else { order }
    });
}

/// Sorts threads; equal ones by bytes, most first, then by number.
pub fn threads(session: &Session, threads: &mut [ThreadTotals], keys: &[SortOrder], reverse: bool) {
    let name = |thread: &ThreadTotals| session.facts().thread(thread.thread).map(|def| def.name.as_str());
    let compare = |_, key, a: &ThreadTotals, b: &ThreadTotals| match key {
        SortKey::Thread => a.thread.cmp(&b.thread),
        SortKey::Name => name(a).cmp(&name(b)),
        SortKey::Allocations => a.allocations.cmp(&b.allocations),
        SortKey::Temporary => a.temporary.cmp(&b.temporary),
        SortKey::Live => a.live_bytes.cmp(&b.live_bytes),
        SortKey::Peak => a.peak_bytes.cmp(&b.peak_bytes),
        SortKey::Time => a.first_ns.cmp(&b.first_ns),
        _ => a.bytes_allocated.cmp(&b.bytes_allocated),
    };
    let last = |a: &ThreadTotals, b: &ThreadTotals| {
        let key = |thread: &ThreadTotals| (Reverse(thread.bytes_allocated), thread.thread);
        key(a).cmp(&key(b))
    };
    by_keys(threads, keys, reverse, compare, last);
}

/// Sorts bad frees; equal ones by seqno.
pub fn errors(session: &mut Session, errors: &mut [HeapError], keys: &[SortOrder], reverse: bool) {
    let ranks: Vec<_> =
        keys.iter().map(|sort| ranks(session, errors.iter().map(|e| e.free.node), sort.key)).collect();
    let compare = |at: usize, key, a: &HeapError, b: &HeapError| match key {
        SortKey::Ptr => a.addr.cmp(&b.addr),
        SortKey::Name => a.kind.name().cmp(b.kind.name()),
        SortKey::Thread => a.free.thread.cmp(&b.free.thread),
        SortKey::Api => a.free.api.name().cmp(b.free.api.name()),
        SortKey::Stack => a.free.node.cmp(&b.free.node),
        SortKey::Site | SortKey::Function | SortKey::File | SortKey::Module => ranks
            .get(at)
            .and_then(|rank| rank.get(&a.free.node))
            .cmp(&ranks.get(at).and_then(|rank| rank.get(&b.free.node))),
        _ => a.free.seqno.cmp(&b.free.seqno),
    };
    by_keys(errors, keys, reverse, compare, |a, b| a.free.seqno.cmp(&b.free.seqno));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;
    use crate::sort::{OF_ERRORS, OF_THREADS};

    #[test]
    fn threads_and_errors_have_orders_of_their_own() {
        let mut session = Made::default()
            .thread(0, 9, "zeta")
            .thread(1, 8, "alpha")
            .node(1, 0, "main", "a.c", 1)
            .alloc(0, 64, 8, 1)
            .alloc(1, 128, 80, 1)
            .free(1, 128)
            .free(1, 128)
            .free(0, 64)
            .free(0, 64)
            .session();
        let found = session.outcome().unwrap();
        let mut list = found.threads().to_vec();
        let mut order = |keys: &str, reverse| {
            let keys = SortOrder::list_of(keys, OF_THREADS).unwrap();
            threads(&session, &mut list, &keys, reverse);
            list.iter().map(|thread| thread.thread).collect::<Vec<_>>()
        };
        assert_eq!(order("id", false), [0, 1]);
        assert_eq!(order("size", false), [1, 0]);
        assert_eq!(order("allocations", false), [1, 0]);
        assert_eq!(order("-name", false), [0, 1]);
        assert_eq!(order("name", true), [0, 1]);
        let mut list = found.errors().to_vec();
        let mut order = |keys: &str| {
            errors(&mut session, &mut list, &SortOrder::list_of(keys, OF_ERRORS).unwrap(), false);
            list.iter().map(|error| error.free.seqno).collect::<Vec<_>>()
        };
        assert_eq!(order("ptr"), [5, 3]);
        assert_eq!(order("name"), [3, 5]);
        assert_eq!(order("-seqno"), [5, 3]);
    }
}
