//! The bytes of a sealed message: a head that anybody can read, and the ciphertext. It decrypts nothing.

use crate::{
    key_id::KeyId,
    limits::RECIPIENTS_MAX,
    message_id::MessageId,
    open_error::OpenError,
    recipient::{PUBLIC_BYTES, WRAPPED_BYTES},
};

/// The first byte, which no text begins with (it is not in UTF-8).
pub(crate) const MAGIC: u8 = 0xf8;

/// The version.
pub(crate) const VERSION: u8 = 1;

/// Bytes of the tag of a ciphertext.
const TAG_BYTES: usize = 16;

/// Bytes before the audience.
const FIXED_BYTES: usize = 28;

/// Bytes of one recipient.
const RECIPIENT_BYTES: usize = KeyId::BYTES + PUBLIC_BYTES + WRAPPED_BYTES;

/// Who can read a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Audience<'m> {
    /// All who have this key.
    Channel(KeyId),
    /// These.
    Recipients(Vec<Recipient<'m>>),
}

/// One who can read a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recipient<'m> {
    /// Of the key.
    pub(crate) key: KeyId,
    pub(crate) encapsulated: &'m [u8],
    pub(crate) wrapped: &'m [u8],
}

/// A sealed message in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelope<'m> {
    /// All before the ciphertext, as it is.
    pub(crate) head: &'m [u8],
    /// When it was sealed, by the clock of the sender.
    pub(crate) sent_at_ms: u64,
    pub(crate) id: MessageId,
    pub(crate) audience: Audience<'m>,
    /// With the tag at its end.
    pub(crate) ciphertext: &'m [u8],
}

impl<'m> Envelope<'m> {
    /// Reads a sealed message.
    pub(crate) fn read(message: &'m [u8]) -> Result<Self, OpenError> {
        if message.first() != Some(&MAGIC) {
            return Err(OpenError::NotSealed);
        }
        let mut rest = message;
        let mut take = |count: usize| {
            let (part, behind) = rest.split_at_checked(count).ok_or(OpenError::Truncated)?;
            rest = behind;
            Ok::<_, OpenError>(part)
        };
        let fixed = take(2)?;
        if fixed[1] != VERSION {
            return Err(OpenError::UnknownVersion(fixed[1]));
        }
        let fixed = take(FIXED_BYTES - 2)?;
        let (count, flags) = (usize::from(fixed[0]), fixed[1]);
        if flags != 0 {
            return Err(OpenError::UnknownFlags(flags));
        }
        if count > RECIPIENTS_MAX {
            return Err(OpenError::TooManyRecipients(count));
        }
        let sent_at_ms = u64::from_be_bytes(array(&fixed[2..10])?);
        let id = MessageId(array(&fixed[10..26])?);
        let audience = if count == 0 {
            Audience::Channel(KeyId(array(take(KeyId::BYTES)?)?))
        } else {
            let mut recipients = Vec::with_capacity(count);
            for _ in 0..count {
                let (key, secret) = take(RECIPIENT_BYTES)?.split_at(KeyId::BYTES);
                let (encapsulated, wrapped) = secret.split_at(PUBLIC_BYTES);
                recipients.push(Recipient { key: KeyId(array(key)?), encapsulated, wrapped });
            }
            Audience::Recipients(recipients)
        };
        let ciphertext = rest;
        // The content has at least the byte that says whether it is signed.
        if ciphertext.len() <= TAG_BYTES {
            return Err(OpenError::Truncated);
        }
        let head = &message[..message.len() - ciphertext.len()];
        Ok(Self { head, sent_at_ms, id, audience, ciphertext })
    }
}

/// Appends the head of a message for a channel, or for `count` recipients, up to the audience.
pub(crate) fn put_head(count: u8, sent_at_ms: u64, id: MessageId, out: &mut Vec<u8>) {
    out.extend_from_slice(&[MAGIC, VERSION, count, 0]);
    out.extend_from_slice(&sent_at_ms.to_be_bytes());
    out.extend_from_slice(&id.0);
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], OpenError> {
    bytes.try_into().map_err(|_| OpenError::Truncated)
}
