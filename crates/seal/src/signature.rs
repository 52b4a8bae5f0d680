//! Signatures within the content of a sealed message: Ed25519, or HMAC-SHA256 with a key that is shared.

use ring::{
    hmac,
    signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey},
};

use crate::{key::Key, key_id::KeyId, key_kind::KeyKind, open_error::OpenError};

const NONE: u8 = 0;
const ED25519_KIND: u8 = 1;
const HMAC_KIND: u8 = 2;

const ED25519_BYTES: usize = 64;
const HMAC_BYTES: usize = 32;

/// A signature, and whose it is said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signature<'c> {
    kind: u8,
    pub(crate) signer: KeyId,
    bytes: &'c [u8],
}

/// Appends the signature of `signed` to a content, or that there is none.
pub(crate) fn put(signer: Option<&Key>, signed: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let Some(signer) = signer else {
        out.push(NONE);
        return Some(());
    };
    let mut put = |kind: u8, signature: &[u8]| {
        out.push(kind);
        out.extend_from_slice(&signer.id().0);
        out.extend_from_slice(signature);
    };
    match signer.kind() {
        KeyKind::Signing => {
            let pair = Ed25519KeyPair::from_seed_unchecked(signer.bytes()).ok()?;
            put(ED25519_KIND, pair.sign(signed).as_ref());
        }
        KeyKind::SharedSigning => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, signer.bytes());
            put(HMAC_KIND, hmac::sign(&key, signed).as_ref());
        }
        _ => return None,
    }
    Some(())
}

/// Splits a content into its signature, if it has one, and the payload.
pub(crate) fn take(content: &[u8]) -> Result<(Option<Signature<'_>>, &[u8]), OpenError> {
    let (&kind, rest) = content.split_first().ok_or(OpenError::UnknownSignature)?;
    let bytes = match kind {
        NONE => return Ok((None, rest)),
        ED25519_KIND => ED25519_BYTES,
        HMAC_KIND => HMAC_BYTES,
        _ => return Err(OpenError::UnknownSignature),
    };
    let (signer, rest) = rest.split_first_chunk().ok_or(OpenError::UnknownSignature)?;
    let (bytes, payload) = rest.split_at_checked(bytes).ok_or(OpenError::UnknownSignature)?;
    Ok((Some(Signature { kind, signer: KeyId(*signer), bytes }), payload))
}

impl Signature<'_> {
    /// Whether `key` is one that can check it.
    pub(crate) fn is_checked_by(&self, key: &Key) -> bool {
        let kind =
            if self.kind == ED25519_KIND { KeyKind::Verifying } else { KeyKind::SharedSigning };
        key.kind() == kind && key.id() == self.signer
    }

    /// Whether it is a signature of `signed` by the owner of `key`.
    pub(crate) fn is_right(&self, key: &Key, signed: &[u8]) -> bool {
        match key.kind() {
            KeyKind::Verifying => {
                UnparsedPublicKey::new(&ED25519, key.bytes()).verify(signed, self.bytes).is_ok()
            }
            KeyKind::SharedSigning => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, key.bytes());
                hmac::verify(&key, signed, self.bytes).is_ok()
            }
            _ => false,
        }
    }
}
