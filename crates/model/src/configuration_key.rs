//! Keys of the configuration. They are checked when they are parsed, and trusted afterwards.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use crate::limits::CONFIGURATION_KEY_BYTES_MAX;

/// What the keys of throttle rules begin with; the pattern of the rule follows.
pub const THROTTLE_KEY_PREFIX: &str = "throttle.";

/// What the keys of hooks begin with: they are changed by requests about hooks alone.
pub const HOOK_KEY_PREFIX: &str = "hook.";

/// What the keys of the entries begin with that say who may do what: they are read and changed by requests about them
/// alone.
pub const IDENTITY_KEY_PREFIX: &str = "identity.";

/// The reason why a text is not a key of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationKeyError {
    /// The text is empty.
    #[error("a key of the configuration has at least 1 character")]
    Empty,
    /// The text is too long.
    #[error(
        "a key of {length} bytes is too long: CONFIGURATION_KEY_BYTES_MAX is {CONFIGURATION_KEY_BYTES_MAX}"
    )]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The text has a character that no key has.
    #[error(
        "{character:?} at byte {position}: a key is made of visible ASCII characters, ! to ~, without spaces"
    )]
    Character {
        /// The character.
        character: char,
        /// Its position in bytes.
        position: usize,
    },
}

/// A key of the configuration: 1 to [`CONFIGURATION_KEY_BYTES_MAX`] visible ASCII characters, `!` to `~`.
/// Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigurationKey(Arc<str>);

impl ConfigurationKey {
    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The pattern of the throttle rule that this key names; `None` if it names none. It is not checked.
    #[must_use]
    pub fn throttle_pattern(&self) -> Option<&str> {
        self.0.strip_prefix(THROTTLE_KEY_PREFIX)
    }

    /// Whether the entry is part of a hook.
    #[must_use]
    pub fn is_of_hooks(&self) -> bool {
        self.0.starts_with(HOOK_KEY_PREFIX)
    }

    /// The name of the entry about a key, user, role or tenant that this is; `None` if it is another's.
    #[must_use]
    pub fn identity_entry(&self) -> Option<&str> {
        self.0.strip_prefix(IDENTITY_KEY_PREFIX)
    }
}

impl FromStr for ConfigurationKey {
    type Err = ConfigurationKeyError;

    fn from_str(text: &str) -> Result<Self, ConfigurationKeyError> {
        if text.is_empty() {
            return Err(ConfigurationKeyError::Empty);
        }
        if text.len() > CONFIGURATION_KEY_BYTES_MAX {
            return Err(ConfigurationKeyError::TooLong { length: text.len() });
        }
        match text.char_indices().find(|(_, character)| !character.is_ascii_graphic()) {
            Some((position, character)) => {
                Err(ConfigurationKeyError::Character { character, position })
            }
            None => Ok(Self(text.into())),
        }
    }
}

impl Borrow<str> for ConfigurationKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConfigurationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_of_visible_characters_and_is_not_long() {
        let long = "k".repeat(CONFIGURATION_KEY_BYTES_MAX);
        for text in ["a", "!", "~", "throttle.tenant:*", "a/b.c_d-e@f", &long] {
            assert_eq!(text.parse::<ConfigurationKey>().unwrap().as_str(), text);
        }
        for (text, said) in [
            ("", "a key of the configuration has at least 1 character"),
            (
                "a b",
                "' ' at byte 1: a key is made of visible ASCII characters, ! to ~, without spaces",
            ),
            (
                "caf\u{e9}",
                "'\u{e9}' at byte 3: a key is made of visible ASCII characters, ! to ~, without spaces",
            ),
            (
                &format!("{long}k"),
                "a key of 257 bytes is too long: CONFIGURATION_KEY_BYTES_MAX is 256",
            ),
        ] {
            assert_eq!(text.parse::<ConfigurationKey>().unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn a_throttles_key_names_its_pattern() {
        let pattern = |text: &str| {
            let key: ConfigurationKey = text.parse().unwrap();
            key.throttle_pattern().map(str::to_owned)
        };
        assert_eq!(pattern("throttle.tenant:*").as_deref(), Some("tenant:*"));
        assert_eq!(pattern("throttle."), Some(String::new()));
        assert_eq!(pattern("throttles.a"), None);
    }
}
