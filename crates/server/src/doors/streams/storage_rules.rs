//! The storage mode of a stream whose creator names none: by the prefix of its name, or the broker's default. It
//! knows no requests.

use std::{fmt, str::FromStr};

use super::{
    name,
    storage_mode::{StreamStorage, StreamStorageError},
};

/// Streams whose names begin alike, and how they are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStorageRule {
    /// What their names begin with, as it stands in addresses behind `/v1/stream/`.
    pub prefix: Box<str>,
    /// How they are kept.
    pub storage: StreamStorage,
}

/// A text that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamStorageRuleError {
    /// It does not say both.
    #[error(
        "a rule is PREFIX=MODE, as metrics/=file-fast; for all streams there is --streams-storage"
    )]
    Shape,
    /// It names no mode.
    #[error(transparent)]
    Mode(#[from] StreamStorageError),
}

impl FromStr for StreamStorageRule {
    type Err = StreamStorageRuleError;

    fn from_str(text: &str) -> Result<Self, StreamStorageRuleError> {
        let (prefix, mode) = text.rsplit_once('=').ok_or(StreamStorageRuleError::Shape)?;
        let prefix = prefix.strip_prefix(name::ROOT).unwrap_or(prefix);
        if prefix.is_empty() {
            return Err(StreamStorageRuleError::Shape);
        }
        Ok(Self { prefix: prefix.into(), storage: mode.trim().parse()? })
    }
}

impl fmt::Display for StreamStorageRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.prefix, self.storage)
    }
}

/// How streams are kept whose creators do not say.
#[derive(Clone, Debug)]
pub(crate) struct StorageRules {
    /// Those of no rule.
    default: StreamStorage,
    /// The longest prefix first.
    rules: Vec<StreamStorageRule>,
}

impl StorageRules {
    pub(crate) fn new(default: StreamStorage, rules: &[StreamStorageRule]) -> Self {
        let mut rules = rules.to_vec();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.prefix.len()));
        Self { default, rules }
    }

    /// How the stream of this name is kept: by the rule with the longest prefix of it.
    pub(super) fn of(&self, name: &str) -> StreamStorage {
        let rule = self.rules.iter().find(|rule| name.starts_with(&*rule.prefix));
        rule.map_or(self.default, |rule| rule.storage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> StorageRules {
        let rules: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
        StorageRules::new(StreamStorage::FileDurable, &rules)
    }

    #[test]
    fn the_longest_prefix_counts_in_whatever_order_they_are_given() {
        let mut texts = ["m/=memory", "m/kept/=acid", "/v1/stream/m/kept/log=file-fast"];
        for _ in 0..2 {
            let rules = rules(&texts);
            for (name, storage) in [
                ("m/a", StreamStorage::Memory),
                ("m/kept/a", StreamStorage::Acid),
                ("m/kept/log-1", StreamStorage::FileFast),
                ("m", StreamStorage::FileDurable),
                ("other", StreamStorage::FileDurable),
            ] {
                assert_eq!(rules.of(name), storage, "{name}");
            }
            texts.reverse();
        }
    }

    #[test]
    fn a_rule_says_which_and_how() {
        let odd: StreamStorageRule = "a=b/=memory".parse().unwrap();
        assert_eq!(&*odd.prefix, "a=b/");
        for text in ["", "memory", "=memory", "/v1/stream/=memory"] {
            assert_eq!(
                text.parse::<StreamStorageRule>(),
                Err(StreamStorageRuleError::Shape),
                "{text}"
            );
        }
        let wrong = "a/=disk".parse::<StreamStorageRule>();
        assert!(matches!(wrong, Err(StreamStorageRuleError::Mode(_))));
    }
}
