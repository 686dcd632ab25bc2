//! LeakSanitizer's patterns: `*` is any text, `^` and `$` at the ends hold the
//! pattern to the beginning and the end; without them it may occur anywhere.

/// A pattern, ready to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// What lies between the stars.
    parts: Vec<String>,
    at_start: bool,
    at_end: bool,
}

impl Pattern {
    /// Reads a pattern; every text is one.
    pub fn new(text: &str) -> Pattern {
        let (at_start, text) = match text.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (at_end, text) = match text.strip_suffix('$') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        Pattern { parts: text.split('*').map(str::to_string).collect(), at_start, at_end }
    }

    /// Does `text` fit?
    pub fn matches(&self, text: &str) -> bool {
        let last = self.parts.len() - 1;
        let mut rest = text;
        for (at, part) in self.parts.iter().enumerate() {
            let (first, final_part) = (at == 0 && self.at_start, at == last && self.at_end);
            match (first, final_part) {
                (true, true) => return rest == part,
                (true, false) => match rest.strip_prefix(part.as_str()) {
                    Some(tail) => rest = tail,
                    None => return false,
                },
                (false, true) => return rest.ends_with(part.as_str()),
                // The earliest place is never worse than a later one.
                (false, false) => match rest.split_once(part.as_str()) {
                    Some((_, tail)) => rest = tail,
                    None => return false,
                },
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_leak_sanitizer() {
        for (pattern, text, fits) in [
            ("foo", "a_foo_b", true),
            ("foo", "fo", false),
            ("^foo", "foo_b", true),
            ("^foo", "a_foo", false),
            ("foo$", "a_foo", true),
            ("foo$", "foo_a", false),
            ("^foo$", "foo", true),
            ("^foo$", "foofoo", false),
            ("a*c", "xxabbcxx", true),
            ("^a*c$", "abbc", true),
            ("^a*c$", "abcd", false),
            ("*", "", true),
            ("a*b*c", "acb", false),
            ("lib*.so", "/usr/lib/libfoo.so.1", true),
            ("^a*a$", "a", false),
            ("operator new[](unsigned long)", "operator new[](unsigned long)", true),
            ("a.c", "abc", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), fits, "{pattern} on {text}");
        }
    }
}
