//! The cryptography of `jsonwebtoken`, by ring: RSA, ECDSA, EdDSA and HMAC are there already for TLS and API keys. It checks
//! signatures and makes none. It knows no key set and no rule.

use std::sync::Once;

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind, EncodingKey,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{ErrorKind, Result},
    signature::{self, Verifier},
};
use ring::{
    hmac,
    signature::{
        ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
        UnparsedPublicKey,
    },
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Has `jsonwebtoken` check signatures with ring. It has one provider for the whole process; no other crate here sets it.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let _ = PROVIDER.install_default();
    });
}

/// A key with the one algorithm that it is used with.
enum RingVerifier {
    Hs256(hmac::Key),
    Rs256(RsaPublicKeyComponents<Vec<u8>>),
    Es256(UnparsedPublicKey<Vec<u8>>),
    EdDsa(UnparsedPublicKey<Vec<u8>>),
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if algorithm.family() != key.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    let verifier = match (algorithm, key.kind()) {
        (Algorithm::HS256, DecodingKeyKind::SecretOrDer(secret)) => {
            RingVerifier::Hs256(hmac::Key::new(hmac::HMAC_SHA256, secret))
        }
        (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
            RingVerifier::Rs256(RsaPublicKeyComponents { n: n.clone(), e: e.clone() })
        }
        (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point.clone());
            RingVerifier::Es256(key)
        }
        (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => {
            RingVerifier::EdDsa(UnparsedPublicKey::new(&ED25519, point.clone()))
        }
        _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
    };
    Ok(Box::new(verifier))
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(
        &self,
        message: &[u8],
        signature: &Vec<u8>,
    ) -> std::result::Result<(), signature::Error> {
        match self {
            Self::Hs256(key) => hmac::verify(key, message, signature),
            Self::Rs256(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            Self::Es256(key) | Self::EdDsa(key) => key.verify(message, signature),
        }
        .map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Hs256(_) => Algorithm::HS256,
            Self::Rs256(_) => Algorithm::RS256,
            Self::Es256(_) => Algorithm::ES256,
            Self::EdDsa(_) => Algorithm::EdDSA,
        }
    }
}
