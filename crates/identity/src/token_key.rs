//! Keys that check tokens: each has the one algorithm that it may be used with, whatever a token says. They come from
//! secrets, PEM files and JSON documents. It knows no token.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey};
use rustls_pki_types::{SubjectPublicKeyInfoDer, pem::PemObject as _};
use serde::Deserialize;
use x509_cert::{
    der::{Decode as _, Reader as _, SliceReader, asn1::UintRef, oid::ObjectIdentifier},
    spki::SubjectPublicKeyInfoRef,
};

use crate::limits::{
    KEY_FILE_BYTES_MAX, KEY_ID_BYTES_MAX, RSA_BITS_MAX, RSA_BITS_MIN, TOKEN_SECRET_BYTES_MAX,
    TOKEN_SECRET_BYTES_MIN,
};

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const ELLIPTIC_CURVE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");

/// The algorithms of tokens that the broker takes. All others, `none` among them, are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenAlgorithm {
    /// HMAC-SHA256 with a secret that issuer and broker share. Whoever can check such a token can make one.
    Hs256,
    /// RSA with PKCS #1 v1.5 and SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl TokenAlgorithm {
    /// The name in the header of a token.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    pub(crate) fn of_jsonwebtoken(self) -> Algorithm {
        match self {
            Self::Hs256 => Algorithm::HS256,
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

/// The name is none of an algorithm that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the algorithms are HS256, RS256, ES256 and EdDSA")]
pub struct UnknownAlgorithm;

impl FromStr for TokenAlgorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let all = [Self::Hs256, Self::Rs256, Self::Es256, Self::EdDsa];
        all.into_iter().find(|known| known.name() == name).ok_or(UnknownAlgorithm)
    }
}

/// The reason why a key is not taken. It repeats nothing of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenKeyError {
    /// The secret is too short or too long.
    #[error(
        "a secret of {length} bytes: HS256 takes {TOKEN_SECRET_BYTES_MIN} to {TOKEN_SECRET_BYTES_MAX} (TOKEN_SECRET_BYTES_MIN, TOKEN_SECRET_BYTES_MAX); head -c 32 /dev/urandom makes a good one"
    )]
    SecretLength {
        /// Its length in bytes.
        length: usize,
    },
    /// The file is too long.
    #[error("a key file of {length} bytes is too long: KEY_FILE_BYTES_MAX is {KEY_FILE_BYTES_MAX}")]
    FileTooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The file has no public key.
    #[error(
        "no public key in PEM, which begins with -----BEGIN PUBLIC KEY-----; openssl pkey -pubout makes it of a private one"
    )]
    NoPublicKey,
    /// The key is of another kind.
    #[error(
        "the key is none for RSA, ECDSA on P-256 or Ed25519, which RS256, ES256 and EdDSA need"
    )]
    Kind,
    /// The modulus is too short or too long.
    #[error(
        "an RSA key of {bits} bits: {RSA_BITS_MIN} to {RSA_BITS_MAX} are taken (RSA_BITS_MIN, RSA_BITS_MAX)"
    )]
    RsaBits {
        /// The bits of its modulus.
        bits: usize,
    },
    /// The key is damaged, or no key at all.
    #[error("the key is damaged: {part}")]
    Damaged {
        /// What is wrong.
        part: &'static str,
    },
    /// The id of the key is empty or too long.
    #[error("the id of a key (kid) has 1 to {KEY_ID_BYTES_MAX} bytes (KEY_ID_BYTES_MAX)")]
    KeyId,
}

/// A key that checks tokens.
#[derive(Clone)]
pub struct TokenKey {
    id: Option<Box<str>>,
    algorithm: TokenAlgorithm,
    pub(crate) key: DecodingKey,
}

impl TokenKey {
    fn new(algorithm: TokenAlgorithm, key: DecodingKey) -> Self {
        Self { id: None, algorithm, key }
    }

    /// The key of HS256 with this secret: raw bytes, not base64.
    ///
    /// # Errors
    /// The secret is too short to be safe, or too long.
    pub fn from_secret(secret: &[u8]) -> Result<Self, TokenKeyError> {
        if !(TOKEN_SECRET_BYTES_MIN..=TOKEN_SECRET_BYTES_MAX).contains(&secret.len()) {
            return Err(TokenKeyError::SecretLength { length: secret.len() });
        }
        Ok(Self::new(TokenAlgorithm::Hs256, DecodingKey::from_secret(secret)))
    }

    /// All public keys in a PEM file (`BEGIN PUBLIC KEY`), each with the algorithm of its kind.
    ///
    /// # Errors
    /// There is none, or one of them is damaged or not taken.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, TokenKeyError> {
        if pem.len() > KEY_FILE_BYTES_MAX {
            return Err(TokenKeyError::FileTooLong { length: pem.len() });
        }
        let mut keys = Vec::new();
        for section in SubjectPublicKeyInfoDer::pem_slice_iter(pem) {
            let der = section.map_err(|_| TokenKeyError::Damaged { part: "not PEM" })?;
            keys.push(Self::from_subject_public_key_info(&der)?);
        }
        if keys.is_empty() { Err(TokenKeyError::NoPublicKey) } else { Ok(keys) }
    }

    fn from_subject_public_key_info(der: &[u8]) -> Result<Self, TokenKeyError> {
        let damaged = TokenKeyError::Damaged { part: "not a SubjectPublicKeyInfo" };
        let info = SubjectPublicKeyInfoRef::from_der(der).map_err(|_| damaged)?;
        let key = info.subject_public_key.as_bytes().ok_or(damaged)?;
        if info.algorithm.oid == RSA {
            let (modulus, exponent) = rsa_components(key)
                .map_err(|_| TokenKeyError::Damaged { part: "no modulus and exponent" })?;
            Self::from_rsa(modulus, exponent)
        } else if info.algorithm.oid == ELLIPTIC_CURVE {
            match info.algorithm.parameters_oid() {
                Ok(P256) => Self::from_p256(key),
                _ => Err(TokenKeyError::Kind),
            }
        } else if info.algorithm.oid == ED25519 {
            Self::from_ed25519(key)
        } else {
            Err(TokenKeyError::Kind)
        }
    }

    pub(crate) fn from_rsa(modulus: &[u8], exponent: &[u8]) -> Result<Self, TokenKeyError> {
        let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
        let modulus = &modulus[zeros..];
        let bits = modulus.first().map_or(0, |first| {
            modulus.len() * 8 - usize::try_from(first.leading_zeros()).unwrap_or_default()
        });
        if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
            return Err(TokenKeyError::RsaBits { bits });
        }
        let is_odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
        let is_usual = exponent.len() <= 4 && exponent != [1] && exponent.first() != Some(&0);
        if !is_odd(modulus) || !is_odd(exponent) || !is_usual {
            return Err(TokenKeyError::Damaged { part: "no usual modulus and exponent" });
        }
        let key = DecodingKey::from_rsa_raw_components(modulus, exponent);
        Ok(Self::new(TokenAlgorithm::Rs256, key))
    }

    /// The key at an uncompressed point of P-256.
    pub(crate) fn from_p256(point: &[u8]) -> Result<Self, TokenKeyError> {
        if point.len() != 65 || point[0] != 4 {
            return Err(TokenKeyError::Damaged { part: "no uncompressed point of P-256" });
        }
        Ok(Self::new(TokenAlgorithm::Es256, DecodingKey::from_ec_der(point)))
    }

    pub(crate) fn from_ed25519(point: &[u8]) -> Result<Self, TokenKeyError> {
        if point.len() != 32 {
            return Err(TokenKeyError::Damaged { part: "no point of Ed25519" });
        }
        Ok(Self::new(TokenAlgorithm::EdDsa, DecodingKey::from_ed_der(point)))
    }

    /// The key that a member of a key set document (RFC 7517) is; `None` when it is for something else, is not taken, or is
    /// damaged. Secrets (`oct`) and private keys are not taken: whoever publishes them has lost them.
    pub(crate) fn from_json(json: &str) -> Option<Self> {
        let member: JsonKey = serde_json::from_str(json).ok()?;
        let is_public = member.d.is_none();
        let is_for_signatures = member.purpose.as_deref().is_none_or(|purpose| purpose == "sig");
        let checks = |operations: &Vec<Box<str>>| operations.iter().any(|name| **name == *"verify");
        if !is_public || !is_for_signatures || !member.key_ops.as_ref().is_none_or(checks) {
            return None;
        }
        let decode = |text: &Option<Box<str>>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let key = match (&*member.kty, member.crv.as_deref()) {
            ("RSA", _) => Self::from_rsa(&decode(&member.n)?, &decode(&member.e)?),
            ("EC", Some("P-256")) => {
                let (x, y) = (decode(&member.x)?, decode(&member.y)?);
                if x.len() != 32 {
                    return None;
                }
                Self::from_p256(&[&[4], &x[..], &y].concat())
            }
            ("OKP", Some("Ed25519")) => Self::from_ed25519(&decode(&member.x)?),
            _ => return None,
        };
        let key = key.ok()?;
        let names = [
            key.algorithm.name(),
            if key.algorithm == TokenAlgorithm::EdDsa { "Ed25519" } else { "" },
        ];
        if member.alg.as_deref().is_some_and(|alg| !names.contains(&alg)) {
            return None;
        }
        match member.kid {
            Some(id) => key.with_id(&id).ok(),
            None => Some(key),
        }
    }

    /// The same key with an id. A token that names this id is checked with it alone.
    ///
    /// # Errors
    /// The id is empty or too long.
    pub fn with_id(self, id: &str) -> Result<Self, TokenKeyError> {
        if id.is_empty() || id.len() > KEY_ID_BYTES_MAX {
            return Err(TokenKeyError::KeyId);
        }
        Ok(Self { id: Some(id.into()), ..self })
    }

    /// The id of the key (`kid`), if it has one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The algorithm that the key is used with.
    #[must_use]
    pub fn algorithm(&self) -> TokenAlgorithm {
        self.algorithm
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TokenKey");
        shown.field("id", &self.id).field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// The modulus and the exponent of an RSA public key (PKCS #1).
fn rsa_components(der: &[u8]) -> Result<(&[u8], &[u8]), x509_cert::der::Error> {
    let mut reader = SliceReader::new(der)?;
    let both = reader.sequence(|reader| {
        let modulus: UintRef<'_> = reader.decode()?;
        let exponent: UintRef<'_> = reader.decode()?;
        Ok::<_, x509_cert::der::Error>((modulus.as_bytes(), exponent.as_bytes()))
    })?;
    reader.finish()?;
    Ok(both)
}

/// A member of a key set document. Other fields are ignored, as RFC 7517 demands.
#[derive(Deserialize)]
struct JsonKey {
    kty: Box<str>,
    #[serde(rename = "use")]
    purpose: Option<Box<str>>,
    key_ops: Option<Vec<Box<str>>>,
    alg: Option<Box<str>>,
    kid: Option<Box<str>>,
    crv: Option<Box<str>>,
    n: Option<Box<str>>,
    e: Option<Box<str>>,
    x: Option<Box<str>>,
    y: Option<Box<str>>,
    d: Option<serde::de::IgnoredAny>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED25519_PUBLIC: &[u8] = include_bytes!("../test_keys/ed25519_public.pem");
    const P256_PUBLIC: &[u8] = include_bytes!("../test_keys/p256_public.pem");
    const P384_PUBLIC: &[u8] = include_bytes!("../test_keys/p384_public.pem");
    const RSA_PUBLIC: &[u8] = include_bytes!("../test_keys/rsa_public.pem");
    const RSA_1024_PUBLIC: &[u8] = include_bytes!("../test_keys/rsa1024_public.pem");
    const ED25519_PRIVATE: &[u8] = include_bytes!("../test_keys/ed25519.pem");

    fn refused(pem: &[u8]) -> TokenKeyError {
        TokenKey::all_from_pem(pem).unwrap_err()
    }

    #[test]
    fn a_file_may_have_several_public_keys() {
        let pem = [RSA_PUBLIC, P256_PUBLIC, ED25519_PUBLIC].concat();
        let keys = TokenKey::all_from_pem(&pem).unwrap();
        let algorithms: Vec<_> = keys.iter().map(TokenKey::algorithm).collect();
        assert_eq!(
            algorithms,
            [TokenAlgorithm::Rs256, TokenAlgorithm::Es256, TokenAlgorithm::EdDsa]
        );
        assert!(keys.iter().all(|key| key.id().is_none()));
    }

    #[test]
    fn keys_that_are_weak_or_of_another_kind_are_refused() {
        assert_eq!(refused(RSA_1024_PUBLIC), TokenKeyError::RsaBits { bits: 1024 });
        assert_eq!(refused(P384_PUBLIC), TokenKeyError::Kind);
        assert_eq!(refused(ED25519_PRIVATE), TokenKeyError::NoPublicKey);
        assert_eq!(refused(b""), TokenKeyError::NoPublicKey);
        assert_eq!(
            refused(&[b'x'; KEY_FILE_BYTES_MAX + 1]),
            TokenKeyError::FileTooLong { length: KEY_FILE_BYTES_MAX + 1 }
        );
        assert!(matches!(
            refused(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
            TokenKeyError::Damaged { .. }
        ));
        let odd = [&[0xff; 255][..], &[1]].concat();
        assert!(TokenKey::from_rsa(&odd, &[1, 0, 1]).is_ok());
        assert!(TokenKey::from_rsa(&odd, &[1]).is_err(), "an exponent of 1 signs everything");
        assert!(TokenKey::from_rsa(&odd, &[]).is_err() && TokenKey::from_rsa(&odd, &[2]).is_err());
        assert!(TokenKey::from_rsa(&[0xff; 1025], &[3]).is_err());
        assert!(TokenKey::from_rsa(&[0xfe; 256], &[3]).is_err(), "an even modulus");
    }

    #[test]
    fn a_secret_has_bounds() {
        for length in [0, 8, 31, 1025] {
            let refused = TokenKey::from_secret(&vec![1; length]).unwrap_err();
            assert_eq!(refused, TokenKeyError::SecretLength { length });
        }
        assert!(TokenKey::from_secret(&[1; 32]).is_ok());
    }

    #[test]
    fn debug_shows_no_key() {
        let key = TokenKey::from_secret(&[1; 32]).unwrap().with_id("k").unwrap();
        assert_eq!(format!("{key:?}"), "TokenKey { id: Some(\"k\"), algorithm: Hs256, .. }");
        assert!(key.clone().with_id("").is_err());
        assert!(key.with_id(&"k".repeat(KEY_ID_BYTES_MAX + 1)).is_err());
    }
}
