//! The names of topics, groups and cursors. They are checked when they are parsed, and trusted afterwards.

use std::{
    borrow::Borrow,
    fmt,
    str::FromStr,
    sync::{Arc, LazyLock},
};

use crate::limits::NAME_BYTES_MAX;

/// The reason why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("a name has at least 1 character")]
    Empty,
    /// The name is too long.
    #[error("a name has at most {NAME_BYTES_MAX} characters, this one has {length}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A character is not allowed.
    #[error(
        "{character:?} at byte {position} of {name:?}: a name is made of a-z A-Z 0-9 _ - and ., a topic's also of / ~ and %XX"
    )]
    Character {
        /// The name as given.
        name: String,
        /// The character.
        character: char,
        /// Its position in bytes.
        position: usize,
    },
    /// A dot is first, last or next to another dot.
    #[error("{name:?}: dots separate parts of a name, and no part may be empty")]
    EmptyPart {
        /// The name as given.
        name: String,
    },
}

/// For each byte, the rule for its use in a name.
type AllowedBytes = [u8; 256];

/// Not allowed.
const NEVER: u8 = 0;
/// Allowed, depending on the bytes next to it.
const CONDITIONAL: u8 = 1;
/// Allowed everywhere.
const ALWAYS: u8 = 2;

const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-";

/// The bytes of all names. They are ASCII, so each byte is a character.
static NAME_BYTES: AllowedBytes = with(with([NEVER; 256], LETTERS, ALWAYS), b".", CONDITIONAL);

/// The bytes of topic names, which include those of a path, so that the name of every stream over
/// HTTP is a topic's name.
static TOPIC_NAME_BYTES: AllowedBytes = with(with(NAME_BYTES, b"/~", ALWAYS), b"%", CONDITIONAL);

/// The same table with another rule for these bytes.
const fn with(mut allowed: AllowedBytes, bytes: &[u8], rule: u8) -> AllowedBytes {
    let mut at = 0;
    while at < bytes.len() {
        allowed[bytes[at] as usize] = rule;
        at += 1;
    }
    allowed
}

fn check(name: &str, allowed: &AllowedBytes) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { length: name.len() });
    }
    let bytes = name.as_bytes();
    let least = bytes.iter().fold(ALWAYS, |least, &byte| least.min(allowed[usize::from(byte)]));
    if least == ALWAYS {
        return Ok(());
    }
    let is_escape = |at: usize| {
        let digits = bytes.get(at + 1..at + 3);
        digits.is_some_and(|pair| pair.iter().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F')))
    };
    let (mut begins_part, mut has_empty_part) = (true, false);
    for (position, &byte) in bytes.iter().enumerate() {
        if allowed[usize::from(byte)] == NEVER || byte == b'%' && !is_escape(position) {
            let character = name[position..].chars().next().unwrap_or_default();
            return Err(NameError::Character { name: name.into(), character, position });
        }
        has_empty_part |= begins_part && byte == b'.';
        begins_part = byte == b'.';
    }
    if begins_part || has_empty_part {
        return Err(NameError::EmptyPart { name: name.into() });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $allowed:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;

            fn from_str(name: &str) -> Result<Self, NameError> {
                check(name, &$allowed)?;
                Ok(Self(name.into()))
            }
        }

        // Ordered and compared as its text is.
        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

name! {
    /// A topic's name: 1 to [`NAME_BYTES_MAX`] of `a-z A-Z 0-9 _ - . / ~`, or `%` and two digits of
    /// `0-9 A-F`, where dots separate parts that are not empty (`orders.eu.created`). Cheap to clone.
    TopicName, TOPIC_NAME_BYTES
}

name! {
    /// A group's name: 1 to [`NAME_BYTES_MAX`] of `a-z A-Z 0-9 _ - .` in parts as a topic's. Cheap to
    /// clone.
    GroupName, NAME_BYTES
}

name! {
    /// A cursor's name, of the same form as a group's. Cheap to clone.
    CursorName, NAME_BYTES
}

name! {
    /// A schedule's name, of the same form as a group's. Cheap to clone.
    ScheduleName, NAME_BYTES
}

impl TopicName {
    /// The name of the dead-letter topic of this topic; a number avoids a name that is taken. If
    /// the name would be too long, a hash of everything before the suffix replaces its end.
    #[must_use]
    pub fn dead_letter_topic(&self, number: Option<u32>) -> Self {
        let numbered = number.map_or_else(String::new, |number| format!("-{number}"));
        let mut stem = format!("{}{numbered}", self.0);
        if stem.len() + DEAD_LETTER_SUFFIX.len() > NAME_BYTES_MAX {
            let hash = xxhash_rust::xxh3::xxh3_64(stem.as_bytes());
            stem.truncate(CUT_NAME_BYTES);
            if let Some(escape) = stem.rfind('%').filter(|at| at + 3 > CUT_NAME_BYTES) {
                stem.truncate(escape);
            }
            // What is a name has no two dots together.
            stem.truncate(stem.trim_end_matches('.').len());
            stem.push_str(&format!("-{hash:016x}"));
        }
        stem.push_str(DEAD_LETTER_SUFFIX);
        Self(stem.into())
    }

    /// Returns whether this topic is a dead-letter topic.
    #[must_use]
    pub fn is_dead_letter_topic(&self) -> bool {
        self.0.ends_with(DEAD_LETTER_SUFFIX)
    }
}

/// The suffix of a dead-letter topic's name, behind the name of its topic.
pub const DEAD_LETTER_SUFFIX: &str = ".dead-letter";

/// The bytes of a shortened name that are kept: a dash and 16 digits have to fit before the suffix.
const CUT_NAME_BYTES: usize = NAME_BYTES_MAX - DEAD_LETTER_SUFFIX.len() - 17;

/// The bytes that a topic's name and the name of its dead-letter topic share at their start, at
/// least. Shortening removes less than a part of an escape and a dot in addition.
pub const DEAD_LETTER_SHARED_BYTES: usize = CUT_NAME_BYTES - 3;

impl GroupName {
    /// The group that every queue has: `default`.
    #[must_use]
    pub fn default_group() -> Self {
        // As many groups as there are queues have it: they share the text.
        static DEFAULT: LazyLock<GroupName> = LazyLock::new(|| GroupName("default".into()));
        DEFAULT.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_name_is_made_of_parts_separated_by_dots() {
        for name in ["a", "orders.eu.created", "A-b_9", &"x".repeat(NAME_BYTES_MAX)] {
            assert_eq!(name.parse::<TopicName>().unwrap().as_str(), name);
        }
        for name in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a b",
            "a%2g",
            "a%2",
            "ä",
            &"x".repeat(NAME_BYTES_MAX + 1),
        ] {
            assert!(name.parse::<TopicName>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_topic_may_be_named_as_a_path_is_and_a_group_may_not() {
        for name in ["docs/7/.updates".replace("/.", "/%2E"), "a~b/c%20d".into(), "/a".into()] {
            assert!(name.parse::<TopicName>().is_ok(), "{name:?}");
            assert!(name.parse::<GroupName>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_refused_name_says_where_it_is_wrong() {
        let error = "orders eu".parse::<TopicName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "' ' at byte 6 of \"orders eu\": a name is made of a-z A-Z 0-9 _ - and ., a topic's also of / ~ and %XX"
        );
    }

    #[test]
    fn a_dead_letter_topic_is_known_by_its_last_part() {
        let orders: TopicName = "orders".parse().unwrap();
        let dead = orders.dead_letter_topic(None);
        assert_eq!(dead.as_str(), "orders.dead-letter");
        assert_eq!(orders.dead_letter_topic(Some(7)).as_str(), "orders-7.dead-letter");
        assert!(dead.is_dead_letter_topic() && !orders.is_dead_letter_topic());
        assert!(!"x-dead-letter".parse::<TopicName>().unwrap().is_dead_letter_topic());
    }

    #[test]
    fn however_long_a_topics_name_is_that_of_its_dead_letters_is_a_name() {
        let (mut texts, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for part in ["x", "a.", "ab.", "%2E", "a%2E", "ab%2E", "ab.%2E", "a.%2E%2E"] {
            for length in 1..=NAME_BYTES_MAX {
                let text: String = part.chars().cycle().take(length).collect();
                let Ok(name) = text.parse::<TopicName>() else { continue };
                if !texts.insert(text.clone()) {
                    continue;
                }
                for number in [None, Some(0), Some(u32::MAX)] {
                    let dead = name.dead_letter_topic(number);
                    assert_eq!(dead.as_str().parse::<TopicName>().as_ref(), Ok(&dead));
                    assert!(dead.is_dead_letter_topic());
                    let shared = length.min(DEAD_LETTER_SHARED_BYTES);
                    assert_eq!(dead.as_str()[..shared], text[..shared]);
                    assert!(seen.insert(dead), "two of {text} have one name");
                }
            }
        }
    }

    #[test]
    fn only_what_is_too_long_is_cut() {
        let longest = "x".repeat(NAME_BYTES_MAX - DEAD_LETTER_SUFFIX.len());
        let dead_of = |name: &str| name.parse::<TopicName>().unwrap().dead_letter_topic(None);
        assert_eq!(dead_of(&longest).as_str(), format!("{longest}.dead-letter"));
        let kept = "x".repeat(171);
        let expected = format!("{kept}-730da5b9cc65a83a.dead-letter");
        assert_eq!(dead_of(&"x".repeat(189)).as_str(), expected);
    }
}
