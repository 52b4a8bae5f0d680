//! The broker's own keys: the key that signs webhooks, and the secret of the tokens. They lie in a file of the data
//! directory, and are created when first needed. It knows no subscriptions.

use std::{io, path::Path};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    digest, hmac,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use serde_json::json;

use crate::broker::key_file::{self, Secrets};

/// The broker's own keys.
#[derive(Debug)]
pub(crate) struct Keys {
    pair: Ed25519KeyPair,
    id: Box<str>,
    pub(super) tokens: hmac::Key,
}

impl Keys {
    /// Those in this data directory; made if there are none.
    ///
    /// # Errors
    /// The file cannot be read or written, or is not what it should be.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        Self::of(&key_file::read_or_create(directory)?)
    }

    /// Those in this data directory, if there are some.
    ///
    /// # Errors
    /// The file cannot be read, or is not what it should be.
    pub(crate) fn read(directory: &Path) -> io::Result<Option<Self>> {
        key_file::read(directory)?.map(|secrets| Self::of(&secrets)).transpose()
    }

    fn of(secrets: &Secrets) -> io::Result<Self> {
        let (seed, token) = secrets.split_at(secrets.len() / 2);
        let pair = Ed25519KeyPair::from_seed_unchecked(seed)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        let hash = digest::digest(&digest::SHA256, pair.public_key().as_ref());
        let id = format!("ds_{}", URL_SAFE_NO_PAD.encode(&hash.as_ref()[..12])).into();
        Ok(Self { pair, id, tokens: hmac::Key::new(hmac::HMAC_SHA256, token) })
    }

    /// The name of the key that signs.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The `Webhook-Signature` of a body that is sent at this time, in seconds since 1970.
    pub(crate) fn sign(&self, at: u64, body: &[u8]) -> String {
        let signed = [at.to_string().as_bytes(), b".", body].concat();
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(&signed));
        format!("t={at},kid={},ed25519={signature}", self.id)
    }

    /// What others check signatures with, as RFC 7517 and RFC 8037 have it.
    pub(crate) fn public(&self) -> serde_json::Value {
        json!({ "keys": [{
            "kty": "OKP",
            "crv": "Ed25519",
            "alg": "EdDSA",
            "use": "sig",
            "kid": self.id,
            "x": URL_SAFE_NO_PAD.encode(self.pair.public_key()),
        }]})
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    #[test]
    fn keys_are_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let made = Keys::open(directory.path()).unwrap();
        let read = Keys::open(directory.path()).unwrap();
        assert_eq!(read.id(), made.id());
        assert_eq!(read.sign(1, b"body"), made.sign(1, b"body"));
        assert!(made.id().starts_with("ds_"));
    }

    #[test]
    fn keys_that_are_damaged_are_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(key_file::NAME), b"other").unwrap();
        assert_eq!(Keys::open(directory.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(std::fs::read(directory.path().join(key_file::NAME)).unwrap(), b"other");
    }

    #[test]
    fn whoever_has_the_public_key_can_check() {
        let directory = tempfile::tempdir().unwrap();
        let keys = Keys::open(directory.path()).unwrap();
        let public = keys.public();
        let key = URL_SAFE_NO_PAD.decode(public["keys"][0]["x"].as_str().unwrap()).unwrap();
        let said = keys.sign(1_700_000_000, b"{}");
        let (head, signature) = said.split_once(",ed25519=").unwrap();
        assert_eq!(head, format!("t=1700000000,kid={}", keys.id()));
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let key = UnparsedPublicKey::new(&ED25519, key);
        assert!(key.verify(b"1700000000.{}", &signature).is_ok());
        assert!(key.verify(b"1700000001.{}", &signature).is_err());
    }
}
