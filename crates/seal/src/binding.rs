//! What a message is bound to: its topic and its head go into every key, tag and signature, so that it can neither be read
//! nor taken for good elsewhere.

use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    error::Unspecified,
    hkdf::{HKDF_SHA256, KeyType, Salt},
};
use zeroize::Zeroizing;

use crate::message_id::MessageId;

const KEY_LABEL: &[u8] = b"sennit sealed v1 key\0";
const RECIPIENT_LABEL: &[u8] = b"sennit sealed v1 recipient\0";
const CONTENT_LABEL: &[u8] = b"sennit sealed v1 content\0";
const SIGNATURE_LABEL: &[u8] = b"sennit sealed v1 signature\0";

/// Bytes of the key of a message, and of its nonce behind it.
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;

struct KeyAndNonce;

impl KeyType for KeyAndNonce {
    fn len(&self) -> usize {
        KEY_BYTES + NONCE_BYTES
    }
}

/// The cipher of one message: a key of its own, with which nothing else is ever encrypted, and its nonce.
pub(crate) struct MessageCipher {
    key: LessSafeKey,
    nonce: [u8; NONCE_BYTES],
}

impl MessageCipher {
    /// The cipher of a message, of a secret of 32 random bytes.
    pub(crate) fn new(secret: &[u8], id: MessageId, topic: &str) -> Result<Self, Unspecified> {
        let bytes = key_and_nonce(secret, id, topic)?;
        let (key, nonce) = bytes.split_at(KEY_BYTES);
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key)?);
        Ok(Self { key, nonce: nonce.try_into().map_err(|_| Unspecified)? })
    }

    /// Encrypts in place, and appends the tag.
    pub(crate) fn seal(
        self,
        topic: &str,
        head: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<(), Unspecified> {
        let aad = Aad::from(content(topic, head));
        self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(self.nonce), aad, bytes)
    }

    /// Decrypts.
    pub(crate) fn open(
        &self,
        topic: &str,
        head: &[u8],
        ciphertext: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Unspecified> {
        let aad = Aad::from(content(topic, head));
        let mut bytes = Zeroizing::new(ciphertext.to_vec());
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        let length = self.key.open_in_place(nonce, aad, &mut bytes)?.len();
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// The key of a message and its nonce: HKDF-SHA256, whose salt is the message's id.
pub(crate) fn key_and_nonce(
    secret: &[u8],
    id: MessageId,
    topic: &str,
) -> Result<Zeroizing<[u8; KEY_BYTES + NONCE_BYTES]>, Unspecified> {
    let mut bytes = Zeroizing::new([0; KEY_BYTES + NONCE_BYTES]);
    let pseudo_random = Salt::new(HKDF_SHA256, &id.0).extract(secret);
    let info = [KEY_LABEL, topic.as_bytes()];
    pseudo_random.expand(&info, KeyAndNonce)?.fill(&mut *bytes)?;
    Ok(bytes)
}

/// The `info` of HPKE, for the secret of a message.
pub(crate) fn recipient_info(id: MessageId, topic: &str) -> Vec<u8> {
    [RECIPIENT_LABEL, &id.0, topic.as_bytes()].concat()
}

/// What is authenticated with the content.
pub(crate) fn content(topic: &str, head: &[u8]) -> Vec<u8> {
    let mut bytes = CONTENT_LABEL.to_vec();
    put_long(topic.as_bytes(), &mut bytes);
    bytes.extend_from_slice(head);
    bytes
}

/// What is signed.
pub(crate) fn signed(topic: &str, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE_LABEL.to_vec();
    put_long(topic.as_bytes(), &mut bytes);
    put_long(head, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// Appends the length, four bytes, the highest first, and the bytes.
fn put_long(part: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(part);
}
