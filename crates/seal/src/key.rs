//! Keys, and each as one line of text: its kind, a colon and its bytes in base64url. `Debug` shows none of a key but its id.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    rand::{SecureRandom as _, SystemRandom},
    signature::{Ed25519KeyPair, KeyPair as _},
};
use zeroize::Zeroizing;

use crate::{key_id::KeyId, key_kind::KeyKind, recipient};

/// A key of one kind.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    kind: KeyKind,
    bytes: Zeroizing<Vec<u8>>,
    id: KeyId,
}

/// Why a text is no key. The text is not repeated: it may be most of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// Nothing that is known stands before the colon.
    #[error(
        "it is no key: a key is `KIND:BASE64URL`, and KIND one of sennit-channel-key, \
         sennit-recipient-private-key, sennit-recipient-key, sennit-signing-key, sennit-verifying-key and \
         sennit-shared-signing-key"
    )]
    UnknownKind,
    /// The bytes are not written as they should be.
    #[error("the {} is not in base64url without padding", .0.prefix())]
    NotBase64(KeyKind),
    /// Too many bytes, or too few.
    #[error("the {} has {bytes} bytes, not {}", .kind.prefix(), .kind.bytes())]
    Length {
        /// What it would be.
        kind: KeyKind,
        /// How many there are.
        bytes: usize,
    },
    /// The bytes are none of this kind.
    #[error("the {} is not one: no such point or number exists, or its halves do not fit", .0.prefix())]
    Impossible(KeyKind),
    /// The system gave no random numbers.
    #[error("the system has no random numbers")]
    NoRandom,
}

impl Key {
    /// A new secret key. Of a public kind, the secret half is made: [`Key::public`] has the other.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate(kind: KeyKind) -> Result<Self, KeyTextError> {
        match kind {
            KeyKind::RecipientPrivate | KeyKind::Recipient => {
                Self::of(KeyKind::RecipientPrivate, &recipient::generate())
            }
            KeyKind::Signing | KeyKind::Verifying => Self::random(KeyKind::Signing),
            KeyKind::Channel | KeyKind::SharedSigning => Self::random(kind),
        }
    }

    fn random(kind: KeyKind) -> Result<Self, KeyTextError> {
        let mut bytes = Zeroizing::new(vec![0; kind.bytes()]);
        SystemRandom::new().fill(&mut bytes).map_err(|_| KeyTextError::NoRandom)?;
        Self::of(kind, &bytes)
    }

    /// The key of this kind with these bytes.
    ///
    /// # Errors
    /// They are none.
    pub fn of(kind: KeyKind, bytes: &[u8]) -> Result<Self, KeyTextError> {
        if bytes.len() != kind.bytes() {
            return Err(KeyTextError::Length { kind, bytes: bytes.len() });
        }
        let impossible = KeyTextError::Impossible(kind);
        let id = match kind {
            KeyKind::Recipient => {
                recipient::check_public(bytes).map_err(|_| impossible)?;
                KeyId::of(kind, bytes)
            }
            KeyKind::RecipientPrivate => {
                let (private, public) = bytes.split_at(recipient::PRIVATE_BYTES);
                recipient::check_pair(private, public).map_err(|_| impossible)?;
                KeyId::of(kind, public)
            }
            KeyKind::Signing => {
                let pair = Ed25519KeyPair::from_seed_unchecked(bytes).map_err(|_| impossible)?;
                KeyId::of(kind, pair.public_key().as_ref())
            }
            KeyKind::Channel | KeyKind::Verifying | KeyKind::SharedSigning => {
                KeyId::of(kind, bytes)
            }
        };
        Ok(Self { kind, bytes: Zeroizing::new(bytes.to_vec()), id })
    }

    /// Reads a key as [`Key::to_text`] writes it.
    ///
    /// # Errors
    /// The text is none.
    pub fn from_text(text: &str) -> Result<Self, KeyTextError> {
        let (prefix, encoded) = text.split_once(':').ok_or(KeyTextError::UnknownKind)?;
        let kind = KeyKind::ALL.into_iter().find(|kind| kind.prefix() == prefix);
        let kind = kind.ok_or(KeyTextError::UnknownKind)?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(encoded).map(Zeroizing::new);
        Self::of(kind, &bytes.map_err(|_| KeyTextError::NotBase64(kind))?)
    }

    /// The key as a text. Of a secret key it is the secret.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let encoded = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(&*self.bytes));
        Zeroizing::new(format!("{}:{}", self.kind.prefix(), *encoded))
    }

    /// The half that others may see, of a pair.
    #[must_use]
    pub fn public(&self) -> Option<Self> {
        let (kind, bytes) = match self.kind {
            KeyKind::RecipientPrivate => {
                (KeyKind::Recipient, self.bytes.get(recipient::PRIVATE_BYTES..)?.to_vec())
            }
            KeyKind::Signing => {
                let pair = Ed25519KeyPair::from_seed_unchecked(&self.bytes).ok()?;
                (KeyKind::Verifying, pair.public_key().as_ref().to_vec())
            }
            KeyKind::Recipient | KeyKind::Verifying => (self.kind, self.bytes.to_vec()),
            KeyKind::Channel | KeyKind::SharedSigning => return None,
        };
        Self::of(kind, &bytes).ok()
    }

    /// What it is for.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Key({:?}, {})", self.kind, self.id)
    }
}
