//! Sizes and times as people write them.

/// Reads a size in bytes: `4096`, `0x1000`, `4k`, `1.5M`, `1MiB`, `2G`. Letters
/// are powers of 1024; `kB`, `MB` and `GB` are those of 1000.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim() {
        "" | "b" | "B" => 1,
        "k" | "K" | "ki" | "Ki" | "KiB" | "kiB" => 1 << 10,
        "m" | "M" | "Mi" | "MiB" => 1 << 20,
        "g" | "G" | "Gi" | "GiB" => 1 << 30,
        "t" | "T" | "Ti" | "TiB" => 1 << 40,
        "kB" | "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    scaled(number, factor)
}

/// Reads a time in ns: seconds without a unit, else `120ms`, `3m`, `1.5s`,
/// `2h`, `1d`, `80us`, `5ns`, or several behind each other (`1m30s`).
pub fn time(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let split = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(split);
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let factor = match unit.trim() {
            "" | "s" | "sec" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" => 1_000,
            "ns" => 1,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return None,
        };
        total = total.checked_add(scaled(number, factor)?)?;
        rest = tail;
    }
    Some(total)
}

/// `number * factor`, rounded down, without going through floating point: the
/// last nanosecond of a time counts.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut value = u128::from(whole) * u128::from(factor);
    let fraction = fraction.get(..18).unwrap_or(fraction);
    if !fraction.is_empty() {
        let digits = u32::try_from(fraction.len()).ok()?;
        value += u128::from(fraction.parse::<u64>().ok()?) * u128::from(factor) / 10u128.pow(digits);
    }
    u64::try_from(value).ok()
}

/// A length of time for a sentence: two or three digits and a unit.
pub fn time_text(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        1_000_000_000..120_000_000_000 => (ns as f64 / 1e9, "s"),
        120_000_000_000..7_200_000_000_000 => (ns as f64 / 60e9, "min"),
        _ => (ns as f64 / 3600e9, "h"),
    };
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// A size, or a change of one, for a sentence: IEC units, rounded.
pub fn size_text(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value.abs() >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0x1000", 4096),
            ("4k", 4096),
            ("1MiB", 1 << 20),
            ("1.5M", 3 << 19),
            ("0", 0),
            ("10 kB", 10_000),
            ("2G", 2 << 30),
            (".5k", 512),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "k", "-1", "1x", "0x", "1.2.3", "99999999999999999999", "18446744073709551615k"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn sentences_have_short_numbers() {
        let times = [7, 1_500, 250_000_000, 40_000_000_000, 600_000_000_000, 36_000_000_000_000];
        assert_eq!(times.map(time_text), ["7 ns", "1.5 us", "250 ms", "40 s", "10 min", "10 h"]);
        let sizes = [0.4, 512.0, 1536.0, -2048.0, 1e18];
        assert_eq!(sizes.map(size_text), ["0 B", "512 B", "1.5 KiB", "-2.0 KiB", "909494.7 TiB"]);
    }

    #[test]
    fn times_are_read_to_the_nanosecond() {
        for (text, ns) in [
            ("3", 3_000_000_000),
            ("120ms", 120_000_000),
            ("3m", 180_000_000_000),
            ("1m30s", 90_000_000_000),
            ("0.123456789", 123_456_789),
            ("5ns", 5),
            ("80us", 80_000),
            ("1h", 3_600_000_000_000),
        ] {
            assert_eq!(time(text), Some(ns), "{text}");
        }
        for text in ["", "s", "3x", "-3", "1.2.3"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
