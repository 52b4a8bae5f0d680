//! Parses durations and sizes: `30s`, `1.5s`, `1h30m`, `10MiB`. Each error says what would be right, and
//! distinguishes a value that is too large from a wrong spelling.

use std::time::Duration;

use sennit_model::limits::DURATION_MAX;

/// Units of time: their names, the shortest first, and their length in milliseconds. Durations are
/// shown with the first name.
const TIMES: [(&[&str], u64); 6] = [
    (&["ms", "msec", "msecs", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "secs", "second", "seconds"], 1000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000),
    (&["d", "day", "days"], 86_400_000),
    (&["w", "week", "weeks"], 604_800_000),
];

/// Units of size and their length in bytes.
const SIZES: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// A duration of one or more parts: `250ms`, `1.5s`, `1h30m`, `2 days`. `0` needs no unit. At most
/// [`DURATION_MAX`].
///
/// # Errors
/// A text for people.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write 250ms, 1.5s, 5m, 2h, 7d or 1h30m");
    let too_long = || format!("{text:?} is too long: a duration is at most 100 years (36500d)");
    let mut rest = text.trim();
    if rest.starts_with('-') {
        return Err(format!("{text:?} is negative: a duration is 0 or more"));
    }
    let mut total_ms = 0_u64;
    loop {
        let (number, after) = leading_number(rest).ok_or_else(wrong)?;
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        if unit.is_empty() && next.is_empty() && rest.len() == text.trim().len() {
            if number.is_zero() {
                return Ok(Duration::ZERO);
            }
            let number = rest;
            return Err(format!("{number} of what? Write {number}ms, {number}s or {number}m"));
        }
        let unit_ms = TIMES.iter().find(|(names, _)| names.contains(&unit)).ok_or_else(wrong)?.1;
        let part_ms = match number.times(unit_ms) {
            Product::Whole(ms) => ms,
            Product::TooLarge => return Err(too_long()),
            Product::NotWhole => {
                return Err(format!("{text:?} is no whole number of milliseconds"));
            }
        };
        total_ms = total_ms.checked_add(part_ms).ok_or_else(too_long)?;
        rest = next.trim_start();
        if rest.is_empty() {
            break;
        }
    }
    let total = Duration::from_millis(total_ms);
    if total > DURATION_MAX { Err(too_long()) } else { Ok(total) }
}

/// A size in bytes: `4096`, `64KiB`, `1.5GiB`, `10GB`.
///
/// # Errors
/// A text for people.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size: write 4096, 64KiB, 10MiB or 2GB");
    let (number, unit) = leading_number(text.trim()).ok_or_else(wrong)?;
    let unit = unit.trim_start();
    if unit.len() == 1 && "kKmMgGtT".contains(unit) {
        let (letter, digits) = (unit.to_ascii_uppercase(), text.trim().trim_end_matches(unit));
        return Err(format!(
            "{text:?} has two meanings: write {digits}{letter}iB (powers of 1024) or \
             {digits}{letter}B (powers of 1000)"
        ));
    }
    let unit_bytes = match SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((_, bytes)) => *bytes,
        None if unit.is_empty() => 1,
        None => return Err(wrong()),
    };
    match number.times(unit_bytes) {
        Product::Whole(bytes) => Ok(bytes),
        Product::TooLarge => Err(format!("{text:?} is too large: a size is at most {}B", u64::MAX)),
        Product::NotWhole => Err(format!("{text:?} is no whole number of bytes")),
    }
}

/// Returns whether `text` ends with a unit of time: then [`duration`] reports errors in the rest.
#[must_use]
pub fn names_a_time(text: &str) -> bool {
    TIMES.iter().any(|(names, _)| names.contains(&unit_of(text)))
}

/// Returns whether `text` ends with a unit of size: then [`size`] reports errors in the rest.
#[must_use]
pub fn names_a_size(text: &str) -> bool {
    let unit = unit_of(text);
    let is_letter = unit.len() == 1 && "kKmMgGtT".contains(unit);
    is_letter || SIZES.iter().any(|(name, _)| name.eq_ignore_ascii_case(unit))
}

/// The letters at the end of `text`.
fn unit_of(text: &str) -> &str {
    let text = text.trim();
    let start = text.rfind(|c: char| !c.is_ascii_alphabetic());
    start.map_or("", |at| text[at..].trim_start_matches(|c: char| !c.is_ascii_alphabetic()))
}

/// A decimal number without sign, of any length.
#[derive(Clone, Copy)]
struct Decimal<'a> {
    whole: &'a str,
    fraction: &'a str,
}

/// A decimal number times a unit.
enum Product {
    Whole(u64),
    TooLarge,
    NotWhole,
}

impl Decimal<'_> {
    fn is_zero(self) -> bool {
        self.whole.bytes().chain(self.fraction.bytes()).all(|digit| digit == b'0')
    }

    /// Exactly, without floating point.
    fn times(self, unit: u64) -> Product {
        let Some(whole) = parsed(self.whole).and_then(|whole| whole.checked_mul(unit.into()))
        else {
            return Product::TooLarge;
        };
        let fraction = self.fraction.trim_end_matches('0');
        // No unit has a part that is smaller: it is no multiple of ten to the 19th.
        let Some(scale) =
            10_u128.checked_pow(fraction.len() as u32).filter(|_| fraction.len() < 19)
        else {
            return Product::NotWhole;
        };
        let part = parsed(fraction).unwrap_or(0) * u128::from(unit);
        if !part.is_multiple_of(scale) {
            return Product::NotWhole;
        }
        whole
            .checked_add(part / scale)
            .and_then(|product| u64::try_from(product).ok())
            .map_or(Product::TooLarge, Product::Whole)
    }
}

/// Digits as a number: 0 for none; `None` on overflow.
fn parsed(digits: &str) -> Option<u128> {
    if digits.is_empty() { Some(0) } else { digits.parse().ok() }
}

/// The number at the start of `text`, `1`, `1.5` or `.5`, and what follows it.
fn leading_number(text: &str) -> Option<(Decimal<'_>, &str)> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (whole, after) = text.split_at(digits(text));
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) if digits(after) > 0 => after.split_at(digits(after)),
        Some(_) => return None,
        None => ("", after),
    };
    let is_empty = whole.is_empty() && fraction.is_empty();
    (!is_empty).then_some((Decimal { whole, fraction }, after))
}

/// `duration` in the largest units that represent it exactly, in the form of [`duration`].
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let mut ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (names, length) in TIMES.iter().rev().skip(1) {
        if ms >= *length {
            text = format!("{text}{}{}", ms / length, names[0]);
            ms %= length;
        }
    }
    text
}

/// `bytes` in the largest unit that represents them exactly, in the form of [`size`].
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let binary = SIZES.iter().rev().take(4);
    let unit =
        binary.into_iter().find(|(_, length)| bytes >= *length && bytes.is_multiple_of(*length));
    unit.map_or_else(|| format!("{bytes}B"), |(unit, length)| format!("{}{unit}", bytes / length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_parts() {
        for (text, ms) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("0", 0),
            ("0.0", 0),
            ("0s", 0),
            ("1.5s", 1500),
            (".5s", 500),
            ("1.5h", 5_400_000),
            ("0.250s", 250),
            ("5 m", 300_000),
            ("1h 30m", 5_400_000),
            (" 2 days ", 172_800_000),
            ("10min", 600_000),
            ("1hour1sec", 3_601_000),
            ("36500d", 36_500 * 86_400_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", " ", "s", "1y", "s5", "1.s", "1.5.5s", "5m3", "1,5s", "1s,", "forever"] {
            let said = duration(text).unwrap_err();
            assert!(said.contains("is no duration: write"), "{text:?}: {said}");
        }
    }

    #[test]
    fn a_duration_without_a_unit_is_asked_for_one() {
        assert_eq!(duration("30").unwrap_err(), "30 of what? Write 30ms, 30s or 30m");
        assert_eq!(duration("1.5").unwrap_err(), "1.5 of what? Write 1.5ms, 1.5s or 1.5m");
    }

    #[test]
    fn a_duration_out_of_range_is_not_called_bad_spelling() {
        for text in ["99999999999999999999s", "36501d", "18446744073709551616ms", "5000000w"] {
            assert!(duration(text).unwrap_err().contains("at most 100 years"), "{text}");
        }
        assert!(duration("-1s").unwrap_err().contains("is negative"));
        for text in ["1.5ms", "0.0001s", "0.00000000000000000000001w"] {
            assert!(duration(text).unwrap_err().contains("no whole number"), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_in_both_kinds_of_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("0", 0),
            ("10MiB", 10 << 20),
            ("2GB", 2_000_000_000),
            ("1kib", 1024),
            ("1.5GiB", 3 << 29),
            ("10 MiB", 10 << 20),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "1.MiB", "10 XB", "1MiB2"] {
            assert!(size(text).unwrap_err().contains("is no size: write"), "{text:?}");
        }
        for text in ["99999999TiB", "18446744073709551616"] {
            assert!(size(text).unwrap_err().contains("too large"), "{text:?}");
        }
        assert!(size("1.5").unwrap_err().contains("no whole number of bytes"));
        assert!(size("64k").unwrap_err().contains("write 64KiB (powers of 1024) or 64KB"));
    }

    #[test]
    fn what_is_shown_reads_as_the_same() {
        for ms in [0, 1, 999, 1000, 61_000, 90_061_001, 604_800_000] {
            let shown = show_duration(Duration::from_millis(ms));
            assert_eq!(duration(&shown), Ok(Duration::from_millis(ms)), "{shown}");
        }
        for bytes in [0, 1, 1023, 1024, 10 << 20, (1 << 30) + 1] {
            assert_eq!(size(&show_size(bytes)), Ok(bytes));
        }
        assert_eq!(show_duration(Duration::from_secs(5400)), "1h30m");
        assert_eq!(show_size(10 << 20), "10MiB");
        assert_eq!(show_size(1000), "1000B");
    }
}
