//! Opens sealed messages with the keys of a ring.

use zeroize::Zeroizing;

use crate::{
    binding::{MessageCipher, recipient_info, signed},
    envelope::{Audience, Envelope},
    key::Key,
    key_id::KeyId,
    key_kind::KeyKind,
    key_ring::KeyRing,
    limits::TOPIC_BYTES_MAX,
    message_id::MessageId,
    open_error::OpenError,
    recipient, signature,
    text_form::bytes_of,
};

/// A message that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What was sealed.
    pub payload: Vec<u8>,
    /// Its number: a message with the same one is the same message.
    pub id: MessageId,
    /// When it was sealed, by the clock of the sender.
    pub sent_at_ms: u64,
    /// The key of the signature. It was checked if the ring has keys to check signatures with; otherwise there is none.
    pub signed_by: Option<KeyId>,
}

impl KeyRing {
    /// Opens a message of a topic, in either of its forms. If the ring has keys that check signatures, the message has to be
    /// signed with one of them.
    ///
    /// # Errors
    /// It is not sealed, not for these keys, altered, or not signed as it should be.
    pub fn open(&self, topic: &str, message: &[u8]) -> Result<Opened, OpenError> {
        let message = bytes_of(message)?;
        let envelope = Envelope::read(&message)?;
        if topic.len() > TOPIC_BYTES_MAX {
            return Err(OpenError::Altered);
        }
        let secret = self.secret(topic, &envelope)?;
        let cipher = MessageCipher::new(&secret, envelope.id, topic);
        let opened =
            cipher.and_then(|cipher| cipher.open(topic, envelope.head, envelope.ciphertext));
        let content = opened.map_err(|_| OpenError::Altered)?;
        let (signature, payload) = signature::take(&content)?;
        let mut signed_by = None;
        let checking: Vec<Key> = self.checking_keys().collect();
        if !checking.is_empty() {
            let signature = signature.ok_or(OpenError::NotSigned)?;
            let signer = signature.signer;
            let key = checking.iter().find(|key| signature.is_checked_by(key));
            let key = key.ok_or(OpenError::UnknownSigner(signer))?;
            if !signature.is_right(key, &signed(topic, envelope.head, payload)) {
                return Err(OpenError::WrongSignature(signer));
            }
            signed_by = Some(signer);
        }
        let (id, sent_at_ms) = (envelope.id, envelope.sent_at_ms);
        Ok(Opened { payload: payload.to_vec(), id, sent_at_ms, signed_by })
    }

    /// The keys that check signatures. Who signs trusts its own signatures.
    fn checking_keys(&self) -> impl Iterator<Item = Key> {
        let shared = self.of_kind(KeyKind::SharedSigning).cloned();
        let own = self.of_kind(KeyKind::Signing).filter_map(Key::public);
        self.of_kind(KeyKind::Verifying).cloned().chain(own).chain(shared)
    }

    /// The secret of which the key of a message is made.
    fn secret(
        &self,
        topic: &str,
        envelope: &Envelope<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        match &envelope.audience {
            Audience::Channel(id) => {
                let key = self.find(KeyKind::Channel, *id).ok_or(OpenError::NoChannelKey(*id))?;
                Ok(Zeroizing::new(key.bytes().to_vec()))
            }
            Audience::Recipients(recipients) => {
                let ours = recipients.iter().find_map(|recipient| {
                    Some((recipient, self.find(KeyKind::RecipientPrivate, recipient.key)?))
                });
                let (to, key) = ours.ok_or(OpenError::NoRecipient(recipients.len()))?;
                let private = &key.bytes()[..recipient::PRIVATE_BYTES];
                let info = recipient_info(envelope.id, topic);
                let secret = recipient::unwrap(private, &info, to.encapsulated, to.wrapped);
                secret.map_err(|_| OpenError::Altered)
            }
        }
    }
}
