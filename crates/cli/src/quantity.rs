//! Durations and sizes as people type them: `30s`, `1h30m`, `7d`, `10MiB`. Knows no flag.

use std::time::Duration;

/// Units of time and their length in milliseconds.
const TIMES: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
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

/// A duration of one or more parts: `250ms`, `30s`, `1h30m`.
///
/// # Errors
/// A text for people.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: write 250ms, 30s, 5m, 2h, 7d or 1h30m");
    let mut rest = text;
    let mut ms = 0_u64;
    while !rest.is_empty() || text.is_empty() {
        let (number, after) = leading_number(rest).ok_or_else(wrong)?;
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let (_, length) = TIMES.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let part = number.checked_mul(*length).ok_or_else(wrong)?;
        ms = ms.checked_add(part).ok_or_else(wrong)?;
        rest = next;
    }
    Ok(Duration::from_millis(ms))
}

/// A size in bytes: `4096`, `64KiB`, `10GB`.
///
/// # Errors
/// A text for people.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size: write 4096, 64KiB, 10MiB or 2GB");
    let (number, unit) = leading_number(text).ok_or_else(wrong)?;
    if unit.is_empty() {
        return Ok(number);
    }
    let (_, length) =
        SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
    number.checked_mul(*length).ok_or_else(wrong)
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// `duration` in the largest units that say it exactly, as [`duration`] reads it.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let mut ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (unit, length) in TIMES.iter().rev().skip(1) {
        if ms >= *length {
            text = format!("{text}{}{unit}", ms / length);
            ms %= length;
        }
    }
    text
}

/// `bytes` in the largest unit that says them exactly, as [`size`] reads it.
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
        for (text, ms) in
            [("250ms", 250), ("30s", 30_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "30", "s", "5 m", "-1s", "1.5h", "1y", "99999999999999999999s", "s5"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_read_in_both_kinds_of_units() {
        for (text, bytes) in
            [("4096", 4096), ("10MiB", 10 << 20), ("2GB", 2_000_000_000), ("1kib", 1024)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "10 MiB", "-1", "1.5GiB", "99999999TiB"] {
            assert!(size(text).is_err(), "{text:?}");
        }
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
