//! `*` and `?`.

/// Does `text` fit `pattern`? `*` stands for any text, `?` for one character;
/// a pattern without either fits where it occurs anywhere in the text.
pub fn matches(pattern: &str, text: &str) -> bool {
    if !pattern.contains(['*', '?']) {
        return text.contains(pattern);
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to go on if the text does not fit: the latest star, and one more
    // character for it.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(&c) if c == '?' || text.get(t) == Some(&c) => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    p = star;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_none_or(|rest| rest.iter().all(|&c| c == '*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit() {
        assert!(matches("std::*", "std::vector"));
        assert!(matches("*.c", "a/b.c"));
        assert!(matches("a*b*c", "aXbXbc"));
        assert!(matches("pars", "json_parse"));
        assert!(matches("?ain", "main"));
        assert!(matches("", "anything"));
        assert!(!matches("*.c", "a/b.cc"));
        assert!(!matches("?ain", "ain"));
    }
}
