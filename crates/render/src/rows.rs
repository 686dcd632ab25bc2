//! Every view as rows, for `--csv` and `-f`.

use highwater_query::format::{Row, Value};
use highwater_query::stack::{function, function_name};
use highwater_query::walk::Seen;
use highwater_query::{Frame, Group, Session, Stack, Stats};
use highwater_replay::{HeapError, LiveBlock, ThreadTotals};
use highwater_trace::model::{Op, ThreadNo};

/// Columns of `dump`.
pub const DUMP: &[&str] = &[
    "seqno",
    "time",
    "thread",
    "tid",
    "thread_name",
    "api",
    "address",
    "size",
    "actual_size",
    "function",
    "file",
    "line",
    "module",
    "stack",
];
/// Columns of `history`.
pub const HISTORY: &[&str] = &[
    "seqno",
    "time",
    "thread",
    "tid",
    "thread_name",
    "op",
    "api",
    "address",
    "size",
    "actual_size",
    "pair",
    "function",
    "file",
    "line",
    "module",
    "stack",
];
/// Columns of `peak`, `leaks` and of every view with `--by`.
pub const GROUPS: &[&str] = &[
    "label",
    "bytes",
    "blocks",
    "allocations",
    "bytes_allocated",
    "frees",
    "bytes_freed",
    "temporary",
    "live_blocks",
    "live_bytes",
    "peak_blocks",
    "peak_bytes",
    "function",
    "file",
    "line",
    "module",
    "stack",
];
/// Columns of `stats`: one row.
pub const STATS: &[&str] = &[
    "events",
    "allocations",
    "frees",
    "reallocations",
    "bytes_allocated",
    "bytes_freed",
    "temporary",
    "live_blocks",
    "live_bytes",
    "peak_blocks",
    "peak_bytes",
    "peak_seqno",
    "peak_uncertainty",
    "threads",
    "double_free",
    "invalid_free",
    "mismatched",
    "foreign_frees",
    "dropped",
    "peak_time",
    "duration",
    "ended",
];
/// Columns of `threads`.
pub const THREADS: &[&str] = &[
    "id",
    "tid",
    "name",
    "allocations",
    "frees",
    "bytes",
    "bytes_freed",
    "temporary",
    "live_blocks",
    "live_bytes",
    "peak_bytes",
    "peak_time",
    "first",
    "last",
];
/// Columns of `errors`.
pub const ERRORS: &[&str] = &[
    "kind",
    "seqno",
    "time",
    "thread",
    "tid",
    "thread_name",
    "api",
    "address",
    "size",
    "allocated_seqno",
    "freed_seqno",
    "function",
    "file",
    "line",
    "module",
    "stack",
];

/// Number, kernel id and name of a thread.
fn thread(session: &Session, thread: ThreadNo) -> [Value; 3] {
    let def = session.facts().thread(thread);
    [
        Value::Number(thread.into()),
        Value::opt_number(def.map(|def| def.tid.into())),
        Value::opt_text(def.map(|def| def.name.as_str())),
    ]
}

/// Function, file, line, module of a site, and the functions of the stack,
/// innermost first.
fn place(site: Option<&Frame>, stack: &Stack) -> [Value; 5] {
    let names: Vec<String> = stack.frames.iter().map(|frame| function_name(frame)).collect();
    [
        Value::opt_text(site.and_then(function)),
        site.and_then(|frame| frame.file.clone()).map_or(Value::Null, Value::Text),
        Value::opt_number(site.and_then(|frame| frame.line).map(u64::from)),
        site.map(|frame| frame.module.clone()).filter(|m| !m.is_empty()).map_or(Value::Null, Value::Text),
        Value::text(&names.join(";")),
    ]
}

/// A block.
pub fn block(session: &mut Session, block: &LiveBlock) -> Row {
    let stack = session.stack(block.node);
    let mut values = vec![Value::Number(block.seqno), Value::Time(block.ns)];
    values.extend(thread(session, block.thread));
    values.extend([
        Value::text(block.api.name()),
        Value::Address(block.addr),
        Value::Number(block.size),
        Value::opt_number(block.usable),
    ]);
    values.extend(place(stack.site(), &stack));
    Row { columns: DUMP, values, stack: Some(stack) }
}

/// The word for what an event did.
pub(crate) fn op_name(op: Op) -> &'static str {
    match op {
        Op::Alloc { .. } => "alloc",
        Op::Free => "free",
    }
}

/// An event.
pub fn event(session: &mut Session, seen: &Seen) -> Row {
    let event = &seen.event;
    let stack = session.stack(event.node);
    let block = seen.block();
    let mut values = vec![Value::Number(event.seqno), Value::Time(event.ns)];
    values.extend(thread(session, event.thread));
    values.extend([
        Value::text(op_name(event.op)),
        Value::text(event.api.name()),
        Value::Address(event.addr),
        Value::opt_number(block.map(|block| block.size)),
        Value::opt_number(block.and_then(|block| block.usable)),
        Value::opt_number(event.pair),
    ]);
    values.extend(place(stack.site(), &stack));
    Row { columns: HISTORY, values, stack: Some(stack) }
}

/// A group.
pub fn group(group: &Group) -> Row {
    let counts = &group.counts;
    let mut values = vec![Value::text(&group.label)];
    values.extend(
        [
            group.bytes,
            group.blocks,
            group.allocations,
            counts.allocated,
            counts.frees,
            counts.freed,
            counts.temporary,
            counts.live_blocks,
            counts.live_bytes,
            counts.peak_blocks,
            counts.peak_bytes,
        ]
        .map(Value::Number),
    );
    values.extend(place(group.stack.site(), &group.stack));
    Row { columns: GROUPS, values, stack: Some(std::sync::Arc::clone(&group.stack)) }
}

/// The totals.
pub fn stats(stats: &Stats) -> Row {
    let t = &stats.totals;
    let numbers = [
        t.events,
        t.allocations,
        t.frees,
        t.reallocations,
        t.bytes_allocated,
        t.bytes_freed,
        t.temporary,
        t.live_blocks,
        t.live_bytes,
        t.peak_blocks,
        t.peak_bytes,
        t.peak_seqno,
        t.peak_uncertainty,
        stats.threads,
        t.double_free,
        t.invalid_free,
        t.mismatched,
        t.foreign_frees,
        stats.dropped,
    ];
    let mut values: Vec<Value> = numbers.map(Value::Number).to_vec();
    values.extend([t.peak_ns, stats.duration_ns].map(Value::Time));
    values.push(Value::text(crate::stats::ended_word(stats.ended)));
    Row { columns: STATS, values, stack: None }
}

/// A thread.
pub fn thread_totals(session: &Session, totals: &ThreadTotals) -> Row {
    let mut values = thread(session, totals.thread).to_vec();
    values.extend(
        [
            totals.allocations,
            totals.frees,
            totals.bytes_allocated,
            totals.bytes_freed,
            totals.temporary,
            totals.live_blocks,
            totals.live_bytes,
            totals.peak_bytes,
        ]
        .map(Value::Number),
    );
    values.extend([totals.peak_ns, totals.first_ns, totals.last_ns].map(Value::Time));
    Row { columns: THREADS, values, stack: None }
}

/// A bad free.
pub fn error(session: &mut Session, error: &HeapError) -> Row {
    let stack = session.stack(error.free.node);
    let mut values =
        vec![Value::text(error.kind.name()), Value::Number(error.free.seqno), Value::Time(error.free.ns)];
    values.extend(thread(session, error.free.thread));
    values.extend([
        Value::text(error.free.api.name()),
        Value::Address(error.addr),
        Value::opt_number(error.allocated.as_ref().map(|block| block.size)),
        Value::opt_number(error.allocated.as_ref().map(|block| block.seqno)),
        Value::opt_number(error.freed.as_ref().map(|free| free.seqno)),
    ]);
    values.extend(place(stack.site(), &stack));
    Row { columns: ERRORS, values, stack: Some(stack) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_query::session::made::Made;

    #[test]
    fn every_row_has_a_value_for_each_column() {
        let mut session = Made::default()
            .thread(0, 9, "app")
            .node(1, 0, "main", "a.c", 1)
            .alloc(0, 64, 8, 1)
            .alloc(0, 128, 8, 1)
            .free(0, 64)
            .free(0, 64)
            .session();
        let found = session.outcome().unwrap();
        let live = session.replay().unwrap().live_set();
        let row = block(&mut session, &live[0]);
        assert_eq!((row.columns.len(), row.get("function")), (row.values.len(), Some(&Value::text("main"))));
        assert_eq!((row.get("tid"), row.get("actual_size")), (Some(&Value::Number(9)), Some(&Value::Null)));
        let row = error(&mut session, &found.errors()[0]);
        assert_eq!(
            (row.columns.len(), row.get("kind")),
            (row.values.len(), Some(&Value::text("double_free")))
        );
        let row = thread_totals(&session, &found.threads()[0]);
        assert_eq!((row.columns.len(), row.get("frees")), (row.values.len(), Some(&Value::Number(2))));
        let row = stats(&Stats::collect(&session, &found));
        assert_eq!((row.columns.len(), row.get("ended")), (row.values.len(), Some(&Value::text("lost"))));
        let groups = crate::sites::live(&mut session, &found);
        let row = group(&groups[0]);
        assert_eq!((row.columns.len(), row.get("live_bytes")), (row.values.len(), Some(&Value::Number(8))));
    }
}
