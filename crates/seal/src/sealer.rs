//! Seals payloads for those who may read a topic.

use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

use crate::{
    binding::{MessageCipher, recipient_info, signed},
    envelope::put_head,
    key::Key,
    key_kind::KeyKind,
    key_ring::KeyRing,
    limits::{RECIPIENTS_MAX, TOPIC_BYTES_MAX},
    message_id::MessageId,
    recipient, signature,
};

/// Why a payload is not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Nobody could read it.
    #[error("there is neither a channel key nor the key of a recipient among the keys")]
    NoAudience,
    /// It is not clear who is meant.
    #[error("there are channel keys and keys of recipients: seal for a channel or for recipients")]
    TwoAudiences,
    /// Too many.
    #[error("there are {0} recipients, and {RECIPIENTS_MAX} may be at most")]
    TooManyRecipients(usize),
    /// The name is too long.
    #[error("a topic's name has {TOPIC_BYTES_MAX} bytes at most")]
    TopicTooLong,
    /// The system has no random numbers, or the payload is too large for the cipher.
    #[error("it cannot be encrypted: the system has no random numbers, or it is too large")]
    Cipher,
}

/// Seals payloads.
#[derive(Clone, Debug)]
pub struct Sealer {
    audience: SealFor,
    signer: Option<Key>,
    random: SystemRandom,
}

#[derive(Clone, Debug)]
enum SealFor {
    Channel(Key),
    Recipients(Vec<Key>),
}

impl Sealer {
    /// Seals for the first channel key of a ring, or for all recipients in it, and signs with its first signing key, if it has
    /// one.
    ///
    /// # Errors
    /// It is not clear for whom.
    pub fn new(ring: &KeyRing) -> Result<Self, SealError> {
        let recipients: Vec<_> = ring.of_kind(KeyKind::Recipient).cloned().collect();
        let audience = match ring.of_kind(KeyKind::Channel).next() {
            Some(_) if !recipients.is_empty() => return Err(SealError::TwoAudiences),
            Some(key) => SealFor::Channel(key.clone()),
            None if recipients.is_empty() => return Err(SealError::NoAudience),
            None if recipients.len() > RECIPIENTS_MAX => {
                return Err(SealError::TooManyRecipients(recipients.len()));
            }
            None => SealFor::Recipients(recipients),
        };
        let signs = |kind: KeyKind| matches!(kind, KeyKind::Signing | KeyKind::SharedSigning);
        let signer = ring.keys().map(|labelled| &labelled.key).find(|key| signs(key.kind()));
        Ok(Self { audience, signer: signer.cloned(), random: SystemRandom::new() })
    }

    /// Seals a payload for the readers of a topic; `now_ms` is the time that it says.
    ///
    /// # Errors
    /// The topic's name is too long, or the system has no random numbers.
    pub fn seal(&self, topic: &str, payload: &[u8], now_ms: u64) -> Result<Vec<u8>, SealError> {
        let mut id = [0; 16];
        self.random.fill(&mut id).map_err(|_| SealError::Cipher)?;
        self.seal_as(topic, payload, now_ms, MessageId(id))
    }

    /// The same with a given id, which may never be given again.
    pub(crate) fn seal_as(
        &self,
        topic: &str,
        payload: &[u8],
        now_ms: u64,
        id: MessageId,
    ) -> Result<Vec<u8>, SealError> {
        if topic.len() > TOPIC_BYTES_MAX {
            return Err(SealError::TopicTooLong);
        }
        let mut message = Vec::new();
        let mut secret = Zeroizing::new([0; 32]);
        match &self.audience {
            SealFor::Channel(key) => {
                put_head(0, now_ms, id, &mut message);
                message.extend_from_slice(&key.id().0);
                secret.copy_from_slice(key.bytes());
            }
            SealFor::Recipients(recipients) => {
                self.random.fill(&mut *secret).map_err(|_| SealError::Cipher)?;
                let count = u8::try_from(recipients.len()).map_err(|_| SealError::Cipher)?;
                put_head(count, now_ms, id, &mut message);
                let info = recipient_info(id, topic);
                for recipient in recipients {
                    let wrapped = recipient::wrap(recipient.bytes(), &info, &secret);
                    message.extend_from_slice(&recipient.id().0);
                    message.extend_from_slice(&wrapped.map_err(|_| SealError::Cipher)?);
                }
            }
        }
        let mut content = Vec::new();
        let bytes = signed(topic, &message, payload);
        signature::put(self.signer.as_ref(), &bytes, &mut content).ok_or(SealError::Cipher)?;
        content.extend_from_slice(payload);
        let cipher = MessageCipher::new(&*secret, id, topic).map_err(|_| SealError::Cipher)?;
        cipher.seal(topic, &message, &mut content).map_err(|_| SealError::Cipher)?;
        message.append(&mut content);
        Ok(message)
    }
}
