//! Sizes, counts, times and long names for people. Never the locale's.

use highwater_query::Frame;
use highwater_query::stack::{base_name, function as function_of, function_name, is_pseudo, near};

/// A size in IEC units, rounded: `512 B`, `12.3 MiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut unit = 0;
    // Tenths of the unit, rounded half up; 1023.95 KiB is 1.0 MiB.
    loop {
        let divisor = 1u128 << (10 * (unit as u32 + 1));
        let tenths = (u128::from(value) * 20 + divisor) / (2 * divisor);
        if tenths < 10_240 || unit + 1 == UNITS.len() {
            return format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit]);
        }
        unit += 1;
    }
}

/// A count with its thousands apart: `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 block`, `2 blocks`.
pub fn counted(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(value), if value == 1 { one } else { many })
}

/// A length of time or an instant: `17 ns`, `12.3 ms`, `1.234 s`, `3 min 04 s`,
/// `2 h 05 min`.
pub fn time(ns: u64) -> String {
    let tenths = |unit: u64| {
        let value = (ns + unit / 20) / (unit / 10);
        format!("{}.{}", value / 10, value % 10)
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_950 => format!("{} us", tenths(1_000)),
        999_950..999_950_000 => format!("{} ms", tenths(1_000_000)),
        999_950_000..59_999_500_000 => {
            let ms = (ns + 500_000) / 1_000_000;
            format!("{}.{:03} s", ms / 1000, ms % 1000)
        }
        _ => {
            let s = ns / 1_000_000_000 + u64::from(ns % 1_000_000_000 >= 500_000_000);
            match s {
                0..3600 => format!("{} min {:02} s", s / 60, s % 60),
                _ => format!("{} h {:02} min", s / 3600, s / 60 % 60),
            }
        }
    }
}

/// A share, rounded to tenths: `12.3 %`; `0.0 %` of nothing.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0.0 %".to_string();
    }
    let tenths = (u128::from(part) * 2000 + u128::from(whole)) / (2 * u128::from(whole));
    // What is not all must not look like all, nor something like nothing.
    let tenths = match tenths {
        1000 if part < whole => 999,
        0 if part > 0 => 1,
        tenths => tenths,
    };
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Events a second: `950/s`, `1.2 M/s`.
pub fn rate(events: u64, ns: u64) -> String {
    if ns == 0 {
        return "0/s".to_string();
    }
    let per_second = u128::from(events) * 1_000_000_000 / u128::from(ns);
    match per_second {
        0..1_000 => format!("{per_second}/s"),
        1_000..1_000_000 => format!("{}.{} k/s", per_second / 1_000, per_second / 100 % 10),
        _ => format!("{}.{} M/s", per_second / 1_000_000, per_second / 100_000 % 10),
    }
}

/// A function's name in at most `width` columns: template arguments go first,
/// then parameters, then the middle.
pub fn name(function: &str, width: usize) -> String {
    let fits = |text: &str| text.chars().count() <= width;
    if fits(function) {
        return function.to_string();
    }
    let collapsed = collapse(function, '<', '>', "<..>");
    if fits(&collapsed) {
        return collapsed;
    }
    let bare = collapse(&collapsed, '(', ')', "");
    if fits(&bare) {
        return bare;
    }
    middle(&bare, width)
}

/// Replaces outermost bracketed parts by `by`. A `<` that begins a name (Rust's
/// `<T as Trait>::f`) or belongs to an operator stays.
fn collapse(text: &str, open: char, close: char, by: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut depth = 0usize;
    let leading = text.starts_with('<');
    for (at, c) in text.char_indices() {
        if c == open && (depth > 0 || !(out.ends_with("operator") || (leading && at == 0))) {
            if depth == 0 {
                out.push_str(by);
            }
            depth += 1;
        } else if c == close && depth > 0 {
            depth -= 1;
        } else if depth == 0 {
            out.push(c);
        }
    }
    // Brackets that do not match (an operator's, an odd name): as it was.
    if depth == 0 { out } else { text.to_string() }
}

/// Cuts out the middle: the namespace and the last part say most.
pub fn middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_string();
    }
    if width <= 4 {
        return text.chars().take(width).collect();
    }
    let keep = width - 2;
    let head: String = text.chars().take(keep / 3).collect();
    let tail: String = text.chars().skip(length - (keep - keep / 3)).collect();
    format!("{head}..{tail}")
}

/// A frame as name and place, together at most `width` columns where that can
/// be: the function, and `file:line` or the module.
pub fn frame(frame: &Frame, width: usize) -> (String, String) {
    let function = function_name(frame);
    if is_pseudo(frame) {
        return (middle(&function, width), String::new());
    }
    let place = |file: &str| match frame.line {
        Some(line) => format!("{file}:{line}"),
        None => file.to_string(),
    };
    let mut at = match &frame.file {
        Some(file) => place(file),
        // Without a name the module is the name; the nearest symbol is only a remark.
        None if function_of(frame).is_none() => {
            let near = near(frame).map(|near| format!("near {near}"));
            let room = width.saturating_sub(function.chars().count() + 3);
            near.filter(|near| near.chars().count() <= room).unwrap_or_default()
        }
        None => base_name(&frame.module).to_string(),
    };
    if at.is_empty() {
        return (name(&function, width), at);
    }
    // A path is clicked at, so it is never cut inside: the whole or its last part.
    if at.chars().count() + 15 > width {
        at = match &frame.file {
            Some(file) => place(base_name(file)),
            None => at,
        };
    }
    let rest = width.saturating_sub(at.chars().count() + 3);
    if rest < function.chars().count().min(8) {
        // No room for both: the name alone.
        return (name(&function, width), String::new());
    }
    (name(&function, rest), at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1_048_575, "1.0 MiB"),
            (12_897_485, "12.3 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "block", "blocks"), "1 block");
    }

    #[test]
    fn times_fit_their_size() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_500, "1.5 us"),
            (999_949, "999.9 us"),
            (999_950, "1.0 ms"),
            (12_345_678, "12.3 ms"),
            (1_234_567_890, "1.235 s"),
            (59_999_999_999, "1 min 00 s"),
            (184_000_000_000, "3 min 04 s"),
            (7_500_000_000_000, "2 h 05 min"),
        ] {
            assert_eq!(time(ns), text, "{ns}");
        }
    }

    #[test]
    fn shares_do_not_lie_at_the_ends() {
        assert_eq!(percent(1, 3), "33.3 %");
        assert_eq!(percent(999_999, 1_000_000), "99.9 %");
        assert_eq!(percent(1, 1_000_000), "0.1 %");
        assert_eq!(percent(0, 0), "0.0 %");
        assert_eq!(percent(5, 5), "100.0 %");
    }

    #[test]
    fn long_names_lose_what_matters_least() {
        let long = "ns::Table<std::string, std::vector<int> >::insert(std::string const&, int)";
        assert_eq!(name(long, 100), long);
        assert_eq!(name(long, 60), "ns::Table<..>::insert(std::string const&, int)");
        assert_eq!(name(long, 30), "ns::Table<..>::insert");
        assert_eq!(name(long, 15), "ns::..>::insert");
        assert_eq!(name("operator<<(X, Y)", 12), "operator<<");
        assert_eq!(
            name("<a::B<T> as c::D>::e", 19),
            "<a::B<..> as c::D>::e".get(..).map(|t| middle(t, 19)).unwrap()
        );
    }
}
