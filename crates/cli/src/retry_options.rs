//! The options of a group's retry policy: how they are read, and how a policy is shown.

use std::time::Duration;

use sennit_client::{Backoff, GroupChange, RetryDelays, RetryPolicy};
use serde_json::{Value, json};

use crate::quantity::{duration, show_duration};

/// Options of the retry policy; one that is not named keeps its setting.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct RetryOptions {
    /// The delay of the next attempt: 1s..5m doubles with each failed attempt up to the second
    /// value; 1s,10s,1m is a list, of which the last repeats; none
    #[arg(long, value_name = "DELAYS", value_parser = backoff)]
    retry_backoff: Option<Backoff>,
    /// How much longer or shorter each delay may be, 0% to 100%
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    retry_jitter: Option<u8>,
    /// A message that fails at this age or later goes to the dead-letter topic; none for no such age
    #[arg(long, value_name = "DURATION", value_parser = age)]
    retry_age: Option<RetryAge>,
}

/// The age of a policy as an option: a duration, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAge(Option<Duration>);

impl RetryOptions {
    /// The change of these options alone.
    pub fn change(self) -> GroupChange {
        GroupChange {
            backoff: self.retry_backoff,
            jitter_percent: self.retry_jitter,
            age_max: self.retry_age.map(|age| age.0),
            ..GroupChange::default()
        }
    }
}

fn backoff(text: &str) -> Result<Backoff, String> {
    if text == "none" {
        return Ok(Backoff::None);
    }
    let backoff = match text.split_once("..") {
        Some((first, max)) => Backoff::Exponential { first: duration(first)?, max: duration(max)? },
        None => {
            let delays = text.split(',').map(duration).collect::<Result<Vec<_>, _>>()?;
            Backoff::List(RetryDelays::new(&delays).map_err(|error| error.to_string())?)
        }
    };
    let policy = RetryPolicy { backoff, ..RetryPolicy::default() };
    policy.check().map_err(|error| error.to_string())?;
    Ok(backoff)
}

fn percent(text: &str) -> Result<u8, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<u8>();
    let wrong = || format!("{text:?} is no jitter: write 0% to 100%");
    number.ok().filter(|&percent| percent <= 100).ok_or_else(wrong)
}

fn age(text: &str) -> Result<RetryAge, String> {
    let age = if text == "none" { None } else { Some(duration(text)?) };
    Ok(RetryAge(age.filter(|age| !age.is_zero())))
}

/// The policy in the form of its options: `1s..5m jitter 20% age 1h`, or `-` for none.
pub fn show_policy(policy: &RetryPolicy) -> String {
    let mut parts = Vec::new();
    match policy.backoff {
        Backoff::None => {}
        Backoff::Exponential { first, max } => {
            parts.push(format!("{}..{}", show_duration(first), show_duration(max)));
        }
        Backoff::List(delays) => {
            parts.push(delays.iter().map(show_duration).collect::<Vec<_>>().join(","));
        }
    }
    if policy.jitter_percent > 0 {
        parts.push(format!("jitter {}%", policy.jitter_percent));
    }
    if let Some(age) = policy.age_max {
        parts.push(format!("age {}", show_duration(age)));
    }
    if parts.is_empty() { "-".into() } else { parts.join(" ") }
}

/// The policy as JSON, with the names of the protocol.
pub fn policy_json(policy: &RetryPolicy) -> Value {
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (first, max, delays) = match policy.backoff {
        Backoff::None => (None, None, Vec::new()),
        Backoff::Exponential { first, max } => (Some(ms(first)), Some(ms(max)), Vec::new()),
        Backoff::List(delays) => (None, None, delays.iter().map(ms).collect()),
    };
    json!({
        "first_ms": first,
        "max_ms": max,
        "delays_ms": delays,
        "jitter_percent": policy.jitter_percent,
        "age_max_ms": policy.age_max.map(ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_shown_as_it_is_written() {
        for text in ["1s..5m", "1s,10s,1m", "2s"] {
            let backoff = backoff(text).unwrap();
            assert_eq!(show_policy(&RetryPolicy { backoff, ..RetryPolicy::default() }), text);
        }
        assert_eq!(backoff("none"), Ok(Backoff::None));
        let age_max = age("1h").unwrap().0;
        let policy = RetryPolicy { backoff: Backoff::None, jitter_percent: 20, age_max };
        assert_eq!(show_policy(&policy), "jitter 20% age 1h");
        assert_eq!(show_policy(&RetryPolicy::default()), "-");
        assert_eq!(age("none"), Ok(RetryAge(None)));
    }

    #[test]
    fn a_wrong_option_says_what_would_be_right() {
        assert!(backoff("5m..1s").unwrap_err().contains("allowed is first..max"));
        assert!(backoff("1s,0").unwrap_err().contains("1ms to 100 years"));
        assert!(backoff(&["1s"; 17].join(",")).unwrap_err().contains("1 to 16 delays"));
        assert!(backoff("5").unwrap_err().contains("5 of what?"));
        assert_eq!((percent("20%"), percent("20")), (Ok(20), Ok(20)));
        assert!(percent("101%").is_err() && percent("").is_err() && percent("-1").is_err());
    }
}
