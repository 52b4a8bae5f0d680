//! What keys are for, and how each kind is called in a file.

use crate::recipient;

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// Seals and opens: shared by all who may read a channel. 32 random bytes.
    Channel,
    /// Opens what was sealed for its public half. P-256: the private number, then the public point.
    RecipientPrivate,
    /// Seals for the one who has the private half. P-256: the point, uncompressed.
    Recipient,
    /// Signs. Ed25519: the seed.
    Signing,
    /// Checks signatures of the private half. Ed25519: the public key.
    Verifying,
    /// Signs and checks, by HMAC-SHA256: whoever can check can sign. 32 random bytes.
    SharedSigning,
}

impl KeyKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Channel,
        Self::RecipientPrivate,
        Self::Recipient,
        Self::Signing,
        Self::Verifying,
        Self::SharedSigning,
    ];

    /// The word before the colon.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Channel => "sennit-channel-key",
            Self::RecipientPrivate => "sennit-recipient-private-key",
            Self::Recipient => "sennit-recipient-key",
            Self::Signing => "sennit-signing-key",
            Self::Verifying => "sennit-verifying-key",
            Self::SharedSigning => "sennit-shared-signing-key",
        }
    }

    /// Whether others must not see it.
    #[must_use]
    pub fn is_secret(self) -> bool {
        !matches!(self, Self::Recipient | Self::Verifying)
    }

    /// The name in the hash of an id, which a pair has in common.
    pub(crate) fn hashed_name(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::RecipientPrivate | Self::Recipient => "recipient",
            Self::Signing | Self::Verifying => "signing",
            Self::SharedSigning => "shared-signing",
        }
    }

    /// How many bytes a key has.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::RecipientPrivate => recipient::PRIVATE_BYTES + recipient::PUBLIC_BYTES,
            Self::Recipient => recipient::PUBLIC_BYTES,
            Self::Channel | Self::Signing | Self::Verifying | Self::SharedSigning => 32,
        }
    }
}
