//! Why a message is not opened. Nothing of a payload or of a key is in an error.

use crate::{key_id::KeyId, limits::RECIPIENTS_MAX};

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is some other payload.
    #[error("the message is not sealed")]
    NotSealed,
    /// The text of a sealed message is none.
    #[error("the sealed message is not in base64url without padding")]
    NotBase64,
    /// It ends too early.
    #[error("the sealed message is cut off")]
    Truncated,
    /// It was sealed by a newer program.
    #[error("the message is sealed in version {0}, and this program opens version 1")]
    UnknownVersion(u8),
    /// Bits that have no meaning yet.
    #[error("the sealed message has flags that have no meaning: {0:#04x}")]
    UnknownFlags(u8),
    /// More recipients than there may be.
    #[error("the message is sealed for {0} recipients, and may be for {RECIPIENTS_MAX} at most")]
    TooManyRecipients(usize),
    /// None of the keys is the one.
    #[error("the message is sealed for the channel key {0}, which is not among the keys")]
    NoChannelKey(KeyId),
    /// None of the keys is that of a recipient.
    #[error("the message is sealed for others: none of its {0} recipients is among the keys")]
    NoRecipient(usize),
    /// The key fits, and the message does not.
    #[error("the sealed message was altered, or it was sealed for another topic")]
    Altered,
    /// A signature of an unknown kind, or too short a one.
    #[error("the sealed message has no signature of a known kind in it")]
    UnknownSignature,
    /// There is none, and the keys that it may be of are known.
    #[error("the message is not signed")]
    NotSigned,
    /// None of the keys checks it.
    #[error("the message is signed with the key {0}, which is not among the keys")]
    UnknownSigner(KeyId),
    /// It is wrong.
    #[error("the signature with the key {0} is wrong")]
    WrongSignature(KeyId),
}

impl OpenError {
    /// The name of the refusal for programs, as in the vectors.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotSealed => "not-sealed",
            Self::NotBase64 => "not-base64",
            Self::Truncated => "truncated",
            Self::UnknownVersion(_) => "unknown-version",
            Self::UnknownFlags(_) => "unknown-flags",
            Self::TooManyRecipients(_) => "too-many-recipients",
            Self::NoChannelKey(_) => "no-channel-key",
            Self::NoRecipient(_) => "no-recipient",
            Self::Altered => "altered",
            Self::UnknownSignature => "unknown-signature",
            Self::NotSigned => "not-signed",
            Self::UnknownSigner(_) => "unknown-signer",
            Self::WrongSignature(_) => "wrong-signature",
        }
    }
}
