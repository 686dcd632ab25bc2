//! What a misspelt word was probably meant to be.

/// ` (did you mean `size`?)`, or nothing where no known word is close.
pub fn hint(word: &str, known: &[&str]) -> String {
    let near = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(word, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4)
        .min();
    match near {
        Some((_, name)) => format!(" (did you mean `{name}`?)"),
        None => String::new(),
    }
}

/// The words of a list as part of a sentence: `a, b and c`.
pub fn list(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_string(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_words_are_meant() {
        let known = ["size", "site", "seqno", "thread"];
        assert_eq!(hint("tread", &known), " (did you mean `thread`?)");
        assert_eq!(hint("szie", &known), " (did you mean `size`?)");
        assert_eq!(hint("colour", &known), "");
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
        assert_eq!(list(&["a"]), "a");
    }
}
