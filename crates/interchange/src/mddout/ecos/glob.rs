//! File name patterns: `*` any text (slashes too), `?` one character.

/// Does all of `text` fit `pattern`?
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut i, mut j) = (0, 0);
    // where to go back to: behind the latest star, one character further
    let mut back: Option<(usize, usize)> = None;
    while j < t.len() {
        match p.get(i) {
            Some('*') => {
                back = Some((i + 1, j));
                i += 1;
            }
            Some(&c) if c == '?' || Some(&c) == t.get(j) => {
                i += 1;
                j += 1;
            }
            _ => match back {
                Some((star, from)) => {
                    (i, j) = (star, from + 1);
                    back = Some((star, from + 1));
                }
                None => return false,
            },
        }
    }
    p.iter().skip(i).all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_and_question_marks() {
        assert!(fits("*/include/*", "/usr/include/c++/new"));
        assert!(!fits("*/include/*", "src/included/x.h"));
        assert!(fits("*.h", "a/b.h") && !fits("*.h", "a/b.hh"));
        assert!(fits("a?c*", "abc") && !fits("a?c", "ac"));
        assert!(fits("*a*b", "xaxbxab") && fits("", "") && !fits("", "x"));
    }
}
