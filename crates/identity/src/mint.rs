//! Makes tokens, for development and tests: `sennit auth token`. In production an issuer makes them, and the broker has
//! only what checks them. Time and random numbers are arguments.

use std::{collections::BTreeMap, fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
        RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject as _};
use sennit_model::Timestamp;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::{
    limits::{KEY_FILE_BYTES_MAX, TOKEN_BYTES_MAX},
    token_key::{TokenAlgorithm, TokenKey, TokenKeyError},
};

/// Claims that the fields of [`NewToken`] write.
const OWN_CLAIMS: [&str; 12] = [
    "iss", "aud", "sub", "exp", "nbf", "iat", "jti", "tenant", "roles", "rights", "channels",
    "subs",
];

/// The reason why a token is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The secret or key is not taken.
    #[error(transparent)]
    Key(#[from] TokenKeyError),
    /// The file has no private key.
    #[error(
        "no private key in PEM, which begins with -----BEGIN PRIVATE KEY-----; openssl genpkey -algorithm ed25519 makes one"
    )]
    NoPrivateKey,
    /// The private key is in the format of elliptic curves alone.
    #[error(
        "a private key that begins with -----BEGIN EC PRIVATE KEY----- is not taken; openssl pkcs8 -topk8 -nocrypt makes a usual one of it"
    )]
    EllipticCurveFormat,
    /// Another claim has the name of one that is written anyway.
    #[error("the claim {name:?} is set by its own option, and not as another claim")]
    Claim {
        /// The name.
        name: Box<str>,
    },
    /// The token would be too long.
    #[error("the token would have {length} bytes: TOKEN_BYTES_MAX is {TOKEN_BYTES_MAX}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The system gives no random numbers.
    #[error("the token cannot be signed: the system gives no random numbers")]
    Random,
}

/// A key that makes tokens. Debug shows its algorithm alone.
pub struct SigningKey {
    id: Option<Box<str>>,
    pair: Pair,
}

enum Pair {
    Hs256(Zeroizing<Vec<u8>>),
    Rs256(RsaKeyPair),
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

impl SigningKey {
    /// The key of HS256 with this secret: raw bytes, not base64.
    ///
    /// # Errors
    /// The secret is too short to be safe, or too long.
    pub fn from_secret(secret: &[u8]) -> Result<Self, MintError> {
        TokenKey::from_secret(secret)?;
        Ok(Self { id: None, pair: Pair::Hs256(Zeroizing::new(secret.to_vec())) })
    }

    /// The first private key in a PEM file, with the algorithm of its kind.
    ///
    /// # Errors
    /// There is none, or it is damaged or not taken.
    pub fn from_pem(pem: &[u8], random: &SystemRandom) -> Result<Self, MintError> {
        if pem.len() > KEY_FILE_BYTES_MAX {
            return Err(TokenKeyError::FileTooLong { length: pem.len() }.into());
        }
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| MintError::NoPrivateKey)?;
        let pair = match &key {
            PrivateKeyDer::Pkcs1(der) => {
                RsaKeyPair::from_der(der.secret_pkcs1_der()).ok().map(Pair::Rs256)
            }
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                let p256 = &ECDSA_P256_SHA256_FIXED_SIGNING;
                let eddsa = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(Pair::EdDsa);
                eddsa
                    .or_else(|| EcdsaKeyPair::from_pkcs8(p256, der, random).ok().map(Pair::Es256))
                    .or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(Pair::Rs256))
            }
            PrivateKeyDer::Sec1(_) => return Err(MintError::EllipticCurveFormat),
            _ => None,
        };
        let key = Self { id: None, pair: pair.ok_or(TokenKeyError::Kind)? };
        key.token_key()?;
        Ok(key)
    }

    /// The same key with an id, which its tokens name.
    ///
    /// # Errors
    /// The id is empty or too long.
    pub fn with_id(self, id: &str) -> Result<Self, MintError> {
        self.token_key()?.with_id(id)?;
        Ok(Self { id: Some(id.into()), ..self })
    }

    /// The algorithm of the tokens that it makes.
    #[must_use]
    pub fn algorithm(&self) -> TokenAlgorithm {
        match &self.pair {
            Pair::Hs256(_) => TokenAlgorithm::Hs256,
            Pair::Rs256(_) => TokenAlgorithm::Rs256,
            Pair::Es256(_) => TokenAlgorithm::Es256,
            Pair::EdDsa(_) => TokenAlgorithm::EdDsa,
        }
    }

    /// The key that checks its tokens.
    ///
    /// # Errors
    /// It is an RSA key of a size that is not taken.
    pub fn token_key(&self) -> Result<TokenKey, TokenKeyError> {
        let key = match &self.pair {
            Pair::Hs256(secret) => TokenKey::from_secret(secret),
            Pair::Rs256(pair) => {
                let public: ring::signature::RsaPublicKeyComponents<Vec<u8>> =
                    pair.public_key().into();
                TokenKey::from_rsa(&public.n, &public.e)
            }
            Pair::Es256(pair) => TokenKey::from_p256(pair.public_key().as_ref()),
            Pair::EdDsa(pair) => TokenKey::from_ed25519(pair.public_key().as_ref()),
        }?;
        match &self.id {
            Some(id) => key.with_id(id),
            None => Ok(key),
        }
    }

    fn sign(&self, message: &[u8], random: &SystemRandom) -> Result<Vec<u8>, MintError> {
        match &self.pair {
            Pair::Hs256(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                Ok(hmac::sign(&key, message).as_ref().to_vec())
            }
            Pair::Rs256(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let signed = pair.sign(&RSA_PKCS1_SHA256, random, message, &mut signature);
                signed.map(|()| signature).map_err(|_| MintError::Random)
            }
            Pair::Es256(pair) => {
                let signed = pair.sign(random, message).map_err(|_| MintError::Random)?;
                Ok(signed.as_ref().to_vec())
            }
            Pair::EdDsa(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SigningKey");
        shown.field("id", &self.id).field("algorithm", &self.algorithm()).finish_non_exhaustive()
    }
}

/// A token to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewToken {
    /// The owner (`sub`).
    pub subject: Box<str>,
    /// The issuer (`iss`).
    pub issuer: Box<str>,
    /// Whom it is meant for (`aud`).
    pub audience: Box<str>,
    /// For how long it is good.
    pub lifetime: Duration,
    /// The time before which it is not good (`nbf`).
    pub not_before: Option<Timestamp>,
    /// Its id (`jti`).
    pub id: Option<Box<str>>,
    /// The tenant (`tenant`).
    pub tenant: Option<Box<str>>,
    /// Names of roles (`roles`).
    pub roles: Vec<Box<str>>,
    /// Rights as text (`rights`).
    pub rights: Vec<Box<str>>,
    /// Channels of live connections (`channels`).
    pub channels: Vec<Box<str>>,
    /// Other claims, for templates.
    pub others: BTreeMap<Box<str>, Box<str>>,
}

impl NewToken {
    /// The token, signed with `key`, issued `now`. Whoever has the text has its rights: it is zeroed when it is dropped.
    ///
    /// # Errors
    /// It would be too long, another claim has a name of its own, or the system gives no random numbers.
    pub fn mint(
        &self,
        key: &SigningKey,
        now: Timestamp,
        random: &SystemRandom,
    ) -> Result<Zeroizing<String>, MintError> {
        let mut header = json!({ "typ": "JWT", "alg": key.algorithm().name() });
        if let Some(id) = &key.id {
            header["kid"] = json!(id);
        }
        let mut text = Zeroizing::new(encode(&header));
        text.push('.');
        text.push_str(&encode(&Value::Object(self.claims(now)?)));
        let signature = key.sign(text.as_bytes(), random)?;
        text.push('.');
        text.push_str(&URL_SAFE_NO_PAD.encode(signature));
        if text.len() > TOKEN_BYTES_MAX {
            return Err(MintError::TooLong { length: text.len() });
        }
        Ok(text)
    }

    fn claims(&self, now: Timestamp) -> Result<Map<String, Value>, MintError> {
        let mut claims = Map::new();
        for (name, value) in &self.others {
            if OWN_CLAIMS.contains(&&**name) {
                return Err(MintError::Claim { name: name.clone() });
            }
            claims.insert(name.to_string(), json!(value));
        }
        let issued_at = now.0 / 1000;
        let own = [
            ("iss", Some(json!(self.issuer))),
            ("aud", Some(json!(self.audience))),
            ("sub", Some(json!(self.subject))),
            ("iat", Some(json!(issued_at))),
            ("exp", Some(json!(issued_at.saturating_add(self.lifetime.as_secs())))),
            ("nbf", self.not_before.map(|time| json!(time.0 / 1000))),
            ("jti", self.id.as_ref().map(|id| json!(id))),
            ("tenant", self.tenant.as_ref().map(|tenant| json!(tenant))),
            ("roles", (!self.roles.is_empty()).then(|| json!(self.roles))),
            ("rights", (!self.rights.is_empty()).then(|| json!(self.rights))),
            ("channels", (!self.channels.is_empty()).then(|| json!(self.channels))),
        ];
        for (name, value) in own {
            if let Some(value) = value {
                claims.insert(name.to_owned(), value);
            }
        }
        Ok(claims)
    }
}

fn encode(json: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519_PUBLIC: &[u8] = include_bytes!("../test_keys/ed25519_public.pem");
    const P256_SEC1: &[u8] = include_bytes!("../test_keys/p256_sec1.pem");
    const RSA_PKCS1: &[u8] = include_bytes!("../test_keys/rsa_pkcs1.pem");

    fn read(pem: &[u8]) -> Result<SigningKey, MintError> {
        SigningKey::from_pem(pem, &SystemRandom::new())
    }

    #[test]
    fn private_keys_are_read_from_pem() {
        assert_eq!(read(RSA_PKCS1).unwrap().algorithm(), TokenAlgorithm::Rs256);
        assert_eq!(read(P256_SEC1).unwrap_err(), MintError::EllipticCurveFormat);
        assert_eq!(read(ED25519_PUBLIC).unwrap_err(), MintError::NoPrivateKey);
        assert_eq!(read(b"").unwrap_err(), MintError::NoPrivateKey);
        let damaged = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert_eq!(read(damaged).unwrap_err(), MintError::Key(TokenKeyError::Kind));
        let long = vec![b'-'; KEY_FILE_BYTES_MAX + 1];
        assert!(matches!(read(&long), Err(MintError::Key(TokenKeyError::FileTooLong { .. }))));
        assert!(SigningKey::from_secret(b"short").is_err());
    }

    #[test]
    fn other_claims_do_not_replace_own_ones() {
        let key = SigningKey::from_secret(&[1; 32]).unwrap();
        for name in OWN_CLAIMS {
            let others = [(name.into(), "x".into())].into();
            let token = NewToken { others, ..NewToken::default() };
            let refused = token.mint(&key, Timestamp(0), &SystemRandom::new()).unwrap_err();
            assert_eq!(refused, MintError::Claim { name: name.into() });
        }
    }

    #[test]
    fn a_token_that_no_broker_would_take_is_not_made() {
        let key = SigningKey::from_secret(&[1; 32]).unwrap();
        let token = NewToken { subject: "s".repeat(TOKEN_BYTES_MAX).into(), ..NewToken::default() };
        let refused = token.mint(&key, Timestamp(0), &SystemRandom::new()).unwrap_err();
        assert!(matches!(refused, MintError::TooLong { .. }));
    }

    #[test]
    fn debug_shows_no_key() {
        let key = SigningKey::from_secret(&[1; 32]).unwrap().with_id("k").unwrap();
        assert_eq!(format!("{key:?}"), "SigningKey { id: Some(\"k\"), algorithm: Hs256, .. }");
    }
}
