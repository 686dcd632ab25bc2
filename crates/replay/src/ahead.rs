//! Reading on a thread of its own while what was read is used.

use std::sync::mpsc;

/// Is there a processor for a second thread?
pub fn has_processor() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() > 1)
}

/// Reads pieces on a thread of its own, as many ahead as may wait, and uses them in their
/// order. `read` fills what it is given and says whether there was anything more; `take`
/// uses a piece and gives back memory for another one.
///
/// # Errors
/// What `read` returns, once all that came before was used.
pub fn read_ahead<T: Default + Send, E: Send>(
    waiting: usize,
    mut read: impl FnMut(&mut T) -> Result<bool, E> + Send,
    mut take: impl FnMut(T) -> T,
) -> Result<(), E> {
    std::thread::scope(|scope| {
        let (full, filled) = mpsc::sync_channel::<T>(waiting);
        let (back, empty) = mpsc::channel::<T>();
        let reader = scope.spawn(move || {
            loop {
                let mut piece = empty.try_recv().unwrap_or_default();
                // Nobody waits for more where the other side has gone.
                if !read(&mut piece)? || full.send(piece).is_err() {
                    return Ok(());
                }
            }
        });
        for piece in filled {
            let _ = back.send(take(piece));
        }
        match reader.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pieces_come_in_their_order_and_an_error_behind_them() {
        for (last, wanted) in [(1_000, Ok(())), (7, Err("broken")), (0, Err("broken"))] {
            let (mut next, mut taken) = (0u64, Vec::new());
            let read = |piece: &mut Vec<u64>| {
                piece.clear();
                piece.push(next);
                next += 1;
                if next > last { wanted.map(|()| false) } else { Ok(true) }
            };
            let take = |piece: Vec<u64>| {
                taken.extend_from_slice(&piece);
                piece
            };
            assert_eq!(read_ahead(3, read, take), wanted);
            assert!(taken.into_iter().eq(0..last));
        }
    }
}
