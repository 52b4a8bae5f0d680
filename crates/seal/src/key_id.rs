//! The id of a key: says which key a message needs, and nothing of the key.

use std::fmt;

use ring::digest::{Context, SHA256};

use crate::key_kind::KeyKind;

/// The first 8 bytes of a hash of the key: of the secret one if it is shared, of the public one otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 8]);

impl KeyId {
    /// Bytes of an id.
    pub const BYTES: usize = 8;

    /// The id of a key with these bytes. The two halves of a pair have one id, that of the public one.
    pub(crate) fn of(kind: KeyKind, bytes: &[u8]) -> Self {
        let mut hash = Context::new(&SHA256);
        hash.update(b"sennit key id v1\0");
        hash.update(kind.hashed_name().as_bytes());
        hash.update(b"\0");
        hash.update(bytes);
        let mut id = [0; Self::BYTES];
        id.copy_from_slice(&hash.finish().as_ref()[..Self::BYTES]);
        Self(id)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "KeyId({self})")
    }
}
