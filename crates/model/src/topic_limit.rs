//! The limit of a topic: how much each of its partitions may hold, and what becomes of a publish that does not fit.

use std::fmt;

use crate::config_error::ConfigError;

/// How much each partition of a topic may hold. In a queue only messages count that some group has not settled;
/// in a stream all that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopicLimit {
    /// Messages per partition. In a queue those of the group with the most unsettled ones.
    pub messages: Option<u64>,
    /// Bytes per partition, of whole batches.
    pub bytes: Option<u64>,
    /// What becomes of a publish beyond that.
    pub when_full: WhenFull,
}

/// What becomes of a publish to a partition that is full. The publisher is told in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenFull {
    /// It is refused, and may be sent again.
    #[default]
    Refuse,
    /// The oldest messages are dropped for it: settled in every group, whoever holds them.
    DropOldest,
}

impl TopicLimit {
    /// Whether there is a limit at all.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.messages.is_some() || self.bytes.is_some()
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (field, limit) in [("limit.messages", self.messages), ("limit.bytes", self.bytes)] {
            if limit == Some(0) {
                let (value, allowed) = ("0".into(), "1 or more, or none at all".into());
                return Err(ConfigError { field, value, allowed });
            }
        }
        if self.when_full == WhenFull::DropOldest && !self.is_set() {
            return Err(ConfigError {
                field: "limit.when_full",
                value: "drop-oldest, without a limit".into(),
                allowed: "drop-oldest with a number of messages or bytes".into(),
            });
        }
        Ok(())
    }
}

impl WhenFull {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::DropOldest => "drop-oldest",
        }
    }
}

impl fmt::Display for WhenFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for WhenFull {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "refuse" => Ok(Self::Refuse),
            "drop-oldest" => Ok(Self::DropOldest),
            _ => Err(format!("{text:?} is none of refuse and drop-oldest")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_nothing_and_a_rule_without_a_limit_are_named() {
        let refused = |limit: TopicLimit| limit.check().unwrap_err().to_string();
        let limit = TopicLimit { messages: Some(0), ..TopicLimit::default() };
        assert_eq!(refused(limit), "limit.messages is 0, allowed is 1 or more, or none at all");
        let limit = TopicLimit { when_full: WhenFull::DropOldest, ..TopicLimit::default() };
        assert!(refused(limit).starts_with("limit.when_full is drop-oldest, without a limit"));
        assert_eq!(TopicLimit { bytes: Some(1), ..limit }.check(), Ok(()));
        assert_eq!("drop-oldest".parse(), Ok(WhenFull::DropOldest));
        assert!("drop-newest".parse::<WhenFull>().is_err());
    }
}
