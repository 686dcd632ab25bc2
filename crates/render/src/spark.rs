//! A curve in one line of text.

/// Eight heights in Unicode.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Heights where only ASCII can be shown.
const ASCII: [char; 6] = ['_', '.', ',', '-', '=', '#'];

/// The curve of `values` in at most `width` columns, from 0 at the bottom to the
/// greatest value at the top; a column shows the greatest value in it.
pub fn line(values: &[u64], width: usize, unicode: bool) -> String {
    let top = values.iter().copied().max().unwrap_or(0);
    if top == 0 || width == 0 {
        return String::new();
    }
    let columns = width.min(values.len());
    let heights: &[char] = if unicode { &BLOCKS } else { &ASCII };
    (0..columns)
        .map(|column| {
            let part = column * values.len() / columns..(column + 1) * values.len() / columns;
            let value = values.get(part).and_then(|part| part.iter().max()).copied().unwrap_or(0);
            let height = u128::from(value) * (heights.len() as u128 - 1) / u128::from(top);
            heights.get(height as usize).copied().unwrap_or(' ')
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_rises_from_left_to_right() {
        assert_eq!(line(&[0, 1, 2, 3, 4, 5, 6, 7], 8, true), "▁▂▃▄▅▆▇█");
        assert_eq!(line(&[0, 1, 2, 3, 4, 5], 9, false), "_.,-=#");
        assert_eq!(line(&[1, 9, 2, 1], 2, true), "█▂");
        assert_eq!(line(&[0, 0], 8, true), "");
        assert_eq!(line(&[], 8, true), "");
        assert_eq!(line(&[u64::MAX, u64::MAX], 8, false), "##");
    }
}
