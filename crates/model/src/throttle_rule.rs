//! Throttle rules: how many tokens the bucket of a throttle key gets, and how many it holds. It knows no bucket
//! and reads no clock.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use crate::limits::{THROTTLE_FILL_MAX, THROTTLE_PATTERN_BYTES_MAX};

/// The reason why a text is not a throttle rule, or its pattern not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThrottleError {
    /// The pattern is empty.
    #[error(
        "a throttle pattern has at least 1 character: a key as \"tenant:acme\", or \"tenant:*\""
    )]
    EmptyPattern,
    /// The pattern is too long.
    #[error(
        "a throttle pattern of {length} bytes is too long: THROTTLE_PATTERN_BYTES_MAX is {THROTTLE_PATTERN_BYTES_MAX}"
    )]
    PatternTooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The pattern has a character that no pattern has.
    #[error(
        "{character:?} at byte {position} of {pattern:?}: a throttle pattern is made of visible ASCII characters"
    )]
    Character {
        /// The pattern as given.
        pattern: String,
        /// The character.
        character: char,
        /// Its position in bytes.
        position: usize,
    },
    /// Something follows `*`.
    #[error(
        "{pattern:?}: * stands for any rest of a key, and is the last character, as in \"tenant:*\""
    )]
    NotLast {
        /// The pattern as given.
        pattern: String,
    },
    /// The text is not a rule.
    #[error(
        "{text:?} is no throttle: write RATE/s, RATE/m or RATE/h, and \"burst N\" behind it if you like, as \"10/s burst 20\""
    )]
    NoRule {
        /// The text as given.
        text: String,
    },
    /// The rate is zero, or has too many digits.
    #[error(
        "the rate {text:?} is not a decimal number from 0.000000001 to 1000000000 with at most 9 decimals"
    )]
    Rate {
        /// The rate as given.
        text: String,
    },
    /// The rate is above a token each nanosecond.
    #[error("the rate {text:?} is above 1000000000 tokens a second")]
    TooFast {
        /// The rate and its unit as given.
        text: String,
    },
    /// The burst is no number, or zero.
    #[error("the burst {text:?} is not a whole number from 1 to {}", u32::MAX)]
    Burst {
        /// The burst as given.
        text: String,
    },
    /// The bucket would fill too slowly.
    #[error(
        "a burst of {burst} takes {} days to fill at this rate: at most {} days are allowed (THROTTLE_FILL_MAX)",
        .fill.as_secs() / 86_400,
        THROTTLE_FILL_MAX.as_secs() / 86_400
    )]
    TooSlow {
        /// The burst.
        burst: u32,
        /// How long an empty bucket takes to fill.
        fill: Duration,
    },
}

/// Which throttle keys a rule is for: one key, or, with `*` as its last character, all keys that begin
/// with what is before it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThrottlePattern(Arc<str>);

impl ThrottlePattern {
    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The one key that the pattern means; `None` if it has a wildcard.
    #[must_use]
    pub fn exact(&self) -> Option<&str> {
        if self.0.ends_with('*') { None } else { Some(&self.0) }
    }

    /// What all keys begin with that the pattern means; `None` if it means one key.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.0.strip_suffix('*')
    }

    /// Returns whether the pattern means this key. A key may have bytes that no pattern has.
    #[must_use]
    pub fn matches(&self, key: &[u8]) -> bool {
        match self.prefix() {
            Some(prefix) => key.starts_with(prefix.as_bytes()),
            None => self.0.as_bytes() == key,
        }
    }

    /// Of all patterns that mean a key, the one with the greatest precedence counts: an exact key before a
    /// wildcard, a longer pattern before a shorter one. No two patterns that mean one key have the same.
    #[must_use]
    pub fn precedence(&self) -> (bool, usize) {
        (self.exact().is_some(), self.0.len())
    }
}

impl FromStr for ThrottlePattern {
    type Err = ThrottleError;

    fn from_str(text: &str) -> Result<Self, ThrottleError> {
        if text.is_empty() {
            return Err(ThrottleError::EmptyPattern);
        }
        if text.len() > THROTTLE_PATTERN_BYTES_MAX {
            return Err(ThrottleError::PatternTooLong { length: text.len() });
        }
        let wrong = text.char_indices().find(|(_, character)| !character.is_ascii_graphic());
        if let Some((position, character)) = wrong {
            return Err(ThrottleError::Character { pattern: text.into(), character, position });
        }
        match text.find('*') {
            Some(at) if at + 1 < text.len() => Err(ThrottleError::NotLast { pattern: text.into() }),
            _ => Ok(Self(text.into())),
        }
    }
}

impl fmt::Display for ThrottlePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many tokens a bucket gets, and how many it holds. As text: `10/s burst 20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThrottleRate {
    /// The time in which a bucket gets one token, in nanoseconds, at least 1. Times the burst it is at most
    /// [`THROTTLE_FILL_MAX`].
    pub interval_ns: u64,
    /// How many tokens a bucket holds, at least 1.
    pub burst: u32,
}

/// The rate of the bucket of each throttle key that the pattern means. Two keys have two buckets; a new one is full.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ThrottleRule {
    /// Which keys it is for.
    pub pattern: ThrottlePattern,
    /// The rate of each.
    pub rate: ThrottleRate,
}

/// The units of a rate, with their lengths in nanoseconds.
const UNITS: [(&str, u128); 3] =
    [("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];
/// A rate of 1, as rates are computed with here: in parts of 10^-9.
const ONE: u128 = 1_000_000_000;
/// Most decimals of a rate.
const DECIMALS_MAX: usize = 9;

impl ThrottleRate {
    /// Reads `RATE/s`, `RATE/m` or `RATE/h`, perhaps with `burst N` behind it. The rate is a decimal number.
    /// Without a burst, a bucket holds the tokens of one second, and at least one.
    ///
    /// # Errors
    /// The text is no rule, or a number is out of bounds; the error says what would be right.
    pub fn parse(text: &str) -> Result<Self, ThrottleError> {
        let no_rule = || ThrottleError::NoRule { text: text.into() };
        let mut words = text.split_ascii_whitespace();
        let rate = words.next().ok_or_else(no_rule)?;
        let burst = match (words.next(), words.next(), words.next()) {
            (None, ..) => None,
            (Some("burst"), Some(burst), None) => Some(burst),
            _ => return Err(no_rule()),
        };
        let (number, unit) = rate.split_once('/').ok_or_else(no_rule)?;
        let (_, unit_ns) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(no_rule)?;
        let scaled = scaled(number).ok_or_else(|| ThrottleError::Rate { text: number.into() })?;
        let interval_ns = interval_ns(scaled, unit_ns);
        if interval_ns == 0 || scaled > unit_ns * ONE {
            return Err(ThrottleError::TooFast { text: rate.into() });
        }
        let burst = match burst {
            None => u32::try_from(ONE / interval_ns).unwrap_or(u32::MAX).max(1),
            Some(text) => match text.parse() {
                Ok(burst) if burst > 0 && !text.starts_with('+') => burst,
                _ => return Err(ThrottleError::Burst { text: text.into() }),
            },
        };
        let fill_ns = interval_ns * u128::from(burst);
        if fill_ns > THROTTLE_FILL_MAX.as_nanos() {
            let secs = u64::try_from(fill_ns / ONE).unwrap_or(u64::MAX);
            return Err(ThrottleError::TooSlow { burst, fill: Duration::from_secs(secs) });
        }
        let interval_ns = u64::try_from(interval_ns).expect("366 days of nanoseconds fit");
        Ok(Self { interval_ns, burst })
    }

    /// Whether it is one that can be written: the bucket gets full within [`THROTTLE_FILL_MAX`].
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        let fill_ns = u128::from(self.interval_ns) * u128::from(self.burst);
        self.interval_ns > 0 && self.burst > 0 && fill_ns <= THROTTLE_FILL_MAX.as_nanos()
    }

    /// The rate without the burst as text: the shortest that is read as this interval.
    #[must_use]
    pub fn rate_text(&self) -> String {
        let interval = u128::from(self.interval_ns.max(1));
        for decimals in 0..=DECIMALS_MAX {
            let step = 10_u128.pow((DECIMALS_MAX - decimals) as u32);
            for (name, unit_ns) in UNITS {
                let rate = rounded(rounded(unit_ns * ONE, interval), step) * step;
                if rate > 0 && interval_ns(rate, unit_ns) == interval {
                    return format!("{}/{name}", decimal(rate, decimals));
                }
            }
        }
        // An interval that no text means.
        let (name, unit_ns) = UNITS[2];
        format!("{}/{name}", decimal(rounded(unit_ns * ONE, interval), DECIMALS_MAX))
    }
}

impl fmt::Display for ThrottleRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} burst {}", self.rate_text(), self.burst)
    }
}

impl ThrottleRule {
    /// A rule with the rate that `text` means.
    ///
    /// # Errors
    /// As [`ThrottleRate::parse`].
    pub fn parse(pattern: ThrottlePattern, text: &str) -> Result<Self, ThrottleError> {
        Ok(Self { pattern, rate: ThrottleRate::parse(text)? })
    }
}

fn rounded(dividend: u128, divisor: u128) -> u128 {
    (dividend + divisor / 2) / divisor
}

/// The interval of a rate; zero if that is below half a nanosecond.
fn interval_ns(rate: u128, unit_ns: u128) -> u128 {
    rounded(unit_ns * ONE, rate)
}

/// A decimal number above zero, in parts of 10^-9.
fn scaled(text: &str) -> Option<u128> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !are_digits(whole) || !are_digits(decimals) || decimals.len() > DECIMALS_MAX {
        return None;
    }
    // A rate of an hour may be 3600 times that of a second.
    let whole: u128 = whole.parse().ok().filter(|&whole| whole <= 3_600 * ONE)?;
    let parts: u128 = format!("{decimals:0<DECIMALS_MAX$}").parse().ok()?;
    Some(whole * ONE + parts).filter(|&scaled| scaled > 0)
}

fn decimal(scaled: u128, decimals: usize) -> String {
    let whole = scaled / ONE;
    let parts = format!("{:0DECIMALS_MAX$}", scaled % ONE);
    if decimals == 0 { whole.to_string() } else { format!("{whole}.{}", &parts[..decimals]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> ThrottlePattern {
        text.parse().unwrap()
    }

    fn rule(text: &str) -> ThrottleRate {
        ThrottleRate::parse(text).unwrap()
    }

    #[test]
    fn a_rule_is_a_rate_and_a_burst() {
        for (text, interval_ns, burst, shown) in [
            ("10/s", 100_000_000, 10, "10/s burst 10"),
            ("10/s burst 20", 100_000_000, 20, "10/s burst 20"),
            ("  10/s   burst 1 ", 100_000_000, 1, "10/s burst 1"),
            ("0.5/s", 2_000_000_000, 1, "30/m burst 1"),
            ("2.5/s", 400_000_000, 2, "150/m burst 2"),
            ("3/s", 333_333_333, 3, "3/s burst 3"),
            ("7/m burst 5", 8_571_428_571, 5, "7/m burst 5"),
            ("0.001/h", 3_600_000_000_000_000, 1, "0.001/h burst 1"),
            ("1000000000/s", 1, 1_000_000_000, "1000000000/s burst 1000000000"),
            ("3600000000000/h burst 1", 1, 1, "1000000000/s burst 1"),
        ] {
            let rule = rule(text);
            assert_eq!((rule.interval_ns, rule.burst), (interval_ns, burst), "{text}");
            assert_eq!(rule.to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_read_as_the_same_rule() {
        for number in (1..2000).chain((2000..5_000_000).step_by(4999)) {
            for unit in ["s", "m", "h"] {
                for text in [
                    format!("{number}/{unit} burst 1"),
                    format!("0.{number:09}/{unit} burst 1"),
                    format!("{number}.0{number}/{unit} burst 1"),
                ] {
                    if let Ok(read) = ThrottleRate::parse(&text) {
                        assert_eq!(rule(&read.to_string()), read, "{text} {read}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_with_what_would_be_right() {
        let no_rule = |text: &str| {
            format!(
                "{text:?} is no throttle: write RATE/s, RATE/m or RATE/h, and \"burst N\" behind it if you like, as \"10/s burst 20\""
            )
        };
        let no_rate = |text: &str| {
            format!(
                "the rate {text:?} is not a decimal number from 0.000000001 to 1000000000 with at most 9 decimals"
            )
        };
        for (text, said) in [
            ("", no_rule("")),
            ("10", no_rule("10")),
            ("10,20", no_rule("10,20")),
            ("10/d", no_rule("10/d")),
            ("10/s 20", no_rule("10/s 20")),
            ("10/s burst", no_rule("10/s burst")),
            ("10/s burst 1 2", no_rule("10/s burst 1 2")),
            ("/s", no_rate("")),
            ("0/s", no_rate("0")),
            ("0.0/s", no_rate("0.0")),
            ("-1/s", no_rate("-1")),
            ("+1/s", no_rate("+1")),
            ("1e3/s", no_rate("1e3")),
            (".5/s", no_rate(".5")),
            ("5./s", no_rate("5.")),
            ("0.0000000001/s", no_rate("0.0000000001")),
            ("99999999999999999999999999999999999999999/s", no_rate("99999999999999999999999999999999999999999")),
            ("1000000001/s", "the rate \"1000000001/s\" is above 1000000000 tokens a second".into()),
            ("3000000000/s", "the rate \"3000000000/s\" is above 1000000000 tokens a second".into()),
            ("1/s burst 0", "the burst \"0\" is not a whole number from 1 to 4294967295".into()),
            ("1/s burst +1", "the burst \"+1\" is not a whole number from 1 to 4294967295".into()),
            ("1/s burst x", "the burst \"x\" is not a whole number from 1 to 4294967295".into()),
            (
                "1/h burst 1000000",
                "a burst of 1000000 takes 41666 days to fill at this rate: at most 366 days are allowed (THROTTLE_FILL_MAX)".into(),
            ),
            (
                "0.000000001/h",
                "a burst of 1 takes 41666666 days to fill at this rate: at most 366 days are allowed (THROTTLE_FILL_MAX)".into(),
            ),
        ] {
            let refused = ThrottleRate::parse(text).unwrap_err();
            assert_eq!(refused.to_string(), said, "{text}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_and_says_why() {
        let long = "x".repeat(THROTTLE_PATTERN_BYTES_MAX + 1);
        for (text, said) in [
            (
                "",
                "a throttle pattern has at least 1 character: a key as \"tenant:acme\", or \"tenant:*\"",
            ),
            (
                "a b",
                "' ' at byte 1 of \"a b\": a throttle pattern is made of visible ASCII characters",
            ),
            (
                "a*b",
                "\"a*b\": * stands for any rest of a key, and is the last character, as in \"tenant:*\"",
            ),
            (
                "**",
                "\"**\": * stands for any rest of a key, and is the last character, as in \"tenant:*\"",
            ),
            (
                &long,
                "a throttle pattern of 248 bytes is too long: THROTTLE_PATTERN_BYTES_MAX is 247",
            ),
        ] {
            assert_eq!(text.parse::<ThrottlePattern>().unwrap_err().to_string(), said, "{text}");
        }
        assert!(long[1..].parse::<ThrottlePattern>().is_ok());
    }

    #[test]
    fn an_exact_key_wins_over_a_pattern_and_a_longer_pattern_over_a_shorter_one() {
        let patterns = ["*", "tenant:*", "tenant:a*", "tenant:acme", "x"].map(pattern);
        let of = |patterns: &[ThrottlePattern], key: &str| {
            let matching = patterns.iter().filter(|pattern| pattern.matches(key.as_bytes()));
            matching.max_by_key(|pattern| pattern.precedence()).map(|held| held.as_str().to_owned())
        };
        for (key, expected) in [
            ("tenant:acme", "tenant:acme"),
            ("tenant:acme2", "tenant:a*"),
            ("tenant:b", "tenant:*"),
            ("tenant:", "tenant:*"),
            ("tenant", "*"),
            ("x", "x"),
            ("", "*"),
            ("t\u{e4}", "*"),
        ] {
            assert_eq!(of(&patterns, key).as_deref(), Some(expected), "{key}");
        }
        assert_eq!(of(&patterns[1..], "y"), None);
    }
}
