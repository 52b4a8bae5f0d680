//! The storage modes of streams: each of the four names stands for a durability, and for whether reads check the
//! content again. It knows no requests.

use std::{fmt, str::FromStr};

use sennit_model::Durability;

/// How a stream is kept, as users of HTTP name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamStorage {
    /// In memory alone: gone with the broker's process.
    Memory,
    /// On disk a moment after it was answered: a crash may cost the last moment.
    FileFast,
    /// On disk before it is answered.
    #[default]
    FileDurable,
    /// As `FileDurable`, and each message is held against its checksum again when it is read.
    Acid,
}

/// A text that names no storage mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no storage mode: memory, file-fast, file-durable or acid")]
pub struct StreamStorageError {
    /// What was given.
    pub text: String,
}

impl StreamStorage {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Memory, Self::FileFast, Self::FileDurable, Self::Acid];

    /// Its name, as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::FileFast => "file-fast",
            Self::FileDurable => "file-durable",
            Self::Acid => "acid",
        }
    }

    /// When what is appended may be read and is confirmed.
    #[must_use]
    pub fn durability(self) -> Durability {
        match self {
            Self::Memory => Durability::Memory,
            Self::FileFast => Durability::Ephemeral,
            Self::FileDurable | Self::Acid => Durability::Durable,
        }
    }

    /// What a stream of that durability is kept as; none of the four has the durability of some topics
    /// of the native protocol.
    #[must_use]
    pub fn of(durability: Durability, is_verified: bool) -> Option<Self> {
        let is_so =
            |mode: &Self| mode.durability() == durability && mode.is_verified() == is_verified;
        Self::ALL.into_iter().find(is_so)
    }

    /// Whether what is read is held against its checksums again.
    #[must_use]
    pub fn is_verified(self) -> bool {
        self == Self::Acid
    }
}

impl fmt::Display for StreamStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StreamStorage {
    type Err = StreamStorageError;

    fn from_str(text: &str) -> Result<Self, StreamStorageError> {
        let named = Self::ALL.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(text));
        named.ok_or_else(|| StreamStorageError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stream_is_kept_as_is_told_by_how_it_is() {
        for mode in StreamStorage::ALL {
            assert_eq!(StreamStorage::of(mode.durability(), mode.is_verified()), Some(mode));
        }
        assert_eq!(StreamStorage::of(Durability::Speculative, false), None);
    }

    #[test]
    fn each_is_read_as_it_is_written() {
        for mode in StreamStorage::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("disk".parse::<StreamStorage>().is_err());
    }

    #[test]
    fn only_acid_is_checked_again() {
        let verified: Vec<_> =
            StreamStorage::ALL.into_iter().filter(|mode| mode.is_verified()).collect();
        assert_eq!(verified, [StreamStorage::Acid]);
    }
}
