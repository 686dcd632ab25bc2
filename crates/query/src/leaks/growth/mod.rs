//! Does a site grow? Trends over slices: how much a site held at one instant
//! after another.
//!
//! | module | holds |
//! |---|---|
//! | [`edleak`] | edleak's "leak factor": a parabola through the slices, and four classes |
//! | [`edkit`] | the logistic regression of edleak's server |
//! | [`own`] | a verdict of our own on the level that is never given back |
//! | [`robust`] | Theil-Sen's slope and Mann-Kendall's test |
//! | [`forecast`] | what a site will hold, and when a limit is reached |
//! | [`words`] | the same, and the rate, in words |
//! | [`series`] | trends of another tool's slices |

pub mod edkit;
pub mod edleak;
pub mod forecast;
pub mod own;
pub mod robust;
pub mod series;
pub mod words;

/// Which method says whether a site grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trend {
    /// [`own`]
    #[default]
    Own,
    /// [`edleak`]
    Edleak,
    /// [`edkit`]
    EdkitLogistic,
}

impl Trend {
    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Trend::Own => "own",
            Trend::Edleak => "edleak",
            Trend::EdkitLogistic => "edkit-logistic",
        }
    }
}

impl std::str::FromStr for Trend {
    type Err = String;

    fn from_str(text: &str) -> Result<Trend, String> {
        [Trend::Own, Trend::Edleak, Trend::EdkitLogistic]
            .into_iter()
            .find(|trend| trend.name() == text)
            .ok_or_else(|| format!("`{text}` is no trend: there are own, edleak and edkit-logistic"))
    }
}

/// How a series grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Not at all.
    Const,
    /// Evenly.
    Linear,
    /// Ever more slowly: something fills.
    Log,
    /// Ever faster.
    Exp,
    /// At one time or two, and stays: tables, pools.
    Step,
}

impl Class {
    /// `const`, `linear`, `log`, `exp`, `step`
    pub const fn name(self) -> &'static str {
        match self {
            Class::Const => "const",
            Class::Linear => "linear",
            Class::Log => "log",
            Class::Exp => "exp",
            Class::Step => "step",
        }
    }
}
