//! Deduplication of a topic: the header whose value says that two messages are the same, for how long a value is
//! remembered, and what becomes of the second message.

use std::{fmt, str::FromStr, time::Duration};

use xxhash_rust::xxh3::xxh3_128;

use crate::{
    config_error::ConfigError,
    limits::{DEDUP_HEADER_BYTES_MAX, DEDUP_WINDOW_MAX},
    message::MessageView,
};

/// How a topic finds messages that were published before, in each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dedup {
    /// The header that has the value. A message without it is never a duplicate.
    pub header: DedupHeader,
    /// How long a value is remembered, 1 ms to [`DEDUP_WINDOW_MAX`].
    pub window: Duration,
    /// What becomes of a message whose value is remembered.
    pub mode: DedupMode,
}

/// What becomes of a message whose value is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DedupMode {
    /// It is not appended. The confirm names the offset of the first one.
    #[default]
    Refuse,
    /// It is appended. The earlier one is settled as replaced, unless a consumer holds it or it has
    /// failed for good.
    Replace,
}

/// The name of a header, 1 to [`DEDUP_HEADER_BYTES_MAX`] bytes, without memory of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DedupHeader {
    /// Behind the name there are zeros.
    name: [u8; DEDUP_HEADER_BYTES_MAX],
    length: u8,
}

impl Dedup {
    /// Checks every field.
    ///
    /// # Errors
    /// The window is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        if (Duration::from_millis(1)..=DEDUP_WINDOW_MAX).contains(&self.window) {
            return Ok(());
        }
        Err(ConfigError {
            field: "dedup.window",
            value: format!("{:?}", self.window),
            allowed: "1ms to 7 days".into(),
        })
    }

    /// The hash of a message's value; `None` if it has none.
    #[must_use]
    pub fn hash_of(&self, message: &MessageView<'_>) -> Option<u128> {
        let mut headers = message.headers().map_while(Result::ok);
        headers.find(|(name, ..)| *name == self.header.as_str()).map(|(.., value)| xxh3_128(value))
    }
}

impl DedupMode {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Replace => "replace",
        }
    }
}

impl fmt::Display for DedupMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DedupMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "replace" => Ok(Self::Replace),
            _ => Err(format!("{text:?} is none of refuse and replace")),
        }
    }
}

impl DedupHeader {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.name[..self.length.into()]).unwrap_or_default()
    }
}

impl FromStr for DedupHeader {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let is_name = (1..=DEDUP_HEADER_BYTES_MAX).contains(&text.len());
        if !is_name || text.contains(char::is_control) {
            let allowed = format!("1 to {DEDUP_HEADER_BYTES_MAX} bytes of text");
            return Err(ConfigError { field: "dedup.header", value: text.into(), allowed });
        }
        let mut name = [0; DEDUP_HEADER_BYTES_MAX];
        name[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { name, length: text.len() as u8 })
    }
}

impl fmt::Debug for DedupHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// As in `order-id, 5min, refuse`.
impl fmt::Display for Dedup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}, {}", self.header.as_str(), self.window, self.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, Header, Message};

    #[test]
    fn the_first_header_of_the_name_counts_and_a_message_without_it_has_no_value() {
        let window = Duration::from_secs(1);
        let dedup = Dedup { header: "id".parse().unwrap(), window, mode: DedupMode::Refuse };
        let message = |headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| Header::text(*name, *value));
            let message = Message { headers: headers.collect(), ..Message::new("x") };
            let mut builder = BatchBuilder::new();
            builder.push(&message).unwrap();
            let batch = builder.take().unwrap();
            dedup.hash_of(&batch.messages().next().unwrap())
        };
        assert_eq!(message(&[("other", "a")]), None);
        assert_eq!(message(&[("id", "a"), ("id", "b")]), message(&[("x", "y"), ("id", "a")]));
        assert_ne!(message(&[("id", "a")]), message(&[("id", "b")]));
    }

    #[test]
    fn a_window_or_a_name_out_of_bounds_is_named() {
        let header: DedupHeader = "id".parse().unwrap();
        let long = Dedup { header, window: 8 * Duration::from_hours(24), mode: DedupMode::Refuse };
        assert_eq!(
            long.check().unwrap_err().to_string(),
            "dedup.window is 691200s, allowed is 1ms to 7 days"
        );
        assert!("".parse::<DedupHeader>().is_err());
        assert!("n".repeat(DEDUP_HEADER_BYTES_MAX + 1).parse::<DedupHeader>().is_err());
    }
}
