//! What the signs mean.
//!
//! | verdict | means |
//! |---|---|
//! | `LEAK` | nothing points to it, or it outlives its like without end, or (with nothing else known) it was alive when the program exited |
//! | `GROWTH` | it grows without end; something still points to it, or nobody looked |
//! | `START-UP` | made at the start, and kept |
//! | `KEPT` | alive, but it does not grow |

use super::signs::{Run, Signs};
use super::{Method, Ranking, Suspect};
use crate::leaks::growth::Trend;

/// Seconds below which a program that gives everything back may just run an errand: it
/// builds up what it needs (an interpreter its modules), works and ends. Only what
/// grows evenly from the first to the last would then go on growing.
const ERRAND: f64 = 1.0;

/// What a site is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A leak.
    Leak,
    /// Grows, and is pointed to or not looked at.
    Growth,
    /// Made at the start, and kept.
    StartUp,
    /// Kept.
    Kept,
}

impl Verdict {
    /// `LEAK`, `GROWTH`, `START-UP`, `KEPT`
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Leak => "LEAK",
            Verdict::Growth => "GROWTH",
            Verdict::StartUp => "START-UP",
            Verdict::Kept => "KEPT",
        }
    }
}

/// A verdict and how it came about.
#[derive(Clone, Debug)]
pub struct Judged {
    /// It.
    pub verdict: Verdict,
    /// How sure, 0 to 1.
    pub confidence: f64,
    /// What it stands out by.
    pub methods: Vec<Method>,
    /// Is it not worth a look?
    pub folded: bool,
}

/// Judges a site.
pub fn judge(run: &Run<'_>, signs: &Signs) -> Judged {
    let lost = signs.found.definite_blocks > 0;
    let throughout = signs.survivors.is_some_and(|survivors| survivors.throughout());
    let stale = signs.stale.is_some();
    let once = signs.blocks > 2 && signs.survivors.is_some_and(|survivors| survivors.once());
    let patchy = signs.young(run) || signs.survivors.is_some_and(|survivors| survivors.patchy());
    let credible = !once && (throughout || !patchy);
    // What edleak says is said as it says it.
    let growing = signs.grows() && (credible || run.trend != Trend::Own);
    let windows = signs.found.windows;
    let mut methods = Vec::new();
    if run.exited && signs.exit_blocks > 0 {
        methods.push(Method::Exit);
    }
    if signs.found.lost_blocks() > 0 {
        methods.push(Method::Unreachable);
    }
    if windows > 0 {
        methods.push(Method::Window);
    }
    if growing {
        methods.push(Method::Growth);
    }
    if stale {
        methods.push(Method::Stale);
    }
    let of = |verdict, confidence, folded| (verdict, confidence, folded);
    // Given back in the end: only what works and lets go, and still grows, leaks.
    let given_back = signs.given_back(run);
    let regular =
        signs.survivors.is_some_and(|survivors| survivors.with == survivors.of && survivors.steadiness > 0.9);
    let (verdict, confidence, folded) = if lost {
        if throughout { of(Verdict::Leak, 0.98, false) } else { of(Verdict::Leak, 0.9, false) }
    } else if signs.found.indirect_blocks > 0 && !growing {
        // Only lost blocks point to it: mend those, and it is mended.
        of(Verdict::Leak, 0.6, true)
    } else if run.windows > 1 && windows == run.windows {
        of(Verdict::Leak, 0.9, false)
    } else if throughout && stale && !given_back && !signs.stands() && !once {
        of(if run.scanned { Verdict::Growth } else { Verdict::Leak }, if growing { 0.9 } else { 0.75 }, false)
    } else if growing && given_back && run.seconds() < ERRAND && !regular {
        of(Verdict::Growth, 0.4, true)
    } else if growing && credible && !(given_back && (run.churn < 0.25 || !throughout)) {
        of(Verdict::Growth, if throughout { 0.7 } else { 0.5 }, false)
    } else if signs.at_start {
        of(Verdict::StartUp, 0.8, true)
    } else if run.exited && !run.scanned && signs.exit_blocks > 0 && !run.long && !run.sampled {
        // Nothing but that it was there at the end. That others of the same place
        // were freed makes it odd.
        let odd = signs.frees > 0;
        of(Verdict::Leak, if odd { 0.4 } else { 0.3 }, false)
    } else {
        of(Verdict::Kept, 0.7, true)
    };
    Judged { verdict, confidence, methods, folded }
}

/// In which order: certain and lasting leaks, then what grows, then what was
/// lost once, then what was merely there.
fn tier(suspect: &Suspect) -> u8 {
    let signs = &suspect.signs;
    let throughout = signs.survivors.is_some_and(|survivors| survivors.throughout());
    let lost = signs.found.definite_blocks > 0;
    match () {
        () if lost && throughout => 4,
        () if lost && (signs.found.lost_blocks() > 1 || signs.survivors.is_none()) => 3,
        () if throughout || suspect.methods.contains(&Method::Window) || signs.grows() => 2,
        () if lost => 1,
        () => 0,
    }
}

/// Sorts, worst first. Blocks order, bytes break ties; where nothing but the
/// end is known, bytes order.
pub fn order(suspects: &mut [Suspect], method: Method) {
    let key = |suspect: &Suspect| -> (u8, f64) {
        if method == Method::Exit || method == Method::Window || method == Method::Unreachable {
            return (0, suspect.group.bytes as f64);
        }
        let tier = tier(suspect);
        let score = match suspect.signs.survivors {
            Some(survivors) if tier > 0 => {
                let sure = if suspect.signs.stale.is_some() { 2.0 } else { 1.0 };
                (survivors.score() + suspect.signs.found.lost_blocks() as f64 * 0.01) * sure
            }
            None if tier > 0 => suspect.group.blocks as f64,
            _ => 0.0,
        };
        (tier, score)
    };
    suspects.sort_by(|a, b| {
        let (a_key, b_key) = (key(a), key(b));
        b_key
            .0
            .cmp(&a_key.0)
            .then(b_key.1.total_cmp(&a_key.1))
            .then(b.group.bytes.cmp(&a.group.bytes))
            .then(b.group.blocks.cmp(&a.group.blocks))
            .then(a.group.node.cmp(&b.group.node))
    });
}

/// Folds what grows but hardly counts beside the worst that does.
pub fn fold_the_faint(ranking: &mut Ranking) {
    const FAINT: f64 = 0.1;
    let score = |suspect: &Suspect| suspect.signs.survivors.map_or(0.0, |survivors| survivors.score());
    let worst = ranking.suspects.iter().map(score).fold(0.0, f64::max);
    let faint = |suspect: &Suspect| {
        suspect.verdict == Verdict::Growth && score(suspect) < FAINT * worst && !suspect.signs.grows()
    };
    let (faint, suspects): (Vec<Suspect>, Vec<Suspect>) =
        std::mem::take(&mut ranking.suspects).into_iter().partition(faint);
    ranking.suspects = suspects;
    ranking.folded.extend(faint);
}
