//! Colours and width.

use anstyle::{AnsiColor, Style};

/// The colours of a text view; all plain unless asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Palette {
    /// Headings and the number that matters.
    pub strong: Style,
    /// Source places.
    pub place: Style,
    /// What is by the way: hints, callers.
    pub dim: Style,
    /// Errors and losses.
    pub bad: Style,
}

impl Palette {
    /// No colour at all.
    pub fn plain() -> Palette {
        Palette::default()
    }

    /// The colours for a terminal: the user's own sixteen.
    pub fn coloured() -> Palette {
        Palette {
            strong: Style::new().bold(),
            place: AnsiColor::Cyan.on_default(),
            dim: Style::new().dimmed(),
            bad: AnsiColor::Red.on_default().bold(),
        }
    }
}

/// How a text view is to look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Colours.
    pub palette: Palette,
    /// Columns that a line may take; sites are shortened to fit.
    pub width: usize,
}

impl Default for Look {
    fn default() -> Self {
        Look { palette: Palette::plain(), width: 80 }
    }
}

impl Look {
    /// A look of the given colours; the width is `COLUMNS`' if that is a number,
    /// else the terminal's if the caller knows it, else 80; never below 40.
    pub fn new(coloured: bool, terminal: Option<usize>) -> Look {
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
        let palette = if coloured { Palette::coloured() } else { Palette::plain() };
        Look { palette, width: columns.or(terminal).unwrap_or(80).max(40) }
    }
}
