//! The options of a throttle: how they are read, and how a throttle is shown.

use sennit_client::ThrottleRate;
use serde_json::{Value, json};

use crate::{
    exit::{Exit, Failure},
    field_options::OrNone,
};

/// Options of a throttle; without them it stays as it is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ThrottleOptions {
    /// How many messages a second, minute or hour: 50/s, 0.5/m, 3/h; none for no limit
    #[arg(long, value_name = "RATE")]
    throttle: Option<String>,
    /// How many messages may come at once after a pause [default: those of one second, at least 1]
    #[arg(long, value_name = "N", requires = "throttle")]
    burst: Option<u32>,
}

impl ThrottleOptions {
    /// The throttle that the options name, if they name one.
    ///
    /// # Errors
    /// It is no rate, or no burst that is allowed.
    pub fn rate(&self) -> Result<Option<OrNone<ThrottleRate>>, Failure> {
        let text = match (self.throttle.as_deref(), self.burst) {
            (None, _) => return Ok(None),
            (Some("none"), None) => return Ok(Some(OrNone(None))),
            (Some(rate), None) => rate.replace(',', " "),
            (Some(rate), Some(burst)) => format!("{rate} burst {burst}"),
        };
        let rate = ThrottleRate::parse(&text);
        let rate = rate.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        Ok(Some(OrNone(Some(rate))))
    }
}

/// The throttle in the form of its option, or `-` for none.
pub fn show_throttle(rate: Option<ThrottleRate>) -> String {
    rate.map_or_else(|| "-".into(), |rate| rate.to_string())
}

/// The throttle as JSON; null for none.
pub fn throttle_json(rate: Option<ThrottleRate>) -> Value {
    rate.map_or(Value::Null, |rate| {
        json!({
            "rate": rate.rate_text(),
            "interval_ns": rate.interval_ns,
            "burst": rate.burst,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(throttle: &str, burst: Option<u32>) -> Result<String, String> {
        let options = ThrottleOptions { throttle: Some(throttle.into()), burst };
        let rate = options.rate().map_err(|failure| failure.to_string())?;
        Ok(show_throttle(rate.unwrap().0))
    }

    #[test]
    fn a_throttle_is_a_rate_with_a_burst_or_none() {
        assert_eq!(read("50/s", None).unwrap(), "50/s burst 50");
        for text in ["50/s burst 9", "50/s,burst 9"] {
            assert_eq!(read(text, None).unwrap(), "50/s burst 9");
        }
        assert_eq!(read("50/s", Some(9)).unwrap(), "50/s burst 9");
        assert_eq!(read("none", None).unwrap(), "-");
        assert!(ThrottleOptions::default().rate().unwrap().is_none());
    }

    #[test]
    fn what_is_no_throttle_is_a_wrong_command_line() {
        for (throttle, burst) in
            [("fast", None), ("none", Some(1)), ("1/s burst 2", Some(1)), ("1/s", Some(0))]
        {
            let options = ThrottleOptions { throttle: Some(throttle.into()), burst };
            assert_eq!(options.rate().unwrap_err().exit, Exit::Usage, "{throttle}");
        }
    }
}
