//! Patterns of topic names. They are checked when they are parsed, and trusted afterwards.

use std::{fmt, str::FromStr, sync::Arc};

use crate::{
    limits::NAME_BYTES_MAX,
    name::{NameError, TopicName},
};

/// The reason why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A part that is not a wildcard is not a part of a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A wildcard stands beside something else in its part.
    #[error(
        "{part:?} in {pattern:?}: a wildcard is a whole part, * for any one and > for all that follow"
    )]
    PartOfPart {
        /// The pattern as given.
        pattern: String,
        /// The part.
        part: String,
    },
    /// Something follows `>`.
    #[error("{pattern:?}: > stands for all parts that follow, and is the last")]
    NotLast {
        /// The pattern as given.
        pattern: String,
    },
}

/// A pattern of topic names: parts separated by dots. A part is a part of a name, or `*` for any
/// one part; the last part may be `>` for one or more parts. `orders.*` matches `orders.eu`;
/// `orders.>` matches that and `orders.eu.created`. Dead-letter topics match only if the last part
/// of the pattern says so (`orders.*.dead-letter`). Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopicPattern(Arc<str>);

impl TopicPattern {
    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether `text` has a wildcard and so is a pattern, not a name.
    #[must_use]
    pub fn is_pattern(text: &str) -> bool {
        text.contains(['*', '>'])
    }

    /// The prefix of the names of all matching topics.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.0.find(['*', '>']).map_or(&*self.0, |end| &self.0[..end])
    }

    /// Returns whether this topic matches.
    #[must_use]
    pub fn matches(&self, topic: &TopicName) -> bool {
        let mut parts = topic.as_str().split('.');
        let mut last = "";
        for wanted in self.0.split('.') {
            last = wanted;
            match (wanted, parts.next()) {
                (_, None) => return false,
                (">", Some(_)) => {
                    parts.by_ref().for_each(drop);
                }
                ("*", Some(_)) => {}
                (wanted, Some(part)) if wanted == part => {}
                (_, Some(_)) => return false,
            }
        }
        let is_wild = matches!(last, "*" | ">");
        parts.next().is_none() && !(is_wild && topic.is_dead_letter_topic())
    }
}

impl FromStr for TopicPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { length: text.len() }.into());
        }
        for (index, part) in text.split('.').enumerate() {
            match part {
                "*" => {}
                ">" if text.split('.').count() == index + 1 => {}
                ">" => return Err(PatternError::NotLast { pattern: text.into() }),
                part if Self::is_pattern(part) => {
                    let (pattern, part) = (text.into(), part.into());
                    return Err(PatternError::PartOfPart { pattern, part });
                }
                _ => {}
            }
        }
        // What is left has to be a name.
        text.replace(['*', '>'], "x").parse::<TopicName>().map_err(|error| match error {
            NameError::Character { character, position, .. } => {
                NameError::Character { name: text.into(), character, position }
            }
            NameError::EmptyPart { .. } => NameError::EmptyPart { name: text.into() },
            other => other,
        })?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, topic: &str) -> bool {
        pattern.parse::<TopicPattern>().unwrap().matches(&topic.parse().unwrap())
    }

    #[test]
    fn a_star_is_one_part_and_a_sign_is_all_that_follow() {
        for (pattern, topic, expected) in [
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders", false),
            ("orders.*", "orders.eu.created", false),
            ("orders.>", "orders.eu", true),
            ("orders.>", "orders.eu.created", true),
            ("orders.>", "orders", false),
            ("orders.>", "ordersx.eu", false),
            ("*.eu.>", "orders.eu.a.b", true),
            ("*.*", "a.b", true),
            (">", "a.b.c", true),
            ("*", "a", true),
            ("orders", "orders", true),
            ("orders.>", "orders.eu.dead-letter", false),
            ("orders.*", "orders.dead-letter", false),
            ("orders.*.dead-letter", "orders.eu.dead-letter", true),
        ] {
            assert_eq!(matches(pattern, topic), expected, "{pattern} {topic}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_and_says_why() {
        for (text, said) in [
            ("", "a name has at least 1 character"),
            (
                "or*",
                "\"or*\" in \"or*\": a wildcard is a whole part, * for any one and > for all that follow",
            ),
            (
                "a.**",
                "\"**\" in \"a.**\": a wildcard is a whole part, * for any one and > for all that follow",
            ),
            (">.a", "\">.a\": > stands for all parts that follow, and is the last"),
            ("a..*", "\"a..*\": dots separate parts of a name, and no part may be empty"),
            (
                "a b.*",
                "' ' at byte 1 of \"a b.*\": a name is made of a-z A-Z 0-9 _ - and ., a topic's also of / ~ and %XX",
            ),
        ] {
            assert_eq!(text.parse::<TopicPattern>().unwrap_err().to_string(), said, "{text}");
        }
        assert!("x".repeat(NAME_BYTES_MAX + 1).parse::<TopicPattern>().is_err());
    }

    #[test]
    fn no_topic_has_a_name_that_is_a_pattern() {
        for text in ["orders.*", "orders.>", "*", ">"] {
            assert!(TopicPattern::is_pattern(text) && text.parse::<TopicName>().is_err());
        }
    }

    #[test]
    fn the_prefix_is_what_all_names_begin_with() {
        for (pattern, prefix) in
            [("orders.*", "orders."), (">", ""), ("a.b", "a.b"), ("a.*.c", "a.")]
        {
            assert_eq!(pattern.parse::<TopicPattern>().unwrap().prefix(), prefix);
        }
    }
}
