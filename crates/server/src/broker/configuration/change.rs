//! What the stream of the configuration holds: one message for each change, and one where all entries were
//! written again. docs/reference/kv.md has the bytes. It knows no stream.

use bytes::Bytes;
use sennit_model::{ConfigurationKey, Message, limits::CONFIGURATION_VALUE_BYTES_MAX};

/// The kinds of messages, the first byte of the payload.
const SET: u8 = 1;
const DELETED: u8 = 2;
const WRITTEN_AGAIN: u8 = 3;

/// Bytes of kind and revision.
const HEAD_BYTES: usize = 9;

/// A change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationChange {
    /// The entry's key.
    pub key: ConfigurationKey,
    /// The revision of the configuration that this change made, from 1.
    pub revision: u64,
    /// The entry's value from then on; `None` if it was deleted.
    pub value: Option<Bytes>,
}

impl ConfigurationChange {
    /// Bytes of its key and value.
    pub(crate) fn bytes(&self) -> usize {
        self.key.as_str().len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// A message of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeptConfiguration {
    /// A change, or an entry that was written again with the revision that it had.
    Change(ConfigurationChange),
    /// All entries follow that there were at this revision; what lies before is trimmed after them.
    WrittenAgain {
        /// The revision.
        revision: u64,
    },
}

/// Why a message of the stream cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeptConfigurationError {
    /// The payload ends within its head.
    #[error("the payload has {0} bytes, its head has {HEAD_BYTES}")]
    Short(usize),
    /// No version of the broker has written this kind, or a later one.
    #[error("kind {0} is not known")]
    Kind(u8),
    /// Revisions count from 1.
    #[error("a change has revision 0")]
    Revision,
    /// The message's key is no key of the configuration.
    #[error("the message's key is no key of the configuration")]
    Key,
    /// Something follows where nothing may, or a value is too long.
    #[error("{0} bytes follow the head, too many for the kind")]
    Length(usize),
}

impl KeptConfiguration {
    /// The message to append.
    #[must_use]
    pub fn message(&self) -> Message {
        let (key, kind, revision, value) = match self {
            Self::Change(ConfigurationChange { key, revision, value: Some(value) }) => {
                (key.as_str(), SET, revision, &value[..])
            }
            Self::Change(ConfigurationChange { key, revision, value: None }) => {
                (key.as_str(), DELETED, revision, &[][..])
            }
            Self::WrittenAgain { revision } => ("", WRITTEN_AGAIN, revision, &[][..]),
        };
        let mut payload = Vec::with_capacity(HEAD_BYTES + value.len());
        payload.push(kind);
        payload.extend_from_slice(&revision.to_le_bytes());
        payload.extend_from_slice(value);
        Message { key: Bytes::copy_from_slice(key.as_bytes()), ..Message::new(payload) }
    }

    /// Reads the key and the payload of a message.
    ///
    /// # Errors
    /// The bytes are not what a broker has written.
    pub fn decode(key: &[u8], payload: &[u8]) -> Result<Self, KeptConfigurationError> {
        let Some((head, value)) = payload.split_first_chunk::<HEAD_BYTES>() else {
            return Err(KeptConfigurationError::Short(payload.len()));
        };
        let [kind, revision @ ..] = *head;
        let revision = u64::from_le_bytes(revision);
        let value = match (kind, value.len()) {
            (SET, 0..=CONFIGURATION_VALUE_BYTES_MAX) => Some(Bytes::copy_from_slice(value)),
            (DELETED, 0) => None,
            (WRITTEN_AGAIN, 0) if key.is_empty() => return Ok(Self::WrittenAgain { revision }),
            (WRITTEN_AGAIN, 0) => return Err(KeptConfigurationError::Key),
            (SET | DELETED | WRITTEN_AGAIN, length) => {
                return Err(KeptConfigurationError::Length(length));
            }
            (kind, _) => return Err(KeptConfigurationError::Kind(kind)),
        };
        let key = std::str::from_utf8(key).ok().and_then(|key| key.parse().ok());
        let key = key.ok_or(KeptConfigurationError::Key)?;
        if revision == 0 {
            return Err(KeptConfigurationError::Revision);
        }
        Ok(Self::Change(ConfigurationChange { key, revision, value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(value: Option<&'static str>) -> KeptConfiguration {
        let key = "color".parse().expect("it is a key");
        let value = value.map(Bytes::from);
        KeptConfiguration::Change(ConfigurationChange { key, revision: 258, value })
    }

    #[test]
    fn the_bytes_are_those_of_the_page() {
        let page = include_str!("../../../../../docs/reference/kv.md");
        for (kept, key, hex) in [
            (change(Some("green")), "color", "01 02 01 00 00 00 00 00 00 67 72 65 65 6e"),
            (change(None), "color", "02 02 01 00 00 00 00 00 00"),
            (KeptConfiguration::WrittenAgain { revision: 258 }, "", "03 02 01 00 00 00 00 00 00"),
        ] {
            let message = kept.message();
            let bytes: Vec<_> = message.payload.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!((&message.key[..], bytes.join(" ").as_str()), (key.as_bytes(), hex));
            assert!(page.contains(&format!("`{hex}`")), "docs/reference/kv.md has no {hex}");
            assert_eq!(KeptConfiguration::decode(&message.key, &message.payload), Ok(kept));
        }
    }

    #[test]
    fn what_no_broker_has_written_is_an_error() {
        let long = [&[SET, 1, 0, 0, 0, 0, 0, 0, 0][..], &[0; CONFIGURATION_VALUE_BYTES_MAX + 1]];
        for (key, payload, error) in [
            ("k", &[][..], KeptConfigurationError::Short(0)),
            ("k", &[SET, 1, 0, 0, 0, 0, 0, 0], KeptConfigurationError::Short(8)),
            ("k", &[0, 1, 0, 0, 0, 0, 0, 0, 0], KeptConfigurationError::Kind(0)),
            ("k", &[4, 1, 0, 0, 0, 0, 0, 0, 0], KeptConfigurationError::Kind(4)),
            ("k", &[SET, 0, 0, 0, 0, 0, 0, 0, 0], KeptConfigurationError::Revision),
            ("", &[SET, 1, 0, 0, 0, 0, 0, 0, 0], KeptConfigurationError::Key),
            ("a b", &[DELETED, 1, 0, 0, 0, 0, 0, 0, 0], KeptConfigurationError::Key),
            ("k", &[WRITTEN_AGAIN, 1, 0, 0, 0, 0, 0, 0, 0], KeptConfigurationError::Key),
            ("k", &[DELETED, 1, 0, 0, 0, 0, 0, 0, 0, 7], KeptConfigurationError::Length(1)),
            ("k", &long.concat(), KeptConfigurationError::Length(65_537)),
        ] {
            assert_eq!(KeptConfiguration::decode(key.as_bytes(), payload), Err(error));
        }
    }
}
