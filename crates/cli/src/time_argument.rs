//! Parses points in time: `2026-11-25`, `2026-11-25T17:00:00+01:00`, `15m` ago. The default zone is UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::{
    SignedDuration,
    civil::{DateTime, date},
    fmt::temporal::Pieces,
};

use crate::quantity;

/// The forms that [`calendar`] accepts, for help and errors.
const FORMS: &str = "2026-11-25, 2026-11-25T17:00 (both UTC) or 2026-11-25T17:00:00+01:00";

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// A point in time: a date, which is its midnight in UTC, a date with a time, in UTC unless it has
/// an offset, or `@` and the seconds since 1970. Returns milliseconds since 1970; 0 for earlier
/// times. The years are 0000 to 9999.
///
/// # Errors
/// A text for people.
pub fn calendar(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if let Some(seconds) = text.strip_prefix('@') {
        let wrong = || format!("{text:?} is no time: write @ and seconds since 1970, or {FORMS}");
        let seconds = quantity::duration(&format!("{seconds}s"));
        return seconds.map(as_ms).map_err(|_| wrong());
    }
    if !begins_with_a_date(text) {
        return Err(format!("{text:?} is no time: write {FORMS}"));
    }
    if has_a_long_year(text) {
        return Err(format!("{text:?} is out of range: a time is at most 9999-12-31T23:59:59Z"));
    }
    let pieces = Pieces::parse(text).map_err(|error| format!("{text:?} is no time: {error}"))?;
    if pieces.time_zone_annotation().is_some() && pieces.to_numeric_offset().is_none() {
        return Err(format!("{text:?} names a zone: write its offset from UTC, {FORMS}"));
    }
    let local = pieces.date().to_datetime(pieces.time().unwrap_or_default());
    let offset = pieces.to_numeric_offset().map_or(0, |offset| offset.seconds());
    let since = local.duration_since(EPOCH) - SignedDuration::from_secs(offset.into());
    Ok(u64::try_from(since.as_millis()).unwrap_or(0))
}

/// A point in time, or the time since one: `15m`, or `-15m`.
///
/// # Errors
/// A text for people.
pub fn past(text: &str) -> Result<u64, String> {
    let ago = text.trim().trim_start_matches('-');
    match (quantity::duration(ago), calendar(text)) {
        (Ok(ago), _) => Ok(as_ms(now().saturating_sub(ago))),
        (_, Ok(at)) => Ok(at),
        // What begins like a duration is told as one.
        (Err(duration), Err(_)) if is_meant_as_a_duration(ago) => Err(duration),
        (_, Err(time)) => Err(time),
    }
}

/// A point in time, or the time until one: `7d`.
///
/// # Errors
/// A text for people.
pub fn future(text: &str) -> Result<u64, String> {
    match (quantity::duration(text), calendar(text)) {
        (Ok(until), _) => Ok(as_ms(now().saturating_add(until))),
        (_, Ok(at)) => Ok(at),
        (Err(duration), Err(_)) if is_meant_as_a_duration(text) => Err(duration),
        (_, Err(time)) => Err(time),
    }
}

/// `at_ms` in the form of RFC 3339, in UTC; at most the end of the year 9999.
#[must_use]
pub fn show(at_ms: u64) -> String {
    let since = SignedDuration::from_millis(i64::try_from(at_ms).unwrap_or(i64::MAX));
    format!("{}Z", EPOCH.checked_add(since).unwrap_or(DateTime::MAX))
}

pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Returns whether it begins with a year and a dash, perhaps with a sign and too many digits.
fn begins_with_a_date(text: &str) -> bool {
    let year = text.trim_start_matches('+');
    digits(year) >= 4 && year[digits(year)..].starts_with('-')
}

fn has_a_long_year(text: &str) -> bool {
    digits(text.trim_start_matches('+')) > 4
}

/// Returns whether it is a number and a unit, valid or not.
fn is_meant_as_a_duration(text: &str) -> bool {
    let rest = text[digits(text)..].trim_start_matches('.');
    let rest = rest[digits(rest)..].trim_start();
    digits(text) > 0 && rest.starts_with(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_in_each_of_its_forms_and_is_utc_unless_it_says_otherwise() {
        for (text, ms) in [
            ("2026-11-21", 1_795_219_200_000),
            ("2026-11-21T17:00", 1_795_280_400_000),
            ("2026-11-21 17:00:00", 1_795_280_400_000),
            ("2026-11-21T17:00:00Z", 1_795_280_400_000),
            ("2026-11-21t17:00:00z", 1_795_280_400_000),
            ("2026-11-21T18:00:00.5+01:00", 1_795_280_400_500),
            ("@1795280400", 1_795_280_400_000),
            ("1960-01-01T00:00:00Z", 0),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
            ("9999-12-31T23:59:59-12:00", 253_402_343_999_000),
        ] {
            assert_eq!(calendar(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn a_wrong_time_is_told_what_is_wrong_with_it() {
        for (text, said) in [
            ("yesterday", "is no time: write 2026-11-25"),
            ("", "is no time: write"),
            ("11/25/2026", "is no time: write"),
            ("2026-13-01", "is no time: "),
            ("2026-02-30", "is no time: "),
            ("2026-11-25T25:00", "is no time: "),
            ("10000-01-01", "out of range: a time is at most 9999-12-31"),
            ("+10000-01-01T00:00:00Z", "out of range"),
            ("2026-11-25T17:00[Europe/Berlin]", "write its offset from UTC"),
            ("@soon", "seconds since 1970"),
        ] {
            let wrong = calendar(text).unwrap_err();
            assert!(wrong.contains(said), "{text:?}: {wrong}");
        }
    }

    #[test]
    fn a_duration_is_counted_from_now() {
        let hour = 3_600_000;
        let at = as_ms(now());
        for (text, moment, expected) in [
            ("1h", past("1h"), at - hour),
            ("-1h", past("-1h"), at - hour),
            ("1h", future("1h"), at + hour),
        ] {
            let moment = moment.unwrap();
            assert!((expected..expected + hour / 2).contains(&moment), "{text}: {moment}");
        }
        assert!(past("5y").unwrap_err().contains("is no duration"));
        assert!(past("40000d").unwrap_err().contains("at most 100 years"));
        assert!(future("soon").unwrap_err().contains("is no time"));
    }

    #[test]
    fn what_is_shown_reads_as_the_same() {
        for ms in [0, 1_795_280_400_500, 253_402_300_799_000] {
            assert_eq!(calendar(&show(ms)), Ok(ms), "{}", show(ms));
        }
        assert_eq!(show(1_795_280_400_500), "2026-11-21T17:00:00.5Z");
        assert!(show(u64::MAX).starts_with("9999-12-31T23:59:59"));
    }
}
