//! Where a program began to tidy up for its end: the last stretch of events that but
//! gives back.

/// Last allocations whose numbers are kept, to find where the end began.
const LATEST: usize = 1024;
/// An end makes at most one allocation for so many events.
const SHARE: u64 = 32;
/// And gives back at least so many blocks.
const LEAST: u64 = 16;

/// An allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    pub seqno: u64,
    pub ns: u64,
}

/// The latest allocations: a ring.
#[derive(Default)]
pub struct Tail {
    latest: Vec<Made>,
    /// Where the next one belongs.
    next: usize,
}

impl Tail {
    #[inline(always)]
    pub fn push(&mut self, made: Made) {
        match self.latest.get_mut(self.next) {
            Some(place) => *place = made,
            None => self.latest.push(made),
        }
        self.next = (self.next + 1) % LATEST;
    }

    /// The last allocation before the program only tidied up, if it did; `last` is the
    /// seqno of the last event.
    pub fn begin(&self, last: u64) -> Option<Made> {
        let (newest, oldest) = self.latest.split_at(self.next.min(self.latest.len()));
        let mut best = None;
        for (after, &made) in newest.iter().rev().chain(oldest.iter().rev()).enumerate() {
            // `after` allocations came behind this one.
            let rest = last.saturating_sub(made.seqno);
            let frees = rest.saturating_sub(after as u64);
            if frees >= LEAST && (after as u64) * SHARE <= rest {
                best = Some(made);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `true` makes a block, `false` gives one back.
    fn begin(events: impl Iterator<Item = bool>) -> Option<u64> {
        let (mut tail, mut seqno) = (Tail::default(), 0);
        for makes in events {
            seqno += 1;
            if makes {
                tail.push(Made { seqno, ns: seqno });
            }
        }
        tail.begin(seqno).map(|made| made.seqno)
    }

    #[test]
    fn an_end_gives_back_and_hardly_makes_anything() {
        let work = || (0..3000).map(|at| at % 3 != 2);
        assert_eq!(begin(work()), None);
        assert_eq!(begin(work().chain((0..14).map(|_| false))), None);
        assert_eq!(begin(work().chain((0..40).map(|_| false))), Some(2998));
        // A block is made for the end itself.
        let ends = (0..60).map(|at| at == 50);
        assert_eq!(begin(work().chain(ends)), Some(2999));
        let ends = (0..99).map(|at| at > 50 && at % 5 == 0);
        assert_eq!(begin(work().chain(ends)), None);
        assert_eq!(begin((0..99).map(|_| false)), None);
    }
}
