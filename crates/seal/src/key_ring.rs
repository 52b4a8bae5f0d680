//! All keys of a file, by their lines: `KEY [LABEL]`, empty lines and those that begin with `#`. The first key of a kind is
//! the one that seals or signs; the others open what was sealed before it came.

use std::fmt::Write as _;

use zeroize::Zeroizing;

use crate::{
    key::{Key, KeyTextError},
    key_id::KeyId,
    key_kind::KeyKind,
    limits::{KEY_FILE_BYTES_MAX, KEYS_MAX},
};

/// A key and what people call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelledKey {
    /// The key.
    pub key: Key,
    /// Its name, maybe empty.
    pub label: String,
}

/// Keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRing {
    keys: Vec<LabelledKey>,
}

/// Why a text is no file of keys. Nothing of it is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// A line is no key.
    #[error("line {line}: {error}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// Why.
        error: KeyTextError,
    },
    /// Too many keys.
    #[error("there are more than {KEYS_MAX} keys")]
    TooManyKeys,
    /// Too many bytes.
    #[error("it has more than {KEY_FILE_BYTES_MAX} bytes")]
    TooLong,
}

impl KeyRing {
    /// Reads the lines of a file.
    ///
    /// # Errors
    /// A line is no key, or there are too many.
    pub fn from_text(text: &str) -> Result<Self, KeyRingError> {
        if text.len() > KEY_FILE_BYTES_MAX {
            return Err(KeyRingError::TooLong);
        }
        let mut ring = Self::default();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, label) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let key =
                Key::from_text(key).map_err(|error| KeyRingError::Line { line: at + 1, error })?;
            ring.add(key, label.trim())?;
        }
        Ok(ring)
    }

    /// The lines of a file with these keys.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::new());
        for LabelledKey { key, label } in &self.keys {
            let _ = match label.as_str() {
                "" => writeln!(text, "{}", *key.to_text()),
                label => writeln!(text, "{} {label}", *key.to_text()),
            };
        }
        text
    }

    /// Adds a key behind the others.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&mut self, key: Key, label: impl Into<String>) -> Result<(), KeyRingError> {
        if self.keys.len() >= KEYS_MAX {
            return Err(KeyRingError::TooManyKeys);
        }
        self.keys.push(LabelledKey { key, label: label.into() });
        Ok(())
    }

    /// Adds a key before the others: from now on it is the one that seals or signs.
    ///
    /// # Errors
    /// There are too many.
    pub fn add_first(&mut self, key: Key, label: impl Into<String>) -> Result<(), KeyRingError> {
        if self.keys.len() >= KEYS_MAX {
            return Err(KeyRingError::TooManyKeys);
        }
        self.keys.insert(0, LabelledKey { key, label: label.into() });
        Ok(())
    }

    /// Adds those of another ring.
    ///
    /// # Errors
    /// There are too many.
    pub fn extend(&mut self, other: Self) -> Result<(), KeyRingError> {
        other.keys.into_iter().try_for_each(|LabelledKey { key, label }| self.add(key, label))
    }

    /// The keys, in the order of their lines.
    pub fn keys(&self) -> impl Iterator<Item = &LabelledKey> {
        self.keys.iter()
    }

    /// The keys of one kind.
    pub fn of_kind(&self, kind: KeyKind) -> impl Iterator<Item = &Key> {
        self.keys.iter().map(|labelled| &labelled.key).filter(move |key| key.kind() == kind)
    }

    /// The key of one kind with this id.
    pub(crate) fn find(&self, kind: KeyKind, id: KeyId) -> Option<&Key> {
        self.of_kind(kind).find(|key| key.id() == id)
    }

    /// What people call the key with this id, if it has a label.
    #[must_use]
    pub fn label_of(&self, id: KeyId) -> Option<&str> {
        let labelled = self.keys.iter().find(|labelled| labelled.key.id() == id);
        labelled.map(|labelled| labelled.label.as_str()).filter(|label| !label.is_empty())
    }

    /// Whether there is a key that must stay secret.
    #[must_use]
    pub fn has_secrets(&self) -> bool {
        self.keys.iter().any(|labelled| labelled.key.kind().is_secret())
    }
}
