//! The broker's own keys: the one that signs what webhooks are told, and the secret of the tokens.
//! They lie in the data directory, readable by its owner alone, and are made when first needed. It
//! knows no subscriptions.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    digest, hmac,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use serde_json::json;

/// The file in the data directory.
const FILE: &str = "subscription-keys";

/// What the file begins with; the seed of the signing key and the secret of the tokens follow, 32 bytes
/// each.
const MAGIC: &[u8; 16] = b"sennit keys v1\n\0";

const SECRET_BYTES: usize = 32;
const FILE_BYTES: usize = MAGIC.len() + 2 * SECRET_BYTES;

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
        let path = directory.join(FILE);
        match File::open(&path) {
            Ok(file) => Self::read(file, &path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(directory, &path),
            Err(error) => Err(error),
        }
    }

    fn read(file: File, path: &Path) -> io::Result<Self> {
        let mode = file.metadata()?.permissions().mode();
        if mode & 0o077 != 0 {
            let path = path.display();
            tracing::warn!(%path, mode = format!("{:o}", mode & 0o777), "others may read the broker's keys");
        }
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        file.take(FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        let secrets = bytes.strip_prefix(MAGIC).filter(|rest| rest.len() == 2 * SECRET_BYTES);
        let secrets = secrets.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no keys", path.display()))
        })?;
        Self::of(secrets)
    }

    fn make(directory: &Path, path: &Path) -> io::Result<Self> {
        let mut secrets = [0; 2 * SECRET_BYTES];
        getrandom::fill(&mut secrets).map_err(|error| io::Error::other(error.to_string()))?;
        let half = path.with_extension("new");
        // What a crash has left was never used.
        match fs::remove_file(&half) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
        file.write_all(MAGIC)?;
        file.write_all(&secrets)?;
        file.sync_all()?;
        fs::rename(&half, path)?;
        File::open(directory)?.sync_all()?;
        Self::of(&secrets)
    }

    fn of(secrets: &[u8]) -> io::Result<Self> {
        let (seed, token) = secrets.split_at(SECRET_BYTES);
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
    fn keys_are_made_once_and_for_the_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let made = Keys::open(directory.path()).unwrap();
        let mode = fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = Keys::open(directory.path()).unwrap();
        assert_eq!(read.id(), made.id());
        assert_eq!(read.sign(1, b"body"), made.sign(1, b"body"));
        assert!(made.id().starts_with("ds_"));
    }

    #[test]
    fn keys_that_are_damaged_are_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let made = Keys::open(directory.path()).unwrap();
        let path = directory.path().join(FILE);
        let bytes = fs::read(&path).unwrap();
        for wrong in [&bytes[..FILE_BYTES - 1], &[&bytes[..], b"x"].concat(), &[0; FILE_BYTES]] {
            fs::write(&path, wrong).unwrap();
            assert_eq!(
                Keys::open(directory.path()).unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
        }
        fs::write(&path, &bytes).unwrap();
        assert_eq!(Keys::open(directory.path()).unwrap().id(), made.id());
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
