//! Names that users give: checked once at the rim, then trusted.

use std::{
    borrow::Borrow,
    fmt,
    str::FromStr,
    sync::{Arc, LazyLock},
};

use crate::limits::NAME_BYTES_MAX;

/// Why a name was refused.
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
        /// Where it stands, in bytes.
        position: usize,
    },
    /// A dot stands first, last or beside another.
    #[error("{name:?}: dots separate parts of a name, and no part may be empty")]
    EmptyPart {
        /// The name as given.
        name: String,
    },
}

/// Of each byte what it may do in a name of one kind.
type Allowed = [u8; 256];

/// It may not stand there.
const NEVER: u8 = 0;
/// It may, if its neighbours are right.
const BESIDE_SOME: u8 = 1;
/// It may, wherever.
const ALWAYS: u8 = 2;

const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-";

/// What may stand in any name: ASCII, and so characters.
static IN_ANY_NAME: Allowed = with(with([NEVER; 256], LETTERS, ALWAYS), b".", BESIDE_SOME);

/// Those of a path too, so that every stream over HTTP has a topic's name.
static IN_TOPIC_NAME: Allowed = with(with(IN_ANY_NAME, b"/~", ALWAYS), b"%", BESIDE_SOME);

/// The same, but of these bytes.
const fn with(mut allowed: Allowed, bytes: &[u8], what: u8) -> Allowed {
    let mut at = 0;
    while at < bytes.len() {
        allowed[bytes[at] as usize] = what;
        at += 1;
    }
    allowed
}

fn check(name: &str, allowed: &Allowed) -> Result<(), NameError> {
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
    TopicName, IN_TOPIC_NAME
}

name! {
    /// A group's name: 1 to [`NAME_BYTES_MAX`] of `a-z A-Z 0-9 _ - .` in parts as a topic's. Cheap to
    /// clone.
    GroupName, IN_ANY_NAME
}

name! {
    /// A cursor's name, of the same form as a group's. Cheap to clone.
    CursorName, IN_ANY_NAME
}

impl TopicName {
    /// The name of the topic that takes this one's dead letters.
    ///
    /// # Errors
    /// [`NameError::TooLong`] when the longer name exceeds the limit.
    pub fn dead_letter_topic(&self) -> Result<Self, NameError> {
        format!("{}{DEAD_LETTER_SUFFIX}", self.0).parse()
    }

    /// Whether this topic takes the dead letters of another.
    #[must_use]
    pub fn is_dead_letter_topic(&self) -> bool {
        self.0.ends_with(DEAD_LETTER_SUFFIX)
    }
}

/// What the name of a topic that takes dead letters ends with, after the name of their topic.
pub const DEAD_LETTER_SUFFIX: &str = ".dead-letter";

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
        let dead = orders.dead_letter_topic().unwrap();
        assert_eq!(dead.as_str(), "orders.dead-letter");
        assert!(dead.is_dead_letter_topic() && !orders.is_dead_letter_topic());
        assert!(!"x-dead-letter".parse::<TopicName>().unwrap().is_dead_letter_topic());
    }
}
