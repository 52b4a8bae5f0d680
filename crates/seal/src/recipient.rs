//! The key of a message for one recipient: HPKE (RFC 9180) in base mode, with P-256, HKDF-SHA256 and AES-256-GCM. It knows
//! bytes only.

use hpke::{
    Deserializable as _, HpkeError, Kem as _, OpModeR, OpModeS, Serializable as _, aead::AesGcm256,
    kdf::HkdfSha256, kem::DhP256HkdfSha256, single_shot_open, single_shot_seal,
};
use zeroize::Zeroizing;

type Kem = DhP256HkdfSha256;
type Public = <Kem as hpke::Kem>::PublicKey;
type Private = <Kem as hpke::Kem>::PrivateKey;
type Encapsulated = <Kem as hpke::Kem>::EncappedKey;

/// Bytes of a private key: a number.
pub(crate) const PRIVATE_BYTES: usize = 32;

/// Bytes of a public key: a point, uncompressed. That of an encapsulated key too.
pub(crate) const PUBLIC_BYTES: usize = 65;

/// Bytes of a secret that is wrapped: the secret, and the tag.
pub(crate) const WRAPPED_BYTES: usize = 32 + 16;

/// A new pair: the private number, then the public point.
pub(crate) fn generate() -> Zeroizing<Vec<u8>> {
    let (private, public) = Kem::gen_keypair();
    let mut bytes = Zeroizing::new(private.to_bytes().to_vec());
    bytes.extend_from_slice(&public.to_bytes());
    bytes
}

/// Whether it is a point that may be a public key.
pub(crate) fn check_public(public: &[u8]) -> Result<(), HpkeError> {
    Public::from_bytes(public).map(|_| ())
}

/// Whether the two belong together.
pub(crate) fn check_pair(private: &[u8], public: &[u8]) -> Result<(), HpkeError> {
    let private = Private::from_bytes(private)?;
    let public = Public::from_bytes(public)?;
    if Kem::sk_to_pk(&private) == public { Ok(()) } else { Err(HpkeError::ValidationError) }
}

/// Wraps a secret for a recipient: the encapsulated key, then the wrapped secret.
pub(crate) fn wrap(public: &[u8], info: &[u8], secret: &[u8; 32]) -> Result<Vec<u8>, HpkeError> {
    let public = Public::from_bytes(public)?;
    let (encapsulated, wrapped) =
        single_shot_seal::<AesGcm256, HkdfSha256, Kem>(&OpModeS::Base, &public, info, secret, b"")?;
    Ok([encapsulated.to_bytes().as_slice(), &wrapped].concat())
}

/// Unwraps a secret.
pub(crate) fn unwrap(
    private: &[u8],
    info: &[u8],
    encapsulated: &[u8],
    wrapped: &[u8],
) -> Result<Zeroizing<Vec<u8>>, HpkeError> {
    let private = Private::from_bytes(private)?;
    let encapsulated = Encapsulated::from_bytes(encapsulated)?;
    single_shot_open::<AesGcm256, HkdfSha256, Kem>(
        &OpModeR::Base,
        &private,
        &encapsulated,
        info,
        wrapped,
        b"",
    )
    .map(Zeroizing::new)
}
